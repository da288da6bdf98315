"""Score probabilities: predictions against outcomes, bin by bin, as sums that can be added up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haply.errors import HaplyError

_NORMAL_95 = 1.959963984540054
_BY_BIN = ("count", "p", "square", "true", "product", "alone", "alone_square", "rows")
_WHOLE = (
    "brier", "log_loss", "known_odds", "log_odds", "log_odds_square", "evident", "evident_p", "unlikely", "skipped",
)  # fmt: skip
_UNLIKELY = 0.01
"""If no pair has a smaller probability, pairs have been chosen by their probability."""


@dataclass(frozen=True)
class Scoring:
    """Adds up the pairs of a table by bins of their probability.

    Inside a bin, probabilities are counted from its middle, so that variances within bins lose no digits.
    """

    bins: int
    probability: str
    label: str | None = None
    some: str | None = None
    """The column with the probability of any partner, if fakes are compared."""
    factor: str | None = None
    """The column with the Bayes factor, from which the completeness is read."""

    @property
    def columns(self) -> list[str]:
        """Return the columns that must be in the table."""
        return [one for one in (self.probability, self.label, self.some, self.factor) if one is not None]

    @property
    def edges(self) -> np.ndarray:
        """Return the ends of the bins."""
        return np.arange(self.bins + 1) / self.bins

    def __call__(self, table: pa.Table) -> np.ndarray:
        """Return the sums of some rows. Rows without a probability, or a label, are skipped."""
        known = table[self.probability].is_valid()
        if self.label is not None:
            known = pc.and_(known, table[self.label].is_valid())
        rows = table.filter(known)
        p = rows[self.probability].to_numpy().astype(np.float64)
        if len(p) and not (p.min() >= 0.0 and p.max() <= 1.0):
            raise HaplyError(
                f"Column '{self.probability}' holds what is no probability",
                expected="numbers from 0 to 1",
                found=f"{next(x for x in p if not 0.0 <= x <= 1.0):g}",
            )
        place = np.clip(np.searchsorted(self.edges, p, side="right") - 1, 0, self.bins - 1)
        from_middle = p - (place + 0.5) / self.bins
        true = self._labels(rows) if self.label is not None else np.zeros(len(p))
        alone = 1.0 - rows[self.some].to_numpy() if self.some is not None else np.zeros(len(p))
        some = 1.0 - alone
        rows_of = np.divide(p, some, out=np.zeros(len(p)), where=some > 0.0)  # all pairs of a row sum to 1
        each = (np.ones(len(p)), from_middle, from_middle**2, true, from_middle * true, alone, alone**2, rows_of)
        by_bin = [np.bincount(place, one, self.bins) for one in each]
        with np.errstate(divide="ignore"):
            losses = np.where(true > 0.5, -np.log(p), -np.log1p(-p))
        whole = [float(((p - true) ** 2).sum()), float(losses.sum()), *self._odds(rows, p, alone)]
        return np.concatenate([*by_bin, [*whole, float(table.num_rows - len(p))]])

    def _labels(self, rows: pa.Table) -> np.ndarray:
        given = rows[str(self.label)]
        if not (pa.types.is_boolean(given.type) or pa.types.is_integer(given.type) or pa.types.is_floating(given.type)):
            raise HaplyError(
                f"Column '{self.label}' holds no labels", expected="true and false, or 1 and 0", found=str(given.type)
            )
        true = given.cast(pa.float64()).to_numpy() if len(given) else np.zeros(0)
        if not np.isin(true, (0.0, 1.0)).all():
            found = f"{true[~np.isin(true, (0.0, 1.0))][0]:g}"
            raise HaplyError(f"Column '{self.label}' holds no labels", expected="1 and 0", found=found)
        return true

    def _odds(self, rows: pa.Table, p: np.ndarray, alone: np.ndarray) -> list[float]:
        """Return sums of the logarithm of the prior odds of a partner, ``p / (1 - p_any) / B``, and of evident pairs.

        First the count, the sum and the sum of squares of the logarithms. Then the number of pairs with ``B >= 1``,
        which are evidence for one thing, the sum of their probabilities, and the number of unlikely pairs.
        """
        if self.factor is None:
            return [0.0] * 6
        factor = rows[self.factor].to_numpy().astype(np.float64)
        evident = factor >= 1.0
        clear = (alone > 1e-6) & (alone < 1.0) & (p > 0.0) & (factor > 0.0) & np.isfinite(factor)
        logs = np.log(p[clear] / alone[clear] / factor[clear])
        return [
            float(len(logs)), float(logs.sum()), float((logs**2).sum()), float(evident.sum()),
            float(p[evident].sum()), float((p < _UNLIKELY).sum()),
        ]  # fmt: skip

    def read(self, totals: np.ndarray) -> Scores:
        """Make scores from the sums of all rows."""
        cut = len(_BY_BIN) * self.bins
        by_bin = dict(zip(_BY_BIN, totals[:cut].reshape(len(_BY_BIN), self.bins), strict=True))
        return Scores(self.edges, by_bin, dict(zip(_WHOLE, totals[cut:].tolist(), strict=True)))


class Decomposition(NamedTuple):
    """The Brier score in parts: ``reliability - resolution + uncertainty + within_variance - 2 within_covariance``.

    The last two parts are 0 if probabilities are equal inside bins.
    """

    reliability: float
    """How far the probabilities of bins are from their shares of true pairs: 0 if they are right."""
    resolution: float
    """How far these shares are from each other: 0 if probabilities do not separate true pairs from false ones."""
    uncertainty: float
    """The score if every pair had the share of true pairs among all as its probability."""
    within_variance: float
    within_covariance: float

    @property
    def total(self) -> float:
        """Return the Brier score."""
        return self.reliability - self.resolution + self.uncertainty + self.within_variance - 2 * self.within_covariance


class Bin(NamedTuple):
    """A bin of probabilities: its mean probability, and its share of true pairs."""

    low: float
    high: float
    mean: float
    share: float
    n: int
    share_low: float
    share_high: float


@dataclass(frozen=True)
class Scores:
    """Sums of all pairs."""

    edges: np.ndarray
    by_bin: dict[str, np.ndarray]
    whole: dict[str, float]

    @property
    def count(self) -> int:
        """Return how many pairs there are."""
        return round(float(self.by_bin["count"].sum()))

    @property
    def skipped(self) -> int:
        """Return how many rows have no probability, or no label."""
        return round(self.whole["skipped"])

    @property
    def brier(self) -> float:
        """Return the mean of ``(p - y)**2``."""
        return self.whole["brier"] / self.count if self.count else math.nan

    @property
    def log_loss(self) -> float:
        """Return the mean of ``-log`` of the probability that was given to the outcome."""
        return self.whole["log_loss"] / self.count if self.count else math.nan

    @property
    def mean(self) -> np.ndarray:
        """Return the mean probability of each bin; NaN if it is empty."""
        with np.errstate(invalid="ignore"):
            return 0.5 * (self.edges[1:] + self.edges[:-1]) + self.by_bin["p"] / self.by_bin["count"]

    def bins(self) -> list[Bin]:
        """List the bins that are not empty."""
        found, mean = [], self.mean
        for k in np.flatnonzero(self.by_bin["count"]).tolist():
            n, true = round(float(self.by_bin["count"][k])), round(float(self.by_bin["true"][k]))
            ends = float(self.edges[k]), float(self.edges[k + 1])
            found.append(Bin(*ends, float(mean[k]), true / n, n, *wilson(true, n)))
        return found

    def decomposition(self) -> Decomposition:
        """Compute the parts of the Brier score."""
        n, by_bin = self.count, self.by_bin
        full = by_bin["count"] > 0
        count, p, true = (by_bin[name][full] for name in ("count", "p", "true"))
        share, base = true / count, true.sum() / n
        variance = by_bin["square"][full] - p**2 / count
        covariance = by_bin["product"][full] - p * share
        return Decomposition(
            float((count * (self.mean[full] - share) ** 2).sum() / n),
            float((count * (share - base) ** 2).sum() / n),
            float(base * (1.0 - base)),
            float(variance.sum() / n),
            float(covariance.sum() / n),
        )

    def completeness(self) -> float | None:
        """Return the share of rows with a partner that probabilities were computed with; None if pairs disagree."""
        n = self.whole["known_odds"]
        if not n:
            return None
        mean = self.whole["log_odds"] / n
        spread = math.sqrt(max(0.0, self.whole["log_odds_square"] / n - mean**2))
        return 1.0 / (1.0 + math.exp(-mean)) if spread < 1e-5 else None


def wilson(true: int, n: int) -> tuple[float, float]:
    """Compute Wilson's 95% interval of a share."""
    share, extra = true / n, _NORMAL_95**2 / n
    centre = (share + 0.5 * extra) / (1.0 + extra)
    half = math.sqrt(share * (1.0 - share) * extra + 0.25 * extra**2) / (1.0 + extra)
    return max(0.0, centre - half), min(1.0, centre + half)


class Fakes(NamedTuple):
    """False pairs at a threshold: as expected from probabilities, and as counted in shifted rows (all are false)."""

    threshold: float
    kept: int
    """Pairs whose probability is at least the threshold."""
    expected_false: float
    """``sum (1 - p_match)`` over these pairs."""
    without_partner: float
    """The part of ``expected_false`` from rows without any partner: ``sum (1 - p_any)``."""
    other_partner: float
    """The part from rows that have another partner: ``sum (p_any - p_match)``."""
    fakes: float
    """Pairs of shifted rows whose probability is at least the threshold, for one shift."""
    by_fakes: float
    """``(1 - f) fakes``, where ``f`` is the completeness: an estimate of ``without_partner``."""
    standard_error: float
    """The standard error of ``without_partner - by_fakes``."""

    @property
    def z(self) -> float:
        """By how many standard errors the probabilities expect more false pairs than shifted rows show."""
        return (self.without_partner - self.by_fakes) / self.standard_error if self.standard_error else 0.0


class Excess(NamedTuple):
    """Matches among pairs with ``B >= 1``: as expected from probabilities, and as estimated by shifted rows."""

    expected: float
    """The sum of the probabilities of these pairs."""
    seen: float
    """How many more of these pairs there are in real rows than in shifted rows."""
    standard_error: float

    @property
    def z(self) -> float:
        """By how many standard errors the probabilities expect more matches than shifted rows show."""
        return (self.expected - self.seen) / self.standard_error if self.standard_error else 0.0


def count_excess(pairs: Scores, fakes: list[Scores]) -> Excess | None:
    """Compare expected matches with those that shifted rows imply; None if pairs were chosen by their probability.

    A probability depends on other candidates, a Bayes factor does not: so real rows have as many false pairs with
    ``B >= 1`` as shifted rows, and matches besides.
    """
    if not pairs.whole["unlikely"] or not pairs.whole["evident"] or not all(one.whole["unlikely"] for one in fakes):
        return None
    real, fake = pairs.whole["evident"], sum(one.whole["evident"] for one in fakes)
    variance = real + fake / len(fakes) ** 2
    return Excess(pairs.whole["evident_p"], real - fake / len(fakes), math.sqrt(variance))


def compare_fakes(pairs: Scores, fakes: list[Scores], completeness: float) -> list[Fakes]:
    """Compare false pairs at the start of each bin, as a threshold, as long as any pair is kept.

    The variance of the sum over pairs is ``sum (1 - p_any)**2``; a count of fakes has that of Poisson's law. Both grow
    with the number of pairs of a row, which come together.
    """
    found, several = [], len(fakes)
    for k in range(len(pairs.edges) - 1):
        kept = float(pairs.by_bin["count"][k:].sum())
        fake = sum(float(one.by_bin["count"][k:].sum()) for one in fakes)
        if not kept:
            continue
        alone = float(pairs.by_bin["alone"][k:].sum())
        middles = 0.5 * (pairs.edges[1:] + pairs.edges[:-1])[k:]
        false = kept - float((pairs.by_bin["p"][k:] + pairs.by_bin["count"][k:] * middles).sum())
        share = 1.0 - completeness
        variance = float(pairs.by_bin["alone_square"][k:].sum()) + share**2 * max(fake, 1.0) / several**2
        variance *= max(1.0, kept / max(float(pairs.by_bin["rows"][k:].sum()), 1e-300))
        found.append(
            Fakes(
                float(pairs.edges[k]), round(kept), false, alone, false - alone, fake / several,
                share * fake / several, math.sqrt(variance),
            )
        )  # fmt: skip
    return found
