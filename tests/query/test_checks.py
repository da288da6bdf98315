"""Checks of conditions as they are written, without any engine."""

from __future__ import annotations

import pytest

import haply as hp
from haply.models import Gaussian, GaussianND, Samples, Uniform
from haply.query.checks import all_certain, meets_itself, refuse_equalities
from haply.query.forms import normal_form
from haply.query.text import parse

MODELS = {"kg": Gaussian, "width": Uniform, "s": Samples, "pos": GaussianND}


def model_of(column):
    return MODELS.get(column.name)


def is_certain(column):
    return model_of(column) is None


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ("left.kg = right.kg", "abs(left.kg - right.kg) <= c"),
        ("right.kg = left.width", "abs(right.kg - left.width) <= c"),
        ("left.kg != right.kg", "abs(left.kg - right.kg) > c"),
        ("left.kg = 5", "abs(left.kg - 5) <= c"),
        ("kg <> 0", "abs(kg) > c"),
        ("left.kg = right.parcel", "abs(left.kg - right.parcel) <= c"),
        ("left.kg = right.s", "abs(left.kg - right.s) <= c"),
        ("left.kg < 3 AND (left.kg = 5 OR left.kg > 9)", "abs(left.kg - 5) <= c"),
        ("NOT (left.kg = right.kg)", "abs(left.kg - right.kg) <= c"),
        ("left.pos[0] = 1", "abs(left.pos[0] - 1) <= c"),
        ("left.pos = right.pos", "distance(left.pos, right.pos) <= c"),
        ("abs(left.kg - right.kg) = 3", "abs(left.kg - right.kg) BETWEEN 3 - c AND 3 + c"),
    ],
)
def test_equality_of_continuous_values_is_refused_with_the_mend(text, mend):
    with pytest.raises(hp.HaplyError) as caught:
        refuse_equalities(parse(text), model_of)
    assert mend in str(caught.value)
    assert ("always" if "!=" in text or "<>" in text else "never") in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "left.s = right.s", "left.s != 2", "left.parcel = 'A'", "left.parcel != right.parcel", "left.kg = left.kg",
        "abs(left.kg - right.kg) <= 0", "left.kg * left.s = 0", "left.kg * right.factor = 0", "left.kg = 'A'",
    ],
)  # fmt: skip
def test_equalities_with_atoms_and_of_certain_columns_stay(text):
    refuse_equalities(parse(text), model_of)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("abs(kg) BETWEEN 0.5 AND 1.5", "kg in [-1.5, -0.5] or [0.5, 1.5]"),
        ("abs(kg - 2) BETWEEN 1 AND 3", "kg in [-1, 1] or [3, 5]"),
        ("abs(kg) BETWEEN 0 AND 1", "kg in [-1, 1]"),
        ("-2 * abs(kg) BETWEEN -3 AND -1", "kg in [-1.5, -0.5] or [0.5, 1.5]"),
        ("kg BETWEEN 1 AND 2", "kg in [1, 2]"),
        ("-kg BETWEEN 1 AND 2", "kg in [-2, -1]"),
    ],
)
def test_between_around_an_absolute_value_has_two_sides(text, where):
    assert str(normal_form(parse(text), is_certain)) == where


def test_between_around_an_absolute_value_that_has_no_answer():
    with pytest.raises(hp.HaplyError, match="can never hold"):
        normal_form(parse("abs(kg) BETWEEN 2 AND 1"), is_certain)
    with pytest.raises(hp.HaplyError, match="two comparisons"):
        normal_form(parse("abs(kg) BETWEEN low AND 1"), is_certain)


def test_conditions_without_anything_uncertain_are_told():
    assert all_certain(parse("abs(left.kg - right.x) <= 1"), is_certain, claims=True) is None
    said = all_certain(parse("abs(left.a - right.b) <= 1"), is_certain, claims=False)
    assert said is not None
    assert "`left.a`, `right.b` hold plain values" in said
    assert all_certain(parse("left.a = right.a"), is_certain, claims=False) is None
    assert all_certain(parse("a.time < b.time AND b.time < c.time"), is_certain, claims=False) is None
    assert all_certain(parse("left.a = right.a"), is_certain, claims=True) is not None
    assert all_certain(parse("TRUE"), is_certain, claims=True) is None


@pytest.mark.parametrize(
    ("text", "meets"),
    [
        ("abs(a.kg - b.kg) <= 1", True),
        ("abs(a.kg - b.kg) <= 1 AND a.id < b.id", False),
        ("abs(a.kg - b.kg) <= 1 AND a.id != b.id", False),
        ("abs(a.kg - b.kg) <= 1 AND a.id <= b.id", True),
        ("abs(a.kg - b.width) <= 1", False),
        ("a.id = b.id", False),
    ],
)
def test_whether_a_row_may_meet_itself(text, meets):
    assert meets_itself(parse(text), "a", "b", is_certain) == meets
