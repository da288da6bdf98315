"""What people ask of the pairs of a join: rows without a partner, the best partner."""
