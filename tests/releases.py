"""What the releases of the toolkit that are installed do, for tests that need a newer one."""

from __future__ import annotations

from cujit.compiler.backends.link import LTOIR_SINCE
from cujit.program import toolchain

__all__ = ["links_to_ltoir"]


def links_to_ltoir() -> bool:
    """Whether the nvJitLink that is installed links to LTO-IR."""
    return toolchain().nvjitlink.version >= LTOIR_SINCE
