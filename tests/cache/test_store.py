"""The store: published whole, proved at each read, set aside when damaged."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cache.samples import artifact_of, key_of
from cujit.artifact.writing import temporary_name
from cujit.cache import record as record_module
from cujit.cache.filesystem import OPEN_FLAGS
from cujit.cache.key import Key, Part, make_key
from cujit.cache.record import encode, entry_of, hit_of
from cujit.cache.store import Published, Store
from cujit.cache.trust import Trust
from cujit.devices.launcher.library import library
from cujit.errors import CacheRefusedError
from raising import raises


def record(n: int, size: int = 1000) -> bytes:
    return encode(key_of(n), artifact_of(n, size), make_ms=5, made_s=1_700_000_000)


def path_of(store: Store, n: int) -> Path:
    digest = key_of(n).digest
    return store.root / "e" / digest[:2] / digest[2:]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with the entries 0 and 1."""
    store = Store(tmp_path / "cache", Trust.of_process(), writable=True)
    for n in (0, 1):
        assert store.put(key_of(n).digest, record(n)) is Published.NEW
    return store


def test_store_returns_what_was_put_and_leaves_no_files(store: Store) -> None:
    found = store.get(key_of(0).digest)
    assert found.record is not None
    assert found.record.artifact == artifact_of(0)
    assert found.size_bytes == len(record(0))
    assert store.get(key_of(7).digest).record is None
    assert sorted(os.listdir(store.root)) == ["CACHEDIR.TAG", "FORMAT", "bad", "e", "tmp"]
    assert os.listdir(store.root / "tmp") == []
    assert (store.root / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")


def test_directories_and_files_are_private_for_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(tmp_path / "new" / "cache", Trust.of_process(), writable=True)
        store.put(key_of(0).digest, record(0))
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in [tmp_path / "new", *(tmp_path / "new").rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_first_writer_wins_and_its_file_stays_untouched(store: Store) -> None:
    before = path_of(store, 0).stat()
    assert store.put(key_of(0).digest, record(0, 2000)) is Published.KEPT_THEIRS
    after = path_of(store, 0).stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)
    assert os.listdir(store.root / "tmp") == []


def test_file_system_without_hard_links_stores_entries(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert store.put(key_of(2).digest, record(2)) is Published.NEW
    assert store.get(key_of(2).digest).record is not None
    assert os.listdir(store.root / "tmp") == []


def damaged_by(store: Store, harm: Callable[[Path], object]) -> str:
    """Harm entry 0, check that it is a miss once and that a new one is kept then, and return what was said of it."""
    path = path_of(store, 0)
    harm(path)
    lookup = store.get(key_of(0).digest)
    assert lookup.record is None
    assert not os.path.lexists(path)
    assert store.get(key_of(0).digest).damage == ""
    assert store.put(key_of(0).digest, record(0)) is Published.NEW
    assert store.get(key_of(0).digest).record is not None
    return lookup.damage


def test_flipped_bit_or_cut_entry_is_a_miss_and_set_aside(store: Store) -> None:
    data, digest, path = record(0, 40), key_of(0).digest, path_of(store, 0)
    aside = store.root / "bad" / digest[0]
    harmed = [data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in range(len(data))]
    for harm in (*harmed, *(data[:length] for length in range(len(data)))):
        path.write_bytes(harm)
        path.chmod(0o600)
        assert store.get(digest).damage
        assert not path.exists()
        assert aside.read_bytes() == harm
    assert len(os.listdir(store.root / "bad")) == 1
    assert damaged_by(store, lambda path: path.write_bytes(b""))


def test_two_entries_swapped_are_both_misses(store: Store) -> None:
    a, b = path_of(store, 0), path_of(store, 1)
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)
    for n in (0, 1):
        assert f"expected {key_of(n).digest}" in store.get(key_of(n).digest).damage
        assert not path_of(store, n).exists()


def test_symbolic_link_is_not_followed(store: Store, tmp_path: Path) -> None:
    def harm(path: Path) -> None:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")

    assert "is a symbolic link" in damaged_by(store, harm)
    assert (tmp_path / "elsewhere").read_bytes() == record(0)


def test_hard_link_to_another_file_is_a_miss_and_file_remains(store: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"not an entry")

    def harm(path: Path) -> None:
        path.unlink()
        os.link(secret, path)

    assert "the record is truncated" in damaged_by(store, harm)
    assert secret.read_bytes() == b"not an entry"


def test_fifo_does_not_hang_a_reader(store: Store) -> None:
    def harm(path: Path) -> None:
        path.unlink()
        os.mkfifo(path, 0o600)

    assert "is not a regular file" in damaged_by(store, harm)


def test_directory_and_socket_in_place_of_an_entry_are_misses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def directory(path: Path) -> None:
        path.unlink()
        path.mkdir()

    assert "is not a regular file" in damaged_by(store, directory)

    def bound(path: Path) -> None:
        path.unlink()
        monkeypatch.chdir(path.parent)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path.name)

    assert "socket" in damaged_by(store, bound)


@pytest.mark.parametrize(("mode", "said"), [(0o666, "is writable by everyone"), (0o660, "is writable by group")])
def test_entry_writable_by_others_is_a_miss(store: Store, mode: int, said: str) -> None:
    assert said in damaged_by(store, lambda path: path.chmod(mode))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_entry_of_another_user_is_a_miss(store: Store) -> None:
    def harm(path: Path) -> None:
        path.chmod(0o644)
        os.chown(path, 12345, -1)

    assert "belongs to user 12345" in damaged_by(store, harm)


def test_unreadable_entry_is_a_miss(store: Store) -> None:
    path_of(store, 0).chmod(0)
    if os.access(path_of(store, 0), os.R_OK):
        pytest.skip("this user may read everything")
    assert "Permission denied" in damaged_by(store, lambda path: path.chmod(0))


def test_file_with_a_huge_declared_size_takes_no_memory(store: Store) -> None:
    assert "the maximum is" in damaged_by(store, lambda path: os.truncate(path, 2**40))
    assert os.listdir(store.root / "bad") == []  # too large to keep


def test_damaged_entry_is_deleted_if_it_cannot_be_set_aside(store: Store) -> None:
    (store.root / "bad").rmdir()
    assert damaged_by(store, lambda path: path.write_bytes(b"x"))


def test_read_only_root_is_never_changed(store: Store) -> None:
    other = Store(store.root, store.trust, writable=False)
    path = path_of(store, 0)
    os.utime(path, (1, 1))
    assert other.get(key_of(0).digest).record is not None
    assert path.stat().st_mtime == 1
    path.write_bytes(b"damaged")
    assert other.get(key_of(0).digest).damage
    assert path.read_bytes() == b"damaged"
    assert not (store.root / "usage").exists()


def test_hit_marks_the_entry_as_used_once_an_hour(store: Store) -> None:
    path = path_of(store, 0)
    recent = time.time() - 1800
    for then, now in ((recent, recent), (1, time.time()), (time.time() + 10**6, time.time())):
        os.utime(path, (then, then))
        store.get(key_of(0).digest)
        assert abs(path.stat().st_mtime - now) < 60


def test_root_of_another_format_is_neither_read_nor_written(store: Store) -> None:
    (store.root / "FORMAT").write_text("cujit cache 2\n")
    other = Store(store.root, store.trust, writable=True)
    before = sorted(map(str, store.root.rglob("*")))
    assert other.get(key_of(0).digest).record is None
    assert other.put(key_of(5).digest, record(5)) is Published.REFUSED_FORMAT
    assert list(other.entries()) == []
    assert sorted(map(str, store.root.rglob("*"))) == before


def test_format_file_emptied_by_a_power_cut_is_written_again(store: Store) -> None:
    (store.root / "FORMAT").write_bytes(b"")
    other = Store(store.root, store.trust, writable=True)
    assert other.get(key_of(0).digest).record is None
    other.put(key_of(5).digest, record(5))
    assert other.get(key_of(0).digest).record is not None


@pytest.mark.parametrize("part", [".", "e", "tmp"])
def test_cache_deleted_while_open_is_created_again(store: Store, part: str) -> None:
    shutil.rmtree(store.root / part)
    assert store.get(key_of(9).digest).record is None
    assert store.put(key_of(9).digest, record(9)) is Published.NEW
    assert store.get(key_of(9).digest).record is not None


def test_entry_read_in_pieces_is_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, read = store.get(key_of(0).digest), os.read
    monkeypatch.setattr(os, "read", lambda fd, size: read(fd, min(size, 400)))
    assert store.get(key_of(0).digest) == whole
    assert whole.record is not None


def test_file_lost_on_another_machine_is_reopened(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def stale(fd: int, size: int) -> bytes:
        tries.append(fd)
        if len(tries) < failing:
            raise OSError(errno.ESTALE, "Stale file handle")
        return read(fd, size)

    read, failing = os.read, 3
    store.get(key_of(1).digest)
    monkeypatch.setattr(os, "read", stale)
    assert store.get(key_of(0).digest).record is not None
    assert len(tries) == 3
    failing = 99
    with pytest.raises(OSError, match="Stale"):
        store.get(key_of(0).digest)
    assert len(tries) == 6


def test_temporary_files_of_dead_processes_are_deleted(store: Store) -> None:
    child = subprocess.run(
        [sys.executable, "-c", "from cujit.artifact.writing import temporary_name; print(temporary_name())"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    tmp = store.root / "tmp"
    dead, ours, other_boot, strange = child.stdout.strip(), temporary_name(), "00000000-1-1-" + "0" * 16, "README"
    for name in (dead, ours, other_boot, strange):
        (tmp / name).write_bytes(b"x")
    assert store.remove_stale() == 1
    assert sorted(os.listdir(tmp)) == sorted([ours, other_boot, strange])
    for name in (ours, other_boot, strange):
        os.utime(tmp / name, (1, 1))
    assert store.remove_stale() == 2
    assert os.listdir(tmp) == [strange]


def test_only_entries_are_listed(store: Store) -> None:
    (store.root / "e" / "README").write_text("x")
    (store.root / "e" / "zz").mkdir()
    path_of(store, 0).with_name("x").write_text("x")
    entries = {entry.digest: entry.size_bytes for entry in store.entries()}
    assert entries == {key_of(n).digest: len(record(n)) for n in (0, 1)}
    assert store.delete(key_of(0).digest)
    assert not store.delete(key_of(0).digest)
    assert [entry.digest for entry in store.entries()] == [key_of(1).digest]


def test_miss_is_explained_by_the_nearest_entry_of_its_name(store: Store) -> None:
    def key(name: str, arch: str, source: str, *more: Part, work: str = "nvrtc") -> Key:
        return make_key(work, [Part.text("name", name), Part.text("arch", arch), Part.content("source", source), *more])

    for known in (key("a", "sm_80", "1"), key("a", "sm_80", "2"), key("b", "sm_90", "3"), key("a", "x", "3", work="l")):
        store.put(known.digest, encode(known, artifact_of(0), make_ms=1, made_s=1))
    wanted = key("a", "sm_90", "2")
    explanation = store.why(wanted)
    assert explanation is not None
    assert [str(d) for d in explanation.differences] == ["arch: sm_80 -> sm_90"]
    assert explanation.nearest.digest == key("a", "sm_80", "2").digest
    near = store.why(key("b", "sm_90", "4"))
    assert near is not None
    assert near.nearest.digest == key("b", "sm_90", "3").digest
    assert [d.label for d in near.differences] == ["source"]
    assert store.why(key("a", "sm_80", "1", work="nobody")) is None


def test_head_larger_than_the_first_read_is_read_whole(store: Store) -> None:
    key = make_key("nvrtc", [Part.content(f"include {n}.h", f"{n}") for n in range(440)])
    store.put(key.digest, encode(key, artifact_of(0), make_ms=1, made_s=1))
    found = store.peek(key.digest)
    assert found is not None
    assert found[1] == key.parts


def test_root_writable_by_others_is_refused_with_a_command(store: Store) -> None:
    store.root.chmod(0o777)
    other = Store(store.root, store.trust, writable=True)
    for use in (lambda: other.get(key_of(0).digest), lambda: other.put(key_of(0).digest, record(0))):
        with raises(CacheRefusedError, "cache-refused", "everyone") as error:
            use()
        assert error.value.help == f"chmod go-w {store.root}"
    subprocess.run(str(error.value.help), shell=True, check=True)
    assert other.get(key_of(0).digest).record is not None


# -- native code reads an entry as Python does --------------------------------------------------------------


def _linked(path: Path) -> None:
    path.rename(path.with_name("x"))
    path.symlink_to(path.with_name("x"))


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


_DONE: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "no entry": Path.unlink,
    "written by everyone": lambda path: path.chmod(0o666),
    "written by the group": lambda path: path.chmod(0o620),
    "not to be read": lambda path: path.chmod(0),
    "a link": _linked,
    "a directory": _directory,
    "a FIFO": _fifo,
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "damaged": lambda path: path.write_bytes(path.read_bytes().replace(b"log", b"lug", 1)),
    "of another key": lambda path: path.write_bytes(record(1)),
    "large": lambda path: path.write_bytes(record(0, 1 << 20)),
    "old": lambda path: os.utime(path, (1, 1)),
}


@pytest.mark.parametrize("what", _DONE)
@pytest.mark.parametrize("group", [None, os.getgid()])
def test_native_code_reads_an_entry_as_python_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, group: int | None
) -> None:
    library()
    digest, found, natively = key_of(0).digest, [], list[bool]()
    for is_native in (True, False):
        store = Store(tmp_path / f"cache {is_native}", Trust.of_process(group), writable=True)
        store.put(digest, record(0))
        assert store.is_there()
        _DONE[what](path := path_of(store, 0))
        with monkeypatch.context() as changed:
            if not is_native:
                changed.setattr(record_module, "LOADED", {})
            else:
                hit_of(record(0), digest)  # from which native code learns
                entry = entry_of(str(path), digest, store.trust.words, OPEN_FLAGS)
                natively.append(entry is not None)
            hit = store.find(digest)
        is_new = path.exists() and time.time() - path.stat().st_mtime < 60
        found.append((*hit[:3], hit.damage.replace(str(store.root), "…"), is_new))
    assert found[0] == found[1]
    is_good = what in ("nothing", "old") or (what == "written by the group" and group is not None)
    is_good = is_good or (what == "not to be read" and os.geteuid() == 0)  # who may read everything
    is_good = is_good and library().digest.call() is not None
    assert natively == [is_good]


def test_native_reader_leaves_invalid_names_to_python(store: Store) -> None:
    entry = library().hits["entry"].call
    path, digest = str(path_of(store, 0)), key_of(0).digest
    good = (path, digest, record_module._READ, store.trust.words, OPEN_FLAGS)
    for at, other in enumerate(("\udc80", None, None, None)):
        assert entry(*good[:at], other, *good[at + 1 :]) is None
    assert entry(*good[:-1]) is None
