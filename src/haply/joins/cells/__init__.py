"""The join of one cell: rows that may meet come together as Arrow tables, and leave as pairs.

Nothing here knows an engine. ``rows`` tells usable rows from null and bad ones, ``difference``, ``samples`` and
``positions`` are the methods by which pairs are found and decided, ``asked`` has further conditions on pairs, and
``join`` puts them together.
"""
