/* The checks of addresses and of memory that was never written. */

#pragma once

#include "checks.h"

#include <stdlib.h>

/* -- the device heap: its blocks by address, those that were freed too -------------------------------------------- */

static u32 heap_lock;
static struct Span *heap_spans;
static u64 heap_count, heap_room;

static void lock(void) {
  while (__atomic_exchange_n(&heap_lock, 1, __ATOMIC_ACQUIRE)) {
  }
}

static void unlock(void) { __atomic_store_n(&heap_lock, 0, __ATOMIC_RELEASE); }

/* How many of `count` sorted spans begin at or before an address. */
static u64 rank_in(const struct Span *spans, u64 count, u64 address) {
  u64 low = 0, high = count;
  while (low < high) {
    u64 middle = (low + high) / 2;
    if (spans[middle].begin <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* The span that has all of an access, or null. */
static const struct Span *span_in(const struct Span *spans, u64 count, u64 address, u64 size) {
  u64 rank = rank_in(spans, count, address);
  if (!rank) return 0;
  const struct Span *span = &spans[rank - 1];
  return within(address - span->begin, size, span->end - span->begin) ? span : 0;
}

/* Put a block in its place; freed blocks that lay there are forgotten. */
static void heap_add(u64 begin, u64 size) {
  u64 end = begin + size, rank;
  while ((rank = rank_in(heap_spans, heap_count, end - 1)) && heap_spans[rank - 1].end > begin) {
    memmove(&heap_spans[rank - 1], &heap_spans[rank], (heap_count - rank) * sizeof *heap_spans);
    heap_count--;
  }
  if (heap_count == heap_room) {
    u64 wanted = heap_room * 2 + 1024;
    struct Span *larger = realloc(heap_spans, wanted * sizeof *larger);
    if (!larger) return;
    heap_spans = larger;
    heap_room = wanted;
  }
  memmove(&heap_spans[rank + 1], &heap_spans[rank], (heap_count - rank) * sizeof *heap_spans);
  heap_spans[rank] = (struct Span){begin, end, 0, 0};
  heap_count++;
}

/* -- which memory an access is in ---------------------------------------------------------------------------------- */

enum Global { NOTHING, MEMORY, FREED };

static const struct Span *span_of(const struct Place *place, u64 address, u64 size) {
  return span_in(place->watch->spans, place->watch->count, address, size);
}

/* What there is of an access in global memory. */
static enum Global global_state(const struct Place *place, u64 address, u64 size) {
  const struct Span *span = span_of(place, address, size);
  if (span) return span->freed ? FREED : MEMORY;
  lock();
  span = span_in(heap_spans, heap_count, address, size);
  enum Global state = !span ? NOTHING : span->freed ? FREED : MEMORY;
  unlock();
  return state;
}

/* The shared memory of the cluster's blocks. */
static flag in_cluster(const struct Place *place, u64 address, u64 size) {
  const struct Watch *watch = place->watch;
  u64 offset = address - place->cluster;
  if (offset >= watch->cluster_blocks * watch->shared_stride) return in_shared(place, address, size);
  return within(offset % watch->shared_stride, size, watch->shared_limit);
}

/* The thread's local memory: of this function, of the kernel, and, where a kernel calls functions or takes memory on
   the stack, all of its stack. */
static NOINLINE flag in_local(const struct Place *place, u32 lane, u64 address, u64 size) {
  u64 own = place->local_bytes, kernel = place->watch->local_bytes;
  if (within(address - (place->local + lane * own), size, own)) return 1;
  if (within(address - (place->kernel_local + lane * kernel), size, kernel)) return 1;
  return within(address - (u64)__builtin_frame_address(0), size, place->watch->stack_bytes);
}

static flag in_parameters(const struct Place *place, u64 address, u64 size) {
  return within(address - (u64)place->launch->parameters, size, place->watch->parameter_bytes);
}

INLINE enum Global state_of(const struct Place *place, const struct Access *access) {
  u64 address = access->address, size = access->size;
  switch (access->flags >> 8 & 15) {
  case SPACE_SHARED:
    return in_shared(place, address, size) ? MEMORY : NOTHING;
  case SPACE_CLUSTER:
    return in_cluster(place, address, size) ? MEMORY : NOTHING;
  case SPACE_LOCAL:
    return in_local(place, access->lane, address, size) ? MEMORY : NOTHING;
  default:
    if (in_cluster(place, address, size) || in_local(place, access->lane, address, size)) return MEMORY;
    __attribute__((fallthrough));
  case SPACE_GLOBAL:
    return in_parameters(place, address, size) ? MEMORY : global_state(place, address, size);
  }
}

INLINE void check_memory(const struct Place *place, const struct Access *access) {
  u64 align = 1u << (access->flags >> 24 & 31);
  if (access->address & (align - 1)) fail(place, access, FAULT_MEMORY, CODE_MISALIGNED, 0, 0, align);
  enum Global state = state_of(place, access);
  if (state == FREED) fail(place, access, FAULT_MEMORY, CODE_FREED, 0, 0, 0);
  if (state == NOTHING) fail(place, access, FAULT_MEMORY, CODE_OUTSIDE, 0, 0, place->shared);
}

/* -- memory that was never written ---------------------------------------------------------------------------------- */

/* Where the marks of an access are, one byte a byte; null where nobody keeps any. `global` gets whether what is in
   memory counts too: others than kernels write there. */
static u8 *marks_of(const struct Place *place, u64 address, u64 size, flag *global) {
  const struct Watch *watch = place->watch;
  u64 in_group = address - place->group;
  *global = 0;
  if (within(in_group, size, watch->shared_total)) {
    return marks_behind(piece_of(place, in_group / watch->shared_stride)) + in_group % watch->shared_stride;
  }
  if (within(address - place->kernel_local, size, watch->local_bytes * WARP)) return (u8 *)(address + watch->local_total);
  const struct Span *span = span_of(place, address, size);
  if (!span || !span->marks) return 0;
  *global = 1;
  return span->marks + (address - span->begin);
}

/* Whether an element was never written: no byte of it is marked, and in global memory the sixteen bytes around hold
   what was put there when the memory was made, but for those that are marked. */
static flag is_raw(u64 address, const u8 *mark, u64 size, flag global) {
  for (u64 k = 0; k < size; k++) {
    if (mark[k]) return 0;
  }
  if (!global) return 1;
  u64 low = address & 15;
  const u8 *memory = (const u8 *)(address - low), *marks = mark - low;
  for (u64 k = 0; k < sizeof PATTERN; k++) {
    if (memory[k] != PATTERN[k] && !marks[k]) return 0;
  }
  return 1;
}

INLINE void check_init(const struct Place *place, const struct Access *access) {
  flag global;
  u8 *mark = marks_of(place, access->address, access->size, &global);
  if (!mark) return;
  if (access->flags & ACCESS_READ) {
    flag counts = global;
    u64 element = access->flags >> 16 & 255;
    for (u64 k = 0; k < access->size; k += element) {
      u64 at = access->address + k;
      struct Access part = {access->lane, access->flags, access->line, at, element};
      if (is_raw(at, mark + k, element, counts)) fail(place, &part, FAULT_INIT, CODE_RAW, 0, 0, place->shared);
    }
  }
  if (access->flags & ACCESS_WRITE) memset(mark, 1, access->size);
}
