"""GPU architectures, and which releases of CUDA, its driver, and PTX support them."""

from cujit.arch.arch import Arch, ArchKind

__all__ = ["Arch", "ArchKind"]
