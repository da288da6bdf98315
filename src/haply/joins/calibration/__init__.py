"""Check whether probabilities and errors are right: scores and residuals of pairs, and errors learned from pairs."""
