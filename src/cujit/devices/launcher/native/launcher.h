/* What of CPython and of this process the launcher's C uses; its structures are those of Python (shared.h). */

#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef int32_t i32;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;
typedef struct object object;

#include "shared.h"

typedef object *(*start)(struct LaunchState *state, void *buffer, u64 size, void **each);
/* One turn over the arguments: the parameter that is read, and whether CuPy was found in the stream of the launch. */
struct Round {
  struct LaunchState *state;
  i64 index;
  bool is_in_stream;
};
#define KNOWN(round) (((object **)(round)->state->known)[(round)->index])
typedef bool (*foreign)(object *value, object *type, struct Round *round, u64 *out);

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

/* Objects that live as long as the process: symbols, so that the code is the same in every process. */
extern const char cujit_object_None, cujit_object_True, cujit_object_False, cujit_object_zero, cujit_object_int,
    cujit_object_float, cujit_object_str, cujit_object_tuple, cujit_object_dict, cujit_object_fix, cujit_object_dtype,
    cujit_object_DeviceArray, cujit_object_Pointer;
#define OBJECT(name) ((object *)&cujit_object_##name)

/* Where objects have what, in bytes: known when the code is made, and numbers in it. */
extern const i64 cujit_place_type, cujit_place_state, cujit_place_scalar, cujit_place_kernel_cache, cujit_place_cache_launches,
    cujit_place_cache_last, cujit_place_cache_last_shape,  cujit_place_pointer_address, cujit_place_array_address,
    cujit_place_array_allocation, cujit_place_array_device, cujit_place_array_dtype, cujit_place_array_nbytes;
#define AT(value, place) (*(object **)((char *)(value) + (place)))
#define TYPE(value) AT(value, cujit_place_type)

__attribute__((unused)) static object *none(void) {
  Py_IncRef(OBJECT(None));
  return OBJECT(None);
}
