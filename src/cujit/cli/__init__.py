"""The command line: one file per verb, each a thin shell over public functions."""

from cujit.cli.app import main

__all__ = ["main"]
