"""Where a program lives: which interpreter its processes start, what they say, and where the package's files are."""
