"""The demo's counterparts and its alarms that nobody confirmed: the planted truth, the answers and what is told."""

from __future__ import annotations

import numpy as np
import pytest

from haply.demo import counterparts, timing, unconfirmed
from haply.report.page import Page


def test_each_survey_misses_sources_that_the_other_sees() -> None:
    surveys = counterparts.plant_surveys()
    visible, radio = (set(table["source"].to_pylist()) for table in (surveys.visible, surveys.radio))
    assert visible - radio
    assert radio - visible
    assert abs(len(visible & radio) / len(visible) - counterparts.SEEN["radio"]) < 0.03


def test_answers_are_held_against_the_truth() -> None:
    surveys = counterparts.plant_surveys()
    own = surveys.visible["source"].to_numpy()
    truth = np.where(np.isin(own, surveys.radio["source"].to_numpy()), own, -1)
    best = counterparts.score_answers("truth", truth, surveys)
    assert best.right == best.sources == len(own)
    none = counterparts.score_answers("none", np.full(len(own), -1), surveys)
    assert (none.right, none.missed, none.invented) == ((truth < 0).sum(), (truth >= 0).sum(), 0)
    other = counterparts.score_answers("other", np.full(len(own), 10**6), surveys)
    assert (other.wrong_partner, other.invented) == ((truth >= 0).sum(), (truth < 0).sum())


def test_matching_beats_the_nearest_source_and_its_probabilities_are_right() -> None:
    result = counterparts.find_counterparts()
    assert result.haply.right > result.nearest.right
    assert "right as far as" in result.calibration.sentences()[0]
    assert "hp.match answers rightly" in counterparts.verdict(result)
    page = Page("t", "t")
    counterparts.add_section(page, result)


@pytest.mark.long
def test_the_stream_tells_each_alarm_that_nobody_confirmed_once(spark) -> None:
    night = timing.plant_night()
    confirmed = timing.match_occurrences(spark, night) > 0.0
    detected = timing.match_detections(night)
    result = unconfirmed.find_unconfirmed(spark, night, confirmed, detected)
    assert result.equals_tables
    assert result.haply.reported + result.haply.still_open == np.logical_not(confirmed.any(axis=1)).sum()
    assert result.haply.reported > 100
    assert result.haply.reported - result.haply.rightly < result.detections.reported - result.detections.rightly
    assert "anti join of the whole tables" in unconfirmed.verdict(result)
    page = Page("t", "t")
    unconfirmed.add_section(page, result)
