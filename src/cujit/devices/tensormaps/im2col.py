"""Tensor maps of images, with which a copy moves pixels in the order that a convolution processes them.

The array is ``(N, W, C)``, ``(N, H, W, C)`` or ``(N, D, H, W, C)``.

Source: PTX ISA 9.1, 5.5.4 "im2col mode"; CUDA Driver API manual, ``cuTensorMapEncodeIm2col``.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from cujit.devices.tensormaps.tiling import (
    MapWords,
    TensorMap,
    TensorMapDevice,
    Tiling,
    check_end,
    check_range,
    ints_of,
    memory_of,
    tiling_of,
)
from cujit.errors import ArgumentError, spell
from cujit.values import dataclass
from cujit.values.keywords import has_keywords, take

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from cujit.devices.tensormaps.tiling import MapKeywords

_CORNERS = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}
"""By the number of axes: corners are from minus this to below it."""
_MAX_PIXELS = 1024


@dataclass(frozen=True, kw_only=True)
class Im2col(Tiling):
    """Images, and a box of the possible positions of a filter's corner. One copy moves ``pixels`` pixels of the box.

    ``lower`` and ``upper`` are the offsets of the box's corners along D, H, and W. They count from the first and the
    last pixel of an image. ``box`` is one pixel with the number of channels to copy.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    pixels: int

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy moves."""
        return self.pixels * self.box[-1] * self.data_type.bytes

    def check(self) -> None:
        """Check the map against the rules for im2col mode.

        Raises:
            ArgumentError: a rule is violated. The message contains the invalid number.
        """
        if self.rank not in _CORNERS:
            raise ArgumentError(
                f"the image has {self.rank} axes, which is not supported", help="use 3 to 5 axes: N, D, H, W and C"
            )
        super().check()
        check_range("pixels", [self.pixels], 1, _MAX_PIXELS)
        most = _CORNERS[self.rank]
        for name, corner in (("lower", self.lower), ("upper", self.upper)):
            if len(corner) != self.rank - 2:
                raise ArgumentError(
                    f"{name} contains {len(corner)} values, but {self.rank - 2} of the {self.rank} axes are spatial"
                )
            check_range(name, corner, -most, most - 1)
        for k, (size, low, high) in enumerate(zip(self.shape[1:-1], self.lower, self.upper, strict=True)):
            if size + high <= low:
                raise ArgumentError(
                    f"along axis {k + 1} of {size} pixels, the box extends from {low} to {size - 1 + high}",
                    help="upper is relative to the last pixel: 0 is the last pixel, -1 the one before it",
                )


@has_keywords(MapWords)
def im2col_map(
    device: TensorMapDevice,
    array: object,
    lower: int | tuple[int, ...],
    upper: int | tuple[int, ...],
    pixels: int,
    channels: int,
    *,
    element_strides: tuple[int, ...] | None = None,
    **words: Unpack[MapKeywords],
) -> TensorMap:
    """Return a tensor map in im2col mode, which copies image pixels in the order that a convolution needs.

    ``lower`` and ``upper`` bound the position of the filter's corner along D, H, and W.

    Args:
        array: array of shape ``(N, W, C)``, ``(N, H, W, C)``, or ``(N, D, H, W, C)``.
        lower: offset from the first pixel: ``-padding``.
        upper: offset from the last pixel: ``padding - (filter - 1) * dilation``.
        pixels: pixels per copy.
        channels: channels per pixel.
        element_strides: strides of the convolution, one per array axis.
        swizzle: as in ``tensor_map``.
        fill: as in ``tensor_map``.
        l2: as in ``tensor_map``.
        data_type: as in ``tensor_map``.

    Raises:
        ArgumentError: the tensor map is invalid for this array.
        UnsupportedError: the device doesn't support tensor maps.
        DriverError: the driver reported an error.

    Example::

        images = device.zeros((2, 16, 16, 32), np.float32)          # N, H, W, C
        map = device.im2col_map(images, (-1, -1), (-1, -1), pixels=64, channels=32)
    """
    keywords = take(MapWords, words, im2col_map)
    memory = memory_of(device, array)
    try:
        taken, wide = operator.index(pixels), operator.index(channels)
    except TypeError:
        raise ArgumentError(f"pixels and channels must be ints, not {spell(pixels)} and {spell(channels)}") from None
    box = (*[1] * (len(memory.shape) - 1), wide)
    tiling = tiling_of(memory, box, element_strides, keywords)
    given = {name: getattr(tiling, name) for name in tiling.__match_args__}
    images = Im2col(**given, lower=ints_of("lower", lower), upper=ints_of("upper", upper), pixels=taken)
    images.check()
    check_end(images, memory)
    return TensorMap(device, array, images, device.encode_tensor_map(images))
