"""The facts about a cubin that launches need, read by native code. ``formats.cubin`` is the reference
implementation.
"""

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
    """The launch facts of one kernel of a cubin.

    ``registers`` per thread is 0 if unknown. ``max_threads`` per block is 0 if the source sets no limit.
    ``shared_bytes`` is static shared memory. ``has_clusters`` is whether the source specifies anything about clusters.
    """

    registers: int
    max_threads: int
    shared_bytes: int
    has_clusters: int
    parameters: bytes
    """32 bits each: whether it is a pointer in the highest bit, then the offset in 15 bits, the size in 16."""

    @classmethod
    def of(cls, row: bytes) -> CubinKernelFacts:
        """Return the facts in the bytes that native code wrote for a kernel."""
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
    """The kernels of a cubin by lowered name, in the order of the image. ``rows`` contains the bytes that native code
    wrote for each kernel.
    """

    def __init__(self, rows: Mapping[str, bytes]) -> None:
        self.rows = rows

    def __getitem__(self, name: str) -> CubinKernelFacts:
        return CubinKernelFacts.of(self.rows[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def cubin_facts(data: bytes) -> CubinFacts | None:
    """Return the facts about a linked cubin. Return None without native code, without a kernel, or if the cubin has an
    unexpected format.
    """
    reader = _reader()
    rows = None if reader is None else reader.call(data)
    return None if rows is None else CubinFacts(rows)


@once
def _reader() -> NativeCall | None:
    native = library_or_none() if is_supported() else None
    return None if native is None else native_function("rows", native.address("rows"), None)


def number_of(data: bytes) -> int:
    """Return the number of a cubin's architecture, such as 90. Source: see ``formats.cubin``."""
    flags = int.from_bytes(data[48:52], "little")
    return (flags >> 8 if data[8] >= 8 else flags) & 0xFF
