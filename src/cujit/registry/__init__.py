"""Modules by name, for libraries that generate kernels: each is built and loaded once, whoever asks."""

from cujit.registry.registered import RegisteredModule
from cujit.registry.registry import Registry

__all__ = ["RegisteredModule", "Registry"]
