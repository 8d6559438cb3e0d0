/* Launches under checks that native code starts, by themselves, under the sanitizers of a compiler: several threads
   launch, while one replaces what is known and frees what nobody may read any more, as Python does. */

#include "crew.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LAUNCHERS = 3, ROUNDS = 300, BLOCKS = 4, PIECES = 8, WORDS = 64 };

void cujit_check_run(struct Pool *pool, const struct CheckedJob *job, struct Launch *launch, u32 helpers,
                     u64 shared_bytes, u64 local_bytes);
u64 cujit_check_told(struct CheckedMemory *checked);
u64 cujit_check_users(struct CheckedMemory *checked);

static u32 memory[PIECES * WORDS];
static u64 changes;
static struct CheckedMemory checked = {.changes = &changes};
static struct Stores stores;
static u32 going = LAUNCHERS;

/* What native code is given: a Launch, and its Watch behind it. */
struct Checked {
  struct Launch launch;
  struct Watch watch;
};

/* The spans are all there, and stay while the kernel runs. */
static void kernel(struct Launch *launch, u8 *shared, u8 *local) {
  (void)shared, (void)local;
  const struct Watch *watch = launch->checks;
  while (__atomic_fetch_add(&launch->next, 1, __ATOMIC_RELAXED) < launch->blocks) {
    HOLDS(watch->count == PIECES && watch->serial);
    for (u32 k = 0; k < PIECES; k++) HOLDS(watch->spans[k].begin == (u64)(memory + k * WORDS));
  }
}

static void raw_kernel(struct Launch *launch, u8 *shared, u8 *local) {
  __atomic_fetch_add(&stores.count, 1, __ATOMIC_RELAXED);
  kernel(launch, shared, local);
}

static void failing_kernel(struct Launch *launch, u8 *shared, u8 *local) {
  (void)shared, (void)local;
  cujit_fault(launch, FAULT_TRAP, 0, 0, 1, 0);
}

/* Describe the memory as it is now, with the spans behind what tells of them. */
static struct KnownMemory *learn(void) {
  struct KnownMemory *known = malloc(sizeof *known + PIECES * sizeof(struct Span));
  struct Span *spans = (struct Span *)(known + 1);
  for (u32 k = 0; k < PIECES; k++) {
    u64 begin = (u64)(memory + k * WORDS);
    spans[k] = (struct Span){begin, begin + WORDS * sizeof *memory, 0, 0};
  }
  *known = (struct KnownMemory){spans, PIECES, __atomic_load_n(&changes, __ATOMIC_RELAXED)};
  return known;
}

static struct Checked launch(struct Pool *pool, void *what, u64 parameter, u32 helpers) {
  u64 parameters[] = {7, parameter};
  const struct CheckedJob job = {&checked, (u64)what, sizeof parameters};
  struct Checked made = {.watch.stores = &stores};
  made.launch = (struct Launch){.parameters = (u8 *)parameters, .blocks = BLOCKS, .chunk = 1};
  cujit_check_run(pool, &job, &made.launch, helpers, 64, 0);
  return made;
}

/* Launch, and have Python told where it is to do the rest. */
static void *launches(void *pool) {
  for (u32 k = 0; k < ROUNDS; k++) {
    struct Checked done = launch(pool, kernel, (u64)memory, k % (WORKERS + 1));
    HOLDS(!done.launch.fault_kind);
    HOLDS(!done.launch.checks == !done.watch.stale);
    if (done.watch.stale) cujit_check_told(&checked);
  }
  __atomic_fetch_sub(&going, 1, __ATOMIC_RELEASE);
  return 0;
}

/* Change what is known until all have launched: what was known is freed where nobody may read it. */
static void replace_known(void) {
  struct KnownMemory *old[64];
  u32 count = 0;
  while (__atomic_load_n(&going, __ATOMIC_ACQUIRE)) {
    usleep(20); /* so that some launches are made in between */
    old[count++] = checked.known;
    __atomic_fetch_add(&changes, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&checked.known, learn(), __ATOMIC_SEQ_CST);
    while (count == sizeof old / sizeof *old && cujit_check_users(&checked)) sched_yield();
    if (!cujit_check_users(&checked)) {
      while (count) free(old[--count]);
    }
  }
  while (count) free(old[--count]);
}

/* What is left to Python, and what is not: that nothing is known, that memory has changed, an address that leads
   elsewhere, something to tell. */
static void leave(struct Pool *pool) {
  struct KnownMemory *known = checked.known;
  u32 elsewhere = 0;
  u64 past = (u64)(memory + PIECES * WORDS);
  HOLDS(!launch(pool, kernel, (u64)memory, 0).launch.checks && !launch(pool, kernel, past, 0).launch.checks);
  void *gone = mmap(0, 1 << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  HOLDS(gone != MAP_FAILED && !munmap(gone, 1 << 16));
  HOLDS(!launch(pool, kernel, (u64)gone, 0).launch.checks && !launch(pool, kernel, 1ull << 47, 0).launch.checks);
  HOLDS(!cujit_check_users(&checked));
  HOLDS(launch(pool, kernel, (u64)&elsewhere, 0).watch.stale && cujit_check_told(&checked) == 1);
  changes++;
  HOLDS(launch(pool, kernel, (u64)memory, 0).watch.stale && cujit_check_told(&checked) == 1);
  changes--, checked.known = 0;
  HOLDS(launch(pool, kernel, (u64)memory, 0).watch.stale && cujit_check_told(&checked) == 1);
  checked.known = known;
  struct Checked raw = launch(pool, raw_kernel, (u64)memory, 0), failed = launch(pool, failing_kernel, (u64)memory, 1);
  HOLDS(raw.launch.checks && !raw.watch.stale && failed.launch.checks && failed.launch.fault_kind == FAULT_TRAP);
  HOLDS(cujit_check_users(&checked) == 2 && raw.watch.serial != failed.watch.serial);
  cujit_check_told(&checked), cujit_check_told(&checked);
}

int main(void) {
  struct Crew crew;
  pthread_t launchers[LAUNCHERS];
  crew_begin(&crew);
  checked.known = learn();
  leave(crew.pool);
  for (u32 k = 0; k < LAUNCHERS; k++) pthread_create(&launchers[k], 0, launches, crew.pool);
  replace_known();
  for (u32 k = 0; k < LAUNCHERS; k++) pthread_join(launchers[k], 0);
  HOLDS(!cujit_check_users(&checked));
  free(checked.known);
  crew_end(&crew);
  puts("good");
}
