"""Imports flow one way. Walks the syntax trees of the package and fails on an arrow the wrong way.

Imports inside functions and under ``TYPE_CHECKING`` count as well: a cycle that is hidden from the interpreter still
ties two layers together for the reader.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "haply"

# Low to high. A layer may import itself and what is lower.
ORDER = (
    ("errors", "_version"),
    ("folders",),
    ("numerics",),
    ("models",),
    ("probability",),
    ("pruning",),
    ("joins",),
    ("indexing",),
    ("query",),
    ("planning", "outputs"),
    ("local", "spark"),
    ("report",),
    ("inputs", "constructors", "sky"),
    ("statements", "api"),
    ("demo",),
    ("cli", "__main__"),
)
LEVEL = {layer: level for level, layers in enumerate(ORDER) for layer in layers}

# Charts know nothing of the engine, and the engine nothing of charts.
# The engines do not know each other.
STRANGERS = {
    ("spark", "report"), ("report", "spark"), ("local", "report"), ("report", "local"), ("local", "spark"),
    ("spark", "local"),
}  # fmt: skip

# Heavy packages and the layers that may import them: anywhere, or only inside functions (so that `haply --version`
# does not wait for Spark).
HEAVY = {
    "pyspark": ({"spark"}, {"cli"}),
    "duckdb": ({"local"}, set()),
    "numba": ({"numerics", "probability", "pruning"}, set()),
}


@dataclass(frozen=True)
class Import:
    """One imported name, with its full dotted path, and where it stands."""

    target: str
    line: int
    in_function: bool


def imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[Import]:
    """All imports of a module: statements, relative ones resolved, and calls of ``import_module`` with a literal."""

    def visit(node: ast.AST, in_function: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, in_function)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: (1 - node.level if is_package else -node.level) or None]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", node.lineno, in_function)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {
            "importlib.import_module",
            "import_module",
            "__import__",
        }:
            match node.args:
                case [ast.Constant(value=str(name)), *_]:
                    yield Import(name, node.lineno, in_function)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    yield from visit(tree, False)


def wrong_arrows(package: Path) -> list[str]:
    """Every import of the package that breaks a rule, as ``file:line: what is wrong``."""
    name = package.name
    problems = []
    for path in sorted(package.rglob("*.py")):
        inner = path.relative_to(package)
        if inner.parts == ("__init__.py",):
            continue  # The public interface gathers from all layers.
        layer = inner.parts[0].removesuffix(".py")
        if layer not in LEVEL:
            problems.append(f"{inner}:1: '{layer}' has no place in the order of layers")
            continue
        is_package = path.name == "__init__.py"
        parts = inner.parent.parts if is_package else (*inner.parent.parts, path.stem)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for found in imports(tree, ".".join([name, *parts]), is_package):
            problem = judge(layer, found, name)
            if problem:
                problems.append(f"{inner}:{found.line}: {problem}")
    return problems


def judge(layer: str, found: Import, package: str) -> str:
    top, _, rest = found.target.partition(".")
    if top in HEAVY:
        anywhere, inside_functions = HEAVY[top]
        if layer in anywhere or (layer in inside_functions and found.in_function):
            return ""
        return f"{layer} imports {top}" + (" outside a function" if layer in inside_functions else "")
    if top != package:
        return ""
    target = rest.split(".")[0]
    if target not in LEVEL:
        return f"{layer} imports '{target or package}' from the public interface; name the module it lives in"
    if (layer, target) in STRANGERS:
        return f"{layer} imports {target}, which it must not know"
    if LEVEL[target] > LEVEL[layer]:
        return f"{layer} imports {target}, which is higher"
    return ""


def test_imports_flow_one_way() -> None:
    assert wrong_arrows(PACKAGE) == []


@pytest.fixture
def tree(tmp_path: Path):
    """A small package from a map of file names to texts; returns what is wrong with it."""

    def check(files: dict[str, str]) -> list[str]:
        for name, text in files.items():
            path = tmp_path / "haply" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return wrong_arrows(tmp_path / "haply")

    return check


def test_a_good_tree_passes(tree) -> None:
    assert not tree(
        {
            "__init__.py": "from haply.cli import main\nfrom haply.spark import join",
            "errors.py": "import re",
            "numerics/jit.py": "import numba",
            "models/base.py": "from haply.errors import HaplyError\nfrom . import ragged\nfrom .ragged import Ragged",
            "models/__init__.py": "from .base import Model\nfrom haply.models.ragged import Ragged",
            "models/ragged.py": "from ..errors import HaplyError\nfrom .. import errors",
            "spark/join.py": "import pyspark.sql\nfrom haply.query.text import parse\nfrom haply.joins import pair",
            "cli.py": "from haply import _version, spark\ndef main():\n    from pyspark.sql import SparkSession",
        }
    )


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("models/a.py", "from haply.pruning.bounds import f", "models/a.py:1: models imports pruning, which is higher"),
        ("models/a.py", "import haply.spark", "models imports spark, which is higher"),
        ("models/a.py", "from haply import joins", "models imports joins, which is higher"),
        ("models/a.py", "from .. import joins", "models imports joins, which is higher"),
        ("models/a.py", "from ..joins.pair import PairJoin", "models imports joins, which is higher"),
        ("models/__init__.py", "from ..joins import pair", "models imports joins, which is higher"),
        ("models/a.py", "def f():\n    import haply.query", "models/a.py:2: models imports query, which is higher"),
        ("models/a.py", "if TYPE_CHECKING:\n    from haply.query import Q", "models imports query, which is higher"),
        ("models/a.py", "import_module('haply.query.text')", "models imports query, which is higher"),
        ("errors.py", "from haply.models import Model", "errors imports models, which is higher"),
        ("report/a.py", "from haply.spark import join", "report imports spark, which it must not know"),
        ("spark/a.py", "def f():\n    from haply.report import chart", "spark imports report, which it must not know"),
        ("statements/a.py", "import pyspark", "statements imports pyspark"),
        ("report/a.py", "def f():\n    import pyspark", "report imports pyspark"),
        ("cli.py", "from pyspark.sql import functions", "cli imports pyspark outside a function"),
        ("cli/a.py", "if True:\n    import pyspark", "cli imports pyspark outside a function"),
        ("joins/a.py", "from numba import njit", "joins imports numba"),
        ("query/a.py", "from haply import Gaussian", "query imports 'Gaussian' from the public interface"),
        ("query/a.py", "import haply", "query imports 'haply' from the public interface"),
        ("utils.py", "", "'utils' has no place in the order of layers"),
    ],
)
def test_a_bad_tree_is_reported(tree, file: str, text: str, problem: str) -> None:
    (found,) = tree({file: text})
    assert problem in found
