/* Arrays by their __cuda_array_interface__ (devices.arguments.foreign_arrays.DescribedInterface). */

#include "launcher.h"

/* Whether a part of the description is not there, or is None. */
static bool is_absent(object *interface, u64 name) {
  object *found = CALL(PyDict_GetItem)(interface, (object *)name);
  return !found || found == OBJECT(None);
}

/* Whether a shape is a tuple of exact ints above 0. */
static bool has_elements(object *shape) {
  if (!shape || TYPE(shape) != OBJECT(tuple)) return false;
  for (i64 i = CALL(PyTuple_Size)(shape); i--;) {
    int over;
    object *size = CALL(PyTuple_GetItem)(shape, i);
    if (TYPE(size) != OBJECT(int) || CALL(PyLong_AsLongLongAndOverflow)(size, &over) < 1) return false;
  }
  return true;
}

/* The address in a description of an array as one was that was found right. */
static bool address(object *interface, struct DescribedInterface *names, struct Round *round, u64 *out) {
  if (TYPE(interface) != OBJECT(dict)) return false;
  object *typestr = CALL(PyDict_GetItem)(interface, (object *)names->name_typestr);
  if (!typestr || TYPE(typestr) != OBJECT(str) || KNOWN(round) == (object *)1) return false;
  if (CALL(PyUnicode_Compare)(typestr, KNOWN(round))) return false;
  if (!is_absent(interface, names->name_strides) || !is_absent(interface, names->name_stream)) return false;
  if (!has_elements(CALL(PyDict_GetItem)(interface, (object *)names->name_shape))) return false;
  object *data = CALL(PyDict_GetItem)(interface, (object *)names->name_data);
  if (!data || TYPE(data) != OBJECT(tuple) || CALL(PyTuple_Size)(data) != 2) return false;
  object *number = CALL(PyTuple_GetItem)(data, 0), *read_only = CALL(PyTuple_GetItem)(data, 1);
  bool takes_any = round->state->read_only >> round->index & 1;
  if (read_only != OBJECT(False) && !(takes_any && read_only == OBJECT(True))) return false;
  if (TYPE(number) != OBJECT(int)) return false;
  *out = CALL(PyLong_AsUnsignedLongLong)(number);
  return *out && *out != (u64)-1;
}
/* Whether an attribute is the very object that it was in an array that was found right. */
static bool is_as(object *value, u64 name, u64 known) {
  object *found = CALL(PyObject_GetAttr)(value, (object *)name);
  if (!found) return false;
  CALL(Py_DecRef)(found);
  return (u64)found == known;
}

/* An array of one axis at most, of a shape and a dtype and in a place that were found right: its address alone. */
static bool short_way(object *value, struct DescribedInterface *names, struct Round *round, u64 *out) {
  u64 kind = ((u64 *)round->state->known_types)[round->index];
  if (kind == 1 || !is_as(value, names->name_aval, kind) || !is_as(value, names->name_sharding, names->sharding))
    return false;
  object *number = CALL(PyObject_VectorcallDict)((object *)names->pointer_of, &value, 1, 0);
  if (!number) return false;
  bool is_int = TYPE(number) == OBJECT(int);
  *out = is_int ? CALL(PyLong_AsUnsignedLongLong)(number) : 0;
  CALL(Py_DecRef)(number);
  return *out && *out != (u64)-1;
}

/* Ask a method of a value whose answer is no matter but for its being True. */
static bool says(object *value, u64 method, bool *is_true) {
  object *answer = CALL(PyObject_VectorcallDict)((object *)method, &value, 1, 0);
  if (!answer) return false;
  *is_true = answer == OBJECT(True);
  CALL(Py_DecRef)(answer);
  return true;
}

/* JAX computes while Python goes on, and says no stream that the kernel could wait for. */
static bool is_made(object *value, struct DescribedInterface *names) {
  bool is_ready, any;
  if (says(value, names->ready, &is_ready) && (is_ready || says(value, names->wait, &any))) return true;
  CALL(PyErr_Clear)();
  return false;
}

bool cujit_described(object *value, object *type, struct Round *round, u64 *out) {
  struct DescribedInterface *names = (void *)round->state->described;
  if (type != (object *)names->array_type) return false;
  if (!is_made(value, names)) return false;
  if (names->pointer_of && short_way(value, names, round, out)) return true;
  CALL(PyErr_Clear)();
  object *interface = CALL(PyObject_GetAttr)(value, (object *)names->name_interface);
  bool good = interface && address(interface, names, round, out);
  if (interface) CALL(Py_DecRef)(interface);
  if (!good) CALL(PyErr_Clear)();
  return good;
}
