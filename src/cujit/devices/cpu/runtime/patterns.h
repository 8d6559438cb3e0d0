/* Patterns: accesses of shared memory between two barriers of all warps that are known to be no race.

   Blocks repeat what blocks before them did. Accesses that are all among those of a pattern, each by some of its lanes, are
   no race either: they are logged, and nobody compares them with each other. */

#pragma once

#include "sites.h"

/* How many steps of a pattern may be left out at a time, and how many patterns are made before any is followed. */
enum { SKIPPED = 8, UNPROVEN = 64 };

/* -- following a pattern ---------------------------------------------------------------------------------------------- */

INLINE flag is_end(const struct Logged *step) { return step->warp == ~0u; }

/* Whether lanes of two accesses at addresses of their own do the same. */
INLINE flag are_alike(const struct Scattered *one, const struct Scattered *other, u32 lanes) {
  if (one->flags != other->flags || one->size != other->size || one->line != other->line) return 0;
  return !__builtin_reduce_or((*(const loose32 *)one->offsets ^ *(const loose32 *)other->offsets) & (u32x32)only(lanes));
}

/* Whether an access is of the same instruction and the same memory as a step. */
INLINE flag is_of_step(struct Tracker *piece, const struct Logged *step, const struct Logged *now) {
  if (step->site != now->site || step->warp != now->warp) return 0;
  return now->site ? step->base == now->base : are_alike(far_of(piece, step), far_of(piece, now), step->lanes & now->lanes);
}

/* Whether an access is no more than what a step says. */
INLINE flag is_step(struct Tracker *piece, const struct Logged *step, const struct Logged *now) {
  return !(now->lanes & ~step->lanes) && is_of_step(piece, step, now);
}

static NOINLINE void note_logged(struct Place *place);

/* Something else is done than what the pattern says: what was logged is compared after all. */
static void leave_pattern(struct Place *place) {
  struct Tracker *piece = place->piece;
  flag writes = 0;
  piece->course = TEACHES, piece->ahead = &END;
  for (u32 k = 0; k < piece->logged; k++) writes |= kind_of_logged(piece, &piece->log[k]) != IN_READS;
  piece->stored = writes;
  if (writes && !take_all(place, piece->log, piece->logged)) note_logged(place);
}

/* Where patterns are found by their first access. */
INLINE u32 *link_of(struct Tracker *piece, const struct Logged *first) {
  u64 key = first->site ? first->base : far_of(piece, first)->offsets[first_lane(first->lanes)];
  u64 hash = ((u64)first->site >> 3) * 31 + (key >> 2) * 7 + first->warp;
  return &piece->links[(hash ^ hash >> 8) % LINKS];
}

INLINE const struct Logged *first_of(struct Tracker *piece, u32 pattern) {
  return pattern ? &piece->steps[piece->patterns[pattern % PATTERNS].first] : &END;
}

/* The step that an access is, from one step on; null where none of the next ones is. No meeting of lanes is left out. */
INLINE const struct Logged *step_from(struct Tracker *piece, const struct Logged *step, const struct Logged *now) {
  for (u32 k = 0; k < SKIPPED && !is_end(step); k++, step++) {
    if (is_step(piece, step, now)) return step;
    if (step->site == &MEETING) return 0;
  }
  return 0;
}

/* The step of a pattern that an access is, where that has all that was done in this phase; null where it is of none. */
static const struct Logged *step_of(struct Tracker *piece, u32 pattern, const struct Logged *now) {
  const struct Logged *step = first_of(piece, pattern);
  for (u32 k = 0; k < piece->logged && step; k++) {
    step = step_from(piece, step, &piece->log[k]);
    if (step) step++;
  }
  return step ? step_from(piece, step, now) : 0;
}

/* Find the step that an access is, behind the one that was expected, or in another pattern. 0: none is followed any more. */
static NOINLINE flag finds_step(struct Place *place, const struct Logged *now) {
  struct Tracker *piece = place->piece;
  if (piece->course != FOLLOWS) return 0;
  u32 others[] = {piece->patterns[piece->previous % PATTERNS].next, *link_of(piece, piece->logged ? piece->log : now)};
  const struct Logged *step = step_from(piece, piece->ahead, now);
  for (u32 k = 0; k < 2 && !step; k++) {
    step = others[k] == piece->pattern ? 0 : step_of(piece, others[k], now);
    if (step || !piece->pattern) piece->pattern = others[k];
  }
  if (step) {
    piece->ahead = step;
    return 1;
  }
  leave_pattern(place);
  return 0;
}

/* As `finds_step`, for a row. */
static NOINLINE flag finds_row(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  struct Logged now = {site, base, lanes, place->warp};
  return finds_step(place, &now);
}

/* Log what lanes of a row do, if a pattern says that they do. */
INLINE flag follows_row(struct Place *place, u32 lanes, u64 base, const struct Site *site) {
  struct Tracker *piece = place->piece;
  const struct Logged *ahead = piece->ahead;
  u32 warp = place->warp;
  if (ahead->site != site || ahead->base != base || ahead->warp != warp || lanes & ~ahead->lanes) {
    if (piece->course != FOLLOWS || !finds_row(place, lanes, base, site)) return 0;
    ahead = piece->ahead;
  }
  struct Logged *log = &piece->log[piece->logged++];
  log->site = site, log->base = base, log->lanes = lanes, log->warp = warp;
  piece->ahead = ahead + 1;
  piece->begun = 1;
  return 1;
}

/* The same for lanes at addresses of their own, which are those of the next `Scattered`. */
INLINE flag follows_lanes(struct Place *place, u32 lanes, flag *common) {
  struct Tracker *piece = place->piece;
  struct Logged now = {0, piece->scattered, lanes, place->warp};
  if (piece->course != FOLLOWS) return 0;
  if (!is_step(piece, piece->ahead, &now) && !finds_step(place, &now)) return 0;
  now.base = piece->ahead->base;
  *common = (flag)far_of(piece, &now)->common;
  piece->log[piece->logged++] = now;
  piece->ahead++;
  return 1;
}

/* -- making patterns --------------------------------------------------------------------------------------------------- */

static NOINLINE void forget_patterns(struct Tracker *piece) {
  memset(piece->links, 0, sizeof piece->links);
  memset(piece->path, 0, sizeof piece->path);
  piece->patterns[0] = (struct AccessPattern){0};
  piece->known = 1;
  piece->step = piece->far = piece->previous = 0;
}

/* Put a step behind others, with its addresses. */
INLINE void add_step(struct Tracker *piece, const struct Logged *step, u32 *count, u32 *far) {
  struct Logged *to = &piece->steps[(*count)++];
  *to = *step;
  if (step->site) return;
  to->base = SCATTERED + (*far)++;
  *far_of(piece, to) = *far_of(piece, step);
}

/* Let a step be done by other lanes, too. */
INLINE void widen(struct Tracker *piece, struct Logged *step, const struct Logged *by) {
  if (!step->site) {
    struct Scattered *to = far_of(piece, step);
    const struct Scattered *from = far_of(piece, by);
    EACH_LANE(lane, by->lanes) to->offsets[lane] = from->offsets[lane];
    to->common |= from->common;
  }
  step->lanes |= by->lanes;
}

/* Put the steps of a pattern and of what was done instead behind all others; `news` gets how many of these it did not have. */
static u32 add_both(struct Tracker *piece, const struct Logged *old, u32 *far, u32 *news) {
  u32 count = piece->step;
  *news = 0;
  for (u32 k = 0; k < piece->logged; k++) {
    const struct Logged *log = &piece->log[k];
    u32 ahead = 0;
    while (ahead < SKIPPED && !is_end(&old[ahead]) && !is_of_step(piece, &old[ahead], log)) ahead++;
    if (ahead == SKIPPED || is_end(&old[ahead])) {
      add_step(piece, log, &count, far);
      ++*news;
      continue;
    }
    for (u32 j = 0; j <= ahead; j++) add_step(piece, old++, &count, far);
    widen(piece, &piece->steps[count - 1], log);
  }
  while (!is_end(old)) add_step(piece, old++, &count, far);
  return count;
}

/* Whether the steps behind all others, up to `end`, are no race; looked at in a phase of their own. */
static flag are_no_race(struct Place *place, u32 end) {
  struct Tracker *piece = place->piece;
  if (piece->stored) next_phase(place);
  piece->stored = 1;
  return take_all(place, &piece->steps[piece->step], end - piece->step);
}

/* Have steps done by all lanes by which they are done behind all others. */
static void replace_steps(struct Tracker *piece, struct Logged *old) {
  for (const struct Logged *from = &piece->steps[piece->step]; !is_end(old); from++, old++) {
    old->lanes = from->lanes;
    if (!old->site) *far_of(piece, old) = *far_of(piece, from);
  }
}

/* Keep the steps behind all others, up to `end`, as a pattern. */
static u32 keep_pattern(struct Tracker *piece, u32 end, u32 far) {
  struct AccessPattern *made = &piece->patterns[piece->known % PATTERNS];
  *made = (struct AccessPattern){piece->step, end - piece->step, 0};
  piece->steps[end] = END;
  *link_of(piece, &piece->steps[piece->step]) = piece->known;
  piece->step = end + 1, piece->far = far;
  return piece->known++;
}

/* Make a pattern of what was done in this phase, or have the one that it left say that, too. Gives its number; 0: there is
   none. */
static NOINLINE u32 make_pattern(struct Place *place) {
  struct Tracker *piece = place->piece;
  struct AccessPattern *left = &piece->patterns[piece->pattern % PATTERNS];
  u32 far = piece->far, end = piece->step, most = piece->logged + left->count + 1, news;
  if (piece->made >= UNPROVEN + 2 * piece->followed) return 0;
  if (piece->known == PATTERNS || PATTERN_STEPS - end < most || FAR_STEPS - far < most) {
    forget_patterns(piece);
    return 0;
  }
  piece->made++;
  if (left->count && most <= LOG) {
    end = add_both(piece, &piece->steps[left->first], &far, &news);
    flag right = news <= piece->logged / 4 && are_no_race(place, end);
    if (right && !news) {
      replace_steps(piece, &piece->steps[left->first]);
      return piece->pattern;
    }
    if (right) return keep_pattern(piece, end, far);
  }
  far = piece->far, end = piece->step;
  for (u32 k = 0; k < piece->logged; k++) add_step(piece, &piece->log[k], &end, &far);
  return keep_pattern(piece, end, far);
}

/* Expect the pattern that was followed here by the block before, or else what came behind the last one. */
static void expect_pattern(struct Tracker *piece) {
  u32 here = piece->path[piece->turns % PATH];
  piece->course = FOLLOWS;
  piece->pattern = here ? here : piece->patterns[piece->previous % PATTERNS].next;
  piece->ahead = first_of(piece, piece->pattern);
}

/* All warps have come to a barrier, or the block ends: what it did may be a pattern. */
static void end_phase(struct Place *place) {
  struct Tracker *piece = place->piece;
  u32 number = 0;
  if (piece->logged) {
    if (piece->course == FOLLOWS) number = piece->pattern, piece->followed++;
    if (piece->course == TEACHES) number = make_pattern(place);
    if (number) piece->patterns[piece->previous % PATTERNS].next = number;
  }
  if (piece->logged || piece->course == STRAYS) piece->path[piece->turns % PATH] = piece->previous = number;
  piece->turns++;
}
