"""Answers beyond pairs, on the local engine."""
