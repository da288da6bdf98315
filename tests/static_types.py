"""What type checkers must infer of results: mypy reads this file, and nothing runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

import haply as hp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Table:
    """A kind of table."""


def results_have_the_kind_of_the_first_table(one: Table, other: object) -> None:
    assert_type(hp.where(one, "x > 1", 0.5), Table)
    assert_type(hp.where(df=one, condition="x > 1"), Table)
    assert_type(hp.join(one, other, on="left.x < right.x"), Table)
    assert_type(hp.plan_join(one, other, on="left.x < right.x").run(), Table)
    assert_type(hp.window_join({"a": one, "b": one}, {("a", "b"): 1.0}), Table)
    assert_type(hp.sql("SELECT * FROM a", a=one), Table)
    assert_type(hp.table(one, key="id"), Table)


def a_path_gives_no_text(path: str) -> None:
    assert hp.where(path, "x > 1").num_rows
    assert hp.match(path, path, "left.x = right.x", completeness=1.0).num_rows


def an_index_on_spark_is_a_data_frame(spark: SparkSession) -> None:
    assert_type(hp.read_index("readings.index", spark), DataFrame)


def what_a_constructor_makes_is_an_expression_and_a_column(frame: DataFrame) -> None:
    kg = hp.gaussian(hp.left.kg, hp.left.err)
    assert_type(hp.where(frame.withColumn("kg", hp.measured("kg", "err")), kg > 20, 0.5), DataFrame)
    assert_type(hp.join(frame, frame, abs(kg - hp.right.kg) <= 1), DataFrame)
    assert_type(frame.withColumn("at", hp.sky.position("ra", "dec", "error", "error")), DataFrame)
