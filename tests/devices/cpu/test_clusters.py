"""Clusters of blocks: their barrier, their shared memory, and what they say of themselves."""

from __future__ import annotations

import numpy as np
import pytest

import cujit
from cujit.devices.cpu.backend import CpuBackend
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from cujit.formats.ptx.isa.semantics import TABLE, Trait
from cujit.loading import jit
from devices.cpu.launching import Array, blank, run_ptx
from groups import GROUPS

SHARED = ".shared .align 16 .b32 cells[1024];"


def places(grid: tuple[int, ...], cluster: tuple[int, ...]) -> tuple[Array, Array]:
    """Number the cluster that each block belongs to, and its rank in it, blocks in the order of the grid."""
    x, y, z = (np.arange(n) for n in grid)
    zz, yy, xx = (a.ravel() for a in np.meshgrid(z, y, x, indexing="ij"))
    gx, gy = grid[0] // cluster[0], grid[1] // cluster[1]
    number = (zz // cluster[2] * gy + yy // cluster[1]) * gx + xx // cluster[0]
    rank = (zz % cluster[2] * cluster[1] + yy % cluster[1]) * cluster[0] + xx % cluster[0]
    return number, rank


# Every block hands its number to the block of the next rank, by an address of that block's shared memory.
RING = """mov.u32 r1, %cluster_ctarank; mov.u32 r2, %cluster_nctarank; mov.u32 r10, %ctaid.y; mov.u32 r11, %ctaid.z;
mov.u32 r12, %nctaid.x; mov.u32 r13, %nctaid.y; mad.lo.u32 r10, r11, r13, r10; mad.lo.u32 r10, r10, r12, b;
mad.lo.u32 r0, r10, n, t; mad.wide.u32 at, r0, 4, p0;
add.u32 r3, r1, 1; rem.u32 r3, r3, r2; mov.u32 r4, cells; mad.lo.u32 r5, t, 4, r4;
mad.lo.u32 r6, r10, 1000, t; barrier.cluster.arrive; barrier.cluster.wait;
{give}
barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
ld.shared.u32 r8, [r5]; st.global.u32 [at], r8;"""

GIVES = {
    "store": "mapa.shared::cluster.u32 r7, r5, r3; st.shared::cluster.u32 [r7], r6;",
    "generic": "cvt.u64.u32 d1, r5; cvta.shared.u64 d1, d1; mapa.u64 d2, d1, r3; st.u32 [d2], r6;",
    "atomic": """st.shared.u32 [r5], 0; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        mapa.shared::cluster.u32 r7, r5, r3; atom.shared::cluster.add.u32 r9, [r7], r6;""",
    "load": """st.shared.u32 [r5], r6; barrier.cluster.arrive; barrier.cluster.wait;
        add.u32 r9, r1, r2; sub.u32 r9, r9, 1;
        rem.u32 r9, r9, r2; mapa.shared::cluster.u32 r7, r5, r9; ld.shared::cluster.u32 r6, [r7];
        barrier.cluster.arrive; barrier.cluster.wait; st.shared.u32 [r5], r6;""",
}


@pytest.mark.parametrize("give", GIVES)
@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 2, 1), (1, 2, 2)])
def test_blocks_access_the_shared_memory_of_their_cluster(device: Device, cluster: tuple[int, ...], give: str) -> None:
    grid, block = (4, 2, 2), 48
    directives = f".reqnctapercluster {cluster[0]}, {cluster[1]}, {cluster[2]}"
    body = RING.format(give=GIVES[give])
    (got,) = run_ptx(device, body, blank(16 * block), grid=grid, block=block, outside=SHARED, directives=directives)
    number, rank = places(grid, cluster)
    size = int(np.prod(cluster))
    for k in range(16):
        before = int(np.flatnonzero((number == number[k]) & (rank == (rank[k] - 1) % size))[0])
        np.testing.assert_array_equal(
            got[block * k : block * (k + 1)], before * 1000 + np.arange(block), err_msg=str(k)
        )


WHO = """extern "C" __global__ void k(unsigned *out) {
    unsigned v[12]; unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(v[0]));
    asm volatile("mov.u32 %0, %%clusterid.y;" : "=r"(v[1]));
    asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(v[2]));
    asm volatile("mov.u32 %0, %%nclusterid.y;" : "=r"(v[3]));
    asm volatile("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(v[4]));
    asm volatile("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(v[5]));
    asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(v[6]));
    asm volatile("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(v[7]));
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(v[8]));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(v[9]));
    asm volatile("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p; }" : "=r"(v[10]));
    __shared__ int x; asm volatile("{ .reg .u64 a; getctarank.u64 %0, %1; }" : "=r"(v[11]) : "l"(&x));
    if (threadIdx.x == 0) for (int i = 0; i < 12; i++) out[12 * block + i] = v[i];
}"""


@pytest.mark.parametrize("cluster", [None, (1, 1, 1), (2, 1, 1), (2, 2, 1)], ids=["none", "one", "two", "four"])
def test_every_block_has_its_cluster_registers(device: Device, cluster: tuple[int, int, int] | None) -> None:
    grid, (cx, cy, cz) = (4, 2, 1), cluster or (1, 1, 1)
    out = device.zeros(8 * 12, np.uint32)
    kernel = jit(WHO, names=["k"], device=device, arch=None if device.is_gpu else "compute_90")["k"]
    kernel.prepare(grid, 64, cluster=cluster)(out)
    _, rank = places(grid, (cx, cy, cz))
    x, y = np.arange(8) % 4, np.arange(8) // 4
    one = np.ones(8, int)
    columns = [x // cx, y // cy, 4 // cx * one, 2 // cy * one, x % cx, y % cy, cx * one, cy * one, rank, cx * cy * one]
    columns += [int(cluster is not None) * one, rank]
    np.testing.assert_array_equal(out.numpy().reshape(8, 12), np.stack(columns, 1))


def test_clusters_of_a_cooperative_grid_are_apart(device: Device) -> None:
    text = (
        GROUPS
        + """
    namespace cg = cooperative_groups;
    extern "C" __global__ void k(int *out, int *total) {
        __shared__ int mine;
        auto cluster = cg::this_cluster(); auto grid = cg::this_grid();
        int rounds = 1 + blockIdx.x / 2 % 3, seen = 0;
        for (int r = 0; r < rounds; r++) {
            if (threadIdx.x == 0) mine = blockIdx.x * 10 + r;
            cluster.sync();
            seen = seen * 100 + *cluster.map_shared_rank(&mine, cluster.block_rank() ^ 1);
            cluster.sync();
        }
        atomicAdd(total, 1);
        grid.sync();
        if (threadIdx.x == 40) { out[2 * blockIdx.x] = seen; out[2 * blockIdx.x + 1] = *(volatile int *)total; }
    }"""
    )
    out, total = device.zeros(16, np.int32), device.zeros(1, np.int32)
    kernel = jit(text, names=["k"], device=device, arch=None if device.is_gpu else "compute_90")["k"]
    kernel.prepare(8, 64, cooperative=True, cluster=2)(out, total)
    expected = []
    for b in range(8):
        seen = 0
        for r in range(1 + b // 2 % 3):
            seen = seen * 100 + (b ^ 1) * 10 + r
        expected += [seen, 512]
    assert out.numpy().tolist() == expected


def test_thread_that_arrives_and_exits_counts_once(device: Device) -> None:
    # Thread 0 of every block arrives and exits at once; the others must still wait for one another.
    body = """mov.u32 r4, cells; mad.lo.u32 r5, t, 4, r4; mov.u32 r1, %cluster_ctarank; xor.b32 r3, r1, 1;
    setp.eq.u32 q1, t, 0; @q1 bra FIRST;
    setp.lt.u32 q2, t, 32; @q2 bra SLOW; bra GIVE;
    SLOW: mov.u32 r8, 0; TURN: add.u32 r8, r8, 1; setp.lt.u32 q3, r8, 500; @q3 bra TURN;
    GIVE: mapa.shared::cluster.u32 r7, r5, r3; mad.lo.u32 r6, b, 100, t; st.shared::cluster.u32 [r7], r6;
    barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 r9, [r5]; st.global.u32 [at], r9;
    barrier.cluster.arrive; barrier.cluster.wait; ret;
    FIRST: st.global.u32 [at], 5; barrier.cluster.arrive; ret;"""
    (got,) = run_ptx(
        device, body, blank(4 * 64), grid=4, block=64, outside=SHARED, directives=".reqnctapercluster 2, 1, 1"
    )
    t, b = np.arange(256) % 64, np.arange(256) // 64
    np.testing.assert_array_equal(got, np.where(t == 0, 5, (b ^ 1) * 100 + t))


def test_lanes_arrive_again_before_others_wait(device: Device) -> None:
    # Even lanes pass the barrier and arrive for the next round while odd ones of their warps still are on the way.
    body = """and.b32 r1, t, 1; setp.eq.u32 q1, r1, 0; mov.u32 r4, cells; mad.lo.u32 r5, t, 4, r4;
    mov.u32 r2, %cluster_ctarank; xor.b32 r3, r2, 1; mapa.shared::cluster.u32 r7, r5, r3;
    barrier.cluster.arrive; @q1 bra EVEN; bra ODD;
    EVEN: barrier.cluster.wait; st.shared::cluster.u32 [r7], 3; barrier.cluster.arrive; barrier.cluster.wait; bra END;
    ODD: barrier.cluster.wait; st.shared::cluster.u32 [r7], 4; barrier.cluster.arrive; barrier.cluster.wait;
    END: ld.shared.u32 r8, [r5]; st.global.u32 [at], r8;"""
    (got,) = run_ptx(
        device, body, blank(128), grid=2, block=64, outside=SHARED, directives=".reqnctapercluster 2, 1, 1"
    )
    assert got.tolist() == [3, 4] * 64


@pytest.mark.parametrize("threads", [1, 3])
def test_many_clusters_run_on_few_threads(threads: int) -> None:
    text = (
        GROUPS
        + """
    extern "C" __global__ void __cluster_dims__(4) k(int *out) {
        __shared__ int sum; auto cluster = cooperative_groups::this_cluster();
        if (threadIdx.x == 0) sum = 0;
        cluster.sync();
        atomicAdd(cluster.map_shared_rank(&sum, (cluster.block_rank() + threadIdx.x) % 4), blockIdx.x);
        cluster.sync();
        if (threadIdx.x == 0) out[blockIdx.x] = sum;
    }"""
    )
    device = Device(CpuBackend(threads))
    out = device.zeros(400, np.int32)
    jit(text, names=["k"], device=device, arch="compute_90")["k"][400, 40](out)
    of_cluster = np.arange(400).reshape(100, 4).sum(1) * 10
    np.testing.assert_array_equal(out.numpy(), np.repeat(of_cluster, 4))


_NEEDS_CLUSTER = {
    "st .mbarrier::complete_tx::bytes": "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [cells], t, [bar];",
    "red .mbarrier::complete_tx::bytes":
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [cells], t, [bar];",
    "cp .bulk .shared::cluster .shared::cta":
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [cells], [cells+64], 16, [bar];",
    "cp .reduce .mbarrier::complete_tx::bytes":
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 "
        "[cells], [cells+64], 16, [bar];",
}  # fmt: skip


def test_each_cluster_instruction_has_a_case() -> None:
    assert {row.form for row in TABLE if Trait.EXPLICIT in row.traits} == _NEEDS_CLUSTER.keys()


@pytest.mark.parametrize("form", _NEEDS_CLUSTER)
@pytest.mark.parametrize("check", ["", "all"])
def test_launch_without_a_cluster_fails_at_cluster_code(form: str, check: str) -> None:
    """Only if a thread comes to it: thread 5 does, and a launch in which none does goes well."""
    text, waits = _NEEDS_CLUSTER[form], ""
    count = 99
    if form.startswith("cp"):  # a block does not end before its copies have landed
        count = 1
        waits = """@q2 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16; @!q2 bra DONE; .reg .pred landed;
        WAIT: mbarrier.try_wait.parity.shared.b64 landed, [bar], 0; @!landed bra WAIT; DONE:"""
    body = f""".shared .align 8 .b64 bar; setp.eq.u32 q1, t, 0; @q1 mbarrier.init.shared.b64 [bar], {count}; bar.sync 0;
    mad.lo.u32 r4, t, 4, 0; mov.u32 r5, cells; add.u32 r5, r5, r4; st.shared.u32 [r5], t;
    st.shared.u32 [r5+128], t; fence.proxy.async; bar.sync 0; ld.global.u32 r1, [p0]; setp.eq.u32 q2, t, r1;
    """
    device = cujit.cpu(check=check) if check else cujit.cpu()
    for directives, lane in ((".reqnctapercluster 1, 1, 1", 5), ("", 99)):
        code = f"{body}@q2 {text} {waits}"
        run_ptx(device, code, np.full(64, lane, np.uint32), outside=SHARED, directives=directives)
    with pytest.raises(KernelFaultError) as caught:
        run_ptx(device, f"{body}@q2 {text}", np.full(64, 5, np.uint32), outside=SHARED)
    error = caught.value
    assert (error.kind, error.thread) == ("no_cluster", (5, 0, 0))
    assert text in error.message
    assert "cluster=1" in str(error)


@pytest.mark.parametrize("arrive", ["barrier.cluster.arrive;", "bar.arrive 1, 64;"])
def test_kernel_may_arrive_at_a_barrier_and_never_wait(arrive: str) -> None:
    (got,) = run_ptx(cujit.cpu(), f"{arrive} st.global.u32 [at], t;", blank(32))
    assert got.tolist() == list(range(32))


def test_replays_and_schedules_keep_the_cluster() -> None:
    device = cujit.cpu()
    out = device.zeros(2 * 12, np.uint32)
    launch = jit(WHO, names=["k"], device=device, arch="compute_90")["k"].prepare(2, 64, cluster=2)
    assert np.asarray(launch.replay_on_cpu(out)[0]).reshape(2, 12)[:, 8:11].tolist() == [[0, 2, 1], [1, 2, 1]]
    assert launch.under_schedules(out, schedules=2).equal


@pytest.mark.parametrize("directive", [".reqnctapercluster 2, 2, 1", ".reqnctapercluster 4", ""])
def test_kernel_with_cluster_dims_compiles_before_its_launch(directive: str) -> None:
    text = f".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k() {directive} {{ ret; }}"
    kernel = cujit.load(text, cujit.cpu())["k"]
    kernel.compile(64)
    before = kernel.compile_s
    kernel[(4, 4), 64]()
    assert kernel.compile_s == before > 0
