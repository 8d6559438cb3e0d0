/* Who accessed each grain of shared memory in this phase: since the logs were cleared last.

   A word for each grain has the number of the phase, how the grain was accessed, and in the low bits the thread that did. A
   word of an earlier phase says nothing. What is no race by these words is none; what may be one by them is looked at in
   records. */

#pragma once

#include "races.h"

enum { SEVERAL = THREADS, STORED = 2 * THREADS, ATOMIC = 4 * THREADS, PHASE = 8 * THREADS, LAST_PHASE = (1 << 19) - 1 };

/* Grains behind the last one that a vector may reach, and how far apart lanes of a row are whose gaps are read, too; how many lanes
   are looked at one by one. */
enum { PHASE_SLACK = WARP, NEAR = 8, FEW = 4 };

/* What an access is. */
enum { IN_READS, IN_WRITES, IN_ATOMICS };

INLINE u32 kind_of(u32 flags) { return flags & ACCESS_STRONG ? IN_ATOMICS : flags & ACCESS_WRITE ? IN_WRITES : IN_READS; }

INLINE u32 *phases_of(const struct Place *place) { return (u32 *)((u8 *)place->piece + place->watch->phases); }

/* Begin with words that say nothing. */
INLINE void clear_phases(const struct Place *place) {
  memset(phases_of(place), 0, (grains_of(place) + PHASE_SLACK) * sizeof(u32));
}

INLINE void next_phase(const struct Place *place) {
  struct Tracker *piece = place->piece;
  if (piece->phase++ < LAST_PHASE) return;
  clear_phases(place);
  piece->phase = 1;
}

static const u32x32 LANES = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                             16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

/* What words become where threads access their grains; `bad` gets all ones where that may be a race. */
INLINE u32x32 shaded(u32x32 old, u32x32 thread, u32 tag, u32 kind, u32x32 *bad) {
  u32x32 fresh = (u32x32)(old < tag), same = (u32x32)(((old ^ thread) & (THREADS - 1 + SEVERAL)) == 0);
  *bad = ~(fresh | same);
  if (kind == IN_WRITES) return thread | (tag | STORED);
  if (kind == IN_ATOMICS) {
    *bad &= (u32x32)((old & ATOMIC) == 0);
    return thread | (tag | STORED | ATOMIC | SEVERAL);
  }
  *bad &= (u32x32)((old & STORED) != 0);
  u32x32 more = old | (~same & SEVERAL);
  return more ^ (fresh & (more ^ (thread | tag)));
}

/* Shade the grains at `at`, each accessed by a thread if it is `active`. 0 where that may be a race. */
INLINE flag shade(u32 *at, u32x32 thread, u32x32 active, u32 tag, u32 kind) {
  u32x32 old = *(loose32 *)at, bad, now = shaded(old, thread, tag, kind, &bad);
  if (__builtin_reduce_or(bad & active)) return 0;
  *(loose32 *)at = old ^ (active & (old ^ now));
  return 1;
}

/* Shade `count` grains of each lane from `at` on, at numbers of grains; `common` gets whether lanes write the same ones. */
INLINE flag shade_each(u32 *at, const u32 *numbers, u32 lanes, u32 count, u32 first, u32 tag, u32 kind, flag *common) {
  u32 bad = 0, met = 0;
  EACH_LANE(lane, lanes) {
    for (u32 k = 0; k < count; k++) {
      u32 *own = at + numbers[lane] + k, old = *own, thread = first + lane;
      u32 fresh = old < tag, same = !((old ^ thread) & (THREADS - 1 + SEVERAL));
      bad |= ((fresh | same) - 1) & (kind == IN_READS ? old & STORED : kind == IN_WRITES || !(old & ATOMIC));
      if (kind == IN_READS) *own = fresh ? thread | tag : old | (same ? 0 : SEVERAL);
      if (kind == IN_ATOMICS) *own = tag | STORED | ATOMIC | SEVERAL | thread;
    }
  }
  if (bad) return 0;
  if (kind != IN_WRITES) return 1;
  EACH_LANE(lane, lanes) {
    for (u32 k = 0; k < count; k++) {
      u32 *own = at + numbers[lane] + k, old = *own;
      met |= (old >= tag) & (((old ^ (first + lane)) & (THREADS - 1)) != 0);
      *own = tag | STORED | (first + lane);
    }
  }
  *common = met;
  return 1;
}

/* Shade `count` grains of each lane of a whole warp, the lanes' first grains `step` apart: both are powers of two. */
INLINE flag shade_full(u32 *at, u32 step, u32 count, u32 first, u32 tag, u32 kind) {
  u32x32 active = (u32x32)((LANES & (step - 1)) < count);
  u32 shift = (u32)__builtin_ctz(step);
  for (u32 k = 0; k < WARP * step; k += WARP) {
    if (!shade(at + k, ((LANES + k) >> (shift & 31)) + first, active, tag, kind)) return 0;
  }
  return 1;
}

/* Shade what lanes access at offsets into shared memory, all of them multiples of the size. */
static NOINLINE flag shade_lanes(const struct Place *place, const u32 *offsets, u32 lanes, u32 size, u32 kind, flag *common) {
  u32 grain = place->piece->grain & 3, tag = place->piece->phase * PHASE, first = place->warp * WARP, *at = phases_of(place);
  u32 count = size >> grain;
  if (!count) return 0;
  u32x32 index = *(const loose32 *)offsets >> grain, active = (u32x32)only(lanes);
  const u32 *numbers = (const u32 *)&index;
  if (count > 1 && lanes == ~0u && !__builtin_reduce_or((i32x32)(index - LANES * count != numbers[0]))) {
    *common = 0;
    return shade_full(at + numbers[0], count, count, first, tag, kind);
  }
  if (count > 1) return shade_each(at, numbers, lanes, count, first, tag, kind, common);
  /* Grains side by side, or those of a line in the order of an exclusive or. */
  u32 lane = first_lane(lanes), begin = numbers[lane], turned = begin ^ lane;
  *common = 0;
  if (!__builtin_reduce_or((i32x32)((index ^ LANES) != turned) & (i32x32)active)) {
    u32x32 own = LANES ^ (turned & (WARP - 1));
    return shade(at + (turned & -WARP), own + first, (u32x32)((lanes >> own & 1) != 0), tag, kind);
  }
  if (!__builtin_reduce_or((i32x32)(index - LANES != begin - lane) & (i32x32)active)) {
    return shade(at + begin, LANES + (first + lane), (u32x32)only(lanes >> (lane & 31)), tag, kind);
  }
  if (kind == IN_READS) return shade_each(at, numbers, lanes, 1, first, tag, IN_READS, common);
  if (kind == IN_WRITES) return shade_each(at, numbers, lanes, 1, first, tag, IN_WRITES, common);
  return shade_each(at, numbers, lanes, 1, first, tag, IN_ATOMICS, common);
}

/* One element that several lanes access: the last one's write is what is left. */
INLINE flag shade_common(u32 *at, u32 count, u32 thread, flag several, u32 tag, u32 kind) {
  for (u32 k = 0; k < count; k++) {
    flag fresh = at[k] < tag, same = !several && !((at[k] ^ thread) & (THREADS - 1 + SEVERAL));
    if (!(fresh | same) && (kind != IN_READS || at[k] & STORED)) return 0;
    if (kind != IN_READS) {
      at[k] = tag | STORED | thread;
    } else if (fresh) {
      at[k] = tag | thread | several * SEVERAL;
    } else if (!same) {
      at[k] |= SEVERAL;
    }
  }
  return 1;
}

/* Words side by side, of which few are accessed: one by one, as a load of many would wait for the stores of the last ones. */
INLINE flag shade_few(u32 *at, u32 lanes, u32 thread, u32 tag, u32 kind) {
  EACH_LANE(lane, lanes) {
    if (!shade_common(at + lane, 1, thread + lane, 0, tag, kind)) return 0;
  }
  return 1;
}

/* Shade what the warp accesses in a row, by a load or a store. */
INLINE flag shade_row(const struct Place *place, const struct Row *row, u32 kind) {
  u32 grain = place->piece->grain & 3, odd = (1u << grain) - 1, tag = place->piece->phase * PHASE;
  u32 first = first_lane(row->lanes), lanes = row->lanes >> (first & 31), last = last_lane(lanes);
  u64 offset = row->base + first * row->stride - place->shared;
  u32 thread = place->warp * WARP + first, *at = phases_of(place) + (offset >> grain);
  if ((offset | row->stride | row->size) & odd) return 0;
  u64 far = row->stride >> grain;
  u32 count = row->size >> grain, step = (u32)far;
  if (far == 1 && count == 1) return shade(at, LANES + thread, (u32x32)only(lanes), tag, kind);
  if (!far || !last) return shade_common(at, count, kind == IN_READS ? thread : thread + last, last > 0, tag, kind);
  if (far > NEAR || count > far) {
    u32x32 offsets = LANES * (u32)row->stride + (u32)(row->base - place->shared);
    flag common;
    return shade_lanes(place, (const u32 *)&offsets, row->lanes, row->size, kind, &common);
  }
  const u32 parts[] = {0, 65536, 32769, 21846, 16385, 13108, 10923, 9363, 8193};
  if (lanes == ~0u && !(step & (step - 1))) return shade_full(at, step, count, thread, tag, kind);
  u32 all = last * step + count, part = parts[step];
  for (u32 k = 0; k < all; k += WARP) {
    u32x32 number = LANES + k, lane = number * part >> 16;
    u32x32 active = (u32x32)(number < all) & (u32x32)(number - lane * step < count) & (u32x32)((lanes >> (lane & 31) & 1) != 0);
    if (!shade(at + k, lane + thread, active, tag, kind)) return 0;
  }
  return 1;
}
