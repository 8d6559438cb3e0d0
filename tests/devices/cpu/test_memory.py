"""Loads and stores of every space and form, with every pattern of addresses, on every device."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cujit.artifact import Artifact
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import ir_of, prepare
from cujit.devices.device import Device
from cujit.devices.jit import optimise
from cujit.devices.shapes import Dim3
from cujit.formats.ptx.parser import parse
from cujit.loading import jit, load
from devices.cpu.launching import blank, run_ptx
from instructions.scene import Scene, difference, entry, run_scene
from instructions.scenes_memory import SCENES as LOADS_AND_STORES

HEAD = ".version 7.8\n.target sm_80\n.address_size 64\n"


def test_addresses_that_wrap_inside_a_warp_are_right(device: Device) -> None:
    # i wraps past 2**32 within one warp, so that the widened address is not one run of memory.
    module = jit(
        """extern "C" __global__ void k(const unsigned *in, unsigned *out, unsigned start) {
            unsigned i = start + threadIdx.x;
            out[threadIdx.x] = in[(size_t)i % 64];
        }
        extern "C" __global__ void widen(unsigned long long *out, unsigned start, int signed_start) {
            unsigned i = start + threadIdx.x; int j = signed_start + (int)threadIdx.x;
            out[2 * threadIdx.x] = 4ull * i; out[2 * threadIdx.x + 1] = (unsigned long long)(4ll * j);
        }""",
        names=["k", "widen"],
        device=device,
    )
    out = device.array(np.zeros(64, np.uint64))
    start, signed_start = 2**32 - 10, 2**31 - 10
    module["widen"][1, 32](out, start, signed_start)
    threads = np.arange(32)
    i = (start + threads) % 2**32
    j = (signed_start + threads + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(out.numpy()[0::2], (4 * i).astype(np.uint64))
    np.testing.assert_array_equal(out.numpy()[1::2].astype(np.int64), 4 * j)
    source, copied = device.array(np.arange(64, dtype=np.uint32)), device.array(np.zeros(32, np.uint32))
    module["k"][1, 32](source, copied, start)
    np.testing.assert_array_equal(copied.numpy(), i % 64)


@pytest.mark.parametrize("step", [16, 32])
def test_multiple_of_a_count_is_widened_with_or_without_wrap(step: int, device: Device) -> None:
    text = f"""{HEAD}.visible .entry k(.param .u64 out, .param .u32 start) {{
.reg .b32 i, t, n; .reg .b64 p, o; ld.param.u64 p, [out]; ld.param.u32 n, [start]; mov.u32 t, %tid.x;
mad.lo.u32 i, n, {step}, t; mul.wide.u32 o, i, 4; mad.wide.u32 p, t, 8, p; st.global.u64 [p], o; ret; }}"""
    out = device.array(np.zeros(32, np.uint64))
    load(Artifact.of(text), device)["k"][1, 32](out, 2**32 // step - 1)
    np.testing.assert_array_equal(out.numpy(), (np.arange(32) + 2**32 - step) % 2**32 * 4)


@pytest.mark.parametrize(
    ("kind", "factor"), [("u32", -1171354717), ("s32", 3123612579), ("u32", -4), ("s32", 2**32 - 4)]
)
def test_factor_of_a_wide_product_is_extended_by_its_type(kind: str, factor: int, cpu: Device) -> None:
    code = f"mov.u32 r2, %tid.x; mul.wide.{kind} d0, r2, {factor}; shr.u64 d2, d0, 30; cvt.u32.u64 r1, d2;"
    out = run_ptx(cpu, f"{code} mul.wide.u32 d1, r0, 4; add.u64 d1, p0, d1; st.global.u32 [d1], r1;", blank(32))
    value = factor % 2**32 if kind == "u32" else (factor + 2**31) % 2**32 - 2**31
    assert out[0].tolist() == [(t * value % 2**64 >> 30) % 2**32 for t in range(32)]


@pytest.mark.parametrize(("step", "asks"), [(16, True), (32, False)])
def test_count_from_a_multiple_of_lanes_needs_no_wrap_check(step: int, asks: bool) -> None:
    index = f"mov.u32 t, %ctaid.x; mov.u32 i, %tid.x; mad.lo.u32 i, t, {step}, i; mad.wide.u32 a, i, 4, p0;"
    text = entry(f".reg .b32 i, t, r; .reg .b64 a; {index} ld.global.u32 r, [a]; st.global.u32 [a], r;", 1)
    assert ("@cujit_gather_32(" in emitted_ir(text)) == asks


@pytest.mark.parametrize("stride", [0, 1, 2, 3, -1])
@pytest.mark.parametrize("kind", ["char", "short", "int", "long long", "float", "double"])
def test_every_stride_and_width_is_read_and_written(device: Device, kind: str, stride: int) -> None:
    text = f"""extern "C" __global__ void k(const {kind} *in, {kind} *out, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {{ {kind} v = in[100 + i * ({stride})]; out[150 + i * ({stride or 1})] = v; }}
    }}"""
    types = {"char": "i1", "short": "i2", "int": "i4", "long long": "i8", "float": "f4", "double": "f8"}
    values = np.arange(400).astype(types[kind])
    source, target = device.array(values), device.array(np.zeros(400, types[kind]))
    jit(text, names=["k"], device=device)["k"][2, 40](source, target, 45)
    expected = np.zeros(400, types[kind])
    for i in range(45):
        expected[150 + i * (stride or 1)] = values[100 + i * stride]
    np.testing.assert_array_equal(target.numpy(), expected)


@pytest.mark.parametrize(
    ("vector", "count"), [("float2", 2), ("float4", 4), ("uchar4", 4), ("double2", 2), ("short2", 2)]
)
def test_vectors_are_read_and_written_whole(device: Device, vector: str, count: int) -> None:
    text = f"""extern "C" __global__ void k(const {vector} *in, {vector} *out, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {{ {vector} v = in[i]; v.x += 1; v.y *= 2; out[n - 1 - i] = v; out[n + i] = v; }}
    }}"""
    dtype = {"float": np.float32, "uchar": np.uint8, "double": np.float64, "short": np.int16}[vector.rstrip("24")]
    n = 75
    values = (np.arange(n * count) % 50).reshape(n, count).astype(dtype)
    source, target = device.array(values), device.array(np.zeros((2 * n, count), dtype))
    jit(text, names=["k"], device=device)["k"][3, 32](source, target, n)
    expected = values.copy()
    expected[:, 0] += 1
    expected[:, 1] *= 2
    np.testing.assert_array_equal(target.numpy(), np.concatenate([expected[::-1], expected]))


def test_vectors_with_a_thrown_away_element_are_read(device: Device) -> None:
    ptx = (
        HEAD
        + """.visible .entry k(.param .u64 in, .param .u64 out) {
        .reg .b64 %a<5>; .reg .b32 %r<5>;
        ld.param.u64 %a1, [in]; ld.param.u64 %a2, [out]; mov.u32 %r1, %tid.x;
        mad.wide.u32 %a3, %r1, 16, %a1; mad.wide.u32 %a4, %r1, 8, %a2;
        ld.global.v4.u32 {%r2, _, _, %r3}, [%a3];
        st.global.v2.u32 [%a4], {%r3, %r2};
        ret; }"""
    )
    values = np.arange(128, dtype=np.uint32)
    source, target = device.array(values), device.array(np.zeros(64, np.uint32))
    load(ptx.encode(), device)["k"][1, 32](source, target)
    np.testing.assert_array_equal(target.numpy().reshape(32, 2), values.reshape(32, 4)[:, [3, 0]])


def test_local_arrays_with_variable_indices_are_per_thread(device: Device) -> None:
    text = """extern "C" __global__ void k(int *out, int n) {
        int mine[16];
        for (int i = 0; i < 16; i++) mine[(i * 5 + threadIdx.x) & 15] = i * 100 + threadIdx.x;
        int sum = 0;
        for (int i = 0; i < n; i++) sum = sum * 3 + mine[(i + threadIdx.x * 7) & 15];
        out[threadIdx.x] = sum;
    }"""
    target = device.array(np.zeros(50, np.int32))
    jit(text, names=["k"], device=device)["k"][1, 50](target, 9)
    expected = []
    for t in range(50):
        mine = {(i * 5 + t) & 15: i * 100 + t for i in range(16)}
        total = 0
        for i in range(9):
            total = total * 3 + mine[(i + t * 7) & 15]
        expected.append((total + 2**31) % 2**32 - 2**31)
    np.testing.assert_array_equal(target.numpy(), expected)


def test_pointer_may_lead_to_any_space(device: Device) -> None:
    text = """__device__ int table[4] = {10, 20, 30, 40};
    __device__ __noinline__ int read(const int *p, int i) { return p[i & 1]; }
    extern "C" __global__ void k(const int *in, int *out) {
        __shared__ int shared[64]; int local[2] = {(int)threadIdx.x, -(int)threadIdx.x};
        shared[threadIdx.x] = 1000 + threadIdx.x;
        const int *p = threadIdx.x % 4 == 0 ? in : threadIdx.x % 4 == 1 ? table
                     : threadIdx.x % 4 == 2 ? &shared[threadIdx.x & ~1] : local;
        out[threadIdx.x] = read(p, threadIdx.x % 4 == 2 ? 0 : threadIdx.x >> 2);
    }"""
    source, target = device.array(np.array([7, 8], np.int32)), device.array(np.zeros(64, np.int32))
    jit(text, names=["k"], device=device)["k"][1, 64](source, target)
    t = np.arange(64)
    odd = (t >> 2) & 1
    expected = np.select([t % 4 == 0, t % 4 == 1, t % 4 == 2], [7 + odd, 10 + 10 * odd, 1000 + t], np.where(odd, -t, t))
    np.testing.assert_array_equal(target.numpy(), expected)


def test_static_and_dynamic_shared_memory_do_not_overlap(device: Device) -> None:
    text = """extern "C" __global__ void k(int *out, int n) {
        __shared__ int first[32]; __shared__ double second[8]; extern __shared__ int rest[];
        int t = threadIdx.x;
        first[t] = t; if (t < 8) second[t] = t * 0.5; for (int i = t; i < n; i += 32) rest[i] = 5000 + i;
        int sum = first[t] + (t < 8 ? (int)(second[t] * 4) : 0);
        for (int i = t; i < n; i += 32) sum += rest[i];
        out[t] = sum;
    }"""
    kernel = jit(text, names=["k"], device=device)["k"]
    target = device.array(np.zeros(32, np.int32))
    kernel[1, 32, 4 * 100](target, 100)
    t = np.arange(32)
    rest = np.array([sum(5000 + i for i in range(k, 100, 32)) for k in range(32)])
    np.testing.assert_array_equal(target.numpy(), t + np.where(t < 8, 2 * t, 0) + rest)
    assert kernel.resources.shared_bytes >= 32 * 4 + 8 * 8


def test_variables_keep_values_and_hold_each_others_addresses(device: Device) -> None:
    text = """__constant__ float scale[3] = {0.5f, 2.0f, -1.0f};
    __device__ int counter[2] = {5, 6}; __device__ int *where = &counter[1]; __device__ unsigned char byte = 200;
    extern "C" __global__ void write(int v) { if (threadIdx.x == 0) { counter[0] += v; *where += 10 * v; } }
    extern "C" __global__ void read(float *out) {
        out[0] = counter[0]; out[1] = counter[1]; out[2] = scale[threadIdx.x + 1]; out[3] = byte;
    }"""
    module = jit(text, names=["write", "read"], device=device)
    module["write"][1, 32](3)
    module["write"][1, 32](1)
    out = device.array(np.zeros(4, np.float32))
    module["read"][1, 1](out)
    assert out.numpy().tolist() == [9.0, 46.0, 2.0, 200.0]


def test_structures_are_read_at_constant_and_variable_offsets(device: Device) -> None:
    text = """struct Box { char tag; double weight; int many[6]; float tail; };
    extern "C" __global__ void k(double *out, Box box, int shift) {
        int t = threadIdx.x;
        out[t] = box.tag + box.weight + box.many[(t + shift) % 6] + box.tail;
    }"""
    box = np.zeros((), np.dtype({"names": ["tag", "weight", "many", "tail"], "formats": ["i1", "f8", ("i4", 6), "f4"],
                                 "offsets": [0, 8, 16, 40], "itemsize": 48}))  # fmt: skip
    box["tag"], box["weight"], box["many"], box["tail"] = -3, 0.25, np.arange(6) * 11, 1.5
    target = device.array(np.zeros(20, np.float64))
    jit(text, names=["k"], device=device)["k"][1, 20](target, box[()], 2)
    t = np.arange(20)
    np.testing.assert_array_equal(target.numpy(), -3 + 0.25 + (t + 2) % 6 * 11 + 1.5)


def test_last_lane_that_stores_to_an_address_wins(cpu: Device) -> None:
    text = """extern "C" __global__ void k(int *out, int n) { if ((int)threadIdx.x < n) *out = threadIdx.x; }"""
    target = cpu.array(np.zeros(1, np.int32))
    jit(text, names=["k"], device=cpu)["k"][1, 32](target, 21)
    assert target.numpy().tolist() == [20]


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("scene", LOADS_AND_STORES, ids=lambda s: s.name)
def test_every_order_and_hint_moves_the_bytes(cpu: Device, scene: Scene) -> None:
    data, _, others, one = scene.arrays
    size = one.size
    rows = data.reshape(-1, size)
    thread = np.arange(len(rows))
    expected = [data, data, others.copy(), one]
    if ".shared." not in scene.name:
        swapped = others.copy().reshape(-1, size)
        odd = thread[thread % 2 == 1] ^ 21
        swapped[odd] = rows[odd]
        expected[2:] = [swapped.reshape(-1), rows[1]]
    assert not difference(scene, run_scene(cpu, scene), expected)


def emitted_ir(ptx: str) -> str:
    """The LLVM IR of the entry ``k``, for blocks of 32."""
    module = parse(ptx)
    refusals = Refusals()
    body = prepare(module.entries[0], ModuleLayout(module, refusals), refusals)
    assert not refusals.items
    return ir_of(body, Dim3(32))


def kernel_ir(ptx: str) -> str:
    """The LLVM IR of the entry ``k`` after optimisation, for blocks of 32."""
    return str(optimise(emitted_ir(ptx)))


@pytest.mark.parametrize("words", ["volatile", "relaxed.gpu", "mmio.relaxed.sys"])
def test_strong_load_or_store_is_executed_each_time(words: str) -> None:
    body = f"""ld.{words}.global.u32 r, [p0]; ld.{words}.global.u32 r, [p0]; ld.{words}.global.u32 r, [p0];
        st.{words}.global.u32 [p1], 1; st.{words}.global.u32 [p1], 2; st.global.u32 [p1+4], r;"""
    strong = kernel_ir(entry(f".reg .b32 r;{body}", 2))
    weak = kernel_ir(entry(f".reg .b32 r;{body.replace(f'.{words}', '')}", 2))
    assert strong.replace("store volatile", "store").count("store i32") == 3
    assert weak.count("store i32") == 2


def test_wide_words_are_atomic_for_other_threads(cpu: Device) -> None:
    # Blocks write words of 16 equal bytes while others read: a word of unequal bytes would be half of two writes.
    body = """.reg .b64 a, b; .reg .b32 n, bad, t; .reg .b128 w; .reg .pred p, q; mov.u32 n, 0; mov.u32 bad, 0;
        mov.u32 t, %ctaid.x; cvt.u64.u32 a, t; mul.lo.u64 a, a, 0x0101010101010101; mov.b128 w, {a, a};
        LOOP: st.relaxed.gpu.global.b128 [p0], w; ld.relaxed.gpu.global.b128 w, [p0]; mov.b128 {a, b}, w;
        setp.ne.u64 p, a, b; @p add.u32 bad, bad, 1; add.u32 n, n, 1; setp.lt.u32 q, n, 3000; @q bra LOOP;
        atom.global.add.u32 t, [p1], bad;"""
    scene = Scene("whole", entry(body, 2), (np.zeros(2, np.uint64), np.zeros(1, np.uint32)), 8, 1)
    assert run_scene(cpu, scene)[1].tolist() == [0]


@pytest.mark.parametrize("apart", [0, 16])
@pytest.mark.parametrize("kind", ["v2.u16", "v2.u32", "v4.u16", "v2.u64", "v2.f32", "v2.f64"])
def test_strong_vectors_are_atomic_for_other_threads(kind: str, apart: int, device: Device) -> None:
    # A scan over a grid hands a flag and a value over in one vector, and would take one with another's value for right.
    # Every second block writes. An H200 tears v4.u32.
    bits, names = kind[-2:], [f"w{k}" for k in range(int(kind[1]))]
    group, makes = ", ".join(names), " ".join(f"cvt.u{bits}.u32 {name}, t;" for name in names)
    body = f""".reg .b{bits} {group}; .reg .b32 n, bad, t; .reg .b64 at; .reg .pred p, q, writes;
        mov.u32 t, %tid.x; mul.wide.u32 at, t, {apart}; add.u64 at, at, p0; mov.u32 bad, 0;
        mov.u32 t, %ctaid.x; and.b32 n, t, 1; setp.eq.u32 writes, n, 0; mov.u32 n, 0;
        LOOP: add.u32 t, t, 7; {makes.replace("cvt.u32.u32", "mov.b32")}
        @writes st.relaxed.gpu.global.{kind} [at], {{{group}}}; ld.relaxed.gpu.global.{kind} {{{group}}}, [at];
        setp.ne.b{bits} p, w0, {names[-1]}; @p add.u32 bad, bad, 1;
        add.u32 n, n, 1; setp.lt.u32 q, n, 5000; @q bra LOOP; atom.global.add.u32 t, [p1], bad;"""
    given = np.zeros(512, np.uint8), np.zeros(1, np.uint32)
    assert run_scene(device, Scene("whole", entry(body, 2), given, 64, 32))[1].tolist() == [0]


def test_flag_hands_data_over_between_blocks(cpu: Device) -> None:
    # Every block waits for the one before, reads what it left, and adds to it.
    body = """.reg .b32 i, n, seen, v; .reg .b64 at, off; .reg .pred p, first;
        mov.u32 i, %tid.x; mov.u32 n, %ctaid.x; mul.wide.u32 off, i, 4; add.u64 at, p1, off;
        WAIT: ld.acquire.gpu.global.u32 seen, [p0]; setp.ne.u32 p, seen, n; @p bra WAIT;
        ld.global.u32 v, [at]; add.u32 v, v, i; add.u32 v, v, n; st.global.u32 [at], v; bar.sync 0;
        setp.eq.u32 first, i, 0; add.u32 n, n, 1; @first st.release.gpu.global.u32 [p0], n;"""
    got = run_scene(cpu, Scene("hand over", entry(body, 2), (np.zeros(1, np.uint32), np.zeros(64, np.uint32)), 20, 64))
    assert got[0].tolist() == [20]
    np.testing.assert_array_equal(got[1], 20 * np.arange(64) + sum(range(20)))


@pytest.mark.parametrize(("vector", "type_"), [("v8", "b32"), ("v4", "b64"), ("v8", "f32")])
def test_vectors_of_32_bytes_are_read_and_written(cpu: Device, vector: str, type_: str) -> None:
    names = ", ".join(f"x{k}" for k in range(int(vector[1:])))
    body = f""".reg .b64 at, to, off; .reg .b32 i; .reg .{type_} {names}; mov.u32 i, %tid.x;
        mul.wide.u32 off, i, 32; add.u64 at, p0, off; xor.b32 i, i, 9; mul.wide.u32 off, i, 32; add.u64 to, p1, off;
        ld.global.{vector}.{type_} {{{names}}}, [at]; st.global.{vector}.{type_} [to], {{{names}}};"""
    data = np.arange(32 * 32, dtype=np.uint16).view(np.uint8)[: 32 * 32]
    got = run_scene(cpu, Scene("v8", entry(body, 2, target="sm_100", version="8.8"), (data, data * 0), 1, 32))
    np.testing.assert_array_equal(got[1].reshape(32, 32), data.reshape(32, 32)[np.arange(32) ^ 9])


def test_single_block_is_a_cluster_of_one(cpu: Device) -> None:
    body = """.reg .b32 s, v, d; .reg .b64 g; .reg .pred p; .shared .b32 mem; mov.b32 s, mem; st.shared.u32 [s], 42;
        mapa.shared::cluster.u32 d, s, 0; ld.shared::cluster.u32 v, [d]; st.global.u32 [p0], v;
        cvt.u64.u32 g, s; cvta.shared.u64 g, g; mapa.u64 g, g, 0; ld.u32 v, [g]; st.global.u32 [p0+4], v;
        getctarank.shared::cluster.u32 v, d; st.global.u32 [p0+8], v;
        isspacep.shared::cluster p, g; selp.u32 v, 1, 0, p; st.global.u32 [p0+12], v;
        ld.shared::cluster.u32 v, [s]; st.global.u32 [p0+16], v;"""
    assert run_scene(cpu, Scene("alone", entry(body, 1), (np.zeros(5, np.uint32),), 1, 1))[0].tolist() == [
        42,
        42,
        0,
        1,
        42,
    ]


@pytest.mark.parametrize(("type_", "value"), [("u8", "r5"), ("u16", "h1"), ("u32", "r5"), ("u64", "d1")])
def test_guarded_store_without_lanes_may_have_any_address(device: Device, type_: str, value: str) -> None:
    size = int(type_[1:]) // 8
    body = f""".reg .b16 h1; ld.global.u32 r1, [p1]; mul.lo.u32 r2, r1, 4194304; mad.lo.u32 r3, lane, {size}, box0;
    st.shared.u8 [box], r1; add.u32 r3, r3, r2; setp.gt.u32 q1, lane, r1;
    mov.u32 r5, lane; cvt.u64.u32 d1, lane; cvt.u16.u32 h1, lane;
    @q1 st.shared.{type_} [r3], {value};
    ld.shared.u8 r6, [box]; st.global.u32 [at], r6;"""
    body = ".reg .u32 box0; mov.u32 box0, box;\n" + body
    got, _ = run_ptx(device, body, blank(32), np.full(1, 100, np.uint32), outside=".shared .align 8 .b8 box[256];")
    assert (got == 100).all()


@pytest.mark.parametrize("type_", ["b8", "b16", "b32", "b64", "f32", "f64"])
def test_kernels_call_shared_code_for_per_lane_accesses(type_: str) -> None:
    """Functions that each kernel had for itself were half of what there is to compile."""
    register = {"b8": "b16"}.get(type_, type_)
    text = (
        f"{HEAD}.visible .entry k(.param .u64 p) {{ .reg .{register} x; .reg .b32 t; .reg .b64 a, b;\n"
        "ld.param.u64 a, [p]; mov.u32 t, %tid.x; mul.lo.u32 t, t, t; mad.wide.u32 b, t, 8, a;\n"
        f"ld.global.{type_} x, [b]; st.global.{type_} [b+4096], x; ret; }}"
    )
    ir = emitted_ir(text)
    assert ir.count("\ndefine ") + ir.startswith("define ") == 1
    bits = int(type_[1:])
    assert f"@cujit_gather_{bits}(" in ir
    assert f"@cujit_scatter_{bits}(" in ir


def test_basic_blocks_stay_short_enough_for_the_code_generator(cpu: Device) -> None:
    # LLVM finds that no branch is taken, and would make one block of all.
    lines = "".join(
        f"ld.global.u32 r, [p0 + {4 * k}]; add.u32 s, s, r; st.global.u32 [p1 + {4 * k}], s; "
        f"setp.eq.u32 q, i, {k + 2}; @q bra DONE;\n"
        for k in range(400)
    )
    body = f".reg .b32 i, r, s; .reg .pred q; mov.u32 i, 0; mov.u32 s, 0;\nL: {lines} add.u32 i, i, 1;" + (
        "setp.lt.u32 q, i, 2; @q bra L; DONE:"
    )
    ir = kernel_ir(entry(body, 2))
    blocks = re.split(r"^[\w.$\"]+:", ir, flags=re.MULTILINE)
    touches = [len(re.findall(r"\b(?:load|store|call)\b", block)) for block in blocks]
    assert sum(touches) > 600
    assert max(touches) < 500
    given = np.arange(400, dtype="u4")
    _, out = run_ptx(cpu, body, given, blank(400))
    assert np.array_equal(out, np.cumsum(given) + np.sum(given))
