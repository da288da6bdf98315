"""Indexed tables: what they hold, how they are written and read, whichever engine does it."""
