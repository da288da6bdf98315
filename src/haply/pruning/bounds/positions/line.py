"""Intervals of positions on a line: rows with disjoint intervals cannot match."""

from __future__ import annotations

import math

import numpy as np

from haply.models import Sky, SkyEllipse
from haply.numerics.jit import bare, solid
from haply.numerics.multivariate.sphere import ARCSECONDS, lifted, variances
from haply.probability.multivariate import Parts
from haply.pruning.bounds.positions.rules import Limits
from haply.pruning.candidates.intervals import Intervals


@bare
def _on_line(start, weight, mean, cov, direction, limit, low, high, hopeless):
    """Write where each row may match on a line: around its parts' means, as far out as the threshold allows.

    A ball lies between two planes, so along any line the same holds as in one dimension.
    """
    dim = mean.shape[1]
    each = 1 if len(cov) > 1 else 0
    out = max(0.0, limit.out)
    for i in range(len(start) - 1):
        low[i], high[i], chance = math.inf, -math.inf, 0.0
        for k in range(start[i], start[i + 1]):
            if not weight[k] > 0.0:
                continue
            at, along, variance, size = 0.0, 0.0, 0.0, 0.0
            for c in range(dim):
                at += direction[c] * mean[k, c]
                size += abs(mean[k, c])
                for d in range(dim):
                    along += direction[c] * direction[d] * cov[each * k, c, d]
                variance = max(variance, cov[each * k, c, c])
            # rounding may hide a share of the largest variance
            reach = out * math.sqrt(max(0.0, along) + 1e-12 * variance) * (1.0 + 1e-9) if variance > 0.0 else 0.0
            reach += 0.5 * limit.radius * (1.0 + 1e-12) + 1e-12 * size
            low[i], high[i] = min(low[i], at - reach), max(high[i], at + reach)
            if variance <= limit.width:
                chance += weight[k]
        hopeless[i] = not chance > 0.0


@bare
def _sky_on_line(ra, dec, one, other, third, is_ellipse, direction, limit, low, high, hopeless):
    """Do as ``_on_line`` for positions on the sky."""
    out, size = max(0.0, limit.out), 2.0 * ARCSECONDS
    u, v, w = direction[0], direction[1], direction[2]
    for i in range(len(ra)):
        a, d = math.radians(ra[i]), math.radians(dec[i])
        east, both, north = variances(one[i], other[i], third[i], is_ellipse)
        x, y, z, xx, xy, xz, yy, yz, zz = lifted(math.cos(a), math.sin(a), math.cos(d), math.sin(d), east, both, north)
        at, variance = u * x + v * y + w * z, max(xx, yy, zz)
        along = u * u * xx + v * v * yy + w * w * zz + 2.0 * (u * v * xy + u * w * xz + v * w * yz)
        reach = out * math.sqrt(max(0.0, along) + 1e-12 * variance) * (1.0 + 1e-9) if variance > 0.0 else 0.0
        reach += 0.5 * limit.radius * (1.0 + 1e-12) + 1e-12 * size
        low[i], high[i], hopeless[i] = at - reach, at + reach, not variance <= limit.width


def line_direction(dim: int) -> np.ndarray:
    """Return the direction of a line in general position."""
    direction = 0.75 ** np.arange(dim)
    return direction / np.sqrt((direction * direction).sum())


def intervals_on_line(rows: Parts | Sky, limit: Limits) -> Intervals:
    """Return intervals of rows: rows with disjoint intervals cannot match, and hopeless rows match nothing."""
    count = len(rows) if isinstance(rows, Sky) else len(rows.start) - 1
    found = Intervals(np.empty(count), np.empty(count), np.empty(count, dtype=bool))
    if isinstance(rows, Sky):
        ra, dec, one, other, third = (solid(column) for column in rows.columns)
        _sky_on_line(
            ra, dec, one, other, third, isinstance(rows, SkyEllipse), line_direction(3), limit, found.start, found.end,
            found.hopeless,
        )  # fmt: skip
        return found
    start, weight, mean, cov = np.require(rows.start, np.int64, ["C", "W"]), rows.weight, rows.mean, rows.cov
    _on_line(
        start, solid(weight), solid(mean), solid(cov), line_direction(mean.shape[1]), limit, found.start, found.end,
        found.hopeless,
    )  # fmt: skip
    return found
