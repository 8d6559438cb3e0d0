/* Where the coordinates of a warp lie along an axis, and what the elements there hold. Lanes are handled eight at a time;
   those that ask for nothing have places in the texture, too. */

#pragma once

#include "textures.h"

enum { LANES = 8 };
typedef f64 f64s __attribute__((vector_size(8 * LANES)));
typedef i64 i64s __attribute__((vector_size(8 * LANES)));
typedef u64 u64s __attribute__((vector_size(8 * LANES)));
typedef f32 f32s __attribute__((vector_size(4 * LANES)));
typedef i32 i32s __attribute__((vector_size(4 * LANES)));
typedef u32 u32s __attribute__((vector_size(4 * LANES)));
typedef _Float16 f16s __attribute__((vector_size(2 * LANES)));
typedef u16 u16s __attribute__((vector_size(2 * LANES)));
typedef i16 i16s __attribute__((vector_size(2 * LANES)));
typedef u8 u8s __attribute__((vector_size(LANES)));
typedef i8 i8s __attribute__((vector_size(LANES)));

#define PICK(type, mask, yes, no) ((type)((mask) & (yes)) | (type)(~(mask) & (no)))
#define TO(type, value) __builtin_convertvector(value, type)
/* A vector in memory, wherever that begins. */
#define AT(type, words) (((struct __attribute__((packed)) { type value; } *)(words))->value)
#define FOR_GROUPS(lane) for (u32 lane = 0; lane < WARP; lane += LANES)

INLINE f64s pick(i64s mask, f64s yes, f64s no) { return (f64s)PICK(i64s, mask, (i64s)yes, (i64s)no); }
INLINE f32s pick_f32(i32s mask, f32s yes, f32s no) { return (f32s)PICK(i32s, mask, (i32s)yes, (i32s)no); }
INLINE flag is_any(i32s mask) { return __builtin_reduce_or(mask) != 0; }

/* -- coordinates -------------------------------------------------------------------------------------------------

   Sources: CUDA C++ Programming Guide, "Texture Fetching": i = floor(x), or of x - 0.5 with the fraction in 8 bits for
   linear filtering; "Texture Memory": what each addressing mode reads. Coordinates are handled in f64, where x times
   a size is exact. */

/* Where each lane reads along an axis: an index, the next, and the weight of the next in 1/256. OUTSIDE is where the
   border is. */
struct Taps {
  _Alignas(64) i32 first[WARP], second[WARP], weight[WARP];
};

enum { OUTSIDE = -1 };

/* The rest of a division, not negative. The quotient is exact enough: it has 31 bits, and a size fewer than 20. */
INLINE i32s rest_of(i32s i, i32 size) {
  if (!is_any((i < 0) | (i >= size))) return i;
  f64s x = TO(f64s, i), n = (f64s){} + (f64)size;
  return TO(i32s, x - __builtin_elementwise_floor(x / n) * n);
}

/* What the modes read beyond the edges. */
INLINE i32s resolved(i32 mode, i32 size, i32s i) {
  i32s last = (i32s){} + (size - 1), zero = {};
  if (mode == ADDRESS_WRAP) return rest_of(i, size);
  if (mode == ADDRESS_BORDER) return PICK(i32s, (i >= zero) & (i <= last), i, zero + OUTSIDE);
  if (mode == ADDRESS_MIRROR) {
    i32s there = rest_of(i, size * 2), back = size * 2 - 1 - there;
    return __builtin_elementwise_min(there, back);
  }
  return __builtin_elementwise_max(__builtin_elementwise_min(i, last), zero);
}

/* Where coordinates lie in a texture of that size; whole periods are taken off normalized ones first. */
INLINE f64s scaled(f64s x, i32 mode, i32 size, flag normalized) {
  if (!normalized) return x;
  if (mode == ADDRESS_WRAP) x -= __builtin_elementwise_floor(x);
  if (mode == ADDRESS_MIRROR) x -= __builtin_elementwise_floor(x * 0.5) * 2.0;
  return x * (f64)size;
}

/* Between what i32 has place for; a NaN is 0. */
INLINE f64s bounded(f64s u) {
  f64s most = (f64s){} + 1.0e9;
  i64s is_number = u == u;
  u = pick(u >= -most, u, -most);
  return (f64s)((i64s)pick(u <= most, u, most) & is_number);
}

/* Beyond the edge both are the edge, and the weight is that of the clamped place: it counts where weights are rounded. */
static NOINLINE void float_taps(const u32 *words, const u32 *shifts, i32 size, i32 mode, flag normalized, flag linear,
                                struct Taps *taps) {
  FOR_GROUPS(lane) {
    f64s u = bounded(scaled(TO(f64s, AT(f32s, words + lane)), mode, size, normalized));
    f64s steps = __builtin_elementwise_floor(u * 256.0 - 127.5);
    f64s place = __builtin_elementwise_floor(linear ? steps * 0x1p-8 : u);
    i32s base = TO(i32s, place) + AT(i32s, shifts + lane), weight = {};
    i32s first = resolved(mode, size, base), second = first;
    if (linear) {
      second = resolved(mode, size, base + 1);
      weight = TO(i32s, steps - place * 256.0);
      if (mode == ADDRESS_CLAMP) weight &= first != second;
    }
    AT(i32s, taps->first + lane) = first;
    AT(i32s, taps->second + lane) = second;
    AT(i32s, taps->weight + lane) = weight;
  }
}

/* Element numbers: what lies outside reads as zeros. */
static void whole_taps(const u32 *words, const u32 *shifts, i32 size, struct Taps *taps) {
  for (u32 lane = 0; lane < WARP; lane++) {
    i32 i = (i32)(words[lane] + shifts[lane]);
    taps->first[lane] = taps->second[lane] = (u32)i < (u32)size ? i : OUTSIDE;
    taps->weight[lane] = 0;
  }
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

/* Whether integers are read as integers. */
INLINE flag is_whole(const struct Descriptor *d) { return d->format < FORMAT_FLOAT16 && !d->as_float; }

/* Where the elements of eight lanes are. */
struct Spots {
  _Alignas(64) const u8 *at[LANES];
  i32s missing; /* the border is there */
};

/* What the taps of eight lanes add to an address, of their first index and of their second. */
struct Steps {
  u64s bytes[2];
  i32s missing[2];
};

INLINE void take_steps(const i32 *indices, u64 step, u64s *bytes, i32s *missing) {
  i32s i = AT(i32s, indices);
  *missing = i < 0;
  u64s wide = TO(u64s, (u32s)(i & ~*missing));
  *bytes = wide * (step & 0xffffffff);
  if (step >> 32) *bytes += wide * (step >> 32) << 32;
}

INLINE void find_steps(const struct Taps *taps, u32 lane, u64 step, struct Steps *steps) {
  take_steps(taps->first + lane, step, &steps->bytes[0], &steps->missing[0]);
  take_steps(taps->second + lane, step, &steps->bytes[1], &steps->missing[1]);
}

/* Read an element of 1, 2 or 4 bytes at each of eight addresses. tools/runtime.py puts an instruction of LLVM's in place of
   this. */
INLINE void gather(const u64 *at, u32 bytes, u32 *into) {
  for (u32 k = 0; k < LANES; k++) {
    into[k] = 0;
    __builtin_memcpy(into + k, (const u8 *)at[k], bytes);
  }
}

INLINE u32s elements_of(const struct Spots *spots, u32 bytes, u32 c) {
  u64 at[LANES];
  u32 found[LANES];
  AT(u64s, at) = AT(u64s, spots->at) + bytes * c;
  gather(at, bytes, found);
  return AT(u32s, found);
}

INLINE u32s extended(u32s words, u32 bits) { return (u32s)((i32s)(words << (32 - bits)) >> (i32)(32 - bits)); }

/* A channel as memory has it, in 32 bits. */
INLINE u32s memory_words(i32 format, const struct Spots *spots, u32 c) {
  switch (format) {
  case FORMAT_UINT8: return elements_of(spots, 1, c);
  case FORMAT_INT8: return extended(elements_of(spots, 1, c), 8);
  case FORMAT_UINT16: return elements_of(spots, 2, c);
  case FORMAT_INT16: return extended(elements_of(spots, 2, c), 16);
  case FORMAT_FLOAT16: return (u32s)TO(f32s, (f16s)TO(u16s, elements_of(spots, 2, c)));
  default: return elements_of(spots, 4, c);
  }
}

INLINE u32s srgb_words(u32s codes) {
  for (u32 k = 0; k < LANES; k++) codes[k] = AS(u32, SRGB[codes[k]]);
  return codes;
}

INLINE u32s words_there(const struct Descriptor *d, const struct Spots *spots, u32 c) {
  u32s words = memory_words(d->format, spots, c);
  f32 most = most_of(d->format);
  if (most == 0) return words;
  if (d->format == FORMAT_UINT8 && d->srgb && c < 3) return srgb_words(words);
  if (!d->as_float) return words;
  return (u32s)__builtin_elementwise_max(TO(f32s, (i32s)words) / most, (f32s){} - 1.0f);
}

/* A channel of eight elements; OUTSIDE along an axis reads the border (or zeros, of `whole`). */
INLINE u32s words_of(const struct Descriptor *d, const struct Spots *spots, u32 c, flag whole) {
  u32s words = words_there(d, spots, c);
  return PICK(u32s, (u32s)spots->missing, (u32s){} + (whole ? 0 : d->border[c]), words);
}
