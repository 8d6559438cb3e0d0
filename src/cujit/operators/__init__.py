"""Kernels of framework operators: the shared parts of ``cujit.torch`` and ``cujit.jax``."""
