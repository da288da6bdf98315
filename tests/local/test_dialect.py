"""Certain expressions mean on the local engine what they mean on Spark."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pyarrow as pa
import pytest

import haply as hp
from haply.engines.local.dialect import FUNCTIONS, to_duckdb
from haply.engines.local.sql import evaluated

ROWS = pa.table(
    {
        "i": pa.array([7, -7, 0, None, 3], pa.int32()),
        "j": pa.array([2, 2, 5, 1, -2], pa.int64()),
        "x": pa.array([2.5, -2.5, 0.0, None, math.nan]),
        "y": pa.array([0.5, 2.0, -1.5, 3.0, 1.0]),
        "s": pa.array(["Ash", " birch ", "", None, "cédar"]),
        "d": pa.array(
            [datetime.date(2024, 2, 28 + k) if k < 2 else datetime.date(2023, 12, 30 + k % 2) for k in range(5)]
        ),
        "a": pa.array([[1.0, 2.0], [3.0], [], None, [5.0, 6.0, 7.0]]),
        "g": pa.array([{"mean": 1.0 * k, "sd": 0.5} for k in range(5)]),
    }
)

EXPRESSIONS = (
    "i + j", "i - x", "i * j", "i / j", "j / 2", "i DIV j", "i % j", "-i", "x + y * 2", "i / 4", "j DIV 2 + 1",
    "i = 7", "i <> 7", "i <=> NULL", "x = x", "x > 1", "x < y", "i BETWEEN -7 AND 0", "i IN (7, 3)", "i IN (7, NULL)",
    "NOT i IN (7, NULL)", "i IS NULL", "i IS NOT NULL", "isnull(s)", "isnotnull(s)", "isnan(x)",
    "i > 0 AND x > 0", "i > 0 OR x IS NULL", "NOT (i > 0)", "coalesce(i, j)", "nvl(i, 9)", "ifnull(x, y)",
    "nullif(i, 7)", "if(i > 0, 'a', 'b')", "CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' END",
    "CAST(y * 3 AS INT)", "CAST(y AS BIGINT)", "CAST(i AS DOUBLE)", "CAST(i AS STRING)", "CAST(j AS STRING)",
    "CAST('12' AS INT)", "CAST('1.5' AS DOUBLE)", "CAST(i > 0 AS INT)",
    "abs(i)", "abs(x)", "floor(y)", "ceil(y)", "sqrt(abs(y))", "exp(i)", "ln(abs(y))", "log10(abs(y))",
    "sin(y)", "cos(x)", "radians(i)",
    "power(y, 2)", "pow(i, 2)", "y ** 2", "greatest(i, j)", "least(x, y)", "sign(y)", "signum(i)", "round(y)",
    "upper(s)", "lower(s)", "length(s)", "trim(s)", "ltrim(s)", "rtrim(s)", "concat(s, '!')", "s || '-' || s",
    "substring(s, 2, 3)", "substr(s, 2)", "replace(s, 'i', 'I')", "instr(s, 'a')", "startswith(s, 'A')",
    "endswith(s, 'r')", "contains(s, 'ch')", "s LIKE 'A%'", "s LIKE '%ch%'", "s < 'b'", "s = 'Ash'",
    "year(d)", "month(d)", "day(d)", "dayofmonth(d)", "date_add(d, 3)", "date_sub(d, 1)",
    "datediff(d, DATE'2024-01-01')",    "d > DATE'2024-01-01'", "to_date('2024-03-01')",
    "size(a)", "get(a, 1)", "get(a, 0)", "get(a, -2)", "CASE WHEN size(a) > 0 THEN a[0] END", "g.mean + 1",
    "hour(TIMESTAMP_NTZ'2024-03-01 10:20:30')", "minute(TIMESTAMP_NTZ'2024-03-01 10:20:30')",
)  # fmt: skip


@pytest.fixture(scope="module")
def on_spark(spark: Any) -> dict[str, list[Any]]:
    """What Spark says, in one job."""
    frame = spark.createDataFrame(ROWS).coalesce(1)
    found = frame.selectExpr(*(f"{text} AS e{k}" for k, text in enumerate(map(_for_spark, EXPRESSIONS)))).toArrow()
    return {text: found[f"e{k}"].to_pylist() for k, text in enumerate(EXPRESSIONS)}


def _for_spark(text: str) -> str:
    return text.replace("y ** 2", "power(y, 2)")


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_both_engines_mean_the_same(text: str, on_spark: dict[str, list[Any]]) -> None:
    here = evaluated(ROWS, {"value": _for_spark(text)})["value"].to_pylist()
    assert len(here) == len(on_spark[text])
    for mine, theirs in zip(here, on_spark[text], strict=True):
        if isinstance(theirs, float) and mine is not None:
            assert float(mine) == pytest.approx(theirs, rel=1e-12, nan_ok=True)
        else:
            assert mine == theirs


@pytest.mark.parametrize("text", ["i / 0", "i DIV 0", "i % 0", "1.5D / (j - j)"])
def test_division_by_zero_is_an_error_on_both(text: str, spark: Any) -> None:
    with pytest.raises(hp.HaplyError, match="division by zero"):
        evaluated(ROWS, {"value": text})
    with pytest.raises(Exception, match=r"DIVIDE_BY_ZERO|REMAINDER_BY_ZERO"):
        spark.createDataFrame(ROWS).selectExpr(text).collect()


@pytest.mark.parametrize("text", ["a[7]", "a[i - 100]"])
def test_elements_beyond_an_array_are_errors_on_both(text: str, spark: Any) -> None:
    with pytest.raises(hp.HaplyError, match="beyond the ends of an array"):
        evaluated(ROWS, {"value": text})
    with pytest.raises(Exception, match="INVALID_ARRAY_INDEX"):
        spark.createDataFrame(ROWS).selectExpr(text).collect()


@pytest.mark.parametrize(
    "text",
    [
        *("rand()", "hash(i)", "current_date()", "soundex(s)", "foo(i)", "i + rand()"),
        "regexp_extract(s, 'a(.)', 1)",  # only the patterns of haply.parse were compared
    ],
)
def test_functions_that_were_not_compared_are_refused(text: str) -> None:
    with pytest.raises(hp.HaplyError, match="The local engine does not know the function"):
        to_duckdb(text)


def test_every_function_is_compared() -> None:
    written = " ".join(EXPRESSIONS).lower()
    alike = {"ceiling": "ceil", "char_length": "length", "lcase": "lower", "ucase": "upper", "date_diff": "datediff"}
    made = {"array", "named_struct", "struct", "second", "cast"}  # in other tests, or not functions of their own
    missing = [name for name in FUNCTIONS if f"{alike.get(name, name)}(" not in written and name not in made]
    assert missing == []
