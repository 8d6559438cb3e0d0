/* What of CPython and of this process the launcher's C uses; its structures are those of Python (shared.h). */

#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef int8_t i8;
typedef int32_t i32;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;
typedef struct object object;

#include "shared.h"

typedef object *start(struct LaunchState *state, void *buffer, u64 size, void **each);
/* One turn over the arguments: the parameter that is read, and whether CuPy was found in the stream of the launch. */
struct Round {
  struct LaunchState *state;
  i64 index;
  bool is_in_stream;
};
#define KNOWN(round) (((object **)(round)->state->known)[(round)->index])
typedef bool foreign(object *value, object *type, struct Round *round, u64 *out);

/* Py_buffer, of the stable ABI. Source: CPython, Include/pybuffer.h. */
struct Buffer {
  void *memory;
  object *owner;
  i64 bytes, item_bytes;
  int is_read_only, axes;
  char *format;
  i64 *shape, *strides, *suboffsets;
  void *internal;
};

long long PyLong_AsLongLongAndOverflow(object *number, int *over);
unsigned long long PyLong_AsUnsignedLongLong(object *number);
double PyLong_AsDouble(object *number);
double PyFloat_AsDouble(object *number);
char *PyBytes_AsString(object *bytes);
object *PyObject_VectorcallDict(object *callable, object *const *arguments, u64 count, object *keywords);
object *PyObject_GetAttr(object *value, object *name);
object *PyErr_Occurred(void);
void PyErr_Clear(void);
object *PyLong_FromLong(long number);
int PyObject_GetBuffer(object *value, struct Buffer *view, int flags);
void PyBuffer_Release(struct Buffer *view);
object *PyDict_GetItem(object *dict, object *key);
object *PyObject_CallMethodObjArgs(object *value, object *name, ...);
i64 PyTuple_Size(object *tuple);
object *PyTuple_GetItem(object *tuple, i64 index);
int PyUnicode_Compare(object *left, object *right);
void Py_IncRef(object *value);
void Py_DecRef(object *value);
object *PyType_GenericAlloc(object *type, i64 items);
object *PyBytes_FromStringAndSize(const char *data, i64 bytes);
object *PyWeakref_NewRef(object *value, object *callback);
i64 PyBytes_Size(object *bytes);
object *PyDict_New(void);
object *PyUnicode_FromStringAndSize(const char *text, i64 bytes);
const char *PyUnicode_AsUTF8AndSize(object *text, i64 *bytes);
object *PyLong_FromUnsignedLongLong(unsigned long long number);
object *PyFloat_FromDouble(double number);
int PyDict_SetItem(object *dict, object *key, object *value);
i64 PyDict_Size(object *dict);
object *PyDictProxy_New(object *mapping);
object *PyTuple_Pack(i64 count, ...);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *thread);

/* SHA-256 (digest.c); begin gives false if the processor has no instructions for it. */
enum { BLOCK = 64, DIGEST = 32 };
struct Digest {
  u32 state[8];
  u8 rest[BLOCK];
  u64 bytes;
};
bool cujit_digest_begin(struct Digest *digest);
void cujit_digest_add(struct Digest *digest, const u8 *data, u64 bytes);
void cujit_digest_end(struct Digest *digest, u8 *out);

/* CPython's functions by their addresses, objects that live as long as the process, and where objects have what, in
   bytes: Python fills them in when it has loaded this (devices.launcher.library). */
#pragma GCC visibility push(protected)
#define ENTRY(name) __typeof__(name) *name;
struct Functions { FUNCTIONS(ENTRY) };
#undef ENTRY
#define ENTRY(name) object *name;
struct Objects { OBJECTS(ENTRY) };
#undef ENTRY
#define ENTRY(name) i64 name;
struct Places { PLACES(ENTRY) };
#undef ENTRY
extern struct Functions cujit_functions;
extern struct Objects cujit_objects;
extern struct Places cujit_places;
extern u64 cujit_interpreter;

object *cujit_launch(object *self, object *const *arguments, u64 given, object *names);
object *cujit_index(object *kernel, object *shape);
object *cujit_get(object *self, object *bytes);
object *cujit_put(object *self, object *address);
object *cujit_upload(object *self, object *const *given, i64 count);
object *cujit_download(object *self, object *const *given, i64 count);
object *cujit_fill(object *self, object *const *given, i64 count);
object *cujit_place(object *self, object *const *given, i64 count);
object *cujit_clear(object *self, object *const *given, i64 count);
object *cujit_pieces(object *self, object *const *given, i64 count);
object *cujit_settle(object *self, object *ignored);
object *cujit_rows(object *self, object *image);
object *cujit_load(object *self, object *const *given, i64 count);
object *cujit_relocate(object *self, object *const *given, i64 count);
object *cujit_item(object *module, object *name);
object *cujit_digest(object *self, object *const *given, i64 count);
object *cujit_key(object *self, object *const *given, i64 count);
object *cujit_contains(object *self, object *const *given, i64 count);
object *cujit_entry(object *self, object *const *given, i64 count);
object *cujit_record(object *self, object *const *given, i64 count);
object *cujit_kernel(object *self, object *const *given, i64 count);
start cujit_gpu, cujit_cpu, cujit_copy;
foreign cujit_torch, cujit_cupy, cujit_numba, cujit_described;
#pragma GCC visibility pop

#define CALL(name) cujit_functions.name
#define OBJECT(name) cujit_objects.object_##name
#define AT(value, place) (*(object **)((char *)(value) + (place)))
#define TYPE(value) AT(value, cujit_places.type)

/* Whether a module may be run, of which this is the word: devices.launcher.liveness. */
__attribute__((unused)) static bool is_alive(u64 word) { return *(volatile u64 *)word == *(u64 *)cujit_places.process; }

__attribute__((unused)) static object *none(void) {
  CALL(Py_IncRef)(OBJECT(None));
  return OBJECT(None);
}

#define UNSETTLED(ring) ((struct Unsettled *)((u64 *)(ring) + RING_TAIL))
enum { RELAXED = 2 }; /* cuda.h: CU_STREAM_CAPTURE_MODE_RELAXED */

/* Make a context current, and say in *is_pushed whether ``leave`` is to put another one back: a thread in which none is
   current keeps this one, as the CUDA runtime does it. Gives the status of the driver. */
__attribute__((unused)) static i32 enter(void *context, u64 get, u64 set, u64 push, bool *is_pushed) {
  void *current = 0;
  ((i32 (*)(void **))get)(&current);
  *is_pushed = current && current != context;
  return current == context ? 0 : ((i32 (*)(void *))(*is_pushed ? push : set))(context);
}

__attribute__((unused)) static void leave(u64 pop, bool is_pushed) {
  void *context;
  if (is_pushed) ((i32 (*)(void **))pop)(&context);
}

/* Wait for the default stream, also while a stream is captured: what was issued there before this is then settled. */
__attribute__((unused)) static i32 wait_for_default(struct Unsettled *unsettled, u64 exchange, u64 synchronize) {
  u64 issued = __atomic_load_n(&unsettled->issued, __ATOMIC_ACQUIRE);
  i32 mode = RELAXED, status = ((i32 (*)(i32 *))exchange)(&mode);
  if (status) return status;
  status = ((i32 (*)(void *))synchronize)(0);
  ((i32 (*)(i32 *))exchange)(&mode);
  u64 settled = __atomic_load_n(&unsettled->settled, __ATOMIC_ACQUIRE);
  while (!status && settled < issued &&
         !__atomic_compare_exchange_n(&unsettled->settled, &settled, issued, false, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE)) {
  }
  return status;
}

/* Whether work in the default stream was begun that nobody has waited for. */
__attribute__((unused)) static bool is_unsettled(struct Unsettled *unsettled) {
  return __atomic_load_n(&unsettled->issued, __ATOMIC_ACQUIRE) != __atomic_load_n(&unsettled->settled, __ATOMIC_ACQUIRE);
}

/* Have Python make what it takes part in a launch by, if native code made the launch. */
__attribute__((unused)) static bool complete(struct LaunchState *state) {
  if (state->by_hand || !state->complete) return true;
  object *launch = (object *)state->launch;
  object *done = CALL(PyObject_VectorcallDict)((object *)state->complete, &launch, 1, 0);
  if (!done) return false;
  CALL(Py_DecRef)(done);
  return true;
}

/* Have Python say what a number means, a status or an address: it raises, or gives what the call returns. */
__attribute__((unused)) static object *report(struct LaunchState *state, i64 number) {
  if (!complete(state)) return 0;
  object *given = CALL(PyLong_FromLong)(number);
  if (!given) return 0;
  object *answer = CALL(PyObject_VectorcallDict)((object *)state->failed, &given, 1, 0);
  CALL(Py_DecRef)(given);
  return answer;
}
