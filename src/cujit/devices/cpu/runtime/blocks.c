/* The scheduler: the warps of a block (or of the blocks of a cluster, or of a cooperative grid) on stacks of their own.

   A warp runs until it waits at a barrier, spins, or ends; then the next warp in turn goes on, and the scheduler's
   stack where none of the block can. */

#include "arena.h"
#include "turns.h"

/* -- blocks are taken from the launch's counter, `chunk` at a time, and run `together` at a time -------------------- */

INLINE u64 at_least_one(u64 extent) { return extent ? extent : 1; }
INLINE u64 less(u64 x, u64 y) { return x < y ? x : y; }

static u64 cluster_size(const struct Launch *launch) {
  return at_least_one(launch->cluster_x) * at_least_one(launch->cluster_y) * at_least_one(launch->cluster_z);
}

/* Where a block lies in the grid: blocks are numbered cluster by cluster, inside a cluster by rank. */
static void place_block(const struct Launch *launch, struct Block *block, u64 number) {
  u64 gx = at_least_one(launch->grid_x), gy = at_least_one(launch->grid_y);
  u64 cx = at_least_one(launch->cluster_x), cy = at_least_one(launch->cluster_y);
  u64 size = cluster_size(launch), cluster = number / size, rank = number % size;
  u64 row = gx / cx, column = gy / cy;
  u64 cz = at_least_one(launch->cluster_z);
  u64 x = cluster % row * cx + rank % cx;
  u64 y = cluster / row % column * cy + rank / cx % cy;
  u64 z = cluster / row / column * cz + rank / cx / cy;
  block->ctaid_x = (u32)x, block->ctaid_y = (u32)y, block->ctaid_z = (u32)z;
  block->number = (gy * z + y) * gx + x;
}

/* Block `k` of `count` joins its cluster of `size` blocks, whose first one keeps what they share. */
static void join_cluster(struct Block *block, u64 size, u64 k, u64 count) {
  struct Block *first = block - block->rank;
  struct Group *cluster = &first->own_cluster;
  block->group = cluster;
  if (block->rank) return;
  cluster->blocks = first;
  cluster->count = less(size, count - k);
  cluster->threads = block->threads * (u32)cluster->count;
}

/* Stacks begin at different places in their pages, so that they do not share the same lines of the caches. */
enum { COLOURS = 16, COLOUR_BYTES = 2240 };

/* Have a warp begin on a stack that ends at `end`. */
static void make_stack(struct Block *block, u32 warp, u8 *end) {
  u8 *top = end - warp % COLOURS * COLOUR_BYTES;
  struct Frame *frame = (struct Frame *)top - 1;
  frame->number = warp;
  frame->argument = block;
  frame->function = (void *)warp_main;
  frame->begin = cujit_begin;
  block->warp[warp].stack = (u8 *)frame;
  block->warp[warp].stack_end = (u64)end;
}

/* Where a thread runs its blocks. */
struct Room {
  struct Launch *launch;
  u8 *shared, *local;
  const struct Plan *plan;
  struct Arena *arena;
  struct Group group;
};

/* Make block `k` of `count` ready, whose number is `number`. */
static void make_block(const struct Room *room, struct Block *block, u64 k, u64 count, u64 number) {
  const struct Plan *plan = room->plan;
  u64 size = cluster_size(room->launch);
  memset(block, 0, sizeof *block);
  block->launch = room->launch;
  block->threads = plan->threads;
  block->warps = plan->warps;
  block->rank = (u32)(k % size);
  block->side = (u32)k;
  block->shared = room->shared + k * room->launch->shared_stride;
  block->local = room->local + k * plan->warps * plan->local_bytes;
  block->body = plan->body;
  join_cluster(block, size, k, count);
  place_block(room->launch, block, number);
  u8 *stacks = (u8 *)room->arena + room->arena->stacks_at + k * plan->warps * plan->stack_bytes;
  for (u32 warp = 0; warp < plan->warps; warp++) make_stack(block, warp, stacks + (warp + 1) * plan->stack_bytes);
}

/* Run `count` blocks from `first` on, which take turns. */
static void run_group(struct Room *room, u64 first, u64 count) {
  struct Group *group = &room->group;
  *group = (struct Group){(struct Block *)((u8 *)room->arena + BLOCKS_AT), count, 0, 0, 0, 0};
  for (u64 k = 0; k < count; k++) make_block(room, &group->blocks[k], k, count, first + k);
  running_at(room->shared)->group = group;
  take_turns(room->launch, group, room->shared);
}

void cujit_run_blocks(struct Launch *launch, u8 *shared, u8 *local, const struct Plan *plan) {
  u64 together = at_least_one(launch->together), chunk = launch->chunk, first;
  struct Room room = {launch, shared, local, plan, arena_of(together, plan->warps, plan->stack_bytes), {0}};
  if (!room.arena) return;
  while ((first = __atomic_fetch_add(&launch->next, chunk, __ATOMIC_RELAXED)) < launch->blocks) {
    u64 limit = less(first + chunk, launch->blocks), count;
    for (u64 at = first; at < limit; at += count) {
      count = less(together, limit - at);
      run_group(&room, at, count);
    }
  }
}

/* -- barriers of a block --------------------------------------------------------------------------------------------- */

INLINE u32 count_of(u32 lanes) { return (u32)__builtin_popcount(lanes); }

INLINE struct Barrier *barrier_of(struct Block *block, u32 id) { return &block->barriers[id & (BARRIERS - 1)]; }

/* Open a barrier at which enough threads have arrived. */
static void try_open(struct Block *block, struct Barrier *barrier) {
  u32 need = barrier->expected ? barrier->expected : block->threads - block->exited;
  if (!barrier->arrived || barrier->arrived < need) return;
  *barrier = (struct Barrier){
      .generation = barrier->generation + 1,
      .last_count = barrier->count,
      .last_any = barrier->any,
      .last_missing = barrier->missing,
  };
  block->changes++;
}

/* `lanes` of a warp arrive, `holding` of them with a predicate that holds; `threads` is how many the barrier is for
   (0: all of the block). Gives the generation that they wait to see the end of. */
u32 cujit_barrier_arrive(struct Block *block, u32 id, u32 threads, u32 lanes, u32 holding) {
  struct Barrier *barrier = barrier_of(block, id);
  u32 generation = barrier->generation;
  barrier->arrived += count_of(lanes);
  barrier->expected = threads;
  barrier->count += count_of(lanes & holding);
  barrier->any |= lanes & holding;
  barrier->missing |= lanes & ~holding;
  try_open(block, barrier);
  return generation;
}

/* Note where a warp waits, for those who ask. */
static void note(struct Block *block, u32 warp, i32 barrier, u32 line, u32 lanes) {
  struct Warp *own = &block->warp[warp];
  own->line = line, own->lanes = lanes, own->barrier = barrier;
}

void cujit_barrier_wait(struct Block *block, u32 warp, u32 id, u32 generation, u32 line, u32 lanes) {
  struct Barrier *barrier = barrier_of(block, id);
  if (barrier->generation != generation) return;
  note(block, warp, (i32)id, line, lanes);
  do {
    leave(block, warp, STATE_WAITING);
  } while (barrier->generation == generation);
}

/* What a barrier says, for lanes that look later. */
u32 cujit_barrier_generation(struct Block *block, u32 id) { return barrier_of(block, id)->generation; }
u32 cujit_barrier_count(struct Block *block, u32 id) { return barrier_of(block, id)->last_count; }
u32 cujit_barrier_any(struct Block *block, u32 id) { return barrier_of(block, id)->last_any; }
u32 cujit_barrier_missing(struct Block *block, u32 id) { return barrier_of(block, id)->last_missing; }

/* Wait until something of the block changes. */
void cujit_wait(struct Block *block, u32 warp, u32 line, u32 lanes) {
  note(block, warp, -1, line, lanes);
  leave(block, warp, STATE_WAITING);
}

/* Let others run; come back in any case. */
void cujit_spin(struct Block *block, u32 warp, u32 line, u32 lanes) {
  note(block, warp, -1, line, lanes);
  leave(block, warp, STATE_SPINNING);
}

/* -- barriers of a cluster ------------------------------------------------------------------------------------------- */

static void try_open_cluster(struct Group *group) {
  if (group->arrived < group->threads - group->exited) return;
  group->arrived = 0;
  group->generation++;
  for (u64 k = 0; k < group->count; k++) group->blocks[k].changes++;
}

u32 cujit_cluster_arrive(struct Block *block, u32 warp, u32 lanes) {
  struct Group *group = block->group;
  struct Warp *own = &block->warp[warp];
  u32 generation = group->generation;
  group->arrived += count_of(lanes);
  own->cluster_lanes = (own->cluster_generation == generation ? own->cluster_lanes : 0) | lanes;
  own->cluster_generation = generation;
  try_open_cluster(group);
  return generation;
}

/* The generation in which these lanes of a warp arrived last. Where none of them was among the last to arrive, all
   arrived in one before, which others of the warp have seen the end of. */
u32 cujit_cluster_arrival(struct Block *block, u32 warp, u32 lanes) {
  const struct Warp *own = &block->warp[warp];
  return own->cluster_lanes & lanes ? own->cluster_generation : own->cluster_generation - 1;
}

u32 cujit_cluster_generation(struct Block *block) { return block->group->generation; }

void cujit_cluster_wait(struct Block *block, u32 warp, u32 generation, u32 line, u32 lanes) {
  while (block->group->generation == generation) {
    note(block, warp, -1, line, lanes);
    leave(block, warp, STATE_WAITING);
  }
}

/* -- exits ----------------------------------------------------------------------------------------------------------- */

/* Threads that arrived and left before the barrier opened are not counted twice. */
static void forget_arrivals(struct Group *group, struct Warp *warp, u32 lanes) {
  if (warp->cluster_generation != group->generation) return;
  u32 both = warp->cluster_lanes & lanes;
  warp->cluster_lanes ^= both;
  group->arrived -= count_of(both);
}

/* Threads leave for good: barriers for all threads wait for fewer. */
void cujit_exit(struct Block *block, u32 warp, u32 lanes) {
  struct Group *group = block->group;
  u32 here = count_of(lanes);
  block->exited += here;
  group->exited += here;
  forget_arrivals(group, &block->warp[warp], lanes);
  if (block->exited != block->threads) {
    for (u32 k = 0; k < BARRIERS; k++) {
      if (block->barriers[k].arrived) try_open(block, &block->barriers[k]);
    }
  }
  if (group->arrived) try_open_cluster(group);
}
