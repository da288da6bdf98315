"""Average over randomly shifted lattices: their points, the error of a mean, and when there are enough points."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.jit import bare

SHIFTS = 12
SEED = 20110829
FIRST = 512
"""Points of each shift that a mean begins with; then as many are added as there are."""
MISSED, RARE = 10.0, 5e-4
"""Points of shifted lattices may have missed what has ``MISSED`` divided by their number as its probability: as many
independent points miss that with a probability of ``exp(-MISSED)``, and of 60,000 random boxes in up to 31 dimensions
none that 24,576 points missed was larger. The spread of what points have met says nothing about what none of them met:
means are not trusted before this is at most ``RARE``."""


class Lattice(NamedTuple):
    """A lattice: its steps and a row for each random shift, a point and a sum for each shift to work in.

    A mean may have an error of ``tolerance``, unless it has ``most`` points.
    """

    steps: np.ndarray
    shifts: np.ndarray
    point: np.ndarray
    sums: np.ndarray
    tolerance: float
    most: int


def make_lattice(count: int, tolerance: float, most: int) -> Lattice:
    """Make a lattice of so many dimensions: its steps are the square roots of the first primes."""
    primes = [2]
    while len(primes) < count:
        primes.append(next(n for n in range(primes[-1] + 1, 2 * primes[-1] + 1) if all(n % p for p in primes)))
    shifts = np.random.default_rng(SEED).random((SHIFTS, count))
    return Lattice(np.sqrt(primes[:count]), shifts, np.empty(count), np.empty(SHIFTS), float(tolerance), int(most))


@bare
def folded(u):
    """Return a coordinate of a lattice point in 0..1, folded: the integrand is then periodic."""
    return abs(2.0 * (u - math.floor(u)) - 1.0)


@bare
def mean_and_error(lattice, points):
    """Return the mean of the shifts' sums over so many points each, and three standard errors of it."""
    sums, mean, spread = lattice.sums, 0.0, 0.0
    for shift in range(len(sums)):
        mean += sums[shift] / points / len(sums)
    for shift in range(len(sums)):
        spread += (sums[shift] / points - mean) ** 2
    return mean, 3.0 * math.sqrt(spread / (len(sums) * (len(sums) - 1)))


@bare
def is_enough(lattice, error, missed, points):
    """Return whether a mean over so many points of each shift is good enough, or has all points that it may have."""
    return (error <= lattice.tolerance and missed <= RARE) or points * len(lattice.sums) >= lattice.most
