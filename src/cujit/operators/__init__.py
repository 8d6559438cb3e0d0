"""Kernels behind the operators of frameworks: what ``cujit.torch`` and ``cujit.jax`` have in common."""
