"""Only folders that no other user can write to are trusted with files that are loaded and run."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import haply
from haply.errors import HaplyWarning
from haply.folders import private_folder

PACKAGE = Path(haply.__file__).parent
NOBODY = 65534


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and an empty temporary folder, both below the returned one."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def in_temporary_folder(places: Path) -> Path:
    return places / "tmp" / f"haply-{os.getuid()}" / "kernels"


def test_the_users_cache_comes_first_and_is_closed_to_others(places: Path) -> None:
    folder = private_folder("kernels")
    assert folder == places / "cache" / "haply" / "kernels"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder("kernels") == folder


def test_a_folder_that_the_user_names_comes_before_it(places: Path) -> None:
    assert private_folder("kernels", str(places / "named")) == places / "named" / "kernels"


def make_link(folder: Path) -> None:
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)


def make_open(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def make_readable(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)


def make_foreign(folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)


UNSAFE = [make_link, make_open, make_readable, make_foreign]


@pytest.mark.parametrize("make", UNSAFE)
@pytest.mark.parametrize("named", [False, True])
def test_a_folder_that_is_not_safe_is_not_used(places: Path, make, named: bool) -> None:
    base = places / "named" if named else places / "cache" / "haply"
    base.mkdir(parents=True)
    make(base / "kernels")
    expected = places / "cache" / "haply" / "kernels" if named else in_temporary_folder(places)
    assert private_folder("kernels", str(base) if named else None) == expected


@pytest.mark.parametrize("make", [make_link, make_open, make_foreign])
def test_nor_one_below_a_folder_that_is_not_safe(places: Path, make) -> None:
    make(places / "cache")
    assert private_folder("kernels") == in_temporary_folder(places)


@pytest.mark.parametrize("make", UNSAFE)
def test_without_a_safe_place_the_folder_is_new_and_a_warning_says_why(places: Path, make) -> None:
    (places / "cache").write_text("a file where a folder should be: nobody can write there, not even root")
    in_temporary_folder(places).parent.mkdir(mode=0o700)
    make(in_temporary_folder(places))
    with pytest.warns(HaplyWarning, match=r"no safe place to keep 'kernels'.*Hint: set XDG_CACHE_HOME"):
        folder = private_folder("kernels")
    assert folder.parent == places / "tmp"
    assert folder.name.startswith("haply-")
    assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.warns(HaplyWarning):
        assert private_folder("kernels") != folder


def run(code: str, *path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))} | environment
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)


COMPILE = """
from haply.numerics.normal import normal_cdf
from haply.numerics.jit import cache_folder
print(normal_cdf(0.0), cache_folder())
"""


def planted(folder: Path, proof: Path) -> None:
    """Replace every file of cached kernels by a pickle that makes a file when it is loaded."""
    import pickle

    class Attack:
        def __reduce__(self) -> tuple:
            return Path.touch, (proof,)

    for file in folder.rglob("*.nbc"):
        file.write_bytes(pickle.dumps(Attack()))


@pytest.mark.long
@pytest.mark.parametrize("variable", ["TMPDIR", "NUMBA_CACHE_DIR"])
def test_what_another_user_planted_is_not_loaded(tmp_path: Path, variable: str) -> None:
    """The attack: make the folder that a user without a writable home compiles into, before that user does."""
    (tmp_path / "no-cache").write_text("")
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o1777)
    environment = {"XDG_CACHE_HOME": str(tmp_path / "no-cache"), variable: str(place)}
    value, folder = run(COMPILE, PACKAGE.parent, **environment).stdout.split()
    assert (float(value), Path(folder).is_relative_to(place)) == (0.5, True)
    proof = tmp_path / "proof"
    planted(place, proof)
    run(COMPILE, PACKAGE.parent, **environment)
    assert proof.exists()  # the attack works on a folder that is trusted
    proof.unlink()
    Path(folder).chmod(0o777)  # as a folder that others may write to
    again = run(COMPILE, PACKAGE.parent, **environment)
    assert not proof.exists()
    assert again.stdout.split()[0] == "0.5"
    assert again.stdout.split()[1] != folder


@pytest.mark.long
@pytest.mark.parametrize("changed_file", ["normal.py", "star.py"])  # star.py is in a folder below the room
def test_in_a_zip_the_fingerprint_is_of_its_sources(tmp_path: Path, changed_file: str) -> None:
    """The same sources have the same kernels, in a folder or in a zip; other sources have others."""
    same, other = tmp_path / "same.zip", tmp_path / "other.zip"
    for archive, more in ((same, ""), (other, "\nMORE = 1\n")):
        with zipfile.ZipFile(archive, "w") as packed:
            for source in sorted(PACKAGE.rglob("*.py")):
                text = source.read_text() + (more if source.name == changed_file else "")
                packed.writestr(str(source.relative_to(PACKAGE.parent)), text)
    cache = str(tmp_path / "cache")
    as_folder, as_zip, changed = (run(COMPILE, path, XDG_CACHE_HOME=cache) for path in (PACKAGE.parent, same, other))
    assert as_zip.stdout == as_folder.stdout
    assert changed.stdout != as_folder.stdout
    # the zip loads what the folder compiled
    assert "compiling" in as_folder.stderr
    assert "compiling" not in as_zip.stderr
    assert "compiling" in changed.stderr
