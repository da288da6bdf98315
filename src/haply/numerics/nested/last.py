"""Integrate the last value in closed form: where the conditions hold is a union of intervals between borders."""

from __future__ import annotations

import math

from haply.numerics.components import POINT, component_cdf
from haply.numerics.integration.polynomials import append_roots, keep_between
from haply.numerics.jit import bare
from haply.numerics.nested.conditions import combined, is_in, is_in_as_written, is_near_end
from haply.numerics.nested.problem import BITS


@bare
def mass_of(laws, k, low, high):
    """Return the probability of an interval under a component that is not a point."""
    begin = component_cdf(laws.kind[k], laws.low[k], laws.high[k], laws.mean[k], laws.sd[k], low)
    return component_cdf(laws.kind[k], laws.low[k], laws.high[k], laws.mean[k], laws.sd[k], high) - begin


@bare
def mass(laws, first, last, low, high):
    """Return the probability of an interval under a law without points."""
    total = 0.0
    for k in range(first, last):
        if laws.kind[k] != POINT:
            total += laws.weight[k] * mass_of(laws, k, low, high)
    return total


@bare
def over_last(laws, asked, room, row):
    """Return the probability that the conditions hold for the last value, given all others."""
    n = room.squares.shape[1]
    v, terms, cuts = n - 1, room.terms[n - 1], room.breaks[n - 1]
    first, last = laws.start[v, row], laws.start[v, row + 1]
    low, high = room.smooth[v, 0], room.smooth[v, 1]
    count = parts = 0
    if low < high:
        for b in range(len(asked.border_form)):
            f, border = asked.border_form[b], asked.border[b, row]
            if math.isfinite(border):
                count = append_roots(room.squares[f, v, v], terms[f, v], terms[f, n] - border, cuts, count)
        count = keep_between(cuts, count, low, high)
        parts = count + 1
    total, begun, running = 0.0, low, False
    places = parts + (0 if room.points[v] == 0 else last - first)
    for start in range(0, places, BITS):
        size = min(BITS, places - start)
        for k in range(size):
            part = start + k
            if part < parts:  # the middle of a part
                room.places[k] = 0.5 * ((cuts[part - 1] if part else low) + (cuts[part] if part < count else high))
            else:
                part += first - parts
                room.places[k] = laws.low[part] if laws.kind[part] == POINT else math.nan
        for c in range(len(asked.form)):
            f, bits = asked.form[c], 0
            a, b, rest = room.squares[f, v, v], terms[f, v], terms[f, n]
            exactly = asked.written.slack[f, row] > 0.0
            for k in range(size):
                t = room.places[k]
                value = (a * t + b) * t + rest
                if exactly and is_near_end(asked, c, value, row):
                    room.given[v] = t
                    if is_in_as_written(asked, room, c, row):
                        bits |= 1 << k
                elif is_in(asked, c, value, 0, row):
                    bits |= 1 << k
            room.truth[c] = bits
        found = combined(asked, room)
        for k in range(size):
            part, holds = start + k, (found >> k) & 1
            if part >= parts:
                part += first - parts
                if holds and laws.kind[part] == POINT:
                    total += laws.weight[part]
                continue
            here = cuts[part - 1] if part else -math.inf
            if running and not holds:
                total += mass(laws, first, last, begun, here)
            elif holds and not running:
                begun = here
            running = holds == 1
    return total + mass(laws, first, last, begun, math.inf) if running else total
