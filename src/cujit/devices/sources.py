"""The identity of the code that generates machine code, which is part of the key of each result."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterator

from cujit.cache.process import default_cache
from cujit.values.hashing import sha256
from cujit.version import __version__
from cujit.workers.package_files import data_path

_PACKAGE = data_path()
_FOLDERS = ("devices", "formats/ptx")
_NOT_THESE = ("__pycache__", "cuda")
"""All that machine code depends on: the folders with those in them, but a few; a test holds that it is."""

_IMPORTED_S = time.time()
_settled = 0
"""Modules that there were when those on disk were last found to be as they were imported; 0 where that is not known."""

_HINT = "devices-code-"


@functools.cache
def code_identity() -> str:
    """Return the version of cujit with a SHA-256 over its Python and LLVM modules that generate machine code.

    Return an empty string if the files differ from the running code, because they changed after import or don't exist.
    Each machine reads the files once. Later calls use a hint, as long as the stats of the files are the same.
    """
    stats = _stats()
    if not _is_settled(stats):
        return ""
    name = _HINT + sha256(repr(stats).encode()).hexdigest()
    hints = default_cache().hints
    known = hints.get(name) if hints is not None else None
    digest = known.decode("ascii", "replace") if known is not None else _digest([path for path, *_ in stats])
    if known is None and hints is not None:
        hints.put(name, digest.encode())
    return f"{__version__} {digest}"


def is_as_imported() -> bool:
    """Return whether the modules on disk are the ones that this process has imported.

    Checking all files takes a tenth of the compile time of a small kernel. So the check is repeated only after another
    module was imported or a file was read.
    """
    global _settled
    modules = len(sys.modules)
    if modules != _settled:
        if not _is_settled(_stats()):
            return False
        _settled = modules
    return True


def read_file(path: str) -> bytes:
    """Read a file that is not a module but affects machine code."""
    global _settled
    data = _bytes_of(path)
    _settled = 0
    return data


def _is_settled(stats: list[tuple[str, int, int, int, int]]) -> bool:
    return bool(stats) and max(changed for *_, changed in stats) < _IMPORTED_S * 1e9


def _stats() -> list[tuple[str, int, int, int, int]]:
    """Return the path, size in bytes, inode, and two times in ns of each module.

    The path is relative to the package. The times are the last changes of the contents and of the inode. The list is
    empty if the package is not a directory.
    """
    try:
        return sorted(
            (f"{folder}/{file.name}", status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
            for folder, file in _files()
            for status in (file.stat(),)
        )
    except OSError:
        return []


def _files() -> Iterator[tuple[str, os.DirEntry[str]]]:
    folders = list(_FOLDERS)
    while folders:
        folder = folders.pop()
        with os.scandir(f"{_PACKAGE}/{folder}") as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".bc")):
                    yield folder, entry
                elif "." not in entry.name and entry.name not in _NOT_THESE:
                    folders.append(f"{folder}/{entry.name}")


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _digest(paths: list[str]) -> str:
    import hashlib  # start-up: once a machine

    total = hashlib.sha256()
    for path in paths:
        data = _bytes_of(f"{_PACKAGE}/{path}")
        total.update(f"{path} {len(data)}\n".encode() + data)
    return total.hexdigest()
