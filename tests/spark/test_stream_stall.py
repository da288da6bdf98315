"""The two joins of streams in time when a stream stands still, and when keys do not come again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import haply as hp
import oracle_time as oracle
from haply.models import Uniform
from haply.probability import equal_within
from stream_kit import await_that, read_stream, running, settings, write_file

WINDOW, DELAY, LENGTH = 6.0, 4.0, 3.0
NAMES = {"timing": ("left", "right"), "window": ("a", "b", "c")}
LATER = (500.0, 900.0)
"""When all is over, single rows move the clock."""


def rows_of(names):
    """Three files a stream, of 20 seconds each, shuffled within the delay; some keys are in the first one only."""
    rng, files = np.random.default_rng(8), {}
    for name in names:
        times = np.sort(rng.uniform(0.0, 60.0, 45))
        keys = [f"idle {k}" if t < 15.0 and k % 2 else f"busy {rng.integers(3)}" for k, t in enumerate(times)]
        rows = [(k, float(t), key) for k, (t, key) in enumerate(zip(times, keys, strict=True))]
        arrival = np.argsort(times + rng.uniform(0.0, DELAY, 45), kind="stable")
        files[name] = [[rows[i] for i in part] for part in np.array_split(arrival, 3)]
        files[name] += [[(45 + n, at, "busy 0")] for n, at in enumerate(LATER)]
    # one idle key that is met in all streams
    for n, name in enumerate(names):
        files[name][0].append((99, 5.0 + n, "idle"))
    return files


def table_of(rows, kind):
    ids, times, keys = (np.array(column) for column in zip(*rows, strict=True))
    time = Uniform(times - LENGTH, times).to_arrow() if kind == "timing" else pa.array(times)
    return pa.table({"id": ids, "time": time, "plate": pa.array(keys)})


def wanted_of(files, kind):
    rows = {name: [row for part in parts for row in part] for name, parts in files.items()}
    if kind == "window":
        return set(oracle.window_combinations(rows, dict.fromkeys((("a", "b"), ("b", "c")), WINDOW)))
    pairs = [(one, other) for one in rows["left"] for other in rows["right"] if one[2] == other[2]]
    ends = [np.array([pair[side][1] for pair in pairs]) for side in (0, 1)]
    p = equal_within(*(Uniform(end - LENGTH, end) for end in ends), WINDOW)
    assert (np.abs(p - 0.3) > 1e-9).all()
    return {(one[0], other[0]) for (one, other), q in zip(pairs, p, strict=True) if q >= 0.3}


@pytest.mark.long
@pytest.mark.parametrize("kind", NAMES)
def test_a_stall_loses_nothing_shows_in_the_metrics_and_idle_keys_go(spark, tmp_path, kind):
    """The last stream stops after its first file, the others go on for two more; then comes what it has held back."""
    names = NAMES[kind]
    files, funnel = rows_of(names), hp.Funnel()
    *going, stalled = names
    for name in names:
        for k, rows in enumerate(files[name][: 1 if name == stalled else 3]):
            write_file(tmp_path / name, k, table_of(rows, kind))
    with settings(spark, spark__haply__cells=4):
        streams = {name: read_stream(spark, tmp_path / name) for name in names}
        shared = {"time": "time", "max_delay": DELAY, "funnel": funnel}
        if kind == "timing":
            on = "left.plate = right.plate"
            result = hp.join(*streams.values(), on, window=WINDOW, threshold=0.3, **shared)
        else:
            windows = {("a", "b"): WINDOW, ("b", "c"): WINDOW}
            result = hp.window_join(streams, windows, key="plate", **shared)
        with running(result, tmp_path, f"stall_{kind}") as query:
            query.processAllAvailable()
            rows = {name: sum(map(len, files[name][:3])) for name in going}
            await_that(
                lambda: all(funnel.to_dict().get(f"rows_{name}") == rows[name] for name in going), "all are counted"
            )
            waiting = funnel.to_dict()
            in_state = [progress["stateOperators"][0]["numRowsTotal"] for progress in query.recentProgress]
            for k in (1, 2):
                write_file(tmp_path / stalled, k, table_of(files[stalled][k], kind))
            query.processAllAvailable()
            for k in (3, 4):
                for name in names:
                    write_file(tmp_path / name, k, table_of(files[name][k], kind))
                query.processAllAvailable()
            await_that(lambda: funnel.to_dict().get(f"rows_{stalled}") == rows[going[0]] + 2, "all are counted")
            done, left = funnel.to_dict(), query.lastProgress["stateOperators"][0]["numRowsTotal"]
            columns = [f"id_{name}" if kind == "timing" else f"{name}_id" for name in names]
            found = [tuple(row) for row in spark.table(f"stall_{kind}").select(*columns).collect()]
    assert len(found) == len(set(found)), "doubled"
    assert set(found) == wanted_of(files, kind)
    assert len(found) > 20
    assert not any(done[f"late_{name}"] for name in names)
    # the others wait: hardly anything of their last two files is let go, which both kinds of metrics tell
    for name in going:
        assert waiting[f"stored_{name}"] >= 0.9 * sum(map(len, files[name][1:3]))
    assert in_state[-1] > in_state[0] > 0
    # keys that do not come again are forgotten: one row of a key that does is left of all
    for name in names:
        assert 1 <= done[f"stored_{name}"] <= 2, "the last rows"
    assert left < in_state[0]
