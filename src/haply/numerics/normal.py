"""The normal distribution, plain and cut to an interval, accurate relatively far out in the tails.

A cut normal is given by ``(mean, sd, low, high)``; infinite ends make it the plain normal. Its masses are computed with
the factor ``exp(z0**2 / 2)`` taken out, where ``z0`` is the point of the interval nearest to the mean: the factor
cancels in every ratio, so an interval forty standard deviations out is as good as one around the mean.
"""

from __future__ import annotations

import math

import numpy as np

from haply.numerics.jit import kernel

SQRT_HALF = math.sqrt(0.5)
SQRT_2PI = math.sqrt(2.0 * math.pi)
LEAST_SQUARE, SCALE_UP, SCALE_DOWN = 1e-280, 2.0**600, 2.0**-600
"""A square above the first has all its digits. Numbers with a smaller or an infinite square are scaled, then squared.
With one of the two powers of two, no square of a double leaves the range."""
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)

# Wichura 1988, algorithm AS 241 (PPND16): rational approximations of the normal quantile, relative error below 1e-15.
_CENTRE_TOP = np.array([
    2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
    1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0,
])  # fmt: skip
_CENTRE_BOTTOM = np.array([
    5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
    5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0,
])  # fmt: skip
_TAIL_TOP = np.array([
    7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
    3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0,
])  # fmt: skip
_TAIL_BOTTOM = np.array([
    1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
    6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0,
])  # fmt: skip
_FAR_TOP = np.array([
    2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
    2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0,
])  # fmt: skip
_FAR_BOTTOM = np.array([
    2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
    1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0,
])  # fmt: skip


@kernel
def _ratio(top, bottom, x):
    above, below = top[0], bottom[0]
    for k in range(1, len(top)):
        above = above * x + top[k]
        below = below * x + bottom[k]
    return above / below


@kernel
def normal_quantile(p):
    """Return the z with ``Phi(z) = p``; -inf at 0, inf at 1."""
    if not (p > 0.0):
        return -math.inf if p == 0.0 else math.nan
    if not (p < 1.0):
        return math.inf if p == 1.0 else math.nan
    q = p - 0.5
    if abs(q) <= 0.425:
        return q * _ratio(_CENTRE_TOP, _CENTRE_BOTTOM, 0.180625 - q * q)
    r = math.sqrt(-math.log(p if q < 0.0 else 1.0 - p))
    z = _ratio(_TAIL_TOP, _TAIL_BOTTOM, r - 1.6) if r <= 5.0 else _ratio(_FAR_TOP, _FAR_BOTTOM, r - 5.0)
    return -z if q < 0.0 else z


@kernel
def root_sum(a, b):
    """Return ``sqrt(a**2 + b**2)``, for the standard deviation of a difference, also if the squares leave the range.

    In that case both are scaled by a power of two, which is exact; otherwise the result is that of the plain formula,
    to the last bit.
    """
    square = a * a + b * b
    if LEAST_SQUARE < square < math.inf:
        return math.sqrt(square)
    scale = SCALE_UP if square < 1.0 else SCALE_DOWN
    a, b = a * scale, b * scale
    return math.sqrt(a * a + b * b) / scale


@kernel
def normal_cdf(z):
    """Return ``Phi(z)``, relatively accurate in the lower tail."""
    return 0.5 * math.erfc(-z * SQRT_HALF)


@kernel
def _scaled_tail(z):
    """Return ``exp(z**2/2) * P(Z > z)`` for z >= 0: half the scaled complementary error function of ``z/sqrt(2)``."""
    x = z * SQRT_HALF
    if x < 12.0:
        return 0.5 * math.exp(x * x) * math.erfc(x)
    step = 0.5 / (x * x)
    term, total = 1.0, 1.0
    for k in range(1, 13):  # asymptotic series: at x = 12 the last term is below 1e-17
        term *= -(2 * k - 1) * step
        total += term
    return 0.5 * total / (x * math.sqrt(math.pi))


@kernel
def scaled_mass(z1, z2, span, z0):
    """Return ``exp(z0**2/2) * P(z1 < Z < z2)`` for z1 <= z2, if no point of the interval is nearer to 0 than ``z0``.

    ``span`` is ``z2 - z1`` as the caller knows it: for a narrow interval far out the difference has lost its digits.
    """
    if not (span > 0.0):
        return 0.0
    if z1 < 0.0 and z2 <= 0.0:  # the mirror image, so that both ends are on the positive side
        z1, z2, z0 = -z2, -z1, -z0
    if span * (1.0 + abs(z1) + abs(z2)) < 1.0:  # narrow: the difference of two tails would cancel
        half, total = 0.5 * span, 0.0
        for k in range(len(NODES)):
            z = z1 + half * (1.0 + NODES[k])
            total += NODE_WEIGHTS[k] * math.exp(-0.5 * (z - z0) * (z + z0))
        return total * half / SQRT_2PI
    if z1 < 0.0:  # around 0: z0 is 0
        return 0.5 * (math.erf(z2 * SQRT_HALF) - math.erf(z1 * SQRT_HALF))
    upper = 0.0 if z2 == math.inf else _scaled_tail(z2) * math.exp(-0.5 * (z2 - z0) * (z2 + z0))
    return _scaled_tail(z1) * math.exp(-0.5 * (z1 - z0) * (z1 + z0)) - upper


@kernel
def normal_window(middle, half):
    """Return ``P(|Z - middle| <= half)``; a narrow window keeps its digits because its width is not a difference."""
    z1, z2 = middle - half, middle + half
    if 2.0 * half * (1.0 + abs(z1) + abs(z2)) >= 1.0:
        return normal_between(z1, z2)
    total = 0.0
    for k in range(len(NODES)):
        z = middle + half * NODES[k]
        total += NODE_WEIGHTS[k] * math.exp(-0.5 * z * z)
    return total * half / SQRT_2PI


@kernel
def normal_between(z1, z2):
    """Return ``P(z1 <= Z <= z2)``, relatively accurate in both tails and for narrow intervals; 0 when z1 > z2."""
    if not (z1 < z2):
        return 0.0
    if (z2 - z1) * (1.0 + abs(z1) + abs(z2)) < 1.0:
        return scaled_mass(z1, z2, z2 - z1, 0.0)
    if z1 > 0.0:
        return 0.5 * (math.erfc(z1 * SQRT_HALF) - math.erfc(z2 * SQRT_HALF))
    if z2 < 0.0:
        return 0.5 * (math.erfc(-z2 * SQRT_HALF) - math.erfc(-z1 * SQRT_HALF))
    return 0.5 * (math.erf(z2 * SQRT_HALF) - math.erf(z1 * SQRT_HALF))


@kernel
def cut_anchor(mean, sd, low, high):
    """Return the z of the point of ``[low, high]`` that is nearest to the mean."""
    if low > mean:
        return (low - mean) / sd
    if high < mean:
        return (high - mean) / sd
    return 0.0


@kernel
def cut_mass(mean, sd, low, high, z0):
    """Return ``exp(z0**2/2)`` times the mass that the plain normal has in ``[low, high]``."""
    return scaled_mass((low - mean) / sd, (high - mean) / sd, (high - low) / sd, z0)


@kernel
def cut_cdf(mean, sd, low, high, x):
    """Return ``P(X <= x)`` for a normal cut to ``[low, high]``."""
    if x < low:
        return 0.0
    if x >= high:
        return 1.0
    if low == -math.inf and high == math.inf:
        return normal_cdf((x - mean) / sd)
    z0 = cut_anchor(mean, sd, low, high)
    z_low, z, z_high = (low - mean) / sd, (x - mean) / sd, (high - mean) / sd
    below, above = scaled_mass(z_low, z, (x - low) / sd, z0), scaled_mass(z, z_high, (high - x) / sd, z0)
    return below / (below + above)


@kernel
def cut_sf(mean, sd, low, high, x):
    """Return ``P(X > x)`` for a normal cut to ``[low, high]``: the cdf of its mirror image."""
    return cut_cdf(-mean, sd, -high, -low, -x) if low <= x < high else (1.0 if x < low else 0.0)


@kernel
def cut_pdf(mean, sd, low, high, x):
    """Return the density at ``x`` of a normal cut to ``[low, high]``."""
    if x < low or x > high:
        return 0.0
    z0 = cut_anchor(mean, sd, low, high)
    z = (x - mean) / sd
    mass = cut_mass(mean, sd, low, high, z0)
    return math.exp(-0.5 * (z - z0) * (z + z0)) / (SQRT_2PI * sd * mass)


@kernel
def cut_shortfall(mean, sd, low, high, x):
    """Return ``E max(x - X, 0)``, the integral of the cdf up to ``x`` of a normal cut to ``[low, high]``; x within it.

    The formula is ``(x - mean) * P(X <= x) + sd * (phi(z) - phi(z_low))`` over the mass; where that cancels, it is
    integrated by quadrature.
    """
    if x <= low:
        return 0.0
    z0 = cut_anchor(mean, sd, low, high)
    z_low, z = (low - mean) / sd, (x - mean) / sd
    mass = cut_mass(mean, sd, low, high, z0)
    span = (x - low) / sd
    if span * (1.0 + abs(z) + abs(z_low)) < 4.0:
        half, total = 0.5 * span, 0.0
        for k in range(len(NODES)):
            y = z_low + half * (1.0 + NODES[k])
            total += NODE_WEIGHTS[k] * half * (1.0 - NODES[k]) * math.exp(-0.5 * (y - z0) * (y + z0))
        return sd * total * half / (SQRT_2PI * mass)
    if (
        z < -1.0
    ):  # far below the mean the two terms cancel: the part of the sum that the lower end leaves is added apart
        reach = min(span, 9.0, 40.0 / -z)  # beyond it the density has fallen by exp(-40)
        panels = math.ceil(reach * max(1.0, -z) * 0.5)
        half, total = 0.5 * reach / panels, 0.0
        for panel in range(panels):
            for k in range(len(NODES)):
                back = half * (2 * panel + 1.0 + NODES[k])
                y = z - back
                total += NODE_WEIGHTS[k] * back * math.exp(-0.5 * (y - z0) * (y + z0))
        return sd * total * half / (SQRT_2PI * mass)
    density = math.exp(-0.5 * (z - z0) * (z + z0)) / SQRT_2PI
    density_low = 0.0 if z_low == -math.inf else math.exp(-0.5 * (z_low - z0) * (z_low + z0)) / SQRT_2PI
    return sd * (z * scaled_mass(z_low, z, span, z0) + density - density_low) / mass


@kernel
def cut_quantile(mean, sd, low, high, p):
    """Return the point below which a normal cut to ``[low, high]`` lies with probability ``p``."""
    if p <= 0.0:
        return low
    if p >= 1.0:
        return high
    if low == -math.inf and high == math.inf:
        return mean + sd * normal_quantile(p)
    left, right = low, high
    if low == -math.inf:
        left = min(mean, high) - 39.0 * sd
    if high == math.inf:
        right = max(mean, low) + 39.0 * sd
    guess = mean + sd * normal_quantile(
        normal_cdf((low - mean) / sd) + p * normal_between((low - mean) / sd, (high - mean) / sd)
    )
    x = guess if left < guess < right else 0.5 * (left + right)
    for _ in range(200):  # Newton, kept inside a bracket that halves whenever a step would leave it
        below = cut_cdf(mean, sd, low, high, x)
        miss = below - p if p < 0.5 else (1.0 - p) - cut_sf(mean, sd, low, high, x)
        if miss > 0.0:
            right = x
        elif miss < 0.0:
            left = x
        else:
            return x
        slope = cut_pdf(mean, sd, low, high, x)
        following = x - miss / slope if slope > 0.0 else left
        if not (left < following < right):
            following = 0.5 * (left + right)
        if abs(following - x) <= 2e-16 * abs(x) or following in (left, right):
            return following
        x = following
    return x
