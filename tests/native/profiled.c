/* What counts the accesses of warps by itself, under the sanitizers of a compiler: by all threads of a pool, with rows,
   with addresses of each lane, with sizes of each, in every space. */

#include "crew.h"

enum { ALL = ~0u, BLOCKS = 40, ROUNDS = 8, SITES = 6, LAUNCHES = 8, SHARED = 8192, LOCAL = 4096 };

struct Tally *cujit_profile_begin(struct Launch *launch, struct Profiled *profiled, u64 shared);
void cujit_profile_access(struct Tally *tally, const struct Accessed *site, u32 lanes, const u64 *bases, u32 rows,
                          const u64 *sizes, u64 block, u64 local, u64 kernel_local);
void cujit_profile_end(struct Profiled *profiled, u64 *totals, struct Picture *pictures);

static const struct Accessed SITE[SITES] = {
    {4, 0 * COUNTS, 0, 4, SPACE_GLOBAL, 0, 0},   /* side by side */
    {0, 1 * COUNTS, 0, 4, SPACE_GLOBAL, 0, 0},   /* wherever each lane is */
    {0, 2 * COUNTS, 0, 0, SPACE_GLOBAL, 0, 0},   /* as many bytes as each lane says */
    {0, 3 * COUNTS, 0, 4, SPACE_GLOBAL, ACCESSED_UPDATES, 0},
    {128, 4 * COUNTS, 0, 4, SPACE_SHARED, 0, 0}, /* all in one bank */
    {0, 5 * COUNTS, 64, 16, SPACE_GENERIC, 0, 0},
};

/* Each operation is a row; two rows are of one line, and so are the next two. */
static const u32 ROW_OF[SITES] = {0, 1, 2, 3, 4, 5}, LINE_OF[SITES] = {0, 0, 1, 1, 2, 3};
static u64 row_sectors[SITES], line_sectors[4];

static struct Profiled profiled = {.count = SITES * COUNTS,
                                   .local_bytes = 64,
                                   .row_count = SITES,
                                   .rows = ROW_OF,
                                   .lines = LINE_OF,
                                   .row_sectors = row_sectors,
                                   .line_sectors = line_sectors};

static void access(struct Tally *tally, u32 site, u64 block, u64 shared, u64 local) {
  u64 at[WARP], sizes[WARP], base = (1ull << 40) + block * 4096;
  switch (site) {
  case 0: return cujit_profile_access(tally, SITE, ALL, &base, 1, 0, block, local, local);
  case 1:
    for (u32 k = 0; k < WARP; k++) at[k] = ((u64)k << 33) + block * 32;
    return cujit_profile_access(tally, SITE + 1, ALL, at, WARP, 0, block, local, local);
  case 2:
    for (u32 k = 0; k < WARP; k++) at[k] = base + k * 8192, sizes[k] = k * 256;
    return cujit_profile_access(tally, SITE + 2, ALL, at, WARP, sizes, block, local, local);
  case 3:
    for (u32 k = 0; k < WARP; k++) at[k] = base + k % 3 * 4;
    return cujit_profile_access(tally, SITE + 3, ALL, at, WARP, 0, block, local, local);
  case 4: return cujit_profile_access(tally, SITE + 4, ALL, &shared, 1, 0, block, local, local);
  }
  for (u32 k = 0; k < WARP; k++) at[k] = k < 8 ? base : k < 16 ? shared + k * 16 : local + k * 64;
  cujit_profile_access(tally, SITE + 5, ALL, at, WARP, 0, block, local, local);
}

static void kernel(struct Launch *launch, u8 *shared, u8 *local) {
  struct Tally *tally = cujit_profile_begin(launch, &profiled, (u64)shared);
  HOLDS(tally == cujit_profile_begin(launch, &profiled, (u64)shared));
  for (u64 block; (block = __atomic_fetch_add(&launch->next, 1, __ATOMIC_RELAXED)) < BLOCKS;)
    for (u32 round = 0; round < ROUNDS; round++)
      for (u32 site = 0; site < SITES; site++) access(tally, site, block, (u64)shared, (u64)local);
}

int main(void) {
  struct Crew crew;
  crew_begin(&crew);
  for (u32 k = 0; k < LAUNCHES; k++) {
    struct Launch launch = {.shared_bytes = SHARED, .blocks = BLOCKS, .chunk = 1};
    u64 totals[SITES][COUNTS] = {{0}}, times = BLOCKS * ROUNDS;
    struct Picture pictures[SITES][PICTURES] = {{{0}}};
    profiled.sectors = profiled.block_sectors = 0;
    memset(row_sectors, 0, sizeof row_sectors);
    memset(line_sectors, 0, sizeof line_sectors);
    cujit_pool_run(crew.pool, kernel, &launch, k % (WORKERS + 1), SHARED, LOCAL);
    cujit_profile_end(&profiled, totals[0], pictures[0]);
    HOLDS(!profiled.lost && !profiled.tallies);
    HOLDS(totals[0][COUNT_REQUESTS] == times && totals[0][COUNT_SECTORS] == 4 * times);
    HOLDS(totals[1][COUNT_SECTORS] == WARP * times && totals[1][COUNT_BYTES] == WARP * 4 * times);
    HOLDS(totals[2][COUNT_SECTORS] == 8 * 31 * 16 * times);
    HOLDS(totals[0][COUNT_FARTHEST] == (1ull << 63) + 4 && totals[0][COUNT_NEAREST] == (1ull << 63) - 5);
    HOLDS(totals[0][COUNT_STRIDED] == times && totals[3][COUNT_STRIDED] == times);
    HOLDS(totals[3][COUNT_SECTORS] == 11 * times && totals[3][COUNT_MOST] == 11);
    HOLDS(totals[4][COUNT_WAVEFRONTS] == WARP * times && totals[4][COUNT_PASSES] == times);
    HOLDS(totals[5][COUNT_SECTORS] == times && totals[5][COUNT_SHARED_BYTES] == 128 * times);
    HOLDS(totals[5][COUNT_LOCAL_REQUESTS] == 4 * times && totals[5][COUNT_LOCAL_SECTORS] == 8 * times);
    for (u32 site = 0; site < SITES; site++) {
      HOLDS(pictures[site][0].block == (site != 4) && pictures[site][1].block == (site > 3)); /* the first of all */
    }
    HOLDS(pictures[0][0].at[3] == (1ull << 40) + 12 && pictures[0][0].lanes == ALL);
    HOLDS(pictures[2][0].lanes == (u32)~1 && pictures[2][0].size[31] == 31 * 256);
    HOLDS(pictures[4][1].at[1] == 128 && pictures[5][0].lanes == 0xff && pictures[5][1].lanes == 0xff00);
    HOLDS(profiled.block_sectors >= profiled.sectors && profiled.sectors > BLOCKS * WARP);
    HOLDS(row_sectors[0] == 4 * BLOCKS && row_sectors[1] == WARP * BLOCKS && row_sectors[3] == BLOCKS);
    HOLDS(!row_sectors[4] && !line_sectors[2] && row_sectors[5] == line_sectors[3]);
    HOLDS(line_sectors[0] == row_sectors[0] + row_sectors[1]); /* nothing is in both */
    HOLDS(line_sectors[1] >= row_sectors[2] && line_sectors[1] < row_sectors[2] + row_sectors[3]);
  }
  crew_end(&crew);
  puts("good");
}
