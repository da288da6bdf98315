"""What tests of threshold selection share: the referee's values and questions as the engine takes them, random ones."""

from __future__ import annotations

import math

import numpy as np

import oracle
import oracle_select as referee
from engine import model_of
from haply.models import GaussianND, MixtureND, Samples
from haply.pruning.threshold import Threshold
from haply.query.rewrites import split_rows
from haply.query.text import parse
from haply.selection.conditions import Apart, Polynomial, Range, RowValues
from haply.selection.grouping import group_of
from haply.selection.select import Selection
from oracle_select import Cloud, Near, NormalND

INF = math.inf
LATTICE = 3e-5
"""Sums over lattices promise this: boxes in more than three dimensions, and regions with curved borders."""


# ---------------------------------------------------------------------------------------------------------------
# From the referee's values and questions to the engine's


def model(values):
    """The engine's model of a column."""
    first = values[0]
    if isinstance(first, NormalND):
        return GaussianND([v.mean for v in values], [np.asarray(v.cov).ravel() for v in values])
    if isinstance(first, referee.MixtureND):
        return MixtureND(
            [v.weights for v in values],
            [np.ravel(v.means) for v in values],
            [np.ravel(v.covs) for v in values],
        )
    if isinstance(first, Cloud):
        points = [np.ravel(v.points) for v in values]
        probs = None if all(v.probs is None for v in values) else [_probs(v) for v in values]
        return Samples(points, probs, dim=np.shape(first.points)[1])
    return model_of(values)


def _probs(cloud):
    return np.full(len(cloud.points), 1.0 / len(cloud.points)) if cloud.probs is None else cloud.probs


class Question:
    """Columns and what is asked of them, as the engine takes it."""

    def __init__(self, columns, asks):
        self.columns, self.asks, self.numbers = columns, asks, {}
        self.models = {name: model(values) for name, values in columns.items()}
        self.kinds = {name: type(each) for name, each in self.models.items()}
        self.conditions = [self._condition(ask, k) for k, ask in enumerate(asks)]
        self.rows = len(next(iter(columns.values())))

    def _number(self, number):
        if not np.ndim(number):
            return float(number)
        name = f"number {id(self)} {len(self.numbers)}"
        self.numbers[name] = np.asarray(number, float)
        return name

    def _condition(self, ask, k):
        if isinstance(ask, Near):
            return Apart(ask.one, ask.other, self._number(ask.limit), ask.closed, ask.beyond, f"condition {k}")
        return Polynomial(
            tuple((place, self._number(factor)) for place, factor in ask.linear),
            tuple((one, two, self._number(factor)) for one, two, factor in ask.squares),
            tuple(Range(self._number(low), self._number(high), lc, hc) for low, high, lc, hc in ask.ranges),
            f"condition {k}",
        )

    @property
    def batch(self):
        return RowValues(self.models, self.numbers, self.rows)

    @property
    def group(self):
        return group_of(self.conditions, self.kinds)


def check(question, method, wanted, within=1e-11):
    """The engine's value is the referee's; its bounds enclose it; some of the rows are as when all are taken."""
    assert question.group.method == method
    prepared = question.group.prepare(question.batch)
    found, _ = prepared.exact()
    off = np.abs(found - np.asarray(wanted, float))
    assert off.max() <= within, f"row {off.argmax()}: {found[off.argmax()]!r} for {wanted[off.argmax()]!r}"
    check_bounds(prepared, found, within)
    rng = np.random.default_rng(question.rows)
    rows = np.sort(rng.permutation(question.rows)[: max(1, question.rows // 3)])
    np.testing.assert_allclose(prepared.take(rows).exact()[0], found[rows], rtol=0, atol=1e-13)
    again = question.group.prepare(question.batch.take(rows)).exact()[0]
    np.testing.assert_allclose(again, found[rows], rtol=0, atol=1e-13)
    return found


def check_bounds(prepared, found, within=1e-11):
    bounds = prepared.bounds(0.0, INF)
    if bounds is None:
        return
    assert not np.isnan(bounds.lower).any()
    assert not np.isnan(bounds.upper).any()
    slack = within if within > 1e-11 else 1e-12
    low, high = bounds.lower - found, found - bounds.upper
    assert low.max() <= slack, f"row {low.argmax()}: {found[low.argmax()]} below {bounds.lower[low.argmax()]}"
    assert high.max() <= slack, f"row {high.argmax()}: {found[high.argmax()]} above {bounds.upper[high.argmax()]}"


def check_draws(question, method, count=4000, seed=0):
    """Where nothing but draws is independent of the engine."""
    assert question.group.method == method
    prepared = question.group.prepare(question.batch)
    found, _ = prepared.exact()
    holds = referee.all_hold(question.asks)
    drawn = referee.frequencies(question.columns, holds, count, np.random.default_rng(seed))
    referee.assert_frequencies(found, drawn, count)
    check_bounds(prepared, found, LATTICE)
    return found


# ---------------------------------------------------------------------------------------------------------------
# Random rows and questions


def laws(rng, kind, count, nasty=0.4):
    scales = 2.0 ** rng.integers(-3, 3, count)
    return [
        oracle.random_value(rng, kind, float(scale), (-3.0, 3.0), nasty=bool(rng.random() < nasty)) for scale in scales
    ]


def normals(rng, count, far=3.0, tiny=1e-7, huge=1e3):
    """Means and sds of all sizes: 0, tiny, huge."""
    sd = np.exp(rng.uniform(-2.5, 1.5, count))
    kind = rng.integers(0, 12, count)
    sd = np.where(kind == 0, 0.0, np.where(kind == 1, tiny, np.where(kind == 2, huge, sd)))
    return [oracle.Normal(float(m), float(s)) for m, s in zip(rng.uniform(-far, far, count), sd, strict=True)]


def mixtures(rng, count):
    found = []
    for _ in range(count):
        size = int(rng.integers(1, 4))
        weight = rng.uniform(0.1, 1.0, size)
        sds = np.where(rng.random(size) < 0.1, 0.0, np.exp(rng.uniform(-2, 1, size)))
        found.append(
            oracle.NormalMixture(tuple(weight / weight.sum()), tuple(rng.uniform(-3, 3, size)), tuple(sds.tolist()))
        )
    return found


def covariance(rng, dim, hard=True):
    """Of random sds and correlations, some of them near 1, some singular."""
    sd = np.exp(rng.uniform(-2, 1.2, dim))
    loads = rng.normal(size=(dim, dim + 1))
    kind = int(rng.integers(0, 6)) if hard else 9
    if kind == 0:
        loads[:, 1:] *= 1e-3  # nearly one factor
    elif kind == 1:
        loads[:, 1:] = 0.0  # singular
    elif kind == 2:
        sd[0] = 0.0
    elif kind == 3:
        loads = np.eye(dim)
    cov = loads @ loads.T
    spread = np.sqrt(np.diag(cov))
    cov = cov / np.outer(spread, spread) * np.outer(sd, sd)
    return 0.5 * (cov + cov.T)


def points(rng, count, dim, hard=True):
    return [NormalND(rng.uniform(-2, 2, dim), covariance(rng, dim, hard)) for _ in range(count)]


def point_mixtures(rng, count, dim):
    found = []
    for _ in range(count):
        size = int(rng.integers(1, 4))
        weight = rng.uniform(0.1, 1.0, size)
        found.append(
            referee.MixtureND(
                weight / weight.sum(), rng.uniform(-2, 2, (size, dim)), [covariance(rng, dim) for _ in range(size)]
            )
        )
    return found


def clouds(rng, count, dim, weighted=False, grid=True):
    found = []
    for _ in range(count):
        size = int(rng.integers(1, 6))
        place = rng.uniform(-2, 2, (size, dim))
        weight = rng.uniform(0.1, 1.0, size)
        found.append(Cloud(np.round(4 * place) / 4 if grid else place, weight / weight.sum() if weighted else None))
    return found


def ranges(rng, count=1, by_row=None, scale=1.0):
    """One range or several: open, closed, one-sided; ends may be columns."""
    found = []
    for _ in range(count):
        low = rng.uniform(-3, 2, by_row) * scale
        high = low + np.exp(rng.uniform(-2, 1.5, by_row)) * scale
        kind = int(rng.integers(0, 4))
        if kind == 1 and count > 1:
            kind = 2  # see test_ranges_that_both_go_on_for_ever
        closed = [bool(rng.integers(0, 2)) for _ in range(2)]
        # an end that there is not is closed: see test_not_of_a_form
        found.append((-INF, high, True, closed[1]) if kind == 0 else (low, INF, closed[0], True) if kind == 1 else
                     (low, high, *closed))  # fmt: skip
    return tuple(found)


def one(name, index=None, factor=1.0):
    return ((name, index), factor)


def ask_text(text, columns, numbers=None):
    """The probability of each row for a condition as people write it."""
    numbers = numbers or {}
    models = {name: model(values) for name, values in columns.items()}
    kinds = {name: type(each) for name, each in models.items()}
    found = split_rows(parse(text), lambda column: column.name not in kinds)
    rows = len(next(iter(columns.values())))
    values = {
        name: np.broadcast_to(np.asarray(eval(str(each), {"__builtins__": {}}, dict(numbers)), float), (rows,))
        for name, each in found.numbers.items()
    }
    selection = Selection.of(found.groups, kinds, Threshold(None))
    return np.prod(selection.probabilities(RowValues(models, values, rows)), axis=0)
