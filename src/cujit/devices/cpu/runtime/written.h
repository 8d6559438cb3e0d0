/* The check for memory that was never written. */

#pragma once

#include "checked.h"

/* -- memory that was never written ---------------------------------------------------------------------------------- */

/* The marks of a span's bytes; null where nobody keeps any, or all was written. */
INLINE u8 *marks_of_span(const struct Span *span) {
  struct MarkHead *marks = span->marks;
  return !marks || __atomic_load_n(&marks->plain, __ATOMIC_ACQUIRE) ? 0 : (u8 *)(marks + 1);
}

/* The marks of a block of the kernel's malloc. */
static NOINLINE u8 *marks_in_heap(u64 address, u64 size) {
  cujit_check_lock();
  const struct Span *span = span_in(heap_spans, heap_count, address, size);
  u8 *marks = span && span->marks ? (u8 *)(span->marks + 1) + (address - span->begin) : 0;
  cujit_check_unlock();
  return marks;
}

/* Where the marks of an access are, one byte a byte; null where nobody keeps any. `global` gets whether what is in
   memory counts too: others than kernels write there. */
static u8 *marks_of(const struct Place *place, u64 address, u64 size, flag *global) {
  const struct Watch *watch = place->watch;
  u64 in_group = address - place->group, side = in_group / WINDOW, offset = in_group % WINDOW;
  *global = 0;
  if (side < place->launch->together && within(offset, size, watch->shared_stride)) {
    return marks_in(place, side == place->side ? place->piece : piece_beside(place, side)) + offset;
  }
  if (within(address - place->kernel_local, size, watch->local_bytes * WARP)) return (u8 *)(address + watch->local_total);
  const struct Span *span = span_of(place, address, size);
  if (!span) return marks_in_heap(address, size);
  u8 *marks = marks_of_span(span);
  *global = marks != 0;
  return marks ? marks + (address - span->begin) : 0;
}

/* Whether an element was never written: no byte of it is marked as written, and in global memory a raw value was stored
   there, or the sixteen bytes around hold what was put there when the memory was made, but for those that are marked. */
static flag is_raw(u64 address, const u8 *mark, u64 size, flag global) {
  u8 stored = 0;
  for (u64 k = 0; k < size; k++) {
    if (mark[k] & 1) return 0;
    stored |= mark[k];
  }
  if (!global || stored) return 1;
  u64 low = address & 15;
  const u8 *memory = (const u8 *)(address - low), *marks = mark - low;
  for (u64 k = 0; k < sizeof PATTERN; k++) {
    if (memory[k] != PATTERN[k] && !marks[k]) return 0;
  }
  return 1;
}

/* The bits of an element whose bytes nobody wrote: 64 of a larger one. */
static u64 raw_bits_of(u64 address, const u8 *mark, u64 size, flag global) {
  u64 bits = 0;
  for (u64 k = 0; k < size && k < sizeof bits; k++) {
    flag raw = !(mark[k] & 1) && (!global || mark[k] || *(const u8 *)(address + k) == PATTERN[(address + k) & 15]);
    if (raw) bits |= 0xffull << 8 * (k & 7);
  }
  return bits;
}

/* A lane loads element `number`, of which some bits were never written: its value is raw, and where it came from is
   kept for who has to say it. */
static NOINLINE void note_raw(struct Place *place, const struct Access *access, u64 number, u64 bits, flag whole,
                              const u8 *mark) {
  struct Tracker *piece = place->piece;
  if (!place->raw) {
    memset(place->raw_lanes, 0, sizeof place->raw_lanes);
    memset(place->raw_bits, 0, sizeof place->raw_bits);
  }
  place->raw = place->ever = piece->raw = 1;
  flag first = 1;
  for (u64 k = 0; k < number && k < VALUES; k++) first &= !place->raw_bits[k][access->lane];
  if (number < VALUES && whole) place->raw_lanes[number] |= 1u << access->lane;
  if (number < VALUES) place->raw_bits[number][access->lane] = bits;
  if (first) {
    u32 parent = 0;
    for (u64 k = 0; k < access->size && !parent; k++) parent = mark[k] & 1 ? 0 : mark[k] / 2u;
    piece->origins[place->first + access->lane] =
        (struct Origin){access->address, access->line, access->flags, (u32)access->size, parent};
  }
}

INLINE void check_init(struct Place *place, const struct Access *access) {
  flag global;
  u8 *mark = marks_of(place, access->address, access->size, &global);
  if (!mark) return;
  if (access->flags & ACCESS_READ) {
    u64 element = element_of(access->flags);
    for (u64 k = 0; k < access->size; k += element) {
      u64 at = access->address + k;
      struct Access part = {access->lane, access->flags, access->line, at, element};
      flag raw = is_raw(at, mark + k, element, global);
      if (raw && !(access->flags & ACCESS_TAKES)) fail(place, &part, FAULT_INIT, CODE_RAW, 0, 0, place->shared);
      u64 bits = raw_bits_of(at, mark + k, element, global);
      if (raw | (bits != 0)) note_raw(place, &part, k / element, bits, raw, mark + k);
    }
  }
  if (access->flags & ACCESS_WRITE) memset(mark, 1, access->size);
}

typedef u16 __attribute__((aligned(1), may_alias)) any_u16;
typedef u32 __attribute__((aligned(1), may_alias)) any_u32;
typedef u64 __attribute__((aligned(1), may_alias)) any_u64;

static const u64 ALL_MARKED = 0x0101010101010101;

/* Whether all of some bytes are marked. */
INLINE flag all_marked(const u8 *mark, u64 size) {
  u64 both = ALL_MARKED, k = 0;
  for (; k + 32 <= size; k += 32) {
    const any_u64 *four = (const any_u64 *)(mark + k);
    both &= four[0] & four[1] & four[2] & four[3];
  }
  for (; k + 8 <= size; k += 8) both &= *(const any_u64 *)(mark + k);
  for (; k < size; k++) both &= mark[k] * ALL_MARKED;
  return both == ALL_MARKED;
}

/* The marks of `lanes`, of a number of a type each, all of them in one; or mark them. */
#define OVER_LANES(type, each)                                                                                     \
  EACH_LANE(lane, lanes) {                                                                                         \
    type *at = (type *)(marks + (addresses[lane] - low));                                                          \
    each;                                                                                                          \
  }
#define BY_SIZE(each_of)                                                                                           \
  switch (size) {                                                                                                  \
  case 1:                                                                                                          \
    OVER_LANES(u8, each_of(u8, 0)) break;                                                                          \
  case 2:                                                                                                          \
    OVER_LANES(any_u16, each_of(u16, 0)) break;                                                                    \
  case 4:                                                                                                          \
    OVER_LANES(any_u32, each_of(u32, 0)) break;                                                                    \
  case 8:                                                                                                          \
    OVER_LANES(any_u64, each_of(u64, 0)) break;                                                                    \
  case 16:                                                                                                         \
    OVER_LANES(any_u64, (each_of(u64, 0), each_of(u64, 1))) break;                                                 \
  default:                                                                                                         \
    return 0;                                                                                                      \
  }
#define GATHER(type, k) all &= at[k] | ~(u64)(type)~(type)0
#define MARK(type, k) at[k] = (type)ALL_MARKED

/* Whether lanes that read find all marked, in marks that begin with the address `low`; what lanes write gets marked. 0
   where that is not known. */
INLINE flag lanes_are_written(u32 lanes, const u64 *addresses, u8 *marks, u64 low, u64 size, u32 flags) {
  u64 all = ~0ull;
  if (flags & ACCESS_READ) {
    BY_SIZE(GATHER)
    if ((all & ALL_MARKED) != ALL_MARKED) return 0;
  }
  if (flags & ACCESS_WRITE) BY_SIZE(MARK)
  return 1;
}

/* Look now and then whether all shared memory of the block was written: then nobody needs its marks any more. */
INLINE void look_for_full(struct Place *place) {
  struct Tracker *piece = place->piece;
  if (piece->full || ++piece->looks < piece->look_at) return;
  piece->look_at = 2 * piece->looks;
  piece->full = all_marked(marks_in(place, piece), place->watch->shared_limit);
}

/* Where the marks of a range are that lies in one piece; `known` gets whether that is so, and null is what has none. */
INLINE u8 *marks_of_range(struct Place *place, u64 low, u64 bytes, flag *known) {
  *known = 1;
  if (in_shared(place, low, bytes)) return place->piece->full ? 0 : marks_in(place, place->piece) + (low - place->shared);
  if (in_one_span(place, low, bytes)) {
    u8 *marks = marks_of_span(place->span);
    return marks ? marks + (low - place->span->begin) : 0;
  }
  *known = 0;
  return 0;
}

/* -- raw values: what they decide, and where they are stored --------------------------------------------------------- */

/* Where the raw value of a lane came from: from what another lane of the warp loaded, if that handed it over. */
static const struct Origin *origin_of(const struct Place *place, u32 lane) {
  const struct Origin *all = &place->piece->origins[place->first];
  for (u32 k = 0; k < WARP && !all[lane].line; k++) {
    if (all[k].line) lane = k;
  }
  return &all[lane];
}

/* Something depends on the raw values of lanes. */
static NORETURN NOINLINE void fail_raw(const struct Place *place, u32 lane, u32 code, u32 line) {
  const struct Origin *origin = origin_of(place, lane);
  struct Access access = {lane, origin->flags, origin->line, origin->address, origin->size};
  fail(place, &access, FAULT_INIT, code, origin->parent, line, place->shared);
}

/* Where the marks of global memory are in which raw values are stored: from now on they are looked at. */
static u8 *marks_to_poison(const struct Place *place, u64 address, u64 size) {
  const struct Span *span = span_of(place, address, size);
  if (!span || !span->marks) return 0;
  struct MarkHead *marks = span->marks;
  cujit_check_lock();
  if (marks->plain) {
    memset(marks + 1, 1, span->end - span->begin);
    __atomic_store_n(&((struct Watch *)place->watch)->poisoned, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&marks->plain, 0, __ATOMIC_RELEASE);
  }
  cujit_check_unlock();
  return (u8 *)(marks + 1) + (address - span->begin);
}

/* The mark of what a lane stores at a line that is raw, in part or as a whole. */
static u32 mark_of_store(const struct Place *place, u32 lane, u32 line, flag partial) {
  const struct Watch *watch = place->watch;
  const struct Origin *origin = origin_of(place, lane);
  const struct Span *span = span_of(place, origin->address, 1);
  u64 from = in_cluster(place, origin->address, 1) ? 1 : in_local(place, lane, origin->address, 1) ? 2 : 0;
  struct Stored one = {watch->serial, span ? span->begin : from, watch->kernel, line, origin->line,
                       origin->parent, (u32)partial, 0};
  struct Stores *all = watch->stores;
  u32 k = 0;
  cujit_check_lock();
  for (; k < all->count; k++) {
    const struct Stored *other = &all->each[k];
    if (other->kernel == one.kernel && other->line == line && other->load == one.load && other->place == one.place &&
        other->parent == one.parent && other->partial == one.partial) {
      break;
    }
  }
  if (k >= STORES - 1) {
    k = STORES - 1;
  } else if (k == all->count) {
    all->each[all->count++] = one;
  }
  cujit_check_unlock();
  return 2 * (k + 1);
}

/* A lane stores what the place says of raw bits. Memory takes them over, if it has marks; else others may see them. */
static void store_raw(struct Place *place, u32 lane, u64 size, u32 flags, u32 line) {
  u64 address = place->addresses[lane], element = element_of(flags), every = element < 8 ? (1ull << 8 * element) - 1 : ~0ull;
  flag global;
  u8 *mark = marks_of(place, address, size, &global);
  if (!mark && in_local(place, lane, address, size)) return;
  if (!mark) mark = marks_to_poison(place, address, size), global = 1;
  for (u64 k = 0; k < size / element && k < VALUES; k++) {
    u64 bits = place->raw_bits[k][lane], raw = 0;
    for (u64 byte = 0; byte < 8; byte++) raw |= bits >> 8 * byte & 0xff ? 0xffull << 8 * byte : 0;
    if (!(raw & every)) continue;
    if (!mark) fail_raw(place, lane, CODE_STORED, line);
    u32 value = global ? mark_of_store(place, lane, line, (raw & every) != every) : 0;
    for (u64 byte = 0; byte < element; byte++) {
      if (raw >> 8 * (byte & 7) & 1) mark[k * element + byte] = (u8)value;
    }
  }
}

/* Not all memory of the block is written any more. */
static void end_full(struct Place *place) {
  struct Tracker *piece = place->piece;
  piece->full = piece->quick = 0, piece->marking = 1;
  memset(piece->seen, 0, sizeof piece->seen);
  if (place->window) place->window[0] = place->window[1] = 0;
}
