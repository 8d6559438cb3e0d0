"""Which code this is: an identity of all that writes machine code, for the keys of what it wrote."""

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
    """Return the version of cujit and a SHA-256 over its modules, Python's and LLVM's, that make machine code.

    It is "" where that text is not the one that runs: it was changed since it was imported, or is not there at all.
    The files are read once a machine; after that a hint has what they gave, as long as their stats are the same.
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

    To ask that of each file takes a tenth of the time that a small kernel takes to compile. So it is asked again only
    when something was imported, or read, since.
    """
    global _settled
    modules = len(sys.modules)
    if modules != _settled:
        if not _is_settled(_stats()):
            return False
        _settled = modules
    return True


def read_file(path: str) -> bytes:
    """Read a file that machine code depends on, and that is no module."""
    global _settled
    data = _bytes_of(path)
    _settled = 0
    return data


def _is_settled(stats: list[tuple[str, int, int, int, int]]) -> bool:
    return bool(stats) and max(changed for *_, changed in stats) < _IMPORTED_S * 1e9


def _stats() -> list[tuple[str, int, int, int, int]]:
    """List every module: its path in the package, size in bytes, inode, and when its text and its inode changed, in ns.

    Nothing where the package is no directory.
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
