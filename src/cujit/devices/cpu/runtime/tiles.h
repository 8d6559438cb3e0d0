/* Registers of small matrices made strips, and the product of one tile: see products.h. */

#pragma once

#include "sums.h"

/* -- codes to numbers -------------------------------------------------------------------------------------------- */

#define EACH_QUAD(a, b, c, d) \
  { a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d }
static const u32x32 IN_QUAD = EACH_QUAD(0, 1, 2, 3), BYTE_AT = EACH_QUAD(0, 8, 16, 24), NIBBLE_AT = EACH_QUAD(0, 4, 8, 12);

/* All four lanes of every quad get what one of them has. */
INLINE u32x32 spread(u32x32 x, u32 lane) {
  switch (lane) {
  case 0: return SPREAD(u32x32, x, 0);
  case 1: return SPREAD(u32x32, x, 1);
  case 2: return SPREAD(u32x32, x, 2);
  default: return SPREAD(u32x32, x, 3);
  }
}

/* Small floats as f32, NaN where the code is. With the fields moved to those of f32, a number is too small by 2 to the
   difference of the biases, and subnormal where it was so. `first_nan` is the smallest magnitude that is NaN. */
INLINE u32x32 float_of(u32x32 code, u32 bits, u32 fraction, u32 first_nan, flag infinite) {
  u32 top = 1u << (bits - 1), bias = (1u << (bits - 2 - fraction)) - 1;
  u32x32 size = code & (top - 1);
  u32x32 value = AS(u32x32, AS(f32x32, size << (23 - fraction)) * AS(f32, (254 - bias) << 23));
  if (infinite) value = size == first_nan - 1 ? (u32x32)INFINITE : value;
  value = size >= first_nan ? (u32x32)0x7fffffff : value;
  return value | (code & top) << (32 - bits);
}

/* 2 to the power of the code less 127; the last code is no number. */
INLINE u32x32 power_of(u32x32 code) {
  return code == 0 ? (u32x32)(1 << 22) : code == 255 ? (u32x32)0x7fffffff : code << 23;
}

/* Codes become f32, as bits; only the own bits of a code are looked at. FP4 is e2m1 without a container.
   Source: PTX ISA 9.1, "mma": "the matrix element of type .e2m1 resides in central 4 bits of the 8-bit container", those
   of 6 bits in the lower ones. */
static NOINLINE void decode(u32x32 *codes, u32 count, u32 type) {
#define EACH(value)                                                                                              \
  for (u32 k = 0; k < count; k++) {                                                                              \
    u32x32 code = codes[k];                                                                                      \
    codes[k] = value;                                                                                            \
  }                                                                                                              \
  return
#define WHOLE(x) AS(u32x32, __builtin_convertvector((i32x32)(x), f32x32))
  switch (type) {
  case TYPE_U8: EACH(WHOLE(code & 255));
  case TYPE_S4: EACH(WHOLE((i32x32)(code << 28) >> 28));
  case TYPE_U4: EACH(WHOLE(code & 15));
  case TYPE_E4M3: EACH(float_of(code, 8, 3, 0x7f, 0));
  case TYPE_UE4M3: EACH(float_of(code & 0x7f, 8, 3, 0x7f, 0));
  case TYPE_E5M2: EACH(float_of(code, 8, 2, 0x7d, 1));
  case TYPE_E2M3: EACH(float_of(code, 6, 3, 0xff, 0));
  case TYPE_E3M2: EACH(float_of(code, 6, 2, 0xff, 0));
  case TYPE_E2M1: EACH(float_of(code >> 2, 4, 1, 0xff, 0));
  case TYPE_FP4: EACH(float_of(code, 4, 1, 0xff, 0));
  default: EACH(power_of(code & 255));
  }
}

/* Exchange rows and steps: four vectors, one for each step of k. */
#define TURN(type, to, from)                                                                                     \
  do {                                                                                                           \
    const type *rows = (const type *)(from);                                                                     \
    type *out = (type *)(to);                                                                                    \
    type x = __builtin_shufflevector(rows[0], rows[1], 0, 8, 1, 9, 4, 12, 5, 13);                                \
    type y = __builtin_shufflevector(rows[2], rows[3], 0, 8, 1, 9, 4, 12, 5, 13);                                \
    type z = __builtin_shufflevector(rows[0], rows[1], 2, 10, 3, 11, 6, 14, 7, 15);                              \
    type w = __builtin_shufflevector(rows[2], rows[3], 2, 10, 3, 11, 6, 14, 7, 15);                              \
    out[0] = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13);                                            \
    out[1] = __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);                                          \
    out[2] = __builtin_shufflevector(z, w, 0, 1, 8, 9, 4, 5, 12, 13);                                            \
    out[3] = __builtin_shufflevector(z, w, 2, 3, 10, 11, 6, 7, 14, 15);                                          \
  } while (0)

/* -- products ---------------------------------------------------------------------------------------------------- */

/* In the order of k, with one rounding for each product and sum. */
static void fuse(f32x32 d[2], const f32x32 *a, const f32x32 *b, u32 strips) {
  f32x32 sums[2] = {d[0], d[1]};
  for (u32 k = 0; k < strips; k++) {
    f32x32 x = a[k];
    const f32x4 *y = (const f32x4 *)&b[k];
#define FUSE(j, p) sums[p] = __builtin_elementwise_fma(SPREAD(f32x32, x, j), REPEAT(f32x32, y[2 * (j) + (p)]), sums[p])
    ALL(FUSE);
  }
  d[0] = sums[0], d[1] = sums[1];
}

INLINE u32x32 count_bits(u32x32 x) {
  x -= x >> 1 & 0x55555555;
  x = (x & 0x33333333) + (x >> 2 & 0x33333333);
  return ((x + (x >> 4)) & 0x0f0f0f0f) * 0x01010101 >> 24;
}

/* The bits that `xor` or `and` leaves. */
static void count(u32x32 d[2], const u32x32 *a, const u32x32 *b, u32 strips, flag is_xor) {
  for (u32 k = 0; k < strips; k++) {
    u32x32 x = a[k];
    const u32x4 *y = (const u32x4 *)&b[k];
#define LEFT(j) SPREAD(u32x32, x, j)
#define RIGHT(j, p) REPEAT(u32x32, y[2 * (j) + (p)])
#define COUNT(j, p) d[p] += count_bits(is_xor ? LEFT(j) ^ RIGHT(j, p) : LEFT(j) & RIGHT(j, p))
    ALL(COUNT);
  }
}

enum { ALL_STRIPS = 64, OWN_STRIPS = 32 };

/* All strips of A, or the columns of one tile of B, with their powers and the most of these where sums are aligned. */
struct Side {
  f32x32 numbers[ALL_STRIPS];
  u8x32 powers[ALL_STRIPS];
  u32 furthest;
};

/* Sum as a tensor core does; what rounds to 0 in f16 is +0. */
static void align(const struct Product *p, f32x32 *sums, const struct Side *a, u32 first, const struct Side *b) {
  u32 size = p->strips / p->groups, count = 2 * p->halves;
  f32x32 c[4];
  for (u32 k = 0; k < count && p->apart; k++) c[k] = sums[k], sums[k] = 0.0f;
  for (u32 group = 0; group < p->groups; group++) {
    u32 at = first + group * size, of_b = group * size;
    sum_aligned(sums, a->numbers + at, b->numbers + of_b, a->powers + at, b->powers + of_b,
                a->furthest > b->furthest ? a->furthest : b->furthest, size, p->halves, p->strips, p);
    for (u32 k = 0; k < count && p->halves_sum; k++) {
      sums[k] = __builtin_convertvector(__builtin_convertvector(sums[k], f16x32), f32x32) + 0.0f;
    }
  }
  for (u32 k = 0; k < count && p->apart; k++) {
    sums[k] += c[k];
    sums[k] = sums[k] != sums[k] ? AS(f32x32, (u32x32)0x7fffffff) : sums[k];
  }
}

INLINE f32x32 f16_at(u32x32 words, u32 shift) {
  return __builtin_convertvector(AS(f16x32, __builtin_convertvector(words >> shift, u16x32)), f32x32);
}

INLINE u32x32 f16_bits(f32x32 x) {
  return __builtin_convertvector(AS(u16x32, __builtin_convertvector(x, f16x32)), u32x32);
}

/* One tile: A's strips from `first` on, B's columns, the registers of C, to those of D. Registers 2 * r + p of C and D have rows 8 * r on,
   of every two columns the one of parity p; of f16, one register has both. Integers are summed as floats, exactly, and C
   is added at the end. */
static NOINLINE void tile(const struct Product *p, u32x32 *d, const u32x32 *c, const struct Side *a, u32 first,
                          const struct Side *b, const struct Factors *factors) {
  if (p->groups == 1 && c == d && p->c == TYPE_F32 && p->d == TYPE_F32) {
    align(p, (f32x32 *)d, a, first, b);
    return;
  }
  u32 count_of_sums = 2 * p->halves, whole = p->c == TYPE_S32 && !p->operation;
  f32x32 sums[4];
  for (u32 k = 0; k < count_of_sums; k++) {
    sums[k] = p->c == TYPE_F16 ? f16_at(c[k / 2], 16 * (k & 1)) : whole ? (f32x32)0.0f : AS(f32x32, c[k]);
  }
  if (p->groups) align(p, sums, a, first, b);
  for (u32 half = 0; half < p->halves && !p->groups; half++) {
    const f32x32 *own = a->numbers + first + half * p->strips;
    if (p->chunks) {
      sum_all_scaled(&sums[2 * half], own, b->numbers, factors->rows[half], factors->columns, p);
    } else if (p->operation) {
      count((u32x32 *)&sums[2 * half], (const u32x32 *)own, (const u32x32 *)b->numbers, p->strips, p->operation == OPERATION_XOR);
    } else {
      fuse(&sums[2 * half], own, b->numbers, p->strips);
    }
  }
  for (u32 k = 0; k < count_of_sums; k++) {
    if (p->d == TYPE_F16) {
      if (k & 1) d[k / 2] = f16_bits(sums[k - 1]) | f16_bits(sums[k]) << 16;
    } else if (whole) {
      i32x32 sum = __builtin_convertvector(sums[k], i32x32), addend = AS(i32x32, c[k]);
      d[k] = AS(u32x32, p->saturate ? __builtin_elementwise_add_sat(sum, addend) : sum + addend);
    } else {
      d[k] = AS(u32x32, sums[k]);
    }
  }
}
