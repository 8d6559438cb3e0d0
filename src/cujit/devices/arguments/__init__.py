"""Arguments of kernels: what may stand for a parameter, and how it is packed."""
