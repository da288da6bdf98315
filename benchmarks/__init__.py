"""Benchmarks: haply beside other engines. Each gets its best formulation, and all answers are checked to be equal."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haply.errors import unknown_name

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.measure import Report

NWAY_PYTHON = "HAPLY_NWAY_PYTHON"
"""The environment variable with the Python that has the package ``nway``; the option ``--nway`` sets it."""
FULL_SIZE = "HAPLY_BENCH_FULL"
"""The environment variable that asks for the largest sizes; the option ``--full`` sets it."""
BENCHES = (
    "local", "band", "interval", "spark", "usj", "usj_stream", "ptjoin", "wjoin", "wjoin_stream", "sky", "peng-select",
    "peng-planning", "peng-joins", "cheng", "index", "strategies", "answers", "events",
)  # fmt: skip
"""Each benchmark is a module here (with _ for -) with ``run(quick, data, tell) -> Report``; ``data`` is a folder of
downloaded data, if any."""


def main_bench(name: str | None, json_path: str | None, quick: bool, data: str | None, out: str) -> int:
    """Run one benchmark, or all: a table on the terminal, a chart in the folder ``out``, JSON if a path is given."""
    if name is not None and name not in BENCHES:
        raise unknown_name("bench", name, BENCHES)
    from rich.console import Console

    from benchmarks.measure import growth_table, table, targets, without_verdicts, write_chart

    # files and pipes have room for wide tables
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    done: list[dict[str, Any]] = []
    for chosen in BENCHES if name is None else (name,):
        report = _run(chosen, quick, data, console)
        if quick:
            report = without_verdicts(report)
        console.print(table(report))
        if report.growth:
            console.print(growth_table(report))
        for line in report.config.get("notes", ()):
            console.print(f"  {line}", soft_wrap=True)
        for line in targets(report):
            console.print(f"  {line}", soft_wrap=True)
        console.print(f"  chart: {write_chart(report, out)}", soft_wrap=True)
        _show_figures(report, out, console)
        done.append(report.to_dict())
        if json_path is not None:  # after each, so that a failing bench does not lose the earlier ones
            path = Path(json_path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(done if name is None else done[0], indent=2) + "\n", encoding="utf-8")
    return 0


def _show_figures(report: Report, out: str, console: Console) -> None:
    """Print the table, notes, claims and chart of each experiment."""
    from benchmarks.measure import figure_table, verdicts, write_figures

    for figure, path in zip(report.figures, write_figures(report, out) if report.figures else (), strict=True):
        console.print(figure_table(figure))
        for line in (*figure.notes, *verdicts(figure), f"chart: {path}"):
            console.print(f"  {line}", soft_wrap=True, markup=False)


def _run(name: str, quick: bool, data: str | None, console: Console) -> Report:
    """Run a benchmark; progress is one changing line on a terminal, and a line for each step elsewhere."""
    module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    if console.is_terminal:
        with console.status(name) as status:
            report: Report = module.run(quick, data, lambda text: status.update(f"{name}: {text}"))
            return report
    report = module.run(quick, data, lambda text: console.print(f"{name}: {text}"))
    return report
