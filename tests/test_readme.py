"""The README: its picture is the one that is drawn, and its table says what the planner answers."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import haply as hp
from haply.constructors import CONSTRUCTORS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROW = {"a": [1.0], "b": [2.0], "c": [3.0], "list": [[1.0, 2.0]], "one": [[1.0]], "four": [[1.0, 0.0, 0.0, 1.0]]}
LEFT, RIGHT = pa.table(ROW), pa.table(ROW)
ORIGIN = (52.5, 13.4)

MODELS = {
    "a plain number": lambda t: t.a,
    "`hp.gaussian`, `hp.measured`, `hp.counts`, `hp.parse`": lambda t: hp.gaussian(t.a, t.b),
    "`hp.uniform`, `hp.rounded`": lambda t: hp.uniform(t.a, t.b),
    "`hp.truncated_gaussian`": lambda t: hp.truncated_gaussian(t.a, t.b, t.a, t.c),
    "`hp.asymmetric`, `hp.parse_asymmetric`": lambda t: hp.asymmetric(t.a, t.b, t.b),
    "`hp.mixture`": lambda t: hp.mixture(t.one, t.one, t.one),
    "`hp.histogram`, `hp.quantiles`, `hp.latency`": lambda t: hp.histogram(t.list, t.one),
    "`hp.samples` of numbers": lambda t: hp.samples(t.list),
    "`hp.samples` of points": lambda t: hp.samples(t.list, dim=2),
    "`hp.gaussian_nd`, `hp.gps`, `hp.ellipse`": lambda t: hp.gaussian_nd(t.list, cov=t.four),
    "`hp.mixture_nd`": lambda t: hp.mixture_nd(t.one, t.list, t.four),
    "`hp.sky.position`, `hp.sky.ellipse`": lambda t: hp.sky.position(t.a, t.b, t.a, t.a),
}

QUESTIONS = {
    "`abs(a - b) <= c`, `a > b`": lambda x, y: hp.plan_join(LEFT, RIGHT, abs(x - y) <= 1, threshold=0.5),
    "`distance(a, b) <= c`": lambda x, y: hp.plan_join(LEFT, RIGHT, hp.distance(x, y) <= 1, threshold=0.5),
    "`hp.match`": lambda x, y: hp.plan_match(LEFT, RIGHT, x == y, density=0.1, completeness=0.5),
    "`hp.count_matches`": lambda x, y: plan_counts(x, y),
    "`hp.where`": lambda x, y: plan_where(x),
}


def plan_counts(x, y):
    try:
        return hp.plan_count_matches(LEFT, RIGHT, hp.distance(x, y) <= 1)
    except hp.HaplyError:
        return hp.plan_count_matches(LEFT, RIGHT, abs(x - y) <= 1)


POINTS = pa.table(
    {
        "gaussian_nd": [{"mean": [1.0, 2.0], "cov": [1.0, 0.0, 0.0, 1.0]}],
        "mixture_nd": [{"weights": [1.0], "means": [1.0, 2.0], "covs": [1.0, 0.0, 0.0, 1.0]}],
    }
)


def plan_where(x):
    """Ask for rows of one table by a value, or by a coordinate of a position."""
    constructor = str(x).partition("(")[0]
    if constructor in POINTS.column_names:
        return hp.plan_where(POINTS, f"{constructor}[0] < 1", 0.5)
    return hp.plan_where(LEFT, f"{str(x).replace('left.', '')} < 1", 0.5)


def answers(question, model) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            plan = question(model(hp.left), model(hp.right))
            if str(model(hp.left)).startswith("samples"):
                plan.run()  # only their rows tell how many coordinates samples have
        except hp.HaplyError:
            return "–"
    return "✓"


def test_the_table_says_what_the_planner_answers() -> None:
    lines = [
        f"| {name} | {' | '.join(answers(question, model) for question in QUESTIONS.values())} |"
        for name, model in MODELS.items()
    ]
    head = f"| | {' | '.join(QUESTIONS)} |"
    missing = [line for line in (head, *lines) if line not in README]
    assert not missing, "\n".join(["the README's table should be:", head, "|---" * 6 + "|", *lines])


def test_every_constructor_is_in_the_table() -> None:
    written = " ".join(MODELS)
    unnamed = [name for name in CONSTRUCTORS if not name.startswith("sky") and f"`hp.{name}`" not in written]
    assert not unnamed


def test_the_picture_is_the_one_that_is_drawn() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import front
    finally:
        sys.path.pop(0)
    assert front.TARGET.read_text(encoding="utf-8") == front.drawing(), "run python docs/front.py"
    assert "docs/front.svg" in README


@pytest.mark.parametrize("word", ["pip install", "haply[spark]", "What it is not for"])
def test_the_readme_tells(word: str) -> None:
    assert word in README
