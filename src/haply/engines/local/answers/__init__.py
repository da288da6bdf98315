"""What people ask of the pairs of a join, on the local engine."""
