/* Copies of a warp by cp.async: kept in the order in which they were issued, with the commits between them, until a thread
   waits for its groups. PTX ISA 9.1, "cp.async", "cp.async.commit_group", "cp.async.wait_group / cp.async.wait_all". */

#pragma once

#include "intervals.h"

/* Copies of one warp that are kept, the oldest of which lands when there are more; that may always be. */
enum { MOST_SMALL = 512, MOST_ASYNC = 4096, MOST_MARKS = 8192 };

typedef void Apply(u64 there, u64 here);
typedef void Pass(struct Block *state, u32 warp);

static NORETURN NOINLINE void no_room(struct Running *running) {
  struct Launch *launch = running->launch;
  cujit_fault(launch, FAULT_NO_MEMORY, ~0ull, ~0u, 0, 0);
}

static void *grown(struct Running *running, void *old, u64 bytes) {
  void *memory = realloc(old, bytes);
  if (!memory) no_room(running);
  return memory;
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

/* Who waits has written now what copies wrote, for all who come to what it did. */
static NOINLINE void tell_waiter(const struct Intervals *all, u32 lanes, u64 size, u32 line) {
  const struct Waiter *waiter = &all->waiter;
  u32 flags = ACCESS_WRITE | ACCESS_TAKES | ACCESS_ASYNC | SPACE_GENERIC << 8 | 4 << 16;
  if (waiter->place && lanes) waiter->check(waiter->place, lanes, size, flags, line);
}

/* Somebody has waited for some lanes of a copy. */
static NOINLINE void end_small(struct Intervals *all, const struct Small *copy, u32 lanes) {
  mark_lanes(all, copy->to, lanes, copy->size, 0);
  EACH_LANE(lane, all->waiter.place ? lanes : 0) all->waiter.place->addresses[lane] = copy->to[lane];
  tell_waiter(all, lanes, copy->size, copy->line);
}

/* Move what some lanes copy; what faults is the copy. */
static void move_small(struct Running *running, struct Small *copy, u32 lanes) {
  running->line = copy->line;
  if (copy->parts) {
    land_parts(copy, lanes);
  } else if (lanes == ~0u && copy->size == 16 && in_row(copy->to, 16) && in_row(copy->source, 16)) {
    memcpy((void *)copy->to[0], (const void *)copy->source[0], WARP * 16);
  } else if (copy->size == 16) {
    EACH_LANE(lane, lanes) *(u32x4 *)copy->to[lane] = *(const u32x4 *)copy->source[lane];
  } else if (copy->size == 8) {
    EACH_LANE(lane, lanes) *(u64 *)copy->to[lane] = *(const u64 *)copy->source[lane];
  } else {
    EACH_LANE(lane, lanes) *(u32 *)copy->to[lane] = *(const u32 *)copy->source[lane];
  }
  running->line = 0;
}

/* Have some lanes of a copy land, if nobody moved it before. */
INLINE void land_small(struct Running *running, struct Small *copy, u32 lanes) {
  lanes &= copy->lanes;
  copy->lanes &= ~lanes;
  if (!copy->moved) move_small(running, copy, lanes);
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

/* Land what is before `end` of some lanes. Who waited for what is due was told. */
static void land_before(struct Running *running, struct Queue *queue, u32 end, u32 lanes) {
  struct Intervals *all = running->copies->intervals;
  for (u32 k = queue->head; k != end; k++) {
    struct Small *copy = small_at(queue, k);
    if (all) end_small(all, copy, copy->lanes & lanes & ~copy->due);
    land_small(running, copy, lanes);
  }
  forget_landed(running->copies, queue);
}

static void land_queue(struct Running *running, struct Queue *queue) { land_before(running, queue, queue->tail, ~0u); }

static void land_all(struct Running *running);
static void end_all(struct Running *running);
static void land_early(struct Running *running, u64 random);

static NOINLINE struct Queue *make_queue(struct Running *running, u32 slot) {
  struct Copies *copies = running->copies;
  if (!copies) {
    copies = running->copies = calloc(1, sizeof *copies);
    if (!copies) no_room(running);
    copies->land = land_all, copies->end = end_all, copies->early = land_early;
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
  copy->seen = copy->moved = 0;
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
  u32 seen[WARP] = {0}, due = groups == ALL_COPIES ? lanes : 0, end = queue->tail, uniform = 0, some = 0;
  flag apart = 0;
  if (queue->head == queue->tail) return 0;
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

static void forget_waiter(struct Running *running) {
  if (running->copies->intervals) running->copies->intervals->waiter.place = 0;
}

/* Have other warps run, in which others may wait. */
static void let_others(struct Running *running, struct Block *state, u32 warp, Pass *pass) {
  struct Intervals *all = running->copies->intervals;
  struct Waiter own = {0};
  if (all) own = all->waiter;
  forget_waiter(running);
  if (pass) pass(state, warp);
  if (all) all->waiter = own;
}

/* Lanes wait for all of their copies but those of the last `groups` commits; for all that they issued if these are
   ALL_COPIES. What they wait for is due: it lands when other warps have run, by `pass`; or, `late`, when all warps of the
   block have come to a barrier, before which this one accesses nothing. */
static void wait_small(struct Running *running, struct Block *state, u32 warp, u32 lanes, u32 groups, Pass *pass,
                       flag late) {
  u32 slot = slot_of(state, warp);
  struct Queue *queue = queue_at(running, slot);
  struct Intervals *all = running->copies->intervals;
  if (!find_due(queue, lanes, groups)) return;
  if (!late) {
    let_others(running, state, warp, pass);
    queue = queue_at(running, slot); /* there may be more of them now */
  }
  for (u32 k = queue->head; all && k != queue->tail; k++) {
    const struct Small *copy = small_at(queue, k);
    if (copy->due) end_small(all, copy, copy->due & copy->lanes & lanes);
  }
  queue->due = running->copies->due = 1;
  if (!late) land_due(running, queue);
}

void cujit_pending_wait(struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 groups, Pass *pass, flag late) {
  struct Running *running = running_of(state, shared);
  struct Copies *copies = running->copies;
  if (!copies) return;
  if (copies->small && lanes) wait_small(running, state, warp, lanes, groups, pass, late);
  forget_waiter(running);
}
