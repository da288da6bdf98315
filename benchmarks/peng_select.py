"""``bench peng-select``: the cost of bounds and exact values of region probabilities (Peng, Diao, Liu 2011, 3 and E).

``filter box`` and ``filter disc`` decide rows by bounds alone, ``disc`` computes the probability; ``scipy`` integrates
the density over the region, row by row, with ``dblquad``. The jobs of the filters are on rows that the filters decide.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import peng_data as data
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
from haply.errors import HaplyError
from haply.models import Gaussian, GaussianND
from haply.numerics.normal import normal_cdf
from haply.probability.multivariate import disc_probability
from haply.pruning.bounds.region import (
    CANTELLI,
    DISTANCE,
    Box,
    Quadratic,
    bound_regions,
    cantelli,
    chebyshev,
    decide_regions,
    markov,
    selberg,
)
from haply.pruning.threshold import Threshold
from haply.selection.conditions import Polynomial, Range, RowValues
from haply.selection.grouping import group_of
from haply.selection.select import Effort, Selection

SCIPY = "scipy"


@dataclass(frozen=True)
class Settings:
    """The rows of each experiment, and the rows that SciPy integrates."""

    rows: int = 50_000
    integrated: int = 40
    threshold: float = 0.7
    thresholds: tuple[float, ...] = (0.7, 0.8, 0.9)
    """The thresholds of Expt 1."""
    sizes: tuple[int, ...] = (200, 400, 800, 1200, 1600, 2000)
    """The sizes of the boxes of Expt 1."""
    repetitions: int = 3
    seed: int = 3


QUICK = Settings(rows=2_000, integrated=4, repetitions=1)


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does."""
    return measure(QUICK if quick else Settings(), tell)


def measure(settings: Settings, tell: Tell) -> Report:
    """Measure the comparison with SciPy, then Expts 1 and 2."""
    results = [
        *filters("filter box", settings, tell), *filters("filter disc", settings, tell), *exact_discs(settings, tell),
    ]  # fmt: skip
    figures = [
        boxes(settings, tell), intervals(settings, tell), two_intervals(settings, tell), averages(settings, tell),
    ]  # fmt: skip
    config = {
        **settings.__dict__,
        "formulations": {
            OURS: "decide_regions on all rows at once, or disc_probability",
            SCIPY: "dblquad of the normal density over the region, default tolerances, one row after the other",
        },
        "targets": {SCIPY: {"filter box": 400.0, "filter disc": 400.0, "disc": 100.0}},
        "notes": ["seconds are per row; pairs are rows that both decide alike"],
        **circumstances("scipy"),
    }
    title = f"Regions of Gaussians in two dimensions, {settings.integrated} rows integrated, one thread"
    return Report("peng-select", title, config, results, figures=figures)


# -- beside SciPy ------------------------------------------------------------------------------------------------------


def integrate(mean: np.ndarray, cov: np.ndarray, low: float, high: float, ends: Callable[[float], Any]) -> float:
    """Integrate the normal density with SciPy over ``low < x < high`` and, for each x, over y between its ends."""
    inverse = np.linalg.inv(cov)
    scale = 1.0 / (2.0 * math.pi * math.sqrt(np.linalg.det(cov)))
    (a, b), (_, c) = inverse

    def density(y: float, x: float) -> float:
        u, v = x - mean[0], y - mean[1]
        return scale * math.exp(-0.5 * (a * u * u + 2.0 * b * u * v + c * v * v))

    # an expert cuts the region to where the density is not negligible
    reach, tall = 9.0 * math.sqrt(cov[0, 0]), 9.0 * math.sqrt(cov[1, 1])
    low, high = max(low, mean[0] - reach), min(high, mean[0] + reach)
    if low >= high:
        return 0.0

    def bottom(x: float) -> float:
        return min(max(ends(x)[0], mean[1] - tall), mean[1] + tall)

    def top(x: float) -> float:
        return max(min(ends(x)[1], mean[1] + tall), mean[1] - tall)

    return float(needs("scipy.integrate").dblquad(density, low, high, bottom, top)[0])


def _disc_ends(radius: float) -> Callable[[float], Any]:
    def ends(x: float) -> tuple[float, float]:
        half = math.sqrt(max(0.0, radius * radius - x * x))
        return -half, half

    return ends


def _parts(model: GaussianND) -> tuple[np.ndarray, np.ndarray]:
    return model.mean().values.reshape(-1, 2), model.cov.values.reshape(-1, 2, 2)


def filters(job: str, settings: Settings, tell: Tell) -> list[Result]:
    """Time rows that the bounds decide, by bounds and by integration."""
    box = job == "filter box"
    size = 1000.0 if box else 50.0
    model = (data.fields if box else data.discs)(settings.rows, settings.seed)
    region = Box([100.0, 100.0], [100.0 + size, 100.0 + size]) if box else Quadratic(np.eye(2), size * size)
    threshold = Threshold(settings.threshold)
    tell(f"{job}: bounds on {settings.rows:,} rows")
    decided = np.flatnonzero(decide_regions(model, region, threshold).verdict)
    # rows near the border, which take work: a far row is easy for all
    mean, cov = _parts(model)
    near = _near_border(mean[decided], cov[decided], box, size)
    rows = decided[near][: settings.integrated * 50]
    means, covs = mean[rows], cov[rows]
    chosen = slice(0, settings.integrated)

    def ours() -> Answer:
        verdict = decide_regions((means, covs), region, threshold).verdict
        return _accepted(verdict > 0)

    def theirs() -> Answer:
        value = [
            integrate(m, c, 100.0, 100.0 + size, lambda x: (100.0, 100.0 + size))
            if box
            else integrate(m, c, -size, size, _disc_ends(size))
            for m, c in zip(means[chosen], covs[chosen], strict=True)
        ]
        return _accepted(np.array(value) >= settings.threshold)

    first = theirs()
    tell(f"{job}: integrated {settings.integrated} rows")
    mine = decide_regions((means[chosen], covs[chosen]), region, threshold).verdict > 0
    check_same(job, {OURS: _accepted(mine), SCIPY: first})
    seconds = take_turns(job, {OURS: ours, SCIPY: theirs}, settings.repetitions, tell, TURN)
    per_row = {OURS: seconds[OURS] / len(rows), SCIPY: seconds[SCIPY] / len(means[chosen])}
    return ranked(job, per_row, dict.fromkeys(per_row, len(first.left)))


def _near_border(mean: np.ndarray, cov: np.ndarray, box: bool, size: float) -> np.ndarray:
    sd = np.sqrt(np.trace(cov, axis1=1, axis2=2))
    if box:
        away = np.abs(mean - 100.0 - 0.5 * size).max(axis=1) - 0.5 * size
    else:
        away = np.hypot(*mean.T) - size
    return np.flatnonzero(np.abs(away) < 5.0 * sd)


def _accepted(flags: np.ndarray) -> Answer:
    rows = np.flatnonzero(flags)
    return Answer(rows, rows)


def exact_discs(settings: Settings, tell: Tell) -> list[Result]:
    """Time the probability of discs, to the same error."""
    model = data.discs(settings.rows, settings.seed + 1)
    mean, cov = _parts(model)
    near = _near_border(mean, cov, False, 50.0)[: settings.integrated * 50]
    mean, cov = mean[near], cov[near]
    chosen = slice(0, settings.integrated)
    index = np.arange(len(mean[chosen]))

    def theirs() -> Answer:
        value = [integrate(m, c, -50.0, 50.0, _disc_ends(50.0)) for m, c in zip(mean[chosen], cov[chosen], strict=True)]
        return Answer(index, index, np.array(value))

    first = theirs()
    tell(f"disc: integrated {len(index)} rows")
    mine = disc_probability(mean[chosen], cov[chosen], 50.0)
    assert first.probability is not None
    apart = float(np.abs(mine - first.probability).max())
    if apart > 1e-7:  # SciPy aims at 1.5e-8
        raise HaplyError("A disc's probability differs from SciPy's", expected="less than 1e-7", found=f"{apart:g}")
    engines: dict[str, Callable[[], Any]] = {OURS: lambda: disc_probability(mean, cov, 50.0), SCIPY: theirs}
    seconds = take_turns("disc", engines, settings.repetitions, tell, TURN)
    per_row = {OURS: seconds[OURS] / len(mean), SCIPY: seconds[SCIPY] / len(index)}
    return ranked("disc", per_row, dict.fromkeys(per_row, len(index)))


# -- the paper's experiments -------------------------------------------------------------------------------------------


def boxes(settings: Settings, tell: Tell) -> Figure:
    """Measure Expt 1: a box that grows, by bounds first or by exact values alone, at several thresholds."""
    batch = RowValues({"pos": data.fields(settings.rows, settings.seed)}, {}, settings.rows)
    rows = [
        _box(batch, size, threshold, settings, tell) for threshold in settings.thresholds for size in settings.sizes
    ]
    claims = []
    for needed in settings.thresholds:
        mine = [row for row in rows if row["threshold"] == needed]
        small, large = (row["filters"] / row["exact"] for row in (mine[0], mine[-1]))
        claims += [
            Claim(
                f"the filter's cost is near 0 for small d (threshold {needed:g})",
                f"{small:.2f} of the exact one at d = {mine[0]['d']}", small < 0.2,
            ),
            Claim(
                f"it meets the exact one at d = {mine[-1]['d']} (threshold {needed:g})", f"{large:.2f} of it",
                large > 0.8,
            ),
        ]  # fmt: skip
    return Figure(
        "Expt 1", "a box of d x d pixels, seconds per row", rows, x="d", lines=("filters", "exact"),
        y_title="seconds per row", panel="threshold", seconds=("filters", "exact"), claims=claims,
        notes=["the errors are correlated: up to 0.9; probabilities are not asked for, so that bounds accept, too"],
    )  # fmt: skip


def _box(batch: RowValues, size: int, needed: float, settings: Settings, tell: Tell) -> dict[str, Any]:
    """Measure one box at one threshold."""
    tell(f"Expt 1: d = {size}, threshold {needed:g}")
    conditions = [
        Polynomial(((("pos", k), 1.0),), (), (Range(100.0, 100.0 + size, False, False),), f"pos[{k}]") for k in (0, 1)
    ]
    kinds, threshold = {"pos": GaussianND}, Threshold(needed)
    ours = Selection.of([conditions], kinds, threshold, "per_row", exact=False)
    alone = Selection.of([conditions], kinds, threshold, "static", exact=False)
    effort = Effort()
    kept = len(ours.select(batch, effort).rows)
    times = {
        name: min(_timed(lambda: selection.select(batch)) for _ in range(settings.repetitions))  # noqa: B023
        for name, selection in (("filters", ours), ("exact", alone))
    }
    share = {"kept %": kept, "computed %": sum(effort.computed.values())}
    return (
        {"threshold": needed, "d": size}
        | {name: seconds / batch.rows for name, seconds in times.items()}
        | {name: round(100.0 * count / batch.rows, 2) for name, count in share.items()}
    )


def _timed(work: Callable[[], Any]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


@dataclass(frozen=True)
class Values:
    """The values of Expt 2: normals with means up to 50 and variances up to 10."""

    mean: np.ndarray
    sd: np.ndarray

    @classmethod
    def of(cls, settings: Settings) -> Values:
        """Draw the values."""
        random = np.random.default_rng(settings.seed)
        count = min(settings.rows, 5_000)
        return cls(random.uniform(-50.0, 50.0, count), np.sqrt(random.uniform(0.0, 10.0, count)))

    @property
    def absolute(self) -> np.ndarray:
        """The mean absolute value of each normal."""
        z = self.mean / self.sd
        beside = 1.0 - 2.0 * np.array([normal_cdf(-each) for each in z])
        return self.sd * math.sqrt(2.0 / math.pi) * np.exp(-0.5 * z * z) + self.mean * beside

    def exact(self, ranges: tuple[Range, ...]) -> np.ndarray:
        """Return the probability of each value to lie in one of the ranges."""
        inside = Polynomial(((("x", None), 1.0),), (), ranges, "x")
        batch = RowValues({"x": Gaussian(self.mean, self.sd)}, {}, len(self.mean))
        return group_of([inside], {"x": Gaussian}).prepare(batch).exact()[0]

    def bounds(self, ranges: tuple[Range, ...]) -> dict[str, np.ndarray]:
        """Return upper bounds on this probability by each filter, value by value.

        Markov's uses the distance from 0, the others that from the mean, to the nearest range on each side. If there
        are ranges on both sides, Cantelli's filter adds up both tails, Chebyshev's takes the nearer one for both, as in
        the paper.
        """
        below, above = self._gaps(self.mean, ranges)
        nearest = np.minimum(*(gap[0] for gap in self._gaps(np.zeros(1), ranges)))
        pairs = list(zip(self.sd, below, above, strict=True))
        return {
            "markov": np.array([markov(each, nearest) for each in self.absolute]),
            "chebyshev": np.array([chebyshev(sd, low, high) for sd, low, high in pairs]),
            "cantelli": np.array([min(1.0, _tail(sd, low) + _tail(sd, high)) for sd, low, high in pairs]),
            "selberg": np.array([selberg(sd, low, high) for sd, low, high in pairs]),
        }

    @staticmethod
    def _gaps(at: np.ndarray, ranges: tuple[Range, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances to the nearest ranges below and above a place: 0 inside of one, infinite without one."""
        below, above = np.full(len(at), math.inf), np.full(len(at), math.inf)
        for low, high, *_ in ranges:
            below = np.where(at >= low, np.minimum(below, np.maximum(at - high, 0.0)), below)
            above = np.where(at <= high, np.minimum(above, np.maximum(low - at, 0.0)), above)
        return below, above


def _tail(sd: float, away: float) -> float:
    return 0.0 if math.isinf(away) else float(cantelli(sd, away))


_FILTERS = ("markov", "chebyshev", "cantelli", "selberg")


def _averages_of(values: Values, ranges: tuple[Range, ...]) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return the average bound of each filter and the average exact value, and the bounds of all values."""
    found, exact = values.bounds(ranges), values.exact(ranges)
    for name, bound in found.items():
        if (bound < exact - 1e-12).any():
            raise HaplyError(f"The bound '{name}' is below the probability", found=f"{(exact - bound).max():g}")
    return {name: float(found[name].mean()) for name in _FILTERS} | {"exact": float(exact.mean())}, found


def intervals(settings: Settings, tell: Tell) -> Figure:
    """Measure Expt 2 (i): how sharp bounds for one dimension are, for an interval of length 10 that moves."""
    values, rows = Values.of(settings), []
    for start in range(-150, 151, 25):
        tell(f"Expt 2: an interval from {start}")
        rows.append({"from": start, **_averages_of(values, (Range(float(start), start + 10.0),))[0]})
    holds = all(r["markov"] >= r["chebyshev"] - 1e-12 >= r["cantelli"] - 2e-12 for r in rows if abs(r["from"]) > 60)
    ratio = float(np.mean([r["cantelli"] for r in rows]) / np.mean([r["exact"] for r in rows]))
    claims = [
        Claim("Markov is far above Chebyshev, which is above Cantelli (outside of the means)", _spread(rows), holds),
        Claim("Cantelli is close to the exact value", f"{ratio:.2f} times it on average", ratio < 1.25),
    ]
    return Figure(
        "Expt 2 intervals", "average bound on P(start <= x <= start + 10)", rows, x="from",
        lines=("markov", "chebyshev", "cantelli", "exact"), y_title="probability", log_y=False, claims=claims,
        notes=["one interval beside the mean is a half line: Selberg's bound is Cantelli's there"],
    )  # fmt: skip


GAP = 20.0
"""The gap between the two intervals of Expt 2 (ii)."""


def two_intervals(settings: Settings, tell: Tell) -> Figure:
    """Measure Expt 2 (ii), Fig. 5(b): two intervals of length 10 that move together."""
    values, rows, least = Values.of(settings), [], True
    for start in range(-170, 131, 25):
        tell(f"Expt 2: two intervals from {start}")
        second = start + 10.0 + GAP
        ranges = Range(float(start), start + 10.0), Range(second, second + 10.0)
        means, found = _averages_of(values, ranges)
        least &= all((found["selberg"] <= found[name] + 1e-12).all() for name in ("chebyshev", "cantelli"))
        sharper = 100.0 * float((found["chebyshev"] < found["cantelli"] - 1e-12).mean())
        rows.append({"from": start, **means, "chebyshev sharper %": round(sharper, 1)})
    of = {name: float(np.mean([row[name] for row in rows])) for name in _FILTERS}
    share = max(row["chebyshev sharper %"] for row in rows)
    claims = [
        Claim(
            "on average the Chebyshev filter lies between Markov and Cantelli", _spread(rows),
            of["markov"] >= of["chebyshev"] >= of["cantelli"],
        ),
        Claim(
            "for some values their order is another", f"Chebyshev is the sharper one for up to {share:g}%", share > 0.0
        ),
        Claim(
            "(ours) Selberg's bound is for no value above Chebyshev's or Cantelli's",
            f"selberg {of['selberg']:.4f} on average", least, any_size=True,
        ),
    ]  # fmt: skip
    return Figure(
        "Expt 2 two intervals", "average bound on P(x in one of two intervals of length 10)", rows, x="from",
        lines=("markov", "chebyshev", "cantelli", "exact"), y_title="probability", log_y=False, claims=claims,
        notes=[f"the second interval begins {GAP:g} after the end of the first; the paper does not say where its does"],
    )  # fmt: skip


def _spread(rows: list[dict[str, float]]) -> str:
    means = {name: float(np.mean([row[name] for row in rows])) for name in ("markov", "chebyshev", "cantelli", "exact")}
    return ", ".join(f"{name} {value:.4f}" for name, value in means.items()) + " on average"


def averages(settings: Settings, tell: Tell) -> Figure:
    """Measure Expt 2: how sharp the bounds for discs are."""
    model = data.discs(settings.rows, settings.seed)
    mean, cov = _parts(model)
    rows = []
    for size in range(10, 101, 10):
        tell(f"Expt 2: a disc of radius {size}")
        region = Quadratic(np.eye(2), float(size * size))
        row = {"d": size, "exact": float(disc_probability(mean, cov, float(size)).mean())}
        for name, rule, law in (
            ("cantelli", CANTELLI, "gaussian"), ("any law", DISTANCE, "any"), ("gaussian", DISTANCE, "gaussian"),
        ):  # fmt: skip
            found = bound_regions((mean, cov), region, 0.0, math.inf, law=law, rules=(rule,))  # type: ignore[arg-type]
            row[name] = float(np.minimum(found.upper, 1.0).mean())
            if name == "any law":  # 1 / (1 + d^2), where the paper has k / d^2
                square = 1.0 / np.clip(found.upper, 1e-300, 1.0) - 1.0
                row["paper"] = float(np.minimum(1.0, 2.0 / np.maximum(square, 1e-300)).mean())
        rows.append(row)
    names = ("cantelli", "paper", "any law", "gaussian")
    mean_of = {name: float(np.mean([row[name] for row in rows])) for name in names}
    measured = ", ".join(f"{name} {value:.4f}" for name, value in mean_of.items())
    claims = [
        Claim("Cantelli is slightly better than the general k/d^2", measured, mean_of["cantelli"] < mean_of["paper"]),
        Claim("1/(1 + d^2), for convex regions, beats Cantelli", measured, mean_of["any law"] < mean_of["cantelli"]),
        Claim(
            "no bound is below the exact average", "in all rows",
            all(row[name] >= row["exact"] - 1e-12 for row in rows for name in names), any_size=True,
        ),
    ]  # fmt: skip
    quarter = ", ".join(f"{math.pi * d * d / 40_000:.4f}" for d in (20, 50, 80))
    return Figure(
        "Expt 2 discs", "average upper bound on P(x^2 + y^2 < d^2)", rows, x="d",
        lines=("exact", "gaussian", "any law", "paper", "cantelli"), y_title="probability", log_y=False, claims=claims,
        notes=[f"means up to 100 fill a square, of which a quarter disc with d = 20, 50, 80 is {quarter}"],
    )  # fmt: skip
