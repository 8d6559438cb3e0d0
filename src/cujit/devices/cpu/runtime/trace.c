/* What one thread does: records in memory that grows, for Python to read after the launch.

   A record is a word (which operation, how many words of values follow) and its values. Kernels write them before each
   operation and again after it: a thread that cannot go on has left what it was about to do. */

#include "launch.h"

#include <stdlib.h>
#include <string.h>

/* Have room for so many words. */
static flag reserve(struct TraceState *state, u64 end) {
  if (end <= state->capacity) return 1;
  u64 more = state->capacity * 2 + end;
  u64 *larger = realloc(state->records, more * sizeof *larger);
  if (!larger) return 0;
  state->records = larger;
  state->capacity = more;
  return 1;
}

/* Keep a record: the number of the operation, and `count` words. One thread of the pool runs the traced warp, so that
   nobody else writes here meanwhile. */
void cujit_trace(struct Launch *launch, u32 number, u32 count, const u64 *values) {
  struct TraceState *state = launch->trace;
  if (!state) return;
  flag begins = !(number & TRACE_DONE);
  flag full = begins && !state->left;
  u64 end = state->used + 1 + count;
  if (full || state->dropped || !reserve(state, end)) {
    state->dropped += begins;
    return;
  }
  u64 *record = state->records + state->used;
  state->left -= begins;
  record[0] = (u64)count << 32 | number;
  memcpy(record + 1, values, count * sizeof *values);
  state->used = end;
}
