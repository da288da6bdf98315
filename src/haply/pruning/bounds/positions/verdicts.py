"""Bounds of one pair of positions, and its exact value where they leave it open."""

from __future__ import annotations

import math

from haply.numerics.jit import bare, bare_inner
from haply.numerics.multivariate.disc import FLAT_ENOUGH, ball_chance, disc_chance, open_disc, plane_of, widest
from haply.numerics.normal import normal_cdf
from haply.pruning.bounds.positions.rules import INSIDE, SLAB, SLACK, SPREAD

_NEGLIGIBLE = 8.4
"""The probability beyond this many standard deviations is below 1e-16."""


@bare_inner
def slab_verdict(away_square, along, limit):
    """Tell whether a half-space that holds the ball has a probability that is too small.

    ``along`` is the variance along the mean, times the square of the mean's length.
    """
    if away_square <= limit.square and limit.out >= 0.0:
        return False
    away = math.sqrt(away_square)
    sd = math.sqrt(max(0.0, along)) / away if away > 0.0 else 0.0
    return away - limit.radius > limit.out * sd + SLACK * (limit.radius + away)


@bare_inner
def _disc_verdict(x, y, xx, xy, yy, square, limit, room):
    """Return the rule (negative if it rejects) and the probability of a pair in the plane."""
    det, rounding = xx * yy - xy * xy, 1e-15 * xx * yy
    if max(xx, yy) > limit.width or det - rounding > limit.area:
        return -SPREAD, 0.0
    most = widest(xx, xy, yy)
    enough = limit.inside * most
    if enough < square:
        inside = math.sqrt(square) - math.sqrt(x * x + y * y)
        if inside > 0.0 and inside * inside * (1.0 - 1e-12) > enough:
            return INSIDE, 1.0
    return 0, open_disc(x, y, xx, xy, yy, square, most, room.lines[0][:2], room.lines[1][:2])


@bare
def _plane_verdict(one, other, limit, room):
    """Return the rule (negative if it rejects) and the probability of two normals in the plane."""
    x, y = one[0] - other[0], one[1] - other[1]
    xx, xy, yy = one[2] + other[2], one[3] + other[3], one[4] + other[4]
    if slab_verdict(x * x + y * y, x * x * xx + 2.0 * x * y * xy + y * y * yy, limit):
        return -SLAB, 0.0
    return _disc_verdict(x, y, xx, xy, yy, limit.square, limit, room)


@bare
def _space_verdict(one, other, limit, room):
    """Do as ``_plane_verdict`` in three dimensions: in the plane, if both normals hardly leave one."""
    x, y, z = one[0] - other[0], one[1] - other[1], one[2] - other[2]
    xx, xy, xz = one[3] + other[3], one[4] + other[4], one[5] + other[5]
    yy, yz, zz = one[6] + other[6], one[7] + other[7], one[8] + other[8]
    along = x * (x * xx + 2.0 * (y * xy + z * xz)) + y * (y * yy + 2.0 * z * yz) + z * z * zz
    if slab_verdict(x * x + y * y + z * z, along, limit):
        return -SLAB, 0.0
    u, v, uu, uv, vv, off, change = plane_of(x, y, z, xx, xy, xz, yy, yz, zz)
    if change <= FLAT_ENOUGH and off <= limit.square:
        return _disc_verdict(u, v, uu, uv, vv, limit.square - off, limit, room)
    return _general_verdict(3, one, other, limit, room)


@bare
def _general_verdict(dim, one, other, limit, room):
    """Do as ``_plane_verdict`` in any dimension."""
    away = difference_of(dim, one, other, room)
    along, widest_axis, norm = 0.0, 0.0, 0.0
    for c in range(dim):
        line = 0.0
        for d in range(dim):
            line += room.cov[c, d] * room.mean[d]
            norm += room.cov[c, d] * room.cov[c, d]
        along += line * room.mean[c]
        widest_axis = max(widest_axis, room.cov[c, c])
    if slab_verdict(away, along, limit):
        return -SLAB, 0.0
    if widest_axis > limit.width:
        return -SPREAD, 0.0
    inside = limit.radius - math.sqrt(away)
    if inside > 0.0 and inside * inside * (1.0 - 1e-12) > limit.inside * math.sqrt(norm):
        return INSIDE, 1.0
    return 0, ball_chance(room.mean, room.cov, limit.square, room)


@bare_inner
def pair_verdict(dim, one, other, limit, room):
    """Return the rule that decides a pair of two normals, negative if it rejects, and the probability, if computed."""
    if dim == 2:
        return _plane_verdict(one, other, limit, room)
    if dim == 3:
        return _space_verdict(one, other, limit, room)
    return _general_verdict(dim, one, other, limit, room)


@bare_inner
def difference_of(dim, one, other, room):
    """Write mean and covariance of the difference, unpacked; return the square of the mean's length."""
    at, away = dim, 0.0
    for c in range(dim):
        apart = one[c] - other[c]
        room.mean[c] = apart
        away += apart * apart
        for d in range(c, dim):
            room.cov[c, d] = room.cov[d, c] = one[at] + other[at]
            at += 1
    return away


@bare
def mixed_verdict(dim, left, i, right, j, limit, room):
    """Do as ``_plane_verdict`` for two mixtures: first by slabs of all pairs of parts, then by their probabilities."""
    most = 0.0
    for k in range(left.first[i], left.first[i] + left.many[i]):
        for m in range(right.first[j], right.first[j] + right.many[j]):
            most += left.weight[k] * right.weight[m] * half_space(dim, left.packed[k], right.packed[m], limit, room)
    if most < limit.reject_below - 1e-14:
        return -SLAB, 0.0
    sum_, open_ = 0.0, 1.0
    for k in range(left.first[i], left.first[i] + left.many[i]):
        for m in range(right.first[j], right.first[j] + right.many[j]):
            share = left.weight[k] * right.weight[m]
            open_ -= share
            if half_space(dim, left.packed[k], right.packed[m], limit, room) > 0.0:
                if dim == 2:
                    one, other = left.packed[k], right.packed[m]
                    sum_ += share * disc_chance(
                        one[0] - other[0], one[1] - other[1], one[2] + other[2], one[3] + other[3],
                        one[4] + other[4], limit.square, room.lines[0][:2], room.lines[1][:2],
                    )  # fmt: skip
                else:
                    difference_of(dim, left.packed[k], right.packed[m], room)
                    sum_ += share * ball_chance(room.mean, room.cov, limit.square, room)
            if sum_ + max(0.0, open_) < limit.reject_below - 1e-13:
                return 0, 0.0
            if not limit.exact and sum_ > limit.accept_from + 1e-13:
                return 0, sum_
    return 0, min(1.0, sum_)


@bare
def half_space(dim, one, other, limit, room):
    """Upper bound on the probability of two normals: that of the half-space which holds the ball; 0 if negligible."""
    away = math.sqrt(difference_of(dim, one, other, room))
    along = 0.0
    for c in range(dim):
        for d in range(dim):
            along += room.mean[c] * room.cov[c, d] * room.mean[d]
    beyond = away - limit.radius * (1.0 + SLACK) - SLACK * away
    if beyond <= 0.0:
        return 1.0
    sd = math.sqrt(max(0.0, along)) / away
    return 0.0 if beyond >= _NEGLIGIBLE * sd else normal_cdf(-beyond / sd)
