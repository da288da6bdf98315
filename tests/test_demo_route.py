"""The demo's walk: the planted truth, the scores, and that errors that are not thrown away make fewer errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from haply.demo.route import (
    SAMPLES,
    THRESHOLD,
    WITHIN,
    Walks,
    alarms,
    best_radius,
    follow_route,
    map_records,
    nearest_centre_apart,
    plant_walks,
    score_outliers,
)
from haply.joins import SimilarityJoin
from haply.models import Samples
from haply.report import charts


def clouds(table: pa.Table) -> np.ndarray:
    return np.stack(table["points"].to_numpy()).reshape(-1, SAMPLES, 2)


def outliers(walks: Walks) -> np.ndarray:
    """Those of today's positions without a partner, found without Spark."""
    join = SimilarityJoin(WITHIN, THRESHOLD, dim=2, probability="none")
    join.push("right", {"id": walks.usual["fix"].to_numpy(), "pos": Samples(clouds(walks.usual))})
    found = join.push("left", {"id": walks.today["fix"].to_numpy(), "pos": Samples(clouds(walks.today))})
    return ~np.isin(walks.today["fix"].to_numpy(), found.left)


def test_the_walk_leaves_its_route_once_and_returns() -> None:
    walks = plant_walks()
    assert len(alarms(walks.left)) == 1
    assert not walks.left[[0, -1]].any()
    begin, end = walks.stretch_minutes
    assert 3.0 < end - begin < 5.0
    assert walks.off_route.max() == pytest.approx(70.0)
    assert (walks.left[walks.away]).all()
    assert walks.away.sum() > 20


def test_samples_lie_about_the_reported_place_and_few_are_wide() -> None:
    walks = plant_walks(3)
    for table in (walks.usual, walks.today):
        centre = np.column_stack([table["x"], table["y"]])
        spread = np.sqrt(((clouds(table) - centre[:, None]) ** 2).mean(axis=(1, 2)))
        assert spread.min() > 1.5
        assert 0.05 < (spread > 15.0).mean() < 0.2
        assert (spread[spread > 15.0] < 90.0).all()


def test_the_same_seed_plants_the_same_walks() -> None:
    assert plant_walks(5).today.equals(plant_walks(5).today)
    assert not plant_walks(5).usual.equals(plant_walks(6).usual)


def test_an_alarm_is_the_first_of_a_run() -> None:
    assert alarms(np.array([1, 1, 0, 1, 0, 0, 1, 1], dtype=bool)).tolist() == [0, 3, 6]
    assert alarms(np.zeros(3, dtype=bool)).tolist() == []


def test_scores_count_what_they_say() -> None:
    walks = plant_walks()
    asleep = score_outliers("asleep", np.zeros(len(walks.left), dtype=bool), walks)
    assert (asleep.alarms, asleep.false_alarms, asleep.missed, asleep.noticed_after) == (0, 0, walks.away.sum(), None)
    perfect = score_outliers("perfect", walks.left, walks)
    assert (perfect.alarms, perfect.false_alarms, perfect.missed, perfect.noticed_after) == (1, 0, 0, 0.0)
    nervous = walks.left.copy()
    nervous[[10, 11, 20]] = True
    nervous[np.flatnonzero(walks.left)[:2]] = False
    nervous[np.flatnonzero(walks.away)[5]] = False
    score = score_outliers("nervous", nervous, walks)
    assert (score.alarms, score.false_alarms, score.missed, score.errors) == (4, 2, 1, 3)
    assert score.noticed_after == 10.0


def test_errors_kept_make_fewer_errors_than_errors_thrown_away() -> None:
    kept, thrown, tuned = [], [], []
    for seed in range(1, 13):
        walks = plant_walks(seed)
        kept.append(score_outliers("haply", outliers(walks), walks))
        thrown.append(score_outliers("nearest", nearest_centre_apart(walks) > WITHIN, walks))
        tuned.append(best_radius(walks))
    assert all(ours.noticed_after is not None and ours.noticed_after <= 60.0 for ours in kept)
    assert all(ours.errors < naive.errors for ours, naive in zip(kept, thrown, strict=True))
    # not even the radius that suits each single walk best does as well
    assert sum(ours.errors for ours in kept) < sum(best.errors for best in tuned)
    assert sum(best.errors for best in tuned) <= sum(naive.errors for naive in thrown)


def test_the_walk_on_spark(spark: Any) -> None:
    result = follow_route(spark)
    walks = result.walks
    assert (result.outlier == outliers(walks)).all()
    # by hand, for some of the positions
    usual = clouds(walks.usual)
    for number in range(0, len(result.outlier), 12):
        apart = np.sqrt(((clouds(walks.today)[number][:, None, None] - usual) ** 2).sum(-1))
        best = (apart <= WITHIN).mean(axis=(0, 2)).max()
        assert result.outlier[number] == (best < THRESHOLD)
    assert result.haply.errors < result.naive.errors
    assert result.tuned.errors <= result.naive.errors
    counts = result.funnel.to_dict()
    assert counts["pairs_possible"] == walks.today.num_rows * walks.usual.num_rows
    assert 0 < counts["evaluated"] < 0.1 * counts["pairs_possible"]
    assert sum(counts["accepted"].values()) > 0
    shown = map_records(result)
    assert sum(record["kind"] == charts.OUTLIER for record in shown) == result.outlier.sum()
    assert sum(record["kind"] == charts.OTHER_ALARM for record in shown) == result.naive.alarms
