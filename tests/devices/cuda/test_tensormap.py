"""What the driver is asked for a tensor map: the call that its bindings take, axes innermost first."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import pytest

from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.tensor_map import encode
from cujit.devices.tensormaps.im2col import Im2col
from cujit.devices.tensormaps.tiling import DataType, OutOfBoundsFill, Promotion, Swizzle, Tiling

bindings = pytest.importorskip("cuda.bindings.driver")


class Asked:
    """A context that notes the call, and makes it as far as a machine without a driver goes: the bindings take it."""

    def __init__(self) -> None:
        self.driver = self
        self.bindings = bindings
        self.arguments: list[Any] = []

    def call(self, function: str, *arguments: Any) -> Any:
        self.arguments = [function, *([int(x) for x in a] if isinstance(a, list) else int(a) for a in arguments)]
        with contextlib.suppress(RuntimeError):  # of no driver; a TypeError is of arguments that the bindings refuse
            getattr(bindings, function)(*arguments)
        return bindings.CUtensorMap()


def asked(tiling: Tiling) -> list[Any]:
    context = Asked()
    assert len(encode(cast(GpuContext, context), tiling)) == 128
    return context.arguments


def test_axes_of_a_tiling_are_turned_round() -> None:
    tiling = Tiling(
        DataType.BFLOAT16, 4096, (5, 20, 32), (2048, 64, 2), (1, 4, 8), (3, 2, 1), swizzle=Swizzle.BYTES_64,
        fill=OutOfBoundsFill.NAN, promotion=Promotion.BYTES_128,
    )  # fmt: skip
    assert asked(tiling) == [
        "cuTensorMapEncodeTiled", 9, 3, 4096, [32, 20, 5], [64, 2048], [8, 4, 1], [1, 2, 3], 0, 2, 2, 1,
    ]  # fmt: skip


def test_one_dimensional_map_passes_an_empty_stride_array() -> None:
    tiling = Tiling(DataType.UINT8, 4096, (1000,), (1,), (64,), (1,))
    assert asked(tiling) == ["cuTensorMapEncodeTiled", 0, 1, 4096, [1000], [0], [64], [1], 0, 0, 0, 0]


def test_corners_of_images_are_turned_round_too() -> None:
    images = Im2col(
        DataType.FLOAT16, 4096, (8, 30, 40, 64), (153600, 5120, 128, 2), (1, 1, 1, 32), (1, 2, 2, 1),
        lower=(-1, -2), upper=(-3, -4), pixels=100,
    )  # fmt: skip
    assert asked(images) == [
        "cuTensorMapEncodeIm2col", 6, 4, 4096, [64, 40, 30, 8], [128, 5120, 153600], [-2, -1], [-4, -3], 32, 100,
        [1, 2, 2, 1], 0, 0, 0, 0,
    ]  # fmt: skip
