"""What orders the pairs of a row: their probability, and the expected squared difference of their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from haply.joins.dimensions import dimensions, known_dimensions, of_dimension
from haply.joins.match import Matches
from haply.models import Model, OneDimensional, Samples
from haply.probability.matchings import best_world
from haply.probability.multivariate import parts
from haply.pruning.best import Best, best_pairs, crowded_pairs, likeliest_pairs, score
from haply.pruning.candidates.one_pass import Places

_CACHED = 1 << 17
"""With at most this many rows, all pairs are ranked at once: one number per row stays in the cache."""
_FEW = 2
"""With fewer pairs per row on average, a cell does not leave out beaten pairs: ranking all later is faster."""


@dataclass(frozen=True)
class Centres:
    """Means (n, dimension) and variances of rows, summed over coordinates.

    Rows of fewer dimensions have zeros behind their means: only rows of one dimension meet.
    """

    mean: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, model: Model) -> Centres:
        """Compute them for all rows."""
        if isinstance(model, OneDimensional) and not isinstance(model, Samples):
            return cls(np.asarray(model.mean())[:, None], np.asarray(model.variance()))
        dims = dimensions(model)
        known = known_dimensions(dims) or [1]
        found = cls(np.zeros((len(model), max(known))), np.zeros(len(model)))
        for dim in known:
            these, rows = of_dimension(model, dims, dim)
            if not len(rows):
                continue
            normals = parts(these)
            assert normals is not None
            begin = np.asarray(normals.start[:-1], np.int64)
            spread = np.broadcast_to(np.trace(normals.cov, axis1=1, axis2=2), normals.weight.shape)
            mean = np.add.reduceat(normals.weight[:, None] * normals.mean, begin, axis=0)
            square = np.add.reduceat(normals.weight * (spread + (normals.mean**2).sum(axis=1)), begin)
            alone = np.diff(normals.start) == 1  # of one part, nothing is lost to cancellation
            variance = np.maximum(square - (mean**2).sum(axis=1), 0.0)
            found.mean[rows, :dim] = np.where(alone[:, None], normals.mean[begin], mean)
            found.variance[rows] = np.where(alone, spread[begin], variance)
        return found

    def padded(self, dim: int) -> np.ndarray:
        """Return the means with zeros for further coordinates."""
        missing = dim - self.mean.shape[1]
        return np.pad(self.mean, ((0, 0), (0, missing))) if missing > 0 else self.mean


def expected_squares(left: Centres, right: Centres, left_rows: np.ndarray, right_rows: np.ndarray) -> np.ndarray:
    """Compute ``E |X - Y|^2`` of pairs, coordinate after coordinate: every engine adds up in this order."""
    dim = max(left.mean.shape[1], right.mean.shape[1])
    mine, theirs = left.padded(dim), right.padded(dim)
    total = np.zeros(len(left_rows))
    for axis in range(dim):
        total += (mine[left_rows, axis] - theirs[right_rows, axis]) ** 2
    return total + left.variance[left_rows] + right.variance[right_rows]


def most_pairs(left: np.ndarray, right: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """Tell which pairs are in a set that is worth the most in which no row is twice."""
    rows = [np.unique(ids, return_inverse=True) for ids in (left, right)]
    return best_world(rows[0][1], rows[1][1], worth, len(rows[0][0]), len(rows[1][0]))


def best_of_cell(
    found: Matches, models: tuple[Model, Model], best: Best, parts: int = 1, places: Places | None = None
) -> Matches:
    """Leave out pairs of a cell, or of one of so many parts, that are not among the best of their rows, nor tie.

    With two sides few are left out where rows have few pairs: those that are the best of either row are wanted.
    ``places`` are other numbers for the pairs' rows, all below a small one.
    """
    if len(best.sides) == 2 and len(found.left) * parts < _FEW * min(map(len, models)):
        return found
    kept = np.zeros(len(found.left), bool)
    for side, rows in enumerate(places or (found.left, found.right)):
        if side not in best.sides:
            continue
        count = len(models[side]) if places is None else int(rows.max(initial=-1)) + 1

        def spreads(tied: np.ndarray) -> np.ndarray:
            return _spreads(models, found.left[tied], found.right[tied])

        kept |= RankedPairs(rows, count, found.probability, spreads).best(best.k, None)
    return found if kept.all() else found.only(kept)


def _spreads(models: tuple[Model, Model], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the expected squared differences of pairs; of few pairs, only their rows are looked at."""
    sides = []
    for model, rows in zip(models, (left, right), strict=True):
        if len(rows) < len(model):
            sides.append((Centres.of(model.take(rows)), np.arange(len(rows))))
        else:
            sides.append((Centres.of(model), rows))
    (mine, i), (theirs, j) = sides
    return expected_squares(mine, theirs, i, j)


def numbered(ids: np.ndarray) -> tuple[np.ndarray, int]:
    """Number rows by the order of their ids, and count them: not every id may occur.

    >>> numbered(np.array([900, 7, 900]))
    (array([1, 0, 1]), 2)
    """
    if not len(ids):
        return ids, 0
    most = int(ids.max())
    if most < 4 * len(ids):
        return ids, most + 1
    known, numbers = np.unique(ids, return_inverse=True)
    return numbers, len(known)


@dataclass(frozen=True)
class RankedPairs:
    """Pairs to be ranked: their rows as numbers below ``count``, and their probabilities.

    ``spreads`` computes the expected squared differences of given pairs: only those are asked for whose probability
    does not tell which are the best.
    """

    rows: np.ndarray
    count: int
    probability: np.ndarray
    spreads: Callable[[np.ndarray], np.ndarray]

    def best(self, most: int, ranks: Callable[[np.ndarray], np.ndarray] | None) -> np.ndarray:
        """Tell which pairs are among the best of their rows.

        ``ranks`` numbers given pairs by what tells those apart that tie; without it all that tie with the last are
        kept.
        """
        if most == 1 and self.count <= _CACHED:
            return self._decided(most, ranks)
        kept = np.ones(len(self.rows), bool)
        several = crowded_pairs(self.rows, self.count, most)
        if len(several):  # some row has a choice
            some = RankedPairs(
                *numbered(self.rows[several]), self.probability[several], lambda tied: self.spreads(several[tied])
            )
            kept[several] = some._decided(most, None if ranks is None else lambda tied: ranks(several[tied]))
        return kept

    def _decided(self, most: int, ranks: Callable[[np.ndarray], np.ndarray] | None) -> np.ndarray:
        """Do as ``best``: first by probabilities, then where pairs tie by spreads, then where they still do by ranks.

        A row's pairs tie all together, so each step looks at the pairs alone that the one before has left undecided.
        """
        if most == 1:
            kept, tied = likeliest_pairs(self.rows, self.probability, self.count)
        else:
            pairs = np.arange(len(self.rows))
            kept = self._first(pairs, np.zeros(len(pairs)), None, most)
            tied = self._crowded(np.flatnonzero(kept), most)
        if not len(tied):
            return kept
        spreads = self.spreads(tied)
        kept[tied] = self._first(tied, spreads, None, most)
        if ranks is not None:
            last = self._crowded(tied[kept[tied]], most)
            if len(last):
                kept[last] = self._first(last, spreads[np.searchsorted(tied, last)], ranks(last), most)
        return kept

    def _crowded(self, pairs: np.ndarray, most: int) -> np.ndarray:
        """Those of some pairs whose rows have more of them than are wanted, in their order."""
        return pairs[crowded_pairs(*numbered(self.rows[pairs]), most)]

    def _first(self, pairs: np.ndarray, spreads: np.ndarray, ranks: np.ndarray | None, most: int) -> np.ndarray:
        """Tell which of some pairs are among the best of their rows; without ranks those that tie are as well."""
        rows, count = numbered(self.rows[pairs])
        order = np.zeros(len(pairs), np.int64) if ranks is None else ranks
        return best_pairs(rows, score(self.probability[pairs]), spreads, order, count, most, ranks is None)
