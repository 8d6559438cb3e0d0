"""What atomic operations compute, in plain Python, from the manual's words: to compare devices with."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["array_of", "bits_of", "step", "words"]

Array = npt.NDArray[Any]


def bits_of(type_: str) -> int:
    """Width of one element in memory."""
    return 32 if type_.endswith("x2") else int(type_.lstrip("bsuf"))


def words(array: Array, bits: int) -> list[int]:
    """The elements of an array as unsigned integers."""
    data = array.tobytes()
    return [int.from_bytes(data[k : k + bits // 8], "little") for k in range(0, len(data), bits // 8)]


def array_of(values: list[int], bits: int, like: Array) -> Array:
    """An array with these words."""
    return np.frombuffer(b"".join(v.to_bytes(bits // 8, "little") for v in values), like.dtype).reshape(like.shape)


def signed(word: int, bits: int) -> int:
    """Read a word as a signed integer."""
    return word - (1 << bits) if word >> (bits - 1) else word


def bf16(value: float) -> int:
    """Round to bf16, ties to even; ``value`` is an f32 and not a NaN."""
    word = int(np.float32(value).view(np.uint32))
    return ((word + 0x7FFF + (word >> 16 & 1)) >> 16) & 0xFFFF


def half(operation: str, type_: str, a: int, b: int) -> int:
    """One operation on f16 or bf16."""
    if type_ == "f16":
        x, y = (float(np.uint16(w).view(np.float16)) for w in (a, b))
    else:
        x, y = (float(np.uint32(w << 16).view(np.float32)) for w in (a, b))
    if operation == "add":
        result = x + y
    elif x != x or y != y:
        result = y if x != x else x
    else:
        # -0 counts as less than +0: the sign decides between equals.
        first = (x, -(a >> 15)) < (y, -(b >> 15))
        result = x if first == (operation == "min") else y
    if result != result:
        return 0x7FFF
    with np.errstate(over="ignore"):
        return int(np.float32(result).astype(np.float16).view(np.uint16)) if type_ == "f16" else bf16(result)


def flushed(word: int) -> int:
    """Make a subnormal f32 zero of its sign."""
    return word if word & 0x7F800000 else word & 0x80000000


def float_add(type_: str, a: int, b: int, flush: bool) -> int:
    """Add floats, rounding to nearest; NaNs as an H200 was seen to give them (``scenes_nans``)."""
    if flush and type_ == "f32":
        a, b = flushed(a), flushed(b)
    code, word = ("<f", "<I") if type_ == "f32" else ("<d", "<Q")
    x, y = (np.frombuffer(struct.pack(word, w), code[1:].replace("f", "f4").replace("d", "f8"))[0] for w in (a, b))
    with np.errstate(all="ignore"):
        found = x + y
    total = int.from_bytes(found.tobytes(), "little")
    if type_ == "f32":
        return 0x7FFFFFFF if np.isnan(found) else flushed(total) if flush else total
    nans = [w for w, v in ((a, x), (b, y)) if np.isnan(v)]
    return total if not nans else nans[-1] if flush else nans[0] | 1 << 51


def step(operation: str, type_: str, a: int, b: int, c: int = 0, flush: bool = False) -> int:
    """PTX ISA 9.1, 9.7.13.5 "atom", Semantics."""
    bits = bits_of(type_)
    if type_.endswith("x2"):
        low = half(operation, type_[:-2], a & 0xFFFF, b & 0xFFFF)
        return low | half(operation, type_[:-2], a >> 16, b >> 16) << 16
    if type_.endswith("f16"):
        return half(operation, type_, a, b)
    if type_[0] == "f":
        return float_add(type_, a, b, flush)
    number = (lambda w: signed(w, bits)) if type_[0] == "s" else int
    table: dict[str, Callable[[], int]] = {
        "and": lambda: a & b, "or": lambda: a | b, "xor": lambda: a ^ b, "exch": lambda: b,
        "add": lambda: (a + b) % (1 << bits), "inc": lambda: 0 if a >= b else a + 1,
        "dec": lambda: b if a == 0 or a > b else a - 1, "min": lambda: min(a, b, key=number),
        "max": lambda: max(a, b, key=number), "cas": lambda: c if a == b else a,
    }  # fmt: skip
    return table[operation]()
