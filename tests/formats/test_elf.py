"""ELF: what an independent reader sees, and what damage does."""

from __future__ import annotations

import io
import struct

import pytest
from elftools.elf.elffile import ELFFile

from cujit.errors import FormatError
from cujit.formats.elf import Elf, ElfSymbol, elf_length, elf_type, read_elf
from formats import damage, images
from raising import raises


def everything(data: bytes) -> Elf:
    elf = read_elf(data)
    elf.symbols()
    for section in elf.sections:
        elf.content(section)
        if section.name.startswith(".note"):
            elf.notes(section)
    return elf


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_120"])
@pytest.mark.parametrize("options", [(), ("-rdc=true",), ("-G",)])
def test_sections_and_symbols_match_pyelftools(arch: str, options: tuple[str, ...]) -> None:
    image = images.cubin(images.ZOO, arch, *options)
    elf, other = read_elf(image), ELFFile(io.BytesIO(image))
    assert (elf.os_abi, elf.abi_version) == (other["e_ident"]["EI_OSABI"], other["e_ident"]["EI_ABIVERSION"])
    assert [(s.name, s.offset, s.size, s.flags, s.link, s.info) for s in elf.sections] == [
        (s.name, *(s[f"sh_{field}"] for field in ("offset", "size", "flags", "link", "info")))
        for s in other.iter_sections()
    ]
    table = other.get_section_by_name(".symtab")
    raw = [(s.entry["st_value"], s.entry["st_size"]) for s in table.iter_symbols()]
    assert [(s.value, s.size) for s in elf.symbols()] == raw
    assert [s.name for s in elf.symbols() if s.type != ElfSymbol.SECTION] == [
        s.name for s in table.iter_symbols() if s.entry["st_info"]["type"] != "STT_SECTION"
    ]
    for section in elf.sections:
        if section.is_in_file:
            assert elf.content(section) == other.get_section(section.index).data(), section.name


def test_notes_have_their_owner_and_bytes() -> None:
    elf = read_elf(images.cubin(images.SAXPY, "sm_90"))
    section = elf.section(".note.nv.tkinfo")
    assert section is not None
    (note,) = elf.notes(section)
    assert note.owner == "NVIDIA Corp"
    assert b"ptxas" in note.content


def test_missing_section_is_none_and_symbol_table_empty() -> None:
    elf = read_elf(images.cubin(images.SAXPY))
    assert elf.section(".nowhere") is None
    assert elf.symbols(".nowhere") == ()


def test_length_excludes_padding() -> None:
    image = images.cubin(images.SAXPY)
    assert read_elf(image + bytes(100)).length == len(image)


def test_length_and_type_are_read_alone() -> None:
    image = images.cubin(images.SAXPY)
    assert (elf_length(image + bytes(100)), elf_type(image)) == (len(image), 2)
    assert elf_type(images.cubin(images.TWO_FILES[0], "sm_80", "-rdc=true")) == 1


def test_symbols_of_a_type_may_be_omitted() -> None:
    elf = read_elf(images.cubin(images.ZOO))
    every = elf.symbols()
    assert elf.symbols(skip=ElfSymbol.SECTION) == tuple(s for s in every if s.type != ElfSymbol.SECTION)
    assert len(elf.symbols(skip=ElfSymbol.SECTION)) < len(every)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((0, b"\x7fELG"), "ELF"),
        ((4, b"\x01"), "64-bit"),
        ((5, b"\x02"), "64-bit"),
        ((40, b"\xff" * 8), "at byte 40"),
        ((58, b"\x20\x00"), "at byte 58"),
        ((60, b"\xff\xfe"), "at byte 40"),
        ((62, b"\xfe\xff"), "at byte 62"),
    ],
)
def test_broken_header_error_has_its_field_and_offset(change: tuple[int, bytes], message: str) -> None:
    image = bytearray(images.cubin(images.SAXPY))
    image[change[0] : change[0] + len(change[1])] = change[1]
    with raises(FormatError, "format", message) as error:
        read_elf(bytes(image))
    assert error.value.offset is not None


def test_symbol_table_without_a_name_section_is_refused() -> None:
    image = bytearray(images.cubin(images.SAXPY))
    elf = read_elf(bytes(image))
    table = elf.section(".symtab")
    assert table is not None
    link_at = int.from_bytes(image[40:48], "little") + 64 * table.index + 40
    image[link_at : link_at + 4] = len(elf.sections).to_bytes(4, "little")
    with raises(FormatError, "format", ".symtab"):
        read_elf(bytes(image)).symbols()


def test_every_cut_is_refused() -> None:
    image = images.cubin(images.SAXPY)
    assert all(damage.refuses(everything, cut) for cut in damage.cuts(image, 300))


def test_damage_gives_a_value_or_a_format_error() -> None:
    image = images.cubin(images.SAXPY)
    for damaged in damage.flips(image, 400):
        damage.survives(everything, damaged)
    for damaged in damage.flips(image, 400, seed=1, only=64):
        damage.survives(everything, damaged)


def test_overlapping_names_do_not_multiply_the_memory() -> None:
    """A string table of one long string, and a symbol at every offset of it."""
    strings = b"a" * 40_000 + b"\0"
    symbols = b"".join(struct.pack("<IBBHQQ", at, 0, 0, 0, 0, 0) for at in range(20_000))
    names = b"\0.strtab\0.symtab\0"
    parts = (b"", names, strings, symbols)
    offsets = [64 + sum(map(len, parts[:i])) for i in range(len(parts))]
    table_at = 64 + sum(map(len, parts))
    headers = struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name, kind, index, entry in ((0, 3, 1, 0), (1, 3, 2, 0), (9, 2, 3, 24)):
        headers += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offsets[index], len(parts[index]), 2, 0, 1, entry)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 1, 190, 1, 0, 0, table_at, 0, 64, 0, 0, 64, 4, 1)
    image = header + b"".join(parts) + headers
    assert read_elf(image).section(".symtab") is not None
    with raises(FormatError, "format", "at byte 114"):
        everything(image)
    seconds, peak = damage.cost(everything, image)
    assert seconds < 5
    assert peak < 100 * len(image)


def test_empty_string_table_has_only_the_empty_name() -> None:
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 1, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 2, 1)
    table = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, 0, 0, 0, 1, 0)
    assert [s.name for s in read_elf(header + bytes(64) + table).sections] == ["", ""]
    with raises(FormatError, "format", "at byte 64"):
        read_elf(header + bytes(64) + b"\x05" + table[1:])
