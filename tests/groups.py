"""The header of cooperative groups, for kernels that need few of its functions."""

from __future__ import annotations

__all__ = ["GROUPS"]

GROUPS = "#define _CG_LIMIT_INCLUDED_DEPENDENCIES\n#include <cooperative_groups.h>\n"
"""Without libcu++, which takes NVRTC a second; kernels are the same. ``tests/real`` includes the whole."""
