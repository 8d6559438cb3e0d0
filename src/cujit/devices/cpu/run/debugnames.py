"""What people call the functions and lines of a kernel's machine code, in debuggers and profilers."""

from __future__ import annotations

import functools

from cujit.devices.cpu.run.debuglines import Origin
from cujit.devices.cpu.run.lines import Lines, SourceLine
from cujit.devices.shapes import Dim3

__all__ = ["name_in_profiles", "origin_of"]

_KERNEL = ("run", "body")
"""The functions of the IR that are a kernel whole, and its warps on stacks of their own."""

_CALLED = "function "
"""What the names of functions of the PTX begin with (see ``instructions.functions``)."""


def name_in_profiles(kernel: str, block: Dim3, symbol: str) -> str:
    """Name a function of the machine code of a kernel, for one shape of its blocks: ``axpy<float> 256x1x1``."""
    return f"{_name(kernel, symbol)[0]} {block.x}x{block.y}x{block.z}"


def origin_of(kernel: str, lines: Lines, ptx: str, *, of_source: bool) -> Origin:
    """Say where lines and functions come from: the PTX, in the file ``ptx``, or the source if that is known."""

    def place_of(symbol: str, line: int) -> SourceLine:
        if line:
            return (lines.source_of(line) if of_source else None) or SourceLine(ptx, line)
        line = lines.begin_of(symbol[len(_CALLED) :] if symbol.startswith(_CALLED) else kernel)
        function = lines.function_of(line)
        return (function.begins if of_source and function else None) or SourceLine(ptx, line)

    return Origin(functools.partial(_name, kernel), functools.cache(place_of))


def _name(kernel: str, symbol: str) -> tuple[str, str]:
    """Give what people call a function, and its lowered name where that is another."""
    from cujit.formats.mangling import entity_name  # for who asks

    lowered = symbol[len(_CALLED) :] if symbol.startswith(_CALLED) else kernel
    name = entity_name(lowered) or lowered
    if symbol in _KERNEL or symbol.startswith(_CALLED):
        return name, lowered if lowered != name else ""
    return f"{name}.{symbol}", ""
