"""Errors and offsets learned from candidates: a mixture of counterparts and unrelated rows, fitted by EM.

A left row has its counterpart among its candidates with probability ``share``. Their difference is then normal on every
axis, with mean ``offset`` and variance ``scale**2 a + c + extra**2``: ``a`` are the stated variances that are rescaled,
``c`` those that are not. Other candidates are spread with a density. The likelihood of all rows is

    sum_i log((1 - share) + share sum_j N(delta_ij - offset; V_ij) / density)

and no round of EM makes it smaller. Rounds are accelerated by SQUAREM (Varadhan and Roland 2008, scheme S3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from haply.errors import HaplyError

Learned = Literal["share", "offset", "scale", "extra"]
"""What is learned: how many rows have a counterpart, where it is, the factor of stated errors, and a further error."""
LEARNED: tuple[Learned, ...] = ("share", "offset", "scale", "extra")

_GAIN = 1e-8
"""Of the log-likelihood over three rounds: less is the end."""
_FEWEST_MATCHES = 20.0
_LONGEST_JUMP = 2000.0
"""In steps of numerical derivatives: a factor of e**2, or two errors."""
_EDGE = 1e-9
"""Shares nearer to 0 or 1 are not told from them."""


@dataclass(frozen=True)
class Candidates:
    """Pairs that may be the same thing, as numbers: all that fitting needs."""

    row: np.ndarray
    """The left row of each pair, numbered from 0."""
    rows: int
    """How many left rows there are, also those without a pair."""
    delta: np.ndarray
    """Right minus left: an array (pairs, dimension)."""
    scaled: np.ndarray
    """The stated variance on each axis that the scale acts on."""
    fixed: np.ndarray
    """The other stated variance."""
    density: np.ndarray
    """Of unrelated right rows, for each pair."""

    @property
    def dimension(self) -> int:
        """How many coordinates a difference has."""
        return self.delta.shape[1]

    @property
    def typical(self) -> float:
        """A typical stated error."""
        stated = float(np.median(self.scaled + self.fixed)) if len(self.row) else 0.0
        return math.sqrt(stated) if stated > 0.0 else max(float(np.abs(self.delta).max(initial=0.0)) / 8.0, 1e-12)


@dataclass(frozen=True)
class Guess:
    """Values of all that can be learned."""

    share: float
    offset: np.ndarray
    scale: float = 1.0
    extra: float = 0.0

    def variances(self, given: Candidates) -> np.ndarray:
        """Return the variance of each pair on each axis."""
        return self.scale**2 * given.scaled + given.fixed + self.extra**2


@dataclass(frozen=True)
class Fitted:
    """The most likely values, and how sure they are."""

    guess: Guess
    names: tuple[str, ...]
    estimates: np.ndarray
    standard_errors: np.ndarray
    """NaN where the likelihood has no maximum inside the range of a value."""
    log_likelihood: float
    likelihoods: tuple[float, ...]
    """The log-likelihood after each step that was taken: it never falls."""
    rounds: int
    converged: bool
    matches: float
    """The expected number of counterparts among the candidates."""


def densities(given: Candidates, guess: Guess) -> np.ndarray:
    """Compute ``N(delta - offset; V) / density`` of each pair."""
    v = guess.variances(given)
    q = ((given.delta - guess.offset) ** 2).sum(axis=1)
    return np.exp(-0.5 * q / v) / (2.0 * math.pi * v) ** (0.5 * given.dimension) / given.density


def log_likelihood(given: Candidates, guess: Guess) -> float:
    """Compute the log-likelihood of all left rows."""
    near = np.bincount(given.row, densities(given, guess), given.rows)
    return float(np.log((1.0 - guess.share) + guess.share * near).sum())


def responsibilities(given: Candidates, guess: Guess) -> np.ndarray:
    """Compute the probability of each pair that it is the same thing."""
    weight = guess.share / (1.0 - guess.share) * densities(given, guess)
    return weight / (1.0 + np.bincount(given.row, weight, given.rows))[given.row]


def em_step(given: Candidates, guess: Guess, learn: Sequence[str]) -> Guess:
    """Make one round: the probabilities of pairs from the old values, then the likeliest values for them.

    An error is the sum of independent parts; the expected square of one whose variance is ``own`` is
    ``D own (1 - own / V) + (own / V)**2 q``.
    """
    r = responsibilities(given, guess)
    total, dim = float(r.sum()), given.dimension
    if total <= 0.0:
        return guess
    v = guess.variances(given)
    new = guess
    if "share" in learn:
        new = replace(new, share=float(np.clip(total / given.rows, _EDGE, 1.0 - _EDGE)))
    if "offset" in learn:
        weight = r / v
        new = replace(new, offset=(weight[:, None] * given.delta).sum(axis=0) / weight.sum())
    q = ((given.delta - new.offset) ** 2).sum(axis=1)
    if "scale" in learn:
        own = guess.scale**2
        squares = dim * own * (1.0 - own * given.scaled / v) + own**2 * given.scaled * q / v**2
        new = replace(new, scale=math.sqrt(max(float((r * squares).sum()) / (dim * total), 1e-24)))
    if "extra" in learn:
        own = guess.extra**2
        squares = dim * own * (1.0 - own / v) + (own / v) ** 2 * q
        least = (1e-8 * given.typical) ** 2
        new = replace(new, extra=math.sqrt(max(float((r * squares).sum()) / (dim * total), least)))
    return new


# -- values without borders --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Coordinates:
    """The learned values as numbers without borders: logit of the share, offset, logarithms of scale and extra."""

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
        """How far to go for numerical derivatives: a thousandth of an error, or of one unit."""
        parts = [np.full(len(guess.offset) if name == "offset" else 1, 1e-3) for name in self.learn]
        return np.concatenate([
            part * typical if name == "offset" else part for name, part in zip(self.learn, parts, strict=True)
        ])  # fmt: skip

    def rates(self, guess: Guess) -> np.ndarray:
        """How fast each value changes with its number: what turns standard errors of one into those of the other."""
        known = {"share": guess.share * (1.0 - guess.share), "scale": guess.scale, "extra": guess.extra}
        parts = [np.ones(len(guess.offset)) if name == "offset" else np.array([known[name]]) for name in self.learn]
        return np.concatenate(parts)


def fit(given: Candidates, learn: Sequence[str], max_rounds: int = 500) -> Fitted:
    """Find the likeliest values of what is to be learned; what is not keeps its start.

    Starts at a share of 0.5, no offset, a scale of 1, and an extra error as large as a typical stated one.
    """
    order = tuple(name for name in LEARNED if name in learn)
    _refuse(given, order)
    extra = given.typical if "extra" in order else 0.0
    start = Guess(0.5, np.zeros(given.dimension), 1.0, extra)
    at = _Coordinates(order, start)
    best, known, rounds, converged = start, [log_likelihood(given, start)], 0, False
    while rounds < max_rounds and not converged:
        best, value, used = _cycle(given, at, best)
        rounds += used
        converged = value - known[-1] < _GAIN
        known.append(max(value, known[-1]))
    matches = float(responsibilities(given, best).sum())
    if matches < _FEWEST_MATCHES:
        raise HaplyError(
            f"Only {matches:.3g} of the candidates are expected to be matches: too few to learn from",
            expected=f"at least {_FEWEST_MATCHES:g}",
            found=f"{len(given.row):,} candidates of {given.rows:,} left rows",
            hint="give more rows, or a larger radius if the offset may be larger",
        )
    errors = _standard_errors(given, at, best)
    names = _names(order, given.dimension)
    estimates = np.concatenate([np.atleast_1d(getattr(best, name)) for name in order])
    return Fitted(best, names, estimates, errors, known[-1], tuple(known), rounds, converged, matches)


def _names(learn: tuple[str, ...], dimension: int) -> tuple[str, ...]:
    offsets = ["offset"] if dimension == 1 else [f"offset_{axis + 1}" for axis in range(dimension)]
    return tuple(one for name in learn for one in (offsets if name == "offset" else [name]))


def _refuse(given: Candidates, learn: tuple[str, ...]) -> None:
    """Refuse what the candidates cannot tell."""
    if not len(given.row):
        raise HaplyError("No right row is near any left row", hint="give a larger radius")
    if "scale" in learn and not (given.scaled > 0.0).any():
        raise HaplyError("learn='scale': the stated errors are 0, and have no scale", hint="learn 'extra' instead")
    if "extra" not in learn and not (given.scaled + given.fixed > 0.0).all():
        raise HaplyError("Candidates have no error on either side", hint="learn 'extra', or leave such rows out")
    if "scale" in learn and "extra" in learn:
        low, high = np.quantile(given.scaled, [0.05, 0.95])
        if high < 2.0 * low:
            raise HaplyError(
                "learn=('scale','extra'): the stated errors are (nearly) equal, so the two cannot be told apart",
                expected="variances that differ by a factor of 2 or more",
                found=f"from {low:g} to {high:g}" if high > low else f"{low:g} for all rows",
                hint="learn one of the two",
            )


def _cycle(given: Candidates, at: _Coordinates, guess: Guess) -> tuple[Guess, float, int]:
    """Make two rounds, jump in their direction, and stand there if it is no worse; returns how many rounds it took."""
    first = em_step(given, guess, at.learn)
    second = em_step(given, first, at.learn)
    safe = log_likelihood(given, second)
    here, one, two = (at.of(each) for each in (guess, first, second))
    r, v = one - here, (two - one) - (one - here)
    length = float(np.linalg.norm(v))
    if length == 0.0:
        return second, safe, 2
    step = -max(1.0, float(np.linalg.norm(r)) / length)
    most = _LONGEST_JUMP * at.steps(guess, given.typical)
    jump = np.clip(here - 2.0 * step * r + step**2 * v - two, -most, most)
    jumped = em_step(given, at.guess(two + jump), at.learn)
    value = log_likelihood(given, jumped)
    return (jumped, value, 3) if value >= safe else (second, safe, 3)


def _standard_errors(given: Candidates, at: _Coordinates, guess: Guess) -> np.ndarray:
    """The square roots of the inverse of the numerical Hessian, turned back into the values' own units."""
    here, steps = at.of(guess), at.steps(guess, given.typical)
    count = len(here)

    def value(moves: np.ndarray) -> float:
        return log_likelihood(given, at.guess(here + moves * steps))

    unit, middle = np.eye(count), value(np.zeros(count))
    hessian = np.empty((count, count))
    for i in range(count):
        hessian[i, i] = value(unit[i]) - 2.0 * middle + value(-unit[i])
        for j in range(i):
            around = [value(a * unit[i] + b * unit[j]) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
            hessian[i, j] = hessian[j, i] = 0.25 * (around[0] - around[1] - around[2] + around[3])
    information = -hessian / np.outer(steps, steps)
    try:
        np.linalg.cholesky(information)
    except np.linalg.LinAlgError:
        return np.full(count, math.nan)
    return np.sqrt(np.diag(np.linalg.inv(information))) * at.rates(guess)
