/* Exact directed rounding of f64.

   A directed result is the nearest one, moved by one unit in the last place where it lies on the wrong side. So each
   operation gives its nearest result and a *rest*: a value with the sign of the exact result less the nearest one. A
   rest that is NaN (of infinities and NaNs) moves nothing.

   Sources: IEEE 754-2019, 4.3.2 (directed roundings), 6.3 (sign of a zero sum), 7.4 (overflow); Knuth, The Art of
   Computer Programming 2, 4.2.2 (the error of a sum); Boldo and Muller, "Exact and Approximated Error of the FMA", IEEE
   Transactions on Computers 60 (2011) (the error of a fused multiply-add). */

#include "launch.h"

INLINE f64 size_of(f64 x) { return __builtin_fabs(x); }
INLINE flag is_finite(f64 x) { return size_of(x) < __builtin_inf(); }
INLINE f64 scaled_if(flag condition, f64 x, f64 factor) { return condition ? x * factor : x; }
INLINE f64 with_sign_by(f64 x, f64 by) { return AS(f64, AS(u64, x) ^ (AS(u64, by) & 1ull << 63)); }

/* The result, or its neighbour where `mode` asks for that. */
static f64 stepped(f64 nearest, f64 rest, u32 mode) {
  u64 bits = AS(u64, nearest);
  flag minus = bits >> 63;
  if (mode == ROUND_RZ) return (minus ? rest > 0.0 : rest < 0.0) ? AS(f64, bits - 1) : nearest;
  if (!(mode == ROUND_RM ? rest < 0.0 : rest > 0.0)) return nearest;
  if (nearest == 0.0) return mode == ROUND_RM ? -0x1p-1074 : 0x1p-1074;
  return AS(f64, minus == (mode == ROUND_RM) ? bits + 1 : bits - 1);
}

/* An exact zero sum is plus; rounding down, it is minus unless both terms are plus. */
INLINE f64 zero_sum(f64 result, flag is_zero, f64 x, f64 y, u32 mode) {
  if (mode != ROUND_RM || !is_zero) return result;
  return (AS(u64, x) | AS(u64, y)) >> 63 ? -0.0 : 0.0;
}

/* Give the nearest sum, and its error by Knuth's sum of six operations. */
INLINE f64 two_sum(f64 x, f64 y, f64 *error) {
  f64 total = x + y, of_y = total - x, of_x = total - of_y;
  *error = (x - of_x) + (y - of_y);
  return total;
}

static f64 directed_sum(f64 x, f64 y, u32 mode) {
  f64 error, total = two_sum(x, y, &error);
  flag beyond = is_finite(x) && is_finite(y) && !is_finite(total);
  return zero_sum(stepped(total, beyond ? -total : error, mode), total == 0.0, x, y, mode);
}

/* Near the smallest numbers both are scaled up so that the sign of the rest survives. A product that vanished leaves all
   of itself; a factor of 0 gives 0, or NaN with an infinite one: neither moves. */
static f64 directed_product(f64 x, f64 y, u32 mode) {
  f64 product = x * y;
  flag small = size_of(product) < 0x1p-900, x_smaller = size_of(x) < size_of(y);
  f64 scaled_x = scaled_if(small && x_smaller, x, 0x1p700), scaled_y = scaled_if(small && !x_smaller, y, 0x1p700);
  f64 rest = __builtin_fma(scaled_x, scaled_y, -scaled_if(small, product, 0x1p700));
  return stepped(product, product == 0.0 ? x * 0x1p600 * (y * 0x1p600) : rest, mode);
}

/* The sign of x / y - quotient is that of (x - quotient y) / y. */
static f64 directed_quotient(f64 x, f64 y, u32 mode) {
  f64 quotient = x / y;
  flag small = size_of(x) < 0x1p-900, low = small && size_of(y) <= 1.0;
  f64 q = scaled_if(small && !low, quotient, 0x1p900);
  f64 rest = __builtin_fma(-q, scaled_if(low, y, 0x1p900), scaled_if(small, x, 0x1p900));
  return stepped(quotient, with_sign_by(rest, y), mode);
}

static f64 directed_root(f64 x, u32 mode) {
  f64 root = __builtin_sqrt(x);
  flag small = size_of(x) < 0x1p-900;
  f64 q = scaled_if(small, root, 0x1p450);
  return stepped(root, __builtin_fma(-q, q, scaled_if(small, x, 0x1p900)), mode);
}

/* Binary orders between product and addend from which on only the sign of the smaller one counts: 4 x 53 and some. */
enum { FAR = 220 };

/* A number of 1 to 2, and an exponent of two; 0 stays 0, with an exponent below all others. */
INLINE f64 split(f64 x, i64 *exponent) {
  flag small = size_of(x) < 0x1p-1022;
  u64 bits = AS(u64, scaled_if(small, x, 0x1p64));
  *exponent = x == 0.0 ? -4000 : (i64)(bits >> 52 & 0x7ff) - (small ? 1023 + 64 : 1023);
  return x == 0.0 ? x : AS(f64, (bits & 0x800fffffffffffff) | 1023ull << 52);
}

INLINE i64 within(i64 x, i64 low, i64 high) { return x < low ? low : x > high ? high : x; }

/* Times a power of two of up to 4096, in four steps; each is held to what a number can be. */
static f64 times_power(f64 x, i64 exponent) {
  i64 quarter = exponent >> 2, last = exponent - quarter * 3;
  for (u32 k = 0; k < 4; k++) x *= AS(f64, (u64)(within(k < 3 ? quarter : last, -1022, 1023) + 1023) << 52);
  return x;
}

/* The sign of x y + z - result, where `result` may be rounded to fewer bits than f64 has: against the nearest value in
   f64, the difference is exact and larger than that value's own error; where they are the same, what is left is the
   error of the fused multiply-add, which Boldo and Muller give as two terms. */
static f64 rest_of_fma(f64 x, f64 y, f64 z, f64 result) {
  f64 nearest = __builtin_fma(x, y, z), product = x * y, alpha_error, beta_error;
  if (nearest != result) return nearest - result;
  f64 alpha = two_sum(z, __builtin_fma(x, y, -product), &alpha_error);
  f64 beta = two_sum(product, alpha, &beta_error);
  return beta - nearest + beta_error + alpha_error;
}

/* Bring the factors to 1…2 and the addend and the result along, where no error term is lost. */
static f64 directed_fma(f64 x, f64 y, f64 z, u32 mode) {
  f64 nearest = __builtin_fma(x, y, z), rest = 0.0, of_product = with_sign_by(__builtin_copysign(1.0, x), y);
  if (x != 0.0 && y != 0.0 && is_finite(x) && is_finite(y) && is_finite(z)) {
    i64 ex, ey, ez;
    f64 mx = split(x, &ex), my = split(y, &ey), mz = split(z, &ez);
    i64 apart = ez - (ex + ey);
    f64 addend = times_power(mz, within(apart, -FAR, FAR)), scaled = times_power(nearest, -(ex + ey));
    rest = apart > FAR ? of_product : rest_of_fma(mx, my, addend, scaled);
  }
  return zero_sum(stepped(nearest, rest, mode), nearest == 0.0 && rest == 0.0, of_product, z, mode);
}

/* An operation of so many lanes. */
void cujit_directed(f64 *d, const f64 *x, const f64 *y, const f64 *z, u32 count, u32 operation, u32 mode) {
  for (u32 k = 0; k < count; k++) {
    switch (operation) {
    case DIRECTED_ADD: d[k] = directed_sum(x[k], y[k], mode); break;
    case DIRECTED_MUL: d[k] = directed_product(x[k], y[k], mode); break;
    case DIRECTED_DIV: d[k] = directed_quotient(x[k], y[k], mode); break;
    case DIRECTED_SQRT: d[k] = directed_root(x[k], mode); break;
    default: d[k] = directed_fma(x[k], y[k], z[k], mode); break;
    }
  }
}
