"""How the probability of a group of conditions is computed, row by row."""
