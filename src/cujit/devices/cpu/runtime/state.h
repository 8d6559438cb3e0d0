/* What the scheduler of a block and its warps share. See cujit/devices/cpu/native/state.py for what the fields mean. */

#pragma once

#include "launch.h"

/* One barrier. */
struct Barrier {
  u32 arrived, expected, generation, count, any, missing, last_count, last_any, last_missing, unused;
};

/* Where lanes wait for others of their warp. */
struct Meeting {
  u32 line, lanes, members;
};

struct Warp {
  u8 *stack;
  u32 state, seen, line, lanes;
  i32 barrier;
  u32 cluster_generation, cluster_lanes, unused;
  u64 stack_end;
  struct Meeting apart[2];
};

struct Block;
typedef void Body(struct Block *block, u32 warp);

/* What a kernel's code needs, known when it is compiled. */
struct Plan {
  Body *body;
  u32 threads, warps;
  u64 local_bytes, stack_bytes;
};

/* Blocks that belong together, and the barrier of a cluster. */
struct Group {
  struct Block *blocks;
  u64 count;
  u32 arrived, generation, exited, threads;
};

struct Block {
  struct Launch *launch;
  struct Group *group;
  u8 *shared, *local;
  u64 number;
  u8 *scheduler;
  Body *body;
  u32 threads, warps, exited, done, changes, rank, ctaid_x, ctaid_y, ctaid_z, side, running;
  struct Group own_cluster;
  struct Barrier barriers[BARRIERS];
  struct Warp warp[WARPS];
};

/* What runs, in the first words before shared memory: so that what comes as a signal can name it. `group` is null where
   warps do not take turns, `warp` -1 where it is not known. */
struct Running {
  u64 block;
  struct Group *group;
  i32 warp;
};

INLINE struct Running *running_at(u8 *shared) { return (struct Running *)(shared - PLACE); }
