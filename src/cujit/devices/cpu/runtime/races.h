/* The check for races.

   An access is ordered after another one if a chain of barriers, mbarriers or atomic operations leads from there to
   here; within a warp any .sync operation of it orders.

   Source for the clocks: C. Flanagan, S. N. Freund, "FastTrack: efficient and precise dynamic race detection", 2009. */

#pragma once

#include "checked.h"

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

/* -- records: what accessed a grain last ---------------------------------------------------------------------------

   A record is the number of an event, what a warp did by one instruction, and the thread's in the low bits; 0 is
   nobody. Each grain of shared memory has one: a word until something smaller is accessed, then half of it, or a byte.
   The next block of the launch begins with the grain of the one before. */

enum { THREAD_BITS = 10, THREADS = 1 << THREAD_BITS, LEAST_EVENTS = 4096 };

INLINE struct Event *events_of(const struct Place *place) {
  return (struct Event *)((u8 *)place->piece + place->watch->events);
}

/* The records of the grain at an offset into shared memory: who wrote it, and two who read it since. */
struct Entry {
  u32 *writer;
  u64 far;
};

INLINE u32 *one_of(struct Entry entry) { return entry.writer + entry.far; }
INLINE u32 *two_of(struct Entry entry) { return entry.writer + 2 * entry.far; }

INLINE struct Entry entry_at(const struct Place *place, u64 offset) {
  const struct Watch *watch = place->watch;
  u32 *first = (u32 *)((u8 *)place->piece + watch->entries) + (offset >> (place->piece->grain & 3));
  return (struct Entry){first, watch->shared_stride};
}

INLINE u64 records_of(const struct Place *place) { return place->watch->shared_stride >> (place->piece->grain & 3); }

/* The records of the grains of a strip, where each is that of a thread and those of the grains behind are of the threads
   behind it: then there is one for all of them, and none in the grains. */
enum { STRIP = WARP, WORD_GRAIN = 2, APART = -1 };

INLINE u64 strip_bytes(const struct Place *place) { return STRIP << (place->piece->grain & 3); }

INLINE struct Entry strip_at(const struct Place *place, u64 offset) {
  return (struct Entry){(u32 *)(place->piece + 1) + (offset >> (place->piece->grain & 3)) / STRIP * 4, 1};
}

static NOINLINE void spread_strip(const struct Place *place, u64 offset) {
  struct Entry strip = strip_at(place, offset), entry = entry_at(place, offset & -strip_bytes(place));
  u32 *of[] = {strip.writer, one_of(strip), two_of(strip)}, *to[] = {entry.writer, one_of(entry), two_of(entry)};
  for (u32 kind = 0; kind < 3; kind++) {
    u32 record = *of[kind];
    for (u32 k = 0; k < STRIP; k++) to[kind][k] = record ? record + k : 0;
  }
  *strip.writer = (u32)APART;
}

/* Have records in all grains of a range. */
INLINE void spread(const struct Place *place, u64 offset, u64 size) {
  u64 step = strip_bytes(place);
  for (u64 at = offset & -step; at < offset + size; at += step) {
    if (*strip_at(place, at).writer != (u32)APART) spread_strip(place, at);
  }
}

/* From now on there is a record for each of so many bytes, 1 << `grain`. */
static NOINLINE void refine(const struct Place *place, u32 grain) {
  struct Tracker *piece = place->piece;
  u32 finer = (piece->grain - grain) & 3;
  spread(place, 0, place->watch->shared_stride);
  struct Entry entry = entry_at(place, 0);
  u32 *kinds[] = {entry.writer, one_of(entry), two_of(entry)};
  piece->grain = grain;
  piece->common = 0;
  for (u32 kind = 0; kind < 3; kind++) {
    for (u64 k = records_of(place); k--;) kinds[kind][k] = kinds[kind][k >> finer];
  }
  for (u64 k = 0; k < records_of(place) / STRIP; k++) strip_at(place, k * strip_bytes(place)).writer[0] = (u32)APART;
}

/* Have grains of which an access touches no parts. */
INLINE void refine_for(const struct Place *place, u64 bits) {
  u32 grain = bits & 1 ? 0 : bits & 2 ? 1 : 2;
  if (grain < place->piece->grain) refine(place, grain);
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
  piece->unfenced = moved[piece->unfenced];
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

/* -- accesses of shared memory: a lane, exactly ----------------------------------------------------------------------------- */

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
  refine_for(place, offset | access->size);
  spread(place, offset, access->size);
  struct Now now = {place->first + access->lane, event, access->flags};
  u64 step = 1u << (place->piece->grain & 3);
  for (u64 k = 0; k < access->size; k += step) check_entry(place, access, &now, k, step);
}

/* -- accesses of shared memory: by numbers of events ----------------------------------------------------------------------------

   What came before the last barrier of all warps, as long as these are all that order
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

INLINE struct Bounds bounds_of(const struct Place *place, u32 event) {
  u32 met = place->piece->met[place->warp];
  return (struct Bounds){settled_of(place) << THREAD_BITS, met << THREAD_BITS, event << THREAD_BITS, place->first};
}

/* Whether a row of plain accesses to shared memory is no race, which is then noted; 0 where each lane has to be looked
   at, of which some may be noted. To note an access once more changes nothing. */
static flag row_is_ordered(const struct Place *place, const struct Row *row, u32 event) {
  struct Tracker *piece = place->piece;
  u32 lane = first_lane(row->lanes), size = row->size;
  flag writes = row->flags & ACCESS_WRITE, plain = piece->plain;
  if (row->flags & ACCESS_STRONG) return 0;
  refine_for(place, (row->low - place->shared) | row->stride | size);
  u32 grain = piece->grain & 3;
  struct Entry entry = entry_at(place, row->low - place->shared);
  struct Bounds bounds = bounds_of(place, event);
  u64 offset = row->low - place->shared, whole = strip_bytes(place) - 1;
  flag strips = row->dense && size == 1u << grain && !((offset | row->bytes | (u64)lane << grain) & whole);
  if (!strips) spread(place, offset, row->bytes);
  if (!row->stride && !writes) {
    for (u32 k = 0; k < size >> grain; k++) {
      struct Entry each = {entry.writer + k, entry.far};
      if (!common_is_ordered(each, row->lanes, &bounds, plain)) return 0;
    }
    return 1;
  }
  if (!row->dense || (!row->stride && row->lanes & (row->lanes - 1))) return 0;
  if (writes) piece->written = event;
  const words count = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  u32 all = (u32)(row->bytes >> grain);
  u32 log = row->lanes & (row->lanes - 1) ? (u32)__builtin_ctz(size >> grain) : 31; /* all is of one lane */
  for (u32 k = 0; k < all; k += PART) {
    struct Entry each = {entry.writer + k, entry.far};
    words thread = ((count + k) >> (log & 31)) + (place->first + lane), lanes = (words)(count + k < all);
    struct Entry strip = strip_at(place, offset + ((u64)k << grain));
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

/* -- accesses of shared memory: lanes at addresses of their own ------------------------------------------------------- */

/* What lanes do at `addresses`, `size` bytes each. */
struct Lanes {
  u32 lanes, flags, line, event;
  u64 size;
  const u64 *addresses;
};

/* As `may_race`, of one record; what the same instruction did is no race either. */
INLINE flag one_may_race(u32 record, u32 thread, const struct Bounds *bounds) {
  flag own = !((record ^ bounds->warp) & (THREADS - WARP)), known = (record < bounds->met) | ((record ^ bounds->now) < THREADS);
  return (record >= bounds->settled) & ((record & (THREADS - 1)) != thread) & !(own & known);
}

/* As `reader_for`, for one grain; 0 where the record is not known. */
INLINE flag note_reader(struct Entry entry, u32 thread, const struct Bounds *bounds, flag plain) {
  u32 one = *one_of(entry), two = *two_of(entry), *to = one_of(entry);
  flag own_one = !((one ^ bounds->warp) & (THREADS - WARP)), own_two = !((two ^ bounds->warp) & (THREADS - WARP));
  if (one && (one & (THREADS - 1)) != thread) {
    if (!two || own_two) {
      to = two_of(entry);
    } else if (!own_one && one >= bounds->settled) {
      if (!plain) return 0;
      to = two_of(entry);
    }
  }
  *to = bounds->now | thread;
  return 1;
}

/* Whether what a lane does to a grain is no race with that of a record; two atomic operations are none. */
INLINE flag is_ordered(const struct Place *place, u32 record, u32 thread, const struct Bounds *bounds, u32 flags) {
  if (!one_may_race(record, thread, bounds)) return 1;
  return flags & ACCESS_STRONG && events_of(place)[record >> THREAD_BITS].flags & ACCESS_STRONG;
}

/* Whether what a lane does to `count` grains is no race, which is then noted; 0 where that is not known. */
INLINE flag lane_is_ordered(const struct Place *place, struct Entry entry, u32 count, u32 thread,
                            const struct Bounds *bounds, u32 flags, flag plain) {
  for (u32 k = 0; k < count; k++) {
    struct Entry each = {entry.writer + k, entry.far};
    u32 writer = *each.writer;
    if (!is_ordered(place, writer, thread, bounds, flags)) return 0;
    /* See `note_write`. */
    flag own = writer && (writer & (THREADS - 1)) == thread;
    if (flags & ACCESS_STRONG && own && !(events_of(place)[writer >> THREAD_BITS].flags & ACCESS_STRONG)) return 0;
    if (!(flags & ACCESS_WRITE)) continue;
    if (!is_ordered(place, *one_of(each), thread, bounds, flags)) return 0;
    if (!is_ordered(place, *two_of(each), thread, bounds, flags)) return 0;
  }
  for (u32 k = 0; k < count; k++) {
    struct Entry each = {entry.writer + k, entry.far};
    if (!(flags & ACCESS_WRITE)) {
      if (!note_reader(each, thread, bounds, plain)) return 0;
      continue;
    }
    *each.writer = bounds->now | thread;
    *one_of(each) = *two_of(each) = 0;
  }
  return 1;
}

INLINE void check_each(const struct Place *place, const struct Lanes *all, u32 count, u32 grain, u32 writes) {
  struct Bounds bounds = bounds_of(place, all->event);
  u32 flags = (all->flags & ~(u32)ACCESS_WRITE) | writes, plain = place->piece->plain;
  EACH_LANE(lane, all->lanes) {
    u64 offset = all->addresses[lane] - place->shared;
    if (*strip_at(place, offset).writer != (u32)APART) spread_strip(place, offset);
    if (lane_is_ordered(place, entry_at(place, offset), count, place->first + lane, &bounds, flags, plain)) continue;
    struct Access access = {lane, all->flags, all->line, all->addresses[lane], (u64)count << grain};
    check_race(place, &access, all->event);
  }
}

/* Look for races where all lanes access shared memory that there is, aligned to their size of at most 16 bytes. */
static NOINLINE void check_races(const struct Place *place, const struct Lanes *all) {
  u64 bits = all->size;
  EACH_LANE(lane, all->lanes) bits |= all->addresses[lane] - place->shared;
  refine_for(place, bits);
  u32 grain = place->piece->grain & 3, count = (u32)(all->size >> grain), writes = all->flags & ACCESS_WRITE;
  if (writes) place->piece->written = all->event;
  if (count == 1 && writes) {
    check_each(place, all, 1, grain, ACCESS_WRITE);
  } else if (count == 1) {
    check_each(place, all, 1, grain, 0);
  } else {
    check_each(place, all, count, grain, writes);
  }
}

/* -- reads that are logged ------------------------------------------------------------------------------------------- */

/* Log what a row reads, or all members of a site, where nothing that was written may be unordered with it. */
INLINE flag log_reads(const struct Place *place, const struct Row *row, const struct Site *site) {
  struct Tracker *piece = place->piece;
  if (row->flags & ACCESS_STRONG || piece->logged == LOG) return 0;
  if (piece->written >= settled_of(place)) return 0;
  piece->log[piece->logged++] = (struct Logged){site, row->base, row->lanes, place->warp};
  return 1;
}

/* The same for what lanes read at addresses of their own. */
INLINE flag log_lanes(const struct Place *place, u32 lanes, u64 size, u32 flags, u32 line) {
  struct Tracker *piece = place->piece;
  if (flags & (ACCESS_STRONG | ACCESS_WRITE) || piece->scattered == SCATTERED || piece->written >= settled_of(place)) return 0;
  struct Scattered *log = &piece->scatter[piece->scattered++];
  log->size = size, log->lanes = lanes, log->flags = flags, log->line = line, log->warp = place->warp;
  for (u32 lane = 0; lane < WARP; lane++) log->offsets[lane] = (u32)(place->addresses[lane] - place->shared);
  return 1;
}

/* The addresses of the lanes of a row. */
INLINE void addresses_of(const struct Row *row, u64 *addresses) {
  for (u32 lane = 0; lane < WARP; lane++) addresses[lane] = row->base + lane * row->stride;
}

static NOINLINE void note_row(struct Place *place, const struct Row *row) {
  u64 addresses[WARP];
  u32 event = new_event(place, row->flags, row->line);
  if (row_is_ordered(place, row, event)) return;
  addresses_of(row, addresses);
  struct Lanes all = {row->lanes, row->flags, row->line, event, row->size, addresses};
  check_races(place, &all);
}

static NOINLINE void note_logged(struct Place *place) {
  struct Tracker *piece = place->piece;
  u32 count = piece->logged, scattered = piece->scattered, warp = place->warp;
  piece->logged = piece->scattered = 0;
  for (u32 k = 0; k < count; k++) {
    const struct Logged *logged = &piece->log[k];
    place->warp = logged->warp, place->first = logged->warp * WARP;
    for (u32 m = 0; m < logged->site->count; m++) {
      const struct Member *member = &members_of(logged->site)[m];
      struct Row row;
      fill_row(&row, logged->lanes, logged->base + member->offset, logged->site, 0, member->line);
      note_row(place, &row);
    }
  }
  for (u32 k = 0; k < scattered; k++) {
    const struct Scattered *log = &piece->scatter[k];
    u64 addresses[WARP];
    place->warp = log->warp, place->first = log->warp * WARP;
    for (u32 lane = 0; lane < WARP; lane++) addresses[lane] = place->shared + log->offsets[lane];
    struct Lanes all = {log->lanes, log->flags, log->line, new_event(place, log->flags, log->line), log->size, addresses};
    check_races(place, &all);
  }
  place->warp = warp, place->first = warp * WARP;
}

/* Who looks at records, or changes what is ordered, has all reads noted before. */
INLINE void note_reads(struct Place *place) {
  if (place->watch->checks & CHECK_RACE && (place->piece->logged | place->piece->scattered)) note_logged(place);
}
