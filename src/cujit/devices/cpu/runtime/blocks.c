/* The scheduler: the warps of a block (or of the blocks of a cluster, or of a cooperative grid) on stacks of their own.

   A warp runs until it waits at a barrier, spins, or ends; then the next warp in turn goes on, and the scheduler's
   stack where none of the block can. */

#include "arena.h"
#include "schedule.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* -- changing stacks ------------------------------------------------------------------------------------------------- */

/* Changing from one stack to another: the few instructions that no compiler writes.

   cujit_switch(save, stack) puts the registers that a call preserves on the current stack, leaves its pointer at
   `save`, and goes on where `stack` was left. cujit_begin is where a new stack begins: it calls
   function(argument, number) from three preserved registers, and that function must not return. Frame is what a new
   stack holds, from the lowest address.

   A jump and not a return is at the end: processors predict where a return goes by the calls before it, which were made
   on another stack. */

void cujit_switch(u8 **save, u8 *stack);
void cujit_begin(void);

#ifdef __aarch64__

/* x19 to x30, and d8 to d15: of the vectors a call preserves the low halves. Source: Procedure Call Standard for the Arm
   64-bit Architecture, 6.1. */
struct Frame {
  void *function, *argument;
  u64 number, free[7], previous_frame;
  void (*begin)(void);
  u64 vectors[8];
};

__asm__(".globl cujit_switch\n"
        "cujit_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\n"
        "stp x21, x22, [sp, #16]\n"
        "stp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\n"
        "stp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\n"
        "stp d10, d11, [sp, #112]\n"
        "stp d12, d13, [sp, #128]\n"
        "stp d14, d15, [sp, #144]\n"
        "mov x9, sp\n"
        "str x9, [x0]\n"
        "mov sp, x1\n"
        "ldp x19, x20, [sp]\n"
        "ldp x21, x22, [sp, #16]\n"
        "ldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\n"
        "ldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\n"
        "ldp d10, d11, [sp, #112]\n"
        "ldp d12, d13, [sp, #128]\n"
        "ldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\n"
        "br x30\n"
        ".globl cujit_begin\n"
        "cujit_begin:\n"
        "mov x0, x20\n"
        "mov w1, w21\n"
        "blr x19\n"
        "brk #1\n");

#else

/* It lies 8 above a multiple of 16, so that the stack is aligned where cujit_begin calls. Preserved registers. Source:
   System V ABI, AMD64 supplement, 3.2.1. */
struct Frame {
  u64 free[2], number;
  void *argument, *function;
  u64 free_too;
  void (*begin)(void);
  u64 last[2];
};

__asm__(".globl cujit_switch\n"
        "cujit_switch:\n"
        "pushq %rbp\n"
        "pushq %rbx\n"
        "pushq %r12\n"
        "pushq %r13\n"
        "pushq %r14\n"
        "pushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\n"
        "popq %r14\n"
        "popq %r13\n"
        "popq %r12\n"
        "popq %rbx\n"
        "popq %rbp\n"
        "popq %rcx\n"
        "jmpq *%rcx\n"
        ".globl cujit_begin\n"
        "cujit_begin:\n"
        "movq %r12, %rdi\n"
        "movl %r13d, %esi\n"
        "callq *%rbx\n"
        "ud2\n");

#endif

/* -- turns -------------------------------------------------------------------------------------------------------------- */

/* Turns in which every warp only spins, before the processor is given to others. */
enum { PATIENCE = 64 };

/* Whether a warp that waits may go on: something of its block has happened since. */
INLINE flag is_freed(const struct Warp *warp, u32 changes) {
  return (warp->state == STATE_WAITING) & (warp->seen != changes);
}

/* Let another warp of the block run, the next in turn that can; the scheduler where there is none, and where this one
   only spins (it may wait for another block). */
static void leave(struct Block *block, u32 warp, u32 state) {
  struct Warp *own = &block->warp[warp];
  u32 changes = block->changes, warps = block->warps;
  own->state = state;
  own->seen = changes;
  flag direct = state != STATE_SPINNING && !block->launch->schedule;
  for (u32 i = warp + 1; direct; i++) {
    if (i == warps) i = 0;
    if (i == warp) break;
    struct Warp *other = &block->warp[i];
    if ((other->state == STATE_READY) | is_freed(other, changes)) {
      block->running = i;
      cujit_switch(&own->stack, other->stack);
      return;
    }
  }
  cujit_switch(&own->stack, block->scheduler);
}

INLINE struct Warpgroup *warpgroup_of(struct Block *block, u32 warp) { return &block->warpgroups[warp / GROUP_WARPS]; }

/* The warps of a warpgroup never meet: some wait, or the block has no such warp, and this one comes to something else. */
static NORETURN NOINLINE void warps_apart(const struct Block *block, u32 warp, u32 line) {
  struct Launch *launch = block->launch;
  u32 first = warp & -GROUP_WARPS, done = 0;
  for (u32 k = 0; k < GROUP_WARPS; k++) {
    if (first + k < block->warps && block->warp[first + k].state == STATE_DONE) done |= 1u << k;
  }
  if (cujit_claim(launch, FAULT_WARPS_APART)) {
    const struct Warpgroup *group = &block->warpgroups[warp / GROUP_WARPS];
    u64 more[] = {group->warps, group->line, done, block->warps};
    memcpy(launch->fault_more, more, sizeof more);
    cujit_fault_here(launch, block->number, warp * WARP, line, 0);
  }
  cujit_stop();
}

/* Where a warp begins, on its own stack. */
static NORETURN void warp_main(struct Block *block, u32 warp) {
  block->body(block, warp);
  if (warpgroup_of(block, warp)->warps) {
    block->warp[warp].state = STATE_DONE;
    warps_apart(block, warp, 0);
  }
  block->done++;
  struct Clusters *clusters = block->place->clusters;
  if (clusters && block->done == block->warps) clusters->leave(block);
  leave(block, warp, STATE_DONE);
  __builtin_unreachable();
}

/* The blocks as they are go into the launch for the error to read: where each warp waits. Without memory it says less. */
static NORETURN NOINLINE void deadlock(struct Launch *launch, const struct Group *group) {
  u64 size = group->count * sizeof *group->blocks;
  struct Block *copy = malloc(size);
  if (copy) memcpy(copy, group->blocks, size);
  for (u64 k = 0; copy && k < group->count; k++) {
    for (u32 w = 0; w < copy[k].warps; w++) {
      struct Warp *warp = &copy[k].warp[w];
      if (warp->state != STATE_SPINNING || warp->barrier != AT_PHASE || !warp->tested) continue;
      warp->seen = (u32)(warp->tested - (u64)copy[k].shared);
      warp->tested = *(u64 *)warp->tested;
    }
  }
  if (cujit_claim(launch, FAULT_DEADLOCK)) {
    launch->fault_more[0] = (u64)copy;
    launch->fault_more[1] = group->count;
    cujit_fault_here(launch, group->blocks->number, ~0u, 0, 0);
  } else {
    free(copy);
  }
  cujit_stop();
}

/* Turns in which nothing happens before warps that await a phase are known to do so for ever. */
enum { FRUITLESS = 2 * PATIENCE };

/* Whether every warp that is left waits for another: at a barrier, for the phase of an mbarrier, or for shared memory. */
static flag all_wait(const struct Group *group) {
  for (u64 k = 0; k < group->count; k++) {
    const struct Block *block = &group->blocks[k];
    for (u32 w = 0; w < block->warps; w++) {
      const struct Warp *warp = &block->warp[w];
      flag waits = warp->state == STATE_SPINNING ? warp->barrier != AT_ANY : warp->state != STATE_READY;
      if (!waits || is_freed(warp, block->changes)) return 0;
    }
  }
  return 1;
}

/* What one turn of all warps came to. */
struct Turn {
  flag open, moved, spun; /* a block is not done; a warp ran, and did not only spin; one spun */
};

static void turn_of_block(struct Block *block, u64 *number_at, struct Turn *turn) {
  u32 warps = block->warps;
  if (block->done == warps) return;
  turn->open = 1;
  for (u32 i = 0; i < warps; i++) {
    struct Warp *warp = &block->warp[i];
    flag spins = warp->state == STATE_SPINNING;
    if (!spins && warp->state != STATE_READY && !is_freed(warp, block->changes)) continue;
    *number_at = block->number;
    block->running = i;
    warp->moved = 0;
    cujit_switch(&block->scheduler, warp->stack);
    turn->moved |= !spins || warp->moved || warp->state != STATE_SPINNING; /* its loop may have ended */
    turn->spun |= spins;
    if (block->passed) break;
  }
  block->passed = 0;
}

/* Look whether another thread has failed, or the launch is to end. */
static void look_up(struct Launch *launch) {
  flag failed = __atomic_load_n(&launch->fault_kind, __ATOMIC_RELAXED) != 0;
  if (failed || __atomic_load_n(&launch->poked, __ATOMIC_RELAXED)) cujit_pause(launch, 0);
}

/* The same by a schedule: one warp after the other, as it picks them. */
static NOINLINE void take_picked(struct Launch *launch, struct Group *group, u8 *shared) {
  struct Running *running = running_at(shared);
  u64 spun = 0;
  for (u64 turn = 0;; turn++) {
    struct Choice choice = pick(launch, group, turn);
    if (!choice.block) {
      u64 open = 0;
      for (u64 k = 0; k < group->count; k++) open += group->blocks[k].done != group->blocks[k].warps;
      if (!open) return;
      if (land_copies(running)) continue;
      deadlock(launch, group);
    }
    struct Warp *warp = &choice.block->warp[choice.warp];
    flag spins = warp->state == STATE_SPINNING;
    running->block = choice.block->number;
    choice.block->running = choice.warp;
    warp->moved = 0;
    cujit_switch(&choice.block->scheduler, warp->stack);
    choice.block->passed = 0;
    spun = spins && !warp->moved && warp->state == STATE_SPINNING ? spun + 1 : 0;
    if (spun && !(spun % LOOKS) && !land_copies(running) && spun > FRUITLESS * LOOKS && all_wait(group)) {
      deadlock(launch, group);
    }
    if (!(turn % LOOKS)) look_up(launch);
  }
}

/* A warp lets others run where its schedule wants it, and copies may land. */
void cujit_yield(struct Block *block, u32 warp) {
  struct Launch *launch = block->launch;
  struct Copies *copies = block->place->copies;
  u64 random = next_number(launch);
  if (copies && !(random >> 40 & launch->lands)) copies->early(block->place, random >> 32);
  if (random >> 16 & launch->yields) return;
  leave(block, warp, STATE_READY);
}

/* Of a store of `size` bytes a lane, note who writes what is asked for. */
void cujit_note_writes(struct Block *block, u32 warp, const u64 *addresses, u32 lanes, u64 size, u32 flags, u32 line) {
  struct Writes *writes = block->launch->writes;
  if (!writes) return;
  EACH_LANE(lane, lanes) {
    u64 begin = addresses[lane];
    if (begin >= writes->end || begin + size <= writes->begin) continue;
    struct Written *written = &writes->each[writes->count++ % WRITES];
    *written = (struct Written){block->number, warp * WARP + lane, line, flags, 0};
  }
}

/* A warp that waits is not taken before something of its block has changed. When no warp can be taken and none spins,
   no barrier can ever be met: that is a deadlock, and the launch ends with a fault. */
static NOINLINE void take_turns(struct Launch *launch, struct Group *group, u8 *shared) {
  for (u32 patience = 0, fruitless = 0;;) {
    struct Turn turn = {0, 0, 0};
    for (u64 k = 0; k < group->count; k++) turn_of_block(&group->blocks[k], &running_at(shared)->block, &turn);
    if (!turn.open) return;
    if (!turn.moved && !turn.spun && !land_copies(running_at(shared))) deadlock(launch, group);
    patience = turn.moved ? 0 : patience + 1;
    fruitless = turn.moved ? 0 : fruitless + 1;
    if (patience < PATIENCE) continue;
    patience = 0;
    if (land_copies(running_at(shared))) fruitless = 0;
    if (fruitless >= FRUITLESS && all_wait(group)) deadlock(launch, group);
    /* Another thread may have failed while this one waits for what it will not do now. */
    look_up(launch);
    sched_yield();
  }
}

/* -- blocks are taken from the launch's counter, `chunk` at a time, and run `together` at a time -------------------- */

INLINE u64 at_least_one(u64 extent) { return extent ? extent : 1; }
INLINE u64 less(u64 x, u64 y) { return x < y ? x : y; }

static u64 cluster_size(const struct Launch *launch) {
  return at_least_one(launch->cluster_x) * at_least_one(launch->cluster_y) * at_least_one(launch->cluster_z);
}

/* Where a block lies in the grid: blocks are numbered cluster by cluster, inside a cluster by rank. */
static void find_place(const struct Launch *launch, u64 number, u32 at[3]) {
  u64 gx = at_least_one(launch->grid_x), gy = at_least_one(launch->grid_y);
  u64 cx = at_least_one(launch->cluster_x), cy = at_least_one(launch->cluster_y);
  u64 size = cluster_size(launch), rank = number % size;
  u64 cluster = started(launch, number / size, (launch->blocks + size - 1) / size);
  u64 row = gx / cx, column = gy / cy;
  u64 cz = at_least_one(launch->cluster_z);
  at[0] = (u32)(cluster % row * cx + rank % cx);
  at[1] = (u32)(cluster / row % column * cy + rank / cx % cy);
  at[2] = (u32)(cluster / row / column * cz + rank / cx / cy);
}

static void place_block(const struct Launch *launch, struct Block *block, u64 number) {
  u32 at[3];
  find_place(launch, number, at);
  block->ctaid_x = at[0], block->ctaid_y = at[1], block->ctaid_z = at[2];
  block->number = (at_least_one(launch->grid_y) * at[2] + at[1]) * at_least_one(launch->grid_x) + at[0];
}

/* A block asks for the work of the next cluster that has not begun: that is handed out to nobody else, and never runs.
   `answer` gets 1 and where its first block would lie, or zeros: where all have begun, where somebody traces a block, and
   by a schedule at times, as a GPU may refuse. */
void cujit_try_cancel(struct Launch *launch, u32 *answer) {
  u64 size = cluster_size(launch);
  memset(answer, 0, 4 * sizeof *answer);
  if (launch->trace || (launch->schedule && !(next_number(launch) >> 40 & 3))) return;
  u64 number = __atomic_fetch_add(&launch->next, size, __ATOMIC_RELAXED);
  if (number >= launch->blocks) return;
  answer[0] = 1;
  find_place(launch, number, answer + 1);
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
static void make_stack(struct Block *block, u32 warp, u8 *end, u64 bytes) {
  u8 *top = end - warp % COLOURS * COLOUR_BYTES;
  struct Frame *frame = (struct Frame *)top - 1;
  frame->number = warp;
  frame->argument = block;
  frame->function = (void *)warp_main;
  frame->begin = cujit_begin;
  block->warp[warp].stack = (u8 *)frame;
  block->warp[warp].stack_begin = (u64)end - bytes;
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
  block->shared = room->shared + k * WINDOW;
  /* No launch finds what the last one left: the same values would hide that nobody waited for them. */
  if (room->launch->schedule) memset(block->shared, (int)room->launch->schedule, room->launch->shared_bytes);
  block->local = room->local + k * plan->warps * plan->local_bytes;
  block->body = plan->body;
  block->place = running_at(room->shared);
  join_cluster(block, size, k, count);
  place_block(room->launch, block, number);
  u8 *stacks = (u8 *)room->arena + room->arena->stacks_at + k * plan->warps * plan->stack_bytes;
  for (u32 warp = 0; warp < plan->warps; warp++) make_stack(block, warp, stacks + (warp + 1) * plan->stack_bytes, plan->stack_bytes);
}

/* Run `count` blocks from `first` on, which take turns. */
static void run_group(struct Room *room, u64 first, u64 count) {
  struct Group *group = &room->group;
  *group = (struct Group){(struct Block *)((u8 *)room->arena + BLOCKS_AT), count, 0, 0, 0, 0};
  for (u64 k = 0; k < count; k++) make_block(room, &group->blocks[k], k, count, first + k);
  running_at(room->shared)->group = group;
  (room->launch->schedule ? take_picked : take_turns)(room->launch, group, room->shared);
  end_copies(running_at(room->shared));
}

void cujit_run_blocks(struct Launch *launch, u8 *shared, u8 *local, const struct Plan *plan) {
  u64 together = at_least_one(launch->together), chunk = launch->chunk, first;
  struct Room room = {launch, shared, local, plan, arena_of(together, plan->warps, plan->stack_bytes), {0}};
  if (!room.arena) {
    lack_memory(launch);
    return;
  }
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
  note(block, warp, AT_ANY, line, lanes);
  leave(block, warp, STATE_WAITING);
}

/* Let others run; come back in any case. `at` is not AT_ANY if other threads alone end the loops in which `lanes` are, and
   no other lanes of the warp can go on. `moved`: some did since it last let others run. */
void cujit_spin(struct Block *block, u32 warp, u32 line, u32 lanes, i32 at, flag moved) {
  note(block, warp, at, line, lanes);
  block->warp[warp].moved = (u32)moved;
  leave(block, warp, STATE_SPINNING);
}

/* Let the next warp of the block go on; behind the last one, the next block: what they read and write, turn by turn of
   a loop, lies side by side. Nobody waits for anybody: each comes back in its turn. */
void cujit_pass(struct Block *block, u32 warp) {
  struct Warp *own = &block->warp[warp];
  own->state = STATE_READY;
  for (u32 i = warp + 1; i < block->warps; i++) {
    struct Warp *other = &block->warp[i];
    if (!((other->state == STATE_READY) | is_freed(other, block->changes))) continue;
    block->running = i;
    cujit_switch(&own->stack, other->stack);
    return;
  }
  block->passed = 1;
  cujit_switch(&own->stack, block->scheduler);
}

/* -- warpgroups ------------------------------------------------------------------------------------------------------- */

/* A warp comes to an operation of a form that its warpgroup does together, and goes on when all four have come. */
void cujit_warpgroup_meet(struct Block *block, u32 warp, u32 form, u32 line, u32 lanes) {
  struct Warpgroup *group = warpgroup_of(block, warp);
  u32 number = warp / GROUP_WARPS, generation = group->generation;
  flag apart = (number + 1) * GROUP_WARPS > block->warps || (group->warps && group->form != form);
  for (u32 k = 0; k < GROUP_WARPS && !apart; k++) {
    apart = block->warp[number * GROUP_WARPS + k].state == STATE_DONE;
  }
  if (apart) warps_apart(block, warp, line);
  group->warps |= 1u << warp % GROUP_WARPS;
  group->form = form, group->line = line;
  if (group->warps == (1u << GROUP_WARPS) - 1) {
    group->warps = 0;
    group->last = warp;
    group->generation++;
    block->changes++;
    return;
  }
  note(block, warp, (i32)(BARRIERS + number), line, lanes);
  do {
    leave(block, warp, STATE_WAITING);
  } while (group->generation == generation);
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
    note(block, warp, AT_CLUSTER, line, lanes);
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
