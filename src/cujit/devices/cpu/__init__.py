"""The CPU device: what it executes is PTX, and it needs no file of CUDA's."""
