/* Where a coordinate lies along an axis, and what an element there holds. */

#pragma once

#include "textures.h"

/* -- coordinates -------------------------------------------------------------------------------------------------

   Sources: CUDA C++ Programming Guide, "Texture Fetching": i = floor(x), or of x - 0.5 with the fraction in 8 bits for
   linear filtering; "Texture Memory": what each addressing mode reads. Coordinates are handled in f64, where x times
   a size is exact. */

/* Where an axis is read: an index, the next, and the weight of the next in 1/256. OUTSIDE is where the border is. */
struct Tap {
  i32 index[2];
  u32 weight;
};

enum { OUTSIDE = -1 };

/* What the modes read beyond the edges. */
static i32 resolve(i32 mode, i32 size, i32 i) {
  switch (mode) {
  case ADDRESS_WRAP: {
    i32 rest = i % size;
    return rest < 0 ? rest + size : rest;
  }
  case ADDRESS_MIRROR: {
    i32 period = size * 2, rest = i % period;
    i32 there = rest < 0 ? rest + period : rest, back = period - 1 - there;
    return there < back ? there : back;
  }
  case ADDRESS_BORDER:
    return (u32)i < (u32)size ? i : OUTSIDE;
  default: {
    i32 high = i < size - 1 ? i : size - 1;
    return high > 0 ? high : 0;
  }
  }
}

/* Where a normalised coordinate lies in a texture of that size; whole periods are taken off first. */
static f64 scaled(f64 x, i32 mode, f64 size) {
  if (mode == ADDRESS_WRAP) x -= __builtin_floor(x);
  if (mode == ADDRESS_MIRROR) x -= __builtin_floor(x * 0.5) * 2.0;
  return x * size;
}

/* Between what i32 has place for; a NaN is 0. */
INLINE f64 bounded(f64 u) {
  f64 low = u >= -1.0e9 ? u : -1.0e9, high = low <= 1.0e9 ? low : 1.0e9;
  return u == u ? high : 0.0;
}

INLINE struct Tap tap_at(u32 word, i32 shift, i32 size, i32 mode, i32 normalized, flag linear) {
  f64 x = (f64)AS(f32, word);
  f64 u = bounded(normalized ? scaled(x, mode, (f64)size) : x);
  f64 steps = __builtin_floor(u * 256.0 - 127.5), place = __builtin_floor(linear ? steps * 0x1p-8 : u);
  i32 base = (i32)place;
  u32 weight = linear ? (u32)(i32)(steps - place * 256.0) : 0;
  i32 first = resolve(mode, size, base + shift), second = resolve(mode, size, base + shift + 1);
  /* Beyond the edge both are the edge, and the weight is that of the clamped place: it counts where weights are
     rounded. */
  return (struct Tap){{first, second}, mode == ADDRESS_CLAMP && first == second ? 0 : weight};
}

static NOINLINE void float_tap(u32 word, i32 shift, i32 size, i32 mode, i32 normalized, flag linear, struct Tap *tap) {
  *tap = tap_at(word, shift, size, mode, normalized, linear);
}

/* An element number: what lies outside reads as zeros. */
static void whole_tap(u32 word, i32 shift, i32 size, struct Tap *tap) {
  i32 i = (i32)word + shift;
  *tap = (struct Tap){{(u32)i < (u32)size ? i : OUTSIDE, OUTSIDE}, 0};
}

/* -- elements ---------------------------------------------------------------------------------------------------

   A channel as the word that the instruction returns. Normalised floats: CUDA C++ Programming Guide, "Texture
   Memory": unsigned integers are mapped to 0…1, signed ones to -1…1; the smallest one is -1 too. */

/* The integer that 1.0 stands for; 0 for floats and for words of 32 bits. */
INLINE f32 most_of(i32 format) {
  switch (format) {
  case FORMAT_UINT8: return 255;
  case FORMAT_INT8: return 127;
  case FORMAT_UINT16: return 65535;
  case FORMAT_INT16: return 32767;
  default: return 0;
  }
}

/* An integer of 8 or 16 bits. */
INLINE i32 narrow_channel(i32 format, const u8 *at, u32 index) {
  switch (format) {
  case FORMAT_UINT8: return at[index];
  case FORMAT_INT8: return ((const i8 *)at)[index];
  case FORMAT_UINT16: return ((const u16 *)at)[index];
  default: return ((const i16 *)at)[index];
  }
}

static NOINLINE u32 channel(const struct Descriptor *d, const u8 *at, u32 index, flag clamped) {
  f32 most = most_of(d->format);
  if (d->format == FORMAT_FLOAT16) return AS(u32, (f32)((const _Float16 *)at)[index]);
  if (most == 0) return ((const u32 *)at)[index];
  i32 word = narrow_channel(d->format, at, index);
  if (d->format == FORMAT_UINT8 && d->srgb && index < 3) return AS(u32, SRGB[word]);
  if (!d->as_float) return (u32)word;
  f32 part = (f32)word / most;
  return AS(u32, clamped ? __builtin_fmaxf(part, -1.0f) : part);
}

/* The four words of an element; OUTSIDE along an axis reads the border (or zeros, of `whole`). Channels that are not
   there are 0. What is filtered is clamped to -1 afterwards only. */
static NOINLINE void read_texel(const struct Descriptor *d, i32 x, i32 y, i32 z, flag whole, flag clamped, u32 *out) {
  flag missing = (x | y | z) < 0;
  for (u32 c = 0; c < CHANNELS; c++) out[c] = missing && !whole ? d->border[c] : 0;
  if (missing) return;
  const u8 *at = d->base + (u32)x * (u64)(u32)d->texel_bytes + (u32)y * d->row + (u32)z * d->slice;
  for (u32 c = 0; c < (u32)d->channels; c++) out[c] = channel(d, at, c, clamped);
}
