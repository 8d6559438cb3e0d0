/* How the warps of blocks take turns. */

#pragma once

#include "state.h"
#include "switch.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

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
  for (u32 i = warp + 1; state != STATE_SPINNING; i++) {
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

/* Where a warp begins, on its own stack. */
static NORETURN void warp_main(struct Block *block, u32 warp) {
  block->body(block, warp);
  block->done++;
  leave(block, warp, STATE_DONE);
  __builtin_unreachable();
}

/* The blocks as they are go into the launch for the error to read: where each warp waits. */
static NORETURN NOINLINE void deadlock(struct Launch *launch, const struct Group *group) {
  u64 size = group->count * sizeof *group->blocks;
  struct Block *copy = malloc(size);
  memcpy(copy, group->blocks, size);
  if (cujit_claim(launch, FAULT_DEADLOCK)) {
    launch->fault_more[0] = (u64)copy;
    launch->fault_more[1] = group->count;
    cujit_fault_here(launch, group->blocks->number, ~0u, 0, 0);
  } else {
    free(copy);
  }
  cujit_stop();
}

/* What one turn of all warps came to. */
struct Turn {
  flag open, moved, spun; /* a block is not done; a warp ran, and did not only spin; one did */
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
    cujit_switch(&block->scheduler, warp->stack);
    turn->moved |= !spins;
    turn->spun |= spins;
  }
}

/* A warp that waits is not taken before something of its block has changed. When no warp can be taken and none spins,
   no barrier can ever be met: that is a deadlock, and the launch ends with a fault. */
static void take_turns(struct Launch *launch, struct Group *group, u8 *shared) {
  for (u32 patience = 0;;) {
    struct Turn turn = {0, 0, 0};
    for (u64 k = 0; k < group->count; k++) turn_of_block(&group->blocks[k], &running_at(shared)->block, &turn);
    if (!turn.open) return;
    if (!turn.moved && !turn.spun) deadlock(launch, group);
    patience = turn.moved ? 0 : patience + 1;
    if (patience < PATIENCE) continue;
    patience = 0;
    /* Another thread may have failed while this one waits for what it will not do now. */
    flag failed = __atomic_load_n(&launch->fault_kind, __ATOMIC_RELAXED) != 0;
    if (failed || __atomic_load_n(&launch->poked, __ATOMIC_RELAXED)) cujit_pause(launch, 0);
    sched_yield();
  }
}
