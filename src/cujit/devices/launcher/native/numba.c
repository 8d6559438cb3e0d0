/* numba's arrays, by their attributes (devices.arguments.foreign_arrays.NumbaInterface). */

#include "launcher.h"

/* An attribute of an object, which the object keeps; null where it has none. */
static object *kept(object *value, u64 name) {
  object *found = value ? CALL(PyObject_GetAttr)(value, (object *)name) : 0;
  if (found)
    CALL(Py_DecRef)(found);
  else if (value)
    CALL(PyErr_Clear)();
  return found;
}

/* An array of the dtype that was found right, contiguous, not empty, in the default stream, with memory of its own. */
bool cujit_numba(object *value, object *type, struct Round *round, u64 *out) {
  struct NumbaInterface *numba = (void *)round->state->numba;
  if (type != (object *)numba->array_type) return false;
  if (kept(value, numba->name_dtype) != KNOWN(round) || kept(value, numba->name_stream) != OBJECT(zero)) return false;
  object *size = kept(value, numba->name_size), *flags = kept(kept(value, numba->name_dummy), numba->name_flags);
  if (!size || size == OBJECT(zero) || !flags || TYPE(flags) != OBJECT(dict)) return false;
  if (CALL(PyDict_GetItem)(flags, (object *)numba->name_contiguous) != OBJECT(True)) return false;
  object *memory = kept(value, numba->name_data);
  if (!memory || TYPE(memory) != (object *)numba->pointer_type) return false;
  object *address = CALL(PyObject_GetAttr)(memory, (object *)numba->name_pointer);
  bool is_word = address && TYPE(address) == (object *)numba->word_type;
  *out = is_word ? **(u64 **)((char *)address + numba->word) : 0;
  if (address)
    CALL(Py_DecRef)(address);
  else
    CALL(PyErr_Clear)();
  return *out != 0;
}
