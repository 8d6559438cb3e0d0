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
typedef i32 (*set)(u64 address, u8 byte, u64 bytes);
typedef i32 (*synchronize)(void *stream);

enum { RELAXED = 2 };        /* cuda.h: CU_STREAM_CAPTURE_MODE_RELAXED */
enum { WRITABLE = 1 };       /* CPython: PyBUF_WRITABLE; without more a buffer is contiguous */
enum { GET, PUT, UPLOAD, DOWNLOAD, FILL };
struct Work {
  u64 address, bytes;
  void *host;
  u8 what, byte;
};

static i32 relaxed(const struct MemoryCalls *calls, struct Work *work) {
  i32 mode = RELAXED, status = ((exchange)calls->exchange)(&mode);
  if (status) return status;
  status = work->what == GET ? ((allocate)calls->allocate)(&work->address, work->bytes)
                             : ((release)calls->release)(work->address);
  ((exchange)calls->exchange)(&mode);
  return status;
}

/* What is done in no stream is done when this returns (devices.cuda.memory says why). */
static i32 copied(const struct MemoryCalls *calls, const struct Work *work) {
  if (work->what == DOWNLOAD) return ((copy_out)calls->copy_out)(work->host, work->address, work->bytes);
  i32 status = work->what == FILL ? ((set)calls->set)(work->address, work->byte, work->bytes)
                                  : ((copy_in)calls->copy_in)(work->address, work->host, work->bytes);
  return status ? status : ((synchronize)calls->synchronize)(0);
}

/* Do the work in the context of the calls, which are the bytes of ``self``: what the driver answers. */
static i32 done(object *self, struct Work *work) {
  const struct MemoryCalls *calls = (void *)((char *)self + cujit_places.bytes);
  void *context = (void *)calls->context, *current = 0, *thread = CALL(PyEval_SaveThread)();
  ((give_context)calls->get_context)(&current);
  i32 status = current == context ? 0 : ((on_context)calls->push_context)(context);
  if (!status) {
    status = work->what <= PUT ? relaxed(calls, work) : copied(calls, work);
    if (current != context) ((give_context)calls->pop_context)(&current);
  }
  CALL(PyEval_RestoreThread)(thread);
  return status;
}

static object *number(i64 value) { return CALL(PyLong_FromLong)(value); }

/* The address of so many bytes, or the negative of what the driver answered. */
object *cujit_get(object *self, object *bytes) {
  struct Work work = {0, CALL(PyLong_AsUnsignedLongLong)(bytes), 0, GET, 0};
  i32 status = done(self, &work);
  return status ? number(-status) : CALL(PyLong_FromUnsignedLongLong)(work.address);
}

object *cujit_put(object *self, object *address) {
  struct Work work = {CALL(PyLong_AsUnsignedLongLong)(address), 0, 0, PUT, 0};
  return number(done(self, &work));
}

static object *copy(object *self, object *const *given, i64 count, u8 what) {
  struct Buffer view;
  if (count != 2 || CALL(PyObject_GetBuffer)(given[1], &view, what == DOWNLOAD ? WRITABLE : 0)) return 0;
  struct Work work = {CALL(PyLong_AsUnsignedLongLong)(given[0]), (u64)view.bytes, view.memory, what, 0};
  i32 status = done(self, &work);
  CALL(PyBuffer_Release)(&view);
  return number(status);
}

object *cujit_upload(object *self, object *const *given, i64 count) { return copy(self, given, count, UPLOAD); }
object *cujit_download(object *self, object *const *given, i64 count) { return copy(self, given, count, DOWNLOAD); }

/* Set bytes: the address, how many, the value. */
object *cujit_fill(object *self, object *const *given, i64 count) {
  if (count != 3) return 0;
  struct Work work = {CALL(PyLong_AsUnsignedLongLong)(given[0]), CALL(PyLong_AsUnsignedLongLong)(given[1]), 0, FILL,
                      (u8)CALL(PyLong_AsUnsignedLongLong)(given[2])};
  return number(done(self, &work));
}
