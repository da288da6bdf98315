"""Pictures of one's own pairs: what they say, what they draw, and that an explained pair ends as the join does."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import haply as hp
from haply.drawing.inline import drawn as inline
from haply.drawing.library import svg_of
from haply.errors import HaplyError, without_advice
from haply.joins.operators.position import match_positions
from haply.models import (
    Asymmetric,
    Certain,
    Gaussian,
    GaussianND,
    Histogram,
    MixtureND,
    Model,
    Samples,
    Sky,
    SkyEllipse,
)
from haply.models.plane import Plane
from haply.probability.distance import within_distance
from haply.probability.region import Distance
from haply.pruning.threshold import Threshold
from haply.report.explain import deciding_step, explain_distance
from haply.report.thresholds import AddingUp, threshold_records

NEAR = "abs(left.t - right.t) <= 0.5"
ONE, OTHER = {"id": 1, "t": {"mean": 20.0, "sd": 0.5}}, {"id": 2, "t": {"mean": 20.4, "sd": 0.3}}


def texts(chart: Any) -> str:
    return " | ".join(re.findall(r"<text[^>]*>([^<]+)</text>", svg_of(chart)))


# -- one pair ----------------------------------------------------------------------------------------------------------


@pytest.mark.long(keep=4)
@pytest.mark.parametrize(
    ("left", "right", "on", "threshold"),
    [
        (ONE, OTHER, NEAR, 0.1),
        (ONE, OTHER, NEAR, 0.9),
        (ONE, OTHER, f"{NEAR} AND left.id < right.id", 0.1),
        (ONE, OTHER, f"{NEAR} AND left.id > right.id", 0.1),
        (ONE, OTHER, "left.t > right.t", 0.2),
        (ONE, OTHER, "abs(left.t - right.t) > 0.5", 0.4),
        ({"x": 1.0, "e": 0.1}, {"x": 1.05}, "abs(gaussian(left.x, left.e) - right.x) <= 0.1", 0.5),
        ({"x": 1.0}, {"x": 1.05}, "abs(left.x - right.x) <= 0.1", 0.5),
        ({"a": ONE["t"], "b": ONE["t"]}, {"a": OTHER["t"], "b": ONE["t"]},
         "abs(left.a - right.a) <= 0.5 AND abs(left.b - right.b) <= 0.5", 0.3),
        ({"p": [0.0, 0.0]}, {"p": [3.0, 4.0]}, "distance(left.p, right.p) <= 5", 0.5),
        ({"p": {"mean": [0.0, 0.0], "cov": [4.0, 1.0, 1.0, 9.0]}}, {"p": [3.0, 4.0]},
         "distance(left.p, right.p) <= 5", 0.5),
    ],
)  # fmt: skip
def test_it_says_what_the_join_does(left: dict, right: dict, on: str, threshold: float) -> None:
    found = hp.explain_pair(left, right, on, threshold)
    with without_advice():  # in some of these joins nothing is uncertain
        pairs = hp.join(pa.Table.from_pylist([left]), pa.Table.from_pylist([right]), on=on, threshold=threshold)
    assert found.kept == bool(pairs.num_rows)
    if pairs.num_rows:
        assert found.probability == pytest.approx(pairs["probability"][0].as_py(), abs=1e-12)
    assert str(found).startswith("Kept: " if found.kept else "Not kept: ")
    assert str(found).count("\n") == 0
    assert "<svg" in found._repr_html_()


def test_the_sentence_names_what_decides() -> None:
    far = hp.explain_pair(ONE, {"t": {"mean": 30.0, "sd": 0.3}}, NEAR, 0.1)
    assert str(far).endswith("the rule 'core regions' shows it without the exact value.")
    failed = hp.explain_pair(ONE, OTHER, f"{NEAR} AND left.id > right.id", 0.1)
    assert str(failed) == "Not kept: the certain condition `left.id > right.id` does not hold."
    assert failed.probability == 0.0


class SparkLike:
    """A row as Spark gives it."""

    def asDict(self, recursive: bool) -> dict[str, Any]:  # noqa: N802
        assert recursive
        return OTHER


def test_rows_of_every_kind_are_taken() -> None:
    expected = hp.explain_pair(ONE, OTHER, NEAR, 0.1).probability
    table = pa.Table.from_pylist([OTHER])
    for row in (SparkLike(), pd.Series(OTHER), table.to_pandas().iloc[0], table.to_pylist()[0]):
        assert hp.explain_pair(ONE, row, abs(hp.left.t - hp.right.t) <= 0.5, 0.1).probability == expected
    with pytest.raises(HaplyError, match=r"The right row is of type int\. Expected a dict"):
        hp.explain_pair(ONE, 3, NEAR, 0.1)


def test_rows_without_a_value_are_refused() -> None:
    with pytest.raises(HaplyError, match=r"sd < 0"):
        hp.explain_pair({"t": {"mean": 20.0, "sd": -0.5}}, OTHER, NEAR, 0.1)
    with pytest.raises(HaplyError, match=r"The left row has no value in 't'"):
        hp.explain_pair({"t": {"mean": None, "sd": 0.5}}, OTHER, "abs(left.t - right.t) <= 0.5", 0.1)


def test_charts_show_the_values_and_the_bounds() -> None:
    words = texts(hp.explain_pair(ONE, OTHER, NEAR, 0.1).chart())
    for part in ("left t: 20 ± 0.5", "right t: 20.4 ± 0.3", "fulfils the condition", "exact value", "threshold 0.1"):
        assert part in words
    place = {"p": {"ra": 10.0, "dec": -5.0, "ra_error": 0.3, "dec_error": 0.2, "corr": 0.3}}
    words = texts(hp.explain_pair(place, place, "distance(left.p, right.p) <= 1", 0.3).chart())
    for part in ("left p", "within 1 of the left", "arcseconds to the east", "slab", "inside"):
        assert part in words


positions = st.one_of(
    st.builds(
        lambda x, y, a, b, c: GaussianND([[x, y]], [[a, c * (a * b) ** 0.5, c * (a * b) ** 0.5, b]]),
        st.floats(-3, 3), st.floats(-3, 3), st.floats(0.05, 4), st.floats(0.05, 4), st.floats(-0.9, 0.9),
    ),
    st.builds(lambda x, y: Samples([[[x, y]]]), st.floats(-3, 3), st.floats(-3, 3)),
    st.builds(
        lambda x, w: MixtureND([[w, 1 - w]], [[x, 0.0, -x, 1.0]], [[1.0, 0, 0, 1.0, 0.2, 0, 0, 0.3]]),
        st.floats(-3, 3), st.floats(0.1, 0.9),
    ),
)  # fmt: skip


@settings(deadline=None, max_examples=80)
@given(positions, positions, st.floats(0.1, 4), st.floats(0.02, 0.98))
def test_bounds_of_positions_hold(left: Model, right: Model, within: float, level: float) -> None:
    steps = explain_distance(left, right, Distance("a", "b", within), Threshold(level))
    value = float(within_distance(left, right, within)[0])
    for step in steps:
        assert step.lower - 1e-9 <= value <= step.upper + 1e-9, step
    if not isinstance(left, Samples) or not isinstance(right, Samples):
        found = match_positions(left, right, Distance("a", "b", within), Threshold(level), True)
        assert (steps[-1].verdict == "accept") == bool(len(found.left))
        assert deciding_step(steps).verdict == ("accept" if len(found.left) else "reject")


# -- thresholds --------------------------------------------------------------------------------------------------------


def test_every_threshold_has_its_pairs_and_their_mean() -> None:
    p = np.array([0.07, 0.2, 0.5, 0.7, 1.0])
    totals = AddingUp("p")(pa.table({"p": pa.array([*p, None])}))
    records = {record["threshold"]: record for record in threshold_records(totals)}
    for level in (0.0, 0.07, 0.5, 0.51, 0.7, 1.0):
        kept = p[p >= level]
        assert records[level]["pairs"] == len(kept)
        assert records[level]["share"] == pytest.approx(kept.mean())
    with pytest.raises(HaplyError, match="holds no probabilities"):
        hp.threshold_chart(pa.table({"probability": [1.5]}))


def test_the_chart_of_thresholds_names_its_axes() -> None:
    words = texts(hp.threshold_chart(pd.DataFrame({"p_match": [0.2, 0.6, 0.9]})))
    for part in ("threshold", "pairs kept", "expected share of right ones", "At 0.5, 2 of 3 pairs are kept"):
        assert part in words
    assert "No pair has a probability of 0.5" in texts(hp.threshold_chart(pa.table({"p": [0.1]}), probability="p"))
    assert "There are no pairs" in texts(
        hp.threshold_chart(pa.table({"p": pa.array([], pa.float64())}), probability="p")
    )


# -- maps --------------------------------------------------------------------------------------------------------------


def test_a_map_has_the_likeliest_pairs() -> None:
    centres = np.arange(20.0).reshape(10, 2)
    pairs = pa.table({"a": GaussianND(centres, [[1.0, 0, 0, 1.0]] * 10).to_arrow(), "b": centres.tolist(),
                      "probability": np.linspace(0.1, 1, 10)})  # fmt: skip
    chart = hp.map(pairs, "a", "b", most=3)
    links = chart.to_dict()["layer"][0]["data"]["values"]
    assert sorted(link["x"] for link in links) == [14.0, 16.0, 18.0]
    words = texts(chart)
    assert "3 of 10 pairs of positions" in words
    assert "Ellipses hold 68%" in words
    with pytest.raises(HaplyError, match=r"Column 'b' holds no positions"):
        hp.map(pa.table({"a": [[0.0, 1.0]], "b": ["x"]}), "a", "b")
    assert hp.map(pairs).to_dict()["title"] == hp.map(pairs, "a", "b").to_dict()["title"]
    with pytest.raises(HaplyError, match=r"two columns of positions\. Found a\. Hint: name them"):
        hp.map(pairs.select(["a", "probability"]))


def test_the_sky_is_a_plane_near_its_poles_too() -> None:
    around = Sky([0.0, 90.0, 180.0, 270.0], [89.999] * 4, 1.0, 1.0)
    plane = Plane.of([around])
    placed = plane.place(around)
    assert plane.titles[0].startswith("arcseconds")
    assert np.hypot(placed.x, placed.y) == pytest.approx(np.full(4, 3.6), rel=1e-6)
    assert placed.cov == pytest.approx(np.tile(np.eye(2), (4, 1, 1)), abs=1e-6)
    assert Plane.of([Sky([0.0, 180.0], [0.0, 0.0], 1.0, 1.0)]).titles[0] == "right ascension (degrees)"


def test_an_ellipse_on_the_sky_is_turned_from_north_to_east() -> None:
    parts = SkyEllipse(10.0, 0.0, 2.0, 1.0, 90.0).normal_parts()
    assert parts.cov[0] == pytest.approx(np.diag([4.0, 1.0]), abs=1e-12)
    parts = Sky(10.0, 0.0, 2.0, 1.0, 0.5).normal_parts()
    assert parts.cov[0] == pytest.approx(np.array([[4.0, 1.0], [1.0, 1.0]]))


# -- models, plans, funnels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Gaussian([20.0, 20.4], [0.5, 0.3]), "Where the 2 values may lie"),
        (Gaussian(np.arange(20.0), 0.5), "Where the first 8 of 20 values may lie"),
        (Certain([3.0]), "Where the value may lie"),
        (Asymmetric(1.0, 0.5, 2.0), "density"),
        (Histogram([[0, 1, 3]], [[0.25, 0.75]]), "density"),
        (Samples([[1.0, 2.0]]), "density"),
        (Samples([[[0.0, 1.0], [2.0, 2.0]]]), "Where the position may lie"),
        (GaussianND([[0, 0]], [[1, 0, 0, 1]]), "Ellipses hold 68% of each position"),
        (GaussianND([[0, 0, 0]], [np.eye(3).ravel()]), "second coordinate"),
        (MixtureND([[0.5, 0.5]], [[0, 0, 4, 4]], [[1, 0, 0, 1, 1, 0, 0, 2]]), "Ellipses hold 68% of each part"),
        (SkyEllipse(10.0, 89.0, 2.0, 0.5, 45.0), "arcseconds to the east"),
    ],
)
def test_every_model_is_drawn(model: Model, words: str) -> None:
    assert words in texts(model.plot())


def test_a_model_without_rows_is_refused() -> None:
    with pytest.raises(HaplyError, match="Gaussian has no rows to draw"):
        Gaussian([], []).plot()


def test_plans_and_funnels_show_themselves() -> None:
    table, funnel = pa.Table.from_pylist([ONE, OTHER]), hp.Funnel()
    assert "<svg" not in funnel._repr_html_()
    plan = hp.plan_join(table, table.slice(0), on=NEAR, threshold=0.1, how="left", funnel=funnel)
    words = texts(plan.chart())
    for part in ("Left join", "Threshold join", "condition", "pairs possible", "looked at (estimate)"):
        assert part in words
    shown = plan._repr_html_()
    assert "<svg" in shown
    assert "&lt;= 0.5" in shown
    plan.run()
    assert "<svg" in funnel._repr_html_()
    chosen = hp.plan_where(table, "t > 20", 0.5).chart()
    assert "Threshold selection" in texts(chosen)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    for name in [name for name in sys.modules if name.startswith("haply.drawing.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(HaplyError, match=r'pip install "haply\[viz\]"'):
        Gaussian(1.0, 1.0).plot()
    assert "haply[viz]" in inline(Gaussian(1.0, 1.0).plot, "a chart")
