"""Measure what the probability of one row costs on this machine, by how it is computed, once; keep it in a file.

Only ratios matter: they tell which group of conditions a row should have computed first.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from haply._version import __version__
from haply.folders import private_folder
from haply.models import Gaussian, GaussianND, Model
from haply.selection.conditions import Apart, Polynomial, Range, RowValues
from haply.selection.group import BOX, CURVED, FORM, LATTICE, NESTED, SUM, TREE, Group
from haply.selection.grouping import group_of
from haply.selection.methods.nested import integrals_of

_ROWS, _ROUNDS = 2_000, 3
_GROWTH = {BOX: 4.0, FORM: 1.5, CURVED: 1.5, TREE: 2.0}
"""How much dearer one more dimension is than the largest that was measured."""
_INTEGRAL = 1e-4
"""Seconds for a row with one numerical integral, about; each more takes a hundred times that."""
_ABOUT = {SUM: 5e-3, LATTICE: 0.5}
"""Seconds for a row with a sum of many values, and with a mean over a lattice, about."""


@dataclass(frozen=True)
class Costs:
    """Seconds per row by the name of the cost."""

    seconds: tuple[tuple[str, float], ...]

    def of(self, group: Group) -> float:
        """Estimate what a row of a group costs."""
        if group.method == NESTED:
            return _INTEGRAL * 100.0 ** (integrals_of(group.conditions, group.kinds) - 1)
        if group.method in _ABOUT:
            return _ABOUT[group.method]
        if group.either:
            return sum(map(self.of, group.inner), 1e-9)
        known = dict(self.seconds)
        found = known.get(group.cost_name)
        if found is not None:
            return found
        sizes = [int(name.split()[1]) for name in known if name.startswith(f"{group.method} ")]
        near = min(sizes, key=lambda size: abs(size - group.size))
        return known[f"{group.method} {near}"] * _GROWTH[group.method] ** (group.size - near)

    def of_bounds(self, group: Group) -> float:
        """Estimate what the bounds of a row cost at a threshold of one half; infinite if that is not known."""
        return dict(self.seconds).get(_bounds_of(group), math.inf)

    @classmethod
    def of_this_machine(cls) -> Costs:
        """Return the costs measured before, or measure them now and keep them."""
        return _of_this_machine(str(costs_file()))


@lru_cache(maxsize=4)
def _of_this_machine(path: str) -> Costs:
    try:
        kept = json.loads(Path(path).read_text())
        if kept["machine"] == _machine() and set(_names()) <= set(kept["seconds"]):
            return Costs(tuple((str(name), float(value)) for name, value in kept["seconds"].items()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return calibrate(Path(path))


def costs_file() -> Path:
    """Return where the costs are kept; ``HAPLY_COSTS`` names another place."""
    named = os.environ.get("HAPLY_COSTS")
    return Path(named) if named else private_folder("costs") / "costs.json"


def calibrate(path: Path | None = None) -> Costs:
    """Measure the costs, and keep them if the place can be written."""
    seconds = {}
    for name, group, batch in _examples():
        seconds[name] = _measured(lambda: group.prepare(batch).exact(), batch.rows)  # noqa: B023
        if group.has_bounds:
            bounds = lambda: group.prepare(batch).bounds(0.5, 0.5)  # noqa: B023, E731
            seconds[_bounds_of(group)] = _measured(bounds, batch.rows)
    costs = Costs(tuple(seconds.items()))
    where = path or costs_file()
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        fresh = where.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"machine": _machine(), "seconds": dict(costs.seconds)}, indent=1))
        fresh.replace(where)
    except OSError:
        pass  # a place that cannot be written to: measured again next time
    _of_this_machine.cache_clear()
    return costs


def _machine() -> str:
    return f"{platform.machine()} {platform.processor()} {os.cpu_count()} haply {__version__}"


def _measured(work: Callable[[], object], rows: int) -> float:
    def once() -> float:
        begun = time.thread_time()
        work()
        return time.thread_time() - begun

    once()  # compiles
    return max(min(once() for _ in range(_ROUNDS)) / rows, 1e-10)


def _bounds_of(group: Group) -> str:
    return f"bounds of {group.cost_name}"


def _names() -> Iterator[str]:
    for name, group, _ in _examples():
        yield name
        if group.has_bounds:
            yield _bounds_of(group)


def _examples() -> list[tuple[str, Group, RowValues]]:
    """Make a group of each kind, and rows that no bound decides at once."""
    random = np.random.default_rng(7)
    names = "abcd"
    values: dict[str, Model] = {
        name: Gaussian(random.normal(0, 1, _ROWS), 0.5 + random.random(_ROWS)) for name in names
    }
    points = random.normal(0, 1, (3, _ROWS, 2))
    covs = np.array([[1.0, 0.3], [0.3, 0.7]]) * (0.5 + random.random((_ROWS, 1, 1)))
    values |= {name: GaussianND(point, covs) for name, point in zip("pqo", points, strict=True)}
    kinds = {name: type(model) for name, model in values.items()}
    batch = RowValues(values, {}, _ROWS)

    def difference(one: str, other: str) -> Polynomial:
        return Polynomial((((one, None), 1.0), ((other, None), -1.0)), (), (Range(-1.0, 1.0),))

    def squares(count: int) -> Polynomial:
        return Polynomial((), tuple(((n, None), (n, None), 1.0) for n in names[:count]), (Range(0.0, float(count)),))

    one = Polynomial(((("a", None), 1.0),), (), (Range(-1.0, 1.0),))
    chains = [[difference(names[k], names[k + 1]) for k in range(size)] for size in (1, 2, 3)]
    found = [group_of([one], kinds), *(group_of(chain, kinds) for chain in chains)]
    found += [group_of([squares(count)], kinds) for count in (2, 3, 4)]
    found.append(group_of([Apart("p", "q", 1.0)], kinds))
    trees = [
        Group(tuple(chain), tuple((n, Gaussian) for n in names[: len(chain) + 1]), TREE, len(chain)) for chain in chains
    ]
    beside = Polynomial(((("a", None), 1.0),), (), (Range(0.0, math.inf),))
    first = ("p", 0)
    curved = [
        group_of([Polynomial((), ((first, first, 1.0),), (Range(-math.inf, 1.0),)),
                  Polynomial(((first, 1.0),), (), (Range(0.0, math.inf),))], kinds),
        *(group_of([squares(count), beside], kinds) for count in (2, 3, 4)),
    ]  # fmt: skip
    star = group_of([Apart("p", "q", 1.0), Apart("p", "o", 1.0)], kinds)
    few, fewest = batch.take(np.arange(40)), batch.take(np.arange(2))
    cases: list[tuple[str, Group, RowValues]] = [(group.cost_name, group, batch) for group in found]
    cases += [(group.cost_name, group, few) for group in (*trees, *curved[:3], star)]
    return [*cases, *((group.cost_name, group, fewest) for group in curved[3:])]
