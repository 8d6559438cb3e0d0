"""What is replayed, and what comes of it: values that a process of another tree can read, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Case", "Outcome", "Pointer"]


class Pointer(NamedTuple):
    """An address that goes into an array, or into the parameters (``into`` is -1): that of ``array``, plus ``add``."""

    into: int
    offset: int
    array: int
    add: int = 0


@dataclass(frozen=True)
class Case:
    """One launch of ``kernel`` of a PTX text.

    ``arrays`` are the bytes of the memory that it reaches, ``parameters`` those of its parameters, ``pointers`` the
    addresses in both. ``shared_bytes`` is dynamic shared memory, ``cluster`` counts blocks, ``check`` names checks.
    """

    name: str
    ptx: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    parameters: bytes
    arrays: tuple[bytes, ...]
    pointers: tuple[Pointer, ...]
    shared_bytes: int = 0
    cluster: tuple[int, ...] | None = None
    cooperative: bool = False
    check: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of a launch: what was compiled for it, what it left and printed, or an error.

    ``ir`` is the IR of the kernel, ``library`` that of native code that it is the first to need, both by zlib.
    ``compile_s`` are CPU seconds from PTX to machine code, ``launch_s`` wall seconds of the shortest of some launches;
    both are 0 after an error.
    """

    ir: bytes = b""
    library: bytes = b""
    arrays: tuple[bytes, ...] = ()
    printed: str = ""
    error: str = ""
    compile_s: float = 0.0
    launch_s: float = 0.0
