/* Start, and the contexts of a thread. */

#include "state.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What Python asks before a call that needs a context: the answer so far, and the context. */
Answer cujit_emulator_context(u64 *context) {
  struct Cell *cell = 0;
  Answer answer = in_context(&cell);
  *context = (u64)cell;
  return answer;
}

Answer cujit_emulator_ready(void) { return ready(); }

u64 cujit_emulator_current(void) { return current_handle(); }

/* A fault sticks to a context; the first one stays. */
void cujit_emulator_fail(u64 context, u32 error) {
  struct Cell *cell = owner_of(cell_of(context, CELL_CONTEXT));
  u32 none = 0;
  if (cell) __atomic_compare_exchange_n(&cell->error, &none, error, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

enum { PREFIX = 4, UUID_TEXT = 40 }; /* bytes of "GPU-", and of all of a name */

/* Write what nvidia-smi would call the device: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6. */
static void write_name(char text[UUID_TEXT]) {
  const u8 *uuid = (const u8 *)state.device.uuid;
  memcpy(text, "GPU-", PREFIX);
  char *to = text + PREFIX;
  for (u32 k = 0; k < 16; k++) {
    if (k == 4 || k == 6 || k == 8 || k == 10) *to++ = '-';
    *to++ = "0123456789abcdef"[uuid[k] >> 4];
    *to++ = "0123456789abcdef"[uuid[k] & 15];
  }
}

/* Whether an entry names device 0: by its number, or by its name or the beginning of that. It has no MIG instances. */
static u32 names_device(const char *entry, u64 length) {
  char name[UUID_TEXT];
  write_name(name);
  if (length > PREFIX && length <= UUID_TEXT && !strncasecmp(entry, name, length)) return 1;
  u64 zeros = 0;
  while (zeros < length && entry[zeros] == '0') zeros++;
  return zeros && zeros == length;
}

/* Whether CUDA_VISIBLE_DEVICES hides device 0, the only one. After an entry that names no device, all others are ignored;
   so the first one decides. Source: CUDA Programming Guide, "CUDA Environment Variables". */
static u32 is_hidden(void) {
  const char *said = getenv("CUDA_VISIBLE_DEVICES");
  if (!said) return 0;
  said += strspn(said, " \t");
  u64 length = strcspn(said, ",");
  while (length && (said[length - 1] == ' ' || said[length - 1] == '\t')) length--;
  return !names_device(said, length);
}

Answer cujit_cuInit(u32 flags) {
  if (state.ended) return RESULT_DEINITIALIZED;
  NEEDS(!flags, INVALID_VALUE);
  NEEDS(!is_hidden(), NO_DEVICE);
  /* A child of a fork finds the word empty, but cells that were made. */
  NEEDS(*state.alive || !state.ids, NOT_INITIALIZED);
  if (!state.ids) state.ids = 1;
  *state.alive = 1;
  return RESULT_SUCCESS;
}

/* -- the stack of contexts ------------------------------------------------------------------------------------------- */

static Answer push(u64 handle) {
  struct Thread *thread = cujit_this_thread();
  NEEDS(thread, OUT_OF_MEMORY);
  if (thread->depth == thread->room) {
    u64 room = thread->room ? 2 * thread->room : 8;
    u64 *more = realloc(thread->contexts, room * sizeof *more);
    NEEDS(more, OUT_OF_MEMORY);
    thread->contexts = more;
    thread->room = room;
  }
  thread->contexts[thread->depth++] = handle;
  return RESULT_SUCCESS;
}

Answer cujit_cuCtxGetCurrent(u64 *out) {
  READY();
  NEEDS(out, INVALID_VALUE);
  *out = current_handle();
  return RESULT_SUCCESS;
}

Answer cujit_cuCtxPushCurrent_v2(u64 handle) {
  READY();
  NEEDS(handle, INVALID_VALUE);
  NEEDS(cell_of(handle, CELL_CONTEXT), INVALID_CONTEXT);
  return push(handle);
}

Answer cujit_cuCtxPushCurrent(u64 handle) { return cujit_cuCtxPushCurrent_v2(handle); }

Answer cujit_cuCtxPopCurrent_v2(u64 *out) {
  READY();
  struct Thread *thread = cujit_this_thread();
  NEEDS(thread && thread->depth, INVALID_CONTEXT);
  u64 handle = thread->contexts[--thread->depth];
  if (out) *out = handle;
  return RESULT_SUCCESS;
}

Answer cujit_cuCtxPopCurrent(u64 *out) { return cujit_cuCtxPopCurrent_v2(out); }

/* Replace the top of the stack; null takes it away. */
Answer cujit_cuCtxSetCurrent(u64 handle) {
  READY();
  NEEDS(!handle || cell_of(handle, CELL_CONTEXT), INVALID_CONTEXT);
  struct Thread *thread = cujit_this_thread();
  NEEDS(thread, OUT_OF_MEMORY);
  if (thread->depth) thread->depth--;
  return handle ? push(handle) : RESULT_SUCCESS;
}

Answer cujit_cuCtxGetDevice(i32 *out) {
  struct Cell *context;
  Answer answer = any_context(&context);
  if (answer) return answer;
  NEEDS(out, INVALID_VALUE);
  *out = 0;
  return RESULT_SUCCESS;
}

/* Work is done when a call returns: there is only a fault to find. */
Answer cujit_cuCtxSynchronize(void) {
  IN_CONTEXT(context);
  Answer answer = ask_capture(ASK_CONTEXT, (u64)context, 0, 0);
  return answer == GO_ON ? RESULT_SUCCESS : answer;
}

/* -- the forms that name a context ----------------------------------------------------------------------------------- */

Answer cujit_cuCtxGetDevice_v2(i32 *out, u64 handle) {
  READY();
  if (!handle) return cujit_cuCtxGetDevice(out);
  NEEDS(cell_of(handle, CELL_CONTEXT), INVALID_CONTEXT);
  NEEDS(out, INVALID_VALUE);
  *out = 0;
  return RESULT_SUCCESS;
}

Answer cujit_cuCtxSynchronize_v2(u64 handle) {
  READY();
  if (!handle) return cujit_cuCtxSynchronize();
  struct Cell *cell = owner_of(cell_of(handle, CELL_CONTEXT));
  NEEDS(cell, INVALID_CONTEXT);
  Answer answer = ask_capture(ASK_CONTEXT, (u64)cell, 0, 0);
  return answer == GO_ON ? (Answer)__atomic_load_n(&cell->error, __ATOMIC_ACQUIRE) : answer;
}
