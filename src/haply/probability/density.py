"""The density at 0 of the difference of two independent values: ``d = integral of f_X f_Y``, the weight of "the same".

On a line it is a sum over pairs of components (points, uniforms, cut normals), each in closed form. Gaussian positions
and their mixtures have ``d = N(mean_X - mean_Y; 0, cov_X + cov_Y)``, in the unit of values to the power of minus their
dimension. Positions on the sky have it on the plane: the separation along the great circle, and the errors of both
turned into its direction. Their unit is one per square arcsecond.

Every value is computed as ``factor * exp(exponent)`` with positive terms only: it keeps its relative digits in the
tails, and ``log_density`` tells pairs apart whose densities are below the least double.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from haply.errors import HaplyError
from haply.models import (
    Certain,
    Gaussian,
    GaussianND,
    Histogram,
    Mixture,
    MixtureND,
    Model,
    OneDimensional,
    Samples,
    Sky,
    SkyEllipse,
    Uniform,
)
from haply.numerics.components import NORMAL, POINT, UNIFORM
from haply.numerics.jit import bare, bare_inner, kernel, solid
from haply.numerics.multivariate.sphere import ARCSECONDS, variances
from haply.numerics.normal import NODE_WEIGHTS, NODES, SQRT_2PI, root_sum, scaled_mass
from haply.probability.multivariate import parts

NO_SPREAD = 1e-14
"""A variance that is less than this share of what it was before the other coordinates were taken out of it is rounding:
the coordinate is a function of the others."""
_FOLD_BELOW, _FOLD_ABOVE = 1e-200, 1e200
"""Factors beyond these move into the exponent."""
_LEAST_EXPONENT = -700.0
"""Below it ``exp`` loses its digits."""
PEAK_SLACK = 1.0 + 1e-12
"""What a bound is above the density that it is computed as: more than rounding takes from it."""
_POSITIONS = (GaussianND, MixtureND)
_NORMAL_PARTS = (*_POSITIONS, Gaussian, Mixture, Certain, Samples)

# -- components on a line ---------------------------------------------------------------------------------------------


@kernel
def _mass_beyond(z0, span):
    """``exp(z0**2/2) * P(z0 < Z < z0 + span)`` for ``z0 >= 0``.

    As ``scaled_mass``, which sees the ends: a narrow interval far out is integrated over the distance from its near
    end here, so that its digits do not depend on how far out it is.
    """
    if span * (1.0 + 2.0 * z0 + span) >= 1.0:
        return scaled_mass(z0, z0 + span, span, z0)
    half, total = 0.5 * span, 0.0
    for k in range(len(NODES)):
        u = half * (1.0 + NODES[k])
        total += NODE_WEIGHTS[k] * math.exp(-u * (z0 + 0.5 * u))
    return total * half / SQRT_2PI


@kernel
def _normal_mass(mean, sd, low, high):
    """``exp(z0**2/2)`` times the mass of a normal in an interval, ``z0`` being the z of its point nearest the mean."""
    if low > mean:
        return _mass_beyond((low - mean) / sd, (high - low) / sd)
    if high < mean:
        return _mass_beyond((mean - high) / sd, (high - low) / sd)
    return scaled_mass((low - mean) / sd, (high - mean) / sd, (high - low) / sd, 0.0)


@kernel
def component_heights(rows):
    """Return the greatest density of every component: that of a cut normal is at its point nearest the mean."""
    out = np.empty(len(rows.kind))
    for k in range(len(out)):
        low, high, sd = rows.low[k], rows.high[k], rows.sd[k]
        if rows.kind[k] == POINT:
            out[k] = math.inf
        elif rows.kind[k] == UNIFORM:
            out[k] = 1.0 / (high - low)
        elif low == -math.inf and high == math.inf:
            out[k] = 1.0 / (SQRT_2PI * sd)
        else:
            out[k] = 1.0 / (SQRT_2PI * sd * _normal_mass(rows.mean[k], sd, low, high))
    return out


@kernel
def _fall(x, mean, sd, low, high):
    """Return the exponent by which the density of a cut normal at a point of ``[low, high]`` is below its greatest."""
    anchor = min(max(mean, low), high)
    # (z - z0) (z + z0), the first from the points themselves: in a narrow interval far out nothing cancels
    return -0.5 * ((x - anchor) / sd) * ((x - mean) / sd + (anchor - mean) / sd)


@kernel
def _uniform_normal(low, high, height, b_low, b_high, mean, sd, b_height):
    """Exponent and factor of a uniform against a cut normal: the mass of the normal over the width of the uniform."""
    start, end = max(low, b_low), min(high, b_high)
    if not (start < end):
        return 0.0, 0.0
    nearest = min(max(mean, start), end)
    mass = SQRT_2PI * _normal_mass(mean, sd, start, end) * (b_height * sd)
    return _fall(nearest, mean, sd, b_low, b_high), mass * height


@kernel
def _normal_normal(a_low, a_high, a_mean, a_sd, a_height, b_low, b_high, b_mean, b_sd, b_height):
    """Exponent and factor of two cut normals, the first not wider than the second.

    The product of their densities is a normal of sd ``t = a_sd b_sd / s`` about ``m``, cut to the common support; it is
    measured from its greatest value there. ``m`` is known by its distance from the narrower mean, so that narrow values
    far from 0 keep their digits.
    """
    start, end = max(a_low, b_low), min(a_high, b_high)
    if not (start < end):
        return 0.0, 0.0
    s = root_sum(a_sd, b_sd)
    a_share, b_share, apart = a_sd / s, b_sd / s, b_mean - a_mean
    if start == -math.inf and end == math.inf:
        z = apart / s
        return -0.5 * z * z, 1.0 / (SQRT_2PI * s)
    t, middle = a_sd * b_share, apart * a_share * a_share
    z_start, z_end = ((start - a_mean) - middle) / t, ((end - a_mean) - middle) / t
    if z_start > 0.0 or z_end < 0.0:
        edge = start if z_start > 0.0 else end
        exponent = _fall(edge, a_mean, a_sd, a_low, a_high) + _fall(edge, b_mean, b_sd, b_low, b_high)
        z = abs((edge - a_mean) / a_sd * b_share + (edge - b_mean) / b_sd * a_share)
        mass = _mass_beyond(z, (end - start) / t)
    else:
        # z of the greatest value in each of the two, and how far that is from the greatest value of each
        a_z, b_z = apart / s * a_share, -apart / s * b_share
        a_anchor, b_anchor = min(max(a_mean, a_low), a_high) - a_mean, min(max(b_mean, b_low), b_high) - b_mean
        exponent = -0.5 * ((middle - a_anchor) / a_sd) * (a_z + a_anchor / a_sd)
        exponent -= 0.5 * (b_z - b_anchor / b_sd) * (b_z + b_anchor / b_sd)
        mass = scaled_mass(z_start, z_end, (end - start) / t, 0.0)
    return exponent, (a_height * t) * (SQRT_2PI * mass) * b_height


@kernel
def component_density(
    a_kind, a_low, a_high, a_mean, a_sd, a_height, b_kind, b_low, b_high, b_mean, b_sd, b_height
):  # fmt: skip
    """Return exponent and factor of the density at 0 of the difference of two components.

    A point against a uniform has its density inside and at both ends. Two points have none: 0, or infinite where they
    are equal.
    """
    if a_kind == POINT or b_kind == POINT:
        if max(a_low, b_low) > min(a_high, b_high):
            return 0.0, 0.0
        if a_kind == NORMAL:
            return _fall(b_low, a_mean, a_sd, a_low, a_high), a_height
        if b_kind == NORMAL:
            return _fall(a_low, b_mean, b_sd, b_low, b_high), b_height
        return 0.0, min(a_height, b_height)
    if a_kind == UNIFORM and b_kind == UNIFORM:
        overlap = min(a_high, b_high) - max(a_low, b_low)
        return 0.0, max(0.0, overlap) * max(a_height, b_height) * min(a_height, b_height)
    if a_kind == UNIFORM:
        return _uniform_normal(a_low, a_high, a_height, b_low, b_high, b_mean, b_sd, b_height)
    if b_kind == UNIFORM:
        return _uniform_normal(b_low, b_high, b_height, a_low, a_high, a_mean, a_sd, a_height)
    if a_sd <= b_sd:
        return _normal_normal(a_low, a_high, a_mean, a_sd, a_height, b_low, b_high, b_mean, b_sd, b_height)
    return _normal_normal(b_low, b_high, b_mean, b_sd, b_height, a_low, a_high, a_mean, a_sd, a_height)


@kernel
def _plus(top, total, exponent, factor):
    """``total * exp(top) + factor * exp(exponent)``, again as exponent and factor."""
    if not (factor > 0.0):
        return top, total
    if total == 0.0 or factor == math.inf:
        return exponent, factor
    if exponent <= top or total == math.inf:
        return top, total + (factor if exponent == top else factor * math.exp(exponent - top))
    return exponent, total * math.exp(top - exponent) + factor


@kernel
def _value(exponent, factor, logs):
    """``factor * exp(exponent)``, or its logarithm."""
    if factor == 0.0 or factor == math.inf:
        return (-math.inf if factor == 0.0 else math.inf) if logs else factor
    if logs:
        return exponent + math.log(factor)
    return factor * math.exp(exponent) if exponent > _LEAST_EXPONENT else math.exp(exponent + math.log(factor))


@kernel
def components_densities(a, a_height, b, b_height, left, right, logs):
    """Return the general case on a line: the sum over pairs of components.

    Where a point of ``a`` is on an edge between two uniforms of ``b`` the larger density counts, not their sum.
    """
    out = np.empty(len(left))
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        top, total = 0.0, 0.0
        for k in range(a.start[i], a.start[i + 1]):
            edge = 0.0
            for m in range(b.start[j], b.start[j + 1]):
                exponent, factor = component_density(
                    a.kind[k], a.low[k], a.high[k], a.mean[k], a.sd[k], a_height[k],
                    b.kind[m], b.low[m], b.high[m], b.mean[m], b.sd[m], b_height[m],
                )  # fmt: skip
                factor *= a.weight[k] * b.weight[m]
                if a.kind[k] == POINT and b.kind[m] == UNIFORM and (a.low[k] == b.low[m] or a.low[k] == b.high[m]):
                    edge = max(edge, factor)
                else:
                    top, total = _plus(top, total, exponent, factor)
            top, total = _plus(top, total, 0.0, edge)
        out[pair] = _value(top, total, logs)
    return out


@kernel
def steps_densities(a, a_height, b, b_height, left, right, logs):
    """Uniforms and histograms among themselves: one pass along the steps of both."""
    out = np.empty(len(left))
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        k, m, end, other_end = a.start[i], b.start[j], a.start[i + 1], b.start[j + 1]
        total = 0.0
        while k < end and m < other_end:
            overlap = min(a.high[k], b.high[m]) - max(a.low[k], b.low[m])
            if overlap > 0.0:
                tall, flat = max(a_height[k], b_height[m]), min(a_height[k], b_height[m])
                total += a.weight[k] * b.weight[m] * (overlap * tall * flat)
            if a.high[k] <= b.high[m]:
                k += 1
            else:
                m += 1
        out[pair] = _value(0.0, total, logs)
    return out


@kernel
def gaussian_densities(a_mean, a_sd, b_mean, b_sd, left, right, logs):
    """Gaussian against Gaussian."""
    out = np.empty(len(left))
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        apart, s = a_mean[i] - b_mean[j], root_sum(a_sd[i], b_sd[j])
        if s == 0.0:
            out[pair] = _value(0.0, math.inf if apart == 0.0 else 0.0, logs)
        else:
            z = apart / s
            out[pair] = _value(-0.5 * z * z, 1.0 / (SQRT_2PI * s), logs)
    return out


# -- positions --------------------------------------------------------------------------------------------------------


@bare
def _coordinate(rest, variance, before, exponent, factor):
    """Take one more coordinate into a density, given what the earlier ones leave of its distance and its variance.

    ``before`` is the variance before they were taken out. A coordinate without spread of its own makes the density
    infinite where the distance is what the others say, and 0 elsewhere. Returns the sd, or 0, first.
    """
    if variance <= NO_SPREAD * before:
        return 0.0, exponent, (math.inf if rest == 0.0 and factor > 0.0 else 0.0)
    sd = math.sqrt(variance)
    z, factor = rest / sd, factor / (SQRT_2PI * sd)
    if 0.0 < factor < _FOLD_BELOW or _FOLD_ABOVE < factor < math.inf:
        return sd, exponent - 0.5 * z * z + math.log(factor), 1.0
    return sd, exponent - 0.5 * z * z, factor


@bare
def _left_over(whole, taken):
    """``whole - taken``, and 0 where the difference is nothing but rounding."""
    rest = whole - taken
    return 0.0 if abs(rest) <= NO_SPREAD * abs(whole) else rest


@bare
def _plane_density(x, y, xx, xy, yy):
    """Exponent and factor of a normal density on a plane, ``(x, y)`` away from its centre."""
    sd, exponent, factor = _coordinate(x, xx, xx, 0.0, 1.0)
    if sd == 0.0:
        _, exponent, factor = _coordinate(y, yy, yy, exponent, factor)
        return exponent, factor
    slope = xy / xx
    _, exponent, factor = _coordinate(_left_over(y, slope * x), yy - slope * xy, yy, exponent, factor)
    return exponent, factor


class _Root(NamedTuple):
    """Where the root of the covariance of a distance, and the distance in units of it, are worked out."""

    root: np.ndarray
    z: np.ndarray


@bare_inner
def _space_density(a, k, b, m, room):
    """Exponent and factor of the density at 0 of the difference of two normals: by the root of the covariance."""
    dim = len(room.z)
    p, q = (k if len(a.cov) > 1 else 0), (m if len(b.cov) > 1 else 0)
    if dim == 2:
        return _plane_density(
            a.mean[k, 0] - b.mean[m, 0], a.mean[k, 1] - b.mean[m, 1],
            a.cov[p, 0, 0] + b.cov[q, 0, 0], a.cov[p, 0, 1] + b.cov[q, 0, 1], a.cov[p, 1, 1] + b.cov[q, 1, 1],
        )  # fmt: skip
    exponent, factor = 0.0, 1.0
    for r in range(dim):
        whole = a.cov[p, r, r] + b.cov[q, r, r]
        rest, variance = a.mean[k, r] - b.mean[m, r], whole
        for c in range(r):
            entry = a.cov[p, r, c] + b.cov[q, r, c]
            for e in range(c):
                entry -= room.root[r, e] * room.root[c, e]
            # a coordinate without spread of its own shares none with later ones
            room.root[r, c] = entry / room.root[c, c] if room.root[c, c] > 0.0 else 0.0
            rest = _left_over(rest, room.root[r, c] * room.z[c])
            variance -= room.root[r, c] * room.root[r, c]
        sd, exponent, factor = _coordinate(rest, variance, whole, exponent, factor)
        room.root[r, r], room.z[r] = sd, (rest / sd if sd > 0.0 else 0.0)
    return exponent, factor


@kernel
def positions_densities(a, b, left, right, logs):
    """Normal positions and their mixtures: the sum over pairs of their parts."""
    dim = a.mean.shape[1]
    room = _Root(np.empty((dim, dim)), np.empty(dim))
    out = np.empty(len(left))
    _each_position(a, b, left, right, logs, room, out)
    return out


@bare
def _each_position(a, b, left, right, logs, room, out):
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        top, total = 0.0, 0.0
        for k in range(a.start[i], a.start[i + 1]):
            for m in range(b.start[j], b.start[j + 1]):
                exponent, factor = _space_density(a, k, b, m, room)
                top, total = _plus(top, total, exponent, factor * a.weight[k] * b.weight[m])
        out[pair] = _value(top, total, logs)


@kernel
def positions_peaks(rows, point):
    """At least the greatest density of every row: the sum of those of its parts, which need not be at one place.

    ``point`` is a single row without spread: the density of a part at its own mean.
    """
    dim, count = rows.mean.shape[1], len(rows.start) - 1
    room = _Root(np.empty((dim, dim)), np.empty(dim))
    out = np.zeros(count)
    for i in range(count):
        for k in range(rows.start[i], rows.start[i + 1]):
            for c in range(dim):
                point.mean[0, c] = rows.mean[k, c]
            exponent, factor = _space_density(rows, k, point, 0, room)
            out[i] += rows.weight[k] * _value(exponent, factor, False)
    return out


# -- the sky ----------------------------------------------------------------------------------------------------------


RA, DEC, SIN_DEC, COS_DEC, EAST, BOTH, NORTH = range(7)
"""Places in the line of a position on the sky: degrees, sine and cosine, and variances in square arcseconds."""
_LINE = 8
"""Numbers of a line: as many as the processor fetches at once."""
_NEAR, _APART = 1e-3, 1e-280
"""Angles in radians up to which short series are exact to the last digit; squares of sizes that keep theirs."""


@bare
def _read_sky(ra, dec, one, other, third, is_ellipse, lines):
    for i in range(len(ra)):
        line = lines[i]
        line[RA], line[DEC] = ra[i], dec[i]
        line[SIN_DEC], line[COS_DEC] = math.sin(math.radians(dec[i])), math.cos(math.radians(dec[i]))
        line[EAST], line[BOTH], line[NORTH] = variances(one[i], other[i], third[i], is_ellipse)


@bare_inner
def _turned(line, east_east, east_north, north_north):
    """Variance along a direction, product, and variance across it, of the errors of one position.

    The direction is given by the squares of its parts to the east and north, and their product.
    """
    return (
        east_east * line[EAST] + 2.0 * east_north * line[BOTH] + north_north * line[NORTH],
        (east_east - north_north) * line[BOTH] + east_north * (line[NORTH] - line[EAST]),
        north_north * line[EAST] - 2.0 * east_north * line[BOTH] + east_east * line[NORTH],
    )


@bare_inner
def _short_sine(angle):
    """Return the sine of a small angle: the next term of the series is below its last digit."""
    square = angle * angle
    return angle - angle * square * (1.0 / 6.0) * (1.0 - 0.05 * square)


@bare_inner
def _sky_density(a, b):
    """Exponent and factor for two positions, per square arcsecond.

    The great circle through both leaves the first and arrives at the second in different directions from north. The
    errors of each are turned into its own, so that nothing is special at the poles. Differences of angles are taken in
    degrees, where those of neighbours are exact.
    """
    turn = b[RA] - a[RA]
    if abs(turn) > 180.0:
        turn -= 360.0 * math.floor(turn / 360.0 + 0.5)
    turn, rise = math.radians(turn), math.radians(b[DEC] - a[DEC])
    near = abs(turn) < _NEAR and abs(rise) < _NEAR
    if near:
        half_turn, half_rise, sine, climb = (
            _short_sine(0.5 * turn), _short_sine(0.5 * rise), _short_sine(turn), _short_sine(rise)
        )  # fmt: skip
    else:
        half_turn, half_rise, sine, climb = (
            math.sin(0.5 * turn), math.sin(0.5 * rise), math.sin(turn), math.sin(rise)
        )  # fmt: skip
    square = half_turn * half_turn
    chord = half_rise * half_rise + a[COS_DEC] * b[COS_DEC] * square  # of half the arc, squared
    if near:
        apart = 2.0 * ARCSECONDS * (math.sqrt(chord) * (1.0 + chord * (1.0 / 6.0 + 0.075 * chord)))
    else:
        apart = 2.0 * ARCSECONDS * math.atan2(math.sqrt(chord), math.sqrt(max(0.0, 1.0 - chord)))
    a_east, a_north = b[COS_DEC] * sine, climb + 2.0 * a[SIN_DEC] * b[COS_DEC] * square
    b_east, b_north = a[COS_DEC] * sine, climb - 2.0 * b[SIN_DEC] * a[COS_DEC] * square
    a_size, b_size = a_east * a_east + a_north * a_north, b_east * b_east + b_north * b_north
    if not (a_size > _APART and b_size > _APART):  # squares have lost digits
        size, other_size = math.hypot(a_east, a_north), math.hypot(b_east, b_north)
        if size > 0.0 and other_size > 0.0:
            a_east, a_north, b_east, b_north = a_east / size, a_north / size, b_east / other_size, b_north / other_size
        else:  # the same place, or the opposite one: any direction will do
            a_east, a_north, b_east, b_north = 1.0, 0.0, 1.0, 0.0
        a_size = b_size = 1.0
    a_finer, b_finer = 1.0 / a_size, 1.0 / b_size
    along, product, across = _turned(
        a, a_east * a_east * a_finer, a_east * a_north * a_finer, a_north * a_north * a_finer
    )
    b_along, b_product, b_across = _turned(
        b, b_east * b_east * b_finer, b_east * b_north * b_finer, b_north * b_north * b_finer
    )
    return _plane_density(apart, 0.0, along + b_along, product + b_product, across + b_across)


@kernel
def sky_densities(a, b, left, right, logs):
    """Positions on the sky, per square arcsecond."""
    out = np.empty(len(left))
    _each_sky(a, b, left, right, logs, out)
    return out


@bare
def _each_sky(a, b, left, right, logs, out):
    for pair in range(len(left)):
        exponent, factor = _sky_density(a[left[pair]], b[right[pair]])
        out[pair] = _value(exponent, factor, logs)


def sky_rows(model: Sky) -> np.ndarray:
    """Return positions on the sky as the kernels take them, a line for each."""
    ra, dec, one, other, third = (solid(column) for column in model.columns)
    lines = np.zeros((len(ra), _LINE))
    _read_sky(ra, dec, one, other, third, isinstance(model, SkyEllipse), lines)
    return lines


# -- models -----------------------------------------------------------------------------------------------------------


_KERNELS: dict[str, Callable[..., np.ndarray]] = {
    "gaussian": gaussian_densities,
    "steps": steps_densities,
    "components": components_densities,
    "positions": positions_densities,
    "sky": sky_densities,
}


def no_density(left: type[Model], right: type[Model]) -> str | None:
    """Tell why the difference of two kinds of models has no density at 0, or None if it has one.

    One side may be certain, or samples: then it is the density of the other, at these points.
    """
    if issubclass(left, Sky) or issubclass(right, Sky):
        both = issubclass(left, Sky) and issubclass(right, Sky)
        return None if both else "a position on the sky has a density beside another one on the sky only"
    if not left.continuous and not right.continuous:
        return "neither side has a density: both are certain values or samples"
    if left in _POSITIONS or right in _POSITIONS:
        other = next((kind for kind in (left, right) if kind not in _NORMAL_PARTS), None)
        return None if other is None else f"a Gaussian position has no density beside {other.kind}"
    return None


class PairDensity:
    """The density at 0 of ``left[i] - right[j]``, for lists of pairs ``(i, j)``.

    ``exists`` tells whether there is one, from the models' kinds; ``missing`` why not. Rows without spread on both
    sides have none even so: their density is 0, or infinite where they are equal.
    """

    def __init__(self, left: Model, right: Model) -> None:
        self.left, self.right = left, right
        self.missing = no_density(type(left), type(right))
        self.exists = self.missing is None
        self.family = _family(left, right) if self.exists else "none"
        self._swapped = self.family == "components" and isinstance(left, Histogram)
        self._parameters: tuple[Any, ...] = self._read() if self.exists else ()

    def _read(self) -> tuple[Any, ...]:
        """Return what the kernels of the family take of both sides."""
        left, right = self.left, self.right
        if self.family == "sky":
            return sky_rows(left), sky_rows(right)  # type: ignore[arg-type]
        if self.family == "positions":
            return _same_dimension(left, right)
        if self.family == "gaussian":
            return tuple(solid(column) for side in (left, right) for column in (side.values["mean"], side.sd))
        if self._swapped:  # edges are looked for on the right
            left, right = right, left
        sides = left.components, right.components
        return sides[0], component_heights(sides[0]), sides[1], component_heights(sides[1])

    def evaluate(self, left_rows: np.ndarray, right_rows: np.ndarray) -> np.ndarray:
        """Compute the densities of the given pairs."""
        return self._densities(left_rows, right_rows, False)

    def log_density(self, left_rows: np.ndarray, right_rows: np.ndarray) -> np.ndarray:
        """Compute the logarithms of the densities: finite also where these are below the least double."""
        return self._densities(left_rows, right_rows, True)

    def _densities(self, left_rows: np.ndarray, right_rows: np.ndarray, logs: bool) -> np.ndarray:
        if self.missing is not None:
            raise HaplyError(
                "The difference of two values has no density", found=self.missing, hint="add within=... to compare them"
            )
        rows = (right_rows, left_rows) if self._swapped else (left_rows, right_rows)
        return _KERNELS[self.family](*self._parameters, *rows, logs)


def _family(left: Model, right: Model) -> str:
    """Return which kernel computes the densities of two models that have some."""
    if isinstance(left, Sky):
        return "sky"
    if not (_on_a_line(left) and _on_a_line(right)):
        return "positions"
    if isinstance(left, Gaussian) and isinstance(right, Gaussian):
        return "gaussian"
    return "steps" if _has_steps(left) and _has_steps(right) else "components"


def _on_a_line(model: Model) -> bool:
    return model.one_dimensional if isinstance(model, Samples) else isinstance(model, OneDimensional)


def _has_steps(model: Model) -> bool:
    return isinstance(model, Histogram) or (isinstance(model, Uniform) and bool((model.lo < model.hi).all()))


def _same_dimension(left: Model, right: Model) -> tuple[Any, Any]:
    one, other = parts(left), parts(right)
    dims = [1 if side is None else side.mean.shape[1] for side in (one, other)]
    if one is None or other is None or (dims[0] != dims[1] and len(left) and len(right)):
        raise HaplyError("Points differ in dimension", expected=f"dim = {dims[0]}", found=str(dims[1]))
    return _solid_parts(one), _solid_parts(other)


def _solid_parts(found: Any) -> Any:
    return found._replace(weight=solid(found.weight), mean=solid(found.mean), cov=solid(found.cov))


def peak_density(model: Model) -> np.ndarray:
    """Bound the density of every row from above, wherever it is; infinite for atoms.

    The density at 0 of a difference is at most the smaller of the two bounds.
    """
    if _on_a_line(model):
        return model.peak_density()
    if isinstance(model, Samples):
        return np.full(len(model), np.inf)
    if isinstance(model, Sky):
        _, _, one, other, third = model.columns
        narrow = 1.0 if isinstance(model, SkyEllipse) else np.sqrt(np.maximum(1.0 - third * third, 0.0))
        with np.errstate(divide="ignore"):
            return PEAK_SLACK / (2.0 * math.pi * one * other * narrow)
    found = parts(model)
    assert found is not None
    dim = found.mean.shape[1]
    point = found._replace(
        start=np.arange(2), weight=np.ones(1), mean=np.empty((1, dim)), cov=np.zeros((1, dim, dim))
    )  # fmt: skip
    return PEAK_SLACK * positions_peaks(_solid_parts(found), point)
