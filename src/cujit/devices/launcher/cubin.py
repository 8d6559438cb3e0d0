"""What a launch has to know of a cubin, read by native code; ``formats.cubin`` is the reference."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping

from cujit.devices.launcher.cpython import NativeCall, is_supported, native_function
from cujit.devices.launcher.library import library_or_none
from cujit.forks import once
from cujit.signature import Parameter, ParameterClass, Signature
from cujit.values import NamedTuple

_LIMITS_BYTES = 16


class CubinKernelFacts(NamedTuple):
    """One kernel of a cubin.

    ``registers`` of a thread are 0 if they are not known, ``max_threads`` of a block 0 if the source sets no limit.
    ``shared_bytes`` is static shared memory. ``has_clusters``: the source asks something of clusters.
    """

    registers: int
    max_threads: int
    shared_bytes: int
    has_clusters: int
    parameters: bytes
    """32 bits each: whether it is a pointer in the highest bit, then the offset in 15 bits, the size in 16."""

    @classmethod
    def of(cls, row: bytes) -> CubinKernelFacts:
        """Read what native code wrote of a kernel."""
        registers, threads, shared, clusters = struct.unpack_from("<4I", row)
        return cls(registers, threads, shared, clusters, row[_LIMITS_BYTES:])

    @property
    def signature(self) -> Signature:
        """The sizes and places of the parameters, as ``CubinKernel`` has them."""
        return _signature(self.parameters)


@functools.lru_cache(1024)
def _signature(parameters: bytes) -> Signature:
    kinds = ParameterClass.UNKNOWN, ParameterClass.POINTER
    words = (word for (word,) in struct.iter_unpack("<I", parameters))
    return Signature(tuple(Parameter(kinds[w >> 31], w & 0xFFFF, offset=w >> 16 & 0x7FFF) for w in words))


class CubinFacts(Mapping[str, CubinKernelFacts]):
    """The kernels of a cubin by lowered name, in the order of the image; ``rows`` is what native code wrote of each."""

    def __init__(self, rows: Mapping[str, bytes]) -> None:
        self.rows = rows

    def __getitem__(self, name: str) -> CubinKernelFacts:
        return CubinKernelFacts.of(self.rows[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def cubin_facts(data: bytes) -> CubinFacts | None:
    """Read a linked cubin; None if there is no native code, no kernel, or anything is not as expected."""
    reader = _reader()
    rows = None if reader is None else reader.call(data)
    return None if rows is None else CubinFacts(rows)


@once
def _reader() -> NativeCall | None:
    native = library_or_none() if is_supported() else None
    return None if native is None else native_function("rows", native.address("rows"), None)


def number_of(data: bytes) -> int:
    """Return the number of the architecture of a cubin (90). Source: see ``formats.cubin``."""
    flags = int.from_bytes(data[48:52], "little")
    return (flags >> 8 if data[8] >= 8 else flags) & 0xFF
