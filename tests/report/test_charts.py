"""Charts: what they say, that they draw, and what they refuse."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
import vl_convert

from haply.drawing.funnel import funnel_chart, in_words
from haply.errors import HaplyError
from haply.models import Gaussian
from haply.probability.region import Region
from haply.pruning.threshold import Threshold
from haply.report.charts import (
    ALARM,
    BLOCK,
    BOTH_WAYS,
    BY_DETECTION,
    BY_OCCURRENCE,
    DETECTION,
    FALSE_ALARM,
    FOLLOWED,
    MAY_HAVE,
    NEITHER_WAY,
    OTHER_ALARM,
    OUTLIER,
    ROUTE,
    STRAY,
    TODAY,
    TRACK,
    USUAL,
    alarm_timeline,
    histogram_records,
    pair_densities,
    position_map,
    probability_histogram,
    threshold_curves,
    track_timeline,
    waterfall_chart,
)
from haply.report.explain import density_records, explain_pair

STAGES = ("pairs possible", "candidates", "not rejected by a bound", "evaluated exactly", "kept")


def stages(*pairs: int) -> list[dict[str, Any]]:
    return [{"stage": stage, "pairs": count} for stage, count in zip(STAGES, pairs, strict=True)]


def drawn(chart: Any) -> tuple[list[str], str]:
    """The texts of the chart as drawn, and the drawing."""
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    return [unescape(text) for text in re.findall(r"<(?:text|tspan)[^>]*>([^<]+)</(?:text|tspan)>", svg)], svg


def score(method: str, setting: str, threshold: float | None, precision: float, recall: float) -> dict[str, Any]:
    f1 = 2 * precision * recall / (precision + recall)
    return {
        "method": method, "setting": setting, "threshold": threshold,
        "precision": precision, "recall": recall, "f1": f1, "marked": True,
    }  # fmt: skip


SCORES = [
    score("haply", "P ≥ 0.1", 0.1, 0.8, 0.9),
    score("haply", "P ≥ 0.5", 0.5, 0.95, 0.5),
    score("fixed tolerance", "±1 °C", None, 0.7, 0.8),
    score("plain join", "equal", None, 0.9, 0.1),
]
PAIR = (Gaussian(61.2, 0.1), Gaussian(63.0, 2.1))
FAR_PAIR = (Gaussian(61.2, 0.1), Gaussian(63.0, 0.1))


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0"),
        (999, "999"),
        (24_940, "24,940"),
        (903_993_016, "904 million"),
        (2.5e9, "2.5 billion"),
        (1e13, "10 trillion"),
    ],
)
def test_counts_in_words(count: float, words: str) -> None:
    assert in_words(count) == words


def test_the_funnel_labels_its_bars_and_states_the_finding() -> None:
    texts, svg = drawn(funnel_chart(stages(900_000_000, 31_000, 25_000, 25_000, 24_937)))
    assert "Of 900 million possible pairs, one in 36,000 needed its exact probability" in texts
    assert {"900,000,000", "24,937", "1 thousand", "1 billion", *STAGES} <= set(texts)
    assert "NaN" not in svg


@pytest.mark.parametrize(
    ("pairs", "title"),
    [
        ((0, 0, 0, 0, 0), "No pairs: the join has not run, or a side is empty"),
        ((12, 1, 0, 0, 0), "Of 12 possible pairs, none needed its exact probability"),
        ((12, 12, 12, 12, 12), "Of 12 possible pairs, one in 1 needed its exact probability"),
    ],
)
def test_a_funnel_may_hold_zeros(pairs: tuple[int, ...], title: str) -> None:
    texts, svg = drawn(funnel_chart(stages(*pairs)))
    assert title in texts
    assert "NaN" not in svg
    assert "Infinity" not in svg


def test_histogram_records_count_every_pair_once() -> None:
    records = histogram_records([0.0, 0.049, 0.05, 0.5, 1.0], ["a", "a", "b", "b", "a"], bins=20)
    assert sum(record["pairs"] for record in records) == 5
    by_place = {(record["kind"], record["low"]): record["pairs"] for record in records}
    assert by_place["a", 0.0] == 2
    assert by_place["b", 0.05] == 1
    assert by_place["a", 0.95] == 1  # a certain pair falls into the last bin


def test_the_histogram_draws_bars_for_each_kind() -> None:
    records = histogram_records([0.1, 0.9, 0.95, 0.99], ["true", "true", "false", "false"])
    texts, svg = drawn(probability_histogram(records, threshold=0.2))
    assert "75% of the pairs are more likely than not" in texts
    assert {"true", "false", "threshold 0.2"} <= set(texts)
    assert "NaN" not in svg


def test_an_empty_histogram_says_so() -> None:
    records = [{"low": 0.0, "high": 1.0, "kind": "pairs", "pairs": 0}]
    assert "No pairs" in drawn(probability_histogram(records))[0]


def test_the_curves_name_the_marked_points() -> None:
    texts, _ = drawn(threshold_curves(SCORES))
    assert {"P ≥ 0.1", "±1 °C", "equal", "precision", "recall", "threshold"} <= set(texts)
    assert "Best F1: 0.85 by probability, 0.75 by fixed tolerance" in texts


def test_the_curves_do_not_flatter() -> None:
    better = score("fixed tolerance", "±1 °C", None, 0.9, 0.95)
    assert "Best F1: 0.92 by fixed tolerance, 0.85 by probability" in drawn(threshold_curves([*SCORES, better]))[0]


def test_the_waterfall_ends_at_the_exact_value() -> None:
    steps = explain_pair(*PAIR, Region(-0.5, 0.5), Threshold(0.1))
    texts, svg = drawn(waterfall_chart([step.record() for step in steps], threshold=0.1))
    assert "Rule by rule the bounds close in on 0.131: kept" in texts
    assert {step.rule for step in steps} <= set(texts)
    assert {"threshold 0.1", "kept", "cannot tell"} <= set(texts)
    assert "NaN" not in svg


def test_the_waterfall_names_the_rule_that_rejects() -> None:
    steps = explain_pair(*FAR_PAIR, Region(-0.5, 0.5), Threshold(0.1))
    texts, _ = drawn(waterfall_chart([step.record() for step in steps], threshold=0.1))
    assert "Rejected by the rule 'core regions': the exact value is never computed" in texts
    assert "not kept" in texts


def test_densities_stay_in_the_range_of_the_values() -> None:
    records = density_records(*PAIR, ("probe", "logger"))
    texts, svg = drawn(pair_densities(records, unit="°C", within=(60.7, 61.7)))
    assert {"probe", "logger", "tolerance", "value (°C)"} <= set(texts)
    assert "0" not in texts  # the axis does not begin at zero
    assert "NaN" not in svg


def mark(kind: str, x: float, y: float, radius: float = 0.0) -> dict[str, Any]:
    return {"kind": kind, "x": x, "y": y, "radius": radius}


MARKS = [
    mark(USUAL, 0, 0),
    mark(USUAL, 290, 10),
    mark(TODAY, 100, 10, 40),
    mark(TODAY, 200, 5, 4),
    mark(OUTLIER, 210, 90, 4),
    mark(ALARM, 210, 90),
    mark(OTHER_ALARM, 100, 10),
    mark(OTHER_ALARM, 210, 90),
]


def a_map(records: list[dict[str, Any]]) -> dict[str, Any]:
    route = [(0, 0), (300, 0)]
    return position_map(
        records, route=route, streets=[route], blocks=[(80, 20, 120, 60)], names=[(0, -5, "start")]
    ).to_dict()


def test_the_map_has_equal_scales() -> None:
    spec = a_map(MARKS)
    axes = [layer["encoding"] for layer in spec["layer"]]
    spans = {
        channel: {tuple(encoding[channel]["scale"]["domain"]) for encoding in axes if channel in encoding}
        for channel in ("x", "y")
    }
    ((left, right),), ((bottom, top),) = spans["x"], spans["y"]  # all layers have the same ones
    assert spec["width"] / (right - left) == pytest.approx(spec["height"] / (top - bottom))
    # the widest circle is on it as a whole
    assert bottom <= 10 - 40
    assert left <= 0
    assert right >= 300
    assert top >= 94


def test_circles_on_the_map_are_true_to_scale() -> None:
    spec = a_map(MARKS)
    low, high = spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    for shrink in (1.0, 0.5):  # a narrow page draws the whole map smaller
        size = {"width": shrink * spec["width"], "height": shrink * spec["height"]}
        svg = vl_convert.vegalite_to_svg(spec | size)
        radii = {float(radius) for radius in re.findall(r'd="M([0-9.]+),0A', svg)}
        for metres in (40.0, 4.0):
            pixels = metres * size["width"] / (high - low)
            assert any(radius == pytest.approx(pixels, abs=0.01) for radius in radii)


def test_the_map_names_what_it_shows_below_it() -> None:
    spec = a_map(MARKS)
    texts, svg = drawn(position_map(MARKS, route=[(0, 0), (300, 0)], blocks=[(80, 20, 120, 60)]))
    assert "1 of today's 3 positions are outliers: 1 alarm; by the nearest centre, 2 alarms" in texts
    for kind in (ROUTE, USUAL, TODAY, OUTLIER, ALARM, OTHER_ALARM, BLOCK):
        assert texts.count(kind) == 1
    assert "NaN" not in svg
    legends = [
        encoding[channel]["legend"]
        for encoding in (layer["encoding"] for layer in spec["layer"])
        for channel in ("color", "shape")
        if channel in encoding
    ]
    assert {legend["orient"] for legend in legends} == {"bottom"}
    calm, _ = drawn(position_map(MARKS[:3], route=[(0, 0), (300, 0)]))
    assert OUTLIER not in calm
    assert "0 of today's 1 positions are outliers: no alarms; by the nearest centre, no alarms" in calm


def event(row: str, number: int, detected: float, *edges: float) -> dict[str, Any]:
    probs = [1.0 / (len(edges) - 1)] * (len(edges) - 1)
    return {"event": f"{row} {number}", "row": row, "detected": detected, "edges": list(edges), "probs": probs}


def link(kind: str, left: int, right: int, true: bool) -> dict[str, Any]:
    return {"kind": kind, "left": f"seismic {left}", "right": f"acoustic {right}", "true": true}


EVENTS = [
    event("seismic", 0, 12, 10, 11, 12),
    event("seismic", 1, 12.5, 10.5, 11.5, 12.5),
    event("seismic", 2, 40, 38, 40),
    event("acoustic", 0, 16, 9, 11, 14),
    event("acoustic", 1, 41, 34, 39),
]
LINKS = [
    link(BY_OCCURRENCE, 0, 0, True),
    link(BY_OCCURRENCE, 1, 0, False),
    link(BY_DETECTION, 2, 1, True),
]


def an_alarm_timeline(events: list[dict[str, Any]]) -> dict[str, Any]:
    return alarm_timeline(events, LINKS).to_dict()


def test_the_timeline_of_alarms_says_what_is_missed_and_names_what_it_shows() -> None:
    texts, svg = drawn(alarm_timeline(EVENTS, LINKS))
    assert "Of 2 true pairs here, matching by detection misses 1, by when they happened 1" in texts
    for kind in (MAY_HAVE, DETECTION, FALSE_ALARM, BY_OCCURRENCE, BY_DETECTION, "seismic", "acoustic"):
        assert texts.count(kind) == 1
    assert not {BOTH_WAYS, NEITHER_WAY} & set(texts)
    assert "NaN" not in svg
    calm, _ = drawn(alarm_timeline(EVENTS, []))
    assert FALSE_ALARM not in calm
    assert "Of 0 true pairs here, matching by detection misses 0, by when they happened 0" in calm


def test_bars_on_the_timeline_lie_where_the_events_may_and_never_on_each_other() -> None:
    layers = an_alarm_timeline(EVENTS)["layer"]
    bars = layers[0]["data"]["values"]
    assert [(bar["x"], bar["x2"]) for bar in bars[:2]] == [(10, 11), (11, 12)]
    assert max(bar["shade"] for bar in bars) == 1.0
    for k, one in enumerate(bars):
        for other in bars[k + 1 :]:
            apart = one["x2"] <= other["x"] or other["x2"] <= one["x"]
            assert apart or one["y2"] < other["y"] or other["y2"] < one["y"]
    # the acoustic row is above, on an axis that grows upwards
    row = {bar["x"]: bar["y"] for bar in bars}
    assert row[9] > row[10]


def test_links_join_means_or_detections() -> None:
    layers = an_alarm_timeline(EVENTS)["layer"]
    ends = [row for layer in layers for row in layer["data"]["values"] if "y2" in row and row["kind"] != MAY_HAVE]
    found = {(row["kind"], row["x"], row["x2"]) for row in ends}
    assert found == {(BY_OCCURRENCE, 11, 11.25), (BY_OCCURRENCE, 11.5, 11.25), (BY_DETECTION, 40, 41)}
    (cross,) = [row for layer in layers for row in layer["data"]["values"] if row.get("kind") == FALSE_ALARM]
    assert cross["x"] == pytest.approx(11.375)


LANES = ("gate", "bridge")


def sighting(lane: str, minute: float, name: str, track: int | None) -> dict[str, Any]:
    return {"lane": lane, "minute": minute, "name": name, "track": track}


SIGHTINGS = [
    sighting("gate", 1, "AB 1", 0),
    sighting("bridge", 2, "AB 1", 0),
    sighting("gate", 3, "CD 2", 1),
    sighting("bridge", 4, "CD 2", 1),
    sighting("gate", 9, "CD 2", 2),
    sighting("bridge", 10, "CD 2", 2),
    sighting("bridge", 7, "EF 3", None),
]


def a_track_timeline(records: list[dict[str, Any]]) -> dict[str, Any]:
    return track_timeline(records, lanes=LANES).to_dict()


def test_the_timeline_of_tracks_names_who_was_followed_most_often() -> None:
    texts, svg = drawn(track_timeline(SIGHTINGS, lanes=LANES))
    assert "3 drives in 7 sightings; 1 sighting belongs to none" in texts
    assert texts.count("CD 2") == 2
    assert "AB 1" not in texts
    for kind in (FOLLOWED, TRACK, STRAY, *LANES):
        assert texts.count(kind) == 1
    assert texts.index("gate") < texts.index("bridge")
    assert "NaN" not in svg
    empty, _ = drawn(track_timeline(SIGHTINGS[-1:], lanes=LANES))
    assert FOLLOWED not in empty
    assert "0 drives in 1 sighting; 1 sighting belongs to none" in empty


@pytest.mark.parametrize(
    "chart",
    [
        probability_histogram,
        threshold_curves,
        waterfall_chart,
        pair_densities,
        a_map,
        an_alarm_timeline,
        a_track_timeline,
    ],
)
def test_records_that_cannot_be_shown_are_refused(chart: Any) -> None:
    with pytest.raises(HaplyError, match="nothing to show"):
        chart([])
    with pytest.raises(HaplyError, match=r"lack .*Expected"):
        chart([{"something": 1}])
