/* One surface instruction of one lane. */

#pragma once

#include "textures.h"

/* What an access is. `unit` is the size that x counts in (0: elements). It has `count` times `bytes` bytes, of an
   element for SURFACE_FORMAT. */
struct Access {
  u32 operation, axes;
  flag layered;
  u32 unit, bytes, count, bounds;
};

INLINE i64 into(i64 i, i64 last) {
  i64 high = i > last ? last : i;
  return high < 0 ? 0 : high;
}

INLINE i32 clamped(i32 number, i32 least, i32 most) {
  i32 low = number > least ? number : least;
  return low < most ? low : most;
}

/* Words to a whole element, converted to its format; integers are clamped, and channels that did not come are 0. */
static NOINLINE void store_formatted(const struct Descriptor *d, struct Exchange *data, u32 lane, u8 *at, u32 count) {
  for (u32 k = 0; k < (u32)d->channels; k++) {
    u32 word = k < count ? (u32)data->values[k][lane] : 0;
    i32 number = (i32)word;
    switch (d->format) {
    case FORMAT_UINT8: at[k] = (u8)(word < 255 ? word : 255); break;
    case FORMAT_INT8: at[k] = (u8)clamped(number, -128, 127); break;
    case FORMAT_UINT16: ((u16 *)at)[k] = (u16)(word < 65535 ? word : 65535); break;
    case FORMAT_INT16: ((u16 *)at)[k] = (u16)clamped(number, -32768, 32767); break;
    case FORMAT_FLOAT16: ((u16 *)at)[k] = AS(u16, (_Float16)AS(f32, word)); break;
    default: ((u32 *)at)[k] = word;
    }
  }
}

/* 1 to 4 neighbouring elements of each size. */
static NOINLINE void load_elements(struct Exchange *data, u32 lane, const u8 *at, u32 bytes, u32 count) {
  for (u32 k = 0; k < count; k++) {
    u64 *value = &data->values[k][lane];
    switch (bytes) {
    case 1: *value = at[k]; break;
    case 2: *value = ((const u16 *)at)[k]; break;
    case 4: *value = ((const u32 *)at)[k]; break;
    case 8: *value = ((const u64 *)at)[k]; break;
    }
  }
}

static NOINLINE void store_elements(struct Exchange *data, u32 lane, u8 *at, u32 bytes, u32 count) {
  for (u32 k = 0; k < count; k++) {
    u64 value = data->values[k][lane];
    switch (bytes) {
    case 1: at[k] = (u8)value; break;
    case 2: ((u16 *)at)[k] = (u16)value; break;
    case 4: ((u32 *)at)[k] = (u32)value; break;
    case 8: ((u64 *)at)[k] = value; break;
    }
  }
}

/* What min or max of the surface's own format is. */
INLINE u32 with_sign(const struct Descriptor *d, u32 operation) {
  flag is_signed = d->format & 1;
  switch (operation) {
  case SURFACE_MIN: return is_signed ? SURFACE_SMIN : SURFACE_UMIN;
  case SURFACE_MAX: return is_signed ? SURFACE_SMAX : SURFACE_UMAX;
  default: return operation;
  }
}

#define REDUCE(bits)                                                                                             \
  static NOINLINE void reduce_##bits(u32 operation, u##bits *at, u##bits value) {                                \
    switch (operation) {                                                                                         \
    case SURFACE_ADD: __atomic_fetch_add(at, value, __ATOMIC_RELAXED); break;                                    \
    case SURFACE_AND: __atomic_fetch_and(at, value, __ATOMIC_RELAXED); break;                                    \
    case SURFACE_OR: __atomic_fetch_or(at, value, __ATOMIC_RELAXED); break;                                      \
    case SURFACE_SMIN: __atomic_fetch_min((i##bits *)at, (i##bits)value, __ATOMIC_RELAXED); break;               \
    case SURFACE_UMIN: __atomic_fetch_min(at, value, __ATOMIC_RELAXED); break;                                   \
    case SURFACE_SMAX: __atomic_fetch_max((i##bits *)at, (i##bits)value, __ATOMIC_RELAXED); break;               \
    case SURFACE_UMAX: __atomic_fetch_max(at, value, __ATOMIC_RELAXED); break;                                   \
    }                                                                                                            \
  }
REDUCE(32)
REDUCE(64)
#undef REDUCE

/* Do it at a place that is inside and aligned. */
static void access(const struct Descriptor *d, struct Exchange *data, u32 lane, const struct Access *a, u8 *at) {
  switch (a->operation) {
  case SURFACE_LOAD: load_elements(data, lane, at, a->bytes, a->count); break;
  case SURFACE_STORE: store_elements(data, lane, at, a->bytes, a->count); break;
  case SURFACE_FORMAT: store_formatted(d, data, lane, at, a->count); break;
  default: {
    u64 value = data->values[0][lane];
    if (a->bytes == 4) reduce_32(with_sign(d, a->operation), (u32 *)at, (u32)value);
    if (a->bytes == 8) reduce_64(with_sign(d, a->operation), (u64 *)at, value);
  }
  }
}

static void surface_lane(const struct Asker *asker, struct Exchange *data, const struct Access *a) {
  u32 lane = asker->lane;
  const struct Descriptor *d = described(asker, data->handle[lane], SURFACE_MARK);
  i64 size = a->unit ? a->bytes * a->count : (u32)d->texel_bytes;
  i64 x = (i64)(i32)data->x[lane] * (a->unit ? a->unit : (u32)d->texel_bytes);
  i64 y = a->axes >= 2 ? (i32)data->y[lane] : 0;
  i64 z = a->layered ? (i64)data->layer[lane] : a->axes == 3 ? (i32)data->z[lane] : 0;
  i64 last = (i64)((u32)d->width * (u64)(u32)d->texel_bytes) - size;
  i64 x_near = into(x, last), y_near = into(y, (i64)(u32)d->height - 1), z_near = into(z, (i64)(u32)d->depth - 1);
  u8 *at = d->base + y_near * d->row + z_near * d->slice + x_near;
  flag fits = last >= 0, inside = fits && x == x_near && y == y_near && z == z_near;
  if (!inside && !(a->bounds == BOUNDS_CLAMP && fits)) {
    if (a->bounds != BOUNDS_ZERO) asker_fault(asker, FAULT_TRAP, (u64)at);
    for (u32 k = 0; k < CHANNELS; k++) data->values[k][lane] = 0;
    return;
  }
  if (x_near & (size - 1)) asker_fault(asker, FAULT_MISALIGNED, (u64)at);
  access(d, data, lane, a, at);
}
