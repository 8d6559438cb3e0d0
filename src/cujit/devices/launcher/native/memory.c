/* Memory of a GPU: got, given back, copied and filled by one call from Python, which holds no lock meanwhile.

   Arrays go at any moment, also while a stream is captured into a graph: so memory is got and given back in the relaxed
   mode of captures (devices.cuda.memory). */

#include "launcher.h"

typedef i32 (*on_context)(void *context);
typedef i32 (*give_context)(void **context);
typedef i32 (*exchange)(i32 *mode);
typedef i32 (*allocate)(u64 *address, u64 bytes);
typedef i32 (*release)(u64 address);
typedef i32 (*copy_in)(u64 address, const void *host, u64 bytes);
typedef i32 (*copy_out)(void *host, u64 address, u64 bytes);
typedef i32 (*copy_in_async)(u64 address, const void *host, u64 bytes, void *stream);
typedef i32 (*copy_out_async)(void *host, u64 address, u64 bytes, void *stream);
typedef i32 (*set)(u64 address, u8 byte, u64 bytes);
typedef i32 (*set_async)(u64 address, u8 byte, u64 bytes, void *stream);
typedef i32 (*synchronize)(void *stream);
typedef i32 (*record)(void *event, void *stream);
typedef i32 (*wait)(void *event);
typedef i32 (*get_id)(void *context, u64 *id);

enum { WRITABLE = 1 };       /* CPython: PyBUF_WRITABLE; without more a buffer is contiguous */
enum { GET, PUT, PLACE, CLEAR, PIECES, UPLOAD, DOWNLOAD, FILL, SETTLE };
struct Work {
  u64 address, bytes;
  void *host;
  u8 what, byte;
  struct LargeCopy *copy;
  u64 staging, events[2];
  bool is_in;
};

/* Take room in the page-locked memory for small copies, alone; null if there is none, or another thread has it. */
static char *staged(const struct MemoryCalls *calls, struct Unsettled *unsettled, u64 bytes) {
  u64 id;
  if (!unsettled->staging || bytes > MOST_STAGED_BYTES) return 0;
  if (((get_id)calls->get_id)((void *)calls->context, &id) || id != unsettled->id) return 0;
  if (__atomic_exchange_n(&unsettled->busy, 1, __ATOMIC_ACQUIRE)) return 0;
  if (unsettled->used + bytes > STAGING_BYTES) {
    if (wait_for_default(unsettled, calls->exchange, calls->synchronize)) {
      __atomic_store_n(&unsettled->busy, 0, __ATOMIC_RELEASE);
      return 0;
    }
    unsettled->used = 0;
  }
  char *place = (char *)unsettled->staging + unsettled->used;
  unsettled->used += (bytes + 63) / 64 * 64;
  return place;
}

/* Say once that a thread makes many small copies: Python then gets page-locked memory for them. */
static i32 asking(struct Unsettled *unsettled, u64 bytes) {
  if (unsettled->staging || bytes > MOST_STAGED_BYTES) return 0;
  return __atomic_fetch_add(&unsettled->used, 1, __ATOMIC_RELAXED) == STAGED_AFTER ? WANTS_STAGING : 0;
}

/* Copy to memory that is new, of which no stream knows yet: it is issued, and not waited for. */
static i32 place(const struct MemoryCalls *calls, const struct Work *work) {
  struct Unsettled *unsettled = UNSETTLED(calls->ring);
  char *stage = staged(calls, unsettled, work->bytes);
  i32 status;
  if (stage) {
    __builtin_memcpy(stage, work->host, work->bytes);
    status = ((copy_in_async)calls->copy_in_async)(work->address, stage, work->bytes, 0);
    __atomic_store_n(&unsettled->busy, 0, __ATOMIC_RELEASE);
  } else {
    status = ((copy_in)calls->copy_in)(work->address, work->host, work->bytes);
  }
  __atomic_fetch_add(&unsettled->issued, 1, __ATOMIC_RELEASE);
  return status ? status : asking(unsettled, work->bytes);
}

static i32 clear(const struct MemoryCalls *calls, const struct Work *work) {
  i32 status = ((set_async)calls->set_async)(work->address, 0, work->bytes, 0);
  __atomic_fetch_add(&UNSETTLED(calls->ring)->issued, 1, __ATOMIC_RELEASE);
  return status;
}

static i32 download(const struct MemoryCalls *calls, const struct Work *work) {
  struct Unsettled *unsettled = UNSETTLED(calls->ring);
  char *stage = staged(calls, unsettled, work->bytes);
  if (!stage) {
    i32 status = ((copy_out)calls->copy_out)(work->host, work->address, work->bytes);
    return status ? status : asking(unsettled, work->bytes);
  }
  i32 status = ((copy_out_async)calls->copy_out_async)(stage, work->address, work->bytes, 0);
  if (!status) status = wait_for_default(unsettled, calls->exchange, calls->synchronize);
  if (!status) {
    __builtin_memcpy(work->host, stage, work->bytes);
    unsettled->used = 0;
  }
  __atomic_store_n(&unsettled->busy, 0, __ATOMIC_RELEASE);
  return status;
}

/* Copy to memory that this processor does not read soon: to write it past the caches saves to read it first. */
typedef u64 row __attribute__((vector_size(16), aligned(16)));
typedef u64 any_row __attribute__((vector_size(16), aligned(1), may_alias));
static void copy_past_caches(char *to, const char *from, u64 bytes) {
  u64 at = 0;
  if (!((u64)to % sizeof(row)))
    for (; at + 4 * sizeof(row) <= bytes; at += 4 * sizeof(row))
      for (u64 i = 0; i < 4; i++)
        __builtin_nontemporal_store(*(const any_row *)(from + at + i * sizeof(row)), (row *)(to + at + i * sizeof(row)));
  __builtin_memcpy(to + at, from + at, bytes - at);
  __atomic_thread_fence(__ATOMIC_SEQ_CST); /* such stores are ordered by nothing else */
}

/* Take the next piece of a large copy: where it begins, and its bytes; 0 if there is none. */
static u64 take(struct LargeCopy *copy, u64 *at) {
  if (__atomic_load_n(&copy->status, __ATOMIC_ACQUIRE)) return 0;
  *at = __atomic_fetch_add(&copy->next, copy->piece_bytes, __ATOMIC_RELAXED);
  if (*at >= copy->bytes) return 0;
  return copy->bytes - *at < copy->piece_bytes ? copy->bytes - *at : copy->piece_bytes;
}

/* One thread's part of a large copy, in the default stream: by turns in two pieces of page-locked memory, so that the
   GPU copies one while the processor copies the other. All of it is done when this returns. */
static i32 pieces(const struct MemoryCalls *calls, const struct Work *work) {
  struct LargeCopy *copy = work->copy;
  u64 at[2] = {0, 0}, bytes[2] = {0, 0};
  i32 status = 0;
  for (u32 turn = 0;; turn ^= 1) {
    char *stage = (char *)work->staging + turn * copy->piece_bytes;
    if (bytes[turn]) {
      status = ((wait)calls->wait)((void *)work->events[turn]);
      if (status) break;
      if (!work->is_in) copy_past_caches((char *)copy->host + at[turn], stage, bytes[turn]);
    }
    bytes[turn] = take(copy, &at[turn]);
    if (!bytes[turn] && !bytes[turn ^ 1]) break;
    if (!bytes[turn]) continue;
    if (work->is_in) {
      __builtin_memcpy(stage, (char *)copy->host + at[turn], bytes[turn]);
      status = ((copy_in_async)calls->copy_in_async)(copy->address + at[turn], stage, bytes[turn], 0);
    } else {
      status = ((copy_out_async)calls->copy_out_async)(stage, copy->address + at[turn], bytes[turn], 0);
    }
    if (!status) status = ((record)calls->record)((void *)work->events[turn], 0);
    if (status) break;
  }
  if (status) __atomic_store_n(&copy->status, (u64)status, __ATOMIC_RELEASE);
  return status;
}

/* What is done in no stream is done when this returns (devices.cuda.memory says why), but for what is new. */
static i32 copied(const struct MemoryCalls *calls, const struct Work *work) {
  i32 status = 0;
  switch (work->what) {
    case DOWNLOAD: return download(calls, work);
    case FILL: status = ((set)calls->set)(work->address, work->byte, work->bytes); break;
    case UPLOAD: status = ((copy_in)calls->copy_in)(work->address, work->host, work->bytes);
  }
  return status ? status : wait_for_default(UNSETTLED(calls->ring), calls->exchange, calls->synchronize);
}

/* Work that is in no stream but the default one, of which no capture knows, is done in the relaxed mode of captures. */
static i32 relaxed(const struct MemoryCalls *calls, struct Work *work) {
  i32 mode = RELAXED, status = ((exchange)calls->exchange)(&mode);
  if (status) return status;
  switch (work->what) {
    case GET: status = ((allocate)calls->allocate)(&work->address, work->bytes); break;
    case PUT: status = ((release)calls->release)(work->address); break;
    case PLACE: status = place(calls, work); break;
    case CLEAR: status = clear(calls, work); break;
    case PIECES: status = pieces(calls, work); break;
  }
  ((exchange)calls->exchange)(&mode);
  return status;
}

/* Do the work in the context of the calls, which are the bytes of ``self``: what the driver answers. */
static i32 done(object *self, struct Work *work) {
  const struct MemoryCalls *calls = (void *)((char *)self + cujit_places.bytes);
  void *context = (void *)calls->context, *current = 0, *thread = CALL(PyEval_SaveThread)();
  ((give_context)calls->get_context)(&current);
  i32 status = current == context ? 0 : ((on_context)calls->push_context)(context);
  if (!status) {
    status = work->what <= PIECES ? relaxed(calls, work) : copied(calls, work);
    if (current != context) ((give_context)calls->pop_context)(&current);
  }
  CALL(PyEval_RestoreThread)(thread);
  return status;
}

static object *number(i64 value) { return CALL(PyLong_FromLong)(value); }
static u64 word(object *value) { return CALL(PyLong_AsUnsignedLongLong)(value); }

/* The address of so many bytes, or the negative of what the driver answered. */
object *cujit_get(object *self, object *bytes) {
  struct Work work = {.bytes = word(bytes), .what = GET};
  i32 status = done(self, &work);
  return status ? number(-status) : CALL(PyLong_FromUnsignedLongLong)(work.address);
}

object *cujit_put(object *self, object *address) {
  struct Work work = {.address = word(address), .what = PUT};
  return number(done(self, &work));
}

/* Wait for what was begun in the default stream and not waited for. */
object *cujit_settle(object *self, object *ignored) {
  (void)ignored;
  struct Work work = {.what = SETTLE};
  return number(done(self, &work));
}

static object *copy(object *self, object *const *given, i64 count, u8 what) {
  struct Buffer view;
  if (count != 2 || CALL(PyObject_GetBuffer)(given[1], &view, what == DOWNLOAD ? WRITABLE : 0)) return 0;
  struct Work work = {.address = word(given[0]), .bytes = (u64)view.bytes, .host = view.memory, .what = what};
  i32 status = done(self, &work);
  CALL(PyBuffer_Release)(&view);
  return number(status);
}

object *cujit_upload(object *self, object *const *given, i64 count) { return copy(self, given, count, UPLOAD); }
object *cujit_place(object *self, object *const *given, i64 count) { return copy(self, given, count, PLACE); }
object *cujit_download(object *self, object *const *given, i64 count) { return copy(self, given, count, DOWNLOAD); }

/* Set bytes: the address, how many, the value. */
object *cujit_fill(object *self, object *const *given, i64 count) {
  if (count != 3) return 0;
  struct Work work = {.address = word(given[0]), .bytes = word(given[1]), .what = FILL, .byte = (u8)word(given[2])};
  return number(done(self, &work));
}

/* Set the bytes of new memory to 0: the address, how many. */
object *cujit_clear(object *self, object *const *given, i64 count) {
  if (count != 2) return 0;
  struct Work work = {.address = word(given[0]), .bytes = word(given[1]), .what = CLEAR};
  return number(done(self, &work));
}

/* A thread's part of a large copy: the address of the copy, of two pieces of page-locked memory, two events, and whether
   it is to the GPU. */
object *cujit_pieces(object *self, object *const *given, i64 count) {
  if (count != 5) return 0;
  struct Work work = {.what = PIECES, .copy = (void *)word(given[0]), .staging = word(given[1]),
                      .events = {word(given[2]), word(given[3])}, .is_in = given[4] == OBJECT(True)};
  return number(done(self, &work));
}
