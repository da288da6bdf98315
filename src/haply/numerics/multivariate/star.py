"""Compute the probability that several normal points are all near one point in the middle, or far from it.

Given the middle point the others are independent, and the probability of each in its ball is known. As a function of
the middle it is the ball blurred by the other point's error, and smooth. So over the plane of the middle's own error
the trapezoidal rule gains digits with the square of its nodes along a line. The widths of the errors tell how dense the
nodes must be. A second sum, over nodes halfway between, tells the error.
"""

from __future__ import annotations

import math

import numpy as np

from haply.numerics.jit import bare, solid
from haply.numerics.multivariate.disc import SURE, DiscScratch, ball_chance, room_for

REACH = 7.0
"""In standard deviations: the middle is farther from its mean with probability 2e-11."""
AGREE = 1e-9
"""If two sums differ by less, nodes need not be denser."""
MOST_NODES = 200_000
"""The most nodes for a row; beyond this another method takes less time."""
FLAT = 1e-7
"""The middle's error has two directions if the third is smaller than the first by this factor."""


@bare
def _over_plane(shift, middle, axes, steps, means, covs, squares, farthest, beyond, mean, room):
    """Return the sum over nodes at whole steps from the mean, shifted by a part of a step."""
    dim, others = len(middle), len(squares)
    total = 0.0
    rows = int(REACH / steps[0]) + 1
    for i in range(-rows, rows + 1):
        u = (i + shift) * steps[0]
        left = REACH * REACH - u * u
        if left < 0.0:
            continue
        columns = int(math.sqrt(left) / steps[1]) + 1
        for j in range(-columns, columns + 1):
            v = (j + shift) * steps[1]
            chance = math.exp(-0.5 * (u * u + v * v))
            for k in range(others):
                away = 0.0
                for c in range(dim):
                    mean[c] = means[k, c] - middle[c] - axes[c, 0] * u - axes[c, 1] * v
                    away += mean[c] * mean[c]
                near = ball_chance(mean, covs[k], squares[k], room) if away <= farthest[k] else 0.0
                chance *= 1.0 - near if beyond[k] else near
                if chance <= 0.0:
                    break
            total += chance
    return total * steps[0] * steps[1] / (2.0 * math.pi)


@bare
def _star_rows(rows, middle, axes, steps, nodes, means, covs, squares, farthest, beyond, mean, room, chance, miss):
    for row in rows:
        args = means[row], covs[row], squares[row], farthest[row], beyond, mean, room
        while True:
            one = _over_plane(0.0, middle[row], axes[row], steps[row], *args)
            two = _over_plane(0.5, middle[row], axes[row], steps[row], *args)
            chance[row], miss[row] = min(1.0, max(0.0, 0.5 * (one + two))), abs(one - two) + AGREE
            nodes[row] *= 4.0
            if abs(one - two) <= AGREE or nodes[row] > MOST_NODES:
                break
            steps[row, 0] *= 0.5
            steps[row, 1] *= 0.5


def star_rows(
    middle: np.ndarray, root: np.ndarray, means: np.ndarray, covs: np.ndarray, squares: np.ndarray, beyond: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability that all of some points are near a middle one, and its error; infinite if unknown.

    The middle has means (n, d) and factors of covariances (n, d, d); the others, k of them, means (n, k, d) and
    covariances (n, k, d, d). Each must be in the ball around the middle with its squared radius (n, k), or, if
    ``beyond`` (k), outside of it.
    """
    n, dim = middle.shape
    turn, spread, _ = np.linalg.svd(root)
    axes = turn[:, :, :2] * spread[:, None, :2]
    flat = (spread[:, 2:] <= FLAT * spread[:, :1]).all(axis=1)
    # how fast the summands may change along the axes: as fast as the normal itself and all blurs of the others together
    within = np.swapaxes(turn[:, None, :, :2], 2, 3) @ covs @ turn[:, None, :, :2]
    det = within[..., 0, 0] * within[..., 1, 1] - within[..., 0, 1] * within[..., 1, 0]
    flat &= (det > 1e-9 * within[..., 0, 0] * within[..., 1, 1]).all(axis=1)
    inverse = np.empty_like(within)
    inverse[..., 0, 0], inverse[..., 1, 1] = within[..., 1, 1], within[..., 0, 0]
    inverse[..., 0, 1] = inverse[..., 1, 0] = -within[..., 0, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        blur = spread[:, :2, None] * (inverse / det[..., None, None]).sum(axis=1) * spread[:, None, :2]
    blur[~flat] = 0.0
    change, directions = np.linalg.eigh(np.eye(2) + blur)
    steps = 1.0 / np.sqrt(change)
    nodes = 2.0 * math.pi * REACH * REACH / steps.prod(axis=1)
    chance, miss = np.zeros(n), np.full(n, math.inf)
    rows = np.flatnonzero(flat & (nodes <= MOST_NODES))
    if len(rows):
        variance = np.trace(covs, axis1=2, axis2=3)
        farthest = (np.sqrt(np.maximum(squares, 0.0)) + SURE * np.sqrt(variance)) ** 2
        room: DiscScratch = room_for(dim)
        _star_rows(
            rows, solid(middle), solid(axes @ directions), steps, nodes, solid(means), solid(covs), solid(squares),
            solid(farthest), beyond, np.empty(dim), room, chance, miss,
        )  # fmt: skip
    return chance, miss
