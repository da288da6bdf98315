"""Everything public explains itself: numpydoc sections that name every parameter, and types that say what it is."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import haply as hp
from haply import constructors
from haply.constructors import CONSTRUCTORS
from haply.engines.doctor import Checkup
from haply.judging import ErrorFit
from haply.models import Model, OneDimensional
from haply.planning.explain import RowExplanation
from haply.planning.plans import Plan
from haply.report.calibration import Calibration
from haply.report.pair import PairExplanation

PACKAGES = ("haply", "haply.joins", "haply.models", "haply.probability", "haply.sky")
METHODS = ("push", "push_many", "heartbeat", "expire", "close", "snapshot", "restore", "funnel")
"""What people call on an operator of ``haply.joins``."""

OTHER_METHODS = {
    Plan: ("run", "write", "explain", "explain_row", "chart"),
    RowExplanation: ("order", "decided_by"),
    Calibration: (
        *("pairs", "skipped", "brier", "log_loss", "decomposition", "table", "fakes_table", "residuals_table"),
        *("sentences", "chart"),
    ),
    ErrorFit: (
        *("share", "offset", "scale", "extra", "converged", "rounds", "log_likelihood", "matches", "table"),
        *("apply", "chart"),
    ),
    Checkup: ("ok",),
    hp.Funnel: ("to_dict", "stages", "filled", "chart"),
    PairExplanation: ("chart",),
    Model: ("plot", "take", "show", "problems", "from_arrow", "to_arrow"),
    OneDimensional: ("cdf", "cdf_left", "quantile", "mean", "variance", "support", "concentration"),
}
"""What people call on other objects."""

NOT_CALLED = {
    "haply.__version__": "a text",
    "haply.left": "a table of a join, whose attributes are columns",
    "haply.right": "a table of a join, whose attributes are columns",
    "haply.sky": "a module, which is looked at as well",
    "haply.HaplyWarning": "made by haply alone; its arguments are those of Python's warnings",
}
"""Public names that take no parameters of ours."""

PLAIN_TEXT = {
    "haply.calibration": {"probability"},
    "haply.local_session": {"app_name", "memory"},
    "haply.HaplyError": {"expected", "found", "hint", "place"},
}
"""Arguments with a text as default that may be any text: names, an amount of memory, parts of a message."""


def public() -> Iterator[tuple[str, Any]]:
    """Every public function and class, with the public methods of operators, plans and funnels."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            if f"{package}.{name}" not in NOT_CALLED:
                yield f"{package}.{name}", getattr(module, name)
    for name, constructor in CONSTRUCTORS.items():
        yield f"constructor {name}", constructor
    joins = importlib.import_module("haply.joins")
    for name in joins.__all__:
        for method in METHODS if name.endswith("Join") else ():
            if hasattr(getattr(joins, name), method):
                yield f"haply.joins.{name}.{method}", inspect.getattr_static(getattr(joins, name), method)
    yield "Plan", Plan
    for owner, methods in OTHER_METHODS.items():
        for method in methods:
            yield f"{owner.__name__}.{method}", inspect.getattr_static(owner, method)


def unwrapped(found: Any) -> Any:
    """The function behind a property or a class method."""
    if isinstance(found, property):
        return found.fget
    return getattr(found, "__func__", found)


EVERYTHING = {name: unwrapped(found) for name, found in public()}
FUNCTIONS = {name: found for name, found in EVERYTHING.items() if not inspect.isclass(found)}


def parameters(found: Any) -> dict[str, inspect.Parameter]:
    """The parameters that a caller gives."""
    given = inspect.signature(found).parameters
    return {
        name: each
        for name, each in given.items()
        if name not in ("self", "cls") and each.kind is not each.VAR_POSITIONAL
    }


def section(found: Any, title: str) -> str | None:
    """The text of a section of a docstring."""
    text = re.search(rf"^{title}\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)", inspect.getdoc(found) or "", re.DOTALL | re.MULTILINE)
    return None if text is None else text[1]


def named(found: Any) -> set[str]:
    """The parameters that a docstring tells of; results of a join, which nobody makes, tell of their attributes."""
    text = section(found, "Parameters") or section(found, "Attributes") or ""
    lines = [line for line in text.splitlines() if line[:1].strip()]
    return {name.strip().lstrip("*") for line in lines for name in line.partition(" : ")[0].split(",")}


def cases(found: dict[str, Any]) -> Callable[..., Any]:
    return pytest.mark.parametrize("found", [pytest.param(each, id=name) for name, each in found.items()])


@cases(EVERYTHING)
def test_docstring_begins_with_a_sentence(found: Any) -> None:
    lines = (inspect.getdoc(found) or "").splitlines()
    assert lines
    assert lines[0].endswith(".")
    assert lines[1:2] in ([], [""])
    assert re.match(r"(?!(A|An|The|This|All|What|How|Whether)\b)[A-Z][a-z]+ ", lines[0]), "the first word is a verb"


@cases(EVERYTHING)
def test_docstring_names_every_parameter(found: Any) -> None:
    assert set(parameters(found)) - named(found) == set()


@cases(FUNCTIONS)
def test_docstring_tells_what_is_returned(found: Any) -> None:
    given = inspect.signature(found).return_annotation
    assert given in (None, "None") or section(found, "Returns")


@pytest.mark.parametrize(("name", "found"), EVERYTHING.items(), ids=EVERYTHING)
def test_types_say_what_is_given_and_returned(name: str, found: Any) -> None:
    returned = str(inspect.signature(found).return_annotation).replace("dict[str, Any]", "a record")
    assert not re.search(r"\bAny\b", returned)
    for parameter, each in parameters(found).items():
        text = str(each.annotation)
        assert each.annotation is not each.empty, parameter
        assert not re.search(r"\bAny\b", text), f"{parameter}: {text}"
        if isinstance(each.default, str) and parameter not in PLAIN_TEXT.get(name, ()):
            assert text != "str", f"{parameter}: an option has a Literal type"


def test_type_checkers_see_constructors_as_they_are() -> None:
    """Those that are made from the classes of models are declared once more, for type checkers alone."""
    source = ast.parse(inspect.getsource(constructors))
    declared = {
        one.name: one
        for block in source.body
        if isinstance(block, ast.If)
        for one in block.body
        if isinstance(one, ast.FunctionDef)
    }
    made = {name: found for name, found in CONSTRUCTORS.items() if not hasattr(constructors, name)}
    assert declared.keys() == {name for name in made if not name.startswith("sky")}, "hp.sky is a module"
    for name, one in declared.items():
        assert ast.get_docstring(one) == " ".join((made[name].__doc__ or "").partition("\n\n")[0].split())
        kinds = {each.arg: ast.unparse(each.annotation) for each in one.args.args if each.annotation is not None}
        assert kinds == {each: found.annotation for each, found in parameters(made[name]).items()}
    package = ast.parse(inspect.getsource(hp))
    named = [one for one in ast.walk(package) if isinstance(one, ast.ImportFrom) and one.module == "haply.constructors"]
    assert {each.name for one in named for each in one.names} == {name for name in CONSTRUCTORS if "sky" not in name}


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_examples_of_constructors(name: str) -> None:
    """They are made from the classes of models, where ``test_docs`` does not see them."""
    tests = doctest.DocTestFinder().find(CONSTRUCTORS[name], name, globs={"hp": hp})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert any(test.examples for test in tests)
    assert sum(runner.run(test).failed for test in tests) == 0
