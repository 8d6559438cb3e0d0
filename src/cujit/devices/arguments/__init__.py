"""Kernel arguments: the accepted types for each parameter, and how they are packed."""
