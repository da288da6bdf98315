"""One pair explained: every bound holds, and the story ends as the join does."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amounts import fewer
from haply.errors import HaplyError
from haply.models import Certain, Gaussian, Histogram, Mixture, OneDimensional, Samples, TruncatedGaussian, Uniform
from haply.probability.exact import PairProbability, region_probability
from haply.probability.region import Region
from haply.pruning.bounds.one_dimensional import RULES
from haply.pruning.candidates.intervals import pairing, row_intervals
from haply.pruning.cascade import Cascade
from haply.pruning.threshold import Threshold
from haply.report.explain import CORE_REGIONS, EXACT_VALUE, HOPELESS, deciding_step, density_records, explain_pair

places = st.floats(-3.0, 3.0)
sizes = st.floats(0.05, 3.0)
models = st.one_of(
    st.builds(Certain, places),
    st.builds(lambda m, s: Gaussian(m, s), places, sizes),
    st.builds(lambda lo, w: Uniform(lo, lo + w), places, sizes),
    st.builds(lambda m, s, w: TruncatedGaussian(m, s, m - w, m + 1.5 * w), places, sizes, sizes),
    st.builds(lambda m, s, d: Mixture([[0.3, 0.7]], [[m, m + d]], [[s, 0.5 * s]]), places, sizes, sizes),
    st.builds(lambda m, a, b: Histogram([[m, m + a, m + a + b]], [[0.25, 0.75]]), places, sizes, sizes),
    st.builds(lambda m, a, b: Samples([[m, m + a, m - b]]), places, sizes, sizes),
)
regions = st.one_of(
    st.builds(lambda c: Region(-c, c), sizes),
    st.builds(lambda a, w: Region(a, a + w), places, sizes),
    st.builds(lambda c: Region(-c, c, outside=True), sizes),
    st.builds(lambda t: Region(t, math.inf, low_closed=False), places),
    st.builds(lambda t: Region(-math.inf, t), places),
)
levels = st.floats(0.01, 0.99)


@settings(deadline=None, max_examples=fewer(200))
@given(models, models, regions, levels, st.booleans())
def test_every_bound_holds_and_every_verdict_is_true(
    left: OneDimensional, right: OneDimensional, region: Region, level: float, exact: bool
) -> None:
    threshold = Threshold(level)
    steps = explain_pair(left, right, region, threshold, exact=exact)
    value = float(region_probability(left, right, region)[0])
    kept = bool(threshold.keep(np.array([value]), PairProbability(left, right, region).counts)[0])
    assert steps[-1].rule == EXACT_VALUE
    assert steps[-1].lower == steps[-1].upper == steps[-1].least == steps[-1].most == value
    for step in steps:
        assert step.lower - 1e-12 <= value <= step.upper + 1e-12, step
        assert step.least - 1e-12 <= value <= step.most + 1e-12, step
        assert step.verdict == "undecided" or (step.verdict == "accept") == kept, step
    for before, after in itertools.pairwise(steps[:-1]):
        assert before.least <= after.least <= after.most + 1e-12 <= before.most + 2e-12


@settings(deadline=None, max_examples=100)
@given(models, models, regions, levels, st.booleans())
@example(TruncatedGaussian(0.0, 1.0, -1.0, 1.5), TruncatedGaussian(0.0, 1.0, -0.5, 0.75), Region(-2.0, 2.0), 0.5, True)
def test_the_story_ends_as_the_join_does(
    left: OneDimensional, right: OneDimensional, region: Region, level: float, exact: bool
) -> None:
    threshold = Threshold(level)
    decided = deciding_step(explain_pair(left, right, region, threshold, exact=exact))
    together = pairing(type(left), type(right))
    ours, theirs = (row_intervals(m, m is left, region, threshold, exact, together) for m in (left, right))
    if ours.hopeless[0] or theirs.hopeless[0]:
        assert decided.rule == HOPELESS
        return
    if ours.start[0] > theirs.end[0] or theirs.start[0] > ours.end[0]:
        assert decided.rule == CORE_REGIONS
        return
    row = np.zeros(1, dtype=np.int32)
    code = int(Cascade(left, right, region, threshold, exact).verdicts(row, row)[0])
    assert decided.rule == (RULES[abs(code)] if code else EXACT_VALUE)
    if code:
        assert decided.verdict == ("accept" if code > 0 else "reject")


def test_without_a_threshold_every_possible_pair_is_kept() -> None:
    steps = explain_pair(Uniform(0.0, 1.0), Uniform(0.5, 2.0), Region(-0.1, 0.1), Threshold(None))
    assert steps[-1].verdict == "accept"
    apart = explain_pair(Uniform(0.0, 1.0), Uniform(5.0, 6.0), Region(-0.1, 0.1), Threshold(None))
    assert deciding_step(apart).rule == CORE_REGIONS
    assert apart[-1].verdict == "reject"


def test_rules_that_do_not_apply_are_left_out() -> None:
    pair = Gaussian(0.0, 1.0), Gaussian(1.0, 1.0)
    both = [step.rule for step in explain_pair(*pair, Region(-1.0, 1.0), Threshold(0.5))]
    assert both == [HOPELESS, CORE_REGIONS, "concentration", "containment", "sandwich", "gaussian curve", EXACT_VALUE]
    one_sided = [step.rule for step in explain_pair(*pair, Region(0.0, math.inf), Threshold(0.5))]
    assert one_sided == [CORE_REGIONS, "tails", "sandwich", "gaussian curve", EXACT_VALUE]
    points = [step.rule for step in explain_pair(Certain(0.0), Certain(1.0), Region(-1.0, 1.0), Threshold(0.5))]
    assert "gaussian curve" not in points


def test_a_pair_is_one_row_a_side() -> None:
    with pytest.raises(HaplyError, match=r"left model of a pair has several rows.*Found 2"):
        explain_pair(Gaussian([0.0, 1.0], 1.0), Gaussian(0.0, 1.0), Region(-1.0, 1.0), Threshold(0.5))


@pytest.mark.parametrize(
    "model", [Gaussian(1.0, 0.5), Uniform(0.0, 2.0), Histogram([[0, 1, 3]], [[0.25, 0.75]]), Certain(2.0)]
)
def test_densities_hold_all_of_the_mass(model: OneDimensional) -> None:
    records = density_records(model, Uniform(-1.0, 1.0), ("a", "b"))
    for name in ("a", "b"):
        values = [record["value"] for record in records if record["reading"] == name]
        heights = [record["density"] for record in records if record["reading"] == name]
        assert sum(heights) * (values[1] - values[0]) == pytest.approx(1.0, abs=2e-3)
        assert min(heights) >= 0.0
