/* The state of the process: cells, threads, start and end. */

#include "state.h"

#include <stdlib.h>
#include <sys/mman.h>

struct Emulator cujit_state;

static pthread_mutex_t cells_lock = PTHREAD_MUTEX_INITIALIZER;

enum { CELLS_BYTES_LOG = 33, REST = 4096 }; /* freed cells that rest before the oldest is used again */

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

static void end_thread(void *ended) {
  struct Thread *thread = ended;
  for (u64 stream = thread->streams, after; stream; stream = after) {
    after = ((struct StreamCell *)stream)->after;
    cujit_cell_free(stream, CELL_STREAM);
  }
  free(thread->contexts);
  free(thread);
}

/* This thread; null without memory. */
struct Thread *cujit_this_thread(void) {
  struct Thread *thread = pthread_getspecific((pthread_key_t)state.thread_key);
  if (thread) return thread;
  thread = calloc(1, sizeof *thread);
  if (thread) pthread_setspecific((pthread_key_t)state.thread_key, thread);
  return thread;
}

/* Give Python the state, made ready for calls; null without memory. */
struct Emulator *cujit_emulator_start(void) {
  if (state.begin) return &state;
  u64 bytes = 1ull << CELLS_BYTES_LOG;
  void *cells = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void *alive = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_key_t key;
  if (cells == MAP_FAILED || alive == MAP_FAILED || pthread_key_create(&key, end_thread)) return 0;
  madvise(alive, 4096, MADV_WIPEONFORK);
  state.alive = alive;
  state.thread_key = key;
  state.end = (u64)cells + bytes;
  state.fresh = state.begin = (u64)cells;
  return &state;
}

/* What functions answer that are not emulated, and what all answer when Python ends. */
Answer cujit_not_supported(void) { return RESULT_NOT_SUPPORTED; }
Answer cujit_deinitialized(void) { return RESULT_DEINITIALIZED; }

static Answer write_text(u32 code, const char **text, u64 is_sentence) {
  if (!text) return RESULT_INVALID_VALUE;
  *text = 0;
  for (u64 k = 0; k < state.error_count; k++)
    if (state.errors[k].code == code) *text = (const char *)(is_sentence ? state.errors[k].sentence : state.errors[k].name);
  return *text ? RESULT_SUCCESS : RESULT_INVALID_VALUE;
}

/* cuGetErrorName and cuGetErrorString from where Python ends. */
Answer cujit_error_name(u32 code, const char **text) { return write_text(code, text, 0); }
Answer cujit_error_string(u32 code, const char **text) { return write_text(code, text, 1); }

/* Answer all later calls by CUDA_ERROR_DEINITIALIZED, but for the two that need no device: what Python calls when it ends.
   Destructors of C++ come later, and find no Python. */
void cujit_emulator_end(void) {
  state.ended = 1;
  u64 *slots = (u64 *)(state.table + 1);
  for (u64 k = 0; state.table && k < state.table->count; k++) slots[k] = (u64)cujit_deinitialized;
  if (!state.table) return;
  slots[state.name_slot] = (u64)cujit_error_name;
  slots[state.string_slot] = (u64)cujit_error_string;
}
