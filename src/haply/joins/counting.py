"""How many partners rows have: from pairs that stand together by row, what the kernels of counts make of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError
from haply.models import Model, OneDimensional
from haply.models.columns import view_column
from haply.probability.count_positions import position_counts, position_misfit
from haply.probability.counts import MatchCounts, match_counts
from haply.probability.region import Region

EXPECTED, VARIANCE, ANY, OWN = "expected_matches", "__variance", "p_any", "__own"
"""Numbers of a row: how many matches are expected, their variance, whether there is any, and the sum of the variances
of its pairs, each by itself."""
DISTRIBUTION = "matches_distribution"


class CountedNumbers:
    """The numbers that are wanted of each row."""

    quantiles: tuple[float, ...]
    distribution: bool
    singly: bool

    @property
    def names(self) -> list[str]:
        """Return the numbers of a row besides distributions."""
        return [EXPECTED, VARIANCE, ANY, *([OWN] if self.singly else []), *map(quantile_name, self.quantiles)]

    def written(self, found: MatchCounts, start: np.ndarray) -> dict[str, pa.Array]:
        """Return columns by name, for rows whose pairs are at ``start[i]:start[i + 1]``."""
        columns = {
            EXPECTED: found.expected, VARIANCE: np.maximum(found.variance, 0.0), ANY: found.p_any,
        }  # fmt: skip
        if self.singly:
            count, chance = len(start) - 1, found.probability
            owner = np.repeat(np.arange(count), np.diff(start))
            columns[OWN] = np.bincount(owner, chance * (1.0 - chance), minlength=count)
        out = {name: pa.array(values) for name, values in columns.items()}
        if found.distribution is not None:
            begins, shares = found.distribution.start, found.distribution.values
            for q in self.quantiles:
                out[quantile_name(q)] = pa.array(_quantiles(np.asarray(begins), shares, q))
            if self.distribution:
                out[DISTRIBUTION] = found.distribution.to_arrow()
        return out


@dataclass(frozen=True)
class Counting(CountedNumbers):
    """What is counted: pairs whose values differ by what a region holds, or are within a distance."""

    left: str
    right: str
    """The compared columns of pairs; the rows of the first are those that partners are counted of."""
    region: Region | None
    within: float | None
    tolerance: float = 1e-9
    quantiles: tuple[float, ...] = ()
    distribution: bool = False
    singly: bool = False
    """Whether the variances of the pairs, each by itself, are summed up: groups need that."""

    @property
    def mirrored(self) -> Counting:
        """Return the same from the other side; only the variance is of interest there."""
        region = self.region
        if region is not None:
            region = Region(-region.high, -region.low, region.high_closed, region.low_closed, region.outside)
        return replace(
            self, left=self.right, right=self.left, region=region, quantiles=(), distribution=False, singly=False
        )

    @property
    def columns(self) -> list[str]:
        """Return the columns of pairs that are needed."""
        return [self.left, self.right]

    def rows(self, pairs: pa.Table, start: np.ndarray) -> dict[str, pa.Array]:
        """Count the partners of rows, whose pairs are at ``start[i]:start[i + 1]``; returns columns by name."""
        mine = pairs[self.left].take(pa.array(start[:-1]))
        return self.count(mine, pairs[self.right], start, np.arange(pairs.num_rows))

    def count(self, left: pa.Array, right: pa.Array, start: np.ndarray, partners: np.ndarray) -> dict[str, pa.Array]:
        """Count for rows whose partners are known by their places in the other column."""
        return self.written(self._counts(view_column(left), view_column(right), start, partners), start)

    def _counts(self, mine: Model, theirs: Model, start: np.ndarray, candidates: np.ndarray) -> MatchCounts:
        asked = bool(self.quantiles) or self.distribution
        if self.region is not None:
            assert isinstance(mine, OneDimensional)
            assert isinstance(theirs, OneDimensional)
            return match_counts(
                mine, theirs, self.region, start, candidates, distribution=asked, tolerance=self.tolerance,
                singly=self.singly,
            )  # fmt: skip
        assert self.within is not None
        if len(candidates):
            reason = position_misfit(mine, theirs)
            if reason:
                raise HaplyError("The partners of such positions cannot be counted", found=reason)
        return position_counts(
            mine, theirs, self.within, start, candidates, distribution=asked, tolerance=self.tolerance
        ).counts


def quantile_name(q: float) -> str:
    """Name the column of a quantile: ``matches_q05`` for 0.05."""
    text = f"{100 * q:.10g}"
    return "matches_q" + (text if q >= 0.1 else "0" + text).replace(".", "_")


def _quantiles(begins: np.ndarray, shares: np.ndarray, q: float) -> np.ndarray:
    """Find the least number of matches that is reached with a probability."""
    lengths = np.diff(begins)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    whole = np.cumsum(shares)
    before = np.concatenate([[0.0], whole])[begins[:-1]]
    below = (whole - before[owner]) < q - 1e-12
    found = np.bincount(owner[below], minlength=len(lengths))
    return np.minimum(found, lengths - 1).astype(np.float64)
