"""The stand-in libraries: made once into a folder that is named by its content, loaded, and filled in.

A folder holds ``libcuda.so.1`` and ``libcuda.so``. First in ``LD_LIBRARY_PATH`` it serves every process that is started
then: its first call of the driver brings Python here (``attach``), whatever program it is.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cujit.artifact.writing import write_file
from cujit.cache.filesystem import UntrustedFileError, is_remote, read_trusted
from cujit.cache.process import default_cache
from cujit.cache.trust import Trust
from cujit.emulator.cleanup import note_use, remove_unused
from cujit.emulator.entries import AFTER_END, ENTRIES, constant, outliving
from cujit.emulator.functions import exports
from cujit.emulator.machine import boot_code, for_c, machine
from cujit.emulator.process import emulation
from cujit.emulator.results import Result
from cujit.emulator.shared_library import TABLE_SYMBOL, write_library
from cujit.emulator.structures import BootTable, BootText, Emulator, ErrorText
from cujit.errors import CujitError
from cujit.forks import Lock

SONAME = "libcuda.so.1"
_MOST_BYTES = 1 << 22

_LOCK = Lock()
_ATTACHED: dict[int, _Slots] = {}


def slots_of(table: int) -> ctypes.Array[ctypes.c_uint64]:
    """Return the addresses of a library's functions, which follow its table."""
    count: int = BootTable.from_address(table).count
    return (ctypes.c_uint64 * count).from_address(table + ctypes.sizeof(BootTable))


class _Slots:
    """A library's table, filled in: what C has at once, what Python has when it is called first."""

    def __init__(self, address: int) -> None:
        self._table = BootTable.from_address(address)
        self._slots = slots_of(address)
        self._names = list(exports().items())
        self._kept: dict[str, Any] = {}
        self._native = emulation().native.entries
        for index, (_, function) in enumerate(self._names):
            at = self._in_c(index)
            if at and not emulation().notes.watches:
                self._slots[index] = at
            if function in AFTER_END:  # which may be called for the first time when Python has ended
                self._place(index)
        self._refuse = for_c(ctypes.c_int32, (), lambda: int(Result.NOT_SUPPORTED), Result.DEINITIALIZED)
        callback_type = (ctypes.c_uint64, (ctypes.c_uint64, ctypes.c_uint64), self._on_first_call)
        self._table.resolve = _address(for_c(*callback_type, _address(self._refuse)))

    def _in_c(self, index: int) -> int:
        """Return the address of a function in C. 0 if Python has it, or nobody."""
        export, function = self._names[index]
        return self._native.get(export) or self._native.get(function, 0)

    def _on_first_call(self, index: int, table: int) -> int:
        """Return where a call continues: in Python, from now on, or in an answer that there is no such function."""
        del table
        export, function = self._names[index]
        if not self._in_c(index) and function not in ENTRIES:
            emulation().refuse(export)
            return _address(self._refuse)
        emulation().notes.requested(export)
        with _LOCK:
            return self._place(index)

    def _place(self, index: int) -> int:
        """Lead a function's slot to where it is, and return that."""
        export, function = self._names[index]
        native, entry = self._in_c(index), ENTRIES.get(function)
        if export not in self._kept:
            own = export != function
            self._kept[export] = _noted(export, native) if native or entry is None else entry.pointer(own_stream=own)
        self._slots[index] = at = _address(self._kept[export])
        return at


_ANY = [ctypes.c_uint64] * 12
"""The parameters of a function of whole numbers and pointers; no function in C takes more, and more do no harm."""


def _noted(export: str, at: int) -> Any:
    """Put a note of each call before a function in C, if calls are to be noted."""
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
    """Write down what the end of the process needs: the driver's table, and what results are called."""
    rows = (ErrorText(result, constant(result.spelled), constant(result.sentence)) for result in Result)
    errors = outliving((ErrorText * len(Result))(*rows))
    state.table, state.errors, state.error_count = table, ctypes.addressof(errors), len(errors)
    names = list(exports())
    state.name_slot, state.string_slot = names.index("cuGetErrorName"), names.index("cuGetErrorString")


def address_of(export: str) -> int:
    """Return the address of an exported function of the library in this process. 0 if it exports none of that name."""
    return _address(getattr(_this_library(), export, None))


@functools.cache
def _this_library() -> ctypes.CDLL:
    return ctypes.CDLL(SONAME)


# -- the file ---------------------------------------------------------------------------------------------


def folder() -> Path:
    """Make the folder of the libraries if it is not there, and prove that it holds what it should.

    Raises:
        CujitError: it could not be written, or others could have written to it.
        MissingError: llvmlite is not installed.
        UnsupportedError: the emulator is not written for this processor.
    """
    data = library_of(SONAME, list(exports()), "start")
    return keep({SONAME: data, "libcuda.so": data})


def library_of(soname: str, names: list[str], module: str, others: str = "", node: str = "") -> bytes:
    """Write a library whose table ``attach`` of a module of the emulator fills in; ``others`` is a text for it, and
    ``node`` the version of its functions.

    Raises:
        MissingError: llvmlite is not installed.
        UnsupportedError: the emulator is not written for this processor.
    """
    return write_library(soname, names, boot_code(), _texts(module, others), machine(), node)


def keep(files: Mapping[str, bytes]) -> Path:
    """Make a folder with these files, executable, if it is not there, and prove that it holds what it should.

    Raises:
        CujitError: it could not be written, or others could have written to it.
    """
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(b"%s %d " % (name.encode(), len(data)) + data)
    root = root_folder() / digest.hexdigest()[:32]
    trust, is_new = Trust.of_process(), not root.exists()
    try:
        root.mkdir(parents=True, exist_ok=True, mode=trust.directory_mode)
        trust.check_root(root)
        note_use(root)
        for name, data in files.items():
            _publish(root / name, data, trust)
        if is_new and not is_remote(root.parent):  # where nobody can tell what other machines use
            remove_unused(root.parent)
    except OSError as e:
        raise CujitError(
            f"the emulator's libraries cannot be kept in {root}: {e}", help="set CUJIT_CACHE_DIR to a folder of yours"
        ) from e
    return root


def _publish(path: Path, data: bytes, trust: Trust) -> None:
    """Ensure that a file contains exactly these bytes, whichever other process writes it now."""
    try:
        if read_trusted(path, trust, _MOST_BYTES)[0] == data:
            return
    except (UntrustedFileError, OSError):
        pass
    write_file(path, data, mode=0o755, links="replace")


_PARTS_LISTS = re.compile(r"[\s:;$]")
"""What the loader's lists of paths are parted by, or read otherwise. Source: ld.so(8), LD_PRELOAD, LD_LIBRARY_PATH."""


def root_folder() -> Path:
    """Return the folder of everything that the emulator keeps. It is in cujit's cache, or under /tmp if that cannot
    hold it.
    """
    store = default_cache().store
    kept = None if store is None else store.root / "emulator"
    if kept is not None and not _PARTS_LISTS.search(str(kept)) and _can_be_written(kept):
        return kept
    return Path(f"/tmp/cujit-{os.getuid()}/emulator")


def _can_be_written(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=Trust.of_process().directory_mode)
    except OSError:
        return False
    return os.access(path, os.W_OK | os.X_OK)


_STARTING = "starting.py"


def _statement(module: str) -> str:
    """Write what fills in a library's table in a Python that may know nothing of cujit.

    It runs among the names of the program, and so leaves none; the folders of modules may be many, and are in a file.
    """
    package = str(Path(__file__).parent.parent.parent)
    lines = (
        "import sys",
        f"sys.path += [p for p in {[package, *filter(None, sys.path)]!a} if p not in sys.path]",
        f"from cujit.emulator.{module} import attach",
        "attach(table)",
    )
    path = keep({_STARTING: "\n".join(lines).encode()}) / _STARTING
    text = f"(lambda f: (f.read(), f.close()))(b.open({str(path)!a}, encoding='utf-8'))[0]"
    run = f"b.exec({text}, {{'table': t}})"
    return f"(lambda b, t: {run})(__import__('builtins'), 0x{0:016x})"


def _texts(module: str, others: str) -> list[str]:
    """List what the boot code has to know, in the order of ``BootText``."""
    texts = {
        BootText.RUNS: "Py_IsInitialized",
        BootText.ENSURE: "PyGILState_Ensure",
        BootText.RELEASE: "PyGILState_Release",
        BootText.RUN: "PyRun_SimpleString",
        BootText.START: "Py_InitializeEx",
        BootText.SAVE: "PyEval_SaveThread",
        BootText.YIELD: "sched_yield",
        BootText.PYTHON: _libpython(),
        BootText.STATEMENT: _statement(module),
        BootText.WRITE: "write",
        BootText.WORDS: _WITHOUT_PYTHON,
        BootText.OTHERS: others,
    }
    return [texts[text] for text in BootText]


_SHARED = f"libpython{sysconfig.get_config_var('LDVERSION') or sysconfig.get_python_version()}.so.1.0"
_WITHOUT_PYTHON = (
    f"cujit emulate: this program is not Python's, and needs {_SHARED}, which the Python of cujit has not: "
    f"{sys.base_prefix} is linked without it. Install it, or cujit into a Python that has it.\n"
)


def _libpython() -> str:
    """Find the shared library of this Python, where it was to be or where it was moved; "" where it has none."""
    directories = [sysconfig.get_config_var(name) for name in ("LIBDIR", "LIBPL")]
    for where in filter(None, [*directories, f"{sys.base_prefix}/lib"]):
        if Path(where, _SHARED).exists():
            return str(Path(where, _SHARED))
    return ""


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
        f"this process has loaded {path}, and cannot have the emulator beside it",
        help="call cujit.emulate() before anything touches CUDA, or start the program with `cujit emulate`",
    )


def driver_path() -> str | None:
    """Return the path of the driver that this process has loaded. None if there is none, or it is the emulator's."""
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
