"""The commands and their options. Options that several commands have are added by one function each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from haply._version import __version__
from haply.errors import HaplyError, unknown_name

HOW = ("inner", "left", "right", "outer", "semi", "anti")
KEEP = ("all", "best_left", "best_right", "mutual", "one_to_one")
UNITS = ("arcsec", "mas", "deg")
SHELLS = ("bash", "zsh", "fish")

_EXIT = "exit status: 0 done, 1 haply check found bad rows, 2 a mistake in the command or query, 130 interrupted"
_FILES = "Files are Parquet, CSV, JSON, Arrow, FITS or VOTable, by their extensions; folders and patterns too."


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors are one paragraph, like all others."""

    def error(self, message: str) -> NoReturn:
        """Refuse wrong arguments."""
        unknown = message.removeprefix("unrecognized arguments: ").split()
        if message.startswith("unrecognized arguments: ") and unknown[0].startswith("-"):
            options = [option for option in self._option_string_actions if option.startswith("--")]
            raise unknown_name("option", unknown[0].partition("=")[0], options, f"{self.prog} --help shows them all")
        raise HaplyError(f"{self.prog}: {message}", hint=f"{self.prog} --help shows what can be written")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here: argparse would leave them to the main parser."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error("unrecognized arguments: " + " ".join(rest))
        return found, rest


def make_parser() -> CommandParser:
    """Make the parser of the command line."""
    parser = CommandParser(
        prog="haply", description="Joins on uncertain data: which rows belong together, and how sure are we?",
        epilog=f"haply COMMAND --help shows more, with examples.\n{_EXIT}", formatter_class=_Help, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"haply {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    for name, (run, summary, options, examples) in _COMMANDS.items():
        lines = "\n".join(f"  haply {name} {example}".rstrip() for example in examples)
        one = commands.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", formatter_class=_Help,
            epilog=f"examples:\n{lines}\n\n{_FILES if run == 'ask:answer' else ''}\n{_EXIT}", allow_abbrev=False,
        )  # fmt: skip
        for add in options:
            add(one)
        one.set_defaults(run=run)
    return parser


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that keeps the lines of examples."""


# -- options -----------------------------------------------------------------------------------------------------------


def _two_files(command: argparse.ArgumentParser) -> None:
    command.add_argument("left_file", metavar="LEFT", help="the file of the left table")
    command.add_argument("right_file", metavar="RIGHT", help="the file of the right table")
    for side in ("left", "right"):
        command.add_argument(
            f"--{side}", action="append", metavar="NAME=MODEL",
            help=f"make an uncertain column of the {side} table, as in 'kg=gaussian(kg, err)'; may be repeated",
        )  # fmt: skip


def _one_file(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="the file of the table")
    command.add_argument(
        "--model", action="append", metavar="NAME=MODEL",
        help="make an uncertain column, as in 'kg=gaussian(kg, err)'; may be repeated",
    )  # fmt: skip


def _condition(command: argparse.ArgumentParser) -> None:
    command.add_argument("--on", required=True, metavar="CONDITION", help="the condition, as in 'left.kg < right.kg'")


def _threshold(command: argparse.ArgumentParser) -> None:
    command.add_argument("--threshold", type=float, metavar="P", help="the least probability of what is kept")


def _rows(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--invalid", choices=("raise", "drop"), default="raise",
        help="what happens to bad rows: raise an error, or leave them out (default: %(default)s)",
    )  # fmt: skip


def _pairs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--how", choices=HOW, default="inner", help="rows without a partner, as in SQL (default: %(default)s)"
    )
    command.add_argument(
        "--keep", choices=KEEP, default="all", help="which of several pairs of a row (default: %(default)s)"
    )
    command.add_argument("--k", type=int, metavar="N", help="how many pairs of a row, with --keep best_left")
    command.add_argument("--columns", metavar="A,B", help="the columns of the answer, besides probabilities")


def _strict(command: argparse.ArgumentParser) -> None:
    command.add_argument("--strict", action="store_true", help="keep only what is likelier than the threshold")


def _self_key(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--self-key", metavar="COLUMN", help="joining a table with itself: rows with equal values here are one row"
    )


def _same(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--same", action="append", required=True, metavar="NAME",
        help="what is measured on both sides: a column of both tables, or LEFT=RIGHT for one of each; may be repeated, "
        "then as NAME:D, where D is how dense its values are among unrelated rows",
    )  # fmt: skip
    density = command.add_mutually_exclusive_group()
    density.add_argument(
        "--density", metavar="D", help="unrelated right rows per unit of the value: a number, or a left column"
    )
    density.add_argument("--area", type=float, metavar="A", help="the area (or length) that the right table covers")
    command.add_argument(
        "--completeness", type=float, required=True, metavar="F", help="the share of left rows with a counterpart"
    )
    command.add_argument(
        "--within", type=float, metavar="D", help="the distance within which certain values are the same"
    )
    command.add_argument(
        "--on", metavar="EXPRESSION", help="certain conditions on candidates, as in 'left.band = right.band'"
    )
    command.add_argument("--exclusive", action="store_true", help="a right row has one partner at most")


def _sky(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--within", type=float, required=True, metavar="ARCSEC", help="how near the true positions are, in arcseconds"
    )
    for side in ("left", "right"):
        command.add_argument(
            f"--{side}-columns", metavar="RA,DEC,ERROR",
            help=f"columns of the {side} table, also RA,DEC,RA_ERROR,DEC_ERROR,CORR (default: found by usual names)",
        )  # fmt: skip
    command.add_argument(
        "--errors-in", choices=UNITS, help="the unit of errors (default: what the file says, else arcsec)"
    )


def _query(command: argparse.ArgumentParser) -> None:
    command.add_argument("query", metavar="QUERY", help="SELECT ...; - reads standard input, @name a file")
    command.add_argument("--table", action="append", metavar="NAME=PATH", help="a table; may be repeated")
    command.add_argument("--stream", action="append", metavar="NAME=FOLDER", help="a stream: a folder of Parquet files")
    command.add_argument("--time", default="time", metavar="COLUMN", help="what WINDOW uses (default: %(default)s)")
    command.add_argument(
        "--max-delay", default="0", metavar="LENGTH", help="how late rows of a stream may come (default: %(default)s)"
    )


def _column(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "column", metavar="COLUMN", nargs="?",
        help="a column, or a model such as 'gaussian(kg, err)' (default: the one that is uncertain)",
    )  # fmt: skip


def _engine(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--engine", choices=("local", "spark"),
        help="what runs the query: this process, or Spark (default: local, unless streams are named)",
    )  # fmt: skip


def _out(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-o", "--out", metavar="PATH",
        help="write the answer into this new file; - writes CSV to standard output (default: show the first rows)",
    )  # fmt: skip


def _plan(command: argparse.ArgumentParser) -> None:
    command.add_argument("--explain", action="store_true", help="print the plan as well; alone, print only the plan")
    command.add_argument("--report", metavar="FILE", help="write a report about the question here, as HTML")


def _verbose(command: argparse.ArgumentParser) -> None:
    command.add_argument("--verbose", action="store_true", help="also show how conditions and rows are handled")


def _demo(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--out", default="out/demo", metavar="FOLDER", help="where the report goes (default: %(default)s)"
    )
    command.add_argument("--rows", type=int, default=30_000, help="readings of each network (default: %(default)s)")


def _warm(command: argparse.ArgumentParser) -> None:
    command.add_argument("--report", action="store_true", help="print how long each kernel took to compile")


def _page(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="PAIRS", help="a file of pairs, as haply join writes it")
    command.add_argument(
        "-o", "--out", default="pairs.html", metavar="PAGE", help="where the page goes (default: %(default)s)"
    )
    command.add_argument("--title", metavar="WORDS", help="the heading of the page")
    _probability(command)


def _probability(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--probability", metavar="COLUMN", help="the column of probabilities (default: probability or p_match)"
    )


def _picture(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "columns", nargs="*", metavar="COLUMN",
        help="a column, or a model such as 'gaussian(kg, err)'; two of positions for a map; none for thresholds",
    )  # fmt: skip
    command.add_argument("--rows", type=int, metavar="N", help="how many rows to draw (default: 8, on a map 300)")
    _probability(command)
    command.add_argument(
        "-o", "--out", default="chart.svg", metavar="PICTURE",
        help="where the chart goes, as .svg, .png or .html (default: %(default)s)",
    )  # fmt: skip


def _workers(command: argparse.ArgumentParser) -> None:
    command.add_argument("--spark", action="store_true", help="start Spark on this machine, and look at its workers")


def _zip(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-o", "--out", default="haply.zip", metavar="FILE", help="where the zip goes (default: %(default)s)"
    )


def _bench(command: argparse.ArgumentParser) -> None:
    command.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _shell(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


# -- commands ----------------------------------------------------------------------------------------------------------

_Options = tuple[Callable[[argparse.ArgumentParser], None], ...]
_ANSWER: _Options = (_engine, _out, _plan)
_COMMANDS: dict[str, tuple[str, str, _Options, Sequence[str]]] = {
    "join": (
        "ask:answer", "find pairs of rows of two files for which a condition is likely",
        (_two_files, _condition, _threshold, _strict, _pairs, _self_key, _rows, *_ANSWER),
        (
            "shop.csv depot.csv --left 'kg=gaussian(kg, err)' --right 'kg=gaussian(kg, err)' \\\n    "
            "--on 'abs(left.kg - right.kg) <= 0.05' --threshold 0.5",
            "a.parquet b.parquet --on 'left.x < right.x' --threshold 0.9 --how left -o pairs.parquet",
        ),
    ),
    "match": (
        "ask:answer", "find rows of two files that are the same thing, and how likely that is",
        (_two_files, _same, _threshold, _pairs, _rows, *_ANSWER),
        (
            "shop.csv depot.csv --left 'kg=gaussian(kg, err)' --right 'kg=gaussian(kg, err)' \\\n    "
            "--same kg --density 1.5 --completeness 0.8",
            "a.parquet b.parquet --same pos --area 3600 --completeness 0.7 --keep one_to_one -o same.parquet",
        ),
    ),
    "sky": (
        "ask:answer", "find sources of two catalogues that are near each other",
        (_two_files, _sky, _threshold, _strict, _pairs, _self_key, _rows, *_ANSWER),
        (
            "gaia.fits radio.vot --within 1 --threshold 0.5",
            "a.csv b.csv --within 1 --threshold 0.5 --left-columns RAJ2000,DEJ2000,e_pos --errors-in mas",
        ),
    ),
    "where": (
        "ask:answer", "find rows of a file for which a condition is likely",
        (_one_file, _condition, _threshold, _strict, _rows, *_ANSWER),
        ("shop.csv --on 'gaussian(kg, err) > 3' --threshold 0.9 -o heavy.csv",),
    ),
    "sql": (
        "ask:answer", "answer a query over files with uncertain values",
        (_query, *_ANSWER),
        (
            "\"SELECT parcel, PROB() AS p FROM 'shop.csv' WHERE GAUSSIAN(kg, err) < 2.1\"",
            "@query.sql --table shop=shop.csv --table depot=depot.parquet --out pairs.parquet",
        ),
    ),
    "explain": (
        "ask:answer", "show how a query would be answered", (_query, _engine, _verbose),
        ("\"SELECT * FROM 'a.csv' a, 'b.csv' b WHERE abs(GAUSSIAN(a.x, a.e) - b.x) < 1 WITH THRESHOLD 0.5\"",),
    ),
    "check": (
        "ask:answer", "show the rows of an uncertain column that are not a distribution",
        (_one_file, _column, _engine, _out),
        ("readings.parquet", "shop.csv 'gaussian(kg, err)' -o bad.csv"),
    ),
    "plot": (
        "plot:plot", "draw the models of a column, the thresholds of pairs, or a map of them", (_one_file, _picture),
        (
            "shop.csv 'gaussian(kg, err)' -o models.svg", "pairs.parquet -o thresholds.png",
            "pairs.parquet pos_left pos_right -o map.html",
        ),
    ),
    "explore": (
        "other:explore", "write a page on which pairs can be looked at in a browser", (_page,),
        ("pairs.parquet -o pairs.html",),
    ),
    "demo": (
        "other:demo", "show a guided example in about a minute, with a report; needs no files", (_demo,), ("",)
    ),
    "warm": ("other:warm", "compile the kernels ahead, so that the first join is quick", (_warm,), ("",)),
    "doctor": ("other:doctor", "check whether haply can work here", (_workers,), ("", "--spark")),
    "pack": (
        "other:pack", "write haply into a zip, which Spark sends to its workers with --py-files", (_zip,),
        ("-o haply.zip",),
    ),
    "bench": ("other:bench", "show where the benchmarks are", (_bench,), ("",)),
    "completion": (
        "completion:completion", "print a script that completes commands and options in a shell", (_shell,),
        ("bash > ~/.local/share/bash-completion/completions/haply", "fish > ~/.config/fish/completions/haply.fish"),
    ),
}  # fmt: skip

COMMANDS = tuple(_COMMANDS)
"""The names of all commands."""
