"""States of operators: what they hold comes back, nothing in them runs as code, and versions are told apart."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from haply.errors import HaplyError
from haply.joins import PairJoin, SimilarityJoin, TimingJoin, WindowJoin
from haply.joins.operators.state import FORMAT, from_state, to_state
from haply.joins.operators.tumbling import TumblingJoin
from haply.models import Gaussian, Histogram, Samples
from haply.probability.region import Difference, Region
from haply.pruning.cascade import Counters

BAND = Difference("x", "x", Region(-0.5, 0.5))


def pair() -> tuple[Any, Any]:
    join = PairJoin(BAND, 0.3, window=5.0)
    join.push("left", {"id": ["a", "b"], "x": Gaussian([0.0, 3.0], 0.2), "time": [1.0, 2.0]})
    return join, {"id": ["c"], "x": Gaussian([0.1], 0.2), "time": [3.0]}


def similarity() -> tuple[Any, Any]:
    join = SimilarityJoin(0.5, 0.3, dim=1, window=5.0)
    join.push("left", {"id": [1, 2], "pos": Samples([[0.0, 0.1], [3.0, 3.1]]), "time": [1.0, 2.0]})
    return join, {"id": [7], "pos": Samples([[0.1, 0.2]]), "time": [3.0]}


def timing() -> tuple[Any, Any]:
    join = TimingJoin(1.0, 0.3, max_delay=10)
    join.push("left", {"id": [1, 2], "time": Histogram([[0.0, 1.0], [3.0, 5.0]], [[1.0], [1.0]])})
    return join, {"id": [7], "time": Histogram([[0.5, 1.5]], [[1.0]])}


def windows() -> tuple[Any, Any]:
    join = WindowJoin({("left", "right"): 2.0}, max_delay=10)
    join.push("left", {"id": [1, 2], "time": [1.0, 2.0], "key": ["k", None]})
    return join, {"id": [7], "time": [1.5], "key": ["k"]}


def tumbling() -> tuple[Any, Any]:
    join = TumblingJoin([BAND], 0.3, rows=2)
    join.push("left", {"id": [1, 2, 3], "x": Gaussian([0.0, 3.0, 0.0], 0.2)})
    return join, {"id": [7, 8], "x": Gaussian([0.1, 9.0], 0.2)}


OPERATORS = (pair, similarity, timing, windows, tumbling)
"""What makes one operator of each kind that remembers something, and what is pushed next."""


def found(result: Any) -> Any:
    if hasattr(result, "ids"):
        return {name: ids.tolist() for name, ids in result.ids.items()}
    return result.left.tolist(), result.right.tolist(), result.probability.tolist()


@pytest.mark.parametrize("make", OPERATORS)
def test_a_restored_operator_goes_on(make: Callable[[], tuple[Any, Any]]) -> None:
    join, batch = make()
    state = join.snapshot()
    again = type(join).restore(state)
    assert found(again.push("right", batch)) == found(join.push("right", batch))
    assert again.snapshot() == join.snapshot()


@pytest.mark.parametrize("make", OPERATORS)
def test_a_state_is_arrow_and_no_code(make: Callable[[], tuple[Any, Any]]) -> None:
    join, _ = make()
    state = join.snapshot()
    schema = pa.ipc.open_stream(state).schema
    assert json.loads(schema.metadata[b"haply_state"])["format"] == FORMAT

    class Attack:
        def __reduce__(self) -> Any:
            return print, ("ran",)

    for bad in (pickle.dumps(Attack()), b"", b"ARROW1", state[: len(state) // 2]):
        with pytest.raises(HaplyError, match="These bytes are no state of a"):
            type(join).restore(bad)
    others = [other()[0] for other in OPERATORS if other is not make]
    for other in others:
        with pytest.raises(HaplyError, match="The state is that of another operator"):
            type(join).restore(other.snapshot())


@pytest.mark.parametrize(("version", "hint"), [(FORMAT + 1, "newer.*upgrade"), (FORMAT - 1, "older.*begin without")])
def test_a_state_of_another_format_is_refused(version: int, hint: str) -> None:
    table = pa.ipc.open_stream(to_state("thing", [1])).read_all()
    said = json.loads(table.schema.metadata[b"haply_state"]) | {"format": version}
    newer = table.replace_schema_metadata({b"haply_state": json.dumps(said).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, newer.schema) as writer:
        writer.write_table(newer)
    which, hint = hint.split(".*", 1)
    text = rf"{which} version of haply.*format {FORMAT}.*format {version}.*{hint}"
    with pytest.raises(HaplyError, match=text):
        from_state("thing", sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 2**60, -0.0, 0.1, float("inf"), "text", b"bytes", [], [1, [2, "x"]], (1, (2,)), {1, 2}, {},
        {("a", "b"): 2.5, "c": None, 3: [1]}, np.arange(6).reshape(2, 3), np.array([], np.float64),
        np.array(["a", "bb"]), np.array(["a", None, 3.5 > 2], object)[:2], np.array([True, False]),
        np.array([(1, 2.5)], [("a", "i8"), ("b", "f8")]), np.float64(0.1), np.int64(7), BAND,
    ],
)  # fmt: skip
def test_values_come_back(value: Any) -> None:
    again = from_state("thing", to_state("thing", value))
    if isinstance(value, np.ndarray):
        assert again.dtype == value.dtype
        assert again.shape == value.shape
        assert again.tolist() == value.tolist()
    else:
        assert again == value
        assert type(again) is type(value) or isinstance(value, np.generic)


def test_models_and_counters_come_back() -> None:
    model = Histogram([[0.0, 1.0, 3.0], [1.0, 2.0]], [[0.25, 0.75], [1.0]])
    counters = Counters()
    counters.candidates = 5
    again, counted = from_state("thing", to_state("thing", (model, counters)))
    assert again.to_arrow() == model.to_arrow()
    assert counted.flat() == counters.flat()
    with pytest.raises(TypeError, match="a state holds no object"):
        to_state("thing", object())
