/* CuPy's arrays, where they have what they say (devices.arguments.cupy_arrays.CupyInterface). */

#include "launcher.h"

#define PLACE(type, value, place) (*(type *)((char *)(value) + (place)))

/* Drop the error that a call raised: Python asks again, and tells. */
static bool forget(void) {
  CALL(PyErr_Clear)();
  return false;
}

/* The stream that CuPy works in on the GPU of the launch, as Python tells it. */
static bool asked_stream(struct CupyInterface *cupy, u64 *out) {
  object *ordinal = (object *)cupy->ordinal;
  object *stream = CALL(PyObject_VectorcallDict)((object *)cupy->get_stream, &ordinal, 1, 0);
  if (!stream) return forget();
  object *handle = CALL(PyObject_GetAttr)(stream, (object *)cupy->name_ptr);
  CALL(Py_DecRef)(stream);
  if (!handle) return forget();
  bool is_int = TYPE(handle) == OBJECT(int);
  if (is_int) *out = CALL(PyLong_AsUnsignedLongLong)(handle);
  CALL(Py_DecRef)(handle);
  return is_int && (*out != (u64)-1 || forget());
}

/* Whether CuPy works in the stream of the launch: 0 and 1 are the same. It is asked once for all arrays. */
static bool is_in_stream(struct CupyInterface *cupy, struct Round *round, i32 ordinal) {
  u64 handle, ours = round->state->stream;
  if (round->is_in_stream) return true;
  if (cupy->stream_of)
    handle = ((u64(*)(i32))cupy->stream_of)(ordinal); /* -1 where it raises */
  else if (!asked_stream(cupy, &handle))
    return false;
  if (handle == (u64)-1) return forget();
  round->is_in_stream = handle == ours || (handle <= 1 && ours <= 1);
  return round->is_in_stream;
}

/* An array on this GPU, of the dtype that was found right, contiguous, not empty, and in this stream. */
bool cujit_cupy(object *value, object *type, struct Round *round, u64 *out) {
  struct CupyInterface *cupy = (void *)round->state->cupy;
  if (type != (object *)cupy->array_type || AT(value, cupy->dtype) != KNOWN(round)) return false;
  if (PLACE(i32, value, cupy->contiguous) != 1 || PLACE(i64, value, cupy->size) < 1) return false;
  object *data = AT(value, cupy->data);
  i32 ordinal = round->state->tensor_device_index;
  if (TYPE(data) != (object *)cupy->pointer_type || PLACE(i32, data, cupy->device) != ordinal) return false;
  *out = PLACE(u64, data, cupy->address);
  return is_in_stream(cupy, round, ordinal);
}
