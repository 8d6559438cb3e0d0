/* The run-time by itself, under the sanitizers of a compiler: the threads of a pool print, take and give back memory,
   trace, and fault, as kernels do, launch by launch. */

#include "guard.h"
#include "output.h"
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 3, LAUNCHES = 20, BLOCKS = 8, ROUNDS = 5, SHARED = 1000, LOCAL = 3000 };

struct Pool *cujit_pool_make(void);
void cujit_pool_work(struct Pool *pool);
void cujit_pool_run(struct Pool *pool, void *kernel, struct Launch *launch, u32 helpers, u64 shared, u64 local);
void cujit_pool_stop(struct Pool *pool);
void cujit_pool_free(struct Pool *pool);
void cujit_install(void);
void cujit_malloc(u32 lanes, const u64 *sizes, u64 *results);
void cujit_free(struct Launch *launch, u32 lanes, const u64 *blocks, u64 number, u32 first, u32 line);
void cujit_vprintf(struct Launch *launch, u32 lanes, const u8 **formats, const u8 **arguments, i32 *results, u64 block,
                   u32 first);
void cujit_trace(struct Launch *launch, u32 number, u32 count, const u64 *values);

static struct Launch launch;

static void say(u64 block) {
  struct {
    i32 number, width;
    const char *text;
    f64 real;
  } arguments = {7, 3, "some text", 1.5};
  const u8 *formats[WARP], *all[WARP];
  i32 results[WARP];
  for (u32 k = 0; k < WARP; k++) formats[k] = (const u8 *)"%d %.*s %f%%\n", all[k] = (const u8 *)&arguments;
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

static void *work(void *pool) {
  cujit_pool_work(pool);
  return 0;
}

static u32 drop_printed(void) {
  u32 count = 0;
  for (struct Printed *record = launch.output; record; count++) {
    struct Printed *previous = record->previous;
    if (record->values != 4 || record->text_bytes != 3) abort();
    free(record);
    record = previous;
  }
  return count;
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
  pthread_t all[WORKERS];
  struct Pool *pool = cujit_pool_make();
  cujit_install();
  for (u32 k = 0; k < WORKERS; k++) pthread_create(&all[k], 0, work, pool);
  for (u32 k = 0; k < LAUNCHES; k++) {
    memset(&launch, 0, sizeof launch);
    cujit_pool_run(pool, kernel, &launch, k % (WORKERS + 1), SHARED, LOCAL);
    if (launch.fault_kind != FAULT_TRAP || launch.fault_thread != 5) abort();
    if (drop_printed() != BLOCKS * ROUNDS * 2) abort();
  }
  cujit_pool_stop(pool);
  for (u32 k = 0; k < WORKERS; k++) pthread_join(all[k], 0);
  cujit_pool_free(pool);
  trace();
  puts("good");
}
