"""Every code block of the README and of the book runs here, and so does every example in a docstring.

The rules for a page, which the runner enforces so that no block is ever left out in silence:

* a ``python`` block runs; all blocks of a page run in order in one namespace, and pages know nothing of each other;
* a ``text`` block stands right after a ``python`` block and is what that block prints, to the letter but for spaces at
  the ends of lines; ``...`` in a line stands for anything (a time, say). A block that prints must be followed by one;
* a ``console`` block holds lines ``$ command`` whose make targets, haply subcommands and options must exist;
* other fences are the directives named in ``DIRECTIVES``; anything else is an error.

``spark`` is there on every page that speaks of it, and ``hp.local_session()`` gives the same session.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import json
import re
import shlex
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

import haply as hp
from benchmarks import BENCHES
from haply.cli import main
from haply.constructors import CONSTRUCTORS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
GENERATED = {path.with_suffix(".md") for path in NOTEBOOKS}
"""Pages that the docs build makes of notebooks, and of docstrings; both are run by themselves."""
PAGES = [
    ROOT / "README.md",
    *sorted(
        page
        for page in DOCS.rglob("*.md")
        if page not in GENERATED and not {"_build", "api"} & set(page.relative_to(DOCS).parts)
    ),
]

DIRECTIVES = ("eval-rst", "figure", "include", "toctree")
"""Fences that hold no code of ours: pictures, tables of contents, and the API reference, made from docstrings."""

OTHER_COMMANDS = ("pip install .", "source .venv/bin/activate")
"""Commands a page may name besides make and haply."""

OF_CLUSTERS = ("venv-pack", "spark-submit", "mkdir", "tar")
"""Programs that a page may call with any arguments."""

# A page's tables have a handful of rows: one partition each, and no compiling of queries that run once.
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


class BrokenPageError(AssertionError):
    """A page that does not do what it shows; the text begins with its place."""


@dataclass(frozen=True)
class Block:
    """A fenced block: the line of its fence (from 1), what stands behind the fence, and its content."""

    page: Path
    line: int
    language: str
    content: str

    def broken(self, reason: str, line: int | None = None) -> BrokenPageError:
        return BrokenPageError(f"{self.page.name}:{line or self.line}: {reason}")


def blocks(page: Path) -> list[Block]:
    """All code of a page. What Markdown would show as code without saying what it is, is refused."""
    found = []
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type not in ("fence", "code_block", "html_block"):
            continue
        assert token.map is not None
        language = token.info.split()[0] if token.type == "fence" and token.info.strip() else ""
        block = Block(page, token.map[0] + 1, language, token.content)
        directive = re.fullmatch(r"\{([\w-]+)\}", language)
        if directive:
            hides_code = re.search(r"```|code-block|code::|literalinclude|doctest|>>>", block.content)
            if directive[1] not in DIRECTIVES or hides_code:
                raise block.broken(f"a directive {language} that the tests do not know, or with code inside")
        elif language not in ("python", "text", "console"):
            raise block.broken(f"a block of code in '{language}' that the tests cannot run")
        else:
            found.append(block)
    return found


def run_page(page: Path, names: dict[str, Any]) -> int:
    """Run a page's blocks in one namespace; how many there were."""
    found = blocks(page)
    before: Block | None = None
    printed = ""
    for block in found:
        if block.language == "text":
            if before is None or before.language != "python":
                raise block.broken("a text block that follows no python block")
            compare(block, printed)
            printed = ""
        else:
            if printed:
                assert before is not None
                raise before.broken(f"prints, but no text block shows it:\n{printed}")
            if block.language == "python":
                printed = run(block, names)
            else:
                check_console(block)
        before = block
    if printed:
        raise found[-1].broken(f"prints, but no text block shows it:\n{printed}")
    return len(found)


def run(block: Block, names: dict[str, Any]) -> str:
    """What a python block prints. Its lines keep the page's numbers, so that errors tell the place."""
    output = io.StringIO()
    try:
        code = compile("\n" * block.line + block.content, str(block.page), "exec")
        with contextlib.redirect_stdout(output):
            exec(code, names)
    except Exception as error:
        places = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(block.page)
        ]
        line = error.lineno if isinstance(error, SyntaxError) else places[-1] if places else None
        raise block.broken(f"{type(error).__name__}: {str(error)[:1000]}", line) from error
    return output.getvalue()


def compare(block: Block, printed: str) -> None:
    """Whether a text block is what was printed."""
    expected, found = ([line.rstrip() for line in text.strip("\n").splitlines()] for text in (block.content, printed))
    patterns = [re.escape(line).replace(r"\.\.\.", ".*") for line in expected]
    same = len(expected) == len(found) and all(map(re.fullmatch, patterns, found))
    if not same:
        raise block.broken("prints something else:\n" + "\n".join(found) + "\ninstead of:\n" + "\n".join(expected))


def unknown_extra(words: list[str]) -> str:
    """Tell what is wrong with the arguments of ``pip install``: a page names haply alone, with extras that exist."""
    named = re.fullmatch(r"haply(?:\[([\w,]+)\])?", words[0]) if len(words) == 1 else None
    if named is None:
        return "installs something else than haply"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    unknown = [one for one in (named[1] or "").split(",") if one and one not in extras]
    return f"no extra {unknown[0]}" if unknown else ""


def check_console(block: Block) -> None:
    """Whether the commands of a console block exist."""
    for number, line in enumerate(block.content.splitlines(), block.line + 1):
        if not line.startswith("$ "):
            raise block.broken(f"a console line that is no command: {line}", number)
        words = shlex.split(line[2:], comments=True)
        if " ".join(words) in OTHER_COMMANDS or words[0] in OF_CLUSTERS:
            continue
        trouble = "neither make nor haply"
        if words[:2] == ["pip", "install"]:
            trouble = unknown_extra(words[2:])
        elif words[0] == "make":
            trouble = unknown_targets(words[1:])
        elif words[0] == "haply":
            trouble = unknown_arguments(words[1:])
        elif words[:3] == ["python", "-m", "benchmarks"]:
            trouble = unknown_bench(words[3:])
        if trouble:
            raise block.broken(f"{line}: {trouble}", number)


def unknown_targets(words: list[str]) -> str:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    missing = [word for word in words if word not in targets and "=" not in word]
    return f"no such make target: {', '.join(missing)}" if missing else ""


def unknown_arguments(words: list[str]) -> str:
    command = [words[0]] if words and not words[0].startswith("-") else []
    said = haply_help(*command)
    if said is None:
        return f"no such subcommand: {' '.join(command)}"
    missing = [word for word in words if word.startswith("--") and word.partition("=")[0] not in said]
    if missing:
        return f"no such option: {', '.join(missing)}"
    return ""


def unknown_bench(words: list[str]) -> str:
    named = [word for word in words if not word.startswith("-")][:1]
    return f"no such bench: {named[0]}" if named and named[0] not in BENCHES else ""


@cache
def haply_help(*command: str) -> str | None:
    """What ``haply command --help`` prints; None if it fails."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        status = main([*command, "--help"])
    return said.getvalue() if status == 0 else None


# -- the pages --------------------------------------------------------------------------------------------------------


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@contextlib.contextmanager
def settings(spark: Any, values: dict[str, str]) -> Iterator[None]:
    """Settings for a while; those a page makes itself are taken back as well."""
    before = {key: spark.conf.get(key, None) for key in (*values, "spark.haply.rowsPerCell", "spark.haply.cells")}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


LONG_PAGES = {
    f"docs/{name}.md"
    for name in (
        *("howto/positions", "howto/times", "howto/many_streams", "howto/gaussian_nd", "howto/without_a_partner"),
        *("howto/progress", "howto/bad_rows", "howto/selecting", "howto/looking", "howto/indexed_tables", "howto/sql"),
        *("tutorials/sensor_stream", "concepts/partitioning"),
    )
}
"""Pages with many joins or streams on Spark."""


def on_spark(page: Path) -> bool:
    """Whether a page speaks of a Spark session."""
    return any(re.search(r"\bspark\b", block.content) for block in blocks(page))


def marks_of(page: Path) -> list[pytest.MarkDecorator]:
    long = [pytest.mark.long] if page_name(page) in LONG_PAGES else []
    return [*long, pytest.mark.uses_spark] if on_spark(page) else long


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks_of(page)) for page in PAGES], ids=page_name)
def test_page(page: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "__page__"}
    with contextlib.ExitStack() as stack:
        if on_spark(page):
            spark = names["spark"] = request.getfixturevalue("spark")
            signature = inspect.signature(hp.local_session)

            def shared_session(*args: Any, **kwargs: Any) -> Any:
                signature.bind(*args, **kwargs)
                return spark

            monkeypatch.setattr(hp, "local_session", shared_session)
            stack.enter_context(settings(spark, SMALL))
        # Not earlier: the folder in which Spark is started stays the one it works in.
        monkeypatch.chdir(tmp_path)
        run_page(page, names)


def test_there_are_pages() -> None:
    assert {page_name(page) for page in PAGES} >= LONG_PAGES
    assert {"README.md", "docs/index.md", "docs/reference/index.md"} <= {page_name(page) for page in PAGES}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every cell runs, and none has an output: what a reader sees is what his own machine says."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 3
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
    for number, text in enumerate(code):
        tree = ast.parse(text, f"{path.name}, cell {number}")
        shown = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{path.name}, cell {number}", "exec"), names)
        if shown is not None:
            show(eval(compile(shown, f"{path.name}, cell {number}", "eval"), names))


def show(value: Any) -> None:
    """Show a value as a notebook does."""
    assert any(
        made() for name in ("_repr_mimebundle_", "_repr_html_", "__repr__") if (made := getattr(value, name, None))
    )


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text)]
    paths = {target: (page.parent / target).resolve() for target in targets if target and "://" not in target}
    gone = [target for target, path in paths.items() if not path.exists() and path not in GENERATED]
    assert gone == []


# -- the runner itself ------------------------------------------------------------------------------------------------

FENCE = "```"


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("{f}python\nprint(1)\n{f}\n\n{f}text\n2\n{f}", r"page.md:5: prints something else:\n1\ninstead of:\n2"),
        ("{f}python\nprint(1)\n{f}\n\n{f}text\n1\n2\n{f}", "prints something else"),
        ("{f}python\n1\n{f}\n{f}text\n1\n{f}", "prints something else"),
        ("{f}python\nprint(1)\n{f}", "page.md:1: prints, but no text block shows it"),
        ("{f}python\nprint(1)\n{f}\n{f}python\nx = 1\n{f}", "page.md:1: prints, but no text block shows it"),
        ("words\n\n{f}python\nx = 1\nx.missing\n{f}", "page.md:5: AttributeError"),
        ("{f}python\nx = \n{f}", "page.md:2: SyntaxError"),
        ("{f}python\ndef f():\n    return other_page\nf()\n{f}", "page.md:3: NameError"),
        ("{f}text\nnothing before it\n{f}", "follows no python block"),
        ("{f}py\nprint(1)\n{f}", "in 'py' that the tests cannot run"),
        ("{f}\nno language\n{f}", "in '' that the tests cannot run"),
        ("    indented()\n", "in '' that the tests cannot run"),
        ("{f}{{code-block}} python\nprint(1)\n{f}", "a directive {code-block}"),
        ("{f}`{{figure}} x.svg\n{f}python\nprint(1)\n{f}\n{f}`", "with code inside"),
        ("<pre>print(1)</pre>", "in '' that the tests cannot run"),
        ("{f}console\n$ make toast\n{f}", "page.md:2: .*no such make target: toast"),
        ("{f}console\n$ rm -rf /\n{f}", "neither make nor haply"),
        ("{f}console\nmake test\n{f}", "no command"),
        ("- a list\n\n  {f}python\n  print(1)\n  {f}\n", "page.md:3: prints"),
    ],
)
def test_runner_refuses(text: str, trouble: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text.format(f=FENCE), encoding="utf-8")
    with pytest.raises(BrokenPageError, match=trouble):
        run_page(page, {})


def test_runner_refuses_unknown_subcommands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for command, trouble in (
        ("haply dance", "no such subcommand: dance"),
        ("haply demo --fast", "no such option: --fast"),
        ("python -m benchmarks press", "no such bench: press"),
    ):
        page.write_text(f"{FENCE}console\n$ {command}\n{FENCE}", encoding="utf-8")
        with pytest.raises(BrokenPageError, match=trouble):
            run_page(page, {})


def test_runner_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        f"{FENCE}python\nx = 1\n{FENCE}\n\nwords\n\n{FENCE}python\nprint(x + 1, ' ')\nprint('took 3 s')\n{FENCE}\n"
        f"\n{FENCE}text\n2\ntook ... s\n{FENCE}\n\n{FENCE}console\n$ make test\n{FENCE}\n",
        encoding="utf-8",
    )
    assert run_page(page, names := {}) == 4
    assert names["x"] == 1


# -- docstrings -------------------------------------------------------------------------------------------------------


def source_of(module: str) -> Path:
    path = ROOT.joinpath("src", *module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def modules() -> list[str]:
    """Every module of the package; ``__main__`` would start the command line."""
    paths = (path.relative_to(ROOT / "src").with_suffix("") for path in (ROOT / "src" / "haply").rglob("*.py"))
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in paths if path.name != "__main__")


def example_on_spark(module: str) -> bool:
    """Whether an example in a module's docstrings takes a Spark session."""
    examples = doctest.DocTestParser().get_examples(source_of(module).read_text(encoding="utf-8"))
    return any(re.search(r"\bspark\b", e.source) and not e.options.get(doctest.SKIP) for e in examples)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.uses_spark] * example_on_spark(name)) for name in modules()]
)
def test_docstrings(name: str, request: pytest.FixtureRequest) -> None:
    module = importlib.import_module(name)
    extra = {"spark": request.getfixturevalue("spark")} if example_on_spark(name) else {}
    assert doctest.testmod(module, extraglobs=extra, optionflags=doctest.ELLIPSIS).failed == 0


def test_benchmarks_are_all_told_of() -> None:
    text = (DOCS / "performance" / "benchmarks.md").read_text(encoding="utf-8")
    assert [name for name in BENCHES if f"| `{name}` |" not in text] == []


# -- the build --------------------------------------------------------------------------------------------------------

WITHOUT_A_PAGE = {
    "haply.__version__": "a text",
    "haply.left": "a table of a join; the reference tells of it above the functions of conditions",
    "haply.right": "a table of a join",
    "haply.sky": "a module, whose functions have pages",
}
WITHOUT_AN_EXAMPLE = {
    "haply.engines.doctor.Checkup": "what hp.doctor returns",
    "haply.judging.ErrorFit": "what hp.calibrate returns",
    "haply.planning.plans.Plan": "what hp.plan_join returns",
    "haply.report.calibration.Calibration": "what hp.calibration returns",
    "haply.report.pair.PairExplanation": "what hp.explain_pair returns",
    **{f"haply.joins.{kind}Result": f"what {kind}Join.push returns" for kind in ("Pair", "Position", "Similarity")},
    **{f"haply.joins.{kind}Result": f"what {kind}Join.push returns" for kind in ("Timing", "Window")},
}
"""Objects that nobody makes: the example is that of the function that returns them."""


def docs_module(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module(name)


def test_every_public_name_has_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = docs_module("generated", monkeypatch).listed()
    public = {
        f"{package}.{name}"
        for package in ("haply", "haply.sky", "haply.models", "haply.probability", "haply.joins")
        for name in importlib.import_module(package).__all__
    }
    constructors = {f"haply.{name}" for name in CONSTRUCTORS if not name.startswith("sky")}
    assert (public | constructors) - set(listed) == set(WITHOUT_A_PAGE)
    assert len(listed) == len(set(listed))


def test_every_page_of_the_reference_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """``test_docstrings`` and ``test_public`` run them."""
    generated = docs_module("generated", monkeypatch)
    lacking = {name for name in generated.listed() if ">>>" not in (inspect.getdoc(generated.found(name)) or "")}
    assert lacking == set(WITHOUT_AN_EXAMPLE)


def test_pictures_are_all_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = docs_module("pictures", monkeypatch)
    assert set().union(*(pictures.shown_on(page) for page in PAGES)) == pictures.names()


def test_dark_pictures_have_no_dark_text(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = docs_module("pictures", monkeypatch)
    light = pictures.svg_of(pictures.styled(pictures.threshold()))
    dark = pictures.darkened(light)
    assert pictures.INK in light
    assert pictures.INK not in dark
    assert 'fill="white"' not in dark


def test_charts_of_benchmarks_are_those_of_their_results(monkeypatch: pytest.MonkeyPatch) -> None:
    charts = docs_module("charts", monkeypatch)
    made = {path.name: path.read_text(encoding="utf-8") for path in charts.TARGET.glob("*.svg")}
    assert made == charts.charts(), "run python docs/charts.py"
    page = (DOCS / "performance" / "index.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"charts/(\w+)\.svg", page))
    assert shown == {path.stem for path in charts.RESULTS.glob("*.json")}
    commands = {f"python -m benchmarks {name} --json docs/performance/{name}.json" for name in shown}
    assert [command for command in commands if command not in page] == []
