"""Both engines give the same answers: rows, probabilities, columns, what the funnel counts, and errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import haply as hp
import query_kit

pytestmark = pytest.mark.filterwarnings("ignore::haply.HaplyWarning")

_ROWS = 24


@pytest.fixture(scope="module")
def tables() -> tuple[pa.Table, pa.Table]:
    return query_kit.table(np.random.default_rng(1), _ROWS), query_kit.table(np.random.default_rng(2), _ROWS)


@pytest.fixture(scope="module")
def frames(spark: Any, tables: tuple[pa.Table, pa.Table]) -> tuple[Any, Any]:
    left, right = (spark.createDataFrame(table).coalesce(1) for table in tables)
    return left, right


def answer(ask: Callable[[], Any]) -> Any:
    """Rows in an order of their own, or the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hp.HaplyWarning)
            found = ask()
            table = found if isinstance(found, pa.Table) else found.toArrow()
    except hp.HaplyError as refusal:
        return str(refusal)
    rows = [tuple(_plain(value) for value in row.values()) for row in table.to_pylist()]
    return table.column_names, sorted(rows, key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _plain(part)) for name, part in sorted(value.items()))
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def same(here: Any, there: Any) -> None:
    """Equal, but for the last digits of probabilities."""
    if isinstance(here, str) or isinstance(there, str):
        assert here == there
        return
    assert here[0] == there[0]
    assert len(here[1]) == len(there[1])
    if here[0] and here[0][-1] == "probability":
        order = [sorted(rows, key=lambda row: repr(row[:-1])) for rows in (here[1], there[1])]
        assert [row[:-1] for row in order[0]] == [row[:-1] for row in order[1]]
        mine, theirs = ([row[-1] for row in rows] for rows in order)
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)
    else:
        assert here[1] == there[1]


def counted(funnel: hp.Funnel) -> dict[str, Any]:
    """What does not depend on how rows are dealt out."""
    return {
        name: value
        for name, value in funnel.to_dict().items()
        if name in ("pairs_possible", "kept", "invalid_left", "invalid_right", "null_left", "null_right")
    }


@pytest.mark.parametrize("seed", range(40))
def test_random_joins(seed: int, tables: tuple[pa.Table, pa.Table], frames: tuple[Any, Any]) -> None:
    query = query_kit.join_query(np.random.default_rng(seed))
    mine, theirs = hp.Funnel(), hp.Funnel()
    itself = "self_key" in query.options
    here = answer(lambda: hp.join(tables[0], tables[0 if itself else 1], query.on, funnel=mine, **query.options))
    there = answer(lambda: hp.join(frames[0], frames[0 if itself else 1], query.on, funnel=theirs, **query.options))
    same(here, there)
    if not isinstance(here, str):
        assert counted(mine) == counted(theirs)


@pytest.mark.parametrize("seed", range(12))
def test_random_selections(seed: int, tables: tuple[pa.Table, pa.Table], frames: tuple[Any, Any]) -> None:
    condition, options = query_kit.where_query(np.random.default_rng(seed))
    mine, theirs = hp.Funnel(), hp.Funnel()
    here = answer(lambda: hp.where(tables[0], condition, funnel=mine, **options))
    same(here, answer(lambda: hp.where(frames[0], condition, funnel=theirs, **options)))
    if not isinstance(here, str):
        assert mine.to_dict() == theirs.to_dict()
