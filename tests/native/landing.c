/* Asynchronous copies that wait, by themselves, under the sanitizers of a compiler: groups, barriers, bulk groups, what
   is too many, and what a launch leaves behind. */

#include "crew.h"
#include "pending.h"

enum { ALL = ~0u, BLOCKS = 40, WORDS = 128, ROUNDS = 3 };

typedef void Apply(u64 there, u64 here);
struct Small *cujit_pending_small(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 size, flag parts,
                                  u32 line);
void cujit_pending_commit(const struct Block *state, u8 *shared, u32 warp, u32 lanes);
void cujit_pending_wait(struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 groups, void *pass, flag late);
void cujit_pending_turn(u8 *shared);
void cujit_pending_end(u8 *shared);
void cujit_pending_bulk(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 line, u64 to, u64 from,
                        u32 size, u64 barrier, u32 mask, u32 step, Apply *apply);
void cujit_pending_value(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 line, u64 to,
                         const u8 *value, u32 size, u64 barrier, Apply *apply);
void cujit_pending_arrive(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 line, u64 barrier,
                          flag counts);
void cujit_pending_test(struct Block *state, u8 *shared, u32 warp, u64 barrier, void *pass);
void cujit_pending_bulk_commit(const struct Block *state, u8 *shared, u32 warp, u32 lanes);
void cujit_pending_bulk_wait(struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 groups, flag read, void *pass,
                             flag late);

static u32 from[WORDS];

/* Each lane copies a word: lane k that of `first` + k to `to` + k. */
static void issue(u8 *shared, u32 warp, u32 *to, u32 first, u32 lanes) {
  struct Small *copy = cujit_pending_small(0, shared, warp, lanes, 4, 0, 1);
  for (u32 lane = 0; lane < WARP; lane++) {
    copy->to[lane] = (u64)(to + lane), copy->source[lane] = (u64)(from + first + lane);
  }
}

/* Of three groups the first two are waited for; then lanes that committed more often wait for more. */
static void groups(u8 *shared) {
  u32 *words = (u32 *)shared;
  memset(words, 0, 4 * WORDS);
  for (u32 k = 0; k < 3; k++) {
    issue(shared, 0, words + k * WARP, k * WARP, ALL);
    cujit_pending_commit(0, shared, 0, ALL);
  }
  cujit_pending_wait(0, shared, 0, ALL, 1, 0, 0);
  HOLDS(words[1] == from[1] && words[WARP + 31] == from[WARP + 31] && !words[2 * WARP]);
  cujit_pending_commit(0, shared, 0, 1);
  cujit_pending_wait(0, shared, 0, ALL, 1, 0, 0);
  HOLDS(words[2 * WARP] == from[2 * WARP] && !words[2 * WARP + 1]);
  cujit_pending_wait(0, shared, 0, ALL, ALL_COPIES, 0, 1);
  HOLDS(!words[2 * WARP + 1]);
  cujit_pending_turn(shared);
  HOLDS(words[2 * WARP + 1] == from[2 * WARP + 1]);
}

/* More copies than are kept, of several warps, with parts of what they name. */
static void many(u8 *shared) {
  u32 *words = (u32 *)shared;
  for (u32 k = 0; k < 3000; k++) {
    issue(shared, k % 5, words, k % WARP, ALL);
    if (k % 3) cujit_pending_commit(0, shared, k % 5, k);
  }
  struct Small *copy = cujit_pending_small(0, shared, 4, 1, 16, 1, 1);
  copy->to[0] = (u64)words, copy->source[0] = (u64)from, copy->count[0] = 4;
  cujit_pending_end(shared);
  HOLDS(words[0] == from[0] && !words[1]);
}

static void add(u64 there, u64 here) { *(u32 *)there += *(u32 *)here; }

/* A barrier of one arrival and the bytes of a copy, a store and a sum; and one that copies arrive at. */
static void barriers(u8 *shared) {
  u32 *words = (u32 *)shared;
  u64 barrier __attribute__((aligned(8))) = 32ull << MBARRIER_BYTES_AT | 1ull << MBARRIER_NEXT_AT;
  memset(words, 0, 4 * WORDS);
  cujit_pending_bulk(0, shared, 0, 1, 1, (u64)words, (u64)from, 16, (u64)&barrier, 0, 0, 0);
  cujit_pending_value(0, shared, 0, 2, 1, (u64)(words + 8), (const u8 *)(from + 8), 8, (u64)&barrier, 0);
  cujit_pending_value(0, shared, 0, 4, 1, (u64)(words + 9), (const u8 *)(from + 9), 4, (u64)&barrier, add);
  cujit_pending_value(0, shared, 0, 4, 1, (u64)(words + 9), (const u8 *)(from + 9), 4, (u64)&barrier, add);
  barrier++; /* somebody is still to arrive: nothing lands */
  cujit_pending_test(0, shared, 0, (u64)&barrier, 0);
  HOLDS(!words[1]);
  barrier--;
  cujit_pending_test(0, shared, 0, (u64)&barrier, 0);
  HOLDS(words[1] == from[1] && words[9] == 3 * from[9] && barrier >> MBARRIER_PHASE_AT == 1);
  u64 other __attribute__((aligned(8))) = 32 | 32ull << MBARRIER_NEXT_AT;
  issue(shared, 3, words + WARP, WARP, ALL);
  cujit_pending_arrive(0, shared, 3, ALL, 1, (u64)&other, 0);
  HOLDS(!words[WARP]);
  cujit_pending_test(0, shared, 0, (u64)&other, 0);
  HOLDS(words[WARP] == from[WARP] && other >> MBARRIER_PHASE_AT == 1);
}

/* What a bulk group reads is read at one wait, and written at another. */
static void bulk(u8 *shared) {
  u32 *words = (u32 *)shared, out[4] = {0};
  words[0] = 5;
  cujit_pending_bulk(0, shared, 1, 1, 1, (u64)out, (u64)words, 16, 0, 0, 0, 0);
  cujit_pending_bulk_commit(0, shared, 1, 1);
  words[0] = 6;
  cujit_pending_bulk_wait(0, shared, 1, 1, 1, 1, 0, 0);
  words[0] = 7;
  cujit_pending_bulk_wait(0, shared, 1, 1, 0, 1, 0, 0);
  words[0] = 8;
  HOLDS(!out[0]);
  cujit_pending_bulk_wait(0, shared, 1, 1, 0, 0, 0, 0);
  HOLDS(out[0] == 7);
}

static void kernel(struct Launch *launch, u8 *shared, u8 *local) {
  (void)local;
  while (__atomic_fetch_add(&launch->next, 1, __ATOMIC_RELAXED) < launch->blocks) {
    groups(shared), many(shared), barriers(shared), bulk(shared);
  }
  issue(shared, 7, (u32 *)shared, 0, ALL); /* nobody waits for it */
}

int main(void) {
  struct Crew crew;
  crew_begin(&crew);
  for (u32 k = 0; k < WORDS; k++) from[k] = 1000 + k;
  for (u32 k = 0; k < ROUNDS; k++) {
    struct Launch launch = {.blocks = BLOCKS, .chunk = 1};
    cujit_pool_run(crew.pool, (void *)kernel, &launch, WORKERS, 4 * WORDS, 0);
    HOLDS(!launch.fault_kind);
  }
  crew_end(&crew);
  puts("good");
}
