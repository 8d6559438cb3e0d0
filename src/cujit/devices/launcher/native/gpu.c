/* The start of a kernel on a GPU: cuLaunchKernel, or cuLaunchKernelEx with a configuration. */

#include "launcher.h"

typedef i32 (*launch)(void *function, u32 grid_x, u32 grid_y, u32 grid_z, u32 block_x, u32 block_y, u32 block_z,
                      u32 dynamic_bytes, void *stream, void **each, void **extra);
typedef i32 (*launch_ex)(void *config, void *function, void **each, void **extra);

/* Write the launch down in the ring of its context, as ring.py describes it. */
static void note(const struct LaunchState *s) {
  u64 *ring = (u64 *)s->ring;
  if (!ring) return;
  u64 *row = ring + 1 + ring[0] % RING_SIZE * RING_ROW;
  row[0] = s->label;
  row[1] = s->stream;
  __builtin_memcpy(row + 2, &s->grid_x, 6 * sizeof(u32));
  ring[0]++;
}

/* A kernel in another stream than the default one is not ordered after what was begun there: wait for that. */
static i32 settle(const struct LaunchState *s) {
  if (!s->stream || !s->ring || !is_unsettled(UNSETTLED(s->ring))) return 0;
  void *thread = CALL(PyEval_SaveThread)();
  i32 status = wait_for_default(UNSETTLED(s->ring), s->exchange, s->synchronize);
  CALL(PyEval_RestoreThread)(thread);
  return status;
}

static i32 enqueue(struct LaunchState *s, void **each, void **extra) {
  void *function = (void *)s->function;
  if (s->config) return ((launch_ex)s->launch_kernel_ex)((void *)s->config, function, each, extra);
  return ((launch)s->launch_kernel)(function, s->grid_x, s->grid_y, s->grid_z, s->block_x, s->block_y, s->block_z,
                                    s->dynamic_bytes, (void *)s->stream, each, extra);
}

object *cujit_gpu(struct LaunchState *state, void *buffer, u64 size, void **each) {
  bool is_pushed;
  i32 status = enter((void *)state->context, state->get_context, state->set_context, state->push_context, &is_pushed);
  if (status) return report(state, status);
  /* cuda.h: CU_LAUNCH_PARAM_BUFFER_POINTER (1), CU_LAUNCH_PARAM_BUFFER_SIZE (2), CU_LAUNCH_PARAM_END (0). */
  void *extra[5] = {(void *)1, buffer, (void *)2, &size, 0};
  status = settle(state);
  if (!status) {
    note(state);
    status = enqueue(state, each, size && !each ? extra : 0);
  }
  leave(state->pop_context, is_pushed);
  return status ? report(state, status) : none();
}
