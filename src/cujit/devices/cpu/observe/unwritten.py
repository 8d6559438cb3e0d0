"""The ``init`` check's data about memory that outlives a launch: unwritten bytes, and the stores of raw values.

Machine code sets the marks: see ``runtime/written.h``. This module reads the marks for the host. It does so when the
host copies an array, when other code can access its memory, and after a launch that received host memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cujit.devices.cpu.native.checking import PATTERN, STORES, MarkHead, Stores
from cujit.values import NamedTuple

if TYPE_CHECKING:
    from cujit.devices.cpu.native.checking import Stored
    from cujit.devices.cpu.run.source_map import Lines

_ROW = len(PATTERN)
_PADDING = 8
"""Fewer bytes in a row that nobody wrote, between bytes that somebody did, are padding of a structure."""

_LATER = (
    f"\n  cujit names {STORES - 1} stores of such values that a device's memory holds at a time: "
    "this is a later one, or a copy"
)
"""The message for the mark that stands for all stores without a number of their own."""

_DROPPED = STORES + 1
"""The number of a parent that was dropped: no store has it."""

_PLACES = ("", "shared memory", "local memory")

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


class RawElement(NamedTuple):
    """An element that the host must not read: its number, its offset in bytes, and its mark (0: never written)."""

    number: int
    offset: int
    mark: int


class ByteMarks:
    """The marks of ``size`` bytes at ``begin``. At first, either all bytes are ``written`` or none are. See
    ``MarkHead``.
    """

    def __init__(self, begin: int, size: int, *, written: bool) -> None:
        self.begin, self.size = begin, size
        self._held = np.zeros(ctypes.sizeof(MarkHead) + -(-size // _ROW) * _ROW, np.uint8)
        self.address = self._held.ctypes.data
        self._head = MarkHead.from_address(self.address)
        self._head.plain = written
        self._bytes = self._held[ctypes.sizeof(MarkHead) :]

    @property
    def plain(self) -> bool:
        """Whether all of the memory was written."""
        return bool(self._head.plain)

    def write(self, address: int, size: int) -> None:
        """Note that bytes were written."""
        if size == self.size:
            self._head.plain = 1
        elif not self.plain:
            self._bytes[address - self.begin :][:size] = 1

    def take(self, address: int, marks: Bytes) -> None:
        """Record that bytes with ``marks`` were copied to an address."""
        if self.plain:
            self._bytes[:] = 1
            self._head.plain = 0
        self._bytes[address - self.begin :][: marks.size] = marks

    def of(self, address: int, size: int) -> Bytes | None:
        """Return the marks of some bytes, or None if all of these bytes were written."""
        if self.plain:
            return None
        found = self._bytes[address - self.begin :][:size]
        return None if (found & 1).all() else found

    def stores(self) -> set[int]:
        """Return the numbers of the stores that left raw values in this memory."""
        return set() if self.plain else set(np.unique(self._bytes[self._stored()] // 2).tolist())

    def renumber(self, marks: Bytes) -> None:
        """Replace each mark of a store with the element of ``marks`` at its index."""
        if not self.plain:
            stored = self._stored()
            self._bytes[stored] = marks[self._bytes[stored]]

    def _stored(self) -> Flags:
        found: Flags = (self._bytes & 1 == 0) & (self._bytes != 0)
        return found

    def unwritten(self, address: int, size: int) -> Flags:
        """Return which bytes were never written, by kernels or by other code. Other code is detected by a changed fill
        pattern.
        """
        first = (address - self.begin) // _ROW * _ROW
        last = -(-(address - self.begin + size) // _ROW) * _ROW
        marks = self._bytes[first:last].reshape(-1, _ROW)
        there = np.zeros(last - first, np.uint8)
        length = min(last, self.size) - first
        there[:length] = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(self.begin + first))
        there[length:] = np.resize(np.frombuffer(PATTERN, np.uint8), last - first)[length:]
        kept = (there.reshape(-1, _ROW) == np.frombuffer(PATTERN, np.uint8)) | (marks != 0)
        found = (marks == 0) & kept.all(axis=1, keepdims=True)
        bare: Flags = found.reshape(-1)[address - self.begin - first :][:size]
        return bare


def first_raw(
    marks: ByteMarks, address: int, size: int, dtype: np.dtype[Any], stores: RawStores, *, holes: bool
) -> RawElement | None:
    """Return the first element of a range that holds raw values, or None. With ``holes``, an unwritten element also
    counts.
    """
    found = marks.of(address, size)
    if found is None:
        return None
    item = dtype.itemsize
    used = _used(dtype)
    stored = (found & 1 == 0) & (found != 0)
    if item == 1:
        stored &= ~stores.partial[found]
    count = size // item
    bad = (stored[: count * item].reshape(count, item) & used).any(axis=1)
    if holes:
        bare = marks.unwritten(address, size)
        if item == 1:
            bare &= ~_short_runs(bare)
        bad |= (bare[: count * item].reshape(count, item) | ~used).all(axis=1)
    if not bad.any():
        return None
    number = int(bad.argmax())
    own = found[number * item :][:item][stored[number * item :][:item] & used]
    return RawElement(number, number * item, int(own[0]) if own.size else 0)


def _used(dtype: np.dtype[Any]) -> Flags:
    """Return which bytes of an element belong to a field, and not to padding."""
    used = np.zeros(dtype.itemsize, np.bool_)
    if dtype.fields is None:
        base, _ = dtype.subdtype or (dtype, ())
        used[:] = True if base is dtype else np.resize(_used(base), dtype.itemsize)
        return used
    for field in dtype.fields.values():
        kind, offset = field[0], field[1]
        used[offset : offset + kind.itemsize] |= _used(kind)
    return used


def _short_runs(bare: Flags) -> Flags:
    """Return the flags that are in short runs, with other bytes before and after the run."""
    found = np.zeros_like(bare)
    edges = np.flatnonzero(np.diff(bare, prepend=False, append=False))
    for first, last in edges.reshape(-1, 2).tolist():
        if last - first < _PADDING and first and last < bare.size:
            found[first:last] = True
    return found


class RawStores:
    """The stores that left raw values in a device's memory, with a description of each store for findings."""

    def __init__(self) -> None:
        self._stores = Stores()
        self.address = ctypes.addressof(self._stores)
        self._words: dict[int, str] = {}

    @property
    def full(self) -> bool:
        """Whether no separate number is left for the next store."""
        return int(self._stores.count) >= STORES - 1

    def forget(self, everywhere: Sequence[ByteMarks]) -> None:
        """Drop the stores that no mark refers to, and renumber the other stores. No launch may be running."""
        kept = sorted(set().union(*(marks.stores() for marks in everywhere)) - {STORES})
        numbers = {old: new for new, old in enumerate(kept, 1)} | {0: 0, STORES: STORES}
        for old, new in numbers.items():
            if 0 < new < STORES:
                self._stores.each[new - 1] = self._stores.each[old - 1]
                stored = self._stores.each[new - 1]
                stored.parent = numbers.get(stored.parent, _DROPPED)
        self._stores.count = len(kept)
        self._words = {numbers[old]: words for old, words in self._words.items() if old in numbers}
        marks = np.arange(256, dtype=np.uint8)
        marks[[2 * old for old in numbers]] = [2 * new for new in numbers.values()]
        for each in everywhere:
            each.renumber(marks)

    def learn(self, launch: int, kernel: str, lines: Lines, name_of: Callable[[int], str]) -> None:
        """Describe the stores of the launch with a serial number. ``name_of`` returns the name of the memory at an
        address.
        """
        for k in range(self._stores.count):
            stored = self._stores.each[k]
            if stored.launch == launch and k + 1 not in self._words:
                self._words[k + 1] = self._describe(stored, kernel, lines, name_of)

    def _describe(self, stored: Stored, kernel: str, lines: Lines, name_of: Callable[[int], str]) -> str:
        name = _PLACES[stored.place] if stored.place < len(_PLACES) else name_of(stored.place)
        words = f"\n  stored by kernel {kernel}{_at(lines, stored.line)}"
        words += f"\n  loaded{f' from {name}' if name else ''}{_at(lines, stored.load)}"
        return words + self.words_of(stored.parent)

    def words_of(self, number: int) -> str:
        """Describe the kernel and the lines that stored and loaded a raw value, as lines to add to a message."""
        return _LATER if number == STORES else self._words.get(number, "")

    @property
    def partial(self) -> Flags:
        """For each mark, whether only a part of the stored value was raw."""
        found = np.zeros(256, np.bool_)
        for k in range(min(self._stores.count, STORES)):
            found[2 * (k + 1)] = bool(self._stores.each[k].partial)
        return found


def _at(lines: Lines, line: int) -> str:
    source = lines.origin_of(line)
    return f"\n  at PTX line {line}: {lines.text_of(line)}" + (f"\n  from {source}" if source else "")
