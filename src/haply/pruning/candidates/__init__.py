"""Find pairs that may match without a test of all others: sweeps, grids, pages, trees, windows."""
