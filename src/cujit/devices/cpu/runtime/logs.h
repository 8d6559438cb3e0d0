/* Accesses of shared memory that are logged instead of noted: they are no race with anything since the last barrier of all
   warps. At the next one they are forgotten; whoever needs records before that has them noted. */

#pragma once

#include "patterns.h"
#include "written.h"

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

/* From now on what is logged is noted in bands, too: 0 where what was logged before cannot be. */
INLINE flag begin_stores(struct Place *place) {
  struct Tracker *piece = place->piece;
  if (piece->stored) return 1;
  piece->stored = 1;
  return !piece->logged || take_all(place, piece->log, piece->logged);
}

/* Log what lanes of a row do, by all members of a site, if it is no race with anything since the last barrier of all
   warps. */
INLINE flag log_row(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  struct Tracker *piece = place->piece;
  flag writes = site->flags & ACCESS_WRITE;
  if (site->flags & ACCESS_STRONG || site->size > 16) return 0;
  if (follows_row(place, lanes, base, site)) return 1;
  if (!may_log(place, writes)) return 0;
  if (writes && !begin_stores(place)) return 0;
  if (piece->stored && !take_site(place, lanes, base, site, writes ? IN_WRITES : IN_READS)) return 0;
  piece->log[piece->logged++] = (struct Logged){site, base, lanes, place->warp};
  return 1;
}

/* Put down what lanes do at addresses of their own. */
INLINE struct Scattered *put_offsets(const struct Place *place, const struct Lanes *all) {
  struct Scattered *now = &place->piece->scatter[place->piece->scattered];
  *(loose32 *)now->offsets = __builtin_convertvector(*all->addresses - place->shared, u32x32);
  now->size = (u32)all->size, now->flags = all->flags, now->line = all->line, now->common = 0;
  return now;
}

/* The same for lanes at addresses of their own; `common` gets whether some write the same places. */
INLINE flag log_lanes(struct Place *place, const struct Lanes *all, flag *common) {
  struct Tracker *piece = place->piece;
  u32 kind = kind_of(all->flags);
  if (piece->scattered == SCATTERED) return 0;
  struct Scattered *now = put_offsets(place, all);
  if (follows_lanes(place, all->lanes, common)) return 1;
  if (!may_log(place, kind != IN_READS)) return 0;
  if (kind != IN_READS && !begin_stores(place)) return 0;
  if (piece->stored && !take_lanes(place, now->offsets, all->lanes, now->size, kind, common)) return 0;
  now->common = *common;
  piece->log[piece->logged++] = (struct Logged){0, piece->scattered++, all->lanes, place->warp};
  return 1;
}

/* Log that lanes of this warp meet: 0 where nothing is logged, or may be. */
INLINE flag log_meeting(struct Place *place) {
  struct Tracker *piece = place->piece;
  if (!piece->logged) return 0;
  if (follows_row(place, 0, 0, &MEETING)) return 1;
  if (!piece->logged || piece->logged == LOG || piece->worded || (piece->stored && !meet_in_phase(place))) return 0;
  piece->log[piece->logged++] = (struct Logged){&MEETING, 0, 0, place->warp};
  return 1;
}

/* Nothing has a record that is unordered with what any warp does now: words may be logged with no further look. */
INLINE void be_quick(struct Place *place) {
  struct Tracker *piece = place->piece;
  flag looks = place->watch->checks & CHECK_INIT;
  if (looks) look_for_full(place);
  piece->marking = looks && !piece->full;
  flag written = !piece->marking, alone = place->watch->cluster_blocks < 2;
  piece->quick = written && alone && piece->grain == WORD_GRAIN ? LOG : 0;
}

/* Forget what is logged. */
INLINE void clear_logs(const struct Place *place) {
  struct Tracker *piece = place->piece;
  if (piece->stored) next_phase(place);
  clear_meetings(piece);
  piece->logged = piece->scattered = piece->stored = 0;
  stray(piece);
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
    if (logged->site == &MEETING) {
      synced(place);
      continue;
    }
    if (!logged->site) note_scattered(place, far_of(piece, logged), logged->lanes);
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
