"""Random tables with columns of every model, and random queries over them, for tests that compare engines."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

ONE_DIMENSIONAL = ("u", "g", "tg", "m", "h", "s", "n", "as")
"""Columns of numbers, uncertain and certain."""
BOUNDED = ("u", "tg", "h", "s", "n")
POINTS = ("p", "q", "c")
"""Columns of points on the plane: normal, samples, certain."""


def table(rng: np.random.Generator, rows: int, nulls: float = 0.05) -> pa.Table:
    """Rows with an id, a key, a name, a time, and a column of every model; some values are null."""

    def structs(*names: str, **values: Any) -> pa.Array:
        kinds = {name: pa.array(value) for name, value in values.items()}
        unknown = rng.random(rows) < nulls
        return pa.StructArray.from_arrays(list(kinds.values()), list(kinds), mask=pa.array(unknown))

    def maybe(values: Any, kind: pa.DataType | None = None) -> pa.Array:
        return pa.array(list(values), kind, mask=rng.random(rows) < nulls)

    where = rng.uniform(0.0, 4.0, rows)
    spread = rng.uniform(0.05, 0.6, rows)
    edges = [[w, w + s, w + 3 * s] for w, s in zip(where, spread, strict=True)]
    share = rng.uniform(0.1, 0.9, rows)
    two = rng.uniform(0.0, 3.0, (rows, 2))
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "k": maybe(rng.integers(0, 3, rows), pa.int32()),
            "name": maybe(rng.choice(["ash", "birch", "cedar"], rows)),
            "t": maybe(rng.integers(0, 12, rows).astype(float)),
            "n": maybe(np.round(where, 3)),
            "u": structs(lo=where, hi=where + spread),
            "g": structs(mean=where, sd=spread),
            "tg": structs(mean=where, sd=spread, lo=where - spread, hi=where + 2 * spread),
            "m": structs(
                weights=[[s, 1.0 - s] for s in share],
                means=[[w, w + 0.5] for w in where],
                sds=[[s, 0.2] for s in spread],
            ),
            "as": structs(mode=where, minus=spread, plus=spread[::-1].copy()),
            "h": structs(edges=edges, probs=[[s, 1.0 - s] for s in share]),
            "s": structs(
                points=[sorted(w + rng.normal(0, 0.3, 4).round(2)) for w in where],
                probs=[None] * rows,
                dim=np.ones(rows, np.int32),
            ).cast(pa.struct({"points": pa.list_(pa.float64()), "probs": pa.list_(pa.float64()), "dim": pa.int32()})),
            "p": structs(mean=two.tolist(), cov=[[s * s, 0.0, 0.0, s * s] for s in spread]),
            "q": structs(
                points=[(w + rng.normal(0, 0.3, (3, 2)).round(2)).ravel().tolist() for w in two],
                probs=[None] * rows,
                dim=np.full(rows, 2, np.int32),
            ).cast(pa.struct({"points": pa.list_(pa.float64()), "probs": pa.list_(pa.float64()), "dim": pa.int32()})),
            "c": maybe(two.round(2).tolist(), pa.list_(pa.float64())),
        }
    )


@dataclass
class JoinQuery:
    """A random join."""

    on: str | None
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.on} {self.options}"


def join_query(rng: np.random.Generator) -> JoinQuery:
    """A join on one or two uncertain conditions, with certain ones, keys and windows now and then."""
    limit = float(np.round(rng.uniform(0.1, 1.5), 2))
    threshold = float(rng.choice([0.05, 0.3, 0.5, 0.7, 0.9]))
    options: dict[str, Any] = {"threshold": threshold}
    left, right = rng.choice(ONE_DIMENSIONAL), rng.choice(ONE_DIMENSIONAL)
    if rng.random() < 0.2:
        left, right = rng.choice(BOUNDED), rng.choice(BOUNDED)
        options["threshold"] = None
    kind = rng.integers(0, 6)
    if kind == 0:
        on = [f"abs(left.{left} - right.{right}) <= {limit}"]
    elif kind == 1:
        on = [f"left.{left} < right.{right}"]
    elif kind == 2:
        on = [f"left.{left} - right.{right} BETWEEN {-limit} AND {2 * limit}"]
    elif kind == 3:
        on = [f"abs(left.{left} - right.{right}) > {3 * limit}"]
    elif kind == 4:
        one, other = rng.choice(POINTS), rng.choice(POINTS)
        on = [f"distance(left.{one}, right.{other}) <= {limit}"]
        options["threshold"] = threshold
    else:
        on = [f"abs(left.g - right.g) <= {limit}", f"abs(left.u - right.u) <= {2 * limit}"]
        options["threshold"] = threshold
    if rng.random() < 0.3:
        on.append("left.k = right.k")
    if rng.random() < 0.2:
        on.append("left.id < right.id")
    if rng.random() < 0.2:
        on.append("left.name <> 'birch'")
    if rng.random() < 0.25 and kind < 5:
        options |= {"time": "t", "window": float(rng.integers(0, 6))}
    if rng.random() < 0.2:
        options["probability"] = "none"
    if rng.random() < 0.2:
        options["strict"] = True
    if kind == 0 and left == right and rng.random() < 0.5:
        options["self_key"] = "id"
    return JoinQuery(" AND ".join(on), options)


def where_query(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """A selection by one or two uncertain conditions and a certain one now and then."""
    parts = []
    for _ in range(int(rng.integers(1, 3))):
        column, limit = rng.choice(("u", "g", "tg", "m", "h", "s")), float(np.round(rng.uniform(0.5, 3.5), 2))
        parts.append(
            str(
                rng.choice(
                    [
                        f"{column} > {limit}",
                        f"{column} BETWEEN {limit} AND {limit + 1}",
                        f"abs({column} - {limit}) <= 0.7",
                        f"g - u < {limit - 2}",
                        f"g * g < {limit}",
                        f"p[0] + p[1] < {limit}",
                        f"{column} < n",
                    ]
                )
            )
        )
    if rng.random() < 0.3:
        parts.append("k >= 1")
    options: dict[str, Any] = {"threshold": float(rng.choice([0.1, 0.5, 0.8]))}
    if rng.random() < 0.2:
        options["probability"] = "none"
    return " AND ".join(parts), options


@dataclass
class WindowQuery:
    """A random join in windows of time, of the tables it names."""

    tables: str
    windows: dict[tuple[str, str], float]
    options: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.windows} {self.options}"


def window_query(rng: np.random.Generator) -> WindowQuery:
    """A path of two or three tables; keys, certain and uncertain conditions, and mistakes now and then."""
    tables = "abc" if rng.random() < 0.4 else "ab"
    windows = {pair: float(rng.integers(0, 3)) for pair in itertools.pairwise(tables)}
    options: dict[str, Any] = {"time": "t"}
    if rng.random() < 0.5:
        options["key"] = "k"
    if rng.random() < 0.3:
        options |= {"algorithm": "forward", "windows_policy": "local"}
    last = tables[-1]
    on, threshold = _any(
        rng,
        [
            (None, None),
            (f"a.id < {last}.id", None),
            (f"abs(a.g - {last}.m) <= 1", 0.3),
            ("a.u < b.h AND a.name <> 'ash'", 0.5),
            (f"abs(a.s - b.s) <= 1 AND b.n < {last}.n + 1", 0.2),
            ("a.g < b.missing", 0.5),
        ],
    )
    if on is not None:
        options["on"] = on
    if threshold is not None:
        options["threshold"] = threshold
    return WindowQuery(tables, windows, options)


def sql_query(rng: np.random.Generator) -> str:
    """A statement over tables a, b and c: selections, joins of two in and without a window, and of three."""
    limit, threshold = round(float(rng.uniform(0.2, 1.5)), 2), float(rng.choice([0.1, 0.3, 0.6]))
    tail = f" WITH THRESHOLD {threshold}" + (" STRICT" if rng.random() < 0.3 else "")
    kind = rng.integers(0, 6)
    if kind == 0:
        condition, _ = where_query(rng)
        return f"SELECT id, upper(name) AS who, g.mean + 1 AS more, PROB() AS p FROM a WHERE {condition}{tail}"
    if kind == 1:
        inner = _any(rng, ["GAUSSIAN(n, 0.3)", "UNIFORM(n - 1, n + 1)", "SAMPLES(array(n, n + 1, n + 2))"])
        return (
            f"SELECT id, y, PROB() AS p FROM (SELECT id, k, {inner} AS y FROM a WHERE n IS NOT NULL) q "
            f"WHERE y > {limit} AND k >= 1 ORDER BY id DESC LIMIT 7{tail}"
        )
    if kind == 2:
        left, right = rng.choice(ONE_DIMENSIONAL), rng.choice(ONE_DIMENSIONAL)
        equal = _any(rng, ["", " AND a.k = b.k", " AND a.id < b.id", " AND a.name = b.name AND a.t < b.t"])
        return (
            f"SELECT a.id AS i, b.id AS j, PROB() AS p FROM a, b WHERE |a.{left} - b.{right}| <= {limit}{equal}{tail}"
        )
    if kind == 3:
        return (
            f"SELECT a.id AS i, b.id AS j, a.t - b.t AS apart FROM a, b WHERE WINDOW(a, b) = {rng.integers(0, 4)} "
            f"AND abs(a.g - b.{rng.choice(ONE_DIMENSIONAL)}) <= {limit}{tail}"
        )
    if kind == 4:
        return (
            f"SELECT a.id AS i, b.id AS j, c.id AS l, PROB() AS p FROM a, b, c WHERE abs(a.g - b.g) <= {limit} "
            f"AND b.{_any(rng, ['g < c.g', 'k = c.k AND a.u < c.u', 'g - c.g BETWEEN -0.5 AND 0.5'])} "
            f"AND a.id < 5 AND b.id < 6 AND c.id < 5{tail}"
        )
    return _any(
        rng,
        [
            f"SELECT a.id, b.idd FROM a, b WHERE abs(a.g - b.g) <= {limit}{tail}",
            f"SELECT id FROM a WHERE g = {limit}{tail}",
            f"SELECT g + {limit} FROM a",
            f"SELECT a.id AS i, b.id AS j FROM a, b WHERE abs(a.g - b.g) <= {limit}",
            f"SELECT id FROM a WHERE GAUSSIAN(n) < {limit}{tail}",
            f"SELECT id FROM a ORDER BY {round(10 * limit) + 2}",
        ],
    )


def _any(rng: np.random.Generator, choices: list[Any]) -> Any:
    return choices[int(rng.integers(0, len(choices)))]
