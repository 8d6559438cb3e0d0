/* What kernels under checks call, by itself, under the sanitizers of a compiler: in several threads, what is right and
   what is wrong in each way. */

#include "crew.h"

enum { ALL = ~0u, BLOCKS = 12, ROUNDS = 4, MANY = 2500, STRIDE = 2048, LIMIT = 1024, LOCAL = 16, PART = 256 };
enum { KINDS = 3, EVERY = CHECK_MEMORY | CHECK_RACE | CHECK_SYNC | CHECK_INIT };

void cujit_check_begin(struct Place *place);
void cujit_check_access(struct Place *place, u32 lanes, u64 size, u32 flags, u32 line);
void cujit_check_row(struct Place *place, u32 lanes, u64 base, const struct Site *site, u64 *window);
void cujit_check_reads(struct Place *place, u32 lanes, u64 base, const struct Site *site);
void cujit_check_writes(struct Place *place, u32 lanes, u64 base, const struct Site *site);
flag cujit_check_update(struct Place *place, u32 lanes, u64 base, const struct Site *reads, const struct Site *writes);
flag cujit_check_batch(struct Place *place, u32 lanes, u64 base, const struct Site *site, u64 *window);
void cujit_check_same(struct Place *place, u32 lanes, u64 parts, u32 flags, u32 line);

void cujit_check_cleared(struct Place *place, u64 address, u64 size);
void cujit_check_arrive(struct Place *place, u32 id, flag waits, flag relaxed);
void cujit_check_pass(struct Place *place, u32 id);
void cujit_check_turn(struct Place *place);
void cujit_check_synced(struct Place *place);
void cujit_check_members(struct Place *place, u32 lanes, u32 live, u32 line);
void cujit_check_origins(struct Place *place, u32 lanes, u32 live, u32 line);
void cujit_check_barrier(struct Place *place, u32 lanes, u32 live, u32 number, u32 threads, flag aligned, u32 line);
void cujit_check_skip(struct Place *place, u32 lanes, u32 number, u32 line);
void cujit_check_site(struct Place *place, u32 lanes, u32 number, u32 line, flag alike);
void cujit_check_skipped(struct Place *place, u32 lanes, u32 number, u32 line);
void cujit_check_malloc(struct Place *place, u32 lanes);
void cujit_check_free(struct Place *place, u32 lanes);

/* Global memory by what is known of it: written, given back, without marks, and as it was made. Each block has a part
   of the first. */
static struct {
  _Alignas(256) u8 written[BLOCKS * PART], freed[PART], open[PART], raw[PART];
} memory;
static _Alignas(16) u8 parameters[16];
static struct {
  struct MarkHead head;
  u8 bytes[sizeof memory];
} written_marks, raw_marks;

/* What a block does under checks; `state` counts its barriers. */
typedef void Work(struct Place *place, struct Block *state);
static Work *work;

/* Two warps take turns, each with a place of its own. */
static void kernel(struct Launch *launch, u8 *shared, u8 *local) {
  u64 number;
  while ((number = __atomic_fetch_add(&launch->next, 1, __ATOMIC_RELAXED)) < launch->blocks) {
    struct Block state = {.launch = launch, .local = local};
    struct Place places[2];
    for (u32 warp = 0; warp < 2; warp++) {
      places[warp] = (struct Place){.launch = launch, .state = &state, .shared = (u64)shared, .cluster = (u64)shared};
      places[warp].block = number, places[warp].seen_block = ~0ull;
      places[warp].warp = warp, places[warp].seen_warp = ~0u;
      places[warp].local_first = (u64)local, places[warp].local_step = LOCAL * WARP, places[warp].local_bytes = LOCAL;
    }
    work(places, &state);
  }
}

/* What the emitted code says of rows. */
#define FLAGS(kind, space, log) ((kind) | (u32)(space) << 8 | 1u << (log) << 16 | (log) << 24)
enum { READS = 20, WRITES_ROW, READS_FIRST, READS_SECOND };
struct Said {
  struct Site site;
  struct Member members[2];
};
#define SAID(name, stride, size, kind, space, log, line) \
  static const struct Said name = {{stride, size, FLAGS(kind, space, log), 0, 1, 0, 0}, {{0, line}}}
SAID(reads, 4, 4, ACCESS_READ, SPACE_SHARED, 2, READS);
SAID(writes, 4, 4, ACCESS_WRITE, SPACE_SHARED, 2, WRITES_ROW);
SAID(reads_one, 0, 4, ACCESS_READ, SPACE_SHARED, 2, READS);
SAID(reads_wide, 8, 8, ACCESS_READ, SPACE_GENERIC, 3, READS);
SAID(writes_wide, 8, 8, ACCESS_WRITE, SPACE_GENERIC, 3, WRITES_ROW);
SAID(writes_back, -4, 4, ACCESS_WRITE, SPACE_SHARED, 2, WRITES_ROW);
SAID(reads_back, -4, 4, ACCESS_READ, SPACE_SHARED, 2, READS);
SAID(writes_bytes, 1, 1, ACCESS_WRITE, SPACE_SHARED, 0, WRITES_ROW);
SAID(reads_bytes, 1, 1, ACCESS_READ, SPACE_SHARED, 0, READS);
SAID(reads_global, 4, 4, ACCESS_READ, SPACE_GLOBAL, 2, READS);
SAID(writes_global, 4, 4, ACCESS_WRITE, SPACE_GLOBAL, 2, WRITES_ROW);
SAID(writes_local, LOCAL, 4, ACCESS_WRITE, SPACE_LOCAL, 2, WRITES_ROW);
SAID(reads_local, LOCAL, 4, ACCESS_READ, SPACE_LOCAL, 2, READS);
SAID(reads_across, 4, 4, ACCESS_READ, SPACE_LOCAL, 2, READS);
static const struct Said reads_both = {
    {4, 4, FLAGS(ACCESS_READ, SPACE_SHARED, 2), 128, 2, 0, 0}, {{0, READS_FIRST}, {128, READS_SECOND}},
};
static const struct Said reads_both_global = {
    {4, 4, FLAGS(ACCESS_READ, SPACE_GLOBAL, 2), 128, 2, 0, 0}, {{0, READS_FIRST}, {128, READS_SECOND}},
};

static void words(struct Place *places, u32 warp, u64 offset, const struct Said *said) {
  (said->site.flags & ACCESS_WRITE ? cujit_check_writes : cujit_check_reads)(
      &places[warp], ALL, places->shared + offset, &said->site);
}

static void row(struct Place *places, u32 warp, u32 lanes, u64 offset, const struct Said *said) {
  cujit_check_row(&places[warp], lanes, places->shared + offset, &said->site, 0);
}

static flag batch(struct Place *places, u32 warp) {
  return cujit_check_batch(&places[warp], ALL, places->shared, &reads_both.site, 0);
}

/* -- accesses -------------------------------------------------------------------------------------------------------- */

static void access(struct Place *place, u32 space, u32 kind, u64 begin, u64 step) {
  for (u32 lane = 0; lane < WARP; lane++) place->addresses[lane] = begin + lane * step;
  cujit_check_access(place, ALL, 4, FLAGS(kind, space, 2), 5);
}

static void meet(struct Place *places, struct Block *state, u32 id) {
  for (u32 warp = 0; warp < 2; warp++) cujit_check_arrive(&places[warp], id, 1, 0);
  state->barriers[id].generation++;
  for (u32 warp = 0; warp < 2; warp++) cujit_check_pass(&places[warp], id);
}

static u64 own_part(const struct Place *place) { return (u64)memory.written + place->block * PART; }

static void is_right(struct Place *places, struct Block *state) {
  u64 shared = places->shared;
  u32 data[WARP] = {0};
  cujit_check_cleared(places, shared + 256, 4);
  for (u32 round = 0; round < ROUNDS; round++) {
    for (u32 warp = 0; warp < 2; warp++) access(&places[warp], SPACE_SHARED, ACCESS_WRITE, shared + 128 * warp, 4);
    meet(places, state, round);
    for (u32 warp = 0; warp < 2; warp++) access(&places[warp], SPACE_GENERIC, ACCESS_READ, shared + 128 - 128 * warp, 4);
    meet(places, state, 0);
    access(&places[1], SPACE_SHARED, ACCESS_READ | ACCESS_WRITE | ACCESS_STRONG | ACCESS_RELEASE, shared + 256, 0);
    access(&places[0], SPACE_SHARED, ACCESS_READ | ACCESS_STRONG | ACCESS_ACQUIRE, shared + 256, 0);
    places->data = (u8 *)data, places->part_bytes = 4;
    access(places, SPACE_SHARED, ACCESS_WRITE, shared + 300, 0);
    cujit_check_same(places, ALL, 1, FLAGS(ACCESS_WRITE, SPACE_SHARED, 2), 5);
    access(places, SPACE_GLOBAL, ACCESS_READ | ACCESS_WRITE, own_part(places), 8);
    access(places, SPACE_LOCAL, ACCESS_WRITE, places->local_first, LOCAL);
    access(places, SPACE_GENERIC, ACCESS_READ, places->local_first, LOCAL);
    access(places, SPACE_GLOBAL, ACCESS_READ, (u64)parameters, 0);
    cujit_check_synced(places);
    meet(places, state, 0);
    cujit_check_cleared(places, places->shared, STRIDE);
  }
  for (u32 lane = 0; lane < WARP; lane++) places->values[lane] = ALL, places->addresses[lane] = lane ^ 1;
  cujit_check_members(places, ALL, ALL, 6);
  cujit_check_origins(places, ALL, ALL, 6);
  cujit_check_barrier(places, ALL, ALL, 15, 2 * WARP, 1, 6);
}

/* The other warp only arrives, and what it did before is known behind the barrier. */
static void is_handed_over(struct Place *places, struct Block *state) {
  for (u32 round = 0; round < ROUNDS; round++) {
    words(places, 0, 0, &writes);
    cujit_check_arrive(&places[0], 1, 0, 0), cujit_check_arrive(&places[1], 1, 1, 0);
    state->barriers[1].generation++;
    cujit_check_pass(&places[1], 1);
    words(places, 1, 0, &reads), words(places, 1, 0, &writes);
    meet(places, state, 2);
  }
}

/* Rows of every form; from the last round on there is a record for each byte. */
static void rows_are_right(struct Place *places, struct Block *state) {
  u64 window[2] = {0};
  (void)state;
  for (u32 warp = 0; warp < 2; warp++) cujit_check_begin(&places[warp]);
  for (u32 round = 0; round < ROUNDS; round++) {
    for (u32 warp = 0; warp < 2; warp++) {
      words(places, warp, 128 * warp, &writes);
      words(places, warp, 516 + 128 * warp, &writes);
    }
    cujit_check_turn(places);
    for (u32 warp = 0; warp < 2; warp++) HOLDS(batch(places, warp));
    for (u32 warp = 0; warp < 2; warp++) words(places, warp, 128 - 128 * warp, &reads);
    for (u32 warp = 0; warp < 2; warp++) {
      row(places, warp, 0x0ff0, 4, &reads_one);
      row(places, warp, 1u << warp, 8, &reads);
    }
    cujit_check_turn(places);
    for (u32 warp = 0; warp < 2; warp++) row(places, warp, ALL, 256 * warp, &writes_wide);
    for (u32 warp = 0; warp < 2; warp++) {
      row(places, warp, ALL, 256 * warp, &reads_wide);
      cujit_check_synced(&places[warp]);
    }
    cujit_check_turn(places);
    for (u32 warp = 0; warp < 2; warp++) row(places, warp, ALL, 256 - 256 * warp, &reads_wide);
    for (u32 warp = 0; warp < 2; warp++) row(places, warp, 0xffff0000, 768 + 124 + 128 * warp, &writes_back);
    for (u32 warp = 0; warp < 2; warp++) {
      cujit_check_row(&places[warp], ALL, own_part(places), &writes_global.site, 0);
      cujit_check_row(&places[warp], 0xff, own_part(places), &reads_global.site, 0);
      HOLDS(cujit_check_batch(&places[warp], ALL, own_part(places), &reads_both_global.site, 0));
      cujit_check_row(&places[warp], ALL, places[warp].local, &writes_local.site, 0);
      cujit_check_row(&places[warp], ALL, places[warp].local, &reads_local.site, 0);
    }
    cujit_check_row(places, ALL, own_part(places), &reads_global.site, window);
    HOLDS(!window[1]);
    cujit_check_turn(places);
  }
  HOLDS(cujit_check_batch(places, ALL, (u64)memory.open, &reads_both_global.site, window));
  HOLDS(window[0] == (u64)memory.open && window[1] == PART);
  for (u32 warp = 0; warp < 2; warp++) row(places, warp, ALL, 600 + 32 * warp, &writes_bytes);
  cujit_check_turn(places);
  for (u32 warp = 0; warp < 2; warp++) {
    row(places, warp, ALL, 632 - 32 * warp, &reads_bytes);
    words(places, warp, 0, &reads);
  }
  for (u32 warp = 0; warp < 2; warp++) HOLDS(batch(places, warp));
}

/* So often that what no record names any more is forgotten: first where only barriers of all warps order, then where a
   clock of an object does, too. */
static void pairs_are_right(struct Place *places, struct Block *state) {
  u32 missed = 0;
  (void)state;
  cujit_check_cleared(places, places->shared, STRIDE);
  words(places, 0, 0, &reads);
  cujit_check_turn(places);
  for (u32 round = 0; round < 2 * MANY; round++) {
    if (round == MANY) {
      access(places, SPACE_SHARED, ACCESS_READ | ACCESS_STRONG | ACCESS_ACQUIRE, places->shared + 512, 0);
      for (u32 warp = 0; warp < 2; warp++) {
        access(&places[warp], SPACE_SHARED, ACCESS_READ, places->shared + 128 - 128 * warp, 4);
      }
      cujit_check_turn(places);
    }
    for (u32 warp = 0; warp < 2; warp++) {
      u64 base = places->shared + 128 * warp;
      if (cujit_check_update(&places[warp], ALL, base, 0, &writes.site)) continue;
      cujit_check_row(&places[warp], ALL, base, &writes.site, 0);
      missed++;
    }
    cujit_check_turn(places);
    for (u32 warp = 0; warp < 2; warp++) HOLDS(batch(places, warp));
    cujit_check_turn(places);
  }
  HOLDS(missed < 8);
  for (u32 warp = 0; warp < 2; warp++) {
    access(&places[warp], SPACE_SHARED, ACCESS_WRITE, places->shared, 4);
    cujit_check_turn(places);
  }
}

/* Go on until events are forgotten, while the numbers of the last turn and the last write are high. */
static void forget(struct Place *places) {
  cujit_check_cleared(places, places->shared, STRIDE);
  words(places, 1, 128, &reads);
  for (u32 k = 0; k < 4000; k++) words(places, 1, 128, &writes);
  cujit_check_turn(places);
  words(places, 1, 128, &writes);
  for (u32 k = 0; k < 200; k++) words(places, 1, 128, &reads);
}

static void forgets_are_right(struct Place *places, struct Block *state) {
  (void)state;
  forget(places);
  cujit_check_turn(places);
  HOLDS(batch(places, 0));
}

/* Threads take memory at once, and give back a part of it. */
static void takes(struct Place *places, struct Block *state) {
  (void)state;
  u64 blocks[WARP];
  for (u32 lane = 0; lane < WARP; lane++) {
    blocks[lane] = (u64)aligned_alloc(16, 64);
    places->addresses[lane] = blocks[lane], places->values[lane] = 64;
  }
  cujit_check_malloc(places, ALL);
  for (u32 lane = 0; lane < WARP; lane++) places->addresses[lane] = blocks[lane] + 60;
  cujit_check_access(places, ALL, 4, FLAGS(ACCESS_WRITE, SPACE_GLOBAL, 2), 5);
  for (u32 lane = 0; lane < WARP; lane++) places->addresses[lane] = blocks[lane];
  cujit_check_free(places, 0xffff);
  for (u32 lane = 0; lane < WARP; lane++) free((void *)blocks[lane]);
}

/* -- what is wrong, each in its way ---------------------------------------------------------------------------------- */

static void is_outside(struct Place *places, struct Block *state) {
  (void)state;
  access(places, SPACE_SHARED, ACCESS_WRITE, places->shared + LIMIT - 124, 4);
}

static void is_freed(struct Place *places, struct Block *state) {
  (void)state;
  access(places, SPACE_GLOBAL, ACCESS_WRITE, (u64)memory.freed, 4);
}

static void is_crooked(struct Place *places, struct Block *state) {
  (void)state;
  access(places, SPACE_GLOBAL, ACCESS_WRITE, own_part(places) + 2, 4);
}

static void is_raw_memory(struct Place *places, struct Block *state) {
  (void)state;
  access(places, SPACE_SHARED, ACCESS_READ, places->shared, 4);
}

static void is_race(struct Place *places, struct Block *state) {
  (void)state;
  for (u32 warp = 0; warp < 2; warp++) access(&places[warp], SPACE_SHARED, ACCESS_WRITE, places->shared, 4);
}

static void is_different(struct Place *places, struct Block *state) {
  (void)state;
  u32 data[WARP] = {0, 1};
  places->data = (u8 *)data, places->part_bytes = 4;
  for (u32 lane = 0; lane < WARP; lane++) places->addresses[lane] = places->shared;
  cujit_check_same(places, ALL, 1, FLAGS(ACCESS_WRITE, SPACE_SHARED, 2), 5);
}

/* Of rows. */
static void ends_outside(struct Place *places, struct Block *state) {
  (void)state;
  words(places, 0, LIMIT - 124, &writes);
}

static void reads_outside(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_cleared(places, places->shared, STRIDE);
  u64 base = places->shared + LIMIT - 128;
  HOLDS(!cujit_check_batch(places, ALL, base, &reads_both.site, 0));
  cujit_check_row(places, ALL, base, &reads.site, 0), cujit_check_row(places, ALL, base + 128, &reads.site, 0);
}

static void row_is_freed(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_row(places, ALL, (u64)memory.freed, &reads_global.site, 0);
}

static void row_is_crooked(struct Place *places, struct Block *state) {
  (void)state;
  row(places, 0, ALL, 4, &writes_wide);
}

static void row_is_raw(struct Place *places, struct Block *state) {
  (void)state;
  words(places, 0, 0, &writes);
  HOLDS(!batch(places, 0));
  words(places, 0, 0, &reads), words(places, 0, 128, &reads);
}

static void global_row_is_raw(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_row(places, ALL, (u64)memory.raw, &reads_global.site, 0);
}

static void local_row_is_raw(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_begin(places);
  cujit_check_row(places, ALL, places->local, &reads_local.site, 0);
}

static void writes_twice(struct Place *places, struct Block *state) {
  (void)state;
  for (u32 warp = 0; warp < 2; warp++) words(places, warp, 0, &writes);
}

static void writes_what_is_read(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_cleared(places, places->shared, STRIDE);
  words(places, 0, 0, &reads), words(places, 1, 0, &writes);
}

/* The batch is only logged; the pair is left to who looks at all that is. */
static void writes_behind_batch(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_cleared(places, places->shared, STRIDE);
  HOLDS(batch(places, 0));
  HOLDS(!cujit_check_update(&places[1], ALL, places->shared + 128, 0, &writes.site));
  words(places, 1, 128, &writes);
}

/* The same where there is a record for each byte. */
static void writes_behind_batch_by_bytes(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_cleared(places, places->shared, STRIDE);
  row(places, 0, ALL, 600, &writes_bytes);
  HOLDS(!batch(places, 1));
  cujit_check_turn(places);
  HOLDS(batch(places, 0));
  words(places, 1, 128, &writes);
}

static void writes_bytes_of_words(struct Place *places, struct Block *state) {
  (void)state;
  words(places, 0, 0, &writes), row(places, 1, ALL, 64, &writes_bytes);
}

static void writes_behind_turn(struct Place *places, struct Block *state) {
  (void)state;
  words(places, 0, 0, &writes);
  cujit_check_turn(places);
  words(places, 1, 0, &writes), words(places, 0, 0, &reads);
}

/* The pairs' own look sees neither as right: what was written, and what was read by a row that no log has. */
static void pair_writes_twice(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_cleared(places, places->shared, STRIDE);
  words(places, 0, 0, &reads);
  cujit_check_turn(places);
  HOLDS(cujit_check_update(&places[0], ALL, places->shared, 0, &writes.site));
  HOLDS(!cujit_check_update(&places[1], ALL, places->shared, 0, &writes.site));
  words(places, 1, 0, &writes);
}

static void pair_writes_what_is_read(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_cleared(places, places->shared, STRIDE);
  words(places, 0, 0, &reads);
  cujit_check_turn(places);
  words(places, 0, 512, &writes), words(places, 0, 0, &reads);
  HOLDS(!cujit_check_update(&places[1], ALL, places->shared, 0, &writes.site));
  words(places, 1, 0, &writes);
}

/* One lane reads what another one of its warp wrote just before. */
static void reads_without_meeting(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_cleared(places, places->shared, STRIDE);
  words(places, 0, 0, &writes), row(places, 0, ALL, 4, &reads);
}

static void reads_before(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_cleared(places, places->shared, STRIDE);
  row(places, 0, ALL, 60, &reads_back);
}

static void reads_local_of_others(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_begin(places);
  cujit_check_row(places, ALL, places->local, &writes_local.site, 0);
  cujit_check_row(places, 3, places->local, &reads_across.site, 0);
}

/* Behind its arrival, for which the other warp does not wait. */
static void writes_behind_arrival(struct Place *places, struct Block *state) {
  words(places, 0, 0, &writes);
  cujit_check_arrive(&places[0], 1, 0, 0);
  words(places, 0, 0, &writes);
  cujit_check_arrive(&places[1], 1, 1, 0);
  state->barriers[1].generation++;
  cujit_check_pass(&places[1], 1);
  words(places, 1, 0, &reads);
}

static void writes_behind_forgotten(struct Place *places, struct Block *state) {
  (void)state;
  forget(places);
  words(places, 0, 0, &writes), words(places, 1, 0, &writes);
}

/* Each at a barrier of its own. */
static void meets_nobody(struct Place *places, struct Block *state) {
  words(places, 0, 0, &writes);
  for (u32 warp = 0; warp < 2; warp++) {
    cujit_check_arrive(&places[warp], warp, 1, 0);
    state->barriers[warp].generation++;
    cujit_check_pass(&places[warp], warp);
  }
  words(places, 1, 0, &writes);
}

/* What a record names is not forgotten, however much is done elsewhere. */
static void writes_long_ago(struct Place *places, struct Block *state) {
  (void)state;
  access(&places[1], SPACE_SHARED, ACCESS_WRITE, places->shared + 128, 4), cujit_check_synced(&places[1]);
  words(places, 0, 0, &writes);
  for (u32 k = 0; k < 4 * MANY; k++) words(places, 1, 128, k & 1 ? &reads : &writes);
  row(places, 1, ALL, 0, &reads);
}

/* Of synchronisation. */

static void names_others(struct Place *places, struct Block *state) {
  (void)state;
  for (u32 lane = 0; lane < WARP; lane++) places->values[lane] = 1u << (lane ^ 1);
  cujit_check_members(places, ALL, ALL, 6);
}

static void names_who_left(struct Place *places, struct Block *state) {
  (void)state;
  for (u32 lane = 0; lane < WARP; lane++) places->values[lane] = 0x1ffff;
  cujit_check_members(places, 0xffff, 0xffff, 6);
}

static void reads_who_left(struct Place *places, struct Block *state) {
  (void)state;
  for (u32 lane = 0; lane < WARP; lane++) places->values[lane] = ALL, places->addresses[lane] = 31;
  cujit_check_origins(places, 0xffff, 0xffff, 6);
}

static void meets_at_none(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_barrier(places, ALL, ALL, BARRIERS, 0, 1, 6);
}

static void meets_in_pieces(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_barrier(places, ALL, ALL, 0, WARP + 1, 1, 6);
}

static void meets_in_part(struct Place *places, struct Block *state) {
  (void)state;
  cujit_check_barrier(places, 0xffff, ALL, 0, 0, 1, 6);
}

static void meets_elsewhere(struct Place *places, struct Block *state) {
  (void)state;
  for (u32 warp = 0; warp < 2; warp++) cujit_check_site(&places[warp], ALL, 0, 6 + warp, 1);
}

static void is_skipped(struct Place *places, struct Block *state) {
  cujit_check_site(&places[0], ALL, 0, 6, 1), cujit_check_skip(&places[1], 0xff, 0, 6);
  state->barriers[0].generation++, state->warps = 2;
  cujit_check_skipped(&places[0], ALL, 0, 6);
}

/* -- launches -------------------------------------------------------------------------------------------------------- */

/* What a launch found: kind and code, and for a race the line of the other access. */
struct Found {
  u32 fault, code, other;
};

static struct Found run(struct Crew *crew, Work *what, u32 helpers, u32 checks, u64 serial) {
  u64 total = 2 * LOCAL * WARP, written = sizeof(struct Tracker) + STRIDE / 128 * 16;
  u64 entries = (written + STRIDE + 63) & ~63ull, records = KINDS * STRIDE * sizeof(u32), events = (KINDS + 1) * STRIDE + 8192;
  u64 numbered = sizeof(struct Event) + sizeof(u32), phases = (entries + records + events * numbered + 63) & ~63ull;
  const struct Span spans[] = {
      {(u64)memory.written, (u64)memory.freed, 0, &written_marks.head},
      {(u64)memory.freed, (u64)memory.open, 1, 0},
      {(u64)memory.open, (u64)memory.raw, 0, 0},
      {(u64)memory.raw, (u64)(&memory + 1), 0, &raw_marks.head},
  };
  struct Watch watch = {
      .spans = spans, .count = sizeof spans / sizeof *spans, .warps = 2, .shared_limit = LIMIT,
      .checks = checks, .shared_stride = STRIDE,
      .cluster_blocks = 1, .entries = entries, .marks = written, .events = entries + records,
      .phases = phases,
      .most_events = events, .piece_bytes = (phases + (STRIDE + WARP) * sizeof(u32) + (STRIDE / WARP + 2) * 128 + 63) & ~63ull,
      .local_bytes = LOCAL, .local_total = total, .parameter_bytes = sizeof parameters, .serial = serial << 32,
  };
  struct Launch launch = {.parameters = parameters, .blocks = BLOCKS, .chunk = 1, .together = 1, .checks = &watch};
  work = what;
  cujit_pool_run(crew->pool, kernel, &launch, helpers, STRIDE, 2 * total);
  u32 code = (u32)launch.fault_more[2];
  return (struct Found){launch.fault_kind, code, code == CODE_UNORDERED ? (u32)launch.fault_more[4] : 0};
}

int main(void) {
  static Work *const right[] = {is_right, is_handed_over, rows_are_right, pairs_are_right, forgets_are_right, takes};
  static const struct {
    Work *work;
    struct Found found;
  } wrong[] = {
      {is_outside, {FAULT_MEMORY, CODE_OUTSIDE, 0}}, {is_freed, {FAULT_MEMORY, CODE_FREED, 0}},
      {is_crooked, {FAULT_MEMORY, CODE_MISALIGNED, 0}}, {is_raw_memory, {FAULT_INIT, CODE_RAW, 0}},
      {is_race, {FAULT_RACE, CODE_UNORDERED, 5}}, {is_different, {FAULT_RACE, CODE_DIFFERENT, 0}},
      {ends_outside, {FAULT_MEMORY, CODE_OUTSIDE, 0}}, {reads_outside, {FAULT_MEMORY, CODE_OUTSIDE, 0}},
      {row_is_freed, {FAULT_MEMORY, CODE_FREED, 0}}, {row_is_crooked, {FAULT_MEMORY, CODE_MISALIGNED, 0}},
      {row_is_raw, {FAULT_INIT, CODE_RAW, 0}}, {global_row_is_raw, {FAULT_INIT, CODE_RAW, 0}},
      {local_row_is_raw, {FAULT_INIT, CODE_RAW, 0}}, {writes_twice, {FAULT_RACE, CODE_UNORDERED, WRITES_ROW}},
      {writes_what_is_read, {FAULT_RACE, CODE_UNORDERED, READS}},
      {writes_behind_batch, {FAULT_RACE, CODE_UNORDERED, READS_SECOND}},
      {writes_behind_batch_by_bytes, {FAULT_RACE, CODE_UNORDERED, READS_SECOND}},
      {writes_bytes_of_words, {FAULT_RACE, CODE_UNORDERED, WRITES_ROW}},
      {writes_behind_turn, {FAULT_RACE, CODE_UNORDERED, WRITES_ROW}}, {meets_nobody, {FAULT_RACE, CODE_UNORDERED, WRITES_ROW}},
      {writes_long_ago, {FAULT_RACE, CODE_UNORDERED, WRITES_ROW}}, {pair_writes_twice, {FAULT_RACE, CODE_UNORDERED, WRITES_ROW}},
      {pair_writes_what_is_read, {FAULT_RACE, CODE_UNORDERED, READS}},
      {reads_without_meeting, {FAULT_RACE, CODE_UNORDERED, WRITES_ROW}}, {reads_before, {FAULT_MEMORY, CODE_OUTSIDE, 0}},
      {reads_local_of_others, {FAULT_MEMORY, CODE_OUTSIDE, 0}},
      {writes_behind_arrival, {FAULT_RACE, CODE_UNORDERED, WRITES_ROW}},
      {writes_behind_forgotten, {FAULT_RACE, CODE_UNORDERED, WRITES_ROW}}, {names_others, {FAULT_SYNC, CODE_NOT_NAMED, 0}},
      {names_who_left, {FAULT_SYNC, CODE_MISSING, 0}}, {reads_who_left, {FAULT_SYNC, CODE_NO_ORIGIN, 0}},
      {meets_at_none, {FAULT_SYNC, CODE_NUMBER, 0}}, {meets_in_pieces, {FAULT_SYNC, CODE_COUNT, 0}},
      {meets_in_part, {FAULT_SYNC, CODE_PART, 0}}, {meets_elsewhere, {FAULT_SYNC, CODE_ELSEWHERE, 0}},
      {is_skipped, {FAULT_SYNC, CODE_SKIPPED, 0}},
  };
  struct Crew crew;
  u64 serial = 0;
  crew_begin(&crew);
  memset(written_marks.bytes, 1, sizeof memory - PART);
  for (u32 k = 0; k < PART; k++) memory.raw[k] = PATTERN[k % sizeof PATTERN];
  for (u32 k = 0; k < sizeof right / sizeof *right; k++) {
    for (u32 helpers = 0; helpers <= WORKERS; helpers++) HOLDS(!run(&crew, right[k], helpers, EVERY, ++serial).fault);
  }
  /* With all checks, and with only the one that finds it. */
  static const u32 finds[] = {
      [FAULT_MEMORY] = CHECK_MEMORY, [FAULT_RACE] = CHECK_RACE, [FAULT_SYNC] = CHECK_SYNC, [FAULT_INIT] = CHECK_INIT,
  };
  for (u32 k = 0; k < 4 * (sizeof wrong / sizeof *wrong); k++) {
    const struct Found *expected = &wrong[k / 4].found;
    u32 checks = k & 1 ? EVERY : finds[expected->fault];
    struct Found found = run(&crew, wrong[k / 4].work, k & 2 ? WORKERS : 0, checks, ++serial);
    HOLDS(!memcmp(&found, expected, sizeof found));
  }
  crew_end(&crew);
  puts("good");
}
