"""The funnel: how counters from Spark become numbers, text and records."""

from __future__ import annotations

import pytest

from haply.report.funnel import Funnel

CELLS = {
    "candidates": 90,
    "evaluated": 60,
    "rejected:concentration": 30,
    "accepted:containment": 0,
    "nanoseconds:decide": 2_000_000_000,
}


@pytest.fixture
def funnel() -> Funnel:
    made = Funnel()
    made.follow(lambda: {"rows_left": 100, "null_left": 2, "hopeless_left": 0, "invalid_left": 1})
    made.follow(lambda: {"rows_right": 50, "null_right": 0, "hopeless_right": 3, "invalid_right": 0})
    made.follow(lambda: CELLS)
    made.follow(lambda: {"kept": 40})
    return made


def test_an_empty_funnel_says_so() -> None:
    assert not Funnel().filled
    assert "run an action" in str(Funnel())
    counts = Funnel().to_dict()
    assert counts["pairs_possible"] == counts["kept"] == counts["pages_read"] == counts["pages_total"] == 0
    assert counts["rejected"] == counts["accepted"] == {}


def test_counters_of_all_sources_come_together(funnel: Funnel) -> None:
    counts = funnel.to_dict()
    assert funnel.filled
    assert counts["pairs_possible"] == 100 * 50
    assert (counts["candidates"], counts["evaluated"], counts["kept"]) == (90, 60, 40)
    assert (counts["invalid_left"], counts["invalid_right"]) == (1, 0)
    assert counts["rejected"] == {"concentration": 30}
    assert counts["seconds"] == {"decide": 2.0}


def test_pairs_taken_wholesale_count_as_accepted_candidates(funnel: Funnel) -> None:
    funnel.follow(lambda: {"sure": 7})
    funnel.follow(lambda: {"same": 5})
    counts = funnel.to_dict()
    assert counts["accepted"]["sure range"] == 7
    assert counts["accepted"]["same row"] == 5
    assert counts["candidates"] == 90 + 12


def test_a_source_without_counters_leaves_it_unfilled(funnel: Funnel) -> None:
    funnel.follow(dict)
    assert not funnel.filled
    assert funnel.to_dict()["kept"] == 40


def test_a_null_counter_is_a_zero() -> None:
    made = Funnel()
    made.follow(lambda: {"kept": None, "candidates": 3})
    assert made.to_dict()["kept"] == 0


def test_starting_over_forgets(funnel: Funnel) -> None:
    funnel.start_over()
    assert not funnel.filled
    assert funnel.to_dict()["kept"] == 0


def test_stages_never_widen(funnel: Funnel) -> None:
    pairs = [record["pairs"] for record in funnel.stages()]
    assert pairs == sorted(pairs, reverse=True)
    assert funnel.stages()[0] == {"stage": "pairs possible", "pairs": 5_000}
    assert funnel.stages()[-1] == {"stage": "kept", "pairs": 40}


def test_the_text_names_rules_that_did_something(funnel: Funnel) -> None:
    text = str(funnel)
    assert "5,000" in text
    assert "rejected by concentration" in text
    assert "containment" not in text
    assert "invalid rows" in text
    assert "decide 2.00" in text


def test_the_chart_shows_the_stages(funnel: Funnel) -> None:
    bars = funnel.chart().to_dict()["layer"][0]
    assert [record["pairs"] for record in bars["data"]["values"]] == [record["pairs"] for record in funnel.stages()]


def test_rules_have_the_names_of_the_literature_beside_their_own() -> None:
    """Keys of the counters stay as they are; what people read says what a rule is known as."""
    funnel = Funnel()
    counts = {"rows_left": 4, "rows_right": 5, "rejected:moments": 7, "rejected:balls": 3, "accepted:line": 2}
    funnel.follow(lambda: counts)
    assert funnel.to_dict()["rejected"] == {"moments": 7, "balls": 3}
    text = str(funnel)
    for line in ("rejected by moments (Cantelli)", "rejected by balls (OP)", "accepted by line  "):
        assert line in text
