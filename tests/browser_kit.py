"""Text as a browser lays it out: which texts of a page lie on each other, leave it, or are too small to read.

One start of Chromium looks at many pages at many widths. Each page is a frame of one outer page, because a window
cannot be made as narrow as a phone. It measures itself and sends what it finds to the outer page, which is printed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
DARK = ("--blink-settings=preferredColorScheme=0",)
"""What makes a browser ask for dark colours."""


@dataclass(frozen=True)
class View:
    """A page at a width: ``html`` is a whole document, and ``fragment`` what follows its address after a ``#``.

    ``place`` is the folder of the page, for pages with files beside them. Of the texts those in ``part``, a selector of
    CSS, are looked at.
    """

    name: str
    html: str
    width: int
    fragment: str = ""
    place: str = "."
    part: str = "body"


@cache
def browser() -> str:
    """Find a Chromium; skip the test where there is none, but fail in CI, which installs one (``.ci/run``)."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"no browser to lay out the pages with: none of {', '.join(NAMES)} is on the PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{reason}, and CI=true")
        pytest.skip(reason)
    return found


def faults(
    views: Sequence[View], folder: Path, least_size: float = 0.0, dark: bool = False, contrast: float = 0.0
) -> dict[str, list[str]]:
    """Find what is wrong with the texts of each view, by its name.

    ``least_size`` is the smallest font in pixels. ``contrast`` is the least of each text with its ground, as WCAG
    counts it: 4.5 is good for reading, 21 is black on white.

    A request to a network is a fault as well. What the consoles of the pages say is under the name ``console``.
    """
    program = browser()
    frames = []
    for number, view in enumerate(views):
        script = _MEASURE.replace("NUMBER", str(number)).replace("LEAST", repr(least_size))
        script = script.replace("PART", json.dumps(view.part)).replace("CONTRAST", repr(contrast))
        before, end, after = view.html.rpartition("</body>")
        page = f"{before}<script>{script}</script>{end}{after}"
        (folder / view.place / f"{number}.html").write_text(page, encoding="utf-8")
        address = f"{view.place}/{number}.html{'#' * bool(view.fragment)}{view.fragment}"
        frames.append(f'<iframe src="{escape(address)}" style="border:0;width:{view.width}px;height:1000px"></iframe>')
    outer = _OUTER.replace("COUNT", str(len(views))).replace("FRAMES", "\n".join(frames))
    (folder / "outer.html").write_text(outer, encoding="utf-8")
    command = [
        *(program, *FLAGS, *DARK[:dark], f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1200"),
        *("--virtual-time-budget=120000", "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND"),
        *("--dump-dom", (folder / "outer.html").as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    verdict = re.search(r'<pre id="verdict">(.*?)</pre>', done.stdout, re.DOTALL)
    assert verdict is not None, f"The browser has failed: {done.stderr[-2000:]}"
    assert verdict[1], f"The browser has not answered: {done.stdout[-500:]} {done.stderr[-2000:]}"
    answers = json.loads(unescape(verdict[1]))
    assert all(answer is not None for answer in answers), [answer is not None for answer in answers]
    # Vega warns of charts that are drawn all the same, and nothing else begins like this
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line and '] "WARN ' not in line]
    found = {view.name: answer for view, answer in zip(views, answers, strict=True)}
    return found | {"console": console} if console else found


@dataclass(frozen=True)
class Answer:
    """What a page answered to a script, and what its console says: errors, and requests that its policy refused."""

    found: Any
    console: list[str]
    dom: str


def ask(html: str, script: str, folder: Path, *, fragment: str = "", dark: bool = False) -> Answer:
    """Open a page in a window of its own and run a script in it, which returns what is to be known."""
    before, end, after = html.rpartition("</body>")
    put = f'document.getElementById("answer").textContent = JSON.stringify((() => {{{script}}})());'
    hook = f'<pre id="answer"></pre><script>{put}</script>'
    path = folder / "asked.html"
    path.write_text(f"{before}{hook}{end}{after}", encoding="utf-8")
    command = [
        *(browser(), *FLAGS, *DARK[:dark], f"--user-data-dir={folder / 'profile'}", "--window-size=1280,1200"),
        *("--enable-logging=stderr", "--dump-dom", f"{path.as_uri()}{'#' * bool(fragment)}{fragment}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    answer = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert answer is not None, f"The browser has failed: {done.stderr[-2000:]}"
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert answer[1], f"The page has not answered: {console}"
    return Answer(json.loads(unescape(answer[1])), console, done.stdout)


_OUTER = """<!doctype html><meta charset="utf-8"><body>
<pre id="verdict"></pre>
<script>
const answers = new Array(COUNT).fill(null);
addEventListener("message", (event) => {
  answers[event.data.number] = event.data.faults;
  if (answers.every((answer) => answer)) document.getElementById("verdict").textContent = JSON.stringify(answers);
});
</script>
FRAMES
</body>"""

# A box of text is as high as its font, so that boxes of neighbouring lines may touch: 2 px of overlap are none.
_MEASURE = """
(async () => {
  const slack = 2, faults = [];
  const ready = () => [...document.querySelectorAll("div.chart")].every((holder) =>
    holder.querySelector("svg") || holder.textContent.startsWith("This chart could not"));
  while (!ready()) await new Promise((resolve) => setTimeout(resolve, 50));
  await document.fonts.ready;
  if (document.readyState !== "complete") await new Promise((resolve) => addEventListener("load", resolve));
  for (const {name} of performance.getEntriesByType("resource"))
    if (/^(https?|wss?):/.test(name)) faults.push(`asks the network for ${name}`);
  for (const holder of document.querySelectorAll("div.chart"))
    if (!holder.querySelector("svg")) faults.push(holder.textContent);
  const scrolls = (node) => {
    const around = node.parentElement.closest("pre, figure, .scroll, .table-wrapper");
    return around && ["auto", "scroll"].includes(getComputedStyle(around).overflowX);
  };
  // what a box that scrolls or cuts hides is not seen
  const seenPart = (box, node) => {
    let {left, right, top, bottom} = box;
    for (let around = node.parentElement; around && around !== document.body; around = around.parentElement) {
      if (around.closest("svg") || getComputedStyle(around).overflowY === "visible") continue;
      const edge = around.getBoundingClientRect();
      [left, right] = [Math.max(left, edge.left), Math.min(right, edge.right)];
      [top, bottom] = [Math.max(top, edge.top), Math.min(bottom, edge.bottom)];
    }
    return {left, right, top, bottom, width: right - left, height: bottom - top};
  };
  const channels = (colour) => {
    let found = (colour.match(/[\\d.]+/g) || []).map(Number);
    if (colour.startsWith("color(")) found = found.map((part, at) => at < 3 ? 255 * part : part);  // of color-mix
    return found.length === 3 ? [...found, 1] : found.length === 4 ? found : [0, 0, 0, 0];
  };
  const light = (colour) => {
    const [red, green, blue] = channels(colour).slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  // what lies below a text: the nearest ground that is not transparent; a chart may have a rectangle of its own size
  const groundOf = (node) => {
    for (let around = node; around; around = around.parentElement) {
      const style = getComputedStyle(around);
      if (around.tagName === "svg") {
        const first = around.querySelector("rect");
        const covers = first && first.getBoundingClientRect().width >= 0.99 * around.getBoundingClientRect().width;
        if (covers && channels(getComputedStyle(first).fill)[3] === 1) return getComputedStyle(first).fill;
      }
      if (channels(style.backgroundColor)[3] === 1) return style.backgroundColor;
    }
    return "rgb(255, 255, 255)";
  };
  const contrastOf = (node) => {
    const style = getComputedStyle(node), one = light(node.closest("svg") ? style.fill : style.color);
    const other = light(groundOf(node));
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  };
  const boxes = [];
  const walker = document.createTreeWalker(document.querySelector(PART), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.textContent.trim(), parent = node.parentElement;
    if (!text || parent.closest("script, style, title, desc")) continue;
    if (!parent.checkVisibility({opacityProperty: true})) continue;  // Vega hides labels that have no room
    const clear = contrastOf(parent);
    if (clear < CONTRAST) faults.push(`faint (contrast ${clear.toFixed(1)}): ${text}`);
    const svg = parent.closest("svg"), range = document.createRange();
    range.selectNodeContents(node);
    // a text that is turned has the box of its element only
    const rects = svg ? [parent.getBoundingClientRect()] : [...range.getClientRects()];
    for (const whole of rects) {
      const box = seenPart(whole, node);
      if (box.width > 0 && box.height > 0) boxes.push({box, text, node, svg, moves: scrolls(node)});
    }
    if (!svg) continue;
    if (text.endsWith("\\u2026")) faults.push(`cut short: ${text}`);
    const turned = Math.hypot(parent.getScreenCTM().a, parent.getScreenCTM().b);
    const seen = parseFloat(getComputedStyle(parent).fontSize) * turned;
    if (seen < LEAST) faults.push(`too small (${seen.toFixed(1)} px): ${text}`);
  }
  for (const {box, text, svg, moves} of boxes) {
    if (svg) {
      const frame = svg.getBoundingClientRect();
      const out = Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top,
        box.bottom - frame.bottom);
      if (out > slack / 2) faults.push(`leaves its picture by ${out.toFixed(1)} px: ${text}`);
    }
    const beyond = Math.max(-box.left, box.right - innerWidth);
    if (!moves && beyond > 1) faults.push(`leaves the page by ${beyond.toFixed(1)} px: ${text}`);
  }
  for (let k = 0; k < boxes.length; k++) {
    for (let j = k + 1; j < boxes.length; j++) {
      const a = boxes[k], b = boxes[j];
      if (a.node === b.node) continue;
      const wide = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
      const high = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
      if (wide > slack && high > slack)
        faults.push(`overlap by ${wide.toFixed(1)} x ${high.toFixed(1)} px: ${a.text} | ${b.text}`);
    }
  }
  const wider = document.documentElement.scrollWidth - innerWidth;
  if (wider > 0) faults.push(`the page is ${wider} px wider than its window`);
  parent.postMessage({number: NUMBER, faults}, "*");
})();
"""
