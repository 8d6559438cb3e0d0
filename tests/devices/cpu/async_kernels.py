"""Kernels of one asynchronous copy each, right and with one wait left out: they read 7 if the copy is late.

Some of them need a launch with a cluster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import cujit
from cujit.devices.device import Device

Array = npt.NDArray[Any]

_HEAD = r"""
#include <cstdint>
__device__ unsigned sh(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void make(uint64_t *bar, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1; fence.mbarrier_init.release.cluster;"
               :: "r"(sh(bar)), "r"(count) : "memory"); }
__device__ void expect(uint64_t *bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(sh(bar)), "r"(bytes) : "memory"); }
__device__ void until(uint64_t *bar, int parity) {
  asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra L; }"
               :: "r"(sh(bar)), "r"(parity) : "memory"); }
__device__ void copy16(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(sh(to)), "l"(from) : "memory"); }
__device__ void bulk_in(void *to, const void *from, int bytes, uint64_t *bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(sh(to)), "l"(from), "r"(bytes), "r"(sh(bar)) : "memory"); }
__device__ void bulk_out(void *to, const void *from, int bytes) {
  asm volatile("fence.proxy.async; cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               "cp.async.bulk.commit_group;"
               :: "l"(to), "r"(sh(from)), "r"(bytes) : "memory"); }
#define GROUP(n) asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT(n) asm volatile("cp.async.wait_group " #n ";" ::: "memory")
#define WAIT_READ(n) asm volatile("cp.async.bulk.wait_group.read " #n ";" ::: "memory")
#define WAIT_OUT(n) asm volatile("cp.async.bulk.wait_group " #n ";" ::: "memory")
"""

# Each kernel `name(const int *x, int *o, int wait)` of 64 threads writes 64 words; x counts from 0. It leaves a wait
# out where `wait` is 0.
KERNELS = {
    "cp.async": """
  __shared__ __align__(128) int s[256]; int t = threadIdx.x;
  for (int k = t; k < 256; k += 64) s[k] = 7;
  __syncthreads();
  copy16(s + 4 * t, x + 4 * t); GROUP();
  if (wait) WAIT(0);
  __syncthreads();
  o[t] = s[t];""",
    "cp.async, the last of two groups": """
  __shared__ __align__(128) int s[512]; int t = threadIdx.x;
  for (int k = t; k < 512; k += 64) s[k] = 7;
  __syncthreads();
  copy16(s + 4 * t, x + 256 + 4 * t); GROUP(); copy16(s + 256 + 4 * t, x + 4 * t); GROUP();
  if (wait) WAIT(0); else WAIT(1);
  __syncthreads();
  o[t] = s[256 + t];""",
    "cp.async, by another warp before its wait": """
  __shared__ __align__(128) int s[256]; int t = threadIdx.x;
  for (int k = t; k < 256; k += 64) s[k] = 7;
  __syncthreads();
  if (t >= 32) {
    copy16(s + 4 * (t - 32), x + 4 * (t - 32)); copy16(s + 128 + 4 * (t - 32), x + 128 + 4 * (t - 32)); GROUP();
  }
  if (t >= 32 && wait) WAIT(0);
  __syncthreads();
  o[t] = s[t];
  if (t >= 32) WAIT(0);""",
    "cp.async.mbarrier.arrive": """
  __shared__ __align__(128) int s[256]; __shared__ uint64_t bar; int t = threadIdx.x;
  for (int k = t; k < 256; k += 64) s[k] = 7;
  if (t == 0) make(&bar, 64);
  __syncthreads();
  copy16(s + 4 * t, x + 4 * t);
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(sh(&bar)) : "memory");
  if (wait) until(&bar, 0);
  else __syncthreads();
  o[t] = s[t];""",
    "cp.async.bulk": """
  __shared__ __align__(128) int s[64]; __shared__ uint64_t bar; int t = threadIdx.x;
  s[t] = 7;
  if (t == 0) make(&bar, 1);
  __syncthreads();
  if (t == 0) { expect(&bar, 256); bulk_in(s, x, 256, &bar); }
  if (wait) until(&bar, 0);
  else __syncthreads();
  o[t] = s[t];""",
    "cp.async.bulk, the wrong phase": """
  __shared__ __align__(128) int s[64]; __shared__ uint64_t bar; int t = threadIdx.x;
  s[t] = 7;
  if (t == 0) make(&bar, 1);
  __syncthreads();
  if (t == 0) { expect(&bar, 256); bulk_in(s, x, 256, &bar); }
  __syncthreads();
  until(&bar, wait ? 0 : 1);
  o[t] = s[t];""",
    "cp.async.bulk, waited for by another warp": """
  __shared__ __align__(128) int s[64]; __shared__ uint64_t bar; int t = threadIdx.x;
  s[t] = 7;
  if (t == 0) make(&bar, 1);
  __syncthreads();
  if (t == 0) { expect(&bar, 256); bulk_in(s, x, 256, &bar); }
  __syncthreads();
  int v = wait ? 0 : s[t ^ 32];
  if (t < 32) until(&bar, 0);
  __syncthreads();
  o[t] = wait ? s[t] : v;""",
    "cp.async.bulk between shared memories": """
  __shared__ __align__(128) int s[64]; __shared__ __align__(128) int from[64];
  __shared__ uint64_t bar; int t = threadIdx.x;
  s[t] = 7; from[t] = x[t];
  asm volatile("fence.proxy.async;" ::: "memory");
  if (t == 0) make(&bar, 1);
  __syncthreads();
  if (t == 0) { expect(&bar, 256);
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                 :: "r"(sh(s)), "r"(sh(from)), "r"(sh(&bar)) : "memory"); }
  if (wait) until(&bar, 0);
  else __syncthreads();
  o[t] = s[t];""",
    "st.async": """
  __shared__ __align__(128) int s[64]; __shared__ uint64_t bar; int t = threadIdx.x;
  s[t] = 7;
  if (t == 0) { make(&bar, 1); expect(&bar, 256); }
  __syncthreads();
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
               :: "r"(sh(s + (t ^ 1))), "r"(x[t ^ 1]), "r"(sh(&bar)) : "memory");
  if (wait) until(&bar, 0);
  else __syncthreads();
  o[t] = s[t];""",
    "red.async": """
  __shared__ __align__(128) int s[64]; __shared__ uint64_t bar; int t = threadIdx.x;
  s[t] = wait ? 0 : 7;
  if (t == 0) { make(&bar, 1); expect(&bar, 256); }
  __syncthreads();
  asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
               :: "r"(sh(s + (t ^ 1))), "r"(x[t ^ 1]), "r"(sh(&bar)) : "memory");
  if (wait) until(&bar, 0);
  else __syncthreads();
  o[t] = s[t];""",
    "cp.async.bulk, out": """
  __shared__ __align__(128) int s[64]; int t = threadIdx.x;
  s[t] = x[t];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) { bulk_out(o, s, 256); if (wait) WAIT_READ(0); }
  __syncthreads();
  s[t] = 7;
  if (t == 0) WAIT_OUT(0);""",
    "cp.reduce.async.bulk": """
  __shared__ __align__(128) int s[64]; int t = threadIdx.x;
  s[t] = x[t]; o[t] = 0;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 256;"
                 "cp.async.bulk.commit_group;"
                 :: "l"(o), "r"(sh(s)) : "memory");
    if (wait) WAIT_READ(0);
  }
  __syncthreads();
  s[t] = 7;
  if (t == 0) WAIT_OUT(0);""",
}


def source_of(body: str) -> str:
    """Write the kernel ``k`` around a body."""
    return _HEAD + f'extern "C" __global__ void k(const int *x, int *o, int wait) {{{body}\n}}\n'


def run(device: Device, body: str, *, wait: int, count: int = 64, block: int = 64) -> Array:
    """Run a kernel over numbers that count up; return what it wrote."""
    ptx = cujit.compile(source_of(body), arch="compute_90")
    x, o = device.array(np.arange(1024, dtype=np.int32)), device.zeros(count, np.int32)
    cujit.load(ptx, device)["k"].prepare(1, block, cluster=1)(x, o, wait)
    return o.numpy()


TENSOR_HEAD = (
    "struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; }; typedef CUtensorMap_st CUtensorMap;\n"
    + _HEAD
)
# Each kernel `name(const __grid_constant__ CUtensorMap map, const int *x, int *o, int wait)`: the map is of a box of
# 4 x 16 words at x (loads) or o (stores), swizzled or not.
TENSOR_KERNELS = {
    "cp.async.bulk.tensor": """
  extern __shared__ __align__(1024) int s[]; __shared__ uint64_t bar; int t = threadIdx.x;
  s[t] = 7;
  if (t == 0) make(&bar, 1);
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    expect(&bar, 256);
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {0, 0}], [%2];"
                 :: "r"(sh(s)), "l"(&map), "r"(sh(&bar)) : "memory");
  }
  if (wait) until(&bar, 0);
  else __syncthreads();
  o[t] = s[t];""",
    "cp.async.bulk.tensor, out": """
  extern __shared__ __align__(1024) int s[]; int t = threadIdx.x;
  s[t] = x[t];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {0, 0}], [%1]; cp.async.bulk.commit_group;"
                 :: "l"(&map), "r"(sh(s)) : "memory");
    if (wait) WAIT_READ(0);
  }
  __syncthreads();
  s[t] = 7;
  if (t == 0) WAIT_OUT(0);""",
    "cp.reduce.async.bulk.tensor": """
  extern __shared__ __align__(1024) int s[]; int t = threadIdx.x;
  s[t] = x[t];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {0, 0}], [%1];"
                 "cp.async.bulk.commit_group;" :: "l"(&map), "r"(sh(s)) : "memory");
    if (wait) WAIT_READ(0);
  }
  __syncthreads();
  s[t] = 7;
  if (t == 0) WAIT_OUT(0);""",
}


def tensor_launch(device: Device, name: str, *, wait: int) -> tuple[cujit.Launch, tuple[Any, ...]]:
    """Prepare a kernel of ``TENSOR_KERNELS``: the launch and its arguments, the map first, then x and o."""
    parameters = "const __grid_constant__ CUtensorMap map, const int *x, int *o, int wait"
    source = TENSOR_HEAD + f'extern "C" __global__ void k({parameters}) {{{TENSOR_KERNELS[name]}\n}}\n'
    x = device.array(np.arange(64, dtype=np.int32).reshape(4, 16))
    o = device.array(np.zeros((4, 16), np.int32))
    map_ = device.tensor_map(x if name == "cp.async.bulk.tensor" else o, (4, 16))
    kernel = cujit.load(cujit.compile(source, arch="compute_90"), device)["k"]
    return kernel.prepare(1, 64, shared_bytes=1024), (map_, x, o, wait)


def run_tensor(device: Device, name: str, *, wait: int) -> Array:
    """Run a kernel of ``TENSOR_KERNELS``; return what it wrote."""
    launch, arguments = tensor_launch(device, name, wait=wait)
    launch(*arguments)
    out: Array = arguments[2].numpy().reshape(-1)
    return out
