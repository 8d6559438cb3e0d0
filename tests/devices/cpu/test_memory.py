"""Loads and stores of every space and form, with every pattern of addresses, on every device."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.base import Device
from cujit.kernel import jit, load

HEAD = ".version 7.8\n.target sm_80\n.address_size 64\n"


def test_addresses_that_wrap_inside_a_warp_are_still_right(device: Device) -> None:
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


def test_local_arrays_with_moving_indices_belong_to_their_thread(device: Device) -> None:
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


def test_a_pointer_may_lead_to_any_space(device: Device) -> None:
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


def test_variables_keep_what_kernels_write_and_hold_each_others_addresses(device: Device) -> None:
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


def test_structures_by_value_are_read_at_constant_and_moving_offsets(device: Device) -> None:
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


def test_the_last_lane_that_stores_to_one_address_wins(cpu: Device) -> None:
    text = """extern "C" __global__ void k(int *out, int n) { if ((int)threadIdx.x < n) *out = threadIdx.x; }"""
    target = cpu.array(np.zeros(1, np.int32))
    jit(text, names=["k"], device=cpu)["k"][1, 32](target, 21)
    assert target.numpy().tolist() == [20]
