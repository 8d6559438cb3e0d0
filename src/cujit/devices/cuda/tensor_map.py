"""Tensor maps of a GPU, which the driver writes."""

from __future__ import annotations

import ctypes

from cujit.devices.arguments.structures import TENSOR_MAP_BYTES
from cujit.devices.cuda.context import GpuContext
from cujit.devices.tensormaps.im2col import Im2col
from cujit.devices.tensormaps.tiling import Tiling


def encode(context: GpuContext, tiling: Tiling) -> bytes:
    """Encode the map of a tensor and a box through the driver. The axes of the map are innermost first.

    Source: CUDA Driver API manual, ``cuTensorMapEncodeTiled``, ``cuTensorMapEncodeIm2col``.

    Raises:
        DriverError: the driver reported an error.
    """
    b = context.driver.bindings
    words = (
        b.CUtensorMapInterleave(0),  # none
        b.CUtensorMapSwizzle(int(tiling.swizzle)),
        b.CUtensorMapL2promotion(int(tiling.promotion)),
        b.CUtensorMapFloatOOBfill(int(tiling.fill)),
    )
    sizes = [b.cuuint64_t(n) for n in reversed(tiling.shape)]
    # Of one axis there are no strides; the address of an array of them has to be given all the same.
    strides = [b.cuuint64_t(n) for n in reversed(tiling.strides[:-1])] or [b.cuuint64_t(0)]
    steps = [b.cuuint32_t(n) for n in reversed(tiling.steps)]
    tensor = (b.CUtensorMapDataType(int(tiling.data_type)), tiling.rank, tiling.address, sizes, strides)
    if isinstance(tiling, Im2col):
        corners = (list(reversed(tiling.lower)), list(reversed(tiling.upper)))
        taken = (tiling.box[-1], tiling.pixels)
        map_ = context.call("cuTensorMapEncodeIm2col", *tensor, *corners, *taken, steps, *words)
    else:
        box = [b.cuuint32_t(n) for n in reversed(tiling.box)]
        map_ = context.call("cuTensorMapEncodeTiled", *tensor, box, steps, *words)
    return ctypes.string_at(int(map_.getPtr()), TENSOR_MAP_BYTES)
