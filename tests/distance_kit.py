"""Random clouds as tables, and the oracle's pairs of them, for tests of joins on a distance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from oracle_distance import KINDS, Cloud, all_pairs, borderline, random_cloud

SAMPLES = "struct<points:array<double>,probs:array<double>,dim:int>"
ON = "distance(left.pos, right.pos) <= 1.5"


def struct(a: Cloud | None) -> tuple | None:
    return None if a is None else (a.points.ravel().tolist(), a.float_weights, a.dim)


def frame(engine, these: Sequence[Cloud | None]):
    """Ids and a column ``pos`` of samples."""
    return engine.createDataFrame([(i, struct(each)) for i, each in enumerate(these)], f"id long, pos {SAMPLES}")


def collect(result) -> dict[tuple[int, int], float | None]:
    """Pairs with their probabilities, refusing a doubled pair."""
    known = "probability" in result.columns
    rows = [(row["id_left"], row["id_right"], row["probability"] if known else None) for row in result.collect()]
    counts = Counter((i, j) for i, j, _ in rows)
    assert not counts or max(counts.values()) == 1, "a pair was doubled"
    return {(i, j): p for i, j, p in rows}


def check(
    found: dict,
    lefts: Sequence[Cloud],
    rights: Sequence[Cloud],
    eps: float,
    threshold: float | None,
    strict: bool = False,
    least: int = 10,
) -> None:
    """The oracle's pairs and probabilities."""
    times = [0] * len(lefts), [0] * len(rights)
    wanted = all_pairs(lefts, rights, *times, window=None, eps=eps, threshold=threshold, strict=strict)
    odd = {
        (i, j)
        for i, a in enumerate(lefts)
        for j, b in enumerate(rights)
        if borderline(a, b, eps, threshold, strict, margin=1e-13)
    }
    assert set(found) - odd == set(wanted) - odd
    assert len(wanted) >= least
    for pair in set(found) & set(wanted):
        assert found[pair] is None or abs(found[pair] - float(wanted[pair])) <= 1e-12


def random_clouds(seed: int, count: int, dim: int = 2, weighted: bool = False, spread: float = 6.0) -> list[Cloud]:
    rng = np.random.default_rng(seed)
    return [
        random_cloud(rng, dim, int(rng.choice([1, 2, 4, 5])), rng.choice(KINDS), weighted=weighted, spread=spread)
        for _ in range(count)
    ]
