"""The demo's two networks of thermometers: their readings, and the scores of answers against the truth.

A dairy measures its vessels with two networks of thermometers: probes built into the vessels, and loggers that came
later. Half of the loggers sit in a pocket of the pipe and are good; half are clipped to its outside and are about ten
times worse. The logger's list of vessels is lost, so that each hour its readings must be matched with the probes' by
temperature alone. The data are made up, so the truth (which readings are of one vessel and hour) is known and every
answer can be scored; no join sees it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from haply.models import Gaussian
from haply.probability import equal_within

ROWS = 30_000
"""Readings of each network."""

WITHIN, THRESHOLD = 0.5, 0.05
CONDITION = f"abs(left.temp - right.temp) <= {WITHIN} AND left.hour = right.hour"
TOLERANCES = (0.2, 0.5, 1.0, 2.0, 4.0)
FAINTEST = 0.01  # the curves need the pairs below the threshold as well
_SEED = 20050614

_VESSELS, _SEEN = 8, 0.75
_PROBE_ERRORS, _FITTED_ERRORS, _CLIPPED_ERRORS = (0.05, 0.2), (0.1, 0.4), (1.5, 3.0)
_DEVICES = 240


@dataclass(frozen=True)
class World:
    """The readings of both networks, and how many pairs of them are truly of one vessel and hour."""

    probes: pa.Table
    loggers: pa.Table
    true_pairs: int


def plant(rows: int = ROWS, seed: int = _SEED) -> World:
    """Make up readings: about ``rows`` for each network, of hours in which eight vessels are between 2 and 90 °C.

    Each network misses a quarter of the readings, so that many have no partner. A reading is the true temperature plus
    a normal error of the size that its device states.
    """
    random = np.random.default_rng(seed)
    hours = max(1, round(rows / (_VESSELS * _SEEN)))
    truth = random.uniform(2.0, 90.0, (hours, _VESSELS))

    def errors(sizes: tuple[float, float]) -> np.ndarray:
        return np.exp(random.uniform(np.log(sizes[0]), np.log(sizes[1]), _DEVICES // 2))

    def network(letter: str, device_errors: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        device = random.integers(0, len(device_errors), truth.shape)
        seen = random.random(truth.shape) < _SEEN
        error = device_errors[device]
        reading = truth + error * random.normal(size=truth.shape)
        hour, vessel = np.nonzero(seen)
        table = pa.table(
            {
                "hour": hour.astype(np.int32),
                "device": [f"{letter}{number:03}" for number in device[seen]],
                "reading": reading[seen],
                "error": error[seen],
                "truth": hour * _VESSELS + vessel,
            }
        )
        return table, seen

    probes, probe_sees = network("P", errors(_PROBE_ERRORS))
    loggers, logger_sees = network("L", np.concatenate([errors(_FITTED_ERRORS), errors(_CLIPPED_ERRORS)]))
    return World(probes, loggers, int((probe_sees & logger_sees).sum()))


@dataclass(frozen=True)
class Score:
    """The score of one method against the known truth."""

    method: str
    setting: str
    pairs: int
    precision: float
    recall: float
    threshold: float | None = None
    tolerance: float | None = None
    seconds: float | None = None

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return 2.0 * self.precision * self.recall / both if both else 0.0

    def record(self, marked: bool) -> dict[str, Any]:
        """Return the score as a record for the charts."""
        names = ("method", "setting", "threshold", "precision", "recall", "f1")
        return {name: getattr(self, name) for name in names} | {"marked": marked}


def score(right: np.ndarray, true_pairs: int, method: str, setting: str, **more: Any) -> Score:
    """Score an answer from one flag a pair: whether it is true."""
    found = int(right.sum())
    precision = found / len(right) if len(right) else 0.0
    return Score(method, setting, len(right), precision, found / true_pairs if true_pairs else 0.0, **more)


def flags(pairs: pa.Table) -> np.ndarray:
    """Return whether each pair is true."""
    return pairs["right"].to_numpy(zero_copy_only=False).astype(bool)


def sweep_tolerances(widest: pa.Table, true_pairs: int) -> list[Score]:
    """Return every tolerance up to the widest, scored from the answer to that one."""
    gap = np.abs(widest["probe_reading"].to_numpy() - widest["logger_reading"].to_numpy())
    right = flags(widest)
    return [
        score(right[gap <= t], true_pairs, "fixed tolerance", f"±{t:.3g} °C", tolerance=float(t))
        for t in np.round(np.arange(0.05, TOLERANCES[-1] + 0.01, 0.05), 2)
    ]


def sweep_thresholds(every: pa.Table, true_pairs: int) -> list[Score]:
    """Return every threshold from the faintest, scored from one answer: each pair carries its probability."""
    probability, right = every["probability"].to_numpy(), flags(every)
    steps = sorted(
        {round(float(t), 3) for t in np.concatenate([np.arange(0.01, 0.3, 0.01), np.arange(0.3, 1.0, 0.02)])}
    )
    return [score(right[probability >= t - 1e-12], true_pairs, "haply", f"P ≥ {t:g}", threshold=t) for t in steps]


@dataclass(frozen=True)
class ReadingsResult:
    """What the joins of readings found."""

    world: World
    plain: Score
    swept: list[Score] = field(repr=False)
    """All tolerances that were tried."""
    best_tolerance: Score
    haply: Score
    curve: list[Score] = field(repr=False)
    """All thresholds that were tried."""
    widest: pa.Table = field(repr=False)
    """The pairs of the widest tolerance, with their readings."""
    every: pa.Table = field(repr=False)
    """All pairs that are likelier than ``FAINTEST``, with their probabilities."""
    funnel: Any = field(repr=False)
    beside_compilers: bool = False
    """Whether kernels were compiled while joins were timed."""

    @property
    def tolerances(self) -> list[Score]:
        """Return the tolerances that are reported."""
        return [score for score in self.swept if score.tolerance in TOLERANCES]

    @property
    def stricter(self) -> list[Score]:
        """Higher thresholds that are reported."""
        return [score for score in self.curve if score.threshold in (0.5, 0.9)]

    def ahead(self) -> tuple[float, float] | None:
        """Return the thresholds around the demo's own between which haply's F1 beats that of the best tolerance."""
        if self.haply.f1 <= self.best_tolerance.f1:
            return None
        wins = {score.threshold: score.f1 > self.best_tolerance.f1 for score in self.curve}
        tried = sorted(threshold for threshold in wins if threshold is not None)
        below = itertools.takewhile(wins.__getitem__, reversed([t for t in tried if t <= THRESHOLD]))
        above = itertools.takewhile(wins.__getitem__, [t for t in tried if t >= THRESHOLD])
        return min(below, default=THRESHOLD), max(above, default=THRESHOLD)

    def example(self) -> list[PairOfReadings]:
        """Return a true pair with a poor logger, and a false pair with a good one that is about as far apart."""
        columns = {name: self.widest[name].to_numpy(zero_copy_only=False) for name in self.widest.column_names}
        gap = np.abs(columns["probe_reading"] - columns["logger_reading"])
        right, poor = columns["right"].astype(bool), columns["logger_error"] > 1.0
        wanted, chosen = 1.5, []
        for these in (right & poor & (columns["logger_error"] < 2.2), ~right & ~poor):
            place = np.flatnonzero(these)
            if len(place):
                row = int(place[np.abs(gap[place] - wanted).argmin()])
                chosen.append(PairOfReadings.of({name: values[row] for name, values in columns.items()}))
                wanted = gap[row]
        return chosen


@dataclass(frozen=True)
class PairOfReadings:
    """A reading of each network, and whether they are of one vessel."""

    hour: int
    names: tuple[str, str]
    readings: tuple[float, float]
    errors: tuple[float, float]
    right: bool

    @classmethod
    def of(cls, row: dict[str, Any]) -> PairOfReadings:
        """Read a row of the widest join."""
        return cls(
            int(row["hour"]), (str(row["probe"]), str(row["logger"])),
            (float(row["probe_reading"]), float(row["logger_reading"])),
            (float(row["probe_error"]), float(row["logger_error"])), bool(row["right"]),
        )  # fmt: skip

    @property
    def gap(self) -> float:
        """Return how far apart they are."""
        return abs(self.readings[0] - self.readings[1])

    @property
    def truth(self) -> str:
        """Return whether they are truly of one vessel, as text."""
        return "one vessel" if self.right else "two vessels"

    @property
    def titles(self) -> tuple[str, str]:
        """Return each reading in words."""
        kinds = zip(("probe", "logger"), self.names, self.readings, self.errors, strict=True)
        one, other = (f"{kind} {name}: {reading:.2f} ± {error:.2f} °C" for kind, name, reading, error in kinds)
        return one, other

    def models(self) -> tuple[Gaussian, Gaussian]:
        """Return each reading as a distribution."""
        one, other = (Gaussian(*each) for each in zip(self.readings, self.errors, strict=True))
        return one, other

    def probability(self) -> float:
        """Return how likely the two temperatures are within the tolerance of the demo."""
        return float(equal_within(*self.models(), WITHIN)[0])


def precision_at(curve: list[Score], recall: float) -> float:
    """Return the precision at which a curve of scores passes a recall."""
    points = sorted((score.recall, score.precision) for score in curve)
    return float(np.interp(recall, [point[0] for point in points], [point[1] for point in points]))
