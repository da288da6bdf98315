"""What a query in SQL can name besides the tables that it is given: nothing but functions."""

from __future__ import annotations

from collections.abc import Sequence

from haply.local.dialect import check_function
from haply.planning.frames import Frame


class LocalCatalog:
    """The functions of the local engine."""

    def table(self, parts: Sequence[str]) -> Frame | None:
        """Find a table by its name: there are no others than those given."""
        return None

    def names(self) -> list[str]:
        """List the tables, for hints."""
        return []

    def check_function(self, name: str, also: Sequence[str]) -> None:
        """Refuse a function that is not known to mean the same on both engines."""
        check_function(name, tuple(also))
