/* The memory of the device: addresses that are reserved once, cut into chunks, and what lies in each.

   Memory is the host's, taken as it is touched. Addresses that were never given fault, and so do those of large blocks
   that were freed: what a kernel or a program does there is seen at once. */

#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#define memory (&state.memory)

enum { CHUNK_LOG = 21, MOST_LOG = 40, LEAST_LOG = 32, ALIGN = 512, UNITS = 24, REST = 256 };
enum { PAGE = 1 << 16 }; /* the largest that Linux has */

#define CHUNK (1ull << CHUNK_LOG)
#define LARGE (CHUNK / 4) /* what takes chunks for itself */

struct Run {
  u64 first, count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct Chunk *rooms[UNITS]; /* chunks that have room, by their unit */
static u64 fresh;                  /* chunks that were ever used */
static struct Run *runs;           /* chunks that are free again, sorted */
static u64 run_count, run_room;
static struct Block **others; /* outside of our addresses, sorted */
static u64 other_count, other_room;
static struct Block *first_resting, *last_resting;
static u64 rests;

typedef void (*OnNew)(u64, u64, u32);
typedef void (*OnFree)(u64);

/* -- what lies where ------------------------------------------------------------------------------------------------ */

/* The block whose place an address is in, used or free; null where there is none. */
static struct Block *place_of(u64 address) {
  u64 offset = address - memory->begin;
  if (offset >= memory->end - memory->begin) return 0;
  struct Chunk *chunk = memory->chunks + (offset >> CHUNK_LOG);
  struct Block *blocks = __atomic_load_n(&chunk->blocks, __ATOMIC_ACQUIRE);
  return blocks && chunk->unit ? blocks + offset % CHUNK / chunk->unit : blocks;
}

/* How many of the others begin at an address or below. */
static u64 others_to(u64 address) {
  u64 low = 0, high = other_count;
  while (low < high) {
    u64 middle = (low + high) / 2;
    if (others[middle]->begin <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

static struct Block *other_of(u64 address) {
  pthread_mutex_lock(&lock);
  u64 k = others_to(address);
  struct Block *block = k && address - others[k - 1]->begin < others[k - 1]->size ? others[k - 1] : 0;
  pthread_mutex_unlock(&lock);
  return block;
}

struct Block *cujit_known_of(u64 address) {
  struct Block *block = place_of(address);
  if (!block) return __atomic_load_n(&other_count, __ATOMIC_ACQUIRE) ? other_of(address) : 0;
  u32 kind = __atomic_load_n(&block->kind, __ATOMIC_ACQUIRE);
  return kind && address - block->begin < block->size ? block : 0;
}

struct Block *cujit_block_of(u64 address) {
  struct Block *block = cujit_known_of(address);
  return block && block->kind != BLOCK_GRAPH ? block : 0;
}

/* -- blocks that lie in no chunk among others; under the lock, too ---------------------------------------------------

   One that was freed rests before it is used again, since somebody may look at it now. */

static struct Block *new_record(void) {
  if (rests < REST) return calloc(1, sizeof(struct Block));
  struct Block *block = first_resting;
  first_resting = (struct Block *)block->pool;
  rests--;
  return block;
}

static void rest(struct Block *block) {
  block->pool = 0;
  if (rests++) last_resting->pool = (u64)block;
  else first_resting = block;
  last_resting = block;
}

/* -- chunks; all under the lock -------------------------------------------------------------------------------------- */

static u32 reserve(void) {
  if (memory->begin) return 1;
  for (u32 log = MOST_LOG; log >= LEAST_LOG; log--) {
    u64 bytes = 1ull << log;
    void *at = mmap(0, bytes + CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) continue;
    struct Chunk *chunks = calloc((bytes >> CHUNK_LOG) + 1, sizeof *chunks);
    if (!chunks) return 0;
    u64 begin = ((u64)at + CHUNK - 1) / CHUNK * CHUNK;
    memory->chunks = chunks;
    memory->end = begin + bytes;
    __atomic_store_n(&memory->begin, begin, __ATOMIC_RELEASE);
    return 1;
  }
  return 0;
}

/* Take chunks, fresh ones as long as there are any: what was freed faults for long. UINT64_MAX without. */
static u64 take(u64 count) {
  u64 first = UINT64_MAX;
  if (fresh + count <= (memory->end - memory->begin) >> CHUNK_LOG) {
    first = fresh;
    fresh += count;
  } else {
    u64 k = 0;
    while (k < run_count && runs[k].count < count) k++;
    if (k == run_count) return UINT64_MAX;
    first = runs[k].first;
    runs[k].first += count;
    runs[k].count -= count;
    if (!runs[k].count) memmove(runs + k, runs + k + 1, (--run_count - k) * sizeof *runs);
  }
  return first;
}

static void give(u64 first, u64 count) {
  if (run_count == run_room) {
    u64 room = run_room ? 2 * run_room : 64;
    struct Run *more = realloc(runs, room * sizeof *more);
    if (!more) return; /* they stay unused */
    runs = more;
    run_room = room;
  }
  u64 k = run_count;
  while (k && runs[k - 1].first > first) k--;
  u32 before = k && runs[k - 1].first + runs[k - 1].count == first;
  u32 behind = k < run_count && first + count == runs[k].first;
  if (before && behind) {
    runs[k - 1].count += count + runs[k].count;
    memmove(runs + k, runs + k + 1, (--run_count - k) * sizeof *runs);
  } else if (before) runs[k - 1].count += count;
  else if (behind) runs[k] = (struct Run){first, count + runs[k].count};
  else {
    memmove(runs + k + 1, runs + k, (run_count++ - k) * sizeof *runs);
    runs[k] = (struct Run){first, count};
  }
}

static u64 chunks_for(u64 size) { return (size + ALIGN + CHUNK - 1) >> CHUNK_LOG; }

/* A block in chunks of its own. */
static struct Block *new_large(u64 size) {
  u64 count = chunks_for(size), first = take(count);
  struct Block *block = first == UINT64_MAX ? 0 : new_record();
  if (!block) return 0;
  u64 begin = memory->begin + (first << CHUNK_LOG);
  if (mprotect((void *)begin, count << CHUNK_LOG, PROT_READ | PROT_WRITE)) {
    give(first, count);
    rest(block);
    return 0;
  }
  block->begin = begin;
  for (u64 k = first; k < first + count; k++) {
    memory->chunks[k].unit = 0;
    __atomic_store_n(&memory->chunks[k].blocks, block, __ATOMIC_RELEASE);
  }
  return block;
}

/* A block among others of its unit: the steps are 1, 1.5 and 2 times a power of two. */
static struct Block *new_small(u64 size) {
  u64 unit = 2 * ALIGN, row = 0;
  for (; unit < size + ALIGN; row++) unit = row % 2 ? unit / 3 * 4 : unit / 2 * 3;
  struct Chunk *chunk = rooms[row];
  if (!chunk) {
    struct Block *blocks = calloc(CHUNK / unit + 1, sizeof *blocks);
    u64 first = blocks ? take(1) : UINT64_MAX;
    if (first == UINT64_MAX || mprotect((void *)(memory->begin + (first << CHUNK_LOG)), CHUNK, PROT_READ | PROT_WRITE)) {
      free(blocks);
      return 0;
    }
    chunk = memory->chunks + first;
    *chunk = (struct Chunk){.unit = unit, .listed = 1};
    __atomic_store_n(&chunk->blocks, blocks, __ATOMIC_RELEASE);
    rooms[row] = chunk;
  }
  struct Block *block = chunk->blocks + (chunk->spare ? chunk->spare - 1 : chunk->fresh);
  if (chunk->spare) chunk->spare = block->id;
  else chunk->fresh++;
  if (!chunk->spare && chunk->fresh == CHUNK / unit) {
    rooms[row] = (struct Chunk *)chunk->next;
    chunk->listed = 0;
  }
  block->begin = memory->begin + ((u64)(chunk - memory->chunks) << CHUNK_LOG) + (u64)(block - chunk->blocks) * unit;
  return block;
}

static struct Block *place_for(u64 size) { return size + ALIGN <= LARGE ? new_small(size) : new_large(size); }

static void recycle_small(struct Chunk *chunk, struct Block *block) {
  block->id = chunk->spare;
  chunk->spare = (u64)(block - chunk->blocks) + 1;
  if (chunk->listed) return;
  u64 row = 0;
  for (u64 unit = 2 * ALIGN; unit < chunk->unit; row++) unit = row % 2 ? unit / 3 * 4 : unit / 2 * 3;
  chunk->next = (u64)rooms[row];
  chunk->listed = 1;
  rooms[row] = chunk;
}

static void recycle_large(u64 first, struct Block *block) {
  u64 count = chunks_for(block->size);
  for (u64 k = first; k < first + count; k++) __atomic_store_n(&memory->chunks[k].blocks, 0, __ATOMIC_RELEASE);
  /* A mapping anew gives the pages back, and the tables that they were found by. */
  void *at = (void *)block->begin;
  if (mmap(at, count << CHUNK_LOG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == at)
    give(first, count);
  rest(block);
}

/* -- allocations ---------------------------------------------------------------------------------------------------- */

struct Block *cujit_memory_new(u64 size, u32 kind, u32 flags, u64 context, u64 pool) {
  u32 counted = 1u << kind & COUNTED ? 1 : 0;
  pthread_mutex_lock(&lock);
  u64 left = memory->total - (counted ? memory->used : 0);
  struct Block *block = 0;
  if (size <= left && reserve()) block = place_for(size);
  if (block) {
    if (counted) memory->used += size;
    *block = (struct Block){
        .begin = block->begin, .size = size, .context = context, .id = ++memory->ids, .pool = pool, .flags = flags};
    __atomic_store_n(&block->kind, kind, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  if (block && memory->on_new && kind != BLOCK_ARRAY) ((OnNew)memory->on_new)(block->begin, size, kind);
  return block;
}

/* Have the place of a freed block used again; that of a graph's memory once nobody has it. */
void cujit_memory_recycle(u64 address) {
  pthread_mutex_lock(&lock);
  u64 index = (address - memory->begin) >> CHUNK_LOG;
  struct Block *block = place_of(address);
  if (block->kind == BLOCK_GRAPH) block->kind = BLOCK_FREE;
  if (block->kind) block->flags &= ~KEPT; /* whoever frees it has its place used again */
  else if (memory->chunks[index].unit) recycle_small(memory->chunks + index, block);
  else recycle_large(index, block);
  pthread_mutex_unlock(&lock);
}

/* Have a pool know that a block of it was freed; one that was destroyed goes with its last. */
static void freed_of(u64 handle, u64 size) {
  struct PoolCell *pool = (struct PoolCell *)cell_of(handle, CELL_POOL);
  if (!pool) return;
  __atomic_sub_fetch(&pool->used, size, __ATOMIC_RELAXED);
  if (!__atomic_sub_fetch(&pool->blocks, 1, __ATOMIC_ACQ_REL) && pool->ended) cujit_cell_free(handle, CELL_POOL);
}

u32 cujit_memory_free(u64 address, u32 kinds) {
  u32 kept = 0;
  pthread_mutex_lock(&lock);
  struct Block *block = place_of(address);
  u32 kind = block && block->begin == address ? block->kind : BLOCK_FREE;
  u32 good = kind && 1u << kind & kinds;
  if (good) {
    kept = block->flags & KEPT;
    __atomic_store_n(&block->kind, kept ? BLOCK_GRAPH : BLOCK_FREE, __ATOMIC_RELEASE);
    if (1u << kind & COUNTED) memory->used -= block->size;
    if (block->pool) freed_of(block->pool, block->size);
  }
  pthread_mutex_unlock(&lock);
  if (!good) return 0;
  if (memory->on_free && kind != BLOCK_ARRAY) ((OnFree)memory->on_free)(address);
  else if (!kept) cujit_memory_recycle(address);
  return 1;
}

/* -- memory of graphs: its address is fixed, launches take it -------------------------------------------------------- */

/* Find a place for a graph's memory, which is nobody's yet. */
Answer cujit_memory_keep(u64 *out, u64 size, u64 pool) {
  IN_CONTEXT(context);
  pthread_mutex_lock(&lock);
  struct Block *block = size <= memory->total && reserve() ? place_for(size) : 0;
  if (block) {
    *block = (struct Block){
        .begin = block->begin, .size = size, .context = (u64)context, .pool = pool, .flags = KEPT};
    __atomic_store_n(&block->kind, BLOCK_GRAPH, __ATOMIC_RELEASE);
    *out = block->begin;
  }
  pthread_mutex_unlock(&lock);
  NEEDS(block, OUT_OF_MEMORY);
  return RESULT_SUCCESS;
}

/* Take it for a launch. */
Answer cujit_memory_take(u64 address) {
  pthread_mutex_lock(&lock);
  struct Block *block = place_of(address);
  struct PoolCell *pool = (struct PoolCell *)block->pool;
  Answer answer = block->kind != BLOCK_GRAPH                   ? RESULT_INVALID_VALUE
                  : block->size > memory->total - memory->used ? RESULT_OUT_OF_MEMORY
                                                               : RESULT_SUCCESS;
  if (!answer) {
    memory->used += block->size;
    block->id = ++memory->ids;
    pool->blocks++;
    pool->used += block->size;
    if (pool->used > pool->reserved) pool->reserved = pool->used;
    if (pool->reserved > pool->used_high) pool->used_high = pool->reserved;
    if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
    __atomic_store_n(&block->kind, BLOCK_POOLED, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  if (!answer && memory->on_new) ((OnNew)memory->on_new)(address, block->size, BLOCK_POOLED);
  return answer;
}

/* Give back its pages, if nobody has it. */
void cujit_memory_trim(u64 address) {
  pthread_mutex_lock(&lock);
  struct Block *block = place_of(address);
  u64 begin = (address + PAGE - 1) / PAGE * PAGE, end = (address + block->size) / PAGE * PAGE;
  if (block->kind == BLOCK_GRAPH && begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
  pthread_mutex_unlock(&lock);
}

/* Count memory that lies elsewhere as the device's, or no longer; 0 where there is not so much left. */
u32 cujit_memory_count(i64 bytes) {
  pthread_mutex_lock(&lock);
  u32 good = bytes < 0 || (u64)bytes <= memory->total - memory->used;
  if (good) memory->used += (u64)bytes;
  pthread_mutex_unlock(&lock);
  return good;
}

/* -- memory outside of our addresses --------------------------------------------------------------------------------- */

/* Know memory of others; 0 where some of it is known, or there is no memory. */
u32 cujit_memory_adopt(u64 address, u64 size, u32 kind, u32 flags, u64 context) {
  pthread_mutex_lock(&lock);
  struct Block *block = new_record();
  u64 k = others_to(address), good = block != 0;
  if (k && address - others[k - 1]->begin < others[k - 1]->size) good = 0;
  if (k < other_count && others[k]->begin - address < size) good = 0;
  if (good && other_count == other_room) {
    u64 room = other_room ? 2 * other_room : 16;
    struct Block **more = realloc(others, room * sizeof *more);
    if (more) {
      others = more;
      other_room = room;
    } else good = 0;
  }
  if (good) {
    *block = (struct Block){
        .begin = address, .size = size, .context = context, .id = ++memory->ids, .kind = kind, .flags = flags};
    memmove(others + k + 1, others + k, (other_count - k) * sizeof *others);
    others[k] = block;
    __atomic_store_n(&other_count, other_count + 1, __ATOMIC_RELEASE);
  } else if (block) rest(block);
  pthread_mutex_unlock(&lock);
  if (good && memory->on_new && kind != BLOCK_IMAGE) ((OnNew)memory->on_new)(address, size, kind);
  return (u32)good;
}

/* Forget memory of others that was adopted as a kind. */
u32 cujit_memory_forget(u64 address, u32 kind) {
  pthread_mutex_lock(&lock);
  u64 k = others_to(address), good = k && others[k - 1]->begin == address && others[k - 1]->kind == kind;
  if (good) {
    others[k - 1]->kind = BLOCK_FREE;
    rest(others[k - 1]);
    memmove(others + k - 1, others + k, (other_count - k) * sizeof *others);
    __atomic_store_n(&other_count, other_count - 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  if (good && memory->on_free && kind != BLOCK_IMAGE) ((OnFree)memory->on_free)(address);
  return (u32)good;
}

/* Free what a context owned; what is of pools too, where it is the last. */
void cujit_memory_end_context(u64 context, u32 last) {
  u32 kinds = OF(DEVICE) | OF(MANAGED) | OF(HOST) | (last ? OF(POOLED) : 0);
  for (u64 k = 0; k < fresh; k++) {
    struct Chunk *chunk = memory->chunks + k;
    u64 count = chunk->unit ? chunk->fresh : 1;
    for (u64 n = 0; chunk->blocks && n < count; n++) {
      struct Block *block = chunk->blocks + n;
      if (block->context == context && 1u << block->kind & kinds) cujit_memory_free(block->begin, kinds);
    }
  }
  for (u64 k = other_count; k-- > 0;)
    if (k < other_count && others[k]->context == context && others[k]->kind == BLOCK_REGISTERED)
      cujit_memory_forget(others[k]->begin, BLOCK_REGISTERED);
}

/* -- entry points --------------------------------------------------------------------------------------------------- */

static Answer allocate(u64 *out, u64 size, u32 kind, u32 flags) {
  IN_CONTEXT(context);
  SAFE();
  NEEDS(out && size, INVALID_VALUE);
  struct Block *block = cujit_memory_new(size, kind, flags, (u64)context, 0);
  NEEDS(block, OUT_OF_MEMORY);
  *out = block->begin;
  return RESULT_SUCCESS;
}

Answer cujit_cuMemAlloc_v2(u64 *out, u64 size) { return allocate(out, size, BLOCK_DEVICE, 0); }

/* The form of the first years has pointers of 32 bits, and all memory lies above them. */
Answer cujit_cuMemAlloc(u32 *out, u32 size) {
  IN_CONTEXT(context);
  NEEDS(out && size, INVALID_VALUE);
  return RESULT_OUT_OF_MEMORY;
}

Answer cujit_cuMemAllocPitch_v2(u64 *out, u64 *pitch, u64 width, u64 height, u32 element) {
  IN_CONTEXT(context);
  NEEDS(out && pitch && width && height, INVALID_VALUE);
  NEEDS(element == 4 || element == 8 || element == 16, INVALID_VALUE);
  u64 row = (width + ALIGN - 1) / ALIGN * ALIGN, size;
  NEEDS(row >= width && !__builtin_mul_overflow(row, height, &size), OUT_OF_MEMORY);
  Answer answer = allocate(out, size, BLOCK_DEVICE, 0);
  if (!answer) *pitch = row;
  return answer;
}

/* Without flags, who can access it is not said: 1 is all streams, 2 the host, 4 one stream. */
Answer cujit_cuMemAllocManaged(u64 *out, u64 size, u32 flags) {
  IN_CONTEXT(context);
  NEEDS(flags == 1 || flags == 2, INVALID_VALUE);
  return allocate(out, size, BLOCK_MANAGED, flags);
}

Answer cujit_cuMemHostAlloc(u64 *out, u64 size, u32 flags) {
  IN_CONTEXT(context);
  NEEDS(!(flags & ~7u), INVALID_VALUE);
  return allocate(out, size, BLOCK_HOST, flags);
}

Answer cujit_cuMemAllocHost_v2(u64 *out, u64 size) { return allocate(out, size, BLOCK_HOST, 0); }

Answer cujit_cuMemFree_v2(u64 address) {
  UNFAILED();
  SAFE();
  NEEDS(!address || cujit_memory_free(address, ON_DEVICE), INVALID_VALUE);
  return RESULT_SUCCESS;
}

Answer cujit_cuMemFreeHost(u64 address) {
  UNFAILED();
  SAFE();
  NEEDS(!address || cujit_memory_free(address, OF(HOST)), INVALID_VALUE);
  return RESULT_SUCCESS;
}

Answer cujit_cuMemGetInfo_v2(u64 *left, u64 *total) {
  IN_CONTEXT(context);
  NEEDS(left && total, INVALID_VALUE);
  *total = memory->total;
  *left = memory->total - memory->used;
  return RESULT_SUCCESS;
}

Answer cujit_cuMemGetAddressRange_v2(u64 *begin, u64 *size, u64 address) {
  IN_CONTEXT(context);
  struct Block *block = cujit_block_of(address);
  NEEDS(block, NOT_FOUND);
  if (begin) *begin = block->begin;
  if (size) *size = block->size;
  return RESULT_SUCCESS;
}

Answer cujit_cuMemHostGetFlags(u32 *out, u64 address) {
  IN_CONTEXT(context);
  struct Block *block = cujit_block_of(address);
  NEEDS(out && block && 1u << block->kind & (OF(HOST) | OF(REGISTERED)), INVALID_VALUE);
  *out = block->flags & ~SYNCS;
  return RESULT_SUCCESS;
}

Answer cujit_cuMemHostGetDevicePointer_v2(u64 *out, u64 address, u32 flags) {
  IN_CONTEXT(context);
  struct Block *block = cujit_block_of(address);
  NEEDS(out && !flags && block && 1u << block->kind & (OF(HOST) | OF(REGISTERED)), INVALID_VALUE);
  *out = address;
  return RESULT_SUCCESS;
}

Answer cujit_cuMemHostRegister_v2(u64 address, u64 size, u32 flags) {
  IN_CONTEXT(context);
  NEEDS(address && size && address + size > address && !(flags & ~15u), INVALID_VALUE);
  NEEDS(!(flags & 12), NOT_SUPPORTED); /* of devices, or only for reading: what the device's attributes deny */
  NEEDS(address >= memory->end || address + size <= memory->begin, INVALID_VALUE);
  NEEDS(cujit_memory_adopt(address, size, BLOCK_REGISTERED, flags | 2, (u64)context), HOST_MEMORY_ALREADY_REGISTERED);
  return RESULT_SUCCESS;
}

Answer cujit_cuMemHostRegister(u64 address, u64 size, u32 flags) {
  return cujit_cuMemHostRegister_v2(address, size, flags);
}

Answer cujit_cuMemHostUnregister(u64 address) {
  IN_CONTEXT(context);
  NEEDS(address, INVALID_VALUE);
  NEEDS(cujit_memory_forget(address, BLOCK_REGISTERED), HOST_MEMORY_NOT_REGISTERED);
  return RESULT_SUCCESS;
}
