"""Architectures, and which release of CUDA, of its driver and of PTX knows which."""

from cujit.arch.arch import Arch, ArchKind

__all__ = ["Arch", "ArchKind"]
