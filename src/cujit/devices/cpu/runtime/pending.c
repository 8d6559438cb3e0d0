/* Asynchronous copies: queued whole where they are issued, and done as late as PTX allows.

   cp.async             when its thread waits for its group (cujit_pending_wait), or a barrier that its thread told of it
                        is tested
   with an mbarrier     when a thread tests the phase that needs it (cujit_pending_test)
   with a bulk group    its source is read when its thread waits for that, it is written when its thread waits for all
   what nobody awaits   when no warp can do anything else, and when the block ends

   PTX ISA 9.1, "Data Movement and Conversion Instructions: Asynchronous copy", "Completion Mechanisms for Asynchronous
   Copy Operations". */

#include "pending.h"

#include <string.h>

/* Copies of one warp that are kept, the oldest of which lands when there are more; that may always be. */
enum { MOST_SMALL = 512, MOST_ASYNC = 4096, MOST_MARKS = 8192 };

typedef void Apply(u64 there, u64 here);
typedef void Pass(struct Block *state, u32 warp);

u64 cujit_tensor_copy(const struct TensorMap *map, u64 shared, u64 origin, const i32 *coords, u32 rank, flag im2col,
                      flag inward, Apply *const *reductions);
u64 cujit_tensor_box_bytes(const struct TensorMap *map, const i32 *coords, u32 rank, flag im2col);
void cujit_bulk_bytes(u8 *to, const u8 *from, u32 size, u32 mask);
void cujit_bulk_reduce(u64 to, u64 from, u32 size, u32 step, Apply *apply);

INLINE struct Running *running_of(const struct Block *state, u8 *shared) {
  return state ? state->place : running_at(shared);
}

INLINE u32 slot_of(const struct Block *state, u32 warp) { return state ? state->side * state->warps + warp : warp; }

static NORETURN NOINLINE void no_room(struct Running *running) {
  struct Launch *launch = running->launch;
  cujit_fault(launch, FAULT_NO_MEMORY, ~0ull, ~0u, 0, 0);
}

static void *grown(struct Running *running, void *old, u64 bytes) {
  void *memory = realloc(old, bytes);
  if (!memory) no_room(running);
  return memory;
}

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

/* -- cp.async ---------------------------------------------------------------------------------------------------------- */

typedef u32 __attribute__((vector_size(16), may_alias)) u32x4;

static NOINLINE void land_parts(const struct Small *copy, u32 lanes) {
  EACH_LANE(lane, lanes) {
    u8 *to = (u8 *)copy->to[lane];
    memset(to, 0, copy->size);
    memcpy(to, (const u8 *)copy->source[lane], copy->count[lane]);
  }
}

/* Have some lanes of a copy land; what faults is the copy. */
static void land_small(struct Running *running, struct Small *copy, u32 lanes) {
  lanes &= copy->lanes;
  copy->lanes &= ~lanes;
  running->line = copy->line;
  if (copy->parts) {
    land_parts(copy, lanes);
  } else if (copy->size == 16) {
    EACH_LANE(lane, lanes) *(u32x4 *)copy->to[lane] = *(const u32x4 *)copy->source[lane];
  } else if (copy->size == 8) {
    EACH_LANE(lane, lanes) *(u64 *)copy->to[lane] = *(const u64 *)copy->source[lane];
  } else {
    EACH_LANE(lane, lanes) *(u32 *)copy->to[lane] = *(const u32 *)copy->source[lane];
  }
  running->line = 0;
}

INLINE struct Small *small_at(const struct Queue *queue, u32 index) { return &queue->each[index & (queue->room - 1)]; }

/* Forget the copies that have landed whole, the oldest first, and the commits that nothing is before. */
static void forget_landed(struct Copies *copies, struct Queue *queue) {
  while (queue->head != queue->tail && !small_at(queue, queue->head)->lanes) {
    queue->head++;
    copies->small--;
  }
  u32 kept = 0;
  while (kept < queue->mark_count && queue->marks[kept].at - queue->head - 1 >= queue->tail - queue->head) kept++;
  if (!kept) return;
  queue->mark_count -= kept;
  memmove(queue->marks, queue->marks + kept, queue->mark_count * sizeof *queue->marks);
}

/* Land what is before `end` of some lanes. */
static void land_before(struct Running *running, struct Queue *queue, u32 end, u32 lanes) {
  for (u32 k = queue->head; k != end; k++) land_small(running, small_at(queue, k), lanes);
  forget_landed(running->copies, queue);
}

static void land_queue(struct Running *running, struct Queue *queue) { land_before(running, queue, queue->tail, ~0u); }

static void land_all(struct Running *running);
static void end_all(struct Running *running);

static NOINLINE struct Queue *make_queue(struct Running *running, u32 slot) {
  struct Copies *copies = running->copies;
  if (!copies) {
    copies = running->copies = calloc(1, sizeof *copies);
    if (!copies) no_room(running);
    copies->land = land_all, copies->end = end_all;
  }
  if (slot >= copies->slots) {
    u32 slots = (slot | 7) + 1 + copies->slots;
    copies->queues = grown(running, copies->queues, slots * sizeof *copies->queues);
    memset(copies->queues + copies->slots, 0, (slots - copies->slots) * sizeof *copies->queues);
    copies->slots = slots;
  }
  return &copies->queues[slot];
}

INLINE struct Queue *queue_at(struct Running *running, u32 slot) {
  struct Copies *copies = running->copies;
  return copies && slot < copies->slots ? &copies->queues[slot] : make_queue(running, slot);
}

static NOINLINE void make_room(struct Running *running, struct Queue *queue) {
  u32 old = queue->room, room = old ? 2 * old : 16;
  if (old == MOST_SMALL) {
    land_before(running, queue, queue->head + 1, ~0u);
    return;
  }
  struct Small *each = grown(running, 0, room * sizeof *each);
  for (u32 k = queue->head; k != queue->tail; k++) each[k & (room - 1)] = *small_at(queue, k);
  free(queue->each);
  queue->each = each;
  queue->room = room;
}

/* Give the place for a copy of `lanes`, some: the caller puts where to and from there, and how much if in `parts`. */
struct Small *cujit_pending_small(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 size, flag parts,
                                  u32 line) {
  struct Running *running = running_of(state, shared);
  struct Queue *queue = queue_at(running, slot_of(state, warp));
  if (queue->tail - queue->head == queue->room) make_room(running, queue);
  struct Small *copy = small_at(queue, queue->tail++);
  running->copies->small++;
  copy->lanes = lanes, copy->due = 0, copy->size = size, copy->parts = parts, copy->line = line;
  return copy;
}

/* Lanes of a warp commit what they have issued. */
void cujit_pending_commit(const struct Block *state, u8 *shared, u32 warp, u32 lanes) {
  struct Running *running = running_of(state, shared);
  struct Copies *copies = running->copies;
  if (!copies || !copies->small || !lanes) return;
  struct Queue *queue = queue_at(running, slot_of(state, warp));
  if (queue->head == queue->tail) return;
  if (queue->mark_count == MOST_MARKS) {
    land_queue(running, queue);
    return;
  }
  if (queue->mark_count == queue->mark_room) {
    queue->mark_room = 2 * queue->mark_room + 8;
    queue->marks = grown(running, queue->marks, queue->mark_room * sizeof *queue->marks);
  }
  queue->marks[queue->mark_count++] = (struct Mark){lanes, queue->tail};
}

/* Of each copy, the lanes among `lanes` that wait for it when they wait for all but their last `groups` commits. */
static flag find_due(struct Queue *queue, u32 lanes, u32 groups) {
  u32 seen[WARP] = {0}, due = 0, end = queue->tail, uniform = 0, some = 0;
  flag apart = 0;
  for (u32 k = queue->mark_count; k--;) {
    u32 mark = queue->marks[k].lanes & lanes;
    apart |= mark && mark != lanes;
  }
  for (u32 k = queue->mark_count; k-- && due != lanes;) {
    struct Mark mark = queue->marks[k];
    for (; end != mark.at; end--) small_at(queue, end - 1)->due |= due & small_at(queue, end - 1)->lanes;
    if (!apart) {
      if (mark.lanes & lanes && uniform++ == groups) due = lanes;
      continue;
    }
    EACH_LANE(lane, mark.lanes & lanes) {
      if (seen[lane]++ == groups) due |= 1u << lane;
    }
  }
  for (; end != queue->head; end--) small_at(queue, end - 1)->due |= due & small_at(queue, end - 1)->lanes;
  for (u32 k = queue->head; k != queue->tail; k++) some |= small_at(queue, k)->due;
  return some != 0;
}

static void land_due(struct Running *running, struct Queue *queue) {
  for (u32 k = queue->head; k != queue->tail; k++) {
    struct Small *copy = small_at(queue, k);
    if (copy->due) land_small(running, copy, copy->due);
    copy->due = 0;
  }
  queue->due = 0;
  forget_landed(running->copies, queue);
}

/* Lanes wait for all of their copies but those of the last `groups` commits; for all that they issued if these are
   ALL_COPIES. What they wait for is due: it lands when other warps have run, by `pass`; or, `late`, when all warps of the
   block have come to a barrier, before which this one accesses nothing. */
void cujit_pending_wait(struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 groups, Pass *pass, flag late) {
  struct Running *running = running_of(state, shared);
  struct Copies *copies = running->copies;
  if (!copies || !copies->small || !lanes) return;
  struct Queue *queue = queue_at(running, slot_of(state, warp));
  if (queue->head == queue->tail) return;
  flag some = 0;
  if (groups == ALL_COPIES) {
    for (u32 k = queue->head; k != queue->tail; k++) {
      struct Small *copy = small_at(queue, k);
      copy->due |= copy->lanes & lanes;
      some |= copy->due != 0;
    }
  } else {
    some = find_due(queue, lanes, groups);
  }
  if (!some) return;
  queue->due = copies->due = 1;
  if (late) return;
  if (pass) pass(state, warp);
  queue = queue_at(running, slot_of(state, warp)); /* there may be more of them now */
  if (queue->due) land_due(running, queue);
}

/* -- what tells an mbarrier, and bulk groups -------------------------------------------------------------------------- */

enum Due { LATER, READ, DONE };
enum Kind { BULK, BYTES, REDUCE, TENSOR, VALUE, ARRIVE };

/* One operation of one lane, or for ARRIVE of `lanes`. `barrier` is what it tells; 0 for one in a bulk group, behind
   which its thread has committed `after` times. It reads from `from`, or what was read of that before, in `buffer`. Its
   thread has waited for what is `due`. */
struct Async {
  enum Kind kind;
  enum Due due;
  u32 slot, lanes, line, after, step, mask, rank, im2col, inward;
  u64 barrier, to, from, size, origin, value[4];
  Apply *apply;
  Apply *const *reductions;
  u8 *buffer;
  i32 coords[8];
  struct TensorMap map;
};

static void land_async(struct Running *running, struct Async *copy) {
  u64 bytes = copy->size, from = copy->from;
  running->line = copy->line;
  switch (copy->kind) {
  case BULK: memmove((void *)copy->to, (const void *)from, copy->size); break;
  case BYTES: cujit_bulk_bytes((u8 *)copy->to, (const u8 *)from, (u32)copy->size, copy->mask); break;
  case REDUCE: cujit_bulk_reduce(copy->to, from, (u32)copy->size, copy->step, copy->apply); break;
  case TENSOR:
    bytes = cujit_tensor_copy(&copy->map, from, copy->origin, copy->coords, copy->rank, copy->im2col, copy->inward,
                              copy->reductions);
    break;
  case VALUE:
    if (copy->apply) {
      copy->apply(copy->to, (u64)copy->value);
    } else {
      memcpy((void *)copy->to, copy->value, copy->size);
    }
    break;
  case ARRIVE: {
    struct Queue *queue = queue_at(running, copy->slot);
    u32 end = copy->mask;
    if (end - queue->head <= queue->tail - queue->head) land_before(running, queue, end, copy->lanes);
    bytes = 0;
  }
  }
  running->line = 0;
  if (copy->barrier) count_at(copy->barrier, copy->kind == ARRIVE ? (u64)__builtin_popcount(copy->lanes) : 0, bytes);
  free(copy->buffer);
  copy->buffer = 0;
}

/* Land those that `is_due` names, in the order in which they were issued. */
typedef flag IsDue(const struct Async *copy, u64 what, u64 more, u64 groups);

static void land_those(struct Running *running, IsDue *is_due, u64 what, u64 more, u64 groups) {
  struct Copies *copies = running->copies;
  u32 kept = 0, count = copies->count;
  copies->count = 0; /* what faults is not tried again */
  for (u32 k = 0; k < count; k++) {
    struct Async *copy = &copies->each[k];
    if (is_due(copy, what, more, groups)) {
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

static flag tells(const struct Async *copy, u64 barrier, u64 more, u64 groups) {
  return (void)more, (void)groups, copy->barrier == barrier;
}

static flag is_of(const struct Async *copy, u64 slot, u64 lanes) {
  return !copy->barrier && copy->slot == slot && copy->lanes & lanes;
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

static void end_all(struct Running *running) { land_all(running); }

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
  }
  return found && (*(const u64 *)barrier & MBARRIER_COUNT) <= arrivals;
}

/* A thread tests an mbarrier whose phase is not over: if nothing else is missing, other warps run, by `pass`, and then
   the copies land that it waits for. */
void cujit_pending_test(struct Block *state, u8 *shared, u32 warp, u64 barrier, Pass *pass) {
  struct Running *running = running_of(state, shared);
  struct Copies *copies = running->copies;
  if (!copies || !copies->count || !awaits_copies(copies, barrier)) return;
  if (pass) pass(state, warp);
  if (awaits_copies(running->copies, barrier)) land_those(running, tells, barrier, 0, 0);
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
  if (copy->buffer || copy->inward || copy->kind == VALUE) return;
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

/* Lanes of a warp wait for their bulk operations but for the last `groups` commits; if they only `read`, until nothing
   reads their sources any more. `pass` and `late` are as in cujit_pending_wait. */
void cujit_pending_bulk_wait(struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 groups, flag read, Pass *pass,
                             flag late) {
  struct Running *running = running_of(state, shared);
  struct Copies *copies = running->copies;
  if (!copies || !copies->count) return;
  u32 slot = slot_of(state, warp);
  flag some = 0;
  for (u32 k = 0; k < copies->count; k++) {
    struct Async *copy = &copies->each[k];
    if (!is_awaited(copy, slot, lanes, groups) || (read && copy->due)) continue;
    copy->due = read ? READ : DONE;
    some = 1;
  }
  if (!some) return;
  copies->due = 1;
  if (late) return;
  if (pass) pass(state, warp);
  finish_bulk(running);
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
