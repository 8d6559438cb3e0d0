"""Tensor copies of the CPU device (TMA), against the same copies in NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.cpu.run.tensormap import TensorMap, encode
from cujit.devices.device import Device
from cujit.devices.tensormaps.tiling import DataType, OutOfBoundsFill, Swizzle, Tiling
from cujit.errors import KernelFaultError
from instructions.scene import Scene, entry, run_scene
from raising import raises

Array = npt.NDArray[Any]
pytestmark = pytest.mark.usefixtures("unoptimised")

START = """.reg .b32 i, j, r, s; .reg .b64 at, off; .reg .pred p, first, done;
.shared .align 1024 .b8 mem[8192]; .shared .align 8 .b64 bar;
mov.u32 i, %tid.x; setp.eq.u32 first, i, 0;"""
WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 done, [bar], 0; @!done bra WAIT;"
BYTES = 4096
"""Bytes of shared memory that go to the result of every kernel."""


def copied(base: str, direction: str) -> str:
    """Copy ``BYTES`` between shared memory and the array ``base``, by all 32 threads."""
    load, store = (
        ("global.u32 r, [at]", "shared.u32 [s], r")
        if direction == "in"
        else ("shared.u32 r, [s]", "global.u32 [at], r")
    )
    return f"""mov.u32 j, i; mov.b32 s, mem; mad.lo.u32 s, i, 4, s; mul.wide.u32 off, i, 4; add.u64 at, {base}, off;
        {direction.upper()}: ld.{load}; st.{store}; add.u32 s, s, 128; add.u64 at, at, 128; add.u32 j, j, 32;
        setp.lt.u32 p, j, {BYTES // 4}; @p bra {direction.upper()};"""


class Tensor:
    """A tensor in memory of the CPU device: ``values`` has its dimensions outermost first, ``pitch`` pads its rows."""

    def __init__(self, device: Device, values: Array, pad: int = 0) -> None:
        shape = (*values.shape[:-1], values.shape[-1] + pad)
        whole = np.zeros(shape, values.dtype)
        whole[..., : values.shape[-1]] = values
        self.values = values
        self.memory = device.array(whole)
        self.strides = whole.strides

    def now(self) -> Array:
        """What it holds."""
        return np.asarray(self.memory.numpy())[..., : self.values.shape[-1]]

    def map(self, type_: DataType, box: list[int], steps: list[int] | None = None, **more: Any) -> Array:
        """Its map, for a box given outermost first."""
        taken = tuple(steps or [1] * len(box))
        tiling = Tiling(type_, self.memory.address, self.values.shape, self.strides, tuple(box), taken, **more)
        tiling.check()
        return np.frombuffer(encode(tiling), np.uint8)


def box_of(values: Array, start: list[int], box: list[int], steps: list[int], fill: Any) -> Array:
    """The box that a copy takes, outermost first; every so manieth element."""
    counts = [*(-(-n // s) for n, s in zip(box[:-1], steps[:-1], strict=True)), box[-1]]
    out = np.full(counts, fill, values.dtype)
    for index in itertools.product(*(range(n) for n in counts)):
        at = [s + i * step for s, i, step in zip(start, index, [*steps[:-1], 1], strict=True)]
        if all(0 <= a < n for a, n in zip(at, values.shape, strict=True)):
            out[index] = values[tuple(at)]
    return out


def swizzled(data: Array, span: int) -> Array:
    """Where 16-byte pieces go: the number within the span is combined with the number of the 128-byte row."""
    pieces = data.reshape(-1, 16)
    out = np.zeros_like(pieces)
    for k, piece in enumerate(pieces):
        row = k // 8
        out[k ^ (row % (span // 16) if span == 128 else (row & (span // 16 - 1))) if span else k] = piece
    return out.reshape(-1)


def load_ptx(rank: int, start: list[int], bytes_: int) -> str:
    """Load one box and give what shared memory holds; arrays: map, result."""
    coords = ", ".join(str(c) for c in reversed(start))
    body = f"""{START} {copied("p1", "in")} @first mbarrier.init.shared.b64 [bar], 1; bar.sync 0; @!first bra WAIT;
        mbarrier.arrive.expect_tx.shared.b64 _, [bar], {bytes_};
        cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
            [mem], [p0, {{{coords}}}], [bar];
        {WAIT} {copied("p1", "out")}"""
    return entry(body, 2)


def loaded(device: Device, map_: Array, start: list[int], bytes_: int) -> Array:
    """Shared memory after a load, which was all ones."""
    arrays = (map_, np.full(BYTES, 255, np.uint8))
    return run_scene(device, Scene("load", load_ptx(len(start), start, bytes_), arrays, 1, 32))[1]


BOXES = {
    "1d inside": ([64], [8], [16], None), "1d over the end": ([62], [48], [32], None),
    "2d inside": ([20, 32], [3, 8], [4, 16], None), "2d before the start": ([20, 32], [-2, -8], [4, 16], None),
    "2d over both ends": ([20, 30], [18, 24], [4, 16], None), "2d outside": ([20, 32], [40, 0], [4, 16], None),
    "2d beside": ([20, 30], [3, 32], [4, 16], None),
    "3d": ([5, 6, 16], [3, 4, 8], [3, 3, 8], None), "4d": ([3, 4, 5, 16], [1, -1, 3, 0], [2, 3, 4, 16], None),
    "5d": ([2, 3, 3, 4, 8], [0, 1, 2, -1, 4], [2, 2, 2, 3, 8], None),
    "2d with steps": ([20, 32], [1, 8], [7, 16], [3, 1]),
    "3d with steps": ([9, 9, 16], [-1, 2, 0], [5, 4, 16], [2, 3, 1]),
}  # fmt: skip


@pytest.mark.parametrize("name", BOXES)
def test_load_copies_the_box_and_fills_outside(cpu: Device, name: str) -> None:
    shape, start, box, steps = BOXES[name]
    rng = np.random.default_rng(len(name))
    tensor = Tensor(cpu, rng.integers(1, 2**31, shape).astype(np.uint32), pad=-shape[-1] % 4 + 4)
    expected = box_of(tensor.values, start, box, steps or [1] * len(box), 0)
    got = loaded(cpu, tensor.map(DataType.UINT32, box, steps), start, expected.nbytes)
    np.testing.assert_array_equal(got[: expected.nbytes].view(np.uint32), expected.reshape(-1))
    assert (got[expected.nbytes :] == 255).all()


TYPES = {
    DataType.UINT8: "u1", DataType.INT32: "i4", DataType.FLOAT16: "f2", DataType.UINT64: "u8", DataType.FLOAT64: "f8",
}  # fmt: skip


@pytest.mark.parametrize("type_", TYPES, ids=lambda t: t.name)
def test_elements_of_every_size_are_cut_at_the_end(cpu: Device, type_: DataType) -> None:
    dtype = np.dtype(TYPES[type_])
    shape, start, box = [9, 47], [6, 32], [4, 32]
    tensor = Tensor(cpu, np.random.default_rng(7).integers(1, 99, shape).astype(dtype), pad=1)
    expected = box_of(tensor.values, start, box, [1, 1], 0)
    got = loaded(cpu, tensor.map(type_, box), start, expected.nbytes)
    np.testing.assert_array_equal(got[: expected.nbytes].view(dtype), expected.reshape(-1))


@pytest.mark.parametrize("span", [32, 64, 128])
def test_swizzle_exchanges_pieces_within_its_span(cpu: Device, span: int) -> None:
    mode = {32: Swizzle.BYTES_32, 64: Swizzle.BYTES_64, 128: Swizzle.BYTES_128}[span]
    rows = 2048 // span
    tensor = Tensor(cpu, np.arange(rows * span // 2, dtype=np.uint16).reshape(rows, span // 2))
    map_ = tensor.map(DataType.UINT16, [rows, span // 2], swizzle=mode)
    got = loaded(cpu, map_, [0, 0], 2048)[:2048]
    np.testing.assert_array_equal(got, swizzled(tensor.values.view(np.uint8).reshape(-1), span))


def test_fill_value_can_be_a_nan(cpu: Device) -> None:
    tensor = Tensor(cpu, np.ones((4, 7), np.float32), pad=1)
    map_ = tensor.map(DataType.FLOAT32, [4, 8], fill=OutOfBoundsFill.NAN)
    got = loaded(cpu, map_, [2, 4], 128)[:128].view(np.float32).reshape(4, 8)
    expected = box_of(tensor.values, [2, 4], [4, 8], [1, 1], np.nan)
    np.testing.assert_array_equal(got, expected)
    assert set(got.view(np.uint32)[np.isnan(expected)]) == {0x7FF77FF7}


def out_ptx(rank: int, start: list[int], operation: str) -> str:
    """Store a box of shared memory, or reduce it into the tensor; arrays: map, box."""
    coords = ", ".join(str(c) for c in reversed(start))
    name = "cp.async.bulk.tensor" if operation == "store" else "cp.reduce.async.bulk.tensor"
    word = "" if operation == "store" else f".{operation}"
    body = f"""{START} {copied("p1", "in")} fence.proxy.async; bar.sync 0; @!first bra END;
        {name}.{rank}d.global.shared::cta{word}.tile.bulk_group [p0, {{{coords}}}], [mem]; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0; END:"""
    return entry(body, 2)


def put(device: Device, map_: Array, start: list[int], data: Array, operation: str = "store") -> None:
    """Run a store or reduction of ``data``."""
    memory = np.zeros(BYTES, np.uint8)
    memory[: data.nbytes] = data.view(np.uint8).reshape(-1)
    run_scene(device, Scene("put", out_ptx(len(start), start, operation), (map_, memory), 1, 32))


@pytest.mark.parametrize("swizzle", [Swizzle.NONE, Swizzle.BYTES_64], ids=lambda s: s.name)
@pytest.mark.parametrize("start", [[0, 0], [17, 24], [-3, 8]], ids=str)
def test_store_omits_elements_outside(cpu: Device, start: list[int], swizzle: Swizzle) -> None:
    tensor = Tensor(cpu, np.zeros((20, 32), np.uint32), pad=4)
    box = np.arange(1, 129, dtype=np.uint32).reshape(8, 16)
    data = swizzled(box.view(np.uint8).reshape(-1), 64 if swizzle else 0)
    put(cpu, tensor.map(DataType.UINT32, [8, 16], swizzle=swizzle), start, data)
    expected = np.zeros((20, 32), np.uint32)
    for r, c in itertools.product(range(8), range(16)):
        if 0 <= start[0] + r < 20 and 0 <= start[1] + c < 32:
            expected[start[0] + r, start[1] + c] = box[r, c]
    np.testing.assert_array_equal(tensor.now(), expected)


@pytest.mark.parametrize("operation", ["store", "add"])
@pytest.mark.parametrize("shape", [[5, 14], [14]], ids=str)
@pytest.mark.parametrize("room", [1, 0], ids=["padded", "to the end"])
def test_store_is_cut_at_16_bytes_and_at_the_end_of_the_array(
    cpu: Device, operation: str, shape: list[int], room: int
) -> None:
    tensor = Tensor(cpu, np.zeros(shape, np.uint32), pad=2)
    whole, start, box = (*shape[:-1], 16), [0] * len(shape), [8] * (len(shape) - 1) + [16]
    # All of the padding is the array's, or that of the last row is not.
    room_bytes = 4 * (int(np.prod(whole)) - (0 if room else 2))
    given = np.arange(1, np.prod(box) + 1, dtype=np.uint32).reshape(box)
    put(cpu, tensor.map(DataType.UINT32, box, room_bytes=room_bytes), start, given, operation)
    expected = given[: shape[0]].copy() if len(shape) > 1 else given
    if not room:
        expected.reshape(-1)[-2:] = 0
    np.testing.assert_array_equal(tensor.memory.numpy(), expected)


def test_store_stays_within_the_mapped_part(cpu: Device) -> None:
    x = cpu.zeros(64, np.uint32)
    for part, shape, written in ((x[:14], 14, 14), (x[16:32], 13, 16)):
        map_ = cpu.tensor_map(part, 16, shape=shape)
        put(cpu, np.frombuffer(bytes(map_), np.uint8), [0], np.ones(16, np.uint32))
        assert part.numpy().sum() == written
    assert x.numpy().sum() == 30


@pytest.mark.parametrize("span", [32, 64, 128])
def test_rows_narrower_than_the_swizzle_use_its_span(cpu: Device, span: int) -> None:
    mode = {32: Swizzle.BYTES_32, 64: Swizzle.BYTES_64, 128: Swizzle.BYTES_128}[span]
    rows = np.arange(1, 16 * 4 + 1, dtype=np.uint32).reshape(16, 4)
    padded = np.pad(rows, ((0, 0), (0, span // 4 - 4)))
    tensor = Tensor(cpu, rows)
    map_ = tensor.map(DataType.UINT32, [16, 4], swizzle=mode)
    data = swizzled(padded.view(np.uint8).reshape(-1), span)
    got = loaded(cpu, map_, [0, 0], 256)
    np.testing.assert_array_equal(got[: 16 * span][data != 0], data[data != 0])
    assert (got[16 * span :] == 255).all()
    assert (got == 255).sum() == BYTES - 256
    put(cpu, map_, [0, 0], data, "add")
    np.testing.assert_array_equal(tensor.now(), 2 * rows)
    put(cpu, map_, [0, 0], data)
    np.testing.assert_array_equal(tensor.now(), rows)


REDUCTIONS = {
    "add": (DataType.FLOAT32, np.add), "min": (DataType.INT32, np.minimum), "max": (DataType.FLOAT16, np.maximum),
    "xor": (DataType.UINT64, np.bitwise_xor), "and": (DataType.UINT32, np.bitwise_and),
    "or": (DataType.UINT32, np.bitwise_or),
}  # fmt: skip


@pytest.mark.parametrize("operation", REDUCTIONS)
def test_reduction_uses_the_type_of_the_map(cpu: Device, operation: str) -> None:
    type_, function = REDUCTIONS[operation]
    dtype = np.dtype({"FLOAT32": "f4", "INT32": "i4", "FLOAT16": "f2", "UINT64": "u8", "UINT32": "u4"}[type_.name])
    rng = np.random.default_rng(3)
    low = -50 if dtype.kind in "if" else 0
    tensor = Tensor(cpu, rng.integers(low, 50, (10, 16)).astype(dtype))
    box = rng.integers(low, 50, (4, 8)).astype(dtype)
    put(cpu, tensor.map(type_, [4, 8]), [8, 8], box, operation)
    expected = tensor.values.copy()
    expected[8:, 8:] = function(expected[8:, 8:], box[:2])
    np.testing.assert_array_equal(tensor.now(), expected)


@pytest.mark.parametrize(("space", "scope"), [("shared::cta", x) for x in ("cta", "gpu", "sys")] + [("global", "sys")])
def test_map_changed_by_a_kernel_describes_the_new_tensor(cpu: Device, space: str, scope: str) -> None:
    first, second = (
        Tensor(cpu, np.arange(k, k + 32 * n, dtype=np.uint32).reshape(-1, n)) for k, n in ((0, 16), (900, 32))
    )
    copy = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.SCOPE.sync.aligned [p1], [map], 128;"
    begin, generic, end = "mov.b64 to, p1;", "", "fence.proxy.tensormap::generic.release.SCOPE;"
    if space == "shared::cta":
        begin, generic, end = "mov.b64 to, map;", "cvta.shared.u64 new, to;", copy
    body = f"""{START} .reg .b64 new, to; {copied("p2", "in")} .shared .align 128 .b8 map[128];
        @!first bra JOIN; mov.u32 j, 0; {begin} mov.b64 new, to; {generic}
        COPY: cvt.u64.u32 off, j; add.u64 at, p0, off; ld.global.b64 at, [at]; add.u64 off, new, off; st.b64 [off], at;
        add.u32 j, j, 8; setp.lt.u32 p, j, 128; @p bra COPY;
        mov.u64 new, {second.memory.address};
        tensormap.replace.tile.global_address.SPACE.b1024.b64 [to], new;
        tensormap.replace.tile.global_dim.SPACE.b1024.b32 [to], 0, 32;
        tensormap.replace.tile.global_dim.SPACE.b1024.b32 [to], 1, 32;
        tensormap.replace.tile.global_stride.SPACE.b1024.b64 [to], 0, 128;
        tensormap.replace.tile.box_dim.SPACE.b1024.b32 [to], 1, 2;
        tensormap.replace.tile.element_stride.SPACE.b1024.b32 [to], 1, 1;
        tensormap.replace.tile.rank.SPACE.b1024.b32 [to], 1;
        tensormap.replace.tile.elemtype.SPACE.b1024.b32 [to], 2;
        tensormap.replace.tile.swizzle_mode.SPACE.b1024.b32 [to], 0;
        tensormap.replace.tile.fill_mode.SPACE.b1024.b32 [to], 0;
        mbarrier.init.shared.b64 [bar], 1;
        JOIN: bar.sync 0;
        {end}
        @!first bra WAIT; fence.proxy.tensormap::generic.acquire.SCOPE [p1], 128; prefetch.tensormap [p1];
        mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;
        cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [mem], [p1, {{4, 30}}], [bar];
        {WAIT} {copied("p2", "out")}"""
    body = body.replace("SPACE", space).replace("SCOPE", scope)
    arrays = (first.map(DataType.UINT32, [4, 16]), np.zeros(128, np.uint8), np.zeros(BYTES, np.uint8))
    got = run_scene(cpu, Scene("replace", entry(body, 3, target="sm_90a"), arrays, 1, 32))
    np.testing.assert_array_equal(got[2][:128].view(np.uint32), second.values[30:, 4:20].reshape(-1))


SPECIALS = [
    0x3F801000, 0x3F803000, 0x3F801001, 0x3F800FFF, 0x00000001, 0x807FFFFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
    0x7FC12345, 0x7F800001, 0x00801000, 0x80000000, 0x00400000, 0xBF801800, 0x00000000,
]  # fmt: skip


@pytest.mark.parametrize("kind", ["TFLOAT32", "TFLOAT32_FTZ", "FLOAT32_FTZ", "FLOAT32"])
def test_load_rounds_by_its_type_and_flushes_nothing(cpu: Device, kind: str) -> None:
    words = np.array(SPECIALS, np.uint32)
    tensor = Tensor(cpu, words.view(np.float32).reshape(1, 16))
    got = loaded(cpu, tensor.map(DataType[kind], [1, 16]), [0, 0], 64)[:64].view(np.uint32)
    expected = words.copy()
    nan = words & 0x7FFFFFFF > 0x7F800000
    if kind.startswith("TFLOAT32"):
        wide = words.astype(np.uint64)
        rounded = (wide + 0xFFF + (wide >> 13 & 1)) & 0xFFFFE000
        expected = np.where(nan, np.uint32(0x7FFFE000), rounded.astype(np.uint32))
    np.testing.assert_array_equal(got, expected)


WRONG = {
    "another's map": ({"mark": 0}, "didn't create"), "no map at all": (None, "didn't create"),
    "another rank": ({"last_dimension": 2}, "number of axes"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_invalid_map_for_a_load_ends_the_launch(cpu: Device, name: str) -> None:
    changes, why = WRONG[name]
    tensor = Tensor(cpu, np.ones((4, 8), np.float32))
    data = TensorMap.from_buffer_copy(bytes(tensor.map(DataType.FLOAT32, [4, 8])))
    for field, value in (changes or {}).items():
        setattr(data, field, value)
    given = np.frombuffer(bytes(data), np.uint8) if changes else np.full(128, 0x5A, np.uint8)
    with raises(KernelFaultError, "fault-tensor-map", "0", why, "bulk.tensor") as e:
        loaded(cpu, given, [0, 0], 128)
    assert e.value.kind == "tensor_map"


@pytest.mark.parametrize(
    ("operation", "name"),
    [("add", "UINT8"), ("add", "INT64"), ("add", "FLOAT64"), ("and", "INT64"), ("or", "INT64"), ("xor", "INT64")],
)
def test_reduction_that_the_type_lacks_ends_the_launch(cpu: Device, operation: str, name: str) -> None:
    tensor = Tensor(cpu, np.zeros((4, 16), {"UINT8": "u1", "INT64": "i8", "FLOAT64": "f8"}[name]))
    with raises(KernelFaultError, "fault-tensor-map"):
        put(cpu, tensor.map(DataType[name], [4, 16]), [0, 0], tensor.values, operation)


@pytest.mark.parametrize("operation", ["store", "add"])
@pytest.mark.parametrize("rank", range(1, 6))
def test_store_that_begins_before_the_tensor_ends_the_launch(cpu: Device, operation: str, rank: int) -> None:
    shape = [4, 3, 2, 2, 16][-rank:]
    tensor = Tensor(cpu, np.zeros(shape, np.float32))
    box = [1] * (rank - 1) + [16]
    map_ = tensor.map(DataType.FLOAT32, box)
    with raises(KernelFaultError, "fault-tensor-start", "thread (0, 0, 0)", f"tensor.{rank}d") as e:
        put(cpu, map_, [0] * (rank - 1) + [-4], np.ones(16, np.float32), operation)
    assert e.value.kind == "tensor_start"
    assert not tensor.now().any()


@pytest.mark.parametrize("value", [1, 0x807FFFFF], ids=hex)
def test_reduction_adds_subnormal_numbers(cpu: Device, value: int) -> None:
    words = np.full((4, 8), value, np.uint32)
    tensor = Tensor(cpu, words.view(np.float32))
    put(cpu, tensor.map(DataType.FLOAT32, [4, 8]), [0, 0], words.view(np.float32), "add")
    np.testing.assert_array_equal(tensor.now().view(np.uint32), words + (value & 0x7FFFFFFF))


COPIES = {
    "load": "shared::cluster.global.tile.mbarrier::complete_tx::bytes [mem], [p0, {{{}, 0}}], [bar]",
    "store": "global.shared::cta.tile.bulk_group [p0, {{{}, 0}}], [mem]",
    "reduction": "global.shared::cta.add.tile.bulk_group [p0, {{{}, 0}}], [mem]",
    "prefetch": "L2.global.tile [p0, {{{}, 0}}]",
}
NAMES = {"prefetch": "cp.async.bulk.prefetch.tensor", "reduction": "cp.reduce.async.bulk.tensor"}
STARTS = {"u1": (-8, 16), "f2": (4, -8), "u4": (-5, 8), "u8": (1, -2)}
"""Starts along the innermost axis that are no multiples of 16 bytes, and some that are."""


@pytest.mark.parametrize(("copy", "dtype"), [x for x in itertools.product(COPIES, STARTS) if x != ("reduction", "u1")])
def test_box_not_aligned_to_16_bytes_ends_the_launch(cpu: Device, copy: str, dtype: str) -> None:
    kind = {"u1": DataType.UINT8, "f2": DataType.FLOAT16, "u4": DataType.UINT32, "u8": DataType.UINT64}[dtype]
    tensor = Tensor(cpu, np.zeros((4, 32), dtype))
    map_, wrong, right = tensor.map(kind, [4, 16]), *STARTS[dtype]
    begin = tensor.memory.address + wrong * np.dtype(dtype).itemsize

    def run(start: int) -> None:
        line = f"{NAMES.get(copy, 'cp.async.bulk.tensor')}.2d.{COPIES[copy].format(start)};"
        body = f"{START} @first mbarrier.init.shared.b64 [bar], 1; bar.sync 0; @!first bra END;\n{line}\nEND:"
        run_scene(cpu, Scene("start", entry(body, 2), (map_, np.zeros(BYTES, np.uint8)), 1, 32))

    run(right if copy in ("load", "prefetch") else abs(right))
    with raises(KernelFaultError, "fault-bulk-align", "tensor.2d") as e:
        run(wrong)
    assert (e.value.kind, e.value.address) == ("bulk_align", begin)


def test_box_not_aligned_to_128_bytes_ends_the_launch(cpu: Device) -> None:
    tensor = Tensor(cpu, np.ones((4, 8), np.float32))
    ptx = load_ptx(2, [0, 0], 128).replace("[mem], [p0", "[mem+64], [p0")
    arrays = (tensor.map(DataType.FLOAT32, [4, 8]), np.zeros(BYTES, np.uint8))
    with raises(KernelFaultError, "fault-bulk-align"):
        run_scene(cpu, Scene("askew", ptx, arrays, 1, 32))


def test_tensor_not_aligned_to_16_bytes_ends_the_launch(cpu: Device) -> None:
    tensor = Tensor(cpu, np.ones((5, 8), np.float32))
    data = TensorMap.from_buffer_copy(bytes(tensor.map(DataType.FLOAT32, [4, 8])))
    data.global_address += 4  # as tensormap.replace could write it
    with raises(KernelFaultError, "fault-bulk-align"):
        loaded(cpu, np.frombuffer(bytes(data), np.uint8), [0, 0], 128)
