"""``bench peng-joins``: the join indexes of Peng, Diao and Liu (2011), their experiments 3 and 4, in tumbling windows.

``haply`` is the sweep over core regions, window by window; ``moments`` is the index by mean and variance (GJ for
Gaussians, GMJ for mixtures), ``x-bounds`` the baseline by quantiles. Each window's index is built and probed, and its
candidates are validated. All engines find the same pairs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks import peng_data
from benchmarks.measure import OURS, Answer, Claim, Engines, Figure, Report, Tell, circumstances, compare
from benchmarks.peng_disk import FULL_DISK, QUICK_DISK, Disk, on_disk
from haply.errors import HaplyError
from haply.joins.match import match_all
from haply.joins.moments import IndexName, MomentCounters, index_moments, index_xbounds, match_moments
from haply.joins.operators.tumbling import TumblingJoin
from haply.models import Gaussian, Mixture, OneDimensional
from haply.probability.region import Difference, Region
from haply.pruning.candidates.intervals import pairing, row_intervals
from haply.pruning.threshold import Threshold

Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """The paper's window and threshold, the number of windows, and the distances of values."""

    window: int = 500
    windows: int = 4
    threshold: float = 0.7
    distances: tuple[float, ...] = (1, 2, 5, 10, 20, 40, 60, 80, 100)
    """Distances in percent of the range of the means: for the generated data these are the paper's."""
    indexed: int = 100_000
    probes: int = 50
    disk: Disk = FULL_DISK
    repetitions: int = 2
    seed: int = 2


QUICK = Settings(
    window=100, windows=2, distances=(2, 20, 100), indexed=3_000, probes=10, disk=QUICK_DISK, repetitions=1
)


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does."""
    return measure(QUICK if quick else Settings(), data, tell)


def measure(settings: Settings, folder: str | None, tell: Tell) -> Report:
    """Measure times at two distances, then Expts 3 and 4 at all distances, and values far apart."""
    gaussian, mixed = gaussians(settings), mixtures(settings, "u and 1 - u")
    count = len(settings.distances)
    results = [
        result
        for data in (gaussian, mixed)
        for percent in (settings.distances[count // 4], settings.distances[count // 2])
        for result in compare(
            f"{data.name}, d = {percent:g}", engines(data, data.distance(percent), settings), settings.repetitions, tell
        )
    ]
    figures = [
        *expt_3([gaussian, *stars(settings, folder)], settings, tell), large(settings, tell),
        on_disk(settings.disk, settings.threshold, tell),
        *expt_4([mixed, mixtures(settings, "two uniforms, scaled")], settings, tell),
        far_apart(gaussian, settings, tell),
    ]  # fmt: skip
    config = {
        **asdict(settings),
        "formulations": {
            OURS: "match_all in each window: sweep over core regions, then the cascade",
            "moments": "TumblingJoin: R-tree on mean and variance; GJ for Gaussians, GMJ and the cascade for mixtures",
            "x-bounds": "TumblingJoin(index='xbound'): R-tree on two quantiles, then the cascade",
        },
        "notes": [
            "'Expt 3 large' has one index in memory over a large table, made before; 'Expt 3 disk' is the paper's disk "
            "variant, by haply's own index of pages with x-bounds, as GJ's tree is not kept on disk",
        ],
        **circumstances(),
    }
    title = (
        f"Tumbling windows of {settings.window} rows a side, {settings.windows} windows, P >= {settings.threshold:g}"
    )
    return Report("peng-joins", title, config, results, figures=figures)


# -- data --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Two streams of one kind, and the range of their means."""

    name: str
    left: OneDimensional
    right: OneDimensional

    def distance(self, percent: float) -> float:
        """Return a share of the range of the means; the range is 100 for the generated data."""
        if not isinstance(self.left, Gaussian) or self.name == "Gaussians":
            return float(percent)
        means = np.concatenate([self.left.mean(), self.right.mean()])
        return float(0.01 * percent * (means.max() - means.min()))


def gaussians(settings: Settings) -> Data:
    """Make Gaussians with means up to 100 and variances up to 10, as the paper draws them in experiment 4."""
    random, n = np.random.default_rng(settings.seed), settings.window * settings.windows
    sides = [Gaussian(random.uniform(0, 100, n), np.sqrt(random.uniform(0, 10, n))) for _ in range(2)]
    return Data("Gaussians", sides[0], sides[1])


def mixtures(settings: Settings, coefficients: str) -> Data:
    """Make mixtures of two components. The paper draws coefficients from (0, 1), but does not say how they sum to 1."""
    random, n = np.random.default_rng(settings.seed), settings.window * settings.windows

    def side() -> Mixture:
        first = random.random(n)
        second = 1.0 - first if coefficients == "u and 1 - u" else random.random(n)
        weights = np.stack([first, second], 1) / (first + second)[:, None]
        return Mixture(weights, random.uniform(0, 100, (n, 2)), np.sqrt(random.uniform(0, 10, (n, 2))))

    return Data(f"mixtures, {coefficients}", side(), side())


def stars(settings: Settings, folder: str | None) -> list[Data]:
    """Return brightness in the u band of generated objects, and of real ones if the folder has any."""
    n = settings.window * settings.windows
    found = []
    for objects in (peng_data.generated(2 * n, settings.seed), *peng_data.real(folder)):
        if len(objects) < 2 * n:
            continue
        mean, sd = objects.mean["u"], objects.sd["u"]
        found.append(
            Data(f"stars, {objects.name}", Gaussian(mean[:n], sd[:n]), Gaussian(mean[n : 2 * n], sd[n : 2 * n]))
        )
    return found


# -- joins in windows --------------------------------------------------------------------------------------------------


def tumbling(data: Data, region: Region, index: IndexName, settings: Settings) -> tuple[Answer, MomentCounters]:
    """Join all windows by an index."""
    join = TumblingJoin([Difference("u", "u", region)], settings.threshold, rows=settings.window, index=index)
    join.push("left", {"id": np.arange(len(data.left)), "u": data.left})
    found = join.push("right", {"id": np.arange(len(data.right)), "u": data.right})
    if join.windows != settings.windows:
        raise HaplyError("Windows are missing", expected=str(settings.windows), found=str(join.windows))
    return Answer(found.left, found.right, found.probability), join.funnel


def swept(data: Data, region: Region, settings: Settings) -> tuple[Answer, int]:
    """Join all windows by the sweep; return also how many candidates it had."""
    threshold, parts, candidates = Threshold(settings.threshold), [], 0
    together = pairing(type(data.left), type(data.right))
    for begin in range(0, len(data.left), settings.window):
        rows = np.arange(begin, begin + settings.window)
        left, right = data.left.take(rows), data.right.take(rows)
        found = match_all(
            left, right, row_intervals(left, True, region, threshold, True, together),
            row_intervals(right, False, region, threshold, True, together), region, threshold, True,
        )  # fmt: skip
        parts.append((rows[found.left], rows[found.right], found.probability))
        candidates += found.counters.candidates
    return Answer(*(np.concatenate(column) for column in zip(*parts, strict=True))), candidates


def engines(data: Data, distance: float, settings: Settings) -> Engines:
    """Return the whole join, in three ways."""
    region = _within(distance)
    return {
        OURS: lambda: swept(data, region, settings)[0],
        "moments": lambda: tumbling(data, region, "auto", settings)[0],
        "x-bounds": lambda: tumbling(data, region, "xbound", settings)[0],
    }


def _within(distance: float) -> Region:
    return Region(-distance, distance, low_closed=False, high_closed=False)


def _timed(work: Callable[[], object], repetitions: int) -> float:
    best = np.inf
    for _ in range(repetitions):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return float(best)


def _sweep_over(data: Data, names: dict[str, IndexName], settings: Settings, tell: Tell) -> list[Row]:
    """Return for every distance the candidates per probe of each index, and the seconds for a window."""
    rows = []
    probes = settings.window * settings.windows
    for percent in settings.distances:
        tell(f"{data.name}: d = {percent:g}")
        region = _within(data.distance(percent))
        answer, swept_candidates = swept(data, region, settings)
        row: Row = {"data": data.name, "d": percent, "matches": len(answer.left) / probes}
        spent = {}
        for name, index in names.items():
            found, counters = tumbling(data, region, index, settings)
            if len(found.left) != len(answer.left):
                raise HaplyError(f"{name} misses pairs", expected=str(len(answer.left)), found=str(len(found.left)))
            row[name] = counters.returned / probes
            row[f"{name} leaf tests"] = counters.rows / probes
            row[f"{name} validated"] = counters.validated / probes
            spent[f"{name} time"] = _timed(partial(tumbling, data, region, index, settings), settings.repetitions)
        row["core regions"] = swept_candidates / probes
        spent["core regions time"] = _timed(partial(swept, data, region, settings), settings.repetitions)
        rows.append(row | {name: seconds / settings.windows for name, seconds in spent.items()})
    return rows


def _only(rows: list[Row], *fields: str) -> list[Row]:
    return [{name: row[name] for name in fields} for row in rows]


# -- the experiments ---------------------------------------------------------------------------------------------------


def expt_3(streams: list[Data], settings: Settings, tell: Tell) -> list[Figure]:
    """Compare GJ with x-bounds, for Gaussians."""
    names: dict[str, IndexName] = {"GJ": "gj", "GMJ": "gmj", "x-bounds": "xbound"}
    rows = [row for data in streams for row in _sweep_over(data, names, settings, tell)]
    first = [row for row in rows if row["data"] == streams[0].name]
    exact = all(row["GJ"] == row["matches"] and row["GJ validated"] == 0 for row in rows)
    more = [row["x-bounds"] / max(row["matches"], 1e-9) for row in first]
    tested = [row["GJ leaf tests"] / row["matches"] for row in rows if row["matches"]]
    faster = [row["x-bounds time"] / row["GJ time"] for row in rows]
    ours = [row["GJ time"] / row["core regions time"] for row in rows]
    least = min(row["d"] for row in rows)
    candidates = Figure(
        "Expt 3 candidates", "pairs per probe that leave the index, of Gaussians",
        _only(
            rows, "data", "d", "matches", "GJ", "GJ leaf tests", "GJ validated", "GMJ", "GMJ validated", "x-bounds",
            "x-bounds validated", "core regions",
        ),
        x="d", lines=("matches", "GJ", "GMJ", "x-bounds", "core regions"), y_title="pairs per probe", panel="data",
        claims=[
            Claim(
                "GJ returns exactly the true matches and validates none",
                f"{'in all rows' if exact else 'not so'}; but its leaves are tested with the formula that validates: "
                f"{min(tested):.2f} to {max(tested):.2f} tests a match", exact, any_size=True,
            ),
            Claim(
                "x-bounds return many more candidates than there are matches",
                f"{more[0]:.1f} times as many at d = {least:g}, generated Gaussians", more[0] > 2.0,
            ),
            Claim(
                "the difference becomes smaller as d grows, and at d = 100 almost all rows match",
                f"{more[-1]:.2f} times at d = {settings.distances[-1]:g}, where a probe has {first[-1]['matches']:.1f} "
                f"matches of {settings.window}",
                more == sorted(more, reverse=True) and first[-1]["matches"] > 0.95 * settings.window,
            ),
        ],
        notes=["d is a percentage of the range of the means; in the generated Gaussians it is the distance itself"],
    )  # fmt: skip
    times = Figure(
        "Expt 3 time", "building, probing and validating one window, of Gaussians",
        _only(rows, "data", "d", "GJ time", "GMJ time", "x-bounds time", "core regions time"),
        x="d", lines=("GJ time", "GMJ time", "x-bounds time", "core regions time"), y_title="seconds", panel="data",
        seconds=("GJ time", "GMJ time", "x-bounds time", "core regions time"),
        claims=[
            Claim(
                "GJ is significantly faster than x-bounds, as nothing is validated",
                f"{min(faster):.2f} to {max(faster):.2f} times as fast", min(faster) > 1.2,
            ),
            Claim(
                "(ours) the sweep over core regions is faster than GJ",
                f"{min(ours):.1f} to {max(ours):.1f} times as fast", min(ours) > 1.0,
            ),
        ],
        notes=["validating a pair is cheap here: a look-up in a table, and two error functions if it is kept"],
    )  # fmt: skip
    return [candidates, times]


def large(settings: Settings, tell: Tell) -> Figure:
    """Replace the paper's experiment on disk: one index over many rows, made before, and few probes."""
    random = np.random.default_rng(settings.seed)
    left, right = (
        Gaussian(random.uniform(0, 100, n), np.sqrt(random.uniform(0, 10, n)))
        for n in (settings.probes, settings.indexed)
    )
    threshold = Threshold(settings.threshold)
    trees = {"GJ": index_moments([right]), "x-bounds": index_xbounds([right], [left], threshold)}
    names: dict[str, IndexName] = {"GJ": "gj", "x-bounds": "xbound"}
    rows: list[Row] = []
    for distance in settings.distances:
        tell(f"{len(right):,} rows indexed: d = {distance:g}")
        row: Row = {"d": distance}
        for name, index in names.items():
            ask = partial(
                match_moments, [left], [right], [_within(distance)], threshold, True, index=index, tree=trees[name]
            )
            counters = ask().counters
            assert isinstance(counters, MomentCounters)
            row["matches"] = counters.kept / settings.probes
            row[name] = counters.returned / settings.probes
            row[f"{name} nodes"] = counters.nodes / settings.probes
            row[f"{name} leaf tests"] = counters.rows / settings.probes
            row[f"{name} validated"] = counters.validated / settings.probes
            row[f"{name} time"] = _timed(ask, settings.repetitions) / settings.probes
        rows.append(row)
    faster = [row["x-bounds time"] / row["GJ time"] for row in rows]
    fewer = [row["x-bounds"] / max(row["GJ"], 1e-9) for row in rows]
    return Figure(
        "Expt 3 large", f"{len(right):,} Gaussians indexed once, {settings.probes} probes: candidates and time a probe",
        rows, x="d", lines=("matches", "GJ", "x-bounds"), y_title="pairs per probe",
        seconds=("GJ time", "x-bounds time"),
        claims=[
            Claim(
                "on a large precomputed index the trend is the same, the numbers much larger",
                f"x-bounds return {max(fewer):.1f} to {min(fewer):.2f} times as many",
                all(row["GJ"] == row["matches"] for row in rows) and fewer[0] > fewer[-1],
            ),
            Claim(
                "the difference in time is drastic (there: also from the disk)",
                f"GJ is {min(faster):.2f} to {max(faster):.2f} times as fast", min(faster) > 2.0,
            ),
        ],
    )  # fmt: skip


def expt_4(streams: list[Data], settings: Settings, tell: Tell) -> list[Figure]:
    """Compare GMJ with x-bounds, and with both together, for mixtures."""
    names: dict[str, IndexName] = {"GMJ": "gmj", "x-bounds": "xbound"}
    rows = [row for data in streams for row in _sweep_over(data, names, settings, tell)]
    for row in rows:
        data = next(data for data in streams if data.name == row["data"])
        row["both"] = _both(data, _within(row["d"]), settings)
    claims = []
    for data in streams:
        mine = [row for row in rows if row["data"] == data.name]
        never = [row for row in mine if row["GMJ"] > row["x-bounds"]]
        worst = ", ".join(f"{row['GMJ']:.1f} against {row['x-bounds']:.1f} at d = {row['d']:g}" for row in never)
        claims.append(Claim(
            f"GMJ never returns more than x-bounds, until they meet at d = 100 ({data.name})",
            f"more: {worst}" if worst else
            f"fewer in all rows, {mine[0]['GMJ']:.1f} against {mine[0]['x-bounds']:.1f} at d = {mine[0]['d']:g}",
            not never,
        ))  # fmt: skip
    together = [row["both"] / min(row["GMJ"], row["x-bounds"]) for row in rows]
    core = [row["core regions"] / row["GMJ"] for row in rows]
    claims += [
        Claim(
            "(ours) candidates of both indexes are fewer than those of either",
            f"{min(together):.2f} to {max(together):.2f} of the better one", max(together) <= 1.0,
        ),
        Claim(
            "(ours) core regions leave fewer candidates than GMJ", f"{min(core):.2f} to {max(core):.2f} of them",
            max(core) <= 1.0,
        ),
    ]  # fmt: skip
    candidates = Figure(
        "Expt 4 candidates", "pairs per probe that leave the index, of mixtures",
        _only(rows, "data", "d", "matches", "GMJ", "x-bounds", "both", "core regions"),
        x="d", lines=("matches", "GMJ", "x-bounds", "both", "core regions"), y_title="pairs per probe", panel="data",
        claims=claims,
    )  # fmt: skip
    faster = [row["x-bounds time"] / row["GMJ time"] for row in rows]
    agreeing = sum((row["GMJ"] <= row["x-bounds"]) == (r >= 1.0) for row, r in zip(rows, faster, strict=True))
    times = Figure(
        "Expt 4 time", "building, probing and validating one window, of mixtures",
        _only(rows, "data", "d", "GMJ time", "x-bounds time", "core regions time"),
        x="d", lines=("GMJ time", "x-bounds time", "core regions time"), y_title="seconds", panel="data",
        seconds=("GMJ time", "x-bounds time", "core regions time"),
        claims=[
            Claim(
                "the time follows the number of candidates: the index with fewer is the faster",
                f"in {agreeing} of {len(rows)} rows; x-bounds take {min(faster):.2f} to {max(faster):.2f} times GMJ's",
                agreeing == len(rows),
            )
        ],
    )  # fmt: skip
    return [candidates, times]


def _both(data: Data, region: Region, settings: Settings) -> float:
    """Count the candidates per probe that both GMJ and x-bounds return."""
    threshold, count = Threshold(settings.threshold), 0
    for begin in range(0, len(data.left), settings.window):
        rows = np.arange(begin, begin + settings.window)
        left, right = data.left.take(rows), data.right.take(rows)
        codes = []
        for index in ("gmj", "xbound"):
            seen: list[np.ndarray] = []

            def note(i: np.ndarray, j: np.ndarray, seen: list[np.ndarray] = seen) -> np.ndarray:
                seen.append(i * settings.window + j)
                return np.zeros(len(i), bool)  # counted, not validated

            match_moments([left], [right], [region], threshold, True, index=index, admits=note)
            codes.append(np.concatenate(seen))
        count += len(np.intersect1d(codes[0], codes[1], assume_unique=True))
    return count / len(data.left)


def far_apart(data: Data, settings: Settings, tell: Tell) -> Figure:
    """Compare for ``|R.u - S.u| > d``: the corrected Theorem 3, Selberg's bound, the Gaussian index, and as printed."""
    names: dict[str, IndexName] = {"GJ": "gj", "Selberg": "gmj", "Theorem 3 mended": "chebyshev"}
    rows: list[Row] = []
    probes, agreed = settings.window * settings.windows, True
    for distance in settings.distances:
        tell(f"far apart: d = {distance:g}")
        row: Row = {"d": distance}
        kept = set()
        for name, index in names.items():
            found, counters = tumbling(data, Region(-distance, distance, outside=True), index, settings)
            row["matches"] = len(found.left) / probes
            row[name] = counters.returned / probes
            kept.add(len(found.left))
        agreed = agreed and len(kept) == 1
        away = np.abs(data.left.mean()[found.left] - data.right.mean()[found.right])
        spread = np.sqrt(data.left.variance()[found.left] + data.right.variance()[found.right])
        row["lost as printed %"] = 100.0 * float(
            np.mean(distance > away - spread / np.sqrt(settings.threshold)) if len(away) else 0.0
        )
        rows.append(row)
    lost = [row["lost as printed %"] for row in rows]
    exact = all(row["GJ"] == row["matches"] for row in rows)
    sharper = [row["Selberg"] / max(row["Theorem 3 mended"], 1e-9) for row in rows]
    return Figure(
        "far apart", "pairs per probe that leave the index, of Gaussians more than d apart", rows, x="d",
        lines=("matches", "GJ", "Selberg", "Theorem 3 mended"), y_title="pairs per probe", log_y=False,
        claims=[
            Claim("Theorem 3 as printed loses no match", f"it loses up to {max(lost):.1f} % of them", max(lost) == 0.0),
            Claim(
                "(ours) with its sign mended it loses none, nor does Selberg's bound",
                "as many pairs as GJ finds" if agreed else "pairs are missing", agreed,
            ),
            Claim("(ours) GJ returns exactly the matches here, too", "in all rows" if exact else "not so", exact),
            Claim(
                "(ours) Selberg's bound leaves fewer candidates than Theorem 3",
                f"{min(sharper):.2f} to {max(sharper):.2f} of them", max(sharper) <= 1.0,
            ),
        ],
    )  # fmt: skip
