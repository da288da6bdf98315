"""Whether probabilities and errors are right: scores of pairs, residuals of pairs, and errors learned from pairs."""
