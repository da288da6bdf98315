"""What tests of joins share: tables of the oracle's values, and the answer checked against brute force."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager

import numpy as np
from pyspark.sql import functions as F

import both_kit as hp
import oracle
from engine import model_of
from haply.probability import Region

REGIONS = {
    "abs(left.x - right.x) <= 0.8": Region(-0.8, 0.8),
    "abs(left.x - right.x) > 0.8": Region(-0.8, 0.8, outside=True),
    "left.x < right.x": Region(-math.inf, 0.0, high_closed=False),
    "left.x > right.x": Region(0.0, math.inf, low_closed=False),
    "left.x >= right.x": Region(0.0, math.inf),
    "left.x - right.x BETWEEN -0.5 AND 1.25": Region(-0.5, 1.25),
    "abs(left.x - right.x) >= 3": Region(-3.0, 3.0, low_closed=False, high_closed=False, outside=True),
}


@contextmanager
def settings(spark, **values):
    """Spark settings for one test, put back afterwards."""
    spark = spark.spark if isinstance(spark, hp.Engine) else spark
    if spark is None:
        yield
        return
    names = {name: f"spark.haply.{name}" for name in values}
    for name, value in values.items():
        spark.conf.set(names[name], str(value))
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(names[name])


def with_column(table, name, text):
    """Another column, as told in SQL."""
    return table.withColumn(name, text if isinstance(table, hp.Table) else F.expr(text))


def frame(spark, values, **columns):
    """A DataFrame with ids and a column ``x`` of the oracle's values (None is null), all of one kind."""
    known = [value for value in values if value is not None]
    array = model_of(known).to_arrow().to_pylist() if known else []
    rows = iter(array)
    data = [(i, None if value is None else next(rows)) for i, value in enumerate(values)]
    kinds = {
        "Point": "double",
        "Uniform": "struct<lo:double,hi:double>",
        "Normal": "struct<mean:double,sd:double>",
        "Truncated": "struct<mean:double,sd:double,lo:double,hi:double>",
        "NormalMixture": "struct<weights:array<double>,means:array<double>,sds:array<double>>",
        "Hist": "struct<edges:array<double>,probs:array<double>>",
        "Discrete": "struct<points:array<double>,probs:array<double>,dim:int>",
    }
    kind = kinds[type(known[0]).__name__] if known else kinds["Normal"]
    return spark.createDataFrame(data, f"id long, x {kind}")


def collect(result):
    """Pairs with their probabilities (None if there are none), refusing a doubled pair."""
    known = "probability" in result.columns
    rows = [(row["id_left"], row["id_right"], row["probability"] if known else None) for row in result.collect()]
    counts = Counter((i, j) for i, j, _ in rows)
    assert not counts or max(counts.values()) == 1, "a pair was doubled"
    return {(i, j): p for i, j, p in rows}


def answer(lefts, rights, on, threshold, strict=False, same=None):
    """All probabilities, the pairs to be kept, and those that rounding may decide."""
    region = REGIONS[on]
    probabilities = oracle.brute_force_probabilities(
        lefts, rights, region.low, region.high, region.low_closed, region.high_closed, region.outside, same=same
    )
    wanted = set(oracle.kept_pairs(probabilities, threshold, strict))
    return probabilities, wanted, set(oracle.borderline_pairs(probabilities, threshold))


def check(spark, lefts, rights, on, threshold, strict=False, keys=None, same=None, **options):
    """The join against brute force. With ``keys``, rows also share their number modulo ``keys``."""
    probabilities, wanted, hairline = answer(lefts, rights, on, threshold, strict, same)
    tables = [frame(spark, side) for side in (lefts, rights)]
    if keys:
        tables = [with_column(table, "key", f"id % {keys}") for table in tables]
        on += " AND left.key = right.key"
        wanted = {(i, j) for i, j in wanted if i % keys == j % keys}
        assert wanted, "the test has no answer to find"
    found = collect(hp.join(*tables, on, threshold, strict=strict, **options))
    assert all((i - j) % (keys or 1) == 0 for i, j in found)
    assert set(found) - hairline == wanted - hairline
    for pair, p in found.items():
        if options.get("probability") == "none":
            assert p is None
        else:
            assert abs(p - float(probabilities[pair])) < 1e-9
    return found


def values(kind, n, seed, center=(-5, 5)):
    rng = np.random.default_rng(seed)
    return [
        oracle.random_value(rng, kind, scale=float(2.0 ** rng.integers(-3, 2)), center_range=center) for _ in range(n)
    ]
