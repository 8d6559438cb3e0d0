"""Calls of XLA, read from the frames of its foreign function interface, and answers to them.

Source: ``xla/ffi/api/c_api.h`` of XLA, versions 0.1 to 0.3 of the interface (jaxlib 0.10 and 0.11 come with it). Sizes
and offsets are in bytes, on machines of 64 bits.
"""

from __future__ import annotations

import ctypes
import struct
import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from cujit.errors import ArgumentError, CujitError, UnsupportedError
from cujit.forks import single_flight_cache
from cujit.values import NamedTuple

ELEMENTS: dict[int, np.dtype[Any]] = {
    number: np.dtype(getattr(ml_dtypes, name, None) or name)
    for number, name in {
        1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64",
        10: "float16", 11: "float32", 12: "float64", 15: "complex64", 16: "bfloat16", 18: "complex128",
        19: "float8_e5m2", 20: "float8_e4m3fn", 23: "float8_e4m3b11fnuz", 24: "float8_e5m2fnuz",
        25: "float8_e4m3fnuz", 28: "float8_e4m3", 29: "float8_e3m4", 33: "float8_e8m0fnu",
    }.items()
}  # fmt: skip
"""The dtypes of buffers, by XLA's numbers for them; what has less than a byte is none."""

# XLA_FFI_CallFrame: size, extension, api, context, stage; size, extension, count, types, values of the arguments, then
# of the results; size, extension, count, types, names, values of the attributes. What comes later is not read.
_FRAME = struct.Struct("@QQQQi4xQQqQQQQqQQQQqQQQ")
_INNER = (40, 40, 48)
_EXTENSION = struct.Struct("@Qi4xQQ")  # XLA_FFI_Metadata_Extension: size, type, next, metadata
_BUFFER = struct.Struct("@QQi4xQqQ")  # XLA_FFI_Buffer: size, extension, dtype, data, rank, dims
_SPAN = struct.Struct("@QQ")  # XLA_FFI_ByteSpan: address, length
_ERROR = struct.Struct("@QQQi")  # XLA_FFI_Error_Create_Args: size, extension, message, code
_STREAM_ARGS = struct.Struct(
    "@QQQQ"
)  # XLA_FFI_Stream_Get_Args, and with 4 bytes at the end XLA_FFI_DeviceOrdinal_Get_Args

_METADATA = 1
_METADATA_SIZE = 36
_EXECUTE = 3
_INVALID_ARGUMENT, _INTERNAL = 3, 13

# XLA_FFI_Api: its size, extension, the version (size, extension, major, minor) and what is XLA's own; then functions.
_API = struct.Struct("@QQQQii")
_ERROR_CREATE, _STREAM_GET, _ORDINAL_GET, _API_SIZE = 48, 80, 184, 192

_Function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
"""An XLA_FFI_Handler, and a function of the interface: from the address of its arguments to that of an error, or 0."""

Key: TypeAlias = tuple[Any, ...]


class Call(NamedTuple):
    """A call from XLA: ``addresses`` are those of the arguments and then of the results.

    ``key`` contains the rest: the attributes, the number of arguments, and the size, dtype, and dimensions of each
    buffer in XLA's form. ``buffers`` parses them.
    """

    key: Key
    addresses: list[int]
    ordinal: int
    stream: int


def handler(name: str, run: Callable[[Call], None], is_gpu: bool) -> Any:
    """Return a C function that XLA calls, which the caller must keep alive. Exceptions of ``run``
    become errors of XLA.
    """

    def handle(address: int) -> int:
        api = None
        try:
            if ctypes.c_size_t.from_address(address).value < _FRAME.size:
                raise _unknown("the call frame")
            frame = _FRAME.unpack(ctypes.string_at(address, _FRAME.size))
            api = _api(frame[2])
            if (frame[5], frame[10], frame[15]) != _INNER:
                raise _unknown("the content of the call frame")
            if frame[1] and _answered(frame[1]):
                return 0
            if frame[4] == _EXECUTE:
                where = api.where(frame[3]) if is_gpu else (-1, 0)
                run(Call(*_read(frame), *where))
            return 0
        except _ForeignError as e:
            return e.address
        except BaseException as e:  # nobody else would hear of it: XLA would take the results for computed
            return (api or _Api(_at(address + 16))).error(name, e)

    return _Function(handle)


def buffers(key: Key) -> tuple[str, int, list[tuple[tuple[int, ...], np.dtype[Any]]]]:
    """Return the text of a call, the count of its arguments, and shape and dtype of each argument and result.

    Raises:
        UnsupportedError: this XLA has other buffers.
    """
    text, count, *parts = key
    found = []
    for size, kind, dims in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if size < _BUFFER.size or kind not in ELEMENTS:
            raise _unknown("a buffer")
        found.append((struct.unpack(f"@{len(dims) // 8}q", dims), ELEMENTS[kind]))
    return text.decode(), count, found


class _ForeignError(Exception):
    """An error that XLA created, to be returned to XLA."""

    def __init__(self, address: int) -> None:
        self.address = address


def _unknown(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"this version of XLA uses an unknown form of {what}",
        help="install a version of jaxlib that docs/frameworks.md lists",
    )


def _at(address: int) -> int:
    """Read a word of memory."""
    return ctypes.c_size_t.from_address(address).value


def _answered(extension: int) -> bool:
    """Write the supported version of the interface if the call requests it, and return whether it does."""
    if _at(extension) < _EXTENSION.size:
        return False
    _, kind, _, metadata = _EXTENSION.unpack(ctypes.string_at(extension, _EXTENSION.size))
    if kind != _METADATA:
        return False
    if _at(metadata) < _METADATA_SIZE:
        raise _unknown("the request to a handler")
    struct.pack_into("@ii", (ctypes.c_char * 8).from_address(metadata + 24), 0, 0, 1)
    return True


def _read(frame: tuple[Any, ...]) -> tuple[Key, list[int]]:
    """Return the key of a call and the addresses of its buffers."""
    count, results, attributes = frame[7], frame[12], frame[17]
    parts: list[Any] = [b"" if not attributes else _text(frame[20]), count]
    addresses = []
    for number, values in ((count, frame[9]), (results, frame[14])):
        for buffer in struct.unpack(f"@{number}Q", ctypes.string_at(values, 8 * number)) if number else ():
            size, _, kind, data, rank, dims = _BUFFER.unpack(ctypes.string_at(buffer, _BUFFER.size))
            parts += (size, kind, ctypes.string_at(dims, 8 * rank) if rank else b"")
            addresses.append(data)
    return tuple(parts), addresses


def _text(attributes: int) -> bytes:
    """Read the one attribute that our calls have, a text."""
    return ctypes.string_at(*_SPAN.unpack(ctypes.string_at(_at(attributes), _SPAN.size)))


class _Api:
    """The functions that XLA provides to handlers."""

    def __init__(self, address: int) -> None:
        self._create = _Function(_at(address + _ERROR_CREATE))
        self._stream = _Function(_at(address + _STREAM_GET))
        self._ordinal = _Function(_at(address + _ORDINAL_GET))

    def error(self, name: str, error: BaseException) -> int:
        """Make an error of XLA of one of Python, which has its text."""
        is_ours = isinstance(error, CujitError)
        message = f"{type(error).__name__}: {error}" if is_ours else "".join(traceback.format_exception(error))
        text = ctypes.create_string_buffer(f"{name}: {message}".encode(errors="replace"))
        code = _INVALID_ARGUMENT if isinstance(error, ArgumentError) else _INTERNAL
        buffer = ctypes.create_string_buffer(_ERROR.pack(_ERROR.size, 0, ctypes.addressof(text), code), _ERROR.size)
        return int(self._create(ctypes.addressof(buffer)) or 0)

    def where(self, context: int) -> tuple[int, int]:
        """Ask for the GPU of a call and its stream."""
        return self._ask(self._ordinal, context, 28) & 0x7FFFFFFF, self._ask(self._stream, context, 32)

    def _ask(self, function: Callable[[int], int | None], context: int, size: int) -> int:
        buffer = ctypes.create_string_buffer(_STREAM_ARGS.pack(size, 0, context, 0), _STREAM_ARGS.size)
        if failed := function(ctypes.addressof(buffer)):
            raise _ForeignError(failed)
        return int(_STREAM_ARGS.unpack(buffer.raw)[3])


@single_flight_cache()
def _api(address: int) -> _Api:
    """Return the functions at an address, which a process has once per platform.

    Raises:
        UnsupportedError: the interface has another version.
    """
    size, _, version_size, _, major, _ = _API.unpack(ctypes.string_at(address, _API.size))
    if size < _API_SIZE or version_size != 24 or major != 0:
        raise _unknown(f"interface {major}")
    return _Api(address)
