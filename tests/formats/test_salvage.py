"""What can be read of damaged fatbins."""

from __future__ import annotations

import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cujit.errors import FormatError
from cujit.formats.fatbin import FatbinEntry, find_fatbins, read_fatbin
from cujit.formats.salvage import Damaged, salvage
from formats.images import SAXPY, bundled, cubin, ptx

DATA = bundled(
    (("cubin", "80", cubin(SAXPY, "sm_80")), ("cubin", "90", cubin(SAXPY, "sm_90")), ("ptx", "75", ptx(SAXPY)))
)


def test_whole_fatbin_is_read_as_by_the_reader() -> None:
    (entries,) = salvage(DATA)
    assert entries == read_fatbin(DATA).entries
    assert [[str(e) for e in entries] for entries in salvage(b"front" + DATA + b"between" + DATA)] == [
        [str(e) for e in fatbin] for fatbin in find_fatbins(DATA + DATA)
    ]


def test_other_bytes_contain_no_fatbin() -> None:
    assert salvage(b"") == salvage(bytes(999)) == salvage(DATA[:8]) == ()


@pytest.mark.parametrize("cut", [17, 100, 2000, 6000])
def test_truncated_fatbin_returns_the_rest_and_the_missing_size(cut: int) -> None:
    (entries,) = salvage(DATA[:cut])
    assert isinstance(entries[-1], Damaged)
    assert f"{len(DATA) - cut} bytes are missing" in entries[-1].why


def test_damaged_entry_is_reported_and_skipped() -> None:
    at = read_fatbin(DATA).entries[1].offset
    data = DATA[: at + 0x1C] + bytes(4) + DATA[at + 0x20 :]
    with pytest.raises(FormatError):
        read_fatbin(data)
    (entries,) = salvage(data)
    assert [type(e) for e in entries] == [FatbinEntry, Damaged, FatbinEntry]
    assert isinstance(entries[1], Damaged)
    assert (entries[1].offset, entries[1].size) == (at, read_fatbin(DATA).entries[2].offset - at)


@given(st.data())
@settings(max_examples=200)
def test_no_damage_raises(data: st.DataObject) -> None:
    raw = bytearray(DATA)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    salvage(bytes(raw[: data.draw(st.integers(0, len(raw)))]))


def test_many_containers_with_wrong_lengths_take_bounded_time() -> None:
    start = time.process_time()
    found = salvage((DATA[:8] + b"\xff\xff\xff\x7f\0\0\0\0") * 60_000)
    assert sum(map(len, found)) <= 1 << 16
    assert time.process_time() - start < 20


def test_nested_containers_are_read_once() -> None:
    # Each entry, for no architecture, has the header of the next container for its payload.
    entry = struct.pack("<HHIQ", 2, 0x101, 64, 16).ljust(64, b"\0")
    count = 300
    found = salvage((DATA[:8] + b"\xff\xff\xff\x7f\0\0\0\0" + entry) * count)
    assert len(found) > 100, "all of them would be count * (count + 1) / 2 entries"
    assert count < sum(map(len, found)) <= 1 << 15


def test_damaged_entries_are_read_up_to_a_limit() -> None:
    entry = struct.pack("<HHIQ", 2, 0x101, 64, 0).ljust(64, b"\0")
    (entries,) = salvage(DATA[:8] + (40_000 * 64).to_bytes(8, "little") + entry * 40_000)
    assert len(entries) == 1 << 15


def test_entries_of_a_damaged_file_share_decompressed_data() -> None:
    data = bundled((("ptx", "75", ptx(SAXPY)), ("ptx", "80", ptx(SAXPY))), "-concat")
    stored = [e._stored for entries in salvage(data + data + data[:-8]) for e in entries if isinstance(e, FatbinEntry)]
    assert len(stored) >= 4
    assert all(s.recent is not None and s.recent is stored[0].recent for s in stored)


def test_damage_is_placed_once() -> None:
    at = read_fatbin(DATA).entries[1].offset
    (entries,) = salvage(DATA[: at + 0x1C] + bytes(4) + DATA[at + 0x20 :])
    assert isinstance(entries[1], Damaged)
    assert entries[1].why == f"an entry has the unknown architecture 0 (at byte {at + 0x1C}), in the entry at byte {at}"
    (entries,) = salvage(DATA[: at + 20])
    assert isinstance(entries[1], Damaged)
    assert entries[1].why == f"an entry is truncated inside its header (at byte {at})"
