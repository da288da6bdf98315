"""Functions that show rows and pairs: explained pairs, charts, maps and pages."""
