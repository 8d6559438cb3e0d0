/* The device heap: malloc and free as kernels call them, over libc's.

   Sixteen bytes before each block say how large it is and that it is one, so that free of anything else is a fault of
   the kernel and not the end of the process. */

#include "launch.h"

#include <stdlib.h>

/* Bytes beyond which there is no use in asking: user addresses of x86-64 and AArch64 end there. */
#define MOST (1ull << 47)

/* Mixed with the block's address this is its mark. */
#define MARK 0x63756a6974686570ull

struct Head {
  u64 size, mark;
};

/* So many bytes aligned to 16, or null. Source for both: CUDA C++ Programming Guide, "Dynamic Global Memory
   Allocation". */
static u64 take(u64 size) {
  if (!size || size > MOST) return 0;
  struct Head *head = aligned_alloc(16, (size + 31) & ~15ull);
  if (!head) return 0;
  u64 block = (u64)(head + 1);
  head->size = size;
  head->mark = block ^ MARK;
  return block;
}

/* For each lane of `lanes`, `sizes[lane]` bytes; the addresses go to `results`. */
void cujit_malloc(u32 lanes, const u64 *sizes, u64 *results) {
  EACH_LANE(lane, lanes) results[lane] = take(sizes[lane]);
}

/* Blocks that kernels under checks have freed: kept for a while, so that nothing else lies there. */
#define KEPT 4096
#define KEPT_BYTES (64 << 10)
static struct Head *kept[KEPT];
static u32 kept_next;

static void release(struct Head *head, flag checked) {
  if (checked && head->size <= KEPT_BYTES) {
    u32 k = __atomic_fetch_add(&kept_next, 1, __ATOMIC_RELAXED) % KEPT;
    head = __atomic_exchange_n(&kept[k], head, __ATOMIC_ACQ_REL);
  }
  free(head);
}

/* Free what `take` gave; 0 where it is none. Of two threads that free one block, one is the first. */
static flag give_back(u64 block, flag checked) {
  if (block & 15) return 0;
  struct Head *head = (struct Head *)block - 1;
  u64 mark = block ^ MARK;
  if (!__atomic_compare_exchange_n(&head->mark, &mark, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return 0;
  release(head, checked);
  return 1;
}

/* Free `blocks[lane]` for each lane of `lanes`; null is nothing to free. `first` is the warp's first thread. */
void cujit_free(struct Launch *launch, u32 lanes, const u64 *blocks, u64 number, u32 first, u32 line) {
  EACH_LANE(lane, lanes) {
    u64 block = blocks[lane];
    if (block && !give_back(block, launch->checks != 0)) cujit_fault(launch, FAULT_BAD_FREE, number, first + lane, line, block);
  }
}
