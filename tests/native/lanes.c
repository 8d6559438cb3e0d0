/* What lanes of a warp do together, matrices, and boxes of tensors, by themselves, under the sanitizers of a compiler. */

#include "launch.h"
#include "vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDS(what) \
  if (!(what)) fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what), abort()

enum { ROUNDS = 2000, ALL = ~0u };

void cujit_match_32(const u32x32 *values, u32 lanes, u32x32 *found);
void cujit_match_64(const u64x32 *values, u32 lanes, u32x32 *found);
u32 cujit_ready(const u32 *members, u32 waiting, u32 live);
u32 cujit_note(struct Meeting *places, u32 count, u32 room, u32 line, u32 lanes, u32 members);
void cujit_matrix_multiply(const struct Product *p, void *frame);
void cujit_matrix_multiply_shared(const struct Product *p, void *frame, u64 a, u64 b, u64 memory, u32 warp);
void cujit_matrix_volta(u32x32 *frame, flag rows_a, flag rows_b, flag halves_c, flag halves_d);
void cujit_matrix_load(u32x32 *to, const u64 *addresses, u32 count, u32 bits, flag turns);
void cujit_matrix_load_columns(u8 *to, const u64 *addresses, u32 count, u32 bits);
void cujit_matrix_store(const u32x32 *words, const u64 *addresses, u32 count, flag turns, flag by_bytes);
void cujit_matrix_turn(u32x32 *words);
void cujit_matrix_move(const struct Fragment *f, u8 *at, u64 stride, u8 *regs, flag stores);
void cujit_directed(f64 *d, const f64 *x, const f64 *y, const f64 *z, u32 count, u32 operation, u32 mode);
u64 cujit_tensor_copy(const struct TensorMap *map, u64 shared, u64 origin, const i32 *coords, u32 rank, flag im2col,
                      flag inward, void (*const *reductions)(u64 there, u64 here));
u32 cujit_tensor_is_wrong(const struct TensorMap *map, u64 mark, u32 rank, u32 types);
u64 cujit_tensor_misplaced(const struct TensorMap *map, i32 first);
void cujit_bulk_bytes(u8 *to, const u8 *from, u32 size, u32 mask);
void cujit_bulk_reduce(u64 to, u64 from, u32 size, u32 step, void (*apply)(u64 there, u64 here));

static u64 state;

static u32 random_word(void) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)(state >> 32);
}

/* -- warps ----------------------------------------------------------------------------------------------------------- */

static void match(void) {
  u32x32 narrow, found, found_wide;
  u64x32 wide;
  u32 lanes = random_word(), kinds = random_word() % 5 + 1;
  for (u32 k = 0; k < WARP; k++) wide[k] = (u64)(random_word() % kinds) << 32 | 7, narrow[k] = (u32)(wide[k] >> 32);
  cujit_match_32(&narrow, lanes, &found);
  cujit_match_64(&wide, lanes, &found_wide);
  for (u32 k = 0; k < WARP; k++) {
    u32 same = 0;
    for (u32 other = 0; other < WARP; other++) same |= (narrow[k] == narrow[other] && lanes >> other & 1) ? 1u << other : 0;
    HOLDS(found[k] == same && found_wide[k] == same);
  }
}

static void get_ready(void) {
  u32 members[WARP], waiting = random_word(), live = waiting | random_word(), split = random_word(), expected = 0;
  for (u32 k = 0; k < WARP; k++) members[k] = split >> k & 1 ? split : ~split;
  for (u32 k = 0; k < WARP; k++) {
    if (waiting >> k & 1 && !(members[k] & live & ~waiting)) expected |= 1u << k;
  }
  HOLDS(cujit_ready(members, waiting, live) == expected);
}

static void note(void) {
  struct Meeting *places = malloc(2 * sizeof *places);
  HOLDS(!cujit_note(places, 0, 2, 5, 0, ALL) && cujit_note(places, 0, 2, 5, 1, ALL) == 1);
  HOLDS(cujit_note(places, 1, 2, 6, 2, 3) == 2 && cujit_note(places, 2, 2, 7, 4, 4) == 2);
  HOLDS(places[0].line == 5 && places[0].members == ALL && places[1].line == 6 && places[1].lanes == 2);
  free(places);
}

/* -- matrices -------------------------------------------------------------------------------------------------------- */

/* Memory of exactly so many registers, aligned as vectors are, with any bits. */
static u32x32 *registers(u32 count) {
  u32x32 *made = aligned_alloc(sizeof *made, count * sizeof *made);
  for (u32 k = 0; k < count * WARP; k++) ((u32 *)made)[k] = random_word();
  return made;
}

/* m16n8k8 of tf32: small whole numbers are summed as they are, whatever the alignment. */
static void multiply_small(u32 groups, u32 apart) {
  struct Product p = {.a = TYPE_TF32, .b = TYPE_TF32, .c = TYPE_F32, .d = TYPE_F32, .blocks = 1, .columns = 1};
  p.halves = 2, p.strips = 2, p.at_b = 4, p.at_c = 6, p.at_d = p.at_more = 10, p.groups = groups, p.apart = apart;
  p.floors[0] = p.floors[1] = p.floors[2] = 1 << 23, p.width = 25, p.mask = ALL, p.absent = 0x7f800001;
  u32x32 *frame = registers(14);
  f32 *words = (f32 *)frame;
  for (u32 k = 0; k < 10 * WARP; k++) words[k] = (f32)(random_word() % 9) - 4;
  cujit_matrix_multiply(&p, frame);
  for (u32 row = 0; row < 16; row++) {
    for (u32 column = 0; column < 8; column++) {
      u32 at = (row / 8 * 2 + column % 2) * WARP + row % 8 * 4 + column / 2;
      f32 sum = words[6 * WARP + at];
      for (u32 k = 0; k < 8; k++) {
        sum += words[(k / 4 * 2 + row / 8) * WARP + row % 8 * 4 + k % 4] * words[(4 + k / 4) * WARP + column * 4 + k % 4];
      }
      HOLDS(words[10 * WARP + at] == sum);
    }
  }
  free(frame);
}

/* Any bits of every type, sparse and scaled too, in frames and shared memory as large as they need to be. */
static void multiply_any(u32 a, u32 c, u32 strips_in, u32 sparse, u32 scaled, u32 layout, u32 aligned) {
  struct Product p = {.a = a, .b = a, .c = c, .d = c, .blocks = 1, .columns = 2, .halves = 2, .layout = layout};
  u32 words_c = c == TYPE_F16 ? 2 : 4, steps = sparse ? 4 : 2;
  p.strips = steps * strips_in, p.at_b = 4, p.at_c = 4 + 2 * steps, p.at_d = p.at_c, p.at_more = p.at_c + 2 * words_c;
  p.groups = aligned ? layout ? 2 : 1 : 0, p.apart = layout != 0, p.width = 25, p.mask = ALL, p.halves_sum = c == TYPE_F16;
  p.floors[0] = p.floors[1] = p.floors[2] = 113 << 23, p.sparse = sparse, p.absent = p.filler = 1u << 31;
  p.chunks = scaled, p.scale = scaled ? TYPE_UE8M0 : 0, p.byte_a = 1, p.thread_a = 1, p.thread_b = 2;
  u32x32 *frame = registers(p.at_more + 3);
  cujit_matrix_multiply(&p, frame);
  u8 *memory = (u8 *)registers(64);
  p.at_b = p.at_c = p.at_d = 0, p.at_more = 2 * words_c, p.from_shared = 1, p.turned_a = p.turned_b = a == TYPE_F16;
  u64 descriptor = 1ull << 62 | 8ull << 16 | 64ull << 32;
  cujit_matrix_multiply_shared(&p, frame, descriptor, descriptor, (u64)memory, 0);
  free(frame), free(memory);
}

static void multiply(void) {
  static const u32 types[][2] = {{TYPE_F16, 2}, {TYPE_BF16, 2}, {TYPE_TF32, 1}, {TYPE_S8, 4}, {TYPE_U8, 4},
                                 {TYPE_S4, 8}, {TYPE_U4, 8}, {TYPE_E4M3, 4}, {TYPE_E5M2, 4}, {TYPE_E2M3, 4},
                                 {TYPE_E3M2, 4}, {TYPE_E2M1, 4}, {TYPE_FP4, 8}};
  for (u32 k = 0; k < sizeof types / sizeof *types; k++) {
    u32 type = types[k][0], each = types[k][1], whole = k >= 3 && k < 7, bytes = k == 7 || k == 8;
    u32 bits = type == TYPE_TF32 ? 16 : each == 8 ? 4 : 8;
    for (u32 sparse = 0; sparse <= bits; sparse += bits) {
      multiply_any(type, whole ? TYPE_S32 : TYPE_F32, each, sparse, 0, LAYOUT_ORDER, !whole && each < 8);
      if (!whole) multiply_any(type, TYPE_F16, each, sparse, 0, LAYOUT_ORDER, 0);
    }
    if (bytes) multiply_any(type, TYPE_F16, each, 0, 0, LAYOUT_BYTES, 1), multiply_any(type, TYPE_F32, each, 8, 0, LAYOUT_CHUNKS, 1);
    if (each >= 4 && !whole) multiply_any(type, TYPE_F32, each, 0, 2, LAYOUT_ORDER, 0);
  }
  struct Product doubles = {.a = TYPE_F64, .halves = 2, .strips = 4, .at_b = 8, .at_c = 12, .at_d = 12};
  for (doubles.rounding = 0; doubles.rounding < 4; doubles.rounding++) {
    f64x32 *frame = aligned_alloc(sizeof *frame, 16 * sizeof *frame);
    for (u32 k = 0; k < 16 * WARP; k++) ((f64 *)frame)[k] = (f64)(random_word() % 9);
    cujit_matrix_multiply(&doubles, frame);
    f64 sum = ((f64 *)frame)[12 * WARP];
    HOLDS(sum == (f64)(i64)sum);
    free(frame);
  }
  u32x32 *frame = registers(20);
  for (u32 k = 0; k < 16; k++) cujit_matrix_volta(frame, k & 1, k >> 1 & 1, k >> 2 & 1, k >> 3);
  free(frame);
}

/* Turned twice, a matrix is what it was, and so is one that is stored and loaded. */
static void move(void) {
  u32x32 *words = registers(4), *kept = registers(4), *memory = registers(4);
  u64 addresses[WARP];
  for (u32 k = 0; k < WARP; k++) addresses[k] = (u64)memory + 16 * k;
  for (u32 turns = 0; turns < 2; turns++) {
    memcpy(kept, words, 4 * sizeof *words);
    cujit_matrix_store(words, addresses, 4, turns, 0);
    cujit_matrix_load(words, addresses, 4, 8, turns);
    HOLDS(!memcmp(kept, words, 4 * sizeof *words));
  }
  cujit_matrix_turn(words), cujit_matrix_turn(words);
  HOLDS(!memcmp(kept, words, 4 * sizeof *words));
  cujit_matrix_store(words, addresses, 4, 0, 1);
  for (u32 bits = 4; bits <= 8; bits += 2) {
    cujit_matrix_load(words, addresses, 4, bits, 0);
    cujit_matrix_load_columns((u8 *)words, addresses, 2, bits);
  }
  for (u32 k = 0; k < 10; k++) {
    u32 bytes = 1u << (k % 4 + (k / 8) * 2), sums = k >= 8, block = sums ? 8 : bytes == 8 ? 4 : 16 / bytes;
    struct Fragment f = {.lines = 8, .width = block, .halves = 1, .block = block, .bytes = bytes, .sums = sums, .straight = k / 4 % 2};
    u32 size = 8 * block * bytes;
    u8 *from = malloc(size), *own = (u8 *)registers(size / 128), *to = malloc(size);
    for (u32 n = 0; n < size; n++) from[n] = (u8)random_word();
    u64 stride = (f.straight ? block : 8) * bytes;
    cujit_matrix_move(&f, from, stride, own, 0), cujit_matrix_move(&f, to, stride, own, 1);
    HOLDS(!memcmp(from, to, size));
    free(from), free(own), free(to);
  }
  free(words), free(kept), free(memory);
}

/* Between the neighbours below and above there is no other number. */
static void direct(u32 operation) {
  f64 x = (f64)random_word() / 3.0, y = (f64)random_word() / 7.0 + 1.0, z = -(f64)random_word() / 9.0, low, high, cut;
  cujit_directed(&low, &x, &y, &z, 1, operation, ROUND_RM);
  cujit_directed(&high, &x, &y, &z, 1, operation, ROUND_RP);
  cujit_directed(&cut, &x, &y, &z, 1, operation, ROUND_RZ);
  HOLDS(low == high || __builtin_nextafter(low, high) == high);
  HOLDS(cut == (low < 0.0 ? high : low));
}

/* -- boxes of tensors ------------------------------------------------------------------------------------------------ */

static void add(u64 there, u64 here) { *(u32 *)there += *(u32 *)here; }

/* A box of 4 x 3 words, some of it outside of a tensor of 8 x 4, goes in, is added, and goes out again. */
static void copy_box(i32 x, i32 y, u32 swizzle, u32 closed) {
  enum { WIDTH = 8, HEIGHT = 4, BOX = 4, ROWS = 3 };
  u32 *tensor = malloc(WIDTH * HEIGHT * 4), *shared = aligned_alloc(1024, 1024);
  struct TensorMap map = {.global_address = (u64)tensor, .strides = {WIDTH * 4}, .sizes = {WIDTH, HEIGHT}, .box = {BOX, ROWS}};
  map.element_strides[0] = map.element_strides[1] = 1, map.last_dimension = 1, map.element = 2, map.element_bytes = 4;
  map.swizzle = (u8)swizzle, map.mark = 77 | (u64)closed << 63;
  void (*reductions[13])(u64, u64) = {0};
  reductions[2] = add;
  i32 coords[2] = {x, y};
  for (u32 k = 0; k < WIDTH * HEIGHT; k++) tensor[k] = k;
  HOLDS(!cujit_tensor_is_wrong(&map, 77, 2, 4) && cujit_tensor_is_wrong(&map, 77, 3, 4) && cujit_tensor_is_wrong(&map, 77, 2, 8));
  HOLDS(!cujit_tensor_misplaced(&map, x) == !(x & 3 || (u64)tensor & 15));
  HOLDS(cujit_tensor_copy(&map, (u64)shared, (u64)shared, coords, 2, 0, 1, 0) == BOX * ROWS * 4);
  for (u32 k = 0; k < BOX && !swizzle; k++) {
    flag inside = (u32)(x + (i32)k) < WIDTH && (u32)y < HEIGHT;
    HOLDS(shared[k] == (inside ? (u32)(y * WIDTH + x) + k : 0));
  }
  cujit_tensor_copy(&map, (u64)shared, (u64)shared, coords, 2, 0, 0, reductions);
  for (u32 k = 0; k < WIDTH * HEIGHT; k++) {
    flag moved = (i32)(k % WIDTH) >= x && (i32)(k % WIDTH) < x + BOX && (i32)(k / WIDTH) >= y && (i32)(k / WIDTH) < y + ROWS;
    HOLDS(tensor[k] == (moved ? 2 * k : k));
  }
  cujit_tensor_copy(&map, (u64)shared, (u64)shared, coords, 2, 0, 0, 0);
  for (u32 k = 0; k < WIDTH * HEIGHT; k++) HOLDS(tensor[k] == k);
  free(tensor), free(shared);
}

/* Channels 0 to 3 of six pixels of two images of 3 x 2, along W, H and N. */
static void copy_pixels(void) {
  u32 *tensor = malloc(2 * 2 * 3 * 4 * 4), *shared = aligned_alloc(1024, 1024);
  struct TensorMap map = {.global_address = (u64)tensor, .strides = {16, 48, 96}, .sizes = {4, 3, 2, 2}, .box = {4, 8, 1, 1}};
  for (u32 k = 0; k < 4; k++) map.element_strides[k] = 1;
  map.last_dimension = 3, map.element = 11, map.element_bytes = 4;
  i32 coords[6] = {0, 1, 0, 0, 0, 0};
  for (u32 k = 0; k < 48; k++) tensor[k] = k << 13;
  cujit_tensor_copy(&map, (u64)shared, (u64)shared, coords, 4, 1, 1, 0);
  for (u32 k = 0; k < 32; k++) HOLDS(shared[k] == (k + 4) << 13);
  free(tensor), free(shared);
}

static void copy(void) {
  for (u32 k = 0; k < 4; k++) {
    for (i32 y = -1; y < 4; y++) copy_box(0, y, k & 1, k >> 1), copy_box(4, y, k & 1, k >> 1);
  }
  copy_box(-4, 0, 0, 0), copy_box(8, 0, 0, 1);
  copy_pixels();
  u8 from[32] = {1, 2, 3, 4}, to[32] = {0};
  cujit_bulk_bytes(to, from, 32, 5);
  HOLDS(to[0] == 1 && to[1] == 0 && to[2] == 3 && to[3] == 0);
  u32 sums[4] = {1, 2, 3, 4};
  cujit_bulk_reduce((u64)sums, (u64)sums, 16, 4, add);
  HOLDS(sums[0] == 2 && sums[3] == 8);
}

int main(void) {
  for (u32 k = 0; k < ROUNDS; k++) match(), get_ready(), direct(k % 5);
  note();
  for (u32 k = 0; k < 50; k++) multiply_small(k % 3, k % 3 == 2);
  multiply();
  move();
  copy();
  puts("good");
}
