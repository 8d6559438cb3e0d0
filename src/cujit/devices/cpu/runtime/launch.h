/* What the host hands to machine code for one launch, what comes back in it, and how code of ours ends it. */

#pragma once

#include "numbers.h"
#include "words.h"

struct Control;
struct Printed;
struct Stands;
struct TraceState;
struct Watch;

/* See cujit/devices/cpu/run/launch.py for what the fields mean. */
struct Launch {
  u8 *parameters;
  u8 *module;
  u64 module_size, blocks, next, chunk;
  u32 grid_x, grid_y, grid_z, dynamic_bytes;
  u64 shared_bytes, shared_stride, together, workspace, cache_bytes;
  u32 cluster_x, cluster_y, cluster_z, fault_kind;
  u64 fault_block;
  u32 fault_thread, fault_line;
  u64 fault_address, fault_more[6];
  struct Printed *output;
  struct Watch *checks;
  struct TraceState *trace;
  u64 coverage, code, code_bytes, timeout_ns, deadline_ns;
  struct Control *control;
  u64 cancels;
  struct Stands *stands;
  u64 poked, begun, raised[3];
};

/* Make the launch end, if nobody did yet: then the caller says why, and stops. */
flag cujit_claim(struct Launch *launch, u32 kind);
void cujit_fault_here(struct Launch *launch, u64 block, u32 thread, u32 line, u64 address);
NORETURN void cujit_stop(void);
NORETURN void cujit_fault(struct Launch *launch, u32 kind, u64 block, u32 thread, u32 line, u64 address);

/* Where a thread that was poked elsewhere waits, or ends; `pc` is where it stands in the kernel. */
void cujit_pause(struct Launch *launch, u64 pc);

/* Of a mask that is not empty. */
INLINE u32 first_lane(u32 lanes) { return (u32)__builtin_ctz(lanes); }

/* The lanes of a mask, lowest first. */
#define EACH_LANE(lane, lanes)                                                                                   \
  for (u32 lane##_left = (lanes), lane; lane##_left && (lane = first_lane(lane##_left), 1);                      \
       lane##_left &= lane##_left - 1)
