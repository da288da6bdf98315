"""What the literature calls rules that have another name here."""

from __future__ import annotations

KNOWN_AS = {"moments": "Cantelli", "balls": "OP", "spheres": "SP"}
"""Cantelli's inequality on the squared distance of two clouds, and the object- and sample-level pruning of Lian and
Chen (2009). Rules that are not here have no other name, or are called by it."""


def known_as(rule: str) -> str:
    """Write the name of a rule with that of the literature beside it, where they differ.

    >>> known_as("moments"), known_as("line")
    ('moments (Cantelli)', 'line')
    """
    return f"{rule} ({KNOWN_AS[rule]})" if rule in KNOWN_AS else rule
