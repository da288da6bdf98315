"""Certified bounds that decide a candidate without its probability."""
