/* What is said of a pointer. */

#include "memory.h"

/* Source: CUDA Driver API manual, CUpointer_attribute. */
enum {
  CONTEXT = 1,
  MEMORY_TYPE,
  DEVICE_POINTER,
  HOST_POINTER,
  P2P_TOKENS,
  SYNC_MEMOPS,
  BUFFER_ID,
  IS_MANAGED,
  DEVICE_ORDINAL,
  LEGACY_IPC,
  RANGE_START,
  RANGE_SIZE,
  MAPPED,
  HANDLE_TYPES,
  DIRECT_RDMA,
  ACCESS_FLAGS,
  POOL,
  MAPPING_SIZE,
  MAPPING_START,
  BLOCK_ID,
  DECOMPRESSES,
  LOCALITY,
};

enum { TYPE_HOST = 1, TYPE_DEVICE = 2, READ_WRITE = 3, NO_DEVICE = -2 };

#define PUT(type, value)              \
  do {                                \
    *(type *)out = (type)(value);     \
    return RESULT_SUCCESS;            \
  } while (0)

static Answer say(void *out, u32 attribute, u64 address, const struct Block *block) {
  u32 kind = block->kind, on_host = 1u << kind & (OF(HOST) | OF(REGISTERED));
  switch (attribute) {
  case CONTEXT: PUT(u64, block->context);
  case MEMORY_TYPE: PUT(u32, on_host ? TYPE_HOST : TYPE_DEVICE);
  case DEVICE_POINTER: PUT(u64, address);
  case HOST_POINTER:
    NEEDS(on_host || kind == BLOCK_MANAGED, INVALID_VALUE);
    PUT(u64, address);
  case SYNC_MEMOPS: PUT(u32, block->flags >> 31);
  case BUFFER_ID:
  case BLOCK_ID: PUT(u64, block->id);
  case IS_MANAGED: PUT(u32, kind == BLOCK_MANAGED);
  case DEVICE_ORDINAL: PUT(i32, 0);
  case LEGACY_IPC:
  case HANDLE_TYPES:
  case DIRECT_RDMA:
  case DECOMPRESSES: PUT(u32, 0);
  case RANGE_START:
  case MAPPING_START: PUT(u64, block->begin);
  case RANGE_SIZE:
  case MAPPING_SIZE: PUT(u64, block->size);
  case MAPPED: PUT(u32, 1);
  case ACCESS_FLAGS: PUT(u32, READ_WRITE);
  case POOL: PUT(u64, block->flags & KEPT ? 0 : block->pool);
  case LOCALITY: PUT(i32, -1);
  case P2P_TOKENS:
    NEEDS(!on_host, INVALID_VALUE);
    memset(out, 0, 12); /* a token of 64 bits and one of 32: there is nobody to give them to */
    return RESULT_SUCCESS;
  default: return RESULT_INVALID_VALUE;
  }
}

/* What is said of memory that is nobody's. */
static Answer say_nothing(void *out, u32 attribute) {
  switch (attribute) {
  case CONTEXT:
  case DEVICE_POINTER:
  case HOST_POINTER:
  case BUFFER_ID:
  case BLOCK_ID:
  case RANGE_START:
  case MAPPING_START:
  case RANGE_SIZE:
  case MAPPING_SIZE:
  case POOL: PUT(u64, 0);
  case DEVICE_ORDINAL: PUT(i32, NO_DEVICE);
  case LOCALITY: PUT(i32, -1);
  default:
    NEEDS(attribute >= CONTEXT && attribute < LOCALITY, INVALID_VALUE);
    PUT(u32, 0);
  }
}

Answer cujit_cuPointerGetAttribute(void *out, u32 attribute, u64 address) {
  READY();
  NEEDS(out, INVALID_VALUE);
  struct Block *block = cujit_block_of(address);
  NEEDS(block, INVALID_VALUE);
  return say(out, attribute, address, block);
}

/* Of memory that is nobody's, or has not what is asked, nulls are said. */
Answer cujit_cuPointerGetAttributes(u32 count, const u32 *attributes, void **out, u64 address) {
  READY();
  NEEDS(count && attributes && out, INVALID_VALUE);
  struct Block *block = cujit_block_of(address);
  for (u32 k = 0; k < count; k++) {
    NEEDS(out[k], INVALID_VALUE);
    if (block && !say(out[k], attributes[k], address, block)) continue;
    Answer answer = say_nothing(out[k], attributes[k]);
    if (answer) return answer;
  }
  return RESULT_SUCCESS;
}

Answer cujit_cuPointerSetAttribute(const u32 *value, u32 attribute, u64 address) {
  READY();
  struct Block *block = cujit_block_of(address);
  NEEDS(value && block && attribute == SYNC_MEMOPS && 1u << block->kind & ON_DEVICE, INVALID_VALUE);
  if (*value) __atomic_or_fetch(&block->flags, SYNCS, __ATOMIC_RELAXED);
  else __atomic_and_fetch(&block->flags, ~SYNCS, __ATOMIC_RELAXED);
  return RESULT_SUCCESS;
}
