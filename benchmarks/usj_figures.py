"""The paper's experiments of the bench ``usj``, its Figures 7 to 11, and what all experiments share.

Each gives a table, a chart, and the paper's claims checked with the numbers measured here. Each claim says how its
words are read as numbers. Times per timestamp are medians and contain everything from an object's samples to the pairs
of both its sides; the engines' pairs are compared on the timestamps that all engines have run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import usj_data as data
from benchmarks.measure import OURS, Claim, Figure, Tell, check_same, in_seconds
from benchmarks.usj_data import Source, Streams
from benchmarks.usj_runs import RULES_OF, FullWindows, Query, Sliding, distance_for, undecided

GRID, WOP = "OP+SP", "WoP"
ENGINES = tuple(RULES_OF)
PER_TIMESTAMP = "seconds per timestamp (logarithmic)"
DURATIONS = (*ENGINES, *(f"{name} matching" for name in ENGINES))
HALF_AN_ORDER = 10.0**0.5


@dataclass(frozen=True)
class Scale:
    """The sizes of the experiments; the sweeps are the paper's if its text has them, the ranges are our own."""

    window: int = 1000
    samples: int = 100
    dim: int = 3
    threshold: float = 0.5
    selectivity: float = 0.0015
    thresholds: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    dims: tuple[int, ...] = (2, 3, 4, 5)
    windows: tuple[int, ...] = (500, 1000, 1500, 2000)
    batches: tuple[int, ...] = (1, 2, 5, 10, 50)
    ranges: tuple[tuple[float, float], ...] = ((0.0, 1.0), (0.0, 2.0), (0.0, 3.0), (0.0, 5.0))
    cascade_window: int = 500
    growth_windows: tuple[int, ...] = (500, 1000, 2000, 10_000, 100_000)
    growth_samples: tuple[int, ...] = (10, 30, 100, 300)
    growth_dims: tuple[int, ...] = (2, 3, 5, 10)
    steps: int = 300
    slow_steps: int = 25
    repetitions: int = 3
    seed: int = 7

    @property
    def rows(self) -> int:
        """Objects that a stream of the default window needs."""
        return self.window + self.steps


@dataclass(frozen=True)
class Lab:
    """Shared by all experiments: their scale, the sources, the folder of real data, and the progress function."""

    scale: Scale
    made_up: list[Source]
    real: list[Source]
    folder: Path
    tell: Tell

    @property
    def sources(self) -> list[Source]:
        """Return generated and real sources."""
        return [*self.made_up, *self.real]

    def streams(self, source: Source, pair: str = "rUrG", rows: int | None = None, **options: Any) -> Streams:
        """Make clouds around the centres of a source."""
        scale = self.scale
        return data.make_streams(
            source, pair, rows or scale.rows, options.pop("samples", scale.samples), scale.seed, **options
        )

    def distance(self, streams: Streams, window: int | None = None) -> float:
        """Return the distance that gives the wanted share of pairs at the default threshold.

        It is found in two full windows from the middle of the streams; other parts are measured.
        """
        size = window or self.scale.window
        first = (len(streams.left) - size) // 2
        left, right = (points[first : first + size] for points in (streams.left, streams.right))
        return distance_for(left, right, self.scale.threshold, self.scale.selectivity)


def make_lab(scale: Scale, folder: str | None, tell: Tell) -> Lab:
    """Make the generated sources, and read those of the folder if there is one."""
    rows = max(scale.window, *scale.windows) + scale.steps
    made_up = [data.gps(rows, scale.seed), data.sensor(rows, scale.seed, dim=scale.dim)]
    if folder is None:
        tell("no folder of data is given: made-up streams only")
    found = [] if folder is None else data.real_sources(folder, rows, tell)
    short = {source.name for source in found if source.rows < scale.rows}
    for name in sorted(short):
        tell(f"{name}: fewer than {scale.rows:,} rows, left out")
    real = [source for source in found if source.name not in short]
    return Lab(scale, made_up, real, Path(folder or "."), tell)


# -- claims ------------------------------------------------------------------------------------------------------------


def span(values: Iterable[float], unit: str = "", digits: int = 3) -> str:
    """Return the least and the largest of some numbers as text.

    >>> span([81.04, 97.2], "%"), span([2.0])
    ('81 to 97.2%', '2')
    """
    numbers = list(values)
    low, high = (f"{pick(numbers):.{digits}g}" for pick in (min, max))
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def seconds_span(values: Iterable[float]) -> str:
    """Return the least and the largest of some durations as text."""
    numbers = list(values)
    low, high = in_seconds(min(numbers)), in_seconds(max(numbers))
    return low if low == high else f"{low} to {high}"


def _kinds(lab: Lab, rows: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Separate the rows of generated and of real data, which are checked apart."""
    real = {source.name for source in lab.real}
    parts = [
        ("made-up data", [row for row in rows if row["data"] not in real]),
        ("real data", [row for row in rows if row["data"] in real]),
    ]
    return [(name, part) for name, part in parts if part]


def rows_by(rows: Iterable[dict[str, Any]], field: str) -> dict[Any, list[dict[str, Any]]]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row[field], []).append(row)
    return groups


def _ratios(rows: Sequence[dict[str, Any]]) -> tuple[list[float], str]:
    """Return how much faster the grid is than WoP, as numbers and as text, which has that of the matching alone too."""
    whole = [row[WOP] / row[GRID] for row in rows]
    alone = (row[f"{WOP} matching"] / row[f"{GRID} matching"] for row in rows)
    return whole, f"{span(whole, ' times')} (matching alone {span(alone, ' times')})"


# -- the paper's figures -----------------------------------------------------------------------------------------------


def pruning_power(lab: Lab) -> Figure:
    """Measure U-F7: the share of all pairs that OP and SP prune, and the share that haply's bounds leave open."""
    scale = lab.scale
    rows: list[dict[str, Any]] = []
    wide = scale.ranges[-1]
    settings = [(source, (0.0, source.widest)) for source in lab.sources]
    settings += [(source, wide) for source in lab.made_up if wide[1] != source.widest]
    for source, radii in settings:
        lab.tell(f"U-F7: {source.name}, radii {radii[0]:g} to {radii[1]:g}")
        streams = lab.streams(source, rows=scale.window, radii=radii)
        within = lab.distance(streams)
        for threshold in scale.thresholds:
            counts = {
                name: FullWindows(streams.left, streams.right, Query(within, threshold, RULES_OF[name])).counted()
                for name in (GRID, OURS)
            }
            percent = 100.0 / counts[OURS].candidates
            op, sp = (percent * counts[GRID].rejected[rule] for rule in ("balls", "spheres"))
            rows.append(
                {
                    "data": f"{source.name}, radii {radii[0]:g} to {radii[1]:g}",
                    "distance": within,
                    "gamma": threshold,
                    "joining %": percent * counts[OURS].kept,
                    "OP %": op,
                    "SP %": sp,
                    "left by OP %": 100.0 - op,
                    "left by OP+SP %": percent * undecided(counts[GRID]),
                    "left by haply %": percent * undecided(counts[OURS]),
                }
            )
    return Figure(
        "U-F7",
        f"pairs that pruning leaves, rUrG, w = {scale.window:,}",
        rows,
        x="gamma",
        lines=("left by haply %", "left by OP+SP %", "left by OP %"),
        y_title="pairs left to refine, % of all (logarithmic)",
        panel="data",
        claims=_claims_of_power(rows),
        notes=[
            f"the distance lets {scale.selectivity:.2%} of the pairs join at gamma {scale.threshold:g}; "
            "'left by haply' counts every pair of which samples were compared, were it only some"
        ],
    )


def _claims_of_power(rows: Sequence[dict[str, Any]]) -> list[Claim]:
    groups = rows_by(rows, "data")
    op, sp = ({name: [row[field] for row in group] for name, group in groups.items()} for field in ("OP %", "SP %"))
    both = {name: [a + b for a, b in zip(op[name], sp[name], strict=True)] for name in groups}
    fewer = {
        name: [row["left by OP+SP %"] / max(row["left by haply %"], 1e-9) for row in group]
        for name, group in groups.items()
    }
    return [
        _everywhere("OP prunes 80 to 90%", op, "%", lambda values: min(values) >= 80.0 and max(values) <= 90.0),
        _everywhere("SP prunes a further 5 to 10%", sp, "%", lambda values: min(values) >= 5.0 and max(values) <= 10.0),
        _everywhere("SP grows with gamma", sp, "%", lambda values: values == sorted(values)),
        _everywhere("OP and SP together above 90%", both, "%", lambda values: min(values) > 90.0),
        _everywhere("haply leaves fewer than OP+SP (ours)", fewer, " times fewer", lambda values: min(values) > 1.0),
    ]


def _everywhere(claim: str, values: dict[str, list[float]], unit: str, holds: Callable[[list[float]], bool]) -> Claim:
    """Make a claim that must hold for each of several data sets."""
    held = [name for name, numbers in values.items() if holds(numbers)]
    said = "; ".join(f"{name}: {span(numbers, unit)}" for name, numbers in values.items())
    return Claim(claim, f"{len(held)} of {len(values)} bear it out: {said}", len(held) == len(values))


def _times(lab: Lab, streams: Streams, window: int, within: float, threshold: float) -> dict[str, Any]:
    """Measure seconds per timestamp of each engine, whole and matching alone, and haply's counts; all must agree."""
    scale = lab.scale
    runs = {
        name: Sliding(streams, window, Query(within, threshold, RULES_OF[name])).run(
            scale.slow_steps if name == WOP else scale.steps
        )
        for name in ENGINES
    }
    check_same("timestamps", {name: ran.first(scale.slow_steps) for name, ran in runs.items()})
    return (
        {"pairs a timestamp": len(runs[OURS].answer.left) / scale.steps}
        | {name: ran.seconds for name, ran in runs.items()}
        | {f"{name} matching": ran.parts["match"] for name, ran in runs.items()}
    )


def time_by_data(lab: Lab) -> Figure:
    """Measure U-F8: time per timestamp for all data and all kinds of radii."""
    scale = lab.scale
    rows: list[dict[str, Any]] = []
    for source in lab.sources:
        for pair in data.PAIRS:
            lab.tell(f"U-F8: {source.name}_{pair}")
            streams = lab.streams(source, pair)
            within = lab.distance(streams)
            where = {"data": source.name, "radii": pair, "distance": within}
            rows.append(where | _times(lab, streams, scale.window, within, scale.threshold))
    claims = []
    for kind, part in _kinds(lab, rows):
        (ratios, said), grid = _ratios(part), [row[GRID] for row in part]
        ours = {rival: span((row[rival] / row[OURS] for row in part), f" times {rival}") for rival in (WOP, GRID)}
        claims += [
            Claim(
                f"{kind}: the grid is about two orders of magnitude faster than WoP (30 to 320 times)",
                said,
                min(ratios) >= 100 / HALF_AN_ORDER and max(ratios) <= 100 * HALF_AN_ORDER,
            ),
            Claim(
                f"{kind}: the grid takes 1 to 10 ms per timestamp (at most 10)", seconds_span(grid), max(grid) <= 0.01
            ),
            Claim(
                f"{kind}: haply is faster than the grid everywhere (ours)",
                ", ".join(ours.values()),
                all(row[OURS] < row[GRID] for row in part),
            ),
        ]
    return Figure(
        "U-F8",
        f"time per timestamp, gamma {scale.threshold:g}, w = {scale.window:,}",
        rows,
        x="radii",
        lines=ENGINES,
        y_title=PER_TIMESTAMP,
        panel="data",
        seconds=DURATIONS,
        claims=claims,
    )


def time_by_threshold(lab: Lab) -> Figure:
    """Measure U-F9: time per timestamp over gamma."""
    scale = lab.scale
    rows: list[dict[str, Any]] = []
    for source in lab.sources:
        streams = lab.streams(source)
        within = lab.distance(streams)
        for threshold in scale.thresholds:
            lab.tell(f"U-F9: {source.name}, gamma {threshold:g}")
            where = {"data": source.name, "distance": within, "gamma": threshold}
            rows.append(where | _times(lab, streams, scale.window, within, threshold))
    claims = []
    for kind, part in _kinds(lab, rows):
        groups = rows_by(part, "data")
        falls = {name: group[-1][GRID] / group[0][GRID] for name, group in groups.items()}
        flat = [max(row[WOP] for row in group) / min(row[WOP] for row in group) for group in groups.values()]
        claims += [
            Claim(
                f"{kind}: the grid's time falls with gamma (last over first below 1)",
                ", ".join(f"{name} {value:.2f}" for name, value in falls.items()),
                max(falls.values()) < 1.0,
            ),
            Claim(f"{kind}: WoP is flat (most over least at most 1.25)", span(flat), max(flat) <= 1.25),
            _apart(kind, part, 2, 3),
        ]
    return _sweep_of_times("U-F9", f"time per timestamp over gamma, rUrG, w = {scale.window:,}", rows, "gamma", claims)


def time_by_dimension(lab: Lab) -> Figure:
    """Measure U-F10: time per timestamp over the dimension, at equal selectivity; a dimension is a sensor."""
    scale = lab.scale
    rows: list[dict[str, Any]] = []
    sources = [data.sensor(scale.rows, scale.seed, dim=dim) for dim in scale.dims]
    if any(source.name == "ulb_library" for source in lab.real):
        path = lab.folder / "ulb_library.parquet"
        sources += [data.ulb_library(path, scale.rows, dim) for dim in scale.dims]
    for source in sources:
        dim = int(source.left.shape[1])
        lab.tell(f"U-F10: {source.name}, d = {dim}")
        streams = lab.streams(source)
        within = lab.distance(streams)
        where = {"data": source.name, "d": dim, "distance": within}
        rows.append(where | _times(lab, streams, scale.window, within, scale.threshold))
    claims = []
    for name, group in rows_by(rows, "data").items():
        first, last, grid = group[0], group[-1], [row[GRID] for row in group]
        claims += [
            Claim(
                f"{name}: both rise with d (d = {last['d']} over d = {first['d']})",
                f"grid {last[GRID] / first[GRID]:.2f} times, WoP {last[WOP] / first[WOP]:.2f} times",
                last[GRID] > first[GRID] and last[WOP] > first[WOP],
            ),
            Claim(f"{name}: the grid takes less than 0.1 s", seconds_span(grid), max(grid) < 0.1),
        ]
    title = f"time per timestamp over the dimension at {scale.selectivity:.2%} joining pairs, rUrG"
    return _sweep_of_times("U-F10", title, rows, "d", claims)


def time_by_window(lab: Lab) -> Figure:
    """Measure U-F11: time per timestamp over the window; the distance is that of the default window."""
    scale = lab.scale
    rows: list[dict[str, Any]] = []
    for source in lab.sources:
        if source.rows < max(scale.windows) + scale.steps:
            lab.tell(f"U-F11: {source.name} is too short, left out")
            continue
        streams = lab.streams(source, rows=max(scale.windows) + scale.steps)
        within = lab.distance(streams)
        for window in scale.windows:
            lab.tell(f"U-F11: {source.name}, w = {window:,}")
            where = {"data": source.name, "distance": within, "w": window}
            rows.append(where | _times(lab, streams, window, within, scale.threshold))
    claims = []
    for kind, part in _kinds(lab, rows):
        groups = rows_by(part, "data")
        rises = {
            engine: {name: group[-1][engine] / group[0][engine] for name, group in groups.items()}
            for engine in (GRID, WOP)
        }
        claims += [
            Claim(
                f"{kind}: both rise with w (last over first above 1)",
                "; ".join(
                    f"{engine} " + ", ".join(f"{name} {value:.2f}" for name, value in rise.items())
                    for engine, rise in rises.items()
                ),
                all(value > 1.0 for rise in rises.values() for value in rise.values()),
            ),
            _apart(kind, part, 1, 3),
        ]
        if {data.GPS, data.SENSOR} <= set(groups):
            slopes = {
                name: (groups[name][-1][GRID] - groups[name][0][GRID]) / (scale.windows[-1] - scale.windows[0])
                for name in (data.GPS, data.SENSOR)
            }
            claims.append(
                Claim(
                    f"{kind}: the grid's slope is smaller on sensor data",
                    ", ".join(f"{name} {1e6 * slope:.3f} µs per object" for name, slope in slopes.items()),
                    slopes[data.SENSOR] < slopes[data.GPS],
                )
            )
    return _sweep_of_times("U-F11", "time per timestamp over the window, rUrG", rows, "w", claims)


def _apart(kind: str, rows: Sequence[dict[str, Any]], low: int, high: int) -> Claim:
    ratios, said = _ratios(rows)
    return Claim(
        f"{kind}: grid and WoP are {low} to {high} orders of magnitude apart (give or take half an order)",
        said,
        min(ratios) >= 10.0**low / HALF_AN_ORDER and max(ratios) <= 10.0**high * HALF_AN_ORDER,
    )


def _sweep_of_times(name: str, title: str, rows: list[dict[str, Any]], x: str, claims: list[Claim]) -> Figure:
    return Figure(
        name, title, rows, x=x, lines=ENGINES, y_title=PER_TIMESTAMP, panel="data", seconds=DURATIONS, claims=claims
    )


PAPER = (pruning_power, time_by_data, time_by_threshold, time_by_dimension, time_by_window)
"""The paper's figures, in their order."""
