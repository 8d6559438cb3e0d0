"""Fatbins: containers of images for several architectures, and the image that a GPU would select.

Source of the layout: containers that nvcc and nvFatbin of CUDA 12.4 to 13.5 write, compared field by field with
NVIDIA's own listing. A container is a header of 16 bytes, followed by entries without gaps. An entry is a header of at
least 64 bytes and a payload.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from cujit.arch import Arch
from cujit.artifact import image_bytes, magic
from cujit.errors import FormatError, spell
from cujit.formats.container import is_container
from cujit.formats.elf import elf_type
from cujit.formats.fatbin_entry import EntryKind, FatbinEntry, FatbinFlag, Recent, read_entries
from cujit.formats.host_file import places_of_sections
from cujit.formats.unpack import Compression
from cujit.values import dataclass

__all__ = [
    "Compression",
    "EntryKind",
    "Fatbin",
    "FatbinEntry",
    "FatbinFlag",
    "find_fatbins",
    "read_fatbin",
    "select",
]

_CONTAINER = struct.Struct("<IHHQ")
_CONTAINER_VERSION = 1
_ALIGNMENT = 8
_NO_NUL = re.compile(rb"[^\0]")
# What a file of small lies could make of memory; the largest libraries have some ten thousand entries.
_MAX_CONTAINERS = 1 << 17
_MAX_ENTRIES = 1 << 17
# Source: objects, libraries and executables of nvcc 13; the second is that of -rdc objects.
_HOST_SECTIONS = (".nv_fatbin", "__nv_relfatbin")


@dataclass(frozen=True)
class Fatbin:
    """One container; ``size`` is its length in bytes, header included."""

    entries: tuple[FatbinEntry, ...]
    size: int

    def __iter__(self) -> Iterator[FatbinEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def ptx_entries(self) -> tuple[FatbinEntry, ...]:
        """The entries that hold PTX."""
        return self._of(EntryKind.PTX)

    @property
    def cubin_entries(self) -> tuple[FatbinEntry, ...]:
        """The entries that hold machine code."""
        return self._of(EntryKind.CUBIN)

    @property
    def ltoir_entries(self) -> tuple[FatbinEntry, ...]:
        """The entries that hold LTO-IR."""
        return self._of(EntryKind.LTOIR)

    def _of(self, kind: EntryKind) -> tuple[FatbinEntry, ...]:
        return tuple(e for e in self.entries if e.kind is kind)


def read_fatbin(data: bytes) -> Fatbin:
    """Read one fatbin container. Only NUL bytes can follow the container.

    Args:
        data: bytes of the container.

    Raises:
        FormatError: the value is not a fatbin, the fatbin is truncated or inconsistent, or other bytes follow the
            fatbin.

    Example::

        assert len(cujit.inspection.read_fatbin(fatbin.data).entries) == 3
    """
    data = image_bytes(data)
    fatbin = _read_container(data, 0, len(data), Recent())
    if _NO_NUL.search(data, fatbin.size):
        raise FormatError(
            "the fatbin is followed by more data",
            offset=fatbin.size,
            help="to read several fatbins, call find_fatbins",
        )
    return fatbin


def _read_container(data: bytes, start: int, limit: int, recent: Recent) -> Fatbin:
    """Read the container at ``start``. ``limit`` is the end of the bytes that it may occupy.

    Raises:
        FormatError: there is no container, or it is truncated or inconsistent.
    """
    if limit - start < _CONTAINER.size or not data.startswith(magic.FATBIN, start):
        raise FormatError(
            f"the data is not a fatbin: it begins with {spell(data[start : min(limit, start + 8)])}", offset=start
        )
    _, version, header_bytes, size = _CONTAINER.unpack_from(data, start)
    if version != _CONTAINER_VERSION or header_bytes < _CONTAINER.size:
        raise FormatError(
            f"the fatbin has the unknown version {version} or header size {header_bytes}",
            offset=start + 4,
        )
    at, end = start + header_bytes, start + header_bytes + size
    if end > limit:
        raise FormatError(
            f"the fatbin should be {end - start} bytes long, but is truncated after {limit - start}", offset=start
        )
    entries: list[FatbinEntry] = []
    while at < end:
        more, at = read_entries(data, at, end, recent)
        entries += more
        if len(entries) > _MAX_ENTRIES:
            raise FormatError(f"the fatbin contains more than {_MAX_ENTRIES} entries", offset=at)
    return Fatbin(tuple(entries), end - start)


def find_fatbins(data: bytes) -> tuple[Fatbin, ...]:
    """Return every container in a fatbin, a host ELF file, or an archive of host files.

    Return an empty tuple if there are none. Offsets count from the start of ``data``. Payloads are read from ``data``
    on demand, so ``data`` stays in memory as long as an entry does.

    Raises:
        FormatError: the file has another format, or the file or a container is damaged.
    """
    data = image_bytes(data)
    is_bare = data.startswith(magic.FATBIN)
    places = [(0, len(data))] if is_bare else places_of_sections(data, _HOST_SECTIONS)
    found: list[Fatbin] = []
    entries, recent = 0, Recent()
    for start, end in places:
        for fatbin in _back_to_back(data, start, end, recent):
            found.append(fatbin)
            entries += len(fatbin)
            if len(found) > _MAX_CONTAINERS or entries > _MAX_ENTRIES:
                raise FormatError(
                    f"there are more than {_MAX_CONTAINERS} fatbins or {_MAX_ENTRIES} entries", offset=end
                )
    return tuple(found)


def _back_to_back(data: bytes, start: int, end: int, recent: Recent) -> Iterator[Fatbin]:
    """Read containers with NULs between them, a multiple of 8."""
    at = start
    while (there := _NO_NUL.search(data, at, end)) is not None:
        at += (there.start() - at) // _ALIGNMENT * _ALIGNMENT
        fatbin = _read_container(data, at, end, recent)
        yield fatbin
        at += fatbin.size


def select(fatbin: Fatbin, device: Arch, *, emulated: bool = False) -> FatbinEntry | None:
    """Return the entry that a GPU of architecture ``device`` would run: the best machine code, otherwise the best PTX.

    Return None if there is no such entry. The nearest architecture is preferred, then the most specific variant.
    Relocatable machine code, LTO-IR, and the containers of ``cujit emulate`` are skipped. If the GPU is ``emulated``,
    containers are selected, and machine code is skipped.

    Raises:
        FormatError: the machine code of a candidate cannot be read.

    Source: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility".
    """
    for entry in _candidates(fatbin.cubin_entries, device):
        image = entry.payload()
        if elf_type(image) == _EXECUTABLE and is_container(image) == emulated:
            return entry
    return next(iter(_candidates(fatbin.ptx_entries, device)), None)


_EXECUTABLE = 2  # of ELF's e_type


def _candidates(entries: tuple[FatbinEntry, ...], device: Arch) -> list[FatbinEntry]:
    """Return the entries that run on the device, best first."""
    fitting = [(e.arch, e) for e in entries if e.arch is not None and e.arch.runs_on(device)]
    fitting.sort(key=lambda pair: (pair[0].number, "fa".find(pair[0].suffix or "-")), reverse=True)
    return [entry for _, entry in fitting]
