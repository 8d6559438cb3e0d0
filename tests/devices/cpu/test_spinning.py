"""Loops that wait for what another lane, warp or block writes; grids that run side by side."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from cujit.devices.cpu.backend import CpuBackend
from cujit.devices.cpu.control.flow import _TURNS
from cujit.devices.cpu.run.grid import Share, Workers
from cujit.devices.cpu.run.launch import Launch
from cujit.devices.device import Device
from cujit.devices.streams import Graph
from cujit.errors import KernelFaultError
from cujit.loading import jit, load
from cujit.machine import cpu
from devices.cpu.launching import blank, run_ptx
from groups import GROUPS
from raising import raises

SHARED = ".shared .align 16 .b32 cells[1024];"

LOCKS = {
    "the_way_out_is_inside": """bool done = false;
        while (!done) { if (atomicCAS(lock, 0, 1) == 0) { BODY atomicExch(lock, 0); done = true; } }""",
    "the_way_out_is_first": "while (atomicCAS(lock, 0, 1) != 0) { } BODY atomicExch(lock, 0);",
    "exchange": "while (atomicExch(lock, 1) != 0) __nanosleep(20); BODY atomicExch(lock, 0);",
    "look_before": """while (true) {
        while (*(volatile int *)lock != 0) { }
        if (atomicCAS(lock, 0, 1) == 0) break;
    } BODY *(volatile int *)lock = 0;""",
    "ticket": """int mine = atomicAdd(lock, 1);
        while (*(volatile int *)(lock + 1) != mine) { } BODY *(volatile int *)(lock + 1) = mine + 1;""",
    "ticket_by_hand": """int mine = atomicAdd(lock, 1); int seen;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(lock + 1) : "memory");
        } while (seen != mine);
        BODY asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(lock + 1), "r"(mine + 1) : "memory");""",
}


@pytest.mark.parametrize("form", LOCKS)
def test_every_lane_acquires_a_lock_in_turn(device: Device, form: str) -> None:
    body = LOCKS[form].replace("BODY", "__threadfence(); *count = *count + 1 + threadIdx.x; __threadfence();")
    text = f"""extern "C" __global__ void k(int *lock, volatile int *count) {{ {body} }}"""
    lock, count = device.zeros(2, np.int32), device.zeros(1, np.int32)
    jit(text, names=["k"], device=device)["k"][5, 70](lock, count)
    assert count.numpy().tolist() == [5 * (70 + 69 * 35)]


def test_constant_in_a_lock_loop_is_not_a_retry(device: Device) -> None:
    body = """AGAIN: mov.u32 r1, 0; atom.global.cas.b32 r2, [p1], r1, 1; setp.ne.u32 q1, r2, 0; @q1 bra AGAIN;
    ld.volatile.global.u32 r3, [p1+4]; add.u32 r3, r3, 1; st.volatile.global.u32 [p1+4], r3; membar.gl;
    atom.global.exch.b32 r2, [p1], 0; st.global.u32 [at], 1;"""
    done, lock = run_ptx(device, body, blank(66), np.zeros(2, np.uint32), grid=2, block=33)
    assert done.tolist() == [1] * 66
    assert lock.tolist() == [0, 66]


def test_retried_update_loses_nothing(device: Device) -> None:
    text = """extern "C" __global__ void k(float *sum, unsigned *tries) {
        unsigned *word = (unsigned *)sum, old = *word, assumed;
        do { assumed = old; old = atomicCAS(word, assumed, __float_as_uint(__uint_as_float(assumed) + 1.0f)); }
        while (assumed != old);
        atomicAdd(tries, 1);
    }"""
    total, tries = device.zeros(1, np.float32), device.zeros(1, np.uint32)
    jit(text, names=["k"], device=device)["k"][7, 100](total, tries)
    assert (total.numpy()[0], tries.numpy()[0]) == (700, 700)


# -- flags ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", ["t < 16", "t >= 16", "t % 2 == 0", "t != 5"])
def test_lanes_wait_for_a_flag_of_their_warp(device: Device, waits: str) -> None:
    text = f"""extern "C" __global__ void k(int *out) {{
        __shared__ volatile int flag, value; unsigned t = threadIdx.x;
        if (t == 0) flag = value = 0;
        __syncthreads();
        if ({waits}) {{ while (flag == 0) {{ }} }} else {{ value = 42; __threadfence_block(); flag = 1; }}
        out[t] = value + t;
    }}"""
    out = device.zeros(32, np.int32)
    jit(text, names=["k"], device=device)["k"][1, 32](out)
    np.testing.assert_array_equal(out.numpy(), np.arange(32) + 42)


def test_warps_hand_a_value_round_by_flags(device: Device) -> None:
    text = """extern "C" __global__ void k(int *out) {
        __shared__ volatile int turn, value; int w = threadIdx.x / 32, warps = blockDim.x / 32;
        if (threadIdx.x == 0) { turn = 0; value = 1; }
        __syncthreads();
        for (int r = 0; r < 5; r++) {
            while (turn != r * warps + w) { }
            if (threadIdx.x % 32 == 0) { value = value * 3 + w; __threadfence_block(); turn = turn + 1; }
            __syncwarp();
        }
        __syncthreads();
        out[threadIdx.x] = value;
    }"""
    out = device.zeros(256, np.int32)
    jit(text, names=["k"], device=device)["k"][1, 256](out)
    value = 1
    for _ in range(5):
        for w in range(8):
            value = value * 3 + w & 0xFFFFFFFF
    assert out.numpy().view(np.uint32).tolist() == [value] * 256


def test_lanes_pass_a_token_in_both_directions(device: Device) -> None:
    text = """extern "C" __global__ void k(int *out) {
        __shared__ volatile int turn; int t = threadIdx.x;
        if (t == 0) turn = 0;
        __syncthreads();
        while (turn != t) { }
        turn = t + 1;
        if (t == 31) turn = 131;
        while (turn != 100 + t) { }
        turn = 99 + t;
        out[t] = t;
    }"""
    out = device.zeros(32, np.int32)
    jit(text, names=["k"], device=device)["k"][1, 32](out)
    assert out.numpy().tolist() == list(range(32))


def test_nested_polling_loops_end(device: Device) -> None:
    # Stage s of lane t waits for stage s of lane t - 1, and every lane in an outer loop for the end of the one before.
    text = """extern "C" __global__ void k(int *out) {
        __shared__ volatile int stage[64], ready; int t = threadIdx.x, n = 0;
        stage[t] = 0;
        if (t == 0) ready = 0;
        __syncthreads();
        while (ready <= 3 * t) {
            while (t > 0 && stage[t - 1] <= n) { if (ready > 1000) break; }
            n++; stage[t] = n;
            if (t == 0 && n >= 3) { ready = 1; break; }
            if (t > 0 && n >= 3) break;
        }
        while (t > 0 && ready != t) { }
        ready = t + 1;
        out[t] = n;
    }"""
    out = device.zeros(64, np.int32)
    jit(text, names=["k"], device=device)["k"][1, 64](out)
    assert out.numpy().tolist() == [3] * 64


def test_barrier_is_reached_while_lanes_of_the_warps_poll(cpu: Device) -> None:
    # An H200 hangs here: its barriers wait for the lanes that poll.
    text = """extern "C" __global__ void k(int *out) {
        __shared__ volatile int flag; int t = threadIdx.x, seen = 0;
        if (t == 0) flag = 0;
        __syncthreads();
        if (t % 2) { while (flag == 0) { } seen = flag; }
        else { asm volatile("barrier.sync 1, 32;" ::: "memory"); if (t == 62) flag = 9; seen = 5; }
        asm volatile("barrier.sync 0;" ::: "memory");
        out[t] = seen;
    }"""
    out = cpu.zeros(64, np.int32)
    jit(text, names=["k"], device=cpu)["k"][1, 64](out)
    assert out.numpy().tolist() == [5, 9] * 32


def test_thread_waits_for_a_polling_function(device: Device) -> None:
    # Nothing in the loop itself reads memory that others write: the function does, and is called by its address.
    text = """__device__ __noinline__ bool take(int *lock) { return atomicCAS(lock, 0, 1) == 0; }
    __device__ __noinline__ bool never(int *lock) { return lock == nullptr; }
    __device__ bool (*table[2])(int *) = {take, never};
    extern "C" __global__ void k(int *lock, volatile int *count, int which) {
        while (!table[which](lock)) { }
        *count = *count + 1; __threadfence(); atomicExch(lock, 0);
    }"""
    lock, count = device.zeros(1, np.int32), device.zeros(1, np.int32)
    jit(text, names=["k"], device=device)["k"][3, 40](lock, count, 0)
    assert count.numpy().tolist() == [120]


def test_poll_ending_during_a_deadlock_search_is_no_deadlock() -> None:
    # One warp polls for some turns, completes the phase that the other one awaits, and exits. The other has looked in
    # that turn already. After turns without progress the scheduler seeks deadlocks, every 64 turns.
    text = """extern "C" __global__ void k(int polls, int *out) {
        __shared__ unsigned long long phase; unsigned at = (unsigned)__cvta_generic_to_shared(&phase);
        if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(at) : "memory");
        __syncthreads();
        if (threadIdx.x < 32) {
            asm volatile("{ .reg .pred p; AGAIN: mbarrier.test_wait.parity.shared.b64 p, [%0], 0; @!p bra AGAIN; }"
                         :: "r"(at) : "memory");
            out[threadIdx.x] = polls;
        } else {
            #pragma unroll 1
            for (int i = 0; i < polls; i++) __nanosleep(20);
            asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" :: "r"(at) : "memory");
        }
    }"""
    place = cpu(1)
    kernel, out = jit(text, names=["k"], device=place)["k"], place.zeros(32, np.int32)
    for turns in range(100, 200):
        kernel[1, 64](turns * _TURNS, out)
        assert out.numpy().tolist() == [turns * _TURNS] * 32


# -- blocks -----------------------------------------------------------------------------------------------

LOOK_BACK = """extern "C" __global__ void k(volatile int *state, volatile int *sums, int *counter) {
    __shared__ int mine, before;
    if (threadIdx.x == 0) {
        mine = atomicAdd(counter, 1); before = 0;
        if (mine > 0) { while (state[mine - 1] == 0) { } __threadfence(); before = sums[mine - 1]; }
        sums[mine] = before + mine + 1; __threadfence(); state[mine] = 1;
    }
    __syncthreads();
    if (threadIdx.x == 33) sums[gridDim.x + mine] = before;
}"""


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_blocks_wait_for_earlier_blocks(threads: int) -> None:
    device, blocks = Device(CpuBackend(threads)), 700
    state, sums, counter = (device.zeros(n, np.int32) for n in (blocks, 2 * blocks, 1))
    jit(LOOK_BACK, names=["k"], device=device)["k"][blocks, 64](state, sums, counter)
    after = np.cumsum(np.arange(1, blocks + 1))
    np.testing.assert_array_equal(sums.numpy()[:blocks], after)
    np.testing.assert_array_equal(sums.numpy()[blocks:], after - np.arange(1, blocks + 1))


BY_HAND = """extern "C" __global__ void k(int *data, int *arrived, int rounds) {
    int at = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    for (int r = 0; r < rounds; r++) {
        int got = data[(r & 1) * n + (at + blockDim.x + 1) % n];
        data[(~r & 1) * n + at] = got * 3 + at;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1);
            while (*(volatile int *)arrived < (r + 1) * (int)gridDim.x) __nanosleep(100);
            __threadfence();
        }
        __syncthreads();
    }
}"""
BY_GROUP = (
    GROUPS
    + """
extern "C" __global__ void k(int *data, int *arrived, int rounds) {
    int at = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    for (int r = 0; r < rounds; r++) {
        int got = data[(r & 1) * n + (at + blockDim.x + 1) % n];
        data[(~r & 1) * n + at] = got * 3 + at;
        cooperative_groups::this_grid().sync();
    }
    if (at == 0) *arrived = (int)cooperative_groups::this_grid().is_valid();
}"""
)


@pytest.mark.parametrize("text", [BY_HAND, BY_GROUP], ids=["by_hand", "by_group"])
def test_cooperative_grid_waits_for_all_its_blocks(device: Device, text: str) -> None:
    grid, block, rounds = 12, 96, 7
    n = grid * block
    first = np.arange(2 * n, dtype=np.int32)
    data, arrived = device.array(first), device.zeros(1, np.int32)
    jit(text, names=["k"], device=device)["k"].prepare(grid, block, cooperative=True)(data, arrived, rounds)
    at, now = np.arange(n), first[:n].astype(np.uint32)
    for _ in range(rounds):
        now = now[(at + block + 1) % n] * np.uint32(3) + at.astype(np.uint32)
    np.testing.assert_array_equal(data.numpy().view(np.uint32)[n:], now)
    assert arrived.numpy()[0] == (1 if text is BY_GROUP else grid * rounds)


def _rounds(place: Device, grid: int, seed: int) -> bool:
    """Run a cooperative grid; tell whether every block saw what others had written in the round before."""
    block, rounds = 256, 7
    n = grid * block
    first = np.random.default_rng(seed).integers(0, 1 << 30, 2 * n, np.int32)
    data, arrived = place.array(first), place.zeros(1, np.int32)
    jit(BY_GROUP, names=["k"], device=place)["k"].prepare(grid, block, cooperative=True)(data, arrived, rounds)
    at, now = np.arange(n), first[:n].view(np.uint32)
    for _ in range(rounds):
        now = now[(at + block + 1) % n] * np.uint32(3) + at.astype(np.uint32)
    return bool((data.numpy().view(np.uint32)[n:] == now).all())


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(("grid", "shares"), [(8, (3, 2)), (13, (3, 4)), (32, (3, 8)), (7, (0, 7))])
def test_every_thread_takes_part_in_a_cooperative_grid(
    grid: int, shares: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, mine = [], threading.get_ident()
    run = Workers.run

    def note(self: Workers, address: int, launch: Launch, share: Share, *more: Any) -> None:
        if threading.get_ident() == mine:
            ran.append((share.helpers, share.chunk, launch.together))
        run(self, address, launch, share, *more)

    monkeypatch.setattr(Workers, "run", note)
    assert _rounds(cpu(4), grid, 1)
    assert _rounds(cpu(4, check="race"), grid, 1)
    assert ran == [(*shares, shares[1]), (0, grid, grid)]


WALK = (
    GROUPS
    + """
extern "C" __global__ void k(const int *x, int *y, int *sums, int n, int rounds) {
    auto grid = cooperative_groups::this_grid();
    int at = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x, sum = 0;
    if (threadIdx.x >= 70 && blockIdx.x % 2) return;
    for (int r = 0; r < rounds; r++) {
        for (int i = at; i < n; i += step) {
            y[i] = x[i] * 3 + r;
            sum = sum * 5 + y[i];
        }
        grid.sync();
        if (threadIdx.x % 3 == 2) sum += y[(at + r) % n];
        for (int i = at; i < n && sum % 64; i += step) sum = sum * 7 + y[(i + r) % n];
        grid.sync();
    }
    sums[at] = sum;
}"""
)


@pytest.mark.usefixtures("unoptimised")
def test_warps_traverse_memory_together() -> None:
    # Lanes leave the loops at different turns, some threads are gone, and the last warp of a block is not whole.
    grid, block, rounds = 6, 100, 3
    n = 13 * grid * block + 45
    first = np.random.default_rng(3).integers(0, 1 << 20, n, np.int32)
    threads = np.arange(grid * block)
    gone = (threads % block >= 70) & (threads // block % 2 == 1)
    y, sums = np.zeros(n, np.int32), np.zeros(grid * block, np.int32)
    for r in range(rounds):
        for i in range(0, n, grid * block):
            places = (i + threads)[(i + threads < n) & ~gone]
            y[places] = first[places] * 3 + r
            sums[places - i] = sums[places - i] * 5 + y[places]
        some = ~gone & (threads % block % 3 == 2)
        sums[some] += y[(threads[some] + r) % n]
        turns = ~gone
        for i in range(0, n, grid * block):
            turns = turns & (i + threads < n) & (np.fmod(sums, 64) != 0)
            sums[turns] = sums[turns] * 7 + y[(i + threads[turns] + r) % n]
    for place in (cpu(1), cpu(3), cpu(2, check="race,memory,init")):
        x, got, totals = place.array(first), place.zeros(n, np.int32), place.zeros(grid * block, np.int32)
        jit(WALK, names=["k"], device=place)["k"].prepare(grid, block, cooperative=True)(x, got, totals, n, rounds)
        np.testing.assert_array_equal(got.numpy(), y)
        np.testing.assert_array_equal(totals.numpy(), sums)


def test_concurrent_cooperative_grids_take_turns() -> None:
    """Whoever finds the threads busy runs all blocks in its own."""
    place = cpu(4)
    with ThreadPoolExecutor(6) as callers:
        assert all(callers.map(lambda seed: _rounds(place, 13, seed), range(24)))


def test_cooperative_grid_without_memory_is_an_error() -> None:
    ptx = """.version 8.0\n.target sm_80\n.address_size 64
    .visible .entry huge() { .local .b8 mine[70368744177664]; st.local.u8 [mine], 1; ret; }"""
    with raises(KernelFaultError, "fault-no-memory") as caught:
        load(ptx.encode(), cpu(4))["huge"].prepare(8, 1024, cooperative=True)()
    assert caught.value.kind == "no_memory"


@pytest.mark.parametrize("watched", [None, "all"])
def test_grids_synchronize_where_an_h200_allows(watched: str | None) -> None:
    # On an H200, driver of CUDA 13.0: a stream has the memory for it from its first cooperative launch on, and a kernel
    # that finds none traps, be it one block or many.
    place = cpu(check=watched)
    kernel = jit(BY_GROUP, names=["k"], device=place)["k"]

    def meet(grid: int, **more: object) -> str:
        data, arrived = place.zeros(2 * 96 * grid, np.int32), place.zeros(1, np.int32)
        launch = kernel.prepare(grid, 96, timeout_s=200, **more)  # type: ignore[arg-type]
        try:
            launch(data, arrived, 3)
        except KernelFaultError as e:
            return e.kind if "kernel.prepare(grid, block, cooperative=True)" in e.message else e.message
        return "met" if arrived.numpy()[0] else ""

    own, other = place.stream(), place.stream()
    assert [meet(n, stream=own) for n in (1, 4)] == ["trap", "trap"]
    assert meet(4, stream=own, cooperative=True) == "met"
    assert [meet(n, stream=own) for n in (1, 4)] == ["met", "met"]
    assert meet(4, stream=other) == "trap"
    assert meet(100_000, stream=own) == "trap"  # more than run at a time: a GPU hangs


def test_graph_grid_synchronizes_if_cooperative() -> None:
    # On an H200, driver of CUDA 13.0, whatever ran in the stream before.
    place = cpu()
    kernel = jit(BY_GROUP, names=["k"], device=place)["k"]
    stream, data, arrived = place.stream(), place.zeros(2 * 96 * 4, np.int32), place.zeros(1, np.int32)

    def graph(*, cooperative: bool) -> Graph:
        with place.capture(stream) as captured:
            kernel.prepare(4, 96, stream=stream, cooperative=cooperative)(data, arrived, 3)
        return captured

    graph(cooperative=True).launch(stream)
    assert arrived.numpy()[0]
    with pytest.raises(KernelFaultError):  # the graph gave the stream nothing
        kernel.prepare(4, 96, stream=stream)(data, arrived, 3)
    kernel.prepare(4, 96, stream=stream, cooperative=True)(data, arrived, 3)
    kernel.prepare(4, 96, stream=stream)(data, arrived, 3)
    with pytest.raises(KernelFaultError):
        graph(cooperative=False).launch(stream)


def test_grid_is_valid_after_a_cooperative_launch(device: Device) -> None:
    text = (
        GROUPS
        + """
    extern "C" __global__ void k(int *valid) { *valid = (int)cooperative_groups::this_grid().is_valid(); }"""
    )
    kernel = jit(text, names=["k"], device=device)["k"]
    valid, stream = device.zeros(1, np.int32), device.stream()
    first, plain = kernel.prepare(2, 32, cooperative=True, stream=stream), kernel.prepare(2, 32, stream=stream)
    for launch in (first, *[plain] * 6):  # the first ones are Python's, the others machine code's
        launch(valid)
        stream.synchronize()
        assert valid.numpy()[0] == 1
        valid = device.zeros(1, np.int32)
        device.synchronize()


def test_nanosleep_pauses_a_thread(device: Device) -> None:
    body = "and.b32 r1, t, 7; mul.lo.u32 r1, r1, 50; nanosleep.u32 r1; nanosleep.u32 20; st.global.u32 [at], r1;"
    (got,) = run_ptx(device, body, blank(64), block=64)
    np.testing.assert_array_equal(got, np.arange(64) % 8 * 50)
