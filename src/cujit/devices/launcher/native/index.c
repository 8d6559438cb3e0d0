/* kernel[grid, block]: the launch that a kernel keeps for what is written there (devices.launcher.state.LaunchCache). */

#include "launcher.h"

/* Whether a grid or a block is an exact int, or a tuple of these: of equal keys only such are the same. */
static bool is_exact(object *size) {
  if (TYPE(size) == OBJECT(int)) return true;
  if (TYPE(size) != OBJECT(tuple)) return false;
  for (i64 axis = CALL(PyTuple_Size)(size); axis--;)
    if (TYPE(CALL(PyTuple_GetItem)(size, axis)) != OBJECT(int)) return false;
  return true;
}

/* Whether two tuples are of the very same objects. */
static bool is_same(object *left, object *right) {
  if (left == right) return true;
  i64 count = CALL(PyTuple_Size)(left);
  if (TYPE(right) != OBJECT(tuple) || CALL(PyTuple_Size)(right) != count) return false;
  for (i64 i = 0; i < count; i++)
    if (CALL(PyTuple_GetItem)(left, i) != CALL(PyTuple_GetItem)(right, i)) return false;
  return true;
}

/* Have a launch be the last. What goes may run anybody's code, so it goes when both are in their places. */
static void remember(object *cache, object *shape, object *launch) {
  object *shape_before = AT(cache, cujit_places.cache_last_shape), *before = AT(cache, cujit_places.cache_last);
  CALL(Py_IncRef)(shape);
  CALL(Py_IncRef)(launch);
  AT(cache, cujit_places.cache_last_shape) = shape;
  AT(cache, cujit_places.cache_last) = launch;
  CALL(Py_DecRef)(shape_before);
  CALL(Py_DecRef)(before);
}

/* A new reference to the launch that is kept for a shape, and is then the last; null if there is none. */
static object *find(object *cache, object *shape) {
  if (TYPE(shape) != OBJECT(tuple)) return 0;
  for (i64 i = CALL(PyTuple_Size)(shape); i--;)
    if (!is_exact(CALL(PyTuple_GetItem)(shape, i))) return 0;
  object *launch = CALL(PyDict_GetItem)(AT(cache, cujit_places.cache_launches), shape);
  if (!launch) return 0;
  CALL(Py_IncRef)(launch);
  remember(cache, shape, launch);
  return launch;
}

object *cujit_index(object *kernel, object *shape) {
  object *cache = AT(kernel, cujit_places.kernel_cache), *last = AT(cache, cujit_places.cache_last_shape);
  if (TYPE(last) == OBJECT(tuple) && is_same(last, shape)) {
    CALL(Py_IncRef)(AT(cache, cujit_places.cache_last));
    return AT(cache, cujit_places.cache_last);
  }
  object *launch = find(cache, shape);
  return launch ? launch : CALL(PyObject_CallMethodObjArgs)(kernel, OBJECT(fix), shape, (object *)0);
}
