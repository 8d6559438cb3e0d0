"""Stores past the cache: which ones there are, that they write what others do, and the fence behind them."""

from __future__ import annotations

import platform

import numpy as np
import pytest

import cujit
from cujit.artifact import Artifact
from cujit.devices.cpu import module
from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import ir_of, prepare
from cujit.devices.cpu.run.grid import Workers
from cujit.devices.cpu.run.launch import cache_bytes
from cujit.devices.jit import optimise
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.formats.ptx.parser import parse
from cujit.loading import jit
from devices.cpu.launching import ptx_of

PAST = "!nontemporal"
FENCE = "call void @llvm.x86.sse.sfence()"

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="stores go past the cache on x86-64 alone"
)


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every store that may go past the cache do so."""
    monkeypatch.setattr(module, "cache_bytes", lambda: 0)


def _body(text: str) -> Body:
    module = parse(text)
    refusals = Refusals()
    body = prepare(module.entries[0], ModuleLayout(module, refusals), refusals)
    assert not refusals.items
    return body


def _ir(code: str, block: int = 256, pointers: int = 2) -> str:
    return ir_of(_body(ptx_of(code, pointers)), Dim3(block, 1, 1))


# p0 is written at ``at``, p1 is another array.
COPY = "mul.wide.u32 d0, r0, 4; add.u64 d1, p1, d0; ld.global.u32 r1, [d1];"


# -- results ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("start", [0, 1, 4, 8, 16])
@pytest.mark.parametrize("kind", ["char", "short", "int", "double", "float2", "float4"])
def test_every_width_and_alignment_is_written_whole(kind: str, start: int) -> None:
    text = f"""extern "C" __global__ void k(const {kind} *in, {kind} *out, int start, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) out[start + i] = in[i];
    }}"""
    type_ = {"char": "1i1", "short": "1i2", "int": "1i4", "double": "1f8", "float2": "2f4", "float4": "4f4"}[kind]
    device, n = cujit.cpu(), 715
    values = np.random.default_rng(3).integers(0, 100, (n, int(type_[0]))).astype(type_[1:])
    out = device.array(np.zeros((800, int(type_[0])), type_[1:]))
    jit(text, names=["k"], device=device)["k"][6, 128](device.array(values), out, start, n)
    expected = np.zeros((800, int(type_[0])), type_[1:])
    expected[start : start + n] = values
    np.testing.assert_array_equal(out.numpy(), expected)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("block", [(8, 8), (16, 16), (32, 8), (20, 3)])
def test_rows_of_tiles_are_written_whole(block: tuple[int, int]) -> None:
    text = """extern "C" __global__ void k(const int *in, int *out, int n) {
        __shared__ int tile[32][33];
        int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
        tile[threadIdx.y][threadIdx.x] = in[y * n + x];
        __syncthreads();
        out[y * n + x] = tile[threadIdx.y][threadIdx.x] + 1;
    }"""
    device, grid = cujit.cpu(), (4, 4)
    n = grid[0] * block[0]
    values = np.arange(grid[1] * block[1] * n, dtype=np.int32)
    out = device.array(np.zeros_like(values))
    jit(text, names=["k"], device=device)["k"][grid, block](device.array(values), out, n)
    np.testing.assert_array_equal(out.numpy(), values + 1)


@pytest.mark.usefixtures("forced")
def test_thread_reads_its_own_writes_through_an_alias() -> None:
    text = """extern "C" __global__ void k(const int *a, int *b) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        b[i] = 7 * i;
        __syncthreads();
        int got = ((volatile const int *)a)[i ^ 1];
        __syncthreads();
        b[i] = got;
    }"""
    device = cujit.cpu()
    array = device.array(np.zeros(4096, np.int32))
    jit(text, names=["k"], device=device)["k"][16, 256](array, array)
    np.testing.assert_array_equal(array.numpy(), 7 * (np.arange(4096) ^ 1))


# -- which stores -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["st.global.u32", "st.weak.global.u32", "st.global.cs.u32", "st.global.v2.u32"])
def test_whole_line_stores_to_unread_memory_may_bypass_caches(store: str) -> None:
    data, size = ("{r1, r2}", 8) if ".v2" in store else ("r1", 4)
    text = _ir(f"{COPY} mul.wide.u32 d2, r0, {size}; add.u64 d3, p0, d2; {store} [d3], {data};")
    assert PAST in text
    assert text.index(f"{FENCE}\n  ret void") > text.index("\nreturn:")


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("ld.global.u32 r2, [at]; st.global.u32 [at], r1;", id="read there"),
        pytest.param("ld.global.u32 r2, [p0]; st.global.u32 [at], r1;", id="read elsewhere"),
        pytest.param("st.volatile.global.u32 [at], r1;", id="strong"),
        pytest.param("st.global.u32 [at], r1; membar.gl;", id="fence"),
        pytest.param("st.global.u32 [at], r1; st.release.gpu.global.u32 [p1], r1;", id="release"),
        pytest.param("st.global.u32 [at], r1; atom.global.add.u32 r2, [p1], 1;", id="atomic"),
        pytest.param("st.global.u32 [at], r1; red.global.add.u32 [p1], 1;", id="reduction"),
        pytest.param("st.global.L1::evict_last.u32 [at], r1;", id="to be kept"),
        pytest.param("st.global.u8 [at], r1;", id="apart"),
        pytest.param("cvt.u64.u32 d3, r0; add.u64 d4, p0, d3; st.global.u8 [d4], r1;", id="half a line"),
        pytest.param("ld.global.u64 d3, [p1]; add.u64 d4, d3, d0; st.global.u32 [d4], r1;", id="address from memory"),
    ],
)
def test_other_stores_use_the_cache(code: str) -> None:
    text = _ir(f"{COPY} {code}")
    assert PAST not in text
    assert FENCE not in text


def test_stores_rewritten_by_llvm_still_bypass_caches() -> None:
    text = str(optimise(_ir(f"{COPY} st.global.u32 [at], r1;"), kernel=True))
    assert text.count(PAST) == 1


def test_kernel_with_warp_stacks_stores_through_the_cache() -> None:
    body = _body(ptx_of(f"{COPY} bar.sync 0; st.global.u32 [at], r1;", 2))
    assert PAST in ir_of(body, Dim3(256, 1, 1))
    assert PAST not in ir_of(body, Dim3(256, 1, 1), stacks=True)


def test_launch_size_counts_all_that_its_threads_write() -> None:
    text = _ir(f"{COPY} st.global.u32 [at], r1; st.global.u32 [at+65536], r1;", block=96)
    assert f"mul i64 %blocks, {96 * 8}\n" in text


def test_cache_has_a_size() -> None:
    assert 32 << 10 <= cache_bytes() <= 8 << 30


@pytest.mark.parametrize(("size", "counted"), [(1 << 20, 1 << 20), (300 << 20, 32 << 20)])
def test_large_cache_is_shared_with_others(size: int, counted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(module, "cache_bytes", lambda: size)
    monkeypatch.setattr(Workers, "run", lambda *arguments: ran.append(arguments[2].cache_bytes))
    kernel = cujit.cpu(1).load(Artifact.of(ptx_of("st.global.u32 [at], r0;", 1))).kernels["k"]
    kernel.launch(LaunchShape(Dim3(1), Dim3(32)), bytes(8))
    assert ran == [counted]
