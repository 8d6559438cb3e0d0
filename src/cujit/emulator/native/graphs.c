/* Launches of graphs: an instantiated graph is a list of steps, which need no Python. */

#include "memory.h"

#include <time.h>

typedef Answer OnGraph(u64 handle, u64 stream);
typedef Answer OnStep(u64 steps, u64 number);

static OnGraph *on_graph;
static OnStep *on_step;

/* Of the parts that are loaded before this one. */
Answer cujit_cuCtxPushCurrent_v2(u64 handle);
Answer cujit_cuCtxPopCurrent_v2(u64 *out);
Answer cujit_emulator_stream(u64 handle, u64 *cell);
Answer cujit_emulator_record(u64 event);
void cujit_emulator_fail(u64 context, u32 error);
void cujit_emulator_host(u64 function, u64 a, u64 b, u64 c);
Answer cujit_copy_check(const struct CopyPlan *plan);
void cujit_copy_run(const struct CopyPlan *plan);
Answer cujit_set_check(const struct SetPlan *plan);
void cujit_set_run(const struct SetPlan *plan);
Answer cujit_cuLaunchKernelEx(const struct LaunchWords *said, u64 function, void **each, void **list);
Answer cujit_launch_node(const struct GraphStep *step, u64 stream, u64 context);

void cujit_graphs_begin(OnGraph *graph, OnStep *step) {
  on_graph = graph;
  on_step = step;
}

static Answer launch(const struct GraphStep *step, u64 stream) {
  u64 context = current_handle();
  u32 pushed = step->context && step->context != context;
  const struct Cell *known = cell_of(step->known, CELL_FUNCTION);
  if (known && known->context == context && !pushed) return cujit_launch_node(step, stream, context);
  struct LaunchWords words = *(const struct LaunchWords *)step->plan;
  words.stream = stream;
  Answer answer = pushed ? cujit_cuCtxPushCurrent_v2(step->context) : RESULT_SUCCESS;
  if (answer) return answer;
  answer = cujit_cuLaunchKernelEx(&words, step->function, (void **)step->values, 0);
  if (pushed) cujit_cuCtxPopCurrent_v2(0);
  return answer;
}

static Answer make_all(const struct GraphStep *steps, u64 stream);

static u64 now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (u64)time.tv_sec * 1000000000 + (u64)time.tv_nsec;
}

/* Make a list of steps again and again, which --timeout ends as it ends a kernel. */
static Answer repeat(const struct GraphStep *steps, const u32 *condition, u64 stream) {
  u64 begin = state.wait_ns ? now() : 0;
  Answer answer = RESULT_SUCCESS;
  while (!answer && __atomic_load_n(condition, __ATOMIC_ACQUIRE)) {
    answer = make_all(steps, stream);
    if (answer || !state.wait_ns || now() < begin + state.wait_ns) continue;
    cujit_emulator_fail(current_handle(), RESULT_LAUNCH_TIMEOUT);
    answer = RESULT_LAUNCH_TIMEOUT;
  }
  return answer;
}

/* Make the lists of steps that a condition chooses. */
static Answer choose(const struct GraphStep *step, u64 stream) {
  const struct GraphStep *const *lists = (const struct GraphStep *const *)step->plan;
  const u32 *condition = (const u32 *)step->function;
  if (step->kind == STEP_WHILE) return repeat(lists[0], condition, stream);
  u64 which = step->kind == STEP_IF ? !*condition : *condition;
  return which < step->values ? make_all(lists[which], stream) : RESULT_SUCCESS;
}

static Answer make(const struct GraphStep *step, const struct GraphStep *steps, u64 stream) {
  Answer answer = RESULT_SUCCESS;
  switch (step->kind) {
  case STEP_KERNEL: return launch(step, stream);
  case STEP_COPY:
    answer = cujit_copy_check((const struct CopyPlan *)step->plan);
    if (!answer) cujit_copy_run((const struct CopyPlan *)step->plan);
    return answer;
  case STEP_SET:
    answer = cujit_set_check((const struct SetPlan *)step->plan);
    if (!answer) cujit_set_run((const struct SetPlan *)step->plan);
    return answer;
  case STEP_HOST: cujit_emulator_host(step->function, step->values, 0, 0); return answer;
  case STEP_RECORD: return cujit_emulator_record(step->function);
  case STEP_ASSIGN: *(u32 *)step->function = step->number; return answer;
  case STEP_IF:
  case STEP_WHILE:
  case STEP_SWITCH: return choose(step, stream);
  default: return on_step((u64)steps, step->number);
  }
}

static Answer make_all(const struct GraphStep *steps, u64 stream) {
  Answer answer = RESULT_SUCCESS;
  for (const struct GraphStep *step = steps; step->kind != STEP_END && !answer; step++)
    answer = make(step, steps, stream);
  return answer;
}

/* Make all steps in a context. A fault of a kernel is for later calls, as it is of a launch. */
static Answer run(const struct GraphStep *steps, u64 stream, u64 handle) {
  struct Cell *context = (struct Cell *)handle;
  u32 pushed = handle != current_handle();
  Answer answer = pushed ? cujit_cuCtxPushCurrent_v2(handle) : RESULT_SUCCESS;
  if (answer) return answer;
  answer = make_all(steps, stream);
  if (pushed) cujit_cuCtxPopCurrent_v2(0);
  u32 is_fault = answer && (u32)answer == __atomic_load_n(&context->error, __ATOMIC_ACQUIRE);
  return is_fault && !state.errors_now ? RESULT_SUCCESS : answer;
}

static Answer launch_graph(struct GraphExecCell *graph, u64 handle, u64 on) {
  u64 stream = 0;
  Answer answer = cujit_emulator_stream(on, &stream);
  if (answer) return answer;
  const struct GraphStep *steps = state.capturing ? 0 : __atomic_load_n(&graph->steps, __ATOMIC_SEQ_CST);
  while (!steps) { /* never launched, changed since, or the stream may be captured */
    answer = on_graph(handle, on);
    if (answer != GO_ON) return answer;
    steps = __atomic_load_n(&graph->steps, __ATOMIC_SEQ_CST);
  }
  return run(steps, on, ((struct StreamCell *)stream)->context);
}

Answer cujit_cuGraphLaunch(u64 handle, u64 stream) {
  READY();
  struct GraphExecCell *graph = (struct GraphExecCell *)cell_of(handle, CELL_GRAPH_EXEC);
  NEEDS(graph, INVALID_VALUE);
  __atomic_fetch_add(&graph->running, 1, __ATOMIC_SEQ_CST);
  Answer answer = RESULT_INVALID_VALUE; /* of a graph that was destroyed right now */
  if (__atomic_load_n(&graph->kind, __ATOMIC_SEQ_CST) == CELL_GRAPH_EXEC) answer = launch_graph(graph, handle, stream);
  __atomic_fetch_sub(&graph->running, 1, __ATOMIC_SEQ_CST);
  return answer;
}

Answer cujit_cuGraphLaunch_ptsz(u64 handle, u64 stream) { return cujit_cuGraphLaunch(handle, own_stream(stream)); }
