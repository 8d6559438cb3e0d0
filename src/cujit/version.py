"""The version of cujit: this is its one home, and the build reads it here."""

__version__ = "0.3.0"
