/* The run-time by itself, under the sanitizers of a compiler: threads that print, take and give back memory, trace, and
   fault, each in a guard of one launch, as kernels do. */

#include "guard.h"
#include "output.h"
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 200 };

flag cujit_enter(struct Guard *guard, struct Launch *launch, struct Running *place);
void cujit_leave(struct Guard *guard);
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

static void *run(void *number) {
  struct Guard guard = {.decides = 0};
  struct Running place = {(u64)number, 0, -1};
  if (!_setjmp(*(jmp_buf *)guard.jump)) {
    if (!cujit_enter(&guard, &launch, &place)) abort();
    for (u32 k = 0; k < ROUNDS; k++) say((u64)number), take();
    cujit_fault(&launch, FAULT_TRAP, (u64)number, 5, 6, 0);
  }
  cujit_leave(&guard);
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
  pthread_t all[THREADS];
  cujit_install();
  for (u64 k = 0; k < THREADS; k++) pthread_create(&all[k], 0, run, (void *)k);
  for (u32 k = 0; k < THREADS; k++) pthread_join(all[k], 0);
  if (launch.fault_kind != FAULT_TRAP || launch.fault_thread != 5) abort();
  if (drop_printed() != THREADS * ROUNDS * 2) abort();
  trace();
  puts("good");
}
