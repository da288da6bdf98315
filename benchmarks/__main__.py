"""``python -m benchmarks [NAME]``: run one benchmark, or all."""

from __future__ import annotations

import argparse
import os
import sys

from benchmarks import FULL_SIZE, NWAY_PYTHON, main_bench
from haply.errors import HaplyError


def main(words: list[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure haply beside other engines.")
    parser.add_argument("name", nargs="?", metavar="NAME", help="one bench; without it all of them run")
    parser.add_argument("--json", metavar="FILE", help="write the results here")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a first impression")
    parser.add_argument("--full", action="store_true", help="the largest sizes, where a bench is smaller by default")
    parser.add_argument("--data", metavar="FOLDER", help="where downloaded data lie, for the benches that use some")
    parser.add_argument("--out", default="out/bench", metavar="FOLDER", help="where charts go (default: %(default)s)")
    parser.add_argument("--nway", metavar="PYTHON", help="a Python that has the package nway, for the bench answers")
    given = parser.parse_args(words)
    if given.full:
        os.environ[FULL_SIZE] = "1"
    if given.nway:
        os.environ[NWAY_PYTHON] = given.nway
    try:
        return main_bench(given.name, given.json, given.quick, given.data, given.out)
    except HaplyError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
