"""Our own experiments of the bench ``usj``: batches, cascades of rules, and where the time of a timestamp goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks import usj_data as data
from benchmarks.measure import OURS, Claim, Figure
from benchmarks.usj_data import Streams
from benchmarks.usj_figures import GRID, PER_TIMESTAMP, Lab, Scale, rows_by, seconds_span, span
from benchmarks.usj_runs import ALL_BUT_ROWS, RULES_OF, FullWindows, Query, Sliding, best_of, undecided
from haply.models import Samples
from haply.probability.distance import clouds
from haply.pruning.bounds.clouds import describe
from haply.pruning.candidates.grid import empty_grid, group_batch, insert, objects_near

VARIANTS: dict[str, tuple[str, ...]] = {
    "OP": ("balls",),
    "OP+SP": ("balls", "spheres"),
    "OP+shell": ("balls", "shell"),
    "OP+line": ("balls", "line"),
    "core": ("core",),
    "core+moments": ("core", "balls", "moments"),
    "all bounds": ALL_BUT_ROWS,
}
"""Sets of rules that U-B2 compares."""

RULES_OF_HAPLY = (*ALL_BUT_ROWS, "rows")

GROWING: dict[str, tuple[str, ...]] = {
    "none": (),
    "core": ("core",),
    "+ moments": ("core", "balls", "moments"),
    "+ line": ("core", "balls", "moments", "line"),
    "+ shell": ALL_BUT_ROWS,
    "+ rows (all)": RULES_OF_HAPLY,
}
"""One rule after the other."""


def batches(lab: Lab) -> Figure:
    """Measure U-B1: objects that arrive together share searches of the grid, at the price of more candidates."""
    scale = lab.scale
    rows: list[dict[str, Any]] = []
    longest = max(scale.batches)
    count = max(1, scale.steps // 3)
    for source in (
        data.gps(scale.window + longest * count, scale.seed),
        data.sensor(scale.window + longest * count, scale.seed, dim=scale.dim),
    ):
        streams = lab.streams(source, rows=scale.window + longest * count)
        within = lab.distance(streams)
        alone = 0.0
        for size in scale.batches:
            lab.tell(f"U-B1: {source.name}, batches of {size}")
            groups, listed = _searches(streams, scale.window, within, size, longest * count)
            alone = alone or listed
            rows.append(
                {
                    "data": source.name,
                    "batch": size,
                    "groups per object": groups,
                    "listed per object": listed,
                    "listed x single": listed / alone,
                    **{
                        name: Sliding(streams, scale.window, Query(within, scale.threshold, RULES_OF[name]), size)
                        .run(count)
                        .seconds
                        for name in (OURS, GRID)
                    },
                }
            )
    claims = []
    for name, group in rows_by(rows, "data").items():
        claims.append(
            Claim(
                f"{name}: batches need fewer searches, 0.42 groups per object for 1.27 times the candidates in our "
                "notes (at most 0.6 groups for at most 1.5 times, at one size)",
                "; ".join(
                    f"batches of {row['batch']}: {row['groups per object']:.2f} for {row['listed x single']:.2f} times"
                    for row in group[1:]
                ),
                any(row["groups per object"] <= 0.6 and row["listed x single"] <= 1.5 for row in group),
            )
        )
        claims.append(
            Claim(
                f"{name}: the grid takes less time per timestamp in batches (ours; largest batch over single)",
                f"{group[-1][GRID] / group[0][GRID]:.2f} times, haply {group[-1][OURS] / group[0][OURS]:.2f} times",
                group[-1][GRID] < group[0][GRID],
            )
        )
    return Figure(
        "U-B1",
        f"batches: searches and time, rUrG, w = {scale.window:,}",
        rows,
        x="batch",
        lines=(OURS, GRID),
        y_title=PER_TIMESTAMP,
        panel="data",
        log_x=True,
        seconds=(OURS, GRID),
        claims=claims,
    )


def _searches(streams: Streams, window: int, within: float, size: int, objects: int) -> tuple[float, float]:
    """Count groups, and objects that the grid lists, per arriving object, against one full window."""
    stored, new = (
        describe(clouds(Samples(points)), np.zeros(len(points)), 1.0).near
        for points in (streams.left[:window], streams.right[window : window + objects])
    )
    dim, radii = streams.dim, stored[streams.dim]
    widest = float(radii.max())
    grid = empty_grid(window, within + float(radii.mean()) + widest)
    insert(grid, stored, dim, 0, window)
    slots = np.empty(window, np.int64)
    groups = listed = 0
    for begin in range(0, objects - size + 1, size):
        ends, centres, reach = group_batch(np.ascontiguousarray(new[:, begin : begin + size]), dim, within, widest)
        members = np.diff(ends, prepend=0)
        groups += len(ends)
        for centre, radius, many in zip(centres, reach, members.tolist(), strict=True):
            found = objects_near(
                grid, stored, dim, 0, window, centre, within + radius, widest, np.empty((3, dim)), slots
            )
            listed += many * (window if found < 0 else found)
    done = size * (objects // size)
    return groups / done, listed / done


def cascades(lab: Lab) -> Figure:
    """Measure U-B2: how many pairs sets of rules leave undecided, over gamma and the range of radii."""
    rows: list[dict[str, Any]] = []
    for (radii, within, threshold), streams in _cascade_settings(lab, "U-B2"):
        left = {}
        for name, rules in VARIANTS.items():
            windows = FullWindows(streams.left, streams.right, Query(within, threshold, rules))
            left[name] = 100.0 * undecided(windows.counted()) / windows.pairs
        rows.append({"radii": radii, "distance": within, "gamma": threshold} | left)
    claims = []
    middling = [row for row in rows if row["gamma"] == lab.scale.threshold] or rows
    widest = middling[-1]
    fewer = [row["OP+SP"] / max(row["all bounds"], 1e-9) for row in middling]
    for rival in ("OP+SP", "OP+shell"):
        ratios = [row[rival] / max(row["OP+line"], 1e-9) for row in rows]
        claims.append(
            Claim(f"OP+line leaves no more pairs than {rival} (ours)", span(ratios, " times fewer"), min(ratios) >= 1.0)
        )
    claims.append(
        Claim(
            f"at gamma {widest['gamma']:g} and the widest radii, all bounds leave about 11 times fewer pairs than "
            "OP+SP: 14.4% -> 1.27% in our notes (at least 5 times)",
            f"{widest['OP+SP']:.3g}% -> {widest['all bounds']:.3g}%, {fewer[-1]:.3g} times fewer; over all ranges "
            f"{span(fewer, ' times')}",
            fewer[-1] >= 5.0,
        )
    )
    return Figure(
        "U-B2",
        f"pairs that bounds leave undecided, % of all, GPS_rUrU, w = {lab.scale.cascade_window:,}",
        rows,
        x="gamma",
        lines=tuple(VARIANTS),
        y_title="undecided, % of all pairs (logarithmic)",
        panel="radii",
        claims=claims,
        notes=["a rule is asked only where a guess says that it pays, here as in the whole cascade"],
    )


def cascade_rules(lab: Lab) -> Figure:
    """Measure for U-B2 what each rule of haply's cascade rejects and accepts."""
    rows: list[dict[str, Any]] = []
    for (radii, within, threshold), streams in _cascade_settings(lab, "U-B2 by rule"):
        counts = FullWindows(streams.left, streams.right, Query(within, threshold)).counted()
        percent = 100.0 / counts.candidates
        decided = {
            f"{rule} {sign}": percent * by_rule[rule]
            for rule in RULES_OF_HAPLY
            for sign, by_rule in (("-", counts.rejected), ("+", counts.accepted))
            if (rule, sign) not in {("core", "+"), ("balls", "-")}  # these rules never do so
        }
        rows.append(
            {"radii": radii, "gamma": threshold, "joining": percent * counts.kept}
            | decided
            | {"in full": percent * counts.evaluated}
        )
    partly = [row["in full"] / max(row["in full"] + row["rows -"] + row["rows +"], 1e-9) for row in rows]
    return Figure(
        "U-B2-rules",
        "what each rule rejects (-) and accepts (+), % of all pairs",
        rows,
        x="gamma",
        lines=("core -", "moments -", "line -", "shell -", "rows -", "in full"),
        y_title="decided, % of all pairs (logarithmic)",
        panel="radii",
        claims=[
            Claim(
                "of the pairs whose samples are compared, most are decided before all are (ours; share in full)",
                span(partly),
                max(partly) < 0.5,
            )
        ],
        notes=["rows: decided while samples were compared; in full: only when all had been"],
    )


def _cascade_settings(lab: Lab, name: str) -> Iterator[tuple[tuple[str, float, float], Streams]]:
    """Yield the range of radii, distance and threshold, and the streams."""
    (source,) = (source for source in lab.made_up if source.name == data.GPS)
    size = lab.scale.cascade_window
    for low, high in lab.scale.ranges:
        streams = lab.streams(source, "rUrU", size, radii=(low, high))
        within = lab.distance(streams, size)
        for threshold in lab.scale.thresholds:
            lab.tell(f"{name}: radii {low:g} to {high:g}, gamma {threshold:g}")
            yield (f"{low:g} to {high:g}", within, threshold), streams


def rule_by_rule(lab: Lab) -> Figure:
    """Measure what each rule saves: the time of all pairs of two full windows, and the samples compared."""
    scale = lab.scale
    rows: list[dict[str, Any]] = []
    for source in lab.made_up:
        streams = lab.streams(source, rows=scale.window)
        within = lab.distance(streams)
        before: float | None = None
        for name, rules in GROWING.items():
            lab.tell(f"rules: {source.name}, {name}")
            size = scale.window if rules else max(1, scale.window // 20)  # without rules every pair costs the same
            query = Query(within, scale.threshold, rules)
            windows = FullWindows(streams.left, streams.right[:size], query)
            counts = FullWindows(streams.left, streams.right[:size], query).counted()
            each = 2.0 * scale.window / windows.pairs  # a timestamp adds two rows of pairs
            seconds = each * best_of(scale.repetitions if rules else 1, windows.match)
            rows.append(
                {
                    "data": source.name,
                    "rules": name,
                    "time": seconds,
                    "saved": None if before is None else before - seconds,
                    "undecided": each * undecided(counts),
                    "in full": each * counts.evaluated,
                }
            )
            before = seconds
    return Figure(
        "rules",
        f"one rule after the other: matching per timestamp, rUrG, w = {scale.window:,}",
        rows,
        x="rules",
        lines=("time",),
        y_title=PER_TIMESTAMP,
        panel="data",
        seconds=("time", "saved"),
    )


# -- growth ------------------------------------------------------------------------------------------------------------

PARTS = ("samples", "arrival", "index", "candidates", "rules", "refinement", "calls")
"""Checking the samples of both objects; describing them; storing them and forgetting old ones; the search with the core
rule; the other rules; comparing samples; and the rest, which is the Python code around these, and the results."""


def parts_of_a_timestamp(streams: Streams, window: int, within: float, scale: Scale) -> dict[str, Any]:
    """Measure the parts of the time of one timestamp.

    Samples, arrival, index and the whole are medians over timestamps. The parts of the matching come from batches, in
    which a call costs little. The search alone is timed with objects that come too late for all others. The rules are
    timed with all rules except the early stop, minus the cost of the undecided pairs, each as much as a pair without
    rules.
    """
    ran = Sliding(streams, window, Query(within, scale.threshold)).run(scale.steps)
    many = min(window, scale.steps)
    new = streams.right[window : window + many]

    def matched(rules: str | tuple[str, ...], objects: np.ndarray, too_late: bool = False) -> tuple[float, float]:
        """Return seconds, and pairs whose samples were compared, both for as many objects as a timestamp has."""
        query = Query(within, scale.threshold, rules)
        windows = FullWindows(streams.left[:window], objects, query, window, too_late)
        share = 2.0 / len(objects)
        compared = share * undecided(windows.counted())
        return share * best_of(scale.repetitions, windows.match), compared

    (matching, _), (search, _) = matched("auto", new), matched("auto", new, too_late=True)
    some = new[:20]
    (plain, compared), (nothing, _) = matched("none", some), matched("none", some, too_late=True)
    a_pair = (plain - nothing) / max(compared, 1.0)
    bounded, left = matched(ALL_BUT_ROWS, new)
    rules = max(0.0, bounded - search - left * a_pair)
    refinement = max(0.0, matching - search - rules)
    found = {
        **{name: ran.parts[name] for name in ("samples", "arrival", "index")},
        "candidates": search, "rules": rules, "refinement": refinement,
    }  # fmt: skip
    return {
        "pairs a timestamp": len(ran.answer.left) / scale.steps,
        **found,
        "calls": max(0.0, ran.seconds - sum(found.values())),
        "matching": matching,
        "all": ran.seconds,
        "WoP (per pair)": a_pair,
    }


_DURATIONS = (*PARTS, "matching", "all", "WoP (per pair)")


def growth_in_window(lab: Lab) -> Figure:
    """Measure how the parts of a timestamp grow with the window, in the same space and in one that grows with it."""
    scale = lab.scale
    rows: list[dict[str, Any]] = []
    within = lab.distance(lab.streams(data.gps(scale.rows, scale.seed)))
    for space in ("same space", "space grows with w"):
        for window in scale.growth_windows:
            lab.tell(f"growth: w = {window:,}, {space}")
            # the density of the default window in the default space
            box = data.BOX * ((window / scale.window) ** (1.0 / 3.0) if space != "same space" else 1.0)
            streams = lab.streams(data.gps(window + scale.steps, scale.seed, box=box), rows=window + scale.steps)
            rows.append({"space": space, "w": window} | parts_of_a_timestamp(streams, window, within, scale))
    usual = [row for row in rows if row["w"] == scale.window] or rows[:1]
    matching, whole = ([row[name] for row in usual] for name in ("matching", "all"))
    claims = [
        Claim(
            f"matching takes tens of microseconds per timestamp at w = {usual[0]['w']:,} (ours; below 100)",
            seconds_span(matching),
            max(matching) < 1e-4,
        ),
        Claim(
            f"so does all of a timestamp at w = {usual[0]['w']:,}, arrival, index and calls included (ours; below 100)",
            seconds_span(whole),
            max(whole) < 1e-4,
        ),
    ]
    return _growth("growth-w", "parts of a timestamp over the window, GPS_rUrG", rows, "w", "space", claims)


def growth_in_samples(lab: Lab) -> Figure:
    """Measure how the parts of a timestamp grow with the number of samples, at the same distance."""
    scale = lab.scale
    rows: list[dict[str, Any]] = []
    source = data.gps(scale.rows, scale.seed)
    within = lab.distance(lab.streams(source))
    for samples in scale.growth_samples:
        lab.tell(f"growth: l = {samples}")
        streams = lab.streams(source, samples=samples)
        rows.append({"data": source.name, "l": samples} | parts_of_a_timestamp(streams, scale.window, within, scale))
    title = f"parts of a timestamp over the samples of an object, GPS_rUrG, w = {scale.window:,}"
    return _growth("growth-l", title, rows, "l", "data", [])


def growth_in_dimension(lab: Lab) -> Figure:
    """Measure how the parts of a timestamp grow with the dimension, at equal selectivity."""
    scale = lab.scale
    rows: list[dict[str, Any]] = []
    for dim in scale.growth_dims:
        lab.tell(f"growth: d = {dim}")
        source = data.sensor(scale.rows, scale.seed, dim=dim)
        streams = lab.streams(source)
        within = lab.distance(streams)
        parts = parts_of_a_timestamp(streams, scale.window, within, scale)
        rows.append({"data": source.name, "d": dim, "distance": within} | parts)
    title = f"parts of a timestamp over the dimension at {scale.selectivity:.2%} joining pairs, w = {scale.window:,}"
    return _growth("growth-d", title, rows, "d", "data", [])


def _growth(name: str, title: str, rows: list[dict[str, Any]], x: str, panel: str, claims: list[Claim]) -> Figure:
    return Figure(
        name, title, rows, x=x, lines=(*PARTS, "all"), y_title=PER_TIMESTAMP, panel=panel, log_x=True,
        seconds=_DURATIONS, claims=claims,
        notes=["matching = candidates + rules + refinement; calls: Python around the kernels, and the results"],
    )  # fmt: skip


OURS_ALONE = (batches, cascades, cascade_rules, rule_by_rule, growth_in_window, growth_in_samples, growth_in_dimension)
"""All of these experiments."""
