"""Combinations of conditions other than AND, each comparison in the normal form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from haply.query.columns import columns_of, owner_of
from haply.query.expressions import And, Expression, Or, Xor
from haply.query.forms import (
    Near,
    Part,
    any_value,
    certain_rest,
    form_or_reason,
    never_holds,
    normal_form,
)
from haply.query.spelling import IsCertain


@dataclass(frozen=True, eq=False)
class Branch:
    """All, or any, of some combinations hold: always, or never, if there are none."""

    all: bool
    parts: tuple[Combination, ...]

    def __str__(self) -> str:
        if not self.parts:
            return "true" if self.all else "false"
        word = " AND " if self.all else " OR "
        return word.join(f"({part})" if isinstance(part, (Branch, Parity)) else str(part) for part in self.parts)


@dataclass(frozen=True, eq=False)
class Known:
    """A condition in which nothing is uncertain."""

    condition: Expression

    def __str__(self) -> str:
        return f"certain: {self.condition}"


@dataclass(frozen=True, eq=False)
class Parity:
    """An odd number of combinations hold that share no uncertain columns; each is stored with its opposite."""

    pairs: tuple[tuple[Combination, Combination], ...]

    def __str__(self) -> str:
        parts = [holds for holds, _ in self.pairs]
        return " XOR ".join(f"({part})" if isinstance(part, (Branch, Parity)) else str(part) for part in parts)


Combination = Part | Near | Known | Branch | Parity


@dataclass(frozen=True, eq=False)
class Choice:
    """One condition: a combination of others."""

    tree: Branch | Parity
    text: str

    def __str__(self) -> str:
        return f"({self.tree})"


def leaves(tree: Combination) -> Iterator[Part | Near | Known]:
    """Yield the conditions of a combination."""
    if isinstance(tree, Branch):
        for part in tree.parts:
            yield from leaves(part)
    elif isinstance(tree, Parity):
        for pair in tree.pairs:
            for part in pair:
                yield from leaves(part)
    else:
        yield tree


def parts_of(part: Part | Near | Choice) -> list[Part | Near]:
    """Return the uncertain conditions of a part: itself, or those of a combination."""
    if isinstance(part, Choice):
        return [leaf for leaf in leaves(part.tree) if not isinstance(leaf, Known)]
    return [part]


def changed(tree: Combination, change: Callable[[Part], Part]) -> Combination:
    """Return the same combination of other parts."""
    if isinstance(tree, Branch):
        return Branch(tree.all, tuple(changed(part, change) for part in tree.parts))
    if isinstance(tree, Parity):
        return Parity(tuple((changed(holds, change), changed(fails, change)) for holds, fails in tree.pairs))
    return change(tree) if isinstance(tree, Part) else tree


def part_or_choice(condition: Expression, is_certain: IsCertain) -> Part | Near | Choice:
    """Return the normal form of a condition whose NOTs precede single comparisons."""
    if isinstance(condition, (And, Or)):
        whole = form_or_reason(condition, is_certain)
        if isinstance(whole, str) or not _is_plain(whole):
            tree = _combination(condition, is_certain)
            assert isinstance(tree, Branch)
            return Choice(tree, str(condition))
    if isinstance(condition, Xor):
        return Choice(_parity(condition, is_certain), str(condition))
    known = _cancelled(condition, is_certain)
    if known is not None:
        if not known.all:
            raise never_holds(condition)
        return Choice(known, str(condition))
    return normal_form(condition, is_certain)


def _cancelled(condition: Expression, is_certain: IsCertain) -> Branch | None:
    """Return what is left of a comparison whose uncertain columns cancel out: it still needs a known value to hold."""
    rest = certain_rest(condition, is_certain)
    if rest is None or (isinstance(rest, bool) and not rest):
        return None if rest is None else Branch(False, ())
    owners = {owner_of(column): column for column in columns_of(condition) if not is_certain(column)}
    parts = [any_value(column) for column in owners.values()]
    return Branch(True, (*([Known(rest)] if isinstance(rest, Expression) else []), *parts))


def _combination(condition: Expression, is_certain: IsCertain) -> Combination:
    if all(is_certain(column) for column in columns_of(condition)):
        return Known(condition)
    if isinstance(condition, (And, Or)):
        whole = form_or_reason(condition, is_certain)
        if isinstance(whole, str) or not _is_plain(whole):
            parts = tuple(_combination(each, is_certain) for each in condition.conditions)
            return Branch(isinstance(condition, And), parts)
        return whole
    if isinstance(condition, Xor):
        return _parity(condition, is_certain)
    known = _cancelled(condition, is_certain)
    if known is not None:
        return known
    return normal_form(condition, is_certain, refuse_never=False)


def _parity(condition: Xor, is_certain: IsCertain) -> Parity:
    both = zip(condition.conditions, condition.opposites, strict=True)
    return Parity(tuple((_combination(holds, is_certain), _combination(fails, is_certain)) for holds, fails in both))


def _is_plain(part: Part | Near) -> bool:
    """Return whether a part has numbers as limits: then the complement of its ranges is known."""
    return isinstance(part, Near) or not any(
        isinstance(end, Expression) for each in part.intervals for end in (each.low, each.high)
    )
