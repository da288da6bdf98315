"""The commands that run no query: ``demo``, ``explore``, ``warm``, ``doctor``, ``pack`` and ``bench``."""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console
from rich.table import Table

from haply._version import __version__
from haply.cli.progress import followed


def demo(arguments: argparse.Namespace) -> int:
    """Run the demonstration."""
    from haply.demo.story import run_demo

    run_demo(arguments.out, arguments.rows)
    return 0


def explore(arguments: argparse.Namespace) -> int:
    """Write a page on which pairs can be explored."""
    from haply.looking.pairs import explore

    explore(arguments.file, arguments.out, title=arguments.title, probability=arguments.probability)
    print(f"The page is {arguments.out}. Open it in a browser; it needs no network.")
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """Print whether haply can work here."""
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


def pack(arguments: argparse.Namespace) -> int:
    """Write haply into a zip."""
    from haply.engines.packing import pack

    print(f"haply {__version__} is in {pack(arguments.out)}")
    return 0


def bench(arguments: argparse.Namespace) -> int:
    """Print where the benchmarks are."""
    command = " ".join(["python -m benchmarks", *arguments.words])
    print(f"The benchmarks are in haply's repository, not in the installed package. In a clone of it: {command}")
    return 0


def warm(arguments: argparse.Namespace) -> int:
    """Compile the kernels."""
    from haply.joins.warm import STEPS, warm_everything
    from haply.numerics.jit import cache_folder

    console = Console(highlight=False)
    begun = time.perf_counter()
    for _ in followed(console, "Compiling kernels", warm_everything(), STEPS):
        pass
    _warm_explanations()
    console.print(f"Kernels are kept in {cache_folder()}", soft_wrap=True)
    console.print(f"{time.perf_counter() - begun:.0f} seconds; from now on they are only loaded.")
    if arguments.report:
        console.print(_compile_times())
    return 0


def _compile_times() -> Table:
    """Print a table of the kernels that this process has compiled or loaded."""
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
    """Compile the kernels that the demo's report calls one by one."""
    from haply.models import Gaussian
    from haply.probability.region import Region
    from haply.pruning.threshold import Threshold
    from haply.report.explain import explain_pair

    explain_pair(Gaussian(0.0, 1.0), Gaussian(0.0, 1.0), Region(-1.0, 1.0), Threshold(0.1))
