/* Memory for the blocks that a thread runs, and for the stacks of their warps; the thread's record keeps it from launch
   to launch. */

#pragma once

#include "launch.h"

#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS_AT = 64 };

/* How the memory begins: what there is. The blocks follow at BLOCKS_AT; then, at `stacks_at`, the stacks, each with a
   page below it that nobody may touch. */
struct Arena {
  u64 size, blocks, stacks, stack_bytes, stacks_at;
};

/* Where this thread keeps its arena. */
struct Arena **cujit_arena(void);

/* Give memory back, if there is any. */
INLINE void arena_end(struct Arena *arena) {
  if (arena) munmap(arena, arena->size);
}

INLINE struct Arena *make_arena(u64 count, u64 stacks, u64 stack_bytes) {
  u64 page = (u64)getpagesize(); /* 4, 16 or 64 KB on aarch64 */
  u64 blocks_bytes = (count * sizeof(struct Block) + 2 * page - 1) & ~(page - 1);
  u64 size = blocks_bytes + stacks * stack_bytes;
  u8 *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 0;
  struct Arena *arena = (struct Arena *)memory;
  *arena = (struct Arena){size, count, stacks, stack_bytes, blocks_bytes};
  for (u64 k = 0; k < stacks; k++) mprotect(memory + blocks_bytes + k * stack_bytes, page, PROT_NONE);
  return arena;
}

/* Memory for `count` blocks of `warps` stacks each; null where there is none. */
INLINE struct Arena *arena_of(u64 count, u64 warps, u64 stack_bytes) {
  u64 stacks = count * warps;
  struct Arena **kept = cujit_arena(), *old = *kept;
  if (old && old->blocks >= count && old->stacks >= stacks && old->stack_bytes == stack_bytes) return old;
  arena_end(old);
  return *kept = make_arena(count, stacks, stack_bytes);
}
