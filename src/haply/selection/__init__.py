"""Threshold selections: which rows fulfil all conditions with enough probability; most are decided early."""
