"""Kernels as operators of PyTorch: ``import cujit.torch``. Importing it imports torch; importing cujit does not."""

from cujit.torch.operators import operator

__all__ = ["operator"]
