/* What emitted kernels call for each access and each synchronisation under checks.

   A warp has a Place on its stack, which says where it runs and takes the lanes' addresses. A block has a piece of
   memory behind the shared memory of the blocks that run side by side: a Tracker (the clocks of its warps), one byte
   for each byte of shared memory that says whether it was written, and an Entry for each with its last accesses. */

#include "check_memory.h"
#include "check_races.h"

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
    lock();
    heap_add(place->addresses[lane], place->values[lane]);
    unlock();
  }
}

/* Blocks that are about to be freed. */
void cujit_check_free(struct Place *place, u32 lanes) {
  enter(place);
  EACH_LANE(lane, lanes) {
    lock();
    struct Span *span = (struct Span *)span_in(heap_spans, heap_count, place->addresses[lane], 1);
    if (span) span->freed = 1;
    unlock();
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
