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
typedef bool (*foreign)(object *value, object *type, struct LaunchState *state, i64 index, u64 *out);

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
void Py_IncRef(object *value);
void Py_DecRef(object *value);

/* Objects that live as long as the process: symbols, so that the code is the same in every process. */
extern const char cujit_object_None, cujit_object_True, cujit_object_False, cujit_object_zero, cujit_object_int,
    cujit_object_float, cujit_object_DeviceArray, cujit_object_Pointer;
#define OBJECT(name) ((object *)&cujit_object_##name)

/* Where objects have what, in bytes: known when the code is made, and numbers in it. */
extern const i64 cujit_place_type, cujit_place_state, cujit_place_scalar, cujit_place_pointer_address, cujit_place_array_address,
    cujit_place_array_allocation, cujit_place_array_device, cujit_place_array_dtype, cujit_place_array_nbytes;
#define AT(value, place) (*(object **)((char *)(value) + (place)))
#define TYPE(value) AT(value, cujit_place_type)

__attribute__((unused)) static object *none(void) {
  Py_IncRef(OBJECT(None));
  return OBJECT(None);
}
