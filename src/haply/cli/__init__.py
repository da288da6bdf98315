"""The command ``haply``: ``demo``, ``sql``, ``explain``, ``warm``, ``doctor``, ``pack``, ``bench``, ``--version``.

Everything heavy is imported by the command that needs it, so that help and version are quick.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from haply._version import __version__
from haply.errors import HaplyError, unknown_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_FEW_STEPS = 7
COMMANDS = ("demo", "sql", "explain", "warm", "doctor", "pack", "bench")


def command() -> None:
    """Run the command line and end the process.

    Imports make far more objects than garbage: the collector is called less often. And what was imported is not taken
    down at the end, which would take longer than many a query; Spark, if it runs, ends by itself as it must.
    """
    gc.set_threshold(100_000)
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if "pyspark" in sys.modules:
        sys.exit(status)
    os._exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, 2 for an error that is the caller's to mend, 130 for Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words and not words[0].startswith("-") and words[0] not in COMMANDS:
            raise unknown_name("command", words[0], COMMANDS)
        arguments = _parser().parse_args(words)
        if arguments.command is None:
            _parser().print_help()
            return 0
        return int(arguments.run(arguments))
    except SystemExit as leaving:  # argparse leaves after --help, --version and wrong options
        return leaving.code if isinstance(leaving.code, int) else 0
    except HaplyError as error:
        print(f"haply: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"haply: {error}. Hint: check the path and its permissions.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nhaply: stopped.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="haply", description="Joins on uncertain data: which rows belong together, and how sure are we?"
    )
    parser.add_argument("--version", action="version", version=f"haply {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")

    demo = commands.add_parser("demo", help="a guided example in about a minute, with a report; needs no files")
    demo.add_argument(
        "--out", default="out/demo", metavar="FOLDER", help="where the report goes (default: %(default)s)"
    )
    demo.add_argument("--rows", type=int, default=30_000, help="readings of each network (default: %(default)s)")
    demo.set_defaults(run=_demo)

    sql = commands.add_parser("sql", help="answer a query over files with uncertain values")
    _query_options(sql)
    sql.add_argument("--out", metavar="PATH", help="write the answer here (.parquet or .csv); otherwise it is shown")
    sql.add_argument("--explain", action="store_true", help="print the plan as well; alone, print only the plan")
    sql.add_argument("--report", metavar="FILE", help="write a report about the query here, as HTML")
    sql.set_defaults(run=_sql)

    explain = commands.add_parser("explain", help="tell how a query would be answered")
    _query_options(explain)
    explain.add_argument("--verbose", action="store_true", help="tell also how conditions and rows are handled")
    explain.set_defaults(run=_sql)

    warm = commands.add_parser("warm", help="compile the kernels ahead, so that the first join is quick")
    warm.add_argument("--report", action="store_true", help="print what each kernel took to compile")
    warm.set_defaults(run=_warm)

    doctor = commands.add_parser("doctor", help="look whether haply can work here")
    doctor.add_argument("--spark", action="store_true", help="start Spark on this machine, and look at its workers too")
    doctor.set_defaults(run=_doctor)

    pack = commands.add_parser("pack", help="write haply into a zip, which Spark sends to its workers with --py-files")
    pack.add_argument(
        "-o", "--out", default="haply.zip", metavar="FILE", help="where the zip goes (default: %(default)s)"
    )
    pack.set_defaults(run=_pack)

    bench = commands.add_parser("bench", help="tell where the benchmarks are")
    bench.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    bench.set_defaults(run=_bench)
    return parser


def _query_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("query", metavar="QUERY", help="SELECT ...; - reads standard input, @name a file")
    command.add_argument("--table", action="append", metavar="NAME=PATH", help="a table: .parquet, .csv or .json")
    command.add_argument("--stream", action="append", metavar="NAME=FOLDER", help="a stream: a folder of Parquet files")
    command.add_argument(
        "--engine", choices=("local", "spark"), help="what answers: this process, or Spark (default: local, unless "
        "streams are named)",
    )  # fmt: skip
    command.add_argument("--time", default="time", metavar="COLUMN", help="what WINDOW uses (default: %(default)s)")
    command.add_argument(
        "--max-delay", default="0", metavar="LENGTH", help="how late rows of a stream may come (default: %(default)s)"
    )


def _sql(arguments: argparse.Namespace) -> int:
    begun = time.perf_counter()
    from rich.console import Console

    from haply.cli.ask import Request, tell

    question = Request(arguments, begun)
    # progress is told apart from the answer, so that the answer can be piped on
    aside = Console(highlight=False, stderr=True)
    for _ in _followed(aside, "Answering the query", question.answer(), question.steps):
        pass
    tell(question, Console(highlight=False))
    aside.print(str(question.laps), soft_wrap=True)
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    from haply.demo.story import run_demo

    run_demo(arguments.out, arguments.rows)
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    command = " ".join(["python -m benchmarks", *arguments.words])
    print(f"The benchmarks are in haply's repository, not in the installed package. In a clone of it: {command}")
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from haply.engines.doctor import doctor

    spark = None
    if arguments.spark:
        from haply.engines.spark.files import quiet_session

        spark = quiet_session("haply doctor", [])
    found = doctor(spark)
    print(found)
    if not found.ok:
        print("haply: something is missing, see FAIL above.", file=sys.stderr)
    return 0 if found.ok else 2


def _pack(arguments: argparse.Namespace) -> int:
    from haply.engines.packing import pack

    print(f"haply {__version__} is in {pack(arguments.out)}")
    return 0


def _warm(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from haply.joins.warm import STEPS, warm_everything
    from haply.numerics.jit import cache_folder

    console = Console(highlight=False)
    begun = time.perf_counter()
    for _ in _followed(console, "Compiling kernels", warm_everything(), STEPS):
        pass
    _warm_explanations()
    console.print(f"Kernels are kept in {cache_folder()}", soft_wrap=True)
    console.print(f"{time.perf_counter() - begun:.0f} seconds; from now on they are only loaded.")
    if arguments.report:
        console.print(_compile_times())
    return 0


def _compile_times() -> Table:
    """A table of the kernels that this process has compiled or loaded."""
    from rich.table import Table

    from haply.numerics.jit import compilations

    kernels = compilations()
    table = Table(title="Kernels of this process", show_footer=True)
    table.add_column("kernel", footer=f"{len(kernels)} kernels", overflow="fold")
    totals = (sum(one.compiled + one.loaded for one in kernels), sum(one.seconds for one in kernels))
    for name, total in zip(("specialisations", "seconds"), (f"{totals[0]}", f"{totals[1]:.2f}"), strict=True):
        table.add_column(name, footer=total, justify="right")
    table.add_column("how")
    for kernel, compiled, loaded, seconds in kernels:
        how = "cached" if not compiled else "compiled" if not loaded else f"{compiled} compiled, {loaded} cached"
        table.add_row(kernel, str(compiled + loaded), f"{seconds:.2f}", how)
    return table


def _warm_explanations() -> None:
    """The kernels that the demo's report calls one by one."""
    from haply.models import Gaussian
    from haply.probability.region import Region
    from haply.pruning.threshold import Threshold
    from haply.report.explain import explain_pair

    explain_pair(Gaussian(0.0, 1.0), Gaussian(0.0, 1.0), Region(-1.0, 1.0), Threshold(0.1))


def _followed(console: Console, title: str, work: Iterable[str], total: int) -> Iterator[str]:
    """Pass the steps on while showing progress: a bar on a terminal, lines elsewhere (of many steps, every seventh).

    A ``haply.cli.ask.Note`` is shown, and is not counted as a step.
    """
    from haply.cli.ask import Note

    if console.is_terminal:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(title, total=total)
            for item in work:
                progress.update(task, advance=not isinstance(item, Note), description=f"{title}: {item}")
                yield item
            progress.update(task, description=title)
        return
    console.print(f"{title} ({total} steps)")
    done = 0
    for item in work:
        done += not isinstance(item, Note)
        if isinstance(item, Note):
            console.print(f"  {item}")
        elif total <= _FEW_STEPS or done % _FEW_STEPS == 0 or done == total:
            console.print(f"  {done}/{total} {item}")
        yield item
