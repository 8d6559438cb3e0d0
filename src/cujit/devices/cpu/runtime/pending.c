/* Asynchronous copies: queued whole where they are issued, and done as late as PTX allows.

   cp.async             when its thread waits for its group (cujit_pending_wait), or a barrier that its thread told of it
                        is tested
   with an mbarrier     when a thread tests the phase that needs it (cujit_pending_test)
   with a bulk group    its source is read when its thread waits for that, it is written when its thread waits for all
   what nobody awaits   when no warp can do anything else, and when the block ends

   PTX ISA 9.1, "Data Movement and Conversion Instructions: Asynchronous copy", "Completion Mechanisms for Asynchronous
   Copy Operations". */

#include "groups.h"
#include "tensor_memory.h"

u64 cujit_tensor_copy(const struct TensorMap *map, u64 shared, u64 origin, const i32 *coords, u32 rank, flag im2col,
                      flag inward, Apply *const *reductions);
u64 cujit_tensor_box_bytes(const struct TensorMap *map, const i32 *coords, u32 rank, flag im2col);
void cujit_bulk_bytes(u8 *to, const u8 *from, u32 size, u32 mask);
void cujit_bulk_reduce(u64 to, u64 from, u32 size, u32 step, Apply *apply);

/* -- mbarriers: see instructions/mbarrier.py ------------------------------------------------------------------------- */

/* `arrivals` arrive, and `bytes` of transactions are done. */
static void count_at(u64 address, u64 arrivals, u64 bytes) {
  u64 *object = (u64 *)address, word = *object;
  u64 pending = (word - arrivals) & MBARRIER_COUNT, next = word >> MBARRIER_NEXT_AT & MBARRIER_COUNT;
  u64 left = ((word >> MBARRIER_BYTES_AT & MBARRIER_BYTES) - bytes) & MBARRIER_BYTES;
  u64 phase = word >> MBARRIER_PHASE_AT;
  if (!(pending | left)) pending = next, phase++;
  *object = pending | next << MBARRIER_NEXT_AT | left << MBARRIER_BYTES_AT | phase << MBARRIER_PHASE_AT;
}

/* The block of a warp's copies, by its number. */
static u64 block_of(const struct Running *running, u32 slot) {
  const struct Group *group = running->group;
  return group ? group->blocks[slot / group->blocks->warps].number : running->block;
}

/* -- what tells an mbarrier, and bulk groups -------------------------------------------------------------------------- */

enum Due { LATER, READ, DONE };
enum Kind { BULK, BYTES, REDUCE, TENSOR, VALUE, ARRIVE, PRODUCT, COMMIT };

/* One operation of one lane, or for ARRIVE of `lanes`. `barrier` is what it tells; 0 for one in a bulk group, behind
   which its thread has committed `after` times. It reads from `from`, or what was read of that before, in `buffer`. Its
   thread has waited for what is `due`. A PRODUCT is done before a COMMIT of its thread tells its barrier. */
struct Async {
  enum Kind kind;
  enum Due due;
  flag seen, moved, looked;
  u32 slot, lanes, line, after, step, mask, rank, im2col, inward;
  u64 barrier, to, from, size, origin, value[4];
  Apply *apply;
  Apply *const *reductions;
  u8 *buffer;
  i32 coords[8];
  struct TensorMap map;
  struct TensorWork work;
};

/* What a copy reads and writes: bytes from an address on. A box in shared memory is `from`; of a tensor nothing is said. */
static u64 box_bytes(const struct Async *copy) {
  return cujit_tensor_box_bytes(&copy->map, copy->coords, copy->rank, copy->im2col);
}

static u64 written_bytes(const struct Async *copy, u64 *address) {
  *address = copy->kind == TENSOR ? copy->from : copy->to;
  if (copy->kind == TENSOR) return copy->inward ? box_bytes(copy) : 0;
  return copy->kind == ARRIVE || copy->kind == BYTES ? 0 : copy->size;
}

static u64 read_bytes(const struct Async *copy) {
  if (copy->buffer || copy->due) return 0;
  if (copy->kind == TENSOR) return copy->inward ? 0 : box_bytes(copy);
  return copy->kind <= REDUCE ? copy->size : 0;
}

static void find_site(struct TensorSite *to, struct Running *running, const struct Async *copy) {
  u32 warp = running->group ? copy->slot % running->group->blocks->warps : copy->slot;
  u64 block = block_of(running, copy->slot);
  u32 thread = warp * WARP + first_lane(copy->lanes);
  *to = (struct TensorSite){running, copy->work.blocks.each[0].memory, block, thread, copy->line, 0, 0};
}

/* Nobody has written something that a product is about to read in a block: D, A or scale factors, of which the lower half of
   each 32 lanes may be all that it needs. */
static void meet_unwritten(const struct TensorSite *site, const struct TensorWork *work, u32 block) {
  struct Cells operands[TENSOR_OPERANDS];
  u32 count = find_operands(operands, work, block);
  for (u32 k = !work->keeps; k < count; k++) {
    if (k + 2 >= count && work->chunks) operands[k].groups &= 0x55;
    u32 column = find_unwritten(work->blocks.each[block].memory, &operands[k]);
    if (column < TENSOR_COLUMNS) fail_in_tensor(site, TENSOR_UNWRITTEN, column, 1);
  }
}

/* Have a product or a copy to tensor memory done, or with `piece` only named what it reads of shared memory. */
static void run_product(struct Running *running, const struct Async *copy, Piece *piece, void *context) {
  const struct TensorWork *work = &copy->work;
  struct TensorSite site;
  find_site(&site, running, copy);
  site.piece = piece, site.context = context;
  for (u32 k = 0; k < work->blocks.count && !piece && looks_for_unwritten(running); k++) meet_unwritten(&site, work, k);
  work->multiply(&site, work);
  for (u32 k = 0; k < work->blocks.count && !piece; k++) {
    struct Cells operands[TENSOR_OPERANDS];
    find_operands(operands, work, k);
    note_written(work->blocks.each[k].memory, &operands[0]);
  }
}

static void unmark_piece(void *all, u64 address, u64 bytes) { unmark_reads(all, address, bytes); }

/* Somebody has waited for a copy: for all of it, or for what it reads. */
static NOINLINE void end_async(struct Running *running, const struct Async *copy, flag whole) {
  struct Intervals *all = running->copies->intervals;
  u64 address, bytes = written_bytes(copy, &address), first;
  if (!copy->seen) return;
  if (copy->kind == PRODUCT) run_product(running, copy, unmark_piece, all);
  unmark_reads(all, copy->from, read_bytes(copy));
  if (!whole) return;
  mark_writes(all, address, bytes, 0);
  if (!all->waiter.place || !words_in(all, address, bytes, &first)) return;
  u32 lane = first_lane(all->waiter.lanes);
  all->waiter.place->addresses[lane] = address;
  tell_waiter(all, 1u << lane, bytes, copy->line);
}

/* Move what a copy copies, once; `size` is how much that was. */
static void move_async(struct Running *running, struct Async *copy) {
  u64 from = copy->from;
  if (copy->moved || copy->kind == ARRIVE || copy->kind == COMMIT) return;
  copy->moved = 1;
  running->line = copy->line;
  switch (copy->kind) {
  case BULK: memmove((void *)copy->to, (const void *)from, copy->size); break;
  case BYTES: cujit_bulk_bytes((u8 *)copy->to, (const u8 *)from, (u32)copy->size, copy->mask); break;
  case REDUCE: cujit_bulk_reduce(copy->to, from, (u32)copy->size, copy->step, copy->apply); break;
  case TENSOR:
    copy->size = cujit_tensor_copy(&copy->map, from, copy->origin, copy->coords, copy->rank, copy->im2col, copy->inward,
                              copy->reductions);
    break;
  case VALUE:
    if (copy->apply) {
      copy->apply(copy->to, (u64)copy->value);
    } else {
      memcpy((void *)copy->to, copy->value, copy->size);
    }
    break;
  case PRODUCT: run_product(running, copy, 0, 0); break;
  default: break;
  }
  running->line = 0;
}

/* The copies before an arrival are done, and it is counted. */
static void land_arrival(struct Running *running, struct Async *copy) {
  struct Queue *queue = queue_at(running, copy->slot);
  u32 end = copy->mask;
  if (end - queue->head <= queue->tail - queue->head) land_before(running, queue, end, copy->lanes);
  count_at(copy->barrier, (u64)__builtin_popcount(copy->lanes), 0);
}

static void land_async(struct Running *running, struct Async *copy) {
  if (copy->kind == ARRIVE) {
    land_arrival(running, copy);
    return;
  }
  if (running->copies->intervals && copy->due != DONE) end_async(running, copy, 1);
  move_async(running, copy);
  if (copy->barrier) count_at(copy->barrier, copy->kind == COMMIT, copy->size);
  free(copy->buffer);
  copy->buffer = 0;
}

/* Land those that `is_due` names, in the order in which they were issued. */
typedef flag IsDue(const struct Async *copy, u64 what, u64 more, u64 groups);

/* A product that a thread issued before it committed. */
static flag is_before(const struct Async *copy, const struct Async *commit) {
  return copy->kind == PRODUCT && copy->slot == commit->slot && copy->lanes & commit->lanes;
}

/* Land those of the first `count` that a commit is for; how many are left. */
static u32 land_products(struct Running *running, const struct Async *commit, u32 count) {
  struct Async *each = running->copies->each;
  u32 kept = 0;
  for (u32 k = 0; k < count; k++) {
    if (is_before(&each[k], commit)) {
      if (running->copies->intervals) end_async(running, &each[k], 1);
      move_async(running, &each[k]);
    } else if (k != kept++) {
      each[kept - 1] = each[k];
    }
  }
  return kept;
}

static void land_those(struct Running *running, IsDue *is_due, u64 what, u64 more, u64 groups) {
  struct Copies *copies = running->copies;
  u32 kept = 0, count = copies->count;
  copies->count = 0; /* what faults is not tried again */
  for (u32 k = 0; k < count; k++) {
    struct Async *copy = &copies->each[k];
    if (is_due(copy, what, more, groups)) {
      if (copy->kind == COMMIT) kept = land_products(running, copy, kept);
      land_async(running, copy);
    } else if (k != kept++) {
      copies->each[kept - 1] = *copy;
    }
  }
  copies->count = kept;
}

static flag every(const struct Async *copy, u64 what, u64 more, u64 groups) {
  return (void)copy, (void)what, (void)more, (void)groups, 1;
}

/* What lands when its phase is over belongs to a later one. */
static flag tells(const struct Async *copy, u64 barrier, u64 phase, u64 groups) {
  return (void)groups, copy->barrier == barrier && *(const u64 *)barrier >> MBARRIER_PHASE_AT == phase;
}

static flag is_of(const struct Async *copy, u64 slot, u64 lanes) {
  return !copy->barrier && copy->kind != PRODUCT && copy->slot == slot && copy->lanes & lanes;
}

static flag is_due(const struct Async *copy, u64 what, u64 more, u64 groups) {
  return (void)what, (void)more, (void)groups, copy->due == DONE;
}

static flag is_awaited(const struct Async *copy, u64 slot, u64 lanes, u64 groups) {
  return is_of(copy, slot, lanes) && copy->after > groups;
}

static void land_all(struct Running *running) {
  struct Copies *copies = running->copies;
  for (u32 k = 0; k < copies->slots; k++) {
    struct Queue *queue = &copies->queues[k];
    land_queue(running, queue);
    queue->due = 0;
  }
  copies->due = 0;
  land_those(running, every, 0, 0, 0);
}

/* Products of a thread are done in their order. */
static void move_early(struct Running *running, u32 which) {
  struct Async *each = running->copies->each, *chosen = &each[which];
  for (u32 k = 0; k < which && chosen->kind == PRODUCT; k++) {
    if (is_before(&each[k], chosen)) move_async(running, &each[k]);
  }
  move_async(running, chosen);
}

/* Some copy moves now, as it may at any time; who waits for it is told when it has waited. */
static void land_early(struct Running *running, u64 random) {
  struct Copies *copies = running->copies;
  if (copies->count) move_early(running, (u32)(random % copies->count));
  if (!copies->slots) return;
  struct Queue *queue = &copies->queues[(random >> 8) % copies->slots];
  if (queue->head == queue->tail) return;
  struct Small *copy = small_at(queue, queue->head + (u32)(random >> 16) % (queue->tail - queue->head));
  if (copy->moved || !copy->lanes) return;
  copy->moved = 1;
  move_small(running, copy, copy->lanes);
}

/* Whether a copy still accesses shared memory of a block that ends: it reads that for others, or writes there and tells an
   mbarrier of it. */
static flag outlives(const struct Copies *copies, const struct Async *copy) {
  u64 address, first, bytes = written_bytes(copy, &address);
  if (copy->barrier) return copy->kind <= TENSOR && words_in(copies->intervals, address, bytes, &first);
  return !copy->due && !copy->inward && read_bytes(copy);
}

/* A block gives its tensor memory back before it ends. */
static void end_tensors(struct Running *running, u32 side) {
  struct TensorMemory *memory = running->copies->tensors[side];
  if (!memory) return;
  u32 column = 0;
  while (memory->held && !memory->lines[column]) column++;
  if (memory->held) {
    u64 block = running->group ? running->group->blocks[side].number : running->block;
    struct TensorSite site = {running, memory, block, ~0u, memory->lines[column], 0, 0};
    fail_in_tensor(&site, TENSOR_HELD, column, memory->held);
  }
  memset(memory, 0, __builtin_offsetof(struct TensorMemory, cells));
}

/* A block ends: on a GPU something else lies in its shared memory then. */
static void end_all(struct Running *running) {
  struct Copies *copies = running->copies;
  for (u32 k = 0; copies->intervals && k < copies->count; k++) {
    const struct Async *copy = &copies->each[k];
    if (!outlives(copies, copy)) continue;
    struct Launch *launch = running->launch;
    u32 warps = running->group ? running->group->blocks->warps : 1u << 31;
    if (cujit_claim(launch, FAULT_RACE)) {
      u32 thread = copy->slot % warps * WARP + first_lane(copy->lanes);
      cujit_fault_here(launch, block_of(running, copy->slot), thread, copy->line, copy->from);
      launch->fault_more[2] = CODE_LEFT;
    }
    cujit_stop();
  }
  land_all(running);
  for (u32 k = 0; k < copies->sides; k++) end_tensors(running, k);
}

/* Blocks that take no turns have ended. */
void cujit_pending_end(u8 *shared) { end_copies(running_at(shared)); }

static struct Async *new_async(struct Running *running, u32 slot, enum Kind kind, u32 lanes, u32 line, u64 barrier) {
  queue_at(running, slot);
  struct Copies *copies = running->copies;
  if (copies->count == MOST_ASYNC) land_those(running, every, 0, 0, 0);
  if (copies->count == copies->room) {
    copies->room = 2 * copies->room + 8;
    copies->each = grown(running, copies->each, copies->room * sizeof *copies->each);
  }
  struct Async *copy = &copies->each[copies->count++];
  memset(copy, 0, __builtin_offsetof(struct Async, map));
  copy->kind = kind, copy->slot = slot, copy->lanes = lanes, copy->line = line, copy->barrier = barrier;
  return copy;
}

/* A bulk copy of one lane (`lanes` is its bit), of the bytes of `mask` if there is one; or, with `apply`, a reduction by
   elements of `step` bytes. `barrier` is 0 for one in a bulk group. */
void cujit_pending_bulk(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 line, u64 to, u64 from,
                        u32 size, u64 barrier, u32 mask, u32 step, Apply *apply) {
  struct Running *running = running_of(state, shared);
  enum Kind kind = apply ? REDUCE : mask ? BYTES : BULK;
  if (!size && !barrier) return;
  struct Async *copy = new_async(running, slot_of(state, warp), kind, lanes, line, barrier);
  copy->to = to, copy->from = from, copy->size = size, copy->mask = mask & 0xffff, copy->step = step, copy->apply = apply;
}

/* A copy between a tensor and a box, as for cujit_tensor_copy; its map and coordinates count as they are now. */
void cujit_pending_tensor(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 line, u64 barrier,
                          const struct TensorMap *map, u64 box, u64 origin, const i32 *coords, u32 rank, flag im2col,
                          flag inward, Apply *const *reductions) {
  struct Running *running = running_of(state, shared);
  struct Async *copy = new_async(running, slot_of(state, warp), TENSOR, lanes, line, barrier);
  copy->from = box, copy->origin = origin, copy->rank = rank, copy->im2col = im2col, copy->inward = inward;
  copy->reductions = reductions;
  copy->map = *map;
  memcpy(copy->coords, coords, (rank + (im2col ? rank - 2 : 0)) * sizeof *coords);
}

/* A store of `size` bytes at `value`, or with `apply` a reduction by them. */
void cujit_pending_value(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 line, u64 to,
                         const u8 *value, u32 size, u64 barrier, Apply *apply) {
  struct Running *running = running_of(state, shared);
  struct Async *copy = new_async(running, slot_of(state, warp), VALUE, lanes, line, barrier);
  copy->to = to, copy->size = size, copy->apply = apply;
  memcpy(copy->value, value, size);
}

/* -- tensor memory ---------------------------------------------------------------------------------------------------- */

/* Find the tensor memory of a block, made when it is first used. */
struct TensorMemory *cujit_pending_tensor_memory(const struct Block *state, u8 *shared) {
  struct Running *running = running_of(state, shared);
  u32 side = state ? state->side : 0;
  queue_at(running, 0);
  struct Copies *copies = running->copies;
  if (side >= copies->sides) {
    copies->tensors = grown(running, copies->tensors, (side + 1) * sizeof *copies->tensors);
    while (copies->sides <= side) copies->tensors[copies->sides++] = 0;
  }
  if (!copies->tensors[side]) copies->tensors[side] = calloc(1, sizeof **copies->tensors);
  if (!copies->tensors[side]) no_room(running);
  return copies->tensors[side];
}

/* The line of a product or a copy that nobody has waited for and that writes some of these cells, or with `reads` reads any; 0
   if there is none. */
u32 cujit_pending_in_tensor(const struct Running *running, const struct TensorMemory *memory, const struct Cells *cells,
                            flag reads) {
  const struct Copies *copies = running->copies;
  for (u32 k = 0; k < copies->count; k++) {
    const struct Async *copy = &copies->each[k];
    const struct TensorBlocks *blocks = &copy->work.blocks;
    for (u32 block = 0; copy->kind == PRODUCT && block < blocks->count; block++) {
      struct Cells operands[TENSOR_OPERANDS];
      u32 count = find_operands(operands, &copy->work, block);
      for (u32 n = 0; n < (reads ? count : 1) && blocks->each[block].memory == memory; n++) {
        if (!are_apart(&operands[n], cells)) return copy->line;
      }
    }
  }
  return 0;
}

/* What a product is about to access in a block was not stored by a warp that has not waited for its store. */
static void meet_stores(struct Running *running, const struct Async *copy, u32 block) {
  const struct TensorMemory *memory = copy->work.blocks.each[block].memory;
  struct Cells operands[TENSOR_OPERANDS];
  u32 count = find_operands(operands, &copy->work, block);
  for (u32 k = 0; k < memory->stores; k++) {
    for (u32 n = 0; n < count; n++) {
      const struct TensorStore *stored = &memory->stored[k];
      if (are_apart(&operands[n], &stored->cells)) continue;
      struct TensorSite site;
      find_site(&site, running, copy);
      fail_in_tensor(&site, TENSOR_UNSTORED, operands[n].first, stored->line);
    }
  }
}

/* A product of one lane (`lanes` is its bit), in its block or with `pair` in both of its pair. Descriptors count from where the
   system's shared memory begins. */
void cujit_pending_product(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 line, u32 d, u64 a, u64 b,
                           u32 descriptor, u32 keeps, u32 kind, u32 from_tensor, u32 scale, u32 mask0, u32 mask1,
                           u32 mask2, u32 mask3, u32 mask4, u32 mask5, u32 mask6, u32 mask7, u32 chunks, u32 factors_a,
                           u32 factors_b, u32 sparse, u32 metadata, u32 stationary, u64 zeros, u32 unpacked, flag pair,
                           Multiply *multiply) {
  struct Running *running = running_of(state, shared);
  u64 block = state ? state->number : running->block;
  struct TensorSite site = {running, 0, block, warp * WARP + first_lane(lanes), line, 0, 0};
  struct TensorBlocks blocks;
  find_blocks(&blocks, &site, state, shared, pair);
  struct Async *copy = new_async(running, slot_of(state, warp), PRODUCT, lanes, line, 0);
  copy->work = (struct TensorWork){
      multiply, blocks, a, b, zeros, d, descriptor, kind, keeps, from_tensor, scale,
      {{mask0, mask1, mask2, mask3}, {mask4, mask5, mask6, mask7}}, chunks, {factors_a, factors_b}, metadata, sparse, stationary,
      unpacked};
  for (u32 k = 0; k < blocks.count; k++) meet_stores(running, copy, k);
}

/* One lane has an mbarrier told when the products are done that it issued before. */
void cujit_pending_product_commit(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 line, u64 barrier) {
  new_async(running_of(state, shared), slot_of(state, warp), COMMIT, lanes, line, barrier);
}

/* Lanes have an mbarrier told when the copies that they issued by cp.async are done: `counts` more are awaited there
   for each unless they were counted before. */
void cujit_pending_arrive(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 line, u64 barrier,
                          flag counts) {
  struct Running *running = running_of(state, shared);
  u32 slot = slot_of(state, warp);
  struct Queue *queue = queue_at(running, slot);
  if (counts) count_at(barrier, -(u64)__builtin_popcount(lanes), 0);
  struct Async *copy = new_async(running, slot, ARRIVE, lanes, line, barrier);
  copy->mask = queue->tail;
}

/* Whether all that an mbarrier still waits for are copies. */
static flag awaits_copies(const struct Copies *copies, u64 barrier) {
  u64 arrivals = 0;
  flag found = 0;
  for (u32 k = 0; k < copies->count; k++) {
    const struct Async *copy = &copies->each[k];
    if (copy->barrier != barrier) continue;
    found = 1;
    if (copy->kind == ARRIVE) arrivals += (u64)__builtin_popcount(copy->lanes);
    if (copy->kind == COMMIT) arrivals++;
  }
  return found && (*(const u64 *)barrier & MBARRIER_COUNT) <= arrivals;
}

/* Who finds a phase over knows all that was done before, and so do those who find that later. */
static void tell_barrier(struct Running *running, u64 barrier) {
  struct Intervals *all = running->copies->intervals;
  if (!all || !all->waiter.place) return;
  struct Waiter *waiter = &all->waiter;
  u32 order = ACCESS_STRONG | ACCESS_ACQUIRE | ACCESS_RELEASE;
  u32 flags = ACCESS_READ | ACCESS_WRITE | order | SPACE_GENERIC << 8 | 8 << 16;
  EACH_LANE(lane, waiter->lanes) waiter->place->addresses[lane] = barrier;
  waiter->check(waiter->place, waiter->lanes, 8, flags, waiter->line);
}

/* A thread tests an mbarrier whose phase is not over: if nothing else is missing, other warps run, by `pass`, and then
   the copies land that it waits for. */
void cujit_pending_test(struct Block *state, u8 *shared, u32 warp, u64 barrier, Pass *pass) {
  struct Running *running = running_of(state, shared);
  struct Copies *copies = running->copies;
  if (state) state->warp[warp].tested = barrier;
  if (!copies) return;
  if (copies->count && awaits_copies(copies, barrier)) {
    let_others(running, state, warp, pass);
    tell_barrier(running, barrier); /* others may have issued copies since, or found the phase over */
    if (awaits_copies(copies, barrier)) {
      land_those(running, tells, barrier, *(const u64 *)barrier >> MBARRIER_PHASE_AT, 0);
      tell_barrier(running, barrier);
    }
  }
  forget_waiter(running);
}

/* Lanes of a warp commit their bulk operations. */
void cujit_pending_bulk_commit(const struct Block *state, u8 *shared, u32 warp, u32 lanes) {
  struct Running *running = running_of(state, shared);
  struct Copies *copies = running->copies;
  if (!copies) return;
  u32 slot = slot_of(state, warp);
  for (u32 k = 0; k < copies->count; k++) copies->each[k].after += is_of(&copies->each[k], slot, lanes);
}

/* Keep what an operation reads, for when it is to be done. A box has its bytes where it says, from a multiple of 128. */
static void read_source(struct Running *running, struct Async *copy) {
  if (copy->buffer || copy->inward || copy->moved || copy->kind == VALUE) return;
  u64 bytes = copy->size;
  if (copy->kind == TENSOR) bytes = cujit_tensor_box_bytes(&copy->map, copy->coords, copy->rank, copy->im2col);
  u64 from = copy->from, begin = from & -(u64)BOX_ALIGN, room = bytes + (from - begin) + BOX_ALIGN;
  u8 *buffer = copy->buffer = grown(running, 0, room + BOX_ALIGN);
  buffer = (u8 *)(((u64)buffer + BOX_ALIGN - 1) & -(u64)BOX_ALIGN);
  running->line = copy->line;
  memcpy(buffer + (from - begin), (const u8 *)from, bytes);
  running->line = 0;
  copy->from = (u64)buffer + (from - begin);
  copy->origin += (u64)buffer - begin;
}

/* Do what was waited for of bulk operations. */
static void finish_bulk(struct Running *running) {
  struct Copies *copies = running->copies;
  for (u32 k = 0; k < copies->count; k++) {
    if (copies->each[k].due == READ) read_source(running, &copies->each[k]);
  }
  land_those(running, is_due, 0, 0, 0);
}

static void wait_bulk(struct Running *running, struct Block *state, u32 warp, u32 lanes, u32 groups, flag read,
                      Pass *pass, flag late) {
  struct Copies *copies = running->copies;
  u32 slot = slot_of(state, warp), some = 0;
  if (!late) let_others(running, state, warp, pass);
  for (u32 k = 0; k < copies->count; k++) {
    struct Async *copy = &copies->each[k];
    if (!is_awaited(copy, slot, lanes, groups) || (read && copy->due)) continue;
    if (copies->intervals) end_async(running, copy, !read);
    copy->due = read ? READ : DONE;
    some = 1;
  }
  copies->due |= some;
  if (!late) finish_bulk(running);
}

/* Lanes of a warp wait for their bulk operations but for the last `groups` commits; if they only `read`, until nothing
   reads their sources any more. `pass` and `late` are as in wait_small. */
void cujit_pending_bulk_wait(struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 groups, flag read, Pass *pass,
                             flag late) {
  struct Running *running = running_of(state, shared);
  struct Copies *copies = running->copies;
  if (!copies) return;
  if (copies->count && lanes) wait_bulk(running, state, warp, lanes, groups, read, pass, late);
  forget_waiter(running);
}

/* All warps of a block have come to a barrier: what is due of any lands. */
void cujit_pending_turn(u8 *shared) {
  struct Running *running = running_at(shared);
  struct Copies *copies = running->copies;
  if (!copies || !copies->due) return;
  copies->due = 0;
  for (u32 k = 0; k < copies->slots; k++) {
    if (copies->queues[k].due) land_due(running, &copies->queues[k]);
  }
  finish_bulk(running);
}

/* -- what the check for races asks ----------------------------------------------------------------------------------- */

static NOINLINE struct Intervals *make_intervals(struct Running *running, const struct Place *place) {
  const struct Watch *watch = place->launch->checks;
  u64 blocks = place->launch->together, words = blocks * watch->shared_stride / 4;
  queue_at(running, 0);
  struct Intervals *all = calloc(1, sizeof *all + 2 * words * sizeof *all->writes);
  if (!all) no_room(running);
  all->blocks = blocks;
  all->bytes = watch->shared_stride;
  all->begin = place->shared - (place->state ? place->state->side * WINDOW : 0);
  all->writes = (u32 *)(all + 1);
  all->reads = all->writes + words;
  return running->copies->intervals = all;
}

/* Whether two ranges have words in common. */
INLINE flag same_words(u64 x, u64 x_bytes, u64 y, u64 y_bytes) {
  return x_bytes && y_bytes && x / 4 <= (y + y_bytes - 1) / 4 && y / 4 <= (x + x_bytes - 1) / 4;
}

/* Which thread issued the copy at a line that writes, or only reads, words of a range: block << 32 | thread. */
static u64 copier(const struct Running *running, u64 address, u64 size, flag writes, u32 line) {
  const struct Copies *copies = running->copies;
  u32 warps = running->group ? running->group->blocks->warps : 1u << 31;
  for (u32 k = 0; k < copies->count; k++) {
    const struct Async *copy = &copies->each[k];
    u64 at = copy->from, bytes = writes ? written_bytes(copy, &at) : read_bytes(copy);
    flag meets = copy->kind == PRODUCT ? !writes : same_words(at, bytes, address, size);
    if (copy->line != line || !meets) continue;
    return block_of(running, copy->slot) << 32 | (copy->slot % warps * WARP + first_lane(copy->lanes));
  }
  for (u32 slot = 0; slot < copies->slots; slot++) {
    const struct Queue *queue = &copies->queues[slot];
    for (u32 k = queue->head; k != queue->tail; k++) {
      const struct Small *copy = small_at(queue, k);
      EACH_LANE(lane, copy->lanes) {
        if (copy->line != line || !same_words(copy->to[lane], copy->size, address, size)) continue;
        return block_of(running, slot) << 32 | (slot % warps * WARP + lane);
      }
    }
  }
  return ~0ull;
}

static NORETURN NOINLINE void fail_pending(const struct Place *place, u32 lane, u32 line, u64 address, u64 size,
                                           u32 flags, u32 code, u32 other) {
  struct Launch *launch = place->launch;
  u64 who = copier(running_of(place->state, (u8 *)place->shared), address, size, code == CODE_UNWRITTEN, other);
  if (cujit_claim(launch, FAULT_RACE)) {
    cujit_fault_here(launch, place->block, place->warp * WARP + lane, line, address);
    u64 more[] = {size, flags, code, who, other, address - place->shared};
    memcpy(launch->fault_more, more, sizeof more);
  }
  cujit_stop();
}

/* Look whether an access of one lane meets a copy. */
INLINE void meet_copies(const struct Intervals *all, const struct Place *place, u32 lane, u64 address, u64 size,
                        u32 flags, u32 line) {
  u64 first, count = words_in(all, address, size, &first);
  for (u64 k = 0; k < count; k++) {
    u32 write = all->writes[first + k], read = all->reads[first + k];
    if (write) fail_pending(place, lane, line, address, size, flags, CODE_UNWRITTEN, write);
    if (read && flags & ACCESS_WRITE) {
      fail_pending(place, lane, line, address, size, flags, CODE_UNREAD, read & READER_LINE);
    }
  }
}

/* Whether no copy is at any word from the first to the last that lanes access; 0 where that takes a look at each. */
INLINE flag is_clear(const struct Intervals *all, const u64 *addresses, u32 lanes, u64 size, flag writes) {
  u64 low = ~0ull, high = 0, first;
  if (!lanes || !size) return !lanes;
  for (u32 lane = 0; lane < WARP; lane++) {
    u64 address = lanes >> lane & 1 ? addresses[lane] : addresses[first_lane(lanes)];
    low = low < address ? low : address;
    high = high > address ? high : address;
  }
  if (low < all->begin || high - low > 2 * WARP * size || high - low + size > all->bytes) return 0;
  if ((low - all->begin) % WINDOW > all->bytes - (high - low + size)) return 0;
  u64 count = words_in(all, low, high - low + size, &first);
  u32 found = 0;
  for (u64 k = 0; k < count; k++) found |= all->writes[first + k] | (writes ? all->reads[first + k] : 0);
  return count && !found;
}

/* `lanes` are about to access `size` bytes each (0: as many as `values` say) at `addresses`. */
void cujit_pending_touch(struct Place *place, u32 lanes, u64 size, u32 flags, u32 line) {
  const struct Copies *copies = running_of(place->state, (u8 *)place->shared)->copies;
  if (!copies || !copies->intervals || !(copies->small | copies->count)) return;
  if (is_clear(copies->intervals, place->addresses, lanes, size, flags & ACCESS_WRITE)) return;
  EACH_LANE(lane, lanes) {
    meet_copies(copies->intervals, place, lane, place->addresses[lane], size ? size : place->values[lane], flags, line);
  }
}

struct Watched {
  struct Place *place;
  const struct Async *copy;
  CheckPiece *check;
  u32 event;
};

/* A product reads a piece until somebody has waited for it; what it reads is not to be written yet. */
static void watch_piece(void *context, u64 address, u64 bytes) {
  const struct Watched *x = context;
  struct Intervals *all = running_of(x->place->state, (u8 *)x->place->shared)->copies->intervals;
  meet_copies(all, x->place, first_lane(x->copy->lanes), address, bytes, ACCESS_READ, x->copy->line);
  mark_reads(all, address, bytes, x->copy->line);
}

static void look_at_piece(void *context, u64 address, u64 bytes) {
  struct Watched *x = context;
  x->event = x->check(x->place, first_lane(x->copy->lanes), address, bytes, x->copy->line, x->event);
}

/* A warp has issued products: `check` is told what they read of shared memory. */
void cujit_pending_products(struct Place *place, CheckPiece *check) {
  struct Running *running = running_of(place->state, (u8 *)place->shared);
  const struct Copies *copies = running->copies;
  for (u32 k = copies ? copies->count : 0; k && !copies->each[k - 1].looked; k--) {
    struct Async *copy = &copies->each[k - 1];
    struct Watched watched = {place, copy, check, 0};
    copy->looked = 1;
    if (copy->kind == PRODUCT) run_product(running, copy, look_at_piece, &watched);
  }
}

/* A warp has issued copies: from now on nobody is to access what they write, or to write what they read. */
void cujit_pending_watch(struct Place *place) {
  struct Running *running = running_of(place->state, (u8 *)place->shared);
  struct Copies *copies = running->copies;
  if (!copies || !is_raced(place)) return;
  struct Intervals *all = copies->intervals ? copies->intervals : make_intervals(running, place);
  struct Queue *queue = queue_at(running, slot_of(place->state, place->warp));
  for (u32 k = queue->tail; k != queue->head && !small_at(queue, k - 1)->seen; k--) {
    struct Small *copy = small_at(queue, k - 1);
    copy->seen = 1;
    mark_lanes(all, copy->to, copy->lanes, copy->size, copy->line);
  }
  for (u32 k = copies->count; k && !copies->each[k - 1].seen; k--) {
    struct Async *copy = &copies->each[k - 1];
    u64 address, bytes = written_bytes(copy, &address), reads = read_bytes(copy);
    u32 lane = first_lane(copy->lanes);
    copy->seen = 1;
    if (copy->kind == PRODUCT) run_product(running, copy, watch_piece, &(struct Watched){place, copy, 0, 0});
    if (copy->kind == TENSOR) {
      meet_copies(all, place, lane, copy->from, bytes + reads, bytes ? ACCESS_WRITE : ACCESS_READ, copy->line);
    }
    mark_writes(all, address, bytes, copy->line);
    mark_reads(all, copy->from, reads, copy->line);
  }
}

/* `lanes` wait for copies at a line, or test an mbarrier: `check` is told what they find written. */
void cujit_pending_observe(struct Place *place, u32 lanes, u32 line, Check *check) {
  struct Copies *copies = running_of(place->state, (u8 *)place->shared)->copies;
  if (lanes && copies && copies->intervals) copies->intervals->waiter = (struct Waiter){place, check, lanes, line};
}
