"""Read tables from files, and write results into files."""
