"""Whatever the bytes are, a reader gives a value or a FormatError, soon and in little memory."""

from __future__ import annotations

import contextlib
import functools
import io
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from cujit.errors import FormatError
from cujit.formats import fatbin
from cujit.formats.cubin import read_cubin
from cujit.formats.elf import read_elf
from cujit.formats.fatbin import Fatbin, find_fatbins, read_fatbin
from cujit.formats.ltoir import read_ltoir
from formats import abi7, damage, images
from formats.hosts import archive, host_object

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"


def whole_fatbin(data: bytes) -> list[Fatbin]:
    return payloads([read_fatbin(data)])


def whole_file(data: bytes) -> list[Fatbin]:
    return payloads(find_fatbins(data))


def payloads(found: tuple[Fatbin, ...] | list[Fatbin]) -> list[Fatbin]:
    """Unpack every entry, the damaged ones too."""
    for each in found:
        for one in each:
            with contextlib.suppress(FormatError):
                one.payload()
    return list(found)


READERS: dict[str, damage.Reader] = {
    "read_fatbin": whole_fatbin,
    "find_fatbins": whole_file,
    "read_cubin": read_cubin,
    "read_ltoir": read_ltoir,
    "read_elf": read_elf,
}


def packed(*mode: str) -> bytes:
    cubin, ptx = images.cubin(images.SAXPY, "sm_80"), images.ptx(images.SAXPY)
    return images.bundled((("cubin", "80", cubin), ("ptx", "75", ptx)), *mode)


IMAGES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "fatbin": ("read_fatbin", packed),
    "fatbin plain": ("read_fatbin", lambda: packed("-compress=false")),
    "fatbin zstd": ("read_fatbin", lambda: packed("-compress-all")),
    "fatbin lz4": ("read_fatbin", lambda: packed("-compress-all", "-compress-mode=speed")),
    "fatbin concat": ("read_fatbin", lambda: packed("-concat")),
    "cubin abi 7": ("read_cubin", abi7.cubin),
    "cubin abi 8": ("read_cubin", lambda: images.cubin(images.SAXPY, "sm_80")),
    "cubin sm_120": ("read_cubin", lambda: images.cubin(images.SAXPY, "sm_120")),
    "cubin -rdc": ("read_cubin", lambda: images.cubin(images.TWO_FILES[0], "sm_90", "-rdc=true")),
    "ltoir": ("read_ltoir", lambda: images.ltoir(images.SAXPY)[:64]),
    "object": ("find_fatbins", lambda: host_object(packed())),
    "archive": ("find_fatbins", lambda: archive(host_object(packed()), host_object())),
    "object of nvcc": ("find_fatbins", (GOLDENS / "device" / "device.o").read_bytes),
    "archive of nvcc": ("find_fatbins", (GOLDENS / "device" / "libdevice.a").read_bytes),
}


@functools.cache
def image(name: str) -> bytes:
    return IMAGES[name][1]()


def reader(name: str) -> damage.Reader:
    return READERS[IMAGES[name][0]]


# -- every cut, every byte ----------------------------------------------------------------------------------

LTOIR_HEADER_BYTES = 0x24
"""What of LTO-IR is read; the body belongs to NVIDIA's linker."""
AR_MAGIC_BYTES = 8
"""An archive may end after its magic, and after any member."""


@pytest.mark.parametrize("name", IMAGES)
def test_every_cut_is_refused(name: str) -> None:
    whole, read = image(name), reader(name)
    read(whole)
    taken = [at for at in range(len(whole)) if not damage.refuses(read, whole[:at])]
    if name == "ltoir":
        taken = [at for at in taken if at < LTOIR_HEADER_BYTES]
    if name.startswith("archive"):
        ends = {AR_MAGIC_BYTES, *(at for at in taken if whole[at : at + 60].endswith(b"`\n"))}
        taken = [at for at in taken if at not in ends]
    assert taken == []


@pytest.mark.parametrize("change", ["zero", "ones", "flip"])
@pytest.mark.parametrize("name", [n for n in IMAGES if n not in ("cubin sm_120", "cubin -rdc") and "nvcc" not in n])
def test_every_byte_may_be_wrong(name: str, change: str) -> None:
    whole, read = image(name), reader(name)
    slowest = 0.0
    for at in structure(name, whole):
        damaged = bytearray(whole)
        damaged[at] = {"zero": 0, "ones": 0xFF, "flip": whole[at] ^ 1 << at % 8}[change]
        start = time.process_time()
        damage.survives(read, bytes(damaged))
        slowest = max(slowest, time.process_time() - start)
    assert slowest < 2


def structure(name: str, whole: bytes) -> Iterator[int]:
    """The places that a reader looks at: all of a small file, but for the code of a cubin and packed bytes."""
    skipped: set[int] = set()
    if name.startswith("cubin"):
        for section in read_elf(whole).sections:
            if section.is_in_file and section.name.startswith((".text", ".debug", ".nv.merc", ".nv.capmerc")):
                skipped |= set(range(section.offset, section.offset + section.size))
    else:
        for found in whole_file(whole) if name != "ltoir" else ():
            for e in found:
                skipped |= set(range(e.offset + 200, e.offset + e.stored_bytes))
    return (at for at in range(len(whole)) if at not in skipped)


# -- any bytes ----------------------------------------------------------------------------------------------

FEW = settings(max_examples=60)
MAGICS = (b"", b"\x7fELF\x02\x01\x01", b"\x50\xed\x55\xba\x01\x00\x10\x00", b"!<arch>\n", b"\xed\x43\x4e\x7f")
NUMBERS = st.one_of(
    st.integers(0, 300),
    st.sampled_from([2**n + d for n in (8, 15, 16, 31, 32, 48, 63, 64) for d in (-1, 0) if 2**n + d < 2**64]),
)


@pytest.mark.parametrize("name", READERS)
@FEW
@given(data=st.data())
def test_any_bytes_after_any_magic(name: str, data: st.DataObject) -> None:
    magic = data.draw(st.sampled_from(MAGICS))
    damage.survives(READERS[name], magic + data.draw(st.binary(max_size=400)))


@pytest.mark.parametrize("name", READERS)
@FEW
@given(text=st.text(max_size=100))
def test_any_text(name: str, text: str) -> None:
    assert damage.refuses(READERS[name], text.encode("utf-8", "surrogatepass"))


@FEW
@given(st.lists(st.tuples(*[NUMBERS] * 14), max_size=4), st.binary(max_size=200))
def test_any_entries_of_a_fatbin(rows: list[tuple[int, ...]], rest: bytes) -> None:
    widths = (2, 2, 4, 8, 4, 4, 2, 2, 4, 4, 4, 8, 8, 8)
    entries = b"".join(
        (value % (1 << 8 * width)).to_bytes(width, "little")
        for row in rows for value, width in zip(row, widths, strict=True)
    )  # fmt: skip
    content = entries + rest
    damage.survives(whole_fatbin, b"\x50\xed\x55\xba\x01\x00\x10\x00" + len(content).to_bytes(8, "little") + content)


@FEW
@given(st.lists(st.tuples(*[NUMBERS] * 10), min_size=1, max_size=5), st.integers(0, 6), st.sampled_from([62, 190]))
def test_any_sections_of_an_elf_file(rows: list[tuple[int, ...]], names: int, machine: int) -> None:
    strings = b"\0.nv_fatbin\0.symtab\0.nv.info\0.text.k\0.note.nv.tkinfo\0.nv.info.k\0"
    widths = (4, 4, 8, 8, 8, 8, 4, 4, 8, 8)
    table = b"".join(
        (value % (1 << 8 * width)).to_bytes(width, "little")
        for row in rows for value, width in zip(row, widths, strict=True)
    )  # fmt: skip
    table += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, len(strings), 0, 0, 1, 0)
    ident = b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7)
    fields = (2, machine, 1, 0, 0, 64 + len(strings), 0x6005A04, 64, 0, 0, 64, len(rows) + 1, names)
    file = struct.pack("<16sHHIQQQIHHHHHH", ident, *fields) + strings + table
    for read in (read_cubin, whole_file):
        damage.survives(read, file)


@pytest.mark.parametrize("name", IMAGES)
@FEW
@given(data=st.data())
def test_any_splice_of_a_real_image(name: str, data: st.DataObject) -> None:
    """A piece of it moved, repeated or lost: tables that overlap, point at each other or at themselves."""
    whole = image(name)
    cut = st.integers(0, len(whole))
    start, end, to = data.draw(cut), data.draw(cut), data.draw(cut)
    damage.survives(reader(name), whole[:to] + whole[min(start, end) : max(start, end)] + whole[to:])
    copy = bytearray(whole)
    piece = whole[start : start + 64]
    copy[to : to + len(piece)] = piece
    damage.survives(reader(name), bytes(copy))


# -- lies ---------------------------------------------------------------------------------------------------

SECONDS, MEGABYTES = 10.0, 64
"""What a lie may cost at most; real costs are a tenth of it."""


def costs_little(read: damage.Reader, data: bytes, seconds: float = SECONDS) -> bool:
    start = time.process_time()
    refused = damage.refuses(read, data)
    assert time.process_time() - start < seconds
    assert damage.cost(read, data)[1] < MEGABYTES << 20
    return refused


def container(content: bytes, size: int | None = None) -> bytes:
    return (
        b"\x50\xed\x55\xba\x01\x00\x10\x00" + (len(content) if size is None else size).to_bytes(8, "little") + content
    )


def entry(
    payload: bytes, *, kind: int = 2, flags: int = 1, unpacked: int = 0, options: int = 0, pair: bytes = b""
) -> bytes:
    padded = payload + bytes(-len(payload) % 8)
    packed_bytes = len(payload) if unpacked else 0
    header = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64 + len(pair), len(padded), packed_bytes, options,
                         8, 1, 80, 0, 0, flags, 0, unpacked)  # fmt: skip
    return header + pair + padded


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of what one file may hold, low enough to be reached soon."""
    monkeypatch.setattr(fatbin, "_MAX_CONTAINERS", 1000)
    monkeypatch.setattr(fatbin, "_MAX_ENTRIES", 1000)


@pytest.mark.usefixtures("low_limits")
def test_too_many_containers_or_entries_are_refused() -> None:
    assert len(find_fatbins(container(b"") * 1000)) == 1000
    assert costs_little(find_fatbins, container(b"") * (1 << 18))
    assert len(read_fatbin(container(entry(b"") * 1000))) == 1000
    assert costs_little(read_fatbin, container(entry(b"") * (1 << 16)))
    assert costs_little(find_fatbins, container(entry(b"") * 100) * 11)


@pytest.mark.usefixtures("low_limits")
def test_sections_with_equal_containers_are_refused() -> None:
    content = container(entry(b"") * 100)
    names = b"\0.nv_fatbin\0"
    count = 2000
    headers = bytes(64) + struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, len(content), 0, 0, 8, 0) * count
    headers += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64 + len(content), len(names), 0, 0, 1, 0)
    fields = (1, 62, 1, 0, 0, 64 + len(content) + len(names), 0, 64, 0, 0, 64, count + 2, count + 1)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01" + bytes(9), *fields)
    assert damage.refuses(find_fatbins, head + content + names + headers)


@pytest.mark.parametrize("count", [0, 0xFFFF, 0xFFFFFFFF])
def test_gigantic_count_of_sections_is_refused(count: int) -> None:
    """Zero in the header: the first section's size tells."""
    first = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, (1 << 60) + count, 0, 0, 0, 0)
    fields = (2, 190, 1, 0, 0, 64, 0x6005A04, 64, 0, 0, 64, count & 0xFFFF, 0)
    file = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01" + bytes(9), *fields) + first
    for read in (read_cubin, find_fatbins):
        assert costs_little(read, file)


def test_gigantic_count_of_concatenated_entries_is_refused() -> None:
    pair = struct.pack("<II", 0xFFFFFFFF, 16) + bytes(8)
    assert costs_little(whole_fatbin, container(entry(b"x" * 8, kind=0x100, options=64, pair=pair)))


def concatenated(payload: bytes, size: int, count: int, each: int) -> bytes:
    """One payload that ``count`` entries share, each of which claims ``each`` bytes of it."""
    row = struct.pack("<HHIQIIHHIIIQQQ", 1, 0x101, 0, each, 0, 0, 0, 9, 80, 0, 0, 1, 0, 0)
    pair = struct.pack("<II", count, 8 + 64 * count) + row * count
    return container(entry(payload, kind=0x100, flags=0x8001, unpacked=size, options=64, pair=pair))


def test_overlapping_concatenated_entries_are_refused() -> None:
    size = 1 << 24
    assert damage.refuses(read_fatbin, concatenated(zstandard.compress(bytes(size)), size, 2, size))


def test_shared_payload_is_decompressed_once() -> None:
    size, count = 1 << 24, 6000
    start = time.process_time()
    assert [len(f) for f in whole_fatbin(concatenated(zstandard.compress(bytes(size)), size, count, 8))] == [count]
    assert time.process_time() - start < SECONDS


def test_padding_of_fifty_megabytes_is_passed_over_at_once() -> None:
    data = container(b"") + bytes(50 << 20) + container(b"")
    start = time.process_time()
    assert len(find_fatbins(data)) == 2
    assert time.process_time() - start < 1


@pytest.mark.parametrize("flag", [0x2000, 0x8000], ids=["lz4", "zstd"])
@pytest.mark.parametrize("size", [1 << 20, 1 << 31, (1 << 64) - 1])
def test_impossible_payload_size_costs_nothing(flag: int, size: int) -> None:
    payload = zstandard.compress(bytes(100)) if flag == 0x8000 else b"\x1fx\x01\x00\xff\x00"
    (found,) = whole_fatbin(container(entry(payload, flags=1 | flag, unpacked=size)))
    with pytest.raises(FormatError) as error:
        found.entries[0].payload()
    assert error.value.offset is not None
    assert costs_little(lambda data: read_fatbin(data).entries[0].payload(), container(
        entry(payload, flags=1 | flag, unpacked=size)))  # fmt: skip


def test_frame_larger_than_declared_is_refused() -> None:
    stream = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(stream, size=-1, closefd=False) as writer:
        writer.write(bytes(1 << 26))
    payload = stream.getvalue()
    assert costs_little(
        lambda data: read_fatbin(data).entries[0].payload(), container(entry(payload, flags=0x8001, unpacked=4096))
    )


@pytest.mark.parametrize(
    "size", [b"9999999999", b"-1        ", b"0x10      ", b"          ", "\u0661".encode() + b"        "]
)
def test_archive_member_with_a_wrong_size_is_refused(size: bytes) -> None:
    header = b"%-16s%-12d%-6d%-6d%-8s%-10s`\n" % (b"m.o/", 0, 0, 0, b"644", size)
    assert costs_little(find_fatbins, b"!<arch>\n" + header + host_object(container(b"")))


def test_empty_archive_members_end() -> None:
    assert find_fatbins(archive(*[b""] * 5000)) == ()


def test_nested_archive_is_not_an_object() -> None:
    assert find_fatbins(archive(archive(host_object(container(b""))))) == ()
