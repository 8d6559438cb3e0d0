/* CuPy's arrays, by their attributes (devices.arguments.cupy_arrays.CupyInterface). */

#include "launcher.h"

/* Drop the error that an attribute or a call raised: Python asks again, and tells. */
static bool forget(void) {
  PyErr_Clear();
  return false;
}

/* Whether the attribute of an object is that very object. */
static bool is_same(object *value, u64 name, object *wanted) {
  object *found = PyObject_GetAttr(value, (object *)name);
  if (!found) return forget();
  Py_DecRef(found);
  return found == wanted;
}

/* An attribute that is an address or a handle. */
static bool address(object *value, u64 name, u64 *out) {
  object *found = PyObject_GetAttr(value, (object *)name);
  if (!found) return forget();
  bool is_int = TYPE(found) == OBJECT(int);
  if (is_int) *out = PyLong_AsUnsignedLongLong(found);
  Py_DecRef(found);
  return is_int && (*out != (u64)-1 || forget());
}

/* Whether CuPy works in the stream of the launch: 0 and 1 are the same. */
static bool is_in_stream(struct CupyInterface *cupy, struct LaunchState *state) {
  object *ordinal = (object *)cupy->ordinal;
  object *stream = PyObject_VectorcallDict((object *)cupy->get_stream, &ordinal, 1, 0);
  if (!stream) return forget();
  u64 handle;
  bool answered = address(stream, cupy->name_ptr, &handle);
  Py_DecRef(stream);
  return answered && (handle == state->stream || (handle <= 1 && state->stream <= 1));
}

/* An array on this GPU, of the dtype that was found right, contiguous, not empty, and in this stream. */
bool cujit_cupy(object *value, object *type, struct LaunchState *state, i64 index, u64 *out) {
  struct CupyInterface *cupy = (void *)state->cupy;
  if (type != (object *)cupy->array_type) return false;
  if (!is_same(value, cupy->name_dtype, ((object **)state->known)[index])) return false;
  if (!is_same(value, cupy->name_contiguous, OBJECT(True))) return false;
  if (is_same(value, cupy->name_size, OBJECT(zero)) || !is_in_stream(cupy, state)) return false;
  object *data = PyObject_GetAttr(value, (object *)cupy->name_data);
  if (!data) return forget();
  bool good = is_same(data, cupy->name_device, (object *)cupy->ordinal) && address(data, cupy->name_ptr, out);
  Py_DecRef(data);
  return good;
}
