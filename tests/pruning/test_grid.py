"""The grid of a window loses no object, the list of radii knows the largest, groups hold their members."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from amounts import fewer
from haply.pruning.candidates.grid import RadiusList, empty_grid, group_batch, insert, objects_near, union_of_balls
from oracle_distance import ball_union, batch_groups, radius_maxima

# ---------------------------------------------------------------------------------------------------------------------
# Radii


def largest_radii(radii: list[float], w: int) -> list[float]:
    """The largest of the last w radii, after each one has arrived."""
    window, found = RadiusList(), []
    for time, radius in enumerate(radii):
        window.add(radius, time)
        window.expire(time - w + 1)
        found.append(window.largest)
    return found


def test_golden_10_radius_maxima() -> None:
    assert largest_radii([3, 1, 2, 2, 5, 4, 4, 1, 1, 1], 3) == [3, 3, 3, 2, 5, 5, 5, 4, 4, 1]


def test_radius_list_is_the_maximum_of_the_window() -> None:
    """Few different radii, so that there are many ties; increasing and decreasing ones."""
    rng = np.random.default_rng(1)
    for _ in range(400):
        n, w = int(rng.integers(1, 40)), int(rng.integers(1, 12))
        radii = [float(r) for r in rng.integers(0, rng.integers(1, 8) + 1, n)]
        for each in (radii, sorted(radii), sorted(radii, reverse=True)):
            assert largest_radii(each, w) == radius_maxima(each, w)


def test_radius_list_without_objects() -> None:
    radii = RadiusList()
    assert radii.largest == 0.0
    radii.add(2.0, 1.0)
    radii.expire(1.0)
    assert radii.largest == 2.0, "an object as old as the limit is not older"
    radii.expire(math.nextafter(1.0, 2.0))
    assert radii.largest == 0.0


def test_radius_list_counts_late_objects_long_enough() -> None:
    """Out of order: what is told is never less than the largest radius of the objects that are still in the window."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        radii, objects, oldest = RadiusList(), [], -math.inf
        for _ in range(40):
            time, radius = float(rng.integers(0, 30)), float(rng.integers(0, 6))
            radii.add(radius, time)
            objects.append((time, radius))
            if rng.random() < 0.3:
                oldest = max(oldest, float(rng.integers(0, 30)))
                radii.expire(oldest)
            alive = [radius for time, radius in objects if time >= oldest]
            assert radii.largest >= max(alive, default=0.0)
        radii.expire(100.0)
        assert radii.largest == 0.0


# ---------------------------------------------------------------------------------------------------------------------
# Balls


def united(c1: list[float], r1: float, c2: list[float], r2: float) -> tuple[list[float], float]:
    centre = np.array(c1, dtype=float)
    radius = union_of_balls(centre, r1, np.array(c2, dtype=float), r2)
    return centre.tolist(), radius


def test_golden_11_ball_unions() -> None:
    assert united([0, 0], 1.0, [4, 0], 2.0) == ([2.5, 0], pytest.approx(3.5, rel=1e-14))
    assert united([0, 0], 5.0, [1, 0], 1.0) == ([0, 0], 5)
    assert united([1, 0], 1.0, [0, 0], 5.0) == ([0, 0], 5)
    assert united([1, 0], 2.0, [1, 0], 2.0) == ([1, 0], 2)


def test_ball_unions_are_the_oracles_and_hold_both() -> None:
    rng = np.random.default_rng(3)
    kinds = [0, 0, 0]
    for _ in range(600):
        dim = int(rng.integers(1, 11))
        c1, c2 = rng.integers(-4, 5, (2, dim)) * float(rng.choice([0.25, 1.0, 100.0]))
        r1, r2 = rng.choice([0.0, 0.5, 3.0, 20.0], 2)
        centre, radius = united(c1.tolist(), r1, c2.tolist(), r2)
        wanted, reach = ball_union(c1, r1, c2, r2)
        kinds[1 if reach == r1 else 2 if reach == r2 else 0] += 1
        assert centre == pytest.approx(wanted.tolist(), rel=1e-13, abs=1e-12)
        assert radius == pytest.approx(reach, rel=1e-14)
        for c, r in ((c1, r1), (c2, r2)):
            assert np.linalg.norm(np.array(centre) - c) + r <= radius * (1 + 1e-14) + 1e-12
    assert min(kinds) > 30


def test_golden_13_batch_groups() -> None:
    near = np.array([[0, 1, 2, 9, 9.5], [0] * 5, [0.5] * 5], dtype=float)
    ends, centres, radii = group_batch(near, 2, 1.0, 1.0)
    assert ends.tolist() == [3, 5]
    assert centres == pytest.approx(np.array([[1, 0], [9.25, 0]]), abs=1e-13)
    assert radii == pytest.approx([1.5, 0.75], rel=1e-13)


def test_batch_groups_are_the_oracles() -> None:
    """Random walks and jumps; every member's ball lies in the ball of its group."""
    rng = np.random.default_rng(4)
    sizes = []
    for _ in range(fewer(300)):
        dim, count = int(rng.integers(1, 6)), int(rng.integers(1, 30))
        step = float(rng.choice([0.01, 0.3, 3.0]))
        centres = np.cumsum(rng.normal(0, step, (count, dim)), axis=0) + rng.choice(
            [0.0, 50.0], (count, 1), p=[0.8, 0.2]
        )
        radii = rng.uniform(0, 1, count)
        base, widest = float(rng.uniform(0.1, 2)), float(rng.uniform(0, 2))
        near = np.ascontiguousarray(np.vstack([centres.T, radii]))
        ends, middles, reaches = group_batch(near, dim, base, widest)
        wanted = batch_groups(centres, radii.tolist(), base, widest)
        assert ends.tolist() == [group.members[-1] + 1 for group in wanted]
        for middle, reach, group in zip(middles, reaches, wanted, strict=True):
            assert middle == pytest.approx(group.centre, rel=1e-9, abs=1e-9)
            assert reach == pytest.approx(group.radius, rel=1e-9)
            for k in group.members:
                assert np.linalg.norm(middle - centres[k]) + radii[k] <= reach * (1 + 1e-13) + 1e-12
            sizes.append(len(group.members))
    assert sizes.count(1) > 100
    assert max(sizes) > 5


def test_an_empty_batch_has_no_groups() -> None:
    ends, centres, radii = group_batch(np.empty((3, 0)), 2, 1.0, 1.0)
    assert (len(ends), centres.shape, len(radii)) == (0, (0, 2), 0)


# ---------------------------------------------------------------------------------------------------------------------
# The grid


def search(grid, near, dim, first, last, centre, radius) -> list[int] | None:
    """Numbers of the objects that the grid names, or None if it says to look at all."""
    widest = float(near[dim, first:last].max(initial=0.0))
    out = np.full(last - first + 2, -5, np.int64)
    found = objects_near(
        grid, near, dim, first, last, np.ascontiguousarray(centre), radius, widest, np.empty((3, dim)), out
    )
    return None if found < 0 else out[:found].tolist()


def within_reach(near, dim, first, last, centre, radius) -> set[int]:
    apart = np.sqrt(((near[:dim, first:last] - np.asarray(centre)[:, None]) ** 2).sum(axis=0))
    return set((first + np.flatnonzero(apart <= radius + near[dim, first:last])).tolist())


def check(grid, near, dim, first, last, centre, radius) -> bool:
    """Whether the grid answered; if it did, that no object is lost, none doubled, none gone or to come."""
    # rounding of coordinates is the caller's: it adds a slack of this size to every distance
    slack = 1e-12 * max(1.0, float(np.abs(near[:dim]).max(initial=0.0)))
    found = search(grid, near, dim, first, last, centre, radius + slack)
    if found is None:
        return False
    assert len(found) == len(set(found)), "an object was named twice"
    assert within_reach(near, dim, first, last, centre, radius) <= set(found)
    assert all(first <= slot < last for slot in found)
    return True


def laid(near: np.ndarray, dim: int, edge: float, batch: int = 7) -> object:
    """A grid of all objects, put in a few at a time."""
    count = near.shape[1]
    grid = empty_grid(count, edge)
    for first in range(0, count, batch):
        insert(grid, near, dim, first, min(first + batch, count))
    return grid


def scattered(rng: np.random.Generator, dim: int, count: int, spread: float, kind: str) -> np.ndarray:
    """Centres and radii of objects, as rows."""
    if kind == "lattice":
        centres = rng.integers(-spread, spread + 1, (dim, count)).astype(float)
    elif kind == "clusters":
        centres = rng.uniform(-spread, spread, (dim, 4))[:, rng.integers(0, 4, count)] + rng.normal(
            0, 0.3, (dim, count)
        )
    else:
        centres = rng.uniform(-spread, spread, (dim, count))
    return np.ascontiguousarray(np.vstack([centres, rng.choice([0.0, 0.1, 0.5, 2.0], count)]))


def searches(seed: int) -> Iterator[tuple]:
    rng = np.random.default_rng(seed)
    for _ in range(120):
        dim, count = int(rng.integers(1, 6)), int(rng.integers(1, 300))
        near = scattered(
            rng, dim, count, float(rng.choice([2, 8, 30])), str(rng.choice(["even", "lattice", "clusters"]))
        )
        edge = float(rng.choice([0.5, 1.0, 3.0, 10.0]))
        yield rng, near, dim, count, edge


def test_no_object_within_reach_is_lost() -> None:
    """Any centre, radius, edge and number of dimensions, of which the grid itself has three at most."""
    answered, named, all_of_them = 0, 0, 0
    for rng, near, dim, count, edge in searches(5):
        grid = laid(near, dim, edge)
        for _ in range(12):
            centre = near[:dim, rng.integers(count)] if rng.random() < 0.5 else rng.uniform(-32, 32, dim)
            radius = float(rng.choice([0.0, 0.5, 1.0, 4.0]))
            if check(grid, near, dim, 0, count, centre, radius):
                answered += 1
                named += len(search(grid, near, dim, 0, count, centre, radius) or ())
                all_of_them += count
    assert answered > 400
    assert named < 0.5 * all_of_them, "a grid that names everything is of no use"


def test_only_objects_in_the_window_are_named() -> None:
    """Those that left, and those put in after the last asked for: chains hold them all."""
    answered = 0
    for rng, near, dim, count, edge in searches(6):
        grid = laid(near, dim, edge)
        first = int(rng.integers(0, count))
        for _ in range(6):
            answered += check(grid, near, dim, first, count, near[:dim, rng.integers(count)], float(rng.uniform(0, 2)))
    assert answered > 150


def test_cells_that_share_a_chain() -> None:
    """Hundreds of cells in the 16 chains of a small grid: each search goes past the objects of other cells."""
    rng = np.random.default_rng(7)
    for dim in (1, 2, 3):
        near = scattered(rng, dim, 400, 20.0, "even")
        grid = empty_grid(8, 1.0)._replace(before=np.full(400, -1, np.int64))
        assert len(grid.newest) == 16
        insert(grid, near, dim, 0, 400)
        answered = sum(check(grid, near, dim, 0, 400, rng.uniform(-20, 20, dim), 0.5) for _ in range(60))
        assert answered == 60
        assert len(search(grid, near, dim, 0, 400, near[:dim, 7], 0.5) or ()) < 200


def test_a_chain_knows_its_widest_object() -> None:
    """One wide object among points is found from afar, by its own cell's radius; the points beside it are not."""
    near = np.zeros((2, 300))
    near[0] = np.arange(300.0)
    near[1, 0] = 40.0
    grid = laid(near, 1, 5.0)
    found = search(grid, near, 1, 0, 300, np.array([45.0]), 6.0)
    assert found is not None
    assert 0 in found
    assert not set(range(5, 30)) & set(found)


def test_a_ball_of_many_cells_is_not_searched() -> None:
    near = scattered(np.random.default_rng(8), 2, 50, 5.0, "even")
    near[2] = 0.0
    grid = laid(near, 2, 1.0)
    assert search(grid, near, 2, 0, 50, np.zeros(2), 100.0) is None
    assert search(grid, near, 2, 0, 50, np.array([0.5, 0.5]), 0.4) is not None


def test_cells_begin_at_their_lower_edge() -> None:
    """Objects on the borders of cells, on both sides of zero, and searches that just reach them."""
    for edge in (1.0, 0.1, 0.3):
        near = np.vstack([edge * np.arange(-40, 41), np.zeros(81)])
        grid = laid(near, 1, edge)
        for k in range(81):
            for steps in (0, 1, 3):
                found = search(grid, near, 1, 0, 81, near[:1, k], steps * edge + 1e-12)
                assert found is not None
                assert set(range(max(0, k - steps), min(81, k + steps + 1))) <= set(found)


@pytest.mark.parametrize("offset", [1e6, -1e9, 1e12, -1e15])
def test_huge_coordinates(offset: float) -> None:
    """As long as the numbers of cells are whole numbers that doubles tell apart."""
    rng = np.random.default_rng(9)
    size = max(1.0, abs(offset) * 1e-12)
    for dim in (1, 2, 3, 5):
        near = scattered(rng, dim, 200, 10.0, "even") * size
        near[:dim] += offset
        grid = laid(near, dim, 4.0 * size)
        answered = sum(check(grid, near, dim, 0, 200, near[:dim, rng.integers(200)], 0.5 * size) for _ in range(40))
        assert answered == 40


@pytest.mark.parametrize(("place", "edge", "radius"), [(1.1e16, 1.0, 2.0), (5.0, 1e-300, 0.0), (5.0, 1.0, math.inf)])
def test_numbers_of_cells_beyond_doubles(place: float, edge: float, radius: float) -> None:
    """Where a number of a cell plus one is the same number, the grid must say so, or look at one cell only."""
    near = np.array([[place] * 5 + [0.0], [0.0] * 6])
    grid = laid(near, 1, edge)
    found = search(grid, near, 1, 0, 6, np.array([place]), radius)
    assert found is None or within_reach(near, 1, 0, 6, [place], radius) <= set(found)


def test_no_number_is_written_beyond_the_output() -> None:
    """All objects are found, and then a search comes past some of them again in the chain of another cell."""
    rng = np.random.default_rng(10)
    count = 40
    for _ in range(100):
        near = np.vstack([rng.integers(-50, 50, (3, 1)) + rng.uniform(0.3, 0.7, (3, count)), np.full(count, 0.1)])
        grid = laid(near, 3, 1.0)
        room = np.full(count + 1, -5, np.int64)
        found = objects_near(grid, near, 3, 0, count, near[:3].mean(axis=1), 0.8, 0.1, np.empty((3, 3)), room[:count])
        assert found == count
        assert room[count] == -5
