"""What memory there is: the ranges that kernels under checks may access, and those that were freed."""

from __future__ import annotations

import bisect
import ctypes
import sys
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from cujit.devices.cpu.native.structures import PATTERN, Span, Watch
from cujit.devices.cpu.run.allocations import APART, HostBlock, live_blocks

if TYPE_CHECKING:
    from cujit.devices.shapes import LaunchShape

__all__ = ["CheckedRun", "Known", "Ledger", "Table"]

_PACKAGE = str(Path(__file__).parents[3])
_COMMAND_LINE = str(Path(_PACKAGE, "cli"))

_QUARANTINE_BYTES = 256 << 20
_QUARANTINE_BLOCKS = 4096
"""Freed memory is kept, so that who uses it is told; beyond so much the oldest goes."""

_LEAST_ADDRESS, _MOST_ADDRESS = 1 << 16, 1 << 47
"""What a parameter has to be to count as an address. Source: Linux, Documentation/arch/x86/x86_64/mm.rst."""


@dataclass(frozen=True)
class Known:
    """A range of memory: address, size in bytes, what to call it, whether it was freed, where its marks are (or 0)."""

    begin: int
    size: int
    words: str
    freed: bool = False
    marks: int = 0

    @property
    def end(self) -> int:
        """The address behind it."""
        return self.begin + self.size


@dataclass(frozen=True)
class Table:
    """The ranges of one launch, sorted, and the same for machine code (with one more at the end)."""

    known: tuple[Known, ...]
    spans: ctypes.Array[Span]
    holds: tuple[object, ...]

    def place_of(self, address: int, size: int) -> str:
        """Say where an access lies to the range nearest to it."""
        if not self.known:
            return "the device has no memory allocated"
        nearest = min(self.known, key=lambda k: max(k.begin - address, address + size - k.end, 0))
        return _relation(nearest, address, size)


def _relation(known: Known, address: int, size: int) -> str:
    inside = address - known.begin
    if address >= known.end:
        beyond = address - known.end
        where = f"{beyond:,} bytes beyond the end of" if beyond else "right behind the end of"
    elif address < known.begin:
        before = known.begin - address
        where = f"{before:,} bytes before"
    elif address + size > known.end:
        where = f"the last {address + size - known.end:,} bytes are beyond the end of"
    else:
        where = f"at byte {inside:,} of"
    return f"{where} {known.words}"


class CheckedRun(NamedTuple):
    """One launch under checks: its shape, what there is of memory, and what machine code reads of it."""

    shape: LaunchShape
    table: Table
    watch: Watch


class Ledger:
    """The memory of one device. ``keeps_marks``: also which of its bytes were written."""

    def __init__(self, *, keeps_marks: bool) -> None:
        self._keeps_marks = keeps_marks
        self._blocks: dict[int, tuple[Known, npt.NDArray[np.uint8] | None]] = {}
        self._quarantine: deque[tuple[Known, object]] = deque()
        self._modules: list[tuple[weakref.ref[HostBlock], Mapping[str, tuple[int, int]]]] = []

    # -- what the device tells ---------------------------------------------------------------------------

    def add(self, block: HostBlock) -> None:
        """Note memory that was allocated, and where in the user's program that was."""
        marks = None
        known = Known(block.address, block.size, f"the {block.size:,}-byte array allocated {_caller()}")
        if self._keeps_marks and block.size:
            whole = -(-block.size // len(PATTERN)) * len(PATTERN)
            marks = np.zeros(whole, np.uint8)
            known = replace(known, marks=marks.ctypes.data)
            _bytes_at(block.address, whole).reshape(-1, len(PATTERN))[:] = np.frombuffer(PATTERN, np.uint8)
        self._blocks[block.address] = known, marks
        weakref.finalize(block, self._free, block.address, block.memory).atexit = False

    def _free(self, address: int, memory: object) -> None:
        known, _ = self._blocks.pop(address)
        if not known.size:
            return
        words = known.words.replace("the ", "the freed ", 1)
        self._quarantine.append((replace(known, freed=True, marks=0, words=words), memory))
        total = sum(k.size for k, _ in list(self._quarantine))
        while self._quarantine and (total > _QUARANTINE_BYTES or len(self._quarantine) > _QUARANTINE_BLOCKS):
            total -= self._quarantine.popleft()[0].size

    def written(self, address: int, size: int) -> None:
        """Note that the host has written bytes."""
        if not self._keeps_marks or not size:
            return
        for known, marks in list(self._blocks.values()):
            if marks is not None and known.begin <= address and address + size <= known.end:
                marks[address - known.begin :][:size] = 1

    def module(self, memory: HostBlock, variables: Mapping[str, tuple[int, int]]) -> None:
        """Note a module: offset and size of its variables in its memory."""
        self._modules.append((weakref.ref(memory), variables))

    # -- what a launch needs -----------------------------------------------------------------------------

    def table(self, parameters: bytes, more: Sequence[Known] = ()) -> Table:
        """Make the table for a launch with these parameters, which may access ``more`` as well.

        What they point to, and is not ours, is memory of others: all that is mapped there counts as theirs.
        """
        modules = [(block, variables) for ref, variables in self._modules if (block := ref()) is not None]
        images = {block.address for block, _ in modules}
        ours = dict(self._blocks)
        found = [
            ours[begin][0] if begin in ours else Known(begin, size, f"the {size:,} bytes allocated at {begin:#x}")
            for begin, size in live_blocks()
            if begin not in images and size
        ]
        for block, variables in modules:
            found += [Known(block.address + at, n, f"the variable {name} ({n:,} bytes)")
                      for name, (at, n) in variables.items() if n]  # fmt: skip
        freed = list(self._quarantine)
        found = sorted([*found, *more, *(k for k, _ in freed)], key=lambda k: k.begin)
        found = sorted([*found, *_of_others(parameters, found)], key=lambda k: k.begin)
        spans = (Span * (len(found) + 1))(*(Span(k.begin, k.end, k.freed, k.marks) for k in found))
        return Table(tuple(found), spans, (modules, ours, freed))


def _caller() -> str:
    """Say from where outside of cujit this was called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_code.co_filename.startswith(_COMMAND_LINE):
            return "by the command line"
        frame = frame.f_back
    return f"at {frame.f_code.co_filename}:{frame.f_lineno}"


def _bytes_at(address: int, size: int) -> npt.NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def _of_others(parameters: bytes, known: list[Known]) -> list[Known]:
    # What lies less than APART bytes behind memory of ours is nobody's: a parameter there is one beyond the end.
    words = np.frombuffer(parameters[: len(parameters) // 8 * 8], np.uint64).tolist()
    begins = [k.begin for k in known]
    found: list[Known] = []
    mappings: list[tuple[int, int]] | None = None
    for address in sorted({w for w in words if _LEAST_ADDRESS <= w < _MOST_ADDRESS}):
        at = bisect.bisect_right(begins, address) - 1
        if (at >= 0 and address <= known[at].end + APART) or (found and address < found[-1].end):
            continue
        mappings = _mappings() if mappings is None else mappings
        end = next((high for low, high in mappings if low <= address < high), 0)
        if at + 1 < len(begins):
            end = min(end, begins[at + 1])
        if end > address:
            found.append(Known(address, end - address, f"memory of others at {address:#x}"))
    return found


def _mappings() -> list[tuple[int, int]]:
    """List what is mapped into this process; neighbours count as one. Source: Linux, proc_pid_maps(5)."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    found: list[tuple[int, int]] = []
    for line in lines:
        span, permissions = line.split()[:2]
        low, high = (int(part, 16) for part in span.split("-"))
        if permissions[0] != "r":
            continue
        if found and found[-1][1] == low:
            found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return found
