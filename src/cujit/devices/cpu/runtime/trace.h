/* The traced thread of a launch, and its records. */

#pragma once

#include "launch.h"

/* `block` is linear in the grid; `warp` and `lane` are the thread's. `used` and `capacity` count words at `records`.
   `left` is how many operations may still be kept, `dropped` how many were not. */
struct TraceState {
  u64 block;
  u32 warp, lane;
  u64 *records;
  u64 used, capacity, left, dropped;
};
