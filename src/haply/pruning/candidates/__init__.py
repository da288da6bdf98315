"""Where pairs that may match are found, without a look at all others: sweeps, grids, pages, trees, windows."""
