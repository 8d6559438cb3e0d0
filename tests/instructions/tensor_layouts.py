"""Where matrices lie in tensor memory and in shared memory, by shape algebra.

A layout is a shape and strides, both nested alike: the first index of a shape counts fastest. An address in tensor
memory is ``BLOCK`` times its block in a pair, ``LANE`` times its lane and its column. The shapes are those of
NVIDIA/cutlass (BSD-3-Clause), ``include/cute/atom/copy_traits_sm100.hpp`` and ``mma_traits_sm100.hpp``; the run-time
of the CPU device has formulas instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "BLOCK", "COUNTS", "LANE", "Stored", "factor_cells", "left_rows", "metadata_bits", "moved_cells", "store",
    "sum_cells",
]  # fmt: skip

Array = npt.NDArray[Any]
Shape: TypeAlias = "int | tuple[Shape, ...]"

LANE = 1 << 16
BLOCK = 1 << 32


def _flat(shape: Shape) -> Iterator[int]:
    if isinstance(shape, int):
        yield shape
    else:
        for part in shape:
            yield from _flat(part)


def _offsets(shape: Shape, stride: Shape) -> Array:
    """List the offset of every index of a layout."""
    found = np.zeros(1, np.int64)
    for extent, step in zip(_flat(shape), _flat(stride), strict=True):
        found = (found[None, :] + np.arange(extent)[:, None] * step).ravel()
    return found


# -- registers --------------------------------------------------------------------------------------------

COUNTS = {"32x32b": 128, "16x64b": 128, "16x128b": 64, "16x256b": 32, "16x32bx2": 128}
"""The most repetitions of each shape."""


def moved_cells(shape: str, times: int, split: int, packs: bool) -> Array:
    """Give the addresses from the first one on that a warp moves: thread, register, half."""
    column = 2 if packs else 1
    layouts: dict[str, tuple[tuple[Shape, Shape], tuple[Shape, Shape]]] = {
        "32x32b": ((32, LANE), (times, 1)),
        "16x64b": (((2, 2, 8), (8 * LANE, 1, LANE)), (times, 2)),
        "16x128b": (((4, 8), (1, LANE)), ((2, times), (8 * LANE, 4))),
        "16x256b": (((4, 8), (2, LANE)), ((2, 2, times), (1, 8 * LANE, 8))),
        "16x32bx2": (((16, 2), (LANE, 0)), (times, 1)),
    }
    threads, registers = layouts[shape]
    of_threads, of_registers = _offsets(*threads), _offsets(*registers)
    found = of_threads[:, None] + of_registers[None, :]
    found = found // LANE * LANE + found % LANE * column
    if shape == "16x32bx2":
        found = found + np.repeat([0, split], 16)[:, None]
    return np.asarray(found[:, :, None] + np.arange(column))


_HALF = 64 * LANE


def sum_cells(m: int, n: int, layout: str, first_lane: int = 0) -> Array:
    """Give the address of every element of D, by the letter of its layout: A, B and C are of pairs."""
    layouts: dict[str, tuple[tuple[Shape, Shape], tuple[Shape, Shape]]] = {
        "A": (((128, 2), (LANE, BLOCK)), (n, 1)),
        "B": (((64, 2), (LANE, BLOCK)), ((n // 2, 2), (1, _HALF))),
        "C": (((16, 4, 2), (LANE, 32 * LANE, BLOCK)), (n, 1)),
        "D": ((128, LANE), (n, 1)),
        "E": ((64, LANE), ((n // 2, 2), (1, _HALF))),
        "F": (((16, 4), (LANE, 32 * LANE)), (n, 1)),
        "G": ((32, LANE), ((n // 4, 4), (1, 32 * LANE))),
    }
    rows, columns = layouts[layout]
    found = first_lane * LANE + _offsets(*rows)[:, None] + _offsets(*columns)[None, :]
    assert found.shape == (m, n)
    return found


PARTS = {"B": 2, "E": 2, "G": 4}
"""Layouts that have parts of D's columns one below the other."""


def left_rows(m: int, layout: str, first_lane: int = 0) -> list[Array]:
    """Give the addresses of the rows of A: where D has the first column of each part."""
    parts = PARTS.get(layout, 1)
    return list(sum_cells(m, parts, layout, first_lane).T)


def metadata_bits(m: int, layout: str, mixes: bool, first_lane: int = 0) -> Array:
    """Give the address of each bit of a sparse A's metadata, with bits in place of columns: row, bit, copy.

    With ``mixes`` (of f16 and tf32) a row has 32 bits, otherwise 64.
    """
    blocks = 2 if layout in "AC" else 1
    rows, apart = m // blocks, 32 if layout in "CF" else 16
    if mixes:
        of_rows = _offsets((8, 2, rows // 16, blocks), (LANE, 16, apart * LANE, BLOCK))
        of_bits = _offsets((16, 2), (1, 8 * LANE))
    else:
        of_rows = _offsets((16, rows // 16, blocks), (LANE, apart * LANE, BLOCK))
        of_bits = _offsets(64, 1)
    copies = _offsets(PARTS.get(layout, 1), rows * LANE)
    return np.asarray(first_lane * LANE + of_rows[:, None, None] + of_bits[None, :, None] + copies[None, None, :])


def factor_cells(rows: int, m: int, blocks: int, of_b: bool) -> Array:
    """Give the addresses of the scale factors of rows of A or, with ``of_b``, columns of B: all places of one in a row.

    A block of a pair has those of its own rows of A, and of all columns of B.
    """
    if of_b and (blocks, m) == (2, 128):
        half = rows // 2
        own = _offsets((32, -(-half // 32)), (LANE, 1))[:half]
        own, copies = np.concatenate([own, own + _HALF]), _offsets((2, 2), (32 * LANE, BLOCK))
    elif of_b:
        own, copies = _offsets((32, -(-rows // 32)), (LANE, 1))[:rows], _offsets((4, blocks), (32 * LANE, BLOCK))
    else:
        each = rows // blocks
        own, copies = _offsets((32, each // 32, blocks), (LANE, 1, BLOCK)), _offsets(4, 32 * LANE)
    return np.asarray(own[:, None] + copies[None, :])


# -- shared memory ----------------------------------------------------------------------------------------

_LINES = {0: 16, 1: 128, 2: 128, 4: 64, 6: 32}
"""Bytes of a line, by the mode of swizzling."""
_SWIZZLES = {0: (0, 4, 3), 1: (2, 5, 2), 2: (3, 4, 3), 4: (2, 4, 3), 6: (1, 4, 3)}
"""How many bits are changed, from which on, and how far above are those that change them."""


@dataclass(frozen=True)
class Stored:
    """A matrix in shared memory: its bytes, its descriptor but for the address, and where its last element ends."""

    image: Array
    descriptor: int
    end: int


def store(codes: Array, bits: int, mode: int, across: bool) -> Stored:
    """Lay out rows (columns, of B) of codes, with room between the parts.

    Codes of less than a byte are packed at the beginning of 16 bytes, 16 together.
    """
    rows, steps = codes.shape
    size = max(1, bits // 8)
    unit, line = 16 // size, _LINES[mode] // size
    room = 256 // size
    if across:
        depth = 4 if mode == 1 else 8
        part = line * depth + (room if mode == 0 else 1024 // size)
        near, far = part, part * math.ceil(rows / line)
        leading, stride = (far, near) if mode == 0 else (near, far)
        of_rows = _offsets((line, math.ceil(rows / line)), (1, near))[:rows]
        of_steps = _offsets((depth, math.ceil(steps / depth)), (line, far))[:steps]
    else:
        stride = 8 * line + (room if mode == 0 else 1024 // size)
        leading = stride * (rows // 8) if mode == 0 else 1
        of_rows = _offsets((8, rows // 8), (line, stride))
        of_steps = _offsets((unit, steps // unit), (1, unit if mode else leading))
    at = (of_rows[:, None] + of_steps[None, :]) * size
    count, first, above = _SWIZZLES[mode]
    swizzled = at ^ ((at >> (first + above) & ((1 << count) - 1)) << first)
    image = np.full((int(at.max()) // 1024 + 1) * 1024, 0x11, np.uint8)
    if bits < 8:
        _pack(image, swizzled, codes, bits)
    else:
        for byte in range(size):
            image[swizzled + byte] = codes >> np.uint64(8 * byte) & np.uint64(255)
    at_leading = 1 if mode and not across else leading * size >> 4
    end = int(swizzled[:, ::16].max()) + 2 * bits if bits < 8 else int(swizzled.max()) + size
    return Stored(image, at_leading << 16 | (stride * size >> 4) << 32 | 1 << 46 | mode << 61, end)


def _pack(image: Array, at: Array, codes: Array, bits: int) -> None:
    for row, start in np.ndindex(codes.shape[0], codes.shape[1] // 16):
        whole = sum(int(code) << bits * k for k, code in enumerate(codes[row, 16 * start : 16 * start + 16]))
        place = at[row, 16 * start]
        image[place : place + 2 * bits] = np.frombuffer(whole.to_bytes(2 * bits, "little"), np.uint8)
