"""How many random cases a test tries: a quarter of them in ``make test``, all with ``--long`` (``make test-long``)."""

from __future__ import annotations

all_cases = False
"""Whether all cases run; set by ``conftest.py`` before tests are imported."""


def fewer(count: int) -> int:
    """Return how many of so many random cases run now."""
    return count if all_cases else -(-count // 4)
