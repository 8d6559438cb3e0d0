"""Asynchronous copies are done as late as PTX allows: at the wait that is for them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from devices.cpu.async_kernels import KERNELS, TENSOR_KERNELS, run, run_tensor, source_of
from raising import raises

pytestmark = pytest.mark.usefixtures("unoptimised")

NUMBERS = np.arange(64)


@pytest.mark.parametrize("name", KERNELS)
def test_copy_is_complete_after_its_wait(name: str, cpu: Device) -> None:
    assert run(cpu, KERNELS[name], wait=1).tolist() == NUMBERS.tolist()


@pytest.mark.parametrize("name", KERNELS)
def test_copy_without_its_wait_is_late(name: str, cpu: Device) -> None:
    assert run(cpu, KERNELS[name], wait=0).tolist() == [7] * 64


def test_copy_lands_after_reads_of_other_warps(cpu: Device) -> None:
    # Warp 0 overwrites by copies what the others have yet to read: no barrier stands between.
    body = """
  __shared__ __align__(16) int s[256]; int t = threadIdx.x;
  s[t] = x[t]; __syncthreads();
  o[t] = s[255 - t];
  if (t < 64) { copy16(s + 4 * t, x + 512 + 4 * t); GROUP(); WAIT(0); }"""
    assert run(cpu, body, wait=1, count=256, block=256).tolist() == list(range(256))[::-1]
    shuffled = body.replace("__syncthreads();", "__syncthreads(); if (x[t] < 0) __nanosleep(1);", 1)
    stacks = shuffled + "\n  while (*(volatile const int *)x) ;"  # it polls, so that its warps have stacks
    assert run(cpu, stacks, wait=1, count=256, block=256).tolist() == list(range(256))[::-1]


def test_lanes_wait_for_their_own_groups(cpu: Device) -> None:
    # Odd lanes commit once more, an empty group, so that their first copy is no longer among the last two.
    body = """
  __shared__ __align__(128) int s[256]; int t = threadIdx.x;
  for (int k = t; k < 256; k += 64) s[k] = 7;
  __syncthreads();
  copy16(s + 4 * t, x + 4 * t); GROUP(); GROUP();
  if (t & 1) GROUP();
  WAIT(2); o[t] = s[4 * t]; WAIT(0);"""
    assert run(cpu, body, wait=1).tolist() == [4 * t if t & 1 else 7 for t in range(64)]


def test_wait_all_covers_uncommitted_copies(cpu: Device) -> None:
    body = """
  __shared__ __align__(128) int s[256]; int t = threadIdx.x;
  for (int k = t; k < 256; k += 64) s[k] = 7;
  __syncthreads();
  copy16(s + 4 * t, x + 4 * t);
  if (wait) asm volatile("cp.async.wait_all;" ::: "memory"); else WAIT(0);
  o[t] = s[4 * t];"""
    assert run(cpu, body, wait=1).tolist() == [4 * t for t in range(64)]
    assert run(cpu, body, wait=0).tolist() == [7] * 64


def test_copies_past_the_limit_complete_automatically(cpu: Device) -> None:
    body = """
  __shared__ __align__(128) int s[256]; int t = threadIdx.x;
  for (int k = 0; k < 5000; k++) { copy16(s + 4 * t, x + 4 * ((t + k) % 128)); GROUP(); }
  WAIT(0); o[t] = s[4 * t];"""
    assert run(cpu, body, wait=1).tolist() == [4 * ((t + 4999) % 128) for t in range(64)]


def test_barrier_counts_an_arrival_for_copies_without_noinc(cpu: Device) -> None:
    body = """
  __shared__ __align__(128) int s[256]; __shared__ uint64_t bar; int t = threadIdx.x;
  for (int k = t; k < 256; k += 64) s[k] = 7;
  if (t == 0) make(&bar, 64);
  __syncthreads();
  copy16(s + 4 * t, x + 4 * t);
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" :: "r"(sh(&bar)) : "memory");
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(sh(&bar)) : "memory");
  until(&bar, 0);
  o[t] = s[t];"""
    assert run(cpu, body, wait=1).tolist() == NUMBERS.tolist()


def test_unawaited_copy_lands_before_an_endless_poll(cpu: Device) -> None:
    # Polling data is no wait, and still ends: copies make progress.
    body = """
  __shared__ __align__(128) int s[64]; __shared__ uint64_t bar; int t = threadIdx.x;
  s[t] = -1;
  if (t == 0) make(&bar, 1);
  __syncthreads();
  if (t == 0) { expect(&bar, 256); bulk_in(s, x, 256, &bar); }
  while (((volatile int *)s)[t] == -1) ;
  o[t] = s[t];"""
    assert run(cpu, body, wait=1).tolist() == NUMBERS.tolist()


def test_unawaited_store_completes_at_kernel_exit(cpu: Device) -> None:
    body = """
  __shared__ __align__(128) int s[64]; int t = threadIdx.x;
  s[t] = x[t];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) bulk_out(o, s, 256);"""
    assert run(cpu, body, wait=1).tolist() == NUMBERS.tolist()


def test_reads_are_over_before_writes(cpu: Device) -> None:
    # Behind wait_group.read the target still has what it had; behind wait_group it has not.
    body = """
  __shared__ __align__(128) int s[64]; int t = threadIdx.x;
  s[t] = x[t]; o[64 + t] = 5;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    bulk_out(o + 64, s, 256); WAIT_READ(0); o[0] = ((volatile int *)o)[65];
    WAIT_OUT(0); o[1] = ((volatile int *)o)[65];
  }"""
    got = run(cpu, body, wait=1, count=128)
    assert got[:2].tolist() == [5, 1]
    assert got[64:].tolist() == NUMBERS.tolist()


def test_copy_fault_names_the_line_of_the_copy(cpu: Device) -> None:
    body = """
  __shared__ __align__(128) int s[256];
  copy16(s + 4 * threadIdx.x, (const char *)16); GROUP();
  WAIT(0); o[threadIdx.x] = s[threadIdx.x];"""
    with pytest.raises(cujit.errors.KernelFaultError) as caught:
        run(cpu, body, wait=1)
    assert "cp.async.cg.shared.global" in str(caught.value)
    run(cpu, KERNELS["cp.async"], wait=1)  # and the next launch goes well


def test_every_block_has_its_own_copies(cpu: Device) -> None:
    body = """
  __shared__ __align__(128) int s[256]; int t = threadIdx.x, b = blockIdx.x;
  for (int k = t; k < 256; k += 64) s[k] = 7;
  __syncthreads();
  copy16(s + 4 * t, x + 4 * (b % 128)); GROUP();
  if (b & 1) WAIT(0);
  __syncthreads();
  o[64 * b + t] = s[4 * t];"""
    ptx = cujit.compile(source_of(body), arch="compute_90")
    x, o = cpu.array(np.arange(1024, dtype=np.int32)), cpu.zeros(64 * 500, np.int32)
    cujit.load(ptx, cpu)["k"][500, 64](x, o, 1)
    expected = [4 * (b % 128) if b & 1 else 7 for b in range(500)]
    assert (o.numpy().reshape(500, 64) == np.array(expected)[:, None]).all()


# -- what the check for races finds --------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_race_check_names_a_copy_without_a_wait(name: str) -> None:
    device = cujit.cpu(check="race")
    assert run(device, KERNELS[name], wait=1).tolist() == NUMBERS.tolist()
    with pytest.raises(cujit.errors.KernelFaultError) as caught:
        run(device, KERNELS[name], wait=0)
    error = str(caught.value)
    assert caught.value.kind == "race"
    assert "an asynchronous copy still" in error
    instruction = name.split(",")[0].split(" ")[0].removesuffix(".mbarrier.arrive")
    # The first access that meets the copy may be a write by generic code, for a copy out.
    assert f"{instruction}." in error
    places = r"\n  thread \(\d{1,3}, 0, 0\)( of block \([01], 0, 0\))? at PTX line \d+: .+(\n  from .+)?"
    assert re.search(places + r"\n  against thread \(\d+, 0, 0\)\n  at PTX line \d+: .+", error), error
    assert wait_of(name) in error


def wait_of(name: str) -> str:
    if "out" in name or "reduce" in name:
        return "cp.async.bulk.wait_group.read"
    return "mbarrier.try_wait" if "bulk" in name or name in ("st.async", "red.async") else "cp.async.wait_group"


def test_race_check_finds_a_store_whose_source_ends_first() -> None:
    body = """
  __shared__ __align__(128) int s[64]; int t = threadIdx.x;
  s[t] = x[t];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) { bulk_out(o, s, 256); if (wait) WAIT_READ(0); }"""
    device = cujit.cpu(check="race")
    assert run(device, body, wait=1).tolist() == NUMBERS.tolist()
    with raises(cujit.errors.KernelFaultError, "fault-race", "cp.async.bulk.wait_group.read") as caught:
        run(device, body, wait=0)
    assert caught.value.thread == (0, 0, 0)
    assert "cp.async.bulk.wait_group.read" in str(caught.value)


def test_wait_orders_other_threads_only_afterwards() -> None:
    # The barrier comes before the wait of the warp that copied: another warp reads at any time.
    body = """
  __shared__ __align__(128) int s[256]; int t = threadIdx.x;
  for (int k = t; k < 256; k += 64) s[k] = 7;
  __syncthreads();
  if (t < 32) { copy16(s + 4 * t, x + 4 * t); GROUP(); }
  __syncthreads();
  if (t < 32) WAIT(0);
  if (wait) __syncthreads();
  o[t] = s[t];"""
    device = cujit.cpu(check="race")
    assert run(device, body, wait=1).tolist() == NUMBERS.tolist()
    with pytest.raises(cujit.errors.KernelFaultError) as caught:
        run(device, body, wait=0)
    assert caught.value.kind == "race"


@pytest.mark.parametrize("issue", ["if (t < 32) copy16(s + 4 * t, x + 4 * t);",
                                   "if (t == 8) bulk_in(s + 32, x + 32, 128, &bar);"])  # fmt: skip
def test_race_with_a_copy_names_both_threads(issue: str) -> None:
    # Word 32 is in what thread 8 copies.
    body = f"""
  __shared__ __align__(128) int s[256]; __shared__ uint64_t bar; int t = threadIdx.x;
  if (t == 0) make(&bar, 1);
  for (int k = t; k < 256; k += 64) s[k] = 7;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  {issue}
  __syncthreads();
  if (t >= 32) o[t] = s[t];"""
    with pytest.raises(cujit.errors.KernelFaultError) as caught:
        run(cujit.cpu(check="race"), body, wait=0)
    assert caught.value.thread == (32, 0, 0)
    assert "\n  thread (8, 0, 0) at PTX line" in str(caught.value)
    assert "\n  against thread (32, 0, 0)\n  at PTX line" in str(caught.value)


def test_copy_over_a_copy_is_a_race() -> None:
    body = """
  __shared__ __align__(128) int s[256]; int t = threadIdx.x;
  copy16(s + 4 * t, x + 4 * t); GROUP();
  if (wait) WAIT(0);
  copy16(s + 4 * t, x + 256 + 4 * t); GROUP();
  WAIT(0); o[t] = s[4 * t];"""
    device = cujit.cpu(check="race")
    assert run(device, body, wait=1).tolist() == [256 + 4 * t for t in range(64)]
    with raises(cujit.errors.KernelFaultError, "fault-race", "16", "0", "cp.async.bulk.wait_group.read"):
        run(device, body, wait=0)


PIPELINE = """
  __shared__ __align__(128) int s[4][64]; __shared__ uint64_t full[4], empty[4]; int t = threadIdx.x, sum = 0;
  if (t == 0) for (int k = 0; k < 4; k++) { make(&full[k], 1); make(&empty[k], 64); }
  __syncthreads();
  if (t >= 64) {
    for (int i = 0; i < 12 && t == 64; i++) {
      if (i >= 4 && wait) until(&empty[i % 4], (i / 4 - 1) & 1);
      expect(&full[i % 4], 256); bulk_in(s[i % 4], x + 64 * i, 256, &full[i % 4]);
    }
  } else {
    for (int i = 0; i < 12; i++) {
      until(&full[i % 4], i / 4 & 1);
      sum += s[i % 4][t];
      asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(sh(&empty[i % 4])) : "memory");
    }
    o[t] = sum;
  }"""


@pytest.mark.parametrize("check", [None, "race", "all"])
def test_producer_consumer_pipeline_is_right_and_silent(check: str | None) -> None:
    expected = [sum(64 * i + t for i in range(12)) for t in range(64)]
    assert run(cujit.cpu(check=check), PIPELINE, wait=1, block=96).tolist() == expected


def test_producer_that_does_not_wait_is_found() -> None:
    with pytest.raises(cujit.errors.KernelFaultError) as caught:
        run(cujit.cpu(check="race"), PIPELINE, wait=0, block=96)
    assert caught.value.kind == "race"
    assert "cp.async.bulk" in str(caught.value)


@pytest.mark.parametrize("check", ["race", "all"])
def test_stages_by_groups_are_silent(check: str) -> None:
    body = """
  __shared__ __align__(128) int s[3][256]; int t = threadIdx.x, sum = 0;
  for (int k = 0; k < 2; k++) { copy16(&s[k][4 * t], x + 256 * k + 4 * t); GROUP(); }
  for (int k = 0; k < 4; k++) {
    WAIT(1); __syncthreads();
    if (k + 2 < 4) copy16(&s[(k + 2) % 3][4 * t], x + 256 * (k + 2) + 4 * t);
    GROUP();
    sum += s[k % 3][255 - t];
  }
  o[t] = sum;"""
    got = run(cujit.cpu(check=check), body, wait=1)
    assert got.tolist() == [sum(256 * k + 255 - t for k in range(4)) for t in range(64)]


@pytest.mark.parametrize("name", TENSOR_KERNELS)
def test_tensor_copies_are_late_and_forgotten_waits_are_found(name: str, cpu: Device) -> None:
    assert run_tensor(cpu, name, wait=1).tolist() == NUMBERS.tolist()
    assert run_tensor(cpu, name, wait=0).tolist() == [7] * 64
    for check in ("race", "all"):
        assert run_tensor(cujit.cpu(check=check), name, wait=1).tolist() == NUMBERS.tolist()
    for seed in (None, 1, 2, 3):
        device = cujit.cpu(check="race", schedule=seed)
        assert run_tensor(device, name, wait=1).tolist() == NUMBERS.tolist()
        with pytest.raises(cujit.errors.KernelFaultError) as caught:
            run_tensor(device, name, wait=0)
        assert caught.value.kind == "race"
        assert name.split(",")[0] in str(caught.value)


@pytest.mark.parametrize("check", [None, "race", "all"])
def test_cluster_shares_a_multicast_copy(check: str | None) -> None:
    body = """
  __shared__ __align__(128) int s[64]; __shared__ uint64_t bar; int t = threadIdx.x;
  s[t] = 7;
  if (t == 0) { make(&bar, 1); expect(&bar, 256); }
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  if (t == 0 && blockIdx.x == 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], 256, [%2], %3;" :: "r"(sh(s)), "l"(x), "r"(sh(&bar)), "h"((short)3) : "memory");
  if (wait) until(&bar, 0);
  o[64 * blockIdx.x + t] = s[t];
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");"""
    device = cujit.cpu(check=check)
    kernel = cujit.load(cujit.compile(source_of(body), arch="compute_90"), device)["k"]
    x, o = device.array(np.arange(64, dtype=np.int32)), device.zeros(128, np.int32)
    kernel.prepare(2, 64, cluster=2)(x, o, 1)
    assert o.numpy().tolist() == [*range(64), *range(64)]
    if check is None:
        kernel.prepare(2, 64, cluster=2)(x, o, 0)
        assert o.numpy().tolist() == [7] * 128
        return
    with raises(cujit.errors.KernelFaultError, "fault-race", "mbarrier.try_wait"):
        kernel.prepare(2, 64, cluster=2)(x, o, 0)


@pytest.mark.parametrize(("to", "source"), [("t", "t"), ("t ^ 1", "t"), ("t", "63 - t"), ("t ^ 3", "t ^ 3")])
def test_copies_use_each_lanes_address(to: str, source: str) -> None:
    body = f"""
  __shared__ __align__(128) int s[256]; int t = threadIdx.x;
  copy16(s + 4 * ({to}), x + 4 * ({source})); GROUP(); WAIT(0);
  __syncthreads();
  o[t] = s[4 * ({to}) + t % 4] - 4 * ({source});"""
    assert run(cujit.cpu(1), body, wait=1).tolist() == [t % 4 for t in range(64)]
