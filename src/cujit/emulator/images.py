"""Images that clients pass by address: their length, their kind, and their PTX.

Images from the emulator's compilers are containers with PTX (``formats.container``), which clients treat as cubins.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from cujit.arch import Arch
from cujit.arch.support import dotted
from cujit.artifact import Artifact, ImageKind, magic
from cujit.emulator.entries import load_u64, require
from cujit.emulator.process import emulation
from cujit.emulator.results import RefusedCall, Result
from cujit.errors import CujitError, FormatError, PtxSyntaxError, UnsupportedError, spell
from cujit.formats.container import (
    HEADER_BYTES,
    Container,
    container_bytes,
    is_container,
    read_container,
    write_container,
)
from cujit.formats.cubin import read_cubin
from cujit.formats.elf import elf_length, elf_type, tables_end
from cujit.formats.fatbin import Fatbin, FatbinEntry, read_fatbin
from cujit.formats.ptx.isa.table import NEWEST_PTX
from cujit.formats.ptx.recovered import ptx_of_cubin
from cujit.program import link

# -- memory of the caller ---------------------------------------------------------------------------------------

# Source of the numbers: fatbinary.h of CUDA 13.5; headers of LTO-IR that NVRTC writes; System V gABI, "ELF Header",
# where 190 is the machine of CUDA.
_MACHINE_AT, _RELOCATABLE = 18, 1
_FATBIN_HEADER, _WRAPPER_HEADER = struct.Struct("<IHHQ"), struct.Struct("<IIQQ")

_PIECE = 1 << 16
_MOST_BYTES = 1 << 32

_IS_PTX = re.compile(rb"(?:\s|//[^\n]*\n|/\*.*?\*/)*\.version\b", re.DOTALL)


def _read(address: int, size: int, *, at_least: int | None = None) -> bytes:
    """Copy memory of this process that may be unmapped.

    Raises:
        Refused: fewer than ``at_least`` bytes are mapped. Default: all bytes are required.
    """
    try:
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:
            data = os.pread(memory.fileno(), size, address)
    except FileNotFoundError:  # a container may have no /proc
        data = _read_by_pages(address, size)
    except (OSError, OverflowError):
        data = b""
    if len(data) < (size if at_least is None else at_least):
        raise RefusedCall(Result.INVALID_IMAGE, f"the image at {address:#x} extends into unmapped memory")
    return data


class _ContainerPiece(ctypes.Structure):
    """``struct iovec``. Source: Linux, process_vm_readv(2)."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _read_by_pages(address: int, size: int) -> bytes:
    """Copy memory of this process up to the first unmapped page."""
    found = bytearray()
    read = ctypes.CDLL(None).process_vm_readv
    while len(found) < size:
        begin = address + len(found)
        step = min(size - len(found), mmap.PAGESIZE - begin % mmap.PAGESIZE)
        page = ctypes.create_string_buffer(step)
        ours, theirs = _ContainerPiece(ctypes.addressof(page), step), _ContainerPiece(begin, step)
        if read(os.getpid(), ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0) != step:
            break
        found += page.raw
    return bytes(found)


def bytes_at(address: int) -> bytes:
    """Copy the image at an address, which says in its header how long it is; PTX ends with a NUL.

    Raises:
        Refused: it is none that a driver takes.
    """
    require(address)
    head = _read(address, HEADER_BYTES, at_least=1)
    if head.startswith(magic.FATBIN_WRAPPER) and len(head) >= _WRAPPER_HEADER.size:
        address = _WRAPPER_HEADER.unpack_from(head)[2]
        head = _read(address, HEADER_BYTES, at_least=_FATBIN_HEADER.size)
        if not head.startswith(magic.FATBIN):
            raise RefusedCall(Result.INVALID_IMAGE, "the fatbin wrapper doesn't point to a fatbin")
    if head.startswith(magic.FATBIN):
        _, _, header_bytes, size = _FATBIN_HEADER.unpack_from(_read(address, _FATBIN_HEADER.size))
        require(size < _MOST_BYTES, Result.INVALID_IMAGE, f"a fatbin of {size} bytes")
        return _read(address, header_bytes + size)
    if is_container(head):
        size = container_bytes(_read(address, HEADER_BYTES))
        require(size < _MOST_BYTES, Result.INVALID_IMAGE, f"a container of {size} bytes")
        return _read(address, size)
    if head.startswith(magic.LTOIR):
        return head
    return _elf_at(address, head) if head.startswith(magic.ELF) else _text_at(address)


def _elf_at(address: int, head: bytes) -> bytes:
    """Copy an ELF file up to the end that its tables declare."""
    try:
        size = tables_end(head)
        require(size < _MOST_BYTES, Result.INVALID_IMAGE, f"tables of an ELF file up to byte {size}")
        return _read(address, elf_length(_read(address, size), _MOST_BYTES))
    except FormatError as e:
        raise RefusedCall(Result.INVALID_IMAGE, e.message) from None


def _text_at(address: int) -> bytes:
    found = bytearray()
    while True:
        piece = _read(address + len(found), _PIECE - (address + len(found)) % _PIECE, at_least=1)
        end = piece.find(b"\0")
        found += piece if end < 0 else piece[:end]
        if not _may_be_ptx(found) or end >= 0:
            return bytes(found)
        require(len(found) < _MOST_BYTES, Result.INVALID_IMAGE, "a text without an end")


def _may_be_ptx(data: bytes | bytearray) -> bool:
    return all(byte >= 0x20 or byte in b"\t\n\v\f\r" for byte in data[:64])


# -- what runs of it ----------------------------------------------------------------------------------------------


def device_arch() -> Arch:
    """Return the architecture that the device is presented as, with all its features."""
    major, minor = emulation().settings.cc
    plain = Arch.of_capability(major, minor)
    specific = f"{plain}a"
    try:
        return Arch.parse(specific)
    except CujitError:
        return plain


def ptx_of(data: bytes, name: str = "") -> Artifact:
    """Return the PTX of an image that a device would run.

    Raises:
        Refused: the image is invalid, or no part of it runs here.
        LinkError: it is LTO-IR that does not link.
    """
    held = read_container(data)
    if held is not None:
        return _checked(held.ptx, name)
    if data.startswith(magic.FATBIN):
        return _of_fatbin(read_fatbin(data), name)
    if data.startswith(magic.LTOIR):
        if len(data) <= HEADER_BYTES:
            raise RefusedCall(
                Result.NOT_SUPPORTED,
                "the length of LTO-IR is unknown: link it with nvJitLink or cuLink, or put it into a fatbin",
            )
        return linked([Artifact(ImageKind.LTOIR, data, name=name)])
    if data.startswith(magic.ELF):
        return _of_elf(data, name)
    if not _IS_PTX.match(data):
        raise RefusedCall(Result.INVALID_IMAGE, f"the data is not an image: it begins with {spell(data[:16])}")
    return _checked(data, name)


def linked(artifacts: Sequence[Artifact]) -> Artifact:
    """Link images into one PTX text. The real nvJitLink processes LTO-IR.

    Raises:
        LinkError: the images do not link.
        ToolchainNotFoundError: there is LTO-IR, but nvJitLink is not installed.
    """
    arch = device_arch() if any(artifact.kind is not ImageKind.PTX for artifact in artifacts) else None
    return link(artifacts, to="ptx", arch=None if arch is None else arch.virtual)


def _of_elf(data: bytes, name: str) -> Artifact:
    """Return the PTX in the line information of a cubin that a device of this architecture would run."""
    (machine,) = struct.unpack_from("<H", data.ljust(HEADER_BYTES, b"\0"), _MACHINE_AT)
    if machine != magic.EM_CUDA:
        raise RefusedCall(Result.INVALID_IMAGE, f"the image is an ELF file for machine {machine}, which is not CUDA")
    try:
        arch = read_cubin(data).arch
    except FormatError as e:
        raise RefusedCall(Result.INVALID_IMAGE, e.message) from None
    if not arch.runs_on(device_arch()):
        raise RefusedCall(
            Result.NO_BINARY_FOR_GPU,
            f"the image is a cubin for {arch}, which doesn't run on {device_arch().real}: emulate another "
            "compute capability",
        )
    try:
        return Artifact(ImageKind.PTX, ptx_of_cubin(data).encode(), name=name)
    except FormatError as e:
        raise RefusedCall(
            Result.NO_BINARY_FOR_GPU,
            f"the image contains GPU machine code, which the emulator can't execute, and {e.message}: pass "
            "PTX, a fatbin with a compute_… target, or a cubin with line information",
        ) from None


def _of_fatbin(fatbin: Fatbin, name: str) -> Artifact:
    """Select an image as a driver does: code for the device first, then the newest PTX, then LTO-IR."""
    device = device_arch()

    def fitting(entries: Iterable[FatbinEntry]) -> list[tuple[Arch, FatbinEntry]]:
        known = [(entry.arch, entry) for entry in entries if entry.arch is not None]
        return sorted((pair for pair in known if pair[0].runs_on(device)), key=lambda pair: pair[0], reverse=True)

    for _, entry in fitting(fatbin.cubin_entries):
        held = read_container(entry.payload())
        if held is not None:
            return _checked(held.ptx, name)
    for _, entry in fitting(fatbin.ptx_entries):
        return _checked(entry.payload(), name)
    for _, entry in fitting(fatbin.ltoir_entries):
        return linked([Artifact(ImageKind.LTOIR, entry.payload(), name=name)])
    for _, entry in fitting(fatbin.cubin_entries):
        with contextlib.suppress(FormatError):
            return Artifact(ImageKind.PTX, ptx_of_cubin(entry.payload()).encode(), name=name)
    has = ", ".join(f"{entry.kind.name} {entry.arch}" for entry in fatbin) or "nothing"
    raise RefusedCall(
        Result.NO_BINARY_FOR_GPU,
        f"the fatbin contains no PTX that can run on {device.real}: it contains {has}; add a compute_… target, "
        "or compile with line information",
    )


_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)


def _checked(data: bytes, name: str) -> Artifact:
    """Return PTX after checking that the device supports its version and target."""
    text = data.rstrip(b"\0").decode(errors="replace")
    version = _VERSION.search(text)
    if version is not None and (int(version[1]), int(version[2])) > (NEWEST_PTX[0], 99):
        raise RefusedCall(
            Result.UNSUPPORTED_PTX_VERSION,
            f"the image is PTX {version[1]}.{version[2]}; the newest version that cujit knows is {dotted(NEWEST_PTX)}",
        )
    target = _TARGET.search(text)
    if target is not None:
        _check_target(target[1])
    return Artifact(ImageKind.PTX, text.encode(), name=name)


def _check_target(target: str) -> None:
    try:
        arch = Arch.parse(target).virtual
    except CujitError:
        return  # the parser says what it is
    if not arch.runs_on(device_arch()):
        raise RefusedCall(
            Result.INVALID_PTX,
            f"the image is PTX for {target}, which doesn't run on {device_arch().real}: emulate another "
            "compute capability",
        )


def contained(ptx: bytes, arch: Arch | None = None, *, cubin: bytes = b"") -> bytes:
    """Put PTX into a container, for its own target by default, and with the cubin that was compiled from it, if any."""
    target = _TARGET.search(ptx.decode(errors="replace")) if arch is None else None
    try:
        of_text = Arch.parse(target[1]) if target else None
    except CujitError:
        of_text = None  # the parser says what it is
    is_relocatable = bool(cubin) and elf_type(cubin) == _RELOCATABLE
    return write_container(Container(ptx, (arch or of_text or device_arch()).real, is_relocatable, cubin))


def refused_by(error: CujitError) -> RefusedCall:
    """Return the result code of a driver that refuses PTX."""
    if isinstance(error, UnsupportedError):
        return RefusedCall(Result.NOT_SUPPORTED, str(error))
    if isinstance(error, PtxSyntaxError):
        return RefusedCall(Result.INVALID_PTX, str(error))
    return RefusedCall(Result.INVALID_IMAGE if isinstance(error, FormatError) else Result.INVALID_PTX, str(error))


# -- options of the driver's compiler -----------------------------------------------------------------------------

# Source: CUDA Driver API manual, ``CUjit_option``.
_WALL_TIME, _INFO, _INFO_BYTES, _ERROR, _ERROR_BYTES, _OPTIONS = 2, 3, 4, 5, 6, 36


class JitLog:
    """The buffers that a caller has for what the compiler says: options by number, and an array of their values.

    Raises:
        Refused: there is no such option, or an array is missing.
    """

    def __init__(self, count: int, options: int, values: int) -> None:
        require(not count or (options and values))
        numbers = (ctypes.c_uint32 * count).from_address(options) if count else ()
        self._at = {number: values + 8 * index for index, number in enumerate(numbers)}
        if any(number >= _OPTIONS for number in self._at):
            raise RefusedCall(Result.INVALID_VALUE, f"unknown compiler option: {spell(max(self._at))}")

    def write(self, error: str = "", info: str = "") -> None:
        """Fill the caller's buffers, if any, and write the number of bytes."""
        if _WALL_TIME in self._at:
            ctypes.c_float.from_address(self._at[_WALL_TIME]).value = 0.0
        for buffer, size, text in ((_ERROR, _ERROR_BYTES, error), (_INFO, _INFO_BYTES, info)):
            room = load_u64(self._at[size]) & 0xFFFFFFFF if size in self._at else 0
            data = text.encode()[: max(room - 1, 0)]
            if buffer in self._at and room:
                address = load_u64(self._at[buffer])
                require(address)
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
        raise RefusedCall(Result.FILE_NOT_FOUND, f"{path}: {e.strerror}") from None
