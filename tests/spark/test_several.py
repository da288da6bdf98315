"""Joins of several tables on Spark: an index tells their order. Their answers are in ``tests/both``."""

from __future__ import annotations

from typing import Any

import pytest

import haply as hp
from haply.inputs import engine_of, frame_of
from haply.planning.nodes import TablesNode
from haply.planning.plans import Plan
from haply.planning.several import Chain, DoesNotFit
from haply.pruning.threshold import Threshold
from haply.query.text import parse


def planned(tables: Any, conditions: Any, threshold: float | None = None, **options: Any) -> Plan:
    wrapped = {name: frame_of(table, name) for name, table in tables.items()}
    asked = {"windows": {}, "times": {}, "exact": True} | options
    found = Chain().fits(TablesNode(wrapped, tuple(conditions), threshold=Threshold(threshold), **asked))
    if isinstance(found, DoesNotFit):
        raise found.error
    return Plan(found.plan(), engine_of(next(iter(wrapped.values()))))


@pytest.mark.long
def test_an_index_tells_which_table_comes_next(spark: Any, tmp_path: Any) -> None:
    """The one with the fewest partners, though it is named last; and the answer is that of plain tables."""
    made = {name: hp.gaussian("id", 0.2).alias("x") for name in "abc"}
    tables = {
        "a": spark.range(0, 40, 7).select("id", made["a"]),
        "b": spark.range(0, 40)
        .crossJoin(spark.range(5).withColumnRenamed("id", "copy"))
        .select("id", "copy", made["b"]),
        "c": spark.range(0, 40, 2).select("id", made["c"]),
    }
    conditions = [parse("abs(a.x - b.x) <= 1"), parse("abs(a.x - c.x) <= 1")]
    plain = planned(tables, conditions, 0.4)
    assert [step.table for step in plain.query._steps] == ["b", "c"]
    for name in "bc":
        hp.build_index(tables[name], "x", str(tmp_path / name), page_rows=16)
        tables[name] = hp.read_index(str(tmp_path / name), spark)
    plan = planned(tables, conditions, 0.4)
    assert [step.table for step in plan.query._steps] == ["c", "b"]
    few, many = (step.partners or 0.0 for step in plan.query._steps)
    # within 1 of a row lie three ids, five times in the one and every second in the other
    assert 0.5 < few < 3
    assert 7 < many < 20
    assert "by its index, about" in plan.explain(verbose=True)

    def found(of: Plan) -> list[tuple[Any, ...]]:
        rows = [
            (row["a_id"], row["b_id"], row["b_copy"], row["c_id"], row["probability"]) for row in of.run().collect()
        ]
        return sorted((*row[:4], round(row[4], 12)) for row in rows)

    assert found(plan) == found(plain) != []
