"""Tensor maps: how the tensor memory accelerator sees a tensor."""
