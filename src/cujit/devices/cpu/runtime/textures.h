/* What a texture or surface is, and what kernels and this code tell each other of them. */

#pragma once

#include "launch.h"

enum { CHANNELS = 4 };

/* What a handle is the address of. `row` and `slice` are bytes from one to the next. `depth` counts slices or layers,
   `layers` is 0 where there are none. `border` has words as the instruction returns them, 0 for channels that there
   are not. `linear_memory` tells of one row that is read in place. */
struct Descriptor {
  u64 mark;
  u8 *base;
  i64 row, slice;
  i32 width, height, depth, layers, texel_bytes, channels, format, address_0, address_1, address_2;
  i32 filter, normalized, as_float, srgb, levels, samples, linear_memory;
  u32 border[CHANNELS];
};

/* What the lanes of a warp ask, and what they get. Coordinates are integers, or the bits of floats; `dx` to `dz` are
   offsets in elements. */
struct Exchange {
  u64 handle[WARP];
  u32 layer[WARP], x[WARP], y[WARP], z[WARP], dx[WARP], dy[WARP], dz[WARP];
  u64 values[CHANNELS][WARP];
};

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
