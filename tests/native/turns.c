/* The scheduler of warps by itself, under the sanitizers of a compiler: warps on stacks of their own meet at barriers,
   in blocks and in clusters, leave early, spin, fail and are ended, launch by launch. */

#include "arena.h"
#include "crew.h"

#include <time.h>

enum { ALL = ~0u, WARP_COUNT = 4, THREADS = WARP_COUNT * WARP, BLOCKS = 12, TURNS = 20 };
enum { STACK = 1 << 16, FRAMES = 1 << 18 }; /* bytes */

void cujit_run_blocks(struct Launch *launch, u8 *shared, u8 *local, const struct Plan *plan);
u32 cujit_barrier_arrive(struct Block *block, u32 id, u32 threads, u32 lanes, u32 holding);
void cujit_barrier_wait(struct Block *block, u32 warp, u32 id, u32 generation, u32 line, u32 lanes);
u32 cujit_barrier_generation(struct Block *block, u32 id);
u32 cujit_barrier_count(struct Block *block, u32 id);
u32 cujit_barrier_any(struct Block *block, u32 id);
u32 cujit_barrier_missing(struct Block *block, u32 id);
void cujit_wait(struct Block *block, u32 warp, u32 line, u32 lanes);
void cujit_spin(struct Block *block, u32 warp, u32 line, u32 lanes, i32 at, flag moved);
void cujit_pass(struct Block *block, u32 warp);
u32 cujit_cluster_arrive(struct Block *block, u32 warp, u32 lanes);
u32 cujit_cluster_arrival(struct Block *block, u32 warp, u32 lanes);
u32 cujit_cluster_generation(struct Block *block);
void cujit_cluster_wait(struct Block *block, u32 warp, u32 generation, u32 line, u32 lanes);
void cujit_exit(struct Block *block, u32 warp, u32 lanes);
void cujit_may_stop(u64 begin, u64 bytes);
void cujit_use_python(void *ensure, void *release, void *check, void *fetch);

/* Frames that a longjmp left behind are no error of those that come to lie there. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
static NOINLINE void forget_own(void) { __asan_unpoison_memory_region((u8 *)__builtin_frame_address(0) - FRAMES, FRAMES); }
static NOINLINE void forget_frames(void) {
  struct Arena *arena = *cujit_arena();
  forget_own();
  if (arena) __asan_unpoison_memory_region((u8 *)arena + arena->stacks_at, arena->stacks * arena->stack_bytes);
}
#else
static void forget_own(void) {}
static void forget_frames(void) {}
#endif

/* There is no memory while this is set. */
static flag exhausted;
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size) { return exhausted ? 0 : __real_malloc(size); }

/* What a scenario runs: a warp of it; what is computed counts in `sum`. */
static Body *body;
static u64 sum;

static void kernel(struct Launch *launch, u8 *shared, u8 *local) {
  struct Plan plan = {body, THREADS, WARP_COUNT, 0, STACK};
  forget_frames();
  cujit_run_blocks(launch, shared, local, &plan);
}

static void count(u64 value) { __atomic_fetch_add(&sum, value, __ATOMIC_RELAXED); }

static void meet(struct Block *block, u32 warp, u32 id, u32 threads) {
  u32 generation = cujit_barrier_arrive(block, id, threads, ALL, warp & 1 ? ALL : 1);
  cujit_barrier_wait(block, warp, id, generation, 7, ALL);
}

/* -- scenarios ------------------------------------------------------------------------------------------------------- */

/* Every warp sees what the others wrote before the barrier; half of a block meets at one of its own. */
static void meets(struct Block *block, u32 warp) {
  u32 *words = (u32 *)block->shared;
  for (u32 turn = 0; turn < TURNS; turn++) {
    words[warp] = turn;
    meet(block, warp, 0, 0);
    for (u32 k = 0; k < WARP_COUNT; k++) HOLDS(words[k] == turn);
    HOLDS(cujit_barrier_count(block, 0) == WARP_COUNT / 2 * (WARP + 1));
    HOLDS(cujit_barrier_any(block, 0) == ALL && cujit_barrier_missing(block, 0) == ~1u);
    meet(block, warp, 1 + warp / 2, THREADS / 2);
    meet(block, warp, 0, 0);
  }
  count(cujit_barrier_generation(block, 0));
}

/* Warps leave one after the other; the barrier is for those that stay. */
static void leaves(struct Block *block, u32 warp) {
  for (u32 turn = 0; turn <= warp; turn++) meet(block, warp, 0, 0);
  cujit_exit(block, warp, ALL);
  count(1);
}

/* A warp waits for a word that the last one writes, by turns that only spin and by turns that wait. */
static void spins(struct Block *block, u32 warp) {
  volatile u32 *word = (u32 *)block->shared;
  if (!warp) *word = 0;
  meet(block, warp, 0, 0);
  if (warp == WARP_COUNT - 1) {
    for (u32 turn = 0; turn < TURNS; turn++) cujit_spin(block, warp, 8, ALL, -1, 0);
    *word = 1;
    block->changes++;
  }
  while (!*word) warp & 1 ? cujit_wait(block, warp, 9, ALL) : cujit_spin(block, warp, 9, ALL, -1, 0);
  count(1);
}

/* Under a schedule, warp 0 leaves its loop in a turn after which the scheduler looks for a deadlock; it ends the loops of
   the others, and waits for them. `picked` counts turns since the last warp began to spin. */
static u64 picked;
enum { LOOKED_AT = 1024, MANY = 1 << 17, ON_SHARED = -3 };
static void ends_loops(struct Block *block, u32 warp) {
  volatile u32 *word = (u32 *)block->shared;
  if (!warp) *word = 0;
  meet(block, warp, 0, 0);
  picked = 0;
  while (warp ? !*word : picked <= MANY || picked % LOOKED_AT) {
    cujit_spin(block, warp, 14, ALL, warp ? ON_SHARED : AT_ANY, 0);
    picked++;
  }
  if (!warp) *word = 1;
  meet(block, warp, 0, 0);
  count(1);
}

/* Warps of a block, and blocks of a cluster, have their turns one after the other, those that just waited too. */
static void passes(struct Block *block, u32 warp) {
  struct Group *group = block->group;
  u32 *turns = (u32 *)group->blocks->shared, first = block->rank * WARP_COUNT + warp;
  for (u32 turn = 0; turn < TURNS; turn++) {
    turns[first] = turn;
    u32 generation = cujit_cluster_arrive(block, warp, ALL);
    cujit_cluster_wait(block, warp, generation, 10, ALL);
    for (u32 k = 0; k < TURNS; k++) {
      for (u32 other = 0; other < group->count * WARP_COUNT; other++) {
        u32 ahead = turns[other] - turns[first];
        HOLDS(ahead + 1 <= 2);
      }
      turns[first]++;
      cujit_pass(block, warp);
    }
    generation = cujit_cluster_arrive(block, warp, ALL);
    cujit_cluster_wait(block, warp, generation, 11, ALL);
  }
  count(1);
}

/* Blocks of a cluster see each other's shared memory. */
static void clusters(struct Block *block, u32 warp) {
  struct Group *group = block->group;
  for (u32 turn = 0; turn < TURNS; turn++) {
    ((u32 *)block->shared)[warp] = turn;
    cujit_cluster_arrive(block, warp, 0xffff);
    u32 generation = cujit_cluster_arrive(block, warp, 0xffff0000);
    HOLDS(cujit_cluster_arrival(block, warp, ALL) == generation);
    cujit_cluster_wait(block, warp, generation, 10, ALL);
    for (u64 k = 0; k < group->count; k++) HOLDS(((u32 *)group->blocks[k].shared)[warp] == turn);
    generation = cujit_cluster_arrive(block, warp, ALL);
    cujit_cluster_wait(block, warp, generation, 11, ALL);
  }
  HOLDS(cujit_cluster_generation(block) == 2 * TURNS);
  if (warp) cujit_cluster_arrive(block, warp, 1);
  cujit_exit(block, warp, ALL);
  count(1);
}

static void never_meets(struct Block *block, u32 warp) { meet(block, warp, warp ? 0 : 1, THREADS); }

static void traps(struct Block *block, u32 warp) {
  meet(block, warp, 0, 0);
  if (block->number == 2 && warp == 1) cujit_fault(block->launch, FAULT_TRAP, 2, 33, 12, 0);
  meet(block, warp, 0, 0);
}

__attribute__((used)) static void reads_nowhere(struct Block *block, u32 warp) {
  meet(block, warp, 0, 0);
  if (warp == 2) count(*(volatile u32 *)*(u64 volatile *)&(u64){64});
}

/* Turns of the scheduler look whether the launch is to end. What is on a warp's stack stays there meanwhile. */
static void waits_for_ever(struct Block *block, u32 warp) {
  volatile u32 own[TURNS];
  for (u32 k = 0; k < TURNS; k++) own[k] = warp;
  for (u32 k = 0;; k = (k + 1) % TURNS) {
    cujit_spin(block, warp, 13, ALL, -1, 0);
    HOLDS(own[k] == warp);
    nanosleep(&(struct timespec){0, 1000}, 0); /* where a thread under a sanitizer takes a poke */
  }
}

/* What a poke ends anywhere: this is the kernel's machine code. */
__attribute__((section("machine_code"), used, noinline, no_sanitize("address", "undefined"))) static void
computes_for_ever(struct Block *block, u32 warp) {
  for (volatile u32 turn = warp; block;) turn++;
}
/* So does code that the kernel calls and that holds nothing. */
__attribute__((section("plain_code"), used, noinline, no_sanitize("address", "undefined"))) static void count_up(
    volatile u32 *turn) {
  while (*turn != ~0u) *turn |= 1;
}
__attribute__((section("machine_code"), used, noinline, no_sanitize("address", "undefined"))) static void
calls_for_ever(struct Block *block, u32 warp) {
  volatile u32 turn = warp;
  if (block) count_up(&turn);
  turn++; /* or it were no call */
}
extern u8 __start_plain_code[], __stop_plain_code[];
extern u8 __start_machine_code[], __stop_machine_code[];

/* -- launches -------------------------------------------------------------------------------------------------------- */

static struct Launch made(Body *what, u32 cluster) {
  struct Launch launch = {.blocks = BLOCKS, .chunk = cluster, .together = cluster, .grid_x = BLOCKS};
  launch.cluster_x = cluster;
  launch.code = (u64)__start_machine_code;
  launch.code_bytes = (u64)(__stop_machine_code - __start_machine_code);
  body = what;
  sum = 0;
  return launch;
}

static void release(struct Launch *launch) {
  struct Stands *stands = launch->stands;
  if (launch->fault_kind == FAULT_DEADLOCK) free((void *)launch->fault_more[0]);
  for (u64 k = 0; stands && k < stands->count && k < STANDS; k++) free(stands->each[k].blocks);
  free(stands);
}

static u32 run(struct Crew *crew, struct Launch launch, u32 helpers) {
  forget_own();
  cujit_pool_run(crew->pool, kernel, &launch, helpers, 1024, 0);
  if (launch.timeout_ns) HOLDS(launch.stands && launch.stands->count);
  for (u64 k = 0; launch.timeout_ns && k < launch.stands->count; k++) {
    u64 pc = launch.stands->each[k].pc;
    HOLDS(!pc || pc - launch.code < launch.code_bytes);
  }
  release(&launch);
  return launch.fault_kind;
}

static u32 ended(struct Crew *crew, Body *what, u32 helpers) {
  struct Launch launch = made(what, 1);
  launch.timeout_ns = 1000000;
  return run(crew, launch, helpers);
}

static void one_of_each(struct Crew *crew, u32 helpers) {
  HOLDS(!run(crew, made(meets, 1), helpers) && sum == BLOCKS * WARP_COUNT * 2 * TURNS);
  HOLDS(!run(crew, made(leaves, 1), helpers) && sum == BLOCKS * WARP_COUNT);
  HOLDS(!run(crew, made(spins, 1), helpers) && sum == BLOCKS * WARP_COUNT);
  HOLDS(!run(crew, made(clusters, 3), helpers) && sum == BLOCKS * WARP_COUNT);
  HOLDS(!run(crew, made(passes, 3), helpers) && sum == BLOCKS * WARP_COUNT);
  HOLDS(run(crew, made(never_meets, 1), helpers) == FAULT_DEADLOCK);
  exhausted = 1;
  HOLDS(run(crew, made(never_meets, 1), helpers) == FAULT_DEADLOCK);
  exhausted = 0;
  HOLDS(run(crew, made(traps, 1), helpers) == FAULT_TRAP);
  HOLDS(ended(crew, waits_for_ever, helpers) == FAULT_TIMEOUT);
#ifndef __SANITIZE_THREAD__ /* it keeps signals back until the thread calls something */
  HOLDS(ended(crew, computes_for_ever, helpers) == FAULT_TIMEOUT);
  HOLDS(ended(crew, calls_for_ever, helpers) == FAULT_TIMEOUT);
  HOLDS(run(crew, made(reads_nowhere, 1), helpers) == FAULT_ILLEGAL_ADDRESS);
#endif
}

static void be_scheduled(struct Crew *crew) {
  struct Launch launch = made(ends_loops, 1);
  launch.blocks = 1;
  launch.schedule = 7;
  HOLDS(!run(crew, launch, 0) && sum == WARP_COUNT);
}

/* -- a handler of signals -------------------------------------------------------------------------------------------- */

static struct Crew *handlers_crew;
static u32 handled;

static i32 ensure(void) { return 0; }
static void let_go(i32 state) { (void)state; }
static void fetch(u64 *type, u64 *value, u64 *trace) { *type = *value = *trace = 1; }

/* It launches what takes turns, too; at last it raises. */
static i32 check(void) {
  Body *outer = body;
  u64 before = sum;
  HOLDS(!run(handlers_crew, made(meets, 1), 0) && sum);
  body = outer, sum = before;
  return ++handled == 3;
}

static void be_interrupted(struct Crew *crew) {
  handlers_crew = crew;
  cujit_use_python(ensure, let_go, check, fetch);
  struct Launch launch = made(waits_for_ever, 1);
  launch.blocks = 1;
  HOLDS(run(crew, launch, 0) == FAULT_INTERRUPTED && handled == 3);
  cujit_use_python(0, 0, 0, 0);
}

int main(void) {
  struct Crew crew;
  crew_begin(&crew);
  cujit_may_stop((u64)__start_plain_code, (u64)(__stop_plain_code - __start_plain_code));
  for (u32 k = 0; k < 3 * (WORKERS + 1); k++) one_of_each(&crew, k % (WORKERS + 1));
  be_scheduled(&crew);
  be_interrupted(&crew);
  crew_end(&crew);
  puts("good");
}
