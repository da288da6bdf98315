"""Samples whose sum lies on the border of a condition: every way to compute it decides as doubles do.

What stands beside the condition always holds, or never does, and only makes it be computed in another way.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import both_kit as hp
from trees_kit import with_columns

COLUMNS = ("a", "b", "c", "d")
BESIDE = {
    "alone": "{}",
    "enumerated": "({}) AND A - C < 50 AND B - C < 50",
    "one integral": "({}) OR A * uniform(0, 1) > 50",
    "two integrals": "({}) AND A + uniform(0, 1) * uniform(0, 2) < 50",
    "cases": "({}) AND (C - B - A < 9 OR A * uniform(0, 1) > 50 OR uniform(0, 2) * B > 60 OR uniform(0, 2) - B > 60)",
    "odd": "({}) XOR B + uniform(0, 1) * uniform(0, 2) > 50",
    "tree": "({}) AND A - uniform(0, 1) < 50 AND B - D < 50",
    "points": "({}) AND distance(Q, gaussian_nd(array(0, 0), array(1, 1))) < 50 AND A + uniform(0, 1) < 50",
    "lattice": "({}) AND A + uniform(0, 1) * uniform(0, 2) + uniform(0, 3) * uniform(0, 4) < 50",
}
SUMS = [
    {"a": "1", "b": "-1"}, {"a": "1", "b": "1"}, {"a": "1", "b": "1", "c": "-1"}, {"b": "1", "c": "-1", "a": "-1"},
    {"a": "0.3", "b": "-0.7"}, {"a": "0.1", "b": "0.2", "c": "0.3"}, {"c": "2", "a": "-1"},
]  # fmt: skip
OPS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "=": np.equal}
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
ROWS = 5


def chances(engine, columns, text):
    made = {name: f"samples({name.lower()})" for name in "ABCD"} | {
        name: f"samples({name.lower()}, NULL, 2)" for name in "QR"
    }
    found = hp.where(hp.Table(engine, pa.table(columns)), with_columns(text, made), 1e-12).collect()
    return {row["id"]: row["probability"] for row in found}


def tenths(random, *shape):
    return random.integers(-9, 10, shape) / 10


@pytest.mark.long(keep=12)
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("beside", BESIDE)
def test_sums_on_a_border(engine, beside, seed):
    """Numbers are moved to the border as they are written, and the factor of the first column by name is made 1.

    What is left is added up by doubles, in the order of the names.
    """
    random = np.random.default_rng([seed, 1])
    points = {name: tenths(random, ROWS, 3) for name in COLUMNS}
    terms = SUMS[seed % len(SUMS)]
    offset = Fraction(str(random.choice(["0", "0.1"])))
    border = sum(Fraction(factor) * Fraction(str(points[name][0, 1])) for name, factor in terms.items()) + offset
    op = str(random.choice(list(OPS)))
    text = " + ".join(f"{factor} * {name.upper()}" for name, factor in terms.items()).replace("+ -", "- ")
    text = f"{text} + {float(offset)} {op} {float(border)}"
    first = Fraction(terms[min(terms)])
    of = OPS[TURNED[op] if first < 0 else op]
    wanted = {}
    for row in range(ROWS):
        worlds = np.array(list(itertools.product(*(points[name][row] for name in sorted(terms))))).T
        total = np.zeros(worlds.shape[1])
        for name, values in zip(sorted(terms), worlds, strict=True):
            total = total + float(Fraction(terms[name]) / first) * values
        wanted[row] = float(np.mean(of(total, float((border - offset) / first))))
    columns = {"id": list(range(ROWS)), **{name: points[name].tolist() for name in COLUMNS}, "q": [[0.0] * 4] * ROWS}
    error = 1e-3 if beside == "lattice" else 1e-10
    assert chances(engine, columns, BESIDE[beside].format(text)) == pytest.approx(
        {row: p for row, p in wanted.items() if p}, abs=error
    ), text


SHIFTS = [(0.3, 0.4), (-0.3, 0.4), (0.6, 0.8), (0.5, 1.2), (0.2, 0.0)]
FAR = "distance(Q, gaussian_nd(array(0, 0), array(1, 1)))"
APART = {
    "alone": "{}", "normals": f"({{}}) AND {FAR} < 50", "either": f"({{}}) OR {FAR} > 50",
    "integral": f"({{}}) AND {FAR} < 50 AND A * uniform(0, 1) < 50",
}  # fmt: skip


@pytest.mark.long(keep=8)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("beside", APART)
def test_distances_on_a_border(engine, beside, seed):
    """Distances are compared as square roots of sums of squares."""
    random = np.random.default_rng([seed, 2])
    q, r, a = tenths(random, ROWS, 3, 2), tenths(random, ROWS, 3, 2), tenths(random, ROWS, 2)
    shift = np.array(SHIFTS[seed % len(SHIFTS)])
    r[:, 1] = (q[:, 0] + shift).round(1)
    op, limit = str(random.choice(["<", "<=", ">", ">="])), round(float(np.hypot(*shift)), 3)
    columns = {"id": list(range(ROWS)), "a": a.tolist()}
    columns |= {name: points.reshape(ROWS, 6).tolist() for name, points in (("q", q), ("r", r))}
    apart = q[:, :, None] - r[:, None]
    held = OPS[op](np.sqrt(apart[..., 0] ** 2 + apart[..., 1] ** 2), limit)
    wanted = {row: float(held[row].mean()) for row in range(ROWS) if held[row].any()}
    text = f"distance(Q, R) {op} {limit}"
    assert chances(engine, columns, APART[beside].format(text)) == pytest.approx(wanted, abs=1e-9), text


def test_products_on_a_border(engine):
    """They are multiplied out, unless they are about the values minus numbers."""
    columns = {"id": [1], "a": [[0.1, 0.7, -0.3]], "b": [[0.2, 0.6, 0.9]]}
    for text, share in {
        "(A - 0.1) * (B - 0.2) = 0": 5 / 9, "(A - 0.7) * (B - 0.9) <> 0": 4 / 9, "A * B = 0.42": 1 / 9,
        "(A - 0.1) * (A - 0.1) + (B - 0.2) * (B - 0.2) <= 0": 1 / 9,
    }.items():  # fmt: skip
        for beside in BESIDE.values():
            if "C" not in beside and "D" not in beside and "Q" not in beside:
                assert chances(engine, columns, beside.format(text)) == pytest.approx({1: share}, abs=1e-3), text
