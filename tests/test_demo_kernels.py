"""The processes that compile the kernels of the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from haply.demo.kernels import STORIES, CompilingAhead, _shared_out, main


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Replace the processes by a script, with a folder of kernels of their own."""
    monkeypatch.setattr("haply.demo.kernels.cache_folder", lambda: str(tmp_path))

    def replace(lines: str) -> None:
        script = tmp_path / "python"
        script.write_text(f"#!/bin/sh\nshift 2\n{lines}\n")
        script.chmod(0o700)
        monkeypatch.setattr("sys.executable", str(script))

    return replace


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_each_part_is_compiled_once(processes: int) -> None:
    shares = _shared_out(processes)
    assert len(shares) == processes
    assert sorted(story for share in shares for story in share) == sorted(STORIES)


def test_a_part_waits_for_its_kernels_and_the_next_run_for_none(compiler) -> None:
    compiler('for story in "$@"; do echo "$story"; done')
    with CompilingAhead() as ahead:
        assert ahead.busy
        for story in STORIES:
            ahead.wait_for(story)
    with CompilingAhead() as ahead:
        assert not ahead.busy
        ahead.wait_for("walk")


@pytest.mark.parametrize("lines", ["exit 1", 'echo "$1"; exit 1'])
def test_a_process_that_fails_is_not_waited_for(compiler, lines: str) -> None:
    compiler(lines)
    with CompilingAhead() as ahead:
        for story in STORIES:
            ahead.wait_for(story)
    with CompilingAhead() as ahead:
        assert ahead.busy


def test_what_still_runs_is_ended(compiler) -> None:
    compiler("exec sleep 100")
    with CompilingAhead() as ahead:
        assert ahead.busy


def test_a_process_tells_what_it_has_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []
    monkeypatch.setattr("haply.demo.kernels.compile_silently", lambda: None)
    for name in STORIES:
        monkeypatch.setitem(STORIES, name, lambda name=name: done.append(name))
    main(["walk", "sky"])
    assert (done, capsys.readouterr().out) == (["walk", "sky"], "walk\nsky\n")
