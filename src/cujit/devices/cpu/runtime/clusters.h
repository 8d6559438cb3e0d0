/* The check for races between the blocks of a cluster, in each other's shared memory.

   Clocks as in races.h, but of all warps of the cluster. A block's own accesses have their records there; for each word that
   another block accessed there is one here. Whoever accesses another block's memory is to know that the block has begun,
   and the block, before it ends, is to know of that access. */

#pragma once

#include "races.h"

/* The access of another block to bytes of a word: when by the clock of its warp, at which line, by whom: thread, rank, a bit
   for each byte, and flags. 0 is nobody. */
struct Far {
  u32 clock, line, who;
};

enum { RANK_AT = THREAD_BITS, BYTES_AT = RANK_AT + 4, FLAGS_AT = BYTES_AT + 4, FAR_BYTES = 15, FAR_FLAGS = 255 };

/* Those of a word: a plain write, a read, an atomic operation. */
struct FarWord {
  struct Far write, read, strong;
};

/* The last access of a warp to the memory of another block. */
struct Reached {
  u32 clock, line, lane, flags;
  u64 address, size;
};

/* Where a block's memory was accessed by others who had arrived so often at the cluster's barrier. */
struct Stretch {
  u32 arrivals, low, high;
};

enum { STRETCHES = 4, MOST_BLOCKS = 16, FAR_SLOTS = 2 * SLOTS };

/* One cluster, by its place among those that run side by side: behind it lie, for `width` warps of all its blocks, their
   clocks, those of objects and of barriers (the latter after their generations), how often each warp has arrived at the
   cluster's barrier and how often it has passed, its clocks at its last fence, what each block
   knew at its last proxy fence, the last access of each to each block, and the words of each block. A warp arrived without order where there was a `relaxed` arrival. */
struct Cluster {
  u64 owner, first;
  u32 width, ended, relaxed, unused, touched[MOST_BLOCKS];
  struct Stretch stretches[MOST_BLOCKS][STRETCHES];
};

INLINE u64 far_blocks(const struct Place *place) { return place->watch->cluster_blocks; }
INLINE u64 far_width(const struct Place *place) { return far_blocks(place) * place->watch->warps; }
INLINE u64 far_words(const struct Place *place) { return place->watch->shared_stride / sizeof(u32); }

INLINE u64 cluster_bytes(const struct Place *place) {
  u64 width = far_width(place), blocks = far_blocks(place);
  u64 clocks = width * width + OBJECTS * width + blocks * FAR_SLOTS * (width + 1) + (2 + width + blocks) * width;
  u64 bytes = sizeof(struct Cluster) + clocks * sizeof(u32) + blocks * width * sizeof(struct Reached);
  return (bytes + blocks * far_words(place) * sizeof(struct FarWord) + 63) & -64ull;
}

INLINE struct Reached *reached_of(const struct Cluster *cluster) {
  return (struct Reached *)(cluster + 1);
}

INLINE struct FarWord *far_words_of(const struct Place *place, const struct Cluster *cluster, u64 rank) {
  struct FarWord *first = (struct FarWord *)(reached_of(cluster) + far_blocks(place) * far_width(place));
  return first + rank * far_words(place);
}

INLINE u32 *far_clocks(const struct Place *place, const struct Cluster *cluster) {
  return (u32 *)far_words_of(place, cluster, far_blocks(place));
}

/* The clock of a warp, by its number in the cluster. */
INLINE u32 *far_row(const struct Place *place, const struct Cluster *cluster, u64 warp) {
  return far_clocks(place, cluster) + warp * far_width(place);
}

INLINE u32 *far_object(const struct Place *place, const struct Cluster *cluster, u64 address) {
  u64 hash = address / 4 ^ address / WINDOW * 37;
  return far_row(place, cluster, far_width(place) + hash % OBJECTS);
}

/* The clock of a barrier in a generation; `place` stands in a block of it. That of the cluster is kept with the first block. */
static u32 *far_slot(const struct Place *place, const struct Cluster *cluster, u64 rank, u32 number, u32 generation) {
  u64 width = far_width(place), block = number == CLUSTER_BARRIER ? 0 : rank;
  u32 *slot = far_row(place, cluster, width + OBJECTS) + (block * FAR_SLOTS + number * 2 + (generation & 1)) * (width + 1);
  if (*slot != generation + 1) {
    memset(slot, 0, (width + 1) * sizeof *slot);
    *slot = generation + 1;
  }
  return slot + 1;
}

/* How often each warp has arrived at the cluster's barrier, and has passed it. */
INLINE u32 *far_arrivals(const struct Place *place, const struct Cluster *cluster) {
  return far_row(place, cluster, far_width(place) + OBJECTS) + far_blocks(place) * FAR_SLOTS * (far_width(place) + 1);
}

INLINE u32 *far_passes(const struct Place *place, const struct Cluster *cluster) {
  return far_arrivals(place, cluster) + far_width(place);
}

/* The clock of a warp at its last fence, by its number in the cluster. */
INLINE u32 *far_fenced(const struct Place *place, const struct Cluster *cluster, u64 warp) {
  return far_passes(place, cluster) + (1 + warp) * far_width(place);
}

/* Up to which clocks of all warps a block's proxy fences count. */
INLINE u32 *far_proxied(const struct Place *place, const struct Cluster *cluster, u64 rank) {
  return far_fenced(place, cluster, far_width(place) + rank);
}

INLINE u64 far_warp(const struct Place *place) { return place->state->rank * (u64)place->watch->warps + place->warp; }

static void join_far(const struct Place *place, u32 *to, const u32 *from) {
  for (u64 k = 0; k < far_width(place); k++) to[k] = to[k] > from[k] ? to[k] : from[k];
}

INLINE u32 *own_far(const struct Place *place) { return far_row(place, place->others, far_warp(place)); }

/* As `release`, for what all warps of the cluster know. */
static void release_far(const struct Place *place, u32 *clock) {
  u32 *row = own_far(place);
  join_far(place, clock, row);
  row[far_warp(place)]++;
}

/* What this warp did so far comes before a fence. */
static void fence_far(const struct Place *place) {
  u64 warp = far_warp(place);
  memcpy(far_fenced(place, place->others, warp), own_far(place), far_width(place) * sizeof(u32));
  own_far(place)[warp]++, own_clock(place)[place->warp]++;
}

/* An arrival that tells others only of what came before the last fence. That it did arrive, they know: the memory that it
   accessed may end. */
static void relax_far(const struct Place *place, u32 *slot) {
  struct Cluster *cluster = place->others;
  u64 warp = far_warp(place), width = far_width(place);
  join_far(place, slot, far_fenced(place, cluster, warp));
  own_far(place)[warp]++;
  for (u64 rank = 0; rank < far_blocks(place); rank++) reached_of(cluster)[rank * width + warp].clock = 0;
  cluster->relaxed = 1;
}

static void arrive_far(const struct Place *place, u32 number, u32 generation, flag relaxed) {
  u32 *slot = far_slot(place, place->others, place->state->rank, number, generation);
  (relaxed ? relax_far : release_far)(place, slot);
  if (number == CLUSTER_BARRIER) far_arrivals(place, place->others)[far_warp(place)] = generation + 1;
}

static void pass_far(const struct Place *place, u32 number, u32 generation) {
  join_far(place, own_far(place), far_slot(place, place->others, place->state->rank, number, generation));
  if (number == CLUSTER_BARRIER) far_passes(place, place->others)[far_warp(place)] = generation + 1;
}

/* -- a cluster begins, and its blocks end ---------------------------------------------------------------------------------- */

static void leave_cluster(const struct Block *block);

static NOINLINE struct Clusters *make_clusters(const struct Place *place) {
  struct Running *running = running_at((u8 *)place->group);
  u64 count = 0, blocks = far_blocks(place);
  for (u64 k = 0; k < place->launch->together; k += blocks) count++;
  struct Clusters *all = calloc(1, sizeof *all + count * cluster_bytes(place));
  if (!all) cujit_fault(place->launch, FAULT_NO_MEMORY, ~0ull, ~0u, 0, 0);
  all->leave = leave_cluster;
  return running->clusters = all;
}

/* The cluster of a block, or null where races between blocks are not looked for. */
static struct Cluster *cluster_of(const struct Place *place) {
  if (!(place->watch->checks & CHECK_RACE) || far_blocks(place) < 2 || !place->state) return 0;
  struct Clusters *all = running_at((u8 *)place->group)->clusters;
  if (!all) all = make_clusters(place);
  u64 blocks = far_blocks(place), width = far_width(place), first = place->state->group->blocks->number;
  struct Cluster *cluster = (struct Cluster *)((u8 *)(all + 1) + place->side / blocks * cluster_bytes(place));
  if (cluster->owner == place->watch->serial + first + 1) return cluster;
  for (u64 rank = 0; rank < blocks; rank++) {
    if (cluster->touched[rank]) memset(far_words_of(place, cluster, rank), 0, far_words(place) * sizeof(struct FarWord));
  }
  memset(cluster, 0, sizeof *cluster);
  memset(reached_of(cluster), 0, blocks * width * sizeof(struct Reached));
  memset(far_clocks(place, cluster), 0, (u64)((u8 *)far_proxied(place, cluster, blocks) - (u8 *)far_clocks(place, cluster)));
  for (u64 warp = 0; warp < width; warp++) far_row(place, cluster, warp)[warp] = 1;
  cluster->owner = place->watch->serial + first + 1;
  return cluster;
}

/* An access of the memory of the block of rank `of`, against one of a thread of the block of rank `by`. */
static NORETURN NOINLINE void fail_far(const struct Place *place, const struct Access *access, u32 code, u64 offset, u64 of,
                                       u64 by, u32 thread, u32 line, u32 flags) {
  struct Launch *launch = place->launch;
  const struct Block *blocks = place->state->group->blocks;
  if (cujit_claim(launch, FAULT_RACE)) {
    cujit_fault_here(launch, place->block, place->first + access->lane, access->line, access->address);
    u64 more[] = {access->size, access->flags, code, blocks[by].number << 32 | thread, blocks[of].number << 32 | line,
                  flags | (place->others && place->others->relaxed ? ACCESS_RELAXED : 0) | offset << 32};
    memcpy(launch->fault_more, more, sizeof more);
  }
  cujit_stop();
}

/* All warps of a block have ended: it knows of every access of others to its memory. */
static void leave_cluster(const struct Block *block) {
  struct Launch *launch = block->launch;
  struct Running *running = block->place;
  struct Place place = {.launch = launch, .watch = launch->checks, .state = block, .group = (u64)running + PLACE,
                        .side = block->side, .block = block->number};
  struct Cluster *cluster = cluster_of(&place);
  u64 width = far_width(&place), warps = place.watch->warps, first = block->rank * warps;
  cluster->ended |= 1u << block->rank;
  u32 *known = far_row(&place, cluster, first);
  for (u64 k = 1; k < warps; k++) join_far(&place, known, far_row(&place, cluster, first + k));
  for (u64 k = 0; k < width; k++) {
    const struct Reached *reached = reached_of(cluster) + block->rank * width + k;
    if (reached->clock <= known[k]) continue;
    place.block = block->group->blocks[k / warps].number, place.first = (u32)(k % warps) * WARP;
    struct Access access = {reached->lane, reached->flags, reached->line, reached->address, reached->size};
    fail_far(&place, &access, CODE_ENDED, (reached->address - SYSTEM_BYTES) % WINDOW, block->rank, block->rank, 0, 0, 0);
  }
}

/* -- accesses -------------------------------------------------------------------------------------------------------------- */

/* Whether an access of this warp is unordered with that of another warp. */
INLINE flag is_far_race(const struct Place *place, const u32 *row, const struct Far *far, u32 flags, u32 bytes) {
  u64 warp = (far->who >> RANK_AT & (MOST_BLOCKS - 1)) * (u64)place->watch->warps + (far->who & (THREADS - 1)) / WARP;
  if (!far->clock || warp == far_warp(place) || !(far->who >> BYTES_AT & bytes)) return 0;
  return !(far->who >> FLAGS_AT & flags & ACCESS_STRONG) && far->clock > row[warp];
}

static void look_at_far(const struct Place *place, const struct Access *access, u64 rank, u64 offset, const struct Far *far,
                        const u32 *row, u32 bytes) {
  if (!is_far_race(place, row, far, access->flags, bytes)) return;
  u64 other = far->who >> RANK_AT & (MOST_BLOCKS - 1);
  fail_far(place, access, CODE_FAR, offset, rank, other, far->who & (THREADS - 1), far->line, far->who >> FLAGS_AT & FAR_FLAGS);
}

/* Whether a store leaves the bytes of a word as they are. */
INLINE flag stores_same_word(const struct Place *place, const struct Access *access, u64 k, u32 bytes) {
  for (u64 j = 0; j < sizeof(u32); j++) {
    if (bytes >> j & 1 && !is_same(place, access, k + j)) return 0;
  }
  return 1;
}

/* Look at the words of a block's memory that an access meets for accesses of other blocks; `notes` it, too. */
static NOINLINE void check_far(struct Place *place, struct Cluster *cluster, const struct Access *access, u64 rank, u64 offset,
                               flag notes) {
  const u32 *row = far_row(place, cluster, far_warp(place));
  struct FarWord *words = far_words_of(place, cluster, rank);
  u32 flags = access->flags & FAR_FLAGS, thread = place->first + access->lane;
  for (u64 at = offset & -4ull; at < offset + access->size; at += sizeof(u32)) {
    u32 bytes = 0;
    for (u64 j = 0; j < sizeof(u32); j++) bytes |= (u32)(at + j >= offset && at + j < offset + access->size) << j;
    struct FarWord *word = &words[at / sizeof(u32)];
    if (!stores_same_word(place, access, at - offset, bytes)) {
      look_at_far(place, access, rank, at, &word->write, row, bytes);
      look_at_far(place, access, rank, at, &word->strong, row, bytes);
    }
    if (flags & ACCESS_WRITE) look_at_far(place, access, rank, at, &word->read, row, bytes);
    if (!notes) continue;
    struct Far *own = !(flags & ACCESS_WRITE) ? &word->read : flags & ACCESS_STRONG ? &word->strong : &word->write;
    u32 who = thread | place->state->rank << RANK_AT | bytes << BYTES_AT | flags << FLAGS_AT, clock = row[far_warp(place)];
    /* Other bytes that lanes of this warp accessed since it told others of what it did. */
    if (own->clock == clock && !((own->who ^ who) & ((1u << BYTES_AT) - WARP))) who |= own->who & FAR_BYTES << BYTES_AT;
    *own = (struct Far){clock, access->line, who};
  }
}

/* Another block's own accesses, against one of this. */
static NOINLINE void check_others(struct Place *place, struct Cluster *cluster, const struct Access *access, u64 rank, u64 offset) {
  const u32 *row = far_row(place, cluster, far_warp(place)) + rank * place->watch->warps;
  struct Tracker *own = place->piece;
  place->piece = piece_beside(place, place->side - place->state->rank + rank);
  refine_for(place, offset | access->size);
  spread(place, offset, access->size);
  for (u64 k = 0, step = 1u << (place->piece->grain & 3); k < access->size; k += step) {
    const u32 *entry = entry_at(place, offset + k);
    for (u32 kind = 0; kind < KINDS; kind++) {
      u32 record = entry[kind];
      const struct Event *event = &events_of(place)[record >> THREAD_BITS];
      flag reads = kind == ONE || kind == TWO;
      if (!record || clock_of(event, record) <= row[(record & (THREADS - 1)) / WARP] || event->flags & access->flags & ACCESS_STRONG) continue;
      if (reads ? !(access->flags & ACCESS_WRITE) : step <= sizeof(u32) && stores_same_word(place, access, k, (1u << step) - 1)) {
        continue;
      }
      place->piece = own;
      fail_far(place, access, CODE_FAR, offset + k, rank, rank, record & (THREADS - 1), event->line, event->flags);
    }
  }
  place->piece = own;
}

/* The other block has begun as this warp knows, and has not ended. */
static void check_is_there(const struct Place *place, const struct Cluster *cluster, const struct Access *access, u64 rank,
                           u64 offset) {
  u64 warps = place->watch->warps;
  const u32 *row = far_row(place, cluster, far_warp(place));
  const u32 *passes = far_passes(place, cluster) + place->state->rank * warps;
  u32 begun = 0;
  for (u64 k = 0; k < warps; k++) begun |= row[rank * warps + k] | passes[k];
  if (!begun) fail_far(place, access, CODE_NOT_BEGUN, offset, rank, rank, 0, 0, 0);
  if (cluster->ended >> rank & 1) fail_far(place, access, CODE_ENDED, offset, rank, rank, 0, 0, 0);
}

/* From now on the other block is to know of an access, in `bytes` from an offset on, before it ends. */
static void note_reached(const struct Place *place, struct Cluster *cluster, const struct Access *access, u64 rank, u64 offset,
                         u64 bytes) {
  u64 own = far_warp(place);
  u32 arrivals = far_arrivals(place, cluster)[own], low = (u32)offset, high = (u32)(offset + bytes);
  struct Stretch *stretch = &cluster->stretches[rank][arrivals % STRETCHES];
  if (stretch->arrivals != arrivals || !stretch->high) *stretch = (struct Stretch){arrivals, low, high};
  if (low < stretch->low) stretch->low = low;
  if (high > stretch->high) stretch->high = high;
  cluster->touched[rank] = 1;
  reached_of(cluster)[rank * far_width(place) + own] = (struct Reached){
      far_row(place, cluster, own)[own], access->line, access->lane, access->flags, access->address, access->size,
  };
}

/* A lane accesses the memory of another block of the cluster, which is there. */
static NOINLINE void reach_far(struct Place *place, struct Cluster *cluster, const struct Access *access, u64 rank, u64 offset) {
  check_is_there(place, cluster, access, rank, offset);
  check_others(place, cluster, access, rank, offset);
  check_far(place, cluster, access, rank, offset, !(access->flags & ACCESS_ASYNC));
  /* Else it is noted where somebody has waited for it. */
  if (!(access->flags & ACCESS_ASYNC)) note_reached(place, cluster, access, rank, offset, access->size);
}

/* Whether others may have accessed what this warp accesses of its block's memory, and not before it passed the cluster's
   barrier. */
INLINE flag is_reached(const struct Place *place, u64 address, u64 size) {
  const struct Cluster *cluster = place->others;
  if (!cluster || !cluster->touched[place->state->rank]) return 0;
  u64 offset = address - place->shared;
  u32 passes = far_passes(place, cluster)[far_warp(place)];
  for (u32 k = 0; k < STRETCHES; k++) {
    const struct Stretch *stretch = &cluster->stretches[place->state->rank][k];
    if ((cluster->relaxed || stretch->arrivals >= passes) && offset < stretch->high && offset + size > stretch->low) return 1;
  }
  return 0;
}

/* Look at an access of a lane for races with other blocks, in this block's memory or theirs. */
INLINE void check_between(struct Place *place, const struct Access *access) {
  struct Cluster *cluster = place->others;
  u64 far = access->address - place->cluster, rank = far / WINDOW, offset = far % WINDOW;
  if (!cluster || rank >= far_blocks(place) || !within(offset, access->size, place->watch->shared_limit)) return;
  if (rank != place->state->rank) {
    reach_far(place, cluster, access, rank, offset);
  } else if (is_reached(place, access->address, access->size)) {
    check_far(place, cluster, access, rank, offset, 0);
  }
}

/* -- accesses of a warp: what is plainly right ------------------------------------------------------------------------------ */

/* Whether what another block did by a record, or by four from it on, is ordered before this warp; `row` is what it knows of that
   block's warps. */
INLINE flag is_known_far(const struct Place *place, const u32 *record, const u32 *row, u32 flags) {
  for (u32 kind = 0; kind < KINDS; kind++) {
    if ((kind == ONE || kind == TWO) && !(flags & ACCESS_WRITE)) continue;
    const struct Event *event = &events_of(place)[record[kind] >> THREAD_BITS];
    if (record[kind] && (event->late || event->clock > row[(record[kind] & (THREADS - 1)) / WARP])) return 0;
  }
  return 1;
}

/* Whether all that another block did to words from an offset on is: 0 where each has to be looked at. */
static flag others_are_known(struct Place *place, u64 rank, u64 offset, u64 bytes, u32 flags) {
  const u32 *row = own_far(place) + rank * place->watch->warps;
  struct Tracker *own = place->piece, *other = piece_beside(place, place->side - place->state->rank + rank);
  u64 end = offset + bytes, step = STRIP * sizeof(u32);
  flag known = other->grain == WORD_GRAIN;
  place->piece = other;
  for (u64 at = offset & -step; at < end && known; at += step) {
    const u32 *strip = strip_at(place, at);
    if (*strip != (u32)APART) {
      known = is_known_far(place, strip, row, flags);
      continue;
    }
    u64 first = at > offset ? at : offset, last = at + step < end ? at + step : end;
    for (u64 word = first; word < last && known; word += sizeof(u32)) known = is_known_far(place, entry_at(place, word), row, flags);
  }
  place->piece = own;
  return known;
}

/* Whether what other blocks did to the words of a block that lanes access is ordered before this warp. */
static flag far_words_are_known(const struct Place *place, const struct Cluster *cluster, const struct Lanes *all, u64 rank) {
  const u32 *row = own_far(place);
  const struct FarWord *words = far_words_of(place, cluster, rank);
  EACH_LANE(lane, all->lanes) {
    const struct FarWord *word = words + (((const u64 *)all->addresses)[lane] - place->cluster) % WINDOW / sizeof(u32);
    for (u64 k = 0; k < all->size / sizeof(u32); k++, word++) {
      if (is_far_race(place, row, &word->write, all->flags, FAR_BYTES) || is_far_race(place, row, &word->strong, all->flags, FAR_BYTES)) {
        return 0;
      }
      if (all->flags & ACCESS_WRITE && is_far_race(place, row, &word->read, all->flags, FAR_BYTES)) return 0;
    }
  }
  return 1;
}

static void note_far_words(const struct Place *place, const struct Cluster *cluster, const struct Lanes *all, u64 rank) {
  struct FarWord *words = far_words_of(place, cluster, rank);
  u32 clock = own_far(place)[far_warp(place)], flags = all->flags & FAR_FLAGS;
  u32 who = place->first | place->state->rank << RANK_AT | FAR_BYTES << BYTES_AT | flags << FLAGS_AT;
  EACH_LANE(lane, all->lanes) {
    struct FarWord *word = words + (((const u64 *)all->addresses)[lane] - place->cluster) % WINDOW / sizeof(u32);
    for (u64 k = 0; k < all->size / sizeof(u32); k++, word++) {
      *(flags & ACCESS_WRITE ? &word->write : &word->read) = (struct Far){clock, all->line, who + lane};
    }
  }
}

/* Whether a plain access of whole words by lanes near each other, which was measured, is no race with other blocks: in the
   memory of one of them, which is then noted, or in this block's own. 0 where each lane has to be looked at. */
static NOINLINE flag lanes_are_far(struct Place *place, const struct Lanes *all, flag *here) {
  struct Cluster *cluster = place->others;
  u64 far = all->low - place->cluster, rank = far / WINDOW, offset = far % WINDOW, size = all->size;
  if (!size || (size | all->low | all->bits) & 3 || all->bytes < size || all->bytes > 2 * WARP * size) return 0;
  if (all->flags & (ACCESS_STRONG | ACCESS_ASYNC | ACCESS_ACQUIRE | ACCESS_RELEASE)) return 0;
  if (rank >= far_blocks(place) || !within(offset, all->bytes, place->watch->shared_limit)) return 0;
  if (rank == place->state->rank) return *here = far_words_are_known(place, cluster, all, rank);
  const u64 *addresses = (const u64 *)all->addresses;
  u32 first = first_lane(all->lanes), last = last_lane(all->lanes);
  struct Access access = {first, all->flags, all->line, addresses[first], size};
  check_is_there(place, cluster, &access, rank, (access.address - place->cluster) % WINDOW);
  if (!others_are_known(place, rank, offset, all->bytes, all->flags) || !far_words_are_known(place, cluster, all, rank)) return 0;
  note_far_words(place, cluster, all, rank);
  access.lane = last, access.address = addresses[last];
  note_reached(place, cluster, &access, rank, offset, all->bytes);
  return 1;
}
