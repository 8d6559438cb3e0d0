"""Kernels as functions of JAX: ``import cujit.jax``. Importing it imports jax; importing cujit does not."""

from cujit.jax.operators import operator

__all__ = ["operator"]
