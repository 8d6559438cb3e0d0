"""Texts that add file paths to a result."""

from __future__ import annotations

# __FILE__ and what stands for it; and the switches that turn on such checks in the toolkit's headers: all have
# ASSERT or DEBUG in their names (CCCL_ENABLE_ASSERTIONS, CUB_DEBUG_SYNC, _CG_DEBUG …). Source: the headers of 13.5.
_FILE = ("__FILE__", "__BASE_FILE__", "__builtin_FILE")


def says_where(text: str) -> bool:
    """Return whether a text may put file paths into the result, directly or through the toolkit's headers."""
    if "ASSERT" in text or "assert" in text or "source_location" in text or "COMP_DEPR" in text:
        return True
    if "FILE" in text and any(word in text for word in _FILE):
        return True
    return "DEBUG" in text and text.count("DEBUG") > text.count("NDEBUG")
