/* The check for races.

   An access is ordered after another one if a chain of barriers, mbarriers or atomic operations leads from there to
   here; within a warp any .sync operation of it orders.

   Source for the clocks: C. Flanagan, S. N. Freund, "FastTrack: efficient and precise dynamic race detection", 2009. */

#pragma once

#include "checks.h"

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

/* -- accesses ------------------------------------------------------------------------------------------------------- */

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
