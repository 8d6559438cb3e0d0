/* The start of a kernel on the CPU device: a copy of the template of the launch goes to the threads of the pool.

   The state says where a Launch (devices.cpu.run.launch) has what, so that this is not of one layout of it. */

#include "launcher.h"

#define FIELD(type, place) (*(type *)(work + state->at_##place))

typedef void (*run)(void *pool, void *job, void *work, u32 helpers, u64 shared_bytes, u64 local_bytes);

/* Python is called with the address of the work if some is left: not all blocks ran, one could not go on, or printed,
   or the checks have something to tell. */
object *cujit_cpu(struct LaunchState *state, void *buffer, u64 size, void **each) {
  (void)size, (void)each;
  char *work = __builtin_alloca_with_align(state->template_bytes, 128);
  __builtin_memcpy(work, (void *)state->template, state->template_bytes);
  FIELD(void *, parameters) = buffer;
  FIELD(u64, next) = 0;
  void *thread = CALL(PyEval_SaveThread)();
  ((run)state->run)((void *)state->pool, (void *)state->job, work, state->helpers, state->shared_bytes,
                    state->local_bytes);
  CALL(PyEval_RestoreThread)(thread);
  bool is_done = FIELD(u64, next) >= FIELD(u64, blocks) && !FIELD(u32, fault_kind) && !FIELD(u64, output) &&
                 !FIELD(u64, checks);
  return is_done ? none() : report(state, (i64)work);
}
