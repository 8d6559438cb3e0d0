"""Copies in bulk, and of boxes of tensors."""
