"""Names in the literature for rules that have another name here."""

from __future__ import annotations

KNOWN_AS = {"moments": "Cantelli", "balls": "OP", "spheres": "SP"}
"""Cantelli's inequality on the squared distance of two clouds, and the object- and sample-level pruning of Lian and
Chen (2009). Other rules have no other name in the literature, or have it here too."""


def known_as(rule: str) -> str:
    """Return the name of a rule, followed by its name in the literature if the two differ.

    >>> known_as("moments"), known_as("line")
    ('moments (Cantelli)', 'line')
    """
    return f"{rule} ({KNOWN_AS[rule]})" if rule in KNOWN_AS else rule
