"""Work in a process apart, which may die alone."""
