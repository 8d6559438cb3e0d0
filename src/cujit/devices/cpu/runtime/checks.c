/* What emitted kernels call for each access and each synchronisation under checks.

   A warp has a Place on its stack, which says where it runs and takes the lanes' addresses. A block has a piece of
   memory for what is kept of it: a Tracker (the clocks of its warps), one byte
   for each byte of shared memory that says whether it was written, the last accesses of each word, and the events that
   these name.

   Where lanes access what lies side by side, all that is looked at is a row: its ends, its marks, its accesses as
   vectors. A row in which anything is not plainly right is looked at lane by lane, and that alone finds mistakes. */


#include "across.h"
#include "logs.h"

/* -- where the warp is ---------------------------------------------------------------------------------------------- */

/* As if nothing but barriers of all warps had ever ordered anything. */
static NOINLINE void clear_clocks(struct Tracker *piece, u32 warps) {
  memset(piece->clocks, 0, warps * sizeof *piece->clocks);
  memset(piece->syncs, 0, sizeof piece->syncs);
  memset(piece->arrivals, 0, warps * sizeof *piece->arrivals);
  for (u32 w = 0; w < WARPS; w++) piece->met[w] = 1;
  for (u32 w = 0; w < warps; w++) piece->clocks[w][w] = 1;
  for (u32 k = 0; k < SLOTS; k++) {
    for (u32 g = 0; g < 2; g++) {
      struct Slot *slot = &piece->slots[k][g];
      slot->generation = ~0u, slot->events = 0, slot->late = 0;
    }
  }
}

/* What the block needs, once for each block. */
static void make_piece_ready(struct Place *place) {
  const struct Watch *watch = place->watch;
  u64 mine = watch->serial + place->block;
  struct Tracker *piece = place->piece;
  if (!watch->piece_bytes || piece->owner == mine) return;
  piece->full = piece->looks = piece->look_at = piece->written = piece->weak = 0;
  if (watch->checks & CHECK_INIT) memset(marks_in(place, piece), 0, watch->shared_stride);
  if (watch->checks & CHECK_INIT) memset(piece->seen, 0, sizeof piece->seen);
  if (piece->launch != watch->serial || piece->raw) memset(piece->origins, 0, sizeof piece->origins);
  piece->raw = 0;
  if (watch->checks & CHECK_RACE) {
    /* Memory of a launch before may hold anything. */
    flag is_first = piece->launch != watch->serial;
    if (is_first || piece->has_objects) memset(piece->objects, 0, sizeof piece->objects);
    if (is_first || piece->stirred) clear_clocks(piece, watch->warps);
    if (is_first) piece->grain = WORD_GRAIN, piece->phase = piece->worded = 0, piece->stored = piece->meets = 1, clear_phases(place);
    if (is_first) {
      forget_patterns(piece), piece->made = piece->followed = 0;
    } else {
      end_phase(place);
    }
    clear_logs(place);
    piece->previous = piece->turns = 0;
    piece->has_objects = piece->stirred = piece->events = piece->turn = 0;
    memset(piece->reading, 0, sizeof piece->reading);
    piece->plain = watch->cluster_blocks < 2 || !place->state;
    piece->room = LEAST_EVENTS;
    for (u32 w = 0; w < WARPS; w++) piece->settled[w] = 1;
    piece->unfenced = piece->unmade = 1;
    memset(strip_at(place, 0), 0, grains_of(place) / STRIP * sizeof(records));
    be_quick(place);
    expect_pattern(piece);
    begin_across(place, is_first);
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
  place->group = place->shared - place->side * WINDOW;
  place->piece = piece_of(place, place->side);
  make_piece_ready(place);
  place->others = cluster_of(place);
  memset(place->spans, 0, sizeof place->spans);
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

INLINE void check_one(struct Place *place, const struct Access *access, u32 checks, u32 event) {
  u32 flags = access->flags, orders = flags & (ACCESS_ACQUIRE | ACCESS_RELEASE);
  struct Cluster *cluster = place->others;
  if (checks & CHECK_MEMORY) check_memory(place, access);
  if (checks & CHECK_INIT) check_init(place, access);
  if (!(checks & CHECK_RACE)) return;
  /* Before it acquires: who made the object is to be ordered before by something else. Each lane that orders something is
     an event of its own. */
  check_across(place, access);
  check_between(place, access);
  check_race(place, access, orders ? new_event(place, flags, access->line) : event);
  if (orders) order_across(place, access);
  if (flags & ACCESS_ACQUIRE) {
    join(place, own_clock(place), object_of(place, access->address));
    if (cluster) join_far(place, own_far(place), far_object(place, cluster, access->address));
    synced(place); /* lanes of one warp may wait for each other in this way, too */
  }
  if (flags & ACCESS_RELEASE) {
    place->piece->told++;
    release(place, object_of(place, access->address));
    if (cluster) release_far(place, far_object(place, cluster, access->address));
  }
}

/* The number of an access as an event, if it may be of shared memory: that of the row before, if it goes on with it. */
INLINE u32 event_of(const struct Place *place, u32 checks, u32 flags, u32 line) {
  if (!(checks & CHECK_RACE) || is_elsewhere(flags)) return 0;
  return flags & ACCESS_AGAIN && place->piece->begun ? place->piece->events : new_event(place, flags, line);
}

/* Which checks are left for lanes that access local memory of this function. */
INLINE u32 checks_left_local(struct Place *place, const struct Lanes *all, u32 checks) {
  u64 own = place->local_bytes, size = all->size;
  if (own < size) return checks;
  u64x32 first = place->local + __builtin_convertvector(LANES, u64x32) * own;
  u32x32 odd = __builtin_convertvector(*all->addresses, u32x32) & odd_bits_of(all->flags);
  i32x32 wrong = __builtin_convertvector(*all->addresses - first > own - size, i32x32) | (i32x32)(odd != 0);
  if (__builtin_reduce_or(wrong & only(all->lanes))) return checks;
  if (!(checks & CHECK_INIT) || place->local != place->kernel_local) return checks & CHECK_INIT;
  u8 *marks = (u8 *)(place->local + place->watch->local_total);
  return lanes_are_written(all->lanes, place->addresses, marks, place->local, size, all->flags) ? 0 : CHECK_INIT;
}

/* Which checks are left for every lane of an access at addresses of its own, by one look at all of them. `plain` gets
   whether all lanes access shared memory that there is, so that `check_races` may look. */
INLINE u32 checks_left(struct Place *place, struct Lanes *all, flag *plain) {
  u32 checks = place->watch->checks & (CHECK_MEMORY | CHECK_RACE | CHECK_INIT), flags = all->flags, space = space_of(flags);
  *plain = 0;
  if (flags & ACCESS_WRITE && flags & ACCESS_TAKES) checks &= ~CHECK_INIT;
  if (!all->size || orders(flags)) return checks;
  if (space == SPACE_LOCAL) return checks_left_local(place, all, checks);
  measure(place, all);
  u64 low = all->low, bytes = all->bytes;
  if (all->bits & odd_bits_of(flags) || bytes < all->size) return checks;
  flag shared = space != SPACE_GLOBAL && in_shared(place, low, bytes), known;
  if (!shared && ((space != SPACE_GLOBAL && space != SPACE_GENERIC) || !in_one_span(place, low, bytes))) return checks;
  *plain = shared && all->size <= 16 && !(all->bits & (all->size - 1));
  u32 left = checks & (shared ? CHECK_RACE | CHECK_INIT : CHECK_INIT);
  if (!shared && checks & CHECK_RACE) check_lanes_across(place, all);
  if (!(left & CHECK_INIT)) return left;
  u8 *marks = marks_of_range(place, low, bytes, &known);
  if (marks && !lanes_are_written(all->lanes, place->addresses, marks, low, all->size, flags)) return left;
  if (shared && marks) look_for_full(place);
  return left & ~CHECK_INIT;
}

/* Whether what lanes do at addresses of their own is of a pattern, which needs no look. */
INLINE flag lanes_follow(struct Place *place, const struct Lanes *all) {
  flag common = 0;
  struct Tracker *piece = place->piece;
  if (piece->course != FOLLOWS || piece->scattered == SCATTERED) return 0;
  put_offsets(place, all);
  if (!follows_lanes(place, all->lanes, &common)) return 0;
  place->apart = kind_of(all->flags) == IN_WRITES && !common;
  return 1;
}

/* The common way of lanes at addresses of their own, all in shared memory that there is and was written: they are logged. */
INLINE flag lanes_are_common(struct Place *place, const struct Lanes *all) {
  struct Tracker *piece = place->piece;
  u32 checks = place->watch->checks, flags = all->flags, kind = kind_of(flags);
  u64 size = all->size, limit = place->watch->shared_limit;
  flag marked = checks & CHECK_INIT && !piece->full && !(flags & ACCESS_WRITE && flags & ACCESS_TAKES), common = 1;
  if (!(checks & CHECK_RACE) || place->others || is_elsewhere(flags) || orders(flags) || size - 1 > 15 || size & (size - 1) || limit < size) return 0;
  if (!piece->marking && lanes_follow(place, all)) return 1;
  u64x32 offsets = *all->addresses - place->shared;
  u32x32 odd = __builtin_convertvector(offsets, u32x32) & (odd_bits_of(flags) | (u32)(size - 1));
  i32x32 wrong = __builtin_convertvector(offsets > limit - size, i32x32) | (i32x32)(odd != 0);
  if (__builtin_reduce_or(wrong & only(all->lanes))) return 0;
  u8 *marks = marks_in(place, piece);
  if (marked && flags & ACCESS_READ) {
    if (!lanes_are_written(all->lanes, place->addresses, marks, place->shared, size, ACCESS_READ)) return 0;
    look_for_full(place);
  }
  if (!log_lanes(place, all, &common)) return 0;
  if (marked) lanes_are_written(all->lanes, place->addresses, marks, place->shared, size, flags & ACCESS_WRITE);
  place->apart = kind == IN_WRITES && !common;
  return 1;
}

/* Whether nothing is wrong with what lanes do to the memory of another block of the cluster. `here`: it is this block's own
   memory, which others accessed before. */
static NOINLINE flag reaches_right(struct Place *place, const struct Lanes *all, u32 checks, flag *here) {
  flag global;
  if (is_elsewhere(all->flags) || all->bits & odd_bits_of(all->flags) || !lanes_are_far(place, all, here)) return 0;
  if (*here || !(checks & CHECK_INIT)) return !*here;
  u8 *marks = marks_of(place, all->low, all->bytes, &global);
  return lanes_are_written(all->lanes, place->addresses, marks, all->low, all->size, all->flags);
}

/* `lanes` access `size` bytes each (0: as many as `values` say) at the place's addresses, by one event if it is known. */
static NOINLINE void check_lanes(struct Place *place, u32 lanes, u64 size, u32 flags, u32 line, u32 event) {
  flag plain;
  struct Lanes all = {lanes, flags, line, event, size, 0, 0, 0, (const loose64 *)place->addresses};
  place->apart = 0;
  if (!event && lanes_are_common(place, &all)) return;
  if (place->watch->checks & CHECK_RACE) catch_up(place);
  u32 checks = checks_left(place, &all, &plain);
  if (!checks) return;
  flag here = 0;
  if (place->others && checks & CHECK_RACE && reaches_right(place, &all, checks, &here)) return;
  if (checks & CHECK_RACE && (!is_elsewhere(flags) || orders(flags))) {
    note_reads(place);
    if (arrives(flags)) hand_over(place, lanes);
    if (!event) event = all.event = event_of(place, checks, flags, line);
  }
  if (plain && checks == CHECK_RACE && (here || !is_reached(place, all.low, all.bytes))) {
    check_races(place, &all);
    return;
  }
  EACH_LANE(lane, lanes) {
    struct Access access = {lane, flags, line, place->addresses[lane], size ? size : place->values[lane]};
    if (access.size) check_one(place, &access, checks, event);
  }
}

void cujit_check_access(struct Place *place, u32 lanes, u64 size, u32 flags, u32 line) {
  enter(place);
  if (lanes) check_lanes(place, lanes, size, flags, line, 0);
}

/* Whether all that a row reads is marked, `marks` being those from `low` on: by one look, where it has few gaps. */
INLINE flag row_is_marked(const struct Row *row, u8 *marks, u64 low, u64 bytes) {
  u64 addresses[WARP];
  if (bytes <= 2 * WARP * row->size && all_marked(marks + (row->low - low), bytes)) return 1;
  if (row->dense) return 0;
  addresses_of(row, addresses);
  return lanes_are_written(row->lanes, addresses, marks, low, row->size, ACCESS_READ);
}

/* Where it is kept that a row of shared memory was read and found written: it stays so as long as nothing raw is stored. */
INLINE struct Logged *seen_at(const struct Place *place, const struct Row *row, const struct Site *site) {
  u64 hash = ((u64)site >> 3) * 31 + (row->base >> 2) * 7 + row->lanes;
  return &place->piece->seen[(hash ^ hash >> 6 ^ hash >> 12) % WRITTEN_ROWS];
}

/* Whether all that a row reads was written: of a batch, all that each member reads. */
INLINE flag row_is_written(const struct Row *row, const struct Site *site, u8 *marks) {
  if (site->count < 2) return row_is_marked(row, marks, row->low, row->bytes);
  if (row->bytes <= 4 * WARP * row->size && all_marked(marks, row->bytes)) return 1;
  for (u32 m = 0; m < site->count; m++) {
    struct Row one;
    fill_row(&one, row->lanes, row->base + members_of(site)[m].offset, site, 0, 0);
    if (!row_is_marked(&one, marks, row->low, one.bytes)) return 0;
  }
  return 1;
}

/* Whether all of a row is memory that was written or is written now, by one look at it. */
INLINE flag row_is_there(struct Place *place, const struct Row *row, const struct Site *site) {
  u32 checks = place->watch->checks, flags = row->flags;
  if (checks & CHECK_MEMORY && !row_is_memory(place, row)) return 0;
  if (!(checks & CHECK_INIT)) return 1;
  flag known, shared = in_shared(place, row->low, row->bytes);
  u8 *marks = marks_of_range(place, row->low, row->bytes, &known);
  if (!marks) return known;
  if (!(flags & ACCESS_READ)) return 1;
  struct Logged *seen = seen_at(place, row, site);
  if (shared && seen->site == site && seen->base == row->base && seen->lanes == row->lanes) return 1;
  if (!row_is_written(row, site, marks)) return 0;
  if (shared) {
    *seen = (struct Logged){site, row->base, row->lanes, 0};
    look_for_full(place);
  }
  return 1;
}

/* What a row writes is written from now on. */
INLINE void mark_row(struct Place *place, const struct Row *row) {
  flag known;
  if (!(place->watch->checks & CHECK_INIT) || !(row->flags & ACCESS_WRITE)) return;
  u8 *marks = marks_of_range(place, row->low, row->bytes, &known);
  if (!marks) return;
  if (row->dense) {
    memset(marks, 1, row->bytes);
  } else {
    u64 addresses[WARP];
    addresses_of(row, addresses);
    EACH_LANE(lane, row->lanes) memset(marks + (addresses[lane] - row->low), 1, row->size);
  }
}

/* Remember the memory that a row is in, if other rows there need no look but whether they are: `window` gets where it
   begins, and its size. */
INLINE void open_window(struct Place *place, const struct Row *row, u64 *window) {
  u32 checks = place->watch->checks;
  if (!window || !(checks & (CHECK_MEMORY | CHECK_INIT))) return;
  if (in_shared(place, row->low, row->bytes)) {
    if (checks & CHECK_INIT && !(place->piece->full && place->goes_on)) return;
    place->window = window;
    window[0] = place->shared, window[1] = place->watch->shared_limit;
  } else {
    if (!in_one_span(place, row->low, row->bytes) || (checks & CHECK_INIT && marks_of_span(place->span))) return;
    window[0] = place->span->begin, window[1] = place->span->end - place->span->begin;
  }
}

/* Whether a row of words of a whole warp is a strip that takes the record. */
static flag strip_is_common(const struct Place *place, u64 offset, const struct Site *site) {
  struct Tracker *piece = place->piece;
  if (offset & (STRIP * sizeof(u32) - 1) || piece->logged | piece->scattered || piece->events >= piece->room) return 0;
  struct Now now = {place->warp * WARP, piece->events + 1, site->flags};
  if (!strip_takes(place, offset, &now)) return 0;
  new_event(place, site->flags, members_of(site)->line);
  return 1;
}

/* Whether a row of shared memory that there is was written, or is written now, if that is looked for. */
INLINE flag row_is_known(struct Place *place, const struct Row *row, flag writes) {
  struct Tracker *piece = place->piece;
  if (!(place->watch->checks & CHECK_INIT) || piece->full) return 1;
  u8 *marks = marks_in(place, piece) + (row->low - place->shared);
  if (!row->dense || (!writes && !all_marked(marks, row->bytes))) return 0;
  if (!writes) look_for_full(place);
  return 1;
}

/* The quick way of words: those that lie side by side, of a site with one member or of a batch, or one that lanes read. Who
   polls comes to `enter` before long: the log gets full, or the events. */
INLINE flag words_are_common(struct Place *place, u32 lanes, u64 base, const struct Site *site, flag writes) {
  struct Tracker *piece = place->piece;
  if (place->block != place->seen_block || piece->logged >= piece->quick || site->size != 4) return 0;
  if (writes && place->watch->proxied) return 0;
  if (!(site->flags & ACCESS_AGAIN)) piece->begun = lanes != 0;
  if (!lanes) return 1;
  u32 first = first_lane(lanes), count = last_lane(lanes) - first + 1, spread = site->spread, is_one = !site->stride;
  u64 offset = base + (is_one ? 0 : first * sizeof(u32)) - place->shared, bytes = (is_one ? 1 : count) * sizeof(u32) + spread;
  if ((!is_one && site->stride != 4) || (is_one && (writes || spread))) return 0;
  if ((offset | spread) & 3 || !within(offset, bytes, place->watch->shared_limit)) return 0;
  if (writes && !begin_stores(place)) return 0;
  piece->log[piece->logged] = (struct Logged){site, base, lanes, place->warp};
  if (piece->stored) {
    if (is_one ? !take_word(place, (u32)(offset / sizeof(u32)), lanes)
               : !take_members(place, lanes, base, site, writes ? IN_WRITES : IN_READS)) {
      return 0;
    }
  }
  piece->logged++;
  return 1;
}

/* The common ways of other rows of shared memory: it is logged, or strips take the record. 0: the row has to be looked
   at. */
static NOINLINE flag row_is_common(struct Place *place, u32 lanes, u64 base, const struct Site *site, flag writes) {
  struct Row row;
  if (place->block != place->seen_block || !(place->watch->checks & CHECK_RACE)) return 0;
  if (!(site->flags & ACCESS_AGAIN)) place->piece->begun = lanes != 0;
  if (!lanes) return 1;
  flag looks = place->watch->checks & CHECK_INIT && !place->piece->full, is_word = site->stride == 4 && site->size == 4;
  fill_row(&row, lanes, base, site, site->spread, 0);
  if (!in_shared(place, row.low, row.bytes) || (row.base | row.stride) & odd_bits_of(row.flags)) return 0;
  if (!row_is_known(place, &row, writes)) return 0;
  if (!log_row(place, lanes, base, site)) {
    u64 offset = base - place->shared;
    flag words = lanes == ~0u && is_word && !site->spread && place->piece->grain == WORD_GRAIN;
    if (!words || is_reached(place, row.low, row.bytes)) return 0;
    if (!strip_is_common(place, offset, site)) return 0;
  }
  if (writes && looks) {
    memset(marks_in(place, place->piece) + (row.low - place->shared), 1, row.bytes);
  }
  return 1;
}

/* Whether a row of shared memory is of a pattern, which needs no look; words that are written get marked. */
INLINE flag row_follows(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  if (place->block != place->seen_block || !lanes || !(place->watch->checks & CHECK_RACE)) return 0;
  if (!place->piece->marking) return follows_row(place, lanes, base, site);
  flag words = site->stride == 4 && site->size == 4 && !site->spread && lanes == ~0u;
  if (!words || !(site->flags & ACCESS_WRITE) || !follows_row(place, lanes, base, site)) return 0;
  memset(marks_in(place, place->piece) + (base - place->shared), 1, WARP * sizeof(u32));
  return 1;
}

INLINE flag site_is_common(struct Place *place, u32 lanes, u64 base, const struct Site *site, flag writes) {
  return words_are_common(place, lanes, base, site, writes) || row_is_common(place, lanes, base, site, writes);
}

/* Whether a row is in memory that is known, which the site is then known to access. */
INLINE flag site_is_known(struct Place *place, const struct Row *row, const struct Site *site) {
  if (!in_one_span(place, row->low, row->bytes)) return 0;
  *span_of_site(place, site) = (u64)place->span;
  return 1;
}

/* `lanes` access what a site says, at `base` and its stride times their number. */
NOINLINE void cujit_check_row(struct Place *place, u32 lanes, u64 base, const struct Site *site, u64 *window) {
  enter(place);
  u32 flags = site->flags, line = members_of(site)->line, event = 0;
  flag races = place->watch->checks & CHECK_RACE && !is_elsewhere(flags), writes = flags & ACCESS_WRITE;
  /* What follows of this instruction is of the same event. */
  if (races && !(flags & ACCESS_AGAIN)) place->piece->begun = lanes != 0;
  if (!lanes) return;
  struct Row row;
  fill_row(&row, lanes, base, site, 0, line);
  flag right = !orders(flags) && row_is_there(place, &row, site);
  if (right && races) {
    flag shared = in_shared(place, row.low, row.bytes);
    if (shared && log_row(place, lanes, base, site)) {
      mark_row(place, &row);
      return;
    }
    right = shared ? !(flags & ACCESS_STRONG) : in_one_span(place, row.low, row.bytes);
    if (shared && right) {
      note_reads(place);
      event = writes ? event_of(place, CHECK_RACE, flags, line) : new_event(place, flags, line);
      right = !is_reached(place, row.low, row.bytes) && row_is_ordered(place, &row, event);
    }
  }
  flag across = place->watch->checks & CHECK_RACE && may_be_global(flags) && !is_plain_global(flags);
  if (right && across && !in_shared(place, row.low, row.bytes)) {
    right = !(flags & (ACCESS_STRONG | ACCESS_LOOKS)) && site_is_known(place, &row, site) &&
            row_is_quick(place, lanes, base, site, line);
  }
  if (right) {
    mark_row(place, &row);
    open_window(place, &row, window);
    return;
  }
  addresses_of(&row, place->addresses);
  check_lanes(place, lanes, row.size, flags, line, event);
}

/* The same where lanes read shared memory. */
void cujit_check_reads(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  if (row_follows(place, lanes, base, site) || site_is_common(place, lanes, base, site, 0)) return;
  enter(place); /* here, where the caller is the kernel */
  cujit_check_row(place, lanes, base, site, 0);
}

/* The same where they are written. */
void cujit_check_writes(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  if (row_follows(place, lanes, base, site) || site_is_common(place, lanes, base, site, 1)) return;
  enter(place); /* here, where the caller is the kernel */
  cujit_check_row(place, lanes, base, site, 0);
}

static NOINLINE flag update_is_common(struct Place *place, u32 lanes, u64 base, const struct Site *reads,
                                      const struct Site *writes) {
  if (place->watch->checks & CHECK_INIT && !place->piece->full) return 0;
  if (reads && !site_is_common(place, lanes, base, reads, 0)) return 0;
  return site_is_common(place, lanes, base, writes, 1);
}

/* Whether nothing is wrong with any of some loads and of the stores that follow them, by one look; `reads` is null where
   the loads are of what is stored to. What is stored tells of that, too. 0: each of them has to be looked at. */
flag cujit_check_update(struct Place *place, u32 lanes, u64 base, const struct Site *reads, const struct Site *writes) {
  struct Tracker *piece = place->piece;
  flag known = !reads || row_follows(place, lanes, base, reads);
  if (known && row_follows(place, lanes, base, writes)) return 1;
  if (place->block != place->seen_block) {
    enter(place);
  } else if (piece->stored && piece->logged + 1 < piece->quick && writes->stride == 4 && writes->size == 4 && lanes) {
    u32 first = first_lane(lanes), spread = writes->spread;
    if (reads && reads->spread > spread) spread = reads->spread;
    u64 offset = base + first * sizeof(u32) - place->shared, bytes = (last_lane(lanes) - first + 1) * sizeof(u32) + spread;
    flag right = !(offset & 3) && within(offset, bytes, place->watch->shared_limit) && !place->watch->proxied;
    if (right && (!reads || take_members(place, lanes, base, reads, IN_READS)) &&
        take_members(place, lanes, base, writes, IN_WRITES)) {
      if (reads) piece->log[piece->logged++] = (struct Logged){reads, base, lanes, place->warp};
      piece->log[piece->logged++] = (struct Logged){writes, base, lanes, place->warp};
      return 1;
    }
  }
  return update_is_common(place, lanes, base, reads, writes);
}

/* Whether all members of a batch are plainly no race with other blocks. */
INLINE flag members_are_quick(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  for (u32 m = 0; m < site->count; m++) {
    const struct Member *member = &members_of(site)[m];
    if (!row_is_quick(place, lanes, base + member->offset, site, member->line)) return 0;
  }
  return 1;
}

/* The rows of all members of a site of global memory. */
static NOINLINE void check_members_across(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  for (u32 m = 0; m < site->count; m++) {
    struct Row row;
    loose64 addresses;
    fill_row(&row, lanes, base + members_of(site)[m].offset, site, 0, members_of(site)[m].line);
    flag known = site_is_known(place, &row, site);
    if (known && row_is_quick(place, lanes, row.base, site, row.line)) continue;
    addresses_of(&row, (u64 *)&addresses);
    struct Lanes all = {lanes, row.flags, row.line, 0, row.size, row.low, row.bytes, 0, &addresses};
    if (known) check_lanes_across(place, &all);
    EACH_LANE(lane, known ? 0 : lanes) {
      struct Access access = {lane, row.flags, row.line, ((const u64 *)&addresses)[lane], row.size};
      check_across(place, &access);
    }
  }
}

/* Remember the memory that a site reads, if other rows there need no look but whether they are: `window` gets where it begins,
   and its size. */
static NOINLINE void open_quiet(struct Place *place, const struct Site *site, u64 *window) {
  const struct Span *span = (const struct Span *)*span_of_site(place, site);
  if (!span || !is_only_read(place, span, site->flags)) return;
  if (place->watch->checks & CHECK_INIT && marks_of_span(span)) return;
  window[0] = span->begin, window[1] = span->end - span->begin;
}

/* Whether the emitted code is where it was when native code looked last, and may go on. */
INLINE flag is_steady(const struct Place *place) {
  return place->block == place->seen_block && !__atomic_load_n(&place->launch->poked, __ATOMIC_RELAXED);
}

/* Lanes access global memory by rows, as a site says: whether it is there, and was written, is looked at elsewhere. `quiet`
   may be null. */
void cujit_check_global(struct Place *place, u32 lanes, u64 base, const struct Site *site, u64 *quiet) {
  if (!lanes || (is_steady(place) && members_are_quick(place, lanes, base, site))) return;
  enter(place);
  catch_up(place);
  check_members_across(place, lanes, base, site);
  if (quiet) open_quiet(place, site, quiet);
}

/* Whether all members of a site of stores are plainly no race with other blocks, by a look at each lane. */
static NOINLINE flag stores_are_quick(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  for (u32 m = 0; m < site->count; m++) {
    struct Row row;
    struct Plane plane;
    loose64 addresses;
    const struct Member *member = &members_of(site)[m];
    fill_row(&row, lanes, base + member->offset, site, 0, member->line);
    if (!site_is_known(place, &row, site)) return 0;
    if (row_is_quick(place, lanes, row.base, site, row.line) || !plane_of(place, place->span, row.flags, &plane)) continue;
    addresses_of(&row, (u64 *)&addresses);
    struct Lanes all = {lanes, row.flags, row.line, 0, row.size, row.low, row.bytes, 0, &addresses};
    if (lanes_left(place, &all, &plane, row.size >> plane.grain, 1)) return 0;
  }
  return 1;
}

/* Whether stores of lanes to global memory by rows are plainly no races with other blocks, nor are loads of the same. 0: each
   of them has to be looked at. */
flag cujit_check_stores(struct Place *place, u32 lanes, u64 base, const struct Site *site, struct StoredLines *stored) {
  if (!lanes) return 1;
  if (is_steady(place)) {
    if (stored_takes(place, stored, lanes, base)) return 1;
    flag is_open = stored->own == place->piece->across.own;
    if (is_open && members_are_quick(place, lanes, base, site)) return 1;
  }
  enter(place);
  catch_up(place);
  if (!stores_are_quick(place, lanes, base, site)) return 0;
  open_stored(place, site, members_of(site)->line, stored);
  return 1;
}

static NOINLINE flag batch_is_common(struct Place *place, u32 lanes, u64 base, const struct Site *site, u64 *window) {
  if (!lanes) return 1;
  struct Row row;
  fill_row(&row, lanes, base, site, site->spread, members_of(site)->line);
  if (!row_is_there(place, &row, site)) return 0;
  if (place->watch->checks & CHECK_RACE && !is_elsewhere(row.flags)) {
    return in_shared(place, row.low, row.bytes) && log_row(place, lanes, base, site);
  }
  open_window(place, &row, window);
  return 1;
}

/* Whether nothing is wrong with any of the loads of a batch, by one look. 0: each of them has to be looked at. */
flag cujit_check_batch(struct Place *place, u32 lanes, u64 base, const struct Site *site, u64 *window) {
  flag races = place->block == place->seen_block && place->watch->checks & CHECK_RACE && !is_elsewhere(site->flags);
  if (races && (row_follows(place, lanes, base, site) || words_are_common(place, lanes, base, site, 0))) return 1;
  enter(place);
  return batch_is_common(place, lanes, base, site, window);
}

/* Lanes of one store that write different values to the same shared memory: `parts` items lie in the place's data.
   After this the data count no more. */
void cujit_check_same(struct Place *place, u32 lanes, u64 parts, u32 flags, u32 line) {
  enter(place);
  const u8 *data = place->data;
  u64 bytes = place->part_bytes, size = parts * bytes;
  if (place->apart || (lanes && stores_are_apart(place, lanes, bytes, parts))) lanes = 0;
  place->data = 0, place->apart = 0;
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

#include "described.h"

/* -- raw values -------------------------------------------------------------------------------------------------------- */

/* A branch, an address, a predicate of an access … depends on the raw values of `lanes`. */
void cujit_check_decides(struct Place *place, u32 lanes, u32 code, u32 line) {
  enter(place);
  if (lanes) fail_raw(place, first_lane(lanes), code, line);
}

/* What `lanes` have just stored at the place's addresses is raw in the bits that it has. */
void cujit_check_stored(struct Place *place, u32 lanes, u64 size, u32 flags, u32 line) {
  enter(place);
  end_full(place);
  EACH_LANE(lane, lanes) store_raw(place, lane, size, flags, line);
}

/* Which lanes of a shuffle get a raw value: each one's origin is in `addresses` (-1: itself). */
u32 cujit_check_shuffled(struct Place *place, u32 raw) {
  u32 found = 0;
  for (u32 lane = 0; lane < WARP; lane++) {
    u64 origin = place->addresses[lane] < WARP ? place->addresses[lane] : lane;
    found |= (raw >> (origin & 31) & 1) << lane;
  }
  return found;
}

/* What was never written of rows of `bytes` each, at the place's addresses: its bits come to `shadow`, row after row. */
void cujit_check_shadow(struct Place *place, u8 *shadow, u32 rows, u64 bytes) {
  enter(place);
  for (u32 row = 0; row < rows; row++) {
    for (u64 k = 0; k < bytes; k += 8) {
      u64 at = place->addresses[row] + k, size = bytes - k < 8 ? bytes - k : 8;
      flag global;
      u8 *mark = marks_of(place, at, size, &global);
      u64 raw = mark ? raw_bits_of(at, mark, size, global) : 0;
      memcpy(shadow + row * bytes + k, &raw, size);
    }
  }
}

/* Rows were stored at the place's addresses that are raw in the bits of `shadow`, by elements as `flags` say. */
void cujit_check_shadow_stored(struct Place *place, const u8 *shadow, u32 rows, u64 bytes, u32 flags, u32 line) {
  u64 addresses[WARP], element = element_of(flags);
  enter(place);
  end_full(place);
  memcpy(addresses, place->addresses, sizeof addresses);
  memset(place->raw_bits, 0, sizeof place->raw_bits);
  for (u32 row = 0; row < rows; row++) {
    for (u64 k = 0; k < bytes; k += element) {
      u64 raw = 0;
      memcpy(&raw, shadow + row * bytes + k, element);
      if (!raw) continue;
      place->addresses[0] = addresses[row] + k;
      place->raw_bits[0][0] = raw;
      store_raw(place, 0, element, flags, line);
    }
  }
}

void cujit_each_argument(const char *format, const u8 *arguments, void (*see)(void *who, const u8 *argument, u64 size),
                         void *who);

/* Arguments that a lane prints, which must not be raw. */
struct Printing {
  struct Place *place;
  u32 lane, line;
};

static void look_at_argument(void *who, const u8 *argument, u64 size) {
  const struct Printing *printing = who;
  struct Place *place = printing->place;
  u64 at = (u64)argument;
  flag global;
  u8 *mark = marks_of(place, at, size, &global);
  if (!mark || !raw_bits_of(at, mark, size, global)) return;
  if (origin_of(place, printing->lane)->line) fail_raw(place, printing->lane, CODE_PRINTED, printing->line);
  struct Access access = {printing->lane, ACCESS_READ | SPACE_LOCAL << 8, printing->line, at, size};
  fail(place, &access, FAULT_INIT, CODE_RAW, 0, 0, place->shared);
}

/* Lanes print by the formats in `values` what lies at the place's addresses. */
void cujit_check_printed(struct Place *place, u32 lanes, u32 line) {
  enter(place);
  EACH_LANE(lane, lanes) {
    struct Printing printing = {place, lane, line};
    cujit_each_argument((const char *)place->values[lane], (const u8 *)place->addresses[lane], look_at_argument, &printing);
  }
}

/* Which elements of a product of matrices are raw: those of a raw row of A or column of B, and what is raw of C. In
   `values` are the words of a lane's registers: so many of A, of B, of C; those of D come to `raw_lanes`. Registers lie as
   in PTX ISA 9.1, "Matrix Fragments for mma.m16n8k16": a row of A is that of four lanes, and eight rows behind it. */
void cujit_check_product(struct Place *place, u32 a, u32 b, u32 c, u32 halves) {
  u32 rows[2] = {0, 0}, columns = 0;
  for (u32 k = 0; k < a; k++) rows[halves > 1 ? k & 1 : 0] |= (u32)place->values[k];
  for (u32 k = 0; k < b; k++) columns |= (u32)place->values[a + k];
  memset(place->raw_lanes, 0, sizeof place->raw_lanes);
  place->raw = 1;
  for (u32 k = 0; k < c && k < VALUES; k++) {
    u32 own = rows[halves > 1 ? k / (c / 2) & 1 : 0], each = c / halves;
    for (u32 lane = 0; lane < WARP; lane++) {
      u32 column = 2 * (lane % 4), raw = (own >> (lane & 28) & 15) != 0;
      for (u32 n = 0; n < 2; n++) {
        if (each == 1 || k % each == n) raw |= (columns >> 4 * (column + n) & 15) != 0;
      }
      place->raw_lanes[k] |= (raw & 1) << lane;
    }
    place->raw_lanes[k] |= (u32)place->values[a + b + k];
  }
}

/* -- the device heap ------------------------------------------------------------------------------------------------ */

/* Blocks of the device's malloc: `addresses` are what it gave, `values` the sizes. */
void cujit_check_malloc(struct Place *place, u32 lanes) {
  enter(place);
  EACH_LANE(lane, lanes) {
    if (!place->addresses[lane]) continue;
    cujit_check_lock();
    heap_add(place->addresses[lane], place->values[lane], (place->watch->checks & CHECK_INIT) != 0);
    cujit_check_unlock();
  }
}

/* Blocks that are about to be freed. */
void cujit_check_free(struct Place *place, u32 lanes) {
  enter(place);
  EACH_LANE(lane, lanes) {
    cujit_check_lock();
    struct Span *span = (struct Span *)span_in(heap_spans, heap_count, place->addresses[lane], 1);
    if (span) span->reach = REACH_FREED;
    cujit_check_unlock();
  }
}

/* -- synchronisation ------------------------------------------------------------------------------------------------ */

/* How often a barrier of the block has opened, its cluster's, or the meeting of a warpgroup. */
INLINE u32 generation_of(const struct Block *state, u32 number) {
  if (number < BARRIERS) return state->barriers[number].generation;
  return number == CLUSTER_BARRIER ? state->group->generation : state->warpgroups[number - CLUSTER_BARRIER - 1].generation;
}

/* What this warp did so far is known to all that a barrier holds. */
INLINE void release_to(const struct Place *place, struct Slot *slot) {
  release(place, slot->clock);
  slot->events = place->piece->events + 1;
}

/* From now on more than barriers of all warps orders. Warps that wait at one arrived as they are now. */
static NOINLINE void end_plain(struct Place *place) {
  struct Tracker *piece = place->piece;
  u32 warp = place->warp;
  note_reads(place);
  for (u32 w = 0; w < WARPS; w++) {
    for (u32 k = 0; k < WARPS; k++) piece->clocks[w][k] += piece->turn;
    piece->syncs[w] += piece->turn;
  }
  piece->plain = piece->turn = 0;
  piece->stirred = 1;
  for (u32 k = 0; k < 2 * SLOTS; k++) {
    struct Slot *slot = &piece->slots[k / 2][k % 2];
    u64 late = slot->late;
    for (slot->late = 0; late; late &= late - 1) place->warp = (u32)__builtin_ctzll(late), release_to(place, slot);
  }
  place->warp = warp;
}

/* All clocks are the same from now on, but for each warp's own. */
static NOINLINE void join_all(const struct Place *place) {
  struct Tracker *piece = place->piece;
  u32 warps = place->watch->warps, *all = piece->clocks[0];
  for (u32 w = 1; w < warps; w++) join(place, all, piece->clocks[w]);
  for (u32 w = 1; w < warps; w++) memcpy(piece->clocks[w], all, warps * sizeof *all);
  for (u32 w = 0; w < warps; w++) piece->clocks[w][w]++, piece->syncs[w]++;
}

/* All warps have come to a barrier, and none did anything since. */
INLINE void turn(struct Place *place) {
  struct Tracker *piece = place->piece;
  if (!(place->watch->checks & CHECK_RACE)) return;
  end_phase(place);
  clear_logs(place);
  *(loose32 *)piece->settled = (loose32)(piece->events + 1);
  be_quick(place);
  expect_pattern(piece);
  if (piece->plain) {
    piece->turn++;
  } else {
    join_all(place);
  }
}

/* The object by which the blocks of a cluster that meet tell each other: who comes again tells nothing to those who still
   wait, so there are two in turn. */
INLINE u64 meeting_of(const struct Place *place, u32 generation) {
  return (u64)place->state->group + generation % 2 * sizeof(u32);
}

/* Threads of this warp are about to arrive at a barrier, at which they wait unless they only arrive. As long as all is
   plain, it is seen behind it whether all warps have come. A `relaxed` arrival tells other blocks only of what a fence
   came after. */
void cujit_check_arrive(struct Place *place, u32 number, flag waits, flag relaxed) {
  enter(place);
  struct Tracker *piece = place->piece;
  u32 generation = generation_of(place->state, number);
  if (!waits && piece->plain) end_plain(place);
  piece->arrivals[place->warp][number] = generation;
  struct Slot *slot = slot_of(place, number, generation);
  if (slot->generation != generation) {
    memset(slot, 0, sizeof *slot);
    slot->generation = generation;
  }
  slot->warps |= 1ull << (place->warp & 63);
  slot->parts |= !waits;
  piece->told += number <= CLUSTER_BARRIER;
  piece->stirred = 1;
  if (piece->plain) {
    slot->late |= 1ull << (place->warp & 63);
    return;
  }
  note_reads(place);
  release_to(place, slot);
  if (place->others) arrive_far(place, number, generation, relaxed);
  if (number != CLUSTER_BARRIER) return;
  catch_up(place);
  if (!relaxed) fence_across(place);
  tell_across(place, meeting_of(place, generation));
}

/* Threads of this warp go on behind a barrier. */
void cujit_check_pass(struct Place *place, u32 number) {
  enter(place);
  struct Tracker *piece = place->piece;
  u32 generation = piece->arrivals[place->warp][number];
  struct Slot *slot = slot_of(place, number, generation);
  flag known = slot->generation == generation;
  flag all = known && !slot->parts && slot->warps == ~0ull >> (-place->watch->warps & 63);
  if (known && slot->turned) return;
  if (all && piece->plain) {
    slot->turned = 1, slot->late = 0;
    turn(place);
    return;
  }
  if (piece->plain) end_plain(place);
  note_reads(place);
  if (known) join(place, own_clock(place), slot->clock);
  if (place->others) pass_far(place, number, generation);
  if (number == CLUSTER_BARRIER) acquire_across(place, meeting_of(place, generation));
  if (all) piece->settled[place->warp] = slot->events;
  synced(place);
}

/* All warps of the block have come to a barrier that is for all of them, and go on one after the other. */
void cujit_check_turn(struct Place *place) {
  enter(place);
  turn(place);
}

/* A fence that other blocks may see. */
void cujit_check_published(struct Place *place) {
  enter(place);
  catch_up(place);
  fence_across(place);
  if (!place->others) return;
  note_reads(place);
  fence_far(place);
}

/* Lanes of this warp have met. */
void cujit_check_synced(struct Place *place) {
  enter(place);
  if (place->watch->checks & CHECK_RACE && log_meeting(place)) return;
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

/* What is known of lanes of a warp that skipped a barrier at a line in a generation; else null. */
INLINE struct Skip *skip_of(const struct Place *place, u32 warp, u32 line, u32 generation) {
  struct Skip *skips = ((struct Block *)place->state)->warp[warp].skips;
  for (u32 k = 0; k < SKIPS; k++) {
    if (skips[k].lanes && skips[k].line == line && skips[k].generation == generation) return &skips[k];
  }
  return 0;
}

/* Lanes go past a barrier of all threads at a line, where others may wait. */
void cujit_check_skip(struct Place *place, u32 lanes, u32 number, u32 line) {
  enter(place);
  struct Skip *skips = ((struct Block *)place->state)->warp[place->warp].skips;
  u32 generation = place->state->barriers[number].generation, k = 0;
  struct Skip *skip = skip_of(place, place->warp, line, generation);
  while (!skip && k < SKIPS && skips[k].lanes && skips[k].generation == generation) k++;
  if (!skip && k == SKIPS) return;
  if (!skip) skip = &skips[k], *skip = (struct Skip){line, 0, generation};
  skip->lanes |= lanes;
}

/* Lanes are about to arrive at a barrier of all threads, where it matters at the line at which warps before them did. */
void cujit_check_site(struct Place *place, u32 lanes, u32 number, u32 line, flag alike) {
  enter(place);
  struct Barrier *barrier = (struct Barrier *)&place->state->barriers[number];
  if (!lanes) return;
  for (u32 k = 0; k < SKIPS; k++) ((struct Block *)place->state)->warp[place->warp].skips[k].lanes &= ~lanes;
  if (!alike) return;
  if (!barrier->line) barrier->line = line, barrier->warp = place->warp;
  if (barrier->line == line || barrier->warp == place->warp) return;
  struct Access access = {first_lane(lanes), 0, line, 0, 0};
  fail(place, &access, FAULT_SYNC, CODE_ELSEWHERE, barrier->warp * WARP, barrier->line, 0);
}

/* A barrier of all threads at a line has opened for lanes: nobody went past it, and left for good. */
void cujit_check_skipped(struct Place *place, u32 lanes, u32 number, u32 line) {
  enter(place);
  u32 generation = place->state->barriers[number].generation - 1;
  for (u32 warp = 0; lanes && warp < place->state->warps; warp++) {
    const struct Skip *skip = skip_of(place, warp, line, generation);
    if (!skip) continue;
    struct Access access = {first_lane(lanes), 0, line, 0, 0};
    fail(place, &access, FAULT_SYNC, CODE_SKIPPED, warp * WARP + first_lane(skip->lanes), 0, 0);
  }
}
