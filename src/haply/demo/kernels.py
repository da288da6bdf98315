"""Compiling the kernels of the demo in other processes, while Spark starts and the first steps run.

Numba compiles one kernel at a time in a process, whatever the number of its threads.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from haply.demo import counterparts, route, sky, timing
from haply.joins.cells.exchange import warm_exchange
from haply.joins.cells.method import Setting
from haply.joins.cells.positions import PositionsMethod
from haply.joins.cells.samples import SamplesMethod
from haply.joins.operators.position import join_positions
from haply.joins.operators.timing import TimingJoin
from haply.joins.warm import warm_pair, warm_times, warm_windows
from haply.models import Gaussian, Histogram, Samples, Sky, SkyEllipse
from haply.numerics.jit import cache_folder, compile_silently
from haply.probability.region import Distance, Region
from haply.pruning.candidates.one_pass import warm_order
from haply.pruning.threshold import Threshold
from haply.report.explain import density_records, explain_pair

_SHAPES = 100
"""More distributions of different shapes than a join of times has room for at first."""


def _readings() -> None:
    warm_exchange()
    warm_order()
    near, threshold = Region(-1.0, 1.0), Threshold(0.05)
    warm_pair(Gaussian, Gaussian, near, threshold, exact=True, keyed=True)
    explain_pair(Gaussian(0.0, 1.0), Gaussian(0.0, 1.0), near, threshold)
    density_records(Gaussian(0.0, 1.0), Gaussian(0.0, 1.0), ("one", "other"))


def _walk() -> None:
    method = SamplesMethod(Distance("", "", route.WITHIN), Threshold(route.THRESHOLD), False, (Samples, Samples))
    method.warm(Setting(needs_values=False, raises=True, keyed=False, whole=False))


def _alarms() -> None:
    warm_pair(Histogram, Histogram, Region(-timing.WINDOW, timing.WINDOW), Threshold(timing.THRESHOLD), exact=True)
    warm_times()  # the same events as streams, and what these and the report ask of each event
    random = np.random.default_rng(1)
    shapes = Histogram(np.sort(random.random((_SHAPES, 3))), np.full((_SHAPES, 2), 0.5))
    TimingJoin(timing.WINDOW, timing.THRESHOLD).push("left", {"id": np.arange(_SHAPES), "time": shapes})
    shapes.support(), shapes.mean(), shapes.cdf(np.broadcast_to(0.0, _SHAPES))


def _cameras() -> None:
    warm_windows(None)


def _sky() -> None:
    threshold = Threshold(sky.THRESHOLD)
    method = PositionsMethod(Distance("", "", sky.WITHIN), threshold, True, (SkyEllipse, SkyEllipse))
    method.warm(Setting(needs_values=True, raises=True, keyed=False, whole=False))
    points = Sky([0.0, 1.0], [0.0, 1.0], 0.0, 0.0)
    join_positions(points, points, 1.0, 1.0)
    points.lifted()


def _counterparts() -> None:
    counterparts.find_counterparts()


STORIES: dict[str, Callable[[], None]] = {
    "readings": _readings, "walk": _walk, "alarms": _alarms, "cameras": _cameras, "sky": _sky,
    "counterparts": _counterparts,
}  # fmt: skip
"""What compiles the kernels of each part of the demo, in the order in which they are needed."""

_TOGETHER = {("readings", "alarms", "cameras"): 32, ("walk",): 18, ("sky", "counterparts"): 12}
"""Parts that share kernels, which one process compiles after each other, and about how many seconds they take."""


class CompilingAhead:
    """Processes that compile the kernels of all parts; none if an earlier run has done so."""

    def __init__(self) -> None:
        self._compiler_of: dict[str, subprocess.Popen[str]] = {}
        self._compiled: set[str] = set()
        if _done().exists():
            return
        for stories in _shared_out(min(os.cpu_count() or 1, len(_TOGETHER))):
            command = [sys.executable, "-m", __name__, *stories]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self._compiler_of |= dict.fromkeys(stories, process)

    @property
    def busy(self) -> bool:
        """Return whether kernels are compiled."""
        return bool(self._compiler_of)

    def wait_for(self, story: str) -> None:
        """Return when the kernels of a part are compiled. If a process fails, they are compiled where they are used."""
        while story in self._compiler_of and story not in self._compiled:
            told = self._compiler_of[story].stdout
            line = told.readline().strip() if told is not None else ""
            if not line:
                return
            self._compiled.add(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Note that all is compiled, and end what still runs."""
        if self._compiled.issuperset(STORIES):
            _done().touch()
        for process in set(self._compiler_of.values()):
            process.terminate()
            process.communicate()


def _done() -> Path:
    """Return the file that says that all these kernels are there."""
    return Path(cache_folder()) / "demo"


def _shared_out(processes: int) -> list[list[str]]:
    """Return which parts each process compiles, in their order."""
    shares: list[list[str]] = [[] for _ in range(processes)]
    seconds = [0] * processes
    for stories, taken in _TOGETHER.items():
        least = seconds.index(min(seconds))
        shares[least] += stories
        seconds[least] += taken
    return [sorted(share, key=list(STORIES).index) for share in shares]


def main(stories: Sequence[str]) -> None:
    """Compile the kernels of some parts, and print the name of each that is done."""
    compile_silently()
    for story in stories:
        STORIES[story]()
        print(story, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
