"""The emulator's machine code: the boot code of its libraries, and the entry points in C.

Each part is a file ``native/part.c``. Its functions ``cujit_cu…`` are entry points; Python calls others by ``in_c``.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cujit.cache.key import Part
from cujit.devices.jit import name_address, processor, publish
from cujit.devices.objects import CompileTask, machine_code, object_of
from cujit.devices.sources import read_file
from cujit.emulator.structures import BootTable, Emulator, PythonCall, PythonLock
from cujit.errors import CujitError, UnsupportedError
from cujit.forks import once
from cujit.formats.elf import read_elf
from cujit.workers.package_files import data_path

_NATIVE = Path(data_path("emulator", "native"))

_ENTRY = "cujit_cu"
"""How entry points begin in C; what else is there is for Python, or for other parts."""

_BOOT, _STATE, _MEMORY, _GRAPHS = "boot", "state", "memory", "graphs"


def machine() -> str:
    """Name this processor as folders of bitcode do."""
    return processor().triple.partition("-")[0]


def _work(part: str) -> CompileTask:
    try:
        bitcode = read_file(str(_NATIVE / machine() / f"{part}.bc"))
    except FileNotFoundError:
        raise UnsupportedError(
            f"the emulator doesn't support {machine()} processors", help="it supports x86_64 and aarch64"
        ) from None
    return CompileTask("emulator", part, (Part.content("bitcode", bitcode),), lambda: bitcode)


@functools.cache
def boot_code() -> bytes:
    """Compile the code of a library itself, which runs at any address.

    Raises:
        MissingError: llvmlite is not installed.
        UnsupportedError: it is not written for this processor.
    """
    elf = read_elf(object_of(_work(_BOOT)))
    (symbol,) = (each for each in elf.symbols() if each.name == "cujit_boot")
    if any(section.type in (4, 9) and section.info == symbol.section and section.size for section in elf.sections):
        raise CujitError(
            "the startup code requires relocations, which the emulator doesn't support", help="report this bug"
        )
    code = elf.content(elf.sections[symbol.section])
    if symbol.value:
        raise CujitError("the startup code doesn't begin with its function", help="report this bug")
    return code


class Native:
    """The native code of the emulator. ``entries`` are the addresses of the driver functions in C, by name."""

    def __init__(self) -> None:
        found = self._part(_STATE, _parts()[_STATE])
        address = ctypes.CFUNCTYPE(ctypes.c_void_p)(found["cujit_emulator_start"])()
        if not address:
            raise CujitError("there isn't enough memory for the emulator's tables", code="out-of-memory")
        self.state = Emulator.from_address(address)
        name_address("cujit_state", address)
        others = (part for part in _parts() if part not in (_BOOT, _STATE, _MEMORY, _GRAPHS))
        for part in (_MEMORY, *others, _GRAPHS):
            found.update(self._part(part, _parts()[part]))
        self._found = found
        self.entries = {name[6:]: at for name, at in found.items() if name.startswith(_ENTRY)}

    def _part(self, part: str, names: Sequence[str]) -> dict[str, int]:
        """Load a part. Later parts may call its functions."""
        return publish(machine_code(_work(part), names[0]), names)

    def address(self, name: str) -> int:
        """Return the address of ``cujit_name``."""
        return self._found[f"cujit_{name}"]


@functools.cache
def _parts() -> dict[str, list[str]]:
    """List the parts, and the functions of each. A part calls others only by what Python gives it, but for ``state``
    and ``memory``; ``graphs`` is last, and calls all.
    """
    rows = (line.split() for line in (_NATIVE / "functions.txt").read_text().splitlines())
    return {part: names for part, *names in rows}


@once
def native() -> Native:
    """Load the native code, once per process.

    Raises:
        MissingError: llvmlite is not installed.
        UnsupportedError: the emulator doesn't support this processor.
    """
    return Native()


def in_c(name: str, answer: Any, *arguments: Any) -> Callable[..., Any]:
    """Return the C function ``cujit_name`` for Python, by the types of its result and arguments.

    Example:
        >>> is_cell = in_c("cell_is", ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32)
        >>> is_cell(0, CellKind.CONTEXT)
        0
    """
    found: list[Callable[..., Any]] = []

    def call(*given: Any) -> Any:
        if not found:
            found.append(ctypes.CFUNCTYPE(answer, *arguments)(native().address(name)))
        return found[0](*given)

    return call


class _Interrupting(int):
    """An answer for C that interrupts Python when it is dropped: ctypes does that last, when no line of ours follows.

    An exception that leaves a function which C called would be printed and forgotten.
    """

    def __init__(self, _answer: int) -> None:
        make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        interrupt = ctypes.cast(ctypes.pythonapi.PyErr_SetInterrupt, ctypes.c_void_p)
        self.at_end = make(("PyCapsule_New", ctypes.pythonapi))(1, None, interrupt)


def for_c(
    answer: Any,
    types: Sequence[Any],
    body: Callable[..., int],
    after_end: int | Callable[..., int],
    interrupted: int | None = None,
) -> Any:
    """Make a function that C calls as long as there is a process; from where Python ends, it gives ``after_end``, or
    what that function answers, which is one in C.

    Objects of clients make calls when they die, which is after the globals of modules are gone. Ctrl-C within ``body``
    is for who called the driver: the function gives ``interrupted`` (``after_end`` without it), and Python is
    interrupted as soon as the caller goes on.
    """

    def ended(*_: Any) -> Any:
        return after_end

    last: Callable[..., int] = after_end if callable(after_end) else ended
    has_ended, again = sys.is_finalizing, last() if interrupted is None else interrupted

    def call(*given: Any) -> int:
        if native().state.wait_ns:
            _wait_over()
        try:
            return last(*given) if has_ended() else body(*given)
        except KeyboardInterrupt:
            return _Interrupting(again)

    return outliving(ctypes.CFUNCTYPE(answer, *types)(call))


_wait_over = in_c("wait_over", None)
_wait_guard = in_c("wait_guard", ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)


def guarded(name: str, function: Any) -> int:
    """Return the address by which C calls what ``for_c`` made, so that no wait for Python's lock is for ever: see
    ``native/waits.c``. A message that ends such a wait has the name.
    """
    guard = _wait_guard(ctypes.cast(function, ctypes.c_void_p), constant(name))
    assert guard, "there are more guards in waits.c"
    return int(guard)


_waits_begin = in_c("waits_begin", ctypes.c_uint32, ctypes.POINTER(PythonLock))


@once
def watch_waits() -> None:
    """Begin to watch the calls that C makes of Python, so that no thread waits for Python's lock for ever.

    Raises:
        CujitError: there is no memory for it.
    """
    python = ctypes.pythonapi
    current = "PyThreadState_GetUnchecked" if sys.version_info >= (3, 13) else "_PyThreadState_UncheckedGet"
    names = current, "PyGILState_GetThisThreadState", "PyEval_SaveThread", "PyEval_RestoreThread"
    addresses = (ctypes.cast(getattr(python, name), ctypes.c_void_p).value for name in names)
    if not _waits_begin(PythonLock(*addresses)):
        raise CujitError("there isn't enough memory for the emulator's tables", code="out-of-memory")


class Targets:
    """The functions of Python's that a library calls: what its slots lead to where no code in C answers.

    Python is asked by ``ask``, a function for C of a place and the table, about functions that were not given.
    """

    def __init__(self, table: int, names: Sequence[str], ask: Any = None) -> None:
        watch_waits()
        self._texts = outliving(ctypes.create_string_buffer("\0".join(names).encode()))
        self._targets = outliving((PythonCall * len(names))())
        at = ctypes.addressof(self._texts)
        for target, name in zip(self._targets, names, strict=True):
            target.name = at
            at += len(name) + 1
        library = BootTable.from_address(table)
        library.targets, library.ask = ctypes.addressof(self._targets), ctypes.cast(ask, ctypes.c_void_p).value or 0
        library.resolve = native().address("enter")

    def give(self, index: int, function: Any) -> None:
        """Register the function of a slot, which ``for_c`` created."""
        self._targets[index].call = ctypes.cast(function, ctypes.c_void_p).value


_TEXTS: dict[str, ctypes.Array[ctypes.c_char]] = {}


def constant(text: str) -> int:
    """Return the address of a string that stays valid, also after the end of Python."""
    if text not in _TEXTS:
        _TEXTS[text] = outliving(ctypes.create_string_buffer(text.encode(errors="surrogateescape")))
    return ctypes.addressof(_TEXTS[text])


def outliving(memory: Any) -> Any:
    """Return memory that remains valid after Python ended."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    return memory


memory_adopt = in_c("memory_adopt", ctypes.c_uint32, *[ctypes.c_uint64] * 2, *[ctypes.c_uint32] * 2, ctypes.c_uint64)
"""Have copies and pointers know memory of others: its address and size, its kind, flags, and its context."""
memory_forget = in_c("memory_forget", ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32)
"""Have them know it no more, if it is of a kind."""
cell_new = in_c("cell_new", ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64)
"""Make a cell of a kind in a context, and give its handle; 0 without memory."""
cell_free = in_c("cell_free", ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32)
"""Free a cell if it is of a kind; 0 where it is not."""
cell_is = in_c("cell_is", ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32)
"""Tell whether a handle is of a kind."""
