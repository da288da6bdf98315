"""The best pairs of each row, by a total order: which pairs are kept does not depend on the order they come in.

Pairs are ordered by falling probability, rounded to 12 decimals; then by rising expected squared difference; then by a
rank of the other row. Rounding turns pairs that differ only by rounding errors into ties.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from haply.numerics.jit import bare_inner, inner, kernel

DECIMALS = 1e12
"""Probabilities are compared as whole multiples of 1 over this."""
MARGIN = 5e-12
"""A pair is worse if its upper bound is this far below another probability: both are rounded to 12 decimals, and each
may have an error of that size."""


@dataclass(frozen=True)
class Best:
    """Asks for only the ``k`` best pairs of each row of these sides, 0 for the left side and 1 for the right side.

    With two sides, pairs are wanted that are among the best of either row: the best of both are chosen later.
    """

    sides: tuple[int, ...]
    k: int = 1


def score(probability: np.ndarray) -> np.ndarray:
    """Round probabilities to whole numbers, in arithmetic that every engine repeats to the bit."""
    return np.floor(probability * DECIMALS + 0.5)


@bare_inner
def hold(value, held, count):
    """Insert a value among the largest ones, which are held in falling order; return how many are held."""
    at = count
    if at == len(held):
        if not value > held[at - 1]:
            return count
        at -= 1
    else:
        count += 1
    while at > 0 and held[at - 1] < value:
        held[at] = held[at - 1]
        at -= 1
    held[at] = value
    return count


@inner
def _better(scores, spreads, ranks, one, other):
    """Tell whether one pair comes before another; of equal pairs the earlier one does."""
    if scores[one] != scores[other]:
        return scores[one] > scores[other]
    if spreads[one] != spreads[other]:
        return spreads[one] < spreads[other]
    if ranks[one] != ranks[other]:
        return ranks[one] < ranks[other]
    return one < other


@kernel
def _crowded(rows, seen, most):
    over = 0
    for pair in range(len(rows)):
        row = rows[pair]
        over += seen[row] >= most
        seen[row] += seen[row] <= most
    if over == 0:
        return np.empty(0, np.int64)
    found = np.empty(min(len(rows), over * (most + 1)) + 1, np.int64)  # each such row has one pair that is too many
    n = 0
    for pair in range(len(rows)):
        found[n] = pair
        n += seen[rows[pair]] > most
    return found[:n]


def crowded_pairs(rows: np.ndarray, count: int, most: int) -> np.ndarray:
    """Return the pairs, in their order, of rows with more than ``most`` pairs; rows are numbers below ``count``.

    Pairs are counted in bytes, if these suffice: the counts of many rows then stay in the cache.

    >>> crowded_pairs(np.array([2, 0, 2, 1]), 3, 1)
    array([0, 2])
    """
    return _crowded(rows, np.zeros(count, np.uint8 if most < 255 else np.int64), most)


@kernel
def likeliest_pairs(rows, probability, count):
    """Tell which pairs have the largest probability of their row, as ``score`` rounds it, and which of them tie.

    ``rows`` are numbers below ``count``. The result is that of ``best_pairs`` for one best pair, in two short passes
    without a branch on a comparison, which a processor could not predict. Scores are even whole numbers; the odd one
    above a score marks a row of which several pairs reach it.
    """
    most, scores = np.full(count, -1), np.empty(len(rows), np.int64)
    for pair in range(len(rows)):
        row = np.uint64(rows[pair])
        score, largest = 2 * math.floor(probability[pair] * DECIMALS + 0.5), most[row]
        scores[pair] = score
        most[row] = max(score, largest | np.int64(score == largest))
    kept, tied = np.empty(len(rows), np.bool_), 0
    for pair in range(len(rows)):
        over = most[np.uint64(rows[pair])] - scores[pair]
        kept[pair] = over < 2
        tied += over == 1
    ties = np.empty(tied, np.int64)
    at = 0
    if tied > 0:
        for pair in range(len(rows)):
            if most[rows[pair]] - scores[pair] == 1:
                ties[at] = pair
                at += 1
    return kept, ties


@kernel
def best_pairs(rows, scores, spreads, ranks, count, most, ties):
    """Tell which pairs are among the ``most`` best of their row; with ``ties`` also those that tie with the last.

    ``rows`` are numbers below ``count``. Two pairs tie if they have the same probability and expected square.
    """
    start = np.zeros(count + 1, np.int64)
    for pair in range(len(rows)):
        start[rows[pair] + 1] += 1
    for row in range(count):
        start[row + 1] = start[row] + min(start[row + 1], most)
    held = np.empty(start[count], np.int64)
    filled = np.zeros(count, np.int64)
    for pair in range(len(rows)):
        row = rows[pair]
        first, size = start[row], start[row + 1] - start[row]
        at = filled[row]
        if at == size:
            at -= 1
            if not _better(scores, spreads, ranks, pair, held[first + at]):
                continue
        else:
            filled[row] += 1
        while at > 0 and _better(scores, spreads, ranks, pair, held[first + at - 1]):
            held[first + at] = held[first + at - 1]
            at -= 1
        held[first + at] = pair
    kept = np.zeros(len(rows), np.bool_)
    kept[held] = True
    if ties:
        for pair in range(len(rows)):
            last = held[start[rows[pair] + 1] - 1]
            if scores[pair] == scores[last] and spreads[pair] == spreads[last]:
                kept[pair] = True
    return kept


@kernel
def flagged(left, right, probability, codes, kept):
    """Return the flagged pairs: every pair is written, and the place moves on only if it stays."""
    size, n = len(left), np.uint64(0)
    lefts, rights = np.empty(size, left.dtype), np.empty(size, right.dtype)
    chances, reasons = np.empty(size, probability.dtype), np.empty(size, codes.dtype)
    for pair in range(size):
        lefts[n], rights[n], chances[n], reasons[n] = left[pair], right[pair], probability[pair], codes[pair]
        n += np.uint64(kept[pair])
    return lefts[:n], rights[:n], chances[:n], reasons[:n]
