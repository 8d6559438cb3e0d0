"""The version of cujit."""

__version__ = "0.1.0"
