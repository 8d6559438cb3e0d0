/* What all parts of the emulator know: the process's state, cells, threads, and how an entry point begins. */

#pragma once

#include "shared.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define INLINE static inline __attribute__((always_inline))

/* The manual's names of what a function answers are RESULT_…, see results.py. */
typedef i32 Answer;

static struct Emulator state;
static pthread_mutex_t cells_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t thread_key;

/* -- cells: what handles point at ------------------------------------------------------------------------------------

   All lie on a grid in one range of addresses, which is never given back. So any number can be asked whether it is a
   handle, a freed one or of another kind, without a look at memory that may not be there. */

enum { CELLS_BYTES_LOG = 33, REST = 4096 }; /* freed cells that rest before the oldest is used again */

INLINE struct Cell *cell_at(u64 handle) {
  if (handle < state.begin || handle >= state.fresh || (handle - state.begin) % CELL_BYTES) return 0;
  return (struct Cell *)handle;
}

/* The cell of a handle if it is of a kind, else null. */
INLINE struct Cell *cell_of(u64 handle, u32 kind) {
  struct Cell *cell = cell_at(handle);
  return cell && __atomic_load_n(&cell->kind, __ATOMIC_ACQUIRE) == kind ? cell : 0;
}

/* Make a cell; 0 without memory. */
u64 cujit_cell_new(u32 kind, u64 context) {
  pthread_mutex_lock(&cells_lock);
  struct Cell *cell = 0;
  if (state.frees > REST) {
    cell = (struct Cell *)state.free_first;
    state.free_first = cell->next;
    state.frees--;
  } else if (state.fresh < state.end) {
    cell = (struct Cell *)state.fresh;
    state.fresh += CELL_BYTES;
  }
  if (cell) {
    *cell = (struct Cell){.context = context, .id = ++state.ids};
    __atomic_store_n(&cell->kind, kind, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&cells_lock);
  return (u64)cell;
}

/* Free a cell if it is of a kind; 0 where it is not. */
u32 cujit_cell_free(u64 handle, u32 kind) {
  pthread_mutex_lock(&cells_lock);
  struct Cell *cell = cell_of(handle, kind);
  if (cell) {
    cell->kind = CELL_FREE;
    cell->next = 0;
    if (state.frees++) ((struct Cell *)state.free_last)->next = (u64)cell;
    else state.free_first = (u64)cell;
    state.free_last = (u64)cell;
  }
  pthread_mutex_unlock(&cells_lock);
  return cell != 0;
}

/* 1 where a handle is of a kind. */
u32 cujit_cell_is(u64 handle, u32 kind) { return cell_of(handle, kind) != 0; }

/* -- threads ---------------------------------------------------------------------------------------------------------

   Python cannot keep what belongs to a thread of others: it makes a new state of its own for each call. */

struct Thread {
  u64 depth, room, capture_mode;
  u64 *contexts;
};

static void end_thread(void *thread) {
  free(((struct Thread *)thread)->contexts);
  free(thread);
}

/* This thread; null without memory. */
static struct Thread *this_thread(void) {
  struct Thread *thread = pthread_getspecific(thread_key);
  if (thread) return thread;
  thread = calloc(1, sizeof *thread);
  if (thread) pthread_setspecific(thread_key, thread);
  return thread;
}

/* The handle of the thread's context, 0 where it has none. */
INLINE u64 current_handle(void) {
  struct Thread *thread = pthread_getspecific(thread_key);
  return thread && thread->depth ? thread->contexts[thread->depth - 1] : 0;
}

/* -- how an entry point begins --------------------------------------------------------------------------------------- */

INLINE Answer ready(void) {
  if (__builtin_expect(state.ended != 0, 0)) return RESULT_DEINITIALIZED;
  return state.alive && *state.alive ? RESULT_SUCCESS : RESULT_NOT_INITIALIZED;
}

/* The context of the thread, in `*context`, and the error that sticks to it. */
INLINE Answer in_context(struct Cell **context) {
  Answer answer = ready();
  if (answer) return answer;
  u64 handle = current_handle();
  *context = cell_of(handle, CELL_CONTEXT);
  if (!*context) return handle ? RESULT_CONTEXT_IS_DESTROYED : RESULT_INVALID_CONTEXT;
  return (Answer)__atomic_load_n(&(*context)->error, __ATOMIC_ACQUIRE);
}

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

/* Give Python the state, made ready for calls; null without memory. */
struct Emulator *cujit_emulator_start(void) {
  if (state.begin) return &state;
  u64 bytes = 1ull << CELLS_BYTES_LOG;
  void *cells = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void *alive = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (cells == MAP_FAILED || alive == MAP_FAILED || pthread_key_create(&thread_key, end_thread)) return 0;
  madvise(alive, 4096, MADV_WIPEONFORK);
  state.alive = alive;
  state.end = (u64)cells + bytes;
  state.fresh = state.begin = (u64)cells;
  return &state;
}

/* Answer all later calls by CUDA_ERROR_DEINITIALIZED: what Python calls when it ends. */
void cujit_emulator_end(void) { state.ended = 1; }
