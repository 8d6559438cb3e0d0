"""Folders of the emulator's libraries: those that nobody uses go, and nobody is left without one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cujit.emulator import cleanup, library_files
from cujit.emulator.cleanup import remove_unused

DAY_S = 86_400


def folder(root: Path, number: int, age_s: float, text: str = "") -> Path:
    """Make one of the emulator's folders, which was used some time ago."""
    path = root / f"{number:032x}"
    path.mkdir(parents=True)
    (path / "libcuda.so.1").write_text(text)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_oldest_unused_folders_are_removed(tmp_path: Path) -> None:
    root = tmp_path / "emulator"
    newest, lately = folder(root, 1, 0), folder(root, 2, DAY_S / 2)
    needed = folder(root, 3, 30 * DAY_S)
    named = folder(root, 4, 20 * DAY_S, f"open('{needed}/starting.py')")
    unused = [folder(root, 5, 10 * DAY_S), folder(root, 6, 2 * DAY_S)]
    left = folder(root / "x", 7, 0).rename(root / ".gone-1-of-one-that-ended")
    (root / "caches").mkdir()
    reads = "import sys; print(flush=True); sys.stdin.read()"
    environment = {**os.environ, "LD_LIBRARY_PATH": f"/lib:{named}"}
    command, pipe = [sys.executable, "-c", reads], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as user:
        assert user.stdout
        user.stdout.readline()
        remove_unused(root, kept=6)
        assert all(path.exists() for path in unused), "there are not many"
        remove_unused(root, kept=1)
        user.communicate()
    assert [path.exists() for path in (newest, lately, needed, named, *unused, left)] == [True] * 4 + [False] * 3
    assert (root / "caches").exists()
    remove_unused(root, kept=1)
    assert [path.exists() for path in (newest, lately, needed, named)] == [True, True, False, False]
    remove_unused(root / "nothing")


def test_folder_in_use_is_recreated(tmp_path: Path) -> None:
    used, unused = folder(tmp_path, 1, 1), folder(tmp_path, 2, 2 * DAY_S)
    for path in (used, unused):
        cleanup._remove(path, DAY_S)
    assert [path.name for path in tmp_path.iterdir()] == [used.name]
    assert (used / "libcuda.so.1").exists()


def test_new_folder_makes_room_and_each_use_keeps_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library_files, "root_folder", lambda: tmp_path / "emulator")
    kept = library_files.keep({"one": b"1"})
    old = [folder(tmp_path / "emulator", number, (2 + number) * DAY_S) for number in range(70)]
    os.utime(kept, (0, 0))
    assert library_files.keep({"one": b"1"}) == kept
    assert kept.stat().st_mtime > time.time() - DAY_S
    assert all(path.exists() for path in old), "nothing is new"
    library_files.keep({"two": b"2"})
    assert [path.exists() for path in old] == [True] * 62 + [False] * 8
    assert (kept / "one").read_bytes() == b"1"
