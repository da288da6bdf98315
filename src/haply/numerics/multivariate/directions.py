"""Find the directions that conditions depend on, and write the conditions in these alone.

Conditions are ``z' bent z + slant z`` with independent standard normal ``z``. Conditions that share no direction are
independent; for the others only the directions that matter are kept.
"""

from __future__ import annotations

import math

from haply.numerics.jit import bare

SAME = 1e-13
"""A condition does not depend on a direction that has no more than this share of it."""


@bare
def _size(bent, slant):
    """Return the size of a condition: the largest of its factors."""
    largest = 0.0
    for i in range(len(slant)):
        largest = max(largest, abs(slant[i]))
        for j in range(len(slant)):
            largest = max(largest, abs(bent[i, j]))
    return largest


@bare
def _length(row):
    total = 0.0
    for j in range(len(row)):
        total += row[j] * row[j]
    return math.sqrt(total)


@bare
def _share_directions(bent, slant, one, other):
    """Tell whether two conditions depend on a common direction."""
    dim = slant.shape[1]
    least = SAME * _size(bent[one], slant[one]) * _size(bent[other], slant[other])
    for i in range(dim + 1):
        for j in range(dim + 1):
            inner = 0.0
            for k in range(dim):
                x = bent[one, i, k] if i < dim else slant[one, k]
                y = bent[other, j, k] if j < dim else slant[other, k]
                inner += x * y
            if abs(inner) > least:
                return True
    return False


@bare
def _label(bent, slant, label):
    """Give conditions that share directions, directly or through others, the same label."""
    count = len(slant)
    for c in range(count):
        label[c] = c
    for c in range(count):
        for d in range(c):
            if label[c] != label[d] and _share_directions(bent, slant, c, d):
                old, new = label[c], label[d]
                for k in range(count):
                    if label[k] == old:
                        label[k] = new


@bare
def _directions(bent, slant, label, own, rows, basis):
    """Write an orthonormal basis of the directions of one label; return its size, and whether a condition is straight.

    If a condition is straight (without a bend), its direction comes first, otherwise that of the longest row. The next
    is always that of the row with the longest rest.
    """
    dim, count = slant.shape[1], 0
    straight = -1
    for c in range(len(slant)):
        if label[c] != own:
            continue
        size = _size(bent[c], slant[c])
        bends = False
        for i in range(dim + 1):
            for j in range(dim):
                rows[count, j] = (bent[c, i, j] if i < dim else slant[c, j]) / size
                bends = bends or (i < dim and bent[c, i, j] != 0.0)
            count += 1
        if straight < 0 and not bends:
            straight = count - 1
    for found in range(dim):
        best, most = -1, SAME
        for r in range(count):
            length = _length(rows[r])
            if length > most:
                best, most = r, length
        if found == 0 and straight >= 0:
            best, most = straight, _length(rows[straight])
        if best < 0:
            return found, straight >= 0
        for j in range(dim):
            basis[found, j] = rows[best, j] / most
        for k in range(found):  # once more, against rounding
            inner = 0.0
            for j in range(dim):
                inner += basis[k, j] * basis[found, j]
            for j in range(dim):
                basis[found, j] -= inner * basis[k, j]
        for r in range(count):
            inner = 0.0
            for j in range(dim):
                inner += rows[r, j] * basis[found, j]
            for j in range(dim):
                rows[r, j] -= inner * basis[found, j]
    return dim, straight >= 0


@bare
def _arrange(dim, straight, basis):
    """Order the basis for the integration, and return how many directions it then has.

    In space the direction that matters least becomes the outermost, unless one condition is straight: then its
    direction is. In the plane the outermost direction is empty: nothing depends on it.
    """
    if dim == 2 or (dim == 3 and not straight):
        for j in range(basis.shape[1]):
            basis[0, j], basis[2, j] = basis[2, j] if dim == 3 else 0.0, basis[0, j]
    return max(dim, 3) if dim > 1 else 1


@bare
def _restrict(bent, slant, basis, dim, work, flat, line):
    """Write a condition in the directions of the basis, divided by its size; return the size."""
    whole, size = len(slant), _size(bent, slant)
    for i in range(dim):
        line[i] = 0.0
        for k in range(whole):
            line[i] += slant[k] * basis[i, k] / size
            work[k] = 0.0
            for m in range(whole):
                work[k] += bent[k, m] * basis[i, m] / size
        for j in range(dim):
            flat[i, j] = 0.0
            for k in range(whole):
                flat[i, j] += work[k] * basis[j, k]
    return size


@bare
def reduce_rows(bent, slant, first, rows, basis, work, label, dims, flat, line, low, high):
    """Label the conditions of each row, and write each in the directions of its label; ``dims`` gets their number."""
    for row in range(len(bent)):
        _label(bent[row], slant[row], label[row])
        for own in range(len(first) - 1):
            dims[row, own] = 0
            if label[row, own] != own or _size(bent[row, own], slant[row, own]) == 0.0:
                continue
            dim, straight = _directions(bent[row], slant[row], label[row], own, rows, basis)
            dims[row, own] = dim
            size = _arrange(dim, straight, basis)
            for c in range(len(first) - 1):
                if label[row, c] == own:
                    scale = _restrict(bent[row, c], slant[row, c], basis, size, work, flat[row, c], line[row, c])
                    for e in range(first[c], first[c + 1]):
                        low[row, e] /= scale
                        high[row, e] /= scale
