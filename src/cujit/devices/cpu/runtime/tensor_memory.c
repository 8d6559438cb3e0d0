/* What warps do with tensor memory: allocate columns, load and store registers. PTX ISA 9.1, 9.7.16.7, 9.7.16.8. */

#include "tensor_memory.h"

typedef void Pass(struct Block *state, u32 warp);

/* Turns of other warps that an allocation waits for columns, and the fewest columns that are allocated. */
enum { MOST_TURNS = 1 << 16, LEAST_COLUMNS = 32 };

static void find_site(struct TensorSite *site, const struct Block *state, u8 *shared, u32 warp, u32 line) {
  site->piece = 0;
  site->memory = cujit_pending_tensor_memory(state, shared);
  site->running = running_of(state, shared);
  site->block = state ? state->number : site->running->block;
  site->thread = warp * WARP, site->line = line;
}

/* No product or copy that nobody has waited for writes these cells, or with `writes` reads them. */
static void meet_products(const struct TensorSite *site, u32 address, const struct Cells *cells, flag writes) {
  u32 line = cujit_pending_in_tensor(site->running, site->memory, cells, writes);
  if (line) fail_in_tensor(site, TENSOR_BUSY, address, line);
}

/* -- allocation ------------------------------------------------------------------------------------------------------- */

/* The first of so many columns side by side that no block has allocated, from a multiple of their number on. */
static u32 find_free(const struct TensorBlocks *blocks, u32 count) {
  for (u32 first = 0; first < TENSOR_COLUMNS; first += count) {
    u32 taken = 0;
    for (u32 k = 0; k < blocks->count * count; k++) taken |= blocks->each[k / count].memory->lines[first + k % count];
    if (!taken) return first;
  }
  return TENSOR_COLUMNS;
}

static flag is_count(u32 count) { return count >= LEAST_COLUMNS && count <= TENSOR_COLUMNS && !(count & (count - 1)); }

/* Columns become the block's; what is in them is no number, or what the schedule fills memory with. */
static void take_columns(struct TensorMemory *memory, u64 schedule, u32 line, u32 first, u32 count) {
  memset(memory->cells[first], schedule ? (int)schedule : 0xff, count * sizeof *memory->cells);
  for (u32 column = first; column < first + count; column++) memory->lines[column] = line ? line : 1;
  memset(&memory->written[first], 0, count);
  memory->counts[first] = (u16)count;
  memory->held += count;
}

static void give_columns(const struct TensorSite *from, struct TensorMemory *memory, u32 address, u32 count) {
  struct TensorSite site = *from;
  site.memory = memory;
  u32 first = columns_at(&site, address, count);
  if (memory->counts[first] != count) fail_in_tensor(&site, TENSOR_MISMATCHED, address, count);
  meet_products(&site, address, &(struct Cells){first, count, 0xff}, 1);
  memory->counts[first] = 0;
  memory->held -= count;
  memset(&memory->lines[first], 0, count * sizeof *memory->lines);
  memset(&memory->freed[first], 1, count);
}

/* Allocate columns, the same in all blocks. While none are free, other warps run, which may free some. */
static u32 allocate(const struct TensorSite *site, const struct TensorBlocks *blocks, struct Block *state, u32 warp, u32 count,
                    Pass *pass) {
  struct TensorMemory *memory = site->memory;
  u32 first = find_free(blocks, count);
  for (u32 turn = 0; first == TENSOR_COLUMNS && !memory->relinquished; turn++) {
    if (!pass || turn == MOST_TURNS) fail_in_tensor(site, TENSOR_EXHAUSTED, 0, count);
    pass(state, warp);
    first = find_free(blocks, count);
  }
  if (memory->relinquished) fail_in_tensor(site, TENSOR_RELINQUISHED, 0, count);
  for (u32 k = 0; k < blocks->count; k++) {
    take_columns(blocks->each[k].memory, site->running->launch->schedule, site->line, first, count);
  }
  return first;
}

static void release(const struct TensorSite *site, const struct TensorBlocks *blocks, u32 address, u32 count) {
  for (u32 k = 0; k < blocks->count; k++) give_columns(site, blocks->each[k].memory, address, count);
}

/* Wait until the other block of the pair has come, too, and has done what both do. */
static void await_peer(const struct TensorSite *site, struct Block *state, u32 warp, const struct TensorMeeting *own, Pass *pass) {
  const struct Block *peer = peer_of(state);
  u32 changes = 0;
  for (u32 turn = 0; !own->done; turn++) {
    if (changes != state->changes + peer->changes) turn = 0;
    changes = state->changes + peer->changes;
    flag gone = peer->done == peer->warps;
    if (!pass || gone || turn == MOST_TURNS) fail_in_tensor(site, TENSOR_UNPAIRED, own->address, own->count);
    pass(state, warp);
  }
}

/* Do what the warps of a pair's blocks do together, allocations and what `frees` each in their order: who comes last does it for
   both. PTX ISA 9.1, 9.7.16.5 "Issue Granularity". */
static u32 meet_peer(const struct TensorSite *site, const struct TensorBlocks *blocks, struct Block *state, u32 warp,
                     struct TensorMeeting asked, flag frees, Pass *pass) {
  struct TensorMeetings *here = &site->memory->meetings[frees];
  struct TensorMeetings *there = &blocks->each[!(state->rank & 1)].memory->meetings[frees];
  u32 number = here->count++;
  struct TensorMeeting *own = &here->last[number % MOST_MEETINGS], *met = &there->last[number % MOST_MEETINGS];
  *own = asked;
  if ((i32)(there->count - number) <= 0) {
    await_peer(site, state, warp, own, pass);
    return own->address;
  }
  if (own->count != met->count || own->address != met->address) fail_in_tensor(site, TENSOR_DISAGREED, own->address, met->line);
  if (frees) {
    release(site, blocks, own->address, own->count);
  } else {
    met->address = own->address = allocate(site, blocks, state, warp, own->count, pass);
  }
  met->done = own->done = 1;
  return own->address;
}

/* Allocate columns of a block, or with `pair` the same of both. */
u32 cujit_tensor_alloc(struct Block *state, u8 *shared, u32 warp, u32 line, u32 count, flag pair, Pass *pass) {
  struct TensorSite site;
  struct TensorBlocks blocks;
  find_site(&site, state, shared, warp, line);
  find_blocks(&blocks, &site, state, shared, pair);
  if (!is_count(count)) fail_in_tensor(&site, TENSOR_COUNT, 0, count);
  if (!pair) return allocate(&site, &blocks, state, warp, count, pass);
  return meet_peer(&site, &blocks, state, warp, (struct TensorMeeting){line, count, 0, 0}, 0, pass);
}

void cujit_tensor_dealloc(struct Block *state, u8 *shared, u32 warp, u32 line, u32 address, u32 count, flag pair, Pass *pass) {
  struct TensorSite site;
  struct TensorBlocks blocks;
  find_site(&site, state, shared, warp, line);
  find_blocks(&blocks, &site, state, shared, pair);
  if (pair) {
    meet_peer(&site, &blocks, state, warp, (struct TensorMeeting){line, count, address, 0}, 1, pass);
  } else {
    release(&site, &blocks, address, count);
  }
}

void cujit_tensor_relinquish(const struct Block *state, u8 *shared) {
  cujit_pending_tensor_memory(state, shared)->relinquished = 1;
}

/* -- registers -------------------------------------------------------------------------------------------------------- */

/* How registers lie in tensor memory: their number, the columns of one repetition and its registers, in one of SHAPES. With
   `halves` each register is of the lower halves of two columns. The upper lanes of 16x32bx2 are `split` columns on. */
struct Moved {
  u32 shape, count, split;
  flag halves;
};

struct Cell {
  u32 lane, column;
};

/* Where lane `own` has its register k. Source: NVIDIA/cutlass, copy_traits_sm100.hpp, which the figures of PTX ISA 9.1,
   9.7.16.2.3.1 "Memory Layout" show. */
INLINE struct Cell cell_of(u32 shape, u32 k, u32 own) {
  switch (shape) {
  case SHAPE_16X64B: return (struct Cell){own / 4 + own % 2 * 8, 2 * k + own / 2 % 2};
  case SHAPE_16X128B: return (struct Cell){own / 4 + k % 2 * 8, k / 2 * 4 + own % 4};
  case SHAPE_16X256B: return (struct Cell){own / 4 + k / 2 % 2 * 8, k / 4 * 8 + own % 4 * 2 + k % 2};
  case SHAPE_16X32BX2: return (struct Cell){own % 16, k};
  default: return (struct Cell){own, k};
  }
}

/* Columns that so many registers of a lane are in. */
static u32 columns_of(const struct Moved *moved) {
  static const u32 per_register[] = {1, 2, 2, 2, 1};
  return moved->count * per_register[moved->shape] * (moved->halves ? 2 : 1);
}

/* Note a store that its warp is still to wait for. Of too many the oldest counts as waited for. */
static void note_store(struct TensorMemory *memory, u32 warp, u32 line, const struct Cells *cells) {
  if (memory->stores == MOST_STORED) memmove(memory->stored, memory->stored + 1, --memory->stores * sizeof *memory->stored);
  memory->stored[memory->stores++] = (struct TensorStore){warp, line, *cells};
}

/* A warp has waited for its stores. */
void cujit_tensor_stored(const struct Block *state, u8 *shared, u32 warp) {
  struct TensorMemory *memory = cujit_pending_tensor_memory(state, shared);
  u32 kept = 0;
  for (u32 k = 0; k < memory->stores; k++) {
    if (memory->stored[k].warp != warp) memory->stored[kept++] = memory->stored[k];
  }
  memory->stores = kept;
}

/* Note a load that its warp is still to wait for, once for each line. Of too many the oldest counts as waited for. */
static void note_load(struct TensorMemory *memory, u32 warp, u32 line) {
  for (u32 k = 0; k < memory->loads; k++) {
    if (memory->loaded[k].warp == warp && memory->loaded[k].line == line) return;
  }
  if (memory->loads == MOST_STORED) memmove(memory->loaded, memory->loaded + 1, --memory->loads * sizeof *memory->loaded);
  memory->loaded[memory->loads++] = (struct TensorLoad){warp, line};
}

/* A warp has waited for its loads. */
void cujit_tensor_loaded(const struct Block *state, u8 *shared, u32 warp) {
  struct TensorMemory *memory = cujit_pending_tensor_memory(state, shared);
  u32 kept = 0;
  for (u32 k = 0; k < memory->loads; k++) {
    if (memory->loaded[k].warp != warp) memory->loaded[kept++] = memory->loaded[k];
  }
  memory->loads = kept;
}

/* A warp reads what it loads at another line, and must have waited for it. */
void cujit_tensor_unwaited(const struct Block *state, u8 *shared, u32 warp, u32 line, u32 other) {
  struct TensorSite site;
  find_site(&site, state, shared, warp, line);
  for (u32 k = 0; k < site.memory->loads; k++) {
    const struct TensorLoad *loaded = &site.memory->loaded[k];
    if (loaded->warp == warp && loaded->line == other) fail_in_tensor(&site, TENSOR_UNLOADED, 0, other);
  }
}

/* A load of which nobody has written anything. Of a shape with other lanes than the product's, some are not written. */
static void meet_unwritten(const struct TensorSite *site, const struct Cells *cells, u32 address) {
  u32 written = 0;
  for (u32 k = 0; k < cells->count; k++) written |= cells->groups & site->memory->written[cells->first + k];
  if (!written && looks_for_unwritten(site->running)) fail_in_tensor(site, TENSOR_UNWRITTEN, address, cells->count);
}

/* The lane and the first column that a warp accesses: it has 32 lanes, by its number modulo 4, or 16 of these. */
static struct Cell place_of(const struct TensorSite *site, const struct Moved *moved, u32 warp, u32 address, flag writes) {
  u32 lane = address >> 16, own = warp % 4 * 32, groups = moved->shape == SHAPE_32X32B ? 3 : 1;
  if (lane != own && (groups == 3 || lane != own + 16)) fail_in_tensor(site, TENSOR_LANES_APART, address, own);
  u32 columns = columns_of(moved), last = moved->shape == SHAPE_16X32BX2 ? moved->split : 0;
  for (u32 at = last;; at = 0) {
    struct Cells cells = {columns_at(site, address + at, columns), columns, groups << lane / 16};
    meet_products(site, address + at, &cells, writes);
    if (writes) {
      note_store(site->memory, warp, site->line, &cells);
      note_written(site->memory, &cells);
    } else {
      meet_unwritten(site, &cells, address + at);
    }
    if (!at) return (struct Cell){lane, cells.first};
  }
}

/* The cell of a register, and with `halves` the next one. */
INLINE u32 *find_cell(struct TensorMemory *memory, const struct Moved *moved, struct Cell place, u32 k, u32 own) {
  struct Cell cell = cell_of(moved->shape, k, own);
  u32 split = moved->shape == SHAPE_16X32BX2 && own >= 16 ? moved->split : 0;
  return &memory->cells[place.column + cell.column * (moved->halves ? 2 : 1) + split][place.lane + cell.lane];
}

/* Load `count` registers of every lane. */
void cujit_matrix_tensor_load(u32 *frame, const struct Block *state, u8 *shared, u32 warp, u32 line, u32 address,
                              u32 shape, u32 count, flag halves, u32 split) {
  struct TensorSite site;
  find_site(&site, state, shared, warp, line);
  struct Moved moved = {shape, count, split, halves};
  struct Cell place = place_of(&site, &moved, warp, address, 0);
  note_load(site.memory, warp, line);
  for (u32 k = 0; k < count; k++) {
    for (u32 own = 0; own < WARP; own++) {
      const u32 *cell = find_cell(site.memory, &moved, place, k, own);
      frame[k * WARP + own] = halves ? (*cell & 0xffff) | cell[TENSOR_LANES] << 16 : *cell;
    }
  }
}

/* Store them. */
void cujit_matrix_tensor_store(const u32 *frame, const struct Block *state, u8 *shared, u32 warp, u32 line, u32 address,
                               u32 shape, u32 count, flag halves, u32 split) {
  struct TensorSite site;
  find_site(&site, state, shared, warp, line);
  struct Moved moved = {shape, count, split, halves};
  struct Cell place = place_of(&site, &moved, warp, address, 1);
  for (u32 k = 0; k < count; k++) {
    for (u32 own = 0; own < WARP; own++) {
      u32 value = frame[k * WARP + own], *cell = find_cell(site.memory, &moved, place, k, own);
      *cell = halves ? value & 0xffff : value;
      if (halves) cell[TENSOR_LANES] = value >> 16;
    }
  }
}
