"""Spills of kernels from the assembler's log."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Lines of ptxas with -v, as NVRTC and nvJitLink pass them on (read from 12.9 to 13.5).
_COMPILING = re.compile(r"Compiling entry function '[\w$.]+' for '(\w+)'")
_FUNCTION = re.compile(r"Function properties for '?([\w$.]+)'?")
_SPILLS = re.compile(r"(\d{1,18}) bytes stack frame, (\d{1,18}) bytes spill stores, (\d{1,18}) bytes spill loads")

Spills = Mapping[tuple[str, str], tuple[int, int]]
"""(lowered name, architecture or "") to bytes of spill stores and of spill loads."""


def spills_of_log(log: str) -> Spills:
    """Return the spills of each kernel for each architecture in the log.

    A function that isn't inlined follows the kernels of its architecture (read in logs of NVRTC 13.5). The architecture
    is empty if the log doesn't contain it.
    """
    found: dict[tuple[str, str], tuple[int, int]] = {}
    arch = name = ""
    for line in log.splitlines():
        if entry := _COMPILING.search(line):
            arch = entry[1]
        elif function := _FUNCTION.search(line):
            name = function[1]
        elif name and (spills := _SPILLS.search(line)):
            found[name, arch] = (int(spills[2]), int(spills[3]))
            name = ""
    return found
