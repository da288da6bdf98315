"""The page of pairs: what it holds, and what it does in a browser, on a desk and a phone, light and dark."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import haply as hp
from browser_kit import Answer, View, ask, faults
from haply.errors import HaplyError
from haply.models import Gaussian, GaussianND, Samples, Sky, Uniform
from haply.report.explore import ExploredPairs, Packed, sides_of

HOSTILE = ("<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", "{{DATA}} &amp; ' \" \u2028")
DESK, PHONE = 1280, 390


def many_pairs(count: int) -> pa.Table:
    """Readings with positions, several partners for most left rows, and names that are no good."""
    rng = np.random.default_rng(3)
    left = rng.integers(0, max(count * 3 // 5, 1), count)
    places, means = rng.uniform(0, 1000, (count, 2))[left], rng.uniform(10, 30, count)[left]
    round_ones = np.tile([4.0, 1.0, 1.0, 2.0], (count, 1))
    return pa.table(
        {
            "id_left": left,
            "name_left": [HOSTILE[k % 3] if k % 5 == 0 else f"station {k % 60}" for k in left],
            "temp_left": Gaussian(means, 0.5).to_arrow(),
            "pos_left": GaussianND(places, round_ones).to_arrow(),
            "id_right": np.arange(count),
            "name_right": [f"logger {k} & <b>{HOSTILE[0]}" for k in range(count)],
            "temp_right": Uniform(means - 1.0, means + 1.2).to_arrow(),
            "pos_right": GaussianND(places + rng.normal(0, 2, (count, 2)), round_ones).to_arrow(),
            "probability": np.append(rng.beta(1.2, 0.6, count - 2), [0.7, 1.0]),
        }
    )


@pytest.fixture(scope="module")
def pairs() -> pa.Table:
    return many_pairs(100_000)


@pytest.fixture(scope="module")
def html(pairs: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = hp.explore(pairs, tmp_path_factory.mktemp("page") / "new" / "pairs.html", title=f"Pairs {HOSTILE[0]}")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a left join on the sky, where some rows have no partner."""
    rng = np.random.default_rng(5)
    ra, dec = rng.uniform(10, 10.02, 60), rng.uniform(-5.01, -5, 60)
    dec[40:] -= 0.02  # far from all others
    here = pa.table({"a": np.arange(60), "place": Sky(ra, dec, 0.5, 0.8, 0.3).to_arrow()})
    there = pa.table({"b": np.arange(40), "place": Sky(ra[:40], dec[:40] + 1e-4, 0.3, 0.3).to_arrow()})
    found = hp.join(here, there, on="distance(left.place, right.place) <= 2", threshold=0.05, how="left")
    path = hp.explore(found, tmp_path_factory.mktemp("page") / "sky.html")
    return path.read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


# -- what the page holds -----------------------------------------------------------------------------------------------


def test_the_first_sentence_says_what_the_pairs_are_and_how_many(html: str, outer: str) -> None:
    assert "These are 100,000 pairs of rows, each with the probability that the two fulfil the condition" in html
    assert re.search(r"These are \d+ pairs of rows.*, and 20 rows without a partner\.", outer)
    matched = ExploredPairs.of(pa.table({"id": [1], "other": [2], "p_match": [0.5]}), "p_match", (None, None))
    assert matched.sentence() == "These are 1 pair of rows, each with the probability that the two are the same thing."


def test_nothing_in_the_data_is_markup(html: str) -> None:
    assert "<title>Pairs &lt;script&gt;alert(1)" in html
    assert html.count("<script") == 2  # the data, and the page's own
    assert "<img" not in html
    assert HOSTILE[1] in json.dumps(data_of(html))


def test_no_address_is_in_the_page(html: str) -> None:
    code = html.replace("http://www.w3.org/2000/svg", "")  # the name of a language, which nobody fetches
    assert "://" not in code.partition('id="data"')[0] + code.partition("</footer>")[2].partition('"use strict"')[2]
    assert not re.search(r"<(link|iframe|object|embed|base)\b|\b(src|href)=", html.partition("<script")[0])
    assert "default-src 'none'" in html


def test_arrays_are_packed_once_and_small() -> None:
    packed = Packed()
    halves = np.array([0.5, 0.25, 0.125])
    assert packed.add(halves) == packed.add(halves.copy()) == 0
    assert packed.arrays[0]["type"] == "f4"
    assert packed.arrays[packed.add(halves + 1e-12)]["type"] == "f8"
    assert packed.arrays[packed.add(np.full(9, 2.5))] == {"type": "constant", "value": 2.5, "length": 9}
    assert packed.add(np.full(8, 2.5)) != packed.add(np.full(9, 2.5))


def test_sides_are_told_by_names_or_by_equal_rows() -> None:
    named = pa.table({"x_left": [1], "note": [1], "x_right": [1]})
    assert sides_of(named, named.column_names, (None, None))["x_right"] == "right"
    plain = pa.table(
        {"shop": [1, 1, 2, 2], "town": ["a", "a", "b", "b"], "depot": [5, 6, 5, 6], "size": [1.0, 2, 1, 2]}
    )
    found = sides_of(plain, plain.column_names, (None, None))
    assert found == {"shop": "left", "town": "left", "depot": "right", "size": "right"}


@pytest.mark.parametrize(
    "model", [Gaussian([1.0], [0.5]), Samples([[1.0, 2.0, 4.0]]), Samples([[[0.0, 1.0], [2.0, 3.0]]])]
)
def test_every_model_has_a_page(model: Any, tmp_path: Path) -> None:
    table = pa.table({"x_left": model.to_arrow(), "x_right": model.to_arrow(), "probability": [0.5]})
    found = data_of(hp.explore(table, tmp_path / "p.html").read_text(encoding="utf-8"))
    assert bool(found["values"]) != bool(found["map"])


def test_frames_of_pandas_and_long_ids_are_shown(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id_left": [2**60 + 1], "when": [pd.Timestamp("2026-01-02")], "p_match": [0.5]})
    found = data_of(hp.explore(frame, tmp_path / "p.html").read_text(encoding="utf-8"))
    assert found["columns"][0]["texts"] == [str(2**60 + 1)]
    assert found["probability"]["name"] == "p_match"


def test_an_empty_table_has_a_page(tmp_path: Path) -> None:
    table = pa.table({"id_left": pa.array([], pa.int64()), "probability": pa.array([], pa.float64())})
    page = hp.explore(table, tmp_path / "p.html").read_text(encoding="utf-8")
    answer = ask(page, "return document.getElementById('count').textContent;", tmp_path)
    assert answer.found.startswith("0 pairs of 0")
    assert answer.console == []


def test_a_table_without_probabilities_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HaplyError, match=r"no column of probabilities\. Expected probability or p_match\. Found x"):
        hp.explore(pa.table({"x": [1.0]}), tmp_path / "p.html")


# -- what it does in a browser -----------------------------------------------------------------------------------------

_ASKED = """
const text = (id) => document.getElementById(id).textContent;
const rows = () => [...document.querySelectorAll(".row.body")];
state.sort = 0; update(); state.threshold = 0.3; update(); state.threshold = 0.6; update();
const orderings = orders.size;
state.sort = -1; update();
const before = rows()[0];
state.threshold = 0.65; update();
const steady = {orderings, same: rows()[0] === before};
location.hash = ""; start();
const slider = document.getElementById("threshold");
const found = {steady, first: text("count"), images: document.images.length, inline: document.scripts.length};
state.threshold = 0.7; update();
found.at70 = {count: text("count"), rows: visible.length, drawn: rows().length,
  lost: document.querySelectorAll('#histogram rect[fill="var(--lost)"]').length};
const key = (name) => grid.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true}));
grid.focus(); key("Home"); key("ArrowDown"); key("ArrowDown");
found.chosen = {place: visible.indexOf(state.pair), verdict: text("verdict"),
  selected: grid.getAttribute("aria-activedescendant"), pictures: document.querySelectorAll("#explained > svg").length};
key("End");
found.last = {place: visible.indexOf(state.pair), seen: !!document.querySelector('.row[aria-selected="true"]')};
document.querySelector(".row.head button").click();
found.rising = rows().length && probability[visible[0]] <= probability[visible[visible.length - 1]];
document.querySelector('input[value="several"]').click();
found.several = {rows: visible.length, cards: (choose(visible[0]), document.querySelectorAll(".card").length)};
document.querySelector('input[value="alone"]').click();
found.alone = {rows: visible.length};
found.outline = getComputedStyle(slider).outlineStyle;
found.ground = getComputedStyle(document.body).backgroundColor;
found.unnamed = [...document.querySelectorAll("button, input, [role=img], [role=grid], [tabindex]")]
  .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length))
  .map((one) => one.outerHTML);
return found;
"""


@pytest.fixture(scope="module")
def answer(html: str, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    return ask(html, _ASKED, tmp_path_factory.mktemp("asked"))


def test_no_errors_and_no_requests(answer: Answer) -> None:
    assert answer.console == []
    assert (answer.found["images"], answer.found["inline"]) == (0, 3)  # the data, the page's own, and the test's


def test_the_slider_moves_everything(answer: Answer, pairs: pa.Table) -> None:
    p = pairs["probability"].to_numpy()
    kept = int((p >= 0.7).sum())
    assert answer.found["first"].startswith("100,000 pairs of 100,000")
    at70 = answer.found["at70"]
    assert at70["count"].startswith(f"{kept:,} pairs of 100,000, of which {100 * p[p >= 0.7].mean():.1f}% are expected")
    assert at70["rows"] == kept
    assert 10 <= at70["drawn"] <= 40  # only the rows that can be seen are in the page
    assert at70["lost"] == 35


def test_a_moved_slider_sorts_nothing_and_draws_only_what_changes(answer: Answer) -> None:
    """A hundred thousand pairs then stay fluid."""
    assert answer.found["steady"] == {"orderings": 1, "same": True}


def test_arrow_keys_choose_pairs(answer: Answer) -> None:
    chosen = answer.found["chosen"]
    assert chosen["place"] == 2
    assert chosen["selected"] == "row-2"
    assert chosen["pictures"] == 2  # densities, and positions
    assert re.match(r"These two fulfil the condition with probability \S+, at least the threshold", chosen["verdict"])
    assert "times their joint standard error" in chosen["verdict"]
    assert answer.found["last"] == {"place": answer.found["at70"]["rows"] - 1, "seen": True}


def test_the_head_sorts_and_views_choose_rows(answer: Answer, pairs: pa.Table) -> None:
    kept = pairs.to_pandas()[["id_left", "probability"]].query("probability >= 0.7")
    per_row = kept.groupby("id_left").size()
    assert answer.found["rising"]
    assert answer.found["several"]["rows"] == int(per_row[per_row > 1].sum())
    assert answer.found["several"]["cards"] >= 2
    everyone = pairs["id_left"].to_pandas().nunique()
    assert answer.found["alone"]["rows"] == everyone - len(per_row)


def test_everything_has_a_name_and_focus_can_be_seen(answer: Answer, html: str) -> None:
    assert answer.found["unnamed"] == []
    assert ":focus-visible" in html


def test_dark_pages_are_dark(answer: Answer, outer: str, tmp_path: Path) -> None:
    assert answer.found["ground"] == "rgb(255, 255, 255)"
    dark = ask(outer, "return getComputedStyle(document.body).backgroundColor;", tmp_path, dark=True)
    assert dark.found == "rgb(20, 24, 28)"


def test_the_address_holds_the_view(outer: str, tmp_path: Path) -> None:
    script = "return {threshold: document.getElementById('threshold').value, rows: visible.length, pair: state.pair};"
    found = ask(outer, script, tmp_path, fragment="threshold=0.6&pair=3&view=alone").found
    assert found["threshold"] == "0.6"
    assert found["pair"] == 3
    assert found["rows"] >= 20


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_text_is_hidden(html: str, outer: str, dark: bool, tmp_path: Path) -> None:
    views = [
        View(f"{name}, {width} px, {fragment}", page, width, fragment)
        for name, page, fragment in (
            ("pairs", html, "threshold=0.7&pair=12"),
            ("pairs", html, "threshold=0.95&view=several"),
            ("sky", outer, "threshold=0.3&view=alone"),
        )
        for width in (DESK, PHONE)
    ]
    found = faults(views, tmp_path, least_size=9.0, dark=dark, contrast=4.5)
    lines = [f"{view}: {fault}" for view, each in found.items() for fault in each]
    assert lines == []
