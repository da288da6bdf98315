"""A report as one HTML file that opens without a network: prose, tables and charts, with the chart library inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from haply._version import __version__
from haply.drawing.dark import GROUND, chart_colours

_STYLE = """
:root {
  color-scheme: light dark;
  --ground: #fff; --ink: #222; --soft: #555; --line: #ddd; --rule: #999; --strong: #eef5fa; --code: #f6f6f4;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --ground: GROUND; --ink: #e6edf3; --soft: #a9b1ba; --line: #363e46; --rule: #7d8690; --strong: #1b2f40;
    --code: #1d2328;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 50rem; background: var(--ground); color: var(--ink);
  font: 17px/1.55 Charter, "Bitstream Charter", "Iowan Old Style", Georgia, serif;
}
h1, h2, h3, table, figcaption, code, .lead, footer { font-family: "Helvetica Neue", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; letter-spacing: -.01em; }
h2 { font-size: 1.25rem; margin: 2.8rem 0 .6rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.8rem 0 .4rem; }
p { margin: .7rem 0; max-width: 42rem; }
.lead { font-size: 1.08rem; color: var(--soft); }
table { border-collapse: collapse; margin: 1.2rem 0; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .4rem; }
th, td { padding: .32rem .9rem .32rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; border-bottom: 1.5px solid var(--rule); }
td.number, th.number { text-align: right; }
tr.strong td { font-weight: 600; background: var(--strong); }
.scroll { overflow-x: auto; }
figure { margin: 1.6rem 0; overflow-x: auto; }
.chart-title { font: 600 .95rem/1.3 "Helvetica Neue", Helvetica, Arial, sans-serif; margin: 0 0 .7rem; }
figcaption { font-size: .84rem; color: var(--soft); margin-top: .5rem; max-width: 42rem; }
.chart { display: block; }
.chart svg { max-width: 100%; height: auto; }
pre { background: var(--code); padding: .8rem 1rem; overflow-x: auto; font-size: .82rem; line-height: 1.45; }
pre code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
footer {
  margin-top: 3rem; padding-top: .8rem; border-top: 1px solid var(--line); font-size: .8rem; color: var(--soft);
}
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; }
  h2 { break-after: avoid; } figure, table, pre { break-inside: avoid; }
}
""".strip().replace("GROUND", GROUND)

# Vega compiles its expressions, hence 'unsafe-eval'. Everything else, and every address, is refused by the browser.
_POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"

# A chart that shrinks as a whole has texts too small to read. On a narrow page it is drawn narrower instead:
# panels and the entries of legends below each other, long titles of axes in two lines, and a map as high as it is wide.
_DRAW = """
function narrow(spec, room) {
  const plot = room - 75;  // beside the axis and its title
  if (spec.hconcat) {
    spec.vconcat = spec.hconcat;
    delete spec.hconcat;
    for (const view of spec.vconcat) view.width = Math.min(view.width, plot);
  } else if (spec.usermeta && spec.usermeta.equalScales) {
    spec.height *= plot / spec.width;
    spec.width = plot;
  } else {
    spec.width = room;
    spec.autosize = {type: "fit-x", contains: "padding"};
  }
  stack(spec);
}
function stack(part) {
  for (const [name, value] of Object.entries(part)) {
    if (name === "data" || value === null) continue;
    if (name === "legend") Object.assign(value, {columns: 1, direction: "vertical"});
    if (name === "title" && typeof value === "string" && value.length > 36) {
      const middle = value.lastIndexOf(" ", value.length / 2 + 4);
      part.title = [value.slice(0, middle), value.slice(middle + 1)];
    } else if (typeof value === "object") stack(value);
  }
}
for (const holder of document.querySelectorAll("div.chart")) {
  const spec = JSON.parse(document.getElementById(holder.id + "-spec").textContent);
  if (holder.clientWidth < 720) narrow(spec, holder.clientWidth);
  vegaEmbed(holder, spec, {mode: "vega-lite", renderer: "svg", actions: false}).catch((error) => {
    holder.textContent = "This chart could not be drawn: " + error;
  });
}
""".strip()


class Page:
    """A page that grows from top to bottom; every text is escaped.

    >>> page = Page("A title", "What this is about.")
    >>> page.section("First").prose("1 < 2")
    >>> "1 &lt; 2" in page.html()
    True
    """

    def __init__(self, title: str, lead: str = "") -> None:
        self.title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        if lead:
            self._parts.append(f'<p class="lead">{escape(lead)}</p>')
        self._charts = 0

    def section(self, heading: str) -> Page:
        """Begin a section."""
        self._parts.append(f"<h2>{escape(heading)}</h2>")
        return self

    def subsection(self, heading: str) -> Page:
        """Begin a subsection."""
        self._parts.append(f"<h3>{escape(heading)}</h3>")
        return self

    def prose(self, *paragraphs: str) -> None:
        """Add paragraphs."""
        self._parts += [f"<p>{escape(text)}</p>" for text in paragraphs]

    def code(self, text: str) -> None:
        """Add lines of code."""
        self._parts.append(f"<pre><code>{escape(text)}</code></pre>")

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "", strong: Sequence[int] = ()
    ) -> None:
        """Add a table of texts; columns of numbers are set to the right, and ``strong`` rows stand out."""
        numeric = [all(_looks_numeric(row[k]) for row in rows) and bool(rows) for k in range(len(header))]

        def cells(tag: str, texts: Sequence[str]) -> str:
            marked = zip(texts, numeric, strict=True)
            return "".join(f"<{tag}{_class('number', right)}>{escape(text)}</{tag}>" for text, right in marked)

        lines = ['<div class="scroll"><table>']
        if caption:
            lines.append(f"<caption>{escape(caption)}</caption>")
        lines.append(f"<thead><tr>{cells('th', header)}</tr></thead><tbody>")
        for position, row in enumerate(rows):
            lines.append(f"<tr{_class('strong', position in strong)}>{cells('td', row)}</tr>")
        self._parts.append("\n".join([*lines, "</tbody></table></div>"]))

    def chart(self, chart: Any, alt_text: str, *, caption: str = "") -> None:
        """Add an altair chart with a description for those who cannot see it."""
        spec = chart.to_dict()
        spec.pop("$schema", None)
        spec["description"] = alt_text
        # the page writes the title, since a browser breaks lines where the page is narrow and a chart does not
        title = spec.pop("title", {}).get("text", "")
        self._charts += 1
        name = f"chart-{self._charts}"
        above = f'<p class="chart-title">{escape(title)}</p>' if title else ""
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        holder = f'<div class="chart" id="{name}" role="img" aria-label="{escape(alt_text)}"></div>'
        self._parts.append(
            f"<figure>{above}{holder}{below}</figure>\n"
            f'<script type="application/json" id="{name}-spec">{_safe(json.dumps(spec))}</script>'
        )

    def html(self) -> str:
        """Return the whole page."""
        scripts, colours = [], ""
        if self._charts:
            colours = chart_colours(".chart")
            scripts.append(f"<script>{_chart_code()}</script>")
            scripts.append(f"<script>{_DRAW}</script>")
        return "\n".join(
            [
                "<!doctype html>",
                '<html lang="en">',
                "<head>",
                '<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{_STYLE}\n{colours}</style>",
                "</head>",
                "<body>",
                "<main>",
                *self._parts,
                "</main>",
                f"<footer>Made by haply {__version__}. This file holds all it needs and fetches nothing.</footer>",
                *scripts,
                "</body>",
                "</html>",
                "",
            ]
        )

    def write(self, path: str | Path) -> Path:
        """Write the page, making its folder if need be."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.html(), encoding="utf-8")
        return target


def _safe(text: str) -> str:
    """Return JSON that is safe inside a script element: nothing in it can close the element."""
    return text.replace("<", "\\u003c")


def _class(name: str, applies: bool) -> str:
    return f' class="{name}"' if applies else ""


def _looks_numeric(text: str) -> bool:
    bare = text.replace(",", "").replace("%", "").replace(" ", "").lstrip("+-−±<>≥≤")
    try:
        float(bare)
    except ValueError:
        return text in ("", "-", "–")
    return True


@cache
def _chart_code() -> str:
    """Return the library that draws charts in a browser, packed once a process: it takes two seconds."""
    from haply.drawing.library import chart_converter

    code: str = chart_converter().javascript_bundle("window.vegaEmbed=vegaEmbed;")
    return code
