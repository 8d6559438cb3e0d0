"""A kernel as operations and blocks, and the one table of what operations mean."""
