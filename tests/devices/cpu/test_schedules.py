"""Launches under many schedules: right kernels give the same, wrong ones are found, and a seed repeats its order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import cujit
from cujit.devices.cpu.observe.scheduling import Schedule, numbers_of
from devices.cpu.async_kernels import KERNELS, run, source_of, tensor_launch
from raising import raises
from sweeps import part

pytestmark = pytest.mark.usefixtures("unoptimised")

NUMBERS = np.arange(64)
CODE = """
extern "C" __global__ void races(int *o) { if (threadIdx.x % 32 == 0) o[0] = threadIdx.x + 1000 * blockIdx.x; }
extern "C" __global__ void sums(const float *x, float *o) { atomicAdd(o, x[blockIdx.x * blockDim.x + threadIdx.x]); }
extern "C" __global__ void counts(int *o) { atomicAdd(o, 1); atomicMax(o + 1, (int)threadIdx.x); }
extern "C" __global__ void tickets(int *o) { o[atomicAdd(o + 64, 1)] = threadIdx.x; }
extern "C" __global__ void order(int *o) {
  if (threadIdx.x == 0) o[blockIdx.x] = atomicAdd(o + gridDim.x, 1);
}
extern "C" __global__ void looks_back(int *o) {
  if (threadIdx.x == 0) { while (blockIdx.x && !((volatile int *)o)[blockIdx.x - 1]) ; o[blockIdx.x] = 1; }
}
extern "C" __global__ void scan(const int *x, int *o) {
  __shared__ int s[128]; int t = threadIdx.x;
  s[t] = x[t]; __syncthreads();
  for (int d = 1; d < 128; d *= 2) { int v = t >= d ? s[t - d] : 0; __syncthreads(); s[t] += v; __syncthreads(); }
  o[t] = s[t];
}
extern "C" __global__ void unsynced(const int *x, int *o) {
  __shared__ int s[128]; int t = threadIdx.x;
  s[t] = x[t]; o[t] = s[127 - t];
}
"""


def kernel(name: str, device: cujit.Device) -> cujit.Kernel:
    return cujit.load(cujit.compile(CODE, arch="compute_90"), device)[name]


@pytest.mark.parametrize("name", KERNELS)
def test_right_copy_kernels_are_equal_under_schedules(name: str) -> None:
    device = cujit.cpu()
    ptx = cujit.compile(source_of(KERNELS[name]), arch="compute_90")
    x, o = device.array(np.arange(1024, dtype=np.int32)), device.zeros(64, np.int32)
    report = cujit.load(ptx, device)["k"].prepare(1, 64, cluster=1).under_schedules(x, o, 1, schedules=20)
    assert report.difference is None
    for seed in (3, 8):
        assert run(cujit.cpu(schedule=seed), KERNELS[name], wait=1).tolist() == NUMBERS.tolist()


@pytest.mark.parametrize(("name", "seed"), part(itertools.product(KERNELS, range(6)), 6))
def test_forgotten_wait_is_found_under_every_schedule(name: str, seed: int) -> None:
    device = cujit.cpu(schedule=seed, check="race")
    assert run(device, KERNELS[name], wait=1).tolist() == NUMBERS.tolist()
    with pytest.raises(cujit.errors.KernelFaultError) as caught:
        run(device, KERNELS[name], wait=0)
    assert caught.value.kind == "race"


@pytest.mark.parametrize("name", KERNELS)
def test_schedules_differ_if_a_wait_is_missing(name: str) -> None:
    device = cujit.cpu()
    ptx = cujit.compile(source_of(KERNELS[name]), arch="compute_90")
    x, o = device.array(np.arange(1024, dtype=np.int32)), device.zeros(64, np.int32)
    report = cujit.load(ptx, device)["k"].prepare(1, 64, cluster=1).under_schedules(x, o, 0, schedules=50)
    assert not report.equal
    assert report.difference is not None
    assert report.difference.argument == 1


def test_difference_names_seeds_element_and_writes() -> None:
    device = cujit.cpu()
    report = kernel("races", device)[2, 128].under_schedules(device.zeros(4, np.int32))
    assert not report.equal
    found = report.difference
    assert found is not None
    assert (found.argument, found.index, found.by_atomics) == (0, (0,), False)
    assert found.first.seed == 0 < found.second.seed < 50
    for each in (found.first, found.second):
        last = each.writes[-1]
        assert each.value == last.thread[0] + 1000 * last.block[0]
        assert "st.global" in last.text
    assert f"schedule {found.second.seed}: {found.second.value}" in str(report)


def test_seed_repeats_its_order_and_others_differ() -> None:
    seen = []
    for seed in (*range(5), *range(5)):
        device = cujit.cpu(schedule=seed)
        o = device.zeros(65, np.int32)
        kernel("tickets", device)[2, 32](o)
        seen.append(tuple(o.numpy().tolist()))
    assert seen[:5] == seen[5:]
    orders = set()
    for seed in range(5):
        device = cujit.cpu(schedule=seed)
        a = device.zeros(65, np.int32)
        kernel("order", device)[16, 32](a)
        orders.add(tuple(a.numpy()[:16].tolist()))
    assert len(orders) > 1


def test_atomic_sums_are_their_own_category() -> None:
    device = cujit.cpu()
    x = device.array(np.random.default_rng(1).normal(size=256).astype(np.float32))
    report = kernel("sums", device)[2, 128].under_schedules(x, device.zeros(1, np.float32))
    assert report.equal
    assert report.difference is not None
    assert report.difference.by_atomics
    assert "only the order of atomic operations decides" in str(report)
    exact = kernel("sums", device)[2, 128].under_schedules(x, device.zeros(1, np.float32), tolerance=0)
    assert not exact.equal
    assert kernel("counts", device)[2, 128].under_schedules(device.zeros(2, np.int32)).difference is None


def test_kernel_needs_its_barriers_for_equal_schedules() -> None:
    device = cujit.cpu()
    x, o = device.array(np.arange(128, dtype=np.int32)), device.zeros(128, np.int32)
    assert kernel("scan", device)[1, 128].under_schedules(x, o).difference is None
    assert not kernel("unsynced", device)[1, 128].under_schedules(x, o).equal


@pytest.mark.parametrize("seed", range(12))
def test_blocks_start_in_order_and_all_make_progress(seed: int) -> None:
    device = cujit.cpu(schedule=seed, timeout_s=60)
    o = device.zeros(40, np.int32)
    kernel("looks_back", device)[40, 64](o)
    assert o.numpy().tolist() == [1] * 40


def test_blocks_may_start_in_any_order() -> None:
    orders = set()
    for seed in range(8):
        device = cujit.cpu(schedule=seed, start_order="any")
        o = device.zeros(33, np.int32)
        kernel("order", device)[32, 32](o)
        assert sorted(o.numpy()[:32].tolist()) == list(range(32))
        orders.add(int(o.numpy()[31]))
    assert min(orders) < 16


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "7", 2**64])
def test_invalid_seed_is_refused(wrong: object) -> None:
    with raises(cujit.errors.OptionError, "option", "seed"):
        cujit.cpu(schedule=wrong)  # type: ignore[arg-type]


def test_incomparable_arguments_are_refused() -> None:
    device = cujit.cpu()
    launch = kernel("counts", device)[1, 32]
    with raises(cujit.errors.OptionError, "option", "1", "schedules=50"):
        launch.under_schedules(device.zeros(2, np.int32), schedules=1)
    with raises(cujit.errors.OptionError, "option", 'start_order="any"'):
        launch.under_schedules(device.zeros(2, np.int32), start_order="up")
    with pytest.raises(cujit.errors.OptionError):
        Schedule(0, "down")


def test_random_numbers_of_a_seed_match_the_source() -> None:
    # Source: the reference implementation of SplitMix64, seed 1234567.
    numbers = numbers_of(1234567)
    assert [next(numbers) for _ in range(2)] == [6457827717110365317, 3203168211198807973]


@pytest.mark.parametrize("wait", [0, 1])
def test_arrays_behind_tensor_maps_are_copied_and_compared(wait: int) -> None:
    launch, arguments = tensor_launch(cujit.cpu(), "cp.async.bulk.tensor, out", wait=wait)
    report = launch.under_schedules(*arguments, schedules=20)
    assert report.equal == bool(wait)
    if report.difference is not None:
        assert report.difference.argument == 0
    assert not arguments[2].numpy().any()
    replayed = launch.replay_on_cpu(*arguments)
    left = np.asarray(replayed[0])
    assert left.shape == (4, 16)
    assert wait == 0 or np.array_equal(left.reshape(-1), np.arange(64))


def test_later_comparison_finds_the_difference_too() -> None:
    """Shared memory that an earlier launch left would hold what the kernel has to wait for."""
    launch = kernel("unsynced", cujit.cpu())[1, 128]
    x, out = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    assert [launch.under_schedules(x, out, schedules=5).equal for _ in range(2)] == [False, False]
