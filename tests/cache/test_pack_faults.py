"""Packs that change, end or lie while they are open: what cannot be proved is a miss, and no process ends."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import resource
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cache.samples import artifact_of, key_of
from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.pack import Pack, write_pack
from cujit.cache.provenance import Outcome
from cujit.cache.trust import Trust
from cujit.errors import CacheWarning, FormatError
from raising import raises
from waiting import eventually

_COUNT = 40
_HEAD_BYTES, _ROW_BYTES = 192, 80
_SINGLY = 4
"""So many records are read one by one, and then all of the rest at once."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of 40 records, to be copied."""
    path = tmp_path_factory.mktemp("made") / "kernels.pack"
    cache = Cache(path.with_name("cache"))
    for n in range(_COUNT):
        cache.keep(key_of(n), artifact_of(n, 3000))
    write_pack(path, cache.stores)
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path))


def reading(path: Path) -> Cache:
    return Cache(None, read_only=[path])


def hits(cache: Cache) -> list[int]:
    """Tell which records are got, and see that they are those that were written."""
    found = [(n, cache.find(key_of(n))) for n in range(_COUNT)]
    got = [(n, pair[0]) for n, pair in found if pair is not None]
    for n, artifact in got:
        assert artifact.data == artifact_of(n, 3000).data
    return [n for n, _ in got]


def cut_off(path: Path) -> None:
    os.truncate(path, 1000)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def written_over(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.write(os.urandom(size))


@pytest.mark.parametrize("many", [0, 1, _SINGLY + 1])
@pytest.mark.parametrize("change", [cut_off, emptied, written_over])
def test_pack_changed_in_place_loses_only_unread_records(path: Path, change: Callable[[Path], None], many: int) -> None:
    """Were the file mapped, SIGBUS would end this process."""
    cache = reading(path)
    for n in range(many):
        assert cache.find(key_of(n)) is not None
    assert cache.stores[0].is_there()
    change(path)
    cache.forget()
    if many > _SINGLY:
        assert len(hits(cache)) == _COUNT, "it had been read whole"
        return
    with pytest.warns(CacheWarning, match="can't use the pack"):
        assert hits(cache) == []


def test_records_read_before_truncation_stay_valid(path: Path) -> None:
    cache = reading(path)
    found = [cache.find(key_of(n)) for n in range(_COUNT)]
    os.truncate(path, 0)
    assert [pair and pair[0].data for pair in found] == [artifact_of(n, 3000).data for n in range(_COUNT)]


def test_pack_whose_descriptor_was_closed_is_reopened(path: Path) -> None:
    """As daemons do; and another file may have the number by then."""
    for taken in (False, True):
        cache = reading(path)
        assert cache.find(key_of(0)) is not None
        (number,) = (int(fd) for fd in os.listdir("/proc/self/fd") if _leads_to(fd, path))
        os.close(number)
        other = os.open("/dev/zero" if taken else path.parent, os.O_RDONLY)
        assert other == number
        try:
            assert hits(cache) == list(range(_COUNT)), taken
        finally:
            os.close(number)  # which nobody else did


def _leads_to(fd: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}") == str(path)
    except OSError:
        return False


def test_forked_child_reads_on(path: Path) -> None:
    for many in (0, 1, _SINGLY + 1):
        cache = reading(path)
        for n in range(many):
            assert cache.find(key_of(n)) is not None
        child = os.fork()
        if child == 0:
            os._exit(0 if len(hits(cache)) == _COUNT else 1)
        assert len(hits(cache)) == _COUNT
        assert os.waitpid(child, 0)[1] == 0, many


def test_pack_replaced_all_the_time_is_whole_for_every_reader(made: Path, tmp_path: Path) -> None:
    """Two processes write the same name; readers that begin at any time get all of one or of the other."""
    path = tmp_path / "kernels.pack"
    code = (
        "import sys; from pathlib import Path\n"
        "from cujit.cache.cache import Cache; from cujit.cache.pack import write_pack\n"
        "while True: write_pack(Path(sys.argv[2]), Cache(None, read_only=[Path(sys.argv[1])]).stores)\n"
    )
    shutil.copy(made, path)
    writers = [subprocess.Popen([sys.executable, "-c", code, made, path]) for _ in range(2)]
    with path.open() as first:  # open, so that no other file gets its number

        def is_replaced_and_whole() -> bool:
            assert hits(reading(path)) == list(range(_COUNT))
            return not os.path.samestat(os.fstat(first.fileno()), path.stat())

        try:
            eventually(is_replaced_and_whole)
            for _ in range(40):
                assert hits(reading(path)) == list(range(_COUNT))
        finally:
            for writer in writers:
                writer.kill()
                writer.wait()
    assert path.read_bytes() == made.read_bytes()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_writer_leaves_no_pack_under_the_name(made: Path, tmp_path: Path, end: signal.Signals) -> None:
    path = tmp_path / "kernels.pack"
    code = (
        "import signal, sys, time; from pathlib import Path\n"
        "from cujit.cache import pack; from cujit.cache.cache import Cache\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "write = pack._normalised\n"
        "def slow(*args, **more):\n"
        "    print('writing', flush=True); time.sleep(0.5)\n"
        "    return write(*args, **more)\n"
        "pack._normalised = slow\n"
        "pack.write_pack(Path(sys.argv[2]), Cache(None, read_only=[Path(sys.argv[1])]).stores)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, made, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        writer.send_signal(end)
        writer.wait()
    assert not path.exists()
    left = list(tmp_path.iterdir())
    assert len(left) == (1 if end is signal.SIGKILL else 0), "whoever is killed cannot tidy up"


def moved(path: Path, n: int, to: int) -> None:
    """Move a record of a pack to another place, and say so in its tables."""
    whole = bytearray(path.read_bytes())
    begin = next(
        at
        for at in range(_HEAD_BYTES, _HEAD_BYTES + _COUNT * _ROW_BYTES, _ROW_BYTES)
        if whole[at : at + 32].hex() == key_of(n).digest
    )
    at, stored = struct.unpack_from("<QI", whole, begin + 64)
    struct.pack_into("<Q", whole, begin + 64, to)
    struct.pack_into("<Q", whole, 32, to + stored)
    whole[40:72] = hashlib.sha256(whole[_HEAD_BYTES : _HEAD_BYTES + _COUNT * _ROW_BYTES]).digest()
    with open(path, "r+b") as file:
        file.write(whole)
        file.seek(to)
        file.write(whole[at : at + stored])


def test_pack_of_more_than_4_gib_is_read(path: Path) -> None:
    moved(path, 7, (4 << 30) + 8)
    assert path.stat().st_blocks * 512 < 1 << 20, "most of it is a hole"
    pack = Pack(path, Trust.of_process())
    assert hits(reading(path)) == list(range(_COUNT))
    assert [fault for _, fault in pack.verify() if fault] == []


def test_pack_is_read_by_record_if_memory_is_short(path: Path) -> None:
    moved(path, 7, 60 << 20)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    code = (
        "import resource, sys; from pathlib import Path; import cujit\n"
        "sys.path.insert(0, sys.argv[2]); from cache.test_pack_faults import hits, reading\n"
        "size = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (size + (40 << 20), {limits[1]}))\n"
        "print(len(hits(reading(Path(sys.argv[1])))))\n"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(path), str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{_COUNT}\n", "")


def test_tables_larger_than_memory_are_refused(path: Path) -> None:
    """A hole is as large as one likes, and costs nothing to send."""
    with open(path, "r+b") as file:
        file.truncate(1 << 40)
        file.seek(16)
        file.write(struct.pack("<QQQ", 1 << 33, 0, 1 << 40))
    with pytest.warns(CacheWarning, match="end at byte 687194767552"):
        assert reading(path).find(key_of(0)) is None


def test_first_of_packs_that_disagree_is_used(path: Path, tmp_path: Path) -> None:
    other = Cache(tmp_path / "other")
    other.keep(key_of(3), artifact_of(77))
    write_pack(tmp_path / "other.pack", other.stores)
    for first, second, data in (
        (path, tmp_path / "other.pack", artifact_of(3, 3000).data),
        (tmp_path / "other.pack", path, artifact_of(77).data),
    ):
        found = Cache(None, read_only=[first, second]).find(key_of(3))
        assert found is not None
        assert (found[0].data, found[1].root) == (data, first)


def test_record_of_another_key_is_not_found(path: Path) -> None:
    """Nor is one whose digest in the tables is right, for those who write packs can do that."""
    whole = bytearray(path.read_bytes())
    one, two = _HEAD_BYTES, _HEAD_BYTES + _ROW_BYTES
    whole[one + 32 : two], whole[two + 32 : two + _ROW_BYTES] = (
        whole[two + 32 : two + _ROW_BYTES],
        whole[one + 32 : two],
    )
    whole[40:72] = hashlib.sha256(whole[_HEAD_BYTES : _HEAD_BYTES + _COUNT * _ROW_BYTES]).digest()
    path.write_bytes(whole)
    cache = reading(path)
    assert len(hits(cache)) == _COUNT - 2
    assert cache.counters.damaged == 2


# -- what is read when somebody looks at it


def resealed(path: Path, n: int, begin: bytes, instead: bytes) -> None:
    """Write something else into a record, of the same length, and prove it as whoever writes packs could."""
    whole = bytearray(path.read_bytes())
    for row in range(_HEAD_BYTES, _HEAD_BYTES + _COUNT * _ROW_BYTES, _ROW_BYTES):
        if whole[row : row + 32].hex() == key_of(n).digest:
            at, stored = struct.unpack_from("<QI", whole, row + 64)
            record = whole[at : at + stored].replace(begin, instead)
            whole[at : at + stored] = record
            whole[row + 32 : row + 64] = hashlib.sha256(record).digest()
    whole[40:72] = hashlib.sha256(whole[_HEAD_BYTES : _HEAD_BYTES + _COUNT * _ROW_BYTES]).digest()
    path.write_bytes(whole)


def test_invalid_header_with_a_right_digest_is_detected(path: Path) -> None:
    resealed(path, 3, b'"kind":"fatbin"', b'"kind":"bitfan"')
    cache = reading(path)
    found = cache.find(key_of(3))
    assert found is not None, "nobody has looked at it"
    for _ in range(2):
        with raises(FormatError, "format", "invalid"):
            print(found[0].names)
    cache = reading(path)
    made, provenance = cache.get_or_make(key_of(3), lambda: artifact_of(3))
    assert (made, provenance.outcome) == (artifact_of(3), Outcome.UNCACHED)
    assert cache.counters.damaged > 0
    assert [digest for digest, fault in Pack(path, Trust.of_process()).verify() if fault] == [key_of(3).digest]


WHOLE = replace(artifact_of(5, 3000), log="")
LOOKS: dict[str, Callable[[Artifact], object]] = {
    "equal": lambda artifact: artifact == WHOLE,
    "equal to": lambda artifact: WHOLE == artifact,  # noqa: SIM300
    "hash": hash,
    "len": len,
    "repr": repr,
    "log": lambda artifact: artifact.log,
    "arch": lambda artifact: artifact.arch,
    "copied": lambda artifact: copy.deepcopy(artifact).names,
    "vars": vars,
    "replaced": lambda artifact: replace(artifact, name="b.cu"),
    "pickled": lambda artifact: pickle.loads(pickle.dumps(artifact)),
}


@pytest.mark.parametrize("how", LOOKS)
def test_unverified_image_is_an_ordinary_artifact(path: Path, how: str) -> None:
    found = reading(path).find(key_of(5))
    assert found is not None
    assert isinstance(found[0], Artifact)
    assert type(found[0]) is not Artifact, "nobody has looked at it"
    assert LOOKS[how](found[0]) == LOOKS[how](WHOLE)
    assert type(found[0]) is Artifact
