"""The command ``haply``: queries on files, and helper commands.

Everything heavy is imported by the command that needs it, so that help and version are quick.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from haply.cli.parser import COMMANDS as COMMANDS
from haply.cli.parser import make_parser
from haply.errors import HaplyError, HaplyWarning, unknown_name

_OPTIONS = "threshold|keep|how|k|columns|invalid|density|completeness|within|exclusive|strict|self_key"
_AS_ARGUMENT = re.compile(rf"\b({_OPTIONS})=(?:hp\.density\(area=\.\.\.\)|['\"]?([\w.]+)['\"]?)")
"""An argument of Python in a message, such as ``threshold=0.01``."""
_IN_PYTHON = re.compile(r"hp\.check\(df, column\)|hp\.\w+\(\.\.\., (\w+=\S+)\)")
"""A function of Python in a message, for which the command line has a command or an option."""


def command() -> None:
    """Run the command line and end the process.

    Imports make far more objects than garbage, so the collector runs less often. At the end the process exits without
    freeing modules, which would take longer than many queries; Spark, if it runs, is stopped as usual.
    """
    gc.set_threshold(100_000)
    warnings.showwarning = _show_advice
    status = main(alone=True)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        _leave_pipe()
    if "pyspark" in sys.modules:
        sys.exit(status)
    os._exit(status)


def main(argv: Sequence[str] | None = None, *, alone: bool = False) -> int:
    """Run the command line; returns the exit status. ``alone`` says that the process does nothing else.

    It is 0 when all is done, 1 if ``haply check`` found bad rows, 2 for an error that the caller can fix, and 130 for
    Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words and not words[0].startswith("-") and words[0] not in COMMANDS:
            raise unknown_name("command", words[0], COMMANDS)
        parser = make_parser()
        arguments = parser.parse_args(words)
        arguments.alone = alone
        if arguments.command is None:
            parser.print_help()
            return 0
        module, _, function = arguments.run.partition(":")
        return int(getattr(importlib.import_module(f"haply.cli.{module}"), function)(arguments))
    except SystemExit as leaving:  # argparse exits after --help and --version
        return leaving.code if isinstance(leaving.code, int) else 0
    except HaplyError as error:
        print(f"haply: {_as_options(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        _leave_pipe()
        return 0
    except OSError as error:
        print(f"haply: {error}. Hint: check the path and its permissions.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nhaply: stopped.", file=sys.stderr)
        return 130


def _as_options(message: str) -> str:
    """Spell arguments of Python as options of the command line.

    >>> _as_options("Hint: give threshold=0.01, or keep='best_left'.")
    'Hint: give --threshold 0.01, or --keep best_left.'
    """

    def option(found: re.Match[str]) -> str:
        if found[2] is None:
            return "--area A"
        value = found[2].rstrip(".")
        return f"--{found[1].replace('_', '-')}" + ("" if value == "True" else f" {value}") + found[2][len(value) :]

    return _AS_ARGUMENT.sub(option, _IN_PYTHON.sub(lambda call: call[1] or "haply check FILE COLUMN", message))


def _show_advice(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Print haply's warnings; those of other libraries are about code, not about the query."""
    if issubclass(category, HaplyWarning):
        print(f"haply: note: {_as_options(str(message))}", file=sys.stderr)


def _leave_pipe() -> None:
    """Discard further output, so that Python does not report a broken pipe at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
