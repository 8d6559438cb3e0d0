"""Shared and local memory lie in windows as a GPU has them, and nothing of the host lies near."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from raising import raises

_WINDOW, _SYSTEM = 1 << 24, 1024

# What each variable's address is, as a shared one and as a generic one.
_ADDRESSES = r"""
extern "C" __global__ void addresses(unsigned long long *out) {
    __shared__ __align__(ALIGN) char fixed[SIZE];
    extern __shared__ __align__(1024) char dynamic[];
    fixed[threadIdx.x % SIZE] = 1, dynamic[threadIdx.x] = 2;
    __syncthreads();
    unsigned long long *own = out + 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    own[0] = (unsigned long long)fixed, own[1] = __cvta_generic_to_shared(fixed);
    own[2] = (unsigned long long)dynamic, own[3] = __cvta_generic_to_shared(dynamic);
}"""


@pytest.mark.parametrize(("size", "align"), [(1, 1), (100, 16), (1024, 128), (5000, 1024)])
def test_low_bits_of_a_generic_address_are_the_shared_address(size: int, align: int, device: Device) -> None:
    if device.is_gpu and device.arch.number < 90:
        pytest.skip("addresses were recorded on sm_90")
    code = _ADDRESSES.replace("SIZE", str(size)).replace("ALIGN", str(align))
    out = device.zeros((2, 64, 4), np.uint64)
    cujit.jit(code, device=device)["addresses"].prepare(2, 64, shared_bytes=2048)(out)
    fixed, fixed_shared, dynamic, dynamic_shared = (np.unique(each) for each in np.moveaxis(out.numpy(), 2, 0))
    assert (fixed % _WINDOW == fixed_shared).all()
    assert (dynamic % _WINDOW == dynamic_shared).all()
    assert fixed_shared.tolist() == [_SYSTEM]
    assert dynamic_shared.tolist() == [-(-(_SYSTEM + size) // 1024) * 1024]


_GOLDENS = Path(__file__).parents[2] / "goldens" / "windows.json"
_HEAD = ".version 8.5\n.target sm_90\n.address_size 64\n"
_ENTRY = (
    ".visible .entry k(.param .u64 out{more}) {{ .reg .b32 r<9>; .reg .b64 a, d<9>; .reg .pred p<9>;\n{body}\nret; }}\n"
)
_SIZES = ("dynamic_smem_size", "total_smem_size", "aggr_smem_size")


def _of_sm_90(device: Device) -> None:
    if device.is_gpu and device.arch.number != 90:
        pytest.skip("recorded on an H200")


def _recorded(name: str) -> Any:
    return json.loads(_GOLDENS.read_text())[name]


@pytest.mark.usefixtures("unoptimised")
def test_sizes_and_places_of_shared_memory_match_an_h200(device: Device) -> None:
    _of_sm_90(device)
    rows = [row for row in _recorded("sizes") if row[2] in (0, 100, 8192)]
    kernels: dict[tuple[int, ...], Any] = {}
    for static, align, dynamic, dynamic_align, *wanted in rows:
        key = static, align, dynamic_align
        if key not in kernels:
            declared = f".extern .shared .align {dynamic_align} .b8 dyn[];\n" if dynamic_align else ""
            body = f".shared .align {align} .b8 fixed[{static}];\n" if static else ""
            body += "ld.param.u64 a, [out];"
            names = [f"%{name}" for name in _SIZES]
            names += ["fixed" if static else "0", "dyn" if dynamic_align else "0"]
            body += "".join(f"mov.u32 r0, {name}; st.global.u32 [a+{4 * k}], r0;\n" for k, name in enumerate(names))
            if static:
                body += "st.shared.u8 [fixed], r0;"
            text = _HEAD + declared + _ENTRY.format(more="", body=body)
            kernels[key] = cujit.load(cujit.Artifact.of(text), device)["k"]
        out = device.zeros(5, np.uint32)
        kernels[key].prepare(1, 1, shared_bytes=dynamic)(out)
        assert out.numpy().tolist() == wanted, (static, align, dynamic, dynamic_align)


def test_larger_alignments_count_from_the_blocks_first_byte(device: Device) -> None:
    _of_sm_90(device)
    for static, align, dynamic, dynamic_align, total, fixed, behind in _recorded("aligned"):
        names = ("%total_smem_size", "fixed", "dyn")
        body = f".shared .align {align} .b8 fixed[{static}]; st.shared.u8 [fixed], 0; ld.param.u64 a, [out];"
        body += "".join(f"mov.u32 r0, {name}; st.global.u32 [a+{4 * k}], r0;\n" for k, name in enumerate(names))
        declared = f".extern .shared .align {dynamic_align} .b8 dyn[];\n"
        out = device.zeros(3, np.uint32)
        text = _HEAD + declared + _ENTRY.format(more="", body=body)
        cujit.load(cujit.Artifact.of(text), device)["k"].prepare(1, 1, shared_bytes=dynamic)(out)
        assert out.numpy().tolist() == [total, fixed, behind], (static, align)


_CLUSTER = """.shared .align 16 .b8 tile[64]; ld.param.u64 a, [out]; mov.u32 r0, %ctaid.x; mul.wide.u32 d0, r0, 96;
add.u64 a, a, d0; add.u32 r1, r0, 100; st.shared.u32 [tile], r1; mov.u32 r1, tile; mov.u64 d3, tile;
cvta.shared.u64 d3, d3; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mov.u32 r8, %cluster_ctarank; mapa.shared::cluster.u32 r2, r1, 0; mapa.shared::cluster.u32 r3, r1, 1;
mapa.u64 d4, d3, 0; mapa.u64 d5, d3, 1; cvt.u32.u64 r4, d3; cvt.u32.u64 r5, d4; cvt.u32.u64 r6, d5;
st.global.v2.u32 [a], {r1, r4}; st.global.v2.u32 [a+8], {r2, r3}; st.global.v2.u32 [a+16], {r5, r6};
getctarank.shared::cluster.u32 r4, r1; getctarank.shared::cluster.u32 r5, r3; getctarank.u64 r6, d5;
st.global.v2.u32 [a+24], {r4, r5}; st.global.v2.u32 [a+32], {r6, r8}; and.b32 r7, r1, 0xffffff;
ld.shared::cluster.u32 r4, [r2]; ld.shared::cluster.u32 r5, [r3]; st.global.v2.u32 [a+40], {r4, r5};
ld.u32 r4, [d4]; ld.u32 r5, [d5]; st.global.v2.u32 [a+48], {r4, r5}; ld.shared::cluster.u32 r4, [r1];
ld.shared::cta.u32 r5, [r1]; st.global.v2.u32 [a+56], {r4, r5}; ld.shared::cluster.u32 r4, [tile];
ld.shared::cluster.u32 r5, [r7]; st.global.v2.u32 [a+64], {r4, r5};
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""


@pytest.mark.parametrize(("grid", "cluster"), [(2, 2), (4, 2), (4, 4)])
def test_addresses_in_clusters_match_an_h200(grid: int, cluster: int, device: Device) -> None:
    _of_sm_90(device)
    kernel = cujit.load(cujit.Artifact.of(_HEAD + _ENTRY.format(more="", body=_CLUSTER)), device)["k"]
    out = device.zeros((grid, 24), np.uint32)
    kernel.prepare(grid, 1, cluster=cluster)(out)
    addresses = {row[2]: row[3:] for row in _recorded("cluster addresses") if row[:2] == [grid, cluster]}
    loads = {(row[0], row[3]): row[4:] for row in _recorded("cluster loads") if row[1:3] == [grid, cluster]}
    for block, got in enumerate(out.numpy().tolist()):
        own, base, first, second, generic_first, generic_second = got[:6]
        ranks = got[6:10]
        want = addresses[block]
        assert [own, first, second] == [want[0], want[3], want[4]]
        # The low 32 bits of a generic address are the shared address.
        assert [base, generic_first, generic_second] == [want[0], want[5], want[6]]
        assert ranks == [want[7], want[8], want[14], want[12]]
        assert got[10:17] == loads["loads", block]
        assert got[17] == loads["own by masked address, cluster", block][0]


_EDGES = """.shared .align 16 .b8 tile[64];
ld.param.u64 a, [out]; ld.param.u64 d1, [far]; mov.u32 r1, %tid.x; mul.wide.u32 d2, r1, 8; add.u64 d1, d1, d2;
ld.global.u64 d2, [d1]; mov.u32 r2, %ctaid.x; mov.u32 r3, %ntid.x; mad.lo.u32 r2, r2, r3, r1; mul.wide.u32 d3, r2, 16;
add.u64 a, a, d3; st.shared.u32 [tile], r1; mov.u64 d3, tile; cvta.shared.u64 d3, d3; add.s64 d2, d2, d3;
isspacep.shared p1, d2; selp.u32 r4, 1, 0, p1; isspacep.shared::cta p1, d2; selp.u32 r5, 2, 0, p1; or.b32 r4, r4, r5;
isspacep.shared::cluster p1, d2; selp.u32 r5, 4, 0, p1; or.b32 r4, r4, r5; isspacep.local p1, d2;
selp.u32 r5, 8, 0, p1; or.b32 r4, r4, r5; isspacep.global p1, d2; selp.u32 r5, 16, 0, p1; or.b32 r4, r4, r5;
cvta.to.shared.u64 d4, d2; cvt.u32.u64 r5, d4; getctarank.u64 r6, d2; mapa.u64 d4, d2, 0; cvt.u32.u64 r7, d4;
st.global.v4.u32 [a], {r4, r5, r6, r7};
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""


@pytest.mark.parametrize(("name", "blocks"), [("edges", 1), ("edges in rank 1", 2)])
def test_window_edges_match_an_h200(name: str, blocks: int, device: Device) -> None:
    _of_sm_90(device)
    recorded = np.array(_recorded(name), np.int64)
    window = recorded[:, 0] + _SYSTEM + (blocks - 1) * _WINDOW
    # Behind the cluster an H200 has more of its kind of memory, to which nothing of this cluster leads.
    recorded = recorded[(window < blocks * _WINDOW) & (window >= 0)]
    text = _HEAD + _ENTRY.format(more=", .param .u64 far", body=_EDGES)
    kernel, out = cujit.load(cujit.Artifact.of(text), device)["k"], device.zeros((blocks, len(recorded), 4), np.uint32)
    kernel.prepare(blocks, len(recorded), cluster=blocks)(out, device.array(recorded[:, 0]))
    np.testing.assert_array_equal(out.numpy()[-1], recorded[:, 1:])


# D = A Aᵀ of 64 rows by 8 columns, with descriptors made of the low bits of generic addresses.
_PRODUCT = r"""
__device__ unsigned long long descriptor(const void *at) {
    return (((unsigned long long)at & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
extern "C" __global__ void product(const unsigned short *a, float *d) {
    extern __shared__ __align__(1024) unsigned short tile[];
    for (int i = threadIdx.x; i < 4096; i += 128) {
        int row = i / 64, column = i % 64;
        tile[row * 64 + (column / 8 ^ row % 8) * 8 + column % 8] = a[i];
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float sum[4] = {0, 0, 0, 0};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < 4; k++)
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "l"(descriptor(tile) + 2 * k), "l"(descriptor(tile) + 2 * k));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) d[(warp * 16 + lane / 4 + 8 * (i / 2)) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}"""


def test_descriptor_may_be_built_from_a_generic_address(device: Device) -> None:
    if device.is_gpu and device.arch.number != 90:
        pytest.skip("wgmma is of sm_90a")
    a = np.random.default_rng(0).integers(-3, 4, (64, 64)).astype(np.float32)
    halves = device.array((a.view(np.uint32) >> 16).astype(np.uint16))
    out = device.zeros((64, 8), np.float32)
    image = cujit.compile(_PRODUCT, arch="compute_90a")
    cujit.load(image, device)["product"].prepare(1, 128, shared_bytes=8192)(halves, out)
    np.testing.assert_array_equal(out.numpy(), a @ a[:8].T)


_OVER = r"""
extern "C" __global__ void over(float *out, int n) {
    extern __shared__ float s[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = i;
    __syncthreads();
    if (threadIdx.x < 32) out[threadIdx.x] = s[threadIdx.x];
}"""


def test_missing_dynamic_shared_memory_is_a_fault_with_a_hint(cpu: Device) -> None:
    kernel = cujit.jit(_OVER, device=cpu)["over"]
    with pytest.raises(KernelFaultError) as caught:
        kernel[3, 64](cpu.zeros(32, np.float32), 1)
    assert "of shared memory (the block has 0 bytes)" in str(caught.value)
    assert "a thread from (0, 0, 0) to (31, 0, 0)" in str(caught.value)
    assert "kernel.prepare((3, 1, 1), (64, 1, 1), shared_bytes=N)(…)" in str(caught.value.help)
    assert caught.value.block in {(0, 0, 0), (1, 0, 0), (2, 0, 0)}
    assert caught.value.line


def test_window_is_guarded_after_a_larger_launch(cpu: Device) -> None:
    kernel, out = cujit.jit(_OVER, device=cpu)["over"], cpu.zeros(32, np.float32)
    for _ in range(3):
        kernel[1, 64, 48 << 10](out, 12 << 10)
        with raises(KernelFaultError, "fault-illegal-address", "4,096"):
            kernel[1, 64, 4096](out, 12 << 10)


@pytest.mark.parametrize(("static", "far", "is_written"), _recorded("overruns"))
def test_writes_past_shared_memory_fault_where_an_h200_does(
    static: int, far: int, is_written: bool, cpu: Device
) -> None:
    body = (
        f".shared .align 4 .b8 fixed[{static}]; mov.u32 r1, fixed; add.u32 r1, r1, {far}; st.shared.u8 [r1], 7; "
        "ld.shared.u8 r2, [r1]; ld.param.u64 a, [out]; st.global.u32 [a], r2;"
    )
    kernel = cujit.load(cujit.Artifact.of(_HEAD + _ENTRY.format(more="", body=body)), cpu)["k"]
    out = cpu.zeros(1, np.uint32)
    for grid in (1, 3):
        if is_written:
            kernel[grid, 1](out)
            assert out.numpy()[0] == 7
        else:
            with raises(KernelFaultError, "fault-illegal-address", f"{far:,}", f"{static:,}"):
                kernel[grid, 1](out)


def test_strays_end_the_launch_and_not_the_process() -> None:
    program = Path(__file__).with_name("strays.py")
    environment = {**os.environ, "MALLOC_CHECK_": "3"}
    found = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300, env=environment)
    *cases, last = found.stdout.splitlines()
    assert (found.returncode, last) == (0, "alive"), found.stderr
    assert len(cases) > 150
    assert not [case for case in cases if "KernelFaultError: kernel k, block (" not in case]


def test_sized_extern_shared_variables_have_their_own_memory(device: Device) -> None:
    """As ptxas 13.0 has it in whole programs, and as Taichi declares its shared arrays."""
    declared = ".extern .shared .align 8 .b8 sized[256];\n.extern .shared .b8 rest[];\n.extern .shared .b32 one;\n"
    body = "ld.param.u64 a, [out]; st.shared.u8 [sized+255], 1; st.shared.u32 [one], 1; st.shared.u8 [rest+63], 1;\n"
    body += "".join(
        f"mov.u32 r0, {name}; st.global.u32 [a+{4 * k}], r0;\n" for k, name in enumerate(("sized", "one", "rest"))
    )
    out = device.zeros(3, np.uint32)
    module = cujit.load(cujit.Artifact.of(_HEAD + declared + _ENTRY.format(more="", body=body)), device)
    module["k"].prepare(1, 1, shared_bytes=64)(out)
    sized, one, rest = out.numpy().tolist()
    assert one >= sized + 256 or one + 4 <= sized
    assert rest >= max(sized + 256, one + 4)
