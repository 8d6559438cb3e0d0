/* Asynchronous copies that were issued and have not landed: what a thread keeps of them from block to block.

   A launch keeps them where its thread runs blocks (struct Running), so that a launch inside a handler of signals has
   its own, and memory goes back when the thread leaves the launch, however it does. */

#pragma once

#include "launch.h"

#include <stdlib.h>

/* One commit of a warp's copies: the lanes that did it, and how many copies the warp had issued before. */
struct Mark {
  u32 lanes, at;
};

/* The copies of one warp by cp.async: a ring of `room`, a power of two, of which those from `head` to before `tail` are
   there; and the commits that came after any of them. `due` tells that some were waited for. */
struct Queue {
  struct Small *each;
  struct Mark *marks;
  u32 room, head, tail, due, mark_count, mark_room;
};

struct Async;
struct Intervals;
struct TensorMemory;

/* All of a thread. `land` lands what it keeps, `end` what its blocks leave, `early` some of it: who has no copies need not have their code.
   `intervals` are there where races are looked for; `tensors` are the tensor memories of the first `sides` blocks that run
   side by side. */
struct Copies {
  struct Queue *queues;
  struct Async *each;
  u32 slots, count, room, small, due, sides;
  void (*land)(struct Running *running);
  void (*end)(struct Running *running);
  void (*early)(struct Running *running, u64 random);
  struct Intervals *intervals;
  struct TensorMemory **tensors;
};

INLINE struct Running *running_of(const struct Block *state, u8 *shared) {
  return state ? state->place : running_at(shared);
}

INLINE u32 slot_of(const struct Block *state, u32 warp) { return state ? state->side * state->warps + warp : warp; }

/* Give the memory back. */
INLINE void free_copies(struct Copies *copies) {
  if (!copies) return;
  for (u32 k = 0; k < copies->slots; k++) {
    free(copies->queues[k].each);
    free(copies->queues[k].marks);
  }
  for (u32 k = 0; k < copies->sides; k++) free(copies->tensors[k]);
  free(copies->tensors);
  free(copies->queues);
  free(copies->each);
  free(copies->intervals);
  free(copies);
}

/* Land everything: a launch in which nobody can go on, or every warp only looks at memory. 1 where something was there. */
INLINE flag land_copies(struct Running *running) {
  struct Copies *copies = running->copies;
  if (!copies || !(copies->small | copies->count)) return 0;
  copies->land(running);
  return 1;
}

/* The blocks that this thread runs are done. */
INLINE void end_copies(struct Running *running) {
  struct Copies *copies = running->copies;
  if (copies && copies->small | copies->count | copies->sides) copies->end(running);
}
