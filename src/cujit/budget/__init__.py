"""Budgets: what kernels may use at most, checked on their machine code; no GPU is needed."""
