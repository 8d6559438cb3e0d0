"""What watches a kernel: checks, traces and coverage, the code that they add and what they report."""
