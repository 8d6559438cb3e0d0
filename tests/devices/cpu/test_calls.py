"""Calls that stay calls: recursion, pointers, virtual functions, parameters of all kinds, and stacks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.errors import KernelFaultError, UnsupportedError
from cujit.loading import jit
from devices.cpu.launching import Array, blank, run_ptx
from raising import raises
from sweeps import part


def run_cuda(device: Device, text: str, *arguments: object, grid: int = 1, block: int = 64) -> Array:
    """Launch ``k``; give what it left in its first argument, an array of ``grid * block`` words."""
    out = device.zeros(grid * block, np.int32)
    jit(text, names=["k"], device=device)["k"][grid, block](out, *arguments)
    return np.asarray(out.numpy())


def test_mutually_recursive_functions_run(device: Device) -> None:
    text = """__device__ __noinline__ int odd(int n);
    __device__ __noinline__ int even(int n) { return n == 0 ? 1 : 2 * odd(n - 1) + n; }
    __device__ __noinline__ int odd(int n) { return n == 0 ? 0 : 3 * even(n - 1) - n; }
    extern "C" __global__ void k(int *out) { out[threadIdx.x] = even(threadIdx.x % 11); }"""

    def even(n: int) -> int:
        return 1 if n == 0 else 2 * odd(n - 1) + n

    def odd(n: int) -> int:
        return 0 if n == 0 else 3 * even(n - 1) - n

    assert run_cuda(device, text).tolist() == [even(t % 11) for t in range(64)]


def test_recursion_of_two_calls_with_arrays_on_the_stack(device: Device) -> None:
    text = """__device__ __noinline__ int walk(int n, int *path, int depth) {
        int own[4]; for (int i = 0; i < 4; i++) own[i] = n * i + depth;
        path[depth & 7] += own[n & 3];
        if (n < 2) return own[n];
        int left = walk(n - 1, path, depth + 1);
        return left + walk(n - 2, path, depth + 1) + own[(left & 3)];
    }
    extern "C" __global__ void k(int *out) {
        int path[8] = {}; int got = walk(threadIdx.x % 7, path, 0);
        for (int i = 0; i < 8; i++) got = got * 3 + path[i];
        out[threadIdx.x] = got;
    }"""

    def walk(n: int, path: list[int], depth: int) -> int:
        own = [n * i + depth for i in range(4)]
        path[depth & 7] += own[n & 3]
        if n < 2:
            return own[n]
        left = walk(n - 1, path, depth + 1)
        return left + walk(n - 2, path, depth + 1) + own[left & 3]

    expected = []
    for t in range(64):
        path = [0] * 8
        got = walk(t % 7, path, 0)
        for x in path:
            got = got * 3 + x
        expected.append(got)
    assert run_cuda(device, text).tolist() == expected


POINTERS = """
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int leave(int x) { if (x % 5 == 0) asm volatile("exit;"); return -x; }
__device__ __noinline__ int other(int x, int y) { return x + y; }
typedef int (*F)(int);
__device__ F table[3] = {twice, square, leave};
__device__ int (*two)(int, int) = other;
"""


def test_lanes_call_different_functions_and_some_exit_inside(device: Device) -> None:
    text = (
        POINTERS
        + """extern "C" __global__ void k(int *out) {
        int t = threadIdx.x, v = t;
        for (int i = 0; i < 3; i++) { v = table[(t + i) % 3](v) & 1023; out[t] = v + 1; }
        out[t] = v + 1 + 10000 * __popc(__activemask());
    }"""
    )
    got = run_cuda(device, text)
    expected, ends = np.zeros(64, int), np.ones(64, bool)
    for t in range(64):
        v = t
        for i in range(3):
            which = (t + i) % 3
            if which == 2 and v % 5 == 0:
                ends[t] = False
                break
            v = (2 * v, v * v, -v)[which] & 1023
            expected[t] = v + 1
    for w in range(2):
        part = slice(32 * w, 32 * w + 32)
        expected[part] += 10000 * int(ends[part].sum()) * ends[part]
    assert got.tolist() == expected.tolist()


@pytest.mark.parametrize("pointer", ["null", "out", "two", "(char *)table[0] + 4"])
def test_pointer_to_no_matching_function_is_a_fault(cpu: Device, pointer: str) -> None:
    text = (
        POINTERS
        + f"""extern "C" __global__ void k(int *out, unsigned long long null) {{
        F f = threadIdx.x == 37 ? (F)({pointer}) : table[1];
        out[threadIdx.x] = f(threadIdx.x);
    }}"""
    )
    with raises(KernelFaultError, "fault-illegal-call") as caught:
        run_cuda(cpu, text, 0)
    assert (caught.value.kind, caught.value.thread) == ("illegal_call", (37, 0, 0))


def test_virtual_functions_through_a_tree_of_classes(device: Device) -> None:
    text = """struct Node { __device__ virtual int value(int x) const = 0; };
    struct Leaf : Node { int own; __device__ Leaf(int v) : own(v) {}
        __device__ int value(int x) const override { return own + x; } };
    struct Sum : Node { const Node *a, *b; __device__ Sum(const Node *p, const Node *q) : a(p), b(q) {}
        __device__ int value(int x) const override { return a->value(x + 1) + 2 * b->value(x); } };
    extern "C" __global__ void k(int *out) {
        int t = threadIdx.x; Leaf p(t), q(7); Sum s(&p, &q), r(&s, &p);
        const Node *nodes[4] = {&p, &s, &r, &q};
        out[t] = nodes[t & 3]->value(t) * 100 + nodes[(t >> 2) & 3]->value(1);
    }"""

    def value(which: int, t: int, x: int) -> int:
        if which in (0, 3):
            return (t if which == 0 else 7) + x
        if which == 1:
            return value(0, t, x + 1) + 2 * value(3, t, x)
        return value(1, t, x + 1) + 2 * value(0, t, x)

    assert run_cuda(device, text).tolist() == [value(t & 3, t, t) * 100 + value(t >> 2 & 3, t, 1) for t in range(64)]


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("how", "size", "align"), part(itertools.product(["inline", "recursive"], [1, 3, 8, 12, 31, 64], [1, 4, 16]), 3)
)
def test_structures_are_passed_and_returned_by_value(device: Device, how: str, size: int, align: int) -> None:
    if device.is_gpu and how == "recursive":
        pytest.skip("a thread of a GPU has 1 KiB of stack unless the context is told otherwise")
    size = (size + align - 1) // align * align
    again = "if (depth > 0) return turn(s, by, depth - 1);" if how == "recursive" else ""
    text = f"""struct alignas({align}) S {{ unsigned char b[{size}]; }};
    __device__ __noinline__ S turn(S s, char by, int depth) {{
        {again} S r; for (int i = 0; i < {size}; i++) r.b[i] = s.b[(i + 1) % {size}] * 3 + by; return r; }}
    extern "C" __global__ void k(int *out) {{
        S s; for (int i = 0; i < {size}; i++) s.b[i] = threadIdx.x * 7 + i;
        s = turn(s, (char)threadIdx.x, threadIdx.x % 3); int h = 0;
        for (int i = 0; i < {size}; i++) h = h * 5 + s.b[i];
        out[threadIdx.x] = h;
    }}"""
    expected = []
    for t in range(32):
        before = [(t * 7 + i) & 255 for i in range(size)]
        h = 0
        for i in range(size):
            h = h * 5 + (before[(i + 1) % size] * 3 + t & 255) & 0xFFFFFFFF
        expected.append(h)
    assert run_cuda(device, text, block=32).view(np.uint32).tolist() == expected


# -- PTX by hand ------------------------------------------------------------------------------------------


def test_parameters_in_registers(device: Device) -> None:
    outside = """.func (.reg .b32 r, .reg .pred big) f(.reg .b32 x, .reg .b64 y, .reg .f32 z) {
        .reg .b32 a; .reg .f32 b; cvt.u32.u64 a, y; add.u32 r, x, a; add.f32 b, z, 0f3F800000; cvt.rzi.u32.f32 a, b;
        mad.lo.u32 r, a, 1000, r; setp.gt.u32 big, x, 10; ret; }"""
    body = """.reg .f32 z; cvt.rn.f32.u32 z, t; cvt.u64.u32 d1, t; add.u32 r1, t, 2;
    call (r2, q1), f, (r1, d1, z); @q1 add.u32 r2, r2, 7; st.global.u32 [at], r2;"""
    outside = outside.replace(", .reg .pred big", "").replace("setp.gt.u32 big, x, 10;", "")
    body = body.replace("(r2, q1)", "(r2)").replace("@q1 ", "")
    (got,) = run_ptx(device, body, blank(40), block=40, outside=outside)
    t = np.arange(40)
    np.testing.assert_array_equal(got, 2 * t + 2 + 1000 * (t + 1) + 7)


def test_register_result_is_stored_in_the_callers_parameter(cpu: Device) -> None:
    outside = ".func (.reg .b32 r) f(.reg .b32 x) { add.u32 r, x, 5; ret; }"
    body = "{ .param .b32 y; call (y), f, (t); ld.param.b32 r1, [y]; } st.global.u32 [at], r1;"
    (got,) = run_ptx(cpu, body, blank(32), outside=outside)
    np.testing.assert_array_equal(got, np.arange(32) + 5)


@pytest.mark.parametrize(("size", "align"), [(3, 4), (6, 8), (7, 16)])
def test_odd_sized_parameter_is_passed_to_a_recursion(cpu: Device, size: int, align: int) -> None:
    parameter, last = f".param .align {align} .b8 s[{size}]", size - 1
    call = f"""{{ {parameter}; .param .b32 n; .param .b32 r;
        st.param.u8 [s], FIRST; st.param.u8 [s+{last}], LAST; st.param.b32 [n], COUNT;
        call (r), f, (s, n); ld.param.b32 RESULT, [r]; }}"""
    outside = f""".visible .func (.param .b32 r) f({parameter}, .param .b32 n) {{
        .reg .b32 a, b, c, m; .reg .pred p;
        ld.param.u8 a, [s]; ld.param.u8 b, [s+{last}]; ld.param.b32 m, [n]; mad.lo.u32 c, a, 1000, b;
        setp.eq.u32 p, m, 0; @p bra END; sub.u32 m, m, 1;
        {call.replace("FIRST", "b").replace("LAST", "a").replace("COUNT", "m").replace("RESULT", "a")}
        add.u32 c, c, a;
    END: st.param.b32 [r], c; ret; }}"""
    body = call.replace("FIRST", "t").replace("LAST", "7").replace("COUNT", "1").replace("RESULT", "r1")
    (got,) = run_ptx(cpu, f"{body} st.global.u32 [at], r1;", blank(32), outside=outside)
    t = np.arange(32)
    np.testing.assert_array_equal(got, (1000 * t + 7) + (1000 * 7 + t))


@pytest.mark.parametrize("calls_itself", [False, True])
@pytest.mark.parametrize(
    "access",
    ["ld.local.u32 a, [at+4];", "ld.param.u32 a, [at+4];", "cvta.local.u64 at, at; ld.u32 a, [at+4];"],
    ids=["local", "param", "generic"],
)
def test_address_of_a_parameter_is_in_local_memory(device: Device, access: str, calls_itself: bool) -> None:
    """In a function that is inlined, and in one that stays a call."""
    call = """{ .param .b32 left; .param .b64 both; .param .b32 sum;
        st.param.b32 [left], LEFT; st.param.v2.b32 [both], {LEFT, VALUE}; call (sum), f, (left, both);
        ld.param.b32 SUM, [sum]; }"""
    inside = call.replace("LEFT", "b").replace("VALUE", "a").replace("SUM", "b") if calls_itself else ""
    outside = f""".visible .func (.param .b32 r) f(.param .b32 n, .param .b64 s) {{
        .reg .b64 at; .reg .b32 a, b; .reg .pred p; mov.b64 at, s; {access} ld.param.u32 b, [n];
        setp.eq.u32 p, b, 0; @p bra END; sub.u32 b, b, 1; {inside} add.u32 a, a, b;
    END: st.param.b32 [r], a; ret; }}"""
    body = call.replace("LEFT", "2").replace("VALUE", "t").replace("SUM", "r1")
    (got,) = run_ptx(device, f"{body} st.global.u32 [at], r1;", blank(32), outside=outside)
    np.testing.assert_array_equal(got, 3 * np.arange(32) if calls_itself else np.arange(32) + 1)


def test_alias_is_the_function_that_it_names(device: Device) -> None:
    outside = """.visible .func (.param .b32 r) f(.param .b32 x) { .reg .b32 a; ld.param.u32 a, [x]; add.u32 a, a, 5;
        st.param.b32 [r], a; ret; }
    .visible .func (.param .b32 r) g(.param .b32 x);
    .alias g, f;"""
    body = """{ .param .b32 x; .param .b32 r; st.param.b32 [x], t; call (r), g, (x); ld.param.b32 r1, [r]; }
    st.global.u32 [at], r1;"""
    (got,) = run_ptx(device, body, blank(32), outside=outside)
    np.testing.assert_array_equal(got, np.arange(32) + 5)


def test_vector_registers_and_their_elements(device: Device) -> None:
    body = """.reg .v4 .b32 v, u; .reg .v2 .f32 f; mov.v4.u32 v, %tid; mov.u32 u.x, v.x; add.u32 u.y, v.x, v.w;
    mul.lo.u32 u.z, u.y, 3; mov.u32 u.w, 9; cvt.rn.f32.u32 f.x, u.x; add.f32 f.y, f.x, f.x; cvt.rzi.u32.f32 r1, f.y;
    add.u32 u.w, u.w, r1; mad.wide.u32 d0, t, 16, p0; st.global.v4.u32 [d0], u;"""
    (got,) = run_ptx(device, body, blank(128))
    t = np.arange(32)
    np.testing.assert_array_equal(got.reshape(32, 4), np.stack([t, t, 3 * t, 9 + 2 * t], 1))


def test_stack_memory_is_private_to_each_thread(device: Device) -> None:
    body = """and.b32 r1, t, 7; mad.lo.u32 r1, r1, 4, 8; cvt.u64.u32 d1, r1; stacksave.u64 d4;
    alloca.u64 d2, d1, 16; st.local.u32 [d2], t; st.local.u32 [d2+4], r1; alloca.u64 d3, 64; st.local.u32 [d3], 99;
    cvta.local.u64 d5, d2; ld.u32 r2, [d5+4]; isspacep.local q1, d5; isspacep.global q2, d5; selp.u32 r5, 1, 0, q1;
    @q2 add.u32 r5, r5, 10; ld.local.u32 r3, [d2]; mad.lo.u32 r4, r3, 100, r2; mad.lo.u32 r4, r5, 10000, r4;
    stackrestore.u64 d4; st.global.u32 [at], r4;"""
    (got,) = run_ptx(device, body, blank(64), block=64, version="8.0")
    t = np.arange(64)
    np.testing.assert_array_equal(got, t * 100 + (t & 7) * 4 + 8 + 10000)


def test_stack_loops_free_what_they_allocate(device: Device) -> None:
    body = """mov.u32 r1, 0; mov.u32 r4, 0; AGAIN: stacksave.u64 d4; alloca.u64 d2, 512; st.local.u32 [d2], r1;
    ld.local.u32 r3, [d2]; add.u32 r4, r4, r3; stackrestore.u64 d4; add.u32 r1, r1, 1; setp.lt.u32 q1, r1, 1000;
    @q1 bra AGAIN; st.global.u32 [at], r4;"""
    (got,) = run_ptx(device, body, blank(64), block=64, version="8.0")
    assert got.tolist() == [499500] * 64


# -- functions that wait ----------------------------------------------------------------------------------


def test_functions_called_by_pointer_wait_and_shuffle(device: Device) -> None:
    text = """__shared__ int cells[128];
    __device__ __noinline__ int rotate(int v) { __syncthreads(); cells[threadIdx.x] = v; __syncthreads();
        return cells[(threadIdx.x + 33) % blockDim.x]; }
    __device__ __noinline__ int scan(int v) { for (int d = 1; d < 32; d *= 2) { int o = __shfl_up_sync(~0u, v, d);
        if (threadIdx.x % 32 >= d) v += o; } return v; }
    __device__ int (*steps[2])(int) = {rotate, scan};
    extern "C" __global__ void k(int *out, int which) {
        int v = threadIdx.x * 3;
        for (int i = 0; i < 4; i++) v = steps[(which >> i) & 1](v);
        out[threadIdx.x] = v;
    }"""
    got = run_cuda(device, text, 0b0110, block=96)
    v = np.arange(96) * 3
    for i in range(4):
        v = v.reshape(3, 32).cumsum(1).ravel() if 0b0110 >> i & 1 else np.roll(v, -33)
    np.testing.assert_array_equal(got, v)


def test_shared_memory_of_recursive_functions_is_the_blocks(device: Device) -> None:
    text = """__device__ __noinline__ int count(int n) {
        __shared__ int calls; if (n == 100) { calls = 0; return 0; } atomicAdd(&calls, 1);
        return n > 0 ? count(n - 1) : calls; }
    extern "C" __global__ void k(int *out) {
        if (threadIdx.x == 0) count(100);
        __syncthreads(); int n = count(threadIdx.x % 4); __syncthreads(); out[threadIdx.x] = n > 0 ? count(-1) : -1;
    }"""
    got = run_cuda(device, text, block=32)
    assert got.max() == 32 // 4 * 10 + 32
    assert got.min() >= 32 // 4 * 10 + 1


@pytest.mark.parametrize("room", [4, 256, 4000])
def test_recursion_without_end_is_a_fault(cpu: Device, room: int) -> None:
    text = f"""__device__ __noinline__ int deep(int n, int *p) {{
        volatile int own[{room}]; own[n % {room}] = n;
        int got = deep(n + 1, p) + own[(n + 1) % {room}]; *p = got; return got; }}
    extern "C" __global__ void k(int *out) {{ out[threadIdx.x] = deep(threadIdx.x, out); }}"""
    with raises(KernelFaultError, "fault-stack-overflow") as caught:
        run_cuda(cpu, text)
    assert caught.value.kind == "stack_overflow"
    good = 'extern "C" __global__ void k(int *out) { __syncthreads(); out[threadIdx.x] = 3; }'
    assert run_cuda(cpu, good).tolist() == [3] * 64


def test_large_function_with_many_calls_is_compiled_once(cpu: Device) -> None:
    steps = "\n".join(f"mad.lo.u32 a, a, {2 * k + 3}, {k}; xor.b32 a, a, {k * k};" for k in range(200))
    outside = f""".func (.param .b32 r) f(.param .b32 x) {{ .reg .b32 a; ld.param.u32 a, [x]; {steps}
        st.param.b32 [r], a; ret; }}"""
    call = "{ .param .b32 x; .param .b32 r; st.param.b32 [x], r1; call (r), f, (x); ld.param.b32 r1, [r]; }"
    (got,) = run_ptx(cpu, f"mov.u32 r1, t; {call * 12} st.global.u32 [at], r1;", blank(32), outside=outside)
    a = np.arange(32, dtype=np.uint32)
    for _ in range(12):
        for k in range(200):
            a = (a * np.uint32(2 * k + 3) + np.uint32(k)) ^ np.uint32(k * k)
    np.testing.assert_array_equal(got, a)


def test_device_side_launches_are_refused_by_name(cpu: Device) -> None:
    code = """extern "C" __global__ void child(int *x) { x[0] = 1; }
    extern "C" __global__ void parent(int *x) { child<<<1, 1>>>(x); }"""
    with raises(UnsupportedError, "unsupported", "kernels") as e:
        jit(code, device=cpu, options={"rdc": True})["parent"][1, 1](cpu.zeros(1, np.int32))
    assert [why for _, text, why in e.value.items if "__cudaCDP2" in text] == ["kernels that launch kernels"] * 2
