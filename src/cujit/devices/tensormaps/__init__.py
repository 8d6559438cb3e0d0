"""Tensor maps: what the tensor memory accelerator is told of a tensor."""
