/* What the host hands to machine code for one launch, what comes back in it, and how code of ours ends it. */

#pragma once

#include "words.h"

/* What a warp of a kernel runs. */
struct Block;
typedef void Body(struct Block *block, u32 warp);

/* Made by tools/runtime.py of what Python says: struct Launch and all others that both know, and numbers. See
   cujit/devices/cpu/native/structures.py, run/launch.py and run/textures.py for what they mean. */
#include "shared.h"

/* What runs, PLACE bytes before shared memory: so that what comes as a signal can name it. `group` is null where warps do
   not take turns, `warp` -1 where it is not known. `line` is that of the asynchronous copy which lands now, or 0; `copies`
   are those that have not (null: none yet). `pieces` is what checks keep of each block, `clusters` of
   blocks together (null: nothing). */
struct Running {
  u64 block;
  struct Group *group;
  i32 warp;
  u32 line;
  struct Launch *launch;
  struct Copies *copies;
  u8 *pieces;
  struct Clusters *clusters;
};

/* What the check for races keeps of clusters; `leave` is told of each block that has ended. */
struct Clusters {
  void (*leave)(const struct Block *block);
  u64 unused[7];
};

INLINE struct Running *running_at(u8 *shared) { return (struct Running *)(shared - PLACE); }

/* Make the launch end, if nobody did yet: then the caller says why, and stops. */
flag cujit_claim(struct Launch *launch, u32 kind);
void cujit_fault_here(struct Launch *launch, u64 block, u32 thread, u32 line, u64 address);
NORETURN void cujit_stop(void);
NORETURN void cujit_fault(struct Launch *launch, u32 kind, u64 block, u32 thread, u32 line, u64 address);

/* Where a thread has no memory for its blocks: it leaves them to others, unless these wait for them. */
INLINE void lack_memory(struct Launch *launch) {
  if (launch->workspace && cujit_claim(launch, FAULT_NO_MEMORY)) cujit_fault_here(launch, ~0ull, ~0u, 0, 0);
}

/* Where a thread that was poked elsewhere waits, or ends; `pc` is where it stands in the kernel. */
void cujit_pause(struct Launch *launch, u64 pc);

/* What is called for each range of a tensor's box: bytes in the tensor, and bytes in shared memory. */
typedef void Visit(void *context, u64 there, u64 there_bytes, u64 here, u64 here_bytes);
void cujit_tensor_walk(const struct TensorMap *map, u64 shared, u64 origin, const i32 *coords, u32 rank, flag im2col,
                       flag inward, Visit *visit, void *context);

/* Of a mask that is not empty. */
INLINE u32 first_lane(u32 lanes) { return (u32)__builtin_ctz(lanes); }

/* The lanes of a mask, lowest first. */
#define EACH_LANE(lane, lanes)                                                                                   \
  for (u32 lane##_left = (lanes), lane; lane##_left && (lane = first_lane(lane##_left), 1);                      \
       lane##_left &= lane##_left - 1)
