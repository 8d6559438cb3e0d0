/* Schedules: which warp runs next, when it lets others run, and when copies land, by the numbers of a seed. A launch with
   a schedule has one thread, so that the same seed gives the same order. */

#pragma once

#include "pending.h"

/* How the next warp is picked: any, or most often the first, or the last of those that can run. */
enum Picks { ANY, FIRST, LAST };

/* Turns after which the one that comes next in their order is taken, whatever is picked: all make progress. */
enum { FAIR = 32, LOOKS = 1024 };

/* The next number of the launch's sequence. Source: G. Marsaglia, "Xorshift RNGs", 2003. */
INLINE u64 next_number(struct Launch *launch) {
  u64 x = launch->schedule;
  x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  return launch->schedule = x;
}

/* A warp that may run. */
struct Choice {
  struct Block *block;
  u32 warp;
};

INLINE flag may_run(const struct Block *block, u32 warp, flag spins) {
  const struct Warp *own = &block->warp[warp];
  if (spins) return own->state == STATE_SPINNING;
  return own->state == STATE_READY || (own->state == STATE_WAITING && own->seen != block->changes);
}

/* How many warps of a group may run, or spin. */
INLINE u64 count_choices(const struct Group *group, flag spins) {
  u64 count = 0;
  for (u64 k = 0; k < group->count; k++) {
    for (u32 w = 0; w < group->blocks[k].warps; w++) count += may_run(&group->blocks[k], w, spins);
  }
  return count;
}

INLINE struct Choice nth_choice(struct Group *group, flag spins, u64 number) {
  for (u64 k = 0; k < group->count; k++) {
    for (u32 w = 0; w < group->blocks[k].warps; w++) {
      if (may_run(&group->blocks[k], w, spins) && !number--) return (struct Choice){&group->blocks[k], w};
    }
  }
  return (struct Choice){0, 0};
}

/* Pick a warp; none where none can run. Those that only look at memory come less often than the others. */
INLINE struct Choice pick(struct Launch *launch, struct Group *group, u64 turn) {
  u64 ready = count_choices(group, 0), spinning = count_choices(group, 1), random = next_number(launch);
  flag spins = !ready || (spinning && !(random >> 60));
  u64 count = spins ? spinning : ready, number = (random >> 8) % (count ? count : 1);
  if (!count) return (struct Choice){0, 0};
  if (!(turn % FAIR)) {
    number = turn / FAIR % count;
  } else if (random >> 5 & 7 && launch->picks != ANY) {
    number = launch->picks == FIRST ? 0 : count - 1;
  }
  return nth_choice(group, spins, number);
}

/* Of `count` clusters, the one that is started in place of a number: all come once. */
INLINE u64 started(const struct Launch *launch, u64 number, u64 count) {
  if (!launch->order_step) return number;
  return (number % count * (launch->order_step % count) + launch->order_first) % count;
}
