/* The run-time by itself, under the sanitizers of a compiler: the threads of a pool print, take and give back memory,
   trace, and fault, as kernels do, launch by launch. */

#include "crew.h"

enum { LAUNCHES = 20, BLOCKS = 8, ROUNDS = 5, SHARED = 1000, LOCAL = 3000 };

void cujit_malloc(u32 lanes, const u64 *sizes, u64 *results);
void cujit_free(struct Launch *launch, u32 lanes, const u64 *blocks, u64 number, u32 first, u32 line);
void cujit_vprintf(struct Launch *launch, u32 lanes, const char **formats, const u8 **arguments, i32 *results, u64 block,
                   u32 first);
NORETURN void cujit_assert(struct Launch *launch, u64 block, u32 thread, u32 line, const char *message, const char *file,
                           u32 source_line, const char *function);
void cujit_trace(struct Launch *launch, u32 number, u32 count, const u64 *values);

static struct Launch launch;

static void say(u64 block) {
  struct {
    i32 number, width;
    const char *text;
    f64 real;
  } arguments = {7, 3, "some text", 1.5};
  const char *formats[WARP];
  const u8 *all[WARP];
  i32 results[WARP];
  for (u32 k = 0; k < WARP; k++) formats[k] = "%d %.*s %f%%\n", all[k] = (const u8 *)&arguments;
  cujit_vprintf(&launch, 0x80000001, formats, all, results, block, 0);
  if (results[0] != 4 || results[31] != 4) abort();
}

static void take(void) {
  u64 sizes[WARP], blocks[WARP];
  for (u32 k = 0; k < WARP; k++) sizes[k] = k; /* of nothing, null */
  cujit_malloc(~0u, sizes, blocks);
  for (u32 k = 1; k < WARP; k++) memset((void *)blocks[k], 0xff, k);
  cujit_free(&launch, ~0u, blocks, 0, 0, 1);
}

static void kernel(struct Launch *own, u8 *shared, u8 *local) {
  u64 block;
  memset(shared, 0xff, SHARED), memset(local, 0xff, LOCAL);
  while ((block = __atomic_fetch_add(&own->next, 1, __ATOMIC_RELAXED)) < BLOCKS) {
    running_at(shared)->block = block;
    for (u32 k = 0; k < ROUNDS; k++) say(block), take();
  }
  cujit_fault(own, FAULT_TRAP, block, 5, 6, 0);
}

static u32 drop_printed(void) {
  u32 count = 0;
  for (struct Printed *record = launch.output; record; count++) {
    struct Printed *previous = record->previous;
    HOLDS(record->bytes == 16 && !memcmp(record + 1, "7 som 1.500000%\n", 16));
    free(record);
    record = previous;
  }
  return count;
}

static void failing_kernel(struct Launch *own, u8 *shared, u8 *local) {
  (void)shared, (void)local;
  u64 block = __atomic_fetch_add(&own->next, 1, __ATOMIC_RELAXED);
  cujit_assert(own, block, 3, 4, block & 1 ? "x > 0" : 0, "file.cu", 9, 0);
}

/* Some fail at once: the first is told of. */
static void assert_something(struct Crew *crew) {
  memset(&launch, 0, sizeof launch);
  cujit_pool_run(crew->pool, failing_kernel, &launch, WORKERS, SHARED, LOCAL);
  struct Assertion *said = (struct Assertion *)launch.fault_more[0];
  HOLDS(launch.fault_kind == FAULT_ASSERT && said->line == 9 && said->file == 7 && said->message % 5 == 0);
  free(said);
}

static void trace(void) {
  struct TraceState state = {.left = 100};
  u64 values[3] = {1, 2, 3};
  launch.trace = &state;
  for (u32 k = 0; k < 150; k++) cujit_trace(&launch, k, k % 4, values), cujit_trace(&launch, k | TRACE_DONE, 1, values);
  if (state.left || state.dropped != 50) abort();
  free(state.records);
}

int main(void) {
  struct Crew crew;
  crew_begin(&crew);
  for (u32 k = 0; k < LAUNCHES; k++) {
    memset(&launch, 0, sizeof launch);
    cujit_pool_run(crew.pool, kernel, &launch, k % (WORKERS + 1), SHARED, LOCAL);
    HOLDS(launch.fault_kind == FAULT_TRAP && launch.fault_thread == 5);
    HOLDS(drop_printed() == BLOCKS * ROUNDS * 2);
  }
  assert_something(&crew);
  crew_end(&crew);
  trace();
  puts("good");
}
