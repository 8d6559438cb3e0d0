"""Tensor copies to run on every device: what a GPU made of them is in ``tests/goldens/tensor.npz``.

Every case makes its map at the public door and does one copy. The result is shared memory after a load, and the whole
array, padding and all, after a store or a reduction. Every box begins at a multiple of 16 bytes along the innermost
axis, and those of stores and reductions not before it: a GPU ends anything else with an illegal instruction.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.artifact import Artifact
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.device import Device
from cujit.devices.tensormaps.tiling import TensorMap
from cujit.kernel import Kernel
from cujit.loading import load

__all__ = ["CASES", "FAMILIES", "GOLDENS", "Case", "run"]

Array = npt.NDArray[Any]
Change = Callable[[str], str]

GOLDENS = Path(__file__).parents[1] / "goldens" / "tensor.npz"
"""Recorded by ``tensor_record.py``."""

SHARED_BYTES = 8192


@dataclass(frozen=True, eq=False)
class Case:
    """One copy; axes are outermost first. ``dtype`` is that of the array, ``options`` go to ``tensor_map``.

    ``operation`` is a load, one after a prefetch, a store or a reduction. ``at`` is where the box begins in shared
    memory, in bytes. With ``offsets`` the copy is in im2col mode: ``box`` is a pixel then; ``corners`` and ``pixels``
    are ``im2col_map``'s.
    """

    name: str
    shape: tuple[int, ...]
    start: tuple[int, ...]
    box: tuple[int, ...]
    dtype: str = "u4"
    operation: str = "load"
    options: dict[str, Any] = field(default_factory=dict)
    at: int = 0
    pad: int = 0
    words: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    corners: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    pixels: int = 0
    data: Array | None = None
    """What is in global memory, if that matters."""

    def __repr__(self) -> str:
        return f"Case({self.name})"

    @property
    def whole(self) -> tuple[int, ...]:
        """The shape of the array, with its padding."""
        return (*self.shape[:-1], self.shape[-1] + self.pad)

    @property
    def is_load(self) -> bool:
        """Whether the result is in shared memory."""
        return self.operation in ("load", "prefetch")

    def mode(self) -> str:
        """The mode as the instruction names it."""
        if not self.offsets:
            return "tile"
        return "im2col" if self.is_load else "im2col_no_offs"

    def array(self) -> Array:
        """What is in global memory: ``data``, ``words`` over and over, or any bits."""
        if self.data is not None:
            return self.data
        return self._filled(self.whole, sum(self.name.encode()))

    def shared(self) -> Array:
        """What is in shared memory before a store or a reduction."""
        dtype = np.dtype(self.dtype)
        return self._filled((SHARED_BYTES // dtype.itemsize,), sum(self.name.encode()) + 1)

    def _filled(self, shape: tuple[int, ...], seed: int) -> Array:
        dtype, count = np.dtype(self.dtype), int(np.prod(shape))
        if self.words:
            values = np.resize(np.array(self.words, f"u{dtype.itemsize}"), count + seed % 7)[seed % 7 :]
            return values.view(dtype).reshape(shape)
        return np.random.default_rng(seed).integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype).reshape(shape)


_HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 given, .param .u64 taken, .param .u32 at,
                  .param .u32 bytes, .param .s32 start0, .param .s32 start1, .param .s32 start2, .param .s32 start3,
                  .param .s32 start4, .param .u16 shift0, .param .u16 shift1, .param .u16 shift2) {
.reg .b16 y0, y1, y2;
.reg .b32 i, j, r, s, x0, x1, x2, x3, x4, tries; .reg .b64 m, a, off; .reg .pred p, first, done;
.shared .align 1024 .b8 mem[SIZE]; .shared .align 8 .b64 bar;
mov.b64 m, map; cvta.param.u64 m, m;
mov.u32 i, %tid.x; setp.eq.u32 first, i, 0;
ld.param.u64 a, [given]; cvta.to.global.u64 a, a; mul.wide.u32 off, i, 4; add.u64 a, a, off;
mov.b32 s, mem; mad.lo.u32 s, i, 4, s; mov.u32 j, i;
IN: ld.global.u32 r, [a]; st.shared.u32 [s], r; add.u32 s, s, 128; add.u64 a, a, 128; add.u32 j, j, 32;
setp.lt.u32 p, j, WORDS; @p bra IN;
@first mbarrier.init.shared.b64 [bar], 1;
@first fence.mbarrier_init.release.cluster;
fence.proxy.async; bar.sync 0;
ld.param.u32 r, [at]; mov.b32 s, mem; add.u32 s, s, r; ld.param.u32 r, [bytes]; mov.u32 tries, 0;
ld.param.s32 x0, [start0]; ld.param.s32 x1, [start1]; ld.param.s32 x2, [start2]; ld.param.s32 x3, [start3];
ld.param.s32 x4, [start4]; ld.param.u16 y0, [shift0]; ld.param.u16 y1, [shift1]; ld.param.u16 y2, [shift2];
"""
_TAIL = """ld.param.u64 a, [taken]; cvta.to.global.u64 a, a; add.u64 a, a, off;
mov.b32 s, mem; mad.lo.u32 s, i, 4, s; mov.u32 j, i;
OUT: ld.shared.u32 r, [s]; st.global.u32 [a], r; add.u32 s, s, 128; add.u64 a, a, 128; add.u32 j, j, 32;
setp.lt.u32 p, j, WORDS; @p bra OUT;
ret; }
"""
# A load that never tells its bytes must not hang the GPU: after many tries the kernel traps.
_LOAD = """@!first bra WAIT;
mbarrier.arrive.expect_tx.shared.b64 _, [bar], r;
cp.async.bulk.tensor.RANKd.shared::cluster.global.MODE.mbarrier::complete_tx::bytes [s], [m, {COORDS}], [bar]SHIFTS;
WAIT: mbarrier.try_wait.parity.shared.b64 done, [bar], 0; @done bra READY;
add.u32 tries, tries, 1; setp.lt.u32 p, tries, 20000; @p bra WAIT; trap;
READY:
"""
_PREFETCH = "@first cp.async.bulk.prefetch.tensor.RANKd.L2.global.MODE [m, {COORDS}]SHIFTS;\n"
_STORE = """@!first bra READY;
NAME.RANKd.global.shared::cta.MODE.bulk_group [m, {COORDS}], [s];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
READY: bar.sync 0;
"""


def _ptx(operation: str, rank: int, mode: str) -> str:
    name = "cp.async.bulk.tensor" if operation == "store" else "cp.reduce.async.bulk.tensor"
    loads = {"load": _LOAD, "prefetch": _PREFETCH + _LOAD}
    body = loads.get(operation) or _STORE.replace("NAME", name)
    if operation not in (*loads, "store"):
        body = body.replace("MODE", f"{operation}.MODE")
    text = _HEAD + body + _TAIL
    coords = ", ".join(f"x{k}" for k in range(rank))
    shifts = ", {" + ", ".join(f"y{k}" for k in range(rank - 2)) + "}" if mode == "im2col" else ""
    numbers = {"MODE": mode, "SHIFTS": shifts, "SIZE": SHARED_BYTES,
               "WORDS": SHARED_BYTES // 4, "RANK": rank, "COORDS": coords}  # fmt: skip
    for word, value in numbers.items():
        text = text.replace(word, str(value))
    return text


@functools.cache
def _kernel(device: Device, operation: str, rank: int, mode: str, change: Change) -> Kernel:
    return load(Artifact.of(change(_ptx(operation, rank, mode))), device)["k"]


def _map(device: Device, case: Case, array: DeviceArray) -> TensorMap:
    if case.offsets:
        return device.im2col_map(array, *case.corners, case.pixels, case.box[-1], **case.options)
    options = {"shape": case.shape, "strides": array.strides, **case.options} if case.pad else case.options
    return device.tensor_map(array, case.box, **options)


def run(device: Device, case: Case, change: Change = str) -> Array:
    """Do a case on a device; give the bytes that are its result. ``change`` is what becomes of the PTX before."""
    array = device.array(case.array())
    map_ = _map(device, case, array)
    given = device.array(np.full(SHARED_BYTES, 0xEE, np.uint8) if case.is_load else case.shared().view(np.uint8))
    taken = device.zeros(SHARED_BYTES, np.uint8)
    rank = len(case.start)
    start = [*reversed(case.start), 0, 0, 0, 0][:5]
    shifts = [*reversed(case.offsets), 0, 0, 0][:3]
    # Through the door that knows where the image has its parameters: one aligned to 64 bytes lies elsewhere on sm_90.
    kernel = _kernel(device, case.operation, rank, case.mode(), change)
    kernel[1, 32](map_, given, taken, case.at, map_.box_bytes, *start, *shifts)
    device.synchronize()
    result = taken if case.is_load else array
    return np.ascontiguousarray(result.numpy()).view(np.uint8).reshape(-1)


# -- cases ------------------------------------------------------------------------------------------------

# Of each rank: shape, box (outermost first, u4 elements), and boxes that are inside, before the start, over the end,
# behind it. Rows end within 16 bytes.
_RANKS: dict[int, tuple[tuple[int, ...], tuple[int, ...], dict[str, tuple[int, ...]]]] = {
    1: ((50,), (16,), {"inside": (8,), "before": (-4,), "over": (40,), "outside": (64,)}),
    2: ((20, 45), (8, 16), {"inside": (3, 8), "before": (-2, -4), "over": (15, 40), "outside": (20, 0),
                            "beside": (3, 48)}),
    3: ((5, 6, 30), (3, 4, 8), {"inside": (1, 1, 4), "before": (-1, 2, -4), "over": (3, 4, 28)}),
    4: ((3, 4, 5, 15), (2, 3, 4, 8), {"inside": (1, 0, 1, 4), "before": (1, -1, -2, -4), "over": (2, 3, 3, 12)}),
    5: ((2, 3, 3, 4, 14), (2, 2, 2, 3, 8), {"inside": (0, 1, 0, 1, 4), "before": (-1, 0, -1, 2, -4),
                                            "over": (1, 2, 2, 3, 12)}),
}  # fmt: skip
_SPANS = {"32": 8, "64": 16, "128": 32}
_TYPES = {
    "uint8": "u1", "uint16": "u2", "uint32": "u4", "int32": "i4", "uint64": "u8", "int64": "i8", "float16": "f2",
    "float32": "f4", "float64": "f8", "bfloat16": "u2", "float32_ftz": "f4", "tfloat32": "f4", "tfloat32_ftz": "f4",
}  # fmt: skip
_SPECIALS = (
    0x3F801000, 0x3F803000, 0x3F801001, 0x3F800FFF, 0x00000001, 0x807FFFFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
    0x7FC12345, 0x7F800001, 0xFFFFFFFF, 0x00801000, 0x80000000, 0x00400000, 0xBF801800, 0x3F802000, 0x7F7FEFFF,
)  # fmt: skip
# Sums, minima and maxima of these are exact, or tell how subnormal numbers and NaNs are taken.
_HALVES = (0x3C00, 0xC000, 0x4400, 0x0001, 0x8001, 0x03FF, 0x7C00, 0x7E01, 0x0000, 0x8000, 0x7BFF)
_FLOATS = (0x3F800000, 0xC0000000, 0x41000000, 0x00000001, 0x80000003, 0x007FFFFF, 0x7F800000, 0x7FC12345, 0x80000000)
_REDUCTIONS = {
    "add": "uint32 int32 uint64 float16 float32 bfloat16", "min": "uint32 int32 uint64 int64 float16 bfloat16",
    "max": "uint32 int32 uint64 int64 float16 bfloat16", "inc": "uint32", "dec": "uint32", "and": "uint32 uint64",
    "or": "uint32", "xor": "int32 uint64",
}  # fmt: skip
_WORDS = {"float16": _HALVES, "bfloat16": _HALVES, "float32": _FLOATS}


def _places() -> Iterator[Case]:
    for rank, (shape, box, starts) in _RANKS.items():
        for where, start in starts.items():
            yield Case(f"{rank}d {where}", shape, start, box, pad=-shape[-1] % 4)
            if start[-1] >= 0:
                yield Case(f"{rank}d store {where}", shape, start, box, operation="store", pad=-shape[-1] % 4)


def _prefetches() -> Iterator[Case]:
    for rank, (shape, box, starts) in _RANKS.items():
        yield Case(f"{rank}d prefetch over", shape, starts["over"], box, operation="prefetch", pad=-shape[-1] % 4)


def _swizzles() -> Iterator[Case]:
    for swizzle, wide in _SPANS.items():
        options = {"swizzle": swizzle}
        for rank, (shape, box, starts) in _RANKS.items():
            outer = (*shape[:-1], shape[-1] + 48)
            over = (*starts["over"][:-1], (outer[-1] - wide) // 4 * 4 + 4)
            for where, start in (("inside", starts["inside"]), ("over", over)):
                yield Case(f"{rank}d swizzle {swizzle} {where}", outer, start, (*box[:-1], wide), options=options,
                           pad=-outer[-1] % 4)  # fmt: skip
        shape, start = (40, 64), (3, 4)
        for at in (128, 256, 512, 1024, 1152):
            yield Case(f"swizzle {swizzle} at {at}", shape, start, (24, wide), options=options, at=at)
        for narrow in (4, 8, 12, 16, 24):
            if narrow < wide:
                yield Case(f"swizzle {swizzle} row of {4 * narrow}", shape, start, (24, narrow), options=options)
        yield Case(f"swizzle {swizzle} store", shape, (20, 48), (24, wide), operation="store", options=options)
        yield Case(f"swizzle {swizzle} store at 128", shape, start, (24, wide), operation="store", options=options,
                   at=128)  # fmt: skip


def _steps() -> Iterator[Case]:
    for steps in ((2, 1), (3, 1), (8, 1), (1, 2), (2, 4)):
        options = {"element_strides": steps}
        yield Case(f"2d steps {steps}", (40, 64), (1, 8), (16, 16), options=options)
        yield Case(f"2d steps {steps} over", (40, 64), (31, 56), (16, 16), options=options)
    ragged = {"element_strides": (2, 3, 1)}
    yield Case("3d steps", (9, 9, 16), (-1, 2, 0), (5, 4, 16), options=ragged)
    yield Case("3d steps swizzled", (9, 9, 32), (-1, 2, 0), (5, 4, 32), options={**ragged, "swizzle": "128"})
    yield Case("2d steps store", (40, 64), (1, 8), (16, 16), operation="store", options={"element_strides": (2, 1)})
    yield Case("2d strides of 0", (8, 16), (0, 0), (8, 16), options={"shape": (8, 16), "strides": (0, 4)})


def _over(type_: str) -> dict[str, Any]:
    """Give a tensor and a box over its end, of rows of 64 bytes: it begins 32 bytes before the last element ends."""
    row = 64 // np.dtype(_TYPES[type_]).itemsize
    return {"shape": (9, 2 * row - 1), "pad": 1, "box": (4, row), "start": (6, 2 * row - row // 2),
            "dtype": _TYPES[type_]}  # fmt: skip


def _types() -> Iterator[Case]:
    for type_, dtype in _TYPES.items():
        over: dict[str, Any] = {**_over(type_), "words": _WORDS.get(type_, _SPECIALS if dtype == "f4" else ())}
        options: dict[str, Any] = {"data_type": type_}
        yield Case(f"{type_} over", options=options, **over)
        yield Case(f"{type_} store", operation="store", options=options, **over)
        if "float" in type_:
            nan = {**options, "fill": "nan"}
            before = {**over, "start": (-2, -over["box"][-1] // 4)}
            yield Case(f"{type_} nan", options=nan, **over)
            yield Case(f"{type_} nan before", options=nan, **before)
            yield Case(f"{type_} nan store", operation="store", options=nan, **over)
    yield Case("float16 nan swizzled", (9, 80), (6, 40), (8, 64), "f2", options={"fill": "nan", "swizzle": "128"})


def _reductions() -> Iterator[Case]:
    for operation, types in _REDUCTIONS.items():
        for type_ in types.split():
            yield Case(f"{operation} {type_}", operation=operation, options={"data_type": type_},
                       words=_WORDS.get(type_, ()), **_over(type_))  # fmt: skip
    yield Case("add swizzled", (20, 64), (3, 4), (8, 32), "u4", "add", {"swizzle": "128"})
    shape, box, starts = _RANKS[2]
    for where in ("inside", "over", "outside", "beside"):
        start = starts[where]
        yield Case(f"add float32 {where}", shape, start, box, "f4", "add", pad=-shape[-1] % 4, words=_FLOATS)


_Corners = tuple[tuple[int, ...], tuple[int, ...]]

# Shape, corners (of unequal numbers along the axes), start, offsets.
_IMAGES: dict[str, tuple[tuple[int, ...], _Corners, tuple[int, ...], tuple[int, ...]]] = {
    "3d": ((3, 11, 16), ((-2,), (1,)), (0, -1, 4), (1,)),
    "4d": ((3, 7, 9, 16), ((-1, -2), (1, -3)), (0, 2, -2, 4), (1, 3)),
    "4d last image": ((3, 7, 9, 16), ((-1, -2), (1, -3)), (2, 5, 1, 12), (0, 2)),
    "5d": ((2, 4, 5, 6, 16), ((0, -1, -2), (-1, 1, 0)), (0, 2, 3, -1, 0), (1, 0, 2)),
}


def _im2col() -> Iterator[Case]:
    for name, (shape, corners, start, offsets) in _IMAGES.items():
        box = (*[1] * (len(shape) - 1), 8)
        more: dict[str, Any] = {"offsets": offsets, "corners": corners, "pixels": 60}
        yield Case(f"im2col {name}", shape, start, box, **more)
        steps = {"element_strides": (1, *[2] * (len(shape) - 2), 1)}
        yield Case(f"im2col {name} steps", shape, start, box, options=steps, **more)
        swizzled = {"swizzle": "32", "fill": "nan", "data_type": "float32"}
        yield Case(f"im2col {name} swizzled nan", shape, start, box, "f4", options=swizzled, **more)
        yield Case(f"im2col {name} prefetch", shape, start, box, operation="prefetch", **more)
    inside: dict[str, Any] = {"offsets": (0, 0), "corners": ((0, 1), (-1, 0)), "pixels": 60}
    for operation in ("store", "add"):
        yield Case(f"im2col {operation}", (3, 7, 9, 16), (0, 2, 3, 4), (1, 1, 1, 8), "u4", operation, **inside)


FAMILIES: dict[str, tuple[Case, ...]] = {
    "places": tuple(_places()), "prefetches": tuple(_prefetches()), "types": tuple(_types()),
    "swizzles": tuple(_swizzles()), "steps": tuple(_steps()), "reductions": tuple(_reductions()),
    "im2col": tuple(_im2col()),
}  # fmt: skip
"""Cases that are alike: one that ends a GPU's context takes no other family with it."""

CASES = tuple(itertools.chain.from_iterable(FAMILIES.values()))
