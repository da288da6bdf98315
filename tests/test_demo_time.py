"""The demo's alarms and cameras: the planted truths, the scores, and what is found that simpler ways miss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from haply.demo.timing import (
    CAMERAS,
    LATENCIES,
    LEGS,
    THRESHOLD,
    WINDOW,
    AlarmResult,
    Night,
    alarm_records,
    best_window,
    follow_plates,
    follow_vehicles,
    match_detections,
    match_means,
    plant_night,
    plant_traffic,
    raise_alarms,
    score_alarms,
    score_tracks,
    track_records,
)
from haply.joins import TimingJoin, WindowJoin
from haply.models import Histogram
from haply.report import charts
from oracle_time import band_float, histogram


def happened(table: pa.Table) -> Histogram:
    """When each event happened, by hand: the latency mirrored and laid before the detection."""
    rows = table.to_pylist()
    edges = [[row["detected"] - edge for edge in reversed(row["edges"])] for row in rows]
    return Histogram(edges, [row["probs"][::-1] for row in rows])


def matched(night: Night) -> np.ndarray:
    """The pairs that the operator finds without Spark, as flags."""
    join = TimingJoin(WINDOW, THRESHOLD, max_delay=1e6)
    join.push("left", {"id": night.seismic["event"].to_numpy(), "time": happened(night.seismic)})
    found = join.push("right", {"id": night.acoustic["event"].to_numpy(), "time": happened(night.acoustic)})
    flags = np.zeros((night.seismic.num_rows, night.acoustic.num_rows), dtype=bool)
    flags[found.left, found.right] = True
    return flags


# -- alarms ------------------------------------------------------------------------------------------------------------


def test_latencies_are_distributions() -> None:
    for edges, probs in LATENCIES.values():
        assert sum(probs) == pytest.approx(1.0)
        assert list(edges) == sorted(edges)
        assert len(edges) == len(probs) + 1


def test_the_night_is_as_told() -> None:
    night = plant_night()
    true = night.true_pairs
    assert true.sum() == 200
    assert true.sum(0).max() == true.sum(1).max() == 1  # every event is of one passage or of none
    assert true.shape == (320, 320)
    # what is detected is late by no more than its sensor's latency and the time from step to noise allow
    late = night.detected_apart[true]
    assert late.min() > -3.0
    assert late.max() < 8.0
    asleep = np.array(night.acoustic["sensor"].to_pylist()) == "acoustic, asleep"
    assert 0.5 < asleep.mean() < 0.7


def test_the_same_seed_plants_the_same_night_and_traffic() -> None:
    assert plant_night(5).acoustic.equals(plant_night(5).acoustic)
    assert not plant_night(5).seismic.equals(plant_night(6).seismic)
    assert plant_traffic(5) == plant_traffic(5)
    assert plant_traffic(5) != plant_traffic(6)


def test_scores_of_alarms_count_what_they_say() -> None:
    night = plant_night()
    asleep = score_alarms("asleep", np.zeros_like(night.true_pairs), night)
    assert (asleep.found, asleep.missed, asleep.false_alarms) == (0, 200, 0)
    perfect = score_alarms("perfect", night.true_pairs, night)
    assert (perfect.found, perfect.missed, perfect.false_alarms) == (200, 0, 0)
    nervous = score_alarms("nervous", np.ones_like(night.true_pairs), night)
    assert (nervous.found, nervous.missed, nervous.false_alarms) == (200, 0, 320 * 320 - 200)
    assert nervous.errors == nervous.false_alarms


def test_when_it_happened_finds_what_detection_times_miss() -> None:
    for seed in range(1, 6):
        night = plant_night(seed)
        flags, naive = matched(night), match_detections(night)
        ours, theirs = score_alarms("haply", flags, night), score_alarms("detection", naive, night)
        rescued = int((flags & ~naive & night.true_pairs).sum())
        lost = int((naive & ~flags & night.true_pairs).sum())
        assert rescued > 60
        assert rescued > 3 * lost
        assert ours.found > 160
        assert theirs.found < 120
        assert ours.false_alarms < 1.25 * theirs.false_alarms  # strangers that happen to be near fool both
        # not even the window that suits this night best does as well
        assert ours.errors < best_window(night).errors <= theirs.errors
        # the mean latency does: it knows where the sensors' histograms lie
        assert abs(score_alarms("mean", match_means(night), night).errors - ours.errors) < 20


@pytest.fixture(scope="module")
def raised(spark: Any) -> AlarmResult:
    """The alarms of the demo."""
    return raise_alarms(spark)


def test_the_alarms_on_spark(raised: AlarmResult) -> None:
    result = raised
    night = result.night
    assert ((result.probability > 0.0) == matched(night)).all()
    # by hand, for some of the pairs that are near each other
    times = [
        [histogram(*zip(edges[:-1], edges[1:], probs, strict=True)) for edges, probs in _buckets(table)]
        for table in (night.seismic, night.acoustic)
    ]
    near = np.argwhere(np.abs(night.detected_apart) < 9.0)[::7]
    for left, right in near:
        p = band_float(times[0][left], times[1][right], WINDOW)
        assert result.probability[left, right] == pytest.approx(p if p >= THRESHOLD else 0.0, abs=1e-9)
    assert len(near) > 50
    assert result.rescued == result.haply.found - result.naive.found + _only_by_detection(result)
    assert result.rescued > 60
    assert result.stricter.false_alarms < result.haply.false_alarms
    assert result.tuned.errors <= result.naive.errors


def _buckets(table: pa.Table) -> list[tuple[list[float], list[float]]]:
    return [
        ([row["detected"] - edge for edge in reversed(row["edges"])], row["probs"][::-1]) for row in table.to_pylist()
    ]


def _only_by_detection(result: AlarmResult) -> int:
    return int((result.detected & (result.probability == 0.0) & result.night.true_pairs).sum())


def test_the_timeline_of_alarms_shows_a_stretch_as_it_is(raised: AlarmResult) -> None:
    result = raised
    events, links = alarm_records(result)
    names = {event["event"] for event in events}
    assert {event["row"] for event in events} == {"seismic", "acoustic"}
    assert len(links) >= 7
    ways = {
        charts.NEITHER_WAY: (False, False),
        charts.BY_OCCURRENCE: (True, False),
        charts.BY_DETECTION: (False, True),
        charts.BOTH_WAYS: (True, True),
    }
    for link in links:
        assert {link["left"], link["right"]} <= names
        left, right = (int(link[side].split()[1]) for side in ("left", "right"))
        assert ways[link["kind"]] == (result.probability[left, right] > 0.0, result.detected[left, right])
        assert link["true"] == result.night.true_pairs[left, right]
    assert charts.BY_OCCURRENCE in {link["kind"] for link in links}
    assert max(event["detected"] for event in events) <= 120.0
    assert min(event["edges"][0] for event in events) >= 0.0


# -- cameras -----------------------------------------------------------------------------------------------------------


def test_drives_are_in_order_and_in_time_and_some_come_again() -> None:
    for seed in range(1, 6):
        traffic = plant_traffic(seed)
        rows = {camera: table.to_pylist() for camera, table in traffic.sightings.items()}
        plates = []
        for drive in traffic.drives:
            seen = [rows[camera][number] for camera, number in zip(CAMERAS, drive, strict=True)]
            assert len({row["plate"] for row in seen}) == 1
            plates.append(seen[0]["plate"])
            gaps = np.diff([row["time"] for row in seen])
            assert (gaps > 0.0).all()
            assert (gaps <= list(LEGS.values())).all()
        assert len(set(plates)) < len(plates) == 24


def test_scores_of_tracks_count_what_they_say() -> None:
    traffic = plant_traffic()
    drives = traffic.drives
    some = set(sorted(drives)[3:]) | {(0, 0, 0, 0)}
    score = score_tracks("some", some, traffic)
    assert (score.found, score.missed, score.wrong) == (len(drives) - 3, 3, 1)


def test_windows_find_exactly_the_drives_and_plates_more() -> None:
    for seed in range(1, 6):
        traffic = plant_traffic(seed)
        join = WindowJoin(LEGS)
        tracks = set()
        for camera, table in traffic.sightings.items():
            rows = {"id": table["sighting"].to_pylist(), "time": table["time"].to_numpy()}
            found = join.push(camera, rows | {"key": table["plate"].to_pylist()})
            tracks |= {tuple(int(found.ids[name][k]) for name in CAMERAS) for k in range(len(found))}
        times = {camera: table["time"].to_numpy() for camera, table in traffic.sightings.items()}
        in_order = {
            track
            for track in tracks
            if (np.diff([times[camera][k] for camera, k in zip(CAMERAS, track, strict=True)]) > 0.0).all()
        }
        assert in_order == traffic.drives
        assert len(tracks) > len(in_order)  # those that come the other way
        road = follow_plates(traffic, sum(LEGS.values()))
        assert traffic.drives < road < follow_plates(traffic)


def test_the_cameras_on_spark(spark: Any) -> None:
    result = follow_vehicles(spark)
    traffic = result.traffic
    assert result.tracks == traffic.drives
    assert (result.haply.found, result.haply.missed, result.haply.wrong) == (len(traffic.drives), 0, 0)
    assert 0 < result.whole_road.wrong < result.plates.wrong
    shown = track_records(result)
    assert len(shown) == sum(table.num_rows for table in traffic.sightings.values())
    on_track = [record for record in shown if record["track"] is not None]
    assert len(on_track) == len(CAMERAS) * len(traffic.drives)
    for number in range(len(traffic.drives)):
        track = [record for record in on_track if record["track"] == number]
        assert [record["lane"] for record in track] == list(CAMERAS)
        assert len({record["name"] for record in track}) == 1
