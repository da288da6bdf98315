"""The join of one cell: takes rows that may meet as Arrow tables, and returns pairs.

No module here depends on an engine. ``rows`` tells usable rows from null and bad ones, ``difference``, ``samples`` and
``positions`` are the methods by which pairs are found and decided, ``asked`` has further conditions on pairs, and
``join`` puts them together.
"""
