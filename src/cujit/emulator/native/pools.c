/* Memory pools: counters of what was allocated of them. Streams are done when a call returns, so nothing waits. */

#include "memory.h"

typedef Answer (*OnPooled)(u64, u64, u64, u64);

#define POOL(handle) ((struct PoolCell *)cell_of(handle, CELL_POOL))
#define ADD(counter, amount) __atomic_add_fetch(&(counter), amount, __ATOMIC_RELAXED)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
enum { DEVICE_PLACE = 1, HOST_PLACE = 2 }; /* of CUmemLocationType */

static u64 own[BLOCK_HOST + 1]; /* those that are there without being made, by their blocks */

/* Make a pool for blocks of a kind; 0 without memory. */
u64 cujit_pool_new(u64 most_bytes, u32 block, u64 place) {
  struct PoolCell *pool = (struct PoolCell *)cujit_cell_new(CELL_POOL, 0);
  if (!pool) return 0;
  pool->reuse = 7;
  pool->most_bytes = most_bytes;
  pool->block = block;
  pool->place = place;
  return (u64)pool;
}

/* The own pool of blocks of a kind, made when somebody first asks; 0 without memory. */
u64 cujit_pool_own(u32 block) {
  pthread_mutex_lock(&lock);
  u64 place = block == BLOCK_POOLED ? DEVICE_PLACE : block == BLOCK_HOST ? HOST_PLACE : 0;
  if (!own[block] && (own[block] = cujit_pool_new(0, block, place))) ((struct PoolCell *)own[block])->is_default = 1;
  pthread_mutex_unlock(&lock);
  return own[block];
}

/* The pool that is used where none is named. */
u64 cujit_pool_used(void) { return state.memory.pool ? state.memory.pool : cujit_pool_own(BLOCK_POOLED); }

/* On a captured stream it is a graph that allocates `size` bytes, whose address goes to `where`, or frees what is there. */
static Answer captured(u64 stream, u64 pool, u64 size, u64 where) {
  if (!__atomic_load_n(&state.capturing, __ATOMIC_ACQUIRE)) return GO_ON;
  return ((OnPooled)state.memory.on_pooled)(stream, pool, size, where);
}

static Answer allocate(u64 *out, u64 size, u64 handle, u64 stream) {
  ON_STREAM(context, stream);
  struct PoolCell *pool = POOL(handle);
  NEEDS(out && pool && !pool->ended, INVALID_VALUE);
  if (!size) {
    *out = 0;
    return RESULT_SUCCESS;
  }
  Answer answer = captured(stream, handle, size, (u64)out);
  if (answer != GO_ON) return answer;
  SAFE();
  u64 used = ADD(pool->used, size);
  struct Block *block = 0;
  if (!pool->most_bytes || used <= pool->most_bytes)
    block = cujit_memory_new(size, pool->block, 0, (u64)context, handle);
  if (!block) {
    ADD(pool->used, -size);
    return RESULT_OUT_OF_MEMORY;
  }
  ADD(pool->blocks, 1);
  if (used > pool->used_high) pool->used_high = used;
  if (used > pool->reserved_high) pool->reserved_high = used;
  *out = block->begin;
  return RESULT_SUCCESS;
}

Answer cujit_cuMemAllocFromPoolAsync(u64 *out, u64 size, u64 pool, u64 stream) {
  return allocate(out, size, pool, stream);
}

Answer cujit_cuMemAllocFromPoolAsync_ptsz(u64 *out, u64 size, u64 pool, u64 stream) {
  return allocate(out, size, pool, own_stream(stream));
}

Answer cujit_cuMemAllocAsync(u64 *out, u64 size, u64 stream) {
  READY();
  return allocate(out, size, cujit_pool_used(), stream);
}

Answer cujit_cuMemAllocAsync_ptsz(u64 *out, u64 size, u64 stream) {
  return cujit_cuMemAllocAsync(out, size, own_stream(stream));
}

Answer cujit_cuMemFreeAsync(u64 address, u64 stream) {
  ON_STREAM(context, stream);
  if (!address) return RESULT_SUCCESS;
  Answer answer = captured(stream, 0, 0, address);
  if (answer != GO_ON) return answer;
  struct Block *block = cujit_block_of(address);
  u32 kinds = block && block->pool ? OF(HOST) | OF(MANAGED) : 0;
  NEEDS(cujit_memory_free(address, OF(POOLED) | OF(DEVICE) | kinds), INVALID_VALUE);
  return RESULT_SUCCESS;
}

Answer cujit_cuMemFreeAsync_ptsz(u64 address, u64 stream) { return cujit_cuMemFreeAsync(address, own_stream(stream)); }
