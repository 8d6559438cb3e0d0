"""Bindings found or missed in one sentence."""

from __future__ import annotations

import contextlib
import importlib
import os
import struct
import sys
from _thread import get_ident
from collections.abc import Callable, Iterator, Sequence

from cujit.arch.support import install
from cujit.artifact import magic
from cujit.errors import ToolchainNotFoundError
from cujit.values import later
from cujit.values.hashing import sha256
from cujit.values.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re
else:
    re = later("re")  # start-up: few calls need it


def load_binding(name: str, library: str) -> Any:
    """Import ``cuda.bindings.<name>``, the door to NVIDIA's ``library``; opens no library yet.

    Raises:
        ToolchainNotFoundError: cuda-bindings is not installed, or has no such module.
    """
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as e:
        raise missing_library(library, e) from e


def missing_library(library: str, reason: BaseException) -> ToolchainNotFoundError:
    """Return the error that ``library`` is not installed or can't be opened, with the extra that installs it."""
    first_line = re.sub(r"(No such file: [^,]+)(?:, \1)+", r"\1", str(reason).strip().split("\n", 1)[0])
    return ToolchainNotFoundError(
        f"{library} is not installed, or can't be loaded: {first_line}",
        help=f"run {install('cu13')} to install the compiler, linker and headers (for CUDA 12.9: {install('cu12')})",
    )


_BUILTINS = "libnvrtc-builtins.so."


def open_library(library: str, binding: str, first_call: Callable[[], Any]) -> Any:
    """Make the first call into a library, which makes cuda.bindings open it.

    cuda.pathfinder searches for wheels only in site-packages. A library elsewhere on ``sys.path`` (``PYTHONPATH``, a
    ``.pth`` file, ``pip install --target``, Bazel) is opened here first. cuda.bindings then uses the open library.

    Raises:
        ToolchainNotFoundError: the library is missing, can't be opened, or lacks the function.
    """
    try:
        return first_call()
    except (RuntimeError, OSError) as e:
        # cuda.bindings says DynamicLibNotFoundError or FunctionNotFoundError, both RuntimeErrors.
        if type(e).__name__ != "DynamicLibNotFoundError" or not _open_elsewhere(binding):
            raise missing_library(library, e) from e
    return open_library(library, "", first_call)


def _open_elsewhere(binding: str) -> bool:
    """Open a library outside the search path of cuda.pathfinder, and return whether there is one."""
    path = find_library("nvJitLink" if binding == "nvjitlink" else binding, ()) if binding else None
    if path is None:
        return False
    import ctypes  # start-up: only for wheels outside of site-packages

    directory = os.path.dirname(path)
    try:
        for name in os.listdir(directory) if binding == "nvrtc" else ():
            if name.startswith(_BUILTINS):  # NVRTC up to 13.0 looks for them among what is loaded
                ctypes.CDLL(f"{directory}/{name}")
        ctypes.CDLL(path)
    except OSError:
        return False
    return True


def library_path(binding: str) -> str | None:
    """Return the file of an open library, or None if cuda.pathfinder doesn't report it."""
    from cuda.pathfinder import load_nvidia_dynamic_lib  # start-up: only where a path is asked for

    try:
        path: str | None = load_nvidia_dynamic_lib(binding).abs_path
    except (RuntimeError, OSError):
        return None
    return path


# -- libraries that stand before NVIDIA's ----------------------------------------------------------------------------

STAND_IN_SYMBOL = "cujit_table"
"""What a library of ``cujit emulate`` exports that no other has."""

STANDS_BEFORE = "before-"
"""A library of ``cujit emulate`` that stands before one of NVIDIA's has a file beside it, of this and its own name,
with the path of NVIDIA's."""


def real_path(path: str) -> str:
    """Return NVIDIA's file for a library: the library itself, or the file that it replaces."""
    directory, name = os.path.split(path)
    try:
        with open(f"{directory}/{STANDS_BEFORE}{name}", encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return path


def may_be_emulated() -> bool:
    """Return whether a process may have libraries of ``cujit emulate``, which either of two variables loads."""
    return hasattr(os, "RTLD_NOLOAD") and bool(os.environ.get("LD_PRELOAD") or os.environ.get("CUJIT_EMULATE"))


def is_emulated(path: str) -> bool:
    """Return whether the library that this process has loaded under a file's name is one of ``cujit emulate``."""
    if not may_be_emulated():
        return False
    import ctypes  # start-up: as above, few processes are emulated

    try:
        return hasattr(ctypes.CDLL(os.path.basename(path), mode=os.RTLD_NOLOAD), STAND_IN_SYMBOL)
    except OSError:  # it is not loaded
        return False


_REQUESTED: set[int] = set()


@contextlib.contextmanager
def requesting_machine_code() -> Iterator[None]:
    """Make a linker of ``cujit emulate`` also generate SASS in this thread.

    This doubles the time, and only queries of resource usage need it.
    """
    _REQUESTED.add(get_ident())
    try:
        yield
    finally:
        _REQUESTED.discard(get_ident())


def is_machine_code_requested() -> bool:
    """Return whether this thread requests machine code."""
    return get_ident() in _REQUESTED


def find_library(binding: str, homes: Sequence[str]) -> str | None:
    """Return the file of a library without opening it: in this Python's wheels, conda, ``homes``, or /usr/local/cuda.

    Of several files, return the one with the highest number. libNVVM of CUDA 12's wheel has none. Return None if there
    is no such file. Source: the directories of NVIDIA's wheels for CUDA 12 and 13; cuda-pathfinder 1.9 manual, "Search
    order".
    """
    prefix = f"lib{binding}.so."
    for directories in _directories(homes):
        files = ((place, name) for place in directories for name in _listed(place))
        found = [f"{place}/{name}" for place, name in files if f"{name}.".startswith(prefix)]
        if found:
            return max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path)])
    return None


DEVICE_RUNTIME = "libcudadevrt.a"
"""NVIDIA's library for kernels that launch kernels."""


def find_program(name: str, homes: Sequence[str]) -> str | None:
    """Return the path of a toolkit program in the places of ``find_library`` or on the PATH, or None."""
    for directories in _directories(homes, ("bin",)):
        found = [path for path in (f"{place}/{name}" for place in directories) if os.access(path, os.X_OK)]
        if found:
            return max(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path)])
    import shutil  # start-up: few processes run a program

    return shutil.which(name)


def find_device_runtime(homes: Sequence[str]) -> str | None:
    """Return the path of ``libcudadevrt.a`` in wheels or toolkits, or None."""
    places = (f"{place}/{DEVICE_RUNTIME}" for directories in _directories(homes) for place in directories)
    return next(filter(os.path.isfile, places), None)


def _directories(homes: Sequence[str], places: Sequence[str] = ()) -> Iterator[list[str]]:
    """Yield the directories that may contain libraries. The first group that contains one decides."""
    from importlib.util import find_spec  # start-up: a process whose notes say where all is looks for nothing

    try:
        spec = find_spec("nvidia")
    except (ImportError, ValueError):  # a finder that hides it, or a module of that name without a spec
        spec = None
    for root in spec.submodule_search_locations or () if spec else ():
        for place in places or _PLACES:
            yield [f"{root}/{component}/{place}" for component in _listed(root)]
    for home in (*filter(None, (os.environ.get("CONDA_PREFIX"), sys.prefix)), *homes, "/usr/local/cuda"):
        yield from ([f"{home}/{place}"] for place in places or _PLACES)


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


_PLACES = ("lib", "lib64", "nvvm/lib64")


# -- which build a library is -----------------------------------------------------------------------------------------

_PT_NOTE, _NT_GNU_BUILD_ID = 4, 3
_FARTHEST = 1 << 40


def read_build_id(path: str) -> str:
    """Read the identifier of an ELF file, in hex; of a file without one, its SHA-256.

    Source: System V gABI, "Note Section"; GNU ld manual, ``--build-id``.

    Raises:
        ToolchainNotFoundError: the file can't be read.
    """
    try:
        with open(path, "rb") as file:
            return _gnu_build_id(file.fileno()) or f"sha256:{sha256(file.read()).hexdigest()}"
    except OSError as e:
        raise missing_library(os.path.basename(path), e) from e


def _gnu_build_id(fd: int) -> str:
    head = os.pread(fd, 64, 0)
    if len(head) < 64 or head[:7] != magic.ELF_64:
        return ""
    (table,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
    for index in range(count if size == 56 and table <= _FARTHEST else 0):
        entry = os.pread(fd, 56, table + 56 * index)
        if len(entry) < 56 or int.from_bytes(entry[:4], "little") != _PT_NOTE:
            continue
        offset, length = struct.unpack_from("<Q", entry, 8)[0], struct.unpack_from("<Q", entry, 32)[0]
        notes = os.pread(fd, min(length, 4096), offset) if offset <= _FARTHEST else b""
        at = 0
        while at + 12 <= len(notes):
            name_size, data_size, kind = struct.unpack_from("<3I", notes, at)
            data = at + 12 + -(-name_size // 4) * 4
            if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0" and data + data_size <= len(notes):
                return notes[data : data + data_size].hex() if data_size >= 8 else ""
            at = data + -(-data_size // 4) * 4
    return ""
