/* Tensor memory of a block, and the products that wait to be done there. PTX ISA 9.1, 9.7.16.1 "Tensor Memory".

   An address has a lane in its upper 16 bits and a column in its lower ones. */

#pragma once

#include "pending.h"

#include <string.h>

enum { TENSOR_LANES = 128, TENSOR_COLUMNS = 512 };

/* Some columns, and which of the eight groups of 16 lanes. */
struct Cells {
  u32 first, count, groups;
};

/* Cells that a warp has stored at a line and not waited for by tcgen05.wait::st. */
struct TensorStore {
  u32 warp, line;
  struct Cells cells;
};
enum { MOST_STORED = 64 };

/* A load of a warp at a line that it has not waited for by tcgen05.wait::ld. */
struct TensorLoad {
  u32 warp, line;
};

/* What a block does together with the other one of its pair: allocate columns, or free those at an address. When both have
   come it is `done`, and `address` is where the columns are. */
struct TensorMeeting {
  u32 line, count, address;
  flag done;
};
enum { MOST_MEETINGS = 64 };

/* All allocations of a block with its peer, or all that free: how many there were, and the last ones. */
struct TensorMeetings {
  u32 count;
  struct TensorMeeting last[MOST_MEETINGS];
};

/* `lines` are those of the alloc that a column is of, 0 where it is of none; `counts` are the columns of the allocation that
   begins at a column. `held` counts the columns of all allocations. `written` are the groups of lanes of a column that somebody has written. The
   cells of a column lie side by side. */
struct TensorMemory {
  u32 held, stores, loads;
  flag relinquished;
  struct TensorMeetings meetings[2];
  struct TensorStore stored[MOST_STORED];
  struct TensorLoad loaded[MOST_STORED];
  u32 lines[TENSOR_COLUMNS];
  u16 counts[TENSOR_COLUMNS];
  u8 freed[TENSOR_COLUMNS], written[TENSOR_COLUMNS];
  u32 cells[TENSOR_COLUMNS][TENSOR_LANES];
};

/* What is called for each part of shared memory that a product reads. */
typedef void Piece(void *context, u64 address, u64 bytes);

/* Who does something in tensor memory. With `piece`, a product only names what it reads of shared memory. */
struct TensorSite {
  struct Running *running;
  struct TensorMemory *memory;
  u64 block;
  u32 thread, line;
  Piece *piece;
  void *context;
};

/* A block that a product is done in: its tensor memory, and where its shared memory begins with the system's. Those of a pair
   are in the order of their ranks. */
struct TensorBlock {
  struct TensorMemory *memory;
  const u8 *shared;
};
struct TensorBlocks {
  u32 count;
  struct TensorBlock each[2];
};

struct TensorWork;
typedef void Multiply(const struct TensorSite *site, const struct TensorWork *work);

/* A product that was issued, in one block or a pair, and what does it. `a` is a descriptor, or with `from_tensor` an address; `masked` are the lanes of D that stay
   as they are, of each block; without `keeps` the sum begins at 0, else at D times 2 ** -scale. With `chunks`, that many scale factors of
   each row of A and column of B are in tensor memory from the two addresses on. A `sparse` A has its metadata there from an
   address on. A `stationary` one (.ws) is multiplied by the columns of B that `zeros` leaves, the zero-column mask
   descriptor. A copy makes bytes of `unpacked` bits. */
struct TensorWork {
  Multiply *multiply;
  struct TensorBlocks blocks;
  u64 a, b, zeros;
  u32 d, descriptor, kind, keeps, from_tensor, scale, masked[2][TENSOR_LANES / 32], chunks, factors[2], metadata;
  u32 sparse, stationary, unpacked;
};

INLINE u32 field(u32 word, u32 at, u32 bits) { return word >> (at & 31) & ((1u << (bits & 31)) - 1); }

/* Columns that a copy writes, by its number. */
static const u8 COPY_COLUMNS[] = {[COPY_128X256B] = 8, [COPY_128X128B] = 4, [COPY_64X128B_02_13] = 4, [COPY_64X128B_01_23] = 4,
                                  [COPY_32X128B] = 4,  [COPY_4X256B] = 8,   [COPY_DOWN] = 8};

/* How D lies in each block: so many rows, and columns of tensor memory. 64 rows alone are `spread` to every other 16 lanes. In
   `folds`, equal parts of the columns of D are in the lanes one below the other: two where a pair has 64 rows each of a dense
   A, and as many as there is room for where A is stationary.
   Source: PTX ISA 9.1, 9.7.16.10.5 "Data Path Layout Organization", layouts A to G. */
struct Shape {
  u32 rows, columns, folds;
  flag spread;
};

INLINE u32 folds_of(const struct TensorWork *work, u32 rows) {
  if (work->stationary) return rows == 32 ? 4 : rows == 64 ? 2 : 1;
  return work->blocks.count == 2 && rows == 64 && !work->sparse ? 2 : 1;
}

INLINE struct Shape shape_of(const struct TensorWork *work) {
  u32 rows = field(work->descriptor, 24, 5) * 16 / work->blocks.count, folds = folds_of(work, rows);
  return (struct Shape){rows, field(work->descriptor, 17, 6) * 8 / folds, folds, rows == 64 && folds == 1};
}

/* Where the metadata of a sparse A begins, and its columns: of 8 bits and less all, of larger elements the one that the
   selector chooses. PTX ISA 9.1, 9.7.16.10.8.4 "Sparsity selector". */
INLINE flag has_selector(u32 kind) { return kind == KIND_F16 || kind == KIND_TF32; }
INLINE u32 metadata_columns(u32 kind) { return has_selector(kind) ? 1 : 2; }
INLINE u32 metadata_at(const struct TensorWork *work) {
  return work->metadata + (has_selector(work->kind) ? field(work->descriptor, 0, 2) : 0);
}

/* Groups of lanes of D in a block. Those are left out of which no lane is written. */
INLINE u32 groups_of(const struct TensorWork *work, const struct Shape *shape, u32 block) {
  u32 groups = !shape->spread ? 0xff : work->d >> 20 & 1 ? 0xaa : 0x55;
  for (u32 k = 0; k < 8; k++) groups &= ~((u32)((work->masked[block][k / 2] >> k % 2 * 16 & 0xffff) == 0xffff) << k);
  return groups;
}

/* What a product or a copy (without an instruction descriptor) accesses in a block: first what it writes. How many are
   found. */
enum { TENSOR_OPERANDS = 5, LEFT_COLUMNS = 8 };
INLINE u32 find_operands(struct Cells *to, const struct TensorWork *work, u32 block) {
  struct Shape shape = shape_of(work);
  u32 count = 1, columns[] = {shape.rows, shape.columns};
  to[0] = (struct Cells){work->d & 0xffff, shape.columns, groups_of(work, &shape, block)};
  if (!work->descriptor) {
    to[0].count = COPY_COLUMNS[work->kind], to[0].groups = work->kind == COPY_DOWN ? 3u << (work->d >> 20 & 7) : 0xff;
  }
  if (work->from_tensor) to[count++] = (struct Cells){(u32)work->a & 0xffff, LEFT_COLUMNS, to[0].groups};
  if (work->sparse) to[count++] = (struct Cells){metadata_at(work) & 0xffff, metadata_columns(work->kind), to[0].groups};
  for (u32 k = 0; k < 2 && work->chunks; k++) {
    to[count++] = (struct Cells){work->factors[k] & 0xffff, (columns[k] + 31) / 32, 0xff};
  }
  return count;
}

/* Somebody has written cells. */
INLINE void note_written(struct TensorMemory *memory, const struct Cells *cells) {
  for (u32 k = 0; k < cells->count && cells->first + k < TENSOR_COLUMNS; k++) memory->written[cells->first + k] |= (u8)cells->groups;
}

/* The first column of which nobody has written some of these cells; TENSOR_COLUMNS if there is none. */
INLINE u32 find_unwritten(const struct TensorMemory *memory, const struct Cells *cells) {
  for (u32 column = cells->first; column < cells->first + cells->count && column < TENSOR_COLUMNS; column++) {
    if (cells->groups & ~memory->written[column]) return column;
  }
  return TENSOR_COLUMNS;
}

/* Whether the check of what is never written is on. */
INLINE flag looks_for_unwritten(const struct Running *running) {
  const struct Watch *watch = running->launch->checks;
  return watch && watch->checks & CHECK_INIT;
}

INLINE flag are_apart(const struct Cells *x, const struct Cells *y) {
  return !(x->groups & y->groups) || x->first >= y->first + y->count || y->first >= x->first + x->count;
}

u32 cujit_pending_in_tensor(const struct Running *running, const struct TensorMemory *memory, const struct Cells *cells,
                            flag reads);
struct TensorMemory *cujit_pending_tensor_memory(const struct Block *state, u8 *shared);

/* The other block of a block's pair: the ranks of two in a cluster differ in the last bit alone. Null if there is none. PTX ISA
   9.1, 9.7.16.5.1 "CTA Pair". */
INLINE const struct Block *peer_of(const struct Block *state) {
  const struct Group *cluster = state ? state->group : 0;
  return cluster && (state->rank ^ 1) < cluster->count ? &cluster->blocks[state->rank ^ 1] : 0;
}

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

/* The block of a warp, or with `pair` both of its pair. */
INLINE void find_blocks(struct TensorBlocks *to, const struct TensorSite *site, const struct Block *state, u8 *shared,
                        flag pair) {
  u32 own = pair && state ? state->rank & 1 : 0;
  to->count = pair ? 2 : 1;
  to->each[own] = (struct TensorBlock){cujit_pending_tensor_memory(state, shared), shared - SYSTEM_BYTES};
  if (!pair) return;
  const struct Block *peer = peer_of(state);
  if (!peer) fail_in_tensor(site, TENSOR_ALONE, 0, 0);
  to->each[!own] = (struct TensorBlock){cujit_pending_tensor_memory(peer, peer->shared), peer->shared - SYSTEM_BYTES};
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
