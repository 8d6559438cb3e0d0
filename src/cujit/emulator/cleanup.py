"""Cleanup of unused library folders. Each new ``sys.path`` creates some folders, which would otherwise accumulate.

A process uses the folders that its environment names or whose files it has loaded, and so may its child processes. A
folder in use can refer to another folder in the text that fills in a library.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

_KEPT, _UNUSED_S = 64, 86_400.0
"""An emulation has four folders, of some 500 kB together. What processes of other containers use was used lately."""

_NAME = r"[0-9a-f]{32}"
_NAMED = re.compile(rb"/emulator/([0-9a-f]{32})(?![0-9a-f])")
_GONE = ".gone-"


def note_use(folder: Path) -> None:
    """Mark a folder as used now."""
    with contextlib.suppress(OSError):  # another's, that may be read alone
        os.utime(folder)


def remove_unused(root: Path, kept: int = _KEPT, unused_s: float = _UNUSED_S) -> None:
    """Remove the folders that were used longest ago and are not used now; the ``kept`` newest stay."""
    with contextlib.suppress(OSError):  # somebody else does the same
        found = sorted((path for path in root.iterdir() if re.fullmatch(_NAME, path.name)), key=_used_at, reverse=True)
        old = [path for path in found[kept:] if _used_at(path) < time.time() - unused_s]
        used = _used_by_processes(root) if old else set()
        for path in old:
            if path.name not in used:
                _remove(path, unused_s)
        for path in root.glob(f"{_GONE}*"):  # of a process that ended meanwhile
            shutil.rmtree(path, ignore_errors=True)


def _used_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()


def _remove(path: Path, unused_s: float) -> None:
    """Remove a folder atomically, so that no process finds a part of it. Restore the folder if it was in use at that
    moment.
    """
    gone = path.with_name(f"{_GONE}{os.getpid()}-{path.name}")
    path.rename(gone)  # in place: a folder
    if _used_at(gone) < time.time() - unused_s:
        shutil.rmtree(gone, ignore_errors=True)
    else:
        gone.rename(path)  # in place: a folder


def _used_by_processes(root: Path) -> set[str]:
    """Return the folders that processes of this machine use, as far as this process can inspect them."""
    used: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        for what in ("environ", "maps"):
            used.update(_named_in(process / what))
    for name in [*used]:
        for path in root.glob(f"{name}/*"):
            used.update(_named_in(path))
    return used


def _named_in(path: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from (name.decode() for name in _NAMED.findall(path.read_bytes()))
