/* What emitted kernels call for each access and each synchronisation under checks.

   A warp has a Place on its stack, which says where it runs and takes the lanes' addresses. A block has a piece of
   memory behind the shared memory of the blocks that run side by side: a Tracker (the clocks of its warps), one byte
   for each byte of shared memory that says whether it was written, and an Entry for each with its last accesses. */

#include "launch.h"

#include <stdlib.h>
#include <string.h>

/* What one lane does. */
struct Access {
  u32 lane, flags, line;
  u64 address, size;
};

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

/* The bytes behind it that say which of the block's shared memory was written. */
INLINE u8 *marks_behind(struct Tracker *piece) { return (u8 *)(piece + 1); }

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
    return marks_behind(piece_of(place, in_group / watch->shared_stride)) + in_group % watch->shared_stride;
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
    flag counts = global;
    u64 element = access->flags >> 16 & 255;
    for (u64 k = 0; k < access->size; k += element) {
      u64 at = access->address + k;
      struct Access part = {access->lane, access->flags, access->line, at, element};
      if (is_raw(at, mark + k, element, counts)) fail(place, &part, FAULT_INIT, CODE_RAW, 0, 0, place->shared);
    }
  }
  if (access->flags & ACCESS_WRITE) memset(mark, 1, access->size);
}

/* -- races ----------------------------------------------------------------------------------------------------------- */

/* The check for races.

   An access is ordered after another one if a chain of barriers, mbarriers or atomic operations leads from there to
   here; within a warp any .sync operation of it orders.

   Source for the clocks: C. Flanagan, S. N. Freund, "FastTrack: efficient and precise dynamic race detection", 2009. */

/* -- clocks --------------------------------------------------------------------------------------------------------- */

/* to = the later of both, clock by clock. */
static void join(u32 *to, const u32 *from) {
  for (u32 k = 0; k < WARPS; k++) to[k] = to[k] > from[k] ? to[k] : from[k];
}

INLINE u32 *own_clock(const struct Place *place) { return place->piece->clocks[place->warp]; }

/* What this warp did so far is known to whoever takes it over from `clock`. */
static void release(const struct Place *place, u32 *clock) {
  u32 *row = own_clock(place);
  join(clock, row);
  row[place->warp]++;
}

/* The clock of an object at an address: objects far apart may have one in common, which hides races and makes none. */
INLINE u32 *object_of(const struct Place *place, u64 address) { return place->piece->objects[address / 4 % OBJECTS]; }

/* A barrier has a clock for each of two generations: warps may be one ahead. */
INLINE struct Slot *slot_of(const struct Place *place, u32 id, u32 generation) {
  return &place->piece->slots[id][generation & 1];
}

/* Lanes of this warp have met. */
INLINE void synced(const struct Place *place) { place->piece->syncs[place->warp]++; }

/* -- records -------------------------------------------------------------------------------------------------------- */

/* One lane's access as those records know it. */
struct Now {
  u32 thread, clock, sync, line, flags, serial;
};

/* Whether two accesses of a byte are a race: `record` is the earlier one. */
INLINE flag unordered(const struct Place *place, const struct Record *record, const struct Now *now, u32 flags) {
  u32 other = record->thread - 1, thread = now->thread;
  if (!record->thread || other == thread) return 0;
  if (record->flags & flags & ACCESS_STRONG) return 0;
  if (thread / WARP == other / WARP) return record->sync == now->sync && record->serial != now->serial;
  return record->clock > place->piece->clocks[thread / WARP][other / WARP];
}

INLINE void note(struct Record *record, const struct Now *now) {
  *record = (struct Record){now->thread + 1, now->clock, now->sync, now->line, now->flags, now->serial};
}

/* Which of the two records of readers a read takes: its own or a free one; else one of its warp, so that the other
   warp's stays; else the first if that is ordered before it. */
INLINE struct Record *reader_for(const struct Place *place, struct Entry *entry, const struct Now *now) {
  struct Record *one = &entry->first_reader, *two = &entry->second_reader;
  u32 mine = now->thread + 1, warp = now->thread / WARP;
  if (!one->thread || one->thread == mine) return one;
  if (!two->thread || two->thread == mine) return two;
  if ((two->thread - 1) / WARP == warp) return two;
  if ((one->thread - 1) / WARP == warp) return one;
  struct Now apart = *now;
  apart.serial = 0;
  return unordered(place, one, &apart, 0) ? two : one;
}

INLINE NORETURN void race(const struct Place *place, const struct Access *access, const struct Record *record) {
  u64 extra = record->flags | (access->address - place->shared) << 32;
  fail(place, access, FAULT_RACE, CODE_UNORDERED, record->thread - 1, record->line, extra);
}

/* -- accesses of shared memory ----------------------------------------------------------------------------------- */

/* Whether a store of known values leaves a byte as it is: then nobody minds who was first. */
INLINE flag is_same(const struct Place *place, const struct Access *access, u64 k) {
  if (!place->data) return 0;
  u64 bytes = place->part_bytes, part = k / bytes, inside = k % bytes;
  return place->data[part * bytes * WARP + access->lane * bytes + inside] == *(const u8 *)(access->address + k);
}

INLINE void note_write(const struct Place *place, const struct Access *access, struct Entry *entry,
                       const struct Now *now) {
  struct Record *one = &entry->first_reader, *two = &entry->second_reader, *before = &entry->writer;
  if (unordered(place, one, now, now->flags)) race(place, access, one);
  if (unordered(place, two, now, now->flags)) race(place, access, two);
  one->thread = two->thread = 0;
  /* A plain write that the same thread made just before says more than its atomic one. */
  flag own = before->thread == now->thread + 1 && before->clock == now->clock;
  flag weaker = !(before->flags & ACCESS_STRONG) && now->flags & ACCESS_STRONG;
  if (!(own && weaker)) note(before, now);
}

INLINE void check_race(const struct Place *place, const struct Access *access, u32 serial) {
  if (!in_shared(place, access->address, access->size)) return;
  struct Tracker *tracker = place->piece;
  u32 warp = place->warp;
  struct Now now = {
      place->first + access->lane, tracker->clocks[warp][warp], tracker->syncs[warp], access->line, access->flags, serial,
  };
  struct Entry *entry = (struct Entry *)((u8 *)tracker + place->watch->entries) + (access->address - place->shared);
  for (u64 k = 0; k < access->size; k++, entry++) {
    if (unordered(place, &entry->writer, &now, now.flags) && !is_same(place, access, k)) race(place, access, &entry->writer);
    if (access->flags & ACCESS_WRITE) {
      note_write(place, access, entry, &now);
    } else {
      note(reader_for(place, entry, &now), &now);
    }
  }
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

/* -- where the warp is ---------------------------------------------------------------------------------------------- */

/* What the block needs, once for each block. */
static void make_piece_ready(const struct Place *place) {
  u64 bytes = place->watch->piece_bytes, mine = place->watch->serial + place->block;
  struct Tracker *piece = place->piece;
  if (!bytes || piece->owner == mine) return;
  memset(piece, 0, bytes);
  piece->owner = mine;
  for (u32 w = 0; w < WARPS; w++) piece->clocks[w][w] = 1;
}

static NOINLINE void begin(struct Place *place) {
  const struct Watch *watch = place->launch->checks;
  place->seen_block = place->block;
  place->seen_warp = place->warp;
  place->first = place->warp * WARP;
  place->watch = watch;
  /* Blocks whose warps have no stacks run one after the other, in the same shared memory. */
  place->side = place->state ? place->state->side : 0;
  place->group = place->shared - place->side * watch->shared_stride;
  place->piece = piece_of(place, place->side);
  make_piece_ready(place);
  u64 local_warp = watch->local_bytes * WARP;
  if (place->called) {
    place->kernel_local = (u64)place->state->local + place->warp * local_warp;
    return;
  }
  place->kernel_local = place->local;
  if (watch->checks & CHECK_INIT) memset((u8 *)(place->local + watch->local_total), 0, local_warp);
}

/* Where the emitted code says that it is may be a new warp, a new block, a new launch: make their memory ready. */
INLINE void enter(struct Place *place) {
  struct Launch *launch = place->launch;
  /* Before the instruction behind the call. */
  if (__atomic_load_n(&launch->poked, __ATOMIC_RELAXED)) cujit_pause(launch, (u64)__builtin_return_address(0) - 1);
  if (place->block != place->seen_block || place->warp != place->seen_warp) begin(place);
}

/* -- accesses ------------------------------------------------------------------------------------------------------- */

INLINE void check_one(const struct Place *place, const struct Access *access, u32 serial) {
  u32 checks = place->watch->checks, flags = access->flags;
  if (checks & CHECK_MEMORY) check_memory(place, access);
  if (checks & CHECK_RACE && flags & ACCESS_ACQUIRE) {
    join(own_clock(place), object_of(place, access->address));
    synced(place); /* lanes of one warp may wait for each other in this way, too */
  }
  if (checks & CHECK_INIT) check_init(place, access);
  if (checks & CHECK_RACE) check_race(place, access, serial);
  if (checks & CHECK_RACE && flags & ACCESS_RELEASE) release(place, object_of(place, access->address));
}

/* `lanes` access `size` bytes each (0: as many as `values` say) at `addresses`. */
void cujit_check_access(struct Place *place, u32 lanes, u64 size, u32 flags, u32 line) {
  enter(place);
  u32 serial = place->watch->checks & CHECK_RACE ? ++place->piece->serial : 0;
  EACH_LANE(lane, lanes) {
    struct Access access = {lane, flags, line, place->addresses[lane], size ? size : place->values[lane]};
    if (access.size) check_one(place, &access, serial);
  }
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
  for (u64 k = 0; k < blocks; k++) memset(marks_behind(piece_of(place, k)), 1, stride);
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

/* Threads of this warp are about to arrive at a barrier. */
void cujit_check_arrive(struct Place *place, u32 id) {
  enter(place);
  const struct Block *state = place->state;
  u32 number = id == CLUSTER_BARRIER ? id : id & (BARRIERS - 1);
  u32 generation = id == CLUSTER_BARRIER ? state->group->generation : state->barriers[number].generation;
  place->piece->arrivals[place->warp][number] = generation;
  struct Slot *slot = slot_of(place, number, generation);
  if (slot->generation != generation) {
    memset(slot, 0, sizeof *slot);
    slot->generation = generation;
  }
  release(place, slot->clock);
}

/* Threads of this warp go on behind a barrier. */
void cujit_check_pass(struct Place *place, u32 id) {
  enter(place);
  u32 number = id == CLUSTER_BARRIER ? id : id & (BARRIERS - 1);
  u32 generation = place->piece->arrivals[place->warp][number];
  struct Slot *slot = slot_of(place, number, generation);
  if (slot->generation == generation) join(own_clock(place), slot->clock);
  synced(place);
}

/* Lanes of this warp have met. */
void cujit_check_synced(struct Place *place) {
  enter(place);
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
