/* What the checks of a launch know. See cujit/devices/cpu/native/checkstate.py for what the fields mean. */

#pragma once

#include "state.h"

#include <string.h>

enum { SLOTS = BARRIERS + 1, CLUSTER_BARRIER = BARRIERS };

/* Memory from `begin` to before `end`; `marks` is where its bytes of the init check are (null: none). */
struct Span {
  u64 begin, end, freed;
  u8 *marks;
};

struct Watch {
  const struct Span *spans;
  u64 count;
  u32 checks, unused;
  u64 shared_limit, shared_stride, shared_total, cluster_blocks, piece_bytes, entries, local_bytes, local_total;
  u64 stack_bytes, parameter_bytes, serial;
};

/* An access of a byte: by which thread (its number + 1; 0: none), at which clock of its warp, at which line. */
struct Record {
  u32 thread, clock, sync, line, flags, serial;
};

/* The last accesses of a byte of shared memory: its writer, and two readers since. */
struct Entry {
  struct Record writer, first_reader, second_reader;
};

/* A barrier's clock in one generation. */
struct Slot {
  u32 generation, clock[WARPS];
};

/* The order of a block's warps. */
struct Tracker {
  u64 owner;
  u32 clocks[WARPS][WARPS], syncs[WARPS], arrivals[WARPS][SLOTS];
  struct Slot slots[SLOTS][2];
  u32 objects[OBJECTS][WARPS], serial, unused;
};

/* Where a warp runs, and what its lanes hand over. */
struct Place {
  const struct Watch *watch;
  struct Tracker *piece;
  u64 kernel_local;
  struct Launch *launch;
  const struct Block *state;
  u64 shared, cluster, group, block, local, local_bytes, seen_block;
  u32 first, warp, side, seen_warp, called, unused;
  const u8 *data;
  u64 part_bytes, addresses[WARP], values[WARP];
};

/* What one lane does. */
struct Access {
  u32 lane, flags, line;
  u64 address, size;
};

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
  return (struct Tracker *)(place->group + place->watch->shared_total + side * place->watch->piece_bytes);
}

/* The bytes behind it that say which of the block's shared memory was written. */
INLINE u8 *marks_behind(struct Tracker *piece) { return (u8 *)(piece + 1); }

INLINE flag in_shared(const struct Place *place, u64 address, u64 size) {
  return within(address - place->shared, size, place->watch->shared_limit);
}
