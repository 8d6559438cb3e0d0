/* The memory of the device, for the parts that read and write it. */

#pragma once

#include "state.h"

/* What of ours an address lies in: an allocation, registered memory or a module's; null where it is in none. */
struct Block *cujit_block_of(u64 address);

/* The same, or memory of a graph that no launch has: only its nodes may name that. */
struct Block *cujit_known_of(u64 address);

/* Allocate; null without memory. */
struct Block *cujit_memory_new(u64 size, u32 kind, u32 flags, u64 context, u64 pool);

/* Free a block that is of one of the kinds of a mask; 0 where it is not, or not any more. */
u32 cujit_memory_free(u64 address, u32 kinds);

/* 1 where the bytes lie in one block of ours, or of a graph; with `foreign`, also where they are wholly outside of our
   addresses. */
INLINE u32 memory_holds(u64 address, u64 bytes, u32 foreign) {
  struct Block *block = cujit_known_of(address);
  if (block) return bytes <= block->begin + block->size - address;
  struct Memory *memory = &state.memory;
  return foreign && address && address + bytes >= address &&
         (address >= memory->end || address + bytes <= memory->begin);
}

/* A flag of a block: copies of it are done when the call returns, as all are here. */
#define SYNCS (1u << 31)

/* Of memory of graphs: its place stays its own while it is free. */
#define KEPT (1u << 30)

#define OF(kind) (1u << BLOCK_##kind)
#define ON_DEVICE (OF(DEVICE) | OF(MANAGED) | OF(POOLED))
#define COUNTED (ON_DEVICE | OF(ARRAY)) /* of what the device has */

/* 1 unless an address lies in memory of a graph that no launch has. */
INLINE u32 memory_taken(u64 address) {
  struct Block *block = cujit_known_of(address);
  return !block || block->kind != BLOCK_GRAPH;
}
