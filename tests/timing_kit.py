"""Two sides of events with uncertain times, and the oracle's pairs of them, for tests of joins by time."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa

import oracle_time as oracle
from haply.models import Gaussian, Histogram

WINDOW, THRESHOLD, DELAY = 12.0, 0.3, 9.0


def table_of(ids, times, **more):
    """Rows with a histogram of times."""
    return pa.table({"id": pa.array(ids, pa.int64()), "t": times.to_arrow(), **more})


def histograms(events):
    return Histogram([[float(e) for e in h.edges] for h in events], [[float(p) for p in h.probs] for h in events])


def random_sides() -> SimpleNamespace:
    """Two sides of events of a few templates, their values, and what joins by time alone."""
    rng = np.random.default_rng(5)
    templates = [t for t in (oracle.random_template(rng) for _ in range(12)) if oracle.length(t) > 0][:5]
    sides = [[h for _, _, h in oracle.random_events(rng, side, templates, 60, gap=4.0)] for side in "AB"]
    lefts, rights = (list(enumerate(side)) for side in sides)
    wanted = oracle.timing_pairs(lefts, rights, WINDOW, THRESHOLD)
    assert 80 < len(wanted) < 2000
    values = [rng.uniform(0.0, 20.0, 60) for _ in range(2)]
    keys = [rng.integers(0, 3, 60) for _ in range(2)]
    return SimpleNamespace(
        sides=sides, models=[histograms(side) for side in sides], wanted=wanted, values=values, keys=keys
    )


def tables(events):
    return [
        table_of(
            np.arange(60),
            events.models[k],
            k=pa.array(events.keys[k]),
            x=Gaussian(events.values[k], np.full(60, 2.0)).to_arrow(),
        )
        for k in range(2)
    ]


def collect(result, more=("probability",)):
    rows = [tuple(row) for row in result.select("id_left", "id_right", *more).collect()]
    found = {row[:2]: row[2] if more else None for row in rows}
    assert len(found) == len(rows), "a pair was doubled"
    return found


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    assert all(abs(p - float(wanted[pair])) < 1e-12 for pair, p in found.items())
