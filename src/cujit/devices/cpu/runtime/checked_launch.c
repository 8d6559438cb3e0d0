/* Launches under checks that the launcher starts without Python: what they may access is as it was for the launch before.

   Behind the Launch lies its Watch. Where Python is to do the rest, `checks` names that when this returns: the launch was
   not made (`stale`), or there is something to tell. */

#include "launch.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

struct Pool;
void cujit_pool_run(struct Pool *pool, void *kernel, struct Launch *launch, u32 helpers, u64 shared_bytes,
                    u64 local_bytes);

/* What serial numbers of launches are apart, so that no two that follow each other are as near as their blocks. */
#define APART_SERIALS 0x9e3779b97f4a7c15ull

/* Whether a word may be the address of memory that is not known, of which Python knows more: what was adopted, or is of
   others. What lies behind a known range is past its end. */
static flag leads_elsewhere(const struct KnownMemory *known, u64 word) {
  if (word < LEAST_ADDRESS || word >= MOST_ADDRESS) return 0;
  u64 low = 0, high = known->count;
  while (low < high) {
    u64 middle = (low + high) / 2;
    if (known->spans[middle].begin <= word) low = middle + 1;
    else high = middle;
  }
  if (low && word <= known->spans[low - 1].end) return 0;
  u8 there;
  return !mincore((void *)(word & -(u64)getpagesize()), 1, &there) || errno != ENOMEM;
}

/* Whether the memory that is known is all that a launch with these parameters accesses. */
static flag is_known(const struct CheckedMemory *checked, const struct KnownMemory *known, const u64 *parameters, u64 words) {
  if (!known || known->changes != __atomic_load_n(checked->changes, __ATOMIC_ACQUIRE)) return 0;
  for (u64 k = 0; k < words; k++) {
    if (leads_elsewhere(known, parameters[k])) return 0;
  }
  return 1;
}

/* Run a launch as cujit_pool_run does. */
void cujit_check_run(struct Pool *pool, const struct CheckedJob *job, struct Launch *launch, u32 helpers,
                     u64 shared_bytes, u64 local_bytes) {
  struct CheckedMemory *checked = job->checked;
  struct Watch *watch = (struct Watch *)(launch + 1);
  launch->checks = watch;
  /* Before the look at what is known: who replaces that keeps what others may have seen. */
  __atomic_fetch_add(&checked->users, 1, __ATOMIC_SEQ_CST);
  const struct KnownMemory *known = __atomic_load_n(&checked->known, __ATOMIC_SEQ_CST);
  if (!is_known(checked, known, (const u64 *)launch->parameters, job->parameter_bytes / sizeof(u64))) {
    watch->stale = 1;
    return;
  }
  watch->spans = known->spans, watch->count = known->count;
  watch->serial = __atomic_add_fetch(&checked->serial, APART_SERIALS, __ATOMIC_RELAXED) >> 1;
  u32 stores = __atomic_load_n(&watch->stores->count, __ATOMIC_RELAXED);
  cujit_pool_run(pool, (void *)job->kernel, launch, helpers, shared_bytes, local_bytes);
  if (launch->fault_kind || launch->next < launch->blocks ||
      stores != __atomic_load_n(&watch->stores->count, __ATOMIC_RELAXED)) {
    return;
  }
  launch->checks = 0;
  __atomic_fetch_sub(&checked->users, 1, __ATOMIC_SEQ_CST);
}

/* Python has told what there was to tell. */
u64 cujit_check_told(struct CheckedMemory *checked) { return __atomic_fetch_sub(&checked->users, 1, __ATOMIC_SEQ_CST); }

/* How many launches may read what is known: nobody else gets to see what was known before the last store to `known`. */
u64 cujit_check_users(struct CheckedMemory *checked) { return __atomic_fetch_add(&checked->users, 0, __ATOMIC_SEQ_CST); }
