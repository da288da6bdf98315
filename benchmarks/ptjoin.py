"""``bench ptjoin``: events whose times are histograms of a few shapes, joined where they are likely close in time.

Every engine runs on one thread in this process. DuckDB finds the pairs that may be close: ``duckdb range`` by its range
join, ``duckdb buckets`` by an equality join on hand-made buckets of time, which is faster here. Neither computes
probabilities; ``duckdb buckets+numpy`` does so for all candidates in blocks that fit the cache. haply runs twice: with
the probability of each pair, and for the likely pairs only, like the join of the paper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from benchmarks.measure import (
    OURS,
    TURN,
    Answer,
    Claim,
    Figure,
    Report,
    Result,
    Tell,
    check_same,
    circumstances,
    needs,
    ranked,
    take_turns,
)
from haply.joins import SimilarityJoin, TimingJoin
from haply.models import Certain, Histogram, Samples
from haply.models.columns import view_column
from haply.models.ragged import Ragged
from haply.numerics.jit import kernel
from haply.probability.exact import PairProbability
from haply.probability.region import Region
from haply.pruning.bounds.timing.shapes import ShapeList
from haply.pruning.bounds.timing.shifts import near, super_level
from haply.pruning.threshold import TOLERANCE

RANGE, BUCKETS, WHOLE = "duckdb range", "duckdb buckets", "duckdb buckets+numpy"
PAIRS = f"{OURS}, pairs only"
_BLOCK = 1 << 12


@dataclass(frozen=True)
class Settings:
    """The workload: whole milliseconds, templates of 2 to 10 buckets."""

    events: int = 100_000
    templates: int = 16
    longest: int = 500
    window: float = 1_500.0
    threshold: float = 0.8
    partners: float = 20.0  # events of the other side within the window of an event, on average
    many_templates: tuple[int, ...] = (1, 4, 16, 64, 256, 1000)
    windows: tuple[float, ...] = (0.0, 100.0, 400.0, 1_500.0, 6_000.0)
    delays: tuple[float, ...] = (0.0, 1_000.0, 10_000.0)
    ranges_templates: int = 500
    ranges_longest: tuple[int, ...] = (500, 1000, 1500)
    ranges_drawn: int = 20
    operator_events: int = 4_000
    single_pairs: int = 20_000
    one_row_stored: int = 1_000
    one_row_pushes: int = 2_000
    repetitions: int = 5
    seed: int = 5


QUICK = Settings(
    events=5_000, many_templates=(1, 16, 64), windows=(0.0, 400.0, 1_500.0), delays=(0.0, 1_000.0), ranges_templates=40,
    ranges_drawn=4, operator_events=600, single_pairs=5_000, one_row_pushes=400, repetitions=2,
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """Events of one side: ids, shapes, and times of detection; and the shapes, with their last edge at 0."""

    id: np.ndarray
    shape: np.ndarray
    at: np.ndarray
    edges: list[np.ndarray]
    probs: list[np.ndarray]

    def column(self) -> pa.Array:
        """Return the events as a column of histograms."""
        lengths = np.array([len(probs) for probs in self.probs])[self.shape]
        start = np.concatenate([[0], np.cumsum(lengths)])
        edges = np.concatenate([self.edges[s] for s in self.shape]) + np.repeat(self.at, lengths + 1)
        probs = np.concatenate([self.probs[s] for s in self.shape])
        edge_start = start + np.arange(len(start))
        columns = [Ragged(edges, edge_start).to_arrow(), Ragged(probs, start).to_arrow()]
        return pa.StructArray.from_arrays(columns, ["edges", "probs"])

    def model(self) -> Histogram:
        """Return the events as a model."""
        model = view_column(self.column())
        assert isinstance(model, Histogram)
        return model

    def templates(self) -> Histogram:
        """Return the shapes as rows of a model."""
        return Histogram([list(edges) for edges in self.edges], [list(probs) for probs in self.probs])

    def padded(self) -> tuple[np.ndarray, np.ndarray]:
        """Return edges and probabilities of the shapes as matrices, padded with buckets without probability."""
        most = max(len(probs) for probs in self.probs)
        edges, probs = np.empty((len(self.edges), most + 1)), np.zeros((len(self.edges), most))
        for k, (own, mass) in enumerate(zip(self.edges, self.probs, strict=True)):
            edges[k, : len(own)], probs[k, : len(mass)] = own, mass
            edges[k, len(own) :] = own[-1] + np.arange(1, most + 2 - len(own))
        return edges, probs


def shapes(random: np.random.Generator, count: int, longest: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Make templates of 2 to 10 buckets with integer ends, from a quarter of ``longest`` to ``longest`` in length."""
    edges, probs = [], []
    for _ in range(count):
        length = int(random.integers(longest // 4, longest + 1))
        buckets = int(random.integers(2, 11))
        inner = np.sort(random.choice(np.arange(1, length), buckets - 1, replace=False))
        edges.append(np.concatenate([[0], inner, [length]]).astype(float) - length)
        probs.append(random.dirichlet(np.ones(buckets)))
    return edges, probs


def make_sides(settings: Settings, templates: int | None = None, window: float | None = None) -> tuple[Side, Side]:
    """Make both sides, in the order of detection."""
    random = np.random.default_rng(settings.seed)
    reach = settings.window if window is None else window
    span = settings.events * (2.0 * reach + settings.longest) / settings.partners
    sides = []
    for _ in range(2):
        edges, probs = shapes(random, templates or settings.templates, settings.longest)
        at = np.sort(np.round(random.uniform(0.0, span, settings.events)))
        chosen = random.integers(0, len(edges), settings.events)
        sides.append(Side(np.arange(settings.events), chosen, at, edges, probs))
    return sides[0], sides[1]


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does."""
    return measure(QUICK if quick else Settings(), tell)


def measure(settings: Settings, tell: Tell) -> Report:
    """Measure the comparison, then the experiments."""
    results, notes = compared(settings, tell)
    makers: tuple[Callable[[Settings, Tell], Figure], ...] = (
        template_growth, window_growth, partition_ranges, cost_per_pair, operator_effort, small_windows, example_one,
        one_row_pushes,
    )  # fmt: skip
    figures = [make(settings, tell) for make in makers]
    title = f"Events with uncertain times, {settings.events:,} x {settings.events:,}, one thread"
    config = {
        **settings.__dict__,
        "formulations": {
            OURS: "shapes found, tables made, both sides pushed; from histograms to arrays of ids and probabilities "
            "(of ids, where pairs only are asked for)",
            RANGE: "a join on two inequalities: supports within the window",
            BUCKETS: "hash join on buckets of time, supports within the window",
            WHOLE: "the same, and the probability of each pair by NumPy, from shapes that it is told",
        },
        "targets": {RANGE: {result.job: 3.0 for result in results if result.engine == RANGE}, WHOLE: 60.0},
        "notes": notes,
        **circumstances("duckdb"),
    }
    return Report("ptjoin", title, config, results, figures=figures)


def compared(settings: Settings, tell: Tell) -> tuple[list[Result], list[str]]:
    """Compare haply with DuckDB, whose joins alone have no probabilities, but must find the same candidates."""
    left, right = make_sides(settings)
    columns = left.column(), right.column()
    duckdb = DuckTimes(left, right, settings)
    job = f"{settings.templates} templates a side"

    def ours(probability: Literal["exact", "none"]) -> Answer:
        return haply_times(left, right, columns, settings.window, settings.threshold, probability)

    engines: dict[str, Callable[[], Any]] = {
        OURS: lambda: ours("exact"),
        PAIRS: lambda: ours("none"),
        RANGE: duckdb.ranges,
        BUCKETS: duckdb.buckets,
        WHOLE: duckdb.run,
    }
    answers = {}
    for name, engine in engines.items():
        tell(f"{job}: first run of {name}")
        answers[name] = engine()
    check_same(job, {name: answers[name] for name in (OURS, PAIRS, WHOLE)})
    check_same(f"{job}, candidates", {OURS: answers[BUCKETS], RANGE: answers[RANGE]})
    pairs = {name: len(answer.left) for name, answer in answers.items()}
    seconds = take_turns(job, engines, settings.repetitions, tell, TURN)
    without = {OURS: seconds.pop(PAIRS), **{name: seconds[name] for name in (RANGE, BUCKETS)}}
    results = [*ranked(job, seconds, pairs), *ranked(f"{job}, pairs only", without, pairs)]
    note = f"{pairs[RANGE]:,} pairs can be within {settings.window:g} ms of each other; best of {settings.repetitions}"
    return results, [note]


def haply_times(
    left: Side, right: Side, columns: tuple[pa.Array, pa.Array], window: float, threshold: float,
    probability: Literal["exact", "none"] = "exact",
) -> Answer:  # fmt: skip
    """Join with haply, from the columns on."""
    mine, theirs = (view_column(column) for column in columns)
    join = TimingJoin(window, threshold, probability=probability)
    join.push("left", {"id": left.id, "time": mine})
    found = join.push("right", {"id": right.id, "time": theirs})
    return Answer(found.left, found.right, found.probability if probability == "exact" else None)


class DuckTimes:
    """Joins with DuckDB on supports and detection times, then computes with NumPy."""

    def __init__(self, left: Side, right: Side, settings: Settings) -> None:
        self.settings, self.left, self.right = settings, left, right
        self.connection = needs("duckdb").connect()
        self.connection.execute("SET threads = 1; SET enable_progress_bar = false")
        for name, side in (("l", left), ("r", right)):
            length = np.array([-edges[0] for edges in side.edges])[side.shape]
            self.connection.register(name, pa.table({"id": side.id, "lo": side.at - length, "hi": side.at}))
        self._padded = left.padded(), right.padded()

    def ranges(self) -> Answer:
        """Find pairs whose supports come within the window, by the plain query."""
        found = self.connection.sql(f"SELECT a.id AS i, b.id AS j FROM l a JOIN r b ON {self._in_reach()}")
        return self._answer(found)

    def _in_reach(self) -> str:
        window = repr(self.settings.window)
        return f"a.lo - {window} <= b.hi AND b.lo <= a.hi + {window}"

    @staticmethod
    def _answer(found: Any) -> Answer:
        table = found.to_arrow_table()
        return Answer(table["i"].to_numpy(), table["j"].to_numpy())

    def buckets(self) -> Answer:
        """Find the same pairs by hand-made buckets of time."""
        reach = self.settings.window + self.settings.longest
        width = 0.5 * reach
        found = self.connection.sql(f"""
            WITH a AS (
                SELECT id, lo, hi, CAST(unnest(range(
                    CAST(floor((hi - {reach!r}) / {width!r}) AS BIGINT),
                    CAST(floor((hi + {reach!r}) / {width!r}) AS BIGINT) + 1
                )) AS BIGINT) AS bucket FROM l
            ), b AS (SELECT id, lo, hi, CAST(floor(hi / {width!r}) AS BIGINT) AS bucket FROM r)
            SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.bucket = b.bucket WHERE {self._in_reach()}
        """)
        return self._answer(found)

    def run(self) -> Answer:
        """Find the pairs by buckets, and compute their probabilities."""
        found = self.buckets()
        probability = np.empty(len(found.left))
        for begin in range(0, len(probability), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            probability[block] = self._probability(found.left[block], found.right[block])
        kept = probability >= self.settings.threshold - TOLERANCE
        return Answer(found.left[kept], found.right[kept], probability[kept])

    def _probability(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        (edges, probs), (others, masses) = self._padded
        u, v = self.left.shape[i], self.right.shape[j]
        shift = (self.right.at[j] - self.left.at[i])[:, None]
        d = self.settings.window
        return self._below(edges[u], probs[u], others[v] + shift + d, masses[v]) - self._below(
            edges[u], probs[u], others[v] + shift - d, masses[v]
        )

    @staticmethod
    def _below(edges: np.ndarray, probs: np.ndarray, others: np.ndarray, masses: np.ndarray) -> np.ndarray:
        """Compute ``P(X <= Y)``: the mean of the distribution function of X over the buckets of Y."""
        area = np.zeros_like(others)
        for k in range(probs.shape[1]):
            low, width = edges[:, k, None], (edges[:, k + 1] - edges[:, k])[:, None]
            into = np.clip((others - low) / width, 0.0, 1.0)
            area += probs[:, k, None] * (0.5 * width * into * into + np.maximum(others - low - width, 0.0))
        return (masses * np.diff(area, axis=1) / np.diff(others, axis=1)).sum(axis=1)


# -- experiments -------------------------------------------------------------------------------------------------------


def _timed(engine: Callable[[], Any], repetitions: int) -> tuple[float, Any]:
    answer = engine()
    return take_turns("", {OURS: engine}, repetitions, lambda text: None)[OURS], answer


def template_growth(settings: Settings, tell: Tell) -> Figure:
    """Measure events per second over the number of templates."""
    rows = []
    for count in settings.many_templates:
        tell(f"{count} templates a side")
        left, right = make_sides(settings, count)
        columns = left.column(), right.column()
        seconds, answer = _timed(
            lambda: haply_times(left, right, columns, settings.window, settings.threshold),  # noqa: B023
            min(3, settings.repetitions),
        )
        rows.append(
            {
                "templates": count, "time": seconds, "pairs": len(answer.left),
                "events per second": round(2 * settings.events / seconds),
            }
        )  # fmt: skip
    return Figure(
        "templates", f"events per second over the number of templates, window {settings.window:g} ms", rows,
        x="templates", lines=("events per second",), y_title="events per second", log_x=True, seconds=("time",),
    )  # fmt: skip


def window_growth(settings: Settings, tell: Tell) -> Figure:
    """Measure events per second over the window, with the same number of events in reach."""
    rows = []
    for window in settings.windows:
        tell(f"window {window:g}")
        left, right = make_sides(settings, window=window)
        columns = left.column(), right.column()
        seconds, answer = _timed(
            lambda: haply_times(left, right, columns, window, 0.1),  # noqa: B023
            min(3, settings.repetitions),
        )
        rows.append(
            {
                "window": window, "time": seconds, "pairs": len(answer.left),
                "events per second": round(2 * settings.events / seconds),
            }
        )  # fmt: skip
    return Figure(
        "windows", "events per second over the window, threshold 0.1, equally many events in reach", rows,
        x="window", lines=("events per second",), y_title="events per second", seconds=("time",),
    )  # fmt: skip


def partition_ranges(settings: Settings, tell: Tell) -> Figure:
    """Measure P1: how much shorter the probed ranges are if the threshold is used (Example 5, Figure 3)."""
    rows = []
    random = np.random.default_rng(settings.seed)
    for longest in settings.ranges_longest:
        tell(f"P1: templates up to {longest}")
        sides = [_shape_list(*shapes(random, settings.ranges_templates, longest)) for _ in range(2)]
        lengths = [-side.shapes.low[side.shapes.start[: side.count]] for side in sides]
        ratios = []
        for u in random.choice(sides[0].count, settings.ranges_drawn, replace=False):
            sets = [
                super_level(sides[0].shapes, int(u), sides[1].shapes, v, settings.window, settings.threshold)
                for v in range(sides[1].count)
            ]
            lows, highs = np.array([one[0] for one in sets]), np.array([one[-1] for one in sets])
            tight = (lows.max() - lows.min()) + (highs.max() - highs.min())
            free = 2.0 * (lengths[0][int(u)] + lengths[1].max())
            ratios.append(tight / free)
        rows.append(
            {
                "longest": longest, "least": float(min(ratios)), "mean": float(np.mean(ratios)),
                "most": float(max(ratios)),
            }
        )  # fmt: skip
    most = max(row["most"] for row in rows)
    claim = Claim(
        "tight ranges lie inside the free ones and are clearly shorter (P1; on average at most 0.7 of their length)",
        f"{min(row['least'] for row in rows):.2f} to {most:.2f}",
        all(row["mean"] <= 0.7 for row in rows),
    )
    return Figure(
        "P1", f"length of the ranges to be probed: tight over free, {settings.ranges_templates} templates a side, "
        f"window {settings.window:g}, threshold {settings.threshold:g}", rows, x="longest",
        lines=("least", "mean", "most"),
        y_title="tight over free", log_y=False, claims=[claim],
    )  # fmt: skip


def _shape_list(edges: list[np.ndarray], probs: list[np.ndarray]) -> ShapeList:
    found = ShapeList()
    found.number(Histogram([list(one) for one in edges], [list(one) for one in probs]), len(edges))
    return found


def cost_per_pair(settings: Settings, tell: Tell) -> Figure:
    """Measure P2: one pair by the sum over buckets, by one walk along both (Theorem 1), and by the table."""
    rows = []
    random = np.random.default_rng(settings.seed)
    for buckets in (2, 5, 10, 20):
        tell(f"P2: {buckets} buckets")
        side = _shape_list(
            [np.arange(-buckets, 1.0) * 10.0 for _ in range(2)], [random.dirichlet(np.ones(buckets)) for _ in range(2)]
        )
        count = settings.single_pairs
        shift = np.round(random.uniform(-5.0 * buckets, 5.0 * buckets, count))
        window = 3.0 * buckets
        at = np.zeros(count), shift
        models = [
            Histogram(at[k][:, None] + np.arange(-buckets, 1.0) * 10.0, np.tile(_mass(side, k), (count, 1)))
            for k in range(2)
        ]
        index = np.arange(count, dtype=np.int32)
        exact = PairProbability(models[0], models[1], Region(-window, window))
        by_sum, sums = _timed(lambda: exact.evaluate(index, index), settings.repetitions)  # noqa: B023
        by_walk, walks = _timed(lambda: _walks(side.shapes, shift, window), settings.repetitions)  # noqa: B023
        join = TimingJoin(window, 0.001, templates=side_model(side, buckets))
        join.push("left", {"id": [0], "time": models[0].take(np.zeros(1, np.int64))})
        by_table, found = _timed(
            lambda: TimingJoin.restore(join.snapshot()).push("right", {"id": index, "time": models[1]}),  # noqa: B023
            settings.repetitions,
        )
        assert np.allclose(sums, walks, atol=1e-12)
        assert np.allclose(sums[found.right], found.probability, atol=1e-12)
        rows.append(
            {
                "buckets": buckets, "sum over buckets": by_sum / count, "one walk": by_walk / count,
                "look-up": by_table / count,
            }
        )  # fmt: skip
    slow, fast = (rows[-1]["look-up"] / rows[0]["look-up"], rows[-1]["sum over buckets"] / rows[0]["sum over buckets"])
    claim = Claim(
        "a look-up takes constant time (P2; from 2 to 20 buckets it grows less than a tenth as much as the sum)",
        f"look-up {slow:.2g} times, sum {fast:.2g} times", slow - 1.0 < 0.1 * (fast - 1.0),
    )  # fmt: skip
    return Figure(
        "P2", "seconds per pair; the look-up with everything that a push of the events takes", rows, x="buckets",
        lines=("sum over buckets", "one walk", "look-up"), y_title="seconds per pair (logarithmic)",
        seconds=("sum over buckets", "one walk", "look-up"), claims=[claim],
    )  # fmt: skip


def side_model(side: ShapeList, buckets: int) -> Histogram:
    """Return two shapes of equally wide buckets as templates."""
    return Histogram(np.tile(np.arange(-buckets, 1.0) * 10.0, (2, 1)), np.stack([_mass(side, k) for k in range(2)]))


def _mass(side: ShapeList, shape: int) -> np.ndarray:
    return side.shapes.mass[side.shapes.start[shape] : side.shapes.start[shape + 1]]


@kernel
def _walks(shapes, shift, window):  # type: ignore[no-untyped-def]
    found = np.empty(len(shift))
    for k in range(len(shift)):
        found[k] = near(shapes, 0, shapes, 1, shift[k], window)
    return found


def operator_effort(settings: Settings, tell: Tell) -> Figure:
    """Measure P3: the pairs tested and the events stored, event by event, against a loop over the buffers."""
    rows = []
    partitions: Literal["free", "tight"]
    for partitions in ("free", "tight"):
        for delay in settings.delays:
            tell(f"P3: {partitions} ranges, delay {delay:g}")
            small = Settings(events=settings.operator_events, seed=settings.seed)
            left, right = make_sides(small)
            given = {"left": left.templates(), "right": right.templates()}
            join = TimingJoin(
                small.window, small.threshold, templates=given, max_delay=delay, partitions=partitions,
                probability="none",
            )  # fmt: skip
            held, looped = [], 0
            models = left.model(), right.model()
            order = np.argsort(np.concatenate([left.at, right.at]), kind="stable")
            for begin in range(0, len(order), 8):
                for k, name in enumerate(("left", "right")):
                    mine = np.sort(order[begin : begin + 8][(order[begin : begin + 8] >= len(left.at)) == k]) - k * len(
                        left.at
                    )
                    if len(mine):
                        looped += len(mine) * join.stored["right" if k == 0 else "left"]
                        join.push(name, {"id": mine, "time": models[k].take(mine)})  # type: ignore[arg-type]
                held.append(sum(join.stored.values()))
            funnel = join.funnel
            tested = funnel.candidates - join.untested
            rows.append(
                {
                    "ranges": partitions, "delay": delay, "pairs in a loop": looped, "looked at": funnel.candidates,
                    "tested": tested, "kept": funnel.kept, "stored on average": float(np.mean(held)),
                }
            )  # fmt: skip
    tight, free = ([int(row["tested"]) for row in rows if row["ranges"] == name] for name in ("tight", "free"))
    claim = Claim(
        "only pairs in the probing ranges are tested (P3; fewer with tight ranges)",
        f"{sum(free):,} with free, {sum(tight):,} with tight ranges", sum(tight) < sum(free),
    )  # fmt: skip
    return Figure(
        "P3", "pairs tested one by one, and events stored", rows, x="delay",
        lines=("pairs in a loop", "looked at", "tested", "kept"), y_title="pairs (logarithmic)", panel="ranges",
        claims=[claim],
    )  # fmt: skip


def small_windows(settings: Settings, tell: Tell) -> Figure:
    """Check P4: windows below the length of events, which the paper leaves out: pairs against the exact formula."""
    rows = []
    random = np.random.default_rng(settings.seed)
    sides = [_shape_list(*shapes(random, 40, settings.longest)) for _ in range(2)]
    for window in (0.0, 25.0, 100.0, 250.0, 500.0):
        tell(f"P4: window {window:g}")
        found = [super_level(sides[0].shapes, u, sides[1].shapes, v, window, 0.2) for u in range(40) for v in range(40)]
        numbers = np.array([len(one) // 2 for one in found])
        small = Settings(events=settings.operator_events, seed=settings.seed, threshold=0.2, window=window)
        left, right = make_sides(small)
        models = left.model(), right.model()
        answer = haply_times(left, right, (left.column(), right.column()), window, 0.2)
        rows.append(
            {
                "window": window, "pairs of templates": len(found), "empty": int((numbers == 0).sum()),
                "one interval": int((numbers == 1).sum()), "several": int((numbers > 1).sum()),
                "pairs of events": len(answer.left), "wrong": _wrong(answer, models, window),
            }
        )  # fmt: skip
    claim = Claim(
        "for any window the answer is that of the exact formula (P4)",
        f"{sum(row['wrong'] for row in rows)} wrong of {sum(row['pairs of events'] for row in rows):,}",
        all(row["wrong"] == 0 for row in rows),
    )
    return Figure(
        "P4", "pairs of templates by the number of intervals of shifts that reach 0.2", rows, x="window",
        lines=("empty", "one interval", "several"), y_title="pairs of templates", log_y=False, claims=[claim],
    )  # fmt: skip


def _wrong(answer: Answer, models: tuple[Histogram, Histogram], window: float) -> int:
    """Count pairs found or missed wrongly, and wrong probabilities, against the exact formula for all pairs."""
    exact = PairProbability(models[0], models[1], Region(-window, window))
    wrong, count = 0, len(models[1])
    found = {(int(i), int(j)): p for i, j, p in zip(answer.left, answer.right, answer.probability, strict=True)}  # type: ignore[arg-type]
    (starts, ends), (others, last) = (model.support() for model in models)
    for i in range(len(models[0])):
        j = np.flatnonzero((others <= ends[i] + window) & (last >= starts[i] - window)).astype(np.int32)
        values = exact.evaluate(np.full(len(j), i, np.int32), j)
        for k, value in zip(j.tolist(), values, strict=True):
            known = found.pop((i, k), None)
            kept = value >= 0.2 - TOLERANCE
            wrong += (known is not None) != kept or (known is not None and abs(known - value) > 1e-12)
    assert count
    return int(wrong) + len(found)


def example_one(settings: Settings, tell: Tell) -> Figure:
    """Check P5: the paper's Example 1."""
    rows = []
    for name, times in (("detection", (60.0, 110.0)), ("occurrence", (60.0 - 20.0, 110.0 - 40.0))):
        join = TimingJoin(40.0, 0.5)
        join.push("left", {"id": [0], "time": Certain([times[0]])})
        pairs = len(join.push("right", {"id": [0], "time": Certain([times[1]])}))
        rows.append({"time of": name, "apart": abs(times[0] - times[1]), "pairs": pairs})
    claim = Claim(
        "the join by detection misses a pair that the join by occurrence finds (P5)",
        " and ".join(f"{row['pairs']} by {row['time of']}" for row in rows), [row["pairs"] for row in rows] == [0, 1],
    )  # fmt: skip
    return Figure(
        "P5", "Example 1: detections at 60 and 110, latencies of 20 and 40, window 40", rows, x="apart",
        lines=("pairs",), y_title="pairs", log_y=False, claims=[claim],
    )  # fmt: skip


def one_row_pushes(settings: Settings, tell: Tell) -> Figure:
    """Measure the microseconds of a push of one row, with some 1,000 rows stored a side: minimum and median."""
    random = np.random.default_rng(settings.seed)
    stored, pushes = settings.one_row_stored, settings.one_row_pushes
    total = 2 * stored + pushes
    points = random.random((total, 1, 2)) + 0.01 * random.standard_normal((total, 10, 2))
    places = np.sort(random.uniform(0.0, 60.0 * total / stored, total))
    widths, masses = random.uniform(1.0, 10.0, (total, 4)), random.uniform(0.05, 1.0, (total, 4))

    def positions(rows: slice) -> Mapping[str, Any]:
        return {"pos": Samples(points[rows])}

    def times(rows: slice, shapes: int) -> Mapping[str, Any]:
        chosen = np.arange(rows.start, rows.stop, rows.step or 1)
        of = chosen % shapes
        edges = np.cumsum(np.column_stack([np.zeros(len(of)), np.round(16.0 * widths[of]) / 16.0]), axis=1)
        place = np.round(16.0 * places[chosen]) / 16.0
        probs = masses[of] / masses[of].sum(axis=1, keepdims=True)
        return {"time": Histogram(list(edges - edges[:, -1:] + place[:, None]), list(probs))}

    jobs: dict[str, tuple[Any, Callable[[slice], Mapping[str, Any]]]] = {
        "SimilarityJoin": (SimilarityJoin(0.05, 0.5, window=stored - 1, dim=2), positions),
        "TimingJoin, 8 templates": (TimingJoin(40.0, 0.5), lambda rows: times(rows, 8)),
        "TimingJoin, shapes of their own": (TimingJoin(40.0, 0.5), lambda rows: times(rows, total)),
    }
    rows = []
    for name, (join, columns) in jobs.items():
        tell(f"pushes of one row: {name}")
        for k, side in enumerate(("left", "right")):
            join.push(side, {"id": np.arange(stored), **columns(slice(k, 2 * stored, 2))})
        seconds, pairs = [], 0
        for k in range(2 * stored, total):
            batch = {"id": np.array([k]), **columns(slice(k, k + 1))}
            begun = time.perf_counter()
            found = join.push(("left", "right")[k % 2], batch)
            seconds.append(time.perf_counter() - begun)
            pairs += len(found)
        least, median = 1e6 * np.percentile(seconds, (5, 50))
        rows.append(
            {
                "join": name, "stored": sum(join.stored.values()), "pairs a push": round(pairs / pushes, 1),
                "microseconds": round(float(least), 1), "median": round(float(median), 1),
            }
        )  # fmt: skip
        tell(f"{name}: {least:.0f} microseconds a push of one row, median {median:.0f}")
    return Figure(
        "one row", f"microseconds a push of one row, some {stored:,} stored a side: of 20 the fastest, and the median",
        rows, x="stored", lines=("microseconds", "median"), y_title="microseconds", panel="join", log_y=False,
    )  # fmt: skip
