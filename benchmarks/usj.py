"""``bench usj``: the similarity join of two uncertain streams (Lian and Chen 2009), its speed and its experiments.

Every engine runs on one thread in this process and must find the same pairs. The jobs:

* ``refine``: the probability of many single pairs, each from two prepared arrays of samples;
* ``stream 0.15%`` and ``stream 0.5%``: all pairs of two full windows, of which this share joins; data about each
  object (haply's description, centres and radii for the others) are prepared;
* ``stream 0.15%, steps``: whole timestamps, an object of each side from its samples to the pairs it completes.

``WoP`` is haply's kernel without any rule, ``OP+SP`` adds the paper's grid and its two rules, and ``cKDTree+cdist`` is
the program that an expert would write with SciPy (``own radii``: with the paper's OP). The paper's experiments are in
``usj_figures``, our own in ``usj_ours``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks import usj_data as data
from benchmarks.measure import OURS, Answer, Engines, Report, Result, Tell, circumstances, compare, in_seconds, needs
from benchmarks.usj_data import Streams
from benchmarks.usj_figures import PAPER, Lab, Scale, make_lab
from benchmarks.usj_ours import OURS_ALONE
from benchmarks.usj_runs import (
    RULES_OF,
    Cloud,
    FullWindows,
    Query,
    Sliding,
    SlidingTree,
    TreeProgram,
    distance_for,
)
from haply.models import Samples
from haply.probability import within_distance

TREE = "cKDTree+cdist"
OWN_RADII = {TREE: False, f"{TREE} own radii": True}
"""The programs with SciPy: whether they test the radius of each object that the tree finds."""


@dataclass(frozen=True)
class Settings:
    """The jobs on which engines are compared, and the scale of the experiments, with the window and other sizes."""

    selectivities: tuple[float, ...] = (0.0015, 0.005)
    refined_pairs: int = 2_000
    steps: int = 100
    repetitions: int = 3
    scale: Scale = field(default_factory=Scale)


QUICK = Settings(
    refined_pairs=300,
    steps=20,
    repetitions=2,
    scale=Scale(
        window=200, thresholds=(0.1, 0.5, 0.9), dims=(2, 3), windows=(100, 200), batches=(1, 10),
        ranges=((0.0, 2.0), (0.0, 5.0)), cascade_window=150, growth_windows=(125, 250, 1_000), growth_samples=(30, 100),
        growth_dims=(2, 3), steps=60, slow_steps=5, repetitions=2,
    ),
)  # fmt: skip


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does."""
    return measure(QUICK if quick else Settings(), data, tell)


def measure(settings: Settings, folder: str | None, tell: Tell) -> Report:
    """Measure the jobs, then the experiments."""
    scale = settings.scale
    lab = make_lab(scale, folder, tell)
    streams, distances = workload(settings)
    results = refine(settings, streams, distances[0], tell)
    for share, within in zip(settings.selectivities, distances, strict=True):
        job = f"stream {100 * share:g}%"
        results += compare(job, window_engines(streams, within, scale), settings.repetitions, tell)
    job = f"stream {100 * settings.selectivities[0]:g}%, steps"
    results += compare(job, step_engines(streams, distances[0], settings), settings.repetitions, tell, turn=0.0)
    figures = [make(lab) for make in (*PAPER, *OURS_ALONE)]
    title = (
        f"Similarity join of uncertain streams, w = {scale.window:,}, l = {scale.samples}, d = {scale.dim}, one thread"
    )
    return Report("usj", title, _config(settings, lab, distances, results), results, figures=figures)


def workload(settings: Settings) -> tuple[Streams, list[float]]:
    """Return the streams of the jobs, long enough for all rounds of the steps, and the distance of each selectivity."""
    scale = settings.scale
    rows = scale.window + settings.steps * (settings.repetitions + 1)
    streams = data.make_streams(data.gps(rows, scale.seed), "rUrU", rows, scale.samples, scale.seed)
    left, right = streams.left[: scale.window], streams.right[: scale.window]
    return streams, [distance_for(left, right, scale.threshold, share) for share in settings.selectivities]


def refine(settings: Settings, streams: Streams, within: float, tell: Tell) -> list[Result]:
    """Time one pair after the other, from samples as they come: point by point, a pair's two objects side by side."""
    scale = settings.scale
    random = np.random.default_rng(scale.seed)
    i, j = (random.integers(0, scale.window, settings.refined_pairs, dtype=np.int32) for _ in range(2))
    left, right = Samples(streams.left[i]), Samples(streams.right[j])
    clouds = list(zip(streams.left[i], streams.right[j], strict=True))
    cdist = needs("scipy.spatial.distance").cdist
    engines: Engines = {
        OURS: lambda: Answer(i, j, within_distance(left, right, within)),
        "cdist": lambda: Answer(i, j, np.array([(cdist(x, y) <= within).mean() for x, y in clouds])),
    }
    return compare("refine", engines, settings.repetitions, tell)


def window_engines(streams: Streams, within: float, scale: Scale) -> Engines:
    """Return engines for all pairs of two full windows, with prepared data of single objects."""
    left, right = streams.left[: scale.window], streams.right[: scale.window]
    windows = {
        name: FullWindows(left, right, Query(within, scale.threshold, rules)) for name, rules in RULES_OF.items()
    }
    clouds = Cloud(left), Cloud(right)
    trees = {name: TreeProgram(within, scale.threshold, scale.samples, own) for name, own in OWN_RADII.items()}
    engines: dict[str, Callable[[], Answer]] = {name: full.answer for name, full in windows.items()}
    return engines | {name: partial(tree.windows, *clouds) for name, tree in trees.items()}


def step_engines(streams: Streams, within: float, settings: Settings) -> Engines:
    """Return engines for whole timestamps; each call runs the next ones, so a round has the same ones for all."""
    scale = settings.scale
    running = {
        name: Sliding(streams, scale.window, Query(within, scale.threshold, rules)) for name, rules in RULES_OF.items()
    }
    trees = {name: SlidingTree(streams, scale.window, within, scale.threshold, own) for name, own in OWN_RADII.items()}

    def next_steps(sliding: Sliding) -> Answer:
        return sliding.run(settings.steps).answer

    engines: dict[str, Callable[[], Answer]] = {name: partial(next_steps, one) for name, one in running.items()}
    return engines | {name: partial(tree.run, settings.steps) for name, tree in trees.items()}


def _config(settings: Settings, lab: Lab, distances: list[float], results: list[Result]) -> dict[str, Any]:
    scale = settings.scale
    shares = [f"stream {100 * share:g}%" for share in settings.selectivities]
    ours = {result.job: result.seconds for result in results if result.engine == OURS}
    steps = f"{shares[0]}, steps"
    return {
        **asdict(settings),
        "condition": "|x - y| <= within",
        "within": dict(zip(shares, distances, strict=True)),
        "data": data.describe_sources(lab.sources),
        "radii": "rU: uniform on the range; rG: Gaussian around its middle, sd a fifth of its width, cut to it; the "
        f"jobs and, where nothing else is said, the experiments have radii from 0 to {data.WIDEST:g}",
        "own_choices": "the paper's table of parameters is lost: defaults, units, ranges of radii and data are ours",
        "formulations": {
            OURS: "SimilarityJoin, rules auto, probability none",
            "WoP": "SimilarityJoin, rules none: the same kernel on every pair",
            "OP+SP": "SimilarityJoin, rules paper: grid, object-level and sample-level pruning",
            TREE: "cKDTree over centres, searched as far as an object and the widest other reach; one cdist of squares "
            "for all candidates of an object (faster than one for each, than roots, and than count_neighbors); in the "
            f"steps the tree is built anew every {SlidingTree.REBUILT_EVERY} timestamps",
            f"{TREE} own radii": "the same, and of what the tree finds only what its own radius lets reach",
            "cdist": "(cdist(x, y) <= within).mean() for each pair",
        },
        "targets": {
            "cdist": {"refine": 10.0},
            "WoP": dict(zip(shares, (250.0, 120.0), strict=False)),
            TREE: {shares[0]: 120.0},
            "OP+SP": dict.fromkeys(shares, 3.0),
        },
        "notes": [
            f"refine: {settings.refined_pairs:,} pairs, {in_seconds(ours['refine'] / settings.refined_pairs)} each; "
            f"stream: {scale.window:,} x {scale.window:,} pairs, "
            f"{in_seconds(ours[shares[0]] * 2 / scale.window)} per timestamp of {2 * scale.window:,} pairs; "
            f"steps: {settings.steps} timestamps, {in_seconds(ours[steps] / settings.steps)} each with everything; "
            f"best of {settings.repetitions} runs"
        ],
        **circumstances("scipy"),
    }
