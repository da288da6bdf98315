"""The shape of the package. Walks its syntax trees, and fails on what makes it harder to read.

Imports flow one way, no two modules import each other, a package has few modules, a class name means one class, and
private functions have few parameters.

Imports inside functions and under ``TYPE_CHECKING`` count as well: a cycle that is hidden from the interpreter still
ties two layers together for the reader.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "haply"

# Low to high. A layer may import itself and what is lower.
ORDER = (
    ("errors", "_version"),
    ("folders", "drawing"),
    ("numerics",),
    ("models",),
    ("probability",),
    ("pruning",),
    ("selection",),
    ("joins",),
    ("indexing",),
    ("query",),
    ("planning", "outputs"),
    ("engines",),
    ("report",),
    ("inputs", "constructors", "sky"),
    ("beside",),
    ("statements", "api", "questions", "judging", "looking"),
    ("demo",),
    ("cli", "__main__"),
)
LEVEL = {layer: level for level, layers in enumerate(ORDER) for layer in layers}

# Charts know nothing of the engine, and the engine nothing of charts.
# The engines do not know each other.
STRANGERS = {
    ("engines", "report"),
    ("report", "engines"),
    ("engines.local", "engines.spark"),
    ("engines.spark", "engines.local"),
}

# Heavy packages and the layers that may import them: anywhere, or only inside functions (so that `haply --version`
# does not wait for Spark).
HEAVY = {
    "pyspark": ({"engines.spark"}, {"cli"}),
    "duckdb": ({"engines.local"}, set()),
    "numba": ({"numerics", "probability", "pruning"}, set()),
}


MOST_MODULES = 12
"""In one package, side by side."""

MOST_PARAMETERS = 8
"""Of a private function."""

COMPILED = {"kernel", "inner", "bare", "bare_fused", "bare_summed", "bare_inner"}
"""The decorators of ``haply.numerics.jit``."""


@dataclass(frozen=True)
class Import:
    """One imported name, with its full dotted path, and where it stands."""

    target: str
    line: int
    in_function: bool


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
"""Most of the nodes: there are no imports and no definitions in them."""


def walk(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes from the top to the bottom, except leaves, and whether they are in a function."""
    left: list[tuple[ast.AST, bool]] = [(tree, False)]
    while left:
        node, in_function = left.pop()
        yield node, in_function
        inside = in_function or isinstance(node, FUNCTIONS)
        inner: list[tuple[ast.AST, bool]] = []
        for field in node._fields:
            held = getattr(node, field, None)
            for child in held if isinstance(held, list) else (held,):
                if isinstance(child, ast.AST) and not isinstance(child, LEAVES):
                    inner.append((child, inside))
        left += reversed(inner)


def imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[Import]:
    """All imports of a module: statements, relative ones resolved, and calls of ``import_module`` with a literal."""

    for node, in_function in walk(tree):
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
        elif isinstance(node, ast.Call):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="importlib"), attr="import_module")
                    | ast.Name(id="import_module" | "__import__"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    yield Import(name, node.lineno, in_function)


@dataclass(frozen=True)
class Module:
    """A module of a package: where it is, what it is called, and its syntax tree."""

    inner: Path
    name: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The package it is in; the two engines are rooms of their own."""
        parts = self.inner.with_suffix("").parts
        return ".".join(parts[:2]) if parts[0] == "engines" and len(parts) > 2 else parts[0]

    @cached_property
    def imports(self) -> list[Import]:
        """All its imports."""
        return list(imports(self.tree, self.name, self.inner.name == "__init__.py"))

    @cached_property
    def definitions(self) -> list[ast.FunctionDef | ast.ClassDef]:
        """All its functions and classes, inner ones too."""
        return [node for node, _ in walk(self.tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def modules_of(package: Path) -> list[Module]:
    """All modules but the public interface, which gathers from all layers."""
    found = []
    for path in sorted(package.rglob("*.py")):
        inner = path.relative_to(package)
        parts = inner.parent.parts if path.name == "__init__.py" else (*inner.parent.parts, path.stem)
        if parts:
            tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
            found.append(Module(inner, ".".join([package.name, *parts]), tree))
    return found


def problems_of(package: Path) -> list[str]:
    """Everything that breaks a rule, as ``file:line: what is wrong``."""
    modules = modules_of(package)
    return [
        *wrong_arrows(modules, package.name),
        *circles(modules),
        *kernels_in_circles(modules),
        *crowded(package),
        *repeated_classes(modules),
        *long_signatures(modules),
    ]


def wrong_arrows(modules: list[Module], package: str) -> list[str]:
    """Imports of what is higher, or of what a layer must not know."""
    problems = []
    for module in modules:
        if module.room.split(".")[0] not in LEVEL:
            problems.append(f"{module.inner}:1: '{module.room}' has no place in the order of layers")
            continue
        for found in module.imports:
            problem = judge(module.room, found, package)
            if problem:
                problems.append(f"{module.inner}:{found.line}: {problem}")
    return problems


def judge(room: str, found: Import, package: str) -> str:
    """What is wrong with one import; nothing if it is right."""
    layer = room.split(".")[0]
    top, _, rest = found.target.partition(".")
    if top in HEAVY:
        anywhere, inside_functions = HEAVY[top]
        if room in anywhere or (room in inside_functions and found.in_function):
            return ""
        return f"{room} imports {top}" + (" outside a function" if room in inside_functions else "")
    if top != package:
        return ""
    parts = rest.split(".")
    target = parts[0]
    if target not in LEVEL:
        return f"{layer} imports '{target or package}' from the public interface; name the module it lives in"
    if (layer, target) in STRANGERS or (room, ".".join(parts[:2])) in STRANGERS:
        return f"{room} imports {'.'.join(parts[:2]) if layer == target else target}, which it must not know"
    if LEVEL[target] > LEVEL[layer]:
        return f"{layer} imports {target}, which is higher"
    return ""


def circles(modules: list[Module]) -> list[str]:
    """Modules that import each other, directly or through others; a package that gathers names counts as one."""
    names = {module.name for module in modules}

    def resolved(target: str) -> str | None:
        while target and target not in names:
            target = target.rpartition(".")[0]
        return target or None

    arrows = {
        module.name: {
            found
            for each in module.imports
            if (found := resolved(each.target)) not in (None, module.name) and not module.name.startswith(f"{found}.")
        }
        for module in modules
    }
    return [f"a circle of imports: {' -> '.join(circle)}" for circle in circles_in(arrows)]


def circles_in(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Circles of arrows between names, each as the names on it, the first one twice."""
    order: list[str] = []
    found = []
    state: dict[str, int] = {}

    def visit(name: str) -> None:
        state[name] = 1
        order.append(name)
        for target in sorted(arrows[name]):
            if state.get(target) == 1:
                found.append([*order[order.index(target) :], target])
            elif target not in state:
                visit(target)
        order.pop()
        state[name] = 2

    for name in sorted(arrows):
        if name not in state:
            visit(name)
    return found


def kernels_in_circles(modules: list[Module]) -> list[str]:
    """Kernels that call each other. One may call itself, but two that were kept on the disk end the process by a crash:
    numba does not link them again."""
    problems = []
    for module in modules:
        kernels = {
            node.name: node
            for node in module.definitions
            if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) in COMPILED for each in node.decorator_list)
        }
        arrows = {
            name: {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and each.id in kernels} - {name}
            for name, node in kernels.items()
        }
        problems += [f"{module.inner}: kernels call each other: {' -> '.join(each)}" for each in circles_in(arrows)]
    return problems


def crowded(package: Path) -> list[str]:
    """Packages with many modules side by side."""
    folders = sorted({path.parent for path in package.rglob("*.py")})
    counts = {folder: sum(path.name != "__init__.py" for path in folder.glob("*.py")) for folder in folders}
    return [
        f"{folder.relative_to(package.parent)}: {count} modules side by side, more than {MOST_MODULES}"
        for folder, count in counts.items()
        if count > MOST_MODULES
    ]


def repeated_classes(modules: list[Module]) -> list[str]:
    """Classes of one name in two modules."""
    seen: dict[str, Path] = {}
    problems = []
    for module in modules:
        for node in module.definitions:
            if isinstance(node, ast.ClassDef) and seen.setdefault(node.name, module.inner) != module.inner:
                problems.append(f"{module.inner}:{node.lineno}: class {node.name} is also in {seen[node.name]}")
    return problems


def long_signatures(modules: list[Module]) -> list[str]:
    """Private functions, and methods, with many parameters: what they take belongs together, and has a name.

    Compiled functions are left out: they take flat arrays one by one, as numba compiles those fastest.
    """
    problems = []
    for module in modules:
        for node in module.definitions:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("_") or node.name.startswith("__"):
                continue
            if any(ast.unparse(decorator) in COMPILED for decorator in node.decorator_list):
                continue
            taken = node.args
            count = len(taken.posonlyargs) + len(taken.args) + len(taken.kwonlyargs)
            count -= bool(taken.args) and taken.args[0].arg in ("self", "cls")
            if count > MOST_PARAMETERS:
                problems.append(f"{module.inner}:{node.lineno}: {node.name} has {count} parameters")
    return problems


def test_the_package_keeps_its_shape() -> None:
    assert problems_of(PACKAGE) == []


@pytest.fixture
def tree(tmp_path: Path):
    """A small package from a map of file names to texts; returns what is wrong with it."""

    def check(files: dict[str, str]) -> list[str]:
        for name, text in files.items():
            path = tmp_path / "haply" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return problems_of(tmp_path / "haply")

    return check


def test_a_good_tree_passes(tree) -> None:
    assert not tree(
        {
            "__init__.py": "from haply.cli import main\nfrom haply.engines.spark import join",
            "errors.py": "import re",
            "numerics/jit.py": "import numba",
            "models/base.py": "from haply.errors import HaplyError\nfrom . import ragged\nfrom .ragged import Ragged",
            "models/__init__.py": "from .base import Model\nfrom haply.models.ragged import Ragged",
            "models/ragged.py": "from ..errors import HaplyError\nfrom .. import errors",
            "engines/spark/join.py": "import pyspark.sql\nfrom haply.query.text import parse",
            "cli.py": "from haply import _version, engines\ndef main():\n    from pyspark.sql import SparkSession",
        }
    )


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        (
            "models/a.py",
            "from haply.pruning.bounds.one_dimensional import f",
            "models/a.py:1: models imports pruning, which is higher",
        ),
        ("models/a.py", "import haply.engines.spark", "models imports engines, which is higher"),
        ("models/a.py", "from haply import joins", "models imports joins, which is higher"),
        ("models/a.py", "from .. import joins", "models imports joins, which is higher"),
        ("models/a.py", "from ..joins.pair import PairJoin", "models imports joins, which is higher"),
        ("models/__init__.py", "from ..joins import pair", "models imports joins, which is higher"),
        ("models/a.py", "def f():\n    import haply.query", "models/a.py:2: models imports query, which is higher"),
        ("models/a.py", "if TYPE_CHECKING:\n    from haply.query import Q", "models imports query, which is higher"),
        ("models/a.py", "import_module('haply.query.text')", "models imports query, which is higher"),
        ("errors.py", "from haply.models import Model", "errors imports models, which is higher"),
        ("report/a.py", "from haply.engines.spark import join", "report imports engines, which it must not know"),
        (
            "engines/spark/a.py",
            "def f():\n    from haply.report import chart",
            "engines.spark imports report, which it must not know",
        ),
        (
            "engines/spark/a.py",
            "from haply.engines.local.frame import F",
            "engines.spark imports engines.local, which it must not know",
        ),
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


def test_circles_are_reported(tree) -> None:
    (found,) = tree(
        {
            "joins/a.py": "from haply.joins.b import B",
            "joins/b.py": "import haply.joins.c",
            "joins/c.py": "def f():\n    from .a import A",
        }
    )
    assert found == "a circle of imports: haply.joins.a -> haply.joins.b -> haply.joins.c -> haply.joins.a"


def test_kernels_that_call_each_other_are_reported(tree) -> None:
    (found,) = tree(
        {"numerics/a.py": "@bare\ndef f(): f(); g()\n@bare\ndef g(): h()\n@bare\ndef h(): f()\ndef k(): h()"}
    )
    assert found == "numerics/a.py: kernels call each other: f -> g -> h -> f"


def test_crowded_packages_are_reported(tree) -> None:
    (found,) = tree({f"joins/m{k}.py": "" for k in range(13)})
    assert found == "haply/joins: 13 modules side by side, more than 12"


def test_two_classes_of_one_name_are_reported(tree) -> None:
    (found,) = tree({"joins/a.py": "class Pack: ...", "query/b.py": "def f():\n    class Pack: ..."})
    assert found == "query/b.py:2: class Pack is also in joins/a.py"


def test_long_private_signatures_are_reported(tree) -> None:
    nine = ", ".join("abcdefghi")
    (found,) = tree(
        {
            "joins/a.py": f"def f({nine}): ...\ndef _g({nine}): ...",
            "pruning/b.py": f"@kernel\ndef _h({nine}): ...\ndef _i({nine[:-3]}): ...",
        }
    )
    assert found == "joins/a.py:2: _g has 9 parameters"
