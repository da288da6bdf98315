"""Compute the probability that several conditions hold together: a product only if they share no uncertain value.

The values are the nodes of a graph and the conditions its links. If the graph is a tree, the weight of a value at ``x``
is multiplied by the weights that each branch has left, given ``x``: these are sums over samples, and for continuous
laws integrals of piecewise polynomials, cut wherever a branch begins or ends to contribute.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from haply.errors import HaplyError
from haply.models import Certain, Gaussian, GaussianND, Mixture, MixtureND, Model, OneDimensional, Samples, Sky
from haply.numerics.components import NORMAL, POINT, component_cdf, smooth_window
from haply.numerics.jit import bare, kernel
from haply.numerics.normal import NODES, SQRT_2PI, cut_pdf
from haply.numerics.scale import powers_of
from haply.probability.distance import clouds, scaled_limit, within_distance
from haply.probability.exact import region_probability
from haply.probability.multivariate import box_probability, squared
from haply.probability.region import Difference, Distance, Linear, Region

Condition = Difference | Distance | Linear
_Item = TypeVar("_Item")

ZERO = "0"
"""The name of a value that is always present and 0: comparing a value with a number compares it with this one."""
POINTS = (Certain, Samples, Gaussian, Mixture, GaussianND, MixtureND, Sky)
"""The models between which distances can be computed."""
MOST_NORMALS = 3
"""The most differences of Gaussians in a circle: boxes in this many dimensions are exact."""


def joint_probability(values: Mapping[str, Model], conditions: Sequence[Condition]) -> np.ndarray:
    """Compute the probability that all conditions hold together, for each row.

    Values with one name are one random variable, so that conditions that share a value are not independent.

    Parameters
    ----------
    values
        Models by name. A model with one row is used for all rows of the others.
    conditions
        ``Difference`` and ``Distance`` conditions, which name the values that they compare.

    Returns
    -------
    numpy.ndarray
        A probability for each row.

    Raises
    ------
    HaplyError
        If the conditions together cannot be computed.

    Examples
    --------
    >>> from haply.models import Samples
    >>> near = Region(-1, 1)
    >>> values = {"a": Samples([[0, 4]]), "b": Samples([[0, 4]]), "c": Samples([[0, 4]])}
    >>> joint_probability(values, [Difference("a", "b", near), Difference("b", "c", near)])
    array([0.25])
    """
    joint = Joint.of(conditions, {name: type(model) for name, model in values.items()})
    return joint.probability(values)[0]


@dataclass(frozen=True)
class Joint:
    """Holds conditions in groups that share no uncertain value: the groups' probabilities multiply."""

    groups: tuple[tuple[Condition, ...], ...]

    @classmethod
    def of(cls, conditions: Sequence[Condition], kinds: Mapping[str, type[Model]]) -> Joint:
        """Group conditions; refuse those that cannot be computed, before any data is read."""
        problem = cls.problem(conditions, kinds)
        if problem is not None:
            raise problem
        return cls(_groups(conditions, kinds))

    @staticmethod
    def problem(conditions: Sequence[Condition], kinds: Mapping[str, type[Model]]) -> HaplyError | None:
        """Return the error for conditions that cannot be computed, or None."""
        known: dict[str, type[Model]] = {**kinds, ZERO: Certain}
        return next((found for group in _groups(conditions, kinds) if (found := _problem(group, known))), None)

    @property
    def names(self) -> list[str]:
        """Return the names of the values in the conditions, each once."""
        named = dict.fromkeys(name for group in self.groups for one in group for name in one.names)
        return [name for name in named if name != ZERO]

    def probability(self, values: Mapping[str, Model]) -> tuple[np.ndarray, bool]:
        """Return the probability for each row, and whether all are counts of equally likely cases, rounded once."""
        values = {**values, ZERO: Certain([0.0])}
        found, counts = np.ones(1), len(self.groups) == 1
        for group in self.groups:
            part, counted = _probability(group, values)
            found, counts = found * part, counts and counted
        return found, counts

    def bounds(self, values: Mapping[str, Model]) -> tuple[np.ndarray, np.ndarray]:
        """Return a lower and an upper bound for each row, from single conditions.

        The upper bound of a group is its least probability. The lower bound is 1 minus the sum of the complements, or
        0.
        """
        values = {**values, ZERO: Certain([0.0])}
        lower, upper = np.ones(1), np.ones(1)
        for group in self.groups:
            alone = [_probability((one,), values)[0] for one in group]
            upper = upper * np.minimum.reduce(np.broadcast_arrays(*alone))
            lower = lower * np.maximum(0.0, 1.0 - np.add.reduce(np.broadcast_arrays(*(1.0 - one for one in alone))))
        return lower, upper

    def likely(self, values: Mapping[str, Model], least: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
        """Return the rows whose probability may be above ``least``, their probabilities, and whether these are counts.

        Each condition is first computed by itself: a group is at most as likely as its least likely condition. Rows
        that this rejects are not computed, and groups of one condition are then known.
        """
        values = {**values, ZERO: Certain([0.0])}
        alone = [[_probability((one,), values) for one in group] for group in self.groups]
        bound = np.ones(len(least))
        for parts in alone:
            bound = bound * np.minimum.reduce(np.broadcast_arrays(*(part for part, _ in parts)))
        rows = np.flatnonzero(bound > least)
        chosen: dict[str, Model] = {}
        found, counts = np.ones(len(rows)), len(self.groups) == 1
        for group, parts in zip(self.groups, alone, strict=True):
            if len(group) == 1:
                part, counted = np.broadcast_to(parts[0][0], bound.shape)[rows], parts[0][1]
            else:
                chosen = chosen or {name: m if len(m) == 1 else m.take(rows) for name, m in values.items()}
                part, counted = _probability(group, chosen)
            found, counts = found * part, counts and counted
        return rows, found, counts


def independent_groups(items: Sequence[_Item], names_of: Callable[[_Item], Iterable[str]]) -> list[tuple[_Item, ...]]:
    """Group items so that no two groups share a name; groups and items stay in the order in which they come."""
    groups: list[tuple[set[str], list[int]]] = []
    for number, item in enumerate(items):
        names, members = set(names_of(item)), [number]
        for group in [group for group in groups if group[0] & names]:
            names, members = names | group[0], members + group[1]
            groups.remove(group)
        groups.append((names, sorted(members)))
    return [tuple(items[number] for number in members) for _, members in sorted(groups, key=lambda group: group[1])]


def _groups(conditions: Sequence[Condition], kinds: Mapping[str, type[Model]]) -> tuple[tuple[Condition, ...], ...]:
    """Put conditions that share uncertain values into groups; sharing certain values leaves them independent."""
    known = {**kinds, ZERO: Certain}
    return tuple(independent_groups(conditions, lambda one: (name for name in one.names if known[name] is not Certain)))


def _problem(group: tuple[Condition, ...], kinds: Mapping[str, type[Model]]) -> HaplyError | None:
    """Return the error for conditions that share values and cannot be computed together, or None."""
    names = {name for condition in group for name in condition.names}
    for condition in group:
        if len(set(condition.names)) < len(condition.names):
            return HaplyError(f"A condition compares '{condition.names[0]}' with itself")
        for name in condition.names:
            if isinstance(condition, Distance) and not issubclass(kinds[name], POINTS):
                return HaplyError(
                    f"A distance is asked of '{name}'",
                    expected="points, samples, Gaussians or mixtures of them",
                    found=kinds[name].__name__,
                )
            if not isinstance(condition, Distance) and not issubclass(kinds[name], OneDimensional):
                return HaplyError(
                    f"A sum or a difference is asked of '{name}'",
                    expected="a one-dimensional value",
                    found=kinds[name].__name__,
                )
    if any(isinstance(condition, Linear) for condition in group) and not _are_few_normals(group, kinds):
        other = next((name for name in sorted(names) if kinds[name] not in (Gaussian, Certain)), None)
        return HaplyError(
            "A sum of uncertain values is tied to others",
            expected=f"up to {MOST_NORMALS} conditions that share values, all of them Gaussian",
            found=f"{len(group)} conditions" if other is None else f"'{other}', {kinds[other].__name__}",
        )
    if len(group) == 1:
        return None
    if _goes_round(group, kinds) and not _are_few_normals(group, kinds):
        return HaplyError(
            "Uncertain conditions go round in a circle",
            expected="conditions that tie values as the branches of a tree do, with one way between any two, or up to "
            f"{MOST_NORMALS} between Gaussians",
            found=" and ".join(" with ".join(one.names) for one in group),
            hint="leave one out; what it asks may follow from the others",
        )
    if any(isinstance(condition, Distance) for condition in group):
        other = next((name for name in sorted(names) if not issubclass(kinds[name], (Samples, Certain))), None)
        if other is not None:
            return HaplyError(
                f"A distance is tied to '{other}' by a value that both speak of",
                expected="samples throughout",
                found=kinds[other].__name__,
            )
    return None


def _goes_round(group: tuple[Condition, ...], kinds: Mapping[str, type[Model]]) -> bool:
    """Tell whether there are two ways between two uncertain values: all are connected, and a tree has one tie less."""
    tied = [{name for name in one.names if kinds[name] is not Certain} for one in group]
    ties = [names for names in tied if len(names) > 1]
    return len(ties) > len(set().union(*tied)) - 1


def _are_few_normals(group: tuple[Condition, ...], kinds: Mapping[str, type[Model]]) -> bool:
    """Tell whether the differences are jointly normal, and few enough for their box to be exact."""
    normal = all(kinds[name] in (Gaussian, Certain) for one in group for name in one.names)
    return normal and len(group) <= MOST_NORMALS and not any(isinstance(one, Distance) for one in group)


def _probability(group: tuple[Condition, ...], values: Mapping[str, Model]) -> tuple[np.ndarray, bool]:
    """Return the probabilities of one group, and whether they are counts."""
    models = [values[name] for condition in group for name in condition.names]
    points = all(isinstance(model, (Certain, Samples)) for model in models)
    counts = points and all(isinstance(model, OneDimensional) and model.equal_weight_samples() for model in models)
    if len(group) == 1 and not isinstance(group[0], Linear):
        condition, left, right = group[0], models[0], models[1]
        if isinstance(condition, Distance):
            return within_distance(left, right, condition.limit), counts
        assert isinstance(left, OneDimensional)
        assert isinstance(right, OneDimensional)
        return region_probability(left, right, condition.region), counts
    rows = _common_length(models)
    sums = any(isinstance(one, Linear) for one in group)
    if sums or _goes_round(group, {name: type(model) for name, model in values.items()}):
        return _of_normals(group, values, rows), False
    nodes, tree = _tree(group, values)
    return (_of_points if points else _of_laws)(nodes, tree, rows), counts


def _common_length(nodes: list[Model]) -> int:
    lengths = {len(node) for node in nodes}
    if len(lengths - {1}) > 1:
        raise HaplyError(
            "The values differ in length", expected="equal lengths, or one row", found=str(sorted(lengths))
        )
    return min(lengths) if 0 in lengths else max(lengths)


# -- differences that are jointly normal -------------------------------------------------------------------------------


def _of_normals(group: tuple[Condition, ...], values: Mapping[str, Model], rows: int) -> np.ndarray:
    """Compute a box of the sums and differences; the outside of an interval is everything minus the interval."""
    names = sorted({name for one in group for name in one.names})
    signs = np.zeros((len(group), len(names)))
    ends, outside = np.empty((2, len(group))), []
    for k, one in enumerate(group):
        assert not isinstance(one, Distance)
        for name, factor in one.terms if isinstance(one, Linear) else ((one.left, 1.0), (one.right, -1.0)):
            signs[k, names.index(name)] = factor
        ends[:, k] = one.region.low, one.region.high
        if one.region.outside:
            outside.append(k)
    models = [values[name] for name in names]
    mean, spread = (
        np.stack([np.broadcast_to(getattr(model, what)(), rows) for model in models], axis=1)
        for what in ("mean", "deviation")
    )
    power = powers_of(np.maximum(np.abs(mean), spread).max(axis=1))
    if power is not None:
        mean, spread = np.ldexp(mean, -power[:, None]), np.ldexp(spread, -power[:, None])
    variance = squared(spread)
    means, covs = mean @ signs.T, np.einsum("kn,in,ln->ikl", signs, variance, signs)
    total = np.zeros(rows)
    for inside in itertools.product((False, True), repeat=len(outside)):
        low, high = ends.copy()
        for k, taken in zip(outside, inside, strict=True):
            if not taken:
                low[k], high[k] = -math.inf, math.inf
        if power is not None:
            low, high = (np.ldexp(end, -power[:, None]) for end in (low, high))
        total += (-1.0) ** sum(inside) * box_probability(means, covs, low, high)
    return np.clip(total, 0.0, 1.0)


# -- the tree ----------------------------------------------------------------------------------------------------------


class _Tree(NamedTuple):
    """Links from the leaves to the root: ``parent[k]`` is the parent of node ``child[k]``.

    ``parent - child`` must lie in the region. For a distance ``limit`` is the squared limit instead; it is negative for
    differences.
    """

    child: np.ndarray
    parent: np.ndarray
    low: np.ndarray
    high: np.ndarray
    low_closed: np.ndarray
    high_closed: np.ndarray
    outside: np.ndarray
    limit: np.ndarray
    scale: np.ndarray
    """The factor for differences before they are squared (see ``scaled_limit``)."""


def _tree(group: tuple[Condition, ...], values: Mapping[str, Model]) -> tuple[list[Model], _Tree]:
    """Return nodes and links; a certain value is a node for each condition, which does not change the probability.

    The root is the value with most conditions: fewer steps to the root give fewer pieces.
    """
    number: dict[str, int] = {}
    nodes: list[Model] = []
    links: list[tuple[int, int, Condition]] = []
    for condition in group:
        ends = []
        for name in condition.names:
            if isinstance(values[name], Certain) or name not in number:
                number[name] = len(nodes)
                nodes.append(values[name])
            ends.append(number[name])
        links.append((ends[0], ends[1], condition))
    degree = np.bincount([end for left, right, _ in links for end in (left, right)])
    reached, order = {int(degree.argmax())}, []
    while links:
        at = next(k for k, (left, right, _) in enumerate(links) if left in reached or right in reached)
        left, right, condition = links.pop(at)
        parent, child = (left, right) if left in reached else (right, left)
        reached.add(child)
        region, limit, scale = Region(-math.inf, math.inf), -1.0, 1.0
        if isinstance(condition, Distance):
            limit, scale = scaled_limit(condition.limit)
        elif isinstance(condition, Difference):
            region = condition.region if parent == left else _negative(condition.region)
        order.append((child, parent, *_fields(region), limit, scale))
    order.reverse()
    columns = zip(*order, strict=True)
    kinds = (np.int64, np.int64, np.float64, np.float64, np.bool_, np.bool_, np.bool_, np.float64, np.float64)
    return nodes, _Tree(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))


def _negative(region: Region) -> Region:
    return Region(-region.high, -region.low, region.high_closed, region.low_closed, region.outside)


def _fields(region: Region) -> tuple[Any, ...]:
    return region.low, region.high, region.low_closed, region.high_closed, region.outside


@bare
def _allows(tree, link, difference):
    above = difference > tree.low[link] or (tree.low_closed[link] and difference == tree.low[link])
    below = difference < tree.high[link] or (tree.high_closed[link] and difference == tree.high[link])
    return (above and below) != tree.outside[link]


# -- samples, in any dimension -----------------------------------------------------------------------------------------


class _Points(NamedTuple):
    """Samples of all nodes in one array; for each node and row, where samples and weights begin, and their number."""

    dim: np.ndarray
    points: np.ndarray
    weight: np.ndarray
    at: np.ndarray
    heavy: np.ndarray
    many: np.ndarray
    whole: np.ndarray


def _of_points(nodes: list[Model], tree: _Tree, rows: int) -> np.ndarray:
    every = [clouds(node) for node in nodes]
    for child, parent, limit in zip(tree.child, tree.parent, tree.limit, strict=True):
        one, other = every[child].dim, every[parent].dim
        if one != other or (limit < 0.0 and one != 1):
            raise HaplyError(
                "Points differ in dimension",
                expected="equal ones" if limit >= 0.0 else "dim = 1",
                found=f"dim = {one} and {other}",
            )
    at, heavy, count, whole = [], [], [], []
    place = load = 0
    for each in every:
        chosen = np.arange(rows) if len(each.whole) == rows else np.zeros(rows, np.int64)
        at.append(place + each.dim * each.start[:-1][chosen])
        heavy.append(load + each.start[:-1][chosen])
        count.append(np.diff(each.start)[chosen])
        whole.append(each.whole[chosen])
        place, load = place + len(each.points), load + len(each.weight)
    points = _Points(
        np.array([each.dim for each in every]),
        np.concatenate([each.points for each in every]),
        np.concatenate([each.weight for each in every]),
        *(np.array(column) for column in (at, heavy, count, whole)),
    )
    out = np.empty(rows)
    _sum_trees(points, tree, np.empty((len(nodes), max(each.most for each in every))), out)
    return out


@bare
def _sum_trees(points, tree, left, out):
    """Write ``left[v, k]``: the weight of sample ``k`` of node ``v``, times the weights left by its branches."""
    root = tree.parent[-1]
    for i in range(len(out)):
        whole = 1.0
        for v in range(len(left)):
            whole *= points.whole[v, i]
            for k in range(points.many[v, i]):
                left[v, k] = points.weight[points.heavy[v, i] + k]
        for link in range(len(tree.child)):
            child, parent = tree.child[link], tree.parent[link]
            for k in range(points.many[parent, i]):
                near = 0.0
                for j in range(points.many[child, i]):
                    near += left[child, j] if _is_near(points, tree, link, i, k, j) else 0.0
                left[parent, k] *= near
        total = 0.0
        for k in range(points.many[root, i]):
            total += left[root, k]
        out[i] = min(1.0, total / whole)


@bare
def _is_near(points, tree, link, i, k, j):
    child, parent = tree.child[link], tree.parent[link]
    here, there = points.at[parent, i] + k, points.at[child, i] + j
    if tree.limit[link] < 0.0:
        return _allows(tree, link, points.points[here] - points.points[there])
    square = 0.0
    for c in range(points.dim[parent]):
        u = points.points[here + c * points.many[parent, i]] - points.points[there + c * points.many[child, i]]
        u *= tree.scale[link]
        square += u * u
    return square <= tree.limit[link]


# -- one-dimensional laws ----------------------------------------------------------------------------------------------

_TERMS = len(NODES) + 1
_STEP = 1.3
"""The length of a piece of a normal, in standard deviations: the nodes are then exact up to rounding."""


def _integrals() -> np.ndarray:
    """Return a matrix from values of a polynomial at the nodes to the Legendre coefficients of its integral from -1."""
    legendre = np.polynomial.legendre
    matrix = np.linalg.inv(legendre.legvander(NODES, len(NODES) - 1))
    return np.stack([legendre.legint(column, lbnd=-1) for column in matrix.T], axis=1)


_INTEGRAL = _integrals()


class _Laws(NamedTuple):
    """Components of all nodes in one set of arrays (see ``numerics.components``), and the range of a node and row."""

    first: np.ndarray
    last: np.ndarray
    weight: np.ndarray
    kind: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


class _Profile(NamedTuple):
    """The mass left at each node: atoms, and an integral over pieces. All but ``value`` is relative to the anchor.

    The atoms of node ``v`` are ``atom[v]:atom[v + 1]``; its pieces lie between the edges ``edge[v]:edge[v + 1]``, which
    may not all be used. ``before`` is the mass before an edge, ``terms`` the rest within the piece that begins.
    ``step`` is the length over which a law changes if an edge is there for that, and 0 if the law has a corner.
    """

    atom: np.ndarray
    value: np.ndarray
    place: np.ndarray
    mass: np.ndarray
    edge: np.ndarray
    end: np.ndarray
    cut: np.ndarray
    step: np.ndarray
    before: np.ndarray
    terms: np.ndarray
    total: np.ndarray


def _of_laws(nodes: list[Model], tree: _Tree, rows: int) -> np.ndarray:
    every = [node.components for node in nodes if isinstance(node, OneDimensional)]
    offsets = np.cumsum([0, *(len(each.weight) for each in every)])
    first, last = np.empty((len(nodes), rows), np.int64), np.empty((len(nodes), rows), np.int64)
    for v, each in enumerate(every):
        one = len(each.start) == 2
        first[v] = offsets[v] + (each.start[0] if one else each.start[:-1])
        last[v] = offsets[v] + (each.start[1] if one else each.start[1:])
    names = ("weight", "kind", "low", "high", "mean", "sd")
    laws = _Laws(first, last, *(np.concatenate([getattr(each, name) for each in every]) for name in names))
    return _integrate_trees(laws, tree)


@kernel
def _integrate_trees(laws, tree):
    nodes, rows = laws.first.shape
    out = np.empty(rows)
    atom, edge = np.zeros(nodes + 1, np.int64), np.zeros(nodes + 1, np.int64)
    atoms = edges = 0
    for i in range(rows):
        _count_pieces(laws, tree, i, atom, edge)
        atoms, edges = max(atoms, atom[nodes]), max(edges, edge[nodes])
    profile = _Profile(
        atom, np.empty(atoms), np.empty(atoms), np.empty(atoms), edge, np.empty(nodes, np.int64), np.empty(edges),
        np.empty(edges), np.empty(edges), np.empty((edges, _TERMS)), np.empty(nodes),
    )  # fmt: skip
    leaf = np.ones(nodes, np.bool_)
    for parent in tree.parent:
        leaf[parent] = False
    values = np.empty(len(NODES))
    for i in range(rows):
        _count_pieces(laws, tree, i, atom, edge)
        out[i] = _integrate_tree(laws, tree, i, profile, leaf, values)
    return out


@bare
def _ladder(laws, k):
    """Return where a component begins and ends, and the number of pieces on which polynomials replace it."""
    if laws.kind[k] != NORMAL:
        return laws.low[k], laws.high[k], 0 if laws.kind[k] == POINT else 1
    down, up, scale = smooth_window(laws.mean[k], laws.sd[k], laws.low[k], laws.high[k])
    mode = min(max(laws.mean[k], laws.low[k]), laws.high[k])
    return mode + down, mode + up, 1 + int((up - down) / (_STEP * scale))


@bare
def _count_pieces(laws, tree, i, atom, edge):
    """Count the atoms and edges of each node: its own, and two edges for each atom and edge of a child."""
    nodes = len(laws.first)
    atom[:] = 0
    edge[:] = 0
    for v in range(nodes):
        for k in range(laws.first[v, i], laws.last[v, i]):
            pieces = _ladder(laws, k)[2]
            atom[v + 1] += 1 if pieces == 0 else 0
            edge[v + 1] += pieces + 1 if pieces > 0 else 0
    for link in range(len(tree.child)):
        child, parent = tree.child[link] + 1, tree.parent[link] + 1
        if edge[parent] > 0:
            edge[parent] += 2 * (atom[child] + edge[child])
    for v in range(nodes):
        atom[v + 1] += atom[v]
        edge[v + 1] += edge[v]


@kernel
def _integrate_tree(laws, tree, i, profile, leaf, values):
    root = tree.parent[-1]
    anchor = laws.low[laws.first[root, i]]
    if not abs(anchor) < math.inf:
        anchor = laws.mean[laws.first[root, i]]
    links = len(tree.child)
    for link in range(links + 1):
        v = tree.child[link] if link < links else root
        end = _cut(laws, tree, v, i, anchor, profile)
        profile.end[v] = end
        cut, step = profile.cut[profile.edge[v] : end], profile.step[profile.edge[v] : end]
        order = np.argsort(cut)
        cuts, steps = cut[order], step[order]
        for k in range(len(order)):  # numba takes seconds to compile the copy of an array into a slice
            cut[k], step[k] = cuts[k], steps[k]
        _fill(laws, tree, v, i, anchor, profile, leaf, values)
    return min(1.0, max(0.0, profile.total[root]))


@bare
def _fill(laws, tree, v, i, anchor, profile, leaf, values):
    """Compute the mass left at a node, from its cut pieces and the mass left at its branches."""
    at, total = profile.atom[v], 0.0
    for k in range(laws.first[v, i], laws.last[v, i]):
        if laws.kind[k] == POINT:
            value = laws.low[k]
            place = value - anchor
            mass = laws.weight[k] * _passed(laws, tree, v, i, anchor, value, place, True, profile, leaf)
            profile.value[at], profile.place[at], profile.mass[at] = value, place, mass
            total += mass
            at += 1
    if leaf[v]:
        profile.total[v] = 1.0
        return
    held, end = 0.0, profile.end[v]
    for e in range(profile.edge[v], end):
        profile.before[e] = held
        if e + 1 == end:
            break
        left, right = profile.cut[e], profile.cut[e + 1]
        middle, half = 0.5 * (left + right), 0.5 * (right - left)
        for n in range(len(values)):
            x = middle + half * NODES[n]
            density = _density(laws, v, i, x, anchor)
            if density > 0.0:
                density *= _passed(laws, tree, v, i, anchor, x, x, False, profile, leaf)
            values[n] = density
        piece = 0.0
        for term in range(_TERMS):
            coefficient = 0.0
            for n in range(len(values)):
                coefficient += _INTEGRAL[term, n] * values[n]
            profile.terms[e, term] = half * coefficient
            piece += half * coefficient  # each Legendre polynomial is 1 at 1
        held += max(0.0, piece)
    profile.total[v] = total + held


@bare
def _cut(laws, tree, v, i, anchor, profile):
    """Write the edges of a node's pieces, not yet sorted; return their end."""
    begin = end = profile.edge[v]
    cut, step = profile.cut, profile.step
    coarsest = 0.0
    for k in range(laws.first[v, i], laws.last[v, i]):
        low, high, pieces = _ladder(laws, k)
        if pieces > 0:
            low, high = low - anchor, high - anchor
            length = (high - low) / pieces if laws.kind[k] == NORMAL else math.inf
            coarsest = max(coarsest, length)
            for n in range(pieces + 1):
                cut[end + n] = low + (high - low) * (n / pieces) if n < pieces else high
                step[end + n] = length if 0 < n < pieces else 0.0
            if laws.low[k] == -math.inf and laws.high[k] == math.inf:
                step[end] = step[end + pieces] = length
            end += pieces + 1
    if end == begin:
        return end
    least, most = math.inf, -math.inf
    for e in range(begin, end):
        least, most = min(least, cut[e]), max(most, cut[e])
    for link in range(len(tree.child)):
        if tree.parent[link] == v:
            child = tree.child[link]
            for shift in (tree.low[link], tree.high[link]):
                for e in range(profile.edge[child], profile.end[child]):
                    if least < cut[e] + shift < most and step[e] < coarsest:  # otherwise pieces are short enough
                        cut[end], step[end] = cut[e] + shift, step[e]
                        end += 1
                for a in range(profile.atom[child], profile.atom[child + 1]):
                    if least < profile.place[a] + shift < most:
                        cut[end], step[end] = profile.place[a] + shift, 0.0
                        end += 1
    return end


@bare
def _density(laws, v, i, x, anchor):
    total = 0.0
    for k in range(laws.first[v, i], laws.last[v, i]):
        low, high = laws.low[k] - anchor, laws.high[k] - anchor
        if laws.kind[k] == POINT or x < low or x > high:
            continue
        if laws.kind[k] != NORMAL:
            total += laws.weight[k] / (high - low)
        elif low == -math.inf and high == math.inf:
            z = (x - (laws.mean[k] - anchor)) / laws.sd[k]
            total += laws.weight[k] * math.exp(-0.5 * z * z) / (SQRT_2PI * laws.sd[k])
        else:
            total += laws.weight[k] * cut_pdf(laws.mean[k] - anchor, laws.sd[k], low, high, x)
    return total


@bare
def _passed(laws, tree, v, i, anchor, value, place, is_atom, profile, leaf):
    """Return the share left by all branches of a node at this value. Atoms are compared by value, so ties are exact."""
    passed = 1.0
    for link in range(len(tree.child)):
        if tree.parent[link] != v:
            continue
        child = tree.child[link]
        inside = 0.0
        for a in range(profile.atom[child], profile.atom[child + 1]):
            difference = value - profile.value[a] if is_atom else place - profile.place[a]
            inside += profile.mass[a] if _allows(tree, link, difference) else 0.0
        if profile.end[child] > profile.edge[child]:
            nearest, farthest = place - tree.high[link], place - tree.low[link]
            if leaf[child]:
                between, whole = _law_between(laws, child, i, anchor, nearest, farthest)
            else:
                between = _mass_below(profile, child, farthest) - _mass_below(profile, child, nearest)
                whole = profile.before[profile.end[child] - 1]
            inside += max(0.0, whole - between if tree.outside[link] else between)
        passed *= inside
    return passed


@bare
def _law_between(laws, v, i, anchor, nearest, farthest):
    """Return the mass of a leaf's continuous components between two places, and their whole mass."""
    between, whole = 0.0, 0.0
    for k in range(laws.first[v, i], laws.last[v, i]):
        if laws.kind[k] != POINT:
            low, high, mean = laws.low[k] - anchor, laws.high[k] - anchor, laws.mean[k] - anchor
            whole += laws.weight[k]
            if farthest > low and nearest < high:
                upto = 1.0 if farthest >= high else component_cdf(laws.kind[k], low, high, mean, laws.sd[k], farthest)
                before = 0.0 if nearest <= low else component_cdf(laws.kind[k], low, high, mean, laws.sd[k], nearest)
                between += laws.weight[k] * (upto - before)
    return between, whole


@bare
def _mass_below(profile, v, x):
    """Return the mass left in a node's pieces below ``x``."""
    begin, last = profile.edge[v], profile.end[v] - 1
    if not x > profile.cut[begin]:
        return 0.0
    if x >= profile.cut[last]:
        return profile.before[last]
    low, high = begin, last
    while high - low > 1:
        middle = (low + high) // 2
        if profile.cut[middle] <= x:
            low = middle
        else:
            high = middle
    width = profile.cut[high] - profile.cut[low]
    s = 2.0 * ((x - profile.cut[low]) / width) - 1.0
    above, above_that = 0.0, 0.0
    for term in range(_TERMS - 1, 0, -1):  # Clenshaw's sum of a Legendre series
        above, above_that = (
            (profile.terms[low, term] + (2 * term + 1) / (term + 1) * s * above - (term + 1) / (term + 2) * above_that),
            above,
        )
    return profile.before[low] + profile.terms[low, 0] + s * above - 0.5 * above_that
