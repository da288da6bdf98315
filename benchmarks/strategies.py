"""``bench strategies``: joins on a difference by every strategy, over laws, partners, errors and thresholds.

``auto`` must never be much slower than the best of them, and all must find the same pairs. One thread, in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.measure import OURS, Answer, Claim, Figure, Report, Result, Tell, check_same, circumstances, take_turns
from haply.joins import PairJoin
from haply.joins.operators.pair import PairStrategy
from haply.joins.strategies import estimated_seconds
from haply.models import Gaussian, Histogram, OneDimensional, Uniform
from haply.probability import Difference, Region

AUTO: PairStrategy = "auto"
OTHERS: tuple[PairStrategy, ...] = ("sweep", "pages", "pti", "moments")
_CENTRES = np.array([-1.0, -1.0 / 3.0, 1.0 / 3.0, 1.0])


@dataclass(frozen=True)
class Settings:
    """The workload: rows lie one unit apart on average."""

    rows: int = 5_000
    laws: tuple[str, ...] = ("gaussian", "uniform", "histogram")
    partners: tuple[float, ...] = (0.5, 20.0)
    """Rows of the other side within the distance of a row, if values were certain: the selectivity."""
    errors: tuple[float, ...] = (0.3, 1.0, 3.0)
    """Mean half-width or standard deviation, in distances."""
    thresholds: tuple[float, ...] = (0.1, 0.5, 0.9)
    most: float = 1.3
    """``auto`` may take this many times as long as the best strategy."""
    repetitions: int = 3
    seconds: float = 0.3
    seed: int = 3


QUICK = Settings(rows=300, errors=(1.0,), thresholds=(0.5,), repetitions=1, seconds=0.01)


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does."""
    return measure(QUICK if quick else Settings(), tell)


def make_sides(law: str, rows: int, error: float, random: np.random.Generator) -> Iterator[OneDimensional]:
    """Yield two sides with values of one law."""
    for _ in range(2):
        middle, width = random.uniform(0.0, rows, rows), error * random.uniform(0.5, 1.5, rows)
        if law == "gaussian":
            yield Gaussian(middle, width)
        elif law == "uniform":
            yield Uniform(middle - width, middle + width)
        else:
            edges = middle[:, None] + width[:, None] * _CENTRES
            yield Histogram(edges.tolist(), [[0.25, 0.5, 0.25]] * rows)


def join(
    left: OneDimensional, right: OneDimensional, within: float, threshold: float, strategy: PairStrategy
) -> Answer:
    """Find all pairs with their probabilities."""
    operator = PairJoin(Difference("x", "x", Region(-within, within)), threshold, strategy=strategy)
    operator.push("left", {"id": np.arange(len(left)), "x": left})
    found = operator.push("right", {"id": np.arange(len(right)), "x": right})
    return Answer(found.left, found.right, found.probability)


def measure(settings: Settings, tell: Tell) -> Report:
    """Measure every strategy in every configuration."""
    rows: list[dict[str, Any]] = []
    cases = len(settings.errors) * len(settings.thresholds)
    grid = product(settings.laws, settings.partners, settings.errors, settings.thresholds)
    for law, partners, error, threshold in grid:
        within = 0.5 * partners
        left, right = make_sides(law, settings.rows, error * within, np.random.default_rng(settings.seed))
        job = f"{law}, {partners:g} partners, errors {error:g}, P >= {threshold:g}"
        tell(job)
        engines: dict[str, Callable[[], Answer]] = {
            name: partial(join, left, right, within, threshold, name) for name in (AUTO, *OTHERS)
        }
        answers = {name: engine() for name, engine in engines.items()}
        check_same(job, {OURS: answers[AUTO], **answers})
        seconds = take_turns(
            job, engines, settings.repetitions, lambda text: None, settings.seconds, time.thread_time
        )  # fmt: skip
        pairs = len(answers[AUTO].left)
        best = min(seconds[name] for name in OTHERS)
        rows.append(
            {
                "panel": f"{law}, {partners:g} partners",
                "case": len(rows) % cases + 1, "law": law, "partners": partners,
                "errors": error, "threshold": threshold, "pairs": pairs,
                "selectivity": pairs / settings.rows**2,
                **{f"{name} ms": 1e3 * time for name, time in seconds.items()},
                "best": min(OTHERS, key=lambda name: seconds[name]), "auto / best": seconds[AUTO] / best,
            }
        )  # fmt: skip
    results = []
    for law in settings.laws:  # all configurations together
        own = [row for row in rows if row["law"] == law]
        spent = {name: 1e-3 * sum(row[f"{name} ms"] for row in own) for name in (AUTO, *OTHERS)}
        pairs = sum(row["pairs"] for row in own)
        results += [
            Result(f"{law}, all {len(own)}", OURS if name == AUTO else name, time, pairs, time / spent[AUTO])
            for name, time in spent.items()
        ]
    worst = max(rows, key=lambda row: row["auto / best"])
    claim = Claim(
        f"auto never takes more than {settings.most:g} times as long as the best strategy",
        f"at most {worst['auto / best']:.2f} ({worst['law']}, {worst['partners']:g} partners, errors "
        f"{worst['errors']:g}, P >= {worst['threshold']:g}); the best was auto's own choice, the sweep, in "
        f"{sum(row['best'] == 'sweep' for row in rows)} of {len(rows)}",
        worst["auto / best"] <= settings.most,
    )
    table = Figure(
        "strategies", "milliseconds by strategy; cases are errors, then thresholds", rows, "case",
        tuple(f"{name} ms" for name in (AUTO, *OTHERS)), "milliseconds", panel="panel", claims=[claim],
    )  # fmt: skip
    example = estimated_seconds(Gaussian, Gaussian, 2 * settings.rows, 10.0 * settings.rows)
    config = {
        **settings.__dict__,
        "notes": [
            "auto chooses by estimated cost; for two Gaussians and ten candidates a row: "
            + ", ".join(f"{name} {1e3 * value:.3g} ms" for name, value in example.items())
        ],
        **circumstances(),
    }
    title = f"Strategies of a join, {settings.rows:,} x {settings.rows:,}"
    return Report("strategies", title, config, results, figures=[table])
