/* kernel[grid, block]: the launch that a kernel keeps for what is written there (devices.launcher.state.KeepsLaunches). */

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
static void remember(object *kernel, object *shape, object *launch) {
  object *shape_before = AT(kernel, cujit_places.kernel_last_shape), *before = AT(kernel, cujit_places.kernel_last);
  CALL(Py_IncRef)(shape);
  CALL(Py_IncRef)(launch);
  AT(kernel, cujit_places.kernel_last_shape) = shape;
  AT(kernel, cujit_places.kernel_last) = launch;
  CALL(Py_DecRef)(shape_before);
  CALL(Py_DecRef)(before);
}

/* A new reference to the launch that is kept for a shape, and is then the last; null if there is none. */
static object *find(object *kernel, object *shape) {
  if (TYPE(shape) != OBJECT(tuple)) return 0;
  for (i64 i = CALL(PyTuple_Size)(shape); i--;)
    if (!is_exact(CALL(PyTuple_GetItem)(shape, i))) return 0;
  object *launch = CALL(PyDict_GetItem)(AT(kernel, cujit_places.kernel_launches), shape);
  if (!launch) return 0;
  CALL(Py_IncRef)(launch);
  remember(kernel, shape, launch);
  return launch;
}

/* Read a grid or a block in its shortest form, exact ints from 1 to the limit of their axis: an int, or a tuple that does
   not end with 1. So a launch is kept once, in whichever form it is written. */
static bool sizes(object *given, const u32 *most, u32 *out) {
  bool is_one = TYPE(given) == OBJECT(int);
  if (!is_one && TYPE(given) != OBJECT(tuple)) return false;
  i64 count = is_one ? 1 : CALL(PyTuple_Size)(given);
  if (count < 1 + !is_one || count > 3) return false;
  for (i64 axis = 0; axis < 3; axis++) {
    object *size = axis >= count ? 0 : is_one ? given : CALL(PyTuple_GetItem)(given, axis);
    int over = 0;
    if (size && TYPE(size) != OBJECT(int)) return false;
    i64 number = size ? CALL(PyLong_AsLongLongAndOverflow)(size, &over) : 1;
    if (over || number < 1 || number > (i64)most[axis]) return false;
    out[axis] = (u32)number;
  }
  return is_one || out[count - 1] > 1;
}

/* Fill in what a launch of a kernel refers to; the slots of a new object are null. */
static void fill(object *launch, const struct LaunchPattern *pattern, object *weak, object *shape) {
  object *shared[] = {(object *)pattern->entry, (object *)pattern->options, shape, OBJECT(zero), OBJECT(False),
                      OBJECT(None), OBJECT(None)};
  i64 places[] = {cujit_places.launch_entry, cujit_places.launch_options, cujit_places.launch_shape,
                  cujit_places.launch_stream, cujit_places.launch_waits, cujit_places.launch_prepared,
                  cujit_places.launch_stream_owner};
  AT(launch, cujit_places.launch_kernel) = weak;
  for (u64 i = 0; i < sizeof places / sizeof *places; i++) {
    CALL(Py_IncRef)(shared[i]);
    AT(launch, places[i]) = shared[i];
  }
}

/* A new launch of grid and block, as ``Kernel._fix`` makes it; null, with or without an error, where that is to do it. */
static object *make(object *kernel, object *shape) {
  object *bytes = AT(kernel, cujit_places.kernel_pattern), *launches = AT(kernel, cujit_places.kernel_launches);
  if (TYPE(bytes) != OBJECT(bytes) || TYPE(shape) != OBJECT(tuple) || CALL(PyTuple_Size)(shape) != 2) return 0;
  const struct LaunchPattern *pattern = (void *)((char *)bytes + cujit_places.bytes);
  u32 grid[3], block[3];
  if (!sizes(CALL(PyTuple_GetItem)(shape, 0), &pattern->max_grid_x, grid)) return 0;
  if (!sizes(CALL(PyTuple_GetItem)(shape, 1), &pattern->max_block_x, block)) return 0;
  if ((u64)block[0] * block[1] * block[2] > pattern->max_threads || CALL(PyDict_Size)(launches) >= MOST_LAUNCHES) return 0;
  if (!is_alive(pattern->alive)) return 0;
  object *type = (object *)pattern->type, *launch = CALL(PyType_GenericAlloc)(type, 0);
  object *weak = launch ? CALL(PyWeakref_NewRef)(kernel, 0) : 0;
  object *memory = weak ? CALL(PyBytes_FromStringAndSize)(0, sizeof(struct LaunchState)) : 0;
  if (weak) fill(launch, pattern, weak, shape);
  if (memory) {
    struct LaunchState *state = (void *)((char *)memory + cujit_places.bytes);
    *state = *(struct LaunchState *)pattern->template;
    state->alive = pattern->alive;
    state->function = pattern->function;
    state->label = pattern->label;
    state->launch = (u64)launch;
    __builtin_memcpy(&state->grid_x, grid, sizeof grid);
    __builtin_memcpy(&state->block_x, block, sizeof block);
    AT(launch, cujit_places.launch_state) = memory;
    char *end = (char *)launch + (u64)AT(type, cujit_places.basic_size);
    ((u64 *)end)[-2] = pattern->code;
    ((u64 *)end)[-1] = (u64)state;
    if (!CALL(PyDict_SetItem)(launches, shape, launch)) {
      remember(kernel, shape, launch);
      return launch;
    }
  }
  if (launch) CALL(Py_DecRef)(launch);
  return 0;
}

object *cujit_index(object *kernel, object *shape) {
  object *last = AT(kernel, cujit_places.kernel_last_shape);
  if (TYPE(last) == OBJECT(tuple) && is_same(last, shape)) {
    CALL(Py_IncRef)(AT(kernel, cujit_places.kernel_last));
    return AT(kernel, cujit_places.kernel_last);
  }
  object *launch = find(kernel, shape);
  if (!launch && !CALL(PyErr_Occurred)()) launch = make(kernel, shape);
  if (launch || CALL(PyErr_Occurred)()) return launch;
  return CALL(PyObject_CallMethodObjArgs)(kernel, OBJECT(fix), shape, (object *)0);
}
