"""The command ``haply plot``: a chart of a file's models, or of pairs, as a picture."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from haply.cli.questions import named
from haply.errors import HaplyError, count_of
from haply.inputs import table_of
from haply.looking.pairs import map as map_of
from haply.looking.pairs import threshold_chart
from haply.models.columns import read_column
from haply.outputs import check_folder, kind_of
from haply.planning.constructors import with_named_models
from haply.planning.frames import Frame, field_of, find_column

KINDS = (".svg", ".png", ".html")
_ROWS, _PAIRS = 8, 300
"""How many are drawn unless ``--rows`` says otherwise."""


def plot(arguments: argparse.Namespace) -> int:
    """Draw a chart into a file: of one column its models, of two a map, of none the thresholds of pairs."""
    kind_of(arguments.file)
    _check_picture(arguments.out)
    if arguments.rows is not None and arguments.rows < 1:
        raise HaplyError("A chart needs rows", expected="--rows of at least 1", found=str(arguments.rows))
    columns = arguments.columns
    made = named("--model", arguments.model) | {text: text for text in columns if "(" in text}
    frame = with_named_models(table_of(arguments.file, "The table"), made, "given")
    if not columns:
        chart: Any = threshold_chart(frame, probability=arguments.probability)
    elif len(columns) == 1:
        chart = _models(frame, columns[0], arguments.rows or _ROWS)
    elif len(columns) == 2:
        chart = map_of(frame, columns[0], columns[1], most=arguments.rows or _PAIRS)
    else:
        raise HaplyError(
            f"{len(columns)} columns are too many for a chart",
            expected="one column of models, two of positions, or none for the thresholds of pairs",
        )
    _write(chart, arguments.out)
    print(f"The chart is in {arguments.out}: {chart.to_dict()['title']['text']}")
    return 0


def _models(frame: Frame, name: str, rows: int) -> Any:
    column = find_column(frame, name, "given")
    if field_of(frame, column).uncertain_model is None:
        raise HaplyError(
            f"Column '{column}' is not uncertain",
            expected="a column of models, or one that is made here",
            found=field_of(frame, column).text,
            hint=f"haply plot FILE 'gaussian({column}, error)', if the column error holds standard deviations",
        )
    read = read_column(frame.gathered([column], frame.count_rows())[column])
    if len(read.bad_rows):
        bad = count_of(len(read.bad_rows), "bad row")
        print(f"haply: note: {bad} left out, such as: {read.example}. haply check shows them all.", file=sys.stderr)
    return read.model.plot(most=rows)


def _check_picture(path: str) -> None:
    """Refuse a name that says no kind of picture, before anything is drawn."""
    if Path(path).suffix.lower() not in KINDS:
        raise HaplyError(f"A chart cannot go into {path}", expected="a name that ends in " + ", ".join(KINDS))
    check_folder(path)


def _write(chart: Any, path: str) -> None:
    from haply.drawing.library import chart_converter, svg_of
    from haply.report.page import Page

    kind, target = Path(path).suffix.lower(), Path(path)
    if kind == ".svg":
        target.write_text(svg_of(chart), encoding="utf-8")
    elif kind == ".png":
        target.write_bytes(chart_converter().vegalite_to_png(chart.to_dict(), scale=2))
    else:
        page = Page(chart.to_dict()["title"]["text"])
        page.chart(chart.properties(title={"text": ""}), "The chart.")
        page.write(target)
