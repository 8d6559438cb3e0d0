"""cujit's own native code for the CPU device, loaded once per process. Code that is loaded later refers to it by name.

It has several parts. Each part is compiled, or loaded from the cache, at the first call. A process with kernels that
neither wait nor print needs only the first part.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

from cujit.cache.key import Part
from cujit.devices import object_loader
from cujit.devices.cpu.native import lanes
from cujit.devices.jit import NativeFunction, processor, publish
from cujit.devices.launcher.cpython import is_supported
from cujit.devices.launcher.library import library_or_none
from cujit.devices.objects import CompileTask, machine_code
from cujit.devices.sources import read_file
from cujit.errors import CujitError, UnsupportedError
from cujit.forks import Lock, fork_lock, on_fork_child, once
from cujit.values import NamedTuple
from cujit.workers.package_files import data_path


class RuntimePart(NamedTuple):
    """One part, ``runtime/name.c``, and whether LLVM is to optimise it.

    That is worth the time where the code is called often.
    """

    name: str
    passes: bool = True
    text: Callable[[], str] | None = None
    """What writes it where it is not in C."""
    written: tuple[str, ...] = ()
    """The functions that it has then."""
    is_plain: bool = False
    """Whether it holds nothing, no lock and no memory: then threads are stopped in it as in a kernel."""
    lock: tuple[str, ...] = ()
    """The functions that take and give back its lock: a fork waits for that."""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The functions that it offers."""
        return self.written or _in_c()[self.name]

    def code(self) -> str | bytes:
        """Return the part's text or its bitcode. Raises the same errors as ``bitcode``."""
        return self.bitcode() if self.text is None else self.text()

    def bitcode(self) -> bytes:
        """Read its bitcode for this processor.

        Raises:
            UnsupportedError: the run-time is not written for it.
        """
        machine = processor().triple.partition("-")[0]
        try:
            return read_file(f"{_RUNTIME}/{machine}/{self.name}.bc")
        except FileNotFoundError:
            raise UnsupportedError(
                f"the CPU device doesn't support {machine} processors",
                help="it supports x86_64 and aarch64; on this machine, run kernels on a GPU",
            ) from None


_RUNTIME = data_path("devices", "cpu", "runtime")


@functools.cache
def _in_c() -> dict[str, tuple[str, ...]]:
    """List the functions of every part in C, as they were found when the run-time was made."""
    with open(f"{_RUNTIME}/functions.txt") as file:
        return {part: tuple(names) for part, *names in map(str.split, file)}


PARTS = (
    RuntimePart("faults", passes=False),
    RuntimePart("pool"),
    RuntimePart("output", passes=False),
    RuntimePart("heap"),
    RuntimePart("blocks"),
    RuntimePart("textures"),
    RuntimePart("directed", is_plain=True),
    RuntimePart("matrix", is_plain=True),
    RuntimePart("rows", is_plain=True),
    RuntimePart("copies", is_plain=True),
    RuntimePart("tensor_product"),
    RuntimePart("pending"),
    RuntimePart("tensor_memory"),
    RuntimePart("trace"),
    RuntimePart("profile"),
    RuntimePart("warps", is_plain=True),
    RuntimePart("checked_launch"),
    RuntimePart("checks", lock=("cujit_check_lock", "cujit_check_unlock")),
    *(
        RuntimePart(f"lanes{bits}", text=functools.partial(lanes.defined, bits), is_plain=True,
             written=tuple(lanes.name_of(kind, bits) for kind in lanes.KINDS))
        for bits in lanes.WIDTHS
    ),
    RuntimePart("divisions", text=lanes.divisions, is_plain=True,
                written=tuple(lanes.name_of(kind, 64) for kind in lanes.DIVISIONS)),
)  # fmt: skip
"""Every part. What a part calls of others is compiled before it."""

_LOCK = Lock()
_NO_ARGUMENTS = ctypes.CFUNCTYPE(None)
_PIECE = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)


def compile_kernel(text: str, symbol: str, *, keep: bool = True) -> NativeFunction:
    """Compile IR that may call cujit's native functions, and return one of its functions. Without ``keep``, bypass the
    cache.

    Raises:
        CujitError: LLVM rejects the IR, or the IR calls a function that no part contains. Both are bugs in cujit.
        UnsupportedError: the IR needs a part that is not available for this processor.
    """
    parts = (Part.content("IR", text),) if keep else ()
    return native_code(CompileTask("cpu native", symbol, parts, lambda: text, kernel=True, keep=keep), symbol)


def native_code(work: CompileTask, symbol: str) -> NativeFunction:
    """Return machine code that may call cujit's native functions, from the cache or newly compiled. See
    ``machine_code``.

    Raises:
        CujitError: LLVM rejects the IR, or the IR calls a function that no part contains. Both are bugs in cujit.
        UnsupportedError: the IR needs a part that is not available for this processor.
        Any error that ``work.write`` raises.
    """
    _use_launcher()
    return machine_code(work, symbol, _require)


@once
def _use_launcher() -> None:
    native = library_or_none() if is_supported() else None
    if native is not None:
        object_loader.use_native(native.relocate.call)


def _require(name: str) -> None:
    if name.startswith("cujit_"):
        address_of(name)


def address_of(name: str) -> int:
    """Return the address of one of cujit's native functions, and compile its part if necessary.

    Code that is compiled later may call the function.

    Raises:
        CujitError: no part contains the function, which is a bug in cujit.
        UnsupportedError: its part is not available for this processor.
    """
    index = _owners().get(name)
    if index is None:
        raise CujitError(
            f"there is no native function named {name}", help="report this bug with the PTX", code="internal"
        )
    with _LOCK:
        return _compiled(index)[name]


def install_handlers() -> None:
    """Install cujit's handlers for kernel faults, ahead of all signal handlers that are installed now.

    A repeated call is harmless. It moves cujit's handlers ahead of handlers that were installed since the last call.
    """
    install = _installer()
    with _LOCK:
        install()


@functools.cache
def _installer() -> Callable[[], None]:
    """Return the function that every launch calls to install handlers. The lookup takes 0.4 us of the
    9 us of a launch.
    """
    return _NO_ARGUMENTS(address_of("cujit_install"))


_PYTHON = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch")
_POINTERS = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(_PYTHON))


@once
def ask_python() -> None:
    """Let Python's signal handlers run while the main thread is in a launch, and handle forks."""
    if sys.implementation.name == "cpython":
        functions = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _PYTHON]
        _POINTERS(address_of("cujit_use_python"))(*functions)
    on_fork_child(_NO_ARGUMENTS(address_of("cujit_forked")))


@functools.cache
def _owners() -> dict[str, int]:
    return {name: k for k, part in enumerate(PARTS) for name in part.symbols}


@functools.cache
def _compiled(index: int) -> dict[str, int]:
    """Compile a part after the parts that it calls, and return the addresses of its functions. The caller holds the
    lock.
    """
    part = PARTS[index]
    name = part.symbols[0]
    work = CompileTask("cpu native", name, (), part.code, 2 if part.passes else 0, part.passes)
    native = native_code(work, name)
    if part.is_plain:
        _PIECE(address_of("cujit_may_stop"))(*native.code)
    found = publish(native, part.symbols)
    if part.lock:
        fork_lock(*(_NO_ARGUMENTS(found[name]) for name in part.lock))
    return found
