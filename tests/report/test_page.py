"""The HTML page: escaped, described, and complete without a network."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from haply.drawing.funnel import funnel_chart
from haply.report.page import Page

STAGES = [{"stage": "pairs possible", "pairs": 100}, {"stage": "kept </script><script>alert(1)", "pairs": 3}]


class Reader(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._script: dict[str, str | None] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = dict(attrs) if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts.append((self._script, data))
            self._script = None


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


def fetched(html: str) -> list[str]:
    """Every address that a browser would fetch or follow by itself."""
    reader = read(html)
    found = [
        str(value)
        for _, attributes in reader.tags
        for name, value in attributes.items()
        if name in {"src", "href", "data", "action", "poster", "srcset"}
    ]
    found += [tag for tag, _ in reader.tags if tag in {"link", "iframe", "object", "embed", "img", "base"}]
    specs = [json.loads(text) for attributes, text in reader.scripts if attributes.get("type") == "application/json"]
    found += [text for text in map(json.dumps, specs) if "://" in text]
    style = html[html.index("<style>") : html.index("</style>")]
    return found + [word for word in ("@import", "url(") if word in style]


@pytest.fixture(scope="module")
def page() -> Page:
    made = Page("A <title>", "What & why")
    made.section("First & last").prose("1 < 2", "second")
    made.subsection("Part").code("a < b")
    made.table(("name", "count"), [("x <b>", "1,234"), ("y", "-")], caption="A & B", strong=[1])
    for _ in range(2):
        made.chart(funnel_chart(STAGES), 'Bars "of" pairs', caption="Below <it>")
    return made


@pytest.fixture(scope="module")
def html(page: Page) -> str:
    """The page once: the chart library is put together anew each time, which takes seconds."""
    return page.html()


def test_every_text_is_escaped(html: str) -> None:
    for text in ("A &lt;title&gt;", "What &amp; why", "First &amp; last", "1 &lt; 2", "a &lt; b", "x &lt;b&gt;"):
        assert text in html
    assert "Below &lt;it&gt;" in html
    assert 'aria-label="Bars &quot;of&quot; pairs"' in html


def test_a_chart_cannot_leave_its_script(html: str) -> None:
    reader = read(html)
    specs = [json.loads(text) for attributes, text in reader.scripts if attributes.get("type") == "application/json"]
    assert len(specs) == 2
    assert "</script><script>" in json.dumps(specs)
    assert not any("alert(1)" in text for attributes, text in reader.scripts if not attributes)


def test_nothing_is_fetched(html: str) -> None:
    assert fetched(html) == []
    (policy,) = [a["content"] for tag, a in read(html).tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


@pytest.mark.parametrize(
    "part",
    ['<script src="https://x/y.js"></script>', '<link rel="stylesheet" href="//x/y.css">', '<img src="a.png">',
     '<script type="application/json">{"data": {"url": "https://x/y"}}</script>'],
)  # fmt: skip
def test_the_check_for_addresses_sees_them(part: str) -> None:
    assert fetched("<style></style>" + part)


def test_the_chart_library_is_inside_once(html: str) -> None:
    assert html.count("window.vegaEmbed=") == 1
    alone = Page("No charts").html()
    assert "vegaEmbed" not in alone
    assert len(alone) < 10_000


def test_tables_set_numbers_to_the_right(html: str) -> None:
    assert '<th>name</th><th class="number">count</th>' in html
    assert '<tr class="strong"><td>y</td><td class="number">-</td></tr>' in html


def test_charts_are_described_to_those_who_cannot_see_them(html: str) -> None:
    described = [a for tag, a in read(html).tags if a.get("role") == "img"]
    assert [a["aria-label"] for a in described] == ['Bars "of" pairs'] * 2
    assert len({a["id"] for a in described}) == 2


def test_writing_makes_the_folder(page: Page, html: str, tmp_path: Path) -> None:
    path = page.write(tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8") == html
