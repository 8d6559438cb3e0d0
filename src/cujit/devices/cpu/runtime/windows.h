/* Shared and local memory of the blocks that a thread runs, in mappings of their own; the thread's record keeps some
   from launch to launch.

       guard | local memory | guard | Running | guard | window of block 0 | window of block 1 | … | guard

   A window begins at a multiple of WINDOW, where the system's SYSTEM_BYTES are; the block's own memory follows. Nobody
   may touch what lies between, so that an access beyond ends the launch. */

#pragma once

#include "guard.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Bytes before and behind in which an access faults: all that 32 bits reach, or less where addresses are limited. */
#define FAR_GUARD (1ull << 31)

/* Bytes of a piece of memory above which a thread does not keep it. */
enum { MOST_KEPT = 8 << 20 };

INLINE u64 rounded(u64 bytes, u64 unit) { return (bytes + unit - 1) / unit * unit; }

INLINE void memory_end(struct Memory *memory) {
  if (memory->size) munmap((void *)memory->first, memory->size);
  memory->size = 0;
}

/* Have addresses that nobody may touch, what is `far` in at a multiple of `align`; 0 where there are none. */
INLINE u64 reserve(u64 size, u64 far, u64 align) {
  u8 *found = mmap(0, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return 0;
  u64 first = rounded((u64)found + far, align) - far, before = first - (u64)found;
  if (before) munmap(found, before);
  if (align - before) munmap((u8 *)first + size, align - before);
  return first;
}

/* Between the end of a block's memory, as a GPU gives it out, and the next guard lies what only strays write. */
#define UNTOUCHED 0xa5c3e1960f4b2d78ull

/* Bytes of it that are looked at: all of them would cost a small launch a third of its time. */
enum { LOOKED_AT = 512 };

struct Slack {
  u64 *first, *end;
};

INLINE u64 window_bytes(u64 shared_bytes) {
  /* A store may read and write back what lies less than BLENDED bytes before and behind. */
  return shared_bytes ? rounded(SYSTEM_BYTES + shared_bytes + BLENDED, (u64)getpagesize()) : 0;
}

INLINE struct Slack slack_of(const struct Memory *memory, u64 side) {
  u8 *window = memory->shared - SYSTEM_BYTES + side * WINDOW;
  u64 used = rounded(SYSTEM_BYTES + memory->shared_bytes, SHARED_UNIT), all = window_bytes(memory->shared_bytes) - used;
  return (struct Slack){(u64 *)(window + used), (u64 *)(window + used + (all < LOOKED_AT ? all : LOOKED_AT))};
}

INLINE void fill_slack(const struct Memory *memory, u64 side) {
  struct Slack slack = slack_of(memory, side);
  for (u64 *word = slack.first; word < slack.end; word++) *word = UNTOUCHED;
}

/* Where a write went past the shared memory of one of `blocks`; 0 where none did. */
INLINE u64 stray_in(const struct Memory *memory, u64 blocks) {
  for (u64 side = 0; memory->shared_bytes && side < blocks; side++) {
    struct Slack slack = slack_of(memory, side);
    u64 changed = 0;
    for (const u64 *word = slack.first; word < slack.end; word++) changed |= *word ^ UNTOUCHED;
    for (u64 *word = slack.first; changed && word < slack.end; word++) {
      u64 differs = *word ^ UNTOUCHED;
      if (!differs) continue;
      fill_slack(memory, side);
      return (u64)word + (u64)__builtin_ctzll(differs) / 8;
    }
  }
  return 0;
}

INLINE flag opened(u64 at, u64 bytes) { return !bytes || !mprotect((void *)at, bytes, PROT_READ | PROT_WRITE); }

/* Make memory for `count` blocks of so many bytes each, and local memory for all of them; 0 where there is none. */
INLINE flag memory_make(struct Memory *memory, u64 count, u64 shared_bytes, u64 local_bytes, u64 guard) {
  u64 page = (u64)getpagesize(), local = rounded(local_bytes, page);
  u64 window = window_bytes(shared_bytes);
  u64 far = guard + rounded(local, WINDOW) + WINDOW, size = far + count * WINDOW + guard;
  /* Where there is enough, the low 32 bits of an address are those of the window, too. */
  u64 first = reserve(size, far, guard == FAR_GUARD ? 2 * FAR_GUARD : WINDOW), base = first + far;
  if (!first) return 0;
  flag good = opened(first + guard, local) && opened(base + SYSTEM_BYTES - PLACE, page);
  for (u64 k = 0; k < count && good; k++) good = opened(base + k * WINDOW, window);
  *memory = (struct Memory){count, shared_bytes, local_bytes, first, size,
                            (u8 *)base + SYSTEM_BYTES, (u8 *)first + guard};
  if (!good) memory_end(memory);
  for (u64 k = 0; good && window && k < count; k++) fill_slack(memory, k);
  return good;
}

/* Whether the process may have as many addresses as it likes. Where they are limited, those of a wide guard would be
   missing elsewhere: a Python thread that starts without memory is waited for without end. */
INLINE flag has_addresses(void) {
  struct rlimit limit;
  return !getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur == RLIM_INFINITY;
}

/* Take the memory that a launch needs out of what the thread keeps, or make it; 0 where there is none. */
INLINE flag memory_take(struct Memory *kept, struct Memory *taken, u64 count, u64 shared_bytes, u64 local_bytes) {
  for (struct Memory *each = kept; each < kept + ROOMS; each++) {
    if (!each->size || each->shared_bytes != shared_bytes || each->local_bytes != local_bytes) continue;
    if (each->count < count) continue;
    *taken = *each;
    each->size = 0;
    return 1;
  }
  return (has_addresses() && memory_make(taken, count, shared_bytes, local_bytes, FAR_GUARD)) ||
         memory_make(taken, count, shared_bytes, local_bytes, WINDOW);
}

/* Give it back: the last one that was used comes first, the one that was not for longest goes. */
INLINE void memory_keep(struct Memory *kept, struct Memory *taken) {
  if (taken->count * taken->shared_bytes + taken->local_bytes > MOST_KEPT) {
    memory_end(taken);
    return;
  }
  u32 place = 0;
  while (place < ROOMS - 1 && kept[place].size) place++;
  memory_end(&kept[place]);
  memmove(kept + 1, kept, place * sizeof *kept);
  kept[0] = *taken;
}
