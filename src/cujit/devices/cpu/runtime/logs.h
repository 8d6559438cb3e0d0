/* Accesses of shared memory that are logged instead of noted: they are no race with anything since the last barrier of all
   warps. At the next one they are forgotten; whoever needs records before that has them noted. */

#pragma once

#include "races.h"

/* -- what is logged ------------------------------------------------------------------------------------------- */

/* Among which buckets of a warp an access counts. */
enum { IN_READS, IN_WRITES, IN_ATOMICS, IN_ROWS, BUCKET_BITS = 7 };

INLINE u32 bucket_kind(u32 flags) { return flags & ACCESS_STRONG ? IN_ATOMICS : flags & ACCESS_WRITE ? IN_WRITES : IN_READS; }

/* The buckets that `bytes` lie in, from an offset on. */
INLINE u64 buckets_of(u64 offset, u64 bytes) {
  u64 first = offset >> BUCKET_BITS, count = ((offset + bytes - 1) >> BUCKET_BITS) - first;
  u64 mask = count > 62 ? ~0ull : (2ull << count) - 1;
  return mask << (first & 63) | (first & 63 ? mask >> (-first & 63) : 0);
}

/* Which of these buckets have what is a race with an access of a kind. */
INLINE u64 buckets_against(const u64 *buckets, u32 kind) {
  u64 found = buckets[IN_WRITES];
  if (kind != IN_READS) found |= buckets[IN_READS] | buckets[IN_ROWS];
  return kind == IN_ATOMICS ? found : found | buckets[IN_ATOMICS];
}

/* Have a warp log: what it logged before others did counts as theirs. */
INLINE void begin_logging(struct Tracker *piece, u32 warp) {
  if (piece->logger == warp) return;
  for (u32 kind = 0; kind < BUCKETS; kind++) piece->others[kind] |= piece->own[kind], piece->own[kind] = 0;
  piece->logger = warp, piece->newest = 0;
}

/* Have the buckets of logged rows counted. */
INLINE void sum_rows(struct Tracker *piece, u64 shared) {
  for (; piece->summed < piece->logged; piece->summed++) {
    const struct Logged *logged = &piece->log[piece->summed];
    struct Row row;
    fill_row(&row, logged->lanes, logged->base, logged->site, logged->site->spread, 0);
    u64 *buckets = logged->warp == piece->logger ? piece->own : piece->others;
    buckets[IN_ROWS] |= buckets_of(row.low - shared, row.bytes);
  }
}

/* Log what a row reads, or all members of a site, where nothing that was written may be unordered with it. */
INLINE flag log_reads(const struct Place *place, const struct Row *row, const struct Site *site) {
  struct Tracker *piece = place->piece;
  if (row->flags & ACCESS_STRONG || piece->logged == LOG) return 0;
  if (piece->written >= settled_of(place)) return 0;
  if (piece->stored && (buckets_against(piece->own, IN_READS) | buckets_against(piece->others, IN_READS)) & buckets_of(row->low - place->shared, row->bytes)) return 0;
  piece->log[piece->logged++] = (struct Logged){site, row->base, row->lanes, place->warp};
  return 1;
}

/* The addresses of the lanes of a row. */
INLINE void addresses_of(const struct Row *row, u64 *addresses) {
  for (u32 lane = 0; lane < WARP; lane++) addresses[lane] = row->base + lane * row->stride;
}

/* Whether two accesses of one warp are no race: they are of the same places in the same lanes, or of different words. */
INLINE flag are_apart(const struct Scattered *one, const struct Scattered *two) {
  u32 both = one->lanes & two->lanes, more = one->lanes | two->lanes;
  if (one->words && two->words && !(one->words & two->words)) return 1;
  /* Lanes of the larger one have words of their own. */
  const struct Scattered *most = one->lanes == more ? one : two;
  if (most->lanes != more || one->size != two->size || one->size > sizeof(u32)) return 0;
  if (__builtin_popcount(most->words) != __builtin_popcount(more)) return 0;
  u32x32 differ = *(const loose32 *)one->offsets ^ *(const loose32 *)two->offsets;
  return !__builtin_reduce_or(differ & (u32x32)only(both));
}

/* Describe what lanes access, in all `bytes`. */
INLINE void describe(struct Scattered *now, const struct Place *place, const struct Lanes *all) {
  u64x32 offsets = addresses_in(all->addresses, all->lanes) - place->shared;
  u32x32 words = __builtin_convertvector(offsets, u32x32), bit = 1u << (words >> 2 & 31);
  *(loose32 *)now->offsets = words;
  now->size = all->size, now->lanes = all->lanes, now->flags = all->flags, now->line = all->line, now->warp = place->warp;
  now->buckets = buckets_of(all->low - place->shared, all->bytes);
  now->words = now->buckets & (now->buckets - 1) || all->size > sizeof(u32) ? 0 : __builtin_reduce_or(bit);
}

/* Whether what is logged of a row is no race with a write of this warp. */
static NOINLINE flag is_apart_from_row(const struct Place *place, const struct Logged *logged, const struct Scattered *now) {
  for (u32 m = 0; m < logged->site->count; m++) {
    struct Scattered its;
    struct Row row;
    loose64 addresses;
    fill_row(&row, logged->lanes, logged->base + members_of(logged->site)[m].offset, logged->site, 0, 0);
    if (!(buckets_of(row.low - place->shared, row.bytes) & now->buckets)) continue;
    addresses_of(&row, (u64 *)&addresses);
    struct Lanes all = {row.lanes, row.flags, 0, 0, row.size, row.low, row.bytes, 0, &addresses};
    describe(&its, place, &all);
    if (!are_apart(&its, now)) return 0;
  }
  return 1;
}

/* Whether an access of this warp is no race with what is logged. */
INLINE flag is_apart(const struct Place *place, const struct Scattered *now, u32 kind) {
  const struct Tracker *piece = place->piece;
  if (buckets_against(piece->others, kind) & now->buckets) return 0;
  if (!(buckets_against(piece->own, kind) & now->buckets)) return 1;
  flag rows = kind != IN_READS && piece->own[IN_ROWS] & now->buckets;
  for (u32 k = 0; rows && k < piece->logged; k++) {
    if (piece->log[k].warp == place->warp && !is_apart_from_row(place, &piece->log[k], now)) return 0;
  }
  for (u32 k = piece->newest; k; k = piece->scatter[k - 1].previous) {
    const struct Scattered *log = &piece->scatter[k - 1];
    u32 its = bucket_kind(log->flags);
    if (!(log->buckets & now->buckets)) continue;
    if (kind == its && kind != IN_WRITES) continue;
    if (!are_apart(log, now)) return 0;
  }
  return 1;
}

/* Log what lanes do at addresses of their own, if it is no race with anything since the last barrier of all warps; a
   write only if nothing has records since. */
INLINE flag log_lanes(const struct Place *place, const struct Lanes *all) {
  struct Tracker *piece = place->piece;
  u32 settled = settled_of(place), kind = bucket_kind(all->flags);
  /* Fences for the asynchronous proxy are looked for behind barriers, too. */
  if (kind != IN_READS && place->watch->proxied) return 0;
  if (piece->scattered == SCATTERED || (kind == IN_READS ? piece->written : piece->events) >= settled) return 0;
  struct Scattered *now = &piece->scatter[piece->scattered];
  describe(now, place, all);
  begin_logging(piece, place->warp);
  if (kind != IN_READS) sum_rows(piece, place->shared);
  if ((kind != IN_READS || piece->stored) && !is_apart(place, now, kind)) return 0;
  now->previous = piece->newest;
  piece->newest = ++piece->scattered;
  piece->own[kind] |= now->buckets;
  piece->stored |= kind != IN_READS;
  return 1;
}

/* Log what a row writes, if something is logged: else its records are as cheap. */
static NOINLINE flag log_row(const struct Place *place, const struct Row *row) {
  loose64 addresses;
  addresses_of(row, (u64 *)&addresses);
  struct Lanes all = {row->lanes, row->flags, row->line, 0, row->size, row->low, row->bytes, 0, &addresses};
  return log_lanes(place, &all);
}

INLINE flag log_write(const struct Place *place, const struct Row *row) {
  const struct Tracker *piece = place->piece;
  if (!(piece->logged | piece->scattered) || piece->events >= settled_of(place) || row->size > 16) return 0;
  return log_row(place, row);
}

/* Forget what is logged. */
INLINE void clear_logs(struct Tracker *piece) {
  memset(piece->own, 0, sizeof piece->own);
  memset(piece->others, 0, sizeof piece->others);
  piece->newest = 0;
  piece->logged = piece->scattered = piece->stored = piece->summed = 0;
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

static NOINLINE void note_logged(struct Place *place) {
  struct Tracker *piece = place->piece;
  u32 count = piece->logged, scattered = piece->scattered, warp = place->warp;
  const u8 *data = place->data; /* of another store */
  place->data = 0;
  clear_logs(piece);
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
    place->warp = log->warp, place->first = log->warp * WARP;
    loose64 addresses = place->shared + __builtin_convertvector(*(const loose32 *)log->offsets, u64x32);
    u32 event = new_event(place, log->flags, log->line);
    struct Lanes all = {log->lanes, log->flags, log->line, event, log->size, 0, 0, 0, &addresses};
    measure(place, &all);
    check_races(place, &all);
  }
  place->warp = warp, place->first = warp * WARP, place->data = data;
}

/* Who looks at records, or changes what is ordered, has all reads noted before. */
INLINE void note_reads(struct Place *place) {
  if (place->watch->checks & CHECK_RACE && (place->piece->logged | place->piece->scattered)) note_logged(place);
}
