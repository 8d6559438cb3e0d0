"""Tensor maps, which describe tensors to the tensor memory accelerator."""
