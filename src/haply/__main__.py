"""``python -m haply`` is the command ``haply``."""

from haply.cli import command

command()
