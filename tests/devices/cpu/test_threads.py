"""Indices, block shapes, calls and jumps."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.errors import LoadError, PtxSyntaxError, UnsupportedError
from cujit.loading import jit, load
from cujit.program import compile
from raising import raises

HEAD = ".version 7.8\n.target sm_80\n.address_size 64\n"

WHO = """extern "C" __global__ void who(uint4 *out) {
    int threads = blockDim.x * blockDim.y * blockDim.z;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned lane; asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    out[block * threads + thread] = make_uint4(threadIdx.x | threadIdx.y << 10 | threadIdx.z << 20,
        blockIdx.x | blockIdx.y << 10 | blockIdx.z << 20, lane, gridDim.x | gridDim.y << 10 | gridDim.z << 20);
}"""


@pytest.mark.parametrize(
    "block",
    [
        (1, 1, 1),
        (32, 1, 1),
        (33, 1, 1),
        (7, 5, 3),
        (16, 16, 1),
        (8, 8, 8),
        (64, 2, 2),
        (1, 64, 1),
        (4, 1, 9),
        (31, 33, 1),
    ],
)
def test_threads_of_every_block_shape_have_their_indices(device: Device, block: tuple[int, int, int]) -> None:
    grid = (3, 2, 2)
    threads, blocks = int(np.prod(block)), int(np.prod(grid))
    out = device.array(np.zeros((blocks * threads, 4), np.uint32))
    jit(WHO, names=["who"], device=device)["who"][grid, block](out)
    b, t = np.divmod(np.arange(blocks * threads), threads)

    def packed(index: np.ndarray, sizes: tuple[int, int, int]) -> np.ndarray:
        x, y, z = index % sizes[0], index // sizes[0] % sizes[1], index // sizes[0] // sizes[1]
        return np.asarray(x | y << 10 | z << 20)

    expected = np.stack([packed(t, block), packed(b, grid), t % 32, np.full_like(t, 3 | 2 << 10 | 2 << 20)], axis=1)
    np.testing.assert_array_equal(out.numpy(), expected)


def test_grid_of_many_blocks_runs_each_block_once(device: Device) -> None:
    text = """extern "C" __global__ void k(unsigned char *out) { out[blockIdx.x * blockDim.x + threadIdx.x] += 1; }"""
    out = device.array(np.zeros(5003 * 64, np.uint8))
    jit(text, names=["k"], device=device)["k"][5003, 64](out)
    assert (out.numpy() == 1).all()


def test_calls_pass_structures_and_results(device: Device) -> None:
    text = """struct Pair { int a; double b; };
    __device__ __noinline__ Pair twist(Pair p, char by) { Pair q; q.a = p.a * by; q.b = p.b - p.a; return q; }
    __device__ __noinline__ double reach(Pair p, int i) { const int *w = (const int *)&p; return w[i & 3] * 1.0; }
    extern "C" __global__ void k(double *out) {
        Pair p; p.a = threadIdx.x; p.b = threadIdx.x * 0.5;
        for (int i = 0; i < (int)threadIdx.x % 3 + 1; i++) p = twist(p, (char)(-2 - i));
        out[2 * threadIdx.x] = p.a; out[2 * threadIdx.x + 1] = p.b + reach(p, 0);
    }"""
    out = device.array(np.zeros(80, np.float64))
    jit(text, names=["k"], device=device)["k"][1, 40](out)
    expected = []
    for t in range(40):
        a, b = t, t * 0.5
        for i in range(t % 3 + 1):
            a, b = a * (-2 - i), b - a
        expected += [a, b + a]
    np.testing.assert_array_equal(out.numpy(), expected)


def test_jump_tables_diverge_and_reconverge_lanes(device: Device) -> None:
    ptx = (
        HEAD
        + """.visible .entry k(.param .u64 out) {
        .reg .b64 %a<4>; .reg .b32 %r<8>;
        ld.param.u64 %a1, [out]; mov.u32 %r1, %tid.x; rem.u32 %r2, %r1, 4; mov.u32 %r3, 7;
        ts: .branchtargets A, B, C, A;
        brx.idx %r2, ts;
        A: add.s32 %r3, %r3, 100; bra J;
        B: mul.lo.s32 %r3, %r3, %r1; bra C;
        C: add.s32 %r3, %r3, 1;
        J: mad.wide.u32 %a2, %r1, 4, %a1; st.global.u32 [%a2], %r3; ret; }"""
    )
    out = device.array(np.zeros(64, np.int32))
    load(ptx.encode(), device)["k"][1, 64](out)
    t = np.arange(64)
    np.testing.assert_array_equal(out.numpy(), np.select([t % 4 == 1, t % 4 == 2], [7 * t + 1, 8], 107))


def test_lanes_that_return_early_keep_their_values(device: Device) -> None:
    text = """extern "C" __global__ void k(int *out, int n) {
        int t = threadIdx.x;
        if (t % 3 == 0) return;
        for (int i = 0; i < n; i++) { if (i == t) { out[t] = i; return; } if ((i ^ t) % 7 == 6) break; }
        out[t] = -t;
    }"""
    out = device.array(np.full(64, 99, np.int32))
    jit(text, names=["k"], device=device)["k"][1, 64](out, 40)
    expected = []
    for t in range(64):
        value = 99 if t % 3 == 0 else -t
        for i in range(40) if t % 3 else ():
            if i == t:
                value = i
                break
            if (i ^ t) % 7 == 6:
                break
        expected.append(value)
    np.testing.assert_array_equal(out.numpy(), expected)


def test_carries_run_through_128_bit_arithmetic(device: Device) -> None:
    text = """extern "C" __global__ void k(const unsigned long long *in, unsigned long long *out, int n) {
        int t = threadIdx.x; if (t >= n) return;
        typedef unsigned __int128 wide;
        wide a = ((wide)in[4*t+1] << 64) | in[4*t], b = ((wide)in[4*t+3] << 64) | in[4*t+2];
        wide s = a + b, d = a - b, p = a * b;
        out[6*t] = s; out[6*t+1] = s >> 64; out[6*t+2] = d; out[6*t+3] = d >> 64; out[6*t+4] = p; out[6*t+5] = p >> 64;
    }"""
    rng = np.random.default_rng(3)
    words = rng.choice(np.array([0, 1, 2**64 - 1, 2**63, 12345678901234567890], np.uint64), 4 * 40)
    source, out = device.array(words), device.array(np.zeros(6 * 40, np.uint64))
    jit(text, names=["k"], device=device, int128=True)["k"][1, 64](source, out, 40)
    expected = []
    for t in range(40):
        w = [int(v) for v in words[4 * t : 4 * t + 4]]
        a, b = w[0] | w[1] << 64, w[2] | w[3] << 64
        for v in (a + b, a - b, a * b):
            expected += [v % 2**64, (v >> 64) % 2**64]
    np.testing.assert_array_equal(out.numpy(), np.array(expected, np.uint64))


def test_counting_bits_may_be_read_as_floats(device: Device) -> None:
    text = """extern "C" __global__ void k(float *out, int n) {
        out[threadIdx.x] = __int_as_float(n + threadIdx.x) * 2;
    }"""
    out = device.array(np.zeros(32, np.float32))
    start = 0x3F800000
    jit(text, names=["k"], device=device)["k"][1, 32](out, start)
    expected = np.arange(start, start + 32, dtype=np.int32).view(np.float32) * 2
    np.testing.assert_array_equal(out.numpy(), expected)


@pytest.mark.verbatim
def test_unsupported_instructions_are_listed_with_their_lines(cpu: Device) -> None:
    ptx = """.version 8.6\n.target sm_100a\n.address_size 64
.extern .func (.param .b32 r) nobody(.param .b64 a);

.visible .entry k(.param .u64 out) {
    .reg .b32 %r<4>; .reg .b64 %a<2>; .reg .pred %p<2>;
    tcgen05.mma.cta_group::1.kind::f16.ashift [%r1], [%r1], %a1, %r1, %p1;
    mov.u32 %r1, %r2;
    tcgen05.mma.cta_group::1.kind::i8.ashift [%r1], [%r1], %a1, %r1, %p1;
    { .param .b64 x; .param .b32 z; call (z), nobody, (x); }
    ret;
}"""
    with pytest.raises(UnsupportedError) as caught:
        load(ptx.encode(), cpu)
    lines = [line for line, _, _ in caught.value.items]
    assert lines == sorted(lines)
    assert {8, 10, 11} <= set(lines)
    for text in ("kind::f16.ashift", "kind::i8.ashift", "nobody"):
        assert text in str(caught.value)


def test_register_that_is_never_written_hides_nothing(device: Device) -> None:
    # Compilers leave such registers in where a byte of the result does not matter.
    ptx = (
        HEAD
        + """.visible .entry k(.param .u64 out) { .reg .b32 %r<6>; .reg .b64 %a<3>;
        ld.param.u64 %a1, [out]; mov.u32 %r1, %tid.x; prmt.b32 %r2, %r1, %r3, 0x7650; and.b32 %r4, %r2, 255;
        mad.wide.u32 %a2, %r1, 4, %a1; st.global.u32 [%a2], %r4; ret; }"""
    )
    out = device.array(np.zeros(64, np.uint32))
    load(ptx.encode(), device)["k"][1, 64](out)
    assert out.numpy().tolist() == list(range(64))


@pytest.mark.parametrize("arch", ["compute_75", "compute_90", "compute_100", "compute_120"])
def test_bit_fields_keep_their_neighbors(cpu: Device, arch: str) -> None:
    text = """struct C { unsigned a : 5, b : 9; unsigned long long e : 33; };
    extern "C" __global__ void k(unsigned *out, int p) {
        C s; s.a = threadIdx.x; s.e = threadIdx.x * 3ull; if (p) s.a += 9;
        out[threadIdx.x] = s.a + (unsigned)s.e;
    }"""
    out = cpu.array(np.zeros(40, np.uint32))
    load(compile(text, to="ptx", arch=arch), cpu)["k"][1, 40](out, 1)
    t = np.arange(40)
    np.testing.assert_array_equal(out.numpy(), ((t & 31) + 9 & 31) + 3 * t)


def test_negative_numbers_are_accepted_for_ptx_signatures(cpu: Device) -> None:
    image = compile('extern "C" __global__ void k(int *x, int v, short s) { x[0] = v + s; }', to="ptx")
    out = cpu.array(np.zeros(1, np.int32))
    load(image.data, cpu)["k"][1, 1](out, -1, -2)
    assert out.numpy().tolist() == [-3]


def test_two_kernels_of_one_name_are_refused(cpu: Device) -> None:
    with raises(PtxSyntaxError, "ptx-syntax", "k", "declared"):
        load((HEAD + ".visible .entry k() { ret; } .visible .entry k() { ret; }").encode(), cpu)


def test_variables_larger_than_memory_are_refused(cpu: Device) -> None:
    with raises(LoadError, "load", "100,000,000,000,000 bytes"):
        load((HEAD + ".global .b8 s[99999999999999]; .visible .entry k() { ret; }").encode(), cpu)


def test_only_recently_used_block_shapes_are_kept(cpu: Device) -> None:
    kernel = jit(WHO, names=["who"], device=cpu)["who"]
    for threads in range(1, 41):
        out = cpu.array(np.zeros((threads, 4), np.uint32))
        kernel[1, threads](out)
        assert out.numpy()[-1, 0] == threads - 1
    assert len(kernel._loaded._compiled) == 32  # type: ignore[attr-defined]


def test_uninitialized_register_does_not_crash(cpu: Device) -> None:
    ptx = (
        HEAD
        + """.visible .entry k(.param .u64 out) { .reg .b32 %r<4>; .reg .b64 %a<3>; .reg .pred %p;
        ld.param.u64 %a1, [out]; @%p bra X; add.s32 %r1, %r2, %r3; X: st.global.u32 [%a1], %r1; ret; }"""
    )
    out = cpu.array(np.ones(1, np.uint32))
    load(ptx.encode(), cpu)["k"][1, 32](out)
    assert out.numpy().tolist() == [0]
