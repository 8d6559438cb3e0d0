"""Tensor maps: the layout of a tensor in memory, and the box that the tensor memory accelerator moves in one copy.

Users specify axes in NumPy's order, outermost first. A kernel's coordinates are innermost first. On every device, cujit
refuses the values that ``cuTensorMapEncodeTiled`` refuses, and the message contains the invalid number.

Source of all rules: CUDA Driver API manual, "Tensor Map Object Management", ``cuTensorMapEncodeTiled``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from cujit.devices.arrays.array import DeviceArray, wait_until_made
from cujit.devices.streams import DeviceLike
from cujit.errors import ArgumentError, ClosedError, UnsupportedError, spell
from cujit.values import NamedTuple, dataclass
from cujit.values.keywords import has_keywords, take

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    class MapKeywords(TypedDict, total=False):
        """The fields of ``MapWords``."""

        swizzle: str | int
        fill: str
        l2: str | int
        data_type: str | None


MAX_RANK = 5

_MAX_SIZE = 1 << 32
_MAX_STRIDE = 1 << 40
_MAX_BOX = 256
_MAX_STEP = 8
_PIECE = 16
"""Bytes that addresses, strides and rows of boxes are multiples of."""


class DataType(IntEnum):
    """Element types, numbered as in ``CUtensorMapDataType``.

    A copy doesn't change elements, except that it rounds ``TFLOAT32`` elements when it loads them. ``FTZ`` doesn't
    change the elements of a copy. Source: measured on an H200.
    """

    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    INT32 = 3
    UINT64 = 4
    INT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT32_FTZ = 10
    TFLOAT32 = 11
    TFLOAT32_FTZ = 12

    @property
    def bytes(self) -> int:
        """Bytes of an element."""
        return _BYTES[self]

    @property
    def is_float(self) -> bool:
        """Whether there are NaNs."""
        return self >= DataType.FLOAT16


_BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)

# Signed and unsigned integers are copied alike; where the driver has no name for one, the other's is taken.
_OF_DTYPE = {
    "bool": DataType.UINT8, "int8": DataType.UINT8, "uint8": DataType.UINT8, "float8_e4m3fn": DataType.UINT8,
    "float8_e5m2": DataType.UINT8, "int16": DataType.UINT16, "uint16": DataType.UINT16, "uint32": DataType.UINT32,
    "int32": DataType.INT32, "uint64": DataType.UINT64, "int64": DataType.INT64, "float16": DataType.FLOAT16,
    "bfloat16": DataType.BFLOAT16, "float32": DataType.FLOAT32, "float64": DataType.FLOAT64,
}  # fmt: skip


class Swizzle(IntEnum):
    """How 16-byte pieces are exchanged in shared memory, numbered as ``CUtensorMapSwizzle``; by span in bytes."""

    NONE = 0
    BYTES_32 = 1
    BYTES_64 = 2
    BYTES_128 = 3

    @property
    def span(self) -> int:
        """Size in bytes of the row segment within which pieces are exchanged, or 0 without swizzling."""
        return 16 << self if self else 0


class Promotion(IntEnum):
    """Bytes that the L2 cache fetches at a time, numbered as ``CUtensorMapL2promotion``."""

    NONE = 0
    BYTES_64 = 1
    BYTES_128 = 2
    BYTES_256 = 3


class OutOfBoundsFill(IntEnum):
    """Values of elements outside the tensor, numbered as in ``CUtensorMapFloatOOBfill``."""

    ZERO = 0
    NAN = 1


@dataclass(frozen=True)
class Tiling:
    """A tensor and a box, with axes outermost first. ``strides`` are in bytes, and ``shape`` and ``box`` are in
    elements.

    ``steps`` are the element strides: along an axis with step n, a copy moves every n-th element of the box.
    ``room_bytes`` is the number of bytes from the address to the end of the array, if known.
    """

    data_type: DataType
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: Swizzle = Swizzle.NONE
    fill: OutOfBoundsFill = OutOfBoundsFill.ZERO
    promotion: Promotion = Promotion.NONE
    room_bytes: int = 0

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def box_bytes(self) -> int:
        """Number of bytes that one copy moves. Along the innermost axis, it moves every element."""
        taken = [-(-n // step) for n, step in zip(self.box[:-1], self.steps[:-1], strict=True)]
        return math.prod(taken) * self.box[-1] * self.data_type.bytes

    @property
    def end(self) -> int:
        """Number of bytes from the address to the end of the last element."""
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return last + self.data_type.bytes

    @property
    def has_room(self) -> bool:
        """Whether every store stays within the array. A store writes 16 bytes at a time, possibly past the end of the
        tensor.
        """
        return -(-self.end // _PIECE) * _PIECE <= self.room_bytes

    def check(self) -> None:
        """Check the tensor and the box against the rules for tensor maps.

        Raises:
            ArgumentError: a rule is violated. The message contains the invalid number.
        """
        if not 1 <= self.rank <= MAX_RANK:
            raise ArgumentError(
                f"the tensor has {self.rank} axes, which is not supported",
                help=f"use 1 to {MAX_RANK} axes; reshape the tensor",
            )
        for name, values in (("strides", self.strides), ("box", self.box), ("element_strides", self.steps)):
            if len(values) != self.rank:
                raise ArgumentError(f"{name} contains {len(values)} values, but the tensor has {self.rank} axes")
        check_range("shape", self.shape, 1, _MAX_SIZE)
        check_range("box", self.box, 1, _MAX_BOX)
        check_range("element_strides", self.steps, 1, _MAX_STEP)
        self._check_places()
        self._check_row()
        if self.fill is OutOfBoundsFill.NAN and not self.data_type.is_float:
            raise ArgumentError(
                f"fill='nan' requires floating-point elements, but {self.data_type.name.lower()} has no NaN",
                help="write fill='zero'",
            )

    def _check_places(self) -> None:
        """Check where the elements are."""
        size = self.data_type.bytes
        if self.strides[-1] != size:
            raise ArgumentError(
                f"elements along the innermost axis are {self.strides[-1]} bytes apart, but each is {size} bytes long",
                help="use an array whose last axis is contiguous",
            )
        if self.address % _PIECE:
            raise ArgumentError(f"the tensor starts at {self.address:#x}, expected a multiple of {_PIECE}")
        check_range("strides", self.strides[:-1], 0, _MAX_STRIDE - 1)
        for k, stride in enumerate(self.strides[:-1]):
            if stride % _PIECE:
                raise ArgumentError(
                    f"strides[{k}] is {stride} bytes, expected a multiple of {_PIECE}",
                    help=f"pad the rows: allocate {-(-stride // _PIECE) * _PIECE // size} elements along the "
                    f"last axis, and pass shape={self.shape}",
                )

    def _check_row(self) -> None:
        """Check the innermost axis of the box against the swizzle."""
        row, span = self.box[-1] * self.data_type.bytes, self.swizzle.span
        if row % _PIECE:
            raise ArgumentError(f"a row of the box is {row} bytes long, expected a multiple of {_PIECE}")
        if span and row > span:
            fits = span // self.data_type.bytes
            raise ArgumentError(
                f"a row of the box is {row} bytes long, but the swizzle spans {span}",
                help=f"copy at most {fits} elements along the last axis at a time",
            )


def check_range(name: str, values: Sequence[int], low: int, high: int) -> None:
    """Check that every value is between ``low`` and ``high``, inclusive.

    Raises:
        ArgumentError: a value is out of range.
    """
    for k, value in enumerate(values):
        if not low <= value <= high:
            raise ArgumentError(f"{name}[{k}] is out of range: {value}", help=f"expected {low} to {high}")


class TensorMap:
    """A tensor map for a ``const __grid_constant__ CUtensorMap`` parameter (128 bytes). The map keeps its array alive.

    ``tiling`` describes the map, with axes ordered outermost first. ``bytes(map)`` returns the 128 bytes of the tensor
    map.

    Example::

        map = device.tensor_map(device.zeros((64, 64), np.float32), (8, 32))
        assert len(bytes(map)) == 128 and map.box_bytes == 1024
    """

    __slots__ = ("__weakref__", "_data", "device", "source", "tiling")

    def __init__(self, device: DeviceLike, source: object, tiling: Tiling, data: bytes) -> None:
        self.device = device
        self.source = source
        self.tiling = tiling
        self._data = data

    @property
    def box_bytes(self) -> int:
        """The number of bytes that one copy reports to its ``mbarrier``, including the part of the box outside the
        tensor.
        """
        return self.tiling.box_bytes

    def __bytes__(self) -> bytes:
        if isinstance(self.source, DeviceArray):
            try:
                _ = self.source.address
            except ClosedError:
                raise ClosedError("the array of this tensor map is closed, and its memory has been freed") from None
        return self._data

    def __repr__(self) -> str:
        t = self.tiling
        swizzle = f", swizzle {t.swizzle.span}" if t.swizzle else ""
        return f"<TensorMap {t.data_type.name.lower()} {t.shape}, box {t.box}{swizzle}, on {self.device.name}>"


# -- how users make one ------------------------------------------------------------------------------------

_Words = TypeVar("_Words", bound=IntEnum)


class TensorMapDevice(DeviceLike, Protocol):
    """A ``Device`` as tensor maps know it."""

    def encode_tensor_map(self, tiling: Tiling) -> bytes:
        """Write the 128 bytes."""


class MapWords(NamedTuple):
    """How a map copies, as users write it."""

    swizzle: str | int = "none"
    fill: str = "zero"
    l2: str | int = "none"
    data_type: str | None = None


@has_keywords(MapWords)
def tensor_map(
    device: TensorMapDevice,
    array: object,
    box: int | tuple[int, ...],
    *,
    shape: int | tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    element_strides: int | tuple[int, ...] | None = None,
    interleave: str | int = "none",
    **words: Unpack[MapKeywords],
) -> TensorMap:
    """Return a tensor map of an array for the Tensor Memory Accelerator. Kernels accept the map as a
    ``__grid_constant__ CUtensorMap``.

    In the kernel, coordinates are ordered innermost first.

    Args:
        array: an array on this device, from cujit or another library.
        box: elements per copy along each axis, outermost first as in ``array.shape``.
        shape: shape of the part of the array to map, for example without row padding. Default: the shape of the array.
        strides: strides of the mapped part, in bytes. Default: the strides of the array.
        element_strides: step between copied elements along each axis.
        interleave: must be ``none``, because interleaved layouts are not supported.
        swizzle: ``none``, ``32``, ``64``, or ``128``.
        fill: value of elements outside the array: ``zero`` or ``nan``.
        l2: number of bytes to prefetch into the L2 cache: ``none``, ``64``, ``128``, or ``256``.
        data_type: a different element type of the same size, such as ``tfloat32`` or ``bfloat16``.

    Raises:
        ArgumentError: the tensor map is invalid for this array.
        UnsupportedError: the device doesn't support tensor maps of this kind, or any tensor maps.
        DriverError: the driver reported an error.

    Example::

        map = device.tensor_map(device.zeros((64, 64), np.float32), (8, 32))
    """
    if str(interleave) != "none":
        raise UnsupportedError(
            f"cujit supports only tensor maps that are not interleaved, not interleave={spell(interleave)}",
            help="use interleave='none', with the channels as the last axis",
        )
    keywords = take(MapWords, words, tensor_map)
    memory = memory_of(device, array)
    tiling = tiling_of(memory, box, element_strides, keywords, shape, strides)
    tiling.check()
    check_end(tiling, memory)
    return TensorMap(device, array, tiling, device.encode_tensor_map(tiling))


def tiling_of(
    memory: Mapped, box: object, element_strides: object, words: MapWords, shape: object = None, strides: object = None
) -> Tiling:
    """Return a Tiling for the user's description of a tensor and a box, without checking its limits.

    Raises:
        ArgumentError: a word is unknown, or a value is not a number.
    """
    kind = _data_type(words.data_type, memory.dtype)
    sizes = memory.shape if shape is None else ints_of("shape", shape)
    steps = memory.strides if strides is None else ints_of("strides", strides)
    if shape is not None and strides is None and len(sizes) != len(memory.shape):
        raise ArgumentError(
            f"the shape {sizes} has {len(sizes)} axes, but the array has {len(memory.shape)}",
            help="pass strides too, or an array with as many axes",
        )
    if len(steps) == len(sizes) - 1:
        steps = (*steps, kind.bytes)
    return Tiling(
        kind, memory.address, sizes, steps, ints_of("box", box),
        (1,) * len(sizes) if element_strides is None else ints_of("element_strides", element_strides),
        _word("swizzle", words.swizzle, Swizzle), _word("fill", words.fill, OutOfBoundsFill),
        _word("l2", words.l2, Promotion), memory.end,
    )  # fmt: skip


def check_end(tiling: Tiling, memory: Mapped) -> None:
    """Check that a tensor is within its array.

    Raises:
        ArgumentError: it is not.
    """
    if tiling.end > memory.end:
        raise ArgumentError(
            f"a tensor with shape {tiling.shape} and strides {tiling.strides} needs {tiling.end} bytes, but "
            f"the array is {memory.end} bytes long",
            help="use a smaller shape or smaller strides",
        )


class Mapped(NamedTuple):
    """Address and layout of an array. ``strides`` and ``end`` are in bytes."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    end: int


def memory_of(device: DeviceLike, array: object) -> Mapped:
    """Return the memory of a cujit array, or of an object with the array interface.

    For an object with the array interface, wait for its pending work.

    Raises:
        ArgumentError: the object is not an array, or is not on the device.
    """
    if isinstance(array, DeviceArray):
        if array.device is not device and array.device.name != device.name:
            raise ArgumentError(f"{spell(array)} is not on {device.name}", code="device-mismatch")
        return Mapped(array.address, array.shape, array.strides, array.dtype, array.nbytes)
    name = "__cuda_array_interface__" if device.is_gpu else "__array_interface__"
    try:
        interface: dict[str, Any] | None = getattr(array, name, None)
    except Exception as e:  # torch raises for a tensor that requires grad
        raise ArgumentError(f"can't read the memory description of this {type(array).__name__}: {e}") from e
    if interface is None:
        raise ArgumentError(
            f"a tensor map on {device.name} requires an array on that device, not a {type(array).__name__}",
            help="device.array(x)",
            code="device-mismatch",
        )
    wait_until_made(array)
    try:
        return _of_interface(device, interface)
    except (LookupError, TypeError, ValueError) as e:
        raise ArgumentError(f"can't read the memory description of this {type(array).__name__}: {e}") from e


def _of_interface(device: DeviceLike, interface: dict[str, Any]) -> Mapped:
    """Return the memory that ``__array_interface__`` or ``__cuda_array_interface__`` describes. Both have the same
    fields.
    """
    shape, dtype = tuple(map(operator.index, interface["shape"])), np.dtype(interface["typestr"])
    address = operator.index(interface["data"][0] or 0)
    strides = interface.get("strides")
    if strides is None:
        strides = [dtype.itemsize * math.prod(shape[k + 1 :]) for k in range(len(shape))]
    steps = tuple(map(operator.index, strides))
    ordinal = device.ordinal_of(address) if device.is_gpu else None
    if ordinal is not None and ordinal != device.ordinal:
        raise ArgumentError(
            f"the array is in the memory of GPU {ordinal}, not on {device.name}", code="device-mismatch"
        )
    end = sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + dtype.itemsize
    return Mapped(address, shape, steps, dtype, 0 if 0 in shape else end)


def _data_type(wanted: object, dtype: np.dtype[Any]) -> DataType:
    """Return the requested element type, or the type of the array if no type is requested."""
    names = [t.name.lower() for t in DataType]
    if wanted is None:
        if dtype.name not in _OF_DTYPE or not dtype.isnative:
            raise ArgumentError(
                f"tensor maps don't support elements of {dtype}", help=f"set data_type= to one of {', '.join(names)}"
            )
        return _OF_DTYPE[dtype.name]
    if not isinstance(wanted, str) or wanted not in names:
        raise ArgumentError(f"data_type must be one of {', '.join(names)}, not {spell(wanted)}")
    kind = DataType[wanted.upper()]
    if kind.bytes != dtype.itemsize:
        raise ArgumentError(
            f"an element of type {wanted} is {kind.bytes} bytes long, but an element of the array ({dtype}) is "
            f"{dtype.itemsize}"
        )
    return kind


def ints_of(name: str, values: object) -> tuple[int, ...]:
    """Read a number, or a number for each axis.

    Raises:
        ArgumentError: the value is invalid.
    """
    try:
        items = values if isinstance(values, (tuple, list)) else (values,)
        return tuple(operator.index(n) for n in items)
    except TypeError:
        raise ArgumentError(f"{name} must be an int for each axis, not {spell(values)}") from None


def _word(name: str, value: object, kind: type[_Words]) -> _Words:
    """Return the member of ``kind`` for a word such as ``"none"``, ``"128"``, or the int 128."""
    words = {m.name.lower().removeprefix("bytes_"): m for m in kind}
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if text not in words:
        raise ArgumentError(f"{name} must be one of {', '.join(map(repr, words))}, not {spell(value)}")
    return words[text]
