"""Messages between processes of cujit: values, and the images in them as they are.

A message is read in three steps, each bounded before memory is taken for it: the lengths, the bytes, the values. Images
lie behind the values. So the reader takes at most twice the bytes of a message, besides what it may always take. The
values are a pickle. In an answer, the pickle can only name classes of values.
"""

from __future__ import annotations

import enum
import io
import pickle
import struct
from typing import IO, Any

_LENGTHS = struct.Struct("<QQ")
_MOST_VALUES_BYTES = 64 << 20
_MOST_IMAGES_BYTES = 2 << 30
"""More is no message: no tool makes such an image, nor so much text about one."""

_LEAST_IMAGE_BYTES = 1 << 10
_CONTAINERS = b"](})\x8f"
"""What makes a list, a tuple, a dict, a set or a mark in a pickle. Source: CPython, Lib/pickle.py, opcodes."""
_CONTAINER_BYTES = 72
_FREE_BYTES = 64 << 20
"""Values of a message may always take so much."""

_ROOMS = (
    "arch", "artifact", "cache.key", "cache.provenance", "compiler", "errors", "farm.tasks", "signature",
    "toolchain.headers",
)  # fmt: skip
"""Packages and modules of cujit whose classes answers have."""
_OTHERS = {"copyreg": ("__newobj__",), "pathlib": ("PosixPath",), "types": ("MappingProxyType",)}


def write_message(stream: IO[bytes], value: object) -> None:
    """Write one message.

    Raises:
        OSError: the reader has closed the stream.
    """
    values = io.BytesIO()
    writer = _Writer(values)
    writer.dump(value)
    pieces = [values.getvalue(), *writer.images]
    stream.write(_LENGTHS.pack(len(pieces[0]), writer.images_bytes))
    for piece in pieces:
        stream.write(piece)
    stream.flush()


def read_message(stream: IO[bytes], *, is_order: bool = False) -> Any:
    """Read one message, or return None at the end of the stream, even within a message.

    Args:
        stream: a buffered pipe.
        is_order: whether it comes from the parent process, whose messages may name any class.

    Raises:
        ValueError: the message is too long, malformed, or would take far more memory than its bytes.
    """
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    values_bytes, images_bytes = _LENGTHS.unpack(lengths)
    if values_bytes > _MOST_VALUES_BYTES or images_bytes > _MOST_IMAGES_BYTES:
        raise ValueError(f"the message is {values_bytes + images_bytes:,} bytes long")
    values = stream.read(values_bytes)
    images = stream.read(images_bytes) if images_bytes else b""
    if len(values) < values_bytes or len(images) < images_bytes:
        return None
    containers = sum(values.count(code) for code in _CONTAINERS)
    if containers * _CONTAINER_BYTES > max(_FREE_BYTES, values_bytes):
        raise ValueError(
            f"the message is {values_bytes:,} bytes long and contains {containers:,} lists, tuples and dicts"
        )
    reader = (_Reader if is_order else _AnswerReader)(io.BytesIO(values), memoryview(images))
    try:
        return reader.load()
    except (pickle.UnpicklingError, LookupError, TypeError, AttributeError, ImportError, EOFError) as e:
        raise ValueError(f"the data is not a message: {e}") from e


class _Writer(pickle.Pickler):
    """Omits images from the pickle, and collects them."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, protocol=5)
        self.images: list[bytes] = []
        self.images_bytes = 0

    def reducer_override(self, value: object) -> Any:
        """Write a member of an enumeration by its value: by default it is a call of ``getattr``.

        Errors are written as Python does it, though a library such as ``tblib`` wants all exceptions written its way.
        """
        if isinstance(value, BaseException):
            return value.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
        return (type(value), (value.value,)) if isinstance(value, enum.Enum) else NotImplemented

    def persistent_id(self, value: object) -> tuple[int, int] | None:
        """Return the position of an image, or None for any other value."""
        if type(value) is not bytes or len(value) < _LEAST_IMAGE_BYTES:
            return None
        begin = self.images_bytes
        self.images.append(value)
        self.images_bytes += len(value)
        return begin, len(value)


class _Reader(pickle.Unpickler):
    def __init__(self, file: IO[bytes], images: memoryview) -> None:
        super().__init__(file)
        self._images = images
        self._left = len(images)

    def persistent_load(self, place: Any) -> bytes:
        """Copy an image. All images together take no more than the received bytes."""
        begin, size = place
        self._left -= size
        if not size >= 0 or not 0 <= begin <= len(self._images) - size or self._left < 0:
            raise pickle.UnpicklingError("an image is missing")
        return bytes(self._images[begin : begin + size])


class _AnswerReader(_Reader):
    def find_class(self, module: str, name: str) -> Any:
        """Find a class of cujit's values, or one of the few others."""
        if (module, name) == ("builtins", "getattr"):
            return _of
        if name in _OTHERS.get(module, ()):
            return super().find_class(module, name)
        if f"{module}.".startswith(tuple(f"cujit.{room}." for room in _ROOMS)):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"the answer refers to {module}.{name}")


def _of(found: Any, name: object) -> Any:
    """Return the class method ``of``, which restores a value."""
    if name != "of" or not isinstance(found, type):
        raise pickle.UnpicklingError(f"the answer refers to getattr of {name}")
    return found.of  # type: ignore[attr-defined]
