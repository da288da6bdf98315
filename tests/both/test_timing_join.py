"""``hp.join`` with uncertain times: the oracle's pairs, each once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import both_kit as hp
from haply.errors import HaplyError
from haply.models import Certain, Gaussian, Samples, Uniform
from haply.probability import equal_within
from timing_kit import THRESHOLD, WINDOW, assert_same, collect, random_sides, table_of, tables


def frame(engine, table):
    return hp.Table(engine, table)


@pytest.fixture(scope="module")
def events():
    return random_sides()


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", [1, 7])
def test_tables_by_time_alone(engine, events, cells):
    left, right = (frame(engine, table) for table in tables(events))
    with engine.settings(cells=cells):
        if cells == 1:
            none = hp.join(left, right, time="t", window=WINDOW, threshold=THRESHOLD, probability="none")
            assert collect(none, ()).keys() == events.wanted.keys()
        else:
            found = collect(hp.join(left, right, time="t", window=WINDOW, threshold=THRESHOLD))
            assert_same(found, events.wanted)


def with_values(events):
    """Each pair's probability by time times that by value."""
    wanted = {}
    for i in range(60):
        p = equal_within(
            Gaussian(np.full(60, events.values[0][i]), np.full(60, 2.0)),
            Gaussian(events.values[1], np.full(60, 2.0)),
            3.0,
        )
        in_time = equal_within(events.models[0].take(np.full(60, i)), events.models[1], WINDOW)
        for j in np.flatnonzero((p * in_time >= THRESHOLD) & (events.keys[0][i] == events.keys[1])):
            wanted[i, int(j)] = (p * in_time)[j]
    return wanted


def test_probabilities_of_time_and_value_multiply(engine, events):
    left, right = (frame(engine, table) for table in tables(events))
    on = "abs(left.x - right.x) <= 3 AND left.k = right.k"
    plan = hp.plan_join(left, right, on, THRESHOLD, time="t", window=WINDOW)
    assert "multiplied" in plan.explain(verbose=True)
    wanted = with_values(events)
    assert 10 < len(wanted) < len(events.wanted)
    assert_same(collect(plan.run()), wanted)
    # a one-sided condition: the time tells which rows may meet
    found = collect(hp.join(left, right, "left.x > right.x AND left.k = right.k", THRESHOLD, time="t", window=WINDOW))
    greater = {}
    for i, j in events.wanted:
        if events.keys[0][i] == events.keys[1][j]:
            above = hp.probability.greater(Gaussian(events.values[0][i], 2.0), Gaussian(events.values[1][j], 2.0))[0]
            if above * float(events.wanted[i, j]) >= THRESHOLD:
                greater[i, j] = above * float(events.wanted[i, j])
    assert len(greater) > 10
    assert_same(found, greater)


def test_distances_and_times_multiply(engine):
    rng = np.random.default_rng(8)
    points = rng.uniform(0.0, 6.0, (2, 25, 1, 2)) + rng.normal(0.0, 0.5, (2, 25, 4, 2))
    times = [Uniform(at - 3.0, at) for at in rng.uniform(0.0, 30.0, (2, 25))]
    frames = [frame(engine, table_of(np.arange(25), times[k], pos=Samples(points[k]).to_arrow())) for k in range(2)]
    found = collect(hp.join(*frames, "distance(left.pos, right.pos) <= 2", 0.25, time="t", window=4))
    wanted = {}
    for i in range(25):
        near = hp.probability.within_distance(Samples(points[0][[i] * 25]), Samples(points[1]), 2.0)
        near = near * equal_within(times[0].take(np.full(25, i)), times[1], 4.0)
        wanted |= {(i, int(j)): near[j] for j in np.flatnonzero(near >= 0.25)}
    assert len(wanted) > 10
    assert_same(found, wanted)


def test_certain_and_uncertain_times_meet(engine):
    """A certain time beside a histogram, as a number and as a timestamp; and two certain ones by the window alone."""
    at = np.arange(0.0, 60.0, 3.0) + 1.7e9
    uncertain = Uniform(at - 2.0, at + 2.0)
    moments = np.arange(0.0, 60.0, 2.0) + 1.7e9
    stamps = pa.array((moments * 1e6).astype(np.int64), pa.timestamp("us", "UTC"))
    left = frame(engine, table_of(np.arange(20), uncertain))
    i, j = (grid.ravel() for grid in np.meshgrid(np.arange(20), np.arange(30), indexing="ij"))
    p = equal_within(uncertain.take(i), Certain(moments[j]), 3.0)
    wanted = {(int(a), int(b)): q for a, b, q in zip(i, j, p, strict=True) if q >= 0.4}
    for times in (pa.array(moments), stamps):
        right = frame(engine, pa.table({"id": np.arange(30), "t": times}))
        found = hp.join(left, right, time="t", window="3 seconds" if times is stamps else 3, threshold=0.4)
        assert found.columns == ["id_left", "t_left", "id_right", "t_right", "probability"]
        assert_same(collect(found), wanted)
    alone = collect(hp.join(right, right, time="t", window=4))
    assert alone == {(a, b): 1.0 for a in range(30) for b in range(30) if abs(a - b) <= 2}


def test_bad_and_missing_times(engine):
    rows = [(1, {"edges": [0.0, 1.0], "probs": [1.0]}), (2, {"edges": [1.0, 0.0], "probs": [1.0]}), (3, None)]
    kind = "id long, t struct<edges:array<double>,probs:array<double>>"
    odd, good = engine.createDataFrame(rows, kind), engine.createDataFrame(rows[:1], kind)
    with pytest.raises(Exception, match=r"(?s)Column 't' of the left table.*edges not increasing"):
        hp.join(odd, good, None, 0.5, time="t", window=1).collect()
    funnel = hp.Funnel()
    certain = "left.id >= 0 AND right.id >= 0"
    found = hp.join(odd, good, certain, 0.5, time="t", window=1, invalid="drop", funnel=funnel)
    assert collect(found).keys() == {(1, 1)}
    counts = funnel.to_dict()
    assert (counts["invalid_left"], counts["null_left"], counts["invalid_right"]) == (1, 1, 0)
    valued = [frame_.withColumn("x", hp.gaussian("id", 1.0)) for frame_ in (odd, good)]
    with pytest.raises(Exception, match=r"(?s)Column 't' of the left table.*edges not increasing"):
        hp.join(*valued, "abs(left.x - right.x) <= 9", 0.5, time="t", window=1).collect()
    funnel = hp.Funnel()
    found = hp.join(*valued, "abs(left.x - right.x) <= 9", 0.5, time="t", window=1, invalid="drop", funnel=funnel)
    assert collect(found).keys() == {(1, 1)}
    assert funnel.to_dict()["invalid_left"] == 1


def test_errors_when_it_is_built(engine):
    table = engine.createDataFrame([(1, (0.0, 1.0), 5.0)], "id long, t struct<mean:double,sd:double>, x double")
    for arguments, text in (
        ({"time": "t", "window": -1, "threshold": 0.5}, "window is no length"),
        ({"time": "t", "window": 1, "threshold": 1.5}, "threshold is not a probability"),
        ({"time": "t", "window": 1, "threshold": 0}, "threshold is not a probability"),
        ({"time": "t", "window": 1, "threshold": 0.5, "max_delay": -1}, "max_delay"),
        ({"time": "t", "window": 1}, "Without a threshold"),
        ({"time": "u", "window": 1, "threshold": 0.5}, "no column 'u'|unknown|'u'"),
        ({"time": "t", "window": 1, "threshold": 0.5, "on": "left.t > right.t"}, "is the time and part of another"),
    ):
        with pytest.raises(HaplyError, match=text):
            hp.join(table, table, **arguments)


# -- streams -----------------------------------------------------------------------------------------------------------
