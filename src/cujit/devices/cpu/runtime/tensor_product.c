/* Products in tensor memory: D, of 64 or 128 rows of one block or as many of each block of a pair, is A times B, of shared
   memory, and what D was.

   Sums are those of one alignment over all of k: see sums.h. Source: microsoft/MMA-Sim at 735c9b7 (arXiv 2511.10909), of
   Blackwell; never compared with hardware. */

#include "tensor_memory.h"
#include "tiles.h"

/* Parts that A is read in: as many rows each as have ALL_STRIPS. */
enum { PARTS = 4 };

/* Metadata of a sparse A, from a lane and a column on. With `mixes` a word has those of two rows. */
struct Metadata {
  const struct TensorMemory *memory;
  u32 lane, column;
  flag spread, mixes;
};

/* A, or B by its columns: elements of a type that take `bits` each, in shared memory as a descriptor says, or in tensor
   memory, from a lane and a column on. `signs` are xored into its numbers. Of a sparse A only some elements are stored, and of B
   only some columns count: `zeros` tells, for parts of so many columns, and others are `filler`. */
struct Factor {
  u32 type, bits, signs, filler, part;
  flag across, dense, sparse;
  const u8 *shared;
  u64 descriptor, zeros;
  const struct TensorMemory *memory;
  u32 lane, column;
  flag spread;
  struct Metadata metadata;
};

/* The lane of a row of A or D: see struct Shape. */
INLINE u32 lane_of(flag spread, u32 first, u32 row) { return first + (spread ? row / 16 * 32 + row % 16 : row); }

/* -- what descriptors say --------------------------------------------------------------------------------------------- */

/* Bytes of a line of a pattern, by the mode of swizzling; 0 for no mode. */
static const u8 LINE_BYTES[8] = {16, 128, 128, 0, 64, 0, 32, 0};
enum { MODE_AT = 61, BY_32_BYTES = 1, OFFSET_AT = 49, ABSOLUTE_AT = 52 };

/* Where element k of a row begins in shared memory; elements of less than a byte take one here.

   In units of T elements of 16 bytes, n of which are a line of a pattern. Straight: ((8,m),(T,2k)):((nT,SBO),(1,T)), or
   without a pattern ((1T,SBO),(1,LBO)). Across: ((T,n,m),(8,k)):((1,T,LBO),(nT,SBO)), or ((1,T,SBO),(1T,LBO)). By pieces of
   32 bytes the pattern is Swizzle<2,5,2> and four steps deep. Source: PTX ISA 9.1, 9.7.16.4.1 "Shared memory descriptor",
   9.7.16.3.3 "Canonical Layouts"; NVIDIA/cutlass, mma_traits_sm100.hpp, for the last. */
INLINE u64 place_in_shared(const struct Factor *factor, u32 row, u32 k) {
  u64 descriptor = factor->descriptor, mode = descriptor >> MODE_AT, line = LINE_BYTES[mode];
  u64 leading = (descriptor >> 16 & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
  u64 at = (descriptor & 0x3fff) << 4, size = factor->bits < 8 ? 1 : factor->bits / 8;
  if (factor->across) {
    u64 per_line = line / size, depth = mode == BY_32_BYTES ? 4 : 8;
    at += row % per_line * size + k % depth * line;
    return at + row / per_line * (mode ? leading : stride) + k / depth * (mode ? stride : leading);
  }
  u64 byte = k * size;
  return at + row / 8 * stride + row % 8 * line + (mode ? byte : byte / 16 * leading + byte % 16);
}

INLINE u64 swizzled(u64 descriptor, u64 at) {
  u64 mode = descriptor >> MODE_AT;
  if (mode == BY_32_BYTES) return at ^ (at >> 7 & 3) << 5;
  return at ^ (((at >> 7) - (descriptor >> OFFSET_AT & 7)) & (LINE_BYTES[mode] / 16 - 1u)) << 4;
}

static u64 offset_in_shared(const struct Factor *factor, u32 row, u32 k) {
  return swizzled(factor->descriptor, place_in_shared(factor, row, k));
}

/* The code of an element. Those of 4 and 6 bits lie packed at the beginning of 16 bytes; FP4 alone fills them. */
static u32 code_in_shared(const struct Factor *factor, u32 row, u32 k) {
  u64 word = 0;
  if (factor->dense) {
    return factor->shared[offset_in_shared(factor, row, k / 2)] >> k % 2 * 4;
  }
  if (factor->bits >= 8) {
    __builtin_memcpy(&word, factor->shared + offset_in_shared(factor, row, k), factor->bits / 8);
    return (u32)word;
  }
  u32 bit = k % 16 * factor->bits;
  __builtin_memcpy(&word, factor->shared + offset_in_shared(factor, row, k & ~15u) + bit / 8, 2);
  return (u32)word >> bit % 8;
}

/* In tensor memory elements of less than a byte have one each, but for FP4 alone. */
static u32 code_in_tensor(const struct Factor *factor, u32 row, u32 k) {
  u32 bits = factor->bits < 8 && !factor->dense ? 8 : factor->bits, per_cell = 32 / bits;
  return factor->memory->cells[factor->column + k / per_cell][lane_of(factor->spread, factor->lane, row)] >> k % per_cell * bits;
}

/* -- elements that are zero ------------------------------------------------------------------------------------------- */

/* Which two quarters of a chunk of k are stored: two bits for the first and two for the second. Of numbers of 8 bits and less
   all metadata of a row are in its lane, chunk after chunk; of larger ones the lower four chunks of two rows are in a word of
   the lane of the first one, and the upper four 8 lanes on. Source: NVIDIA/cutlass, mma_traits_sm100_frag.hpp, for figures 262
   to 267 of PTX ISA 9.1, 9.7.16.10.8.4 "Sparsity selector". */
static u32 stored_quarters(const struct Metadata *from, u32 row, u32 chunk) {
  u32 column = from->column + (from->mixes ? 0 : chunk / 8), place = from->mixes ? row / 8 % 2 * 4 + chunk % 4 : chunk % 8;
  u32 own = from->mixes ? row / 16 * 16 + row % 8 + chunk / 4 * 8 : row;
  return from->memory->cells[column][lane_of(from->spread, from->lane, own)] >> (place * 4 & 31) & 15;
}

/* Which stored element of a row is that of a step of k; ~0 if it is zero. FP4 is stored in pairs. An element of 32 bits has two
   quarters of its own. PTX ISA 9.1, 9.7.16.10.8 "Sparse Matrices". */
static u32 find_stored(const struct Factor *factor, u32 row, u32 k) {
  u32 each = factor->dense ? 2 : 1, wide = factor->bits == 32 ? 2 : 1, chunk = k * wide / (4 * each);
  u32 quarter = k * wide / each % 4, stored = stored_quarters(&factor->metadata, row, chunk);
  if ((stored & 3) == quarter) return chunk * 2 / wide * each + k % each;
  return (stored >> 2) == quarter && wide == 1 ? chunk * 2 * each + each + k % each : ~0u;
}

/* Where column `row` of B is read: the mask shifts it; ~0 if its numbers are zeros. In each part spans that are used and
   skipped take turns, from some columns on. As the examples have it, and not the table, "use span" is of those that are
   used. PTX ISA 9.1, 9.7.16.4.3 "Zero-Column Mask Descriptor". */
INLINE u32 shift_of(u64 zeros) { return zeros >> 56 & 63; }
static u32 find_column(const struct Factor *factor, u32 column) {
  u64 zeros = factor->zeros;
  u32 skipped = (zeros >> 40 & 255) + 1, used = (zeros >> 48 & 255) + 1, part = column / factor->part;
  u32 at = (column % factor->part + (zeros >> (part * 8 & 31) & 255)) % (used + skipped);
  flag is_zero = zeros >> 32 >> (part & 3) & 1 ? at < skipped : at >= used;
  return zeros >> 39 & 1 && is_zero ? ~0u : column + shift_of(zeros);
}

/* The code of an element; whether it is none, as it is zero. */
static flag find_code(u32 *to, const struct Factor *factor, u32 row, u32 k) {
  if (factor->part) row = find_column(factor, row);
  if (factor->sparse) k = find_stored(factor, row, k);
  if (row == ~0u || k == ~0u) return 1;
  *to = factor->memory ? code_in_tensor(factor, row, k) : code_in_shared(factor, row, k);
  return 0;
}

/* -- strips ----------------------------------------------------------------------------------------------------------- */

/* Codes become f32, as bits. */
static void number_of(u32x32 *codes, u32 type) {
  u32x32 code = *codes;
  switch (type) {
  case TYPE_F16:
    *codes = AS(u32x32, __builtin_convertvector(AS(f16x32, __builtin_convertvector(code, u16x32)), f32x32));
    return;
  case TYPE_BF16: *codes = code << 16; return;
  case TYPE_TF32: *codes = code & ~0x1fffu; return;
  case TYPE_S8: *codes = WHOLE((i32x32)(code << 24) >> 24); return;
  default: decode(codes, 1, type);
  }
}

/* Codes of 4 steps of 8 rows, of a dense matrix in shared memory whose elements have 8 bits or more: those of a row, or across
   those of a step, lie side by side in their 16 bytes, and the next row or step is a line of the pattern on. */
INLINE void take_codes(u32x32 *to, const struct Factor *factor, u32 first, u32 strip, u32 size, flag across) {
  u32 *lanes = (u32 *)to, along = across ? 8 : 4, each = size == 4 ? 4 : along;
  u64 apart = LINE_BYTES[factor->descriptor >> MODE_AT];
  for (u32 from = 0; from < along; from += each) {
    u64 begin = place_in_shared(factor, first + (across ? from : 0), 4 * strip + (across ? 0 : from));
    for (u32 line = 0; line < WARP / along; line++) {
      const u8 *bytes = factor->shared + swizzled(factor->descriptor, begin + line * apart);
      for (u32 n = 0; n < each; n++) {
        u32 word = 0;
        __builtin_memcpy(&word, bytes + n * size, size);
        lanes[across ? (from + n) * 4 + line : line * 4 + n] = word;
      }
    }
  }
}

static void take_plain(u32x32 *to, const struct Factor *factor, u32 first, u32 strip) {
  switch (factor->bits * 2 + factor->across) {
  case 16: take_codes(to, factor, first, strip, 1, 0); return;
  case 17: take_codes(to, factor, first, strip, 1, 1); return;
  case 32: take_codes(to, factor, first, strip, 2, 0); return;
  case 33: take_codes(to, factor, first, strip, 2, 1); return;
  case 64: take_codes(to, factor, first, strip, 4, 0); return;
  default: take_codes(to, factor, first, strip, 4, 1);
  }
}

/* What a zero in a sparse A is: it makes no NaN with an infinity. */
enum { MINUS_ZERO = (int)0x80000000 };

/* Eight rows from one on, made strips from `at` on, or turned into columns. */
static void read_rows(struct Side *to, u32 at, const struct Factor *factor, u32 first, u32 strips, flag turns) {
  flag plain = !factor->memory && !factor->sparse && !factor->part && factor->bits >= 8;
  for (u32 strip = 0; strip < strips; strip++) {
    u32x32 found = {0}, none = {0};
    if (plain) take_plain(&found, factor, first, strip);
    for (u32 lane = 0; lane < WARP && !plain; lane++) {
      ((u32 *)&none)[lane] = -find_code((u32 *)&found + lane, factor, first + lane / 4, 4 * strip + lane % 4);
    }
    number_of(&found, factor->type);
    found ^= factor->signs;
    if (factor->sparse) found = found == (u32x32)MINUS_ZERO ? (u32x32)0 : found;
    found = none ? (u32x32)factor->filler : found;
    if (turns) {
      TURN(f32x8, &to->numbers[at + strip], &found);
    } else {
      to->numbers[at + strip] = AS(f32x32, found);
    }
  }
}

/* -- D ---------------------------------------------------------------------------------------------------------------- */

/* D in tensor memory: rows from a lane and a column on, of which some stay as they are. */
struct Sums {
  struct TensorMemory *memory;
  u32 lane, column;
  flag spread;
  const u32 *masked;
};

/* The cells of register k of the tile at a row and a column, of 8 rows side by side: those of lanes `quad`, 4 + `quad`, and so
   on. See tiles.h. */
INLINE u32 *sums_at(const struct Sums *sums, u32 row, u32 column, u32 k, u32 quad) {
  u32 own = lane_of(sums->spread, sums->lane, row + k / 2 * 8);
  return &sums->memory->cells[sums->column + column + quad * 2 + k % 2][own];
}

static f32 scaled(f32 value, u32 scale) { return value * AS(f32, (127 - scale) << 23); }

/* Read a tile of 16 rows and 8 columns, times 2 ** -scale. */
static void read_sums(u32x32 *tile, const struct Sums *sums, u32 row, u32 column, u32 type, u32 scale) {
  for (u32 k = 0; k < 4; k++) {
    for (u32 at = 0; at < WARP; at++) {
      u32 lane = at % 8 * 4 + at / 8, value = sums_at(sums, row, column, k, at / 8)[at % 8];
      u32 *to = (u32 *)&tile[type == TYPE_F16 ? k / 2 : k] + lane;
      if (type == TYPE_F16) {
        _Float16 half = (_Float16)scaled((f32)AS(_Float16, (u16)value), scale);
        *to = k % 2 ? *to | (u32)AS(u16, half) << 16 : AS(u16, half);
      } else {
        *to = scale ? AS(u32, scaled(AS(f32, value), scale)) : value;
      }
    }
  }
}

static void write_sums(const u32x32 *tile, const struct Sums *sums, u32 row, u32 column, u32 type) {
  for (u32 k = 0; k < 4; k++) {
    u32 first = lane_of(sums->spread, sums->lane, row + k / 2 * 8), masked = sums->masked[first / 32] >> first % 32;
    for (u32 at = 0; at < WARP; at++) {
      const u32 *from = (const u32 *)&tile[type == TYPE_F16 ? k / 2 : k] + at % 8 * 4 + at / 8;
      if (masked >> at % 8 & 1) continue;
      sums_at(sums, row, column, k, at / 8)[at % 8] = type == TYPE_F16 ? *from >> k % 2 * 16 & 0xffff : *from;
    }
  }
}

/* -- products --------------------------------------------------------------------------------------------------------- */

/* Types of A and B by kind, and by their code in an instruction descriptor: 0 for none. Source: PTX ISA 9.1, 9.7.16.4.2
   "Instruction descriptor". */
static const u8 FACTORS[][8] = {
    [KIND_F16] = {TYPE_F16 + 1, TYPE_BF16 + 1},
    [KIND_TF32] = {0, 0, TYPE_TF32 + 1},
    [KIND_F8F6F4] = {TYPE_E4M3 + 1, TYPE_E5M2 + 1, 0, TYPE_E2M3 + 1, TYPE_E3M2 + 1, TYPE_E2M1 + 1},
    [KIND_I8] = {TYPE_U8 + 1, TYPE_S8 + 1},
    [KIND_MXF8F6F4] = {TYPE_E4M3 + 1, TYPE_E5M2 + 1, 0, TYPE_E2M3 + 1, TYPE_E3M2 + 1, TYPE_E2M1 + 1},
    [KIND_MXF4] = {0, TYPE_FP4 + 1},
    [KIND_MXF4NVF4] = {0, TYPE_FP4 + 1},
};
static const u8 SUMS[][4] = {
    [KIND_F16] = {TYPE_F16 + 1, TYPE_F32 + 1},
    [KIND_TF32] = {0, TYPE_F32 + 1},
    [KIND_F8F6F4] = {TYPE_F16 + 1, TYPE_F32 + 1},
    [KIND_I8] = {0, 0, TYPE_S32 + 1},
};
/* Steps of k. */
static const u8 STEPS[] = {[KIND_F16] = 16, [KIND_TF32] = 8, [KIND_F8F6F4] = 32, [KIND_I8] = 32, [KIND_MXF8F6F4] = 32,
                             [KIND_MXF4] = 64, [KIND_MXF4NVF4] = 64};

INLINE u32 bits_of(u32 type) {
  switch (type) {
  case TYPE_F16:
  case TYPE_BF16: return 16;
  case TYPE_TF32: return 32;
  case TYPE_E2M3:
  case TYPE_E3M2: return 6;
  case TYPE_E2M1:
  case TYPE_FP4: return 4;
  default: return 8;
  }
}

/* A product as its instruction descriptor has it: `m`, `n` and `k` are of all blocks together. */
struct Described {
  struct Product product;
  struct Shape shape;
  u32 m, n, k;
};

/* Steps of k of which A is stored. */
INLINE u32 stored_steps(const struct TensorWork *work, const struct Described *x) { return work->sparse ? x->k / 2 : x->k; }

/* The descriptor of a product with scale factors has the first ones' places in their words, and their type; its D is f32. */
static flag are_factors(const struct TensorWork *work) {
  u32 word = work->descriptor, last = 4 - work->chunks, first_a = field(word, 29, 2), first_b = field(word, 4, 2);
  flag is_type = work->kind == KIND_MXF4NVF4 || field(word, 23, 1);
  flag is_place = first_a <= last && first_b <= last && !((first_a | first_b) & (work->chunks - 1));
  return is_type && is_place && !(word >> 31);
}

/* Whether there are products of M rows and N columns. Source: PTX ISA 9.1, 9.7.16.2.1 "Matrix Shape", and for B across, of
   8 bits, 9.7.16.10.1 "Transpose and Negate operations". */
static flag is_shape(const struct TensorWork *work, u32 m, u32 n, u32 bits_of_b) {
  u32 count = work->blocks.count, step = 8 * count;
  if (work->stationary) return (m == 32 || m == 64 || m == 128) && (n == 64 || n == 128 || (n == 256 && !work->sparse));
  if (work->sparse && work->chunks && m != 128 * count) return 0;
  flag wide = work->kind == KIND_I8 && (count == 2 || n > 32), across = field(work->descriptor, 16, 1) && bits_of_b == 8;
  if (wide || across) step *= 2;
  return (m == 128 * count || (m == 64 * count && (count == 2 || !work->chunks))) && n && n <= 256 && n % step == 0;
}

/* Whether the selector is one of two columns, or 0 where there is none. The manual shows its columns in figures alone. */
static flag is_selector(const struct TensorWork *work) {
  return !work->sparse || work->chunks || field(work->descriptor, 0, 2) < (has_selector(work->kind) ? 2u : 1u);
}

/* Whether a zero-column mask shifts B by no more than its rows, and the descriptor, allow. PTX ISA 9.1, 9.7.16.4.2, bits 30
   and 31, and 9.7.16.4.3. */
static flag is_mask(const struct TensorWork *work, u32 m) {
  u32 most = field(work->descriptor, 30, 2) * 8, shift = shift_of(work->zeros);
  flag is_reserved = (work->zeros >> 36 & 7) != 0 || (work->zeros >> 62) != 0;
  return !is_reserved && shift <= (m == 32 ? 16u : 32u) && shift <= (most == 24 ? 32 : most);
}

static void describe(const struct TensorSite *site, const struct TensorWork *work, struct Described *to) {
  u32 word = work->descriptor, kind = work->kind, chunks = work->chunks;
  u32 a = FACTORS[kind][field(word, 7, 3)], b = FACTORS[kind][field(word, 10, 3)];
  u32 d = chunks ? TYPE_F32 + 1 : SUMS[kind][field(word, 4, 2)];
  to->m = field(word, 24, 5) * 16, to->n = field(word, 17, 6) * 8, to->k = STEPS[kind] * (1 + work->sparse), to->shape = shape_of(work);
  flag is_wrong = field(word, 2, 1) != work->sparse || (chunks && !are_factors(work)) || !a || !b || !d || !is_selector(work);
  if (is_wrong || !is_shape(work, to->m, to->n, bits_of(b - 1))) fail_in_tensor(site, TENSOR_INSTRUCTION, 0, word);
  if (work->stationary && !is_mask(work, to->m)) fail_in_tensor(site, TENSOR_ZEROS, word, work->zeros);
  memset(&to->product, 0, sizeof to->product);
  struct Product *p = &to->product;
  p->a = a - 1, p->b = b - 1, p->c = p->d = d - 1;
  p->halves = 2, p->strips = to->k / 4, p->saturate = !chunks && field(word, 3, 1);
  if (kind == KIND_I8) return;
  p->chunks = chunks, p->scale = field(word, 23, 1) ? TYPE_UE8M0 : TYPE_UE4M3;
  p->groups = !chunks, p->width = p->a == TYPE_FP4 ? 35 : 25;
  p->mask = ~0u, p->halves_sum = p->d == TYPE_F16, p->absent = work->sparse ? MINUS_ZERO : NO_NUMBER, p->sparse = work->sparse;
  p->floors[0] = FLOORS[p->a], p->floors[1] = FLOORS[p->b], p->floors[2] = p->zero_c = FLOORS[p->c];
}

enum { PIECE = 16 };

/* Whether a piece lies in the shared memory that the block has. */
INLINE flag is_there(const struct TensorSite *site, u64 at, u64 bytes) {
  return at >= SYSTEM_BYTES && at + bytes <= SYSTEM_BYTES + site->running->launch->shared_bytes;
}

/* Elements side by side in memory that are not all of 16 bytes: those of 4 and 6 bits, packed at the beginning of them. */
INLINE u64 bytes_of(const struct Factor *factor, u32 elements) {
  return factor->dense ? elements : (u64)elements * factor->bits / 8;
}

/* All of so many rows and steps of k must be in the block's shared memory: pieces of 16 bytes. */
static void see_pieces(const struct Factor *factor, const struct TensorSite *site, u32 rows, u32 steps) {
  u32 each = factor->bits < 8 ? PIECE : PIECE * 8 / factor->bits, shift = factor->part ? shift_of(factor->zeros) : 0;
  u32 by_row = factor->across ? each : 1, by_step = factor->across ? 1 : each, end = rows + shift;
  for (u32 row = shift / by_row * by_row; row < end; row += by_row) {
    if (factor->part && !factor->across && find_column(factor, row - shift) == ~0u) continue;
    for (u32 k = 0; k < steps; k += by_step) {
      u32 left = factor->across ? end - row : steps - k;
      u64 at = offset_in_shared(factor, row, k), bytes = bytes_of(factor, left < each ? left : each);
      if (!is_there(site, at, bytes)) fail_in_tensor(site, TENSOR_OUTSIDE, at, factor->descriptor);
      if (site->piece) site->piece(site->context, (u64)factor->shared + at, bytes);
    }
  }
}

/* A factor in shared memory of a block, by its descriptor. */
static void find_in_shared(struct Factor *to, const struct TensorSite *site, const u8 *shared, u64 descriptor, u32 rows,
                           u32 steps) {
  flag is_wrong = !LINE_BYTES[descriptor >> MODE_AT] || descriptor >> ABSOLUTE_AT & 1 || (to->across && to->bits < 8);
  to->dense = to->type == TYPE_FP4;
  if (is_wrong) fail_in_tensor(site, TENSOR_DESCRIPTOR, 0, descriptor);
  to->shared = shared, to->descriptor = descriptor, to->memory = 0;
  if (to->type == TYPE_E2M1) to->type = TYPE_FP4;
  see_pieces(to, site, rows, to->dense ? steps / 2 : steps);
}

/* A in tensor memory of a block. */
static void find_in_tensor(struct Factor *to, const struct TensorSite *site, const struct TensorWork *work,
                           const struct Described *x) {
  u32 address = (u32)work->a;
  if (address >> 16 != work->d >> 16 || to->across) fail_in_tensor(site, TENSOR_INSTRUCTION, address, work->descriptor);
  to->memory = site->memory, to->lane = address >> 16, to->spread = x->shape.spread;
  to->dense = to->type == TYPE_FP4;
  to->column = columns_at(site, address, stored_steps(work, x) * (to->bits < 8 && !to->dense ? 8 : to->bits) / 32);
}

/* The metadata of a sparse A are in lanes as D is. */
static void find_metadata(struct Metadata *to, const struct TensorSite *site, const struct TensorWork *work,
                          const struct Shape *shape) {
  u32 address = metadata_at(work), lane = address >> 16;
  if (lane != work->d >> 16) fail_in_tensor(site, TENSOR_INSTRUCTION, address, work->descriptor);
  u32 column = columns_at(site, address, metadata_columns(work->kind));
  *to = (struct Metadata){site->memory, lane, column, shape->spread, has_selector(work->kind)};
}

/* -- scale factors ---------------------------------------------------------------------------------------------------- */

/* Factors of rows of A, or of columns of B: that of the first chunk of row r is byte `first` of a word in lane r % 32, and
   column r / 32. All four groups of 32 lanes have the same, in every block. Of a `folded` product those of B are in halves, as D
   is: the second half of the columns has its factors from `lane` 64 on. Source: PTX ISA 9.1, 9.7.16.10.7 "Block Scaling";
   NVIDIA/cutlass, sm100_blockscaled_layout.hpp, and mma_traits_sm100.hpp for what is folded. */
struct Scales {
  const struct TensorMemory *memory;
  u32 lane, column, first, type;
};

static void find_scales(struct Scales *to, const struct TensorSite *site, u32 address, u32 rows, u32 first, u32 type) {
  to->memory = site->memory, to->lane = 0, to->first = first, to->type = type;
  to->column = columns_at(site, address, (rows + 31) / 32);
}

/* Of eight rows, each for the four lanes of its quad. */
static void read_scales(f32x32 *to, const struct Scales *scales, u32 row, u32 chunk) {
  u32x32 codes;
  for (u32 lane = 0; lane < WARP; lane++) {
    u32 own = row + lane / 4, word = scales->memory->cells[scales->column + own / 32][scales->lane + own % 32];
    ((u32 *)&codes)[lane] = word >> (scales->first + chunk) % 4 * 8;
  }
  decode(&codes, 1, scales->type);
  *to = AS(f32x32, codes);
}

/* Of the 16 rows and 8 columns of a tile. */
static void read_factors(struct Factors *to, const struct Scales *a, const struct Scales *b, u32 row, u32 column, u32 chunks) {
  for (u32 chunk = 0; chunk < chunks; chunk++) {
    f32x32 factor;
    for (u32 half = 0; half < 2; half++) read_scales(&to->rows[half][chunk], a, row + 8 * half, chunk);
    read_scales(&factor, b, column, chunk);
    TURN(f32x8, &to->columns[chunk], &factor);
  }
}

/* -- what lands ------------------------------------------------------------------------------------------------------- */

/* A part of A, with the powers of its rows. */
static void read_left(struct Side *to, const struct Factor *a, u32 first, u32 rows, const struct Product *p) {
  for (u32 row = 0; row < rows; row += 8) read_rows(to, row / 8 * p->strips, a, first + row, p->strips, 0);
  if (p->groups) to->furthest = find_powers(to->powers, to->numbers, rows / 8 * p->strips, p->floors[0]);
}

/* Eight columns of B, made so. */
static void read_right(struct Side *to, const struct Factor *b, u32 column, const struct Product *p) {
  read_rows(to, 0, b, column, p->strips, 1);
  if (p->groups) to->furthest = find_powers(to->powers, to->numbers, p->strips, p->floors[1]);
}

/* What a block has of a product: its rows of A and D, its columns of B, and its factors. */
struct Share {
  struct Factor a, b;
  struct Sums sums;
  struct Scales scales[2];
};

static void find_share(struct Share *to, const struct TensorSite *from, const struct TensorWork *work, const struct Described *x,
                      u32 block) {
  const struct Product *p = &x->product;
  const struct TensorBlock *own = &work->blocks.each[block];
  struct TensorSite site = *from;
  u32 word = work->descriptor, lane = work->d >> 16;
  site.memory = own->memory;
  memset(to, 0, sizeof *to);
  to->sums = (struct Sums){own->memory, lane, columns_at(&site, work->d, x->shape.columns), x->shape.spread, work->masked[block]};
  to->a = (struct Factor){.type = p->a, .bits = bits_of(p->a), .signs = field(word, 13, 1) << 31, .across = field(word, 15, 1)};
  to->b = (struct Factor){.type = p->b, .bits = bits_of(p->b), .signs = field(word, 14, 1) << 31, .across = field(word, 16, 1)};
  if (work->stationary) to->b.part = x->shape.columns, to->b.zeros = work->zeros;
  if (work->sparse) find_metadata(&to->a.metadata, &site, work, &x->shape), to->a.sparse = 1, to->a.filler = MINUS_ZERO;
  find_in_shared(&to->b, &site, own->shared, work->b, x->n / work->blocks.count, x->k);
  if (work->from_tensor) {
    find_in_tensor(&to->a, &site, work, x);
  } else {
    find_in_shared(&to->a, &site, own->shared, work->a, x->shape.rows, stored_steps(work, x));
  }
  if (!p->chunks) return;
  find_scales(&to->scales[0], &site, work->factors[0], x->shape.rows, field(word, 29, 2), p->scale);
  find_scales(&to->scales[1], &site, work->factors[1], x->shape.columns, field(word, 4, 2), p->scale);
}

/* Multiply rows of a block from one on by so many columns of B, which begin at a column of D. */
static void multiply_rows(const struct Share *own, const struct Factor *b, const struct TensorWork *work,
                          const struct Described *x, u32 from, u32 m, u32 of_b, u32 first, u32 columns) {
  const struct Product *p = &x->product;
  u32 rows = ALL_STRIPS * 8 / p->strips;
  struct Side left[PARTS], right;
  struct Factors factors;
  rows = rows < m ? rows : m;
  for (u32 k = 0; k * rows < m; k++) read_left(&left[k], &own->a, from + k * rows, rows, p);
  for (u32 column = 0; column < columns; column += 8) {
    read_right(&right, b, of_b + column, p);
    for (u32 row = 0; row < m; row += 16) {
      u32x32 d[4] = {0};
      if (work->keeps) read_sums(d, &own->sums, from + row, first + column, p->d, work->scale);
      if (p->chunks) read_factors(&factors, &own->scales[0], &own->scales[1], from + row, first + column, p->chunks);
      tile(p, d, d, &left[row / rows], row % rows / 8 * p->strips, &right, &factors);
      write_sums(d, &own->sums, from + row, first + column, p->d);
    }
  }
}

/* All rows of a block, in as many turns as it takes to hold a part of A. */
static void multiply(const struct Share *own, const struct Factor *b, const struct TensorWork *work, const struct Described *x,
                     u32 of_b, u32 first, u32 columns) {
  u32 most = PARTS * ALL_STRIPS * 8 / x->product.strips, m = x->shape.rows;
  for (u32 from = 0; from < m; from += most) {
    multiply_rows(own, b, work, x, from, m - from < most ? m - from : most, of_b, first, columns);
  }
}

/* A Multiply. Each block of a pair has half of the rows of A and half of the columns of B. Parts of the columns of D are in other
   lanes, with an A of their own, or were multiplied by B of the other block. */
void cujit_tensor_product(const struct TensorSite *site, const struct TensorWork *work) {
  struct Described x;
  struct Share shares[2];
  describe(site, work, &x);
  u32 lane = work->d >> 16, count = work->blocks.count, folds = x.shape.folds, parts = folds > count ? folds : count;
  u32 columns = x.n / parts, each = parts / count;
  if (lane && (!x.shape.spread || lane != 16)) fail_in_tensor(site, TENSOR_LANES_APART, work->d, 0);
  for (u32 block = 0; block < count; block++) find_share(&shares[block], site, work, &x, block);
  for (u32 k = 0; k < count * parts && !site->piece; k++) {
    struct Share own = shares[k / parts];
    u32 part = k % parts, up = folds > 1 ? part * x.shape.rows : 0;
    own.a.lane += up, own.a.metadata.lane += up, own.sums.lane += up, own.scales[1].lane = up;
    multiply(&own, &shares[part / each].b, work, &x, part % each * columns, folds > 1 ? 0 : part * columns, columns);
  }
}

/* -- copies ----------------------------------------------------------------------------------------------------------- */

/* Which 32 rows of a copy from shared memory, by its number, go to each group of 32 lanes; or which row goes to the first
   lane of each. */
static const u8 ROWS_OF[][TENSOR_LANES / 32] = {
    [COPY_128X256B] = {0, 1, 2, 3},      [COPY_128X128B] = {0, 1, 2, 3}, [COPY_64X128B_02_13] = {0, 1, 0, 1},
    [COPY_64X128B_01_23] = {0, 0, 1, 1}, [COPY_32X128B] = {0, 0, 0, 0},  [COPY_4X256B] = {0, 1, 2, 3},
};

/* Four bytes, each of the bits of one of four elements that lie packed: those of 6 bits in the lower ones, those of 4 bits in
   the middle, where a product looks for them. PTX ISA 9.1, 9.7.16.9.1 "Optional Decompression". */
static u32 unpack(u32 packed, u32 bits) {
  u32 word = 0;
  for (u32 k = 0; k < 4; k++) word |= field(packed, k * bits, bits) << ((k * 8 + (bits == 4 ? 2 : 0)) & 31);
  return word;
}

/* Four bytes of a row. Packed ones are at the beginning of their 16 bytes. */
static u32 bytes_at(const struct Factor *rows, u32 row, u32 byte, u32 unpacked) {
  u32 word = 0, bits = unpacked ? unpacked : 8;
  memcpy(&word, rows->shared + offset_in_shared(rows, row, byte & ~15u) + byte % 16 * bits / 8, bits / 2);
  return unpacked ? unpack(word, unpacked) : word;
}

/* A Multiply that copies rows of bytes, which `b` describes, to columns from the one of `d` on; in each block of a pair from its
   own shared memory. PTX ISA 9.1, 9.7.16.9.2 "tcgen05.cp"; NVIDIA/cutlass, copy_traits_sm100.hpp, for pairs. */
void cujit_tensor_fill(const struct TensorSite *from, const struct TensorWork *work) {
  const u8 *rows_of = ROWS_OF[work->kind];
  u32 bytes = COPY_COLUMNS[work->kind] * 4, depth = work->kind == COPY_4X256B ? 1 : 32, lane = work->d >> 16;
  if (lane && (depth > 1 || lane >= 32)) fail_in_tensor(from, TENSOR_LANES_APART, work->d, 0);
  for (u32 block = 0; block < work->blocks.count; block++) {
    const struct TensorBlock *own = &work->blocks.each[block];
    struct Factor rows = {.type = TYPE_U8, .bits = work->unpacked ? work->unpacked : 8};
    struct TensorSite site = *from;
    site.memory = own->memory;
    u32 first = columns_at(&site, work->d, bytes / 4), count = TENSOR_LANES / 32 * depth;
    find_in_shared(&rows, &site, own->shared, work->b, (rows_of[TENSOR_LANES / 32 - 1] + 1u) * depth, bytes);
    for (u32 cell = 0; cell < count * bytes / 4 && !site.piece; cell++) {
      u32 at = cell % count, byte = cell / count * 4, row = rows_of[at / depth] * depth + at % depth;
      own->memory->cells[first + byte / 4][at / depth * 32 + at % depth + lane] = bytes_at(&rows, row, byte, work->unpacked);
    }
  }
}

/* A Multiply that moves the cells of 32 lanes and 8 columns to the lanes before; those of the last lane stay, too. The manual doesn't
   say which way is down. PTX ISA 9.1, 9.7.16.9.3 "tcgen05.shift". */
void cujit_tensor_shift(const struct TensorSite *from, const struct TensorWork *work) {
  u32 lane = work->d >> 16;
  if (lane % 32 || lane >= TENSOR_LANES) fail_in_tensor(from, TENSOR_LANES_APART, work->d, lane / 32 * 32);
  for (u32 block = 0; block < work->blocks.count && !from->piece; block++) {
    struct TensorSite site = *from;
    site.memory = work->blocks.each[block].memory;
    u32 first = columns_at(&site, work->d, COPY_COLUMNS[COPY_DOWN]);
    for (u32 column = first; column < first + COPY_COLUMNS[COPY_DOWN]; column++) {
      u32 *cells = &site.memory->cells[column][lane];
      memmove(cells, cells + 1, 31 * sizeof *cells);
    }
  }
}
