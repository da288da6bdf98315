"""Clouds (sets of weighted samples) in the form that the rules use to decide pairs of them.

An object is described once, when it arrives:

* ``near``, a column per object, for the coarse test of many objects at a time: centre, core radius, largest variance,
  time, and to which pairs it belongs here (see ``Places``);
* ``facts``, a row per object: where its samples are, its moments, and how much of it lies within each radius;
* ``pool``: the samples, coordinate by coordinate, their weights and their distances from the centre, nearest first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from haply.numerics.jit import kernel
from haply.probability.distance import Clouds
from haply.pruning.ownership import ONE_CELL, Places
from haply.pruning.threshold import Threshold

WHOLE_BALL = 2.0
"""The share for which a core is the whole ball: more than rounded weights can add up to."""

SHELLS = 32
"""Steps of the radius; the weight of an object within each step is stored."""


def near_rows(dim: int) -> int:
    """Count the rows of ``near``: the centre, the core radius, the largest variance, the time, three of ``Places``."""
    return dim + 6


def fact_columns(dim: int) -> int:
    """Count the columns of ``facts``."""
    return SHELL_AT + dim + dim * (dim + 1) // 2 + SHELLS + 1


START, COUNT, WHOLE, EQUAL, RADIUS, TRACE, FOURTH, SHELL_AT = range(8)
"""Columns of ``facts``: where the samples are and how many, their weight and whether all weights are equal, the radius,
moments of even order; from the last one on third and second moments, and the shells."""


class Objects(NamedTuple):
    """Objects in the form that the rules use (see the module)."""

    near: np.ndarray
    facts: np.ndarray
    pool: np.ndarray


def describe(
    these: Clouds,
    times: np.ndarray,
    core_share: float,
    weighted_centre: bool = True,
    places: Places = ONE_CELL,
) -> Objects:
    """Describe objects for the rules. ``core_share`` is the share of an object that its core must hold."""
    count = len(these.start) - 1
    objects = room_for(these.dim, count, int(these.start[-1]))
    describe_into(objects, 0, 0, these, times, core_share, weighted_centre, places)
    return objects


def room_for(dim: int, count: int, samples: int) -> Objects:
    """Return empty arrays for this many objects with this many samples in all."""
    return Objects(
        np.empty((near_rows(dim), count)), np.empty((count, fact_columns(dim))), np.empty((dim + 2) * samples)
    )


def describe_into(
    objects: Objects,
    at: int,
    pool_at: int,
    these: Clouds,
    times: np.ndarray,
    core_share: float,
    weighted_centre: bool,
    places: Places,
) -> None:
    """Describe objects in arrays that have room: objects from number ``at`` on, samples from ``pool_at`` on."""
    dim, end = these.dim, at + len(these.start) - 1
    near = objects.near
    near[dim + 2, at:end] = times
    near[dim + 3, at:end], near[dim + 4, at:end], near[dim + 5, at:end] = (
        0.0 if column is None else column for column in places
    )
    _describe(these, core_share, weighted_centre, near, objects.facts, objects.pool, at, pool_at)


def core_share(threshold: Threshold) -> float:
    """Return a share: if two cores that hold more than it are too far apart, their pair is below the threshold."""
    if threshold.reject_below <= 0.0:
        return WHOLE_BALL
    return math.sqrt(max(0.0, 1.0 - threshold.reject_below)) * (1.0 + 1e-14) + 1e-14


def extents(these: Clouds, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of each object's centre on a line in general position, and the radius of its core.

    On any line two centres are at most as far apart as in space: objects that are too far apart on it do not match.
    """
    direction = 0.75 ** np.arange(these.dim)
    count = len(these.start) - 1
    place, core = np.empty(count), np.empty(count)
    _extents(these, share, direction / np.sqrt((direction * direction).sum()), place, core, np.empty(these.most))
    return place, core


@kernel
def _extents(these, share, direction, place, core, room):
    dim = these.dim
    for i in range(len(these.start) - 1):
        first, count = these.start[i], these.start[i + 1] - these.start[i]
        weight, whole = these.weight[first : first + count], these.whole[i]
        distance = room[:count]
        distance[:] = 0.0
        place[i] = 0.0
        for c in range(dim):
            xs = these.points[dim * first + c * count : dim * first + (c + 1) * count]
            total = 0.0
            for k in range(len(xs)):
                total += xs[k] * weight[k]
            centre = total / whole
            place[i] += direction[c] * centre
            for k in range(len(xs)):
                distance[k] += (xs[k] - centre) * (xs[k] - centre)
        order = np.argsort(distance)
        held, core[i] = 0.0, math.sqrt(distance[order[count - 1]])
        for k in range(count):
            held += weight[order[k]]
            if held > share * whole:
                core[i] = math.sqrt(distance[order[k]])
                break


@kernel
def _largest_variance(cov, dim, trace, work):
    """Upper bound on the largest eigenvalue, at most a factor ``dim ** (1 / 16)`` too large, by squaring four times."""
    if trace <= 0.0:
        return 0.0
    if dim == 1:
        return cov[0]
    one, other = work[:dim, :dim], work[:dim, dim:]
    at = 0
    for r in range(dim):
        for c in range(r, dim):
            one[r, c] = one[c, r] = cov[at] / trace
            at += 1
    for _ in range(4):
        for r in range(dim):
            for c in range(dim):
                total = 0.0
                for k in range(dim):
                    total += one[r, k] * one[k, c]
                other[r, c] = total
        one, other = other, one
    power = 0.0
    for r in range(dim):
        power += one[r, r]
    return min(1.0, power**0.0625 * (1.0 + 1e-12)) * trace


@kernel
def _describe(these, share, weighted_centre, near, facts, pool, at, pool_at):
    dim = these.dim
    room = np.empty((dim + 2, these.most))
    centre, third = np.empty(dim), np.empty(dim)
    cov, work = np.empty(dim * (dim + 1) // 2), np.empty((dim, 2 * dim))
    for i in range(len(these.start) - 1):
        first, count = these.start[i], these.start[i + 1] - these.start[i]
        weight, whole = these.weight[first : first + count], these.whole[i]
        row = facts[at + i]
        # the centre: any point is good for the balls, the moments need the mean
        for c in range(dim):
            xs = these.points[dim * first + c * count : dim * first + (c + 1) * count]
            total = 0.0
            for k in range(len(xs)):
                total += xs[k] * (weight[k] if weighted_centre else 1.0)
            centre[c] = total / (whole if weighted_centre else float(count))
            near[c, at + i] = centre[c]
        distance = room[dim + 1, :count]
        distance[:] = 0.0
        for c in range(dim):
            xs, us = these.points[dim * first + c * count : dim * first + (c + 1) * count], room[c, :count]
            for k in range(len(xs)):
                us[k] = xs[k] - centre[c]
                distance[k] += us[k] * us[k]
        # moments about the centre
        trace, fourth = 0.0, 0.0
        cov[:] = 0.0
        third[:] = 0.0
        for k in range(count):
            share_of = weight[k] / whole
            square = distance[k]
            trace += share_of * square
            fourth += share_of * square * square
            entry = 0
            for c in range(dim):
                third[c] += share_of * square * room[c, k]
                for e in range(c, dim):
                    cov[entry] += share_of * room[c, k] * room[e, k]
                    entry += 1
        for k in range(count):
            distance[k] = math.sqrt(distance[k])
        order = np.argsort(distance)
        start = pool_at + (dim + 2) * first
        for c in range(dim):
            xs = these.points[dim * first + c * count : dim * first + (c + 1) * count]
            for k in range(count):
                pool[start + c * count + k] = xs[order[k]]
        core, held, radius = 0.0, 0.0, distance[order[count - 1]]
        found = False
        shells = row[SHELL_AT + dim + len(cov) :]
        step = radius / SHELLS
        shell = 0
        for k in range(count):
            here = distance[order[k]]
            while shell <= SHELLS and shell * step < here:  # the last step may be below the radius: it holds all
                shells[shell] = held
                shell += 1
            held += weight[order[k]]
            pool[start + dim * count + k] = weight[order[k]]
            pool[start + (dim + 1) * count + k] = here
            if not found and held > share * whole:
                core, found = here, True
        while shell <= SHELLS:
            shells[shell] = held
            shell += 1
        shells[SHELLS] = whole
        near[dim, at + i] = core if found else radius
        near[dim + 1, at + i] = _largest_variance(cov, dim, trace, work)
        row[START], row[COUNT], row[WHOLE], row[EQUAL] = start, count, whole, (1.0 if these.equal[i] else 0.0)
        row[RADIUS], row[TRACE], row[FOURTH] = radius, trace, max(0.0, fourth - trace * trace)
        # entry by entry: numba takes seconds to compile the copy of an array into a slice, for its error message
        for c in range(dim):
            row[SHELL_AT + c] = third[c]
        for entry in range(len(cov)):
            row[SHELL_AT + dim + entry] = cov[entry]


@kernel
def _copy_blocks(facts, pool, rows, dim, into_facts, into_pool):
    at = 0
    for k in range(len(rows)):
        row = facts[rows[k]]
        start, size = int(row[START]), (dim + 2) * int(row[COUNT])
        for e in range(size):  # see _describe
            into_pool[at + e] = pool[start + e]
        for e in range(len(row)):
            into_facts[k, e] = row[e]
        into_facts[k, START] = at
        at += size
    return at


def take(objects: Objects, rows: np.ndarray) -> Objects:
    """Return the given objects, in the given order."""
    dim = len(objects.near) - 6
    size = int((dim + 2) * objects.facts[rows, COUNT].sum())
    facts, pool = np.empty((len(rows), objects.facts.shape[1])), np.empty(size)
    _copy_blocks(objects.facts, objects.pool, rows, dim, facts, pool)
    return Objects(np.ascontiguousarray(objects.near[:, rows]), facts, pool)


def shift_samples(facts: np.ndarray, by: int) -> None:
    """Move the start of the samples of these objects in the pool."""
    facts[:, START] += by
