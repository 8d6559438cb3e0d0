/* What lanes of a warp do together, and sums of tensor cores, by themselves, under the sanitizers of a compiler. */

#include "launch.h"
#include "vectors.h"

#include <stdio.h>
#include <stdlib.h>

#define HOLDS(what) \
  if (!(what)) fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what), abort()

enum { ROUNDS = 2000, STRIPS = 16, ALL = ~0u };

void cujit_match_32(const u32x32 *values, u32 lanes, u32x32 *found);
void cujit_match_64(const u64x32 *values, u32 lanes, u32x32 *found);
u32 cujit_ready(const u32 *members, u32 waiting, u32 live);
u32 cujit_note(struct Meeting *places, u32 count, u32 room, u32 line, u32 lanes, u32 members);
void cujit_matrix_sum(u32x32 *d, const f32x32 *a, const f32x32 *b, u32 strips, u32 floor_a, u32 floor_b, u32 floor_c,
                      u32 zero_c, u32 width, u32 mask, u32 last, u32 absent);

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

/* -- sums ------------------------------------------------------------------------------------------------------------ */

/* The least exponent of f16, as f32 has it. */
enum { FLOOR = (127 - 14) << 23 };

static f32 element(const u32x32 *d, u32 k) {
  u32 bits = d[k / WARP][k % WARP];
  return AS(f32, bits);
}

/* Small whole numbers are summed as they are, whatever the alignment. */
static void sum_small(u32 strips, f32 *a, f32 *b) {
  u32x32 d[2];
  f32 expected[2][WARP];
  for (u32 k = 0; k < strips * WARP; k++) a[k] = (f32)(random_word() % 9) - 4, b[k] = (f32)(random_word() % 9) - 4;
  for (u32 k = 0; k < 2 * WARP; k++) {
    u32 half = k / WARP, lane = k % WARP;
    f32 total = (f32)(random_word() % 9) - 4;
    d[half][lane] = AS(u32, total);
    for (u32 n = 0; n < 4 * strips; n++) {
      total += a[n / 4 * WARP + (lane & 28) + n % 4] * b[n / 4 * WARP + n % 4 * 8 + 4 * half + (lane & 3)];
    }
    expected[half][lane] = total;
  }
  cujit_matrix_sum(d, (f32x32 *)a, (f32x32 *)b, strips, FLOOR, FLOOR, 1 << 23, 0, 25, ALL, 0, ALL);
  for (u32 k = 0; k < 2 * WARP; k++) HOLDS(element(d, k) == expected[k / WARP][k % WARP]);
}

/* What has the way that takes all numbers: a NaN, infinity, and exponents that are far apart. */
static void sum_odd(u32 strips, f32 *a, f32 *b) {
  static const f32 odd[] = {0x1p-120f, 0x1.8p100f, __builtin_inff(), 0.0f};
  u32x32 d[2] = {0, 0};
  for (u32 k = 0; k < strips * WARP; k++) a[k] = b[k] = 1.0f;
  for (u32 k = 0; k < 4; k++) a[4 * k] = odd[k];
  a[16] = __builtin_nanf("");
  cujit_matrix_sum(d, (f32x32 *)a, (f32x32 *)b, strips, FLOOR, FLOOR, 1 << 23, 0, 13, ~1023u, 1, AS(u32, 0.0f));
  for (u32 lane = 0; lane < WARP; lane++) {
    f32 sum = element(d, lane);
    HOLDS(lane / 4 == 4 ? sum != sum : lane / 4 == 2 ? sum == __builtin_inff() : lane / 4 == 1 ? sum == 0x1.8p100f : sum > 0.0f);
  }
}

int main(void) {
  for (u32 k = 0; k < ROUNDS; k++) match(), get_ready();
  note();
  for (u32 strips = 1; strips <= STRIPS; strips *= 2) {
    /* As large as what it holds, and aligned as vectors are. */
    f32 *a = aligned_alloc(sizeof(f32x32), strips * sizeof(f32x32)), *b = aligned_alloc(sizeof(f32x32), strips * sizeof(f32x32));
    for (u32 k = 0; k < 50; k++) sum_small(strips, a, b), sum_odd(strips, a, b);
    free(a), free(b);
  }
  puts("good");
}
