"""One pair explained: what each rule proves about its probability, down to the exact value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from haply.errors import HaplyError
from haply.joins.calibration.residuals import nearer
from haply.models import Certain, Gaussian, Model, OneDimensional, Samples, densities
from haply.numerics.normal import normal_cdf
from haply.probability.distance import within_distance
from haply.probability.exact import PairProbability
from haply.probability.multivariate import Parts, parts
from haply.probability.region import Distance, Region
from haply.pruning.bounds import one_dimensional as bounds
from haply.pruning.bounds.positions import INSIDE, POSITION_RULES, SLAB, SPREAD
from haply.pruning.candidates import curve
from haply.pruning.candidates.intervals import accepts_above, accepts_below, pairing, row_intervals
from haply.pruning.threshold import Threshold

Verdict = Literal["reject", "accept", "undecided"]
"""The verdict of a rule on the pair, applied alone."""

CORE_REGIONS, HOPELESS, EXACT_VALUE = "core regions", "hopeless row", "exact value"

_FIRST = np.zeros(1, dtype=np.int32)
_ROW = _FIRST[0]  # the type in which the cascade passes row numbers, so that its compiled kernels are found again


@dataclass(frozen=True)
class ExplainedStep:
    """One rule applied to the pair.

    ``lower`` and ``upper`` are the rule's own certified bounds on the probability; ``least`` and ``most`` are what all
    rules up to this one have proved together. ``used`` says whether a join applies the rule to this pair: not if
    another rule replaces it for these models, nor once the pair is decided.
    """

    rule: str
    says: str
    lower: float
    upper: float
    least: float
    most: float
    verdict: Verdict
    used: bool

    def record(self) -> dict[str, Any]:
        """Return the step as a record, for tables and charts."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class _Finding:
    """What one rule found, before it is combined with earlier bounds."""

    rule: str
    says: str
    lower: float = 0.0
    upper: float = 1.0
    verdict: Verdict | None = None
    used: bool = True


def explain_pair(
    left: OneDimensional, right: OneDimensional, region: Region, threshold: Threshold, *, exact: bool = True
) -> list[ExplainedStep]:
    """Apply every rule to a pair of one-row models, the cheapest first; the last step is the exact value.

    ``exact`` says whether the join needs the probability of every kept pair, so that a bound may reject but not
    accept. A join stops at the last step that is ``used``.

    >>> from haply.models import Gaussian
    >>> steps = explain_pair(Gaussian(20.0, 0.1), Gaussian(26.0, 0.2), Region(-0.5, 0.5), Threshold(0.1))
    >>> steps[1].rule, steps[1].verdict
    ('core regions', 'reject')
    """
    _check_one_row(left, right)
    return _steps(_findings(left, right, region, threshold, exact), threshold, exact)


def explain_distance(
    left: Model, right: Model, distance: Distance, threshold: Threshold, *, exact: bool = True
) -> list[ExplainedStep]:
    """Do the same for the distance of two positions."""
    _check_one_row(left, right)
    return _steps(_position_findings(left, right, distance, threshold), threshold, exact)


def explain_parts(
    parts: Sequence[tuple[str, float]], probability: float, kept: bool, threshold: Threshold
) -> list[ExplainedStep]:
    """Explain several conditions together: all hold at most as likely as each of them does alone.

    ``parts`` are the conditions, and the probability of each.
    """
    findings = [_Finding(name, "holds by itself with this probability", upper=value) for name, value in parts]
    return _steps([*findings, _value(probability, kept)], threshold, True)


def _check_one_row(left: Model, right: Model) -> None:
    for name, side in (("left", left), ("right", right)):
        if len(side) != 1:
            raise HaplyError(f"The {name} model of a pair has several rows", expected="one row", found=str(len(side)))


def _steps(findings: Iterable[_Finding], threshold: Threshold, exact: bool) -> list[ExplainedStep]:
    """Combine what each rule found with earlier bounds."""
    steps: list[ExplainedStep] = []
    least, most, decided = 0.0, 1.0, False
    for found in findings:
        lower, upper = min(max(found.lower, 0.0), 1.0), min(max(found.upper, 0.0), 1.0)
        least, most = max(least, lower), min(most, upper)
        if found.rule == EXACT_VALUE:  # regardless of rounding
            least, most = lower, upper
        verdict = found.verdict or _verdict(lower, upper, threshold)
        used = found.used and not decided
        steps.append(ExplainedStep(found.rule, found.says, lower, upper, least, most, verdict, used))
        accepts = verdict == "accept" and (found.rule == CORE_REGIONS or not exact)
        decided = decided or (used and (verdict == "reject" or accepts))
    return steps


def deciding_step(steps: list[ExplainedStep]) -> ExplainedStep:
    """Return the step at which a join stops: the first that decides, or else the exact value."""
    return [step for step in steps if step.used][-1]


def _verdict(lower: float, upper: float, threshold: Threshold) -> Verdict:
    if upper <= threshold.reject_below - 1e-15:
        return "reject"
    return "accept" if lower >= threshold.accept_from else "undecided"


def _findings(
    left: OneDimensional, right: OneDimensional, region: Region, threshold: Threshold, exact: bool
) -> Iterator[_Finding]:
    if not (region.outside or region.one_sided):
        yield _hopeless(left, right, region, threshold, exact)
    yield _core_regions(left, right, region, threshold, exact)
    yield from _bounds(left, right, region, exact)
    if isinstance(left, Gaussian) and isinstance(right, Gaussian):
        yield from _gaussian_curve(left, right, region, threshold)
    yield _exact_value(left, right, region, threshold)


def _hopeless(
    left: OneDimensional, right: OneDimensional, region: Region, threshold: Threshold, exact: bool
) -> _Finding:
    held = [float(side.concentration(region.width)[0]) for side in (left, right)]
    hopeless = any(row_intervals(side, side is left, region, threshold, exact).hopeless[0] for side in (left, right))
    most = f"{held[0]:.3g} of the left or {held[1]:.3g} of the right"
    says = f"no interval of length {region.width:g} holds more than {most}"
    return _Finding(HOPELESS, says, upper=min(held), verdict="reject" if hopeless else "undecided")


def _core_regions(
    left: OneDimensional, right: OneDimensional, region: Region, threshold: Threshold, exact: bool
) -> _Finding:
    together = pairing(type(left), type(right))
    ours = row_intervals(left, True, region, threshold, exact, together)
    theirs = row_intervals(right, False, region, threshold, exact, together)
    if ours.start[0] > theirs.end[0]:
        side, accepts = "above", accepts_above(region)
    elif ours.end[0] < theirs.start[0]:
        side, accepts = "below", accepts_below(region)
    else:
        return _Finding(CORE_REGIONS, "the intervals of the two rows overlap: a candidate", verdict="undecided")
    if accepts:
        sure = 1.0 if exact else threshold.accept_from
        return _Finding(CORE_REGIONS, f"the left interval lies wholly {side} the right", lower=sure, verdict="accept")
    says = f"the left interval lies wholly {side} the right: never a candidate"
    return _Finding(CORE_REGIONS, says, upper=threshold.reject_below, verdict="reject")


def _bounds(left: OneDimensional, right: OneDimensional, region: Region, exact: bool) -> Iterator[_Finding]:
    a, b = left.components, right.components
    a_facts, b_facts = bounds.facts(left, region.width, True), bounds.facts(right, region.width, False)
    pair = (a, a_facts, _ROW, b, b_facts, _ROW)
    general = not (isinstance(left, Gaussian) and isinstance(right, Gaussian))  # Gaussian pairs have their own rule

    def finding(rule: int, says: str, below: float, above: float, used: bool) -> _Finding:
        lower, upper = (1.0 - above, 1.0 - below) if region.outside else (below, above)
        return _Finding(bounds.RULES[rule], says, lower, upper, used=general and used)

    if region.one_sided:
        if math.isinf(region.high):
            below, above = bounds.tail_bounds(*pair, region.low)
        else:
            below, above = bounds.tail_bounds(b, b_facts, _ROW, a, a_facts, _ROW, -region.high)
        yield finding(bounds.TAILS, "what of each value lies beyond all of the other", below, above, True)
    else:
        above = bounds.concentration_bound(*pair, region.low, region.high)
        says = "the mass of one within reach of the other, times the most that one value can meet"
        yield finding(bounds.CONCENTRATION, says, 0.0, above, not (region.outside and exact))
        below = bounds.containment_bound(*pair, region.low, region.high)
        says = "the mass of one for which every value of the other fulfils the condition"
        yield finding(bounds.CONTAINMENT, says, below, 1.0, region.outside or not exact)
    below, above = bounds.sandwich_bounds(a_facts.cuts, a_facts.masses, _ROW, b, _ROW, region.low, region.high)
    says = "the left value cut into ten slices, each at its best and at its worst"
    yield finding(bounds.SANDWICH, says, below, above, bounds.pays_for_sandwich(a, b))


def _gaussian_curve(left: Gaussian, right: Gaussian, region: Region, threshold: Threshold) -> Iterator[_Finding]:
    parameters = (left.values["mean"], left.sd, right.values["mean"], right.sd)
    limits = (threshold.reject_below, threshold.accept_from)
    spread = math.hypot(float(left.sd[0]), float(right.sd[0]))
    half = 0.5 * region.width
    if spread == 0.0 or half == 0.0:
        return  # the rule leaves atoms and equalities to the exact value
    code = int(curve.gaussian_verdicts(parameters, _FIRST, _FIRST, region, *limits, True)[0])
    verdict: Verdict = "reject" if code < 0 else "accept" if code > 0 else "undecided"
    name = bounds.RULES[bounds.CURVE]
    if region.one_sided:
        lower, upper = (limits[1], 1.0) if code > 0 else (0.0, limits[0]) if code < 0 else (0.0, 1.0)
        yield _Finding(name, "mean and spread of the difference against a straight line", lower, upper, verdict)
        return
    if not curve.fits_table(half):
        return
    asked = (1.0 - limits[1], 1.0 - limits[0]) if region.outside else limits
    reach, inner, _ = curve.curve_table(half, *asked)
    cell = int(min(spread / reach, 1.0) * len(inner))
    # the spreads in the pair's cell of the table; the last cell has no upper limit
    step = reach / len(inner)
    narrow, wide = (cell * step, (cell + 1) * step) if cell < len(inner) else (reach, math.inf)
    gap = abs(float(parameters[0][0] - parameters[2][0]) - 0.5 * (region.low + region.high))
    below = curve.worst_inside(gap, narrow * (1 - 1e-9), wide * (1 + 1e-9), half)
    above = curve.best_inside(gap, narrow * (1 - 1e-9), wide * (1 + 1e-9), half)
    lower, upper = (1.0 - above, 1.0 - below) if region.outside else (below, above)
    says = f"means {gap:.3g} from the middle with a joint spread of {spread:.3g}, looked up in the table"
    yield _Finding(name, says, lower - 1e-14, upper + 1e-14, verdict)


def _exact_value(left: OneDimensional, right: OneDimensional, region: Region, threshold: Threshold) -> _Finding:
    pair = PairProbability(left, right, region)
    values = pair.evaluate(_FIRST, _FIRST)
    return _value(float(values[0]), bool(threshold.keep(values, pair.counts)[0]))


def _value(value: float, kept: bool) -> _Finding:
    return _Finding(
        EXACT_VALUE, f"the probability is {value:.6g}", value, value, verdict="accept" if kept else "reject"
    )


# -- positions ---------------------------------------------------------------------------------------------------------


def _position_findings(left: Model, right: Model, distance: Distance, threshold: Threshold) -> Iterator[_Finding]:
    """Give the rules of ``pruning.bounds.positions`` in numbers, for normals and mixtures; samples are counted."""
    clouds = all(isinstance(side, (Certain, Samples)) for side in (left, right))
    mine, theirs = parts(left), parts(right)
    if not clouds and mine is not None and theirs is not None:
        yield from _normal_findings(mine, theirs, distance.limit)
    values = within_distance(left, right, distance.limit)
    counts = all(isinstance(side, OneDimensional) and side.equal_weight_samples() for side in (left, right))
    yield _value(float(values[0]), bool(threshold.keep(values, counts)[0]))


def _normal_findings(left: Parts, right: Parts, radius: float) -> Iterator[_Finding]:
    """Bounds of every pair of parts, weighted: what holds for each part holds for their mixture."""
    far = near = 0.0
    wide = 0.0
    for k, own in enumerate(left.weight):
        for m, other in enumerate(right.weight):
            share = float(own * other)
            apart, cov = left.mean[k] - right.mean[m], _cov_of(left, k) + _cov_of(right, m)
            away = float(np.linalg.norm(apart))
            widest = max(float(np.linalg.eigvalsh(cov)[-1]), 0.0)
            along = float(apart @ cov @ apart) / (away * away) if away > 0.0 else 0.0
            far += share * (_normal_below(away - radius, along) if away > radius else 1.0)
            wide += share * _widest_share(radius, widest, cov)
            near += share * _inside_share(radius - away, widest, cov)
    slab, spread, inside = (POSITION_RULES[rule] for rule in (SLAB, SPREAD, INSIDE))
    yield _Finding(slab, "the disc lies in a half-space, which holds at most so much", upper=far)
    yield _Finding(spread, "no disc of this radius holds more, wherever it lies", upper=wide)
    yield _Finding(inside, "the disc holds an ellipse around the centre, which holds at least so much", lower=near)


def _cov_of(rows: Parts, part: int) -> np.ndarray:
    return rows.cov[part if len(rows.cov) > 1 else 0]


def _normal_below(beyond: float, variance: float) -> float:
    """Return the share of a normal that lies beyond this many units on one side."""
    return float(normal_cdf(-beyond / math.sqrt(variance))) if variance > 0.0 else 0.0


def _widest_share(radius: float, widest: float, cov: np.ndarray) -> float:
    """Bound what a disc can hold: by a strip along the widest axis, and in the plane also by its area."""
    if not widest > 0.0:
        return 1.0
    strip = 1.0 - 2.0 * float(normal_cdf(-radius / math.sqrt(widest)))
    det = float(np.linalg.det(cov)) if cov.shape == (2, 2) else 0.0
    return min(strip, -math.expm1(-0.5 * radius * radius / math.sqrt(det))) if det > 0.0 else strip


def _inside_share(inside: float, widest: float, cov: np.ndarray) -> float:
    """Return the least that a disc holds whose edge is this far from the centre: by the law of chi squared."""
    if inside <= 0.0:
        return 0.0
    if not widest > 0.0:
        return 1.0
    rank = max(int(np.linalg.matrix_rank(cov, hermitian=True)), 1)
    return float(nearer(np.array([inside * inside / widest]), rank)[0])


def density_records(
    left: OneDimensional, right: OneDimensional, names: tuple[str, str], points: int = 400
) -> list[dict[str, Any]]:
    """Return the densities of two one-row models on a common axis: records ``reading, value, density``."""
    return densities.density_records((left, right), names, points)
