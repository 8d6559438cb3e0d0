/* Launches: what was launched before with the same sizes needs no Python. */

#include "state.h"

#include <stdlib.h>

enum { MOST_PARAMETER_BYTES = 32764, INTERRUPTED = 1 << 22 };

/* Attributes of a launch. Source: CUDA Driver API manual, CUlaunchAttributeID. */
enum { COOPERATIVE = 2, CLUSTER = 4, LAST_ATTRIBUTE = 18 };
#define OF(number) (1u << (number))
/* What says how a GPU goes about it, and changes nothing here: windows of the cache, policies, preferences, overlap. */
#define HINTS (OF(0) | OF(1) | OF(3) | OF(5) | OF(6) | OF(8) | OF(9) | OF(10) | OF(11) | OF(14) | OF(16))

struct Attribute {
  u32 id, unused;
  u32 value[16];
};

typedef Answer Prepare(struct AskedLaunch *config, u64 function, const u8 *parameters);
typedef Answer Unfinished(u64 context, u64 function, struct ReadyLaunch *ready, struct Launch *work);
typedef u64 Find(u64 kernel, u64 context);
typedef void Run(u64 pool, u64 job, struct Launch *work, u32 helpers, u64 shared_bytes, u64 local_bytes);

static Prepare *prepare;
static Unfinished *unfinished;
static Find *find;
static void (*interrupt)(void);

void cujit_launches_begin(Prepare *on_new, Unfinished *on_rest, Find *on_kernel, void (*on_interrupt)(void)) {
  prepare = on_new;
  unfinished = on_rest;
  find = on_kernel;
  interrupt = on_interrupt;
}

/* The function of a handle in a context, counted as running; null where there is none. */
static struct FunctionCell *enter(u64 handle, u64 context) {
  struct KernelCell *kernel = (struct KernelCell *)cell_of(handle, CELL_KERNEL);
  if (kernel) {
    u64 known = __atomic_load_n(&kernel->function, __ATOMIC_ACQUIRE);
    struct Cell *cell = cell_of(known, CELL_FUNCTION);
    handle = cell && cell->context == context ? known : find(handle, context);
  }
  struct FunctionCell *function = (struct FunctionCell *)cell_of(handle, CELL_FUNCTION);
  if (!function || function->context != context) return 0;
  __atomic_fetch_add(&function->running, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&function->kind, __ATOMIC_SEQ_CST) == CELL_FUNCTION) return function;
  __atomic_fetch_sub(&function->running, 1, __ATOMIC_SEQ_CST);
  return 0;
}

static u32 is_for(const struct ReadyLaunch *ready, const struct AskedLaunch *config) {
  return ready->grid_x == config->grid_x && ready->grid_y == config->grid_y && ready->grid_z == config->grid_z &&
         ready->block_x == config->block_x && ready->block_y == config->block_y && ready->block_z == config->block_z &&
         ready->shared_bytes == config->shared_bytes && ready->cluster_x == config->cluster_x &&
         ready->cluster_y == config->cluster_y && ready->cluster_z == config->cluster_z;
}

static struct ReadyLaunch *ready_for(struct FunctionCell *function, const struct AskedLaunch *config) {
  struct ReadyLaunch **ready = (struct ReadyLaunch **)function->ready;
  for (u64 k = __atomic_load_n(&function->count, __ATOMIC_SEQ_CST); k--;) {
    struct ReadyLaunch *each = __atomic_load_n(ready + k, __ATOMIC_SEQ_CST);
    if (each && is_for(each, config)) return each;
  }
  return 0;
}

static Answer run(u64 context, struct FunctionCell *function, struct ReadyLaunch *ready, u8 *parameters) {
  struct Launch work = *ready->template;
  work.parameters = parameters;
  work.next = 0;
  ((Run *)ready->run)(ready->pool, ready->job, &work, ready->helpers, ready->block_shared_bytes, ready->local_bytes);
  if (work.next >= work.blocks && !work.fault_kind && !work.output) return RESULT_SUCCESS;
  return unfinished(context, (u64)function, ready, &work);
}

/* Parameters by an array of pointers to them, or by a list that names a buffer and its size. */
static Answer gather(const struct FunctionCell *function, void **each, void **list, u8 *into) {
  NEEDS(!each || !list, INVALID_VALUE);
  if (each) {
    for (u64 k = 0; k < function->parameter_count; k++) {
      NEEDS(each[k], INVALID_VALUE);
      memcpy(into + function->parameters[k].offset, each[k], function->parameters[k].bytes);
    }
    return RESULT_SUCCESS;
  }
  const u8 *buffer = 0;
  const u64 *size = 0;
  for (; list && *list; list += 2) {
    NEEDS((u64)*list <= 2, INVALID_VALUE);
    if ((u64)*list == 1) buffer = list[1];
    else size = list[1];
  }
  if (!function->parameter_count) return RESULT_SUCCESS;
  NEEDS(buffer && size && *size >= function->parameter_bytes, INVALID_VALUE);
  memcpy(into, buffer, function->parameter_bytes);
  return RESULT_SUCCESS;
}

static Answer launch_of(u64 context, struct FunctionCell *function, struct AskedLaunch *config, void **each,
                        void **list) {
  NEEDS(function->parameter_bytes <= MOST_PARAMETER_BYTES, INVALID_VALUE);
  _Alignas(64) u8 parameters[function->parameter_bytes + 1];
  Answer answer = gather(function, each, list, parameters);
  if (answer) return answer;
  struct ReadyLaunch *ready = 0;
  if (!config->more) ready = ready_for(function, config);
  if (!ready) {
    answer = prepare(config, (u64)function, parameters);
    if (answer != GO_ON) return answer;
    ready = config->ready; /* others may have taken it out of the table already; it stays while this thread is here */
  }
  return run(context, function, ready, parameters);
}

/* Take from an answer that Python is to be interrupted: Python would have it before, within what C asked. */
static Answer settled(Answer answer) {
  if (answer & INTERRUPTED) interrupt();
  return answer & ~INTERRUPTED;
}

static Answer launch(struct AskedLaunch *config, u64 handle, void **each, void **list) {
  ON_STREAM(context, config->stream);
  config->more |= state.capturing != 0;
  struct FunctionCell *function = enter(handle, (u64)context);
  NEEDS(function, INVALID_HANDLE);
  Answer answer = settled(launch_of((u64)context, function, config, each, list));
  __atomic_fetch_sub(&function->running, 1, __ATOMIC_SEQ_CST);
  return answer;
}

/* -- the driver's functions ------------------------------------------------------------------------------------------ */

#define SIZES u32 grid_x, u32 grid_y, u32 grid_z, u32 block_x, u32 block_y, u32 block_z, u32 shared_bytes

#define CONFIG(together)                                                                             \
  (struct AskedLaunch) {                                                                            \
    .grid_x = grid_x, .grid_y = grid_y, .grid_z = grid_z, .block_x = block_x, .block_y = block_y,    \
    .block_z = block_z, .shared_bytes = shared_bytes, .stream = stream, .cooperative = (together),   \
    .more = (together)                                                                               \
  }

Answer cujit_cuLaunchKernel(u64 function, SIZES, u64 stream, void **each, void **list) {
  struct AskedLaunch config = CONFIG(0);
  return launch(&config, function, each, list);
}

Answer cujit_cuLaunchKernel_ptsz(u64 function, SIZES, u64 stream, void **each, void **list) {
  stream = own_stream(stream);
  struct AskedLaunch config = CONFIG(0);
  return launch(&config, function, each, list);
}

Answer cujit_cuLaunchCooperativeKernel(u64 function, SIZES, u64 stream, void **each) {
  struct AskedLaunch config = CONFIG(1);
  return launch(&config, function, each, 0);
}

Answer cujit_cuLaunchCooperativeKernel_ptsz(u64 function, SIZES, u64 stream, void **each) {
  stream = own_stream(stream);
  struct AskedLaunch config = CONFIG(1);
  return launch(&config, function, each, 0);
}

static Answer read_attribute(struct AskedLaunch *config, const struct Attribute *attribute) {
  u32 id = attribute->id;
  NEEDS(id <= LAST_ATTRIBUTE, INVALID_VALUE);
  if (id == CLUSTER) {
    config->cluster_x = attribute->value[0];
    config->cluster_y = attribute->value[1];
    config->cluster_z = attribute->value[2];
    NEEDS(config->cluster_x && config->cluster_y && config->cluster_z, INVALID_VALUE);
  } else if (id == COOPERATIVE) {
    NEEDS(attribute->value[0] <= 1, INVALID_VALUE);
    config->cooperative = attribute->value[0];
    config->more |= config->cooperative;
  } else if (!(OF(id) & HINTS)) config->more = 1;
  return RESULT_SUCCESS;
}

#define AS_SAID(said, on)                                                                                \
  (struct AskedLaunch) {                                                                                 \
    .grid_x = (said)->grid_x, .grid_y = (said)->grid_y, .grid_z = (said)->grid_z,                        \
    .block_x = (said)->block_x, .block_y = (said)->block_y, .block_z = (said)->block_z,                  \
    .shared_bytes = (said)->shared_bytes, .stream = (on), .attributes = (said)->attributes,              \
    .attribute_count = (said)->count                                                                     \
  }

static Answer read_attributes(struct AskedLaunch *config) {
  NEEDS(!config->attribute_count || config->attributes, INVALID_VALUE);
  for (u32 k = 0; k < config->attribute_count; k++) {
    Answer answer = read_attribute(config, (const struct Attribute *)config->attributes + k);
    if (answer) return answer;
  }
  return RESULT_SUCCESS;
}

static Answer launch_as_said(const struct LaunchWords *said, u64 stream, u64 function, void **each, void **list) {
  struct AskedLaunch config = AS_SAID(said, stream);
  Answer answer = read_attributes(&config);
  return answer ? answer : launch(&config, function, each, list);
}

/* Launch the kernel of a graph's node in the context of the stream. The graph, which runs, keeps the function. */
Answer cujit_launch_node(const struct GraphStep *step, u64 stream, u64 context) {
  const struct Cell *cell = cell_of(context, CELL_CONTEXT);
  NEEDS(cell, CONTEXT_IS_DESTROYED);
  struct AskedLaunch config = AS_SAID((const struct LaunchWords *)step->plan, stream);
  Answer answer = (Answer)__atomic_load_n(&cell->error, __ATOMIC_ACQUIRE);
  if (!answer) answer = read_attributes(&config);
  if (answer) return answer;
  config.more |= state.capturing != 0;
  struct FunctionCell *function = (struct FunctionCell *)cell_of(step->known, CELL_FUNCTION);
  NEEDS(function && function->context == context, INVALID_HANDLE);
  NEEDS(__atomic_load_n(&function->kind, __ATOMIC_SEQ_CST) == CELL_FUNCTION, INVALID_HANDLE);
  return settled(launch_of(context, function, &config, (void **)step->values, 0));
}

Answer cujit_cuLaunchKernelEx(const struct LaunchWords *said, u64 function, void **each, void **list) {
  NEEDS(said, INVALID_VALUE);
  return launch_as_said(said, said->stream, function, each, list);
}

Answer cujit_cuLaunchKernelEx_ptsz(const struct LaunchWords *said, u64 function, void **each, void **list) {
  NEEDS(said, INVALID_VALUE);
  return launch_as_said(said, own_stream(said->stream), function, each, list);
}
