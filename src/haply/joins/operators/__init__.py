"""The operators: they take batches of rows of their sides, and return the pairs that these complete."""
