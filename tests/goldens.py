"""Golden values as data, for the engine's tests and for the oracle that confirms them.

Names: G1-G21 are Cheng et al. (interval values), P1-P7 and P26 are Peng et al. (Gaussians; their variances are given
here as sds), T5-T15 are Mok et al. (histogram timestamps). A Fraction is exact; a string was computed in 30-digit
arithmetic and printed to 18 significant digits (trailing zeros dropped). Parameters such as 0.1 mean the decimal they
print: `oracle.as_decimals` reads them so, and in doubles the difference is below 1e-15.
"""

from __future__ import annotations

from fractions import Fraction

from oracle import Discrete, Hist, Normal, NormalMixture, Number, Point, Truncated, Uniform, Value, shifted

Golden = Fraction | str

U05, U313 = Uniform(0, 5), Uniform(3, 13)
U01, U_MIDDLE, U_APART = Uniform(0, 1), Uniform(0.25, 0.75), Uniform(1.1, 2.1)
U24, U_LEFT = Uniform(2, 4), Uniform(1.5, 2.7)
TRUNCATED_A, TRUNCATED_B = Truncated(2, 1, 0, 5), Truncated(3, 2, 1, 8)
U04, N32 = Uniform(0, 4), Normal(3, 2)
HIST_A, HIST_B = Hist((0, 1, 3), (0.25, 0.75)), Hist((0.5, 2, 4), (0.6, 0.4))
HIST_GAP, U_IN_GAP = Hist((0, 1, 3, 4), (0.5, 0, 0.5)), Uniform(1.5, 2.5)
NORMAL_A, NORMAL_B = Normal(0, 1), Normal(0.5, 2)
MIXTURE_A, MIXTURE_B = NormalMixture((0.3, 0.7), (0, 4), (1, 0.5)), NormalMixture((0.5, 0.5), (1, 3), (1, 2))
DISCRETE_A = Discrete((1, 2, 5), (0.25, 0.5, 0.25))
DISCRETE_B = Discrete((2, 4), (Fraction(1, 3), Fraction(2, 3)))

PHI1 = Hist((0, 20, 30, 40), (0.1, 0.3, 0.6))
PHI2 = Hist((0, 10, 20, 30, 40), (0.15, 0.3, 0.4, 0.15))
H1, H2, H3 = shifted(PHI1, 20), shifted(PHI2, 70), shifted(PHI1, 170)
PLATEAU, PLATEAU_OTHER = Hist((0, 1, 10, 11), (0.5, 0, 0.5)), Hist((3, 4), (1,))
WAIT_10 = Hist((0, 10), (1,))

# (name, a, b, within, P(|A - B| <= within))
EQUAL_WITHIN: list[tuple[str, Value, Value, Number, Golden]] = [
    ("G1", U05, U313, 1, Fraction("0.08")),
    ("G3 c=.25", U05, U313, 0.25, Fraction("0.02")),
    ("G3 c=3", U05, U313, 3, Fraction("0.25")),
    ("G3 c=20", U05, U313, 20, Fraction(1)),
    ("G4", U01, U_MIDDLE, 0.1, Fraction("0.2")),
    ("G5", U24, U_LEFT, 0.5, Fraction(7, 24)),
    ("G6 c=.5", U01, U_APART, 0.5, Fraction("0.08")),
    ("G6 c=1.3", U01, U_APART, 1.3, Fraction("0.68")),
    ("G7", TRUNCATED_A, TRUNCATED_B, 0.5, "0.177986892605493807"),
    ("G8", U04, TRUNCATED_B, 0.5, "0.158953083641699281"),
    ("G9", HIST_A, HIST_B, 0.5, Fraction("0.275")),
    ("G11", HIST_A, TRUNCATED_B, 0.5, "0.150822752186720257"),
    ("G12", NORMAL_A, NORMAL_B, 0.3, "0.10410764371427369"),
    ("G13", MIXTURE_A, MIXTURE_B, 0.5, "0.107459053837572618"),
    ("G14", U04, N32, 0.5, "0.155204572828975945"),
    ("G15", DISCRETE_A, DISCRETE_B, 1, Fraction(5, 12)),
    ("G16", TRUNCATED_A, Point(2.5), 0.5, "0.349774317609089342"),
    ("G20", TRUNCATED_A, TRUNCATED_B, 0.5, "0.177986892605493807"),
    ("T6 d=40", H1, H2, 40, Fraction(387, 800)),
    ("T6 d=50", H1, H2, 50, Fraction(123, 160)),
    ("T6 d=100", H2, H3, 100, Fraction(37, 160)),
    ("T6 d=98", H2, H3, 98, Fraction(939, 5000)),
    ("T7 d=0", PHI1, PHI2, 0, Fraction(0)),
    ("T7 d=5", PHI1, PHI2, 5, Fraction(29, 128)),
    ("T7 d=10", PHI1, PHI2, 10, Fraction(353, 800)),
    ("T7 d=20", PHI1, PHI2, 20, Fraction(621, 800)),
    ("T7 d=40", PHI1, PHI2, 40, Fraction(1)),
    ("T13 points", Point(5), Point(5), 0, Fraction(1)),
    ("T13 point and histogram", Point(5), WAIT_10, 2, Fraction(2, 5)),
]

# (name, a, b, P(A > B))
GREATER: list[tuple[str, Value, Value, Golden]] = [
    ("G2", U05, U313, Fraction("0.04")),
    ("G4", U01, U_MIDDLE, Fraction("0.5")),
    ("G5", U24, U_LEFT, Fraction(431, 480)),
    ("G7", TRUNCATED_A, TRUNCATED_B, "0.215552618426309882"),
    ("G8", U04, TRUNCATED_B, "0.225411561912581674"),
    ("G9", HIST_A, HIST_B, Fraction("0.425")),
    ("G10", HIST_GAP, U_IN_GAP, Fraction("0.5")),
    ("G11", HIST_A, TRUNCATED_B, "0.140969610337778468"),
    ("G12", NORMAL_A, NORMAL_B, "0.411531636879060738"),
    ("G13", MIXTURE_A, MIXTURE_B, "0.638330617733964886"),
    ("G14", U04, N32, "0.3342448818193507"),
    ("G15", DISCRETE_A, DISCRETE_B, Fraction(1, 4)),
    ("G16", TRUNCATED_A, Point(2.5), "0.314773696209870056"),
    ("G20", TRUNCATED_A, TRUNCATED_B, "0.215552618426309882"),
]

# (name, a, b, P(A < B)); ties make it differ from 1 - P(A > B)
LESS: list[tuple[str, Value, Value, Golden]] = [
    ("G15", DISCRETE_A, DISCRETE_B, Fraction(7, 12)),
]

# (name, a, b, P(A >= B)), closed
GREATER_EQUAL: list[tuple[str, Value, Value, Golden]] = [
    ("T5 phi1 phi2", PHI1, PHI2, Fraction(123, 160)),
    ("T5 phi2 phi1", PHI2, PHI1, Fraction(37, 160)),
    ("T5 H1 H2", H1, H2, Fraction(0)),
    ("T5 H2 H1", H2, H1, Fraction(1)),
    ("T5 phi1 itself", PHI1, PHI1, Fraction(1, 2)),
    ("T5 phi2 itself", PHI2, PHI2, Fraction(1, 2)),
    ("T10 x=-7", shifted(PLATEAU, -7), PLATEAU_OTHER, Fraction(1, 4)),
    ("T10 x=-6", shifted(PLATEAU, -6), PLATEAU_OTHER, Fraction(1, 2)),
    ("T10 x=-2", shifted(PLATEAU, -2), PLATEAU_OTHER, Fraction(1, 2)),
    ("T10 x=2", shifted(PLATEAU, 2), PLATEAU_OTHER, Fraction(1, 2)),
    ("T10 x=3", shifted(PLATEAU, 3), PLATEAU_OTHER, Fraction(3, 4)),
    ("T10 x=4", shifted(PLATEAU, 4), PLATEAU_OTHER, Fraction(1)),
    ("T13 points", Point(5), Point(5), Fraction(1)),
    ("T13 point and histogram", Point(5), WAIT_10, Fraction(1, 2)),
    ("T15 overlap left", Uniform(0, 2), Uniform(1, 3), Fraction(1, 8)),
    ("T15 around", Uniform(0, 4), Uniform(1, 3), Fraction(1, 2)),
    ("T15 overlap right", Uniform(1, 3), Uniform(0, 2), Fraction(7, 8)),
    ("T15 inside", Uniform(1, 2), Uniform(0, 4), Fraction(3, 8)),
]

# (name, a, b, low, high, P(low < A - B < high))
BAND: list[tuple[str, Value, Value, Number, Number, Golden]] = [
    ("P1", Normal(0, 1), Point(0), -1, 1, "0.682689492137085897"),
    ("P2", Normal(0.3, 0.8), Point(0), -0.5, 1.2, "0.711050228931734094"),
]

# (name, a, b, beyond, P(|A - B| > beyond))
OUTSIDE: list[tuple[str, Value, Value, Number, Golden]] = [
    ("P26", NormalMixture((0.4, 0.6), (-1, 2), (1, 0.5)), Point(0), 1.5, "0.630705729262598869"),
]

# (name, a, x, P(A <= x))
CDF: list[tuple[str, Value, Number, Golden]] = [
    ("G21 a", TRUNCATED_A, 2.5, "0.685226303790129944"),
    ("G21 b", TRUNCATED_B, 2.5, "0.290537933300343807"),
]

# (name, a, q, quantile)
QUANTILE: list[tuple[str, Value, Number, Golden]] = [
    ("G19 .1", TRUNCATED_A, 0.1, "0.82671181313066078"),
    ("G19 .3", TRUNCATED_A, 0.3, "1.51973679068228053"),
    ("G19 .9", TRUNCATED_A, 0.9, "3.28761564642164107"),
]

# (name, a, b, within, M_a, M_b, min(M_a, M_b), min(M_a conc_b, M_b conc_a)): upper bounds of P(|A - B| <= within)
EQUAL_UPPER_BOUNDS: list[tuple[str, Value, Value, Number, Golden, Golden, Golden, Golden]] = [
    ("G17", U05, U313, 1, Fraction("0.6"), Fraction("0.3"), Fraction("0.3"), Fraction("0.12")),
]

# (name, a, b, 1 - F_a(b.r), F_b(a.l), 1 - (1 - L1)(1 - L2)): lower bounds of P(A > B).
# The note prints the last two as 0.416666666666666667 and 0.795833333333333333.
GREATER_LOWER_BOUNDS: list[tuple[str, Value, Value, Golden, Golden, Golden]] = [
    ("G18", U24, U_LEFT, Fraction("0.65"), Fraction(5, 12), Fraction(191, 240)),
]

# Not pair probabilities: what the Gaussian index formulas return. g(mu, sigma; a, b) = P(a < N(mu, sigma) < b).
# (name, inputs, outputs)
GAUSSIAN_FORMULAS: list[tuple[str, dict[str, Number], dict[str, Golden]]] = [
    # the sd at which g is largest for a mean outside (a, b), and g there
    ("P3", {"mu": -1, "a": 0, "b": 2}, {"sigma_star": "1.9081291640000028", "g": "0.242163998265849716"}),
    # the largest sd with max over mu of g >= threshold
    ("P4 .5", {"a": -1, "b": 1, "threshold": 0.5}, {"sigma_max": "1.48260221850560186"}),
    ("P4 .7", {"a": -1, "b": 1, "threshold": 0.7}, {"sigma_max": "0.964847341022480738"}),
    ("P4 .9", {"a": -1, "b": 1, "threshold": 0.9}, {"sigma_max": "0.607956831911768946"}),
    # sqrt((1 - threshold) / threshold)
    ("P5", {"threshold": 0.7}, {"kappa": "0.654653670707977144"}),
    # the point of the boundary g = threshold with mass alpha left of a
    (
        "P6",
        {"a": -1, "b": 2, "threshold": 0.7, "alpha": 0.1},
        {"mu": "0.810806307537385275", "sigma": "1.41297966950543725"},
    ),
    # E|N(mean, sd)|
    ("P7", {"mean": 1.3, "sd": 0.7}, {"mean_absolute": "1.31728577203738196"}),
]

# Regions in two dimensions. (name, radius, mean, sds, correlation, P(|X| < radius))
DISCS: list[tuple[str, Number, tuple[Number, Number], tuple[Number, Number], Number, Golden]] = [
    ("P8", 2, (1, 2), (1, 1.5), 0.6, "0.4009511998054907"),
    ("P9", 1, (0, 0), (1, 0.5), -0.3, "0.596123370872287265"),
    ("P10", 2.5, (3, -1), (0.8, 0.4), 0.5, "0.150370854191479592"),
    ("P21", 2, (0.3, 0.1), (1, 1.5), 0.6, "0.7220384061693103"),
]

# (name, low, high, mean, covariance, P(low < X < high)); P13's covariance is that of sds .5, .4 and correlation .3
BOXES: list[tuple[str, tuple[Number, ...], tuple[Number, ...], tuple[Number, ...], list[list[Number]], Golden]] = [
    ("P13", (-0.2, -0.2), (0.2, 0.2), (0.2, -0.1), [[0.25, 0.06], [0.06, 0.16]], "0.107598617237019735"),
    (
        "P24", (-0.05, -0.05), (0.05, 0.05), (0.01, -0.02), [[0.0054, -0.0013], [-0.0013, 0.0018]],
        "0.375960670257794376",
    ),
]  # fmt: skip

# (name, inputs as in the note, what the filters must return)
REGION_BOUNDS: dict[str, tuple[Golden, ...]] = {
    "P14": ("13.15", "189.215", "0.693253950080146554"),
    "P15": ("0.444444444444444444", "0.346938775510204082"),
    "P16": ("0.2", "0.115555555555555556"),
    "P17": ("0.529269649959443717", "2.72073035004055628", "0.00314840348491533822", "1.83712937429286244"),
    "P18": ("0.275913043358092373", "0.870054829652449942"),
    "P19": ("0.437983817160739169",),
    "P20": ("0.0204887796446616687", "0.44309019353299348"),
    "P21": ("1.13560336177978112", "0.433229988438374271"),
    "P22": ("0.44444173944092",),
    "P23": ("0.0054", "-0.0013", "0.0018"),
    "P25": ("0.309870286582174042", "0.499454582411937351", "0.759298070536137862"),
    "P27": ("0.171056126308481808", "0.089554596363361029"),
}
