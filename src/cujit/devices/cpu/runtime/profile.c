/* What the accesses of warps cost, by their addresses: sectors of global and local memory, wavefronts of shared memory,
   lanes at one address.

   A thread of the pool counts for itself, in a `Tally` for each block that it runs beside others, so that nothing waits
   and what comes out is the same for any number of threads. */

#include "sectors.h"

#define BANKS 32
#define WORD 4
#define KEPT 64
#define ENDS 4
#define SEEN 256 /* slots, more than the sectors that a warp accesses at once, but for copies of any size */

/* What came of the last access of an operation: another one whose lanes lie as far apart costs the same. `apart` are the
   distances of its rows from the first, `phase` is where that lay in its sector `first`, `sectors` are how far each is;
   `strided` is 1 where `stride_of` found something. `drawn` is one more than the block of each picture. `from` and `to` are the first and last sector of each row that the
   block `stamp` accessed, `whole` how many sectors that is. */
struct Memo {
  u64 drawn[PICTURES];
  const struct Accessed *site;
  u32 lanes, count, strided, stamp;
  u64 first, phase, bytes, wavefronts, passes, apart[WARP];
  u64 from[ENDS], to[ENDS], whole;
  struct Marks marks;
  i64 sectors[KEPT];
};

static struct Tally *tally_of(struct Profiled *profiled, u64 shared) {
  struct Tally *tally = __atomic_load_n(&profiled->tallies, __ATOMIC_ACQUIRE);
  while (tally && tally->shared != shared) tally = tally->next;
  return tally;
}

/* Where a block counts; its shared memory tells it from others that run at the same time. */
struct Tally *cujit_profile_begin(struct Launch *launch, struct Profiled *profiled, u64 shared) {
  struct Tally *tally = tally_of(profiled, shared);
  if (tally) return tally;
  tally = calloc(1, sizeof *tally + profiled->count * sizeof(u64));
  struct Tree *tree = calloc(1, sizeof *tree);
  struct Memo *memos = calloc(profiled->count / COUNTS, sizeof *memos);
  struct Picture *pictures = calloc(profiled->count / COUNTS * PICTURES, sizeof *pictures);
  if (!tally || !tree || !memos || !pictures) cujit_fault(launch, FAULT_NO_MEMORY, ~0ull, ~0u, 0, 0);
  tally->shared = shared;
  tally->tree = tree;
  tally->memos = memos;
  for (u64 k = 0; k < profiled->count / COUNTS; k++) memos[k].marks = (struct Marks){.leaf = NOWHERE, .row = profiled->rows[k]};
  tally->pictures = pictures;
  tally->profiled = profiled;
  tally->counts = (u64 *)(tally + 1);
  tally->next = __atomic_load_n(&profiled->tallies, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&profiled->tallies, &tally->next, tally, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {}
  return tally;
}

/* -- sectors ----------------------------------------------------------------------------------------------------- */

/* Numbers that were seen, without those that are seen again. */
struct Seen {
  u64 used[SEEN / 64];
  u64 numbers[SEEN];
  u8 times[SEEN];
  u32 count;
};

INLINE void forget(struct Seen *seen) {
  for (u32 k = 0; k < SEEN / 64; k++) seen->used[k] = 0;
  seen->count = 0;
}

/* See a number; gives its slot. Whoever sees more than there is room for asks `count` before. */
INLINE u32 see(struct Seen *seen, u64 number) {
  u32 at = (u32)(number * 0x9e3779b97f4a7c15ull >> 56);
  for (;; at = (at + 1) & (SEEN - 1)) {
    u64 bit = 1ull << (at & 63);
    if (!(seen->used[at >> 6] & bit)) {
      seen->used[at >> 6] |= bit;
      seen->numbers[at] = number;
      seen->times[at] = 1;
      seen->count++;
      return at;
    }
    if (seen->numbers[at] == number) {
      seen->times[at]++;
      return at;
    }
  }
}

/* The lanes access memory of these addresses. */
struct Lanes {
  u32 lanes;
  u64 at[WARP];
  u64 size[WARP];
};

/* Whether a picture is of a block before another one, or the other is none: blocks count from 1. */
INLINE flag before(u64 block, const struct Picture *other) { return block - 1 < other->block - 1; }

/* Keep where lanes access memory, if no block before this one did so here, nor this one before. */
static void draw(struct Tally *tally, const struct Accessed *site, u32 space, const struct Lanes *them, u64 block) {
  struct Picture *picture = tally->pictures + site->first / COUNTS * PICTURES + (space == SPACE_SHARED);
  if (!before(block + 1, picture)) return;
  picture->block = block + 1;
  picture->space = space;
  picture->lanes = them->lanes;
  EACH_LANE(lane, them->lanes) {
    picture->at[lane] = them->at[lane] - (space == SPACE_SHARED ? tally->shared : 0);
    picture->size[lane] = them->size[lane];
  }
}

/* Count the sectors that lanes access together, and keep what can be. */
static u64 sectors_of(struct Tally *tally, struct Memo *memo, const struct Lanes *them, u32 stamp) {
  struct Seen seen;
  forget(&seen);
  u64 count = 0, last = ~0ull, first = memo ? memo->first : 0;
  EACH_LANE(lane, them->lanes) {
    u64 sector = them->at[lane] >> SECTOR_SHIFT, end = (them->at[lane] + them->size[lane] - 1) >> SECTOR_SHIFT;
    for (; sector <= end; sector++) {
      if (sector == last) continue;
      last = sector;
      u32 before = seen.count;
      if (before < SEEN / 2) see(&seen, sector); /* else a copy of many bytes, whose lanes do not share sectors */
      if (seen.count == before && before < SEEN / 2) continue;
      if (memo) mark(tally, &memo->marks, sector, stamp);
      if (memo && count < KEPT) memo->sectors[count] = (i64)(sector - first);
      count++;
    }
  }
  return count;
}

/* Of atomic operations: for each sector, the most lanes at one word of it. */
static u64 updated_sectors(struct Tally *tally, struct Memo *memo, const struct Lanes *them, u32 stamp, u64 *most) {
  struct Seen words, sectors;
  forget(&words);
  forget(&sectors);
  u64 count = 0;
  EACH_LANE(lane, them->lanes) {
    u64 sector = them->at[lane] >> SECTOR_SHIFT;
    u32 times = words.times[see(&words, them->at[lane])];
    u32 before = sectors.count, at = see(&sectors, sector);
    if (sectors.count != before) {
      mark(tally, &memo->marks, sector, stamp);
      sectors.times[at] = 0;
    } else sectors.times[at]--; /* what `see` added */
    if (times > sectors.times[at]) {
      count += times - sectors.times[at];
      sectors.times[at] = (u8)times;
    }
    if (times > *most) *most = times;
  }
  return count;
}

/* -- wavefronts ----------------------------------------------------------------------------------------------------- */

/* Whether every lane that is there has the address of the one that is `by` from it, or nobody there. */
INLINE flag paired(const struct Lanes *them, u32 lanes, u32 by) {
  EACH_LANE(lane, lanes) if (lanes >> (lane ^ by) & 1 && them->at[lane ^ by] != them->at[lane]) return 0;
  return 1;
}

/* Lanes that a wavefront serves at best: all of them words, half of them two words, a quarter four. */
INLINE u32 lanes_at_once(u64 size) { return size <= WORD ? WARP : size <= 2 * WORD ? WARP / 2 : WARP / 4; }

/* Count wavefronts of some lanes: the most words of one bank. Lanes that read one word read it together; those that
   update it do so one after the other. */
static u64 wavefronts_of(const struct Lanes *them, u32 lanes, flag updates) {
  u64 words[BANKS][WARP];
  u32 counts[BANKS] = {0}, most = 0;
  EACH_LANE(lane, lanes) {
    u64 word = them->at[lane] / WORD, end = (them->at[lane] + them->size[lane] - 1) / WORD;
    for (; word <= end; word++) {
      u32 bank = word % BANKS, count = counts[bank], k = updates ? count : 0;
      while (k < count && words[bank][k] != word) k++;
      if (k < count) continue;
      words[bank][count] = word;
      counts[bank] = ++count;
      if (count > most) most = count;
    }
  }
  return most;
}

/* -- accesses ---------------------------------------------------------------------------------------------------- */

static u64 bytes_of(const struct Lanes *them) {
  u64 bytes = 0;
  EACH_LANE(lane, them->lanes) bytes += them->size[lane];
  return bytes;
}

#define ALONE 1

/* How far a lane is from its neighbour in bytes, plus 2^63: what the first two say, if it holds of most of those that
   follow each other, with lanes between them that do nothing counted in; else 0. */
INLINE u64 stride_of(const struct Lanes *them) {
  const u64 *at = them->at;
  u32 first = first_lane(them->lanes), rest = them->lanes & (them->lanes - 1), last = first, pairs = 0, votes = 0;
  if (!rest) return ALONE;
  i64 far = (i64)(at[first_lane(rest)] - at[first]), gap = first_lane(rest) - first;
  if (gap > 1 && far % gap) return 0;
  u64 stride = (u64)(gap > 1 ? far / gap : far);
  if (rest == ~1u) {
    for (pairs = 0; pairs < WARP - 1; pairs++) votes += at[pairs + 1] - at[pairs] == stride;
  } else {
    EACH_LANE(lane, rest) {
      votes += at[lane] - at[last] == stride * (lane - last);
      last = lane;
      pairs++;
    }
  }
  return 2 * votes > pairs ? stride + (1ull << 63) : 0;
}

/* Count a distance that is new; `again` counts those that are not. One lane alone contradicts nobody. */
static u32 count_stride(u64 *counts, u64 stride) {
  if (!stride) return 0;
  counts[COUNT_STRIDED]++;
  if (stride == ALONE) return 1;
  if (stride > counts[COUNT_FARTHEST]) counts[COUNT_FARTHEST] = stride;
  if (~stride > counts[COUNT_NEAREST]) counts[COUNT_NEAREST] = ~stride;
  return 1;
}

static void note_global(struct Tally *tally, const struct Accessed *site, struct Memo *memo, const struct Lanes *them,
                        u64 block) {
  u64 *counts = tally->counts + site->first, most = 0, sectors;
  u32 stamp = (u32)block + 1;
  if (site->flags & ACCESSED_UPDATES) {
    sectors = updated_sectors(tally, memo, them, stamp, &most);
    counts[COUNT_CONTENDED] += most;
    if (most > counts[COUNT_MOST]) counts[COUNT_MOST] = most;
  } else sectors = sectors_of(tally, memo, them, stamp);
  counts[COUNT_REQUESTS]++;
  counts[COUNT_SECTORS] += sectors;
  counts[COUNT_BYTES] += memo->bytes = bytes_of(them);
  memo->count = (u32)sectors;
  memo->strided = count_stride(counts, stride_of(them));
}

/* Local memory is interleaved on a GPU: the words of all lanes at one place lie side by side. Each word of an access is
   a request (measured on an H200). */
static void note_local(struct Tally *tally, const struct Accessed *site, const struct Lanes *them) {
  u64 *counts = tally->counts + site->first;
  struct Lanes there = {.lanes = 0};
  u64 sectors = 0, most = 0;
  EACH_LANE(lane, them->lanes) if (them->size[lane] > most) most = them->size[lane];
  for (u64 part = 0; part < most; part += WORD) {
    there.lanes = 0;
    EACH_LANE(lane, them->lanes) {
      if (part >= them->size[lane]) continue;
      u64 place = them->at[lane] + part;
      there.lanes |= 1u << lane;
      there.at[lane] = place / WORD * WORD * WARP + lane * WORD + place % WORD;
      there.size[lane] = them->size[lane] < WORD ? them->size[lane] : WORD;
    }
    sectors += sectors_of(tally, 0, &there, 0);
    counts[COUNT_LOCAL_REQUESTS]++;
  }
  counts[COUNT_LOCAL_SECTORS] += sectors;
  counts[COUNT_LOCAL_BYTES] += bytes_of(them);
}

INLINE u32 lanes_from(u32 first, u32 count) { return (count >= WARP ? ~0u : (1u << count) - 1) << first; }

/* Two parts of a load that would be served one after the other are one where its lanes want pairs of the same address,
   neighbours or each the next but one (measured on an H200). */
static void note_shared(struct Tally *tally, const struct Accessed *site, struct Memo *memo, const struct Lanes *them) {
  u64 *counts = tally->counts + site->first, size = 0;
  EACH_LANE(lane, them->lanes) if (them->size[lane] > size) size = them->size[lane];
  u32 step = lanes_at_once(size), both = 2 * step;
  memo->wavefronts = memo->passes = 0;
  for (u32 first = 0, count; first < WARP && size <= BANKS * WORD; first += count) {
    u32 pair = them->lanes & lanes_from(first, both);
    flag loads = step < WARP && first % both == 0 && site->flags & ACCESSED_LOADS;
    count = loads && (paired(them, pair, 1) || paired(them, pair, 2)) ? both : step;
    u32 lanes = them->lanes & lanes_from(first, count);
    if (!lanes) continue;
    memo->wavefronts += wavefronts_of(them, lanes, site->flags & ACCESSED_UPDATES);
    memo->passes += size <= 4 * WORD ? 1 : (size + 4 * WORD - 1) / (4 * WORD);
  }
  counts[COUNT_SHARED_REQUESTS]++;
  counts[COUNT_SHARED_BYTES] += memo->bytes = bytes_of(them);
  counts[COUNT_WAVEFRONTS] += memo->wavefronts;
  counts[COUNT_PASSES] += memo->passes;
  memo->strided = count_stride(counts, stride_of(them));
}

/* Where addresses lead to that may lead anywhere, and what is counted there. */
static void note_any(struct Tally *tally, const struct Accessed *site, struct Memo *memo, const struct Lanes *them,
                     u64 block, u64 local, u64 kernel_local) {
  struct Lanes global = *them, shared = *them, own = *them;
  global.lanes = shared.lanes = own.lanes = 0;
  u64 kernel_bytes = tally->profiled->local_bytes;
  EACH_LANE(lane, them->lanes) {
    u64 at = them->at[lane];
    u64 here = at - (local + lane * site->local_bytes), there = at - (kernel_local + lane * kernel_bytes);
    if (here < site->local_bytes || there < kernel_bytes) {
      own.lanes |= 1u << lane;
      own.at[lane] = here < site->local_bytes ? here : there;
    } else if (at - tally->shared < WINDOW) shared.lanes |= 1u << lane;
    else global.lanes |= 1u << lane;
  }
  if (global.lanes) draw(tally, site, SPACE_GLOBAL, &global, block), note_global(tally, site, memo, &global, block);
  if (shared.lanes) draw(tally, site, SPACE_SHARED, &shared, block), note_shared(tally, site, memo, &shared);
  if (own.lanes) draw(tally, site, SPACE_LOCAL, &own, block), note_local(tally, site, &own);
}

/* Count an access once more that is like the last one. */
INLINE flag again(struct Tally *tally, const struct Accessed *site, struct Memo *memo, u32 lanes, const u64 *bases,
                  u32 rows, u64 block) {
  u64 *counts = tally->counts + site->first, first = bases[0] >> SECTOR_SHIFT, differ = 0;
  if (memo->site != site || memo->lanes != lanes || (bases[0] & (SECTOR - 1)) != memo->phase) return 0;
  for (u32 row = 0; row < rows; row++) differ |= (bases[row] - bases[0]) ^ memo->apart[row];
  if (differ) return 0;
  counts[COUNT_STRIDED] += memo->strided;
  if (site->space == SPACE_SHARED) {
    counts[COUNT_SHARED_REQUESTS]++;
    counts[COUNT_SHARED_BYTES] += memo->bytes;
    counts[COUNT_WAVEFRONTS] += memo->wavefronts;
    counts[COUNT_PASSES] += memo->passes;
    return 1;
  }
  counts[COUNT_REQUESTS]++;
  counts[COUNT_SECTORS] += memo->count;
  counts[COUNT_BYTES] += memo->bytes;
  for (u32 k = 0; k < memo->count; k++) mark(tally, &memo->marks, first + (u64)memo->sectors[k], (u32)block + 1);
  return 1;
}

/* Words of shared memory side by side, or an odd number of words apart, are in a bank each; and one word is one. */
INLINE flag note_apart(struct Tally *tally, const struct Accessed *site, u32 lanes, u32 rows) {
  u64 *counts = tally->counts + site->first;
  flag apart = !site->stride || site->stride % (2 * WORD) == WORD || site->stride % (2 * WORD) == -WORD;
  if (rows > 1 || site->size != WORD || !apart || site->flags & ACCESSED_UPDATES) return 0;
  counts[COUNT_SHARED_REQUESTS]++;
  counts[COUNT_SHARED_BYTES] += (u64)__builtin_popcount(lanes) * WORD;
  counts[COUNT_WAVEFRONTS]++;
  counts[COUNT_PASSES]++;
  return 1;
}

/* Rows of global memory that leave no sector out, as neighbours are no more than one apart: what lies between the ends
   of each. Where a block comes to the same ones again, its sectors are marked already. */
INLINE flag note_rows(struct Tally *tally, const struct Accessed *site, struct Memo *memo, u32 lanes, const u64 *bases,
                      u32 rows, u64 block) {
  u64 *counts = tally->counts + site->first, count = 0, differ;
  i64 far = (i64)(WARP / rows - 1) * site->stride;
  u32 stamp = (u32)block + 1;
  if (lanes != ~0u || rows > ENDS || site->space != SPACE_GLOBAL || site->flags & ACCESSED_UPDATES) return 0;
  if (site->stride > (i64)SECTOR || site->stride < -(i64)SECTOR) return 0;
  differ = memo->stamp ^ stamp;
  for (u32 row = 0; row < rows; row++) {
    u64 low = bases[row] + (u64)(far < 0 ? far : 0), high = bases[row] + (u64)(far < 0 ? 0 : far) + site->size - 1;
    u64 from = low >> SECTOR_SHIFT, to = high >> SECTOR_SHIFT;
    differ |= (memo->from[row] ^ from) | (memo->to[row] ^ to);
    memo->from[row] = from, memo->to[row] = to;
  }
  if (differ) {
    for (u32 row = 0; row < rows; row++) {
      u64 from = memo->from[row], to = memo->to[row];
      mark_all(tally, &memo->marks, from, to, stamp);
      flag meets = 0;
      for (u32 k = 0; k < row; k++) meets |= from <= memo->to[k] && to >= memo->from[k];
      count += meets ? 0 : to - from + 1;
      for (u64 sector = from; meets && sector <= to; sector++) {
        flag seen = 0;
        for (u32 k = 0; k < row; k++) seen |= sector >= memo->from[k] && sector <= memo->to[k];
        count += !seen;
      }
    }
    memo->stamp = stamp;
    memo->whole = count;
    count_stride(counts, (u64)site->stride + (1ull << 63));
  } else counts[COUNT_STRIDED]++;
  counts[COUNT_REQUESTS]++;
  counts[COUNT_SECTORS] += memo->whole;
  counts[COUNT_BYTES] += (u64)site->size * WARP;
  return 1;
}

static void find_lanes(struct Lanes *them, const struct Accessed *site, u32 lanes, const u64 *bases, u32 rows,
                       const u64 *sizes) {
  u32 row_lanes = WARP / rows;
  them->lanes = 0;
  EACH_LANE(lane, lanes) {
    them->at[lane] = bases[lane / row_lanes] + lane % row_lanes * (u64)site->stride;
    them->size[lane] = sizes ? sizes[lane] : site->size;
    if (them->size[lane]) them->lanes |= 1u << lane;
  }
}

/* The lanes access memory in so many rows, each from its base on at the stride of the site; `sizes` are null where all
   lanes access as much. */
void cujit_profile_access(struct Tally *tally, const struct Accessed *site, u32 lanes, const u64 *bases, u32 rows,
                          const u64 *sizes, u64 block, u64 local, u64 kernel_local) {
  struct Memo *memo = tally->memos + site->first / COUNTS;
  struct Lanes them;
  if (!lanes) return;
  u64 *drawn = &memo->drawn[site->space == SPACE_SHARED];
  if (block < *drawn - 1) {
    find_lanes(&them, site, lanes, bases, rows, sizes);
    if (them.lanes) *drawn = block + 1;
    if (them.lanes && (site->space == SPACE_SHARED || site->space == SPACE_GLOBAL))
      draw(tally, site, site->space, &them, block);
  }
  if (site->space == SPACE_SHARED && note_apart(tally, site, lanes, rows)) return;
  if (!sizes && note_rows(tally, site, memo, lanes, bases, rows, block)) return;
  if (again(tally, site, memo, lanes, bases, rows, block)) return;
  find_lanes(&them, site, lanes, bases, rows, sizes);
  if (!them.lanes) return;
  memo->site = 0;
  memo->phase = bases[0] & (SECTOR - 1);
  memo->first = bases[0] >> SECTOR_SHIFT;
  if (site->space == SPACE_SHARED) note_shared(tally, site, memo, &them);
  else if (site->space == SPACE_GLOBAL) note_global(tally, site, memo, &them, block);
  else return note_any(tally, site, memo, &them, block, local, kernel_local);
  if (sizes || site->flags & ACCESSED_UPDATES || (site->space == SPACE_GLOBAL && memo->count > KEPT)) return;
  memo->site = site;
  memo->lanes = lanes;
  for (u32 row = 0; row < rows; row++) memo->apart[row] = bases[row] - bases[0];
}

/* -- the end of a launch -------------------------------------------------------------------------------------------- */

/* Add what all tallies have to `totals`, and to `pictures` where there are none yet, and release them. Called when nobody
   runs. */
void cujit_profile_end(struct Profiled *profiled, u64 *totals, struct Picture *pictures) {
  struct Tree *all = 0;
  struct Picture *firsts = 0;
  u64 count = profiled->count / COUNTS * PICTURES;
  for (struct Tally *tally = profiled->tallies, *next; tally; tally = next) {
    next = tally->next;
    for (u64 k = 0; k < profiled->count; k++) {
      if (k % COUNTS < COUNT_MOST) totals[k] += tally->counts[k];
      else if (tally->counts[k] > totals[k]) totals[k] = tally->counts[k];
    }
    profiled->block_sectors += tally->block_sectors;
    if (all) {
      merge(all, tally->tree, profiled->row_count);
      free(tally->tree);
    } else all = tally->tree;
    for (u64 k = 0; firsts && k < count; k++) {
      if (before(tally->pictures[k].block, &firsts[k])) firsts[k] = tally->pictures[k];
    }
    if (firsts) free(tally->pictures);
    else firsts = tally->pictures;
    free(tally->memos);
    free(tally);
  }
  for (u64 k = 0; firsts && k < count; k++) {
    if (!pictures[k].block) pictures[k] = firsts[k];
  }
  free(firsts);
  profiled->tallies = 0;
  if (all) clear(all, profiled);
}
