/* What kernels under checks call, by itself, under the sanitizers of a compiler: in several threads, what is right and
   what is wrong in each way. */

#include "crew.h"

enum { ALL = ~0u, BLOCKS = 12, ROUNDS = 4, STRIDE = 1024, LIMIT = 512, LOCAL = 16, MOST = 256 };

void cujit_check_access(struct Place *place, u32 lanes, u64 size, u32 flags, u32 line);
void cujit_check_same(struct Place *place, u32 lanes, u64 parts, u32 flags, u32 line);
void cujit_check_filled(struct Place *place);
void cujit_check_cleared(struct Place *place, u64 address, u64 size);
void cujit_check_arrive(struct Place *place, u32 id);
void cujit_check_pass(struct Place *place, u32 id);
void cujit_check_synced(struct Place *place);
void cujit_check_members(struct Place *place, u32 lanes, u32 live, u32 line);
void cujit_check_origins(struct Place *place, u32 lanes, u32 live, u32 line);
void cujit_check_barrier(struct Place *place, u32 lanes, u32 live, u32 number, u32 threads, flag aligned, u32 line);
void cujit_check_malloc(struct Place *place, u32 lanes);
void cujit_check_free(struct Place *place, u32 lanes);

static _Alignas(16) u8 memory[MOST], marks[MOST], freed[MOST], parameters[16];

/* What a block does under checks; `state` counts its barriers. */
typedef void Work(struct Place *place, struct Block *state);
static Work *work;

/* Two warps take turns, each with a place of its own. */
static void kernel(struct Launch *launch, u8 *shared, u8 *local) {
  u64 number;
  while ((number = __atomic_fetch_add(&launch->next, 1, __ATOMIC_RELAXED)) < launch->blocks) {
    struct Block *state = calloc(1, sizeof *state);
    struct Place places[2];
    for (u32 warp = 0; warp < 2; warp++) {
      places[warp] = (struct Place){.launch = launch, .state = state, .shared = (u64)shared, .cluster = (u64)shared};
      places[warp].block = number, places[warp].seen_block = ~0ull, places[warp].warp = warp;
      places[warp].local = (u64)local + warp * LOCAL * WARP, places[warp].local_bytes = LOCAL;
    }
    state->launch = launch, state->local = local;
    struct Block own = *state;
    free(state); /* what fails leaves from here on */
    places[0].state = places[1].state = &own;
    work(places, &own);
  }
}

/* -- accesses -------------------------------------------------------------------------------------------------------- */

static void access(struct Place *place, u32 space, u32 kind, u64 begin, u64 step) {
  for (u32 lane = 0; lane < WARP; lane++) place->addresses[lane] = begin + lane * step;
  cujit_check_access(place, ALL, 4, kind | space << 8 | 4 << 16 | 2 << 24, 5);
}

static void meet(struct Place *places, struct Block *state, u32 id) {
  for (u32 warp = 0; warp < 2; warp++) cujit_check_arrive(&places[warp], id);
  state->barriers[id].generation++;
  for (u32 warp = 0; warp < 2; warp++) cujit_check_pass(&places[warp], id);
}

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
    cujit_check_same(places, ALL, 1, ACCESS_WRITE | SPACE_SHARED << 8 | 4 << 16 | 2 << 24, 5);
    access(places, SPACE_GLOBAL, ACCESS_READ | ACCESS_WRITE, (u64)memory, 8);
    access(places, SPACE_LOCAL, ACCESS_WRITE, places->local, LOCAL);
    access(places, SPACE_GENERIC, ACCESS_READ, places->local, LOCAL);
    access(places, SPACE_GLOBAL, ACCESS_READ, (u64)parameters, 0);
    cujit_check_synced(places);
    meet(places, state, 0);
    cujit_check_filled(places);
  }
  for (u32 lane = 0; lane < WARP; lane++) places->values[lane] = ALL, places->addresses[lane] = lane ^ 1;
  cujit_check_members(places, ALL, ALL, 6);
  cujit_check_origins(places, ALL, ALL, 6);
  cujit_check_barrier(places, ALL, ALL, 15, 2 * WARP, 1, 6);
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
  cujit_check_access(places, ALL, 4, ACCESS_WRITE | SPACE_GLOBAL << 8 | 4 << 16 | 2 << 24, 5);
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
  access(places, SPACE_GLOBAL, ACCESS_WRITE, (u64)freed, 4);
}

static void is_crooked(struct Place *places, struct Block *state) {
  (void)state;
  access(places, SPACE_GLOBAL, ACCESS_WRITE, (u64)memory + 2, 4);
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
  cujit_check_same(places, ALL, 1, ACCESS_WRITE | SPACE_SHARED << 8 | 4 << 16 | 2 << 24, 5);
}

static void names_others(struct Place *places, struct Block *state) {
  (void)state;
  for (u32 lane = 0; lane < WARP; lane++) places->values[lane] = 1u << (lane ^ 1);
  cujit_check_members(places, ALL, ALL, 6);
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

/* -- launches -------------------------------------------------------------------------------------------------------- */

static u32 run(struct Crew *crew, Work *what, u32 helpers, u64 serial) {
  u64 total = 2 * LOCAL * WARP, entries = (sizeof(struct Tracker) + STRIDE + 7) & ~7ull;
  struct Span spans[] = {{(u64)memory, (u64)memory + MOST, 0, marks}, {(u64)freed, (u64)freed + MOST, 1, 0}};
  if (&memory[0] > &freed[0]) {
    struct Span first = spans[1];
    spans[1] = spans[0], spans[0] = first;
  }
  struct Watch watch = {
      .spans = spans, .count = 2, .checks = CHECK_MEMORY | CHECK_RACE | CHECK_SYNC | CHECK_INIT, .shared_limit = LIMIT,
      .shared_stride = STRIDE, .shared_total = STRIDE, .cluster_blocks = 1, .entries = entries,
      .piece_bytes = entries + STRIDE * sizeof(struct Entry), .local_bytes = LOCAL, .local_total = total,
      .parameter_bytes = sizeof parameters, .serial = serial << 32,
  };
  struct Launch launch = {.parameters = parameters, .blocks = BLOCKS, .chunk = 1, .checks = &watch};
  work = what;
  cujit_pool_run(crew->pool, kernel, &launch, helpers, STRIDE + watch.piece_bytes, 2 * total);
  return launch.fault_kind;
}

int main(void) {
  static const struct {
    Work *work;
    u32 fault;
  } all[] = {
      {takes, FAULT_NONE},
      {is_outside, FAULT_MEMORY}, {is_freed, FAULT_MEMORY}, {is_crooked, FAULT_MEMORY},
      {is_raw_memory, FAULT_INIT}, {is_race, FAULT_RACE}, {is_different, FAULT_RACE},
      {names_others, FAULT_SYNC}, {reads_who_left, FAULT_SYNC}, {meets_at_none, FAULT_SYNC},
  };
  struct Crew crew;
  crew_begin(&crew);
  memset(marks, 1, sizeof marks);
  for (u32 k = 0; k <= WORKERS; k++) HOLDS(run(&crew, is_right, 0, k + 1) == FAULT_NONE);
  for (u32 k = 0; k < 2 * (sizeof all / sizeof *all); k++) {
    HOLDS(run(&crew, all[k / 2].work, k & 1 ? WORKERS : 0, 100 + k) == all[k / 2].fault);
  }
  crew_end(&crew);
  puts("good");
}
