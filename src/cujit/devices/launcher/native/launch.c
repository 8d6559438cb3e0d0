/* A launch: read every argument into the parameter buffer, then start the kernel.

   Each reader takes an argument and where its bytes go, and tells whether it took it: exact types only, with the same
   answers as devices.arguments gives. NumPy's scalars are known by the table of devices.launcher.scalars. Any other argument goes to the reader that is written in Python. */

#include "launcher.h"

/* Drop the error that a call raised: Python asks again, and tells. */
static bool forget(void) {
  CALL(PyErr_Clear)();
  return false;
}

/* Whether a number that may stand for an error is one after all. */
static bool no_error(void) {
  if (!CALL(PyErr_Occurred)()) return true;
  CALL(PyErr_Clear)();
  return false;
}

/* An exact int that fits 64 bits without a sign. */
static bool read_unsigned(object *value, u64 *out) {
  int over;
  i64 number = CALL(PyLong_AsLongLongAndOverflow)(value, &over);
  *out = (u64)number;
  if (over <= 0) return over == 0 && number >= 0;
  *out = CALL(PyLong_AsUnsignedLongLong)(value);
  return *out != (u64)-1 || no_error();
}

/* The attribute of an object, an exact int that is an address. */
static bool attribute(object *value, i64 place, u64 *out) {
  object *number = AT(value, place);
  return number && TYPE(number) == OBJECT(int) && read_unsigned(number, out);
}

/* One of our arrays: on this device, of the dtype that was found right, and open. */
static bool array(object *value, struct Round *round, u64 *out) {
  if (AT(value, cujit_places.array_device) != (object *)round->state->device) return false;
  if (AT(value, cujit_places.array_dtype) != KNOWN(round)) return false;
  object *allocation = AT(value, cujit_places.array_allocation);
  if (!allocation || allocation == OBJECT(None)) return false;
  if (AT(value, cujit_places.array_nbytes) != OBJECT(zero)) return attribute(value, cujit_places.array_address, out);
  *out = 0;
  return true;
}

/* Whatever can stand for a pointer. */
static bool read_pointer(object *value, struct Round *round, u64 *out) {
  struct LaunchState *state = round->state;
  object *type = TYPE(value);
  if (type == OBJECT(DeviceArray)) return array(value, round, out);
  if (value == OBJECT(None)) {
    *out = 0;
    return true;
  }
  if (type == OBJECT(Pointer)) return attribute(value, cujit_places.pointer_address, out);
  struct TensorInterface *torch = (void *)state->tensors;
  if (torch && ((foreign *)torch->read)(value, type, round, out)) return true;
  struct CupyInterface *cupy = (void *)state->cupy;
  if (cupy && ((foreign *)cupy->read)(value, type, round, out)) return true;
  struct NumbaInterface *numba = (void *)state->numba;
  if (numba && ((foreign *)numba->read)(value, type, round, out)) return true;
  struct DescribedInterface *described = (void *)state->described;
  return described && ((foreign *)described->read)(value, type, round, out);
}

/* What is known of a scalar of NumPy; null for any other object. */
static const struct NumpyScalar *scalar(object *value, struct LaunchState *state) {
  const struct NumpyScalar *each = (void *)state->scalars;
  for (u64 type = (u64)TYPE(value); each->type; each++)
    if (each->type == type) return each;
  return 0;
}

#define VALUE(type) (*(type *)((char *)value + cujit_places.scalar))

/* An exact int, or an integer or a truth of NumPy; ``over`` tells that it is none of 64 bits with a sign, and which
   side of these it is on. Above, a number of NumPy's is there without its sign. */
static bool whole(object *value, struct LaunchState *state, i64 *out, int *over) {
  *over = 0;
  if (TYPE(value) == OBJECT(int)) {
    *out = CALL(PyLong_AsLongLongAndOverflow)(value, over);
    return true;
  }
  const struct NumpyScalar *known = scalar(value, state);
  switch (known ? known->kind : 0) {
    case SCALAR_B1:
    case SCALAR_U8: *out = VALUE(u8); return true;
    case SCALAR_I8: *out = VALUE(int8_t); return true;
    case SCALAR_I16: *out = VALUE(int16_t); return true;
    case SCALAR_U16: *out = VALUE(u16); return true;
    case SCALAR_I32: *out = VALUE(i32); return true;
    case SCALAR_U32: *out = VALUE(u32); return true;
    case SCALAR_I64: *out = VALUE(i64); return true;
    case SCALAR_U64:
      *out = VALUE(i64);
      *over = *out < 0;
      return true;
  }
  return false;
}

/* A real number: an exact float, an exact int that rounds to one, or a scalar of NumPy. */
static bool read_double(object *value, struct LaunchState *state, double *out) {
  object *type = TYPE(value);
  if (type == OBJECT(float)) {
    *out = CALL(PyFloat_AsDouble)(value);
    return true;
  }
  if (type == OBJECT(int)) {
    *out = CALL(PyLong_AsDouble)(value);
    return *out != -1.0 || no_error();
  }
  const struct NumpyScalar *known = scalar(value, state);
  if (known && known->kind == SCALAR_F32) {
    *out = VALUE(float);
    return true;
  }
  if (known && known->kind == SCALAR_F64) {
    *out = VALUE(double);
    return true;
  }
  i64 number;
  int over;
  if (!known || !whole(value, state, &number, &over)) return false;
  *out = over ? (double)(u64)number : (double)number;
  return true;
}

/* A number that a float holds without becoming infinite. */
static bool read_single(object *value, struct LaunchState *state, float *out) {
  double wide;
  if (!read_double(value, state, &wide)) return false;
  double size = __builtin_fabs(wide);
  if (size >= FLOAT_OVERFLOW && size != __builtin_inf()) return false;
  *out = (float)wide;
  return true;
}

static bool read_bool(object *value, struct LaunchState *state, u8 *out) {
  *out = value == OBJECT(True);
  if (*out || value == OBJECT(False)) return true;
  const struct NumpyScalar *known = scalar(value, state);
  *out = known && known->kind == SCALAR_B1 && VALUE(u8);
  return known && known->kind == SCALAR_B1;
}

/* An integer from low to high, of 1, 2, 4 or 8 bytes. */
static bool read_integer(object *value, struct LaunchState *state, i64 low, i64 high, i64 size, void *out) {
  i64 number;
  int over;
  if (!whole(value, state, &number, &over) || over || number < low || number > high) return false;
  switch (size) {
    case 1: *(u8 *)out = (u8)number; break;
    case 2: *(u16 *)out = (u16)number; break;
    case 4: *(u32 *)out = (u32)number; break;
    default: *(u64 *)out = (u64)number;
  }
  return true;
}

/* An integer of 64 bits without a sign. */
static bool read_large(object *value, struct LaunchState *state, u64 *out) {
  if (TYPE(value) == OBJECT(int)) return read_unsigned(value, out);
  i64 number;
  int over;
  if (!whole(value, state, &number, &over)) return false;
  *out = (u64)number;
  return over || number >= 0;
}

/* An integer of 64 bits of either sign, or whatever can stand for a pointer. */
static bool read_word(object *value, struct Round *round, u64 *out) {
  return read_integer(value, round->state, INT64_MIN, INT64_MAX, 8, out) || read_large(value, round->state, out) ||
         read_pointer(value, round, out);
}

/* What only the size is known of: the bytes of a scalar that has as many, an exact int, or a pointer. */
static bool read_opaque(object *value, struct Round *round, const struct Field *field, void *out) {
  const struct NumpyScalar *known = scalar(value, round->state);
  if (known) {
    if (known->size != field->size) return false;
    __builtin_memcpy(out, &VALUE(u8), known->size);
    return true;
  }
  return field->size == 8 ? read_word(value, round, out)
                          : read_integer(value, round->state, field->low, field->high, field->size, out);
}

/* The bytes of a structure whose layout was found right: by its type, and its dtype where the type has several. */
static bool read_bytes(object *value, struct Round *round, u64 size, void *out) {
  if (TYPE(value) != ((object **)round->state->known_types)[round->index]) return false;
  if (KNOWN(round) != OBJECT(None)) {
    object *dtype = CALL(PyObject_GetAttr)(value, OBJECT(dtype));
    if (!dtype) return forget();
    CALL(Py_DecRef)(dtype);
    if (dtype != KNOWN(round)) return false;
  }
  struct Buffer view;
  if (CALL(PyObject_GetBuffer)(value, &view, 0)) return forget();
  bool fits = view.bytes == (i64)size;
  if (fits) __builtin_memcpy(out, view.memory, size);
  CALL(PyBuffer_Release)(&view);
  return fits;
}

/* Let the reader of Python take an argument, or raise: its bytes go to the buffer. If the reader wants the whole launch
   to be made by hand, `leaves` is set. */
static bool ask(struct LaunchState *state, i64 index, object *value, void *to, u64 size, bool *leaves) {
  if (!complete(state)) return false;
  object *given[] = {CALL(PyLong_FromLong)(index), value};
  if (!given[0]) return false;
  object *bytes = CALL(PyObject_VectorcallDict)((object *)state->reader, given, 2, 0);
  CALL(Py_DecRef)(given[0]);
  if (!bytes) return false;
  *leaves = bytes == OBJECT(None);
  char *data = *leaves ? 0 : CALL(PyBytes_AsString)(bytes);
  if (data) __builtin_memcpy(to, data, size);
  CALL(Py_DecRef)(bytes);
  return data;
}

static bool read(struct Round *round, const struct Field *field, object *value, void *out) {
  struct LaunchState *state = round->state;
  switch (field->kind) {
    case FIELD_POINTER: return read_pointer(value, round, out);
    case FIELD_ADDRESS:
      return TYPE(value) == OBJECT(int) ? read_unsigned(value, out) : read_pointer(value, round, out);
    case FIELD_FLOAT: return field->size == 4 ? read_single(value, state, out) : read_double(value, state, out);
    case FIELD_BOOL: return read_bool(value, state, out);
    case FIELD_LARGE: return read_large(value, state, out);
    case FIELD_WORD: return read_word(value, round, out);
    case FIELD_INTEGER: return read_integer(value, state, field->low, field->high, field->size, out);
    case FIELD_OPAQUE: return read_opaque(value, round, field, out);
    case FIELD_BYTES: return read_bytes(value, round, field->size, out);
  }
  return false;
}

static object *by_hand(struct LaunchState *state, object *const *arguments, u64 count) {
  if (!complete(state)) return 0;
  return CALL(PyObject_VectorcallDict)((object *)state->by_hand, arguments, count, 0);
}

/* The entry of a launch (PEP 590). A reader of Python may run anybody's code, which may close an array whose address
   was read before: everything that was read here is then read again, until a round ends in which none was called. The
   module may be closed by then, too. */
object *cujit_launch(object *self, object *const *arguments, u64 given, object *names) {
  /* The last word of a launch, which is of a type without items: as far as the type says that its objects reach. */
  u64 size = (u64)AT(TYPE(self), cujit_places.basic_size);
  struct LaunchState *state = (void *)AT(self, size - sizeof(void *));
  if (names && !complete(state)) return 0;
  if (names) return CALL(PyObject_VectorcallDict)((object *)state->named, 0, 0, 0);
  u64 count = given & INT64_MAX; /* some callers set the highest bit: PY_VECTORCALL_ARGUMENTS_OFFSET */
  if (count != state->count || !is_alive(state->alive)) return by_hand(state, arguments, count);
  const struct Field *fields = (void *)state->fields;
  char *buffer = __builtin_alloca_with_align(state->size + 1, 128);
  __builtin_memset(buffer, 0, state->size);
  u64 asked = 0, settled;
  bool leaves = false;
  do {
    settled = asked;
    struct Round round = {state, 0, false};
    for (u64 i = 0; i < count; i++) {
      void *to = buffer + fields[i].offset;
      round.index = i;
      if (settled >> i & 1 || read(&round, fields + i, arguments[i], to)) continue;
      asked |= 1ull << i;
      if (!ask(state, i, arguments[i], to, fields[i].size, &leaves)) return leaves ? by_hand(state, arguments, count) : 0;
    }
  } while (asked != settled);
  if (!is_alive(state->alive)) return by_hand(state, arguments, count);
  void **each = 0;
  if (state->each && count) {
    each = __builtin_alloca(count * sizeof(void *));
    for (u64 i = 0; i < count; i++) each[i] = buffer + fields[i].offset;
  }
  return ((start *)state->submit)(state, buffer, state->size, each);
}
