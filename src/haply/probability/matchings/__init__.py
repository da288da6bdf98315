"""One-to-one worlds: every row has at most one partner, and the weight of a world is the product over its pairs.

A world is a partial matching of left and right rows; having no partner has the weight 1. ``best_world`` is the heaviest
world. ``marginals`` gives the probability of each pair in a world drawn by weight:
``P(i ~ j) = w_ij Z(G - i - j) / Z(G)`` with ``Z`` the weight of all worlds. Both work on each connected component by
itself.

Marginals are exact where a component is a tree (by messages along it), or where few columns are open at once (by
subsets of these). For others, ``x_v(G) = P(v has no partner)`` has ``x_v(G) = 1 / (1 + sum_u w_vu x_u(G - v))``: cut at
any depth, the recursion gives bounds from both sides. Nothing is ever subtracted, so that small numbers keep their
relative digits, and weights may be as large as 1e300.
"""

from __future__ import annotations

from haply.probability.matchings.exact import DECIDED_BY
from haply.probability.matchings.worlds import best_world, components, marginals, shares_of_rows

__all__ = ["DECIDED_BY", "best_world", "components", "marginals", "shares_of_rows"]
