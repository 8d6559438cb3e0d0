"""Hints go from one process to the next, bounded, believed only where nobody else could write, and never needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cujit.cache import admin, hints, store
from cujit.cache.cache import Cache
from cujit.cache.hints import Hints


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def hints_of(root: Path, runtime_dir: Path | None = None) -> Hints:
    found = Cache(root, runtime_dir=runtime_dir).hints
    assert found is not None
    return found


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_hint_is_read_by_another_process_and_the_last_wins(root: Path) -> None:
    assert hints_of(root).get("a-1") is None
    assert not root.exists()
    hints_of(root).put("a-1", b"old")
    hints_of(root).put("a-1", b"new")
    assert hints_of(root).get("a-1") == b"new"
    assert names(root / "hints") == {"a-1"}
    assert oct((root / "hints").stat().st_mode)[-3:] == "700"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a.b", "-a", "a" * 200])
def test_other_file_names_are_not_hints(root: Path, name: str) -> None:
    hints_of(root).put(name, b"x")
    assert hints_of(root).get(name) is None
    assert not root.exists()


def test_hints_are_bounded_in_number_and_size(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "_MOST", 3)
    monkeypatch.setattr(hints, "_ALL_BYTES", 100)
    monkeypatch.setattr(hints, "_LARGEST_BYTES", 90)
    of = hints_of(root)
    for n in range(5):
        of.put(f"h{n}", b"x" * 10)
        os.utime(root / "hints" / f"h{n}", (n, n))
    assert names(root / "hints") == {"h2", "h3", "h4"}
    of.put("large", b"x" * 85)
    assert names(root / "hints") == {"h4", "large"}
    of.put("larger", b"x" * 91)
    assert of.get("larger") is None


def test_hints_that_others_could_have_written_are_ignored(root: Path) -> None:
    of = hints_of(root)
    of.put("a", b"x")
    os.chmod(root / "hints" / "a", 0o666)
    assert of.get("a") is None
    of.put("b", b"x")
    os.chmod(root / "hints", 0o777)
    of.put("c", b"x")
    assert not (root / "hints" / "c").exists()


def test_hints_in_a_directory_writable_by_others_are_not_read(root: Path) -> None:
    of = hints_of(root)
    of.put("a", b"x")
    os.chmod(root / "hints", 0o777)
    assert of.get("a") is None


def test_unwritable_hints_raise_nothing(tmp_path: Path, root: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", Path("/proc/cujit")):
        hints_of(place).put("a", b"x")
        assert hints_of(place).get("a") is None
        hints_of(place).clear()
    root.mkdir()
    (root / "hints").write_text("")
    hints_of(root).put("a", b"x")
    assert hints_of(root).get("a") is None


def test_hints_of_a_remote_root_are_on_this_machine(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "is_remote", lambda _path: True)
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    hints_of(root, runtime).put("a", b"x")
    assert hints_of(root, runtime).get("a") == b"x"
    assert not (root / "hints").exists()
    (directory,) = runtime.iterdir()
    assert names(directory) == {"a"}
    hints_of(root).put("b", b"x")
    assert hints_of(root).get("b") is None


def test_clear_deletes_hints_and_rootless_caches_have_none(root: Path) -> None:
    hints_of(root).put("a", b"x")
    admin.clear(Cache(root))
    assert hints_of(root).get("a") is None
    assert Cache(None).hints is None


def test_files_that_are_not_hints_remain(root: Path) -> None:
    hints_of(root).put("a", b"x")
    (root / "hints" / "notes.txt").write_text("somebody's")
    admin.clear(Cache(root))
    assert names(root / "hints") == {"notes.txt"}
