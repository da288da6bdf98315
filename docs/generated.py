"""Pages that the docs build writes: one for each public name, and one for each notebook.

The names are those in the tables of ``reference/index.md``. What a page says of a name is its docstring.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
INDEX = HERE / "reference" / "index.md"
API = HERE / "reference" / "api"
NOTEBOOKS = HERE / "notebooks"

_OPERATOR = ("push", "close", "expire", "stored", "snapshot", "restore")
MEMBERS = {
    "haply.Funnel": ("to_dict", "stages", "filled", "chart"),
    "haply.engines.doctor.Checkup": ("ok",),
    "haply.joins.PairJoin": ("push", "close", "expire", "snapshot", "restore"),
    "haply.joins.PositionJoin": ("push", "expire", "close", "snapshot", "restore"),
    "haply.joins.SimilarityJoin": _OPERATOR,
    "haply.joins.TimingJoin": (*_OPERATOR, "late"),
    "haply.joins.TumblingJoin": ("push", "close", "snapshot", "restore"),
    "haply.joins.WindowJoin": (*_OPERATOR, "push_many", "heartbeat"),
    "haply.judging.ErrorFit": (
        *("share", "offset", "scale", "extra", "converged", "rounds", "log_likelihood", "matches"),
        *("table", "apply", "chart"),
    ),
    "haply.models.Model": ("plot", "take", "show", "problems", "from_arrow", "to_arrow"),
    "haply.models.OneDimensional": ("cdf", "cdf_left", "quantile", "mean", "variance", "support", "concentration"),
    "haply.planning.explain.RowExplanation": ("order", "decided_by"),
    "haply.planning.plans.Plan": ("run", "write", "explain", "explain_row", "chart"),
    "haply.probability.Region": ("contains",),
    "haply.report.calibration.Calibration": (
        *("pairs", "skipped", "brier", "log_loss", "decomposition", "table", "fakes_table", "residuals_table"),
        *("sentences", "chart"),
    ),
    "haply.report.pair.PairExplanation": ("chart",),
}
"""The methods and attributes that the page of a class tells of."""

MADE_BY_HAPLY = ("haply.engines", "haply.judging", "haply.planning", "haply.report")
"""Where classes are that nobody makes by hand: their pages show no arguments."""


def listed() -> list[str]:
    """Return the names in the tables of the reference, in their order."""
    tables = re.findall(r"\.\. autosummary::\n\n((?:   \S+\n)+)", INDEX.read_text(encoding="utf-8"))
    return [name for table in tables for name in table.split()]


def found(name: str) -> Any:
    """Return the object that a name of the reference means."""
    parent, _, last = name.rpartition(".")
    return getattr(importlib.import_module(parent), last)


def shown_as(name: str) -> str:
    """Return a name as people write it: ``hp.join`` for ``haply.join``."""
    parent = name.rpartition(".")[0]
    return name.replace("haply.", "hp.", 1) if parent in ("haply", "haply.sky") else name


def write_all() -> None:
    """Write all pages; a file that is right already keeps its date, so that Sphinx does not read it again."""
    pages = {API / f"{name}.md": reference_page(name) for name in listed()}
    pages |= {path.with_suffix(".md"): notebook_page(path) for path in NOTEBOOKS.glob("*.ipynb")}
    for old in {*API.glob("*.md"), *(path for path in NOTEBOOKS.glob("*.md") if path.stem != "index")} - set(pages):
        old.unlink()
    API.mkdir(parents=True, exist_ok=True)
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def reference_page(name: str) -> str:
    """Return the page of a public name."""
    about = found(name)
    kind = "autofunction"
    if inspect.isclass(about):
        kind = "autoexception" if issubclass(about, Exception) else "autoclass"
    bare = "()" if name.startswith(MADE_BY_HAPLY) else ""
    members = MEMBERS.get(name, ())
    option = f"   :members: {', '.join(members)}\n" if members else ""
    parts = [f"# {shown_as(name)}\n", f"```{{eval-rst}}\n.. {kind}:: {name}{bare}\n{option}```\n"]
    pages = pages_that_use(name)
    if pages:
        parts.append("## Pages that use it\n")
        parts.append("\n".join(f"- [{title}](../../{path.relative_to(HERE)})" for title, path in pages.items()) + "\n")
    return "\n".join(parts)


def pages_that_use(name: str, most: int = 8) -> dict[str, Path]:
    """Return pages whose code calls a function, by their titles."""
    call = re.compile(rf"(?<![\w.]){re.escape(shown_as(name).removeprefix('haply.joins.'))}\(")
    using = {}
    for folder in ("start", "tutorials", "recipes", "howto", "concepts"):
        for page in sorted((HERE / folder).glob("*.md")):
            text = page.read_text(encoding="utf-8")
            if any(call.search(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
                using[text.partition("\n")[0].removeprefix("# ")] = page
    return dict(list(using.items())[:most])


def notebook_page(path: Path) -> str:
    """Return the cells of a notebook as a page, with a link to the notebook itself."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    parts.insert(1, f"{{download}}`Download this notebook <{path.name}>` and run it: its outputs are not shown here.")
    return "\n\n".join(parts) + "\n"
