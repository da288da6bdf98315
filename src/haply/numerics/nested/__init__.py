"""The probability of polynomial conditions on independent values of any law, by integrals over all values but one.

Values that are points only are enumerated. Of the others the last is integrated in closed form: where the conditions
hold is a union of intervals, and its distribution function says how likely they are. The others, if they are two at
most, are integrated by panels, split where the integrand may have a kink, and halved until the rest is small. A panel
in which the conditions hold for all values, or for none, is not integrated. More than two are those of the points of
shifted lattices.
"""
