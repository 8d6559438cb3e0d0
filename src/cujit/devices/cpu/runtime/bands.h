/* Who accessed each band of grains side by side in this phase, where each warp did so by a rule or by few: which of its
   threads accesses which grain. A rule that accesses others' grains is compared with theirs by sets of grains, and not
   grain by grain.

   What two rules access in one place, one of them by a write, may be a race; so may be more rules than a band has room for;
   and lanes may go by no rule. Then the words of all grains are shaded as the rules say, and for some phases these tell. */

#pragma once

#include "phase.h"

/* The grains of a band, and how many rules it has room for. */
enum { BAND = WARP, RULES = 8 };

/* What was done by a rule in a phase, and after how many meetings of its warp the last time: which grains were read, and which
   were written. */
struct Rule {
  u32 when, name, reads, writes;
};

/* Phases have few enough numbers that meetings have this room beside them. */
enum { MEETING_BITS = 12, MEETINGS = 1 << MEETING_BITS };
_Static_assert((u64)LAST_PHASE << MEETING_BITS <= ~0u, "phases and meetings in one word");

/* The rules of a phase come first. */
struct Band {
  struct Rule rules[RULES];
};

/* The name of a rule: its warp, how many grains lane lies behind lane, and the grain of lane 0. Instead of the step: several
   threads read each grain; lanes lie in the order of an exclusive or. WORDED: for how many phases words tell. */
enum { STEP_BITS = 4, WARP_BITS = 5, READ_BY_SEVERAL = 0, IN_TURN = NEAR + 1, WORDED = 64 };
INLINE u32 rule_name(u32 warp, u32 step, u32 first) { return (first << STEP_BITS | step) << WARP_BITS | warp; }

_Static_assert(sizeof(struct Band) == 128, "as checking.py says");

INLINE struct Band *bands_of(const struct Place *place) {
  return (struct Band *)(phases_of(place) + place->watch->shared_stride + PHASE_SLACK);
}

/* Begin with words and bands that say nothing. */
static NOINLINE void clear_phases(const struct Place *place) {
  memset(phases_of(place), 0, (grains_of(place) + PHASE_SLACK) * sizeof(u32));
  memset(bands_of(place), 0, (grains_of(place) / BAND + 2) * sizeof(struct Band));
}

INLINE void next_phase(const struct Place *place) {
  struct Tracker *piece = place->piece;
  piece->worded -= piece->worded > 0;
  if (piece->phase++ < LAST_PHASE) return;
  clear_phases(place);
  piece->phase = 1;
}

/* Shade the words of a band as a rule says. */
INLINE void shade_by_rule(u32 *all, u32 number, const struct Rule *rule, u32 tag) {
  u32 name = rule->name, thread = name % (1 << WARP_BITS) * WARP, step = name >> WARP_BITS & ((1 << STEP_BITS) - 1);
  u32 first = name >> (STEP_BITS + WARP_BITS);
  for (u32 at = 0; at < BAND; at += PIECE) {
    words grain = NUMBERS + at, lane = grain & 0, reads = only_of(rule->reads >> at), writes = only_of(rule->writes >> at);
    u32 *own = all + number * BAND + at;
    if (step == IN_TURN) lane = grain ^ first;
    if (step && step <= NEAR) lane = ((grain + number * BAND - first) & (NEAR * WARP - 1)) * INVERSES[step] >> 16;
    shade(own, lane + thread, reads, tag, IN_READS);
    if (name == READ_BY_SEVERAL) shade(own, lane + thread + 1, reads, tag, IN_READS);
    shade(own, lane + thread, writes, tag, IN_WRITES);
  }
}

/* From here on the words of grains tell; they know of no meetings. 0 where there were some. */
static NOINLINE flag use_words(const struct Place *place) {
  u32 phase = place->piece->phase;
  if (place->piece->meets) return 0;
  place->piece->worded = WORDED;
  for (u32 number = 0; number < grains_of(place) / BAND + 2; number++) {
    const struct Rule *rules = bands_of(place)[number].rules;
    for (u32 k = 0; k < RULES && rules[k].when >> MEETING_BITS == phase; k++) {
      shade_by_rule(phases_of(place), number, &rules[k], phase * PHASE);
    }
  }
  return 1;
}

/* Where words tell: whether they do already, and from here on. */
INLINE flag tell_by_words(const struct Place *place) {
  if (!place->piece->worded) return use_words(place);
  place->piece->worded = WORDED;
  return 1;
}

/* Make room in a band: what was only read counts as read by several threads. Gives that rule, the last one that is left;
   null where all rules wrote. */
static NOINLINE struct Rule *join_reads(struct Band *band, u32 when) {
  struct Rule *end = band->rules, joined = {when, READ_BY_SEVERAL, 0, 0};
  for (u32 k = 0; k < RULES; k++) {
    if (band->rules[k].writes) {
      *end++ = band->rules[k];
    } else {
      joined.reads |= band->rules[k].reads;
    }
  }
  if (end == band->rules + RULES) return 0;
  *end = joined;
  for (struct Rule *rule = end + 1; rule < band->rules + RULES; rule++) rule->when = 0;
  return end;
}

/* Whether a rule is of the same warp as another one, and of before its lanes met: what is read by several has no warp. */
INLINE flag was_before(const struct Rule *rule, u32 when, u32 name) {
  if (rule->name == READ_BY_SEVERAL || name == READ_BY_SEVERAL) return 0;
  return !((rule->name ^ name) & ((1 << WARP_BITS) - 1)) && rule->when < when;
}

/* Note that grains of a band, which are `set`, are accessed by a rule: `when` has the phase, and the meetings of the warp in it.
   0: see the words. */
INLINE flag band_takes(struct Band *band, u32 when, u32 name, u32 set, u32 kind) {
  struct Rule *rule = band->rules, *end = rule + RULES, *own = 0;
  for (; rule < end && !((rule->when ^ when) >> MEETING_BITS); rule++) {
    if (rule->name == name) {
      own = rule;
    } else if (set & (kind == IN_READS ? rule->writes : rule->reads | rule->writes) && !was_before(rule, when, name)) {
      return 0;
    }
  }
  if (!own && rule == end) {
    rule = join_reads(band, when);
    if (!rule) return 0;
    if (kind == IN_READS) {
      own = rule;
    } else if (++rule == end) {
      return 0;
    }
  }
  if (!own) {
    own = rule;
    *own = (struct Rule){when, name, 0, 0};
  }
  own->when = when;
  *(kind == IN_READS ? &own->reads : &own->writes) |= set;
  return 1;
}

/* The phase, and how often lanes of this warp have met in it. */
INLINE u32 when_of(const struct Place *place) {
  const struct Tracker *piece = place->piece;
  return piece->phase << MEETING_BITS | piece->meetings[place->warp];
}

/* The same for grains from a number on, those whose bits are in `lanes`. */
INLINE flag take_side(const struct Place *place, u32 number, u32 lanes, u32 name, u32 kind) {
  struct Band *band = bands_of(place) + number / BAND;
  u64 set = (u64)lanes << number % BAND;
  u32 when = when_of(place), low = (u32)set, high = (u32)(set >> BAND);
  return (!low || band_takes(band, when, name, low, kind)) && (!high || band_takes(band + 1, when, name, high, kind));
}

/* Bits at the multiples of a step. */
static const u64 MULTIPLES[] = {~0ull, ~0ull, 0x5555555555555555, 0x9249249249249249, 0x1111111111111111, 0x1084210842108421,
                                0x1041041041041041, 0x8102040810204081, 0x0101010101010101};

/* The same for grains from a number on, those of lanes side by side: `count` each of a lane, `step` apart. */
INLINE flag take_range(const struct Place *place, u32 number, u32 lanes, u32 step, u32 count, u32 name, u32 kind) {
  u64 accessed = count == step ? ~0ull : MULTIPLES[step] * ((1u << count) - 1);
  u32 end = number + (lanes - 1) * step + count, left;
  for (u32 at = number; at < end; at += left) {
    left = BAND - at % BAND;
    if (left > end - at) left = end - at;
    u32 set = (u32)(accessed >> (at - number) % step) & ~0u >> ((BAND - left) & 31);
    if (!band_takes(bands_of(place) + at / BAND, when_of(place), name, set << at % BAND, kind)) return 0;
  }
  return 1;
}

/* Words side by side, by which words tell, from here on or already. */
static NOINLINE flag shade_words(const struct Place *place, u32 number, u32 lanes, u32 first, u32 kind) {
  if (!place->piece->worded && !use_words(place)) return 0;
  u32 thread = place->warp * WARP + first, *all = phases_of(place), tag = place->piece->phase * PHASE;
  return kind == IN_READS ? shade_side(all, number, lanes, thread, tag, IN_READS)
                          : shade_side(all, number, lanes, thread, tag, IN_WRITES);
}

/* Words side by side, of which the bits `lanes` are accessed by a thread each, from that of lane `first` on. */
INLINE flag take_words(const struct Place *place, u32 number, u32 lanes, u32 first, u32 kind) {
  if (!place->piece->worded && take_side(place, number, lanes, rule_name(place->warp, 1, number - first), kind)) return 1;
  return shade_words(place, number, lanes, first, kind);
}

static const u32 HALVES[] = {0x55555555, 0x33333333, 0x0f0f0f0f, 0x00ff00ff, 0x0000ffff};

/* Which bits lanes have in the order of an exclusive or. */
INLINE u32 turned_set(u32 lanes, u32 turned) {
  for (u32 k = 0; k < 5 && lanes != ~0u; k++) {
    u32 by = 1 << k;
    if (turned & by) lanes = (lanes & HALVES[k]) << by | (lanes >> by & HALVES[k]);
  }
  return lanes;
}

/* Note what few lanes access, `count` grains each from numbers on, each lane by a rule of its own. */
INLINE flag take_each(const struct Place *place, const u32 *numbers, u32 lanes, u32 count, u32 kind) {
  EACH_LANE(lane, lanes) {
    u32 name = rule_name(place->warp, count, numbers[lane] - lane * count);
    if (!take_range(place, numbers[lane], 1, count, count, name, kind)) return 0;
  }
  return 1;
}

/* Note what lanes access at offsets into shared memory, all of them multiples of the size: 0 where that may be a race. */
static NOINLINE flag take_lanes(const struct Place *place, const u32 *offsets, u32 lanes, u32 size, u32 kind, flag *common) {
  u32 grain = place->piece->grain & 3, warp = place->warp, count = size >> grain;
  if (!count) return 0;
  u32x32 index = *(const loose32 *)offsets >> grain, active = (u32x32)only(lanes);
  const u32 *numbers = (const u32 *)&index;
  u32 lane = first_lane(lanes), begin = numbers[lane], turned = begin ^ lane, by = turned % WARP;
  *common = 0;
  u32 phase = place->piece->phase, tag = phase * PHASE, *all = phases_of(place);
  flag worded = place->piece->worded != 0;
  if (kind != IN_ATOMICS && count <= NEAR) {
    /* Grains side by side, or those of a line in the order of an exclusive or. */
    if (count == 1 && by && !__builtin_reduce_or(((index ^ LANES) ^ turned) & active)) {
      u32 set = turned_set(lanes, by);
      if (!worded && band_takes(bands_of(place) + turned / BAND, when_of(place), rule_name(warp, IN_TURN, by), set, kind)) return 1;
      if (!worded && !use_words(place)) return 0;
      for (u32 k = 0; k < BAND; k += PIECE) {
        words thread = ((NUMBERS + k) ^ by) + warp * WARP;
        if (!shade(all + turned / BAND * BAND + k, thread, only_of(set >> k), tag, kind)) return 0;
      }
      return 1;
    }
    if (!__builtin_reduce_or((index - LANES * count - (begin - lane * count)) & active)) {
      u32 set = lanes >> lane;
      if (count == 1) return take_words(place, begin, set, lane, kind);
      u32 name = rule_name(warp, count, begin - lane * count);
      if (!worded && !(set & (set + 1)) && take_range(place, begin, last_lane(set) + 1, count, count, name, kind)) return 1;
      if (!worded && !use_words(place)) return 0;
      return shade_apart(all, begin, count, count, set, warp * WARP + lane, tag, kind);
    }
    if (!worded && __builtin_popcount(lanes) <= FEW && take_each(place, numbers, lanes, count, kind)) return 1;
  }
  if (!tell_by_words(place)) return 0;
  return shade_lanes(all, numbers, lanes, count, warp * WARP, tag, kind, common);
}

/* Note what lanes of a row access, `step` grains apart, `ruled` if these are side by side, and words tell. */
static NOINLINE flag shade_row(const struct Place *place, u32 number, u32 step, u32 count, u32 lanes, u32 lane, u32 kind) {
  flag ruled = !(lanes & (lanes + 1));
  if (!(ruled ? place->piece->worded || use_words(place) : tell_by_words(place))) return 0;
  u32 tag = place->piece->phase * PHASE;
  return shade_apart(phases_of(place), number, step, count, lanes, place->warp * WARP + lane, tag, kind);
}

/* Note what the only lane of a row accesses, or all lanes, `several`; words tell. */
static NOINLINE flag shade_one(const struct Place *place, u32 number, u32 count, u32 lane, flag several, u32 kind) {
  if (!place->piece->worded && !use_words(place)) return 0;
  u32 tag = place->piece->phase * PHASE;
  return shade_common(phases_of(place) + number, count, place->warp * WARP + lane, several, tag, kind);
}

/* Note that lanes read a word. */
INLINE flag take_word(const struct Place *place, u32 number, u32 lanes) {
  u32 lane = first_lane(lanes), several = lanes & (lanes - 1);
  u32 name = several ? READ_BY_SEVERAL : rule_name(place->warp, 1, number - lane);
  struct Band *band = bands_of(place) + number / BAND;
  if (!place->piece->worded && band_takes(band, when_of(place), name, 1u << number % BAND, IN_READS)) return 1;
  return shade_one(place, number, 1, lane, several != 0, IN_READS);
}

/* Note what the warp accesses in a row, by a load or a store. */
INLINE flag take_row(const struct Place *place, const struct Row *row, u32 kind) {
  u32 grain = place->piece->grain & 3, odd = (1u << grain) - 1;
  u32 first = first_lane(row->lanes), lanes = row->lanes >> (first & 31), last = last_lane(lanes), warp = place->warp;
  u64 offset = row->base + first * row->stride - place->shared, far = row->stride >> grain;
  u32 number = (u32)(offset >> grain), count = row->size >> grain, step = (u32)far;
  flag worded = place->piece->worded != 0;
  if ((offset | row->stride | row->size) & odd) return 0;
  if (far == 1 && count == 1) return take_words(place, number, lanes, first, kind);
  if (!far || !last) {
    flag several = last && kind == IN_READS;
    u32 lane = first + (kind == IN_READS ? 0 : last);
    u32 name = several ? READ_BY_SEVERAL : rule_name(warp, count, number - lane * count);
    if (!worded && (several || count <= NEAR) && take_range(place, number, 1, count, count, name, kind)) return 1;
    return shade_one(place, number, count, lane, last > 0, kind);
  }
  if (far > NEAR || count > far) {
    u32x32 offsets = LANES * (u32)row->stride + (u32)(row->base - place->shared);
    flag common;
    return take_lanes(place, (const u32 *)&offsets, row->lanes, row->size, kind, &common);
  }
  if (!worded && !(lanes & (lanes + 1))) {
    if (take_range(place, number, last + 1, step, count, rule_name(warp, step, number - first * step), kind)) return 1;
  }
  return shade_row(place, number, step, count, lanes, first, kind);
}
