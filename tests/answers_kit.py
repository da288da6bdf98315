"""What tests of ``how=`` and ``keep=`` share: tables with nulls and equal rows, conditions of every kind, and bags."""

from __future__ import annotations

from collections import Counter

import numpy as np

import both_kit as hp

TYPES = (
    "name string, key long, kind string, n long, t double, x struct<mean:double,sd:double>, "
    "u struct<lo:double,hi:double>, xy struct<mean:array<double>,cov:array<double>>"
)
BAND, NEAR = "abs(left.x - right.x) <= 0.8", "distance(left.xy, right.xy) <= 1.5"
CONDITIONS = {
    "band": BAND,
    "apart": "abs(left.x - right.x) > 6",
    "greater": "left.u > right.u",
    "positions": NEAR,
    "keys": f"{BAND} AND left.key = right.key",
    "keys of two types": f"{BAND} AND left.key = right.n + 0.0",
    "own left": f"{BAND} AND left.kind = 'a'",
    "own right": f"{BAND} AND right.kind = 'a'",
    "residual": f"{BAND} AND left.n < right.n",
    "several": f"{BAND} AND abs(left.u - right.u) <= 2",
    "shared columns": "left.x - right.x BETWEEN 0 AND 2 AND left.x + right.x > 0",
    "certain": "left.key = right.key AND left.n < right.n",
}
SHOWN = ["name_left", "n_left", "t_left", "name_right", "n_right"]


def rows_of(seed, count):
    """Rows with nulls, many of them twice or more often."""
    rng = np.random.default_rng(seed)

    def maybe(value):
        return None if rng.random() < 0.12 else value

    rows = []
    for _ in range(count):
        mean, low, place = float(rng.uniform(-6, 6)), float(rng.uniform(-6, 6)), rng.uniform(-4, 4, 2).tolist()
        var = float(rng.uniform(0.01, 1.0))
        rows.append(
            (
                maybe(rng.choice(["p", "q", "r"])), maybe(int(rng.integers(3))), maybe(rng.choice(["a", "b"])),
                maybe(int(rng.integers(8))), float(rng.integers(40)), maybe((mean, float(rng.uniform(0, 0.7)))),
                maybe((low, low + float(rng.uniform(0, 2)))), maybe((place, [var, 0.0, 0.0, var])),
            )
        )  # fmt: skip
    return rows + rows[: count // 4] + rows[: count // 8]


def bag(table):
    """Rows with multiplicity, as texts: structs and nulls compare like anything else."""
    return Counter(tuple(map(repr, row)) for row in table.collect())


def sides(engine, seed, count=24, other=20):
    return (engine.createDataFrame(rows_of(seed + k, n), TYPES) for k, n in enumerate((count, other)))


def numbered(engine, table):
    """The same rows with a number that no two share."""
    count = table.count()
    return hp.Table(engine, table.arrow.append_column("row", [list(range(count))]))
