"""The split normal: its functions, its pairs with every other model, and its way through both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from mpmath import mp, mpf

import haply as hp
from haply.models import (
    Asymmetric,
    Certain,
    Gaussian,
    Histogram,
    Mixture,
    Samples,
    TruncatedGaussian,
    Uniform,
)
from haply.probability import equal_within
from oracle_asymmetric import SplitNormal

ROWS = ((1.0, 0.5, 1.5), (2.0, 0.3, 0.3), (0.0, 0.01, 0.7), (5.0, 2.0, 0.1), (-3.0, 0.0, 1.0), (7.0, 1.0, 0.0))


def model(*rows: tuple[float, float, float]) -> Asymmetric:
    return Asymmetric(*map(list, zip(*rows, strict=True)))


@pytest.mark.parametrize("row", ROWS)
def test_functions(row: tuple[float, float, float]) -> None:
    value, one = SplitNormal(*row), model(row)
    assert one.mean()[0] == pytest.approx(float(value.mean()), abs=1e-14)
    assert one.variance()[0] == pytest.approx(float(value.variance()), rel=1e-13)
    for x in np.linspace(row[0] - 6 * row[1] - 1, row[0] + 6 * row[2] + 1, 41):
        assert one.cdf(x)[0] == pytest.approx(float(value.cdf(mpf(x))), rel=1e-12, abs=1e-15)
    for level in (1e-9, 0.01, 0.3, 0.5, 0.77, 1 - 1e-9):
        for found in (one.quantile(level)[0], one.quantile_low(level)[0]):
            assert float(value.cdf(mpf(found))) == pytest.approx(level, abs=1e-12)
    low, high = (end[0] for end in one.support())
    assert (low, high) == (-np.inf if row[1] else row[0], np.inf if row[2] else row[0])


def test_without_errors_it_is_an_atom_and_with_equal_ones_a_gaussian() -> None:
    atom = model((2.0, 0.0, 0.0))
    assert (atom.cdf(1.999)[0], atom.cdf(2.0)[0], atom.variance()[0]) == (0.0, 1.0, 0.0)
    even, plain = model((1.0, 0.4, 0.4)), Gaussian([1.0], [0.4])
    for x in (-1.0, 0.3, 1.0, 2.2):
        assert even.cdf(x)[0] == pytest.approx(plain.cdf(x)[0], rel=1e-13)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("row", ROWS)
def test_pairs_with_every_model(row: tuple[float, float, float]) -> None:
    value, one, within = SplitNormal(*row), model(row), 0.7
    far = [1.5 + 0.4 * k for k in (-40, -8, -3, -1, 0, 1, 3, 8, 40)]
    normal = value.near_density(lambda y: mp.npdf(y, 1.5, mpf("0.4")), far, within)
    split = SplitNormal(1.5, 0.2, 0.9)
    splits = [1.5 + s for s in (-8.0, -1.6, -0.6, -0.2, 0.0, 0.9, 2.7, 7.2, 36.0)]
    cases = (
        (Certain([1.5]), value.near(mpf(1.5), within)),
        (Uniform([1.0], [2.5]), value.near_uniform(1.0, 2.5, within)),
        (Samples([[1.0, 1.5, 4.0]]), sum(value.near(mpf(y), within) for y in (1.0, 1.5, 4.0)) / 3),
        (
            Histogram([[0.0, 1.0, 3.0]], [[0.25, 0.75]]),
            value.near_uniform(0.0, 1.0, within) / 4 + 3 * value.near_uniform(1.0, 3.0, within) / 4,
        ),
        (Gaussian([1.5], [0.4]), normal),
        (
            Mixture([[0.5, 0.5]], [[1.5, 1.0]], [[0.4, 0.0]]),
            (normal + value.near(mpf(1), within)) / 2,
        ),
        (TruncatedGaussian([1.5], [0.4], [-20.0], [20.0]), normal),
        (model((1.5, 0.2, 0.9)), value.near_density(split.pdf, splits, within)),
    )
    for other, wanted in cases:
        assert equal_within(one, other, within)[0] == pytest.approx(float(wanted), abs=1e-12), other.kind
        assert equal_within(other, one, within)[0] == pytest.approx(float(wanted), abs=1e-12), other.kind


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e300])
def test_scales(scale: float) -> None:
    one, other = model((scale, scale, 2 * scale)), Gaussian([0.0], [scale])
    wanted = equal_within(model((1.0, 1.0, 2.0)), Gaussian([0.0], [1.0]), 1.0)[0]
    assert equal_within(one, other, scale)[0] == pytest.approx(wanted, rel=1e-12)


def test_bad_rows_and_constants() -> None:
    with pytest.raises(hp.HaplyError, match="minus < 0"):
        model((1.0, -0.1, 1.0))
    table = pa.table({"v": [1.0, 2.0], "lo": [0.1, -0.1], "hi": [0.1, 0.1]})
    with pytest.raises(
        hp.HaplyError, match=r"asymmetric\(v, lo, hi\).*has a row that is not a distribution.*minus < 0"
    ):
        hp.where(table, "asymmetric(v, lo, hi) > 0", 0.5)
    with pytest.raises(hp.HaplyError, match=r"given to asymmetric\(\).*plus < 0"):
        hp.where(table, "asymmetric(v, 0.1, -1) > 0", 0.5)


def test_every_way_in(spark: Any) -> None:
    """In Python and in text, in a condition, as a column and in SQL, on both engines."""
    table = pa.table({"id": [1, 2], "v": [1.0, 3.0], "lo": [0.1, 0.2], "hi": [0.4, 0.1]})
    wanted = float(1 - SplitNormal(1.0, 0.1, 0.4).cdf(mpf("1.2")))
    frame = spark.createDataFrame(table)
    made = frame.withColumn("x", hp.asymmetric("v", "lo", "hi"))
    assert made.schema["x"].dataType.names == ["mode", "minus", "plus"]
    query = "SELECT id, PROB() AS probability FROM t WHERE ASYMMETRIC(v, lo, hi) > 1.2 WITH THRESHOLD 0.1"
    condition = hp.asymmetric(hp.col("v"), hp.col("lo"), hp.col("hi")) > 1.2
    for found in (
        hp.where(table, condition, 0.1),
        hp.where(table, "asymmetric(v, lo, hi) > 1.2", 0.1),
        hp.sql(query, t=table),
        hp.where(frame, condition, 0.1).toArrow(),
        hp.where(made, "x > 1.2", 0.1).toArrow(),
        hp.sql(query, t=frame).toArrow(),
    ):
        assert found["id"].to_pylist() == [1, 2]
        np.testing.assert_allclose(found["probability"].to_pylist(), [wanted, 1.0], rtol=0, atol=1e-12)
