"""The verb ``cache``."""

from cujit.cli.cache.verb import command

__all__ = ["command"]
