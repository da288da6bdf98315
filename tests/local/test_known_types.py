"""Expressions whose type is known without DuckDB: against what DuckDB says of them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from haply.engines.local import sql
from haply.errors import HaplyError
from haply.query.expressions import rewritten
from haply.query.text import parse

TABLE = pa.table({
    "a": [1.5], "b c": [2.5], "n": [3], "t": ["1"], "d": [Decimal("1.5")], "l": [[1.0]], "x": [0.0], "f": [True],
}).slice(0, 0)  # fmt: skip
PARTS = [
    "`a`", "`b c`", "`x`", "`A`", "`n`", "`t`", "`d`", "`l`", "`f`", "`nobody`", "1", "2.5", "0", "007", "12345678",
    "123456789", "1.", "+", "-", "*", "/", "**", "--", "//", "/*", "*/", "(", ")", " ", "", "abs", ",", "'1'", "%",
]  # fmt: skip


def random_text(random):
    """Mostly an expression, with something wrong here and there."""
    if random.random() < 0.3:
        return "".join(random.choice(PARTS, int(random.integers(1, 6))))

    def part(depth):
        if depth == 0 or random.random() < 0.2:
            many = 11 if random.random() < 0.1 else 3
            return str(random.choice([*PARTS[:many], "2", "0.25", "12345678"]))
        text = f"{part(depth - 1)} {random.choice(list('+-*/'))} {part(depth - 1)}"
        return f"({text})" if random.random() < 0.5 else f"-({text})" if random.random() < 0.2 else text

    return part(int(random.integers(1, 4)))


@pytest.mark.parametrize("seed", range(10))
def test_what_is_taken_for_a_double_is_one(seed):
    """Nothing is that DuckDB refuses, with or without the cast that makes a double of it."""
    random = np.random.default_rng(seed)
    texts = [random_text(random) for _ in range(60)]
    taken = [text for text in texts if sql.is_plain_arithmetic(TABLE, text)]
    assert taken
    for text in taken:
        assert sql.evaluated(TABLE, {"value": f"CAST({text} AS DOUBLE)"})["value"].type == pa.float64(), text


def test_what_is_no_double_is_asked():
    for text in (
        "`t`",
        "`a` + `t`",
        "`a` + `nobody`",
        "`n` * 2",
        "`d` * 2",
        "abs(`a`)",
        "2 + 3",
        "`a`(`a`)",
        "`a` -- 1",
    ):
        assert not sql.is_plain_arithmetic(TABLE, text)
    with pytest.raises(HaplyError):
        sql.evaluated(TABLE, {"value": "CAST(`a` + `nobody` AS DOUBLE)"})


def test_rewriting_keeps_what_does_not_change():
    """The parts in which nothing changes are the same objects; the text is as if all were built anew."""
    tree = parse("a + b > 1 AND (c < 2 OR NOT d BETWEEN 1 AND 2)")
    assert rewritten(tree, lambda node: None) is tree
    changed = rewritten(tree, lambda node: parse("e") if str(node) == "c" else None)
    assert str(changed) == str(tree).replace("c <", "e <")
    assert changed.children[0] is tree.children[0]


@pytest.mark.parametrize("numbers", [["3"], ["-1.5", "2"], ["0", "007", "12345678.25"]])
def test_points_of_numbers_are_known(numbers):
    text = f"array({', '.join(f'CAST({number} AS DOUBLE)' for number in numbers)})"
    assert sql.is_point_of_numbers(text)
    assert sql.type_of_points() == sql.evaluated(TABLE, {"value": text})["value"].type


def test_other_arrays_are_asked():
    for text in (
        "array()",
        "array(1, 2)",
        "array(CAST(`a` AS DOUBLE))",
        "array(CAST(1 AS DOUBLE)",
        "array(CAST(1e3 AS DOUBLE))",
    ):
        assert not sql.is_point_of_numbers(text), text
