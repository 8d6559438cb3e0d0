"""The stand-in libraries: made once into a folder that is named by its content, loaded, and filled in.

A folder holds ``libcuda.so.1`` and ``libcuda.so``. First in ``LD_LIBRARY_PATH`` it serves every process that is started
then: its first call of the driver brings Python here (``attach``), whatever program it is.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

from cujit.emulator.entries import AFTER_END, ENTRIES, gives_back
from cujit.emulator.functions import exports
from cujit.emulator.library_files import SONAME, folder
from cujit.emulator.machine import Targets, constant, for_c, outliving
from cujit.emulator.process import emulation
from cujit.emulator.results import Result
from cujit.emulator.shared_library import TABLE_SYMBOL
from cujit.emulator.structures import BootTable, Emulator, ErrorText
from cujit.errors import CujitError
from cujit.forks import Lock

_LOCK = Lock()
_ATTACHED: dict[int, _Slots] = {}


def slots_of(table: int) -> ctypes.Array[ctypes.c_uint64]:
    """Return the addresses of a library's functions, which follow its table."""
    count: int = BootTable.from_address(table).count
    return (ctypes.c_uint64 * count).from_address(table + ctypes.sizeof(BootTable))


class _Slots:
    """The filled-in table of a library: functions in C, and functions that Python provides on first use."""

    def __init__(self, address: int) -> None:
        self._slots = slots_of(address)
        self._names = list(exports().items())
        self._kept: dict[str, Any] = {}
        self._native = emulation().native.entries
        self._refuse = emulation().native.address("not_supported")
        at_end = emulation().native.address("deinitialized")
        ask = for_c(ctypes.c_uint64, (ctypes.c_uint64, ctypes.c_uint64), self._on_first_call, at_end)
        self._targets = Targets(address, list(exports()), ask)
        for index, (_, function) in enumerate(self._names):
            at = self._in_c(index)
            if at and not emulation().notes.watches:
                self._slots[index] = at
            # These may be called for the first time when Python has ended.
            if function in AFTER_END or (not at and function in ENTRIES and gives_back(function)):
                self._place(index)

    def _in_c(self, index: int) -> int:
        """Return the address of a function in C, or 0 if C has no such function."""
        export, function = self._names[index]
        return self._native.get(export) or self._native.get(function, 0)

    def _on_first_call(self, index: int, table: int) -> int:
        """Return where a call continues in C, if Python has no such function. If it has, C calls that from now on."""
        del table
        export, function = self._names[index]
        if not self._in_c(index) and function not in ENTRIES:
            emulation().refuse(export)
            return self._refuse
        emulation().notes.requested(export)
        with _LOCK:
            self._place(index)
        return self._refuse

    def _place(self, index: int) -> None:
        """Register a function of Python's for C to call."""
        export, function = self._names[index]
        if export not in self._kept:
            native = self._in_c(index)
            self._kept[export] = (
                _noted(export, native) if native else ENTRIES[function].pointer(own_stream=export != function)
            )
            self._targets.give(index, self._kept[export])


_ANY = [ctypes.c_uint64] * 12
"""The parameters of a function of whole numbers and pointers; no function in C takes more, and more do no harm."""


def _noted(export: str, at: int) -> Any:
    """Return a function that records each call before a function in C, if calls are recorded."""
    function, notes = ctypes.CFUNCTYPE(ctypes.c_int32, *_ANY)(at), emulation().notes

    def call(*arguments: int) -> int:
        result = int(Result.UNKNOWN)
        try:
            result = int(function(*arguments))
        finally:  # where Ctrl-C ended a kernel, too
            notes.answered(export, ("…",), result)
        return result

    return for_c(ctypes.c_int32, _ANY, call, Result.DEINITIALIZED, Result.UNKNOWN)


def _address(function: Any) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def attach(table: int) -> None:
    """Fill in a library's table: what its boot code calls, in any thread, and more than once.

    Raises:
        OptionError: the environment says what cannot be.
        MissingError: llvmlite is not installed.
    """
    with _LOCK:
        if table not in _ATTACHED:
            if not _ATTACHED:
                _fill_state(emulation().native.state, table)
                ctypes.pythonapi.Py_AtExit(ctypes.c_void_p(emulation().native.address("emulator_end")))
            _ATTACHED[table] = _Slots(table)


def _fill_state(state: Emulator, table: int) -> None:
    """Write the data for the end of the process: the driver's table, and the names of results."""
    rows = (ErrorText(result, constant(result.spelled), constant(result.sentence)) for result in Result)
    errors = outliving((ErrorText * len(Result))(*rows))
    state.table, state.errors, state.error_count = table, ctypes.addressof(errors), len(errors)
    names = list(exports())
    state.name_slot, state.string_slot = names.index("cuGetErrorName"), names.index("cuGetErrorString")


def address_of(export: str) -> int:
    """Return the address of an exported function of the library in this process, or 0 if it exports no
    such function.
    """
    return _address(getattr(_this_library(), export, None))


@functools.cache
def _this_library() -> ctypes.CDLL:
    return ctypes.CDLL(SONAME)


# -- in this process -----------------------------------------------------------------------------------------


def load() -> None:
    """Load the library into this process, as whoever asks for ``libcuda.so.1`` will find it, and fill it in.

    Raises:
        CujitError: a driver is loaded already.
        As of ``folder`` and ``attach``.
    """
    if (loaded := driver_path()) is not None:
        raise loaded_already(loaded)
    library = ctypes.CDLL(str(folder() / SONAME))
    attach(ctypes.addressof(BootTable.in_dll(library, TABLE_SYMBOL)))


def loaded_already(path: str) -> CujitError:
    """Make the error that NVIDIA's library is already in this process, so that the emulator's library cannot be."""
    return CujitError(
        f"this process has already loaded {path}, so it can't use the emulator",
        help="call cujit.emulate() before any CUDA call, or start the program with `cujit emulate`",
    )


def driver_path() -> str | None:
    """Return the path of the driver that this process has loaded, or None if there is none or it is the emulator's."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:  # a container may have no /proc
        return SONAME if _is_loaded(SONAME) and not _is_ours(SONAME) else None
    for line in lines:
        path = line[line.find("/") :].removesuffix(" (deleted)")
        if "/libcuda.so" in path and not _is_ours(path):
            return path
    return None


def _is_loaded(name: str) -> bool:
    try:
        return bool(ctypes.CDLL(name, mode=os.RTLD_NOLOAD))
    except OSError:
        return False


def _is_ours(path: str) -> bool:
    """Return whether a loaded library is the emulator's, from any folder. A parent's cache may be elsewhere."""
    try:
        return hasattr(ctypes.CDLL(path, mode=os.RTLD_NOLOAD), TABLE_SYMBOL)
    except OSError:
        return False
