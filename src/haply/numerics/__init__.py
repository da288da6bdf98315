"""Compiled mathematics on plain numbers: the jit policy, the normal distribution, and one-dimensional components."""
