"""Packs: what was written is got, everything is proved, and what is no good pack is refused in words."""

from __future__ import annotations

import gc
import hashlib
import mmap
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from cache.samples import artifact_of, key_of
from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.filesystem import OpenFile, open_trusted
from cujit.cache.pack import Pack, write_pack
from cujit.cache.provenance import Outcome
from cujit.cache.record import EntryRecord
from cujit.cache.settings import CacheSettings
from cujit.cache.store import Lookup
from cujit.cache.trust import Trust
from cujit.errors import CacheRefusedError, CacheWarning, FormatError
from processes import printed
from raising import raises

_COUNT = 40
_HEAD_BYTES, _ROW_BYTES = 192, 80


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """A cache of 40 records, with recipes and logs, and one of a kind that no other machine can use."""
    cache = Cache(tmp_path_factory.mktemp("packed") / "cache")
    for n in range(_COUNT):
        cache.get_or_make(key_of(n), lambda n=n: artifact_of(n, 1000 + 37 * n), recipe=lambda: b"how")  # type: ignore[misc]
    cache.keep(key_of(0, work="machine code"), artifact_of(0))
    return cache


@pytest.fixture
def path(cache: Cache, tmp_path: Path) -> Path:
    path = tmp_path / "kernels.pack"
    write_pack(path, cache.stores, requests={key_of(900 + n).digest: key_of(n).digest for n in range(5)})
    return path


def opened(path: Path) -> Pack:
    return Pack(path, Trust.of_process())


def read_only(path: Path) -> Cache:
    return Cache(None, read_only=[path])


def the_record(found: Lookup) -> EntryRecord:
    assert found.record is not None, found.damage
    return found.record


@pytest.mark.parametrize("compress", [False, True])
def test_pack_returns_exactly_its_records(cache: Cache, tmp_path: Path, compress: bool) -> None:
    path = tmp_path / "kernels.pack"
    stats = write_pack(path, cache.stores, compress=compress)
    assert (stats.records, stats.file_bytes) == (_COUNT, path.stat().st_size)
    assert (stats.stored_bytes < stats.record_bytes) == compress
    pack = opened(path)
    for n in range(_COUNT):
        artifact = the_record(pack.get(key_of(n).digest)).artifact
        assert (artifact.data, artifact.names) == (artifact_of(n, 1000 + 37 * n).data, artifact_of(n).names)
    assert pack.get(key_of(999).digest) == Lookup()
    assert pack.get(key_of(0, work="machine code").digest) == Lookup(), "of this processor alone"
    assert [fault for _, fault in pack.verify() if fault] == []
    assert pack.stats() == stats


def test_recipes_and_logs_stay_at_home_unless_they_are_wanted(cache: Cache, tmp_path: Path) -> None:
    bare, whole = tmp_path / "bare.pack", tmp_path / "whole.pack"
    write_pack(bare, cache.stores)
    write_pack(whole, cache.stores, with_recipes=True)
    without, with_ = (the_record(opened(path).get(key_of(3).digest)) for path in (bare, whole))
    assert (without.recipe, without.artifact.log, without.make_ms, without.made_s) == (b"", "", 0.0, 0)
    assert (with_.recipe, with_.artifact.log) == (b"how", "log 3")
    assert b"log 3" not in bare.read_bytes()


def test_equal_records_give_equal_packs(cache: Cache, tmp_path: Path) -> None:
    again = Cache(tmp_path / "other")
    for n in reversed(range(_COUNT)):
        again.keep(key_of(n), artifact_of(n, 1000 + 37 * n), make_ms=float(n))
    one, two = tmp_path / "one.pack", tmp_path / "two.pack"
    write_pack(one, cache.stores)
    write_pack(two, again.stores)
    assert one.read_bytes() == two.read_bytes()


def test_cache_reads_packs_and_directories(cache: Cache, path: Path, tmp_path: Path) -> None:
    both = os.pathsep.join([str(path), str(cache.stores[0].root)])
    environment = {"CUJIT_CACHE_ROOTS": both, "CUJIT_CACHE_DIR": str(tmp_path / "own")}
    settings = CacheSettings.from_environment(environment)
    found = Cache.of(settings).find(key_of(4))
    assert found is not None
    assert (found[1].outcome, found[1].root) == (Outcome.DISK, path)
    elsewhere = Cache.of(settings).find(key_of(0, work="machine code"))
    assert elsewhere is not None
    assert elsewhere[1].root == cache.stores[0].root
    assert not (tmp_path / "own").exists()


def test_request_is_answered_by_a_key(path: Path) -> None:
    pack = opened(path)
    assert [pack.key_of(key_of(900 + n).digest) for n in range(6)] == [*(key_of(n).digest for n in range(5)), None]


def searched(path: Path, cache: Cache, *found: bytes) -> Path:
    """A pack that knows what the searches 500, 501, … found."""
    write_pack(path, cache.stores, closures={key_of(500 + n).digest: data for n, data in enumerate(found)})
    return path


@pytest.mark.parametrize("compress", [False, True])
def test_header_search_is_answered_from_the_pack(cache: Cache, tmp_path: Path, compress: bool) -> None:
    path, found = tmp_path / "k.pack", {key_of(500 + n).digest: data for n, data in enumerate((b"a" * 999, b"b", b"b"))}
    stats = write_pack(path, cache.stores, closures=found, compress=compress)
    assert (stats.records, stats.requests, stats.closures) == (_COUNT, 3, 2), "equal ones are kept once"
    pack = opened(path)
    assert [list(pack.closures(search)) for search in found] == [[b"a" * 999], [b"b"], [b"b"]]
    assert list(pack.closures(key_of(503).digest)) == []
    assert len(list(pack.entries())) == _COUNT
    assert [fault for _, fault in pack.verify() if fault] == []
    assert pack.stats() == stats


def test_packs_are_merged_with_their_request_records(cache: Cache, path: Path, tmp_path: Path) -> None:
    packs = [path, searched(tmp_path / "one.pack", cache, b"a", b"b"), searched(tmp_path / "two.pack", cache, b"c")]
    merged, other = tmp_path / "merged.pack", tmp_path / "other.pack"
    write_pack(merged, [opened(pack) for pack in packs])
    write_pack(other, [opened(pack) for pack in reversed(packs)])
    assert merged.read_bytes() == other.read_bytes()
    pack = opened(merged)
    assert pack.key_of(key_of(903).digest) == key_of(3).digest
    assert sorted(pack.closures(key_of(500).digest)) == [b"a", b"c"], "of two releases of the headers"
    assert list(pack.closures(key_of(501).digest)) == [b"b"]
    few = tmp_path / "few.pack"
    assert write_pack(few, [opened(merged)], wanted=[key_of(3).digest]).requests == 1, "of what is not wanted, none"


def test_damaged_closure_is_ignored(cache: Cache, tmp_path: Path) -> None:
    path = searched(tmp_path / "k.pack", cache, b"what was found here")
    path.write_bytes(path.read_bytes().replace(b"was found", b"was never"))
    pack = opened(path)
    assert list(pack.closures(key_of(500).digest)) == []
    assert [fault for _, fault in pack.verify() if fault] == [
        "the record is damaged: its SHA-256 doesn't match the index"
    ]
    with raises(FormatError, "format", "SHA-256"):
        write_pack(tmp_path / "again.pack", [pack])


def test_pack_error_is_garbage_collected_with_its_data(cache: Cache, tmp_path: Path) -> None:
    path = searched(tmp_path / "k.pack", cache, b"what was found here")
    path.write_bytes(path.read_bytes().replace(b"was found", b"was never"))

    def fail() -> None:
        pack = opened(path)
        assert list(pack.closures(key_of(500).digest)) == []
        with raises(FormatError, "format", "SHA-256"):  # the error is in a cycle with the frames that it left
            write_pack(tmp_path / "again.pack", [pack])

    fail()
    gc.collect()


def test_why_names_the_nearest_record(path: Path) -> None:
    explanation = opened(path).why(key_of(999))
    assert explanation is not None
    assert [difference.label for difference in explanation.differences] == ["source"]


def test_missing_pack_is_ignored(tmp_path: Path) -> None:
    pack = opened(tmp_path / "no.pack")
    assert (pack.is_there(), pack.get(key_of(0).digest), list(pack.entries())) == (False, Lookup(), [])
    with pytest.raises(FileNotFoundError):
        pack.stats()


def damages(path: Path) -> Iterator[tuple[str, bytes, str]]:
    """Give packs that are none: what was done to them, their bytes, and what is said of them."""
    whole = path.read_bytes()
    yield "empty", b"", "0 bytes"
    yield "cut in the head", whole[:100], "192"
    yield "cut in the index", whole[: _HEAD_BYTES + 90], "declares"
    yield "cut in a record", whole[:-1], "declares"
    yield "longer", whole + b"\0", "declares"
    yield "of another kind", b"PK\3\4" + whole[4:], "begins"
    yield (
        "of a later version",
        whole[:8] + struct.pack("<I", 2) + whole[12:],
        "at byte 8",
    )
    yield "of the other byte order", whole[:8] + struct.pack(">I", 1) + whole[12:], "at byte 8"
    yield "too many records", whole[:16] + struct.pack("<Q", 1 << 60) + whole[24:], "tables"
    yield "too many closures", whole[:12] + struct.pack("<I", 1 << 31) + whole[16:], "tables"
    yield "too many requests", whole[:24] + struct.pack("<Q", 1 << 40) + whole[32:], "tables"
    for place in (_HEAD_BYTES, _HEAD_BYTES + 77, _HEAD_BYTES + _COUNT * _ROW_BYTES + 3):
        yield (
            f"a bit at {place}",
            whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :],
            "SHA-256",
        )


def test_invalid_pack_is_refused_once_and_then_ignored(path: Path, tmp_path: Path) -> None:
    for what, data, expected in damages(path):
        bad = tmp_path / "bad.pack"
        bad.write_bytes(data)
        pack = opened(bad)
        with raises(CacheRefusedError, "cache-refused", expected) as caught:
            pack.get(key_of(0).digest)
        assert str(bad) in str(caught.value), what
        assert pack.get(key_of(0).digest) == Lookup(), what
        bad.unlink()


def test_damaged_pack_is_one_warning_and_a_miss(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    cache = read_only(path)
    with pytest.warns(CacheWarning, match="can't use the pack") as caught:
        assert [cache.find(key_of(n)) for n in range(3)] == [None] * 3
    assert len(caught) == 1


def test_damaged_pack_fails_a_header_search_and_the_next_answers(cache: Cache, tmp_path: Path) -> None:
    bad, good = searched(tmp_path / "bad.pack", cache, b"a"), searched(tmp_path / "good.pack", cache, b"b")
    bad.write_bytes(bad.read_bytes()[:-1])
    both = Cache(None, read_only=[bad, good])
    with pytest.warns(CacheWarning, match=r"can't use the pack .*bad\.pack"):
        assert list(both.closures(key_of(500).digest)) == [b"b"]
    assert both.counters.failures == 1


def test_record_may_have_the_maximum_size_but_not_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large, path = Cache(tmp_path / "cache"), tmp_path / "k.pack"
    large.keep(key_of(0), artifact_of(0, 10_000))
    most = write_pack(path, large.stores).record_bytes
    monkeypatch.setattr("cujit.cache.pack.MAX_RECORD_BYTES", most)
    assert opened(path).get(key_of(0).digest).record is not None
    monkeypatch.setattr("cujit.cache.pack.MAX_RECORD_BYTES", most - 1)
    assert opened(path).get(key_of(0).digest).damage.startswith(f"{path}: the pack is ")


def test_every_byte_of_a_record_is_proved(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    records_at = _HEAD_BYTES + _COUNT * _ROW_BYTES + 5 * 64
    missed = []
    for place in range(records_at, len(whole), 997):
        whole[place] ^= 1
        path.write_bytes(whole)
        pack = opened(path)
        faults = [fault for _, fault in pack.verify() if fault]
        bad = [n for n in range(_COUNT) if pack.get(key_of(n).digest).record is None]
        if len(faults) > 1 or len(bad) > 1 or len(faults) != len(bad):
            missed.append(place)  # one record at the most: padding between two is nobody's
        whole[place] ^= 1
    assert missed == []


def resealed(path: Path, rows: bytes) -> None:
    """Write other rows into the index, with the SHA-256 that fits them."""
    whole = path.read_bytes()
    tables = rows + whole[_HEAD_BYTES + len(rows) : _HEAD_BYTES + _COUNT * _ROW_BYTES + 5 * 64]
    seal = hashlib.sha256(tables).digest()
    path.write_bytes(whole[:40] + seal + whole[72:_HEAD_BYTES] + tables + whole[_HEAD_BYTES + len(tables) :])


def rows_of(path: Path) -> list[bytes]:
    index = path.read_bytes()[_HEAD_BYTES : _HEAD_BYTES + _COUNT * _ROW_BYTES]
    return [index[at : at + _ROW_BYTES] for at in range(0, len(index), _ROW_BYTES)]


def test_wrong_pack_index_is_detected(path: Path) -> None:
    rows = rows_of(path)
    first, second = (row[:32].hex() for row in rows[:2])
    far = struct.pack("<Q", 1 << 50)
    lies = {
        "swapped": ([rows[0][:32] + rows[1][32:], rows[1][:32] + rows[0][32:], *rows[2:]], "the record has the key"),
        "beyond the end": ([rows[0][:64] + far + rows[0][72:], *rows[1:]], "the pack is [0-9]+ bytes"),
        "in the tables": ([rows[0][:64] + struct.pack("<Q", 8) + rows[0][72:], *rows[1:]], "the pack is [0-9]+ bytes"),
        "overlapping": ([rows[0][:64] + rows[1][64:72] + rows[0][72:], *rows[1:]], "overlaps another record|SHA-256"),
        "unsorted": ([rows[1], rows[0], *rows[2:]], "not sorted"),
        "twice": ([rows[0], rows[0], *rows[2:]], "not sorted|overlaps"),
    }
    whole = path.read_bytes()
    for what, (lie, expected) in lies.items():
        path.write_bytes(whole)
        resealed(path, b"".join(lie))
        pack = opened(path)
        faults = [fault for _, fault in pack.verify() if fault]
        assert any(re.search(expected, fault) for fault in faults), (what, faults)
        for digest in (first, second):
            found = pack.get(digest).record
            assert found is None or found.digest == digest, what


def test_wrong_request_records_are_detected(path: Path) -> None:
    rows, whole = b"".join(rows_of(path)), path.read_bytes()
    table = whole[_HEAD_BYTES + len(rows) :][: 5 * 64]
    requests = [table[at : at + 64] for at in range(0, len(table), 64)]
    lies = {
        "unsorted": ([requests[1], requests[0], *requests[2:]], "not sorted"),
        "twice": ([requests[0], requests[0], *requests[2:]], "not sorted"),
        "of none": ([requests[0][:32] + bytes(32), *requests[1:]], "it is missing"),
    }
    for what, (lie, expected) in lies.items():
        path.write_bytes(whole)
        resealed(path, rows + b"".join(lie))
        faults = [fault for _, fault in opened(path).verify() if fault]
        assert any(expected in fault for fault in faults), (what, faults)


def test_record_inside_a_longer_record_is_detected(path: Path) -> None:
    rows = rows_of(path)
    first, second, third, *_ = sorted(rows, key=lambda row: int.from_bytes(row[64:72], "little"))
    at, last = (int.from_bytes(row[64:72], "little") for row in (first, third))
    long = first[:72] + (last + 1 - at).to_bytes(4, "little") + first[76:]
    resealed(path, b"".join(long if row == first else row for row in rows))
    faults = dict(opened(path).verify())
    inside = {digest for digest, fault in faults.items() if fault == "the record overlaps another record"}
    assert inside == {second[:32].hex(), third[:32].hex()}


def test_closure_inside_a_record_is_detected(cache: Cache, tmp_path: Path) -> None:
    path = searched(tmp_path / "k.pack", cache, bytes(8))
    at = int.from_bytes(rows_of(path)[0][64:72], "little") + 8
    whole = bytearray(searched(path, cache, path.read_bytes()[at : at + 8]).read_bytes())
    end = _HEAD_BYTES + _COUNT * _ROW_BYTES + 64 + _ROW_BYTES
    whole[end - 16 : end - 8] = at.to_bytes(8, "little")
    whole[40:72] = hashlib.sha256(whole[_HEAD_BYTES:end]).digest()
    path.write_bytes(whole)
    assert [fault for _, fault in opened(path).verify() if fault] == ["the record overlaps another record"]


def test_pack_is_readable_by_others_and_read_only(cache: Cache, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_pack(tmp_path / "kernels.pack", cache.stores)
    finally:
        os.umask(before)
    assert (tmp_path / "kernels.pack").stat().st_mode & 0o777 == 0o644


def test_record_that_does_not_decompress_is_damaged(cache: Cache, tmp_path: Path) -> None:
    path = tmp_path / "kernels.pack"
    write_pack(path, cache.stores, wanted=[key_of(0).digest], compress=True)
    whole = bytearray(path.read_bytes())
    at, stored = struct.unpack_from("<QI", whole, _HEAD_BYTES + 64)
    whole[at : at + stored] = bytes(stored)
    whole[_HEAD_BYTES + 32 : _HEAD_BYTES + 64] = hashlib.sha256(bytes(stored)).digest()
    whole[40:72] = hashlib.sha256(whole[_HEAD_BYTES : _HEAD_BYTES + _ROW_BYTES]).digest()
    path.write_bytes(whole)
    assert "can't decompress" in opened(path).get(key_of(0).digest).damage


def test_open_pack_stays_readable_when_replaced(cache: Cache, path: Path) -> None:
    old = opened(path)
    assert old.is_there()
    write_pack(path, cache.stores, wanted=[key_of(7).digest])
    assert old.get(key_of(8).digest).record is not None
    assert opened(path).get(key_of(8).digest).record is None
    path.unlink()
    assert old.get(key_of(9).digest).record is not None


def test_pack_that_others_could_have_written_is_refused(path: Path) -> None:
    os.chmod(path, 0o666)
    with raises(CacheRefusedError, "cache-refused", "kernels.pack"):
        opened(path).is_there()
    os.chmod(path, 0o644)
    os.chmod(path.parent, 0o777)
    with raises(CacheRefusedError, "cache-refused", "everyone"):
        opened(path).is_there()
    os.chmod(path.parent, 0o755)
    link = path.with_name("link.pack")
    link.symlink_to(path)
    with raises(CacheRefusedError, "cache-refused", "link.pack"):
        opened(link).is_there()


def test_pack_in_an_unwritable_directory_is_readable(path: Path) -> None:
    os.chmod(path, 0o444)
    os.chmod(path.parent, 0o555)
    try:
        assert read_only(path).find(key_of(0)) is not None
    finally:
        os.chmod(path.parent, 0o755)


def test_pack_is_read_if_it_cannot_be_mapped(path: Path) -> None:
    with open(path, "r+b") as file:  # larger than the address space that the child has; most of it is a hole
        file.truncate(1 << 40)
        file.seek(32)
        file.write(struct.pack("<Q", 1 << 40))
    limits = resource.getrlimit(resource.RLIMIT_AS)
    code = (
        "import resource, sys; from pathlib import Path\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (1 << 33, {limits[1]}))\n"
        "from cujit.cache.pack import Pack; from cujit.cache.trust import Trust\n"
        "pack = Pack(Path(sys.argv[1]), Trust.of_process())\n"
        "print(len(pack.get(sys.argv[2]).record.artifact.data))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path, key_of(0).digest], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("1000\n", "")


def test_of_two_tunings_the_first_is_packed(tmp_path: Path) -> None:
    caches = [Cache(tmp_path / name) for name in "ab"]
    for n, cache in enumerate(caches):
        cache.keep(key_of(0, work="tuning"), Artifact.of(b'{"cujit tuning":%d}' % n))
    write_pack(tmp_path / "both.pack", [store for cache in reversed(caches) for store in cache.stores])
    found = the_record(opened(tmp_path / "both.pack").get(key_of(0, work="tuning").digest))
    assert found.artifact.data == b'{"cujit tuning":1}'


def test_packs_that_disagree_are_not_merged(cache: Cache, tmp_path: Path) -> None:
    other = Cache(tmp_path / "other")
    other.keep(key_of(3), artifact_of(77))
    with raises(FormatError, "format", "different"):
        write_pack(tmp_path / "both.pack", [*cache.stores, *other.stores])
    assert [entry.name for entry in tmp_path.iterdir()] == ["other"], "nothing is left half-way"


def test_missing_entry_cannot_be_packed(cache: Cache, tmp_path: Path) -> None:
    with raises(FormatError, "format", "record"):
        write_pack(tmp_path / "k.pack", cache.stores, wanted=[key_of(999).digest])
    with raises(FormatError, "format", "record"):
        write_pack(tmp_path / "k.pack", cache.stores, wanted=[], requests={key_of(1).digest: key_of(2).digest})


def test_empty_pack_is_a_pack(tmp_path: Path) -> None:
    path = tmp_path / "empty.pack"
    assert write_pack(path, []).records == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_only(path).find(key_of(0)) is None


@pytest.mark.skipif(shutil.which("strace") is None, reason="counts system calls with strace")
def test_1000_records_take_a_few_system_calls(path: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from cujit.cache.cache import Cache; import cujit.cache.pack; sys.path.insert(0, sys.argv[2])\n"
        "from cache.samples import key_of\n"
        f"keys = [key_of(n) for n in range({_COUNT})]\n"
        "cache = Cache(None, read_only=[Path(sys.argv[1])])\n"
        "import os; os.getppid()\n"
        "for _ in range(25):\n"
        "    for key in keys: assert cache.find(key)\n"
        "    cache.forget()\n"
        "os.getppid()\n"
    )
    log = tmp_path / "calls"
    command = ["strace", "-o", str(log), sys.executable, "-c", code, str(path), str(Path(__file__).parents[1])]
    subprocess.run(command, check=True, capture_output=True)
    lines = [
        line for line in log.read_text().splitlines() if not line.startswith(("brk", "munmap", "rt_sig", "mmap(NULL"))
    ]
    marks = [i for i, line in enumerate(lines) if line.startswith("getppid")]
    between = lines[marks[-2] + 1 : marks[-1]]
    # Each directory on the way is looked at once; then open, fstat, two tables, four records, and all of it.
    assert len(between) <= 9 + len(path.parts), "\n".join(between)


def test_whole_packs_use_only_large_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.urandom((5 << 20) + 3)
    (tmp_path / "a.pack").write_bytes(data)
    file = OpenFile(*open_trusted(tmp_path / "a.pack", Trust.of_process()))
    taken: list[int] = []
    take = mmap.mmap
    monkeypatch.setattr(mmap, "mmap", lambda fd, size, **how: taken.append(size) or take(fd, size, **how))  # type: ignore[func-returns-value]
    pieces = [bytes(file.read(at, 5)) for at in range(20)]
    assert pieces == [data[at : at + 5] for at in range(20)]
    assert bytes(file.read(0, len(data) + 9)) == data, "and nothing behind its end"
    assert taken == [6 << 20]


def test_launching_process_reads_a_pack_without_openssl(path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from cujit.cache.pack import Pack
        from cujit.cache.trust import Trust
        from cujit.devices.launcher.library import library
        native = library().digest.call
        found = Pack(Path(sys.argv[1]), Trust.of_process()).get(sys.argv[2])
        print(len(found.record.artifact), native() is None or "_hashlib" not in sys.modules)
        """
    assert printed(code, path, key_of(3).digest).split() == [str(len(artifact_of(3, 1111))), "True"]
