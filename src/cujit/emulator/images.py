"""Images that clients hand over, by their address alone: how long each is, what it is, and the PTX that runs of it.

What the emulator's compilers make is a *container*: an ELF file of CUDA's machine, as a cubin is, with PTX in it and
nothing else. It goes through caches, files and pickles that were written for cubins.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from cujit.arch import Arch
from cujit.arch.support import dotted
from cujit.artifact import Artifact, Kind
from cujit.emulator.entries import load_u64, need
from cujit.emulator.process import emulation
from cujit.emulator.results import Refused, Result
from cujit.errors import CujitError, FormatError, PtxSyntaxError, UnsupportedError, spell
from cujit.formats.fatbin import Fatbin, FatbinEntry, read_fatbin
from cujit.formats.ptx.isa.table import NEWEST_PTX
from cujit.program import link

# -- the container --------------------------------------------------------------------------------------------

# Source: System V gABI, "ELF Header" and "Sections"; 190 is the number of CUDA there.
_ELF = b"\x7fELF"
_HEADER = struct.Struct("<4s4B8sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_LITTLE_ENDIAN_64 = (2, 1, 1)
_EXECUTABLE, _CUDA, _NOTHING, _CONTENT, _STRINGS = 2, 190, 0, 1, 3
_MACHINE_AT = 18

_MARK = b"\0cujit\0\1"
"""What a container has in the bytes of ELF's identification that nobody else uses."""

_NAMES = b"\0.cujit.ptx\0.shstrtab\0"


def write_container(ptx: bytes) -> bytes:
    """Write a container of PTX.

    Example:
        >>> container_ptx(write_container(b".version 8.0"))
        b'.version 8.0'
    """
    names_at = _HEADER.size + len(ptx)
    table_at = -(-(names_at + len(_NAMES)) // 8) * 8
    mark = (_ELF, *_LITTLE_ENDIAN_64, 0, _MARK)
    header = _HEADER.pack(
        *mark, _EXECUTABLE, _CUDA, 1, 0, 0, table_at, 0, _HEADER.size, 0, 0, _SECTION.size, 3, 2
    )  # fmt: skip
    sections = (
        _SECTION.pack(0, _NOTHING, 0, 0, 0, 0, 0, 0, 0, 0),
        _SECTION.pack(1, _CONTENT, 0, 0, _HEADER.size, len(ptx), 0, 0, 1, 0),
        _SECTION.pack(12, _STRINGS, 0, 0, names_at, len(_NAMES), 0, 0, 1, 0),
    )
    return (header + ptx + _NAMES).ljust(table_at, b"\0") + b"".join(sections)


def container_ptx(data: bytes) -> bytes | None:
    """Give the PTX of a container; None for whatever is none.

    Raises:
        FormatError: it is one that was cut off.
    """
    if not _is_container(data):
        return None
    table_at = _HEADER.unpack_from(data)[11] if len(data) >= _HEADER.size else len(data)
    if len(data) < table_at + 3 * _SECTION.size:
        raise FormatError("a container of PTX that was cut off", offset=len(data))
    _, _, _, _, start, size, *_ = _SECTION.unpack_from(data, table_at + _SECTION.size)
    return data[start : start + size]


def _is_container(data: bytes) -> bool:
    return data.startswith(_ELF) and data[8:16] == _MARK


# -- memory of the caller ---------------------------------------------------------------------------------------

# Source of the numbers: fatbinary.h of CUDA 13.5; headers of LTO-IR that NVRTC writes.
_FATBIN, _WRAPPER, _LTOIR = b"\x50\xed\x55\xba", b"\xb1\x43\x62\x46", b"\xed\x43\x4e\x7f"
_FATBIN_HEADER, _WRAPPER_HEADER = struct.Struct("<IHHQ"), struct.Struct("<IIQQ")

_PIECE = 1 << 16
_MOST_BYTES = 1 << 32

_IS_PTX = re.compile(rb"(?:\s|//[^\n]*\n|/\*.*?\*/)*\.version\b", re.DOTALL)


def _read(address: int, size: int, *, at_least: int | None = None) -> bytes:
    """Copy memory of this process, of which nobody knows whether it is there.

    Raises:
        Refused: fewer bytes are there than ``at_least``, which is all of them if it is not said.
    """
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        try:
            data = os.pread(memory.fileno(), size, address)
        except (OSError, OverflowError):
            data = b""
    if len(data) < (size if at_least is None else at_least):
        raise Refused(Result.INVALID_IMAGE, f"the image at {address:#x} goes on where there is no memory")
    return data


def bytes_at(address: int) -> bytes:
    """Copy the image at an address, which says in its header how long it is; PTX ends with a NUL.

    Raises:
        Refused: it is none that a driver takes.
    """
    need(address)
    head = _read(address, _HEADER.size, at_least=1)
    if head.startswith(_WRAPPER) and len(head) >= _WRAPPER_HEADER.size:
        address = _WRAPPER_HEADER.unpack_from(head)[2]
        head = _read(address, _HEADER.size, at_least=_FATBIN_HEADER.size)
        if not head.startswith(_FATBIN):
            raise Refused(Result.INVALID_IMAGE, "the wrapper of a fatbin leads to something else")
    if head.startswith(_FATBIN):
        _, _, header_bytes, size = _FATBIN_HEADER.unpack_from(_read(address, _FATBIN_HEADER.size))
        need(size < _MOST_BYTES, Result.INVALID_IMAGE, f"a fatbin of {size} bytes")
        return _read(address, header_bytes + size)
    if _is_container(head):
        table_at = _HEADER.unpack_from(_read(address, _HEADER.size))[11]
        need(table_at < _MOST_BYTES, Result.INVALID_IMAGE, f"a container of {table_at} bytes")
        return _read(address, table_at + 3 * _SECTION.size)
    if head.startswith((_ELF, _LTOIR)):
        return head
    return _text_at(address)


def _text_at(address: int) -> bytes:
    found = bytearray()
    while True:
        piece = _read(address + len(found), _PIECE - (address + len(found)) % _PIECE, at_least=1)
        end = piece.find(b"\0")
        found += piece if end < 0 else piece[:end]
        if not _may_be_ptx(found) or end >= 0:
            return bytes(found)
        need(len(found) < _MOST_BYTES, Result.INVALID_IMAGE, "a text without an end")


def _may_be_ptx(data: bytes | bytearray) -> bool:
    return all(byte >= 0x20 or byte in b"\t\n\v\f\r" for byte in data[:64])


# -- what runs of it ----------------------------------------------------------------------------------------------


def device_arch() -> Arch:
    """Give the architecture that the device passes for, in all its features."""
    major, minor = emulation().settings.cc
    plain = Arch.of_capability(major, minor)
    specific = f"{plain}a"
    try:
        return Arch.parse(specific)
    except CujitError:
        return plain


def ptx_of(data: bytes, name: str = "") -> Artifact:
    """Find the PTX that a device would run of an image.

    Raises:
        Refused: it is no image, or none of it runs here.
        LinkError: it is LTO-IR that does not link.
    """
    inside = container_ptx(data)
    if inside is not None:
        return _checked(inside, name)
    if data.startswith(_FATBIN):
        return _of_fatbin(read_fatbin(data), name)
    if data.startswith(_LTOIR):
        if len(data) <= _HEADER.size:
            raise Refused(
                Result.NOT_SUPPORTED,
                "LTO-IR does not say how long it is: link it by nvJitLink or cuLink, or put it into a fatbin",
            )
        return linked([Artifact(Kind.LTOIR, data, name=name)])
    if data.startswith(_ELF):
        raise _of_elf(data)
    if not _IS_PTX.match(data):
        raise Refused(Result.INVALID_IMAGE, f"no image: it begins {spell(data[:16])}")
    return _checked(data, name)


def linked(artifacts: Sequence[Artifact]) -> Artifact:
    """Link images into one PTX; LTO-IR goes through the real nvJitLink.

    Raises:
        LinkError: they do not link.
        ToolchainNotFoundError: there is LTO-IR, and no nvJitLink.
    """
    arch = device_arch() if any(artifact.kind is not Kind.PTX for artifact in artifacts) else None
    return link(artifacts, to="ptx", arch=None if arch is None else arch.virtual)


def _of_elf(data: bytes) -> Refused:
    (machine,) = struct.unpack_from("<H", data.ljust(_HEADER.size, b"\0"), _MACHINE_AT)
    if machine != _CUDA:
        return Refused(Result.INVALID_IMAGE, f"an ELF file for machine {machine}, which is none of CUDA")
    return Refused(
        Result.NO_BINARY_FOR_GPU,
        "machine code of a GPU, which is not executed here: hand over PTX, or a fatbin with a compute_… target",
    )


def _of_fatbin(fatbin: Fatbin, name: str) -> Artifact:
    """Choose as a driver does: what was made for the device first, then the newest PTX, then LTO-IR."""
    device = device_arch()

    def fitting(entries: Iterable[FatbinEntry]) -> list[tuple[Arch, FatbinEntry]]:
        known = [(entry.arch, entry) for entry in entries if entry.arch is not None]
        return sorted((pair for pair in known if pair[0].runs_on(device)), key=lambda pair: pair[0], reverse=True)

    for _, entry in fitting(fatbin.cubin_entries):
        inside = container_ptx(entry.payload())
        if inside is not None:
            return _checked(inside, name)
    for _, entry in fitting(fatbin.ptx_entries):
        return _checked(entry.payload(), name)
    for _, entry in fitting(fatbin.ltoir_entries):
        return linked([Artifact(Kind.LTOIR, entry.payload(), name=name)])
    has = ", ".join(f"{entry.kind.name} {entry.arch}" for entry in fatbin) or "nothing"
    raise Refused(
        Result.NO_BINARY_FOR_GPU,
        f"the fatbin has no PTX that runs on {device.real}: it has {has}; add a compute_… target",
    )


_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)


def _checked(data: bytes, name: str) -> Artifact:
    """Take PTX whose version and target the device knows."""
    text = data.rstrip(b"\0").decode(errors="replace")
    version = _VERSION.search(text)
    if version is not None and (int(version[1]), int(version[2])) > (NEWEST_PTX[0], 99):
        raise Refused(
            Result.UNSUPPORTED_PTX_VERSION,
            f"PTX {version[1]}.{version[2]}; the newest that cujit knows is {dotted(NEWEST_PTX)}",
        )
    target = _TARGET.search(text)
    if target is not None:
        _check_target(target[1])
    return Artifact(Kind.PTX, text.encode(), name=name)


def _check_target(target: str) -> None:
    try:
        arch = Arch.parse(target).virtual
    except CujitError:
        return  # the parser says what it is
    if not arch.runs_on(device_arch()):
        raise Refused(
            Result.INVALID_PTX,
            f"PTX for {target}, which does not run on {device_arch().real}: emulate another compute capability",
        )


def refused_by(error: CujitError) -> Refused:
    """Say what a driver answers where PTX is not taken."""
    if isinstance(error, UnsupportedError):
        return Refused(Result.NOT_SUPPORTED, str(error))
    if isinstance(error, PtxSyntaxError):
        return Refused(Result.INVALID_PTX, str(error))
    return Refused(Result.INVALID_IMAGE if isinstance(error, FormatError) else Result.INVALID_PTX, str(error))


# -- options of the driver's compiler -----------------------------------------------------------------------------

# Source: CUDA Driver API manual, ``CUjit_option``.
_WALL_TIME, _INFO, _INFO_BYTES, _ERROR, _ERROR_BYTES, _OPTIONS = 2, 3, 4, 5, 6, 36


class JitLog:
    """The buffers that a caller has for what the compiler says: options by number, and an array of their values.

    Raises:
        Refused: there is no such option, or an array is missing.
    """

    def __init__(self, count: int, options: int, values: int) -> None:
        need(not count or (options and values))
        numbers = (ctypes.c_uint32 * count).from_address(options) if count else ()
        self._at = {number: values + 8 * index for index, number in enumerate(numbers)}
        if any(number >= _OPTIONS for number in self._at):
            raise Refused(Result.INVALID_VALUE, f"there is no such option of the compiler: {spell(max(self._at))}")

    def write(self, error: str = "", info: str = "") -> None:
        """Fill the buffers, as far as there are some, and say how much is in them."""
        if _WALL_TIME in self._at:
            ctypes.c_float.from_address(self._at[_WALL_TIME]).value = 0.0
        for buffer, size, text in ((_ERROR, _ERROR_BYTES, error), (_INFO, _INFO_BYTES, info)):
            room = load_u64(self._at[size]) & 0xFFFFFFFF if size in self._at else 0
            data = text.encode()[: max(room - 1, 0)]
            if buffer in self._at and room:
                address = load_u64(self._at[buffer])
                need(address)
                ctypes.memmove(address, data + b"\0", len(data) + 1)
            if size in self._at:
                ctypes.c_uint64.from_address(self._at[size]).value = len(data) + 1 if data else 0


def file_bytes(path: str) -> bytes:
    """Read an image from a file.

    Raises:
        Refused: it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise Refused(Result.FILE_NOT_FOUND, f"{path}: {e.strerror}") from None
