/* Tensor memory of a block, and the products that wait to be done there. PTX ISA 9.1, 9.7.16.1 "Tensor Memory".

   An address has a lane in its upper 16 bits and a column in its lower ones. */

#pragma once

#include "pending.h"

#include <string.h>

enum { TENSOR_LANES = 128, TENSOR_COLUMNS = 512 };

/* `lines` are those of the alloc that a column is of, 0 where it is of none; `counts` are the columns of the allocation that
   begins at a column. `held` counts the columns of all allocations. The cells of a column lie side by side. */
struct TensorMemory {
  u32 held;
  flag relinquished;
  u32 lines[TENSOR_COLUMNS];
  u16 counts[TENSOR_COLUMNS];
  u8 freed[TENSOR_COLUMNS];
  u32 cells[TENSOR_COLUMNS][TENSOR_LANES];
};

/* Who does something in tensor memory. */
struct TensorSite {
  struct Running *running;
  struct TensorMemory *memory;
  u64 block;
  u32 thread, line;
};

struct TensorWork;
typedef void Multiply(const struct TensorSite *site, const struct TensorWork *work);

/* A product that was issued, and what does it. `a` is a descriptor, or with `from_tensor` an address; `masked` are the lanes of D that stay
   as they are; without `keeps` the sum begins at 0, else at D times 2 ** -scale. With `chunks`, that many scale factors of
   each row of A and column of B are in tensor memory from the two addresses on. */
struct TensorWork {
  Multiply *multiply;
  const u8 *shared;
  u64 a, b;
  u32 d, descriptor, kind, keeps, from_tensor, scale, masked[TENSOR_LANES / 32], chunks, factors[2];
};

struct TensorMemory *cujit_pending_tensor_memory(const struct Block *state, u8 *shared);

/* The launch ends: a code, the address in tensor memory, and a number that the code tells of. */
static NORETURN NOINLINE void fail_in_tensor(const struct TensorSite *site, u32 code, u64 address, u64 number) {
  struct Launch *launch = site->running->launch;
  if (cujit_claim(launch, FAULT_TENSOR_MEMORY)) {
    cujit_fault_here(launch, site->block, site->thread, site->line, 0);
    u64 more[] = {0, 0, code, address, number};
    memcpy(launch->fault_more, more, sizeof more);
  }
  cujit_stop();
}

/* The columns from the one of an address on, which must be allocated; the first of them. */
INLINE u32 columns_at(const struct TensorSite *site, u32 address, u32 count) {
  u32 first = address & 0xffff;
  for (u32 column = first; column < first + count; column++) {
    if (column >= TENSOR_COLUMNS) fail_in_tensor(site, TENSOR_BEYOND, address, count);
    if (site->memory->lines[column]) continue;
    fail_in_tensor(site, site->memory->freed[column] ? TENSOR_FREED : TENSOR_UNALLOCATED, address, column);
  }
  return first;
}
