/* Native threads that run the blocks of a launch, woken without the interpreter.

   A worker is a thread that comes to cujit_pool_work once and stays there, asleep. A launch is one call of
   cujit_pool_run: it offers places to workers, wakes them, runs blocks itself, and returns when the last worker is done.
   A launch that finds the pool busy runs alone.

   Waking a thread takes as long as many a launch: whoever waits looks for some time before it sleeps. */

#include "guard.h"
#include "windows.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How often a thread that waits for workers looks whether the launch is to go on, and how often it pokes workers that
   are to leave a launch that has ended. AWAKE_NS is how long a thread looks before it sleeps: 16 threads that sleep take
   as long to come. */
enum { LOOK_NS = 20000000, HURRY_NS = 1000000, SECOND_NS = 1000000000, AWAKE_NS = 50000 };

/* What every thread runs, with how many bytes of shared memory of each block, and of local memory of its own. */
struct Job {
  void (*kernel)(struct Launch *launch, u8 *shared, u8 *local);
  struct Launch *launch;
  u64 shared_bytes, local_bytes;
};

/* `places` is how many workers may still join the present job, CLOSED when the pool stops; `finished` how many of them
   are done. `asleep` workers are to be woken, and whoever launched where it is `awaited`. A job is written while nobody
   has joined it, and `busy` is 1 until all are done. */
struct Pool {
  struct Job job;
  u32 places, finished, asleep, awaited, busy;
};

enum { CLOSED = -1 };

/* Give a pool without workers; null without memory. */
struct Pool *cujit_pool_make(void) { return calloc(1, sizeof(struct Pool)); }

/* -- waiting --------------------------------------------------------------------------------------------------------- */

/* Sleep while a word is `seen`, `ns` at the most (0: for ever). 0 where that was not for a change of the word: the time
   was up, or a signal came. */
static flag sleep_on(u32 *word, u32 seen, u64 ns) {
  struct timespec time = {0, (long)ns};
  return !syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, ns ? &time : 0, 0, 0) || errno == EAGAIN;
}

static void wake(u32 *word, i32 most) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, 0, 0, 0); }

/* Let the processor rest for a moment. */
INLINE void relax(void) {
#ifdef __aarch64__
  __asm__ volatile("yield");
#else
  __builtin_ia32_pause();
#endif
}

/* Look for AWAKE_NS whether a word is something else; 1 where it is. */
static flag changes_soon(const u32 *word, u32 seen) {
  struct timespec begin, time;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    for (u32 k = 0; k < 16; k++) {
      if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seen) return 1;
      relax();
    }
    sched_yield(); /* whom we wait for may need this processor */
    clock_gettime(CLOCK_MONOTONIC, &time);
  } while ((time.tv_sec - begin.tv_sec) * SECOND_NS + time.tv_nsec - begin.tv_nsec < AWAKE_NS);
  return 0;
}

/* Send the workers home. */
void cujit_pool_stop(struct Pool *pool) {
  __atomic_store_n(&pool->places, (u32)CLOSED, __ATOMIC_SEQ_CST);
  wake(&pool->places, INT32_MAX);
}

/* Give a pool back that has no workers any more. */
void cujit_pool_free(struct Pool *pool) { free(pool); }

/* A write past the shared memory of a block, which no guard has stopped, ends the launch behind its blocks: it names the
   block if there is only one. */
INLINE void look_for_strays(const struct Guard *guard) {
  struct Launch *launch = guard->launch;
  const struct Memory *memory = &guard->memory;
  u64 together = launch->together ? launch->together : 1, at = memory->shared_bytes ? stray_in(memory, together) : 0;
  if (!at || !cujit_claim(launch, FAULT_ILLEGAL_ADDRESS)) return;
  cujit_fault_here(launch, launch->blocks == 1 ? 0 : ~0ull, ~0u, 0, at);
  u64 more[] = {0, 0, (u64)memory->shared, (u64)memory->local, memory->local_bytes, ~0ull};
  memcpy(launch->fault_more, more, sizeof more);
}

/* Run blocks. A fault of the kernel comes back out of _setjmp a second time. */
static void run_blocks(const struct Job *job, u64 decides) {
  struct Guard guard;
  guard.decides = decides;
  if (!cujit_prepare(&guard, job->launch, job->shared_bytes, job->local_bytes)) {
    lack_memory(job->launch);
    return;
  }
  if (!_setjmp(guard.jump)) {
    cujit_enter(&guard);
    job->kernel(job->launch, guard.memory.shared, guard.memory.local);
    look_for_strays(&guard);
  }
  cujit_leave(&guard);
}

/* -- workers --------------------------------------------------------------------------------------------------------- */

/* Take part in the present job if there is a place; `places` is how many there were at the last look. */
static flag take_part(struct Pool *pool, u32 places) {
  do {
    if (!places) return 0;
  } while (!__atomic_compare_exchange_n(&pool->places, &places, places - 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
  struct Job job = pool->job;
  run_blocks(&job, 0);
  __atomic_fetch_add(&pool->finished, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&pool->awaited, __ATOMIC_SEQ_CST)) wake(&pool->finished, 1);
  return 1;
}

/* What a worker does until the pool stops. */
void cujit_pool_work(struct Pool *pool) {
  for (u32 places; (places = __atomic_load_n(&pool->places, __ATOMIC_ACQUIRE)) != (u32)CLOSED;) {
    if (take_part(pool, places) && changes_soon(&pool->places, 0)) continue;
    __atomic_fetch_add(&pool->asleep, 1, __ATOMIC_SEQ_CST);
    sleep_on(&pool->places, 0, 0);
    __atomic_fetch_sub(&pool->asleep, 1, __ATOMIC_RELAXED);
  }
}

/* -- launches -------------------------------------------------------------------------------------------------------- */

/* Offer a job to `helpers` workers; 0 where the pool is busy. */
static flag post(struct Pool *pool, const struct Job *job, u32 helpers) {
  if (__atomic_exchange_n(&pool->busy, 1, __ATOMIC_ACQUIRE)) return 0;
  pool->job = *job;
  __atomic_store_n(&pool->finished, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&pool->places, helpers, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&pool->asleep, __ATOMIC_SEQ_CST)) wake(&pool->places, (i32)helpers);
  return 1;
}

/* Return when every worker is done. Whoever has not come by now has nothing left to do. What this thread saw ended ends
   in the others, too. */
static void await_workers(struct Pool *pool, struct Launch *launch, u32 helpers) {
  u32 joined = helpers - __atomic_exchange_n(&pool->places, 0, __ATOMIC_ACQ_REL), finished;
  flag ended = __atomic_load_n(&launch->fault_kind, __ATOMIC_RELAXED) != 0;
  while ((finished = __atomic_load_n(&pool->finished, __ATOMIC_ACQUIRE)) != joined) {
    if (changes_soon(&pool->finished, finished)) continue;
    __atomic_store_n(&pool->awaited, 1, __ATOMIC_SEQ_CST);
    flag changed = sleep_on(&pool->finished, finished, ended ? HURRY_NS : LOOK_NS);
    __atomic_store_n(&pool->awaited, 0, __ATOMIC_RELAXED);
    if (!changed) ended = cujit_look(launch);
  }
  __atomic_store_n(&pool->busy, 0, __ATOMIC_RELEASE);
}

/* Call kernel(launch, shared, local) here and in up to `helpers` workers; return when all are done. */
void cujit_pool_run(struct Pool *pool, void *kernel, struct Launch *launch, u32 helpers, u64 shared_bytes,
                    u64 local_bytes) {
  struct Job job = {kernel, launch, shared_bytes, local_bytes};
  cujit_begin_launch(launch);
  flag posted = helpers && post(pool, &job, helpers);
  if (helpers && !posted && launch->workspace) {
    /* The blocks of a cooperative grid wait for each other: where no worker comes, all of them run here at a time. */
    u64 shares = helpers + 1;
    launch->together *= shares, launch->chunk *= shares;
    job.local_bytes *= shares;
  }
  run_blocks(&job, 1);
  if (posted) await_workers(pool, launch, helpers);
}
