/* Streams and events. Work is done when a call returns, so there is little to wait for. */

#include "state.h"

#include <time.h>

enum { NON_BLOCKING = 1, HIGHEST = -5 };
enum { BLOCKING_SYNC = 1, DISABLE_TIMING = 2, INTERPROCESS = 4, EVENT_FLAGS = 7, EXTERNAL = 1 };

static pthread_mutex_t defaults_lock = PTHREAD_MUTEX_INITIALIZER;
static u64 legacy_streams;

static struct StreamCell *default_among(u64 *first, u64 context) {
  u64 *link = first;
  while (*link) {
    struct StreamCell *stream = (struct StreamCell *)*link;
    struct Cell *its = cell_of(stream->context, CELL_CONTEXT);
    u32 lives = its && its->id == stream->context_id;
    if (lives && stream->context == context) return stream;
    if (lives) {
      link = &stream->after;
    } else {
      *link = stream->after;
      cujit_cell_free((u64)stream, CELL_STREAM);
    }
  }
  struct StreamCell *stream = (struct StreamCell *)cujit_cell_new(CELL_STREAM, context);
  if (!stream) return 0;
  stream->is_default = 1;
  stream->context_id = ((struct Cell *)context)->id;
  stream->after = *first;
  *first = (u64)stream;
  return stream;
}

/* A context's default stream: its own one, or that of this thread in it. */
static struct StreamCell *default_stream(u64 context, u32 of_thread) {
  if (of_thread) {
    struct Thread *thread = cujit_this_thread();
    return thread ? default_among(&thread->streams, context) : 0;
  }
  pthread_mutex_lock(&defaults_lock);
  struct StreamCell *found = default_among(&legacy_streams, context);
  pthread_mutex_unlock(&defaults_lock);
  return found;
}

static Answer context_of(u64 handle) {
  struct Cell *context = cell_of(handle, CELL_CONTEXT);
  NEEDS(context, CONTEXT_IS_DESTROYED);
  return (Answer)__atomic_load_n(&context->error, __ATOMIC_ACQUIRE);
}

/* The stream of a handle, which must not have ended in an error. */
static Answer stream_of(u64 handle, struct StreamCell **out) {
  if (handle <= STREAM_OWN) {
    IN_CONTEXT(context);
    *out = default_stream((u64)context, handle == STREAM_OWN);
    NEEDS(*out, OUT_OF_MEMORY);
    return RESULT_SUCCESS;
  }
  READY();
  *out = (struct StreamCell *)cell_of(handle, CELL_STREAM);
  NEEDS(*out && !(*out)->is_default, INVALID_HANDLE);
  NEEDS(!(*out)->is_detached, STREAM_DETACHED);
  return context_of((*out)->context);
}

#define STREAM(stream, handle)                    \
  struct StreamCell *stream;                      \
  do {                                            \
    Answer answer_ = stream_of(handle, &stream);  \
    if (answer_) return answer_;                  \
  } while (0)

#define EVENT(event, handle)                                                     \
  READY();                                                                       \
  struct EventCell *event = (struct EventCell *)cell_of(handle, CELL_EVENT);     \
  do {                                                                           \
    NEEDS(!is_freed(handle), CONTEXT_IS_DESTROYED);                              \
    NEEDS(event, INVALID_HANDLE);                                                \
    Answer answer_ = context_of(event->context);                                 \
    if (answer_) return answer_;                                                 \
  } while (0)

#define UNLESS_CAPTURED(question, a, b, more)            \
  do {                                                   \
    Answer answer_ = ask_capture(question, a, b, more);  \
    if (answer_ != GO_ON) return answer_;                \
  } while (0)

/* What Python asks: the cell of a stream's handle. */
Answer cujit_emulator_stream(u64 handle, u64 *cell) {
  STREAM(stream, handle);
  *cell = (u64)stream;
  return RESULT_SUCCESS;
}

/* Free the streams and events of a context that ends. */
void cujit_emulator_end_streams(u64 context) {
  for (u64 handle = state.begin; handle < state.fresh; handle += CELL_BYTES) {
    struct StreamCell *cell = (struct StreamCell *)handle;
    if (cell->context != context) continue;
    if (cell->kind == CELL_EVENT || (cell->kind == CELL_STREAM && !cell->is_default)) cujit_cell_free(handle, cell->kind);
  }
}

/* Leave the streams of a green context that ends to those who made them: they can only be destroyed. */
void cujit_emulator_detach_streams(u64 green) {
  for (u64 handle = state.begin; handle < state.fresh; handle += CELL_BYTES) {
    struct StreamCell *cell = (struct StreamCell *)handle;
    if (cell->kind == CELL_STREAM && cell->green == green) cell->is_detached = 1;
  }
}

u32 cujit_emulator_capture_mode(void) {
  struct Thread *thread = cujit_this_thread();
  return thread ? (u32)thread->capture_mode : 0;
}

/* -- streams --------------------------------------------------------------------------------------------------------- */

static Answer create(u64 *out, u64 context, u64 green, u32 flags, i32 priority) {
  struct StreamCell *stream = (struct StreamCell *)cujit_cell_new(CELL_STREAM, context);
  NEEDS(stream, OUT_OF_MEMORY);
  stream->green = green;
  stream->flags = flags;
  stream->priority = priority > 0 ? 0 : priority < HIGHEST ? HIGHEST : priority;
  *out = (u64)stream;
  return RESULT_SUCCESS;
}

Answer cujit_cuStreamCreateWithPriority(u64 *out, u32 flags, i32 priority) {
  IN_CONTEXT(context);
  NEEDS(out && flags <= NON_BLOCKING, INVALID_VALUE);
  return create(out, (u64)context, current_green(), flags, priority);
}

Answer cujit_cuGreenCtxStreamCreate(u64 *out, u64 handle, u32 flags, i32 priority) {
  READY();
  struct GreenCell *green = (struct GreenCell *)cell_of(handle, CELL_GREEN_CONTEXT);
  NEEDS(green, INVALID_CONTEXT);
  NEEDS(out && flags == NON_BLOCKING, INVALID_VALUE);
  Answer answer = context_of(green->context);
  return answer ? answer : create(out, green->context, handle, flags, priority);
}

Answer cujit_cuStreamCreate(u64 *out, u32 flags) { return cujit_cuStreamCreateWithPriority(out, flags, 0); }

Answer cujit_cuStreamDestroy_v2(u64 handle) {
  READY();
  struct StreamCell *stream = (struct StreamCell *)cell_of(handle, CELL_STREAM);
  NEEDS(stream && !stream->is_default, INVALID_HANDLE);
  Answer answer = context_of(stream->context);
  ask_capture(ASK_DESTROY, handle, 0, 0);
  NEEDS(cujit_cell_free(handle, CELL_STREAM), INVALID_HANDLE);
  return answer;
}

Answer cujit_cuStreamDestroy(u64 handle) { return cujit_cuStreamDestroy_v2(handle); }

Answer cujit_cuStreamSynchronize(u64 handle) {
  STREAM(stream, handle);
  UNLESS_CAPTURED(ASK_STREAM, (u64)stream, 0, 0);
  return RESULT_SUCCESS;
}

/* A host function runs before what follows it in its stream: nobody can see there that a stream is done. */
Answer cujit_cuStreamQuery(u64 handle) {
  struct Thread *thread = state.host_calls ? cujit_this_thread() : 0;
  if (thread && thread->in_host) return RESULT_NOT_READY;
  return cujit_cuStreamSynchronize(handle);
}

Answer cujit_cuStreamGetFlags(u64 handle, u32 *out) {
  STREAM(stream, handle);
  NEEDS(out, INVALID_VALUE);
  *out = stream->flags;
  return RESULT_SUCCESS;
}

Answer cujit_cuStreamGetPriority(u64 handle, i32 *out) {
  STREAM(stream, handle);
  NEEDS(out, INVALID_VALUE);
  *out = stream->priority;
  return RESULT_SUCCESS;
}

Answer cujit_cuStreamGetId(u64 handle, u64 *out) {
  STREAM(stream, handle);
  NEEDS(out, INVALID_VALUE);
  *out = stream->id;
  return RESULT_SUCCESS;
}

/* The green context of a stream, of a default one that which is the thread's; null where there is none. */
static struct GreenCell *green_of(u64 handle, struct StreamCell *stream) {
  return (struct GreenCell *)cell_of(handle <= STREAM_OWN ? current_green() : stream->green, CELL_GREEN_CONTEXT);
}

Answer cujit_cuStreamGetCtx(u64 handle, u64 *out) {
  STREAM(stream, handle);
  NEEDS(out, INVALID_VALUE);
  struct GreenCell *green = green_of(handle, stream);
  *out = green ? green->as_context : stream->context;
  return RESULT_SUCCESS;
}

Answer cujit_cuStreamGetCtx_v2(u64 handle, u64 *out, u64 *green) {
  STREAM(stream, handle);
  NEEDS(out && green, INVALID_VALUE);
  *out = stream->context;
  *green = (u64)green_of(handle, stream);
  return RESULT_SUCCESS;
}

Answer cujit_cuStreamGetGreenCtx(u64 handle, u64 *green) {
  STREAM(stream, handle);
  NEEDS(green, INVALID_VALUE);
  *green = (u64)green_of(handle, stream);
  return RESULT_SUCCESS;
}

Answer cujit_cuStreamGetDevice(u64 handle, i32 *out) {
  STREAM(stream, handle);
  NEEDS(out, INVALID_VALUE);
  *out = 0;
  return RESULT_SUCCESS;
}

/* Of the context's default stream nobody may ask while a stream is captured that waits for it. */
Answer cujit_cuStreamIsCapturing(u64 handle, u32 *out) {
  STREAM(stream, handle);
  NEEDS(out, INVALID_VALUE);
  if (handle <= STREAM_LEGACY) UNLESS_CAPTURED(ASK_STATUS, (u64)stream, 0, 0);
  *out = stream->status;
  return RESULT_SUCCESS;
}

Answer cujit_cuThreadExchangeStreamCaptureMode(u32 *mode) {
  READY();
  struct Thread *thread = cujit_this_thread();
  NEEDS(thread, OUT_OF_MEMORY);
  NEEDS(mode, INVALID_VALUE);
  u32 before = (u32)thread->capture_mode;
  thread->capture_mode = *mode;
  *mode = before;
  return RESULT_SUCCESS;
}

/* -- host functions -------------------------------------------------------------------------------------------------- */

/* Call a function of the caller's, in which the driver answers CUDA_ERROR_NOT_PERMITTED to this thread. */
void cujit_emulator_host(u64 function, u64 a, u64 b, u64 c) {
  struct Thread *thread = cujit_this_thread();
  if (thread) thread->in_host++;
  __atomic_add_fetch(&state.host_calls, 1, __ATOMIC_ACQ_REL);
  ((void (*)(u64, u64, u64))function)(a, b, c);
  __atomic_sub_fetch(&state.host_calls, 1, __ATOMIC_ACQ_REL);
  if (thread) thread->in_host--;
}

Answer cujit_cuLaunchHostFunc(u64 handle, u64 function, u64 data) {
  STREAM(stream, handle);
  NEEDS(function, INVALID_VALUE);
  UNLESS_CAPTURED(ASK_HOST, (u64)stream, function, data);
  cujit_emulator_host(function, data, 0, 0);
  return RESULT_SUCCESS;
}

/* `sync` says how the GPU would wait. */
Answer cujit_cuLaunchHostFunc_v2(u64 handle, u64 function, u64 data, u32 sync) {
  NEEDS(sync <= 1, INVALID_VALUE);
  return cujit_cuLaunchHostFunc(handle, function, data);
}

/* -- events ---------------------------------------------------------------------------------------------------------- */

Answer cujit_cuEventCreate(u64 *out, u32 flags) {
  IN_CONTEXT(context);
  NEEDS(out && flags <= EVENT_FLAGS, INVALID_VALUE);
  NEEDS(!(flags & INTERPROCESS) || flags & DISABLE_TIMING, INVALID_VALUE);
  struct EventCell *event = (struct EventCell *)cujit_cell_new(CELL_EVENT, (u64)context);
  NEEDS(event, OUT_OF_MEMORY);
  event->flags = flags;
  *out = (u64)event;
  return RESULT_SUCCESS;
}

Answer cujit_cuEventDestroy_v2(u64 handle) {
  READY();
  NEEDS(!is_freed(handle), CONTEXT_IS_DESTROYED);
  struct EventCell *event = (struct EventCell *)cell_of(handle, CELL_EVENT);
  NEEDS(event, INVALID_HANDLE);
  Answer answer = context_of(event->context);
  NEEDS(cujit_cell_free(handle, CELL_EVENT), INVALID_HANDLE);
  return answer;
}

Answer cujit_cuEventDestroy(u64 handle) { return cujit_cuEventDestroy_v2(handle); }

/* Record an event now: graphs do so, too. */
Answer cujit_emulator_record(u64 handle) {
  EVENT(event, handle);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  event->capture = 0;
  event->recorded_ns = (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
  return RESULT_SUCCESS;
}

Answer cujit_cuEventRecordWithFlags(u64 handle, u64 on, u32 flags) {
  EVENT(event, handle);
  STREAM(stream, on);
  NEEDS(flags <= EXTERNAL, INVALID_VALUE);
  NEEDS(event->context == stream->context, INVALID_HANDLE);
  UNLESS_CAPTURED(ASK_RECORD, handle, (u64)stream, flags);
  NEEDS(!flags, ILLEGAL_STATE);
  return cujit_emulator_record(handle);
}

Answer cujit_cuEventRecord(u64 handle, u64 on) { return cujit_cuEventRecordWithFlags(handle, on, 0); }

Answer cujit_cuEventSynchronize(u64 handle) {
  EVENT(event, handle);
  UNLESS_CAPTURED(ASK_EVENT, handle, 0, 0);
  NEEDS(!event->capture, INVALID_VALUE);
  return RESULT_SUCCESS;
}

Answer cujit_cuEventQuery(u64 handle) { return cujit_cuEventSynchronize(handle); }

Answer cujit_cuEventElapsedTime_v2(float *out, u64 first, u64 last) {
  EVENT(start, first);
  struct EventCell *end = (struct EventCell *)cell_of(last, CELL_EVENT);
  NEEDS(out && end && start->context == end->context, INVALID_HANDLE);
  NEEDS(!((start->flags | end->flags) & DISABLE_TIMING), INVALID_HANDLE);
  NEEDS(!start->capture && !end->capture, CAPTURED_EVENT);
  NEEDS(start->recorded_ns && end->recorded_ns, INVALID_HANDLE);
  *out = (float)((double)(i64)(end->recorded_ns - start->recorded_ns) / 1e6);
  return RESULT_SUCCESS;
}

Answer cujit_cuEventElapsedTime(float *out, u64 first, u64 last) {
  return cujit_cuEventElapsedTime_v2(out, first, last);
}

Answer cujit_cuStreamWaitEvent(u64 handle, u64 on, u32 flags) {
  STREAM(stream, handle);
  EVENT(event, on);
  NEEDS(flags <= EXTERNAL, INVALID_VALUE);
  UNLESS_CAPTURED(ASK_WAIT, (u64)stream, on, flags);
  NEEDS(!flags, ILLEGAL_STATE);
  NEEDS(!event->capture, INVALID_VALUE);
  return RESULT_SUCCESS;
}

/* -- where null is the thread's own stream --------------------------------------------------------------------------- */

Answer cujit_cuStreamSynchronize_ptsz(u64 stream) { return cujit_cuStreamSynchronize(own_stream(stream)); }
Answer cujit_cuStreamQuery_ptsz(u64 stream) { return cujit_cuStreamQuery(own_stream(stream)); }
Answer cujit_cuStreamGetFlags_ptsz(u64 stream, u32 *out) { return cujit_cuStreamGetFlags(own_stream(stream), out); }
Answer cujit_cuStreamGetPriority_ptsz(u64 stream, i32 *out) {
  return cujit_cuStreamGetPriority(own_stream(stream), out);
}
Answer cujit_cuStreamGetId_ptsz(u64 stream, u64 *out) { return cujit_cuStreamGetId(own_stream(stream), out); }
Answer cujit_cuStreamIsCapturing_ptsz(u64 stream, u32 *out) {
  return cujit_cuStreamIsCapturing(own_stream(stream), out);
}
Answer cujit_cuLaunchHostFunc_ptsz(u64 stream, u64 function, u64 data) {
  return cujit_cuLaunchHostFunc(own_stream(stream), function, data);
}
Answer cujit_cuLaunchHostFunc_v2_ptsz(u64 stream, u64 function, u64 data, u32 sync) {
  return cujit_cuLaunchHostFunc_v2(own_stream(stream), function, data, sync);
}
Answer cujit_cuEventRecordWithFlags_ptsz(u64 event, u64 stream, u32 flags) {
  return cujit_cuEventRecordWithFlags(event, own_stream(stream), flags);
}
Answer cujit_cuEventRecord_ptsz(u64 event, u64 stream) { return cujit_cuEventRecord(event, own_stream(stream)); }
Answer cujit_cuStreamWaitEvent_ptsz(u64 stream, u64 event, u32 flags) {
  return cujit_cuStreamWaitEvent(own_stream(stream), event, flags);
}
