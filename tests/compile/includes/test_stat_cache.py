"""A manifest holds as long as a scan would find the same, and a damaged one is none."""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cujit.cache.key import Part
from cujit.compiler.includes import files as files_module
from cujit.compiler.includes import stat_cache as memo_module
from cujit.compiler.includes.closure import scan
from cujit.compiler.includes.files import Files, NotModelledError
from cujit.compiler.includes.search import HeaderPlace, Search
from cujit.compiler.includes.stat_cache import Manifest, Memo
from raising import raises

TEXT = b'#include "one.h"\n#include <deep/er/two.h>\n#if __has_include(<maybe.h>)\n#endif\n'


class Store:
    """Hints in a dictionary."""

    def __init__(self) -> None:
        self.hints: dict[str, bytes] = {}
        self.reads = 0

    def get(self, name: str) -> bytes | None:
        self.reads += 1
        return self.hints.get(name)

    def has(self, name: str) -> bool:
        return name in self.hints

    def put(self, name: str, data: bytes) -> None:
        self.hints[name] = data


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("prog/one.h", "b/deep/er/two.h", "a/other.h"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// {name}\n")
    return tmp_path


def manifest_of(tree: Path) -> Manifest:
    search = Search({}, (("include[0]", f"{tree}/a"), ("include[1]", f"{tree}/b")), str(tree))
    closure = scan(search, HeaderPlace("source", "s.cu", f"{tree}/prog/s.cu"), TEXT, files=Files())
    return Manifest.of(closure, [Part.text("include x", "y"), Part.content("absent", "…")])


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file count as old, so that stats alone are asked."""
    monkeypatch.setattr(files_module, "TOO_NEW_NS", -(10**12))


def _edit(tree: Path) -> None:
    (tree / "prog/one.h").write_text("// other\n")


def _edit_in_place(tree: Path) -> None:
    time.sleep(0.02)  # the clock of a file system has a grain
    path = tree / "prog/one.h"
    path.write_text("// PROG/ONE.h\n"[: path.stat().st_size])


def _replace(tree: Path) -> None:
    (tree / "new").write_text("// prog/one.H\n")
    os.replace(tree / "new", tree / "prog/one.h")


def _remove(tree: Path) -> None:
    (tree / "prog/one.h").unlink()


def _shadow(tree: Path) -> None:
    (tree / "a/deep/er").mkdir(parents=True)
    (tree / "a/deep/er/two.h").write_text("")


def _appear(tree: Path) -> None:
    (tree / "a/maybe.h").write_text("")


def _link(tree: Path) -> None:
    (tree / "a/deep").symlink_to(tree / "b/deep")


CHANGES: list[Callable[[Path], None]] = [_edit, _edit_in_place, _replace, _remove, _shadow, _appear, _link]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
@pytest.mark.usefixtures("aged")
def test_change_is_seen_in_stats_alone(change: Callable[[Path], None], tree: Path) -> None:
    manifest = manifest_of(tree)
    assert not manifest.fresh
    assert manifest.holds(Files())
    change(tree)
    assert not manifest.holds(Files())


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_files_that_are_too_new_are_read_again(change: Callable[[Path], None], tree: Path) -> None:
    manifest = manifest_of(tree)
    assert len(manifest.fresh) == 2
    assert manifest.holds(Files())
    change(tree)
    assert not manifest.holds(Files())


def test_stat_that_is_too_new_is_not_trusted(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two contents within one tick of the clock have one stat; here the clock stands still."""
    path = tree / "prog/one.h"
    now = path.stat()
    monkeypatch.setattr(files_module, "stamp_of", lambda s: (s.st_size, now.st_mtime_ns, now.st_ctime_ns, 0, 0))
    manifest = manifest_of(tree)
    path.write_text("// PROG/ONE.h\n"[: now.st_size])
    assert not manifest.holds(Files())


def test_file_is_read_again_while_its_stat_is_too_new(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tree / "prog/one.h"
    now = path.stat()
    monkeypatch.setattr(files_module, "stamp_of", lambda s: (s.st_size, now.st_mtime_ns, now.st_ctime_ns, 0, 0))
    files = Files()
    before = files.read(str(path))
    path.write_text("// PROG/ONE.h\n"[: now.st_size])
    after = files.read(str(path))
    assert before is not None
    assert after is not None
    assert before.digest != after.digest


def test_directory_with_a_too_new_stat_is_not_trusted(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    monkeypatch.setattr(memo_module, "stamp_of", lambda _: (0, now, now, 1, 1))
    manifest = manifest_of(tree)
    assert manifest.holds(Files())
    _shadow(tree)
    assert not manifest.holds(Files())


@pytest.mark.usefixtures("aged")
def test_other_files_in_a_directory_change_nothing(tree: Path) -> None:
    manifest = manifest_of(tree)
    (tree / "a/unrelated.h").write_text("")
    (tree / "b/deep/er/more.h").write_text("")
    assert manifest.holds(Files())


@pytest.mark.usefixtures("aged")
def test_missing_names_are_checked_by_directory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = manifest_of(tree)
    asked: list[str] = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: asked.append(os.fsdecode(path)) or real(path, **more))  # type: ignore[func-returns-value]
    assert manifest.holds(Files())
    assert sorted(asked) == sorted(["prog/one.h", "b/deep/er/two.h", f"{tree}/a", f"{tree}/b"])


def test_manifest_is_read_back_unchanged(tree: Path) -> None:
    manifest = manifest_of(tree)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    assert Manifest.from_bytes(Manifest().to_bytes()) == Manifest()


def test_damaged_manifest_is_ignored(tree: Path) -> None:
    data = manifest_of(tree).to_bytes()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        assert Manifest.from_bytes(bytes(damaged)) is None
        assert Manifest.from_bytes(data[:at]) is None
    assert Manifest.from_bytes(data + b"\0") is None


def test_manifest_in_another_format_is_ignored() -> None:
    body = struct.pack("<7I", 5, 0, 0, 0, 0, 0, 0) + b"a\0b\0c"
    magic = memo_module._MAGIC
    assert Manifest.from_bytes(magic + hashlib.sha256(body).digest() + body) is None


@given(st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_a_manifest_or_ignored(data: bytes) -> None:
    assert Manifest.from_bytes(data) is None
    assert Manifest.from_bytes(memo_module._MAGIC + data) is None


def test_memo_finds_entries_of_another_process_on_disk(tree: Path) -> None:
    store = Store()
    manifest = manifest_of(tree)
    Memo(store).keep("name", manifest)
    other = Memo(store)
    assert other.find("name") == manifest._replace(via="hints")
    assert other.find("name") == manifest._replace(via="hints")
    assert store.reads == 1
    assert other.find("else") is None
    _edit(tree)
    assert other.find("name") is None
    store.hints = dict.fromkeys(store.hints, b"damaged")
    assert Memo(store).find("name") is None


def test_memo_is_bounded(tree: Path) -> None:
    memo = Memo()
    manifest = manifest_of(tree)
    for number in range(300):
        memo.keep(str(number), manifest)
    assert memo.find("0") is None
    assert memo.find("299") == manifest


def test_tests_by_calls_are_known_for_recently_scanned_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_KEPT", 2)
    header, known = tmp_path / "h.h", Files()
    header.write_text("#if P(<a.h>) || Q(<b.h>)\n#endif\n")
    text = known.read(str(header))
    assert text is not None
    calls = [known.calls(str(header), text, {name: True}) for name in ("O", "P", "Q")]
    header.unlink()
    assert [known.calls(str(header), text, {name: True}) for name in ("P", "Q")] == calls[1:]
    with pytest.raises(NotModelledError):  # it would be read again
        known.calls(str(header), text, {"O": True})


def test_header_that_appears_during_a_scan_is_noticed(tree: Path) -> None:
    search = Search({}, (("include[0]", f"{tree}/a"), ("include[1]", f"{tree}/b")), str(tree))
    closure = scan(search, HeaderPlace("source", "s.cu", f"{tree}/prog/s.cu"), TEXT, files=Files())
    _shadow(tree)
    with raises(NotModelledError, "failure", "appeared"):
        Manifest.of(closure, [])
