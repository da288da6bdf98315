"""Values that are shifts of few shapes: the probability that two of them are close depends only on their shift.

A *shape* is a row of buckets and points whose last end is at 0. For two shapes and a window ``d`` the probability
``J(s)`` that the values differ by at most ``d``, where the right one is shifted by ``s`` against the left one, is
piecewise quadratic in ``s``. It is tabulated once. Then each pair of events takes one look-up, and if only the verdict
matters, two comparisons: the shifts with ``J(s) >= p`` are a few intervals.
"""
