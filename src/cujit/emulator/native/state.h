/* What all parts of the emulator know: the process's state, cells, threads, and how an entry point begins. */

#pragma once

#include "shared.h"

#include <pthread.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* The manual's names of what a function answers are RESULT_…, see results.py. */
typedef i32 Answer;

/* The one state of the process, which state.c has. */
extern struct Emulator cujit_state;
#define state cujit_state

/* -- cells: what handles point at ------------------------------------------------------------------------------------

   All lie on a grid in one range of addresses, which is never given back. So any number can be asked whether it is a
   handle, a freed one or of another kind, without a look at memory that may not be there. */

INLINE struct Cell *cell_at(u64 handle) {
  if (handle < state.begin || handle >= state.fresh || (handle - state.begin) % CELL_BYTES) return 0;
  return (struct Cell *)handle;
}

/* The cell of a handle if it is of a kind, else null. */
INLINE struct Cell *cell_of(u64 handle, u32 kind) {
  struct Cell *cell = cell_at(handle);
  return cell && __atomic_load_n(&cell->kind, __ATOMIC_ACQUIRE) == kind ? cell : 0;
}

/* Whether a number is a handle that was freed and not used again. */
INLINE u32 is_freed(u64 handle) {
  struct Cell *cell = cell_at(handle);
  return cell && __atomic_load_n(&cell->kind, __ATOMIC_ACQUIRE) == CELL_FREE;
}

/* Make a cell; 0 without memory. */
u64 cujit_cell_new(u32 kind, u64 context);

/* Free a cell if it is of a kind; 0 where it is not. */
u32 cujit_cell_free(u64 handle, u32 kind);

/* -- threads ---------------------------------------------------------------------------------------------------------

   Python cannot keep what belongs to a thread of others: it makes a new state of its own for each call. */

struct Thread {
  u64 depth, room, capture_mode, in_host, streams; /* its own default streams: cells */
  u64 calls, waits, entering; /* of Python's: see waits.c */
  u64 *contexts;
};

/* This thread; null without memory. */
struct Thread *cujit_this_thread(void);

/* The handle of the thread's context, 0 where it has none. */
INLINE u64 current_handle(void) {
  struct Thread *thread = pthread_getspecific((pthread_key_t)state.thread_key);
  return thread && thread->depth ? thread->contexts[thread->depth - 1] : 0;
}

/* The context that has the memory, the modules and the errors of a context: of a green one, the primary context. */
INLINE struct Cell *owner_of(struct Cell *context) {
  return context && ((struct Context *)context)->green ? (struct Cell *)context->context : context;
}

/* The green context that is the thread's, 0 where it has another one. */
INLINE u64 current_green(void) {
  struct Context *context = (struct Context *)cell_of(current_handle(), CELL_CONTEXT);
  return context ? context->green : 0;
}

/* -- how an entry point begins --------------------------------------------------------------------------------------- */

INLINE Answer ready(void) {
  if (__builtin_expect(state.ended != 0, 0)) return RESULT_DEINITIALIZED;
  if (__builtin_expect(state.host_calls != 0, 0)) {
    struct Thread *thread = pthread_getspecific((pthread_key_t)state.thread_key);
    if (thread && thread->in_host) return RESULT_NOT_PERMITTED;
  }
  return state.alive && *state.alive ? RESULT_SUCCESS : RESULT_NOT_INITIALIZED;
}

/* The context of the thread, in `*context`, whatever failed in it. */
INLINE Answer any_context(struct Cell **context) {
  Answer answer = ready();
  if (answer) return answer;
  u64 handle = current_handle();
  *context = owner_of(cell_of(handle, CELL_CONTEXT));
  if (!*context) return handle ? RESULT_CONTEXT_IS_DESTROYED : RESULT_INVALID_CONTEXT;
  return RESULT_SUCCESS;
}

/* The same, and the error that sticks to it. */
INLINE Answer in_context(struct Cell **context) {
  Answer answer = any_context(context);
  return answer ? answer : (Answer)__atomic_load_n(&(*context)->error, __ATOMIC_ACQUIRE);
}

/* The error of the thread's context, of which a call has no need: it names what it is about. */
INLINE Answer unfailed(void) {
  struct Cell *context;
  Answer answer = in_context(&context);
  return answer == RESULT_INVALID_CONTEXT ? RESULT_SUCCESS : answer;
}

#define UNFAILED()                   \
  do {                               \
    Answer answer_ = unfailed();     \
    if (answer_) return answer_;     \
  } while (0)

#define READY()                      \
  do {                               \
    Answer answer_ = ready();        \
    if (answer_) return answer_;     \
  } while (0)

#define IN_CONTEXT(context)                    \
  struct Cell *context;                        \
  do {                                         \
    Answer answer_ = in_context(&context);     \
    if (answer_) return answer_;               \
  } while (0)

#define NEEDS(condition, result) \
  do {                           \
    if (!(condition)) return RESULT_##result; \
  } while (0)

/* -- streams and captures --------------------------------------------------------------------------------------------

   While a stream is captured, Python answers what C is asked. */

enum { STREAM_LEGACY = 1, STREAM_OWN = 2 };

/* The context of a call on a stream: the stream's own, or for a default one the thread's; and the error of it. */
INLINE Answer in_stream(u64 handle, struct Cell **context) {
  if (handle <= STREAM_OWN) return in_context(context);
  READY();
  struct StreamCell *stream = (struct StreamCell *)cell_of(handle, CELL_STREAM);
  NEEDS(stream && !stream->is_default, INVALID_HANDLE);
  NEEDS(!stream->is_detached, STREAM_DETACHED);
  *context = cell_of(stream->context, CELL_CONTEXT);
  NEEDS(*context, CONTEXT_IS_DESTROYED);
  return (Answer)__atomic_load_n(&(*context)->error, __ATOMIC_ACQUIRE);
}

#define ON_STREAM(context, stream)                       \
  struct Cell *context;                                  \
  do {                                                   \
    Answer answer_ = in_stream(stream, &context);        \
    if (answer_) return answer_;                         \
  } while (0)

/* The handle that null stands for in the flavours whose default stream is the thread's own. */
INLINE u64 own_stream(u64 handle) { return handle ? handle : STREAM_OWN; }

INLINE Answer ask_capture(u32 question, u64 a, u64 b, u64 more) {
  u64 ask = __atomic_load_n(&state.capturing, __ATOMIC_ACQUIRE);
  return ask ? ((Answer(*)(u32, u64, u64, u64))ask)(question, a, b, more) : GO_ON;
}

/* How a call begins that may not be made while a stream is captured: one that allocates, for example. */
#define SAFE()                                              \
  do {                                                      \
    Answer answer_ = ask_capture(ASK_UNSAFE, 0, 0, 0);      \
    if (answer_ != GO_ON) return answer_;                   \
  } while (0)
