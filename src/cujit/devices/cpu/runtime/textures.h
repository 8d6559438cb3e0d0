/* What a texture or surface is, and what kernels and this code tell each other of them. */

#pragma once

#include "launch.h"

enum { CHANNELS = 4 };

/* Who asks: the launch, its block, the warp's first thread and the line of PTX; and which lane of the warp. */
struct Asker {
  struct Launch *launch;
  u64 block;
  u32 first, line, lane;
};

static NORETURN NOINLINE void asker_fault(const struct Asker *asker, u32 kind, u64 address) {
  cujit_fault(asker->launch, kind, asker->block, asker->first + asker->lane, asker->line, address);
}

/* What a handle is the address of. */
INLINE struct Descriptor *described(const struct Asker *asker, u64 handle, u64 mark) {
  struct Descriptor *found = (struct Descriptor *)handle;
  if (handle & 7 || handle < 4096 || found->mark != mark) asker_fault(asker, FAULT_ILLEGAL_ADDRESS, handle);
  return found;
}
