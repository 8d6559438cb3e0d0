"""Virtual memory: reserved addresses, separately created memory, and the mappings of memory to addresses.

Memory is an unnamed file, so that it can be mapped at several addresses. Other processes receive it by its file
descriptor. Source: CUDA Driver API manual, "Virtual Memory Management".
"""

from __future__ import annotations

import bisect
import ctypes
import itertools
import mmap
import os

from cujit.devices.cpu.native.shared import Fields
from cujit.emulator import device
from cujit.emulator.entries import got, require, started, store_u64
from cujit.emulator.machine import in_c, memory_adopt, memory_forget
from cujit.emulator.results import Result
from cujit.emulator.structures import BlockKind
from cujit.forks import Lock

_GRANULE = 2 << 20
"""Bytes that sizes are multiples of, as on an H200."""

_PINNED, _ON_DEVICE, _BY_DESCRIPTOR = 1, 1, 1
_NO_ACCESS, _READ, _READ_WRITE = 0, 1, 3
"""Source: CUDA Driver API manual, ``CUmemAllocationType``, ``CUmemLocationType``, ``CUmemAllocationHandleType`` and
``CUmemAccess_flags``."""

_PRIVATE, _FIXED, _ANONYMOUS, _NO_RESERVE = 0x02, 0x10, 0x20, 0x4000
"""Source: Linux, ``mman.h``."""

_LOCK = Lock()
_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_uint64
_C.mmap.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_C.munmap.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
_C.mprotect.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int]

_count = in_c("memory_count", ctypes.c_uint32, ctypes.c_int64)


class _Properties(ctypes.Structure):
    """``CUmemAllocationProp``."""

    _fields_ = Fields("u32 kind, handles; i32 location[2]; u64 security; u8 flags[8]")


class _Physical:
    """Created memory: its file, and the number of its handle references. Mapped memory remains after the last release.

    ``counted`` is the number of device bytes that it uses, which is 0 for imported memory.
    """

    def __init__(self, file: int, size: int, properties: _Properties, counted: int = 0) -> None:
        self.file, self.size, self.properties, self.counted = file, size, properties, counted
        self.handle = next(_HANDLES)
        self.holders = 1
        self.mappings = 0
        _MADE[self.handle] = self

    def let_go(self) -> None:
        """Close the file if no handle and no mapping refers to the memory."""
        if self.holders == 0:
            _MADE.pop(self.handle, None)
        if self.holders == self.mappings == 0:
            os.close(self.file)
            _count(-self.counted)


class _Mapping:
    """Memory that is mapped at an address, and the device's access rights to it."""

    def __init__(self, begin: int, physical: _Physical) -> None:
        self.begin, self.end, self.physical = begin, begin + physical.size, physical
        self.access = _NO_ACCESS


_HANDLES = itertools.count(1)
_MADE: dict[int, _Physical] = {}
_RESERVED: dict[int, int] = {}
"""Reserved addresses: where each range begins, and its bytes."""

_MAPPINGS: list[_Mapping] = []
"""In the order of their addresses."""

_BLOCKS: dict[int, int] = {}
"""What copies and pointers know as one allocation: neighbours that may be accessed, by where they begin."""


def _check_properties(properties: int) -> _Properties:
    """Check the properties of new memory, and return a copy. Only pinned device memory is supported."""
    require(properties)
    props = _Properties.from_buffer_copy(ctypes.string_at(properties, ctypes.sizeof(_Properties)))
    require(props.kind == _PINNED)
    require(
        props.location[0] == _ON_DEVICE,
        Result.NOT_SUPPORTED,
        "`cuMemCreate` supports only device memory",
        hint="set the location to `CU_MEM_LOCATION_TYPE_DEVICE`",
    )
    require(
        not props.handles & ~_BY_DESCRIPTOR,
        Result.NOT_SUPPORTED,
        "memory can be shared only by file descriptors",
        hint="pass `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`",
    )
    device.check(props.location[1])
    return props


def _physical(handle: int) -> _Physical:
    return got(_MADE.get(handle), words="no memory has this handle", hint="create memory with `cuMemCreate`")


# -- addresses ----------------------------------------------------------------------------------------------


@started("cuMemGetAllocationGranularity", "PPU")
def mem_get_allocation_granularity(out: int, properties: int, option: int) -> None:
    """Write the granularity of which sizes are multiples."""
    require(out and option <= 1)
    _check_properties(properties)
    store_u64(out, _GRANULE)


def _nothing_at(address: int, size: int, flags: int = 0) -> int:
    """Map addresses without any access rights, and return their start. Return 0 if the mapping fails."""
    at = _C.mmap(address, size, 0, _PRIVATE | _ANONYMOUS | _NO_RESERVE | flags, -1, 0)
    return 0 if at == (1 << 64) - 1 else int(at)


@started("cuMemAddressReserve", "PPPPP")
def mem_address_reserve(out: int, size: int, alignment: int, wish: int, flags: int) -> None:
    """Reserve a range of addresses, at the requested address if it is free."""
    require(out and size and size % _GRANULE == 0 and not flags and alignment & (alignment - 1) == 0)
    step = max(alignment, _GRANULE)
    at = _nothing_at(wish, size) if wish % step == 0 else 0
    if at % step or not at:
        if at:
            _C.munmap(at, size)
        whole = _nothing_at(0, size + step)
        require(whole, Result.OUT_OF_MEMORY)
        at = -(-whole // step) * step
        for begin, end in ((whole, at), (at + size, whole + size + step)):
            if begin < end:
                _C.munmap(begin, end - begin)
    with _LOCK:
        _RESERVED[at] = size
    store_u64(out, at)


@started("cuMemAddressFree", "PP")
def mem_address_free(address: int, size: int) -> None:
    """Release reserved addresses."""
    with _LOCK:
        require(_RESERVED.get(address) == size and not _mapped(address, size))
        del _RESERVED[address]
        _C.munmap(address, size)


# -- memory -------------------------------------------------------------------------------------------------


@started("cuMemCreate", "PPPP")
def mem_create(out: int, size: int, properties: int, flags: int) -> None:
    """Create memory that is not mapped to an address yet."""
    require(out and size and size % _GRANULE == 0 and not flags)
    props = _check_properties(properties)
    require(_count(size), Result.OUT_OF_MEMORY)
    file = os.memfd_create("cujit", os.MFD_CLOEXEC)
    os.ftruncate(file, size)
    with _LOCK:
        store_u64(out, _Physical(file, size, props, counted=size).handle)


@started("cuMemRelease", "P")
def mem_release(handle: int) -> None:
    """Release a reference to memory. The memory is freed when no references and no mappings remain."""
    with _LOCK:
        found = _physical(handle)
        found.holders -= 1
        found.let_go()


@started("cuMemRetainAllocationHandle", "PP")
def mem_retain_allocation_handle(out: int, address: int) -> None:
    """Write the handle of the memory at an address, and retain the memory."""
    with _LOCK:
        found = _mapped(address, 1)
        require(out and found)
        physical = found[0].physical
        physical.holders += 1
        _MADE[physical.handle] = physical
        store_u64(out, physical.handle)


@started("cuMemGetAllocationPropertiesFromHandle", "PP")
def mem_get_allocation_properties_from_handle(out: int, handle: int) -> None:
    """Write the properties of memory."""
    require(out)
    props = _physical(handle).properties
    ctypes.memmove(out, ctypes.addressof(props), ctypes.sizeof(props))


@started("cuMemExportToShareableHandle", "PPIP")
def mem_export_to_shareable_handle(out: int, handle: int, kind: int, flags: int) -> None:
    """Write a file descriptor by which another process can access the memory."""
    require(out and not flags)
    found = _physical(handle)
    require(kind == _BY_DESCRIPTOR and found.properties.handles & kind)
    ctypes.c_int32.from_address(out).value = os.dup(found.file)


@started("cuMemImportFromShareableHandle", "PPI")
def mem_import_from_shareable_handle(out: int, descriptor: int, kind: int) -> None:
    """Import memory from a file descriptor that another process exported."""
    require(out and kind == _BY_DESCRIPTOR)
    try:
        file = os.dup(descriptor)
    except (OSError, OverflowError):
        require(False)
    props = _Properties(kind=_PINNED, handles=_BY_DESCRIPTOR, location=(_ON_DEVICE, 0))
    with _LOCK:
        store_u64(out, _Physical(file, os.fstat(file).st_size, props).handle)


# -- mappings -----------------------------------------------------------------------------------------------


def _mapped(address: int, size: int) -> list[_Mapping]:
    """Return the mappings that overlap a range of addresses."""
    first = bisect.bisect_right(_MAPPINGS, address, key=lambda each: each.end)
    return list(itertools.takewhile(lambda each: each.begin < address + size, _MAPPINGS[first:]))


def _whole(address: int, size: int) -> list[_Mapping]:
    """Return the mappings that exactly fill a range of addresses.

    Raises:
        Refused: the range has a gap, or a mapping extends past the range.
    """
    found = _mapped(address, size)
    ends = [address, *(each.end for each in found)]
    require(
        found and all(each.begin == end for each, end in zip(found, ends, strict=False)) and ends[-1] == address + size
    )
    return found


@started("cuMemMap", "PPPPP")
def mem_map(address: int, size: int, offset: int, handle: int, flags: int) -> None:
    """Map memory at reserved addresses."""
    with _LOCK:
        physical = _physical(handle)
        require(not offset and not flags and size == physical.size and address % _GRANULE == 0)
        require(any(begin <= address and address + size <= begin + bytes_ for begin, bytes_ in _RESERVED.items()))
        require(
            not _mapped(address, size),
            words="memory is already mapped at this address",
            hint="unmap it with `cuMemUnmap`, or reserve another range",
        )
        at = _C.mmap(address, size, 0, mmap.MAP_SHARED | _FIXED, physical.file, 0)
        require(at == address, Result.OUT_OF_MEMORY)
        physical.mappings += 1
        bisect.insort(_MAPPINGS, _Mapping(address, physical), key=lambda each: each.begin)


@started("cuMemUnmap", "PP")
def mem_unmap(address: int, size: int) -> None:
    """Unmap the memory in a range of addresses. The addresses stay reserved."""
    with _LOCK:
        for each in _whole(address, size):
            _MAPPINGS.remove(each)
            each.physical.mappings -= 1
            each.physical.let_go()
        _nothing_at(address, size, _FIXED)
        _tell_c()


@started("cuMemSetAccess", "PPPP")
def mem_set_access(address: int, size: int, descriptions: int, count: int) -> None:
    """Set the device's access rights to a range of mapped memory. The last description counts."""
    require(descriptions and count)
    access = _NO_ACCESS
    for place, ordinal, access in (ctypes.c_int32 * 3 * count).from_address(descriptions):
        require(place == _ON_DEVICE and access in (_NO_ACCESS, _READ, _READ_WRITE))
        device.check(ordinal)
    with _LOCK:
        found = _whole(address, size)
        _C.mprotect(address, size, {_NO_ACCESS: 0, _READ: mmap.PROT_READ}.get(access, mmap.PROT_READ | mmap.PROT_WRITE))
        for each in found:
            each.access = access
        _tell_c()


@started("cuMemGetAccess", "PPP")
def mem_get_access(out: int, location: int, address: int) -> None:
    """Write the access rights of a location to the memory at an address."""
    require(out and location)
    place, ordinal = (ctypes.c_int32 * 2).from_address(location)
    require(place == _ON_DEVICE)
    device.check(ordinal)
    found = _mapped(address, 1)
    require(found)
    store_u64(out, found[0].access)


def _tell_c() -> None:
    """Update which addresses copies and pointers may access. Adjacent ranges count as one."""
    wanted: dict[int, int] = {}
    last = 0
    for each in _MAPPINGS:
        if each.access == _NO_ACCESS:
            continue
        last = last if last in wanted and last + wanted[last] == each.begin else each.begin
        wanted[last] = each.end - last
    for begin in [begin for begin, size in _BLOCKS.items() if wanted.get(begin) != size]:
        del _BLOCKS[begin]
        memory_forget(begin, BlockKind.DEVICE)
    for begin in wanted.keys() - _BLOCKS.keys():
        _BLOCKS[begin] = wanted[begin]
        memory_adopt(begin, wanted[begin], BlockKind.DEVICE, 0, 0)
