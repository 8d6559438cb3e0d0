/* What emitted kernels call for each access and each synchronisation under checks.

   A warp has a Place on its stack, which says where it runs and takes the lanes' addresses. A block has a piece of
   memory behind the shared memory of the blocks that run side by side: a Tracker (the clocks of its warps), one byte
   for each byte of shared memory that says whether it was written, the last accesses of each word, and the events that
   these name.

   Where lanes access what lies side by side, all that is looked at is a row: its ends, its marks, its accesses as
   vectors. A row in which anything is not plainly right is looked at lane by lane, and that alone finds mistakes. */

#include "vectors.h"

#include "launch.h"

#include <stdlib.h>
#include <string.h>

/* What one lane does. */
struct Access {
  u32 lane, flags, line;
  u64 address, size;
};

INLINE u32 last_lane(u32 lanes) { return 31 - (u32)__builtin_clz(lanes); }

/* What the lanes of a warp do whose addresses lie `stride` apart: that of lane 0 would be `base`, and what lanes from the
   first to the last access is in `bytes` from `low` on. It is `dense` where these are all that there is. */
struct Row {
  u32 lanes, flags, line, size, dense;
  u64 base, stride, low, bytes;
};

/* The lines of a site, and for a batch of loads their offsets. */
INLINE const struct Member *members_of(const struct Site *site) { return (const struct Member *)(site + 1); }

/* What lanes of a row do, by one member; or what all members do, which lie in `spread` bytes. */
INLINE void fill_row(struct Row *row, u32 lanes, u64 base, const struct Site *site, u32 spread, u32 line) {
  u64 stride = (u64)site->stride;
  u32 first = first_lane(lanes), last = last_lane(lanes);
  u64 low = base + first * stride, far = (last - first) * stride;
  if (site->stride < 0) low += far, far = -far;
  flag whole = lanes >> (first & 31) == ~0u >> ((31 - last + first) & 31);
  flag dense = whole && (stride == site->size || first == last || !stride) && !spread;
  *row = (struct Row){lanes, site->flags, line, site->size, dense, base, stride, low, far + site->size + spread};
}

/* -- failing, and where things are ------------------------------------------------------------------------------ */

static NORETURN NOINLINE void stop(const struct Place *place, u32 lane, u32 line, u64 address, u32 kind, u64 size,
                                   u32 flags, u32 code, u32 other_thread, u32 other_line, u64 extra) {
  struct Launch *launch = place->launch;
  if (cujit_claim(launch, kind)) {
    cujit_fault_here(launch, place->block, place->first + lane, line, address);
    u64 more[] = {size, flags, code, other_thread, other_line, extra};
    memcpy(launch->fault_more, more, sizeof more);
  }
  cujit_stop();
}

/* By value: what nobody has the address of stays in registers where all goes well. */
INLINE NORETURN void fail(const struct Place *place, const struct Access *access, u32 kind, u32 code, u32 other_thread,
                          u32 other_line, u64 extra) {
  stop(place, access->lane, access->line, access->address, kind, access->size, access->flags, code, other_thread,
       other_line, extra);
}

/* Whether `size` bytes at `offset` lie within `limit`. */
INLINE flag within(u64 offset, u64 size, u64 limit) { return offset <= limit && size <= limit - offset; }

/* The tracker of a block, by its place among those that run side by side. */
static struct Tracker *piece_of(const struct Place *place, u64 side) {
  return (struct Tracker *)(place->group + place->watch->shared_total + side * place->watch->piece_bytes);
}

/* The bytes in it that say which of the block's shared memory was written. */
INLINE u8 *marks_in(const struct Place *place, struct Tracker *piece) { return (u8 *)piece + place->watch->marks; }

INLINE flag in_shared(const struct Place *place, u64 address, u64 size) {
  return within(address - place->shared, size, place->watch->shared_limit);
}

/* -- the device heap: its blocks by address, those that were freed too -------------------------------------------- */

static u32 heap_lock;
static struct Span *heap_spans;
static u64 heap_count, heap_room;

/* A fork is made with the lock: in the child there would be nobody to give it back. */
void cujit_check_lock(void) {
  while (__atomic_exchange_n(&heap_lock, 1, __ATOMIC_ACQUIRE)) {
  }
}

void cujit_check_unlock(void) { __atomic_store_n(&heap_lock, 0, __ATOMIC_RELEASE); }

/* How many of `count` sorted spans begin at or before an address. */
static u64 rank_in(const struct Span *spans, u64 count, u64 address) {
  u64 low = 0, high = count;
  while (low < high) {
    u64 middle = (low + high) / 2;
    if (spans[middle].begin <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* The span that has all of an access, or null. */
static const struct Span *span_in(const struct Span *spans, u64 count, u64 address, u64 size) {
  u64 rank = rank_in(spans, count, address);
  if (!rank) return 0;
  const struct Span *span = &spans[rank - 1];
  return within(address - span->begin, size, span->end - span->begin) ? span : 0;
}

/* Put a block in its place; freed blocks that lay there are forgotten. */
static void heap_add(u64 begin, u64 size) {
  u64 end = begin + size, rank;
  while ((rank = rank_in(heap_spans, heap_count, end - 1)) && heap_spans[rank - 1].end > begin) {
    memmove(&heap_spans[rank - 1], &heap_spans[rank], (heap_count - rank) * sizeof *heap_spans);
    heap_count--;
  }
  if (heap_count == heap_room) {
    u64 wanted = heap_room * 2 + 1024;
    struct Span *larger = realloc(heap_spans, wanted * sizeof *larger);
    if (!larger) return;
    heap_spans = larger;
    heap_room = wanted;
  }
  memmove(&heap_spans[rank + 1], &heap_spans[rank], (heap_count - rank) * sizeof *heap_spans);
  heap_spans[rank] = (struct Span){begin, end, 0, 0};
  heap_count++;
}

/* -- which memory an access is in ---------------------------------------------------------------------------------- */

enum Global { NOTHING, MEMORY, FREED };

static const struct Span *span_of(const struct Place *place, u64 address, u64 size) {
  return span_in(place->watch->spans, place->watch->count, address, size);
}

/* What there is of an access in global memory. */
static enum Global global_state(const struct Place *place, u64 address, u64 size) {
  const struct Span *span = span_of(place, address, size);
  if (span) return span->freed ? FREED : MEMORY;
  cujit_check_lock();
  span = span_in(heap_spans, heap_count, address, size);
  enum Global state = !span ? NOTHING : span->freed ? FREED : MEMORY;
  cujit_check_unlock();
  return state;
}

/* The shared memory of the cluster's blocks. */
static flag in_cluster(const struct Place *place, u64 address, u64 size) {
  const struct Watch *watch = place->watch;
  u64 offset = address - place->cluster;
  if (offset >= watch->cluster_blocks * watch->shared_stride) return in_shared(place, address, size);
  return within(offset % watch->shared_stride, size, watch->shared_limit);
}

/* The thread's local memory: of this function, of the kernel, and, where a kernel calls functions or takes memory on
   the stack, all of its stack. */
static NOINLINE flag in_local(const struct Place *place, u32 lane, u64 address, u64 size) {
  u64 own = place->local_bytes, kernel = place->watch->local_bytes;
  if (within(address - (place->local + lane * own), size, own)) return 1;
  if (within(address - (place->kernel_local + lane * kernel), size, kernel)) return 1;
  return within(address - (u64)__builtin_frame_address(0), size, place->watch->stack_bytes);
}

static flag in_parameters(const struct Place *place, u64 address, u64 size) {
  return within(address - (u64)place->launch->parameters, size, place->watch->parameter_bytes);
}

INLINE enum Global state_of(const struct Place *place, const struct Access *access) {
  u64 address = access->address, size = access->size;
  switch (access->flags >> 8 & 15) {
  case SPACE_SHARED:
    return in_shared(place, address, size) ? MEMORY : NOTHING;
  case SPACE_CLUSTER:
    return in_cluster(place, address, size) ? MEMORY : NOTHING;
  case SPACE_LOCAL:
    return in_local(place, access->lane, address, size) ? MEMORY : NOTHING;
  default:
    if (in_cluster(place, address, size) || in_local(place, access->lane, address, size)) return MEMORY;
    __attribute__((fallthrough));
  case SPACE_GLOBAL:
    return in_parameters(place, address, size) ? MEMORY : global_state(place, address, size);
  }
}

/* Whether all of a range is global memory that was not freed: most often that of the access before. */
INLINE flag in_one_span(struct Place *place, u64 address, u64 size) {
  const struct Span *span = place->span;
  if (span && within(address - span->begin, size, span->end - span->begin)) return 1;
  span = span_of(place, address, size);
  if (!span || span->freed) return 0;
  place->span = span;
  return 1;
}

/* Whether all that a row accesses is there, by one look. */
INLINE flag row_is_memory(struct Place *place, const struct Row *row) {
  u32 space = row->flags >> 8 & 15;
  if ((row->base | row->stride) & ((1u << (row->flags >> 24 & 31)) - 1)) return 0;
  if (space == SPACE_LOCAL) {
    return row->stride == place->local_bytes && within(row->base - place->local, row->size, place->local_bytes);
  }
  if (space != SPACE_GLOBAL && in_shared(place, row->low, row->bytes)) return 1;
  return (space == SPACE_GLOBAL || space == SPACE_GENERIC) && in_one_span(place, row->low, row->bytes);
}

INLINE void check_memory(const struct Place *place, const struct Access *access) {
  u64 align = 1u << (access->flags >> 24 & 31);
  if (access->address & (align - 1)) fail(place, access, FAULT_MEMORY, CODE_MISALIGNED, 0, 0, align);
  enum Global state = state_of(place, access);
  if (state == FREED) fail(place, access, FAULT_MEMORY, CODE_FREED, 0, 0, 0);
  if (state == NOTHING) fail(place, access, FAULT_MEMORY, CODE_OUTSIDE, 0, 0, place->shared);
}

/* -- memory that was never written ---------------------------------------------------------------------------------- */

/* Where the marks of an access are, one byte a byte; null where nobody keeps any. `global` gets whether what is in
   memory counts too: others than kernels write there. */
static u8 *marks_of(const struct Place *place, u64 address, u64 size, flag *global) {
  const struct Watch *watch = place->watch;
  u64 in_group = address - place->group;
  *global = 0;
  if (within(in_group, size, watch->shared_total)) {
    return marks_in(place, piece_of(place, in_group / watch->shared_stride)) + in_group % watch->shared_stride;
  }
  if (within(address - place->kernel_local, size, watch->local_bytes * WARP)) return (u8 *)(address + watch->local_total);
  const struct Span *span = span_of(place, address, size);
  if (!span || !span->marks) return 0;
  *global = 1;
  return span->marks + (address - span->begin);
}

/* Whether an element was never written: no byte of it is marked, and in global memory the sixteen bytes around hold
   what was put there when the memory was made, but for those that are marked. */
static flag is_raw(u64 address, const u8 *mark, u64 size, flag global) {
  for (u64 k = 0; k < size; k++) {
    if (mark[k]) return 0;
  }
  if (!global) return 1;
  u64 low = address & 15;
  const u8 *memory = (const u8 *)(address - low), *marks = mark - low;
  for (u64 k = 0; k < sizeof PATTERN; k++) {
    if (memory[k] != PATTERN[k] && !marks[k]) return 0;
  }
  return 1;
}

INLINE void check_init(const struct Place *place, const struct Access *access) {
  flag global;
  u8 *mark = marks_of(place, access->address, access->size, &global);
  if (!mark) return;
  if (access->flags & ACCESS_READ) {
    u64 element = access->flags >> 16 & 255;
    for (u64 k = 0; k < access->size; k += element) {
      u64 at = access->address + k;
      struct Access part = {access->lane, access->flags, access->line, at, element};
      if (is_raw(at, mark + k, element, global)) fail(place, &part, FAULT_INIT, CODE_RAW, 0, 0, place->shared);
    }
  }
  if (access->flags & ACCESS_WRITE) memset(mark, 1, access->size);
}

/* Whether all of some bytes are marked. */
INLINE flag all_marked(const u8 *mark, u64 size) {
  typedef u64 __attribute__((aligned(1), may_alias)) word;
  const u64 ones = 0x0101010101010101;
  u64 both = ones, k = 0;
  for (; k + 32 <= size; k += 32) {
    const word *four = (const word *)(mark + k);
    both &= four[0] & four[1] & four[2] & four[3];
  }
  for (; k + 8 <= size; k += 8) both &= *(const word *)(mark + k);
  for (; k < size; k++) both &= mark[k] * ones;
  return both == ones;
}

/* How many offsets into shared memory begin a row of words of a whole warp. */
INLINE u64 common_of(const struct Place *place) {
  u64 limit = place->watch->shared_limit, row = WARP * sizeof(u32);
  return limit < row ? 0 : limit - row + 1;
}

/* Look now and then whether all shared memory of the block was written: then nobody needs its marks any more. */
INLINE void look_for_full(struct Place *place) {
  struct Tracker *piece = place->piece;
  if (piece->full || ++piece->looks < piece->look_at) return;
  piece->look_at = 2 * piece->looks;
  piece->full = all_marked(marks_in(place, piece), place->watch->shared_limit);
  if (piece->full && !piece->by_bytes) piece->common = common_of(place);
}

/* Where the marks of a range are that lies in one piece; `known` gets whether that is so, and null is what has none. */
INLINE u8 *marks_of_range(struct Place *place, u64 low, u64 bytes, flag *known) {
  *known = 1;
  if (in_shared(place, low, bytes)) return place->piece->full ? 0 : marks_in(place, place->piece) + (low - place->shared);
  if (in_one_span(place, low, bytes)) return place->span->marks ? place->span->marks + (low - place->span->begin) : 0;
  *known = 0;
  return 0;
}

/* -- races ----------------------------------------------------------------------------------------------------------- */

/* The check for races.

   An access is ordered after another one if a chain of barriers, mbarriers or atomic operations leads from there to
   here; within a warp any .sync operation of it orders.

   Source for the clocks: C. Flanagan, S. N. Freund, "FastTrack: efficient and precise dynamic race detection", 2009. */

/* -- clocks --------------------------------------------------------------------------------------------------------- */

/* to = the later of both, clock by clock. */
static void join(const struct Place *place, u32 *to, const u32 *from) {
  for (u32 k = 0; k < place->watch->warps; k++) to[k] = to[k] > from[k] ? to[k] : from[k];
}

INLINE u32 *own_clock(const struct Place *place) { return place->piece->clocks[place->warp]; }

/* What this warp did so far is known to whoever takes it over from `clock`. */
static void release(const struct Place *place, u32 *clock) {
  u32 *row = own_clock(place);
  join(place, clock, row);
  row[place->warp]++;
  place->piece->stirred = 1;
}

/* From now on more than barriers of all warps orders: what each of these did stands in every clock. */
static NOINLINE void end_plain(struct Tracker *piece) {
  for (u32 w = 0; w < WARPS; w++) {
    for (u32 k = 0; k < WARPS; k++) piece->clocks[w][k] += piece->turn;
    piece->syncs[w] += piece->turn;
  }
  piece->plain = piece->turn = 0;
  piece->stirred = 1;
}

/* The clock of an object at an address: objects far apart may have one in common, which hides races and makes none. */
INLINE u32 *object_of(const struct Place *place, u64 address) {
  if (place->piece->plain) end_plain(place->piece);
  place->piece->has_objects = 1;
  return place->piece->objects[address / 4 % OBJECTS];
}

/* A barrier has a clock for each of two generations: warps may be one ahead. */
INLINE struct Slot *slot_of(const struct Place *place, u32 id, u32 generation) {
  return &place->piece->slots[id][generation & 1];
}

/* Lanes of this warp have met. */
INLINE void synced(const struct Place *place) {
  place->piece->syncs[place->warp]++;
  place->piece->met[place->warp] = place->piece->events + 1;
  place->piece->stirred = 1;
}

/* -- records: what accessed a word last ----------------------------------------------------------------------------

   A record is the number of an event, what a warp did by one instruction, and the thread's in the low bits; 0 is
   nobody. There is one for each word of shared memory until something smaller is accessed, then one for each byte. */

enum { THREAD_BITS = 10, THREADS = 1 << THREAD_BITS, LEAST_EVENTS = 4096 };

INLINE struct Event *events_of(const struct Place *place) {
  return (struct Event *)((u8 *)place->piece + place->watch->events);
}

/* The records of the word or byte at an offset into shared memory: who wrote it, and two who read it since. */
struct Entry {
  u32 *writer;
  u64 far;
};

INLINE u32 *one_of(struct Entry entry) { return entry.writer + entry.far; }
INLINE u32 *two_of(struct Entry entry) { return entry.writer + 2 * entry.far; }

INLINE struct Entry entry_at(const struct Place *place, u64 offset) {
  const struct Watch *watch = place->watch;
  u32 *first = (u32 *)((u8 *)place->piece + watch->entries) + (place->piece->by_bytes ? offset : offset / 4);
  return (struct Entry){first, watch->shared_stride};
}

INLINE u64 records_of(const struct Place *place) {
  return place->piece->by_bytes ? place->watch->shared_stride : place->watch->shared_stride / 4;
}

/* The records of the words of a strip, where each is that of a thread and those of the words behind are of the threads
   behind it: then there is one for all of them, and none in the words. */
enum { STRIP = WARP, STRIP_BYTES = 4 * STRIP, APART = -1 };

INLINE struct Entry strip_at(const struct Place *place, u64 offset) {
  return (struct Entry){(u32 *)(place->piece + 1) + offset / STRIP_BYTES * 4, 1};
}

static NOINLINE void spread_strip(const struct Place *place, u64 offset) {
  struct Entry strip = strip_at(place, offset), entry = entry_at(place, offset & -STRIP_BYTES);
  u32 *of[] = {strip.writer, one_of(strip), two_of(strip)}, *to[] = {entry.writer, one_of(entry), two_of(entry)};
  for (u32 kind = 0; kind < 3; kind++) {
    u32 record = *of[kind];
    for (u32 k = 0; k < STRIP; k++) to[kind][k] = record ? record + k : 0;
  }
  *strip.writer = (u32)APART;
}

/* Have records in all words of a range. */
INLINE void spread(const struct Place *place, u64 offset, u64 size) {
  if (place->piece->by_bytes) return;
  for (u64 at = offset & -STRIP_BYTES; at < offset + size; at += STRIP_BYTES) {
    if (*strip_at(place, at).writer != (u32)APART) spread_strip(place, at);
  }
}

/* From now on there is a record for each byte. */
static NOINLINE void split_words(const struct Place *place) {
  spread(place, 0, place->watch->shared_stride);
  struct Entry entry = entry_at(place, 0);
  u32 *kinds[] = {entry.writer, one_of(entry), two_of(entry)};
  for (u32 kind = 0; kind < 3; kind++) {
    for (u64 k = place->watch->shared_stride; k--;) kinds[kind][k] = kinds[kind][k / 4];
  }
  place->piece->by_bytes = 1;
  place->piece->common = 0;
}

/* Forget the events that no record names; what is left keeps its order. `moved` are the new numbers. */
static NOINLINE void forget_events(const struct Place *place) {
  struct Tracker *piece = place->piece;
  struct Event *events = events_of(place);
  u32 *moved = (u32 *)(events + place->watch->most_events), count = piece->events, named = 0;
  struct Entry entry = entry_at(place, 0);
  u32 *kinds[] = {entry.writer, one_of(entry), two_of(entry)}, *marks[] = {piece->settled, piece->met};
  u64 records = records_of(place);
  spread(place, 0, place->watch->shared_stride);
  memset(moved, 0, (count + 2) * sizeof *moved);
  for (u32 kind = 0; kind < 3; kind++) {
    for (u64 k = 0; k < records; k++) moved[kinds[kind][k] >> THREAD_BITS] = 1;
  }
  for (u32 k = 1; k <= count + 1; k++) {
    u32 is_named = moved[k];
    moved[k] = named + 1;
    if (is_named) events[++named] = events[k];
  }
  moved[0] = 0;
  for (u32 kind = 0; kind < 3; kind++) {
    for (u64 k = 0; k < records; k++) {
      u32 record = kinds[kind][k];
      kinds[kind][k] = moved[record >> THREAD_BITS] << THREAD_BITS | (record & (THREADS - 1));
    }
  }
  for (u32 k = 0; k < 2 * WARPS; k++) marks[k / WARPS][k % WARPS] = moved[marks[k / WARPS][k % WARPS]];
  for (u32 k = 0; k < 2 * SLOTS; k++) piece->slots[k / 2][k % 2].events = moved[piece->slots[k / 2][k % 2].events];
  piece->written = moved[piece->written];
  piece->events = named;
  u64 wanted = 2 * named + LEAST_EVENTS, most = place->watch->most_events - 2;
  piece->room = (u32)(wanted < most ? wanted : most);
}

/* Note that the warp does something, and give the number of that. */
INLINE u32 new_event(const struct Place *place, u32 flags, u32 line) {
  struct Tracker *piece = place->piece;
  if (piece->events >= piece->room) forget_events(place);
  u32 warp = place->warp;
  events_of(place)[++piece->events] = (struct Event){
      piece->clocks[warp][warp] + piece->turn, piece->syncs[warp] + piece->turn, line, flags,
  };
  return piece->events;
}

/* One lane's access as records know it. */
struct Now {
  u32 thread, event, flags;
};

/* Whether two accesses of a byte are a race: `record` is the earlier one. */
INLINE flag unordered(const struct Place *place, u32 record, const struct Now *now, u32 flags) {
  u32 other = record & (THREADS - 1), thread = now->thread, warp = place->warp;
  const struct Event *event = &events_of(place)[record >> THREAD_BITS];
  const struct Tracker *piece = place->piece;
  if (!record || other == thread) return 0;
  if (event->flags & flags & ACCESS_STRONG) return 0;
  if (warp == other / WARP) return event->sync == piece->syncs[warp] + piece->turn && record >> THREAD_BITS != now->event;
  return event->clock > piece->clocks[warp][other / WARP] + piece->turn;
}

/* Which of the two records of readers a read takes: its own or a free one; else one of its warp, so that the other
   warp's stays; else the first if that is ordered before it. */
INLINE u32 *reader_for(const struct Place *place, struct Entry entry, const struct Now *now) {
  u32 one = *one_of(entry), two = *two_of(entry), mine = now->thread, warp = place->warp;
  u32 first = one & (THREADS - 1), second = two & (THREADS - 1);
  if (!one || first == mine) return one_of(entry);
  if (!two || second == mine || second / WARP == warp) return two_of(entry);
  if (first / WARP == warp) return one_of(entry);
  return unordered(place, one, now, 0) ? two_of(entry) : one_of(entry);
}

INLINE NORETURN void race(const struct Place *place, const struct Access *access, u32 record) {
  const struct Event *event = &events_of(place)[record >> THREAD_BITS];
  u64 extra = event->flags | (access->address - place->shared) << 32;
  fail(place, access, FAULT_RACE, CODE_UNORDERED, record & (THREADS - 1), event->line, extra);
}

/* -- accesses of shared memory: a lane ----------------------------------------------------------------------------- */

/* Whether a store of known values leaves a byte as it is: then nobody minds who was first. */
INLINE flag is_same(const struct Place *place, const struct Access *access, u64 k) {
  if (!place->data) return 0;
  u64 bytes = place->part_bytes, part = k / bytes, inside = k % bytes;
  return place->data[part * bytes * WARP + access->lane * bytes + inside] == *(const u8 *)(access->address + k);
}

INLINE void note_write(const struct Place *place, struct Entry entry, const struct Now *now) {
  u32 before = *entry.writer;
  const struct Event *event = &events_of(place)[before >> THREAD_BITS];
  *one_of(entry) = *two_of(entry) = 0;
  /* A plain write that the same thread made just before says more than its atomic one. */
  flag own = before && (before & (THREADS - 1)) == now->thread && event->clock == own_clock(place)[place->warp] + place->piece->turn;
  flag weaker = !(event->flags & ACCESS_STRONG) && now->flags & ACCESS_STRONG;
  place->piece->written = now->event;
  if (!(own && weaker)) *entry.writer = now->event << THREAD_BITS | now->thread;
}

/* Look at the bytes from `k` on that have one record, and note the access. */
INLINE void check_entry(const struct Place *place, const struct Access *access, const struct Now *now, u64 k, u64 step) {
  struct Entry entry = entry_at(place, access->address - place->shared + k);
  flag after = unordered(place, *entry.writer, now, now->flags);
  if (after && !is_same(place, access, k)) race(place, access, *entry.writer);
  if (access->flags & ACCESS_WRITE) {
    if (unordered(place, *one_of(entry), now, now->flags)) race(place, access, *one_of(entry));
    if (unordered(place, *two_of(entry), now, now->flags)) race(place, access, *two_of(entry));
  }
  for (u64 j = 1; after && j < step; j++) {
    if (!is_same(place, access, k + j)) race(place, access, *entry.writer);
  }
  if (access->flags & ACCESS_WRITE) {
    note_write(place, entry, now);
  } else {
    *reader_for(place, entry, now) = now->event << THREAD_BITS | now->thread;
  }
}

INLINE void check_race(const struct Place *place, const struct Access *access, u32 event) {
  u64 offset = access->address - place->shared;
  if (!in_shared(place, access->address, access->size)) return;
  if ((offset | access->size) & 3 && !place->piece->by_bytes) split_words(place);
  spread(place, offset, access->size);
  struct Now now = {place->first + access->lane, event, access->flags};
  u64 step = place->piece->by_bytes ? 1 : 4;
  for (u64 k = 0; k < access->size; k += step) check_entry(place, access, &now, k, step);
}

/* Whether two lanes store the same: `parts` items of some bytes a lane, each part one vector of the warp. */
static flag stores_same(const u8 *data, u64 bytes, u64 parts, u32 lane, u32 mate) {
  for (u64 part = 0; part < parts; part++) {
    const u8 *vector = data + part * bytes * WARP;
    for (u64 k = 0; k < bytes; k++) {
      if (vector[lane * bytes + k] != vector[mate * bytes + k]) return 0;
    }
  }
  return 1;
}

/* -- accesses of shared memory: a row ------------------------------------------------------------------------------

   By numbers of events alone. What came before the last barrier of all warps, as long as these are all that order
   (`plain`), is settled: it is ordered before what the warp does now. What came after the lanes of the warp have met is
   known of its own lanes. All else is unordered, or is left to who looks at every lane. */

typedef u32 __attribute__((ext_vector_type(16), aligned(4), may_alias)) words;
enum { PART = 16 };

/* What a row of one warp goes by, each as the record that would be the first. */
struct Bounds {
  u32 settled, met, now, warp;
};

/* All ones where a record may be of an access that is a race with that of `thread` now. */
INLINE words may_race(words record, words thread, const struct Bounds *bounds) {
  words recent = (words)(record >= bounds->settled), other = (words)((record & (THREADS - 1)) != thread);
  words own = (words)(((record ^ bounds->warp) & (THREADS - WARP)) == 0) & (words)(record < bounds->met);
  return recent & other & ~own;
}

INLINE flag any(words mask) { return __builtin_reduce_or(mask) != 0; }

/* Written so that LLVM makes no store with a mask of it, which takes some processors many times as long. */
INLINE void put(u32 *at, words mask, words value) {
  words old = *(words *)at;
  *(words *)at = old ^ (mask & (old ^ value));
}

/* Where the threads that read take their records, as `reader_for` says; 0 where that is not known. */
INLINE flag note_readers(struct Entry entry, words lanes, words thread, const struct Bounds *bounds, flag plain) {
  words one = *(words *)one_of(entry), two = *(words *)two_of(entry);
  words own_one = (words)(((one ^ bounds->warp) & (THREADS - WARP)) == 0);
  words own_two = (words)(((two ^ bounds->warp) & (THREADS - WARP)) == 0);
  words first = (words)(one == 0) | (words)((one & (THREADS - 1)) == thread);
  words second = ~first & ((words)(two == 0) | own_two);
  words rest = ~first & ~second & ~own_one & (words)(one >= bounds->settled);
  if (!plain && any(rest & lanes)) return 0;
  second |= rest;
  put(one_of(entry), lanes & ~second, thread | bounds->now);
  put(two_of(entry), lanes & second, thread | bounds->now);
  return 1;
}

/* The next words of a row, of which `lanes` are those that are accessed. */
INLINE flag part_is_ordered(struct Entry entry, words lanes, words thread, const struct Bounds *bounds, flag writes,
                            flag plain) {
  words bad = may_race(*(words *)entry.writer, thread, bounds);
  if (!writes) return !any(bad & lanes) && note_readers(entry, lanes, thread, bounds, plain);
  bad |= may_race(*(words *)one_of(entry), thread, bounds) | may_race(*(words *)two_of(entry), thread, bounds);
  if (any(bad & lanes)) return 0;
  put(entry.writer, lanes, thread | bounds->now);
  put(one_of(entry), lanes, lanes ^ lanes);
  put(two_of(entry), lanes, lanes ^ lanes);
  return 1;
}

/* A strip whose words threads access side by side, of which `thread` is the first; as `part_is_ordered` for one word. */
INLINE flag strip_is_ordered(struct Entry strip, u32 thread, const struct Bounds *bounds, flag writes, flag plain) {
  u32 records[] = {*strip.writer, *one_of(strip), *two_of(strip)}, now = bounds->now | thread;
  flag owns[3];
  for (u32 k = 0; k < 3; k++) {
    u32 record = records[k];
    owns[k] = !((record ^ bounds->warp) & (THREADS - WARP));
    flag recent = record >= bounds->settled && (record & (THREADS - 1)) != thread;
    if ((writes || !k) && recent && !(owns[k] && record < bounds->met)) return 0;
  }
  u32 one = records[1], two = records[2];
  if (writes) {
    *strip.writer = now;
    *one_of(strip) = *two_of(strip) = 0;
  } else if (!one || (one & (THREADS - 1)) == thread) {
    *one_of(strip) = now;
  } else if (!two || owns[2]) {
    *two_of(strip) = now;
  } else if (owns[1] || one < bounds->settled) {
    *one_of(strip) = now;
  } else {
    if (!plain) return 0;
    *two_of(strip) = now;
  }
  return 1;
}

/* One word that several lanes read: what `reader_for` makes of them one after the other. */
INLINE flag common_is_ordered(struct Entry entry, u32 lanes, const struct Bounds *bounds, flag plain) {
  u32 writer = *entry.writer, one = *one_of(entry), two = *two_of(entry), now = bounds->now;
  u32 first = bounds->warp | first_lane(lanes), last = bounds->warp | last_lane(lanes);
  flag own_writer = !((writer ^ bounds->warp) & (THREADS - WARP));
  flag own_one = !((one ^ bounds->warp) & (THREADS - WARP)), own_two = !((two ^ bounds->warp) & (THREADS - WARP));
  if (writer >= bounds->settled && !(own_writer && writer < bounds->met)) return 0;
  if (!one || (one & (THREADS - 1)) == first) {
    *one_of(entry) = now | first;
    if (first != last) *(!two || own_two ? two_of(entry) : one_of(entry)) = now | last;
  } else if (!two || own_two) {
    u32 lane = one & (WARP - 1);
    if (one && own_one && lanes >> (lane & 31) & 1) return 0;
    *two_of(entry) = now | last;
  } else if (own_one || one < bounds->settled) {
    *one_of(entry) = now | last;
  } else {
    if (!plain) return 0;
    *two_of(entry) = now | last;
  }
  return 1;
}

/* The first event that may be unordered with what the warp does now. */
INLINE u32 settled_of(const struct Place *place) { return place->piece->settled[place->warp]; }

/* Whether a row of plain accesses to shared memory is no race, which is then noted; 0 where each lane has to be looked
   at, of which some may be noted. To note an access once more changes nothing. */
static flag row_is_ordered(const struct Place *place, const struct Row *row, u32 event) {
  struct Tracker *piece = place->piece;
  u32 lane = first_lane(row->lanes), size = row->size;
  flag writes = row->flags & ACCESS_WRITE, plain = piece->plain;
  if (piece->by_bytes || row->flags & ACCESS_STRONG || (row->low | size) & 3) return 0;
  struct Entry entry = entry_at(place, row->low - place->shared);
  struct Bounds bounds = {
      settled_of(place) << THREAD_BITS, piece->met[place->warp] << THREAD_BITS, event << THREAD_BITS, place->first,
  };
  u64 offset = row->low - place->shared;
  flag strips = row->dense && size == 4 && !((offset | row->bytes | lane * 4) & (STRIP_BYTES - 1));
  if (!strips) spread(place, offset, row->bytes);
  if (!row->stride && !writes) {
    for (u32 k = 0; k < size / 4; k++) {
      struct Entry each = {entry.writer + k, entry.far};
      if (!common_is_ordered(each, row->lanes, &bounds, plain)) return 0;
    }
    return 1;
  }
  if (!row->dense || (!row->stride && row->lanes & (row->lanes - 1))) return 0;
  if (writes) piece->written = event;
  const words count = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  u32 all = (u32)(row->bytes / 4), log = size / 8;
  for (u32 k = 0; k < all; k += PART) {
    struct Entry each = {entry.writer + k, entry.far};
    words thread = ((count + k) >> (log & 3)) + (place->first + lane), lanes = (words)(count + k < all);
    struct Entry strip = strip_at(place, offset + k * 4);
    if (strips && *strip.writer != (u32)APART) {
      if (!strip_is_ordered(strip, place->first, &bounds, writes, plain)) return 0;
      k += STRIP - PART;
      continue;
    }
    if (!part_is_ordered(each, lanes, thread, &bounds, writes, plain)) return 0;
    if (!strips || !writes || k % STRIP != STRIP - PART) continue;
    *strip.writer = event << THREAD_BITS | place->first;
    *one_of(strip) = *two_of(strip) = 0;
  }
  return 1;
}

/* -- reads that are logged ------------------------------------------------------------------------------------------- */

/* Log what a row reads, or all members of a site, where nothing that was written may be unordered with it. */
INLINE flag log_reads(const struct Place *place, const struct Row *row, const struct Site *site) {
  struct Tracker *piece = place->piece;
  flag aligned = !((row->base | row->stride | row->size) & 3);
  if (piece->by_bytes || row->flags & ACCESS_STRONG || !aligned || piece->logged == LOG) return 0;
  if (piece->written >= settled_of(place)) return 0;
  piece->log[piece->logged++] = (struct Logged){site, row->base, row->lanes, place->warp};
  return 1;
}

static NOINLINE void note_logged(struct Place *place) {
  struct Tracker *piece = place->piece;
  u32 count = piece->logged, warp = place->warp;
  piece->logged = 0;
  for (u32 k = 0; k < count; k++) {
    const struct Logged *logged = &piece->log[k];
    place->warp = logged->warp, place->first = logged->warp * WARP;
    for (u32 m = 0; m < logged->site->count; m++) {
      const struct Member *member = &members_of(logged->site)[m];
      struct Row row;
      fill_row(&row, logged->lanes, logged->base + member->offset, logged->site, 0, member->line);
      u32 event = new_event(place, row.flags, row.line);
      if (row_is_ordered(place, &row, event)) continue;
      EACH_LANE(lane, row.lanes) {
        struct Access access = {lane, row.flags, row.line, row.base + lane * row.stride, row.size};
        check_race(place, &access, event);
      }
    }
  }
  place->warp = warp, place->first = warp * WARP;
}

/* Who looks at records, or changes what is ordered, has all reads noted before. */
INLINE void note_reads(struct Place *place) {
  if (place->watch->checks & CHECK_RACE && place->piece->logged) note_logged(place);
}

/* -- where the warp is ---------------------------------------------------------------------------------------------- */

/* As if nothing but barriers of all warps had ever ordered anything. */
static NOINLINE void clear_clocks(struct Tracker *piece, u32 warps) {
  memset(piece->clocks, 0, warps * sizeof *piece->clocks);
  memset(piece->syncs, 0, sizeof piece->syncs);
  memset(piece->arrivals, 0, warps * sizeof *piece->arrivals);
  for (u32 w = 0; w < WARPS; w++) piece->met[w] = 1;
  for (u32 w = 0; w < warps; w++) piece->clocks[w][w] = 1;
  for (u32 k = 0; k < SLOTS; k++) {
    for (u32 g = 0; g < 2; g++) piece->slots[k][g].generation = ~0u, piece->slots[k][g].events = 0;
  }
}

/* What the block needs, once for each block. */
static void make_piece_ready(const struct Place *place) {
  const struct Watch *watch = place->watch;
  u64 mine = watch->serial + place->block;
  struct Tracker *piece = place->piece;
  if (!watch->piece_bytes || piece->owner == mine) return;
  piece->full = piece->looks = piece->look_at = piece->logged = piece->written = 0;
  if (watch->checks & CHECK_INIT) memset(marks_in(place, piece), 0, watch->shared_stride);
  if (watch->checks & CHECK_RACE) {
    /* Memory of a launch before may hold anything. */
    flag is_first = piece->launch != watch->serial;
    if (is_first || piece->has_objects) memset(piece->objects, 0, sizeof piece->objects);
    if (is_first || piece->stirred) clear_clocks(piece, watch->warps);
    piece->has_objects = piece->stirred = piece->by_bytes = piece->events = piece->turn = 0;
    piece->plain = 1;
    piece->room = LEAST_EVENTS;
    piece->common = watch->checks & CHECK_INIT ? 0 : common_of(place);
    for (u32 w = 0; w < WARPS; w++) piece->settled[w] = 1;
    memset(strip_at(place, 0).writer, 0, watch->shared_stride / STRIP_BYTES * 4 * sizeof(u32));
  }
  piece->launch = watch->serial;
  piece->owner = mine;
}

/* A new block, or a new launch. */
static NOINLINE void begin_block(struct Place *place) {
  const struct Watch *watch = place->launch->checks;
  place->seen_block = place->block;
  place->watch = watch;
  /* Blocks whose warps have no stacks run one after the other, in the same shared memory. */
  place->side = place->state ? place->state->side : 0;
  place->group = place->shared - place->side * watch->shared_stride;
  place->piece = piece_of(place, place->side);
  make_piece_ready(place);
}

INLINE void begin(struct Place *place) {
  if (place->block != place->seen_block) begin_block(place);
  const struct Watch *watch = place->watch;
  place->seen_warp = place->warp;
  place->first = place->warp * WARP;
  u64 local_warp = watch->local_bytes * WARP;
  place->local = place->local_first + place->warp * place->local_step;
  if (place->called) {
    place->kernel_local = (u64)place->state->local + place->warp * local_warp;
    return;
  }
  place->kernel_local = place->local;
  if (!local_warp || place->goes_on || !(watch->checks & CHECK_INIT)) return;
  memset((u8 *)(place->local + watch->local_total), 0, local_warp);
}

/* Where the emitted code says that it is may be a new warp, a new block, a new launch: make their memory ready. */
INLINE void enter(struct Place *place) {
  struct Launch *launch = place->launch;
  /* Before the instruction behind the call. */
  if (__atomic_load_n(&launch->poked, __ATOMIC_RELAXED)) cujit_pause(launch, (u64)__builtin_return_address(0) - 1);
  if (place->block != place->seen_block || place->warp != place->seen_warp) begin(place);
}

/* A warp begins, whose local memory nobody has written. */
void cujit_check_begin(struct Place *place) { enter(place); }

/* -- accesses ------------------------------------------------------------------------------------------------------- */

INLINE void check_one(const struct Place *place, const struct Access *access, u32 checks, u32 event) {
  u32 flags = access->flags, orders = flags & (ACCESS_ACQUIRE | ACCESS_RELEASE);
  if (checks & CHECK_MEMORY) check_memory(place, access);
  if (checks & CHECK_RACE && flags & ACCESS_ACQUIRE) {
    join(place, own_clock(place), object_of(place, access->address));
    synced(place); /* lanes of one warp may wait for each other in this way, too */
  }
  if (checks & CHECK_INIT) check_init(place, access);
  /* Each lane that orders something is an event of its own. */
  if (checks & CHECK_RACE) check_race(place, access, orders ? new_event(place, flags, access->line) : event);
  if (checks & CHECK_RACE && flags & ACCESS_RELEASE) release(place, object_of(place, access->address));
}

/* Whether an access is of no shared memory, whatever its address. */
INLINE flag is_elsewhere(u32 flags) {
  u32 space = flags >> 8 & 15;
  return space == SPACE_GLOBAL || space == SPACE_LOCAL || space == SPACE_PARAM;
}

/* The number of an access as an event, if it may be of shared memory: that of the row before, if it goes on with it. */
INLINE u32 event_of(const struct Place *place, u32 checks, u32 flags, u32 line) {
  if (!(checks & CHECK_RACE) || is_elsewhere(flags)) return 0;
  return flags & ACCESS_AGAIN ? place->piece->events : new_event(place, flags, line);
}

/* Marks that lie in one piece: whether lanes that read find all marked; what lanes write gets marked. */
INLINE flag lanes_are_written(const struct Place *place, u32 lanes, u8 *marks, u64 low, u64 size, u32 flags) {
  if (flags & ACCESS_READ) {
    EACH_LANE(lane, lanes) {
      if (!all_marked(marks + (place->addresses[lane] - low), size)) return 0;
    }
  }
  if (flags & ACCESS_WRITE) {
    EACH_LANE(mate, lanes) memset(marks + (place->addresses[mate] - low), 1, size);
  }
  return 1;
}

/* Which checks are left for every lane of an access at addresses of its own, by one look at all of them. */
INLINE u32 checks_left(struct Place *place, u32 lanes, u64 size, u32 flags) {
  u32 checks = place->watch->checks, space = flags >> 8 & 15;
  if (!size || !lanes || flags & (ACCESS_ACQUIRE | ACCESS_RELEASE)) return checks;
  const u64x32 every = *(const u64x32 *)place->addresses;
  u64 low = ~0ull, high = 0, bits = 0;
  if (lanes == ~0u) {
    low = __builtin_reduce_min(every), high = __builtin_reduce_max(every), bits = __builtin_reduce_or(every);
  } else {
    EACH_LANE(lane, lanes) {
      u64 address = place->addresses[lane];
      low = address < low ? address : low, high = address > high ? address : high, bits |= address;
    }
  }
  flag aligned = !(bits & ((1u << (flags >> 24 & 31)) - 1)), known;
  if (!within(high - low, size, ~0ull) || space == SPACE_LOCAL || !aligned) return checks;
  u64 bytes = high - low + size;
  flag shared = space != SPACE_GLOBAL && in_shared(place, low, bytes);
  if (!shared && ((space != SPACE_GLOBAL && space != SPACE_GENERIC) || !in_one_span(place, low, bytes))) return checks;
  u32 left = shared ? checks & ~CHECK_MEMORY : checks & CHECK_INIT;
  if (!(left & CHECK_INIT) || left & CHECK_RACE) return left;
  u8 *marks = marks_of_range(place, low, bytes, &known);
  return !marks || lanes_are_written(place, lanes, marks, low, size, flags) ? left & ~CHECK_INIT : left;
}

/* `lanes` access `size` bytes each (0: as many as `values` say) at `addresses`. */
void cujit_check_access(struct Place *place, u32 lanes, u64 size, u32 flags, u32 line) {
  enter(place);
  u32 checks = checks_left(place, lanes, size, flags);
  if (!checks) return;
  if (checks & CHECK_RACE && !is_elsewhere(flags)) note_reads(place);
  u32 event = event_of(place, checks, flags, line);
  EACH_LANE(lane, lanes) {
    struct Access access = {lane, flags, line, place->addresses[lane], size ? size : place->values[lane]};
    if (access.size) check_one(place, &access, checks, event);
  }
}

/* Lane by lane. */
static NOINLINE void check_lanes(struct Place *place, const struct Row *row, u32 event) {
  EACH_LANE(lane, row->lanes) {
    struct Access access = {lane, row->flags, row->line, row->base + lane * row->stride, row->size};
    check_one(place, &access, place->watch->checks, event);
  }
}

/* Whether all of a row is memory that was written or is written now, by one look at it. */
INLINE flag row_is_there(struct Place *place, const struct Row *row) {
  u32 checks = place->watch->checks, flags = row->flags;
  if (checks & CHECK_MEMORY && !row_is_memory(place, row)) return 0;
  if (!(checks & CHECK_INIT)) return 1;
  flag known;
  u8 *marks = marks_of_range(place, row->low, row->bytes, &known);
  if (!marks) return known;
  if (flags & ACCESS_READ) {
    if (!all_marked(marks, row->bytes)) return 0;
    if (in_shared(place, row->low, row->bytes)) look_for_full(place);
  }
  return flags & ACCESS_READ || row->dense;
}

/* What a row writes is written from now on. */
INLINE void mark_row(struct Place *place, const struct Row *row) {
  flag known;
  if (!(place->watch->checks & CHECK_INIT) || !(row->flags & ACCESS_WRITE)) return;
  u8 *marks = marks_of_range(place, row->low, row->bytes, &known);
  if (marks) memset(marks, 1, row->bytes);
}

/* Remember the memory that a row is in, if other rows there need no look but whether they are: `window` gets where it
   begins, and its size. */
INLINE void open_window(struct Place *place, const struct Row *row, u64 *window) {
  u32 checks = place->watch->checks;
  if (!window || !(checks & (CHECK_MEMORY | CHECK_INIT))) return;
  if (in_shared(place, row->low, row->bytes)) {
    if (checks & CHECK_INIT && !(place->piece->full && place->goes_on)) return;
    window[0] = place->shared, window[1] = place->watch->shared_limit;
  } else {
    if (!in_one_span(place, row->low, row->bytes) || (checks & CHECK_INIT && place->span->marks)) return;
    window[0] = place->span->begin, window[1] = place->span->end - place->span->begin;
  }
}

/* Whether a record is no race with what `thread` does now. */
INLINE flag is_settled(u32 record, u32 thread, u32 settled) {
  return record < settled << THREAD_BITS || (record & (THREADS - 1)) == thread;
}

/* Whether a strip that a row accesses was accessed by no other warp since the last barrier: then it takes the record. */
INLINE flag strip_is_common(const struct Place *place, u64 offset, const struct Site *site, u32 settled, flag writes) {
  struct Tracker *piece = place->piece;
  u32 thread = place->warp * WARP, *strip = strip_at(place, offset).writer, one = strip[1];
  if (offset & (STRIP_BYTES - 1) || piece->logged || piece->events >= piece->room) return 0;
  /* The thread of a strip that is APART is that of no first lane. */
  if (!is_settled(strip[0], thread, settled)) return 0;
  if (writes ? !is_settled(one, thread, settled) || !is_settled(strip[2], thread, settled)
             : one && (one & (THREADS - 1)) != thread) {
    return 0;
  }
  u32 event = new_event(place, site->flags, members_of(site)->line);
  strip[writes ? 0 : 1] = event << THREAD_BITS | thread;
  if (writes) strip[1] = strip[2] = 0, piece->written = event;
  return 1;
}

/* The common ways of a full row of words of shared memory, in a few instructions: reads behind all writes are logged,
   else strips take the record. 0: the row has to be looked at. Who polls comes to `enter` before long: the log gets
   full, or the events. */
INLINE flag row_is_common(struct Place *place, u32 lanes, u64 base, const struct Site *site, flag writes) {
  struct Tracker *piece = place->piece;
  u64 offset = base - place->shared;
  if (lanes != ~0u || place->block != place->seen_block || offset >= piece->common) return 0;
  u32 settled = settled_of(place);
  if (writes || piece->written >= settled) return strip_is_common(place, offset, site, settled, writes);
  if (offset & 3 || piece->logged == LOG) return 0;
  piece->log[piece->logged++] = (struct Logged){site, base, lanes, place->warp};
  return 1;
}

/* `lanes` access what a site says, at `base` and its stride times their number. */
NOINLINE void cujit_check_row(struct Place *place, u32 lanes, u64 base, const struct Site *site, u64 *window) {
  enter(place);
  u32 flags = site->flags, line = members_of(site)->line, event = 0;
  flag races = place->watch->checks & CHECK_RACE && !is_elsewhere(flags), writes = flags & ACCESS_WRITE;
  if (races && writes) {
    note_reads(place);
    event = event_of(place, CHECK_RACE, flags, line);
  }
  if (!lanes) return;
  struct Row row;
  fill_row(&row, lanes, base, site, 0, line);
  flag right = !(flags & (ACCESS_ACQUIRE | ACCESS_RELEASE)) && row_is_there(place, &row);
  if (right && races) {
    flag shared = in_shared(place, row.low, row.bytes);
    if (shared && !writes && log_reads(place, &row, site)) return;
    right = shared || in_one_span(place, row.low, row.bytes);
    if (shared && !writes) note_reads(place);
    if (shared && !writes) event = new_event(place, flags, line);
    if (shared) right = row_is_ordered(place, &row, event);
  }
  if (right) {
    mark_row(place, &row);
    open_window(place, &row, window);
    return;
  }
  if (races && !event) {
    note_reads(place);
    event = new_event(place, flags, line);
  }
  check_lanes(place, &row, event);
}

/* The same for words of shared memory that lie side by side, which are read. */
void cujit_check_reads(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  if (!row_is_common(place, lanes, base, site, 0)) cujit_check_row(place, lanes, base, site, 0);
}

/* The same where they are written. */
void cujit_check_writes(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  if (!row_is_common(place, lanes, base, site, 1)) cujit_check_row(place, lanes, base, site, 0);
}

/* Whether lanes may read the same words just before; the store that a site tells of is noted then. */
flag cujit_check_pair(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  return row_is_common(place, lanes, base, site, 1);
}

/* Whether nothing is wrong with any of the loads of a batch, by one look. 0: each of them has to be looked at. */
flag cujit_check_batch(struct Place *place, u32 lanes, u64 base, const struct Site *site, u64 *window) {
  enter(place);
  if (!lanes) return 1;
  struct Row row;
  fill_row(&row, lanes, base, site, site->spread, members_of(site)->line);
  if (!row_is_there(place, &row)) return 0;
  if (place->watch->checks & CHECK_RACE && !is_elsewhere(row.flags)) {
    return in_shared(place, row.low, row.bytes) && log_reads(place, &row, site);
  }
  open_window(place, &row, window);
  return 1;
}

/* Lanes of one store that write different values to the same shared memory: `parts` items lie in the place's data.
   After this the data count no more. */
void cujit_check_same(struct Place *place, u32 lanes, u64 parts, u32 flags, u32 line) {
  enter(place);
  const u8 *data = place->data;
  u64 bytes = place->part_bytes, size = parts * bytes;
  place->data = 0;
  EACH_LANE(lane, lanes) {
    u64 address = place->addresses[lane];
    if (!in_shared(place, address, size)) continue;
    EACH_LANE(mate, lane_left & (lane_left - 1)) {
      u64 distance = place->addresses[mate] - address;
      if (distance >= size && -distance >= size) continue;
      if (!distance && stores_same(data, bytes, parts, lane, mate)) continue;
      struct Access access = {lane, flags, line, address, size};
      fail(place, &access, FAULT_RACE, CODE_DIFFERENT, place->first + mate, line, flags | (address - place->shared) << 32);
    }
  }
}

/* The device set a shared variable to zeros. */
void cujit_check_cleared(struct Place *place, u64 address, u64 size) {
  flag global;
  enter(place);
  u8 *mark = marks_of(place, address, size, &global);
  if (mark) memset(mark, 1, size);
}

/* Something wrote shared memory that says not where: all of it counts as written. */
void cujit_check_filled(struct Place *place) {
  enter(place);
  u64 stride = place->watch->shared_stride, blocks = place->watch->shared_total / stride;
  for (u64 k = 0; k < blocks; k++) memset(marks_in(place, piece_of(place, k)), 1, stride);
}

/* -- the device heap ------------------------------------------------------------------------------------------------ */

/* Blocks of the device's malloc: `addresses` are what it gave, `values` the sizes. */
void cujit_check_malloc(struct Place *place, u32 lanes) {
  enter(place);
  EACH_LANE(lane, lanes) {
    if (!place->addresses[lane]) continue;
    cujit_check_lock();
    heap_add(place->addresses[lane], place->values[lane]);
    cujit_check_unlock();
  }
}

/* Blocks that are about to be freed. */
void cujit_check_free(struct Place *place, u32 lanes) {
  enter(place);
  EACH_LANE(lane, lanes) {
    cujit_check_lock();
    struct Span *span = (struct Span *)span_in(heap_spans, heap_count, place->addresses[lane], 1);
    if (span) span->freed = 1;
    cujit_check_unlock();
  }
}

/* -- synchronisation ------------------------------------------------------------------------------------------------ */

/* How often a barrier of the block has opened, its cluster's, or the meeting of a warpgroup. */
INLINE u32 generation_of(const struct Block *state, u32 number) {
  if (number < BARRIERS) return state->barriers[number].generation;
  return number == CLUSTER_BARRIER ? state->group->generation : state->warpgroups[number - CLUSTER_BARRIER - 1].generation;
}

/* Threads of this warp are about to arrive at a barrier, at which they wait unless they only arrive. */
void cujit_check_arrive(struct Place *place, u32 number, flag waits) {
  enter(place);
  note_reads(place);
  u32 generation = generation_of(place->state, number);
  place->piece->arrivals[place->warp][number] = generation;
  struct Slot *slot = slot_of(place, number, generation);
  if (slot->generation != generation) {
    memset(slot, 0, sizeof *slot);
    slot->generation = generation;
  }
  release(place, slot->clock);
  slot->events = place->piece->events + 1;
  slot->warps |= 1ull << (place->warp & 63);
  slot->parts |= !waits;
}

/* Threads of this warp go on behind a barrier. */
void cujit_check_pass(struct Place *place, u32 number) {
  enter(place);
  note_reads(place);
  struct Tracker *piece = place->piece;
  u32 generation = piece->arrivals[place->warp][number];
  struct Slot *slot = slot_of(place, number, generation);
  flag all = 0;
  if (slot->generation == generation) {
    join(place, own_clock(place), slot->clock);
    all = !slot->parts && slot->warps == ~0ull >> (-place->watch->warps & 63);
  }
  if (all) {
    piece->settled[place->warp] = slot->events;
  } else if (piece->plain) {
    end_plain(piece);
  }
  synced(place);
}

/* All clocks are the same from now on, but for each warp's own. */
static NOINLINE void join_all(const struct Place *place) {
  struct Tracker *piece = place->piece;
  u32 warps = place->watch->warps, *all = piece->clocks[0];
  for (u32 w = 1; w < warps; w++) join(place, all, piece->clocks[w]);
  for (u32 w = 1; w < warps; w++) memcpy(piece->clocks[w], all, warps * sizeof *all);
  for (u32 w = 0; w < warps; w++) piece->clocks[w][w]++, piece->syncs[w]++;
}

/* All warps of the block have come to a barrier that is for all of them, and go on one after the other. */
void cujit_check_turn(struct Place *place) {
  enter(place);
  struct Tracker *piece = place->piece;
  piece->logged = 0;
  for (u32 w = 0; w < WARPS; w++) piece->settled[w] = piece->events + 1;
  if (piece->plain) {
    piece->turn++;
  } else {
    join_all(place);
  }
}

/* Lanes of this warp have met. */
void cujit_check_synced(struct Place *place) {
  enter(place);
  note_reads(place);
  synced(place);
}

INLINE NORETURN void fail_sync(const struct Place *place, u32 lane, u32 line, u32 code, u32 mask, u64 extra) {
  struct Access access = {lane, 0, line, 0, 0};
  fail(place, &access, FAULT_SYNC, code, mask, 0, extra);
}

/* Each lane's member mask is in `values`; `live` are the lanes that have not exited. */
void cujit_check_members(struct Place *place, u32 lanes, u32 live, u32 line) {
  enter(place);
  EACH_LANE(lane, lanes) {
    u32 mask = (u32)place->values[lane], gone = mask & ~live;
    if (!(mask >> (lane & 31) & 1)) fail_sync(place, lane, line, CODE_NOT_NAMED, mask, 0);
    if (mask != ~0u && gone) fail_sync(place, lane, line, CODE_MISSING, mask, gone);
  }
}

/* Each lane's source of a shuffle is in `addresses` (-1: itself), its member mask in `values`. */
void cujit_check_origins(struct Place *place, u32 lanes, u32 live, u32 line) {
  enter(place);
  EACH_LANE(lane, lanes) {
    u32 origin = (u32)place->addresses[lane], mask = (u32)place->values[lane], bit = 1u << (origin & 31);
    if (origin < WARP && bit & mask && !(bit & live)) fail_sync(place, lane, line, CODE_NO_ORIGIN, mask, bit);
  }
}

/* A barrier with its number and count of threads (0: all); `lanes` of the `live` ones came, which must be all or none
   if it is `aligned`. */
void cujit_check_barrier(struct Place *place, u32 lanes, u32 live, u32 number, u32 threads, flag aligned, u32 line) {
  enter(place);
  if (!lanes) return;
  u32 lane = first_lane(lanes), away = live & ~lanes;
  if (number >= BARRIERS) fail_sync(place, lane, line, CODE_NUMBER, 0, number);
  if (threads % WARP) fail_sync(place, lane, line, CODE_COUNT, 0, threads);
  if (aligned && away) fail_sync(place, lane, line, CODE_PART, lanes, away);
}
