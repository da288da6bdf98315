"""Every rule about clouds against the oracle: no pair lost, none invented, no bound on the wrong side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest

from amounts import fewer
from haply.errors import HaplyError
from haply.joins import SimilarityJoin
from haply.models import Samples
from haply.probability.distance import (
    Block,
    clouds,
    count_above,
    count_narrow,
    narrow_room,
    narrowed,
    squared_limit,
)
from haply.pruning.bounds.cloud_rules import (
    BINS,
    RULES,
    least_kept,
    line_rows,
    moments_verdict,
    question,
    rule_codes,
    shell_rows,
    spheres_bound,
)
from haply.pruning.bounds.clouds import SHELLS, Objects, core_share, describe, extents
from haply.pruning.threshold import Threshold
from oracle_distance import (
    KINDS,
    TOLERANCE,
    Cloud,
    all_pairs,
    as_decimal,
    borderline,
    cantelli_bounds,
    centre,
    centre_distance,
    cloud,
    distances,
    keeps,
    line_bound,
    op_prunes,
    pair_mass,
    probability,
    radial_profile,
    radii,
    random_cloud,
    random_eps,
    random_weights,
    safe_slack,
    shell_bounds,
    sp_prunes,
)

F = Fraction
SQUARE = cloud([(0, 0), (2, 0), (0, 2), (2, 2)])
SQUARE_MOVED = cloud([(4, 0), (6, 0), (4, 2), (6, 2)])
COMB = cloud([-3, -1, 1, 3])
COMB_MOVED = cloud([7, 9, 11, 13])
UNEVEN = cloud([0, 1, 2, 10], ["0.4", "0.3", "0.2", "0.1"])
UNEVEN_FAR = cloud([12, 13, 14, 30], ["0.1", "0.2", "0.3", "0.4"])

THRESHOLDS = (0.01, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 1.0, None)
RULE_SETS = ("auto", "paper", "none", *([rule] for rule in RULES.values()), ["grid"], ["grid", "core"])


def samples(these: Sequence[Cloud]) -> Samples:
    """Clouds as rows; equal weights are left out if all have them."""
    weights = [list(map(float, each.exact_weights)) for each in these]
    return Samples([each.points for each in these], None if all(each.weights is None for each in these) else weights)


def joined(
    lefts: Sequence[Cloud], rights: Sequence[Cloud], eps: float, threshold: float | None, **options: object
) -> tuple[SimilarityJoin, dict[tuple[int, int], tuple[float, str]]]:
    """All kept pairs with probability and deciding rule; the join as well, for its counters."""
    join = SimilarityJoin(eps, threshold, window=None, dim=lefts[0].dim, **options)
    join.push("left", {"id": np.arange(len(lefts)), "pos": samples(lefts)})
    found = join.push("right", {"id": np.arange(len(rights)), "pos": samples(rights)})
    pairs = list(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)), "a pair was doubled"
    decided = zip(found.probability.tolist(), found.decided_by.tolist(), strict=True)
    return join, dict(zip(pairs, decided, strict=True))


def is_kept(a: Cloud, b: Cloud, p: Fraction, threshold: float | None, strict: bool) -> bool | None:
    """As the oracle's ``keeps``, for a probability that is known; None where rounding may decide."""
    if p == 0 or threshold is None:
        return p > 0
    counted = a.weights is None and b.weights is None
    edge = as_decimal(threshold) + (0 if counted else TOLERANCE if strict else -TOLERANCE)
    if not counted and abs(p - edge) <= F(1, 10**13):
        return None
    return p > edge if strict else p >= edge


def check_all_rules(lefts: Sequence[Cloud], rights: Sequence[Cloud], eps: float) -> None:
    """Every set of rules, threshold, strictness and way of deciding gives the oracle's pairs."""
    times = [0] * len(lefts), [0] * len(rights)
    chances = all_pairs(lefts, rights, *times, window=None, eps=eps)
    for threshold in THRESHOLDS:
        for strict in (False, True):
            if strict and threshold == 1.0:
                continue  # see test_nothing_is_more_than_certain
            decisions = {(i, j): is_kept(lefts[i], rights[j], p, threshold, strict) for (i, j), p in chances.items()}
            for rules in RULE_SETS:
                for way in ("exact", "none"):
                    case = (eps, threshold, strict, rules, way)
                    join, found = joined(lefts, rights, eps, threshold, strict=strict, rules=rules, probability=way)
                    assert all(decisions.get(pair) is not False for pair in found), case
                    assert set(found) <= set(decisions), case
                    assert all(pair in found for pair, kept in decisions.items() if kept), case
                    computed = {pair: p for pair, (p, rule) in found.items() if rule in ("exact value", "balls")}
                    assert way == "none" or len(computed) == len(found), case
                    assert all(abs(p - float(chances[pair])) <= 1e-12 for pair, p in computed.items()), case
                    check_counters(join, lefts, rights, found, rules)


def check_counters(join: SimilarityJoin, lefts: Sequence, rights: Sequence, found: dict, rules: object) -> None:
    funnel = join.funnel
    assert funnel.kept == len(found)
    assert funnel.candidates == len(lefts) * len(rights)
    rejected, accepted = sum(funnel.rejected.values()), sum(funnel.accepted.values())
    assert rejected + accepted + funnel.evaluated == funnel.candidates
    used = {name for counts in (funnel.rejected, funnel.accepted) for name, count in counts.items() if count}
    if isinstance(rules, list):
        assert used <= {*rules, "balls" if "grid" in rules else rules[0]}
    elif rules == "none":
        assert not used
        assert funnel.evaluated == funnel.candidates


def moved(a: Cloud, offset: float, scale: float) -> Cloud:
    return Cloud(offset + scale * a.points, a.weights)


def random_side(rng: np.random.Generator, dim: int, variant: str, most: int = 10) -> list[Cloud]:
    """A cloud of each kind that the variant has, twice."""
    kinds = {"ties": ("lattice",) * 6, "points": ("one", "same", "same", "one", "lattice")}.get(variant, KINDS)
    side = []
    for kind in kinds:
        n = int(rng.choice([1, 2, 4, 5, most]))
        size, weighted = float(rng.choice([0.3, 1.0, 2.0])), bool(rng.integers(2))
        side.append(
            random_cloud(
                rng, dim, n, kind, weighted=weighted, size=size, spread=2.0 / dim, smallest=int(rng.integers(2))
            )
        )
    offset, scale = {"far": (1e6, 1.0), "tiny": (0.0, 1e-9), "tiny and far": (-1000.0, 1e-9)}.get(variant, (0.0, 1.0))
    return [moved(each, offset, scale) for each in side]


VARIANTS = ("mixed", "ties", "points", "far", "tiny", "tiny and far")


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("dim", range(1, 11))
def test_every_rule_on_clouds_of_every_kind(dim: int) -> None:
    rng = np.random.default_rng(dim)
    lefts, rights = random_side(rng, dim, "mixed"), random_side(rng, dim, "mixed")
    check_all_rules(lefts, rights, random_eps(rng, lefts[0], rights[0]))


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("dim", [1, 2, 3, 6])
@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_every_rule_on_difficult_clouds(variant: str, dim: int) -> None:
    """Ties of distances, radii and probabilities; no radius; places far away; sizes below the slack of distances."""
    rng = np.random.default_rng(20 + dim)
    lefts, rights = random_side(rng, dim, variant), random_side(rng, dim, variant)
    check_all_rules(lefts, rights, random_eps(rng, lefts[0], rights[1]))


def test_every_rule_on_many_samples() -> None:
    """Rows are added up in blocks: only objects with many samples can stop between them."""
    rng = np.random.default_rng(31)
    for dim in (1, 2, 3, 4)[-fewer(8) :]:
        sides = [
            [
                random_cloud(rng, dim, 40, kind, weighted=bool(k % 3), spread=1.0)
                for k, kind in enumerate(("ball", "gaussian", "two_clusters", "lattice"))
            ]
            for _ in range(2)
        ]
        check_all_rules(*sides, eps=random_eps(rng, sides[0][0], sides[1][0]))
    join, _ = joined(*sides, 2.0, 0.5, rules=["rows"], probability="none")
    assert join.funnel.rejected["rows"] > 0
    assert join.funnel.accepted["rows"] > 0


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("variant", ["mixed", "far", "tiny", "tiny and far"])
def test_every_rule_on_many_equal_samples(variant: str) -> None:
    """These are counted in singles, which cannot tell ties and what is far away or next to nothing."""
    offset, scale = {"far": (1e6, 1.0), "tiny": (0.0, 1e-9), "tiny and far": (-1000.0, 1e-9)}.get(variant, (0.0, 1.0))
    rng = np.random.default_rng(35)
    for dim in (1, 2, 3)[-fewer(8) :]:
        sides = [
            [
                moved(random_cloud(rng, dim, int(rng.integers(17, 50)), kind, spread=1.0), offset, scale)
                for kind in ("ball", "two_clusters", "lattice", "lattice")
            ]
            for _ in range(2)
        ]
        check_all_rules(*sides, eps=random_eps(rng, sides[0][2], sides[1][2]))


def test_singles_bound_what_doubles_count() -> None:
    rng = np.random.default_rng(36)
    told = total = 0
    for _ in range(fewer(600)):
        dim, sizes = int(rng.integers(1, 4)), rng.integers(16, 60, 2)
        scale, offset = float(10.0 ** rng.integers(-12, 13)), float(rng.choice([0.0, 1.0, 1e3, 1e7]))
        kind = str(rng.choice(["gaussian", "lattice"]))
        a, b = (moved(random_cloud(rng, dim, int(n), kind, spread=1.0), offset * scale, scale) for n in sizes)
        eps = random_eps(rng, a, b)
        x, y = (Block(each.points.T.ravel().copy(), 0, len(each), np.ones(len(each)), 0, True) for each in (a, b))
        room = narrow_room(dim, len(a), len(b))
        room.origin[:] = b.points[0]
        widest = sum(float(((each.points - b.points[0]) ** 2).sum(axis=1).max()) for each in (a, b))
        error = narrowed(dim, x, y, squared_limit(eps), widest, room, False)
        if error < 0.0:
            continue
        first, last = 2 * int(rng.integers(0, 4)), int(rng.integers(8, len(a) + 1))
        near = int((distances(a.points[first:last], b.points) <= eps).sum())
        rows = (room, first, last + (last - first) % 2 if last < len(a) else last, len(a), len(b))
        near += int((distances(a.points[last : rows[2]], b.points) <= eps).sum())
        sure, maybe = count_narrow(*rows, error)
        assert sure <= near <= maybe
        assert (count_above(*rows, error), count_above(*rows, -error)) == (sure, maybe)
        told, total = told + (sure == maybe), total + 1
    assert total > fewer(300)
    assert 0.4 * total < told < total, "ties are not told apart, most others are"


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("seed", range(8))
def test_a_look_in_singles_leaves_what_one_in_doubles_leaves(seed: int) -> None:
    """Many new objects at a time are looked at in singles first, single ones are not; near ties and places far away."""
    rng = np.random.default_rng(seed)
    scale = float(rng.choice([1e-60, 1e-9, 1.0, 1.0, 1e9, 1e40]))
    offset = scale * float(rng.choice([0.0, 1e3, 1e6]))
    kinds, size = ("lattice", "ball", "one", "two_clusters"), float(rng.choice([0.3, 1.0]))
    sides = [
        [
            moved(random_cloud(rng, 3, 6, str(rng.choice(kinds)), size=size, spread=4.0), offset, scale)
            for _ in range(60)
        ]
        for _ in range(2)
    ]
    for eps in (random_eps(rng, sides[0][0], sides[1][0]), 0.0, 2.0 * scale, math.inf):
        for threshold in (0.1, 0.5, 1.0, None):
            at_once, found = joined(*sides, eps, threshold)
            one_by_one = SimilarityJoin(eps, threshold, window=None, dim=3)
            one_by_one.push("left", {"id": np.arange(60), "pos": samples(sides[0])})
            pairs = {}
            for j, each in enumerate(sides[1]):
                result = one_by_one.push("right", {"id": [j], "pos": samples([each])})
                pairs.update({(int(i), j): p for i, p in zip(result.left, result.probability, strict=True)})
            assert pairs == {pair: p for pair, (p, _) in found.items()}
            assert at_once.funnel.flat() == one_by_one.funnel.flat()


def test_each_rule_has_work_to_do() -> None:
    """Without this, the sweeps above could hold because nothing was ever decided by a rule."""
    rng = np.random.default_rng(32)
    lefts, rights = (
        [random_cloud(rng, 2, 20, "ball", size=float(rng.choice([0.3, 1.0])), spread=3.0) for _ in range(40)]
        for _ in range(2)
    )
    accepted = set()
    for rule in RULES.values():
        join, _ = joined(lefts, rights, 1.5, 0.5, rules=[rule], probability="none")
        assert rule == "shell" or join.funnel.rejected[rule] > 5, rule  # the shell is asked where much is near
        accepted |= {name for name, count in join.funnel.accepted.items() if count > 5}
    assert accepted == {"balls", "moments", "shell", "rows"}
    alone = {rule: joined(lefts, rights, 1.5, 0.5, rules=[rule])[0].funnel.evaluated for rule in RULES.values()}
    assert alone["spheres"] < 1600
    assert alone["line"] < alone["spheres"], "the line is the strongest of the rules that reject"
    whole = joined(lefts, rights, 1.5, 0.5, rules="auto")[0].funnel.evaluated
    assert whole < joined(lefts, rights, 1.5, 0.5, rules="paper")[0].funnel.evaluated


def test_any_list_of_rules() -> None:
    rng, drawn = np.random.default_rng(33), np.random.default_rng(34)
    names = [*RULES.values(), "grid"]
    for dim in (1, 2, 3):
        lefts, rights = random_side(rng, dim, "mixed"), random_side(rng, dim, "mixed")
        eps = random_eps(rng, lefts[1], rights[1])
        _, wanted = joined(lefts, rights, eps, 0.3, rules="none")
        assert wanted
        for _ in range(fewer(40)):
            rules = [str(name) for name in drawn.choice(names, drawn.integers(1, 6), replace=False)]
            assert set(joined(lefts, rights, eps, 0.3, rules=rules)[1]) == set(wanted), rules


def test_names_of_rules() -> None:
    assert rule_codes("none") == rule_codes([]) == frozenset()
    assert rule_codes(RULES.values()) == frozenset(RULES)
    assert rule_codes("paper") == rule_codes(["balls", "spheres", "grid"])
    assert rule_codes("auto") == rule_codes(["core", "balls", "moments", "line", "shell", "rows"])
    with pytest.raises(HaplyError, match=r"no rule 'sphere'.*did you mean 'spheres'"):
        rule_codes(["balls", "sphere"])
    with pytest.raises(HaplyError, match=r"no set of rules 'papr'.*did you mean 'paper'"):
        rule_codes("papr")


# ---------------------------------------------------------------------------------------------------------------------
# Ends of the scale of probabilities


def test_a_tie_is_a_tie() -> None:
    """Probabilities that are the threshold as fractions; sums of doubles would miss them."""
    for x, y, eps, gamma in (
        (cloud([0] * 100), cloud([0] * 30 + [9] * 70), 1, 0.3),
        (cloud([-34] * 66 + [66] * 34), cloud([1000] * 100), 1000 - 66, 0.34),
        (cloud([0] * 7 + [10] * 62 + [-20] * 31), cloud([45] * 100), 45, 0.69),
        (SQUARE, SQUARE_MOVED, 6, 0.875),
    ):
        assert probability(x, y, eps) == as_decimal(gamma)
        for rules in RULE_SETS:
            for way in ("exact", "none"):
                how = {"rules": rules, "probability": way}
                assert joined([x], [y], eps, gamma, **how)[1], rules
                assert joined([x], [y], eps, math.nextafter(gamma, 0.0), strict=True, **how)[1], rules
                assert not joined([x], [y], eps, gamma, strict=True, **how)[1], rules
                assert not joined([x], [y], eps, math.nextafter(gamma, 1.0), **how)[1], rules


@pytest.mark.parametrize("rules", ["none", ["shell"], "auto", "paper", ["balls"]])
def test_nothing_is_more_than_certain(rules: str | list[str]) -> None:
    """``P > 1`` holds for no pair, sure as it may be."""
    for one in (cloud([1.0]), SQUARE, UNEVEN):
        for way in ("exact", "none"):
            assert joined([one], [one], 50.0, 1.0, rules=rules, probability=way)[1]
            assert not joined([one], [one], 50.0, 1.0, strict=True, rules=rules, probability=way)[1]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("rules", ["none", "auto", "paper"])
def test_without_threshold_every_possible_pair_is_kept(rules: str, strict: bool) -> None:
    """Also one of probability 1e-14: the tolerance is the threshold's."""
    rare = Fraction(1, 10**7)
    a, b = cloud([0, 100], [rare, 1 - rare]), cloud([0, -100], [rare, 1 - rare])
    assert keeps(a, b, 1.0, None, strict)
    found = joined([a], [b], 1.0, None, strict=strict, rules=rules)[1]
    assert found[0, 0][0] == pytest.approx(1e-14, rel=1e-9)


@pytest.mark.parametrize("rules", ["none", "auto", ["grid"], "paper", ["balls"]])
def test_a_sample_of_next_to_no_weight(rules: str | list[str]) -> None:
    """The others' weights may add up to 1 or more in doubles: the ball still has to hold the last one."""
    rng = np.random.default_rng(34)
    for _ in range(100):
        n = int(rng.integers(3, 12))
        weights = rng.random(n)
        cluster = cloud([*rng.uniform(-1, 1, n), 50.0], [*(weights / weights.sum()), 1e-17])
        assert keeps(cluster, cloud([50.0]), 0.5, None)
        assert joined([cluster], [cloud([50.0])], 0.5, None, rules=rules)[1], weights


@pytest.mark.parametrize(
    "rules",
    RULE_SETS,
    ids=str,
)
def test_points_that_are_equal(rules: str | list[str]) -> None:
    """No radius, no variance and no distance, which leaves a grid without an edge; and a distance without an end."""
    rng = np.random.default_rng(35)
    places = [cloud([point]) for point in rng.integers(-2, 2, (40, 2))]
    wanted = set(all_pairs(places, places, [0] * 40, [0] * 40, window=None, eps=0.0))
    assert len(wanted) > 40
    for threshold in (1e-10, 0.5, 1.0, None):
        for way in ("exact", "none"):
            assert set(joined(places, places, 0.0, threshold, rules=rules, probability=way)[1]) == wanted
    everything = joined(places, places, math.inf, 1.0, rules=rules)[1]
    assert len(everything) == 1600


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("others", [0, 30])
def test_a_variance_without_end_loses_nothing(dim: int, others: int) -> None:
    """Squares of samples that are very far away have no number."""
    far = cloud([[0.0] * dim] * 9 + [[1e160] + [0.0] * (dim - 1)])
    side = [far, *[cloud([[5.0] * dim])] * others]
    assert joined(side, side, 1.0, None)[1][0, 0][0] == pytest.approx(0.82, abs=1e-15)
    for rules, eps in (("none", math.inf), ("auto", 1e160), ("auto", 1.0)):
        assert (0, 0) in joined(side, side, eps, 0.5, rules=rules)[1]


def test_what_was_not_computed_is_not_a_number() -> None:
    rng = np.random.default_rng(36)
    lefts, rights = ([random_cloud(rng, 2, 20, "ball", spread=1.0) for _ in range(20)] for _ in range(2))
    _, found = joined(lefts, rights, 1.5, 0.5, probability="none")
    by_rule = [p for p, rule in found.values() if rule in ("moments", "shell", "rows")]
    assert len(by_rule) > 10
    assert np.isnan(by_rule).all()
    assert not np.isnan([p for p, rule in found.values() if rule in ("balls", "exact value")]).any()


# ---------------------------------------------------------------------------------------------------------------------
# Single bounds


def described(a: Cloud, share: float = 1.0, weighted_centre: bool = False) -> Objects:
    return describe(clouds(samples([a])), np.zeros(1), share, weighted_centre)


def direction_between(a: Cloud, b: Cloud, weighted_centre: bool = False) -> np.ndarray:
    step = centre(b, weighted_centre=weighted_centre) - centre(a, weighted_centre=weighted_centre)
    return step / np.sqrt((step * step).sum())


def whole(a: Cloud, b: Cloud) -> float:
    """What the engine's near weights are shares of: numbers of samples, or 1 for weighted ones."""
    return math.prod(float(clouds(samples([each])).whole[0]) for each in (a, b))


def line(a: Cloud, b: Cloud, eps: float, slack: float = 1e-12, weighted_centre: bool = False) -> float:
    """The rule's bound of the probability, on the line through the centres."""
    x, y = described(a, weighted_centre=weighted_centre), described(b, weighted_centre=weighted_centre)
    along = direction_between(a, b, weighted_centre)
    middle = float(along @ y.near[: b.dim, 0])
    room = np.empty(max(len(a), len(b)))
    total = line_rows(
        x.pool, x.facts[0], y.pool, y.facts[0], a.dim, along, middle, eps, slack, room,
        np.empty((2, len(room)), np.int32), np.empty(BINS + 1), np.empty(len(a)),
    )  # fmt: skip
    return total / whole(a, b)


def shell(a: Cloud, b: Cloud, eps: float, slack: float = 1e-12, weighted_centre: bool = False) -> tuple[float, float]:
    """The rule's two bounds of the probability, from the samples of a."""
    x, y = described(a, weighted_centre=weighted_centre), described(b, weighted_centre=weighted_centre)
    upper = np.full(len(a), float(clouds(samples([b])).whole[0]))
    low, high = shell_rows(
        x.pool, x.facts[0], y.pool, y.facts[0], a.dim, y.near[: a.dim, 0].copy(), eps, slack, np.empty(len(a)),
        np.empty((2, len(a)), np.int32), np.empty(len(a)), upper,
    )  # fmt: skip
    return low / whole(a, b), high / whole(a, b)


def spheres(a: Cloud, b: Cloud, eps: float) -> float:
    """The sample-level bound of the probability (unweighted centres, as in the paper)."""
    x, y = described(a), described(b)
    apart = float(np.sqrt(((x.near[: a.dim, 0] - y.near[: a.dim, 0]) ** 2).sum()))
    return spheres_bound(x.pool, x.facts[0], y.pool, y.facts[0], a.dim, apart, eps) / whole(a, b)


def best_spheres(a: Cloud, b: Cloud, eps: float) -> float:
    """The same by trial of all pairs of spheres."""
    apart = centre_distance(a, b)
    inner_a, inner_b = (list(zip(*radial_profile(each), strict=True)) for each in (a, b))
    held = (mass_a * mass_b for rho_a, mass_a in inner_a for rho_b, mass_b in inner_b if apart - rho_a - rho_b > eps)
    return float(1 - max(held, default=Fraction(0)))


def decided_by(a: Cloud, b: Cloud, eps: float, gamma: float, rule: str, way: str = "none") -> str:
    join, found = joined([a], [b], eps, gamma, rules=[rule], probability=way)
    if join.funnel.rejected[rule]:
        return "rejected"
    return "accepted" if found and found[0, 0][1] == rule else "open"


def test_golden_02_object_level_limits_of_two_squares() -> None:
    prune_below, accept_from, step = 4 - 2 * math.sqrt(2), 4 + 2 * math.sqrt(2), 1e-10
    assert decided_by(SQUARE, SQUARE_MOVED, prune_below - step, 0.5, "balls") == "rejected"
    assert decided_by(SQUARE, SQUARE_MOVED, prune_below + step, 0.5, "balls") == "open"
    for way in ("exact", "none"):
        assert decided_by(SQUARE, SQUARE_MOVED, accept_from + step, 0.5, "balls", way) == "accepted"
        assert decided_by(SQUARE, SQUARE_MOVED, accept_from - step, 0.5, "balls", way) == "open"


@pytest.mark.parametrize(("eps", "expected"), [(1.9, 0), (2, 1 / 4), (3, 1 / 4), (4, 3 / 4), (5, 3 / 4), (6, 1)])
def test_golden_03_line_bound_of_two_squares(eps: float, expected: float) -> None:
    """All ends are far from the next sample, so that bins make no difference."""
    assert line(SQUARE, SQUARE_MOVED, eps) == expected == line_bound(SQUARE, SQUARE_MOVED, eps)


def test_golden_03_shell_bounds_of_two_squares() -> None:
    """All samples are at the very radius, in the last of the steps, which no hole ever takes in."""
    for a, b in ((SQUARE, SQUARE_MOVED), (SQUARE_MOVED, SQUARE)):
        assert shell(a, b, 5) == (0.5, 1.0)
        low, high = shell(a, b, 1.9)
        assert low == 0.0
        assert high >= 0.5


def test_golden_05_and_06_sample_level_rule_of_two_combs() -> None:
    """SP rejects at eps 5 what is asked for with 0.6, not with 0.5, whose product it only equals."""
    assert spheres(COMB, COMB_MOVED, 5) == 0.5
    assert spheres(COMB, COMB_MOVED, 6) == 0.75
    assert spheres(COMB, COMB_MOVED, 3) == 0.0
    for eps, gamma in ((5, 0.6), (5, 0.5), (5, 0.3), (6, 0.9), (6, 0.75), (3, 0.01)):
        rejected = decided_by(COMB, COMB_MOVED, eps, gamma, "spheres") == "rejected"
        assert rejected == sp_prunes(COMB, COMB_MOVED, eps, gamma)
        assert (eps, gamma, rejected) in ((5, 0.6, True), (5, 0.5, False), (5, 0.3, False), (6, 0.9, True),
                                          (6, 0.75, False), (3, 0.01, True))  # fmt: skip
    assert decided_by(COMB, COMB_MOVED, 3, 0.01, "balls") == "rejected"
    assert decided_by(COMB, COMB_MOVED, 4, 0.01, "balls") == "open"


def test_golden_05_line_and_shell_of_two_combs() -> None:
    assert line(COMB, COMB_MOVED, 5) == 1 / 16
    for a, b in ((COMB, COMB_MOVED), (COMB_MOVED, COMB)):
        low, high = shell(a, b, 5)
        assert low == 0.0
        assert 1 / 8 <= high < 1.0


def test_golden_08_and_09_weighted_samples() -> None:
    assert [described(each).near[0, 0] for each in (UNEVEN, UNEVEN_FAR)] == [3.25, 17.25]
    radii_of = [each.pool[-4:].tolist() for each in map(described, (UNEVEN, UNEVEN_FAR))]
    assert radii_of == [[1.25, 2.25, 3.25, 6.75], [3.25, 4.25, 5.25, 12.75]]
    assert spheres(UNEVEN, UNEVEN_FAR, 2) == pytest.approx(best_spheres(UNEVEN, UNEVEN_FAR, 2), abs=1e-15)
    assert decided_by(UNEVEN, UNEVEN_FAR, 2, 0.5, "spheres") == "rejected"
    assert decided_by(UNEVEN, UNEVEN_FAR, 2, 0.4, "spheres") == "open"
    # What lies within 1.5 of X's centre and within 8.5 of Y's is known to the next of 32 steps of the radius
    low, high = shell(UNEVEN_FAR, UNEVEN, 20)
    assert float(shell_bounds(UNEVEN_FAR, UNEVEN, 20 - 6.75 / SHELLS)[0]) - 1e-12 <= low <= 0.6 + 1e-12
    assert 0.64 - 1e-12 <= high <= float(shell_bounds(UNEVEN_FAR, UNEVEN, 20 + 6.75 / SHELLS)[1]) + 1e-12


def random_pairs(seed: int, count: int, most_dims: int = 10) -> Iterator[tuple[Cloud, Cloud, float]]:
    rng = np.random.default_rng(seed)
    for _ in range(fewer(count)):
        dim = int(rng.integers(1, most_dims + 1))
        a, b = (
            random_cloud(
                rng, dim, int(rng.integers(1, 12)), rng.choice(KINDS), weighted=bool(rng.integers(2)),
                size=float(rng.choice([0.3, 1.0, 2.0])), spread=float(rng.choice([0.5, 2.0])),
            )
            for _ in range(2)
        )  # fmt: skip
        yield a, b, random_eps(rng, a, b)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("weighted_centre", [False, True])
def test_line_bound_encloses_and_is_at_most_a_bin_off(weighted_centre: bool) -> None:
    how = {"weighted_centre": weighted_centre}
    useful = 0
    for a, b, eps in random_pairs(41, 400):
        if centre_distance(a, b, **how) < 1e-9:
            continue
        slack = safe_slack(a, b, eps)
        bound, width = line(a, b, eps, slack, **how), 2 * (radii(b, **how).max() + slack) / BINS
        assert bound >= float(probability(a, b, eps)) - 1e-13
        assert bound >= float(line_bound(a, b, eps, **how)) - 1e-13
        assert bound <= float(line_bound(a, b, eps, slack=1.01 * width + 3 * slack, **how)) + 1e-13
        useful += bound < 0.99
    assert useful > fewer(100)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("weighted_centre", [False, True])
def test_shell_bounds_enclose_and_are_at_most_a_step_off(weighted_centre: bool) -> None:
    how = {"weighted_centre": weighted_centre}
    useful = [0, 0]
    for a, b, eps in random_pairs(42, 400):
        slack = safe_slack(a, b, eps)
        (low, high), step = shell(a, b, eps, slack, **how), radii(b, **how).max() / SHELLS
        assert low - 1e-13 <= float(probability(a, b, eps)) <= high + 1e-13
        surest, widest = shell_bounds(a, b, eps, **how)
        assert low <= float(surest) + 1e-13
        assert high >= float(widest) - 1e-13
        coarse = 1.01 * step + 3 * slack
        assert low >= float(shell_bounds(a, b, eps, slack=coarse, **how)[0]) - 1e-13
        # a sample that is too far from all of b counts what lies in b's last step
        rho = radii(b, **how)[None, :]
        delta = distances(a.points, centre(b, **how)[None, :]).clip(max=eps + rho.max())
        assert high <= float(pair_mass(a, b, np.abs(delta - rho) <= eps + coarse)) + 1e-13
        useful[0] += low > 0
        useful[1] += high < 0.99
    assert min(useful) > fewer(80)


def test_spheres_bound_is_the_best_of_all_pairs_of_spheres() -> None:
    useful = 0
    for a, b, eps in random_pairs(43, 400):
        bound = spheres(a, b, eps)
        # centres are rounded in another order: ties of radii may fall on either side
        assert best_spheres(a, b, eps - 1e-9) - 1e-13 <= bound <= best_spheres(a, b, eps + 1e-9) + 1e-13
        assert spheres(a, b, eps + safe_slack(a, b, eps)) >= float(probability(a, b, eps)) - 1e-13
        if op_prunes(a, b, eps, slack=1e-9):
            assert bound == pytest.approx(0.0, abs=1e-13)
        useful += bound < 0.99
    assert useful > fewer(50)


def test_sample_level_rule_is_the_oracles() -> None:
    """Rejections by spheres alone, threshold by threshold, up to ties of the weights."""
    rejected = 0
    for a, b, eps in random_pairs(44, 150, 4):
        slack = safe_slack(a, b, eps)
        for gamma in (0.1, 0.5, 0.9):
            verdict = decided_by(a, b, eps, gamma, "spheres") == "rejected"
            lenient, firm = sp_prunes(a, b, eps, gamma, slack=-1e-9), sp_prunes(a, b, eps, gamma, slack=2 * slack)
            if a.weights is not None or b.weights is not None:
                firm = firm and sp_prunes(a, b, eps, gamma - 1e-9, slack=2 * slack)
            assert firm <= verdict <= lenient
            rejected += verdict
    assert rejected > fewer(40)


def test_moments_decide_as_cantelli_does() -> None:
    """A verdict is never on the wrong side of the exact moments, and misses only what is next to the threshold."""
    verdicts = []
    for a, b, eps in random_pairs(45, 250, 6):
        slack = safe_slack(a, b, eps)
        lower, upper = cantelli_bounds(a, b, eps)
        lower_inside, upper_outside = cantelli_bounds(a, b, eps, slack=1e-6)
        x, y = described(a, weighted_centre=True), described(b, weighted_centre=True)
        for threshold in (Threshold(0.1), Threshold(0.5, True), Threshold(0.9), Threshold(1.0), Threshold(None)):
            asked = question(eps, threshold, False, rule_codes(["moments"]))
            verdict = moments_verdict(asked, x.facts[0], y.facts[0], x.near, 0, y.near, 0, a.dim, slack)
            level = 0.0 if threshold.value is None else threshold.value
            if verdict < 0:
                assert upper <= level
            elif verdict > 0:
                assert lower >= level
                assert lower > 0
            else:
                assert upper_outside >= level * (1 - 1e-6)
                assert lower_inside <= level * (1 + 1e-6) + 1e-6
            verdicts.append(verdict)
    assert verdicts.count(-1) > fewer(100)
    assert verdicts.count(1) > fewer(40)


@pytest.mark.parametrize("offset", [1e3, 1e4, 1e5, 1e6])
def test_moments_far_from_the_origin(offset: float) -> None:
    """Half of Y is X's very place, so that Cantelli's bound is the probability, and the threshold: no room to err.

    The centre of Y is rounded to the grid of doubles at the offset, which is coarse beside the size of Y.
    """
    rng = np.random.default_rng(46)
    for size in (1e-2, 1.0, 100.0):
        for _ in range(60):
            here = offset + size * rng.uniform(-1, 1)
            half = int(rng.integers(1, 6))
            x, y = cloud([here]), cloud([here] * half + [here + size * rng.uniform(0.5, 1)] * half)
            assert keeps(x, y, 0.0, 0.5)
            assert joined([x], [y], 0.0, 0.5, rules=["moments"])[1], (x.points, y.points)


# ---------------------------------------------------------------------------------------------------------------------
# Cores and extents


def test_two_cores_leave_less_than_the_threshold() -> None:
    for value in (0.01, 0.1, 0.3, 0.5, 0.75, 0.9, 0.999, 1.0):
        for strict in (False, True):
            threshold = Threshold(value, strict)
            share = core_share(threshold)
            assert Fraction(share) ** 2 >= 1 - Fraction(threshold.reject_below)
            assert share <= math.sqrt(1 - value + 4e-12) + 1e-13
    assert core_share(Threshold(None)) > 1.0, "without a threshold the core is everything"


def test_extents_and_cores() -> None:
    """The core is the least sphere that holds more than the share; what is too far apart on the line never matches."""
    rejected = 0
    for a, b, eps in random_pairs(47, 300):
        slack = safe_slack(a, b, eps)
        for threshold in (Threshold(0.1), Threshold(0.5), Threshold(0.9, True), Threshold(None)):
            share = core_share(threshold)
            (place_a,), (core_a,) = extents(clouds(samples([a])), share)
            (place_b,), (core_b,) = extents(clouds(samples([b])), share)
            for each, core in ((a, core_a), (b, core_b)):
                rho, mass = radial_profile(each, weighted_centre=True)
                enough = [r for r, held in zip(rho, mass, strict=True) if held > Fraction(share)]
                assert core == pytest.approx(enough[0] if enough else rho[-1], abs=slack)
                assert described(each, share, True).near[each.dim, 0] == pytest.approx(core, abs=slack)
            assert abs(place_a - place_b) <= centre_distance(a, b, weighted_centre=True) + slack
            if abs(place_a - place_b) > core_a + core_b + eps + 2 * slack:
                rejected += 1
                assert not keeps(a, b, eps, threshold.value, threshold.strict)
    assert rejected > fewer(50)


def test_extents_are_places_on_one_line() -> None:
    """The direction is a unit vector without equal parts, the same for all objects of a dimension."""
    for dim in range(1, 11):
        corners = [cloud([point]) for point in np.eye(dim)]
        place, core = extents(clouds(samples(corners)), 0.5)
        assert (place * place).sum() == pytest.approx(1.0, abs=1e-15)
        assert len(set(place.round(12))) == dim
        assert (core == 0).all()


@pytest.mark.parametrize("strict", [False, True])
def test_least_kept_count(strict: bool) -> None:
    """The least number of near pairs that is kept, for each number of pairs, against fractions."""
    for gamma in (0.01, 0.07, 0.1, 0.29, 0.3, 0.34, 0.5, 0.57, 0.93, 1.0):
        asked = question(1.0, Threshold(gamma, strict), True, frozenset())
        for pairs in (1, 2, 3, 7, 10, 64, 100, 625, 9999, 10_000, 123_457):
            product = as_decimal(gamma) * pairs
            wanted = math.floor(product) + 1 if strict else math.ceil(product)
            assert least_kept(asked, float(pairs), True) == max(1, wanted)
    assert least_kept(question(1.0, Threshold(None, strict), True, frozenset()), 100.0, True) == 1


def test_weighted_pairs_are_kept_up_to_the_tolerance() -> None:
    """Next to the threshold, on both sides of the forgiven 1e-12, and no further."""
    rng = np.random.default_rng(48)
    decided = {True: 0, False: 0}
    for off in (0.0, 5e-13, 2e-12, -5e-13, -2e-12):
        share = Fraction(3, 10) + Fraction(off)
        a, b = cloud([0, 9], [share, 1 - share]), cloud(rng.uniform(-1, 1, 5), random_weights(rng, 5))
        for strict in (False, True):
            assert not borderline(a, b, 3.0, 0.3, strict, margin=1e-13)
            kept = keeps(a, b, 3.0, 0.3, strict)
            decided[kept] += 1
            for rules in RULE_SETS:
                for way in ("exact", "none"):
                    how = {"strict": strict, "rules": rules, "probability": way}
                    assert bool(joined([a], [b], 3.0, 0.3, **how)[1]) == kept, (off, strict, rules)
    assert min(decided.values()) > 2
