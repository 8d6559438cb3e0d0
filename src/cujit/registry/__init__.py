"""Modules by name, for libraries that generate kernels: each is built and loaded once, whoever asks."""
