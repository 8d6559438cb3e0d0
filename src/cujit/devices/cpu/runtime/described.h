/* Checks of what descriptors, tensor maps and masks lead to: memory that no operand names byte by byte. Included by
   checks.c. */

#pragma once

#include "products.h"

/* -- a range, by one lane -------------------------------------------------------------------------------------------- */

/* Shared memory that the asynchronous proxy is about to read must not hold what a thread wrote by the generic proxy
   since the block's last fence between the two. Source: PTX ISA 9.1, "Memory Consistency Model: Proxy-preserved base
   causality order". */
static NOINLINE void look_for_fence(const struct Place *place, const struct Access *access) {
  struct Tracker *piece = place->piece;
  u64 offset = access->address - place->shared, step = 1u << (piece->grain & 3);
  if (piece->written < piece->unfenced || !in_shared(place, access->address, access->size)) return;
  spread(place, offset, access->size);
  for (u64 k = 0; k < access->size; k += step) {
    const u32 *entry = entry_at(place, offset + k);
    u32 record = entry[STRONG] ? entry[STRONG] : entry[WRITER];
    const struct Event *event = &events_of(place)[record >> THREAD_BITS];
    if (record >> THREAD_BITS < piece->unfenced || event->flags & ACCESS_ASYNC) continue;
    fail(place, access, FAULT_RACE, CODE_UNFENCED, record & (THREADS - 1), event->line, event->flags | (offset + k) << 32);
  }
}

/* Whether none of what is read was never written, by one look. */
INLINE flag is_written(struct Place *place, const struct Access *access) {
  flag known;
  u8 *marks = marks_of_range(place, access->address, access->size, &known);
  return known && (!marks || all_marked(marks, access->size));
}

/* The same for another block's shared memory: a fence of that block counts, or of this one for what it knew of. */
static NOINLINE void look_for_far_fence(struct Place *place, const struct Access *access, u64 rank, u64 offset) {
  const u32 *known = far_proxied(place, place->others, place->state->rank) + rank * place->watch->warps;
  struct Tracker *own = place->piece;
  place->piece = piece_beside(place, place->side - place->state->rank + rank);
  spread(place, offset, access->size);
  for (u64 k = 0, step = 1u << (place->piece->grain & 3); k < access->size; k += step) {
    const u32 *entry = entry_at(place, offset + k);
    u32 record = entry[STRONG] ? entry[STRONG] : entry[WRITER];
    const struct Event *event = &events_of(place)[record >> THREAD_BITS];
    if (record >> THREAD_BITS < place->piece->unfenced || event->flags & ACCESS_ASYNC) continue;
    if (event->clock <= known[(record & (THREADS - 1)) / WARP]) continue;
    place->piece = own;
    fail_far(place, access, CODE_FAR_UNFENCED, offset + k, rank, rank, record & (THREADS - 1), event->line, event->flags);
  }
  place->piece = own;
}

static NOINLINE void check_span(struct Place *place, const struct Access *access, u32 event) {
  u32 checks = place->watch->checks, flags = access->flags;
  if (!access->size) return;
  if (checks & CHECK_MEMORY) check_memory(place, access);
  if (checks & CHECK_INIT && (flags & ACCESS_WRITE || !is_written(place, access))) check_init(place, access);
  if (!(checks & CHECK_RACE)) return;
  check_across(place, access);
  check_between(place, access);
  u64 far = access->address - place->cluster, rank = far / WINDOW;
  if (place->others && rank < far_blocks(place) && rank != place->state->rank && flags & ACCESS_READ) {
    look_for_far_fence(place, access, rank, far % WINDOW);
  }
  if (!in_shared(place, access->address, access->size)) return;
  if (flags & ACCESS_READ) look_for_fence(place, access);
  u64 at = access->address, size = access->size;
  struct Row row = {1u << access->lane, flags, access->line, (u32)size, 1, at, 0, at, size};
  if (!row_is_ordered(place, &row, event)) check_race(place, access, event);
}

/* What one lane does by one instruction, as an event of its own. */
INLINE u32 begin_spans(struct Place *place, u32 flags, u32 line) {
  enter(place);
  if (!(place->watch->checks & CHECK_RACE)) return 0;
  note_reads(place);
  catch_up(place);
  return new_event(place, flags, line);
}

/* -- tensor maps ----------------------------------------------------------------------------------------------------- */

struct Boxed {
  struct Place *place;
  u32 lane, line, event, there, here;
};

static void visit(void *context, u64 there, u64 there_bytes, u64 here, u64 here_bytes) {
  struct Boxed *x = context;
  struct Access far = {x->lane, x->there, x->line, there, there_bytes}, near = {x->lane, x->here, x->line, here, here_bytes};
  if (x->there) check_span(x->place, &far, x->event);
  check_span(x->place, &near, x->event);
}

/* A copy to other blocks tells an mbarrier in each of them. */
INLINE void check_barrier_of(struct Place *place, u32 lane, u64 address, u32 line) {
  struct Access access = {lane, ACCESS_READ | ACCESS_WRITE | ACCESS_STRONG | ACCESS_ASYNC, line, address, sizeof(u64)};
  if (place->others && !in_shared(place, address, access.size)) check_between(place, &access);
}

/* A lane copies a box, of flags `there` and `here`: inward to all blocks of a mask, or to the address itself if it has
   none; `shared` and `barrier` are offsets then. */
void cujit_check_tensor(struct Place *place, u32 lane, const struct TensorMap *map, u64 shared, u64 origin,
                        const i32 *coords, u32 rank, flag im2col, flag inward, u32 there, u32 here, u32 mask, u64 barrier, u32 line) {
  struct Boxed boxed = {place, lane, line, begin_spans(place, here, line), there, here};
  u64 stride = WINDOW;
  if (!mask) cujit_tensor_walk(map, shared, origin, coords, rank, im2col, inward, visit, &boxed);
  EACH_LANE(block, mask) {
    cujit_tensor_walk(map, origin + block * stride + shared, origin, coords, rank, im2col, inward, visit, &boxed);
    check_barrier_of(place, lane, origin + block * stride + barrier, line);
    boxed.there = 0;
  }
}

/* -- masks ------------------------------------------------------------------------------------------------------------- */

/* A lane writes `size` bytes at an offset into the windows of all blocks of a mask, and tells an mbarrier at another; the
   cluster's begin at `origin`. */
void cujit_check_multicast(struct Place *place, u32 lane, u64 origin, u64 offset, u64 size, u32 mask, u64 barrier, u32 flags,
                           u32 line) {
  u32 event = begin_spans(place, flags, line);
  EACH_LANE(block, mask) {
    struct Access access = {lane, flags, line, origin + block * WINDOW + offset, size};
    check_span(place, &access, event);
    check_barrier_of(place, lane, origin + block * WINDOW + barrier, line);
  }
}

/* A lane writes of every 16 bytes those whose bit is set. */
void cujit_check_masked(struct Place *place, u32 lane, u64 address, u64 size, u32 mask, u32 flags, u32 line) {
  u32 event = begin_spans(place, flags, line);
  for (u64 k = 0; k < size; k++) {
    struct Access access = {lane, flags, line, address + k, 1};
    if (mask >> (k & 15) & 1) check_span(place, &access, event);
  }
}

/* A lane reads `size` bytes by the asynchronous proxy: whether a fence is missing. All else is looked at elsewhere. */
void cujit_check_fence(struct Place *place, u32 lanes, u32 flags, u32 line) {
  enter(place);
  note_reads(place);
  EACH_LANE(lane, lanes) {
    struct Access access = {lane, flags, line, place->addresses[lane], place->values[lane]};
    if (place->watch->checks & CHECK_RACE) look_for_fence(place, &access);
  }
}

/* A fence between the generic proxy and the asynchronous one: of all, or of what makes mbarriers. */
void cujit_check_fenced(struct Place *place, flag all) {
  enter(place);
  note_reads(place);
  place->piece->unmade = place->piece->events + 1;
  if (!all) return;
  place->piece->unfenced = place->piece->unmade;
  if (place->others) join_far(place, far_proxied(place, place->others, place->state->rank), own_far(place));
}

/* A copy is about to tell mbarriers of the block, which were made before a fence. */
void cujit_check_made(struct Place *place, u32 lanes, u32 flags, u32 line) {
  enter(place);
  note_reads(place);
  EACH_LANE(lane, lanes) {
    struct Access access = {lane, flags, line, place->addresses[lane], sizeof(u64)};
    if (!in_shared(place, access.address, access.size)) continue;
    spread(place, access.address - place->shared, access.size);
    u32 record = entry_at(place, access.address - place->shared)[WRITER];
    const struct Event *event = &events_of(place)[record >> THREAD_BITS];
    if (!record || record >> THREAD_BITS < place->piece->unmade || event->flags & ACCESS_ASYNC) continue;
    fail(place, &access, FAULT_RACE, CODE_UNMADE, record & (THREADS - 1), event->line,
         event->flags | (access.address - place->shared) << 32);
  }
}

/* A product uses registers of some classes: nothing accessed them since the last wgmma.fence. */
void cujit_check_registers(struct Place *place, u32 lanes, u32 classes, u32 line) {
  enter(place);
  if (!lanes || !(place->accessed & classes)) return;
  struct Access access = {first_lane(lanes), 0, line, 0, 0};
  fail(place, &access, FAULT_RACE, CODE_REGISTERS, place->first + access.lane, place->accessed_at, 0);
}

/* A lane's product in tensor memory reads a part of a matrix, in its block or the other one of its pair, as `event` if an
   earlier part made one, which is returned. */
u32 cujit_check_piece(struct Place *place, u32 lane, u64 address, u64 bytes, u32 line, u32 event) {
  u32 flags = ACCESS_READ | ACCESS_ASYNC | SPACE_CLUSTER << 8 | 1 << 16;
  if (!event) event = begin_spans(place, flags, line);
  if (in_shared(place, address, bytes)) flags ^= (SPACE_CLUSTER ^ SPACE_SHARED) << 8;
  check_span(place, &(struct Access){lane, flags, line, address, bytes}, event);
  return event;
}

/* A lane tells the mbarriers at an offset into the windows of all blocks of a mask; the cluster's begin at `origin`. */
void cujit_check_commit(struct Place *place, u32 lane, u64 origin, u64 offset, u32 mask, u32 flags, u32 line) {
  enter(place);
  EACH_LANE(block, mask) {
    place->addresses[lane] = origin + block * WINDOW + offset;
    check_lanes(place, 1u << lane, sizeof(u64), flags, line, 0);
  }
}

/* -- matrices in shared memory ----------------------------------------------------------------------------------- */

/* What minds copies that nobody has waited for; null where there are none. */
typedef void Awaited(struct Place *place, u32 lanes, u64 size, u32 flags, u32 line);

/* What a product reads: a part of 16 bytes for each of the warp's lanes, or the first few. */
static void check_pieces(struct Place *place, const struct Reading *r, u32 count, Awaited *awaited) {
  u32 lanes = count < WARP ? (1u << count) - 1 : ~0u;
  for (u32 lane = 0; lane < count && place->watch->checks & CHECK_RACE; lane++) {
    struct Access access = {lane, r->flags, r->line, place->addresses[lane], 16};
    look_for_fence(place, &access);
  }
  if (awaited) awaited(place, lanes, 16, r->flags, r->line);
  check_lanes(place, lanes, 16, r->flags, r->line, 0);
}

/* The same when the product is done: nobody is to have written there since it began and before the warps met. From now on
   it is a read of this `event`. */
static void end_pieces(struct Place *place, const struct Reading *r, u32 count, u32 event, u32 until) {
  for (u32 lane = 0; lane < count; lane++) {
    struct Access access = {lane, r->flags, r->line, place->addresses[lane], 16};
    struct Now now = {place->first + lane, event, r->flags};
    u64 offset = access.address - place->shared, step = 1u << (place->piece->grain & 3);
    if (!in_shared(place, access.address, access.size)) continue;
    spread(place, offset, access.size);
    for (u64 k = 0; k < access.size; k += step) {
      u32 *entry = entry_at(place, offset + k);
      u32 record = entry[STRONG] > entry[WRITER] ? entry[STRONG] : entry[WRITER], number = record >> THREAD_BITS;
      const struct Event *other = &events_of(place)[number];
      if (number >= r->since && number < until) {
        fail(place, &access, FAULT_RACE, CODE_OUTRUN, record & (THREADS - 1), other->line, other->flags | (offset + k) << 32);
      }
      if (event) *reader_for(place, entry, &now) = event << THREAD_BITS | now.thread;
    }
  }
}

/* What is done with the parts of an operand, 32 at a time or the last ones: it begins to be read, or it is done. */
struct Pass {
  Awaited *awaited;
  u32 event, until;
};

/* `groups` of eight lines from `first` on and `chunks` of 16 bytes of k of an operand. */
static void check_operand(struct Place *place, const struct Reading *r, u64 descriptor, u32 first, u32 groups, u32 chunks,
                          flag across, const struct Pass *pass) {
  u32 count = 0;
  for (u32 k = 0; k < groups * chunks; k++) {
    struct Lines lines;
    find_lines(&lines, descriptor, first + k / chunks, k % chunks, across);
    for (u32 row = 0; row < 8; row++) place->addresses[count++] = r->memory + offset_of_line(&lines, row);
    if (count < WARP && k + 1 < groups * chunks) continue;
    if (pass->until) {
      end_pieces(place, r, count, pass->event, pass->until);
    } else {
      check_pieces(place, r, count, pass->awaited);
    }
    count = 0;
  }
}

/* A warp reads its rows of A, if they lie in shared memory; the first of four that goes on reads B, which all have in
   common. */
static void check_reading(struct Place *place, const struct Reading *r, const struct Pass *pass) {
  const struct Product *p = r->product;
  if (p->from_shared) check_operand(place, r, r->a, 2 * (place->warp % GROUP_WARPS), 2, 2, p->turned_a, pass);
  if (r->first) check_operand(place, r, r->b, 0, p->columns, p->sparse ? 4 : 2, p->turned_b, pass);
}

/* The oldest products of a warp are done, as its warpgroup has met. What the block told others since they began does not
   tell that. */
static void end_readings(struct Place *place, u32 count) {
  struct Tracker *piece = place->piece;
  u32 warp = place->warp, meeting = CLUSTER_BARRIER + 1 + warp / GROUP_WARPS;
  const struct Slot *slot = slot_of(place, meeting, piece->arrivals[warp][meeting]);
  u32 until = slot->turned ? piece->settled[warp] : slot->events;
  struct Reading *all = piece->readings[warp];
  for (u32 k = 0; k < count; k++) {
    flag told = all[k].told != piece->told;
    if (!told && piece->written < all[k].since) continue;
    own_clock(place)[warp]--; /* before they met */
    u32 event = told ? new_event(place, all[k].flags, all[k].line) : 0;
    own_clock(place)[warp]++;
    struct Pass pass = {0, event, until};
    check_reading(place, &all[k], &pass);
  }
  piece->reading[warp] -= count;
  memmove(all, all + count, piece->reading[warp] * sizeof *all);
}

/* A warp begins a product. */
void cujit_check_descriptors(struct Place *place, const struct Product *p, u64 a, u64 b, u64 memory, u32 flags, u32 line,
                         Awaited *awaited) {
  enter(place);
  struct Tracker *piece = place->piece;
  u32 first = place->state->warpgroups[place->warp / GROUP_WARPS].last == place->warp;
  struct Reading reading = {p, a, b, memory, flags, line, 0, 0, first, 0};
  struct Pass pass = {awaited, 0, 0};
  check_reading(place, &reading, &pass);
  if (!(place->watch->checks & CHECK_RACE)) return;
  if (piece->reading[place->warp] == PRODUCTS) end_readings(place, 1);
  reading.told = piece->told, reading.since = piece->events + 1;
  piece->readings[place->warp][piece->reading[place->warp]++] = reading;
}

/* A warp commits its products. */
void cujit_check_committed(struct Place *place) {
  enter(place);
  struct Tracker *piece = place->piece;
  for (u32 k = 0; k < piece->reading[place->warp]; k++) piece->readings[place->warp][k].after++;
}

/* It waits for all but those of its last `groups` commits. */
void cujit_check_waited(struct Place *place, u32 groups) {
  enter(place);
  const struct Tracker *piece = place->piece;
  u32 count = 0;
  while (count < piece->reading[place->warp] && piece->readings[place->warp][count].after > groups) count++;
  if (!count) return;
  note_reads(place);
  end_readings(place, count);
}
