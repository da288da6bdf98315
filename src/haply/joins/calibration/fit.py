"""Learn errors and offsets from candidates: a mixture of counterparts and unrelated rows, fitted by EM.

A left row has its counterpart among its candidates with probability ``share``. Their difference is then normal on every
axis, with mean ``offset`` and variance ``scale**2 a + c + extra**2``: ``a`` are the stated variances that are rescaled,
``c`` those that are not. Other candidates have a density. The likelihood of all rows is

    sum_i log((1 - share) + share sum_j N(delta_ij - offset; V_ij) / density)

and no round of EM decreases it. Rounds are accelerated by SQUAREM (Varadhan and Roland 2008, scheme S3).

A round needs a few sums over all candidates. So the candidates may be stored anywhere: their holder applies a function
to some left rows at a time and adds up the results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

import numpy as np

from haply.errors import HaplyError
from haply.joins.calibration.residuals import place_of, sums_of

Learned = Literal["share", "offset", "scale", "extra"]
"""The learned values: how many rows have a counterpart, its offset, the factor of stated errors, and an extra error."""
LEARNED: tuple[Learned, ...] = ("share", "offset", "scale", "extra")

_GAIN = 1e-8
"""Fitting ends when the log-likelihood gains less than this over three rounds."""
_FEWEST_MATCHES = 20.0
_LONGEST_JUMP = 2000.0
"""The longest jump, in steps of numerical derivatives: a factor of e**2, or two errors."""
_EDGE = 1e-9
"""Shares are kept at least this far from 0 and 1."""
_PER_OCTAVE, _OCTAVES = 32, 128
"""Variances are counted in this many bins for each factor of 2, from ``2**-128`` to ``2**128``."""


@dataclass(frozen=True)
class Candidates:
    """Pairs that may be the same thing, as numbers: all that fitting needs to know of some left rows."""

    row: np.ndarray
    """The left row of each pair, numbered from 0."""
    rows: int
    """How many left rows there are."""
    delta: np.ndarray
    """Right minus left: an array (pairs, dimension)."""
    scaled: np.ndarray
    """The part of the stated variance on each axis that the scale multiplies."""
    fixed: np.ndarray
    """The part of the stated variance on each axis that is not scaled."""
    density: np.ndarray
    """The density of unrelated right rows, for each pair."""

    @property
    def dimension(self) -> int:
        """Return how many coordinates a difference has."""
        return self.delta.shape[1]


class CandidateSource(Protocol):
    """Holds the candidates, in this process or on workers."""

    @property
    def rows(self) -> int:
        """Return how many left rows there are, including rows without a pair."""

    def totals(self, function: Callable[[Candidates], np.ndarray], dimension: int) -> np.ndarray:
        """Apply a function to some left rows at a time, with all their pairs, and add up its results.

        ``dimension`` is that of differences; it is needed if there are no pairs.
        """


@dataclass(frozen=True)
class Guess:
    """Values of everything that can be learned."""

    share: float
    offset: np.ndarray
    scale: float = 1.0
    extra: float = 0.0

    def variances(self, given: Candidates) -> np.ndarray:
        """Return the variance of each pair on each axis."""
        return self.scale**2 * given.scaled + given.fixed + self.extra**2


@dataclass(frozen=True)
class Fitted:
    """The most likely values, and their standard errors."""

    guess: Guess
    names: tuple[str, ...]
    estimates: np.ndarray
    standard_errors: np.ndarray
    """NaN where the likelihood has no maximum inside the range of a value."""
    log_likelihood: float
    likelihoods: tuple[float, ...]
    """The log-likelihood after each step that was taken: it never decreases."""
    rounds: int
    converged: bool
    pairs: int
    """How many candidates there are."""
    matches: float
    """The expected number of counterparts among the candidates."""
    typical_error: float
    """How far counterparts are from where they are expected, on each axis."""


# -- sums over candidates ----------------------------------------------------------------------------------------------


def _densities(given: Candidates, guess: Guess) -> np.ndarray:
    """Compute ``N(delta - offset; V) / density`` of each pair."""
    v = guess.variances(given)
    q = ((given.delta - guess.offset) ** 2).sum(axis=1)
    return np.exp(-0.5 * q / v) / (2.0 * math.pi * v) ** (0.5 * given.dimension) / given.density


def log_likelihoods(given: Candidates, guesses: Sequence[Guess]) -> np.ndarray:
    """Count the left rows, and compute their log-likelihood for each guess."""
    near = [np.bincount(given.row, _densities(given, guess), given.rows) for guess in guesses]
    found = [np.log((1.0 - one.share) + one.share * some).sum() for one, some in zip(guesses, near, strict=True)]
    return np.array([given.rows, *found], np.float64)


def responsibilities(given: Candidates, guess: Guess) -> np.ndarray:
    """Compute the probability of each pair that it is the same thing."""
    weight = guess.share / (1.0 - guess.share) * _densities(given, guess)
    return weight / (1.0 + np.bincount(given.row, weight, given.rows))[given.row]


@dataclass(frozen=True)
class RoundSums:
    """The sums over all candidates that a round of EM needs, each weighted by its probability ``r`` for one guess."""

    rows: float
    log_likelihood: float
    """The log-likelihood of the rows that were counted: rows without a pair may be missing."""
    matches: float
    """The sum of ``r``."""
    precision: float
    """The sum of ``r / V``."""
    scaled: float
    """The sum of ``r a / V``."""
    variance: float
    """The sum of ``r V``."""
    moments: np.ndarray
    """Sums of ``r / V``, ``r a / V**2`` and ``r / V**2``: alone, times differences, and times squared differences.
    Differences are taken from the offset of the guess."""

    @classmethod
    def of(cls, numbers: np.ndarray) -> RoundSums:
        """Read the numbers that ``sum_up`` returns."""
        rows, likelihood, matches, precision, scaled, variance = map(float, numbers[:6])
        return cls(rows, likelihood, matches, precision, scaled, variance, numbers[6:].reshape(3, -1))


def sum_up(given: Candidates, guess: Guess) -> np.ndarray:
    """Compute the sums of a round over some left rows: see ``RoundSums``."""
    r, v = responsibilities(given, guess), guess.variances(given)
    d = given.delta - guess.offset
    weights = np.stack([r / v, r * given.scaled / v**2, r / v**2])
    powers = np.column_stack([np.ones(len(r)), d, (d**2).sum(axis=1)])
    singles = [r.sum(), weights[0].sum(), (weights[0] * given.scaled).sum(), (r * v).sum()]
    return np.concatenate([log_likelihoods(given, [guess]), singles, (weights @ powers).ravel()])


def em_step(guess: Guess, sums: RoundSums, learn: Sequence[str], rows: int, least: float = 0.0) -> Guess:
    """Do one round of EM: return the likeliest values for the pair probabilities that the old values give.

    An error is the sum of independent parts; the expected square of one whose variance is ``own`` is
    ``D own (1 - own / V) + (own / V)**2 q``. An extra error is not smaller than ``least``.
    """
    total, dim = sums.matches, len(guess.offset)
    if total <= 0.0:
        return guess
    by_precision, by_scaled, by_extra = sums.moments
    new, moved = guess, np.zeros(dim)
    if "share" in learn:
        new = replace(new, share=float(np.clip(total / rows, _EDGE, 1.0 - _EDGE)))
    if "offset" in learn:
        moved = by_precision[1:-1] / by_precision[0]
        new = replace(new, offset=guess.offset + moved)

    def from_there(moments: np.ndarray) -> float:
        """Sum squared differences from the new offset."""
        return float(moments[-1] - 2.0 * moved @ moments[1:-1] + moved @ moved * moments[0])

    if "scale" in learn:
        own = guess.scale**2
        squares = dim * own * (total - own * sums.scaled) + own**2 * from_there(by_scaled)
        new = replace(new, scale=math.sqrt(max(squares / (dim * total), 1e-24)))
    if "extra" in learn:
        own = guess.extra**2
        squares = dim * own * (total - own * sums.precision) + own**2 * from_there(by_extra)
        new = replace(new, extra=math.sqrt(max(squares / (dim * total), least**2)))
    return new


@dataclass(frozen=True)
class Survey:
    """Sums over the candidates that are known before anything is learned."""

    rows: float
    """Left rows that were counted: rows without a pair may be missing."""
    pairs: int
    coordinates: float
    """Of all differences together."""
    scaled: int
    """How many pairs have a variance that the scale multiplies."""
    stated: int
    """How many pairs have a variance at all."""
    log_variance: float
    """The sum of the logarithms of stated variances."""
    squares: float
    """The sum of squared differences."""
    without_density: int
    bins: np.ndarray
    """How many pairs have a scaled variance in each bin."""

    @classmethod
    def of(cls, numbers: np.ndarray) -> Survey:
        """Read the numbers that ``look_over`` returns."""
        rows, pairs, coordinates, scaled, stated, logs, squares, bad = map(float, numbers[:8])
        return cls(rows, int(pairs), coordinates, int(scaled), int(stated), logs, squares, int(bad), numbers[8:])

    @property
    def dimension(self) -> int:
        """Return how many coordinates a difference has."""
        return round(self.coordinates / self.pairs)

    @property
    def typical(self) -> float:
        """Return a typical stated error: the geometric mean of those that are not 0."""
        if self.stated:
            return math.exp(0.5 * self.log_variance / self.stated)
        return max(0.25 * math.sqrt(self.squares / self.coordinates), 1e-12)

    def quantile(self, share: float) -> float:
        """Return a quantile of the scaled variance of pairs, accurate to the width of a bin: 2%."""
        up_to = np.cumsum(self.bins)
        at = int(np.searchsorted(up_to, share * up_to[-1]))
        return 2.0 ** ((at + 0.5) / _PER_OCTAVE - _OCTAVES)


def look_over(given: Candidates) -> np.ndarray:
    """Compute the sums of a survey over some left rows: see ``Survey``."""
    stated = given.scaled + given.fixed
    known = stated > 0.0
    with np.errstate(divide="ignore"):
        octave = np.clip(np.log2(given.scaled) + _OCTAVES, 0.0, 2.0 * _OCTAVES)
    count = 2 * _OCTAVES * _PER_OCTAVE
    place = np.minimum((octave * _PER_OCTAVE).astype(np.int64), count - 1)
    bad = ~((given.density > 0.0) & np.isfinite(given.density))
    numbers = [
        given.rows, len(given.row), given.delta.size, (given.scaled > 0.0).sum(), known.sum(),
        np.log(stated[known]).sum(), (given.delta**2).sum(), bad.sum(),
    ]  # fmt: skip
    return np.concatenate([np.array(numbers, np.float64), np.bincount(place, minlength=count)])


def sum_places(given: Candidates, guess: Guess) -> np.ndarray:
    """Add up where differences lie within the stated errors, then within those of a guess: see ``sums_of``.

    Candidates are weighted by the probability that the guess gives them.
    """
    weight, stated = responsibilities(given, guess), given.scaled + given.fixed
    # without a stated error a difference counts as infinitely many errors
    before = place_of(given.delta, np.where(stated > 0.0, stated, 1e-300))
    after = place_of(given.delta - guess.offset, guess.variances(given))
    return np.concatenate([sums_of(before, weight), sums_of(after, weight)])


# -- unbounded coordinates ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Coordinates:
    """Turns the learned values into unbounded numbers: logit of the share, offset, logarithms of scale and extra."""

    learn: tuple[str, ...]
    start: Guess

    def of(self, guess: Guess) -> np.ndarray:
        parts: list[np.ndarray] = []
        for name in self.learn:
            if name == "share":
                parts.append(np.array([math.log(guess.share / (1.0 - guess.share))]))
            elif name == "offset":
                parts.append(guess.offset)
            else:
                parts.append(np.array([math.log(getattr(guess, name))]))
        return np.concatenate(parts)

    def guess(self, at: np.ndarray) -> Guess:
        found, place = self.start, 0
        for name in self.learn:
            if name == "share":
                share = 1.0 / (1.0 + math.exp(-float(np.clip(at[place], -700.0, 700.0))))
                found = replace(found, share=float(np.clip(share, _EDGE, 1.0 - _EDGE)))
            elif name == "offset":
                found = replace(found, offset=at[place : place + len(found.offset)])
                place += len(found.offset) - 1
            else:
                value = math.exp(float(np.clip(at[place], -300.0, 300.0)))
                found = replace(found, **{name: value})  # type: ignore[arg-type]
            place += 1
        return found

    def steps(self, guess: Guess, typical: float) -> np.ndarray:
        """Return steps for numerical derivatives: a thousandth of a typical error for offsets, 0.001 for the others."""
        parts = [np.full(len(guess.offset) if name == "offset" else 1, 1e-3) for name in self.learn]
        return np.concatenate([
            part * typical if name == "offset" else part for name, part in zip(self.learn, parts, strict=True)
        ])  # fmt: skip

    def rates(self, guess: Guess) -> np.ndarray:
        """Return the derivatives of values by their numbers: standard errors are converted by these factors."""
        known = {"share": guess.share * (1.0 - guess.share), "scale": guess.scale, "extra": guess.extra}
        parts = [np.ones(len(guess.offset)) if name == "offset" else np.array([known[name]]) for name in self.learn]
        return np.concatenate(parts)


def fit(source: CandidateSource, learn: Sequence[str], max_rounds: int = 500) -> Fitted:
    """Find the likeliest values of what is to be learned; other values keep their start.

    Starts at a share of 0.5, no offset, a scale of 1, and an extra error as large as a typical stated error.
    """
    order = tuple(name for name in LEARNED if name in learn)
    survey = Survey.of(source.totals(look_over, 1))
    _refuse(survey, order)
    start = Guess(0.5, np.zeros(survey.dimension), 1.0, survey.typical if "extra" in order else 0.0)
    fitting = _Fitting(source, _Coordinates(order, start), survey.typical)
    best, here = start, fitting.sums(start)
    known, rounds, converged = [here.log_likelihood], 0, False
    while rounds < max_rounds and not converged:
        best, here = fitting.cycle(best, here)
        rounds += 3
        converged = here.log_likelihood - known[-1] < _GAIN
        known.append(max(here.log_likelihood, known[-1]))
    if here.matches < _FEWEST_MATCHES:
        raise HaplyError(
            f"Only {here.matches:.3g} of the candidates are expected to be matches: too few to learn from",
            expected=f"at least {_FEWEST_MATCHES:g}",
            found=f"{survey.pairs:,} candidates of {source.rows:,} left rows",
            hint="give more rows, or a larger radius if the offset may be larger",
        )
    return Fitted(
        best, _names(order, survey.dimension), np.concatenate([np.atleast_1d(getattr(best, name)) for name in order]),
        fitting.standard_errors(best), known[-1], tuple(known), rounds, converged, survey.pairs, here.matches,
        math.sqrt(here.variance / here.matches),
    )  # fmt: skip


def _names(learn: tuple[str, ...], dimension: int) -> tuple[str, ...]:
    offsets = ["offset"] if dimension == 1 else [f"offset_{axis + 1}" for axis in range(dimension)]
    return tuple(one for name in learn for one in (offsets if name == "offset" else [name]))


def _refuse(survey: Survey, learn: tuple[str, ...]) -> None:
    """Raise an error if the candidates are not enough to learn these values."""
    if not survey.pairs:
        raise HaplyError("No right row is near any left row", hint="give a larger radius")
    if survey.without_density:
        raise HaplyError(
            "The density of left rows is no positive number", found=f"{survey.without_density:,} such candidates"
        )
    if "scale" in learn and not survey.scaled:
        raise HaplyError("learn='scale': the stated errors are 0, and have no scale", hint="learn 'extra' instead")
    if "extra" not in learn and survey.stated < survey.pairs:
        raise HaplyError("Candidates have no error on either side", hint="learn 'extra', or leave such rows out")
    if "scale" in learn and "extra" in learn:
        low, high = survey.quantile(0.05), survey.quantile(0.95)
        if high < 2.0 * low:
            raise HaplyError(
                "learn=('scale','extra'): the stated errors are (nearly) equal, so the two cannot be told apart",
                expected="variances that differ by a factor of 2 or more",
                found=f"from about {low:.2g} to {high:.2g}" if high > low else f"about {low:.2g} for all rows",
                hint="learn one of the two",
            )


@dataclass(frozen=True)
class _Fitting:
    """Runs rounds of EM over the candidates of a source."""

    source: CandidateSource
    at: _Coordinates
    typical: float

    def sums(self, guess: Guess) -> RoundSums:
        """Return the sums over all candidates for a guess."""
        found = RoundSums.of(self.source.totals(partial(sum_up, guess=guess), len(guess.offset)))
        missing = self.source.rows - found.rows
        return replace(found, log_likelihood=found.log_likelihood + missing * math.log1p(-guess.share))

    def likelihoods(self, guesses: Sequence[Guess]) -> np.ndarray:
        """Return the log-likelihoods of all left rows for several guesses."""
        found = self.source.totals(partial(log_likelihoods, guesses=tuple(guesses)), len(guesses[0].offset))
        alone = np.array([math.log1p(-guess.share) for guess in guesses])
        return found[1:] + (self.source.rows - found[0]) * alone

    def step(self, guess: Guess, sums: RoundSums) -> Guess:
        """Do one round of EM."""
        return em_step(guess, sums, self.at.learn, self.source.rows, 1e-8 * self.typical)

    def cycle(self, guess: Guess, here: RoundSums) -> tuple[Guess, RoundSums]:
        """Do two rounds, jump in their direction, do a third, and stay there if the likelihood is not lower."""
        first = self.step(guess, here)
        second = self.step(first, self.sums(first))
        safe = self.sums(second)
        begin, one, two = (self.at.of(each) for each in (guess, first, second))
        r, v = one - begin, (two - one) - (one - begin)
        length = float(np.linalg.norm(v))
        if length == 0.0:
            return second, safe
        step = -max(1.0, float(np.linalg.norm(r)) / length)
        most = _LONGEST_JUMP * self.at.steps(guess, self.typical)
        far = self.at.guess(two + np.clip(begin - 2.0 * step * r + step**2 * v - two, -most, most))
        jumped = self.step(far, self.sums(far))
        found = self.sums(jumped)
        return (jumped, found) if found.log_likelihood >= safe.log_likelihood else (second, safe)

    def standard_errors(self, guess: Guess) -> np.ndarray:
        """Return the square roots of the inverse of the numerical Hessian, in the units of the values."""
        here, steps = self.at.of(guess), self.at.steps(guess, self.typical)
        count = len(here)
        unit = np.eye(count)
        pairs = [(i, j) for i in range(count) for j in range(i)]
        moves = [np.zeros(count), *unit, *-unit]
        for i, j in pairs:
            moves += [a * unit[i] + b * unit[j] for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
        values = self.likelihoods([self.at.guess(here + move * steps) for move in moves])
        hessian = np.diag(values[1 : count + 1] - 2.0 * values[0] + values[count + 1 : 2 * count + 1])
        corners = values[2 * count + 1 :].reshape(-1, 4) @ np.array([0.25, -0.25, -0.25, 0.25])
        for (i, j), bend in zip(pairs, corners, strict=True):
            hessian[i, j] = hessian[j, i] = bend
        information = -hessian / np.outer(steps, steps)
        try:
            np.linalg.cholesky(information)
        except np.linalg.LinAlgError:
            return np.full(count, math.nan)
        return np.sqrt(np.diag(np.linalg.inv(information))) * self.at.rates(guess)
