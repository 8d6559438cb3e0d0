"""Every file that cujit writes is there whole or not at all, whatever the disk, the directory or a signal does."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import cujit
import cujit.worklist
from cujit.artifact.writing import replacing, temporary_directory, temporary_name, write_file
from cujit.cache.remote.signing import keygen
from cujit.cache.remote.transport import transport_of
from cujit.cli import main
from cujit.cli.saved_launches import save_array
from cujit.errors import CujitError, FileError, OptionError, RemoteError
from cujit.explore.editor import EditedFile
from processes import printed, python
from raising import raises

SOURCE = "".join(f'extern "C" __global__ void k{i}(float *x) {{ x[threadIdx.x] = {i}; }}\n' for i in range(40))
OLD = "// what was there\n"
Write = Callable[[Path], object]
NAMES = (
    "k.fatbin", "bug.launch", "l.jsonl", "k.pack", "c.info", "k.cu", "e.py", "b.fatbin", "p.html", "o.npy",
    "k.0.compute_90.ptx", "o.svg",
)  # fmt: skip
MOST_BYTES = 600


@contextlib.contextmanager
def full_disk(most_bytes: int = MOST_BYTES) -> Iterator[None]:
    """Have no file grow beyond some bytes: write(2) fails as on a full disk."""
    known = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, known[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, known)


def _cli(*words: object) -> None:
    """Run a verb; the error of cujit that it prints is raised."""
    result = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    if result.exit_code:
        assert result.output.startswith("error: "), result.output
        raise FileError(result.output)


def _edit(path: Path) -> str:
    path.write_text(OLD)
    file = EditedFile(path)
    return file.save(SOURCE, file.digest, is_forced=False)


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Write]:
    """What writes a file of more than 600 bytes, by the name of the file."""
    folder = tmp_path_factory.mktemp("written")
    device = cujit.cpu(1)
    with cujit.record_worklist(folder / "record"):
        image = cujit.compile(SOURCE, arch="sm_90", to="ptx")
    (folder / "k.cu").write_text(SOURCE)
    ptx = image.save(folder / "k.ptx")
    x = device.array(np.random.default_rng(1).random(1000, np.float32))
    bound = cujit.load(image, device)["k1"][1, 32]
    cubin = cujit.compile(SOURCE.partition("\n")[0], arch="sm_90")
    listed = cujit.worklist.read(folder / "record")
    coverage = cujit.Coverage()
    lines = cujit.compile("#line 1\n" + SOURCE[:3000], arch="sm_90", to="ptx", lineinfo=True)
    covered = cujit.cpu(1, coverage=coverage)
    module = cujit.load(lines, covered)
    for name in module:
        module[name][1, 32](covered.array(np.zeros(32, np.float32)))
    return {
        "k.fatbin": image.save,
        "bug.launch": lambda path: bound.save(path, x),
        "l.jsonl": listed.save,
        "k.pack": lambda path: cujit.worklist.build(listed, pack=path),
        "c.info": coverage.save,
        "k.cu": _edit,
        "e.py": lambda path: _cli("embed", ptx, "-o", path),
        "b.fatbin": lambda path: _cli("build", folder / "k.cu", "-t", "compute_90", "-o", path),
        "p.html": lambda path: _cli("inspect", ptx, "--html", path),
        "o.npy": lambda path: save_array(path, np.zeros(1000)),
        "o.svg": lambda path: cujit.occupancy.plot(path, cubin, 128, on="H200"),
        "k.0.compute_90.ptx": lambda path: _cli("inspect", ptx, "--extract", path.parent),
    }


# -- every writer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_full_disk_leaves_the_file_unchanged(writers: dict[str, Write], tmp_path: Path, name: str) -> None:
    path, write = tmp_path / name, writers[name]
    write(path)
    assert path.stat().st_size > MOST_BYTES
    path.write_text(OLD)
    with full_disk(), raises(CujitError, "file", "File too large"):
        write(path)
    assert (path.read_text(), os.listdir(tmp_path)) == (OLD, [name])


# -- the function that writes -------------------------------------------------------------------------------------


def test_killed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "k.cubin"
    path.write_text(OLD)
    killed = python(
        """
        import os, signal, sys
        from cujit.artifact.writing import make_temporary_directory, replacing
        make_temporary_directory()
        with replacing(sys.argv[1]) as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        path,
        environment={"TMPDIR": str(tmp_path)},
    )
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == OLD
    left = [file for file in tmp_path.iterdir() if file != path]
    assert [file.is_dir() for file in sorted(left, key=Path.is_dir)] == [False, True]
    alive = tmp_path / f".cujit-{temporary_name()}"  # of a process that lives
    alive.mkdir()
    os.utime(alive, (0, 0))
    (tmp_path / ".cujit-mine").write_text("somebody's")
    write_file(path, b"new")
    assert {file.name for file in tmp_path.iterdir()} == {"k.cubin", alive.name, ".cujit-mine"}


def test_errors_inside_and_of_other_files_propagate(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(OLD)
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"half" * (1 // 0))
    with pytest.raises(FileNotFoundError) as other, replacing(path):
        (tmp_path / "read for it").read_bytes()
    assert not isinstance(other.value, FileError)
    assert (path.read_text(), os.listdir(tmp_path)) == (OLD, ["file"])


def test_permissions_are_kept_and_new_files_follow_the_umask(tmp_path: Path) -> None:
    old, new, exact = tmp_path / "old", tmp_path / "new", tmp_path / "exact"
    old.write_text(OLD)
    old.chmod(0o640)
    with contextlib.suppress(OSError):
        os.setxattr(old, "user.note", b"kept")
    known = os.umask(0o027)
    try:
        modes = [stat.S_IMODE(write_file(path, b"x", mode=mode).stat().st_mode) for path, mode in
                 ((old, None), (new, None), (exact, 0o644))]  # fmt: skip
    finally:
        os.umask(known)
    assert modes == [0o640, 0o640, 0o644]
    with contextlib.suppress(OSError):
        assert os.getxattr(old, "user.note") == b"kept"


def test_link_is_followed_replaced_or_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there/file", tmp_path / "link"
    (tmp_path / "via").symlink_to("there")
    (tmp_path / "via/second").symlink_to("../there/file")
    link.symlink_to("via/second")
    for text in (b"made", b"replaced"):  # the end of the links is not there at first
        assert write_file(link, text) == link
        assert (target.read_bytes(), link.is_symlink(), target.is_symlink()) == (text, True, False)
    with raises(FileError, "file", "Too many levels of symbolic links"):
        write_file(link, b"no", links="refuse")
    write_file(link, b"alone", links="replace")
    assert (target.read_bytes(), link.is_symlink(), link.read_bytes()) == (b"replaced", False, b"alone")
    (tmp_path / "circle").symlink_to("circle")
    with raises(FileError, "file", "Too many levels of symbolic links"):
        write_file(tmp_path / "circle", b"no")


def test_devices_and_fifos_are_written_as_they_are(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    write_file(fifo, b"through")
    reader.join(60)
    assert (got, stat.S_ISFIFO(fifo.stat().st_mode)) == ([b"through"], True)
    write_file("/dev/null", b"nothing")
    with raises(FileError, "file", "/dev/full", "No space left on device"):
        write_file("/dev/full", b"x")
    (tmp_path / "out").write_text("before\n")
    code = "from cujit.artifact.writing import write_file; write_file('/dev/stdout', b'a\\n'); print('b', flush=True)"
    with (tmp_path / "out").open("a") as out:  # a file that others write, too, is neither replaced nor cut off
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "before\na\nb\n"


@pytest.mark.parametrize(
    ("name", "number"),
    [("", errno.ENOENT), ("none/file", errno.ENOENT), ("folder", errno.EISDIR), ("folder/", errno.EISDIR),
     ("none/", errno.EISDIR), ("file/", errno.ENOTDIR), ("file/x", errno.ENOTDIR), ("x" * 256, errno.ENAMETOOLONG),
     ("f" * 255, None)],
)  # fmt: skip
def test_impossible_file_raises_cujits_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text(OLD)
    if number is None:
        assert write_file(name, "ü").read_bytes() == b"\xc3\xbc"
        return
    with raises(FileError, "file") as refused:
        write_file(name, b"x")
    assert (refused.value.errno, refused.value.filename) == (number, name)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    with pytest.raises(OptionError):
        write_file(1, b"x")


def test_unwritable_file_remains_and_parents_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0o555)
    (tmp_path / "closed/file").write_text(OLD)
    (tmp_path / "closed/file").chmod(0o666)
    (tmp_path / "fixed").write_text(OLD)
    (tmp_path / "fixed").chmod(0o444)
    tmp_path.chmod(0o777)
    said = printed(
        """
        import os, pathlib, sys
        from cujit.artifact.writing import write_file
        from cujit.errors import FileError
        os.chdir(sys.argv[1])
        if os.geteuid() == 0:
            os.seteuid(65534)  # those above may be closed to that one
        for name in ("closed/file", "fixed", "new"):
            try:
                print(write_file(name, b"new"))
            except FileError as e:
                print(str(e).partition("\\n")[0])
        """,
        tmp_path,
    )
    assert said.splitlines() == [
        "closed/file can't be written: Permission denied", "fixed can't be written: Permission denied", "new",
    ]  # fmt: skip
    assert [path.read_text() for path in (tmp_path / "closed/file", tmp_path / "fixed")] == [OLD, OLD]


def test_concurrent_writers_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = [bytes([65 + k]) * 50_000 for k in range(8)]
    seen: set[bytes] = set()
    threads = [threading.Thread(target=lambda text=text: [write_file(path, text) for _ in range(10)]) for text in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with contextlib.suppress(FileNotFoundError):
            seen.add(path.read_bytes())
    assert seen <= set(texts)
    assert os.listdir(tmp_path) == ["file"]


def test_key_or_an_object_is_written_once(tmp_path: Path) -> None:
    key = tmp_path / "key"
    with full_disk(10), raises(FileError, "file", "File too large"):
        keygen(key, name="ci", scope="main")
    assert os.listdir(tmp_path) == []
    keygen(key, name="ci", scope="main")
    kept = key.read_bytes()
    with raises(FileError, "file", "File exists"):
        keygen(key, name="ci", scope="main")
    assert (key.read_bytes(), stat.S_IMODE(key.stat().st_mode), os.listdir(tmp_path)) == (kept, 0o600, ["key"])
    store = transport_of(f"file://{tmp_path}/store", 1.0)
    assert [store.put("a/b", b"1"), store.put("a/b", b"2"), store.put("a/b", b"3", replace=True)] == [True, False, True]
    with full_disk(10), raises(RemoteError, "remote", "File too large"):
        store.put("a/c", bytes(100))
    assert os.listdir(tmp_path / "store/a") == ["b"]


def test_temporary_directory_is_private_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_directory() as folder:
        assert (folder.parent, stat.S_IMODE(folder.stat().st_mode)) == (tmp_path, 0o700)
        (folder / "file").touch()
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with raises(FileError, "file", "No such file or directory", "TMPDIR"):
        temporary_directory().__enter__()
