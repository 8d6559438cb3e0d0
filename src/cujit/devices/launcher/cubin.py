"""What a launch has to know of a cubin, read by native code; ``formats.cubin`` is the reference."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from cujit.devices.launcher.cpython import is_supported
from cujit.devices.launcher.library import library_or_none
from cujit.signature import Parameter, ParameterClass, Signature
from cujit.values import NamedTuple

_WORDS = 4096
_ROW = 7  # name, its length, registers, threads, shared bytes, clusters, count of parameters


class CubinKernelFacts(NamedTuple):
    """One kernel of a cubin.

    ``registers`` of a thread are 0 if they are not known, ``max_threads`` of a block 0 if the source sets no limit.
    ``shared_bytes`` is static shared memory. ``has_clusters``: the source asks something of clusters.
    """

    registers: int
    max_threads: int
    shared_bytes: int
    has_clusters: bool
    parameters: tuple[int, ...]
    """One word each: whether it is a pointer in the highest bit, then the offset in 15 bits, the size in 16."""

    @property
    def signature(self) -> Signature:
        """The sizes and places of the parameters, as ``CubinKernel`` has them."""
        return _signature(self.parameters)


@functools.lru_cache(1024)
def _signature(words: tuple[int, ...]) -> Signature:
    kinds = ParameterClass.UNKNOWN, ParameterClass.POINTER
    return Signature(tuple(Parameter(kinds[w >> 31], w & 0xFFFF, offset=w >> 16 & 0x7FFF) for w in words))


class CubinFacts(NamedTuple):
    """The number of the architecture that a cubin is for (90), and its kernels by lowered name."""

    number: int
    kernels: dict[str, CubinKernelFacts]


@functools.cache
def _reader() -> Callable[[bytes, int, object, int], int] | None:
    native = library_or_none() if is_supported() else None
    if native is None:
        return None
    types = ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64
    read: Callable[[bytes, int, object, int], int] = ctypes.PYFUNCTYPE(ctypes.c_int64, *types)(native.address("cubin"))
    return read


def cubin_facts(data: bytes) -> CubinFacts | None:
    """Read a linked cubin; None if there is no native code, no kernel, or anything is not as expected."""
    read = _reader()
    if read is None:
        return None
    for words in (_WORDS, len(data) // 4):
        out = (ctypes.c_uint32 * words)()
        used = read(data, len(data), out, words)
        if used >= 0:
            return _facts(data, memoryview(out).cast("B").cast("I")[:used].tolist())
    return None


def _facts(data: bytes, words: list[int]) -> CubinFacts:
    kernels, at = {}, 2
    for _ in range(words[1]):
        name, length, registers, threads, shared, clusters, count = words[at : at + _ROW]
        at += _ROW + count
        text = data[name : name + length].decode("utf-8", "backslashreplace")
        kernels[text] = CubinKernelFacts(registers, threads, shared, bool(clusters), tuple(words[at - count : at]))
    return CubinFacts(words[0], kernels)
