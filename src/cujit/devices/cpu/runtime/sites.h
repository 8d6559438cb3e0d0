/* What a site says that lanes access in this phase: noted in bands, or in words. */

#pragma once

#include "bands.h"
#include "clusters.h"

/* What lanes of a logged access do at addresses of their own: of one that has no site. */
INLINE struct Scattered *far_of(struct Tracker *piece, const struct Logged *logged) {
  return &piece->scatter[logged->base % (SCATTERED + FAR_STEPS)];
}

/* What a logged access is. */
INLINE u32 kind_of_logged(struct Tracker *piece, const struct Logged *logged) {
  return kind_of(logged->site ? logged->site->flags : far_of(piece, logged)->flags);
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

/* What is logged where lanes of a warp meet. */
static const struct Site MEETING = {0};

/* Lanes of a warp meet in this phase, behind what they did: 0 where there is no room for it. */
INLINE flag meet_in_phase(const struct Place *place) {
  struct Tracker *piece = place->piece;
  piece->meets = 1;
  return ++piece->meetings[place->warp] < MEETINGS;
}

/* As if no lanes had met in this phase. */
INLINE void clear_meetings(struct Tracker *piece) {
  if (piece->meets) memset(piece->meetings, 0, sizeof piece->meetings);
  piece->meets = 0;
}

/* Note accesses that are logged in a phase, from its first one on: 0 where some may be a race. */
static NOINLINE flag take_all(struct Place *place, const struct Logged *all, u32 count) {
  struct Tracker *piece = place->piece;
  u32 warp = place->warp;
  flag known = 1;
  clear_meetings(piece);
  for (u32 k = 0; k < count && known; k++) {
    const struct Logged *logged = &all[k];
    place->warp = logged->warp;
    if (logged->site == &MEETING) {
      known = meet_in_phase(place);
      continue;
    }
    struct Scattered *far = logged->site ? 0 : far_of(piece, logged);
    u32 kind = kind_of_logged(piece, logged);
    flag common = 0;
    known = far ? take_lanes(place, far->offsets, logged->lanes, far->size, kind, &common)
                : take_site(place, logged->lanes, logged->base, logged->site, kind);
    if (far) far->common |= common;
  }
  place->warp = warp;
  return known;
}
