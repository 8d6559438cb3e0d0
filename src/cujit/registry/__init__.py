"""Modules by name, for libraries that generate kernels. Each module is built and loaded once."""

from cujit.registry.registered import RegisteredModule
from cujit.registry.registry import Registry

__all__ = ["RegisteredModule", "Registry"]
