"""Decide pairs without their probability: row intervals for most pairs, certified bounds for others, and counters."""
