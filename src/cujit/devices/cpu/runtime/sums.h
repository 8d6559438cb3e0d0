/* How a tensor core sums: eight rows of A times eight columns of B, and C, in one alignment.

   The rule, of an H200 (driver 580, November 2026), for all products and the accumulator that one instruction of the
   machine adds to one element of D:

   * E is the largest of the exponent of C and, for each product that is not 0, the sum of the exponents of its
     factors; a subnormal number has the least exponent of its own format, whatever its leading zeros are, and so has
     a C of 0, but for that of an f16 sum of 8-bit floats in wgmma;
   * every exact product, and C, is cut toward zero to a multiple of 2 ** (E - width), and these are added exactly;
   * the sum is cut toward zero to f32, or rounded to nearest even to f16. A result of 0 is +0; at 2 ** 128 begins
     infinity. One product or C that is infinite or NaN decides as in any IEEE sum, and NaN is 0x7fffffff (0x7fff).

   The width is 25, and 13 for 8-bit floats in wgmma, whose f32 results also lose their last ten bits.
   Source: measured; recorded in tests/goldens/sums.npz, where every result is equal bit for bit. */

#pragma once

#include "products.h"

/* Sums of products from which on C could make them longer than 31 bits. */
enum { LARGE = (1u << 31) - (1 << 26) - 128 };
/* Exponents of factors between which every product, and what it is scaled by, is a normal f32. */
enum { LEAST = -51, LARGEST = 62 };
enum { INFINITE = 0x7f800000, NO_EXPONENT = -1000 };

/* An alignment: all elements of one half of the columns. */
struct Half {
  u32x32 c, highest; /* bits of C, and the exponent of C in its place */
  u8x32 below;       /* how far the largest product is below the most; 255 where there is none */
  f32x32 scale;      /* what brings the last place that counts to 1 */
  u32x32 top;        /* the power of two of the alignment, as f32 has it */
  i32x32 sum;
};

/* The exponents in the bits of numbers, with a floor below; `zero` for those that are 0. */
INLINE void find_exponents(u32x32 *to, const u32x32 *from, u32 floor, u32 zero) {
  u32x32 x = *from;
  u32x32 own = __builtin_elementwise_max(x & INFINITE, (u32x32)floor);
  *to = (x & 0x7fffffff) == 0 ? (u32x32)zero : own;
}

/* How far below 2 ** LARGEST the power of two is in each number, in bytes, of which 255 is 0; gives the most of these but
   for zeros. */
static u32 find_powers(u8x32 *to, const f32x32 *from, u32 count, u32 floor) {
  u32x32 most = 0;
  for (u32 k = 0; k < count; k++) {
    u32x32 x = AS(u32x32, from[k]);
    i32x32 none = (x & 0x7fffffff) == 0;
    u32x32 steps = (((127 + LARGEST) << 23) - __builtin_elementwise_max(x & INFINITE, (u32x32)floor)) >> 23;
    to[k] = __builtin_convertvector(none ? (u32x32)255 : steps, u8x32);
    most = __builtin_elementwise_max(most, none ? (u32x32)0 : steps);
  }
  return __builtin_reduce_max(most);
}

/* For each element, how far its largest product of powers of two is below the most. */
INLINE void find_largest(struct Half half[2], const u8x32 *a, const u8x32 *b, u32 strips) {
  u8x64 below = (u8x64)255;
  for (u32 k = 0; k < strips; k++) {
    u8x32 x = a[k];
    const u32x2 *y = (const u32x2 *)&b[k];
#define LEFTS(j) (u8x64) __builtin_shufflevector(x, x, ROWS(j), ROWS(j))
#define RIGHTS(j) AS(u8x64, __builtin_shufflevector(y[j], y[j], 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1))
#define NEARER(j) below = __builtin_elementwise_min(below, __builtin_elementwise_add_sat(LEFTS(j), RIGHTS(j)))
    NEARER(0), NEARER(1), NEARER(2), NEARER(3);
  }
  for (u32 p = 0; p < 2; p++) half[p].below = ((u8x32 *)&below)[p];
}

/* The power of two of each element's alignment, and what brings the last place that counts to 1. */
INLINE void find_scale(struct Half *half, u32 width) {
  u32x32 power = ((127 + 2 * LARGEST) - __builtin_convertvector(half->below, u32x32)) << 23;
  i32x32 none = __builtin_convertvector(half->below == 255, i32x32);
  half->top = __builtin_elementwise_max(none ? (u32x32)((127 + 2 * LEAST) << 23) : power, half->highest);
  half->scale = AS(f32x32, ((width + 254) << 23) - half->top);
}

/* Scale every product to units of the last place, cut it and add it. The products of so many strips cannot wrap; sums that
   would do so are large. */
enum { SAFE_STRIPS = 4 };
INLINE void add_products(struct Half *half, const f32x32 *a, const f32x32 *b, u32 strips, u32 eights, u32 next) {
  for (u32 n = 0; n < 2 * eights; n++) half[n].sum = (i32x32)0;
  for (u32 first = 0; first < strips; first += SAFE_STRIPS) {
    u32 end = first + SAFE_STRIPS < strips ? first + SAFE_STRIPS : strips;
    i32x32 sums[4] = {0};
    for (u32 k = first; k < end; k++) {
      const f32x4 *y = (const f32x4 *)&b[k];
      for (u32 n = 0; n < eights; n++) {
        f32x32 x = a[k + n * next];
#define PRODUCT(j, p) (SPREAD(f32x32, x, j) * REPEAT(f32x32, y[2 * (j) + (p)]))
#define ADD(j, p) sums[2 * n + p] += __builtin_convertvector(PRODUCT(j, p) * half[2 * n + p].scale, i32x32)
        ALL(ADD);
      }
    }
    for (u32 n = 0; n < 2 * eights; n++) half[n].sum = __builtin_elementwise_add_sat(half[n].sum, sums[n]);
  }
}

/* How the sum of one half becomes a number, cut, with the last bit set for the rest where it rounds on to f16; of C alone,
   C. `large` is the most that products sum up to. */
INLINE void end_sum(u32x32 *to, const struct Half *half, const struct Product *p, u32x32 *large) {
  f32x32 c = AS(f32x32, half->c);
  i32x32 own = __builtin_convertvector(c * half->scale, i32x32), total = half->sum + own;
  i32x32 size = total < 0 ? -total : total;
  *large = __builtin_elementwise_max(*large, AS(u32x32, half->sum < 0 ? -half->sum : half->sum));
  f32x32 near = __builtin_convertvector(size, f32x32);
  i32x32 back = __builtin_convertvector(near, i32x32);
  u32x32 bits = AS(u32x32, near) + AS(u32x32, back > size);
  bits |= AS(u32x32, back != size) & p->halves_sum;
  f32x32 value = AS(f32x32, bits) * (AS(f32x32, half->top) * AS(f32, (127 - p->width) << 23));
  u32x32 signs = AS(u32x32, value) | (AS(u32x32, total) & 0x80000000);
  i32x32 none = __builtin_convertvector(half->below == 255, i32x32);
  *to = (none ? AS(u32x32, c + 0.0f) : signs) & p->mask;
}

/* The exponent of a number as f32 has it in its bits, with the floor below; far less for 0. */
INLINE i32 exponent_of(f32 x, u32 floor) {
  u32 bits = AS(u32, x), own = bits & INFINITE;
  return bits & 0x7fffffff ? (i32)((own > floor ? own : floor) >> 23) : NO_EXPONENT;
}

/* 2 ** exponent */
INLINE f64 power_of_two(i32 exponent) { return AS(f64, (u64)(u32)(exponent + 1023) << 52); }

/* A sum of units of 2 ** -up; what is subnormal in f32 is cut to its places. */
INLINE f64 value_of(i64 sum, i32 up) {
  f64 value = (f64)sum * power_of_two(-up);
  if (!(__builtin_fabs(value) < 0x1p-126)) return value;
  return (f64)(i64)(value * 0x1p149) * 0x1p-149;
}

/* One element in f64 and 64-bit integers, whatever the numbers are. */
static f64 sum_exactly(f32 c, const f32 *a, const f32 *b, u32 strips, const struct Product *p) {
  u32 count = strips * 4;
  i32 own = exponent_of(c, p->floors[2]), zero = (i32)(p->zero_c >> 23);
  i32 most = (own > zero ? own : zero) - 127;
  f64 plain = (f64)c;
  for (u32 k = 0; k < count; k++) {
    f32 x = a[(k >> 2) * 32 + (k & 3)], y = b[(k >> 2) * 32 + (k & 3) * 8];
    i32 exponent = exponent_of(x, p->floors[0]) + exponent_of(y, p->floors[1]) - 254;
    most = exponent > most ? exponent : most;
    if (AS(u32, x) != p->absent) plain += (f64)x * (f64)y;
  }
  if (!(__builtin_fabs(plain) < __builtin_inf())) return plain;

  i32 up = (i32)p->width - most;
  i64 sum = (i64)((f64)c * power_of_two(up));
  for (u32 k = 0; k < count; k++) {
    f32 x = a[(k >> 2) * 32 + (k & 3)], y = b[(k >> 2) * 32 + (k & 3) * 8];
    sum += (i64)((AS(u32, x) != p->absent ? (f64)x * (f64)y : 0.0) * power_of_two(up));
  }
  return value_of(sum, up);
}

/* How a block-scaled product sums: the factors of a block of k, one for a row of A and one for a column of B, times the
   products of that block, and C, in one alignment.

   * Of FP4 the products of 16 neighbours are summed exactly, and that is one term; of other types each product is one.
   * The exponent of a term is the sum of those of its two factors, and, of a single product, those of its numbers; a
     subnormal number has the least exponent of its format.
   * E, the cut and the result are as above; the width is 35 for FP4, and 25 for other types.

   Source: microsoft/MMA-Sim at 735c9b7 (arXiv 2511.10909), "GST-FDPA" and "ST-FDPA" of RTX Blackwell. What it leaves
   open: of a sparse A 16 stored neighbours are taken for a term. */
struct Factors {
  f32x32 rows[2][4];
  f32x32 columns[4]; /* the first eight */
};

static f64 sum_scaled(f32 c, const f32 *a, const f32 *b, const f32 *left, const f32 *right, const struct Product *p) {
  u32 count = p->strips * 4, each = count / p->chunks, fused = p->a != TYPE_FP4 ? 1 : p->sparse ? 32 : 16;
  u32 floor = p->scale == TYPE_UE4M3 ? (127 - 6) << 23 : 0;
  f64 terms[128]; /* of as many steps of k as there are at most */
  f64 plain = (f64)c;
  i32 most = exponent_of(c, p->floors[2]);
  most = (most > 1 ? most : 1) - 127;
  for (u32 k = 0, n = 0; k < count; k += fused, n++) {
    f32 x = 0.0f, y = 0.0f, s = left[k / each * 32], t = right[k / each * 32];
    f64 product = 0.0;
    for (u32 j = k; j < k + fused; j++) {
      x = a[(j >> 2) * 32 + (j & 3)], y = b[(j >> 2) * 32 + (j & 3) * 8];
      if (AS(u32, x) != p->absent) product += (f64)x * (f64)y;
    }
    terms[n] = product * (f64)s * (f64)t;
    i32 exponent = exponent_of(s, floor) + exponent_of(t, floor) - 254;
    if (fused == 1) exponent += exponent_of(x, p->floors[0]) + exponent_of(y, p->floors[1]) - 254;
    if (terms[n] != 0.0 && exponent > most) most = exponent;
    plain += terms[n];
  }
  if (!(__builtin_fabs(plain) < __builtin_inf())) return plain;

  i32 up = (i32)p->width - most;
  i64 sum = (i64)((f64)c * power_of_two(up));
  for (u32 n = 0; n < count / fused; n++) sum += (i64)(terms[n] * power_of_two(up));
  return value_of(sum, up);
}

/* The way that takes all numbers: each element alone. */
static NOINLINE void all_exactly(f64 *sums, const f32 *d, const f32 *a, const f32 *b, u32 strips,
                                 const struct Product *p) {
  for (u32 i = 0; i < 64; i++) {
    u32 row = i & 28, column = ((i & 32) >> 3) + (i & 3);
    sums[i] = sum_exactly(d[i], a + row, b + column, strips, p);
  }
}

/* A sum in f64 to f32: cut, with the last bit set for the rest where it rounds on to f16. */
INLINE void finish(u32x32 *to, const f64x32 *sum, u32 mask, u32 last) {
  const u64 rest = (1 << 29) - 1; /* bits of an f64 below those of an f32 */
  u64x32 bits = AS(u64x32, *sum);
  u64x32 marked = (bits & ~rest) | ((bits & rest) != 0 ? (u64x32)((u64)last << 29) : (u64x32)0);
  f32x32 value = __builtin_convertvector(AS(f64x32, marked), f32x32);
  *to = value != value ? (u32x32)0x7fffffff : AS(u32x32, value) & mask;
}

/* Rows of A, columns of B and their factors, to the two vectors of D that are C at first. */
static NOINLINE void sum_all_scaled(f32x32 *d, const f32x32 *a, const f32x32 *b, const f32x32 *rows,
                                    const f32x32 *columns, const struct Product *p) {
  f64x32 sums[2];
  for (u32 i = 0; i < 64; i++) {
    u32 row = i & 28, column = ((i & 32) >> 3) + (i & 3);
    ((f64 *)sums)[i] = sum_scaled(((const f32 *)d)[i], (const f32 *)a + row, (const f32 *)b + column,
                                  (const f32 *)rows + row, (const f32 *)columns + column, p);
  }
  finish((u32x32 *)&d[0], &sums[0], p->mask, 0), finish((u32x32 *)&d[1], &sums[1], p->mask, 0);
}

/* The quick way, if it takes all the numbers. All eights of rows are summed at once: what one waits for, the other fills. */
INLINE flag sum_quickly(f32x32 *d, const f32x32 *a, const f32x32 *b, const u8x32 *powers_a, const u8x32 *powers_b,
                        u32 strips, u32 eights, u32 next, const struct Product *p) {
  struct Half half[4];
  u32x32 made[4], of_c = (u32x32)0, large = (u32x32)0;
  for (u32 k = 0; k < 2 * eights; k++) {
    half[k].c = AS(u32x32, d[k]);
    find_exponents(&half[k].highest, &half[k].c, p->floors[2], p->zero_c);
    of_c = __builtin_elementwise_max(of_c, half[k].highest);
  }
  if (__builtin_reduce_max(of_c) == INFINITE) return 0;
  for (u32 n = 0; n < eights; n++) find_largest(&half[2 * n], powers_a + n * next, powers_b, strips);
  for (u32 k = 0; k < 2 * eights; k++) find_scale(&half[k], p->width);
  add_products(half, a, b, strips, eights, next);
  for (u32 k = 0; k < 2 * eights; k++) end_sum(&made[k], &half[k], p, &large);
  if (__builtin_reduce_or(large >= LARGE)) return 0;
  for (u32 k = 0; k < 2 * eights; k++) d[k] = AS(f32x32, made[k]);
  return 1;
}

/* `d` is C as two vectors of f32 for each of so many eights of rows, which become D: in lane 4 * g + t the elements of
   row g and of columns 2 * t and 2 * t + 1. `a` and `b` are so many strips and columns of f32, those of the other rows
   `next` on; `furthest` is the most of their powers. */
static NOINLINE void sum_aligned(f32x32 *d, const f32x32 *a, const f32x32 *b, const u8x32 *powers_a,
                                 const u8x32 *powers_b, u32 furthest, u32 strips, u32 eights, u32 next,
                                 const struct Product *p) {
  if (furthest <= LARGEST - LEAST && (eights == 2 ? sum_quickly(d, a, b, powers_a, powers_b, strips, 2, next, p)
                                                  : sum_quickly(d, a, b, powers_a, powers_b, strips, 1, next, p))) {
    return;
  }
  for (u32 n = 0; n < eights; n++, d += 2, a += next) {
    f64x32 sums[2];
    all_exactly((f64 *)sums, (const f32 *)d, (const f32 *)a, (const f32 *)b, strips, p);
    finish((u32x32 *)&d[0], &sums[0], p->mask, p->halves_sum), finish((u32x32 *)&d[1], &sums[1], p->mask, p->halves_sum);
  }
}
