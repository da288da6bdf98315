"""Plans as people hold them: ``explain()`` describes, ``run()`` answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from haply.planning.frames import Frame


class PlannedQuery(Protocol):
    """A query that has been checked and planned: a join of two or more tables, or a selection."""

    def run(self, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""

    def explain(self) -> str:
        """Describe how it will run."""


@dataclass(frozen=True)
class Plan:
    """A query that has been checked and planned but not run."""

    query: PlannedQuery
    funnel: Any = None
    notes: tuple[str, ...] = ()
    """What the author of the query should know."""

    def run(self) -> Any:
        """Return the answer: a lazy DataFrame on Spark; elsewhere, computed at once, a table of the kind given."""
        return self.query.run(self.funnel).give()

    def write(self, path: str) -> int:
        """Write the answer into a new Parquet or CSV file; returns the number of its rows.

        In this process rows are written as they are found, so that an answer may be larger than memory.
        """
        return self.query.run(self.funnel).write(path)

    def explain(self) -> str:
        """Describe how the query will run. For joins this reads the inputs once, to estimate sizes."""
        return "\n".join([self.query.explain(), *(f"  note          {note}" for note in self.notes)])
