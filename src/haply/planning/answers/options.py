"""Which pairs and which rows a join returns: ``how``, ``keep`` and their options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from haply.errors import HaplyError, one_of
from haply.joins.operators.operator import SideName

How = Literal["inner", "left", "right", "outer", "semi", "anti"]
"""What happens to rows without a partner, as in SQL."""
Keep = Literal["all", "best_left", "best_right", "mutual", "one_to_one"]
"""Which of a row's pairs are kept."""
Ties = Literal["first", "all"]
"""Whether pairs that tie with the last one kept are left out, by the order of ``order_by``, or kept as well."""

_PRESERVED: dict[str, tuple[SideName, ...]] = {
    "inner": (), "left": ("left",), "right": ("right",), "outer": ("left", "right"), "semi": ("left",),
    "anti": ("left",),
}  # fmt: skip
_RANKED: dict[str, tuple[SideName, ...]] = {
    "all": (), "best_left": ("left",), "best_right": ("right",), "mutual": ("left", "right"),
    "one_to_one": ("left", "right"),
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """Which pairs and rows of a join are returned."""

    how: How = "inner"
    keep: Keep = "all"
    k: int | None = None
    order_by: Sequence[str] | str | None = None
    ties: Ties = "first"

    def __post_init__(self) -> None:
        """Refuse unknown choices, and options that belong to another choice."""
        one_of("how", self.how, get_args(How), "how='outer' is a full join; how='semi' and how='anti' keep left rows")
        one_of("keep", self.keep, get_args(Keep), "keep='best_left' keeps the best right row of each left row")
        one_of("ties", self.ties, get_args(Ties))
        if self.k is not None:
            self._check_k()
        for name, given in (("order_by", self.order_by is not None), ("ties", self.ties == "all")):
            if given and self.keep not in ("best_left", "best_right", "mutual"):
                raise HaplyError(
                    f"{name} chooses which of several pairs are kept, but keep='{self.keep}' does not choose by it",
                    expected="keep='best_left', 'best_right' or 'mutual'",
                    hint=f"add keep='best_left', or leave out {name}",
                )

    def _check_k(self) -> None:
        if self.keep not in ("best_left", "best_right"):
            raise HaplyError(
                f"k={self.k} needs keep='best_left' or 'best_right'",
                found=f"keep='{self.keep}'",
                hint=f"keep='best_left', k={self.k} keeps the {self.k} best right rows of each left row",
            )
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise HaplyError("k is not a number of rows", expected="1, 2, 3, ...", found=repr(self.k))

    @property
    def plain(self) -> bool:
        """Return whether all pairs are returned, and nothing else."""
        return self.how == "inner" and self.keep == "all"

    @property
    def left_only(self) -> bool:
        """Return whether rows of the left table are returned instead of pairs."""
        return self.how in ("semi", "anti")

    @property
    def preserved(self) -> tuple[SideName, ...]:
        """Return the sides whose rows without a partner matter."""
        return _PRESERVED[self.how]

    @property
    def ranked(self) -> tuple[SideName, ...]:
        """Return the sides whose rows keep only some of their pairs."""
        return _RANKED[self.keep]

    @property
    def identified(self) -> tuple[SideName, ...]:
        """Return the sides whose rows need an id."""
        sides: tuple[SideName, ...] = ("left", "right")
        return tuple(side for side in sides if side in self.preserved or side in self.ranked)

    @property
    def entangled(self) -> bool:
        """Return whether the result for a row depends on which pairs other rows keep."""
        return bool(self.ranked) and len(self.identified) > 1

    @property
    def order_columns(self) -> list[str]:
        """Return the names in ``order_by``."""
        if self.order_by is None:
            return []
        return [self.order_by] if isinstance(self.order_by, str) else list(self.order_by)
