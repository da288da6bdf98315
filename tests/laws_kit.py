"""Laws of single numbers for tests of counts and of the last event: their cdfs, breaks and draws, without haply.

A law is a list of parts ``(weight, kind, numbers...)``: ``("point", v)``, ``("uniform", low, high)``,
``("normal", mean, sd)`` and ``("cut", mean, sd, low, high)``. Integrals are plain Gauss-Legendre panels with many nodes
between all breaks. ``model_of_laws`` makes a model of laws of any kinds, side by side.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtr

from haply.models import OneDimensional
from haply.numerics.components import NORMAL, POINT, UNIFORM
from haply.numerics.rows import Components

RULES = {count: np.polynomial.legendre.leggauss(count) for count in (16, 40)}
KINDS = ("point", "uniform", "normal", "cut", "histogram", "samples", "mixture", "mixed")


class Laws(OneDimensional):
    """Rows of any kinds."""

    parameters = ()

    def __init__(self, components, laws):
        self.values, self.given, self.laws = {}, components, laws

    @classmethod
    def example(cls):
        return model_of_laws([[(1.0, "point", 0.0)]])

    def __len__(self):
        return len(self.laws)

    def take(self, rows):
        return model_of_laws([self.laws[row] for row in rows])

    def _make_components(self):
        return self.given


def model_of_laws(laws):
    """A model whose rows are these laws."""
    start, rows = [0], []
    for law in laws:
        for weight, kind, *numbers in law:
            if kind == "point":
                rows.append((weight, POINT, numbers[0], numbers[0], 0.0, 0.0))
            elif kind == "uniform":
                rows.append((weight, UNIFORM, *numbers, 0.0, 0.0))
            elif kind == "normal":
                rows.append((weight, NORMAL, -math.inf, math.inf, *numbers))
            else:
                mean, sd, low, high = numbers
                rows.append((weight, NORMAL, low, high, mean, sd))
        start.append(len(rows))
    columns = [np.array(column) for column in zip(*rows, strict=True)] if rows else [np.empty(0)] * 6
    weight, kind, low, high, mean, sd = columns
    floats = (np.asarray(column, np.float64) for column in (low, high, mean, sd))
    return Laws(Components(np.array(start), weight.astype(float), kind.astype(np.int8), *floats, False), laws)


def _log_mass(low, high):
    """The logarithm of the normal mass between two z, from whichever tail is the smaller."""
    low, high = np.where(low + high > 0, -high, low), np.where(low + high > 0, -low, high)
    with np.errstate(divide="ignore"):
        below, above = log_ndtr(low), log_ndtr(high)
        return above + np.log(-np.expm1(np.minimum(below - above, 0.0)))


def part_cdf(part, x, closed=True):
    """``P(X <= x)`` of one part, or ``P(X < x)`` if not closed."""
    _, kind, *numbers = part
    x = np.asarray(x, np.float64)
    if kind == "point":
        return (x >= numbers[0] if closed else x > numbers[0]).astype(float)
    if kind == "uniform":
        return np.clip((x - numbers[0]) / (numbers[1] - numbers[0]), 0.0, 1.0)
    if kind == "normal":
        return ndtr((x - numbers[0]) / numbers[1])
    mean, sd, low, high = numbers
    z = (np.clip(x, low, high) - mean) / sd
    with np.errstate(invalid="ignore"):
        found = np.exp(_log_mass((low - mean) / sd, z) - _log_mass((low - mean) / sd, (high - mean) / sd))
    return np.where(x <= low, 0.0, np.where(x >= high, 1.0, found))


def cdf(law, x, closed=True):
    """``P(X <= x)``, or ``P(X < x)`` if not closed."""
    return sum(part[0] * part_cdf(part, x, closed) for part in law)


def density(part, x):
    """Of one part that is no point."""
    _, kind, *numbers = part
    if kind == "uniform":
        return np.where((x >= numbers[0]) & (x <= numbers[1]), 1.0 / (numbers[1] - numbers[0]), 0.0)
    mean, sd = numbers[:2]
    z = (x - mean) / sd
    if kind == "normal":
        return np.exp(-0.5 * z * z) / (math.sqrt(2 * math.pi) * sd)
    low, high = numbers[2:]
    log_mass = _log_mass((low - mean) / sd, (high - mean) / sd)
    inside = (x >= low) & (x <= high)
    return np.where(inside, np.exp(-0.5 * z * z - log_mass) / (math.sqrt(2 * math.pi) * sd), 0.0)


def breaks(law):
    """Where a law changes its form, and every sd of its normals."""
    found = []
    for _, kind, *numbers in law:
        if kind in ("point", "uniform"):
            found += numbers
        else:
            mean, sd = numbers[:2]
            low, high = numbers[2:] if kind == "cut" else (-math.inf, math.inf)
            mode = min(max(mean, low), high)
            scale = sd / max(1.0, abs(mode - mean) / sd)
            found += [mode + k * scale for k in range(-11, 12) if low <= mode + k * scale <= high]
            found += [end for end in (low, high) if math.isfinite(end) and abs(end - mode) < 40 * sd]
    return found


def nodes_between(low, high, points, rule=40):
    """Nodes and weights of panels between two places, broken at points."""
    nodes, weights = RULES[rule]
    inside = np.unique([low, high, *(p for p in points if low < p < high)])
    half = 0.5 * np.diff(inside)[:, None]
    return (inside[:-1, None] + half * (1.0 + nodes)).ravel(), (half * weights).ravel()


def expectation_nodes(law, points, rule=40):
    """Places and weights whose weighted sums are expectations, for functions with kinks at points."""
    places, weights = [], []
    for part in law:
        if part[1] == "point":
            places.append([part[2]])
            weights.append([part[0]])
            continue
        own = breaks([part])
        x, w = nodes_between(min(own), max(own), [*own, *points], rule)
        places.append(x)
        weights.append(part[0] * w * density(part, x))
    return np.concatenate(places), np.concatenate(weights)


def draw(rng, law, size):
    """Random numbers of a law."""
    which = rng.choice(len(law), size, p=[part[0] / sum(p[0] for p in law) for part in law])
    out = np.empty(size)
    for number, (_, kind, *numbers) in enumerate(law):
        mine = which == number
        count = int(mine.sum())
        if kind == "point":
            out[mine] = numbers[0]
        elif kind == "uniform":
            out[mine] = rng.uniform(*numbers, count)
        elif kind == "normal":
            out[mine] = rng.normal(*numbers, count)
        else:
            mean, sd, low, high = numbers
            kept = np.empty(0)
            while len(kept) < count:
                new = rng.normal(mean, sd, 4 * count + 10)
                kept = np.append(kept, new[(new >= low) & (new <= high)])
            out[mine] = kept[:count]
    return out


def random_law(rng, kind, spread=2.0, grid=None):
    """A law of a kind, about 0; points lie on a grid if one is given, so that there are ties."""

    def place():
        x = rng.normal(0.0, spread)
        return x if grid is None else grid * round(x / grid)

    def size():
        return 10.0 ** rng.uniform(-1.5, 0.5)

    if kind == "point":
        return [(1.0, "point", place())]
    if kind == "uniform":
        low = place()
        return [(1.0, "uniform", low, low + size())]
    if kind == "normal":
        return [(1.0, "normal", place(), size())]
    if kind == "cut":
        mean, sd = place(), size()
        low = mean + sd * rng.uniform(-2.0, 1.5)
        return [(1.0, "cut", mean, sd, low, low + sd * rng.uniform(0.3, 3.0))]
    count = int(rng.integers(2, 5))
    weights = rng.dirichlet(np.ones(count))
    if kind == "histogram":
        edges = place() + np.append(0.0, np.cumsum(rng.uniform(0.1, 1.0, count)))
        return [(w, "uniform", edges[k], edges[k + 1]) for k, w in enumerate(weights)]
    inner = {"samples": ("point",), "mixture": ("normal",), "mixed": ("point", "uniform", "normal", "cut")}[kind]
    return [(w, *random_law(rng, inner[rng.integers(len(inner))], spread, grid)[0][1:]) for w in weights]


def law_of_row(model, row):
    """The law of a row of a model, from its components."""
    rows = model.components
    law = []
    for k in range(rows.start[row], rows.start[row + 1]):
        weight, low, high = rows.weight[k], rows.low[k], rows.high[k]
        if rows.kind[k] == POINT:
            law.append((weight, "point", low))
        elif rows.kind[k] == UNIFORM:
            law.append((weight, "uniform", low, high))
        elif math.isinf(low) and math.isinf(high):
            law.append((weight, "normal", rows.mean[k], rows.sd[k]))
        else:
            law.append((weight, "cut", rows.mean[k], rows.sd[k], low, high))
    return law


def chance(law, x, region):
    """That ``x`` less a number of the law is in a region."""
    below = cdf(law, x - region.low, region.low_closed) if math.isfinite(region.low) else np.ones_like(x)
    beyond = cdf(law, x - region.high, not region.high_closed) if math.isfinite(region.high) else np.zeros_like(x)
    return 1.0 - (below - beyond) if region.outside else below - beyond


def count_reference(left, rights, region):
    """The distribution of the number of matches, and the chance of each candidate, by many nodes."""
    ends = [end for end in (region.low, region.high) if math.isfinite(end)]
    x, w = expectation_nodes(left, [point + end for law in rights for point in breaks(law) for end in ends])
    chances = [chance(law, x, region) for law in rights]
    shares = np.zeros((len(rights) + 1, len(x)))
    shares[0] = 1.0
    for q in chances:
        shares[1:] = shares[1:] * (1.0 - q) + shares[:-1] * q
        shares[0] *= 1.0 - q
    return shares @ w, np.array([q @ w for q in chances])


def last_reference(time, events, rank, lookback):
    """The chance of each event to be the last at or before the time, and that of none, time by time."""
    found, none, count = np.zeros(len(events)), 0.0, len(events)
    points = sorted({point for law in events for point in breaks(law)})
    later = [point + lookback for point in points if math.isfinite(lookback)]
    for t, w in zip(*expectation_nodes(time, [*points, *later], 16), strict=True):
        if w < 1e-17:
            none += w
            continue
        after = np.array([1.0 - cdf(law, t) for law in events])
        gone = np.zeros(count)
        if math.isfinite(lookback):
            for k, law in enumerate(events):
                for part in law:
                    over = float(t - part[2] > lookback) if part[1] == "point" else part_cdf(part, t - lookback)
                    gone[k] += part[0] * over
        none += w * np.prod(after + gone)
        s, ws = np.empty(0), np.empty(0)
        if t > points[0]:
            s, ws = nodes_between(max(points[0], t - lookback), t, points, 16)
        free = np.array([cdf(law, s) for law in events]).reshape(count, -1) + after[:, None]
        for j, law in enumerate(events):
            others = np.prod(np.delete(free, j, 0), axis=0)
            for part in law:
                if part[1] != "point":
                    found[j] += w * part[0] * (ws * density(part, s) * others).sum()
                elif part[2] <= t and t - part[2] <= lookback:
                    product = 1.0
                    for k in range(count):
                        if k != j:
                            product *= after[k] + cdf(events[k], part[2], (rank[k], k) < (rank[j], j))
                    found[j] += w * part[0] * product
    return found, none
