"""The demo's part on the sky: two catalogues with an error for every source, matched against planted truth.

The story. A survey in visible light and one in radio waves look at the same field. Both list where they see each
source, with an error ellipse: some sources are sharp, others blurred. The field is made up, so that the partner of each
source is known; no method sees it. The naive method ignores the errors and takes every pair within a fixed radius.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from haply.report.funnel import Funnel

WITHIN, THRESHOLD = 0.2, 0.01
"""Arcseconds that count as the same place, and how likely that must be."""

_SEED, _SOURCES, _DENSITY = 4, 4_000, 0.06
_ERRORS = (0.05, 0.6)
_RADII = tuple(round(0.1 * k, 1) for k in range(2, 19))
_THRESHOLDS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4)
_AT = (0.0, 55.0)
"""Right ascension and declination of the middle of the field."""

HEADING = "Two catalogues of the sky"
HEADER = ("method", "pairs", "precision", "recall", "F1")


@dataclass(frozen=True)
class SkyField:
    """The catalogues: ``source`` (a number that both share), ``ra``, ``dec``, ``major``, ``minor``, ``angle``."""

    visible: pa.Table
    radio: pa.Table


def plant_field(seed: int = _SEED) -> SkyField:
    """Make up sources, and how each survey sees them."""
    random = np.random.default_rng(seed)
    width = math.sqrt(_SOURCES / _DENSITY) / 3600.0
    dec = _AT[1] + random.uniform(-0.5 * width, 0.5 * width, _SOURCES)
    ra = _AT[0] + random.uniform(-0.5 * width, 0.5 * width, _SOURCES) / math.cos(math.radians(_AT[1]))
    tables = [observe(random, np.arange(_SOURCES), ra, dec) for _ in range(2)]
    return SkyField(tables[0], tables[1])


def observe(random: np.random.Generator, source: np.ndarray, ra: np.ndarray, dec: np.ndarray) -> pa.Table:
    """Make up how a survey sees sources: each with its own error ellipse, of up to ``_ERRORS`` arcseconds."""
    count = len(source)
    major = _ERRORS[0] * np.exp(random.uniform(0.0, math.log(_ERRORS[1] / _ERRORS[0]), count))
    minor, angle = major * random.uniform(0.3, 1.0, count), random.uniform(0.0, 180.0, count)
    long, short = major * random.normal(size=count), minor * random.normal(size=count)
    sine, cosine = np.sin(np.radians(angle)), np.cos(np.radians(angle))
    seen_dec = dec + (long * cosine - short * sine) / 3600.0
    seen_ra = ra + (long * sine + short * cosine) / 3600.0 / np.cos(np.radians(dec))
    columns = {"ra": seen_ra % 360.0, "dec": seen_dec, "major": major, "minor": minor, "angle": angle}
    return pa.table({"source": source, **columns})


@dataclass(frozen=True)
class SkyScore:
    """How one match did."""

    method: str
    setting: str
    threshold: float | None
    pairs: int
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """Precision and recall in one number."""
        return 2.0 * self.precision * self.recall / max(1e-300, self.precision + self.recall)

    def record(self, marked: bool) -> dict[str, Any]:
        """As the chart wants it."""
        return {
            "method": self.method, "setting": self.setting, "threshold": self.threshold, "precision": self.precision,
            "recall": self.recall, "f1": self.f1, "marked": marked,
        }  # fmt: skip


def score(method: str, setting: str, threshold: float | None, right: np.ndarray) -> SkyScore:
    """From a flag for each pair, whether it is a true one."""
    true = int(np.count_nonzero(right))
    return SkyScore(method, setting, threshold, len(right), true / max(1, len(right)), true / _SOURCES)


def likely_pairs(spark: Any, sky: SkyField, funnel: Funnel | None = None) -> pa.Table:
    """Return pairs that may be at one place, by a join on Spark: ``probability``, and whether the pair is true."""
    from haply.api import join
    from haply.engines.spark.columns import sky_ellipse
    from haply.query import distance, left, right

    sides = [
        spark.createDataFrame(table).select("source", sky_ellipse("ra", "dec", "major", "minor", "angle").alias("pos"))
        for table in (sky.visible, sky.radio)
    ]
    near = distance(left.pos, right.pos) <= WITHIN
    pairs = join(sides[0], sides[1], on=near, threshold=_THRESHOLDS[0], funnel=funnel)
    return pairs.selectExpr("source_left = source_right AS right", "probability").toArrow()


def within_radius(sky: SkyField) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs within the largest radius, ignoring errors: their distances, and whether they are true."""
    from haply.joins import join_positions
    from haply.models import Sky

    sides = [Sky(table["ra"].to_numpy(), table["dec"].to_numpy(), 0.0, 0.0) for table in (sky.visible, sky.radio)]
    found = join_positions(sides[0], sides[1], _RADII[-1], 1.0)
    one, other = sides[0].lifted()[0][found.left], sides[1].lifted()[0][found.right]
    return np.sqrt(((one - other) ** 2).sum(axis=1)), found.left == found.right


@dataclass
class SkyResult:
    """What this part found."""

    haply: SkyScore
    best_radius: SkyScore
    curve: list[SkyScore] = field(repr=False)
    radii: list[SkyScore] = field(repr=False)
    funnel: Any = field(repr=False)


def match_catalogues(spark: Any, seed: int = _SEED) -> SkyResult:
    """Make the field, match it by both methods, and score them."""
    from haply.report.funnel import Funnel

    sky, funnel = plant_field(seed), Funnel()
    pairs = likely_pairs(spark, sky, funnel)
    probability, right = (pairs[name].to_numpy(zero_copy_only=False) for name in ("probability", "right"))
    curve = [score("haply", f"P ≥ {limit:g}", limit, right[probability >= limit]) for limit in _THRESHOLDS]
    apart, true = within_radius(sky)
    radii = [score("fixed radius", f"{radius:g}″", None, true[apart <= radius]) for radius in _RADII]
    ours = next(each for each in curve if each.threshold == THRESHOLD)
    return SkyResult(ours, max(radii, key=lambda each: each.f1), curve, radii, funnel)


# -- telling it --------------------------------------------------------------------------------------------------------


def rows(result: SkyResult) -> list[list[str]]:
    """Return the lines of the comparison."""
    named = (
        (f"haply: within {WITHIN:g}″ with {result.haply.setting}", result.haply),
        (f"fixed radius, {result.best_radius.setting} (tuned on the truth)", result.best_radius),
    )
    return [[name, f"{s.pairs:,}", f"{s.precision:.3f}", f"{s.recall:.3f}", f"{s.f1:.3f}"] for name, s in named]


def _scene() -> str:
    return (
        f"Two surveys list {_SOURCES:,} sources of one field, each with its own error ellipse, of {_ERRORS[0]:g} to "
        f"{_ERRORS[1]:g} arcseconds. The field is crowded: {_DENSITY:g} sources to the square arcsecond. It lies "
        "across right ascension 0, which makes no difference."
    )


def verdict(result: SkyResult) -> str:
    """Return what the scores say."""
    ours, naive = result.haply, result.best_radius
    return (
        f"Asking how likely two entries are at one place scores {ours.f1:.3f}, the best of all fixed radii "
        f"{naive.f1:.3f}: a sharp source needs its partner nearby, a blurred one may be farther off, and one radius "
        "cannot say both."
    )


def in_short(result: SkyResult) -> tuple[str, str]:
    """Say how well haply does, and the best radius."""
    return f"F1 {result.haply.f1:.3f}", f"F1 {result.best_radius.f1:.3f} (radius {result.best_radius.setting})"


def add_section(page: Any, result: SkyResult) -> None:
    """Add the match to the report."""
    from haply.report import charts

    page.section(HEADING)
    page.prose(_scene())
    page.code(
        'place = hp.sky.ellipse("ra", "dec", "major", "minor", "angle")\n'
        'visible, radio = (table.select("source", place.alias("pos")) for table in surveys)\n'
        f"same_place = hp.distance(hp.left.pos, hp.right.pos) <= {WITHIN:g}\n"
        f"pairs = hp.join(visible, radio, on=same_place, threshold={THRESHOLD:g})"
    )
    page.prose(
        f"The true distance of partners is 0, so the {WITHIN:g} arcseconds are small compared with the errors and the "
        "threshold is low: it is a test of how well the errors explain that the two were seen apart."
    )
    marked = (THRESHOLD, 0.001, 0.1)
    records = [each.record(each.threshold in marked) for each in result.curve]
    records += [each.record(each is result.best_radius) for each in result.radii]
    page.chart(
        charts.precision_recall(records),
        f"Line chart of precision against recall, for haply and for fixed radii. {verdict(result)}",
        caption="Each line runs from strict on the left to generous on the right.",
    )
    page.table(HEADER, rows(result), caption="Both against the planted partners.", strong=[0])
    page.prose(verdict(result))
