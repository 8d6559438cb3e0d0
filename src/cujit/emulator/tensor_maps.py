"""Tensor maps: conversion of the driver's arguments to the maps of the CPU device, which emulated kernels read.

Source: CUDA Driver API manual, "Tensor Map Object Management".
"""

from __future__ import annotations

import ctypes

from cujit.devices.tensormaps.im2col import Im2col
from cujit.devices.tensormaps.tiling import MAX_RANK, DataType, OutOfBoundsFill, Promotion, Swizzle, Tiling
from cujit.emulator.entries import require, started
from cujit.emulator.process import emulation
from cujit.emulator.results import RefusedCall, Result
from cujit.errors import ArgumentError

_BYTES = 128
_PIECE = 16
_ADDRESS = 0
"""Where a map has its address, in bytes."""


def _numbers(address: int, count: int, type_: type[ctypes.c_uint64 | ctypes.c_uint32 | ctypes.c_int32]) -> list[int]:
    """Read an array with one number per axis, innermost first, and return the numbers outermost first."""
    require(address or not count)
    return list((type_ * count).from_address(address))[::-1] if count else []


def _tiling(
    kind: int, rank: int, address: int, sizes: int, strides: int, box: list[int], steps: int, words: tuple[int, ...]
) -> Tiling:
    """Read the arguments that both kinds of maps have; ``words`` are interleaving, swizzle, promotion and fill."""
    interleave, swizzle, promotion, fill = words
    require(1 <= rank <= MAX_RANK)
    require(
        not interleave,
        Result.NOT_SUPPORTED,
        "the emulator supports tensor maps only without interleaving",
        hint="pass `CU_TENSOR_MAP_INTERLEAVE_NONE`",
    )
    try:
        enums = DataType(kind), Swizzle(swizzle), OutOfBoundsFill(fill), Promotion(promotion)
    except ValueError as e:
        raise RefusedCall(Result.INVALID_VALUE, str(e)) from None
    outer = _numbers(strides, rank - 1, ctypes.c_uint64)
    tiling = Tiling(
        enums[0],
        address,
        tuple(_numbers(sizes, rank, ctypes.c_uint64)),
        (*outer, enums[0].bytes),
        tuple(box),
        tuple(_numbers(steps, rank, ctypes.c_uint32)),
        *enums[1:],
    )
    # Allocations end at multiples of more than what a copy writes at a time.
    room = {name: getattr(tiling, name) for name in tiling.__match_args__} | {"room_bytes": tiling.end + _PIECE}
    return Tiling(**room)


def _write(out: int, tiling: Tiling) -> None:
    require(out)
    try:
        tiling.check()
    except ArgumentError as e:
        raise RefusedCall(Result.INVALID_VALUE, str(e)) from None
    ctypes.memmove(out, emulation().device.encode_tensor_map(tiling), _BYTES)


@started("cuTensorMapEncodeTiled", "PIUPPPPPIIII")
def tensor_map_encode_tiled(
    out: int, kind: int, rank: int, address: int, sizes: int, strides: int, box: int, steps: int, *words: int
) -> None:
    """Describe a tensor and a box of it."""
    require(1 <= rank <= MAX_RANK)
    taken = _numbers(box, rank, ctypes.c_uint32)
    _write(out, _tiling(kind, rank, address, sizes, strides, taken, steps, words))


@started("cuTensorMapEncodeIm2col", "PIUPPPPPUUPIIII")
def tensor_map_encode_im2col(
    out: int, kind: int, rank: int, address: int, sizes: int, strides: int, *copied: int
) -> None:
    """Write a tensor map of images, with which a copy moves pixels in the order that a convolution processes them."""
    lower, upper, channels, pixels, steps, *words = copied
    require(3 <= rank <= MAX_RANK)
    tiling = _tiling(kind, rank, address, sizes, strides, [*[1] * (rank - 1), channels], steps, (*words,))
    given = {name: getattr(tiling, name) for name in tiling.__match_args__}
    corners = (tuple(_numbers(corner, rank - 2, ctypes.c_int32)) for corner in (lower, upper))
    _write(out, Im2col(**given, lower=next(corners), upper=next(corners), pixels=pixels))


@started("cuTensorMapReplaceAddress", "PP")
def tensor_map_replace_address(tensor_map: int, address: int) -> None:
    """Change a map to describe a tensor at another address."""
    require(tensor_map and address % _PIECE == 0)
    ctypes.c_uint64.from_address(tensor_map + _ADDRESS).value = address
