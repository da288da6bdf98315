"""Count the right positions within a distance of a left one: ``counts`` for points in the plane and in space.

Given the left point, the candidates are independent. Samples are summed over. Over a Gaussian left point the
expectation is an integral in as many dimensions: the trapezoidal rule on a lattice, in coordinates in which the point
is standard normal, turned so that the candidates bend most along an axis. Along each axis the transform of the
integrand falls like ``exp(-w**2 / (2 kappa))``, where ``kappa`` is 1 plus the sum over the candidates of the left
variance over theirs; a step h leaves an error of ``exp(-2 pi**2 / (h**2 kappa))``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.models import Certain, Model, OneDimensional, Samples
from haply.numerics.grid import FARTHEST
from haply.numerics.jit import bare, kernel, solid
from haply.numerics.multivariate.disc import ball_chance, room_for
from haply.numerics.scale import power_of
from haply.probability.counts import (
    BLOCK,
    MatchCounts,
    add_candidate,
    begin_block,
    begin_row,
    candidate_lists,
    counts_of,
    end_block,
    end_row,
    match_counts,
    room_for_found,
    room_for_tally,
)
from haply.probability.distance import Block, clouds, near_weight, scaled_limit, squared_limit
from haply.probability.multivariate import Parts, parts
from haply.probability.region import Region

MOST_DIMENSIONS = 3
"""The most dimensions of Gaussian left points: the number of nodes grows as a power with this exponent."""
MOST_LATTICE = 400_000
"""The most nodes for one Gaussian left point; if they are too few, the stated error is larger."""
_THIN = 1e-7
"""A Gaussian counts as flat in a direction if its deviation there is below this share of the largest."""


class PositionCounts(NamedTuple):
    """How many matches each left row has, and the error of each probability."""

    counts: MatchCounts
    error: np.ndarray
    """0 for samples, whose sums are exact; for Gaussians the error of the lattice, by a rule that was measured."""


class Lattices(NamedTuple):
    """The parts of all left rows: ``mean + axes @ nodes``, with nodes ``step`` apart (0: a single node)."""

    start: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    axes: np.ndarray
    step: np.ndarray
    radius: float


class Targets(NamedTuple):
    """The parts of all right rows, and the largest standard deviation of each."""

    start: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    widest: np.ndarray


class DistanceLimit(NamedTuple):
    """The distance, its square, and the result of ``scaled_limit`` for samples."""

    within: float
    square: float
    limit: float
    scale: float


@bare
def _chances_of_parts(targets, j, nodes, count, near, room, q):
    """Write the probability that row ``j``, a mixture of normals, is within the distance of each node."""
    dim = len(room.mean)
    q[:count] = 0.0
    for m in range(targets.start[j], targets.start[j + 1]):
        spread = FARTHEST * targets.widest[m]
        cov = targets.cov[m if len(targets.cov) > 1 else 0]
        for e in range(count):
            away = 0.0
            for c in range(dim):
                room.mean[c] = targets.mean[m, c] - nodes[c * BLOCK + e]
                away += room.mean[c] * room.mean[c]
            away = math.sqrt(away)
            if away > near.within + spread:
                continue
            if spread > 0.0 and away + spread <= near.within:
                q[e] += targets.weight[m]
            else:
                q[e] += targets.weight[m] * ball_chance(room.mean, cov, near.square, room)


@bare
def _chances_of_cloud(cloud, j, x, count, near, squares, q):
    """Write the probability that row ``j``, a set of samples, is within the distance of each node."""
    first = cloud.start[j]
    y = Block(
        cloud.points, cloud.dim * first, cloud.start[j + 1] - first, cloud.weight, first, cloud.equal[j]
    )  # fmt: skip
    for e in range(count):
        q[e] = near_weight(cloud.dim, x, e, e + 1, y, near.limit, near.scale, squares) / cloud.whole[j]


@bare
def _flush(nodes, count, ones, targets, cloud, candidates, near, squares, room, tally, distribution,
           probability):  # fmt: skip
    """Add a block of nodes, whose weights are in the tally."""
    begin_block(tally, count)
    x = Block(nodes, 0, BLOCK, ones, 0, True)
    for c in range(len(candidates)):
        if cloud.most > 0:
            _chances_of_cloud(cloud, candidates[c], x, count, near, squares, tally.q)
        else:
            _chances_of_parts(targets, candidates[c], nodes, count, near, room, tally.q)
        probability[c] += add_candidate(tally, count, distribution)
    end_block(tally, count, distribution)


@bare
def _steps(radius, step):
    """Return how many nodes there are on each side of the middle, along one axis."""
    return int(radius / step) if step > 0.0 else 0


@kernel
def _count_rows(lattices, targets, cloud, start, candidates, near, squares, room, distribution):
    """Count the matches of all left rows: see ``counts._count_rows``."""
    rows, dim, axes = len(start) - 1, lattices.mean.shape[1], lattices.step.shape[1]
    most = 0
    for i in range(rows):
        most = max(most, start[i + 1] - start[i])
    tally, nodes, ones = room_for_tally(most, distribution), np.zeros(dim * BLOCK), np.ones(BLOCK)
    found = room_for_found(rows, len(candidates), distribution)
    ends, at, z = np.zeros(3, np.int64), np.zeros(3, np.int64), np.zeros(3)
    most_square = lattices.radius * lattices.radius
    for i in range(rows):
        mine, chances = candidates[start[i] : start[i + 1]], found.probability[start[i] : start[i + 1]]
        begin_row(tally, len(mine))
        count, last = 0, lattices.start[i + 1] if len(mine) > 0 else lattices.start[i]
        for k in range(lattices.start[i], last):
            volume, total = 1.0, 1
            for c in range(axes):
                ends[c] = _steps(lattices.radius, lattices.step[k, c])
                total *= 2 * ends[c] + 1
                if ends[c] > 0:
                    volume *= lattices.step[k, c] / math.sqrt(2.0 * math.pi)
            for number in range(total):
                rest, away = number, 0.0
                for c in range(axes):
                    at[c] = rest % (2 * ends[c] + 1) - ends[c]
                    rest //= 2 * ends[c] + 1
                    z[c] = at[c] * lattices.step[k, c]
                    away += z[c] * z[c]
                if away > most_square:
                    continue
                for d in range(dim):
                    place = lattices.mean[k, d]
                    for c in range(axes):
                        place += lattices.axes[k, d, c] * z[c]
                    nodes[d * BLOCK + count] = place
                tally.weight[count] = lattices.weight[k] * volume * math.exp(-0.5 * away)
                count += 1
                if count == BLOCK:
                    _flush(
                        nodes, count, ones, targets, cloud, mine, near, squares, room, tally,
                        distribution, chances,
                    )  # fmt: skip
                    count = 0
        if count > 0:
            _flush(
                nodes, count, ones, targets, cloud, mine, near, squares, room, tally, distribution,
                chances,
            )  # fmt: skip
        end_row(tally, i, start[i], found, chances)
    return found


def _is_points(model: Any) -> bool:
    return isinstance(model, (Certain, Samples))


def _on_a_line(model: Any) -> bool:
    return isinstance(model, OneDimensional) and not (isinstance(model, Samples) and (model.dim != 1).any())


def position_misfit(left: Any, right: Any) -> str:
    """Tell why matches of such positions cannot be counted; an empty text if they can.

    Parameters
    ----------
    left, right
        Models of positions.

    Returns
    -------
    str
        The reason, in words, or an empty text.
    """
    if _on_a_line(left) and _on_a_line(right):
        return ""
    mine, theirs = parts(left), parts(right)
    for found, model in ((mine, left), (theirs, right)):
        if found is None:
            return f"{type(model).__name__} is no position: Gaussians, their mixtures, samples or certain values are"
    assert mine is not None
    assert theirs is not None
    dim = mine.mean.shape[1]
    if theirs.mean.shape[1] != dim:
        return f"left points have {dim} dimensions, right points {theirs.mean.shape[1]}"
    if _is_points(left):
        return ""
    if dim > MOST_DIMENSIONS:
        return (
            f"left points are Gaussian in {dim} dimensions, where an integral takes too many nodes (up to "
            f"{MOST_DIMENSIONS} can be): give samples of them"
        )
    if _is_points(right):
        return (
            "left points are Gaussian and right ones are not, so that their discs have edges: give samples of the left"
        )
    return ""


def position_counts(
    left: Model, right: Model, within: float, start: Any, candidates: Any, *, distribution: bool = False,
    tolerance: float = 1e-9,
) -> PositionCounts:  # fmt: skip
    """Compute how many candidates lie within a distance of each left row.

    Parameters
    ----------
    left, right
        Models of positions for which ``position_misfit`` says nothing: samples or certain points of any dimension on
        the left with samples, Gaussians or mixtures on the right; Gaussians or mixtures on both sides, in up to three
        dimensions.
    within
        The largest distance that counts, 0 or more.
    start, candidates
        Which right rows may match: those of left row ``i`` are ``candidates[start[i]:start[i + 1]]``.
    distribution
        Whether to compute the probability of each number of matches as well.
    tolerance
        The error at which lattices over Gaussian left points aim.

    Returns
    -------
    PositionCounts
        As ``match_counts``, and the error of each row.

    Raises
    ------
    HaplyError
        If ``position_misfit`` gives a reason.
    """
    reason = position_misfit(left, right)
    if reason:
        raise HaplyError("Matches of these positions cannot be counted", found=reason)
    begins, rows = candidate_lists(start, candidates, len(left), len(right))
    if isinstance(left, OneDimensional) and isinstance(right, OneDimensional) and _on_a_line(left):
        counts = match_counts(left, right, Region(-within, within), begins, rows, distribution=distribution)
        return PositionCounts(counts, np.zeros(len(left)))
    size = max([float(model.sizes().max(initial=0.0)) for model in (left, right)])
    power = power_of(max(size, within if math.isfinite(within) else 0.0))
    if power:
        left, right, within = left.scaled(power), right.scaled(power), math.ldexp(within, -power)
    mine, theirs = parts(left), parts(right)
    assert mine is not None
    assert theirs is not None
    lattices, error = _lattices(mine, theirs, begins, rows, tolerance)
    cloud = clouds(right) if _is_points(right) else clouds(Samples([], dim=1))
    near = DistanceLimit(float(within), squared_limit(within), *scaled_limit(within))
    room, squares = room_for(mine.mean.shape[1]), np.empty(cloud.most + 1)
    found = _count_rows(lattices, _targets(theirs), cloud, begins, rows, near, squares, room, distribution)
    return PositionCounts(counts_of(begins, found, distribution), error)


def _targets(found: Parts) -> Targets:
    covs = solid(found.cov)
    widest = np.sqrt(np.maximum(0.0, np.linalg.eigvalsh(covs)[:, -1]))
    count = len(found.weight)
    return Targets(
        found.start.astype(np.int64), solid(found.weight), solid(found.mean), covs,
        solid(np.broadcast_to(widest, (count,))),
    )  # fmt: skip


def _lattices(
    mine: Parts, theirs: Parts, begins: np.ndarray, rows: np.ndarray, tolerance: float
) -> tuple[Lattices, np.ndarray]:
    """Lay lattices over all left parts; return them, and the error of each row."""
    count, dim = mine.mean.shape
    radius = math.sqrt(2.0 * math.log(10.0 / tolerance)) + 0.5 * (dim - 1)
    start, weight, mean = mine.start.astype(np.int64), solid(mine.weight), solid(mine.mean)
    if not mine.cov.any():
        nothing = np.zeros((count, dim, 0)), np.zeros((count, 0))
        return Lattices(start, weight, mean, *nothing, radius), np.zeros(len(mine.start) - 1)
    variance, turn = np.linalg.eigh(np.broadcast_to(mine.cov, (count, dim, dim)))
    sd = np.sqrt(np.maximum(0.0, variance))
    sd = np.where(sd > _THIN * sd[:, -1:], sd, 0.0)
    root = turn * sd[:, None, :]
    kappa = _bends(root, sd, mine, theirs, begins, rows)
    bends, turned = np.linalg.eigh(kappa)
    exponent = math.log(4.0 * dim / tolerance)
    flat = root @ turned  # columns of 0 where the part is flat
    spread = np.sqrt((flat * flat).sum(axis=1))
    step = np.where(spread > 0.0, np.sqrt(2.0 * np.pi**2 / (exponent * bends)), 0.0)
    with np.errstate(divide="ignore"):
        nodes = np.where(step > 0.0, 2.0 * radius / np.where(step > 0.0, step, 1.0), 1.0).prod(axis=1)
    rank = np.maximum(1, (step > 0.0).sum(axis=1))
    coarser = np.maximum(1.0, nodes / MOST_LATTICE) ** (1.0 / rank)
    step = step * coarser[:, None]
    left = np.minimum(1.0, 4.0 * dim * np.exp(-exponent / coarser**2))
    owner = np.repeat(np.arange(len(mine.start) - 1), np.diff(mine.start))
    error = np.minimum(1.0, np.bincount(owner, weight * left, len(mine.start) - 1) + 0.1 * tolerance)
    return Lattices(start, weight, mean, solid(flat), solid(step), radius), error


def _bends(
    root: np.ndarray, sd: np.ndarray, mine: Parts, theirs: Parts, begins: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Return for each left part how much the candidates bend along its axes: the identity plus a sum of matrices."""
    count, dim = sd.shape
    kappa = np.broadcast_to(np.eye(dim), (count, dim, dim)).copy()
    pair_left = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    left_parts, right_parts = np.diff(mine.start)[pair_left], np.diff(theirs.start)[rows]
    many = left_parts * right_parts
    pair = np.repeat(np.arange(len(rows)), many)
    within = np.arange(len(pair)) - np.repeat(np.cumsum(many) - many, many)
    k = mine.start[pair_left[pair]] + within // right_parts[pair]
    m = theirs.start[rows[pair]] + within % right_parts[pair]
    # the covariance of a candidate along the axes of the left part; where the part is flat it does not matter
    axis = root[k] / np.where(sd[k] > 0.0, sd[k], 1.0)[:, None, :]
    cov = axis.transpose(0, 2, 1) @ theirs.cov[m if len(theirs.cov) > 1 else np.zeros_like(m)] @ axis
    variance, turn = np.linalg.eigh(cov + np.eye(dim) * (sd[k] == 0.0)[:, None, :])
    largest = np.maximum(variance[:, -1], sd[k].max(axis=1) ** 2)
    inverse = turn * (1.0 / np.maximum(variance, 1e-12 * largest[:, None]))[:, None, :] @ turn.transpose(0, 2, 1)
    np.add.at(kappa, k, sd[k][:, :, None] * inverse * sd[k][:, None, :])
    return kappa
