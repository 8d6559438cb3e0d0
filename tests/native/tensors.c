/* Tensor memory by itself, under the sanitizers of a compiler: registers that are stored and loaded, a product, a copy from
   shared memory, and uses that end a launch. */

#include "crew.h"
#include "tensor_memory.h"

enum { BLOCKS = 6, ROWS = 128, COLUMNS = 64, STEPS = 16, LEFT_BYTES = 2 * ROWS * STEPS, SHARED_BYTES = 8192 };

u32 cujit_tensor_alloc(struct Block *state, u8 *shared, u32 warp, u32 line, u32 count, void *pass);
void cujit_tensor_dealloc(const struct Block *state, u8 *shared, u32 warp, u32 line, u32 address, u32 count);
void cujit_tensor_stored(const struct Block *state, u8 *shared, u32 warp);
void cujit_tensor_relinquish(const struct Block *state, u8 *shared);
void cujit_matrix_tensor_load(u32 *frame, const struct Block *state, u8 *shared, u32 warp, u32 line, u32 address,
                              u32 shape, u32 count, flag halves, u32 split);
void cujit_matrix_tensor_store(const u32 *frame, const struct Block *state, u8 *shared, u32 warp, u32 line, u32 address,
                               u32 shape, u32 count, flag halves, u32 split);
Multiply cujit_tensor_product, cujit_tensor_fill;
void cujit_pending_product(const struct Block *state, u8 *shared, u32 warp, u32 lanes, u32 line, u32 d, u64 a, u64 b,
                           u32 descriptor, u32 keeps, u32 kind, u32 from_tensor, u32 scale, u32 mask0, u32 mask1,
                           u32 mask2, u32 mask3, u32 chunks, u32 factors_a, u32 factors_b, Multiply *multiply);

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

/* Factors without a swizzle: pieces of eight rows and 16 bytes. */
static u64 matrix(u32 first, u32 rows) { return (first + SYSTEM_BYTES) >> 4 | (u64)rows << 16 | 8ull << 32; }
static u32 place(u32 row, u32 k, u32 rows) { return k / 8 * rows * 8 + row * 8 + k % 8; }
static f32 left(u32 row, u32 k) { return (f32)((row + 2 * k) % 7) - 3; }
static f32 right(u32 column, u32 k) { return (f32)((3 * column + k) % 5) - 2; }

/* A product of halves, and the same once more on top of it; one warp's lanes of D stay as they are at first. */
static void product(u8 *shared, u32 column) {
  struct TensorSite site = site_of(shared);
  struct TensorWork work = {cujit_tensor_product, shared - SYSTEM_BYTES, matrix(0, ROWS), matrix(LEFT_BYTES, COLUMNS), column};
  work.descriptor = 1u << 4 | COLUMNS / 8 << 17 | ROWS / 16 << 24, work.kind = KIND_F16;
  for (u32 k = 0; k < STEPS; k++) {
    for (u32 row = 0; row < ROWS; row++) ((_Float16 *)shared)[place(row, k, ROWS)] = (_Float16)left(row, k);
    for (u32 row = 0; row < COLUMNS; row++) {
      ((_Float16 *)(shared + LEFT_BYTES))[place(row, k, COLUMNS)] = (_Float16)right(row, k);
    }
  }
  for (u32 at = column; at < column + COLUMNS; at++) memset(site.memory->cells[at], 0, sizeof *site.memory->cells);
  work.masked[1] = ~0u;
  cujit_tensor_product(&site, &work);
  work.masked[1] = 0, work.keeps = 1;
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

/* Rows of 16 bytes become four columns. */
static void copy(u8 *shared, u32 column) {
  struct TensorSite site = site_of(shared);
  struct TensorWork work = {cujit_tensor_fill, shared - SYSTEM_BYTES, 0, matrix(0, ROWS), column, .kind = COPY_128X128B};
  for (u32 k = 0; k < ROWS * 4; k++) ((u32 *)shared)[k] = 1000 + k;
  cujit_tensor_fill(&site, &work);
  for (u32 row = 0; row < ROWS; row++) {
    for (u32 k = 0; k < 4; k++) HOLDS(site.memory->cells[column + k][row] == 1000 + 4 * row + k);
  }
}

static void kernel(struct Launch *launch, u8 *shared, u8 *local) {
  (void)local;
  while (__atomic_fetch_add(&launch->next, 1, __ATOMIC_RELAXED) < launch->blocks) {
    u32 first = cujit_tensor_alloc(0, shared, 0, 1, COLUMNS, 0), second = cujit_tensor_alloc(0, shared, 0, 2, 32, 0);
    HOLDS(first != second);
    registers(shared, second);
    product(shared, first);
    copy(shared, second);
    cujit_tensor_dealloc(0, shared, 0, 3, first, COLUMNS);
    cujit_tensor_dealloc(0, shared, 0, 3, second, 32);
  }
}

static void freed(struct Launch *launch, u8 *shared, u8 *local) {
  u32 frame[WARP];
  (void)launch, (void)local;
  u32 first = cujit_tensor_alloc(0, shared, 0, 1, 32, 0);
  cujit_tensor_dealloc(0, shared, 0, 2, first, 32);
  cujit_matrix_tensor_load(frame, 0, shared, 0, 3, first, SHAPE_32X32B, 1, 0, 0);
}

static void relinquished(struct Launch *launch, u8 *shared, u8 *local) {
  (void)launch, (void)local;
  cujit_tensor_relinquish(0, shared);
  cujit_tensor_alloc(0, shared, 0, 4, 32, 0);
}

/* The last 16 bytes of the last row are not in shared memory. */
static void outside(struct Launch *launch, u8 *shared, u8 *local) {
  (void)launch, (void)local;
  u32 first = cujit_tensor_alloc(0, shared, 0, 1, 32, 0);
  struct TensorSite site = site_of(shared);
  struct TensorWork work = {cujit_tensor_fill, shared - SYSTEM_BYTES, 0, matrix(SHARED_BYTES - ROWS * 16 + 16, ROWS), first};
  work.kind = COPY_128X128B;
  cujit_tensor_fill(&site, &work);
}

/* A load of what a queued product writes. */
static void busy(struct Launch *launch, u8 *shared, u8 *local) {
  u32 frame[WARP], first = cujit_tensor_alloc(0, shared, 0, 1, 32, 0);
  (void)launch, (void)local;
  cujit_pending_product(0, shared, 0, 1, 2, first, 0, matrix(0, ROWS), 0, 0, COPY_128X128B, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                        cujit_tensor_fill);
  cujit_matrix_tensor_load(frame, 0, shared, 0, 3, first + 4, SHAPE_32X32B, 1, 0, 0);
  cujit_matrix_tensor_load(frame, 0, shared, 0, 3, first + 3, SHAPE_32X32B, 1, 0, 0);
}

/* A product of what a warp stored and has not waited for: of many stores the last ones count. */
static void unstored(struct Launch *launch, u8 *shared, u8 *local) {
  u32 frame[WARP] = {0}, first = cujit_tensor_alloc(0, shared, 0, 1, 32, 0);
  (void)launch, (void)local;
  for (u32 k = 0; k < 2 * MOST_STORED; k++) {
    cujit_matrix_tensor_store(frame, 0, shared, 0, 3, first + k % 8, SHAPE_32X32B, 1, 0, 0);
  }
  cujit_pending_product(0, shared, 0, 1, 2, first, 0, matrix(0, ROWS), 0, 0, COPY_128X128B, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                        cujit_tensor_fill);
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
  run(&crew, (void *)freed, 1, TENSOR_FREED);
  run(&crew, (void *)relinquished, 1, TENSOR_RELINQUISHED);
  run(&crew, (void *)outside, 1, TENSOR_OUTSIDE);
  run(&crew, (void *)busy, 1, TENSOR_BUSY);
  run(&crew, (void *)unstored, 1, TENSOR_UNSTORED);
  run(&crew, (void *)kernel, BLOCKS, 0);
  crew_end(&crew);
  puts("good");
}
