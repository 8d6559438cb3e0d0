/* Who accessed each grain of shared memory in this phase: since the logs were cleared last.

   Words tell where rules of bands do not: see bands.h. A word for each grain has the number of the phase, how the grain was
   accessed, and in the low bits the thread that did. A word of an earlier phase says nothing. What is no race by these
   words is none; what may be one by them is looked at in records. */

#pragma once

#include "races.h"

enum { SEVERAL = THREADS, STORED = 2 * THREADS, ATOMIC = 4 * THREADS, PHASE = 8 * THREADS, LAST_PHASE = (1 << 19) - 1 };

/* Words are looked at in pieces as large as a cache line, and aligned as one: no load waits for stores of parts of what it
   loads. PHASE_SLACK: grains behind the last one that a piece may reach. NEAR: how far apart lanes of a row are whose gaps
   are read, too. FEW: how many lanes have rules of their own. */
enum { PIECE = 16, PHASE_SLACK = WARP, NEAR = 8, FEW = 4 };
typedef u32 __attribute__((ext_vector_type(PIECE), aligned(4), may_alias)) words;

/* What an access is. */
enum { IN_READS, IN_WRITES, IN_ATOMICS };

INLINE u32 kind_of(u32 flags) { return flags & ACCESS_STRONG ? IN_ATOMICS : flags & ACCESS_WRITE ? IN_WRITES : IN_READS; }

INLINE u32 *phases_of(const struct Place *place) { return (u32 *)((u8 *)place->piece + place->watch->phases); }

/* The numbers of a piece's words, and all ones for some of them. */
static const words NUMBERS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const words BITS = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
INLINE words only_of(u64 set) { return (words)((BITS & (u32)set) != 0); }

/* Shade the words of a piece, each accessed by a thread if it is `active`. 0 where that may be a race. */
INLINE flag shade(u32 *at, words thread, words active, u32 tag, u32 kind) {
  words old = *(words *)at, now;
  words fresh = (words)(old < tag), same = (words)(((old ^ thread) & (THREADS - 1 + SEVERAL)) == 0), bad = ~(fresh | same);
  if (kind == IN_WRITES) {
    now = thread | (tag | STORED);
  } else if (kind == IN_ATOMICS) {
    bad = ~fresh & (words)((old & ATOMIC) == 0); /* the thread's own, too: else that would be forgotten */
    now = thread | (tag | STORED | ATOMIC | SEVERAL);
  } else {
    bad &= (words)((old & STORED) != 0);
    now = old | (~same & SEVERAL);
    now ^= fresh & (now ^ (thread | tag));
  }
  if (__builtin_reduce_or(bad & active)) return 0;
  *(words *)at = old ^ (active & (old ^ now));
  return 1;
}

/* Shade words side by side from number `number` on: the bits `lanes` are those that are accessed, by a thread each from
   `thread` on. */
INLINE flag shade_side(u32 *all, u32 number, u32 lanes, u32 thread, u32 tag, u32 kind) {
  u32 ahead = number % PIECE;
  u64 active = (u64)lanes << ahead;
  u32 *at = all + (number - ahead);
  for (thread -= ahead; active; active >>= PIECE, at += PIECE, thread += PIECE) {
    if (active % (1 << PIECE) && !shade(at, NUMBERS + thread, only_of(active), tag, kind)) return 0;
  }
  return 1;
}

/* Shade `count` grains of each lane from `at` on, at numbers of grains; `common` gets whether lanes write the same ones. */
INLINE flag shade_each(u32 *at, const u32 *numbers, u32 lanes, u32 count, u32 first, u32 tag, u32 kind, flag *common) {
  u32 bad = 0, met = 0;
  EACH_LANE(lane, lanes) {
    for (u32 k = 0; k < count; k++) {
      u32 *own = at + numbers[lane] + k, old = *own, thread = first + lane;
      u32 fresh = old < tag, same = !((old ^ thread) & (THREADS - 1 + SEVERAL));
      if (kind == IN_ATOMICS) same = 0; /* what the thread did otherwise would be forgotten */
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
INLINE flag shade_full(u32 *all, u32 number, u32 step, u32 count, u32 first, u32 tag, u32 kind) {
  u32 shift = (u32)__builtin_ctz(step) & 31, ahead = number % PIECE, *at = all + (number - ahead);
  for (u32 k = 0; k < ahead + WARP * step; k += PIECE) {
    words place = NUMBERS + (k - ahead), active = (words)(place < WARP * step) & (words)((place & (step - 1)) < count);
    if (!shade(at + k, (place >> shift) + first, active, tag, kind)) return 0;
  }
  return 1;
}

/* Shade `count` grains of each lane from numbers on. */
INLINE flag shade_lanes(u32 *all, const u32 *numbers, u32 lanes, u32 count, u32 first, u32 tag, u32 kind, flag *common) {
  *common = 0;
  if (count > 1) return shade_each(all, numbers, lanes, count, first, tag, kind, common);
  if (kind == IN_READS) return shade_each(all, numbers, lanes, 1, first, tag, IN_READS, common);
  if (kind == IN_WRITES) return shade_each(all, numbers, lanes, 1, first, tag, IN_WRITES, common);
  return shade_each(all, numbers, lanes, 1, first, tag, IN_ATOMICS, common);
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

/* What times a number of grains is 65536 times the number of the lane, by how far lanes lie apart. */
static const u32 INVERSES[] = {0, 65536, 32769, 21846, 16385, 13108, 10923, 9363, 8193};

/* Shade `count` grains of each lane of a set, `step` apart, from number `number` on, where the first lane's are. */
INLINE flag shade_apart(u32 *all, u32 number, u32 step, u32 count, u32 lanes, u32 thread, u32 tag, u32 kind) {
  u32 end = last_lane(lanes) * step + count, ahead = number % PIECE, *at = all + (number - ahead);
  for (u32 k = 0; k < ahead + end; k += PIECE) {
    words place = NUMBERS + (k - ahead), lane = place * INVERSES[step] >> 16;
    words active = (words)(place < end) & (words)(place - lane * step < count) & (words)((lanes >> (lane & 31) & 1) != 0);
    if (!shade(at + k, lane + thread, active, tag, kind)) return 0;
  }
  return 1;
}
