/* Matrix instructions of a warp: products of small matrices. */

#include "rows.h"
#include "tiles.h"

/* -- registers to strips ----------------------------------------------------------------------------------------- */

/* Strips that one register holds; single bits count as words of 32. */
INLINE u32 strips_in(u32 type) {
  if (type == TYPE_F16 || type == TYPE_BF16) return 2;
  if (type == TYPE_S4 || type == TYPE_U4 || type == TYPE_FP4) return 8;
  return type == TYPE_TF32 || type == TYPE_B1 || type == TYPE_F64 ? 1 : 4;
}

#define PAIR(of, k) 2 * (k) + (of)
#define PAIRS(of) PAIR(of, 0), PAIR(of, 1), PAIR(of, 2), PAIR(of, 3), PAIR(of, 4), PAIR(of, 5), PAIR(of, 6), PAIR(of, 7)
#define FOURS(x, of) AS(u16x32, __builtin_shufflevector(AS(u64x16, x), AS(u64x16, x), PAIRS(of)))

/* Strip q has elements 4q to 4q + 3 of every row; `by_bytes`, byte q of every word. */
static NOINLINE void unpack(u32x32 *to, const u32x32 *word, u32 type, flag by_bytes) {
  u32x32 words = *word;
#define HALF(q) AS(u32x32, __builtin_convertvector(AS(f16x32, FOURS(words, q)), f32x32))
#define BFLOAT(q) __builtin_convertvector(FOURS(words, q), u32x32) << 16
#define NIBBLES(q) to[2 * (q)] = SPREAD(u32x32, words, q) >> NIBBLE_AT, to[2 * (q) + 1] = to[2 * (q)] >> 16
#define SIGNED(q) to[q] = WHOLE((i32x32)(SPREAD(u32x32, words, q) << (24 - BYTE_AT)) >> 24)
#define BYTES(q) to[q] = by_bytes ? words >> 8 * (q) : SPREAD(u32x32, words, q) >> BYTE_AT
  switch (type) {
  case TYPE_F16: to[0] = HALF(0), to[1] = HALF(1); return;
  case TYPE_BF16: to[0] = BFLOAT(0), to[1] = BFLOAT(1); return;
  case TYPE_TF32: to[0] = words & ~0x1fffu; return; /* the low 13 bits are no part of the number */
  case TYPE_B1: to[0] = words; return;
  case TYPE_S8: SIGNED(0), SIGNED(1), SIGNED(2), SIGNED(3); return;
  case TYPE_S4:
  case TYPE_U4:
  case TYPE_FP4: NIBBLES(0), NIBBLES(1), NIBBLES(2), NIBBLES(3), decode(to, 8, type); return;
  default: BYTES(0), BYTES(1), BYTES(2), BYTES(3), decode(to, 4, type);
  }
}

/* Where strip q of a register is, the `step`th along k, among so many: in their order; or of every word, bytes 0 and 1
   in the first half of them and bytes 2 and 3 in the other; or of every eight elements the first four and the others. */
INLINE u32 place_of(u32 q, u32 step, u32 each, u32 strips, u32 layout) {
  if (layout == LAYOUT_ORDER) return step * each + q;
  u32 group = layout == LAYOUT_BYTES ? q >> 1 : q & 1, inside = layout == LAYOUT_BYTES ? q & 1 : q >> 1;
  return group * (strips / 2) + step * (each / 2) + inside;
}

/* Unpack registers, so many for each of the halves of rows, into so many strips each, or turned into columns. */
static NOINLINE void unpack_all(u32x32 *to, const u32x32 *words, u32 type, u32 halves, u32 steps, u32 layout, flag turns) {
  u32 each = strips_in(type), strips = steps * each;
  for (u32 step = 0; step < steps; step++) {
    for (u32 half = 0; half < halves; half++) {
      u32x32 found[8];
      if (!turns && layout == LAYOUT_ORDER) {
        unpack(&to[half * strips + step * each], words++, type, 0);
        continue;
      }
      unpack(found, words++, type, layout == LAYOUT_BYTES);
      for (u32 q = 0; q < each; q++) {
        u32x32 *place = &to[half * strips + place_of(q, step, each, strips, layout)];
        if (turns) {
          TURN(f32x8, place, &found[q]);
        } else {
          *place = found[q];
        }
      }
    }
  }
}

/* Of f16 or bf16: the least code whose power a quick sum takes, how many codes on the last one is, where the exponent
   begins, and what its code is taken from for a power. */
struct Codes {
  u16 least, span, shift, top;
};
static const struct Codes F16_CODES = {1, 0x7bfe, 10, LARGEST + 15},
                          BF16_CODES = {(127 + LEAST) << 7, ((LARGEST - LEAST + 1) << 7) - 1, 7, LARGEST + 127};

/* Strip k of numbers of 16 bits, and its powers; `far` is the most that a code is beyond the least, or before it. */
INLINE void widen(struct Side *to, u32 k, u16x32 codes, const struct Codes *own, u16x32 *far) {
  u16x32 size = codes & 0x7fff, exponent = __builtin_elementwise_max(size >> own->shift, (u16x32)1);
  to->numbers[k] = own->shift == 7 ? AS(f32x32, __builtin_convertvector(codes, u32x32) << 16)
                           : __builtin_convertvector(AS(f16x32, codes), f32x32);
  to->powers[k] = __builtin_convertvector(size == 0 ? (u16x32)255 : own->top - exponent, u8x32);
  *far = __builtin_elementwise_max(*far, size == 0 ? (u16x32)0 : size - own->least);
}

/* A block of A, or the columns of a tile of B, of f16 or bf16: what `unpack_all` and `find_powers` make, of 16 bits at a
   time. */
static NOINLINE void widen_all(struct Side *to, u32 first, const u32x32 *words, u32 type, u32 halves, u32 steps, flag turns) {
  struct Codes own = type == TYPE_F16 ? F16_CODES : BF16_CODES;
  u16x32 far = 0;
  for (u32 step = 0; step < steps; step++) {
    for (u32 half = 0; half < halves; half++, words++) {
      u32 at = first + 2 * (half * steps + step);
      u32x32 word = *words;
      u16x32 codes[2] = {FOURS(word, 0), FOURS(word, 1)};
      if (turns) {
        for (u32 k = 0; k < 8; k++) ((u16x8 *)codes)[k] = ((const u16x8 *)words)[k % 4 * 2 + k / 4];
        turn((u16x8 *)codes);
      }
      for (u32 q = 0; q < 2; q++) widen(to, at + q, codes[q], &own, &far);
    }
  }
  if (__builtin_reduce_max(far) > own.span) to->furthest = ~0u;
}

/* -- sparse A ---------------------------------------------------------------------------------------------------- */

/* Metadata of every row of a half, from a bit of so many on, to all lanes of the row's quad.

   Types of 16 bits and more have those of row g in the lower half of a register, and of row g + 8 in the upper one;
   smaller types have a register for each. The selector says which lanes of the quad count. */
static u32x32 metadata_at(const struct Product *p, u32x32 word, u32 half, u32 at, u32 row_bits) {
  u32 lane, shift;
  if (strips_in(p->a) <= 2) {
    lane = (row_bits == 16 ? p->selector : 2 * p->selector) + at / 16;
    shift = 16 * half + at % 16;
  } else {
    lane = 2 * (row_bits == 32 ? p->selector : at / 32) + half;
    shift = at % 32;
  }
  return spread(word, lane & 3) >> (shift & 31);
}

#define CELL(k, x, y) (k) + (x), (k) + (y)
#define EVERY(a, b, c, d, k) CELL(k, a, b), CELL(k, c, d), CELL((k) + 4, a, b), CELL((k) + 4, c, d)
#define PICK(x, a, b, c, d) \
  __builtin_shufflevector(x, x, EVERY(a, b, c, d, 0), EVERY(a, b, c, d, 8), EVERY(a, b, c, d, 16), EVERY(a, b, c, d, 24))

/* Choose, of two stored values, the one whose index, of two bits each, is this lane's place. */
INLINE u32x32 placed(u32x32 where, u32x32 bits, u32x32 first, u32x32 second, u32x32 absent) {
  return (bits & 3) == where ? first : (bits >> 2 & 3) == where ? second : absent;
}

/* Two strips of one that is stored: two of four pairs of elements are there, over two strips; two of four elements, in
   two bits each; or one of two, told by the highest of four bits (0b0100 the first, 0b1110 not). */
static NOINLINE void expand(u32x32 *low, u32x32 *high, u32x32 stored, u32x32 bits, u32 row_bits, u32 absent) {
  u32x32 none = absent;
  if (row_bits == 4) {
    u32x32 first = PICK(stored, 0, 1, 0, 1), second = PICK(stored, 2, 3, 2, 3);
    *low = placed(IN_QUAD >> 1, bits, first, second, none);
    *high = placed((IN_QUAD >> 1) + 2, bits, first, second, none);
  } else if (row_bits == 8) {
    *low = placed(IN_QUAD, bits, SPREAD(u32x32, stored, 0), SPREAD(u32x32, stored, 1), none);
    *high = placed(IN_QUAD, bits >> 4, SPREAD(u32x32, stored, 2), SPREAD(u32x32, stored, 3), none);
  } else {
    u32x32 shift = (IN_QUAD >> 1) * 4 + 3, odd = IN_QUAD & 1;
    *low = (bits >> shift & 1) == odd ? PICK(stored, 0, 0, 1, 1) : none;
    *high = (bits >> (shift + 8) & 1) == odd ? PICK(stored, 2, 2, 3, 3) : none;
  }
}

/* Fill up both halves of A; what is stored is never -0, which stands for what is not, where sums look at that. */
static void expand_all(const struct Product *p, u32x32 *full, const u32x32 *stored, u32x32 metadata) {
  u32 count = p->strips / 2, chunks = p->layout == LAYOUT_CHUNKS;
  for (u32 k = 0; k < 2 * count; k++) {
    u32 half = k / count, n = k % count;
    u32x32 own = AS(u32x32, AS(f32x32, stored[k]) + 0.0f);
    u32x32 *to = &full[half * p->strips + (chunks ? n : 2 * n)];
    u32x32 bits = metadata_at(p, metadata, half, n * p->sparse, count * p->sparse);
    expand(to, to + (chunks ? count : 1), own, bits, p->sparse, p->filler);
  }
}

/* -- block scaling ----------------------------------------------------------------------------------------------- */

static void factor_of(f32x32 *to, const struct Product *p, u32x32 word, u32 lane, u32 byte) {
  *to = AS(f32x32, spread(word, lane & 3) >> 8 * (byte & 3));
  decode((u32x32 *)to, 1, p->scale);
}

/* Of the quad of a row, lane 2 * thread_a has the factors of row g and the next lane those of row g + 8; of the quad of
   a column, lane thread_b. Byte byte + j is for chunk j of k. */
static void read_factors(const struct Product *p, struct Factors *to, const u32x32 *words) {
  for (u32 chunk = 0; chunk < p->chunks; chunk++) {
    f32x32 factor;
    for (u32 half = 0; half < 2; half++) {
      factor_of(&to->rows[half][chunk], p, words[0], 2 * p->thread_a + half, p->byte_a + chunk);
    }
    factor_of(&factor, p, words[1], p->thread_b, p->byte_b + chunk);
    TURN(f32x8, &to->columns[chunk], &factor);
  }
}

/* -- products of f64 --------------------------------------------------------------------------------------------- */

void cujit_directed(f64 *d, const f64 *x, const f64 *y, const f64 *z, u32 count, u32 operation, u32 mode);

/* Of several NaNs the one goes on that GPUs choose, made quiet. Source: measured on an H200: the second factor before
   the addend before the first. */
static f64 fused_with_payload(f64 x, f64 y, f64 z, u32 mode) {
  f64 result = __builtin_fma(x, y, z);
  if (mode != ROUND_RN) cujit_directed(&result, &x, &y, &z, 1, DIRECTED_FMA, mode);
  f64 chosen = y != y ? y : z;
  return chosen != chosen ? AS(f64, AS(u64, chosen) | 1ull << 51) : result;
}

/* One lane after the other: in another rounding, or where NaNs come out. */
static NOINLINE void fuse_exactly(f64x32 *d, const f64 *a, const f64 *b, u32 strips, u32 parity, u32 mode) {
  for (u32 lane = 0; lane < 32; lane++) {
    f64 sum = ((f64 *)d)[lane];
    for (u32 k = 0; k < 4 * strips; k++) {
      f64 x = a[k / 4 * 32 + (lane & 28) + k % 4], y = b[k * 8 + 4 * parity + (lane & 3)];
      sum = fused_with_payload(x, y, sum, mode);
    }
    ((f64 *)d)[lane] = sum;
  }
}

/* Two accumulators would not fit into the registers of AVX. */
static void fuse_doubles(f64x32 *d, const f64x32 *a, const f64x32 *b, u32 strips, u32 parity, u32 mode) {
  f64x32 sum = *d;
  for (u32 k = 0; k < strips && mode == ROUND_RN; k++) {
    f64x32 x = a[k];
    const f64x4 *y = (const f64x4 *)&b[k];
#define FUSE_ONE(j) sum = __builtin_elementwise_fma(SPREAD(f64x32, x, j), REPEAT(f64x32, y[2 * (j) + parity]), sum)
    FUSE_ONE(0), FUSE_ONE(1), FUSE_ONE(2), FUSE_ONE(3);
  }
  if (mode == ROUND_RN && !__builtin_reduce_or(sum != sum)) {
    *d = sum;
  } else {
    fuse_exactly(d, (const f64 *)a, (const f64 *)b, strips, parity, mode);
  }
}

enum { STRIPS64 = 4 };

static void multiply64(const struct Product *p, f64x32 *frame) {
  f64x32 a[2 * STRIPS64], b[STRIPS64];
  for (u32 k = 0; k < p->halves * p->strips; k++) a[k % p->halves * p->strips + k / p->halves] = frame[k];
  for (u32 k = 0; k < p->strips; k++) TURN(f64x8, &b[k], &frame[p->at_b + k]);
  for (u32 k = 0; k < 2 * p->halves; k++) {
    f64x32 sum = frame[p->at_c + k];
    fuse_doubles(&sum, &a[k / 2 * p->strips], b, p->strips, k & 1, p->rounding);
    frame[p->at_d + k] = sum;
  }
}

/* -- matrices in shared memory ----------------------------------------------------------------------------------- */

/* What wgmma says of its operands: descriptors of A and B, where shared memory is, and the warp in its group. */
struct Shared {
  u64 a, b;
  const u8 *memory;
  u32 warp;
};

/* One register of a matrix in shared memory: eight rows (of B columns), and 16 bytes of k; `across` turned. */
static void read_shared(u32x32 *to, u64 descriptor, const u8 *memory, u64 group, u64 chunk, flag across) {
  struct Lines lines;
  find_lines(&lines, descriptor, group, chunk, across);
  for (u32 row = 0; row < 8; row++) __builtin_memcpy((u16x8 *)to + row, memory + offset_of_line(&lines, row), 16);
  if (across) turn((u16x8 *)to);
}

/* Rows 16 * warp on of A, in the order of registers. */
static void read_rows(const struct Product *p, u32x32 *to, const struct Shared *shared) {
  for (u32 k = 0; k < 4; k++) {
    u32 group = 2 * (shared->warp & 3) + (k & 1);
    read_shared(&to[k], shared->a, shared->memory, group, k >> 1, p->turned_a);
  }
}

/* -- what kernels call ------------------------------------------------------------------------------------------- */

static void multiply(const struct Product *p, u32x32 *frame, const struct Shared *shared) {
  struct Side a, b;
  struct Factors factors;
  f32x32 stored[OWN_STRIPS];
  u32 steps_b = p->strips / strips_in(p->b), steps_a = p->sparse ? steps_b / 2 : steps_b;
  u32 words_c = p->c == TYPE_F16 ? p->halves : 2 * p->halves, words_d = p->d == TYPE_F16 ? p->halves : 2 * p->halves;
  const u32x32 *more = &frame[p->at_more];
  flag widens = p->groups && strips_in(p->b) == 2;
  a.furthest = 0;
  for (u32 block = 0; block < p->blocks; block++) {
    u32x32 *words = &frame[block * steps_a * p->halves], read[4];
    if (p->from_shared) read_rows(p, words = read, shared);
    for (u32 k = 0; k < steps_a * p->halves && p->signs; k++) words[k] ^= p->signs;
    u32 first = block * p->halves * p->strips;
    u32x32 *to = (u32x32 *)&a.numbers[first];
    if (widens && !p->sparse) {
      widen_all(&a, first, words, p->a, p->halves, steps_a, 0);
    } else if (p->sparse) {
      unpack_all((u32x32 *)stored, words, p->a, p->halves, steps_a, LAYOUT_ORDER, 0);
      expand_all(p, to, (u32x32 *)stored, more[0]);
    } else {
      unpack_all(to, words, p->a, p->halves, steps_a, p->layout, 0);
    }
  }
  more += p->sparse != 0;
  if (p->chunks) read_factors(p, &factors, more);
  if (p->groups && (p->sparse || !widens)) {
    a.furthest = find_powers(a.powers, a.numbers, p->blocks * p->halves * p->strips, p->floors[0]);
  }
  for (u32 n = 0; n < p->columns; n++) {
    u32x32 read[4], *words = shared ? read : &frame[p->at_b + n * steps_b];
    for (u32 k = 0; k < steps_b && shared; k++) read_shared(&read[k], shared->b, shared->memory, n, k, p->turned_b);
    if (widens) {
      b.furthest = 0;
      widen_all(&b, 0, words, p->b, 1, steps_b, 1);
    } else {
      unpack_all((u32x32 *)b.numbers, words, p->b, 1, steps_b, p->layout, 1);
      if (p->groups) b.furthest = find_powers(b.powers, b.numbers, p->strips, p->floors[1]);
    }
    for (u32 block = 0; block < p->blocks; block++) {
      u32 number = block * p->columns + n;
      tile(p, &frame[p->at_d + number * words_d], &frame[p->at_c + number * words_c], &a,
           block * p->halves * p->strips, &b, &factors);
    }
  }
}

/* The frame has the registers of A, B, C, and then metadata and factors; D is put there. */
void cujit_matrix_multiply(const struct Product *p, void *frame) {
  if (p->a == TYPE_F64) {
    multiply64(p, frame);
  } else {
    multiply(p, frame, 0);
  }
}

void cujit_matrix_multiply_shared(const struct Product *p, void *frame, u64 a, u64 b, u64 memory, u32 warp) {
  struct Shared shared = {a, b, (const u8 *)memory, warp};
  multiply(p, frame, &shared);
}

/* mma.m8n8k4 of f16: four products at once, each by eight lanes, 4q to 4q + 3 and 4q + 16 to 4q + 19. Where elements
   are: A by rows and B by columns in the lane of a row with the step, else the other way round; C and D of f16 as A by
   rows. Source: PTX ISA 9.1, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type". */
struct Cell {
  u32 lane, element;
};

INLINE struct Cell volta_factor(u32 q, u32 row, u32 k, flag by_row) {
  return (struct Cell){4 * q + 16 * (row / 4) + (by_row ? row % 4 : k), by_row ? k : row % 4};
}

INLINE struct Cell volta_sum(u32 q, u32 row, u32 column, flag halves) {
  if (halves) return (struct Cell){4 * q + 16 * (row / 4) + row % 4, column};
  return (struct Cell){4 * q + (row & 1) + (column & 2) + 16 * (row / 4), (row & 2) + (column & 4) + (column & 1)};
}

INLINE f32 volta_number(const void *words, struct Cell at, flag halves) {
  u32 lane = at.lane & 31;
  return halves ? (f32)((const _Float16 *)words)[(at.element / 2 * 32 + lane) * 2 + at.element % 2]
                : ((const f32 *)words)[at.element * 32 + lane];
}

/* Sum as the code does that ptxas 13.0 makes for sm_90: the products in their order, from 0, and C at last; where C and
   D are f16, C and the first two products, and then the last two. */
static f32 volta_element(const f32 *a, const f32 *b, f32 c, flag by_pairs) {
  f32 sum;
  if (by_pairs) {
    sum = c + __builtin_fmaf(a[1], b[1], a[0] * b[0]) + __builtin_fmaf(a[3], b[3], a[2] * b[2]);
  } else {
    sum = 0.0f;
    for (u32 k = 0; k < 4; k++) sum = __builtin_fmaf(a[k], b[k], sum);
    sum = c + sum;
  }
  return sum != sum ? AS(f32, 0x7fffffff) : sum;
}

/* The frame has two registers of A, two of B, and those of C; D is put after them. */
void cujit_matrix_volta(u32x32 *frame, flag rows_a, flag rows_b, flag halves_c, flag halves_d) {
  const u32x32 *c = frame + 4;
  u32x32 *d = frame + (halves_c ? 8 : 12);
  for (u32 n = 0; n < 256; n++) {
    u32 q = n / 64, row = n / 8 % 8, column = n % 8;
    f32 x[4], y[4];
    for (u32 k = 0; k < 4; k++) {
      x[k] = volta_number(frame, volta_factor(q, row, k, rows_a), 1);
      y[k] = volta_number(frame + 2, volta_factor(q, column, k, !rows_b), 1);
    }
    f32 addend = volta_number(c, volta_sum(q, row, column, halves_c), halves_c);
    f32 sum = volta_element(x, y, addend, halves_c && halves_d);
    struct Cell at = volta_sum(q, row, column, halves_d);
    u32 lane = at.lane & 31;
    if (halves_d) {
      ((_Float16 *)d)[(at.element / 2 * 32 + lane) * 2 + at.element % 2] = (_Float16)sum;
    } else {
      ((f32 *)d)[at.element * 32 + lane] = sum;
    }
  }
}
