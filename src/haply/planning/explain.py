"""Plans in words: a tree of descriptions, rendered once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

_WIDTH = 13
"""Of the names of lines."""


@dataclass(frozen=True)
class NotTaken:
    """A strategy that was not taken, and why."""

    strategy: str
    reason: str


@dataclass(frozen=True)
class Description:
    """What a plan says of itself."""

    title: str = ""
    verdict: str = ""
    """One sentence on how much will be looked at."""
    lines: tuple[tuple[str, str], ...] = ()
    """Names, and what is said of them."""
    details: tuple[tuple[str, str], ...] = ()
    """The same for those who want to know more."""
    not_taken: tuple[NotTaken, ...] = ()
    parts: tuple[Description, ...] = field(default=())
    """Plans that this one is made of."""
    estimate: tuple[float, float] | None = None
    """How many pairs are possible, and about how many will be looked at, where that is known."""

    def with_more(self, other: Description) -> Description:
        """Add what an engine knows to what a plan says."""
        return replace(
            self,
            verdict=other.verdict or self.verdict,
            lines=self.lines + other.lines,
            details=self.details + other.details,
            not_taken=self.not_taken + other.not_taken,
            estimate=other.estimate or self.estimate,
        )

    def text(self, verbose: bool = False) -> str:
        """Put it into words: the verdict first, then the tree, then strategies that were not taken."""
        verdict = self.first_verdict()
        lines = [*([verdict] if verdict else []), *self._tree(verbose, "")]
        rejected = self._all_not_taken()
        if rejected:
            lines.append("Not taken")
            lines += [f"  {one.strategy:<{_WIDTH}} {one.reason}" for one in rejected]
        return "\n".join(lines)

    def records(self, depth: int = 0) -> list[dict[str, Any]]:
        """Return the tree as records ``depth, name, said``, for a chart; titles have no name."""
        found = [{"depth": depth, "name": "", "said": self.title or "Plan"}]
        found += [{"depth": depth, "name": name, "said": said} for name, said in self.lines]
        return found + [record for part in self.parts for record in part.records(depth + 1)]

    def first_estimate(self) -> tuple[float, float] | None:
        """Return the estimate of the plan, or of the first of its parts that has one."""
        return self.estimate or next((found for part in self.parts if (found := part.first_estimate())), None)

    def first_verdict(self) -> str:
        """Return the verdict of the plan, or of the first of its parts that has one."""
        return self.verdict or next((found for part in self.parts if (found := part.first_verdict())), "")

    def _all_not_taken(self) -> list[NotTaken]:
        found = [*self.not_taken, *(one for part in self.parts for one in part._all_not_taken())]
        return list(dict.fromkeys(found))

    def _tree(self, verbose: bool, indent: str) -> list[str]:
        shown = (*self.lines, *(self.details if verbose else ()))
        lines = [f"{indent}{self.title}", *(f"{indent}  {name:<{_WIDTH}} {said}" for name, said in shown)]
        for part in self.parts:
            lines += part._tree(verbose, indent + "  ")
        return lines


def about(number: float) -> str:
    """Write a number of rows or pairs that is only estimated: two digits, in words from a million on."""
    if number < 1:
        return "no"
    digits = len(str(round(number))) - 2
    rounded = round(number) if digits <= 0 else round(number / 10**digits) * 10**digits
    for size, word in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if rounded >= size:
            return f"{rounded / size:.3g} {word}"
    return f"{rounded:,}"


def looked_at(candidates: float, pairs: float) -> str:
    """Write the verdict on a join: how many of all pairs will be looked at."""
    candidates = min(candidates, pairs)
    noun = "pair" if round(pairs) == 1 else "pairs"
    if candidates < 1.0:
        return f"Hardly any of {about(pairs)} {noun} will be looked at."
    return f"About {about(candidates)} of {about(pairs)} {noun} will be looked at."
