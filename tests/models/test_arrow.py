"""Models in and out of Arrow: same rows, no copies, nulls and bad rows set apart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from haply.errors import HaplyError
from haply.models import (
    Certain,
    Gaussian,
    GaussianND,
    Histogram,
    Mixture,
    MixtureND,
    Samples,
    TruncatedGaussian,
    Uniform,
)
from haply.models.columns import read_column, stacked
from haply.models.ragged import as_arrow, as_numpy

MODELS = [
    Certain([1.0, 2.0]),
    Uniform([0, 1], [1, 3]),
    Gaussian([0, 1], [1, 0]),
    TruncatedGaussian([0, 1], [1, 1], [-1, 0], [1, 2]),
    Mixture([[0.5, 0.5], [1.0]], [[0, 1], [2]], [[1, 1], [0.5]]),
    Histogram([[0, 1, 3], [0, 2]], [[0.25, 0.75], [1.0]]),
    Samples([[1, 2, 5], [3]]),
    Samples([[1, 2, 5, 6], [3, 4]], [[0.25, 0.75], [1.0]], dim=2),
    GaussianND([[1, 2]], [[[1, 0.9], [0.9, 2.25]]]),
    MixtureND([[0.5, 0.5]], [[0, 0, 1, 1]], [[1, 0, 0, 1, 2, 0, 0, 2]]),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_there_and_back(model):
    array = model.to_arrow()
    again = type(model).from_arrow(array)
    assert len(again) == len(model)
    assert again.to_arrow().equals(array)
    read = read_column(array)
    assert type(read.model) is type(model)
    assert read.rows.tolist() == list(range(len(model)))


def test_double_buffers_are_viewed_not_copied():
    array = Gaussian(np.arange(1000.0), np.ones(1000)).to_arrow()
    model = Gaussian.from_arrow(array)
    assert model.sd.__array_interface__["data"][0] == array.field("sd").buffers()[1].address
    lists = Histogram([[0, 1, 3]] * 10, [[0.25, 0.75]] * 10).to_arrow()
    edges = Histogram.from_arrow(lists).edges.values
    assert edges.__array_interface__["data"][0] == lists.field("edges").values.buffers()[1].address


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_slices_of_arrow_arrays(model):
    array = pa.concat_arrays([model.to_arrow()] * 3).slice(1, len(model) + 1)
    whole = type(model).from_arrow(array)
    assert whole.to_arrow().to_pylist() == array.to_pylist()


def test_other_number_types_are_converted():
    array = pa.array([{"lo": 1, "hi": 2}], pa.struct([("lo", pa.int32()), ("hi", pa.float32())]))
    assert Uniform.from_arrow(array).hi.tolist() == [2.0]


def test_nulls_are_set_apart():
    rows = [
        {"edges": [0.0, 1.0], "probs": [1.0]},
        None,
        {"edges": None, "probs": [1.0]},
        {"edges": [0.0, None], "probs": [1.0]},
        {"edges": [3.0, 4.0], "probs": [1.0]},
    ]
    read = read_column(pa.array(rows))
    assert read.rows.tolist() == [0, 4]
    assert read.model.edges.values.tolist() == [0.0, 1.0, 3.0, 4.0]
    assert not len(read.bad_rows)


def test_samples_without_probabilities_are_not_null():
    rows = [{"points": [1.0, 2.0], "probs": None, "dim": 1}, {"points": [3.0, 5.0], "probs": [0.2, 0.8], "dim": 1}]
    array = pa.array(
        rows, pa.struct([("points", pa.list_(pa.float64())), ("probs", pa.list_(pa.float64())), ("dim", pa.int32())])
    )
    read = read_column(array)
    assert read.rows.tolist() == [0, 1]
    assert read.model.mean().tolist() == [1.5, 4.6]


def test_bad_rows_are_set_apart_with_reasons():
    read = read_column(
        pa.array([{"mean": 0.0, "sd": -1.0}, {"mean": 0.0, "sd": 1.0}, {"mean": float("nan"), "sd": 1.0}])
    )
    assert read.rows.tolist() == [1]
    assert read.bad_rows.tolist() == [0, 2]
    assert read.bad_reasons == ["sd < 0", "mean is NaN or infinite"]
    assert "sd < 0" in read.example
    assert "'sd': -1.0" in read.example


def test_covariances_are_checked():
    with pytest.raises(HaplyError, match="symmetric positive semidefinite"):
        GaussianND([[1, 2]], [[[1, 2], [2, 1]]])
    with pytest.raises(HaplyError, match="symmetric positive semidefinite"):
        GaussianND([[1, 2]], [[[1, 0.5], [0.4, 1]]])
    with pytest.raises(HaplyError, match="lengths disagree"):
        GaussianND([[1, 2]], [[1, 0, 0]])
    with pytest.raises(HaplyError, match="symmetric positive semidefinite"):
        MixtureND([[0.5, 0.5]], [[0, 0, 1, 1]], [[1, 0, 0, 1, 1, 2, 2, 1]])


def test_null_rows_are_refused_by_from_arrow():
    with pytest.raises(HaplyError, match="null rows"):
        Uniform.from_arrow(pa.array([{"lo": 1.0, "hi": 2.0}, None]))


def test_models_one_after_the_other():
    """Rows with and without probabilities among them, in arrays that may be written to."""
    plain, weighted = Samples([[1.0, 2.0], [3.0]]), Samples([[4.0, 5.0]], [[0.25, 0.75]])
    together = stacked([plain, weighted, plain])
    assert together.points.values.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0]
    assert together.probs.values.tolist() == [0.5, 0.5, 1.0, 0.25, 0.75, 0.5, 0.5, 1.0]
    assert stacked([plain, plain]).probs is None
    sure = stacked([Certain([1.0]), Certain([2.0, 3.0])])
    assert sure.mean().tolist() == [1.0, 2.0, 3.0]
    assert sure.values["values"].flags.writeable
    assert together.points.values.flags.writeable


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int32, np.int8, bool])
@pytest.mark.parametrize(("begin", "end"), [(0, 0), (0, 21), (3, 20), (8, 9)])
def test_numbers_pass_between_numpy_and_arrow(kind, begin, end):
    values = np.random.default_rng(1).integers(0, 2, 21).astype(kind)
    column = as_arrow(values)
    assert column.equals(pa.array(values))
    for part in (column, pa.chunked_array([column, column])[21:], pa.array(values)):
        found = as_numpy(part.slice(begin, end - begin))
        assert found.dtype == kind
        assert np.array_equal(found, values[begin:end])


def test_columns_with_more_memory_than_numbers_are_read():
    odd = pa.Array.from_buffers(pa.float64(), 2, [None, pa.py_buffer(np.arange(3.0).tobytes() + b"abc")])
    assert as_numpy(odd).tolist() == [0.0, 1.0]
    assert as_numpy(pa.chunked_array([], pa.float64())).tolist() == []
