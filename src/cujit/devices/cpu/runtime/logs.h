/* Accesses of shared memory that are logged instead of noted: they are no race with anything since the last barrier of all
   warps. At the next one they are forgotten; whoever needs records before that has them noted. */

#pragma once

#include "bands.h"
#include "clusters.h"

/* The addresses of the lanes of a row. */
INLINE void addresses_of(const struct Row *row, u64 *addresses) {
  for (u32 lane = 0; lane < WARP; lane++) addresses[lane] = row->base + lane * row->stride;
}

/* -- what is logged ------------------------------------------------------------------------------------------- */

/* Whether the warp may log: no write with a record may be unordered with what it reads, nothing with what it writes. */
INLINE flag may_log(const struct Place *place, flag writes) {
  const struct Tracker *piece = place->piece;
  /* Fences for the asynchronous proxy, and races with other blocks, are looked for behind barriers, too. */
  if (piece->logged == LOG || (writes && place->watch->proxied) || place->others) return 0;
  return (writes ? piece->events : piece->written) < settled_of(place);
}

/* Note what all members of a site access that are words side by side. Words that several of them read are read by several
   threads. */
INLINE flag take_members(const struct Place *place, u32 lanes, u64 base, const struct Site *site, u32 kind) {
  u32 first = first_lane(lanes), active = lanes >> (first & 31), number = (u32)((base - place->shared) / sizeof(u32)) + first;
  if (!site->spread) return take_words(place, number, active, first, kind);
  if (site->near && kind == IN_READS && !place->piece->worded) {
    u64 set = 0;
    for (u32 m = 0; m < site->count; m++) set |= (u64)active << members_of(site)[m].offset / sizeof(u32);
    if (take_side(place, number, (u32)set, READ_BY_SEVERAL, kind) &&
        take_side(place, number + BAND, (u32)(set >> BAND), READ_BY_SEVERAL, kind)) {
      return 1;
    }
  }
  for (u32 m = 0; m < site->count; m++) {
    if (!take_words(place, number + members_of(site)[m].offset / (u32)sizeof(u32), active, first, kind)) return 0;
  }
  return 1;
}

/* Note what all members of a site access; 0 where that may be a race. */
INLINE flag take_site(const struct Place *place, u32 lanes, u64 base, const struct Site *site, u32 kind) {
  struct Row row;
  flag words = site->stride == 4 && site->size == 4 && place->piece->grain == WORD_GRAIN;
  if (words && !(((base - place->shared) | site->spread) & 3)) return take_members(place, lanes, base, site, kind);
  for (u32 m = 0; m < (site->together ? 1 : site->count); m++) {
    fill_row(&row, lanes, base + members_of(site)[m].offset, site, 0, 0);
    if (site->together) row.size = site->together;
    if (!take_row(place, &row, kind)) return 0;
  }
  return 1;
}

/* Note what was read before the first write. */
static NOINLINE flag take_reads(struct Place *place) {
  struct Tracker *piece = place->piece;
  u32 warp = place->warp;
  flag known = 1, common;
  for (u32 k = 0; k < piece->logged && known; k++) {
    const struct Logged *logged = &piece->log[k];
    const struct Scattered *far = &piece->scatter[logged->base % SCATTERED];
    place->warp = logged->warp;
    known = logged->site ? take_site(place, logged->lanes, logged->base, logged->site, IN_READS)
                         : take_lanes(place, far->offsets, logged->lanes, (u32)far->size, IN_READS, &common);
  }
  place->warp = warp;
  return known;
}

/* From now on what is logged is noted in bands, too: 0 where what was logged before cannot be. */
INLINE flag begin_stores(struct Place *place) {
  struct Tracker *piece = place->piece;
  if (piece->stored) return 1;
  piece->stored = 1;
  return !piece->logged || take_reads(place);
}

/* Log what lanes of a row do, by all members of a site, if it is no race with anything since the last barrier of all
   warps. */
INLINE flag log_row(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  struct Tracker *piece = place->piece;
  flag writes = site->flags & ACCESS_WRITE;
  if (site->flags & ACCESS_STRONG || site->size > 16 || !may_log(place, writes)) return 0;
  if (writes && !begin_stores(place)) return 0;
  if (piece->stored && !take_site(place, lanes, base, site, writes ? IN_WRITES : IN_READS)) return 0;
  piece->log[piece->logged++] = (struct Logged){site, base, lanes, place->warp};
  return 1;
}

/* The same for lanes at addresses of their own; `common` gets whether some write the same places. */
INLINE flag log_lanes(struct Place *place, const struct Lanes *all, flag *common) {
  struct Tracker *piece = place->piece;
  u32 kind = kind_of(all->flags);
  if (piece->scattered == SCATTERED || !may_log(place, kind != IN_READS)) return 0;
  struct Scattered *now = &piece->scatter[piece->scattered];
  *(loose32 *)now->offsets = __builtin_convertvector(*all->addresses - place->shared, u32x32);
  now->size = all->size, now->flags = all->flags, now->line = all->line;
  if (kind != IN_READS && !begin_stores(place)) return 0;
  if (piece->stored && !take_lanes(place, now->offsets, all->lanes, (u32)all->size, kind, common)) return 0;
  piece->log[piece->logged++] = (struct Logged){0, piece->scattered++, all->lanes, place->warp};
  return 1;
}

/* Nothing has a record that is unordered with what any warp does now: words may be logged with no further look. */
INLINE void be_quick(const struct Place *place) {
  struct Tracker *piece = place->piece;
  flag written = !(place->watch->checks & CHECK_INIT) || piece->full, alone = place->watch->cluster_blocks < 2;
  piece->quick = written && alone && piece->grain == WORD_GRAIN ? LOG : 0;
}

/* Forget what is logged. */
INLINE void clear_logs(const struct Place *place) {
  struct Tracker *piece = place->piece;
  if (piece->stored) next_phase(place);
  piece->logged = piece->scattered = piece->stored = 0;
}

static NOINLINE void note_row(struct Place *place, const struct Row *row) {
  loose64 addresses;
  u32 event = new_event(place, row->flags, row->line);
  if (row_is_ordered(place, row, event)) return;
  addresses_of(row, (u64 *)&addresses);
  u64 bits = row->base | row->stride;
  struct Lanes all = {row->lanes, row->flags, row->line, event, row->size, row->low, row->bytes, bits, &addresses};
  check_races(place, &all);
}

static void note_scattered(struct Place *place, const struct Scattered *log, u32 lanes) {
  loose64 addresses = place->shared + __builtin_convertvector(*(const loose32 *)log->offsets, u64x32);
  u32 event = new_event(place, log->flags, log->line);
  struct Lanes all = {lanes, log->flags, log->line, event, log->size, 0, 0, 0, &addresses};
  measure(place, &all);
  check_races(place, &all);
}

static NOINLINE void note_logged(struct Place *place) {
  struct Tracker *piece = place->piece;
  u32 count = piece->logged, warp = place->warp;
  const u8 *data = place->data; /* of another store */
  place->data = 0;
  clear_logs(place);
  for (u32 k = 0; k < count; k++) {
    const struct Logged *logged = &piece->log[k];
    place->warp = logged->warp, place->first = logged->warp * WARP;
    if (!logged->site) note_scattered(place, &piece->scatter[logged->base], logged->lanes);
    for (u32 m = 0; logged->site && m < logged->site->count; m++) {
      const struct Member *member = &members_of(logged->site)[m];
      struct Row row;
      fill_row(&row, logged->lanes, logged->base + member->offset, logged->site, 0, member->line);
      note_row(place, &row);
    }
  }
  place->warp = warp, place->first = warp * WARP, place->data = data;
}

/* Who looks at records, or changes what is ordered, has all that is logged noted before. */
INLINE void note_reads(struct Place *place) {
  if (place->watch->checks & CHECK_RACE && (place->piece->logged | place->piece->stored)) note_logged(place);
}
