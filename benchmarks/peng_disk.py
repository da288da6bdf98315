"""Expt 3 of Peng, Diao and Liu (2011) on disk: a join with an indexed table that is larger than its memory limit.

The table is written in parts, so that it is never in memory as a whole. The join runs in a process of its own, whose
memory may grow by a limit that is smaller than the table (``RLIMIT_DATA``, set once all kernels are loaded). A second
process checks the limit: it tries to read the whole table under it.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import Claim, Figure, Tell
from haply.errors import HaplyError

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Disk:
    """The table, the memory that a join may use, and the conditions."""

    rows: int = 4_000_000
    parts: int = 8
    payload: int = 128
    """Bytes of payload in each row."""
    page_rows: int = 4096
    probes: int = 20
    limit: int = 160
    """Megabytes by which memory may grow."""
    distances: tuple[float, ...] = (0.5, 1.0, 2.0)
    spread: float = 10_000.0
    """Means are from 0 to this."""
    seed: int = 2


FULL_DISK = Disk()
QUICK_DISK = Disk(rows=400_000, parts=4, payload=256, page_rows=1024, probes=5, limit=64, distances=(1.0, 2.0))


def on_disk(disk: Disk, threshold: float, tell: Tell) -> Figure:
    """Write the table, join with it under the limit, and try to read it whole under the same limit."""
    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
        begun = time.perf_counter()
        path = _built(disk, folder, tell)
        built = time.perf_counter() - begun
        size = sum(file.stat().st_size for file in Path(path).rglob("*.parquet")) / MEGABYTE
        tell(f"disk: joining under a limit of {disk.limit} MB")
        rows = json.loads(_child("join", {**asdict(disk), "path": path, "threshold": threshold}))
        tell("disk: reading the whole table under the same limit")
        whole = json.loads(_child("read", {**asdict(disk), "path": path}))
    most = max(row["peak MB"] for row in rows)
    share = [row["pages read %"] for row in rows]
    return Figure(
        "Expt 3 disk",
        f"{disk.rows:,} Gaussians in an index of {size:,.0f} MB, {disk.probes} probes, {disk.limit} MB of memory",
        rows, x="d", lines=("matches", "candidates"), y_title="pairs per probe", seconds=("time",),
        claims=[
            Claim(
                "(ours) the join needs less memory than the table has",
                f"it grew by {most:,.0f} MB at most, of {size:,.0f} MB; to read the whole table {whole['outcome']}",
                most < disk.limit < size and whole["outcome"] == FAILS, any_size=True,
            ),
            Claim(
                "(ours) most pages stay on the disk", f"{min(share):.2f}% to {max(share):.2f}% are read",
                max(share) < 5.0,
            ),
        ],
        notes=[
            f"the memory of the process may grow by {disk.limit} MB once kernels are loaded: more is refused by the "
            "operating system (RLIMIT_DATA); the paper has 500 MB of rows, a tree of 1.3 GB and 1 GB of memory",
            f"the index was written in {built:,.0f} s, once; times are per probe, with a warm cache of the disk",
        ],
    )  # fmt: skip


FAILS = "fails for want of memory"


def _built(disk: Disk, folder: str, tell: Tell) -> str:
    """Write the index part by part: each part has the means of one stretch."""
    import haply as hp

    path = str(Path(folder) / "index")
    random = np.random.default_rng(disk.seed)
    for part in range(disk.parts):
        tell(f"disk: writing part {part + 1} of {disk.parts}")
        count = disk.rows // disk.parts
        width = disk.spread / disk.parts
        means = random.uniform(part * width, (part + 1) * width, count)
        table = _table(part * count, means, random, disk.payload)
        hp.build_index(table, "u", path, page_rows=disk.page_rows, mode="append" if part else "error")
    return path


def _table(first: int, means: np.ndarray, random: np.random.Generator, payload: int) -> pa.Table:
    sds = np.sqrt(random.uniform(0.0, 1.0, len(means)))
    values = pa.StructArray.from_arrays([pa.array(means), pa.array(sds)], ["mean", "sd"])
    columns: dict[str, Any] = {"id": pa.array(first + np.arange(len(means))), "u": values}
    if payload:
        drawn = pa.py_buffer(random.bytes(payload * len(means)))
        columns["payload"] = pa.Array.from_buffers(pa.binary(payload), len(means), [None, drawn]).cast(pa.binary())
    return pa.table(columns)


# -- in a process of its own -------------------------------------------------------------------------------------------


def _child(task: str, settings: dict[str, Any]) -> str:
    """Run a task of this module in a new process, and return what it prints."""
    command = [sys.executable, "-m", "benchmarks.peng_disk", task, json.dumps(settings)]
    # other memory pools of Arrow reserve much room ahead, so that the limit would have no effect
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )  # fmt: skip
    if done.returncode:
        if task == "read":  # the operating system may end it in the middle of a call
            return json.dumps({"outcome": FAILS})
        raise HaplyError("The join on disk failed", found=done.stderr.strip()[-2000:])
    return done.stdout.strip().splitlines()[-1]


def _megabytes(what: str) -> float:
    """Read how much memory this process has, or had at most: ``VmData``, ``VmRSS`` or ``VmHWM``."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) / 1024


def _limit(megabytes: int) -> None:
    """Limit the growth of this process's data to this many megabytes."""
    most = int((_megabytes("VmData") + megabytes) * MEGABYTE)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


_TURNS = 3
"""How often each join runs; the best time counts."""
_SHOWN = {"matches": "kept", "candidates": "candidates", "evaluated": "evaluated"}


def _join(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Join at every distance, under the limit."""
    import haply as hp

    random = np.random.default_rng(settings["seed"] + 1)
    middle, count = 0.4 * settings["spread"], settings["probes"]
    probes = _table(0, random.uniform(middle, middle + 0.01 * settings["spread"], count), random, 0)
    indexed = hp.read_index(settings["path"], engine="local")
    found = []
    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:

        def joined(distance: float, name: str) -> dict[str, Any]:
            funnel = hp.Funnel()
            on = f"abs(left.u - right.u) < {distance!r}"
            shown = ["id_left", "id_right"]
            hp.plan_join(probes, indexed, on, settings["threshold"], columns=shown, funnel=funnel).write(
                f"{folder}/{name}.parquet"
            )
            return funnel.to_dict()

        joined(min(settings["distances"]), "warm")  # load kernels, start threads
        _limit(settings["limit"])
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak of memory
        before = _megabytes("VmRSS")
        for k, distance in enumerate(settings["distances"]):
            seconds = math.inf
            for turn in range(_TURNS):
                begun = time.perf_counter()
                counts = joined(distance, f"{k} {turn}")
                seconds = min(seconds, time.perf_counter() - begun)
            per_probe = {name: counts[of] / count for name, of in _SHOWN.items()}
            pages = 100.0 * counts["pages_read"] / counts["pages_total"]
            peak = _megabytes("VmHWM") - before
            found.append({"d": distance, **per_probe, "pages read %": pages, "time": seconds / count, "peak MB": peak})
    return found


def _read(settings: dict[str, Any]) -> dict[str, Any]:
    """Try to read the whole table under the limit."""
    import haply as hp

    indexed = hp.read_index(settings["path"], engine="local")
    _limit(settings["limit"])
    try:
        rows = pa.table(indexed).num_rows
    except (MemoryError, OSError, RuntimeError):
        return {"outcome": FAILS}
    return {"outcome": f"works: {rows:,} rows"}


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    print(json.dumps(_join(given) if sys.argv[1] == "join" else _read(given)))
