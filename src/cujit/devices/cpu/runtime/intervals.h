/* What asynchronous copies still read or write of shared memory, for the check for races: word by word the line of the
   copy, from where it is issued to where somebody has waited for it, whenever it is done. */

#pragma once

#include "pending.h"

#include <string.h>

/* A word that is read keeps in its high bits how many copies read it, in its low ones the line of the last. */
enum { READER_LINE = (1 << 24) - 1, READER = 1 << 24 };

/* Who looks at an access by `size` bytes of each lane at place->addresses; see cujit_check_access. */
typedef void Check(struct Place *place, u32 lanes, u64 size, u32 flags, u32 line);

/* Who looks at a part of shared memory that a lane's product reads, as a part of an event if there is one: see
   cujit_check_piece. */
typedef u32 CheckPiece(struct Place *place, u32 lane, u64 address, u64 bytes, u32 line, u32 event);

/* Who waits: the lanes of a warp, at a line. Null where nobody is asked. */
struct Waiter {
  struct Place *place;
  Check *check;
  u32 lanes, line;
};

/* For each word of the shared memory of the blocks that run side by side, `bytes` of each, whose first begins at `begin`,
   in windows side by side: the line of the copy that
   writes it, and the copies that read it. */
struct Intervals {
  struct Waiter waiter;
  u64 begin, blocks, bytes;
  u32 *writes, *reads;
};

INLINE flag is_raced(const struct Place *place) { return place->launch->checks->checks & CHECK_RACE; }

/* The part of a range that is shared memory: which words, and how many. */
INLINE u64 words_in(const struct Intervals *all, u64 address, u64 size, u64 *first) {
  u64 far = address - all->begin, block = far / WINDOW, offset = far % WINDOW, end = offset + size;
  if (!size || block >= all->blocks || offset >= all->bytes) return 0;
  if (end > all->bytes) end = all->bytes;
  *first = (block * all->bytes + offset) / 4;
  return (end + 3) / 4 - offset / 4;
}

INLINE void mark_writes(struct Intervals *all, u64 address, u64 size, u32 line) {
  u64 first, count = words_in(all, address, size, &first);
  for (u64 k = 0; k < count; k++) all->writes[first + k] = line;
}

/* Whether the addresses of all lanes count up by `size`. */
INLINE flag in_row(const u64 *addresses, u64 size) {
  u64 apart = 0;
  for (u32 lane = 0; lane < WARP; lane++) apart |= addresses[lane] ^ (addresses[0] + lane * size);
  return !apart;
}

/* The same for lanes that write `size` bytes each. */
INLINE void mark_lanes(struct Intervals *all, const u64 *addresses, u32 lanes, u64 size, u32 line) {
  if (lanes == ~0u && in_row(addresses, size)) {
    mark_writes(all, addresses[0], WARP * size, line);
    return;
  }
  EACH_LANE(lane, lanes) mark_writes(all, addresses[lane], size, line);
}

INLINE void mark_reads(struct Intervals *all, u64 address, u64 size, u32 line) {
  u64 first, count = words_in(all, address, size, &first);
  for (u64 k = 0; k < count; k++) {
    u32 *word = &all->reads[first + k];
    *word = ((*word & ~READER_LINE) + READER) | (line & READER_LINE);
  }
}

INLINE void unmark_reads(struct Intervals *all, u64 address, u64 size) {
  u64 first, count = words_in(all, address, size, &first);
  for (u64 k = 0; k < count; k++) {
    u32 *word = &all->reads[first + k];
    *word -= READER;
    if (*word < READER) *word = 0;
  }
}
