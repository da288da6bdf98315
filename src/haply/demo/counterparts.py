"""The demo's part on counterparts: which source of the other catalogue is it, if any, and how sure are we?

The story. A survey in visible light and one in radio waves list one crowded field. Each misses sources that the other
sees, so that many have no counterpart at all. For each visible source we want its radio source, or the answer that
there is none. The usual way takes the nearest source within a radius. The field is made up, so that the truth is known;
no method sees it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from haply.demo.sky import SkyField, observe

if TYPE_CHECKING:
    pass

_SEED, _SOURCES, _DENSITY = 7, 5_000, 0.05
SEEN = {"visible": 0.8, "radio": 0.6}
"""The share of all sources that each survey sees."""
_AT = (120.0, 20.0)
_RADII = np.arange(0.2, 4.01, 0.1)
_SURE = 0.5

HEADING = "Which source is the counterpart, if any?"
HEADER = ("method", "right answers", "wrong partner", "missed", "partner where there is none")


def plant_surveys(seed: int = _SEED) -> SkyField:
    """Make up a field of sources, of which each survey sees some."""
    random = np.random.default_rng(seed)
    width = math.sqrt(_SOURCES / _DENSITY) / 3600.0
    dec = _AT[1] + random.uniform(-0.5 * width, 0.5 * width, _SOURCES)
    ra = _AT[0] + random.uniform(-0.5 * width, 0.5 * width, _SOURCES) / math.cos(math.radians(_AT[1]))
    tables = []
    for share in SEEN.values():
        seen = np.flatnonzero(random.random(_SOURCES) < share)
        tables.append(observe(random, seen, ra[seen], dec[seen]))
    return SkyField(tables[0], tables[1])


@dataclass(frozen=True)
class CounterpartScore:
    """How one method did: one answer for each visible source."""

    method: str
    sources: int
    right: int
    wrong_partner: int
    missed: int
    invented: int

    def cells(self) -> list[str]:
        """Return the line of the comparison."""
        return [
            self.method, f"{self.right / self.sources:.1%}", f"{self.wrong_partner:,}", f"{self.missed:,}",
            f"{self.invented:,}",
        ]  # fmt: skip


def score_answers(method: str, answers: np.ndarray, surveys: SkyField) -> CounterpartScore:
    """Compare answers, the ``source`` of the partner of each visible source or -1, with the truth."""
    own = surveys.visible["source"].to_numpy()
    truth = np.where(np.isin(own, surveys.radio["source"].to_numpy()), own, -1)
    said, real = answers >= 0, truth >= 0
    return CounterpartScore(
        method, len(own), int((answers == truth).sum()), int((said & real & (answers != truth)).sum()),
        int((~said & real).sum()), int((said & ~real).sum()),
    )  # fmt: skip


def match_sources(surveys: SkyField) -> pa.Table:
    """Return the likeliest counterpart of each visible source, with how likely it is and whether it is the true one."""
    from haply.planning.answers.match import Density
    from haply.query import left, right
    from haply.questions import match
    from haply.sky import ellipse

    places = [ellipse(side.ra, side.dec, side.major, side.minor, side.angle) for side in (left, right)]
    found = match(
        surveys.visible, surveys.radio, places[0] == places[1],
        density=Density(area=_SOURCES / _DENSITY), completeness=SEEN["radio"], how="left", keep="best_left",
    )  # fmt: skip
    own, partner = found["source_left"].to_numpy(), found["source_right"].to_numpy(zero_copy_only=False)
    return pa.table({
        "source": own, "partner": np.nan_to_num(partner, nan=-1.0).astype(np.int64),
        "p_match": found["p_match"], "right": own == partner,
    }).sort_by("source")  # fmt: skip


def nearest_sources(surveys: SkyField) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest radio source of each visible one, and how far it is, as if positions had no errors."""
    scale = 3600.0 * math.cos(math.radians(_AT[1]))
    visible, radio = (
        np.column_stack([table["ra"].to_numpy() * scale, table["dec"].to_numpy() * 3600.0])
        for table in (surveys.visible, surveys.radio)
    )
    which, apart = np.empty(len(visible), np.int64), np.empty(len(visible))
    for begin in range(0, len(visible), 256):  # all distances at once would take 100 MB
        block = slice(begin, begin + 256)
        squares = ((visible[block, None] - radio) ** 2).sum(axis=2)
        which[block], apart[block] = squares.argmin(axis=1), np.sqrt(squares.min(axis=1))
    return surveys.radio["source"].to_numpy()[which], apart


@dataclass
class CounterpartResult:
    """What this part found."""

    haply: CounterpartScore
    nearest: CounterpartScore
    calibration: Any = field(repr=False)


def find_counterparts(seed: int = _SEED) -> CounterpartResult:
    """Make the field, answer by both methods, and score them."""
    from haply.judging import calibration

    surveys = plant_surveys(seed)
    found = match_sources(surveys)
    answers = np.where(found["p_match"].to_numpy() >= _SURE, found["partner"].to_numpy(), -1)
    nearest, apart = nearest_sources(surveys)
    tried = [
        score_answers(
            f"nearest within {radius:.1f}″ (tuned on the truth)", np.where(apart <= radius, nearest, -1), surveys
        )
        for radius in _RADII
    ]
    return CounterpartResult(
        score_answers(f"hp.match, p_match ≥ {_SURE:g}", answers, surveys),
        max(tried, key=lambda score: score.right),
        calibration(found, label="right"),
    )


# -- telling it --------------------------------------------------------------------------------------------------------


def _scene() -> str:
    return (
        f"Two surveys list one field. The visible one sees {SEEN['visible']:.0%} of its {_SOURCES:,} sources, the "
        f"radio one {SEEN['radio']:.0%}, so that many have no counterpart. Each source has its own error ellipse. "
        "hp.match weighs every candidate against all others, and against the chance that there is none. It takes no "
        "radius. It needs to know how many radio sources there are in this area, and what share of the visible ones "
        "they see."
    )


def verdict(result: CounterpartResult) -> str:
    """Say what the scores say."""
    ours, other = result.haply, result.nearest
    return (
        f"hp.match answers rightly for {ours.right / ours.sources:.1%} of {ours.sources:,} sources, the nearest source "
        f"within the best radius for {other.right / other.sources:.1%}. And hp.match says how sure it is. "
        f"{result.calibration.sentences()[0]}"
    )


def in_short(result: CounterpartResult) -> tuple[str, str]:
    """Say how many answers are right."""
    ours, other = (f"{score.right / score.sources:.1%} right" for score in (result.haply, result.nearest))
    return ours, f"{other} (nearest within the best radius)"


def add_section(page: Any, result: CounterpartResult) -> None:
    """Add the counterparts to the report."""
    page.section(HEADING)
    page.prose(_scene())
    page.code(
        "def place(side):\n"
        "    return hp.sky.ellipse(side.ra, side.dec, side.major, side.minor, side.angle)\n\n"
        "found = hp.match(visible, radio, place(hp.left) == place(hp.right),\n"
        f"                 density=hp.density(area=area), completeness={SEEN['radio']:g},\n"
        '                 how="left", keep="best_left")\n'
        'hp.calibration(found, label="right").chart()'
    )
    page.table(
        HEADER, [result.haply.cells(), result.nearest.cells()], caption="One answer for each source.", strong=[0]
    )
    page.chart(
        result.calibration.chart(),
        f"Share of true pairs against the probability that was said, and a histogram. {verdict(result)}",
        caption="If hp.match says 80%, it should be right in 80 of 100 cases: points on the dashed line.",
    )
    page.prose(verdict(result))
