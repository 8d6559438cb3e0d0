/* Native threads that run the blocks of a launch, woken without the interpreter.

   A worker is a thread that comes to cujit_pool_work once and stays there, asleep. A launch is one call of
   cujit_pool_run: it posts the job, wakes the workers, runs blocks itself, and returns when the last worker is done. A
   launch that finds the pool busy runs alone. */

#include "guard.h"

#include <stdlib.h>
#include <time.h>

/* How often a thread that waits for workers looks whether the launch is to go on, and how often it pokes workers that
   are to leave a launch that has ended. */
enum { LOOK_NS = 20000000, HURRY_NS = 1000000, SECOND_NS = 1000000000 };

/* What every thread runs, with how many bytes of memory for its own. */
struct Job {
  void (*kernel)(struct Launch *launch, u8 *shared, u8 *local);
  struct Launch *launch;
  u64 shared_bytes, local_bytes;
};

/* `generation` numbers the jobs. `wanted` workers may join the present one, `joined` have, `active` are still at it. */
struct Pool {
  pthread_mutex_t mutex;
  pthread_cond_t work, done;
  struct Job job;
  u64 generation;
  u32 wanted, joined, active, busy, stop;
};

/* Give a pool without workers; null without memory. */
struct Pool *cujit_pool_make(void) {
  struct Pool *pool = calloc(1, sizeof *pool);
  if (!pool) return 0;
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&pool->mutex, 0);
  pthread_cond_init(&pool->work, 0);
  pthread_cond_init(&pool->done, &attributes);
  return pool;
}

/* Send the workers home. */
void cujit_pool_stop(struct Pool *pool) {
  pthread_mutex_lock(&pool->mutex);
  pool->stop = 1;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->mutex);
}

/* Give a pool back that has no workers any more. */
void cujit_pool_free(struct Pool *pool) { free(pool); }

/* Run blocks with memory of this call's own: PLACE bytes whose first words say what runs, then shared memory, then local
   memory. Without memory, leave the blocks. A fault of the kernel comes back out of _setjmp a second time. */
static void run_blocks(const struct Job *job, u64 decides) {
  struct Guard guard;
  u64 shared_bytes = (job->shared_bytes + 511) & ~255ull;
  u64 bytes = (PLACE + shared_bytes + job->local_bytes + 2 * SHARED_ALIGN - 1) & -(u64)SHARED_ALIGN;
  u8 *memory = aligned_alloc(SHARED_ALIGN, bytes);
  if (!memory) return;
  u8 *shared = memory + PLACE;
  struct Running *running = running_at(shared);
  *running = (struct Running){~0ull, 0, -1};
  guard.decides = decides;
  if (_setjmp(guard.jump)) {
    cujit_leave(&guard);
  } else if (cujit_enter(&guard, job->launch, running)) {
    job->kernel(job->launch, shared, shared + shared_bytes);
    cujit_leave(&guard);
  }
  free(memory);
}

/* -- workers --------------------------------------------------------------------------------------------------------- */

/* Take part in the present job; the pool is locked before and after. */
static void take_part(struct Pool *pool) {
  struct Job job = pool->job;
  pool->joined++;
  pool->active++;
  pthread_mutex_unlock(&pool->mutex);
  run_blocks(&job, 0);
  pthread_mutex_lock(&pool->mutex);
  if (!--pool->active) pthread_cond_signal(&pool->done);
}

/* What a worker does until the pool stops. */
void cujit_pool_work(struct Pool *pool) {
  u64 seen = 0;
  pthread_mutex_lock(&pool->mutex);
  while (!pool->stop) {
    if (pool->generation != seen && pool->joined < pool->wanted) {
      seen = pool->generation;
      take_part(pool);
    } else {
      pthread_cond_wait(&pool->work, &pool->mutex);
    }
  }
  pthread_mutex_unlock(&pool->mutex);
}

/* -- launches -------------------------------------------------------------------------------------------------------- */

/* Give a job to up to `helpers` workers; 0 where the pool is busy. */
static flag post(struct Pool *pool, const struct Job *job, u32 helpers) {
  pthread_mutex_lock(&pool->mutex);
  flag is_free = !pool->busy;
  if (is_free) {
    pool->busy = 1;
    pool->job = *job;
    pool->wanted = helpers;
    pool->joined = 0;
    pool->generation++;
    pthread_cond_broadcast(&pool->work);
  }
  pthread_mutex_unlock(&pool->mutex);
  return is_free;
}

/* Sleep until the last worker is done, `ns` at the most; 0 where it is not. */
static flag sleep_for(struct Pool *pool, u64 ns) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  u64 sum = (u64)time.tv_nsec + ns;
  time.tv_sec += sum >= SECOND_NS;
  time.tv_nsec = (long)(sum >= SECOND_NS ? sum - SECOND_NS : sum);
  return !pthread_cond_timedwait(&pool->done, &pool->mutex, &time);
}

/* Return when every worker is done. Whoever has not come by now has nothing left to do. What this thread saw ended ends
   in the others, too. */
static void await_workers(struct Pool *pool, struct Launch *launch) {
  pthread_mutex_lock(&pool->mutex);
  pool->wanted = 0;
  flag ended = __atomic_load_n(&launch->fault_kind, __ATOMIC_RELAXED) != 0;
  while (pool->active) {
    if (sleep_for(pool, ended ? HURRY_NS : LOOK_NS)) continue;
    pthread_mutex_unlock(&pool->mutex);
    ended = cujit_look(launch);
    pthread_mutex_lock(&pool->mutex);
  }
  pool->busy = 0;
  pthread_mutex_unlock(&pool->mutex);
}

/* Call kernel(launch, shared, local) here and in up to `helpers` workers; return when all are done. */
void cujit_pool_run(struct Pool *pool, void *kernel, struct Launch *launch, u32 helpers, u64 shared_bytes,
                    u64 local_bytes) {
  struct Job job = {kernel, launch, shared_bytes, local_bytes};
  cujit_begin_launch(launch);
  flag posted = helpers && post(pool, &job, helpers);
  run_blocks(&job, 1);
  if (posted) await_workers(pool, launch);
}
