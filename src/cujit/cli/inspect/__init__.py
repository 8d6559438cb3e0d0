"""The verb ``inspect``."""

from cujit.cli.inspect.verb import command

__all__ = ["command"]
