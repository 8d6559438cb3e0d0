"""Architectures, and which release of CUDA, of its driver and of PTX knows which."""

from cujit.arch.arch import KNOWN_ARCHES, Arch, ArchKind

__all__ = ["KNOWN_ARCHES", "Arch", "ArchKind"]
