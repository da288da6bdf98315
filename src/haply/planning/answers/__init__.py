"""Answers beyond pairs: rows without a partner, best partners, matches, counts, and last events."""
