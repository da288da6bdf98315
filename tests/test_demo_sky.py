"""The demo's sky: the planted truth, the scores, and that errors that are not thrown away tell partners better."""

from __future__ import annotations

import numpy as np

from haply.demo.sky import _RADII, _THRESHOLDS, add_section, match_catalogues, plant_field, rows, score, within_radius
from haply.report.page import Page


def test_the_field_lies_across_right_ascension_0() -> None:
    sky = plant_field()
    for table in (sky.visible, sky.radio):
        ra = table["ra"].to_numpy()
        assert ((ra < 1.0) | (ra > 359.0)).all()
        assert (ra < 1.0).any()
        assert (ra > 359.0).any()
        assert (table["minor"].to_numpy() <= table["major"].to_numpy()).all()
    apart, true = within_radius(sky)
    assert apart.max() <= _RADII[-1]
    assert 0.9 < true.sum() / sky.visible.num_rows <= 1.0


def test_scores() -> None:
    found = score("haply", "P", 0.5, np.array([True, True, False, False]))
    assert found.precision == 0.5
    assert found.pairs == 4


def test_probabilities_beat_every_radius(spark) -> None:
    result = match_catalogues(spark)
    assert result.haply.f1 > max(each.f1 for each in result.radii) + 0.01
    recalls = [each.recall for each in result.curve]
    assert recalls == sorted(recalls, reverse=True)
    assert len(result.curve) == len(_THRESHOLDS)
    assert result.funnel.to_dict()["kept"] == result.curve[0].pairs
    assert len(rows(result)) == 2
    page = Page("t", "t")
    add_section(page, result)
