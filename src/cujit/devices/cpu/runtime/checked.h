/* What checks know of an access, how they fail, and which memory there is. */

#pragma once

#include "vectors.h"

#include "launch.h"

#include <stdlib.h>
#include <string.h>

/* -- what the words of an access say: see Access in structures.py ----------------------------------------------------- */

INLINE u32 space_of(u32 flags) { return flags >> 8 & 15; }
INLINE u32 element_of(u32 flags) { return flags >> 16 & 255; }

/* What an address has to be a multiple of, less one: its bits that have to be 0. */
INLINE u32 odd_bits_of(u32 flags) { return (1u << (flags >> 24 & 31)) - 1; }

INLINE flag orders(u32 flags) { return (flags & (ACCESS_ACQUIRE | ACCESS_RELEASE)) != 0; }

/* Whether an access is an arrival at an mbarrier, which tells others, and learns nothing. */
INLINE flag arrives(u32 flags) {
  u32 update = ACCESS_READ | ACCESS_WRITE | ACCESS_RELEASE;
  return (flags & (update | ACCESS_ACQUIRE)) == update;
}

/* Whether an access is of no shared memory, whatever its address. */
INLINE flag is_elsewhere(u32 flags) {
  u32 space = space_of(flags);
  return space == SPACE_GLOBAL || space == SPACE_LOCAL || space == SPACE_PARAM;
}

struct Access {
  u32 lane, flags, line;
  u64 address, size;
};

INLINE u32 last_lane(u32 lanes) { return 31 - (u32)__builtin_clz(lanes); }

/* What the lanes of a warp do whose addresses lie `stride` apart: that of lane 0 would be `base`, and what lanes from the
   first to the last access is in `bytes` from `low` on. It is `dense` where these are all that there is. */
struct Row {
  u32 lanes, flags, line, size, dense;
  u64 base, stride, low, bytes;
};

/* The lines of a site, and for a batch of loads their offsets. */
INLINE const struct Member *members_of(const struct Site *site) { return (const struct Member *)(site + 1); }

/* What lanes of a row do, by one member; or what all members do, which lie in `spread` bytes. */
INLINE void fill_row(struct Row *row, u32 lanes, u64 base, const struct Site *site, u32 spread, u32 line) {
  u64 stride = (u64)site->stride;
  u32 first = first_lane(lanes), last = last_lane(lanes);
  u64 low = base + first * stride, far = (last - first) * stride;
  if (site->stride < 0) low += far, far = -far;
  flag whole = lanes >> (first & 31) == ~0u >> ((31 - last + first) & 31);
  flag dense = whole && (stride == site->size || first == last || !stride) && !spread;
  *row = (struct Row){lanes, site->flags, line, site->size, dense, base, stride, low, far + site->size + spread};
}

/* -- failing, and where things are ------------------------------------------------------------------------------ */

static NORETURN NOINLINE void stop(const struct Place *place, u32 lane, u32 line, u64 address, u32 kind, u64 size,
                                   u32 flags, u32 code, u32 other_thread, u32 other_line, u64 extra) {
  struct Launch *launch = place->launch;
  if (cujit_claim(launch, kind)) {
    cujit_fault_here(launch, place->block, place->first + lane, line, address);
    u64 more[] = {size, flags, code, other_thread, other_line, extra};
    memcpy(launch->fault_more, more, sizeof more);
  }
  cujit_stop();
}

/* By value: what nobody has the address of stays in registers where all goes well. */
INLINE NORETURN void fail(const struct Place *place, const struct Access *access, u32 kind, u32 code, u32 other_thread,
                          u32 other_line, u64 extra) {
  stop(place, access->lane, access->line, access->address, kind, access->size, access->flags, code, other_thread,
       other_line, extra);
}

/* Whether `size` bytes at `offset` lie within `limit`. */
INLINE flag within(u64 offset, u64 size, u64 limit) { return offset <= limit && size <= limit - offset; }

/* The tracker of a block, by its place among those that run side by side. */
static struct Tracker *piece_of(const struct Place *place, u64 side) {
  return (struct Tracker *)(running_at((u8 *)place->group)->pieces + side * place->watch->piece_bytes);
}

static void make_piece_ready(struct Place *place);

/* The tracker of a block by its place in the group. One of others may not have begun yet, or nothing that it did was
   looked at: then what it has is of a block before it. */
static NOINLINE struct Tracker *piece_beside(const struct Place *place, u64 side) {
  const struct Group *group = running_at((u8 *)place->group)->group;
  struct Tracker *piece = piece_of(place, side);
  if (!group || piece->owner == place->watch->serial + group->blocks[side].number) return piece;
  struct Place other = *place;
  other.piece = piece, other.block = group->blocks[side].number, other.side = (u32)side;
  other.shared = place->group + side * WINDOW;
  make_piece_ready(&other);
  return piece;
}

/* The bytes in it that say which of the block's shared memory was written. */
INLINE u8 *marks_in(const struct Place *place, struct Tracker *piece) { return (u8 *)piece + place->watch->marks; }

INLINE flag in_shared(const struct Place *place, u64 address, u64 size) {
  return within(address - place->shared, size, place->watch->shared_limit);
}

/* -- the device heap: its blocks by address, those that were freed too -------------------------------------------- */

static u32 heap_lock;
static struct Span *heap_spans;
static u64 heap_count, heap_room;

/* A fork is made with the lock: in the child there would be nobody to give it back. */
void cujit_check_lock(void) {
  while (__atomic_exchange_n(&heap_lock, 1, __ATOMIC_ACQUIRE)) {
  }
}

void cujit_check_unlock(void) { __atomic_store_n(&heap_lock, 0, __ATOMIC_RELEASE); }

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

/* Put a block in its place; freed blocks that lay there are forgotten. If it has `marks`, nobody has written it. */
static void heap_add(u64 begin, u64 size, flag marks) {
  u64 end = begin + size, rank;
  while ((rank = rank_in(heap_spans, heap_count, end - 1)) && heap_spans[rank - 1].end > begin) {
    free(heap_spans[rank - 1].marks);
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
  heap_spans[rank] = (struct Span){begin, end, REACH_LIVE, marks ? calloc(1, sizeof(struct MarkHead) + size) : 0, 0};
  heap_count++;
}

/* -- which memory an access is in ---------------------------------------------------------------------------------- */

enum Global { NOTHING, MEMORY, FREED, OUTSIDE };

static const struct Span *span_of(const struct Place *place, u64 address, u64 size) {
  return span_in(place->watch->spans, place->watch->count, address, size);
}

INLINE enum Global state_in(const struct Span *span) {
  return !span ? NOTHING : span->reach == REACH_FREED ? FREED : span->reach == REACH_OUTSIDE ? OUTSIDE : MEMORY;
}

/* Whether an access lies across the end of a view, in the memory that this is a view of. */
static flag leaves_view(const struct Place *place, u64 address, u64 size) {
  const struct Span *first = span_of(place, address, 1), *last = span_of(place, address + size - 1, 1);
  if (!first || !last || first->reach == REACH_FREED || last->reach == REACH_FREED) return 0;
  for (; first < last; first++) {
    if (first->end != first[1].begin) return 0;
    if ((first->reach | first[1].reach) != REACH_OUTSIDE) return 0;
  }
  return 1;
}

/* What there is of an access in global memory. */
static enum Global global_state(const struct Place *place, u64 address, u64 size) {
  const struct Span *span = span_of(place, address, size);
  if (span) return state_in(span);
  cujit_check_lock();
  enum Global state = state_in(span_in(heap_spans, heap_count, address, size));
  cujit_check_unlock();
  return state == NOTHING && size && leaves_view(place, address, size) ? OUTSIDE : state;
}

/* The shared memory of the cluster's blocks. */
static flag in_cluster(const struct Place *place, u64 address, u64 size) {
  const struct Watch *watch = place->watch;
  u64 offset = address - place->cluster;
  if (offset >= watch->cluster_blocks * WINDOW) return in_shared(place, address, size);
  return within(offset % WINDOW, size, watch->shared_limit);
}

/* The thread's local memory: of this function, of the kernel, and, where a kernel calls functions or takes memory on
   the stack, all of its stack. */
static NOINLINE flag in_local(const struct Place *place, u32 lane, u64 address, u64 size) {
  u64 own = place->local_bytes, kernel = place->watch->local_bytes;
  if (within(address - (place->local + lane * own), size, own)) return 1;
  if (within(address - (place->kernel_local + lane * kernel), size, kernel)) return 1;
  u64 frame = (u64)__builtin_frame_address(0), stack = place->watch->stack_bytes;
  if (stack && place->state) stack = place->state->warp[place->warp].stack_end - frame;
  return within(address - frame, size, stack);
}

static flag in_parameters(const struct Place *place, u64 address, u64 size) {
  return within(address - (u64)place->launch->parameters, size, place->watch->parameter_bytes);
}

INLINE enum Global state_of(const struct Place *place, const struct Access *access) {
  u64 address = access->address, size = access->size;
  switch (space_of(access->flags)) {
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

/* Whether all of a range is global memory that was not freed: most often that of the access before. */
INLINE flag in_one_span(struct Place *place, u64 address, u64 size) {
  const struct Span *span = place->span;
  if (span && within(address - span->begin, size, span->end - span->begin)) return 1;
  span = span_of(place, address, size);
  if (!span || span->reach != REACH_LIVE) return 0;
  place->span = span;
  return 1;
}

/* Whether all that a row accesses is there, by one look. */
INLINE flag row_is_memory(struct Place *place, const struct Row *row) {
  u32 space = space_of(row->flags);
  if ((row->base | row->stride) & odd_bits_of(row->flags)) return 0;
  if (space == SPACE_LOCAL) {
    return row->stride == place->local_bytes && within(row->base - place->local, row->size, place->local_bytes);
  }
  if (space != SPACE_GLOBAL && in_shared(place, row->low, row->bytes)) return 1;
  return (space == SPACE_GLOBAL || space == SPACE_GENERIC) && in_one_span(place, row->low, row->bytes);
}

/* Bytes behind a block of the kernel's malloc that belong to it more than to anything else. */
#define NEAR_HEAP 4096

/* Bytes of the block of the kernel's malloc that an access is in or behind, so far as `gap` says; 0 where there is none. */
static NOINLINE u32 heap_block_of(u64 address, u32 *gap) {
  u32 size = 0;
  cujit_check_lock();
  u64 rank = rank_in(heap_spans, heap_count, address);
  if (rank) {
    const struct Span *span = &heap_spans[rank - 1];
    u64 beyond = address < span->end ? 0 : address - span->end;
    if (beyond < NEAR_HEAP) size = (u32)(span->end - span->begin), *gap = (u32)beyond;
  }
  cujit_check_unlock();
  return size;
}

/* An access outside of a view may be meant: the first one is noted, and the launch goes on. */
static NOINLINE void note_outside(const struct Place *place, const struct Access *access) {
  struct Watch *watch = (struct Watch *)place->watch;
  if (__atomic_fetch_add(&watch->outside, 1, __ATOMIC_RELAXED)) return;
  watch->outside_block = place->block;
  watch->outside_thread = place->first + access->lane;
  watch->outside_line = access->line;
  watch->outside_flags = access->flags;
  watch->outside_address = access->address;
  watch->outside_size = access->size;
}

INLINE void check_memory(const struct Place *place, const struct Access *access) {
  u32 odd = odd_bits_of(access->flags);
  if (access->address & odd) fail(place, access, FAULT_MEMORY, CODE_MISALIGNED, 0, 0, odd + 1);
  enum Global state = state_of(place, access);
  if (state == FREED || state == NOTHING) {
    u32 gap = 0, block = span_of(place, access->address, 1) ? 0 : heap_block_of(access->address, &gap);
    fail(place, access, FAULT_MEMORY, state == FREED ? CODE_FREED : CODE_OUTSIDE, gap, block,
         state == FREED ? 0 : place->shared);
  }
  if (state == OUTSIDE) note_outside(place, access);
}

/* -- one store ------------------------------------------------------------------------------------------------------ */

/* Whether two lanes store the same: `parts` items of some bytes a lane, each part one vector of the warp. */
static flag stores_same(const u8 *data, u64 bytes, u64 parts, u32 lane, u32 mate) {
  for (u64 part = 0; part < parts; part++) {
    const u8 *vector = data + part * bytes * WARP;
    for (u64 k = 0; k < bytes; k++) {
      if (vector[lane * bytes + k] != vector[mate * bytes + k]) return 0;
    }
  }
  return 1;
}

/* Whether all lanes of a store access places of their own, or store the same, as far as a table of places tells. */
INLINE flag stores_are_apart(const struct Place *place, u32 lanes, u64 bytes, u64 parts) {
  u8 owner[256] = {0};
  u64 size = parts * bytes, odd = 0;
  u32 shift = (u32)__builtin_ctzll(size) & 63;
  EACH_LANE(lane, lanes) {
    u64 address = place->addresses[lane];
    u8 *slot = &owner[address >> shift & 255];
    u32 mate = *slot - 1u;
    odd |= address;
    *slot = (u8)(lane + 1);
    if (mate == ~0u) continue;
    if (place->addresses[mate] != address || !stores_same(place->data, bytes, parts, lane, mate)) return 0;
  }
  return !((odd | size) & ((1ull << shift) - 1)) && size >> shift == 1;
}
