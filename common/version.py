"""The version of the project: what `--version` prints, and what a built package is called."""

__version__ = "0.2.0"
