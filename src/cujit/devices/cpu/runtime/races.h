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

/* From now on more than barriers of all warps orders: see checks.c. */
static void end_plain(struct Place *place);

/* The clock of an object at an address: objects far apart may have one in common, which hides races and makes none. */
INLINE u32 *object_of(struct Place *place, u64 address) {
  if (place->piece->plain) end_plain(place);
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
   nobody. Each grain of shared memory has four: a word until something smaller is accessed, then half of it, or a byte.
   The next block of the launch begins with the grain of the one before. */

enum { THREAD_BITS = 10, THREADS = 1 << THREAD_BITS, LEAST_EVENTS = 4096 };

/* The records of a grain: who wrote it, two who read it since, and who wrote it by an atomic operation since. That one
   leaves the others. */
enum { WRITER, ONE, TWO, STRONG, KINDS };

INLINE struct Event *events_of(const struct Place *place) {
  return (struct Event *)((u8 *)place->piece + place->watch->events);
}

/* The records of the grain at an offset into shared memory. */
INLINE u32 *entry_at(const struct Place *place, u64 offset) {
  return (u32 *)((u8 *)place->piece + place->watch->entries) + (offset >> (place->piece->grain & 3)) * KINDS;
}

INLINE u64 grains_of(const struct Place *place) { return place->watch->shared_stride >> (place->piece->grain & 3); }

/* The records of the grains of a strip, where each is that of a thread and those of the grains behind are of the threads
   behind it: then there is one for all of them, and none in the grains. */
enum { STRIP = WARP, WORD_GRAIN = 2, APART = -1 };

INLINE u64 strip_bytes(const struct Place *place) { return STRIP << (place->piece->grain & 3); }

INLINE u32 *strip_at(const struct Place *place, u64 offset) {
  return (u32 *)(place->piece + 1) + (offset >> (place->piece->grain & 3)) / STRIP * KINDS;
}

/* Numbers of lanes, wherever they lie. */
typedef u64 __attribute__((ext_vector_type(WARP), aligned(8), may_alias)) loose64;
typedef u32 __attribute__((ext_vector_type(WARP), aligned(4), may_alias)) loose32;

typedef u32 __attribute__((ext_vector_type(KINDS), may_alias)) records;
_Static_assert((int)WARPS == WARP, "what warps settled is a vector");
_Static_assert(sizeof(struct Tracker) % sizeof(records) == 0, "records of strips lie behind the tracker");

static NOINLINE void spread_strip(const struct Place *place, u64 offset) {
  u32 *strip = strip_at(place, offset);
  records *entry = (records *)entry_at(place, offset & -strip_bytes(place)), first = *(records *)strip;
  const records one = (records)((records)(first != 0) & 1);
  for (u32 k = 0; k < STRIP; k++) entry[k] = first + one * k;
  *strip = (u32)APART;
}

/* Have records in all grains of a range. */
INLINE void spread(const struct Place *place, u64 offset, u64 size) {
  u64 step = strip_bytes(place);
  for (u64 at = offset & -step; at < offset + size; at += step) {
    if (*strip_at(place, at) != (u32)APART) spread_strip(place, at);
  }
}

/* Nothing of this phase is known by words or bands: see bands.h. */
static void clear_phases(const struct Place *place);

/* From now on there is a record for each of so many bytes, 1 << `grain`. */
static NOINLINE void refine(const struct Place *place, u32 grain) {
  struct Tracker *piece = place->piece;
  u32 finer = (piece->grain - grain) & 3;
  spread(place, 0, place->watch->shared_stride);
  records *entry = (records *)entry_at(place, 0);
  piece->grain = grain, piece->quick = 0;
  for (u64 k = grains_of(place); k--;) entry[k] = entry[k >> finer];
  for (u64 k = 0; k < grains_of(place) / STRIP; k++) *strip_at(place, k * strip_bytes(place)) = (u32)APART;
  clear_phases(place);
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
  u32 *entry = entry_at(place, 0), *marks[] = {piece->settled, piece->met};
  u64 count_of_records = grains_of(place) * KINDS;
  spread(place, 0, place->watch->shared_stride);
  memset(moved, 0, (count + 2) * sizeof *moved);
  for (u64 k = 0; k < count_of_records; k++) moved[entry[k] >> THREAD_BITS] = 1;
  for (u32 k = 1; k <= count + 1; k++) {
    u32 is_named = moved[k];
    moved[k] = named + 1;
    if (is_named) events[++named] = events[k];
  }
  moved[0] = 0;
  for (u64 k = 0; k < count_of_records; k++) {
    entry[k] = moved[entry[k] >> THREAD_BITS] << THREAD_BITS | (entry[k] & (THREADS - 1));
  }
  for (u32 k = 0; k < 2 * WARPS; k++) marks[k / WARPS][k % WARPS] = moved[marks[k / WARPS][k % WARPS]];
  for (u32 k = 0; k < 2 * SLOTS; k++) piece->slots[k / 2][k % 2].events = moved[piece->slots[k / 2][k % 2].events];
  piece->written = moved[piece->written];
  piece->weak = moved[piece->weak];
  piece->unfenced = moved[piece->unfenced];
  piece->unmade = moved[piece->unmade];
  for (u32 w = 0; w < WARPS; w++) {
    for (u32 k = 0; k < piece->reading[w]; k++) piece->readings[w][k].since = moved[piece->readings[w][k].since];
  }
  piece->events = named;
  u64 wanted = 2 * named + LEAST_EVENTS, most = place->watch->most_events - 2;
  piece->room = (u32)(wanted < most ? wanted : most);
}

/* -- phases: what is done between two barriers of all warps: see patterns.h --------------------------------------------- */

/* What is done in this phase: what a pattern says, so far; something else, which may become a pattern; what cannot. */
enum { FOLLOWS, TEACHES, STRAYS };

/* Behind the steps of each pattern, and where none is followed: this is no access. */
static const struct Logged END = {(const struct Site *)~0ull, ~0ull, 0, ~0u};

/* What is done in this phase is no pattern. */
INLINE void stray(struct Tracker *piece) { piece->course = STRAYS, piece->ahead = &END; }

/* -- events -------------------------------------------------------------------------------------------------------------- */

/* Note that the warp does something, and give the number of that. */
INLINE u32 new_event(const struct Place *place, u32 flags, u32 line) {
  struct Tracker *piece = place->piece;
  if (piece->events >= piece->room) forget_events(place);
  piece->quick = 0;
  stray(piece);
  u32 warp = place->warp;
  events_of(place)[++piece->events] = (struct Event){
      piece->clocks[warp][warp] + piece->turn, piece->syncs[warp] + piece->turn, line, flags, warp, 0, 0,
  };
  if (!(flags & ACCESS_STRONG)) piece->weak = piece->events;
  return piece->events;
}

/* The clock by which others know what a thread did by an event. */
INLINE u32 clock_of(const struct Event *event, u32 thread) {
  return event->late && !(event->told >> (thread & (WARP - 1)) & 1) ? event->late : event->clock;
}

/* Events of one warp that are looked at, at most, where some of its lanes arrive at an mbarrier. */
enum { LAST_EVENTS = 4096 };

/* Lanes are about to arrive at mbarriers: that tells of what they did, and of what others of the warp did before all met.
   What these did since is told when they come themselves, or have met. */
static NOINLINE void hand_over(const struct Place *place, u32 lanes) {
  const struct Tracker *piece = place->piece;
  u32 warp = place->warp, first = piece->met[warp], last = piece->events;
  u32 late = piece->clocks[warp][warp] + piece->turn + (u32)__builtin_popcount(lanes);
  if (last > first + LAST_EVENTS) first = last - LAST_EVENTS;
  for (u32 k = first; k <= last; k++) {
    struct Event *event = &events_of(place)[k];
    if (event->warp != warp || event->sync != piece->syncs[warp] + piece->turn) continue;
    event->told = event->late ? event->told | lanes : lanes;
    event->late = late;
  }
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
  return clock_of(event, other) > piece->clocks[warp][other / WARP] + piece->turn;
}

/* Which of the two records of readers a read takes: its own, or one that is free, as what is ordered before it is; else one
   of its warp, so that the other warp's stays. */
INLINE u32 *reader_for(const struct Place *place, u32 *entry, const struct Now *now) {
  u32 one = entry[ONE], two = entry[TWO], mine = now->thread, warp = place->warp;
  u32 first = one & (THREADS - 1), second = two & (THREADS - 1);
  if (first == mine || !unordered(place, one, now, 0)) return entry + ONE;
  if (second == mine || second / WARP == warp || !unordered(place, two, now, 0)) return entry + TWO;
  return entry + (first / WARP == warp ? ONE : TWO);
}

/* Whether a strip whose words threads access side by side holds only what is ordered before this: then it takes the record,
   `now` being that of its first thread. One look at an event tells of all words. */
INLINE flag strip_takes(const struct Place *place, u64 offset, const struct Now *now) {
  u32 *strip = strip_at(place, offset), record = now->event << THREAD_BITS | now->thread, writes = now->flags & ACCESS_WRITE;
  if (*strip == (u32)APART || unordered(place, strip[WRITER], now, now->flags)) return 0;
  if (writes && (unordered(place, strip[ONE], now, now->flags) || unordered(place, strip[TWO], now, now->flags))) return 0;
  if (writes) {
    *(records *)strip = (records){record, 0, 0, 0};
    place->piece->written = now->event;
  } else {
    *reader_for(place, strip, now) = record;
  }
  return 1;
}

INLINE NORETURN void race(const struct Place *place, const struct Access *access, u32 record) {
  const struct Event *event = &events_of(place)[record >> THREAD_BITS];
  const struct Tracker *piece = place->piece;
  u64 extra = event->flags | (access->address - place->shared) << 32;
  u32 other = record & (THREADS - 1), warp = place->warp;
  flag told = warp != other / WARP && event->clock <= piece->clocks[warp][other / WARP] + piece->turn;
  fail(place, access, FAULT_RACE, told ? CODE_UNTOLD : CODE_UNORDERED, other, event->line, extra);
}

/* -- accesses of shared memory: a lane, exactly ----------------------------------------------------------------------------- */

/* Whether a store of known values leaves a byte as it is: then nobody minds who was first. */
INLINE flag is_same(const struct Place *place, const struct Access *access, u64 k) {
  if (!place->data) return 0;
  u64 bytes = place->part_bytes, part = k / bytes, inside = k % bytes;
  return place->data[part * bytes * WARP + access->lane * bytes + inside] == *(const u8 *)(access->address + k);
}

INLINE void note_write(const struct Place *place, u32 *entry, const struct Now *now) {
  u32 record = now->event << THREAD_BITS | now->thread;
  place->piece->written = now->event;
  if (now->flags & ACCESS_STRONG) {
    entry[STRONG] = record;
  } else {
    *(records *)entry = (records){record, 0, 0, 0};
  }
}

/* Look at the bytes from `k` on that have one record, and note the access. */
INLINE void check_entry(const struct Place *place, const struct Access *access, const struct Now *now, u64 k, u64 step) {
  u32 *entry = entry_at(place, access->address - place->shared + k), writer = entry[WRITER];
  if (!unordered(place, writer, now, now->flags)) writer = entry[STRONG];
  flag after = unordered(place, writer, now, now->flags);
  if (after && !is_same(place, access, k)) race(place, access, writer);
  if (access->flags & ACCESS_WRITE) {
    if (unordered(place, entry[ONE], now, now->flags)) race(place, access, entry[ONE]);
    if (unordered(place, entry[TWO], now, now->flags)) race(place, access, entry[TWO]);
  }
  for (u64 j = 1; after && j < step; j++) {
    if (!is_same(place, access, k + j)) race(place, access, writer);
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

/* The records of four grains side by side. */
enum { PART = 4 };
typedef u32 __attribute__((ext_vector_type(PART * KINDS), aligned(16), may_alias)) parts;

/* What a row of one warp goes by, each as the record that would be the first. */
struct Bounds {
  u32 settled, met, now, warp;
};

/* All ones where a record may be of an access that is a race with that of `thread` now; what the same instruction did is
   none. */
#define MAY_RACE(type, record, thread, bounds)                                                                         \
  ((type)((record) >= (bounds)->settled) & (type)((((record) ^ (thread)) & (THREADS - 1)) != 0) &                      \
   ~((type)((((record) ^ (bounds)->warp) & (THREADS - WARP)) == 0) &                                                   \
     ((type)((record) < (bounds)->met) | (type)((record) >= (bounds)->now))))

/* Which records an access may be a race with: a write with all, a read with writes; two atomic operations are none. */
INLINE records kinds_of(u32 flags) {
  records writes = {~0u, 0, 0, ~0u}, reads = {0, ~0u, ~0u, 0}, weak = {~0u, ~0u, ~0u, 0};
  if (flags & ACCESS_WRITE) writes |= reads;
  return flags & ACCESS_STRONG ? writes & weak : writes;
}

INLINE parts four(records one) { return one.xyzwxyzwxyzwxyzw; }

/* Written so that LLVM makes no store with a mask of it, which takes some processors many times as long. */
INLINE void put(parts *at, parts old, parts mask, parts value) { *at = old ^ (mask & (old ^ value)); }

/* What four grains are to hold whose threads read, as `reader_for` says; `lanes` are those that are accessed. 0 where
   that is not known. */
INLINE flag note_readers(parts *entry, parts old, parts lanes, parts thread, const struct Bounds *bounds, flag plain) {
  const parts first_kind = four((records){0, ~0u, 0, 0}), second_kind = four((records){0, 0, ~0u, 0});
  parts one = __builtin_shufflevector(old, old, 1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13);
  parts two = __builtin_shufflevector(old, old, 2, 2, 2, 2, 6, 6, 6, 6, 10, 10, 10, 10, 14, 14, 14, 14);
  parts own_one = (parts)(((one ^ bounds->warp) & (THREADS - WARP)) == 0);
  parts own_two = (parts)(((two ^ bounds->warp) & (THREADS - WARP)) == 0);
  parts first = (parts)(one < bounds->settled) | (parts)(((one ^ thread) & (THREADS - 1)) == 0);
  parts second = ~first & ((parts)(two < bounds->settled) | own_two);
  parts rest = ~first & ~second & ~own_one;
  if (!plain && __builtin_reduce_or(rest & lanes)) return 0;
  second |= rest;
  put(entry, old, lanes & ((first_kind & ~second) | (second_kind & second)), thread | bounds->now);
  return 1;
}

/* The next grains of a row, of which `lanes` are those that are accessed. */
INLINE flag part_is_ordered(parts *entry, parts lanes, parts thread, const struct Bounds *bounds, flag writes,
                            flag plain) {
  const parts writer = four((records){~0u, 0, 0, 0});
  parts old = *entry, bad = MAY_RACE(parts, old, thread, bounds) & lanes;
  if (!writes) bad &= four(kinds_of(0));
  if (__builtin_reduce_or(bad)) return 0;
  if (!writes) return note_readers(entry, old, lanes, thread, bounds, plain);
  put(entry, old, lanes, (thread | bounds->now) & writer);
  return 1;
}

/* A strip whose words threads access side by side, of which `thread` is the first; as `part_is_ordered` for one word. */
INLINE flag strip_is_ordered(u32 *strip, u32 thread, const struct Bounds *bounds, flag writes, flag plain) {
  u32 now = bounds->now | thread, one = strip[ONE], two = strip[TWO];
  flag owns[3];
  for (u32 k = 0; k < 3; k++) {
    u32 record = strip[k];
    owns[k] = !((record ^ bounds->warp) & (THREADS - WARP));
    flag recent = record >= bounds->settled && (record & (THREADS - 1)) != thread;
    if ((writes || !k) && recent && !(owns[k] && record < bounds->met)) return 0;
  }
  if (writes) {
    strip[WRITER] = now;
    strip[ONE] = strip[TWO] = 0;
  } else if (one < bounds->settled || (one & (THREADS - 1)) == thread) {
    strip[ONE] = now;
  } else if (two < bounds->settled || owns[2]) {
    strip[TWO] = now;
  } else if (owns[1]) {
    strip[ONE] = now;
  } else {
    if (!plain) return 0;
    strip[TWO] = now;
  }
  return 1;
}

/* One word that several lanes read: what `reader_for` makes of them one after the other. */
INLINE flag common_is_ordered(u32 *entry, u32 lanes, const struct Bounds *bounds, flag plain) {
  u32 writer = entry[WRITER], one = entry[ONE], two = entry[TWO], now = bounds->now;
  if (entry[STRONG] >= bounds->settled) return 0;
  u32 first = bounds->warp | first_lane(lanes), last = bounds->warp | last_lane(lanes);
  flag own_writer = !((writer ^ bounds->warp) & (THREADS - WARP));
  flag own_one = !((one ^ bounds->warp) & (THREADS - WARP)), own_two = !((two ^ bounds->warp) & (THREADS - WARP));
  if (writer >= bounds->settled && !(own_writer && writer < bounds->met)) return 0;
  flag free_two = own_two | (two < bounds->settled);
  if (one < bounds->settled || (one & (THREADS - 1)) == first) {
    entry[ONE] = now | first;
    if (first != last) entry[free_two ? TWO : ONE] = now | last;
  } else if (free_two) {
    u32 lane = one & (WARP - 1);
    if (one && own_one && lanes >> (lane & 31) & 1) return 0;
    entry[TWO] = now | last;
  } else if (own_one) {
    entry[ONE] = now | last;
  } else {
    if (!plain) return 0;
    entry[TWO] = now | last;
  }
  return 1;
}

/* The first event that may be unordered with what the warp does now. */
INLINE u32 settled_of(const struct Place *place) { return place->piece->settled[place->warp]; }

INLINE struct Bounds bounds_of(const struct Place *place, u32 event) {
  u32 met = place->piece->met[place->warp];
  return (struct Bounds){settled_of(place) << THREAD_BITS, met << THREAD_BITS, event << THREAD_BITS, place->first};
}

/* Grains of a row that one warp writes, from `entry` on; `thread` is that of the first. */
INLINE flag write_is_ordered(parts *entry, u32 all, u32 thread, u32 log, const struct Bounds *bounds) {
  const parts count = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}, writer = four((records){~0u, 0, 0, 0});
  parts bad = count ^ count;
  for (u32 k = 0; k < all; k += PART) {
    bad |= MAY_RACE(parts, entry[k / PART], ((count + k) >> (log & 31)) + thread, bounds) & (parts)(count + k < all);
  }
  if (__builtin_reduce_or(bad)) return 0;
  for (u32 k = 0; k < all; k += PART) {
    parts record = (((count + k) >> (log & 31)) + thread) | bounds->now;
    put(&entry[k / PART], entry[k / PART], (parts)(count + k < all), record & writer);
  }
  return 1;
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
  u32 *entry = entry_at(place, row->low - place->shared);
  struct Bounds bounds = bounds_of(place, event);
  u64 offset = row->low - place->shared, whole = strip_bytes(place) - 1;
  flag strips = row->dense && size == 1u << grain && !((offset | row->bytes | (u64)lane << grain) & whole);
  if (!strips) spread(place, offset, row->bytes);
  if (!row->stride && !writes) {
    for (u32 k = 0; k < size >> grain; k++) {
      if (!common_is_ordered(entry + k * KINDS, row->lanes, &bounds, plain)) return 0;
    }
    return 1;
  }
  if (!row->dense || (!row->stride && row->lanes & (row->lanes - 1))) return 0;
  if (writes) piece->written = event;
  const parts count = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  u32 all = (u32)(row->bytes >> grain);
  u32 log = row->lanes & (row->lanes - 1) ? (u32)__builtin_ctz(size >> grain) : 31; /* all is of one lane */
  if (writes && !strips) return write_is_ordered((parts *)entry, all, place->first + lane, log, &bounds);
  for (u32 k = 0; k < all; k += PART) {
    parts thread = ((count + k) >> (log & 31)) + (place->first + lane), lanes = (parts)(count + k < all);
    u32 *strip = strip_at(place, offset + ((u64)k << grain));
    if (strips && *strip != (u32)APART) {
      if (!strip_is_ordered(strip, place->first, &bounds, writes, plain)) return 0;
      k += STRIP - PART;
      continue;
    }
    if (!part_is_ordered((parts *)(entry + k * KINDS), lanes, thread, &bounds, writes, plain)) return 0;
    if (!strips || !writes || k % STRIP != STRIP - PART) continue;
    *(records *)strip = (records){event << THREAD_BITS | place->first, 0, 0, 0};
  }
  return 1;
}

/* -- accesses of shared memory: lanes at addresses of their own ------------------------------------------------------- */

/* What lanes do at `addresses`, `size` bytes each, in all `bytes` from `low` on; `bits` are those of any address. */
struct Lanes {
  u32 lanes, flags, line, event;
  u64 size, low, bytes, bits;
  const loose64 *addresses;
};

/* All ones for some lanes. */
INLINE i32x32 only(u32 lanes) {
  const u32x32 bit = {1u << 0, 1u << 1, 1u << 2, 1u << 3, 1u << 4, 1u << 5, 1u << 6, 1u << 7, 1u << 8, 1u << 9, 1u << 10,
                      1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20,
                      1u << 21, 1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30,
                      1u << 31};
  return (i32x32)((bit & lanes) != 0);
}

/* The addresses of some lanes; others have that of one of them. */
INLINE u64x32 addresses_in(const loose64 *addresses, u32 lanes) {
  u64 one = ((const u64 *)addresses)[first_lane(lanes)];
  if (lanes == ~0u) return *addresses;
  return one ^ ((one ^ *addresses) & (u64x32)__builtin_convertvector(only(lanes), i64x32));
}

INLINE void measure(const struct Place *place, struct Lanes *all) {
  u64x32 every = addresses_in(all->addresses, all->lanes) - place->shared;
  if (!__builtin_reduce_or(every >> 32)) {
    u32x32 offsets = __builtin_convertvector(every, u32x32);
    u32 low = __builtin_reduce_min(offsets);
    all->low = place->shared + low;
    all->bytes = __builtin_reduce_max(offsets) - low + all->size;
    all->bits = __builtin_reduce_or(offsets);
    return;
  }
  every += place->shared;
  all->low = __builtin_reduce_min(every);
  all->bytes = __builtin_reduce_max(every) - all->low + all->size;
  all->bits = __builtin_reduce_or(every);
}

/* As `reader_for`, for one grain; 0 where the record is not known. */
INLINE flag note_reader(u32 *entry, u32 thread, const struct Bounds *bounds, flag plain) {
  u32 one = entry[ONE], two = entry[TWO];
  flag own_one = !((one ^ bounds->warp) & (THREADS - WARP)), own_two = !((two ^ bounds->warp) & (THREADS - WARP));
  flag first = (one < bounds->settled) | (((one ^ thread) & (THREADS - 1)) == 0);
  flag second = (first ^ 1) & ((two < bounds->settled) | own_two), rest = !(first | second | own_one);
  entry[ONE + (second | rest)] = bounds->now | thread;
  return plain | !rest;
}

/* Whether what lanes do to `count` grains each is no race, which is then noted; 0 where that is not known. */
INLINE flag lanes_are_ordered(const struct Place *place, const struct Lanes *all, u32 count, u32 flags) {
  struct Bounds bounds = bounds_of(place, all->event);
  flag plain = place->piece->plain, known = 1;
  records bad = {0, 0, 0, 0};
  u32 first = place->first;
  u64 grain = place->piece->grain & 3;
  u64x32 at = (u64)entry_at(place, 0) + ((*all->addresses - place->shared) >> grain) * sizeof(records);
  const u64 *entries = (const u64 *)&at;
  /* What is not settled may be atomic alone, as this is. */
  flag settled = flags & ACCESS_STRONG && place->piece->weak < settled_of(place);
  EACH_LANE(lane, settled ? 0 : all->lanes) {
    for (u32 k = 0; k < count; k++) {
      records old = ((const records *)entries[lane])[k];
      bad |= MAY_RACE(records, old, first + lane, &bounds);
    }
  }
  if (__builtin_reduce_or(bad & kinds_of(flags))) return 0;
  EACH_LANE(lane, all->lanes) {
    for (u32 k = 0; k < count; k++) {
      u32 *entry = (u32 *)entries[lane] + k * KINDS, record = bounds.now | (first + lane);
      if (!(flags & ACCESS_WRITE)) {
        known &= note_reader(entry, first + lane, &bounds, plain);
      } else if (flags & ACCESS_STRONG) {
        entry[STRONG] = record;
      } else {
        *(records *)entry = (records){record, 0, 0, 0};
      }
    }
  }
  return known;
}

/* Whether what has a record is ordered before this by clocks. An event is of one warp: whether it is ordered is the same for
   all records of it that other threads have, so that `known`, the last one, needs no look. */
INLINE flag is_before(const struct Place *place, u32 record, const struct Now *now, u32 *known) {
  if (record >> THREAD_BITS == *known) return 1;
  if (unordered(place, record, now, now->flags)) return 0;
  if ((record & (THREADS - 1)) != now->thread) *known = record >> THREAD_BITS;
  return 1;
}

/* As `lanes_are_ordered`, by clocks. */
static NOINLINE flag lanes_are_ordered_by_clocks(const struct Place *place, const struct Lanes *all, u32 count, u32 flags) {
  u64 grain = place->piece->grain & 3;
  u64x32 at = (u64)entry_at(place, 0) + ((*all->addresses - place->shared) >> grain) * sizeof(records);
  const u64 *entries = (const u64 *)&at;
  u32 writers = 0, ones = 0, twos = 0, writes = flags & ACCESS_WRITE, first = place->first, record = all->event << THREAD_BITS;
  EACH_LANE(lane, all->lanes) {
    const u32 *entry = (const u32 *)entries[lane];
    struct Now now = {first + lane, all->event, flags};
    for (u32 k = 0; k < count; k++, entry += KINDS) {
      if (!is_before(place, entry[WRITER], &now, &writers) || !is_before(place, entry[STRONG], &now, &writers)) return 0;
      if (writes && !(is_before(place, entry[ONE], &now, &ones) && is_before(place, entry[TWO], &now, &twos))) return 0;
    }
  }
  ones = 0;
  EACH_LANE(lane, all->lanes) {
    u32 *entry = (u32 *)entries[lane];
    struct Now now = {first + lane, all->event, flags};
    for (u32 k = 0; k < count; k++, entry += KINDS) {
      if (writes) {
        note_write(place, entry, &now);
      } else if ((entry[ONE] & (THREADS - 1)) == now.thread || is_before(place, entry[ONE], &now, &ones)) {
        entry[ONE] = record | now.thread;
      } else {
        *reader_for(place, entry, &now) = record | now.thread;
      }
    }
  }
  return 1;
}

INLINE void check_each(const struct Place *place, const struct Lanes *all, u32 count, u32 grain, u32 kind) {
  if (lanes_are_ordered(place, all, count, kind) || lanes_are_ordered_by_clocks(place, all, count, kind)) return;
  EACH_LANE(lane, all->lanes) {
    struct Access access = {lane, all->flags, all->line, ((const u64 *)all->addresses)[lane], (u64)count << grain};
    check_race(place, &access, all->event);
  }
}

static const u32x32 LANES = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                             16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

/* Whether the lanes of a whole warp access the words of a strip side by side. */
INLINE flag is_strip(const struct Place *place, const struct Lanes *all) {
  u64 size = sizeof(u32);
  if (all->lanes != ~0u || all->size != size || place->piece->grain != WORD_GRAIN || all->flags & ACCESS_STRONG) return 0;
  if (all->bytes != STRIP * size || (all->low - place->shared) & (STRIP * size - 1)) return 0;
  return !__builtin_reduce_or(*all->addresses - __builtin_convertvector(LANES, u64x32) * size - all->low);
}

/* Look for races where all lanes access shared memory that there is, aligned to their size of at most 16 bytes. */
static NOINLINE void check_races(const struct Place *place, const struct Lanes *all) {
  if (is_strip(place, all)) {
    struct Now now = {place->first, all->event, all->flags};
    if (strip_takes(place, all->low - place->shared, &now)) return;
  }
  refine_for(place, all->bits | all->size);
  if (all->bytes < 2 * WARP * strip_bytes(place)) {
    spread(place, all->low - place->shared, all->bytes);
  } else {
    EACH_LANE(lane, all->lanes) spread(place, ((const u64 *)all->addresses)[lane] - place->shared, all->size);
  }
  u32 grain = place->piece->grain & 3, count = (u32)(all->size >> grain), kind = all->flags & (ACCESS_WRITE | ACCESS_STRONG);
  if (kind & ACCESS_WRITE) place->piece->written = all->event;
  if (count == 1 && !kind) {
    check_each(place, all, 1, grain, 0);
  } else if (count == 1 && kind == ACCESS_WRITE) {
    check_each(place, all, 1, grain, ACCESS_WRITE);
  } else if (count == 1) {
    check_each(place, all, 1, grain, kind);
  } else {
    check_each(place, all, count, grain, kind);
  }
}
