"""What kernels printed: the records of ``vprintf``, formatted by libc as the host does it for a GPU."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cujit.devices.cpu.native.structures import Printed as Record
from cujit.devices.cpu.run.launch import Launch

__all__ = ["Printed", "formatted", "take_printed", "write_printed"]

# Any specification as ``runtime/output.c`` walks over it, and those that C knows. Source: CUDA C++ Programming Guide,
# "Formatted Output"; ISO C 7.21.6.1.
_LOOSE = re.compile(rb"%([-+ #0-9.*hljztqL]*)(.)?", re.DOTALL)
_STRICT = re.compile(rb"([-+ #0]*)(\d+|\*)?(?:\.(\d+|\*)?)?(hh|h|ll|l|j|z|t|q|L)?")
_WHOLE, _REAL = b"diouxX", b"fFeEgGaA"
_LONG = frozenset(b"ljztqL")

_NULL_TEXT = (1 << 64) - 1
"""The length of a string whose address is null."""

_WIDEST = 1 << 20
"""Characters that one specification may fill; wider ones are narrowed to it."""


@dataclass(frozen=True)
class Printed:
    """One call: the numbers of its block and of the thread in it, the format, and a value for each argument.

    A value is the bits of a number or address, or the bytes of a string (None: its address was null).
    """

    block: int
    thread: int
    format: bytes
    values: tuple[int | bytes | None, ...]


def write_printed(launch: Launch) -> None:
    """Write what a launch printed to ``sys.stdout``, block after block, and forget it.

    Where blocks make progress side by side the order in time counts instead: they may have waited for each other.
    """
    calls = take_printed(launch)
    if launch.together <= 1:
        calls.sort(key=lambda call: call.block)
    if sys.stdout is not None:
        sys.stdout.write(b"".join(map(formatted, calls)).decode(errors="replace"))


def take_printed(launch: Launch) -> list[Printed]:
    """Take the records out of a launch, the first call first; their memory is released."""
    calls = []
    address, launch.output = launch.output, 0
    while address:
        record = Record.from_address(address)
        previous = record.previous
        calls.append(_read(address, record))
        _libc().free(ctypes.c_void_p(address))
        address = previous
    return calls[::-1]


def _read(address: int, record: Record) -> Printed:
    head = address + ctypes.sizeof(Record)
    format_ = ctypes.string_at(head, record.format_bytes)
    words_at = head + (record.format_bytes + 7) // 8 * 8
    words = struct.unpack(f"<{record.values}Q", ctypes.string_at(words_at, 8 * record.values))
    text = ctypes.string_at(words_at + 8 * record.values, record.text_bytes)
    return Printed(record.block, record.thread, format_, tuple(_values(format_, words, text)))


def _values(format_: bytes, words: tuple[int, ...], text: bytes) -> Iterator[int | bytes | None]:
    """Put the strings in the place of their lengths."""
    left = iter(words)
    for kind in _kinds(format_):
        word = next(left, None)
        if word is None:
            return
        if kind != b"s":
            yield word
        elif word == _NULL_TEXT:
            yield None
        else:
            yield text[:word]
            text = text[word:]


def _kinds(format_: bytes) -> Iterator[bytes]:
    """List what takes an argument: ``*`` or the letter of the specification."""
    for match in _LOOSE.finditer(format_):
        yield from [b"*"] * match[1].count(b"*")
        if match[2] and match[2] in _WHOLE + _REAL + b"cps":
            yield match[2]


def formatted(call: Printed) -> bytes:
    """Format one call.

    A specification that C does not know is printed as it stands; its arguments are passed over.
    """
    values = iter(call.values)
    parts, end = [], 0
    for match in _LOOSE.finditer(call.format):
        parts.append(call.format[end : match.start()])
        end = match.end()
        stars = [_signed(next(values, 0), 32) for _ in range(match[1].count(b"*"))]
        parts.append(_one(match, stars, values))
    parts.append(call.format[end:])
    return b"".join(parts)


def _one(match: re.Match[bytes], stars: list[int], values: Iterator[int | bytes | None]) -> bytes:
    kind = match[2] or b""
    if kind == b"%":
        return b"%"
    if not kind or kind not in _WHOLE + _REAL + b"cps":
        return match[0]
    value = next(values, 0)
    strict = _STRICT.fullmatch(match[1])
    if strict is None:
        return match[0]
    flags, size = strict[1], strict[4] or b""
    shape = flags + _number(strict[2], stars, b"") + (_number(strict[3], stars, b".") if b"." in match[1] else b"")
    return _printed(shape, size, kind, value)


def _number(text: bytes | None, stars: list[int], lead: bytes) -> bytes:
    """Write a width or precision in digits; a negative one from an argument means left-adjusted, or none.

    Source: ISO C 7.21.6.1, paragraphs 4 and 5.
    """
    if not text:
        return lead
    number = stars.pop(0) if text == b"*" else int(text)
    if number < 0 and lead:
        return b""
    sign = b"-" if number < 0 else b""
    return lead + sign + b"%d" % min(abs(number), _WIDEST)


def _printed(shape: bytes, size: bytes, kind: bytes, value: int | bytes | None) -> bytes:
    if kind == b"s":
        text = value if isinstance(value, bytes) else b"(null)"
        return _snprintf(b"%" + shape + b"s", text)
    bits = value if isinstance(value, int) else 0
    if kind == b"p":
        return _snprintf(b"%" + shape + b"p", ctypes.c_void_p(bits))
    if kind in _REAL:
        return _snprintf(b"%" + shape + kind, ctypes.c_double(struct.unpack("<d", bits.to_bytes(8, "little"))[0]))
    if kind == b"c":
        return _character(shape, bits)
    if size and size[0] in _LONG:
        return _snprintf(b"%" + shape + b"ll" + kind, ctypes.c_longlong(_signed(bits, 64)))
    return _snprintf(b"%" + shape + size + kind, ctypes.c_int(_signed(bits, 32)))


def _character(shape: bytes, bits: int) -> bytes:
    """Write ``%c``; a zero is a character like any other, which the buffer of ``snprintf`` has in the right place."""
    return _snprintf(b"%" + shape + b"c", ctypes.c_int(bits & 0xFF))


def _snprintf(format_: bytes, value: Any) -> bytes:
    libc = _libc()
    buffer = ctypes.create_string_buffer(128)
    size = libc.snprintf(buffer, ctypes.c_size_t(128), format_, value)
    if size >= 128:
        buffer = ctypes.create_string_buffer(size + 1)
        size = libc.snprintf(buffer, ctypes.c_size_t(size + 1), format_, value)
    return buffer.raw[: max(size, 0)]


def _signed(value: int | bytes | None, width: int) -> int:
    bits = value if isinstance(value, int) else 0
    bits &= (1 << width) - 1
    return bits - (1 << width) if bits >> (width - 1) else bits


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
