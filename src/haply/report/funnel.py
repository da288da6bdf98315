"""The funnel: counts of possible pairs, candidates, and the rules that decided them."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from haply.drawing.inline import drawn
from haply.pruning.naming import known_as

if TYPE_CHECKING:
    import altair

_PATIENCE_SECONDS = 2.0
"""How long to wait for counters: Spark reports them a moment after an action ends."""

_PLAIN = (
    "pairs_possible", "candidates", "evaluated", "kept", "rows_left", "rows_right", "null_left", "null_right",
    "hopeless_left", "hopeless_right", "invalid_left", "invalid_right", "late_left", "late_right", "stored_left",
    "stored_right", "pages_read",
    "pages_total", "unmatched_left", "unmatched_right",
)  # fmt: skip


_BY_STREAM = ("rows_", "null_", "hopeless_", "invalid_", "late_", "stored_")


class Funnel:
    """Counts the possible pairs of a join, its candidates, the rules that decided them, and the pairs that are kept.

    Pass it to a join as ``funnel``. The first action on the result fills it.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> table, funnel = pa.table({"x": [1.0, 2.0], "sd": [0.1, 0.1]}), hp.Funnel()
    >>> near = "abs(gaussian(left.x, left.sd) - gaussian(right.x, right.sd)) <= 0.5"
    >>> _ = hp.join(table, table.slice(1), on=near, threshold=0.5, funnel=funnel)
    >>> counts = funnel.to_dict()
    >>> counts["pairs_possible"], counts["kept"]
    (2, 1)
    """

    def __init__(self) -> None:
        self._sources: list[_Source | _LiveSource] = []

    def follow(self, source: Callable[[], Mapping[str, Any]], live: bool = False) -> None:
        """Read counters from this source once they exist; live ones grow, without any waiting (called by the join)."""
        self._sources.append(_LiveSource(source) if live else _Source(source))

    def start_over(self) -> None:
        """Forget an earlier join, so that the funnel describes only the next one (called by the join)."""
        self._sources.clear()

    @property
    def filled(self) -> bool:
        """Return whether an action on the result has filled the counters.

        Returns
        -------
        bool
            False before the first action.
        """
        found = self._read()
        return bool(found) and all(part is not None for part in found)

    def _read(self) -> list[Mapping[str, Any] | None]:
        """Return the counters of each source. After one without any, the others are not waited for."""
        patience, found = _PATIENCE_SECONDS, []
        for source in self._sources:
            found.append(source.read(patience))
            patience = 0.05 if found[-1] is None else patience
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return all counters by name.

        Returns
        -------
        dict
            Numbers of pairs and rows. ``rejected`` and ``accepted`` are dicts by the rule that decided, ``seconds`` is
            a dict by stage. All numbers are 0 before the first action.
        """
        raw: dict[str, int] = {}
        for part in self._read():
            for name, value in (part or {}).items():
                raw[name] = raw.get(name, 0) + int(value or 0)
        out: dict[str, Any] = {name: raw.get(name, 0) for name in _PLAIN}
        out["pairs_possible"] = out["rows_left"] * out["rows_right"]
        named = [name for name in raw if name.startswith(_BY_STREAM) and name not in _PLAIN]
        if named:  # a join of many streams counts by their names
            out |= {name: raw[name] for name in named}
            out["pairs_possible"] = math.prod(raw[name] for name in named if name.startswith("rows_"))
        for verdict in ("rejected", "accepted"):
            out[verdict] = {
                name.partition(":")[2]: value for name, value in raw.items() if name.startswith(f"{verdict}:")
            }
        for name, wholesale in (("sure", "sure range"), ("same", "same row")):
            if raw.get(name):
                out["accepted"][wholesale] = out["accepted"].get(wholesale, 0) + raw[name]
                out["candidates"] += raw[name]
        out["seconds"] = {
            name.partition(":")[2]: value / 1e9 for name, value in raw.items() if name.startswith("nanoseconds:")
        }
        return out

    def stages(self) -> list[dict[str, Any]]:
        """Return the stages of the funnel as records, largest first.

        Returns
        -------
        list of dict
            The name of each ``stage``, and how many ``pairs`` reach it.
        """
        counts = self.to_dict()
        decided = counts["rejected"] | {}
        records = [
            {"stage": "pairs possible", "pairs": counts["pairs_possible"]},
            {"stage": "candidates", "pairs": counts["candidates"]},
            {"stage": "not rejected by a bound", "pairs": counts["candidates"] - sum(decided.values())},
            {"stage": "evaluated exactly", "pairs": counts["evaluated"]},
            {"stage": "kept", "pairs": counts["kept"]},
        ]
        return records

    def __str__(self) -> str:
        if not self.filled:
            return "Funnel (empty: run an action on the join's result first)"
        counts = self.to_dict()
        possible = max(1, counts["pairs_possible"])
        lines = ["Funnel"]

        def line(label: str, value: int, indent: int = 0) -> None:
            lines.append(f"  {'  ' * indent}{label:<{34 - 2 * indent}}{value:>18,}  {value / possible:>10.4%}")

        line("pairs possible", counts["pairs_possible"])
        line("candidates", counts["candidates"])
        for verdict in ("rejected", "accepted"):
            for rule, value in counts[verdict].items():
                if value:
                    line(f"{verdict} by {known_as(rule)}", value, 1)
        line("evaluated exactly", counts["evaluated"])
        line("kept", counts["kept"])
        for label in ("null", "hopeless", "invalid", "late", "unmatched", "stored"):
            left, right = counts[f"{label}_left"], counts[f"{label}_right"]
            if left or right:
                lines.append(f"  {label + ' rows':<34}{left:>18,}  left, {right:,} right")
        if counts["seconds"]:
            spent = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in counts["seconds"].items())
            lines.append(f"  seconds in kernels, all cells: {spent}")
        return "\n".join(lines)

    __repr__ = __str__

    def chart(self) -> altair.LayerChart:
        """Draw the funnel.

        Returns
        -------
        altair.LayerChart
            A bar for each stage.
        """
        from haply.drawing.funnel import funnel_chart

        return funnel_chart(self.stages())

    def _repr_html_(self) -> str:
        picture = drawn(self.chart, "Pairs that reach each stage of the join.") if self.filled else ""
        return f"<div>{picture}<pre>{escape(str(self))}</pre></div>"


class _Source:
    """One set of counters that Spark will deliver; reading it may block, so a thread waits for it."""

    def __init__(self, ask: Callable[[], Mapping[str, Any]]) -> None:
        self._ask = ask
        self._found: Mapping[str, Any] | None = None
        self._waiting: threading.Thread | None = None

    def read(self, patience: float) -> Mapping[str, Any] | None:
        if self._found is None:
            if self._waiting is None:
                self._waiting = threading.Thread(target=self._wait, daemon=True)
                self._waiting.start()
            self._waiting.join(patience)
            if not self._waiting.is_alive():
                self._waiting = None
        return self._found

    def _wait(self) -> None:
        # Spark raises if it has dropped the part of the plan that counts: then there are no counters
        with contextlib.suppress(Exception):
            self._found = dict(self._ask()) or None


class _LiveSource:
    """Counters of a stream, which change."""

    def __init__(self, ask: Callable[[], Mapping[str, Any]]) -> None:
        self._ask = ask

    def read(self, patience: float) -> Mapping[str, Any] | None:
        return self._ask() or None
