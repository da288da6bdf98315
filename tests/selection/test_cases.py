"""Combinations of conditions: their cases exclude one another, and their bounds enclose the probability."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from haply.models import Gaussian, Histogram, Uniform
from haply.query import forms, rewrites
from haply.query.rewrites import split_rows
from haply.query.text import parse
from haply.selection import cases
from haply.selection.conditions import RowValues
from haply.selection.grouping import group_of

ROWS = 60
CONDITIONS = (
    "a - b < 0.3 OR b + c > 1",
    "(a < 0) != (a + b < 0.5)",
    "NOT (a < 0.2 AND b < 0.1) AND (a - b > -1 OR c > 0)",
    "a - b > 1 OR b - c > 1 OR c - a > 1",
    "a * a + b * b < 1 OR a > b",
    "u - v < 0.2 OR u > 1",
    "(u < 0.5 OR v - h < 0) AND u - v > -1",
    "u + v < 1 OR k > 0",
)


def rows(seed):
    random = np.random.default_rng(seed)
    values = {name: Gaussian(random.normal(0, 1, ROWS), random.uniform(0.01, 1.5, ROWS)) for name in "abc"}
    low = random.normal(0, 1, (2, ROWS))
    values |= {name: Uniform(one, one + random.uniform(0.01, 2, ROWS)) for name, one in zip("uv", low, strict=True)}
    edges = np.cumsum(random.uniform(0.1, 1, (ROWS, 3)), axis=1) - 1
    values["h"] = Histogram(edges.tolist(), [[0.25, 0.75]] * ROWS)
    return values, random.integers(-1, 2, ROWS).astype(float)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("text", CONDITIONS)
def test_bounds_enclose_the_probability(text, seed):
    values, sure = rows(seed)
    kinds = {name: type(model) for name, model in values.items()}
    split = split_rows(parse(text), lambda column: column.name == "k")
    for conditions in split.groups:
        group = group_of(conditions, kinds)
        batch = RowValues(values, dict.fromkeys(group.numbers, sure), ROWS)
        prepared = group.prepare(batch)
        exact, bounds = prepared.exact()[0], prepared.bounds(0.0, np.inf)
        assert group.cases
        assert bounds is not None
        assert (bounds.lower <= exact + 1e-9).all()
        assert (bounds.upper >= exact - 1e-9).all()


@pytest.mark.parametrize("text", CONDITIONS[:-1])  # the opposite of the last has a certain condition of its own
def test_cases_and_those_of_the_opposite_are_everything(text):
    """The probability of a condition and of its NOT add up to 1."""
    values, _ = rows(9)
    kinds = {name: type(model) for name, model in values.items()}
    total = np.zeros(ROWS)
    for asked in (text, f"NOT ({text})"):
        chance = np.ones(ROWS)
        for conditions in split_rows(parse(asked), lambda column: column.name == "k").groups:
            group = group_of(conditions, kinds)
            chance = chance * group.prepare(RowValues(values, {}, ROWS)).exact()[0]
        total += chance
    assert total == pytest.approx(1.0, abs=1e-8)


# -- work --------------------------------------------------------------------------------------------------------------


def test_cases_are_counted_before_they_are_made(monkeypatch):
    """Of 2^30 cases none is made, and the formulas that are looked at grow with the conditions, not with the cases."""
    text = " AND ".join(f"(a - {k} * b < 0 OR a + {k} * b > 1)" for k in range(1, 31))
    (either,) = split_rows(parse(text), lambda column: False).groups[0]
    made, looked = [], []
    branches = cases._Diagram._branches
    monkeypatch.setattr(cases, "_cases", lambda *given: made.append(given))
    monkeypatch.setattr(cases._Diagram, "_branches", lambda *given: looked.append(given) or branches(*given))
    assert either.cases(dict.fromkeys("ab", Gaussian)) is None
    assert made == []
    assert len(looked) <= 30 * 2


def test_a_leaf_and_a_node_with_equal_numbers_are_two_formulas():
    """Both are tuples: a leaf of variable 1 with some cells, and all of the parts of those numbers."""
    formulas = cases._Formulas()
    first, second = formulas.leaf(0, frozenset([0]), 4), formulas.leaf(0, frozenset([1]), 4)
    both = formulas.combined(True, [first, second])
    assert formulas.of[both] == formulas.of[formulas.leaf(1, frozenset([first, second]), 4)]
    assert both != formulas.leaf(1, frozenset([first, second]), 4)
    assert formulas.combined(False, [first, second]) != formulas.leaf(0, frozenset([first, second]), 4)


def test_the_texts_of_rewrites_are_not_made_for_a_plan(monkeypatch):
    """Only who asks how a condition was rewritten pays for it."""
    written = []
    monkeypatch.setattr(rewrites.Draft, "__str__", lambda draft: written.append(draft) or "draft")
    found = split_rows(parse("(a < 1 OR b < 2) != (a - b < 0)"), lambda column: False)
    assert written == []
    assert found.steps == ()
    assert len(written) == len(rewrites.REWRITES) + 1


def test_each_condition_is_solved_once(monkeypatch):
    """However deep it stands in AND and OR: an OR of each level is asked whether it is about one sum."""
    solved = []
    solve = forms._solve
    monkeypatch.setattr(forms, "_solve", lambda condition, *given: solved.append(condition) or solve(condition, *given))
    text = "a < 0"
    for k in range(1, 20):
        text = f"({text} OR a - {k} * b > 1) AND a + {k} * b < 2"
    split_rows(parse(text), lambda column: False)
    assert len(solved) == len({id(condition) for condition in solved})
    assert len(solved) <= 3 * 40


def test_many_lattices_are_one():
    """Cases in five directions share one mean, whose error is that of one."""
    names = "abcde"
    text = " OR ".join(f"{one} * {two} > {k}" for k, (one, two) in enumerate(itertools.combinations(names, 2)))
    (either,) = split_rows(parse(text), lambda column: False).groups[0]
    group = group_of([either], dict.fromkeys(names, Gaussian))
    assert group.method == "lattice"
    assert group.error == 1e-3
