"""A writer of shared libraries with functions that are filled in at run time, without a compiler or linker.

Every exported function is a jump through a slot of the library's ``BootTable``. Initially, a slot leads to code that
asks ``BootTable.resolve(index, table)`` for the target. The arguments of the call are preserved:

caller -> cuInit: jmp *slots[17] -> push 17; jmp common -> resolve(17, table) -> returned address

At first, ``resolve`` is the boot code, which makes Python fill the table. Later, ``resolve`` is a Python function for
refused calls and for the first call of a function. Source of the layout: System V ABI (gABI), chapters 4 and 5, and the
processor supplements of x86-64 and aarch64.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from cujit.artifact import magic
from cujit.emulator.structures import BootTable
from cujit.errors import UnsupportedError, spell
from cujit.toolchain.libraries import STAND_IN_SYMBOL
from cujit.values import NamedTuple

TABLE_SYMBOL = STAND_IN_SYMBOL
"""The name under which the library exports its table."""


class _Processor(NamedTuple):
    """Code generation for a processor: its ELF machine, relocation numbers, and code fragments.

    ``jump(at, slot)`` jumps through a slot. ``ask(at, index, common)`` passes an index to ``common``. ``common(at,
    table)`` calls ``resolve`` and jumps to the result. ``fail`` returns 999. Each fragment has ``CELL`` bytes, except
    for the last two.
    """

    machine: int
    relative: int
    global_data: int


_X86_64 = _Processor(62, 8, 6)
_AARCH64 = _Processor(183, 1027, 1025)
_PROCESSORS = {"x86_64": _X86_64, "aarch64": _AARCH64}

_CELL = 16
_PAGE = 0x10000
"""Bytes. The largest page of the two processors: what is written to lies on pages of its own."""


# -- code -------------------------------------------------------------------------------------------------


def _x86_jump(at: int, slot: int) -> bytes:
    """``endbr64; jmp *slot(%rip)``."""
    return bytes.fromhex("f30f1efaff25") + struct.pack("<i", slot - (at + 10))


def _x86_ask(at: int, index: int, common: int) -> bytes:
    """``endbr64; push $index; jmp common``."""
    return bytes.fromhex("f30f1efa68") + struct.pack("<i", index) + b"\xe9" + struct.pack("<i", common - (at + 14))


_X86_SAVE = bytes.fromhex(
    "57 56 52 51 4150 4151 50"  # push rdi, rsi, rdx, rcx, r8, r9, rax
    "4881ec88000000"  # sub rsp, 136
    "0f110424 0f114c2410 0f11542420 0f115c2430 0f11642440 0f116c2450 0f11742460 0f117c2470"  # movups [rsp+16k], xmm k
    "488bbc24c0000000"  # mov rdi, [rsp+192]: the index
)
_X86_RESTORE = bytes.fromhex(
    "48898424c0000000"  # mov [rsp+192], rax
    "0f100424 0f104c2410 0f10542420 0f105c2430 0f10642440 0f106c2450 0f10742460 0f107c2470"
    "4881c488000000 58 4159 4158 59 5a 5e 5f"  # add rsp, 136; pop rax, r9, r8, rcx, rdx, rsi, rdi
    "415b 41ffe3"  # pop r11; jmp *r11
)


def _x86_common(at: int, table: int) -> bytes:
    """Return code that saves the argument registers, calls ``resolve(index, table)``, and jumps to the result."""
    after_lea = at + len(_X86_SAVE) + 7
    lea = bytes.fromhex("488d35") + struct.pack("<i", table - after_lea)
    call = bytes.fromhex("ff15") + struct.pack("<i", table + BootTable.resolve.offset - (after_lea + 6))
    return _X86_SAVE + lea + call + _X86_RESTORE


_X86_FAIL = bytes.fromhex("b8e7030000 c3")  # mov eax, 999; ret


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def _adrp(register: int, at: int, target: int) -> int:
    """``adrp``: the page of a target, from the page of ``at``."""
    pages = (target >> 12) - (at >> 12)
    return 0x90000000 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5 | register


def _arm_jump(at: int, slot: int) -> bytes:
    """``adrp x16; ldr x17, [x16]; br x17``."""
    return _words(_adrp(16, at, slot), 0xF9400211 | (slot & 0xFFF) // 8 << 10, 0xD61F0220)


def _arm_ask(at: int, index: int, common: int) -> bytes:
    """``mov w17, #index; b common``."""
    return _words(0x52800011 | index << 5, 0x14000000 | (common - (at + 4)) // 4 & 0x3FFFFFF)


def _arm_common(at: int, table: int) -> bytes:
    """Return code that saves the argument registers, calls ``resolve(index, table)``, and jumps to the result."""
    save = (
        0xA9B27BFD, 0xA90107E0, 0xA9020FE2, 0xA90317E4, 0xA9041FE6, 0xF9002BE8,  # stp x29, x30; x0 to x7; x8
        0xAD0307E0, 0xAD040FE2, 0xAD0517E4, 0xAD061FE6,  # stp q0, q1, …, q7
        0xAA1103E0,  # mov x0, x17: the index
    )  # fmt: skip
    address = _adrp(1, at + 4 * len(save), table), 0x91000021 | (table & 0xFFF) << 10  # adrp x1; add x1, x1
    call = 0xF9400029 | BootTable.resolve.offset // 8 << 10, 0xD63F0120, 0xAA0003F1  # ldr x9, [x1]; blr x9; mov x17, x0
    restore = (
        0xAD461FE6, 0xAD4517E4, 0xAD440FE2, 0xAD4307E0,
        0xF9402BE8, 0xA9441FE6, 0xA94317E4, 0xA9420FE2, 0xA94107E0, 0xA8CE7BFD,
        0xD61F0220,  # br x17
    )  # fmt: skip
    return _words(*save, *address, *call, *restore)


_ARM_FAIL = _words(0x52807CE0, 0xD65F03C0)  # mov w0, #999; ret


class _Code(NamedTuple):
    """The code of a library, and the places of its parts. ``requests`` are the initial targets of the slots."""

    data: bytes
    jumps: list[int]
    requests: list[int]
    fail: int
    boot: int


def _code(processor: _Processor, at: int, table: int, count: int, boot: bytes) -> _Code:
    jump, ask, make_common, fail = (
        (_x86_jump, _x86_ask, _x86_common, _X86_FAIL)
        if processor is _X86_64
        else (_arm_jump, _arm_ask, _arm_common, _ARM_FAIL)
    )
    slots = table + ctypes.sizeof(BootTable)
    jumps = [at + _CELL * k for k in range(count)]
    requests = [at + _CELL * (count + k) for k in range(count)]
    common = at + 2 * _CELL * count
    pieces = [jump(place, slots + 8 * k).ljust(_CELL, b"\0") for k, place in enumerate(jumps)]
    pieces += [ask(place, k, common).ljust(_CELL, b"\0") for k, place in enumerate(requests)]
    pieces.append(_padded(make_common(common, table)))
    fails = common + len(pieces[-1])
    pieces += [_padded(fail), boot]
    return _Code(b"".join(pieces), jumps, requests, fails, fails + len(_padded(fail)))


def _padded(data: bytes, to: int = _CELL) -> bytes:
    return data + b"\0" * (-len(data) % to)


# -- the file ---------------------------------------------------------------------------------------------

_HEADER_BYTES, _PROGRAM_BYTES, _PROGRAMS = 64, 56, 5
_IMPORTS = ("dlopen", "dlsym")


def write_library(
    soname: str, exports: Sequence[str], boot: bytes, texts: Sequence[str], machine: str, node: str = ""
) -> bytes:
    """Write a shared library that exports functions by a table.

    Args:
        soname: What loaders call it.
        exports: The names of its functions; the slot of each has its place in the list.
        boot: Machine code of ``void *boot(uint64_t index, BootTable *table)``, for any address.
        texts: What the boot code finds in ``BootTable.texts``, in UTF-8.
        machine: ``x86_64`` or ``aarch64``.
        node: The version of all functions, which a program that was linked with the real library asks for. "": they
            have none.

    Raises:
        UnsupportedError: the library is not written for such processors.

    Example:
        >>> library = write_library("libcuda.so.1", ["cuInit"], b"\\xc3", [], "x86_64")
        >>> library[:4]
        b'\\x7fELF'
    """
    processor = _PROCESSORS.get(machine)
    if processor is None:
        raise UnsupportedError(
            f"the emulator doesn't support {spell(machine)} processors", help="it supports x86_64 and aarch64"
        )
    table, code, begin, code_at = _laid_out(soname, exports, boot, processor)
    slots_end = table + ctypes.sizeof(BootTable) + 8 * len(exports)
    encoded = [text.encode() + b"\0" for text in texts]
    places = [slots_end + sum(map(len, encoded[:k])) for k in range(len(encoded))]
    data_end = slots_end + sum(map(len, encoded))

    relocations = [(table + BootTable.resolve.offset, processor.relative, code.boot)]
    relocations.append((table + BootTable.failed.offset, processor.relative, code.fail))
    relocations += [
        (table + BootTable.texts.offset + 8 * k, processor.relative, place) for k, place in enumerate(places)
    ]
    first_slot = table + ctypes.sizeof(BootTable)
    relocations += [(first_slot + 8 * k, processor.relative, place) for k, place in enumerate(code.requests)]
    for number, name in enumerate(_IMPORTS, 1):
        relocations.append((table + getattr(BootTable, name).offset, number << 32 | processor.global_data, 0))
    rela = b"".join(struct.pack("<QQq", *each) for each in relocations)

    strings, names = _strings([*_IMPORTS, *exports, TABLE_SYMBOL, soname, node])
    symbols = _symbols(names, exports, code, table, slots_end - table)
    hashes = _hash_table([*_IMPORTS, *exports, TABLE_SYMBOL])
    head = {".hash": hashes, ".dynsym": symbols, ".dynstr": strings, ".rela.dyn": rela}
    head |= _versions(names, soname, node, len(exports)) if node else {}
    at = dict(zip(head, _places(_HEADER_BYTES + _PROGRAMS * _PROGRAM_BYTES, head.values()), strict=True))
    dynamic_at = begin
    dynamic = _dynamic(at, names[soname], len(strings), len(rela))
    content = bytes(BootTable(count=len(exports))) + bytes(8 * len(exports)) + b"".join(encoded)
    places_in_file = {**at, ".text": code_at, ".dynamic": dynamic_at, ".data": table}
    pieces = {**head, ".text": code.data, ".dynamic": dynamic, ".data": content}
    return _file(processor, pieces, places_in_file, data_end)


def _laid_out(soname: str, exports: Sequence[str], boot: bytes, processor: _Processor) -> tuple[int, _Code, int, int]:
    """Return the address of the table, the code, and the addresses of the writable part and the code.

    Addresses equal file offsets.
    """
    strings, _ = _strings([*_IMPORTS, *exports, TABLE_SYMBOL, soname, soname])
    count = len(exports) + len(_IMPORTS) + 2
    head = _HEADER_BYTES + _PROGRAMS * _PROGRAM_BYTES + 24 * count + len(strings) + (8 + 2) * count + 128
    head += 24 * (len(exports) + 24)
    code_at = head + -head % _PAGE
    size = len(_code(processor, code_at, code_at, len(exports), boot).data)
    begin = code_at + size + -(code_at + size) % _PAGE
    table = begin + 256
    return table, _code(processor, code_at, table, len(exports), boot), begin, code_at


def _strings(texts: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    """Return a string table, and the offset of each string in it."""
    places, data = {}, b"\0"
    for text in dict.fromkeys(texts):
        places[text] = len(data)
        data += text.encode() + b"\0"
    return data, places


def _symbols(names: dict[str, int], exports: Sequence[str], code: _Code, table: int, table_bytes: int) -> bytes:
    """Return the dynamic symbol table, which contains the imports, the exported functions, and the boot table."""
    function, variable, if_there = 1 << 4 | 2, 1 << 4 | 1, 2 << 4 | 2
    rows = [(0, 0, 0, 0, 0, 0)]
    # Programs that never call it have the library preloaded, too, and may have none of these.
    rows += [(names[name], if_there, 0, 0, 0, 0) for name in _IMPORTS]
    rows += [(names[name], function, 0, 5, at, _CELL) for name, at in zip(exports, code.jumps, strict=True)]
    rows.append((names[TABLE_SYMBOL], variable, 0, 7, table, table_bytes))
    return b"".join(struct.pack("<IBBHQQ", *row) for row in rows)


def _versions(names: dict[str, int], soname: str, node: str, count: int) -> dict[str, bytes]:
    """Return the sections with the version of each symbol and with the definitions of two versions.

    The defined versions are the library's base version and the version node of the functions. Source: Linux Standard
    Base, "Symbol Versioning".
    """
    own, of_node = 1, 2
    each = [0, *(own for _ in _IMPORTS), *(of_node for _ in range(count)), own]
    rows = [(own, own, soname), (0, of_node, node)]
    defined = b"".join(
        struct.pack("<HHHHIIIII", 1, flags, number, 1, _hash(name), 20, 28 if number == own else 0, names[name], 0)
        for flags, number, name in rows
    )
    return {".gnu.version": struct.pack(f"<{len(each)}H", *each), ".gnu.version_d": defined}


def _hash_table(names: Sequence[str]) -> bytes:
    """Write the hash table of symbols; the first symbol is number 1."""
    buckets, chains = [0] * max(len(names) // 2, 1), [0] * (len(names) + 1)
    for number, name in enumerate(names, 1):
        bucket = _hash(name) % len(buckets)
        chains[number], buckets[bucket] = buckets[bucket], number
    return struct.pack(f"<{2 + len(buckets) + len(chains)}I", len(buckets), len(chains), *buckets, *chains)


def _hash(name: str) -> int:
    """The hash of a symbol. Source: gABI, chapter 5, "Hash Table"."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        top = value & 0xF0000000
        value = (value ^ top >> 24) & ~top & 0xFFFFFFFF
    return value


def _places(begin: int, pieces: object) -> list[int]:
    places = []
    for piece in pieces:  # type: ignore[attr-defined]
        begin += -begin % 8
        places.append(begin)
        begin += len(piece)
    return places


def _dynamic(at: dict[str, int], soname: int, strings_bytes: int, rela_bytes: int) -> bytes:
    """Write the dynamic section: tags 14 SONAME, 4 HASH, 5 STRTAB, 6 SYMTAB, 10, 11 sizes, 7, 8, 9 RELA, VERSYM,
    VERDEF and VERDEFNUM.
    """
    rows = [(14, soname), (4, at[".hash"]), (5, at[".dynstr"]), (6, at[".dynsym"]), (10, strings_bytes), (11, 24)]
    rows += [(7, at[".rela.dyn"]), (8, rela_bytes), (9, 24)]
    if ".gnu.version" in at:
        rows += [(0x6FFFFFF0, at[".gnu.version"]), (0x6FFFFFFC, at[".gnu.version_d"]), (0x6FFFFFFD, 2)]
    rows.append((0, 0))
    return b"".join(struct.pack("<QQ", *row) for row in rows)


_SECTIONS = {
    ".hash": (5, 2, 2, 4), ".dynsym": (11, 2, 3, 24), ".dynstr": (3, 2, 0, 0), ".rela.dyn": (4, 2, 2, 24),
    ".gnu.version": (0x6FFFFFFF, 2, 2, 2), ".gnu.version_d": (0x6FFFFFFD, 2, 3, 0),
    ".text": (1, 6, 0, 0), ".dynamic": (6, 3, 3, 16), ".data": (1, 3, 0, 0),
}  # fmt: skip
"""Type, flags, linked section and bytes of an entry of each section, for linkers and tools; loaders look at none."""


def _file(processor: _Processor, pieces: dict[str, bytes], at: dict[str, int], end: int) -> bytes:
    """Return the file, which consists of the header, segments, pieces, and section headers."""
    code_end = at[".text"] + len(pieces[".text"])
    head_end = max(at[name] + len(piece) for name, piece in pieces.items() if at[name] < at[".text"])
    begin = at[".dynamic"]
    programs = [
        (1, 4, 0, head_end),  # PT_LOAD, read
        (1, 5, at[".text"], code_end - at[".text"]),  # read and execute
        (1, 6, begin, end - begin),  # read and write
        (2, 6, begin, len(pieces[".dynamic"])),  # PT_DYNAMIC
        (0x6474E551, 6, 0, 0),  # PT_GNU_STACK: without it, loaders make every stack executable
    ]
    kinds = {name: kind for name, kind in _SECTIONS.items() if name in pieces}
    names, places = _strings([*kinds, ".shstrtab"])
    sections_at = end + len(names) + -(end + len(names)) % 8
    ident = magic.ELF_64 + bytes(9)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 3, processor.machine, 1, 0, _HEADER_BYTES, sections_at, 0, _HEADER_BYTES,
        _PROGRAM_BYTES, _PROGRAMS, 64, len(kinds) + 2, len(kinds) + 1,
    )  # fmt: skip
    out = bytearray(sections_at)
    out[: len(header)] = header
    for k, (kind, flags, place, size) in enumerate(programs):
        row = struct.pack("<IIQQQQQQ", kind, flags, place, place, place, size, size, _PAGE if kind == 1 else 16)
        out[_HEADER_BYTES + k * _PROGRAM_BYTES : _HEADER_BYTES + (k + 1) * _PROGRAM_BYTES] = row
    for name, piece in pieces.items():
        out[at[name] : at[name] + len(piece)] = piece
    out[end : end + len(names)] = names
    rows = [bytes(64)]
    for name, (kind, flags, link, entry) in kinds.items():
        info = {".dynsym": 1, ".gnu.version_d": 2}.get(name, 0)
        place, size = at[name], len(pieces[name])
        rows.append(struct.pack("<IIQQQQIIQQ", places[name], kind, flags, place, place, size, link, info, 8, entry))
    rows.append(struct.pack("<IIQQQQIIQQ", places[".shstrtab"], 3, 0, 0, end, len(names), 0, 0, 1, 0))
    return bytes(out) + b"".join(rows)
