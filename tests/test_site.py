"""The built site in a browser: at two widths, light and dark, no page overflows, hides text or asks for a network.

All text can be read: its contrast is at least that of WCAG.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from sphinx.cmd.build import main as build_site

from browser_kit import View, ask, faults

DOCS = Path(__file__).parents[1] / "docs"
WIDTHS = (1280, 390)
FEW = ("start/first_answer", "concepts/pruning", "performance/index")
"""Pages with code, tables and pictures of both kinds, for the short run."""


def build(folder: Path, *options: str) -> int:
    """Build the site into a folder; returns the exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", sys.path.copy())  # conf.py adds to it
        return build_site(["-q", "--keep-going", *options, "-d", f"{folder}-trees", str(DOCS), str(folder)])


@pytest.fixture(scope="session")
def few_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build some pages alone. Links to all others are missing, which Sphinx tells of."""
    folder = tmp_path_factory.mktemp("few") / "html"
    names = ",".join(f"{name}.md" for name in FEW)
    assert build(folder, "-Q", "-D", f"include_patterns={names}", "-D", f"root_doc={FEW[0]}") == 0
    return folder


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the whole site; a warning is a failure."""
    folder = tmp_path_factory.mktemp("site") / "html"
    assert build(folder, "-W") == 0
    return folder


def with_drawings(path: Path) -> str:
    """Return a page with its pictures as parts of it, so that their texts can be measured."""

    def drawing(image: re.Match[str]) -> str:
        source = re.search(r'src="([^"]+\.svg)"', image[0])
        if source is None:
            return image[0]
        shown = re.search(r'class="([^"]*)"', image[0])
        svg = (path.parent / source[1]).read_text(encoding="utf-8")
        if "<style" in svg:  # its rules would hold for the whole page; tests/report/test_layout.py measures it
            return image[0]
        return f'<span class="{shown[1] if shown else ""}">{svg}</span>'

    return re.sub(r"<img [^>]*>", drawing, path.read_text(encoding="utf-8"))


def assert_sound(folder: Path, pages: list[Path], dark: bool) -> None:
    views = [
        View(
            f"{page.relative_to(folder)} at {width} px",
            with_drawings(page),
            width,
            place=str(page.parent.relative_to(folder)),
            part="article",
        )
        for page in pages
        for width in WIDTHS
    ]
    found = faults(views, folder, least_size=8.0, dark=dark, contrast=4.5)
    wrong = [f"{view}: {fault}" for view, each in found.items() for fault in each]
    if wrong:
        pytest.fail("\n".join(wrong[:200]), pytrace=False)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.filterwarnings("ignore")  # of Sphinx to itself
def test_a_few_pages(few_pages: Path, dark: bool) -> None:
    assert_sound(few_pages, [few_pages / f"{name}.html" for name in FEW], dark)


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.filterwarnings("ignore")
def test_all_pages(site: Path, dark: bool) -> None:
    pages = sorted(page for page in site.rglob("*.html") if not re.fullmatch(r"\d+|outer|genindex|search", page.stem))
    assert len(pages) > 100
    for begin in range(0, len(pages), 20):
        assert_sound(site, pages[begin : begin + 20], dark)


@pytest.mark.parametrize(("chosen", "system_is_dark"), [("dark", False), ("light", True)])
@pytest.mark.filterwarnings("ignore")
def test_the_switch_chooses_the_pictures(few_pages: Path, chosen: str, system_is_dark: bool) -> None:
    """The site has a switch between light and dark, which wins over the system."""
    page = (few_pages / "concepts" / "pruning.html").read_text(encoding="utf-8")
    script = f"""
        document.body.dataset.theme = "{chosen}";
        return [...document.querySelectorAll("figure img")].filter((image) => image.checkVisibility())
            .map((image) => image.src.endsWith("-dark.svg"));
    """
    shown = ask(page, script, few_pages / "concepts", dark=system_is_dark).found
    assert shown == [chosen == "dark"] * 4


@pytest.mark.filterwarnings("ignore")
def test_no_page_asks_for_the_network(few_pages: Path) -> None:
    for path in few_pages.rglob("*"):
        if path.suffix in (".html", ".css", ".js"):
            text = path.read_text(encoding="utf-8")
            asked = re.findall(r'(?:src=|<link[^>]*href=|url\(|@import )["\']?((?:https?:)?//[^"\')\s]+)', text)
            assert asked == [], path


@pytest.mark.filterwarnings("ignore")
def test_the_check_sees_what_is_wrong_with_a_page(few_pages: Path) -> None:
    page = with_drawings(few_pages / "concepts" / "pruning.html")
    text = '<text x="{}" y="50" font-size="12">words</text>'
    bad = f'<svg width="300" height="100">{text.format(10)}{text.format(20)}</svg><div style="width: 3000px">.</div>'
    broken = page.replace("</h1>", f"</h1>{bad}", 1)
    views = [View("broken", broken, 1280, place="concepts", part="article")]
    kinds = {fault.partition(":")[0].split(" by ")[0] for fault in faults(views, few_pages)["broken"]}
    assert {"overlap"} < kinds
    assert [kind for kind in kinds if re.fullmatch(r"the page is \d+ px wider than its window", kind)]


def test_the_check_sees_errors_and_requests(tmp_path: Path) -> None:
    bad = '<img src="https://example.org/x.png"><script>console.error("broken")</script>'
    found = faults([View("bad", f"<!doctype html><body>{bad}</body>", 390)], tmp_path)
    assert found["bad"] == ["asks the network for https://example.org/x.png"]
    assert len(found["console"]) == 1
    assert "broken" in found["console"][0]
