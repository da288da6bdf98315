"""The demo's second part: a walk against its usual route, and an alarm when it becomes an outlier.

The story. Somebody walks the same way every day and carries a phone that records where they are, every five seconds,
with an error that it states: some metres in an open street, much more between tall buildings. Today they leave the
route for the next street and come back. The walk is made up, so the stretch is known; no method sees it.

A position is an outlier when no usual one is within ``WITHIN`` metres of it with a probability of ``THRESHOLD``. The
threshold is low on purpose: a position that may well be on the route is not a reason for an alarm. The naive method
ignores the errors and computes how far the nearest centre is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from haply.report.funnel import Funnel

WITHIN, THRESHOLD = 15.0, 0.02
SAMPLES = 40
"""Samples of each position."""

_SEED = 1
_DAYS, _EVERY_SECONDS, _METRES_A_SECOND = 5, 5.0, 1.3
_OPEN_ERRORS, _TALL_ERRORS, _OFTEN_BAD = (3.0, 8.0), (20.0, 60.0), 0.4
_RADII = np.arange(5.0, 71.0, 1.0)

ROUTE = ((40.0, 60.0), (260.0, 60.0), (260.0, 220.0), (540.0, 220.0), (540.0, 400.0), (880.0, 400.0))
_DETOUR = ((620.0, 400.0), (620.0, 470.0), (800.0, 470.0), (800.0, 400.0))
STREETS = (
    ((20.0, 60.0), (900.0, 60.0)),
    ((20.0, 220.0), (900.0, 220.0)),
    ((20.0, 400.0), (900.0, 400.0)),
    ((540.0, 470.0), (900.0, 470.0)),
    *(((x, 20.0), (x, 490.0)) for x in (120.0, 260.0, 540.0, 620.0, 800.0)),
)
_BETWEEN_TALL = ((245.0, 85.0, 275.0, 235.0), (245.0, 205.0, 525.0, 235.0))
TALL_BUILDINGS = (
    (185.0, 85.0, 248.0, 205.0),
    (272.0, 85.0, 335.0, 205.0),
    (347.0, 150.0, 525.0, 205.0),
    (185.0, 235.0, 525.0, 290.0),
)


# -- the planted walk --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Walks:
    """Recorded positions of earlier days and of today, and how far today's are from the route in truth.

    Both tables have ``fix`` (a number), ``seconds`` since the start, the reported ``x`` and ``y``, and ``points``, the
    samples, coordinates in turn.
    """

    usual: pa.Table
    today: pa.Table
    off_route: np.ndarray

    @property
    def left(self) -> np.ndarray:
        """Return which of today's positions are off the route."""
        return self.off_route > 1e-6

    @property
    def away(self) -> np.ndarray:
        """Return which of them are in the next street. On the way there and back a position may count as either."""
        return self.off_route > self.off_route.max() - 1e-6

    @property
    def stretch_minutes(self) -> tuple[float, float]:
        """When today's walk leaves the route, and when it is back."""
        seconds = self.today["seconds"].to_numpy()[self.left] / 60.0
        return float(seconds[0]), float(seconds[-1])


def plant_walks(seed: int = _SEED) -> Walks:
    """Make up the walks of some earlier days, each at its own pace, and today's."""
    random = np.random.default_rng(seed)
    usual = [_walk(ROUTE, random.uniform(0.0, _EVERY_SECONDS), random.uniform(1.2, 1.5)) for _ in range(_DAYS)]
    seconds, places = _walk((*ROUTE[:-1], *_DETOUR, ROUTE[-1]), 0.0, _METRES_A_SECOND)
    return Walks(
        _record(random, *(np.concatenate(column) for column in zip(*usual, strict=True))),
        _record(random, seconds, places),
        _distance_to_route(places),
    )


def _walk(corners: tuple[tuple[float, float], ...], start: float, pace: float) -> tuple[np.ndarray, np.ndarray]:
    """Return seconds and true positions of a walk from corner to corner."""
    at = np.array(corners)
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(at, axis=0).T))])
    seconds = np.arange(start, along[-1] / pace, _EVERY_SECONDS)
    return seconds, np.column_stack([np.interp(pace * seconds, along, at[:, k]) for k in (0, 1)])


def _record(random: np.random.Generator, seconds: np.ndarray, places: np.ndarray) -> pa.Table:
    """Make the phone's records: a position with the error that it states, and samples of the true position."""
    count = len(places)
    between = np.zeros(count, dtype=bool)
    for left, bottom, right, top in _BETWEEN_TALL:
        between |= ((places > (left, bottom)) & (places < (right, top))).all(axis=1)
    bad = between & (random.random(count) < _OFTEN_BAD)
    error = np.where(bad, random.uniform(*_TALL_ERRORS, count), random.uniform(*_OPEN_ERRORS, count))[:, None]
    centre = places + error * random.normal(size=(count, 2))
    points = centre[:, None] + error[:, None] * random.normal(size=(count, SAMPLES, 2))
    return pa.table(
        {
            "fix": np.arange(count),
            "seconds": seconds,
            "x": centre[:, 0],
            "y": centre[:, 1],
            "points": list(points.reshape(count, 2 * SAMPLES)),
        }
    )


def _distance_to_route(places: np.ndarray) -> np.ndarray:
    begin, end = np.array(ROUTE[:-1]), np.array(ROUTE[1:])
    step = end - begin
    share = ((places[:, None] - begin) * step).sum(-1) / (step * step).sum(-1)
    nearest = begin + np.clip(share, 0.0, 1.0)[..., None] * step
    return np.sqrt(((places[:, None] - nearest) ** 2).sum(-1)).min(1)


# -- two ways to find outliers -----------------------------------------------------------------------------------------


def without_partner(spark: Any, walks: Walks, funnel: Funnel | None = None) -> np.ndarray:
    """Return which of today's positions have no usual partner, by a join on Spark.

    Only the existence of a partner matters: without probabilities, rules may accept pairs as well as reject them.
    """
    from haply.api import join
    from haply.engines.spark.columns import samples
    from haply.query import distance, left, right

    today, usual = (
        spark.createDataFrame(table.select(["fix", "points"])).select("fix", samples("points", dim=2).alias("pos"))
        for table in (walks.today, walks.usual)
    )
    near = distance(left.pos, right.pos) <= WITHIN
    pairs = join(today, usual, on=near, threshold=THRESHOLD, probability="none", funnel=funnel)
    outlier = np.ones(walks.today.num_rows, dtype=bool)
    outlier[pairs.select("fix_left").toArrow()["fix_left"].to_numpy()] = False
    return outlier


def nearest_centre_apart(walks: Walks) -> np.ndarray:
    """Return how far the nearest usual position is from each of today's, as if there were no errors."""
    today, usual = (np.column_stack([table["x"], table["y"]]) for table in (walks.today, walks.usual))
    return np.sqrt(((today[:, None] - usual) ** 2).sum(-1)).min(1)


def alarms(outlier: np.ndarray) -> np.ndarray:
    """Return the positions at which an alarm is given: each outlier after a position that was not one."""
    return np.flatnonzero(outlier & ~np.concatenate([[False], outlier[:-1]]))


# -- scoring -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RouteScore:
    """How one way did: false alarms are those on the route, missed are positions in the next street that are not called
    outliers.

    ``noticed_after`` are the seconds from the corner to the first position off the route that is called one.
    """

    method: str
    alarms: int
    false_alarms: int
    missed: int
    noticed_after: float | None

    @property
    def errors(self) -> int:
        """False alarms and missed positions together."""
        return self.false_alarms + self.missed


def score_outliers(method: str, outlier: np.ndarray, walks: Walks) -> RouteScore:
    """Compare an answer with the known stretch."""
    given, left = alarms(outlier), walks.left
    called = np.flatnonzero(outlier & left)
    return RouteScore(
        method,
        len(given),
        int((~left[given]).sum()),
        int((walks.away & ~outlier).sum()),
        _EVERY_SECONDS * float(called[0] - np.flatnonzero(left)[0]) if len(called) else None,
    )


def best_radius(walks: Walks) -> RouteScore:
    """Return the naive method with the radius that fits the truth best, which is not known in practice."""
    apart = nearest_centre_apart(walks)
    tried = [
        score_outliers(f"nearest centre, {radius:g} m (tuned on the truth)", apart > radius, walks) for radius in _RADII
    ]
    return min(tried, key=lambda score: (score.errors, np.inf if score.noticed_after is None else score.noticed_after))


@dataclass
class RouteResult:
    """What the second part found."""

    walks: Walks = field(repr=False)
    outlier: np.ndarray = field(repr=False)
    naive_outlier: np.ndarray = field(repr=False)
    haply: RouteScore
    naive: RouteScore
    tuned: RouteScore
    funnel: Any = field(repr=False)


def follow_route(spark: Any, seed: int = _SEED) -> RouteResult:
    """Make the walks, find the outliers by both methods, and score them."""
    from haply.report.funnel import Funnel

    walks, funnel = plant_walks(seed), Funnel()
    ours, naive = without_partner(spark, walks, funnel), nearest_centre_apart(walks) > WITHIN
    return RouteResult(
        walks, ours, naive,
        score_outliers(f"haply, {WITHIN:g} m, P ≥ {THRESHOLD:g}", ours, walks),
        score_outliers(f"nearest centre, {WITHIN:g} m", naive, walks),
        best_radius(walks),
        funnel,
    )  # fmt: skip


# -- telling it --------------------------------------------------------------------------------------------------------

HEADING = "A walk off its usual route"
_NAMES = ((40.0, 33.0, "start"), (890.0, 375.0, "end"))
_HELD = 0.9  # of the samples, by a circle on the map
HEADER = ("method", "alarms", "false alarms", "missed positions", "noticed")


def rows(result: RouteResult) -> list[list[str]]:
    """Return the lines of the comparison."""
    return [
        [score.method, str(score.alarms), str(score.false_alarms), str(score.missed), _after(score)]
        for score in (result.haply, result.naive, result.tuned)
    ]


def _scene(walks: Walks) -> str:
    begin, end = walks.stretch_minutes
    return (
        f"Somebody walks the same way every day; {_DAYS} earlier days are on record. A phone states where they are "
        f"every {_EVERY_SECONDS:g} seconds, give or take {_OPEN_ERRORS[0]:g} to {_OPEN_ERRORS[1]:g} m in an open "
        f"street and up to {_TALL_ERRORS[1]:g} m between tall buildings. Today, from minute {begin:.1f} to {end:.1f}, "
        "they take the next street."
    )


def _columns(walks: Walks) -> str:
    return (
        f"False alarms are those given on the route. Missed are those of the {walks.away.sum()} positions in the next "
        "street that were not called outliers. The time to notice counts from the corner."
    )


def verdict(result: RouteResult) -> str:
    """Return what the scores say."""
    ours, naive, tuned = result.haply, result.naive, result.tuned
    return (
        f"haply gives {_count(ours.false_alarms, 'false alarm')}, the nearest centre within the same {WITHIN:g} m "
        f"gives {naive.false_alarms}: between tall buildings a centre may be far off though the person is not, and the "
        f"stated error shows it. Being surer takes time: the turn is noticed {_after(ours)} instead of "
        f"{_after(naive)}. A wider radius helps the naive method too ({_count(tuned.errors, 'error')}, noticed "
        f"{_after(tuned)}), but only the truth says how wide."
    )


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _after(score: RouteScore) -> str:
    return "never" if score.noticed_after is None else f"after {score.noticed_after:.0f} s"


def in_short(result: RouteResult) -> tuple[str, str]:
    """Say what haply answers, and what the nearest centre does."""
    ours, naive = (
        f"{_count(score.false_alarms, 'false alarm')}, noticed {_after(score)}"
        for score in (result.haply, result.naive)
    )
    return ours, f"{naive} (nearest centre)"


def add_section(page: Any, result: RouteResult) -> None:
    """Add the walk to the report."""
    from haply.report import charts

    counts = result.funnel.to_dict()
    page.section(HEADING)
    page.prose(_scene(result.walks))
    page.code(
        f"near = hp.distance(hp.left.pos, hp.right.pos) <= {WITHIN:g}\n"
        f'pairs = hp.join(today, usual, on=near, threshold={THRESHOLD:g}, probability="none")'
    )
    page.prose(
        f"A position is an outlier when no usual one is within {WITHIN:g} m of it with a probability of at least "
        f"{THRESHOLD:g}, and the first of a run of outliers gives an alarm. The threshold is low on purpose: a "
        "position that may well be on the route is not an outlier."
    )
    page.chart(
        charts.position_map(map_records(result), route=ROUTE, streets=STREETS, blocks=TALL_BUILDINGS, names=_NAMES),
        f"Map of the town with the usual route and today's positions as circles. {verdict(result)}",
        caption=f"A circle holds {_HELD:.0%} of the samples of one position. Only the next street, top right, is truly "
        "off the route.",
    )
    page.table(HEADER, rows(result), caption=_columns(result.walks), strong=[0])
    page.prose(verdict(result))
    page.chart(
        result.funnel.chart(),
        "Bar chart of the pairs of positions left after each stage, on a logarithmic axis.",
        caption=f"Of {counts['candidates']:,} candidates, {counts['evaluated']:,} had their samples counted; rules "
        "rejected or accepted the rest.",
    )


def map_records(result: RouteResult) -> list[dict[str, Any]]:
    """Return what the map shows: usual positions as dots, today's as circles around most samples, and alarms."""
    from haply.report import charts

    walks = result.walks

    usual, today = (np.column_stack([table["x"], table["y"]]) for table in (walks.usual, walks.today))
    points = np.stack(walks.today["points"].to_numpy()).reshape(len(today), SAMPLES, 2)
    radii = np.quantile(np.sqrt(((points - today[:, None]) ** 2).sum(-1)), _HELD, axis=1)

    def marks(kind: str, centres: np.ndarray, radii: np.ndarray | float = 0.0) -> list[dict[str, Any]]:
        numbers = np.column_stack([centres, np.broadcast_to(radii, len(centres))]).round(1).tolist()
        return [{"kind": kind, "x": x, "y": y, "radius": radius} for x, y, radius in numbers]

    outlier, naive = result.outlier, result.naive_outlier
    return [
        *marks(charts.USUAL, usual),
        *marks(charts.TODAY, today[~outlier], radii[~outlier]),
        *marks(charts.OUTLIER, today[outlier], radii[outlier]),
        *marks(charts.ALARM, today[alarms(outlier)]),
        *marks(charts.OTHER_ALARM, today[alarms(naive)]),
    ]
