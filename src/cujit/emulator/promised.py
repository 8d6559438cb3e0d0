"""What handles stand for, where the call that makes it succeeded before it was done: see ``promises``."""

from __future__ import annotations

import ctypes
from typing import Protocol, TypeVar

from cujit.emulator.entries import require
from cujit.emulator.machine import cell_free, cell_is, in_c, native
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import Cell, CellKind


class _HasHandle(Protocol):
    handle: int


_Kept = TypeVar("_Kept")
_Handled = TypeVar("_Handled", bound=_HasHandle)

_LATE: dict[int, RefusedCall] = {}
"""Why there is nothing behind a handle."""

_wait = in_c("promises_wait", None, ctypes.c_uint64)


def found(table: dict[int, _Kept], kind: CellKind, handle: int) -> _Kept:
    """Find what a handle stands for, once all promised calls that are about it were made.

    Raises:
        Refused: it is of another kind, or nothing came of it.
    """
    require(cell_is(handle, kind), Result.INVALID_HANDLE)
    if native().state.promises:
        _wait(handle)
    if handle in _LATE:
        raise _LATE[handle]
    require(handle in table, Result.INVALID_HANDLE)
    return table[handle]


def keep(table: dict[int, _Handled], handle: int, made: int) -> None:
    """Put what was made behind the handle that was promised."""
    table[handle] = table.pop(made)
    table[handle].handle = handle
    cell_free(made, CellKind(Cell.from_address(made).kind))


def refuse(handle: int, refused: RefusedCall) -> None:
    """Keep the reason why nothing came of a promise."""
    _LATE[handle] = refused
    Cell.from_address(handle).error = refused.result
