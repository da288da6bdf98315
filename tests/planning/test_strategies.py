"""How plans are chosen and described: strategies with costs and reasons, the verdict first, errors with their parts."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import haply as hp
from haply.errors import HaplyError
from haply.inputs import frame_of
from haply.planning.explain import Description, NotTaken, about, looked_at
from haply.planning.join import JOINS
from haply.planning.nodes import JoinNode, JoinOptions
from haply.planning.plans import Chosen, DoesNotFit, Fits, Registry


@dataclass(frozen=True)
class Fake:
    """A strategy that always answers the same."""

    name: str
    cheapest: float
    answer: Fits | DoesNotFit
    asked: list[str]

    def fits(self, node: object) -> Fits | DoesNotFit:
        self.asked.append(self.name)
        return self.answer


def registry(asked: list[str], **answers: tuple[float, float | str | HaplyError]) -> Registry[object]:
    """Strategies by name: the least that each costs, and its cost or why it does not fit."""
    found = []
    for name, (cheapest, answer) in answers.items():
        plan: Any = Description(name)
        if isinstance(answer, float):
            made: Fits | DoesNotFit = Fits(answer, lambda plan=plan: plan)
        elif isinstance(answer, str):
            made = DoesNotFit(HaplyError(answer))
        else:
            made = DoesNotFit(answer, meant=True)
        found.append(Fake(name, cheapest, made, asked))
    return Registry(found)


def test_the_cheapest_strategy_is_taken_and_others_say_why_not() -> None:
    asked: list[str] = []
    chosen = registry(asked, dear=(1.0, 9.0), odd=(0.1, "it is odd"), cheap=(0.5, 2.0), never=(5.0, 5.0)).choose(None)
    assert isinstance(chosen, Chosen)
    assert (chosen.strategy, chosen.cost, chosen.query) == ("cheap", 2.0, Description("cheap"))
    reasons = {one.strategy: one.reason for one in chosen.not_taken}
    assert reasons == {
        "odd": "it is odd",
        "dear": "costs more: about 9 µs a candidate",
        "never": "costs more: 5 µs a candidate at least, cheap about 2",
    }
    assert asked == ["odd", "cheap", "dear"], "what costs more in any case is not asked"


def test_a_later_strategy_may_be_cheaper() -> None:
    chosen = registry([], first=(0.1, 3.0), second=(1.0, 2.0)).choose(None)
    assert isinstance(chosen, Chosen)
    assert chosen.strategy == "second"
    assert chosen.not_taken == (NotTaken("first", "costs more: about 3 µs a candidate"),)


def test_without_a_fitting_strategy_the_meant_one_tells_why() -> None:
    meant = HaplyError("this one was meant")
    with pytest.raises(HaplyError, match="this one was meant"):
        registry([], a=(1.0, "a"), b=(2.0, meant), c=(3.0, "c")).plan(None)
    with pytest.raises(HaplyError, match="most general"):
        registry([], a=(2.0, "the most general"), b=(1.0, "b")).plan(None)


def table(rows: int, seed: int = 1) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            "id": np.arange(rows),
            "kg": chance.uniform(0.0, 50.0, rows),
            "cm": chance.uniform(0.0, 50.0, rows),
            "err": chance.uniform(0.05, 0.2, rows),
        }
    )


BAND = "abs(gaussian(left.kg, left.err) - gaussian(right.kg, right.err)) <= 0.1"
BOTH = f"{BAND} AND abs(gaussian(left.cm, left.err) - gaussian(right.cm, right.err)) <= 0.1"


@pytest.mark.parametrize(
    ("on", "taken"),
    [
        (BAND, "cells"),
        ("left.id = right.id", "plain join"),
        ("abs(left.kg - right.kg) <= 1", "cells"),
        (BOTH, "selection"),
        ("distance(gaussian_nd(array(left.kg, left.cm), array(0.1, 0.1)), array(right.kg, right.cm)) <= 1", "cells"),
    ],
)
@pytest.mark.filterwarnings("ignore::haply.HaplyWarning")
def test_joins_are_planned_by_their_conditions(on: str, taken: str) -> None:
    if "distance" in on:
        left = hp.where(table(9), "kg >= 0", 0.1)
        assert left.num_rows == 9
        on = on.replace("array(right.kg, right.cm)", "gaussian_nd(array(right.kg, right.cm), array(0.1, 0.1))")
    frames = [frame_of(table(9, seed), "table") for seed in (1, 2)]
    node = JoinNode.of(*frames, on, JoinOptions(threshold=0.5))
    chosen = JOINS.plan(node)
    assert chosen.strategy == taken
    names = {strategy.name for strategy in JOINS.strategies}
    assert {one.strategy for one in chosen.not_taken} == names - {taken}


def test_an_index_is_cheaper_than_cells(tmp_path) -> None:
    rows = pa.table({"x": pa.array([{"mean": float(k), "sd": 0.1} for k in range(200)])})
    hp.build_index(rows, "x", str(tmp_path / "index"), page_rows=20)
    indexed = hp.read_index(str(tmp_path / "index"), engine="local")
    plan = hp.plan_join(rows.slice(7, 1), indexed, "abs(left.x - right.x) <= 0.5", 0.5)
    said = plan.explain()
    assert said.startswith("Of 10 pages only those are read that rows of the left table may match.\nThreshold join\n")
    assert "cells         costs more" in said
    assert plan.run().num_rows == 1


def test_explain_has_the_verdict_first_and_details_on_request() -> None:
    plan = hp.plan_join(table(300), table(300, 2), BAND, 0.5)
    lines = plan.explain().splitlines()
    assert re.fullmatch(r"About [0-9,]+ of [0-9,]+ pairs will be looked at\.", lines[0])
    assert lines[1] == "Threshold join"
    assert "Not taken" in lines
    assert any(line.startswith("  pages         by estimate") for line in lines)
    assert not any("cascade" in line or "partitioning" in line for line in lines)
    verbose = plan.explain(verbose=True)
    assert all(line in verbose for line in lines)
    assert "  cascade       " in verbose
    assert "  partitioning  " in verbose


def test_explain_describes_all_parts_of_a_selection_on_candidates() -> None:
    said = hp.plan_join(table(300), table(300, 2), BOTH, 0.5).explain()
    assert said.startswith("About ")
    for text in ("candidates by one, all by a selection", "  Threshold join", "  Threshold selection", "Not taken"):
        assert text in said
    assert "The condition compares more than one pair of uncertain columns" in said


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.2, "no"), (1, "1"), (99, "99"), (2_149, "2,100"), (9_000_000, "9 million"), (1.26e9, "1.3 billion")],
)
def test_numbers_are_rounded_for_people(number: float, text: str) -> None:
    assert about(number) == text


def test_no_more_pairs_than_there_are() -> None:
    assert looked_at(120.0, 100.0) == "About 100 of 100 pairs will be looked at."


def test_errors_keep_their_parts() -> None:
    error = HaplyError("A column is odd", expected="even ones", found="7.", hint="did you mean 8?")
    assert (error.where, error.expected, error.found, error.hint) == (
        "A column is odd", "even ones", "7.", "did you mean 8?",
    )  # fmt: skip
    assert str(error) == "A column is odd. Expected even ones. Found 7. Hint: did you mean 8?"
    placed = error.at("line 1, column 2:\n")
    assert str(placed) == f"line 1, column 2:\n{error}"
    assert placed.at("line 9").place == "line 1, column 2:\n", "the first place is the nearest"
    again = copy.copy(placed)  # as it travels between processes
    assert (str(again), again.hint) == (str(placed), error.hint)


def test_errors_name_tables_as_their_author_does() -> None:
    one, other = table(3), pa.table({"id": [1], "kg": ["heavy"]})
    with pytest.raises(HaplyError, match="Column 'kg' of the right table is not a number that may be uncertain"):
        hp.join(one, other, "abs(gaussian(left.kg, left.err) - right.kg) <= 1", 0.5)
    with pytest.raises(HaplyError, match="Column 'kg' of b holds no points"):
        hp.sql("SELECT * FROM a, b WHERE distance(GAUSSIAN(a.kg, a.err), b.kg) <= 1 WITH THRESHOLD 0.5", a=one, b=other)
    with pytest.raises(HaplyError, match=r"give threshold=0\.01"):
        hp.join(one, one, BAND)
    with pytest.raises(HaplyError, match=r"write WITH THRESHOLD 0\.01"):
        hp.sql("SELECT * FROM a, b WHERE GAUSSIAN(a.kg, a.err) < GAUSSIAN(b.kg, b.err)", a=one, b=one)
