/* Tensor memory by itself, under the sanitizers of a compiler: registers that are stored and loaded, products of all
   kinds, all copies from shared memory, and uses that end a launch. */

#include "crew.h"
#include "tensor_memory.h"

enum { BLOCKS = 6, ROWS = 128, COLUMNS = 64, STEPS = 16, LEFT_BYTES = 2 * ROWS * STEPS, SHARED_BYTES = 24576 };

u32 cujit_tensor_alloc(struct Block *state, u8 *shared, u32 warp, u32 line, u32 count, flag pair, void *pass);
void cujit_tensor_dealloc(struct Block *state, u8 *shared, u32 warp, u32 line, u32 address, u32 count, flag pair, void *pass);
void cujit_tensor_stored(const struct Block *state, u8 *shared, u32 warp);
void cujit_tensor_relinquish(const struct Block *state, u8 *shared);
void cujit_matrix_tensor_load(u32 *frame, const struct Block *state, u8 *shared, u32 warp, u32 line, u32 address,
                              u32 shape, u32 count, flag halves, u32 split);
void cujit_matrix_tensor_store(const u32 *frame, const struct Block *state, u8 *shared, u32 warp, u32 line, u32 address,
                               u32 shape, u32 count, flag halves, u32 split);
Multiply cujit_tensor_product, cujit_tensor_fill, cujit_tensor_shift;
void cujit_pending_product(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 line, u32 d, u64 a, u64 b,
                           u32 descriptor, u32 keeps, u32 kind, u32 from_tensor, u32 scale, u32 mask0, u32 mask1,
                           u32 mask2, u32 mask3, u32 mask4, u32 mask5, u32 mask6, u32 mask7, u32 chunks, u32 factors_a,
                           u32 factors_b, u32 sparse, u32 metadata, u32 stationary, u64 zeros, u32 unpacked, flag pair,
                           Multiply *multiply);

/* What is stored in each shape is loaded again. */
static void registers(u8 *shared, u32 column) {
  static const u32 shapes[] = {SHAPE_16X64B, SHAPE_16X128B, SHAPE_16X256B, SHAPE_32X32B, SHAPE_16X32BX2};
  u32 stored[4 * WARP], loaded[4 * WARP];
  for (u32 shape = 0; shape < 5; shape++) {
    for (u32 warp = 0; warp < 4; warp++) {
      for (u32 halves = 0; halves < 2; halves++) {
        u32 address = warp * WARP << 16 | column;
        for (u32 k = 0; k < 4 * WARP; k++) stored[k] = shape << 24 | warp << 16 | k;
        cujit_matrix_tensor_store(stored, 0, shared, warp, 1, address, shapes[shape], 4, (flag)halves, 8);
        cujit_tensor_stored(0, shared, warp);
        cujit_matrix_tensor_load(loaded, 0, shared, warp, 1, address, shapes[shape], 4, (flag)halves, 8);
        HOLDS(!memcmp(stored, loaded, sizeof stored));
      }
    }
  }
}

static struct TensorSite site_of(u8 *shared) {
  return (struct TensorSite){running_of(0, shared), cujit_pending_tensor_memory(0, shared), 0, 0, 1};
}

static struct TensorBlocks blocks_of(const struct TensorSite *site, const u8 *shared) {
  return (struct TensorBlocks){1, {{site->memory, shared - SYSTEM_BYTES}}};
}

/* Factors without a swizzle: pieces of eight rows and 16 bytes. */
static u64 matrix(u32 first, u32 rows) { return (first + SYSTEM_BYTES) >> 4 | (u64)rows << 16 | 8ull << 32; }
static u32 place(u32 row, u32 k, u32 rows) { return k / 8 * rows * 8 + row * 8 + k % 8; }
static f32 left(u32 row, u32 k) { return (f32)((row + 2 * k) % 7) - 3; }
static f32 right(u32 column, u32 k) { return (f32)((3 * column + k) % 5) - 2; }

/* A product of halves, and the same once more on top of it; one warp's lanes of D stay as they are at first. */
static void product(u8 *shared, u32 column) {
  struct TensorSite site = site_of(shared);
  struct TensorWork work = {cujit_tensor_product, blocks_of(&site, shared), matrix(0, ROWS), matrix(LEFT_BYTES, COLUMNS), 0, column};
  work.descriptor = 1u << 4 | COLUMNS / 8 << 17 | ROWS / 16 << 24, work.kind = KIND_F16;
  for (u32 k = 0; k < STEPS; k++) {
    for (u32 row = 0; row < ROWS; row++) ((_Float16 *)shared)[place(row, k, ROWS)] = (_Float16)left(row, k);
    for (u32 row = 0; row < COLUMNS; row++) {
      ((_Float16 *)(shared + LEFT_BYTES))[place(row, k, COLUMNS)] = (_Float16)right(row, k);
    }
  }
  for (u32 at = column; at < column + COLUMNS; at++) memset(site.memory->cells[at], 0, sizeof *site.memory->cells);
  work.masked[0][1] = ~0u;
  cujit_tensor_product(&site, &work);
  work.masked[0][1] = 0, work.keeps = 1;
  cujit_tensor_product(&site, &work);
  for (u32 row = 0; row < ROWS; row++) {
    for (u32 at = 0; at < COLUMNS; at++) {
      f32 sum = 0, found;
      for (u32 k = 0; k < STEPS; k++) sum += left(row, k) * right(at, k);
      memcpy(&found, &site.memory->cells[column + at][row], sizeof found);
      HOLDS(found == (row / WARP == 1 ? sum : 2 * sum));
    }
  }
}

/* -- all forms -------------------------------------------------------------------------------------------------------- */

/* A float: bits of its exponent and of its fraction, its bias, and bits below it that nobody reads. With `low` it takes a word. */
struct Format {
  u32 bits, exponent, fraction, bias, low;
};
enum Type { F16, BF16, TF32, E4M3, E5M2, E2M3, E3M2, E2M1, FP4, U8, S8 };
static const struct Format FORMATS[] = {[F16] = {16, 5, 10, 15},     [BF16] = {16, 8, 7, 127},   [TF32] = {32, 8, 10, 127, 13},
                                        [E4M3] = {8, 4, 3, 7},       [E5M2] = {8, 5, 2, 15},     [E2M3] = {6, 2, 3, 1},
                                        [E3M2] = {6, 3, 2, 3},       [E2M1] = {4, 2, 1, 1},      [FP4] = {4, 2, 1, 1},
                                        [U8] = {8},                  [S8] = {8}};

/* One of 0, ±1, ±1.5, ±2 and ±3 as a code, or any integer; and what it is. */
static u32 code_of(enum Type type, u32 which) {
  const struct Format *f = &FORMATS[type];
  u32 size = which % 5;
  if (!f->exponent) return which * 37 % 256;
  u32 code = size ? (f->bias + (size - 1) / 2) << f->fraction | (size - 1) % 2 << (f->fraction - 1) : 0;
  code |= which / 5 % 2 << (f->exponent + f->fraction);
  return code << f->low | (f->low ? which * 77 % 4096 : 0);
}

static f64 value_of(enum Type type, u32 which) {
  static const f64 sizes[] = {0, 1, 1.5, 2, 3};
  u32 code = code_of(type, which);
  if (type == U8) return code;
  if (type == S8) return code < 128 ? code : code - 256.0;
  return which / 5 % 2 ? -sizes[which % 5] : sizes[which % 5];
}

/* A matrix of rows and steps (that `which_of` numbers) by a mode of swizzling. */
struct Matrix {
  enum Type type;
  u32 rows, steps, mode, across, seed;
};
static u32 which_of(const struct Matrix *x, u32 row, u32 k) { return (row * 7 + k * 3 + row * k + x->seed) % 251; }

/* Where a byte of a row (straight), or of step k (across), lies: atoms of eight lines, whose pieces of 16 bytes are
   exchanged by the number of the line. */
static u32 line_bytes(u32 mode) { return mode == 0 ? 16 : mode == 4 ? 64 : mode == 6 ? 32 : 128; }
static u32 depth_of(u32 mode) { return mode == 1 ? 4 : 8; }
static u32 along(const struct Matrix *x) {
  u32 bits = FORMATS[x->type].bits, size = x->type == FP4 ? 4 : bits < 8 ? 8 : bits;
  return (x->across ? x->rows : x->steps) * size / 8;
}
static u32 byte_place(const struct Matrix *x, u32 outer, u32 byte) {
  u32 line = line_bytes(x->mode), depth = depth_of(x->mode), atom = line * depth, own = outer % depth;
  u32 atoms = (along(x) + line - 1) / line, piece = byte % line / 16;
  u32 exchanged[] = {piece, piece ^ own * 2, piece ^ own, 0, piece ^ own / 2, 0, piece ^ own / 4};
  return (outer / depth * atoms + byte / line) * atom + own * line + exchanged[x->mode] * 16 + byte % 16;
}

/* Distances of the descriptor: between atoms along a line and between lines of atoms, in this order or the other. */
static u64 described(const struct Matrix *x, u32 first) {
  u64 atom = line_bytes(x->mode) * depth_of(x->mode), line = line_bytes(x->mode), next = (along(x) + line - 1) / line * atom;
  flag turned = x->across && !x->mode;
  return (first + SYSTEM_BYTES) >> 4 | (turned ? next : atom) >> 4 << 16 | (turned ? atom : next) >> 4 << 32 | (u64)x->mode << 61;
}

/* Bits of an element from a bit of a byte on. */
static void put_bits(u8 *to, u32 bit, u32 bits, u32 code) {
  for (u32 k = 0; k < bits; k++, bit++) to[bit / 8] = (u8)((to[bit / 8] & ~(1u << bit % 8)) | (code >> k & 1) << bit % 8);
}

static void place_in_shared(const struct Matrix *x, u8 *to) {
  u32 bits = FORMATS[x->type].bits;
  for (u32 row = 0; row < x->rows; row++) {
    for (u32 k = 0; k < x->steps; k++) {
      u32 code = code_of(x->type, which_of(x, row, k));
      if (x->across) {
        put_bits(to + byte_place(x, k, row * bits / 8), 0, bits, code);
      } else if (bits >= 8 || x->type == FP4) {
        put_bits(to + byte_place(x, row, k * bits / 8), k * bits % 8, bits, code);
      } else {
        put_bits(to + byte_place(x, row, k & ~15u), k % 16 * bits, bits, code);
      }
    }
  }
}

/* Rows in lanes: 64 are in every other 16. E2M1 beside other types is in the middle of a byte. */
static u32 own_lane(u32 rows, u32 row) { return rows == 128 ? row : row / 16 * 32 + row % 16; }
static void place_in_tensor(const struct Matrix *x, struct TensorMemory *memory, u32 column) {
  u32 bits = x->type == FP4 ? 4 : FORMATS[x->type].bits < 8 ? 8 : FORMATS[x->type].bits;
  for (u32 row = 0; row < x->rows; row++) {
    for (u32 k = 0; k < x->steps; k++) {
      u32 code = code_of(x->type, which_of(x, row, k)) << (x->type == E2M1 ? 2 : 0);
      put_bits((u8 *)&memory->cells[column + k * bits / 32][own_lane(x->rows, row)], k * bits % 32, bits, code);
    }
  }
}

/* A kind: its steps, its types of A and B with their codes, those of D, and the numbers of scale factors that it may have. */
struct Kind {
  u32 number, steps, count;
  enum Type types[5];
  u8 codes[5], results[2], chunks[2];
};
enum { RESULT_F16, RESULT_F32, RESULT_S32, NONE = 9 };
static const struct Kind KINDS[] = {
    {KIND_F16, 16, 2, {F16, BF16}, {0, 1}, {RESULT_F32, RESULT_F16}, {0, NONE}},
    {KIND_TF32, 8, 1, {TF32}, {2}, {RESULT_F32, NONE}, {0, NONE}},
    {KIND_F8F6F4, 32, 5, {E4M3, E5M2, E2M3, E3M2, E2M1}, {0, 1, 3, 4, 5}, {RESULT_F32, RESULT_F16}, {0, NONE}},
    {KIND_I8, 32, 2, {U8, S8}, {0, 1}, {RESULT_S32, NONE}, {0, NONE}},
    {KIND_MXF8F6F4, 32, 5, {E4M3, E5M2, E2M3, E3M2, E2M1}, {0, 1, 3, 4, 5}, {RESULT_F32, NONE}, {1, NONE}},
    {KIND_MXF4, 64, 1, {FP4}, {1}, {RESULT_F32, NONE}, {2, NONE}},
    {KIND_MXF4NVF4, 64, 1, {FP4}, {1}, {RESULT_F32, NONE}, {2, 4}},
};

/* Places in tensor memory from the column of D on. */
enum { COLUMNS_OF_D = 16, LEFT_AT = 16, SCALES_AT = 32, SCALES_APART = 8, RIGHT_BYTES = 16384 };

/* A product, and what it has beside its matrices; `factor_bits` of UE8M0 are 8 of exponent, else 4 and 3 of fraction. */
struct Form {
  const struct Kind *kind;
  struct Matrix a, b;
  u32 code_a, code_b, result, from_tensor, negates, scale, chunks, place_a, place_b;
  flag powers;
};

static u32 factor_code(const struct Form *x, u32 row, u32 chunk) {
  u32 which = (row + 3 * chunk) % 4;
  return x->powers ? 126 + which : 0x30 + which * 4;
}
static f64 factor_of(const struct Form *x, u32 row, u32 chunk) {
  static const f64 powers[] = {0.5, 1, 2, 4}, halves[] = {0.5, 0.75, 1, 1.5};
  return (x->powers ? powers : halves)[(row + 3 * chunk) % 4];
}

static void place_factors(const struct Form *x, struct TensorMemory *memory, u32 column, u32 rows, u32 place) {
  for (u32 row = 0; row < rows; row++) {
    for (u32 chunk = 0; chunk < x->chunks; chunk++) {
      put_bits((u8 *)&memory->cells[column + row / 32][row % 32], (place + chunk) * 8, 8, factor_code(x, row, chunk));
    }
  }
}

static f64 sum_of(const struct Form *x, u32 row, u32 column) {
  f64 sum = 0;
  for (u32 k = 0; k < x->a.steps; k++) {
    f64 term = value_of(x->a.type, which_of(&x->a, row, k)) * value_of(x->b.type, which_of(&x->b, column, k));
    u32 chunk = k * x->chunks / x->a.steps;
    if (x->chunks) term *= factor_of(x, row, chunk) * factor_of(x, column, chunk);
    sum += term;
  }
  return x->negates ? -sum : sum;
}

/* What D is before: whole numbers. */
static f64 before(u32 row, u32 column) { return (f64)((row * 5 + column) % 17) - 8; }
static u32 cell_of(u32 result, f64 value) {
  f32 single = (f32)value;
  _Float16 half = (_Float16)value;
  u32 cell = 0;
  if (result == RESULT_S32) return (u32)(i64)value;
  memcpy(&cell, result == RESULT_F16 ? (void *)&half : (void *)&single, result == RESULT_F16 ? 2 : 4);
  return cell;
}

static u32 word_of(const struct Form *x) {
  u32 word = x->code_a << 7 | x->code_b << 10 | x->negates << 13 | x->a.across << 15 | x->b.across << 16;
  word |= COLUMNS_OF_D / 8 << 17 | x->a.rows / 16 << 24;
  return x->chunks ? word | x->place_b << 4 | (u32)x->powers << 23 | x->place_a << 29 : word | x->result << 4;
}

static void hold_form(u8 *shared, u32 column, const struct Form *x) {
  struct TensorSite site = site_of(shared);
  struct TensorMemory *memory = site.memory;
  struct TensorWork work = {cujit_tensor_product, blocks_of(&site, shared), described(&x->a, 0), described(&x->b, RIGHT_BYTES), 0, column};
  work.descriptor = word_of(x), work.kind = x->kind->number, work.keeps = 1, work.scale = x->scale, work.chunks = x->chunks;
  memset(shared, 0x55, SHARED_BYTES);
  place_in_shared(&x->b, shared + RIGHT_BYTES);
  if (x->from_tensor) {
    place_in_tensor(&x->a, memory, column + LEFT_AT);
    work.from_tensor = 1, work.a = column + LEFT_AT;
  } else {
    place_in_shared(&x->a, shared);
  }
  for (u32 k = 0; k < 2; k++) {
    work.factors[k] = column + SCALES_AT + SCALES_APART * k;
    place_factors(x, memory, work.factors[k], k ? x->b.rows : x->a.rows, k ? x->place_b : x->place_a);
  }
  for (u32 k = 0; k < x->a.rows * COLUMNS_OF_D; k++) {
    u32 row = k / COLUMNS_OF_D, at = k % COLUMNS_OF_D;
    memory->cells[column + at][own_lane(x->a.rows, row)] = cell_of(x->result, before(row, at));
  }
  cujit_tensor_product(&site, &work);
  for (u32 k = 0; k < x->a.rows * COLUMNS_OF_D; k++) {
    u32 row = k / COLUMNS_OF_D, at = k % COLUMNS_OF_D;
    f64 kept = before(row, at) / (1u << x->scale);
    HOLDS(memory->cells[column + at][own_lane(x->a.rows, row)] == cell_of(x->result, sum_of(x, row, at) + kept));
  }
}

/* A pair of types in all modes that it has, with and without tensor memory, for each type of D. */
static u32 hold_pair(u8 *shared, u32 column, const struct Kind *kind, u32 a, u32 b, u32 chunks) {
  static const u8 modes[] = {0, 2, 4, 6, 1};
  enum Type types[] = {kind->types[a], kind->types[b]};
  u32 held = 0;
  for (u32 k = 0; k < 40; k++) {
    u32 mode = modes[k % 5], other = modes[k % 4], across = mode == 1 || k / 5 % 2, from_tensor = k / 10 % 2;
    u32 result = kind->results[k / 20], rows = chunks || k % 2 ? 128 : 64, place = chunks ? k % (5 - chunks) / chunks * chunks : 0;
    if (result == NONE || (across && (FORMATS[types[0]].bits < 8 || FORMATS[types[1]].bits < 8))) continue;
    struct Form form = {kind, {types[0], rows, kind->steps, from_tensor ? 0 : mode, !from_tensor && across, k},
                        {types[1], COLUMNS_OF_D, kind->steps, across ? mode : other, across, k + 5}};
    form.code_a = kind->codes[a], form.code_b = kind->codes[b], form.result = result, form.from_tensor = from_tensor;
    form.negates = k / 4 % 2 && kind->number != KIND_I8, form.chunks = chunks, form.place_a = place;
    form.place_b = chunks ? (4 - chunks - place) / chunks * chunks : 0, form.powers = chunks != 4 || k % 2;
    form.scale = chunks || kind->number == KIND_I8 ? 0 : k % 3;
    hold_form(shared, column, &form);
    held++;
  }
  return held;
}

static void hold_kinds(u8 *shared, u32 column) {
  for (u32 k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
    const struct Kind *kind = &KINDS[k];
    u32 held = 0;
    for (u32 pair = 0; pair < kind->count * kind->count * 2; pair++) {
      u32 a = pair / 2 / kind->count, b = pair / 2 % kind->count, chunks = kind->chunks[pair % 2];
      if (chunks == NONE || (kind->number == KIND_F16 && a != b)) continue;
      held += hold_pair(shared, column, kind, a, b, chunks);
    }
    HOLDS(held);
  }
}

/* Copies: rows and bytes of each, and the row that lane 32 * k begins with. */
static void hold_copies(u8 *shared, u32 column) {
  static const struct {
    u32 number, rows, bytes, firsts[4];
  } copies[] = {{COPY_128X256B, 128, 32, {0, 32, 64, 96}},
                {COPY_128X128B, 128, 16, {0, 32, 64, 96}},
                {COPY_64X128B_02_13, 64, 16, {0, 32, 0, 32}},
                {COPY_64X128B_01_23, 64, 16, {0, 0, 32, 32}},
                {COPY_32X128B, 32, 16, {0, 0, 0, 0}}};
  static const u8 modes[] = {0, 2, 4, 6};
  struct TensorSite site = site_of(shared);
  for (u32 k = 0; k < 4 * sizeof copies / sizeof *copies; k++) {
    struct Matrix rows = {U8, copies[k / 4].rows, copies[k / 4].bytes, modes[k % 4], 0, k};
    struct TensorWork work = {cujit_tensor_fill, blocks_of(&site, shared), 0, described(&rows, 0), 0, column};
    work.kind = copies[k / 4].number;
    place_in_shared(&rows, shared);
    cujit_tensor_fill(&site, &work);
    for (u32 byte = 0; byte < TENSOR_LANES * rows.steps; byte++) {
      u32 lane = byte / rows.steps, at = byte % rows.steps, row = copies[k / 4].firsts[lane / 32] + lane % 32;
      HOLDS((site.memory->cells[column + at / 4][lane] >> at % 4 * 8 & 255) == code_of(U8, which_of(&rows, row, at)));
    }
  }
}

/* Products of ones with a sparse A, or a stationary one with half of the columns of B, in each layout: D is as many as are stored. */
static void hold_ones(u8 *shared, u32 column, u32 rows, flag sparse, flag stationary) {
  struct TensorSite site = site_of(shared);
  struct TensorWork work = {cujit_tensor_product, blocks_of(&site, shared), matrix(0, ROWS), matrix(RIGHT_BYTES, COLUMNS), 0, column};
  u32 words = COLUMNS / (stationary ? TENSOR_LANES / rows : 1);
  work.descriptor = 1u << 4 | sparse << 2 | COLUMNS / 8 << 17 | rows / 16 << 24, work.kind = KIND_F16;
  work.sparse = sparse, work.stationary = stationary, work.metadata = column + COLUMNS;
  if (stationary) work.zeros = 1ull << 39 | 7ull << 40 | 7ull << 48;
  for (u32 k = 0; k < SHARED_BYTES / 2; k++) ((_Float16 *)shared)[k] = 1;
  for (u32 k = 0; k < TENSOR_LANES; k++) site.memory->cells[work.metadata][k] = 0x4e894e89;
  cujit_tensor_product(&site, &work);
  for (u32 k = 0; k < words * rows; k++) {
    f32 found;
    memcpy(&found, &site.memory->cells[column + k / rows][stationary ? k % rows : own_lane(rows, k % rows)], sizeof found);
    HOLDS(found == (stationary && k / rows % 16 >= 8 ? 0 : STEPS));
  }
}

static void hold_rest(u8 *shared, u32 column) {
  static const u32 rows[] = {32, 64, 128};
  struct TensorSite site = site_of(shared);
  for (u32 k = 1; k < 9; k++) {
    if (k / 3 || rows[k % 3] > 32) hold_ones(shared, column, rows[k % 3], k / 3 < 2, k / 3 > 0);
  }
  for (u32 k = 0; k < 3; k++) {
    struct TensorWork work = {cujit_tensor_fill, blocks_of(&site, shared), 0, matrix(0, ROWS), 0, column | k << 16};
    work.kind = COPY_4X256B, work.unpacked = k ? 2 + 2 * k : 0;
    memset(shared, 0xff, SHARED_BYTES);
    cujit_tensor_fill(&site, &work);
    HOLDS(site.memory->cells[column + 7][96 + k] == (k == 0 ? ~0u : k == 1 ? 0x3c3c3c3c : 0x3f3f3f3f));
  }
  for (u32 k = 0; k < TENSOR_LANES; k++) site.memory->cells[column + 7][k] = k;
  struct TensorWork work = {cujit_tensor_shift, blocks_of(&site, shared), 0, 0, 0, column | 96 << 16};
  cujit_tensor_shift(&site, &work);
  for (u32 k = 0; k < TENSOR_LANES; k++) HOLDS(site.memory->cells[column + 7][k] == (k < 96 || k == 127 ? k : k + 1));
}

static void forms(struct Launch *launch, u8 *shared, u8 *local) {
  u32 first = cujit_tensor_alloc(0, shared, 0, 1, 2 * COLUMNS, 0, 0);
  (void)launch, (void)local;
  hold_kinds(shared, first);
  hold_copies(shared, first);
  hold_rest(shared, first);
  cujit_tensor_dealloc(0, shared, 0, 2, first, 2 * COLUMNS, 0, 0);
}

static void kernel(struct Launch *launch, u8 *shared, u8 *local) {
  (void)local;
  while (__atomic_fetch_add(&launch->next, 1, __ATOMIC_RELAXED) < launch->blocks) {
    u32 first = cujit_tensor_alloc(0, shared, 0, 1, COLUMNS, 0, 0), second = cujit_tensor_alloc(0, shared, 0, 2, 32, 0, 0);
    HOLDS(first != second);
    registers(shared, second);
    product(shared, first);
    cujit_tensor_dealloc(0, shared, 0, 3, first, COLUMNS, 0, 0);
    cujit_tensor_dealloc(0, shared, 0, 3, second, 32, 0, 0);
  }
}

static void freed(struct Launch *launch, u8 *shared, u8 *local) {
  u32 frame[WARP];
  (void)launch, (void)local;
  u32 first = cujit_tensor_alloc(0, shared, 0, 1, 32, 0, 0);
  cujit_tensor_dealloc(0, shared, 0, 2, first, 32, 0, 0);
  cujit_matrix_tensor_load(frame, 0, shared, 0, 3, first, SHAPE_32X32B, 1, 0, 0);
}

static void relinquished(struct Launch *launch, u8 *shared, u8 *local) {
  (void)launch, (void)local;
  cujit_tensor_relinquish(0, shared);
  cujit_tensor_alloc(0, shared, 0, 4, 32, 0, 0);
}

/* The last 16 bytes of the last row are not in shared memory. */
static void outside(struct Launch *launch, u8 *shared, u8 *local) {
  (void)launch, (void)local;
  u32 first = cujit_tensor_alloc(0, shared, 0, 1, 32, 0, 0);
  struct TensorSite site = site_of(shared);
  struct TensorWork work = {cujit_tensor_fill, blocks_of(&site, shared), 0, matrix(SHARED_BYTES - ROWS * 16 + 16, ROWS), 0, first};
  work.kind = COPY_128X128B;
  cujit_tensor_fill(&site, &work);
}

/* A load of what a queued product writes. */
static void busy(struct Launch *launch, u8 *shared, u8 *local) {
  u32 frame[WARP], first = cujit_tensor_alloc(0, shared, 0, 1, 32, 0, 0);
  (void)launch, (void)local;
  cujit_pending_product(0, shared, 0, 1, 2, first, 0, matrix(0, ROWS), 0, 0, COPY_128X128B, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                        0, 0, 0, 0, 0, 0, 0, cujit_tensor_fill);
  cujit_matrix_tensor_load(frame, 0, shared, 0, 3, first + 4, SHAPE_32X32B, 1, 0, 0);
  cujit_matrix_tensor_load(frame, 0, shared, 0, 3, first + 3, SHAPE_32X32B, 1, 0, 0);
}

/* A product of what a warp stored and has not waited for: of many stores the last ones count. */
static void unstored(struct Launch *launch, u8 *shared, u8 *local) {
  u32 frame[WARP] = {0}, first = cujit_tensor_alloc(0, shared, 0, 1, 32, 0, 0);
  (void)launch, (void)local;
  for (u32 k = 0; k < 2 * MOST_STORED; k++) {
    cujit_matrix_tensor_store(frame, 0, shared, 0, 3, first + k % 8, SHAPE_32X32B, 1, 0, 0);
  }
  cujit_pending_product(0, shared, 0, 1, 2, first, 0, matrix(0, ROWS), 0, 0, COPY_128X128B, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                        0, 0, 0, 0, 0, 0, 0, cujit_tensor_fill);
}

static void run(struct Crew *crew, void *code, u64 blocks, u32 fault) {
  struct Launch launch = {.blocks = blocks, .chunk = 1, .shared_bytes = SHARED_BYTES};
  cujit_pool_run(crew->pool, code, &launch, blocks > 1 ? WORKERS : 0, SHARED_BYTES, 0);
  HOLDS(launch.fault_kind == (fault ? FAULT_TENSOR_MEMORY : 0) && launch.fault_more[2] == fault);
}

int main(void) {
  struct Crew crew;
  crew_begin(&crew);
  run(&crew, (void *)kernel, BLOCKS, 0);
  run(&crew, (void *)forms, 1, 0);
  run(&crew, (void *)freed, 1, TENSOR_FREED);
  run(&crew, (void *)relinquished, 1, TENSOR_RELINQUISHED);
  run(&crew, (void *)outside, 1, TENSOR_OUTSIDE);
  run(&crew, (void *)busy, 1, TENSOR_BUSY);
  run(&crew, (void *)unstored, 1, TENSOR_UNSTORED);
  run(&crew, (void *)kernel, BLOCKS, 0);
  crew_end(&crew);
  puts("good");
}
