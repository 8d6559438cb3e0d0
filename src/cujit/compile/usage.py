"""What kernels use, as values: from the cubin itself, and what only the assembler's log tells, from there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cujit.artifact import Artifact, Kind
from cujit.errors import FormatError
from cujit.formats.cubin import read_cubin

__all__ = ["Usage", "usage"]

# Lines of ptxas with -v, as NVRTC and nvJitLink pass them on (read from 12.9 to 13.5).
_FUNCTION = re.compile(r"Function properties for '?([\w$.]+)'?")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Usage:
    """What one kernel uses. ``registers`` and ``stack_bytes`` are a thread's, ``shared_bytes`` a block's.

    The spills, in bytes of code that moves them, are known only if the log of the assembler was asked for
    (``verbose=True``); they are None else.
    """

    registers: int | None
    stack_bytes: int | None
    shared_bytes: int
    barriers: int
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None


def usage(artifact: Artifact) -> dict[str, Usage]:
    """Read what each kernel of a cubin uses, by lowered name.

    Raises:
        FormatError: it is no cubin, or a damaged one.
    """
    if artifact.kind is not Kind.CUBIN:
        raise FormatError(
            f"registers are known of machine code, and this is {artifact.kind.value}",
            help="cujit.link([artifact], arch='sm_…', verbose=True) makes a cubin of it",
        )
    spills = _spills(artifact.log)
    found = {}
    for kernel in read_cubin(artifact.data).kernels:
        stores, loads = spills.get(kernel.name, (None, None))
        found[kernel.name] = Usage(
            kernel.registers, kernel.stack_bytes, kernel.shared_bytes, kernel.barriers, stores, loads
        )
    return found


def _spills(log: str) -> dict[str, tuple[int, int]]:
    """Find the bytes of spill stores and loads of each function in a log."""
    found: dict[str, tuple[int, int]] = {}
    name = None
    for line in log.splitlines():
        function, spills = _FUNCTION.search(line), _SPILLS.search(line)
        if function:
            name = function[1]
        if spills and name is not None:
            found[name] = (int(spills[2]), int(spills[3]))
            name = None
    return found
