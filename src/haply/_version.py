"""The one place where the version is written; the build and `haply --version` read it from here."""

__version__ = "0.1.0"
