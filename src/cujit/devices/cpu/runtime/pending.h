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

/* All of a thread. `land` lands what it keeps, `end` what its blocks leave, `early` some of it: who has no copies need not have their code.
   `intervals` are there where races are looked for. */
struct Copies {
  struct Queue *queues;
  struct Async *each;
  u32 slots, count, room, small, due, unused;
  void (*land)(struct Running *running);
  void (*end)(struct Running *running);
  void (*early)(struct Running *running, u64 random);
  struct Intervals *intervals;
};

/* Give the memory back. */
INLINE void free_copies(struct Copies *copies) {
  if (!copies) return;
  for (u32 k = 0; k < copies->slots; k++) {
    free(copies->queues[k].each);
    free(copies->queues[k].marks);
  }
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
  if (copies && copies->small | copies->count) copies->end(running);
}
