"""Pipelines of Hopper, each right or with one mistake: rings of bulk copies, stores, products by wgmma, clusters.

A kernel is `k(const int *x, int *o)`, or of halves and floats where it multiplies; `{…}` in a text is what differs.
"""

from __future__ import annotations

from cujit.values import NamedTuple

__all__ = ["CASES", "HEAD", "Case"]

HEAD = r"""
#include <cstdint>
#include <cuda_fp16.h>
#define RUN(text, ...) asm volatile(text __VA_ARGS__ : "memory")
static __device__ __forceinline__ unsigned sh(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
static __device__ __forceinline__ unsigned of(unsigned r, const void *p) {
    unsigned a; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(sh(p)), "r"(r)); return a; }
static __device__ __forceinline__ unsigned rank_() {
    unsigned r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
#define INIT(bar, n) RUN("mbarrier.init.shared.b64 [%0], %1;", :: "r"(sh(bar)), "r"(n))
#define READY() RUN("fence.mbarrier_init.release.cluster;", ::)
#define EXPECT(bar, n) RUN("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;", :: "r"(sh(bar)), "r"(n))
#define ARRIVE(bar) RUN("mbarrier.arrive.shared.b64 _, [%0];", :: "r"(sh(bar)))
#define ARRIVE_AT(a) RUN("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];", :: "r"(a))
#define UNTIL(bar, p) RUN("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra L; }", \
                          :: "r"(sh(bar)), "r"(p))
#define TRY(bar, p) RUN("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%0], %1; }", :: "r"(sh(bar)), "r"(p))
#define IN "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
#define BULK(to, from, n, bar) RUN(IN " [%0], [%1], %2, [%3];", :: "r"(sh(to)), "l"(from), "r"(n), "r"(sh(bar)))
#define TO_ALL(to, from, n, bar, mask) RUN(IN ".multicast::cluster [%0], [%1], %2, [%3], %4;", \
                                           :: "r"(sh(to)), "l"(from), "r"(n), "r"(sh(bar)), "h"((short)(mask)))
#define OUT(to, from, n) RUN("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" \
                             "cp.async.bulk.commit_group;", \
                             :: "l"(to), "r"(sh(from)), "r"(n))
#define READ(n) RUN("cp.async.bulk.wait_group.read " #n ";", ::)
#define DONE(n) RUN("cp.async.bulk.wait_group " #n ";", ::)
#define FENCE() RUN("fence.proxy.async.shared::cta;", ::)
#define BAR(id) RUN("bar.sync %0, 128;", :: "r"(id))
#define BAR_ARRIVE(id) RUN("bar.arrive %0, 128;", :: "r"(id))
#define RELAXED() RUN("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;", ::)
#define CLUSTER() RUN("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", ::)
// Without a pattern: chunks of k are 128 bytes apart, groups of eight rows 256.
static __device__ __forceinline__ uint64_t descriptor(const void *p) {
    return ((sh(p) & 0x3FFFFull) >> 4) | (8ull << 16) | (16ull << 32); }
#define PRODUCT(d, a, b) PRODUCT_BEHIND("wgmma.fence.sync.aligned;", d, a, b)
#define PRODUCT_BEHIND(fence, d, a, b) asm volatile(fence \
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;" \
    "wgmma.commit_group.sync.aligned;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b) : "memory")
#define WAIT(n) RUN("wgmma.wait_group.sync.aligned " #n ";", ::)
"""

_RING = r"""
extern "C" __global__ void k(const int *x, int *o) {
  __shared__ __align__(128) int s[3][96]; __shared__ uint64_t full[3], empty[3]; int t = threadIdx.x, sum = 0;
  if (t == 0) { for (int i = 0; i < 3; i++) { INIT(&full[i], 1); INIT(&empty[i], {count}); } {ready} }
  {meet}
  if (t < 32) {
    for (int i = 0; i < 9 && t == 0; i++) {
      if (i >= 3) UNTIL(&empty[i % 3], (i / 3 - 1) & 1);
      {expect}
      BULK(s[i % 3], x + 96 * i, 384, &full[i % 3]);
      {after}
    }
  } else {
    for (int i = 0; i < 9; i++) {
      {wait}
      sum += s[i % 3][{read}];
      {arrive}
    }
    o[t - 32] = sum;
  }
}"""
_RING_PARTS = {
    "ready": "READY();",
    "count": "96",
    "meet": "__syncthreads();",
    "expect": "EXPECT(&full[i % 3], 384);",
    "after": "",
    "wait": "UNTIL(&full[i % 3], i / 3 & 1);",
    "read": "t - 32",
    "arrive": "ARRIVE(&empty[i % 3]);",
}
_STORE = r"""
extern "C" __global__ void k(const int *x, int *o) {
  __shared__ __align__(128) int s[2][128]; int t = threadIdx.x;
  for (int i = 0; i < 5; i++) {
    {meet}
    s[i & 1][t] = x[i * 128 + t] * 2;
    {fence}
    __syncthreads();
    if (t == 0) { {own} OUT(o + 128 * i, s[i & 1], 512); {wait} }
  }
  if (t == 0) DONE(0);
}"""
_STORE_PARTS = {"meet": "__syncthreads();", "fence": "FENCE();", "own": "", "wait": "READ(1);"}
_FED = r"""
extern "C" __global__ void k(const __half *x, float *o) {
  __shared__ __align__(1024) __half a[3][64 * 16], b[3][8 * 16]; __shared__ uint64_t full[3], empty[3];
  int t = threadIdx.x; float d[4] = {};
  if (t == 0) { for (int i = 0; i < 3; i++) { INIT(&full[i], 1); INIT(&empty[i], 128); } READY(); }
  __syncthreads();
  if (t < 128) {
    for (int i = 0; i < 8 && t == 0; i++) {
      if (i >= 3) UNTIL(&empty[i % 3], (i / 3 - 1) & 1);
      EXPECT(&full[i % 3], {bytes});
      BULK(a[i % 3], x + 1024 * i, 2048, &full[i % 3]);
      BULK(b[i % 3], x + 128 * i, 256, &full[i % 3]);
    }
    return;
  }
  for (int i = 0; i < 8; i++) {
    {full}
    PRODUCT(d, descriptor(a[{stage}]), descriptor(b[i % 3]));
    {wait}
    {arrive}
  }
  WAIT(0);
  {last}
  for (int q = 0; q < 4; q++) o[t * 4 + q] = d[q];
}"""
_FED_PARTS = {
    "bytes": "2304",
    "full": "UNTIL(&full[i % 3], i / 3 & 1);",
    "stage": "i % 3",
    "wait": "WAIT(0);",
    "arrive": "ARRIVE(&empty[i % 3]);",
    "last": "",
}
_FILLED = r"""
extern "C" __global__ void k(const __half *x, float *o) {
  __shared__ __align__(1024) __half a[64 * 16], b[8 * 16];
  int t = threadIdx.x; float d[4] = {};
  for (int i = 0; i < 3; i++) {
    for (int j = t; j < 1024; j += 128) a[j] = x[i * 1024 + j];
    b[t] = x[t];
    {fence}
    __syncthreads();
    PRODUCT(d, descriptor(a), descriptor(b));
    {wait}
    __syncthreads();
  }
  WAIT(0);
  for (int q = 0; q < 4; q++) o[t * 4 + q] = d[q];
}"""
_FILLED_PARTS = {"fence": "FENCE();", "wait": "WAIT(0);"}
_LOADED = r"""
extern "C" __global__ void k(const __half *x, float *o) {
  __shared__ __align__(1024) __half a[64 * 16], b[8 * 16]; __shared__ uint64_t full;
  int t = threadIdx.x; float d[4] = {};
  if (t == 0) { INIT(&full, 1); READY(); }
  __syncthreads();
  for (int i = 0; i < 3; i++) {
    if (t == 0) {
      EXPECT(&full, 2304);
      BULK(a, x + 1024 * i, 2048, &full);
      BULK(b, x + 128 * i, 256, &full);
    }
    {wait}
    PRODUCT(d, descriptor(a), descriptor(b));
    WAIT(0);
    __syncthreads();
  }
  for (int q = 0; q < 4; q++) o[t * 4 + q] = d[q];
}"""
_LOADED_PARTS = {"wait": "UNTIL(&full, i & 1);"}
_SCALED = r"""
extern "C" __global__ void k(const __half *x, float *o) {
  __shared__ __align__(1024) __half a[64 * 16], b[8 * 16];
  int t = threadIdx.x; float d[4];
  for (int q = 0; q < 4; q++) d[q] = x[t + q];
  for (int j = t; j < 1024; j += 128) a[j] = x[j];
  b[t] = x[t];
  FENCE();
  __syncthreads();
  {before}
  for (int i = 0; i < 3; i++) {
    {scale}
    PRODUCT_BEHIND({fence}, d, descriptor(a), descriptor(b));
    WAIT(0);
  }
  for (int q = 0; q < 4; q++) o[t * 4 + q] = d[q];
}"""
_SCALED_PARTS = {
    "before": "",
    "scale": "for (int q = 0; q < 4; q++) d[q] *= __half2float(x[i]);",
    "fence": '"wgmma.fence.sync.aligned;"',
}
_REGISTERS = r"""
extern "C" __global__ void k(const __half *x, float *o) {
  __shared__ __align__(1024) __half b[8 * 16]; int t = threadIdx.x; float d[4] = {};
  b[t] = x[t];
  FENCE();
  __syncthreads();
  for (int i = 0; i < 3; i++) {
    unsigned a[4];
    {early}
    for (int q = 0; q < 4; q++) a[q] = ((const unsigned *)x)[t + q + 128 * i] ^ 0x80008000;
    {late}
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1, 0;"
                 "wgmma.commit_group.sync.aligned;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor(b)) : "memory");
    WAIT(0);
  }
  for (int q = 0; q < 4; q++) o[t * 4 + q] = d[q];
}"""
_REGISTERS_PARTS = {"early": "", "late": 'RUN("wgmma.fence.sync.aligned;", ::);'}
_NAMED = r"""
extern "C" __global__ void k(const int *x, int *o) {
  __shared__ int s[2][64]; int t = threadIdx.x, sum = 0;
  if (t < 64) {
    for (int i = 0; i < 4; i++) { {free} s[i & 1][t] = x[64 * i + t]; BAR_ARRIVE(1 + (i & 1)); }
  } else {
    for (int i = 0; i < 4; i++) { BAR(1 + (i & 1)); sum += s[i & 1][127 - t]; {tell} }
    o[t - 64] = sum;
  }
}"""
_NAMED_PARTS = {"free": "if (i >= 2) BAR(3 + (i & 1));", "tell": "if (i < 2) BAR_ARRIVE(3 + (i & 1));"}
_SHARED_OUT = r"""
extern "C" __global__ void __cluster_dims__(4) k(const int *x, int *o) {
  __shared__ __align__(128) int s[2][64]; __shared__ uint64_t full[2], empty[2];
  int t = threadIdx.x, r = rank_(), sum = 0;
  if (t == 0) { for (int i = 0; i < 2; i++) { INIT(&full[i], 1); INIT(&empty[i], 4); } {ready} }
  {begin}
  for (int i = 0; i < 6; i++) {
    if (t == 0) {
      {free}
      EXPECT(&full[i & 1], 256);
      TO_ALL(&s[i & 1][16 * r], x + 64 * i + 16 * r, 64, &full[i & 1], 15);
    }
    UNTIL(&full[i & 1], i / 2 & 1);
    sum += s[i & 1][t];
    {meet}
    if (t < 4) {tell};
  }
  o[64 * blockIdx.x + t] = sum;
  {end}
}"""
_SHARED_OUT_PARTS = {
    "ready": "READY();",
    "begin": "CLUSTER();",
    "free": "if (i >= 2) UNTIL(&empty[i & 1], (i / 2 - 1) & 1);",
    "meet": "__syncthreads();",
    "tell": "ARRIVE_AT(of(t, &empty[i & 1]))",
    "end": "CLUSTER();",
}
_SENT = r"""
extern "C" __global__ void __cluster_dims__(2) k(const int *x, int *o) {
  __shared__ int s[64]; __shared__ uint64_t bar; int t = threadIdx.x, r = rank_();
  s[t] = -1;
  if (t == 0) { INIT(&bar, 1); READY(); EXPECT(&bar, {bytes}); }
  CLUSTER();
  RUN("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];",
      :: "r"(of(r ^ 1, &s[t])), "r"(x[t] + r), "r"(of(r ^ 1, &bar)));
  {who}UNTIL(&bar, 0);
  o[64 * blockIdx.x + t] = s[63 - t];
  CLUSTER();
}"""
_SENT_PARTS = {"bytes": "256", "who": ""}
_MOVED = r"""
extern "C" __global__ void __cluster_dims__(2) k(const int *x, int *o) {
  __shared__ __align__(128) int s[64], from[64]; __shared__ uint64_t bar; int t = threadIdx.x, r = rank_();
  from[t] = x[t] + r;
  if (t == 0) { INIT(&bar, 1); READY(); EXPECT(&bar, 256); }
  {fence}
  CLUSTER();
  if (t == 0) RUN("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];",
                  :: "r"(of(r ^ 1, s)), "r"(sh(from)), "r"(of(r ^ 1, &bar)));
  {after}
  UNTIL(&bar, 0);
  o[64 * blockIdx.x + t] = s[63 - t];
  CLUSTER();
}"""
_MOVED_PARTS = {"fence": "FENCE();", "after": ""}
_LEFT = r"""
extern "C" __global__ void k(const int *x, int *o) {
  __shared__ __align__(128) int s[96]; __shared__ uint64_t bar; int t = threadIdx.x;
  if (t == 0) { INIT(&bar, 1); READY(); EXPECT(&bar, 384); BULK(s, x, 384, &bar); {wait} }
  o[t] = x[t];
}"""
_LEFT_PARTS = {"wait": "UNTIL(&bar, 0);"}


class Case(NamedTuple):
    """A program with its block and grid, whether it is ``wrong``, and whether it multiplies halves."""

    text: str
    wrong: bool
    block: int = 128
    grid: int = 1
    halves: bool = False


class _Program(NamedTuple):
    text: str
    parts: dict[str, str]
    rights: dict[str, dict[str, str]]
    wrongs: dict[str, dict[str, str]]
    block: int = 128
    grid: int = 1
    halves: bool = False


_PROGRAMS = {
    "ring": _Program(_RING, _RING_PARTS, {
        "right": {},
        "bytes expected behind the copy": {"expect": "", "after": "EXPECT(&full[i % 3], 384);"},
        "one arrival for a warp": {"count": "3", "arrive": "__syncwarp(); if (t % 32 == 0) ARRIVE(&empty[i % 3]);"},
    }, {
        "no barrier behind the init": {"meet": ""},
        "a parity that never changes": {"wait": "UNTIL(&full[i % 3], 0);"},
        "a test without a loop": {"wait": "TRY(&full[i % 3], i / 3 & 1);"},
        "an arrival too many expected": {"count": "97"},
        "a read of the next stage": {"read": "t - 32 + (i == 4 ? 96 : 0)"},
        "an arrival before the read": {"wait": "UNTIL(&full[i % 3], i / 3 & 1); ARRIVE(&empty[i % 3]);", "arrive": ""},
        "mbarriers with no fence": {"ready": ""},
        "two arrivals of the producer": {"after": "if (i == 5) EXPECT(&full[i % 3], 0);"},
        "no wait for the full stage": {"wait": ""},
        "too few bytes expected": {"expect": "EXPECT(&full[i % 3], 128);"},
        "too many bytes expected": {"expect": "EXPECT(&full[i % 3], 512);"},
        "a wait by one warp": {"wait": "if (t < 64) UNTIL(&full[i % 3], i / 3 & 1);"},
    }),
    "store": _Program(_STORE, _STORE_PARTS, {
        "right": {},
        "a fence by who stores": {"fence": "", "own": "FENCE();"},
    }, {
        "no barrier behind the wait": {"meet": ""},
        "a fence before the writes": {"meet": "__syncthreads(); FENCE();", "fence": ""},
        "a wait for a group too few": {"wait": "READ(2);"},
        "no fence": {"fence": ""},
        "no wait for the read": {"wait": ""},
    }),
    "fed": _Program(_FED, _FED_PARTS, {
        "right": {},
        "a product in flight": {
            "wait": "WAIT(1);", "arrive": "if (i) ARRIVE(&empty[(i - 1) % 3]);", "last": "ARRIVE(&empty[1]);"
        },
    }, {
        "no wait for products": {"wait": ""},
        "an arrival before the wait": {"wait": "WAIT(1);"},
        "an arrival just before the wait": {"wait": "", "arrive": "ARRIVE(&empty[i % 3]); WAIT(0);"},
        "a descriptor of the next stage": {"stage": "(i + (i == 5)) % 3"},
        "no wait for the full stage": {"full": ""},
        "a parity that never changes": {"full": "UNTIL(&full[i % 3], 0);"},
        "too few bytes expected": {"bytes": "2048"},
        "too many bytes expected": {"bytes": "4096"},
    }, 256, 1, True),
    "filled": _Program(_FILLED, _FILLED_PARTS, {"right": {}}, {
        "no fence for wgmma": {"fence": ""},
        "a wait behind the barrier": {"wait": ""},
    }, 128, 1, True),
    "loaded": _Program(_LOADED, _LOADED_PARTS, {"right": {}}, {
        "a barrier in place of the wait": {"wait": "__syncthreads();"},
    }, 128, 1, True),
    "scaled": _Program(_SCALED, _SCALED_PARTS, {
        "right": {},
        "sums that only products access": {
            "scale": "", "fence": '""', "before": 'RUN("wgmma.fence.sync.aligned;", ::);'
        },
    }, {
        "no wgmma.fence": {"fence": '""'},
        "a wgmma.fence before the loop": {"fence": '""', "before": 'RUN("wgmma.fence.sync.aligned;", ::);'},
    }, 128, 1, True),
    "registers": _Program(_REGISTERS, _REGISTERS_PARTS, {"right": {}}, {
        "no wgmma.fence": {"late": ""},
        "a wgmma.fence before a is loaded": {"early": 'RUN("wgmma.fence.sync.aligned;", ::);', "late": ""},
    }, 128, 1, True),
    "named": _Program(_NAMED, _NAMED_PARTS, {"right": {}}, {"no barrier for the free half": {"free": "", "tell": ""}}),
    "shared out": _Program(_SHARED_OUT, _SHARED_OUT_PARTS, {
        "right": {},
        "a relaxed arrival": {"begin": "RELAXED();"},
    }, {
        "mbarriers with no fence": {"ready": ""},
        "a relaxed arrival with no fence": {"ready": "", "begin": "RELAXED();"},
        "no wait for the free stage": {"free": ""},
        "no barrier before the arrival": {"meet": ""},
        "no meeting at the end": {"end": ""},
        "arrivals at its own block alone": {"tell": "ARRIVE(&empty[i & 1])"},
    }, 64, 8),
    "sent": _Program(_SENT, _SENT_PARTS, {"right": {}}, {
        "too few bytes expected": {"bytes": "128"},
        "a wait by one thread": {"who": "if (t == 0) "},
    }, 64, 4),
    "moved": _Program(_MOVED, _MOVED_PARTS, {"right": {}}, {
        "no fence for the copy": {"fence": ""},
        "a source that is written again": {"after": "__syncthreads(); from[t] = 0;"},
    }, 64, 4),
    "left": _Program(_LEFT, _LEFT_PARTS, {"right": {}}, {"a block that ends before its copy": {"wait": ""}}, 64),
}  # fmt: skip


def _written(program: _Program, parts: dict[str, str]) -> str:
    text = program.text
    for name, part in (program.parts | parts).items():
        text = text.replace(f"{{{name}}}", part)
    return text


CASES = {
    f"{name}: {words}": Case(_written(program, parts), wrong, program.block, program.grid, program.halves)
    for name, program in _PROGRAMS.items()
    for wrong, group in ((False, program.rights), (True, program.wrongs))
    for words, parts in group.items()
}
