/* Waits for Python's lock, which --timeout ends.

   Whoever holds the lock may wait for the very thread that waits for it: an extension that starts threads and joins them.
   Nobody can take the lock away, and no wait for it can be given up. So what C calls of Python's goes through a guard
   that notes since when it waits, and a thread that needs no Python ends a process in which one waits for too long. */

#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { GUARDS = 256, WAITS = 256, STATUS = 1 };

typedef u64 Call(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64);

static Call *targets[GUARDS];
static const char *names[GUARDS]; /* null where the first argument is a place among all exports */
static const char *const *exports;
static u32 guards;

/* Since when a thread waits, in ns, 0 in a place that is free; and for what. */
static struct Wait {
  u64 since, first;
  u32 guard;
} waits[WAITS];

static u64 now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (u64)time.tv_sec * 1000000000 + (u64)time.tv_nsec;
}

/* Note that this thread waits from now on. More threads than there are places wait unseen. */
static __attribute__((noinline)) void begin(u32 guard, u64 first) {
  struct Thread *thread = cujit_this_thread();
  u64 time = now();
  for (u32 k = 0; thread && k < WAITS; k++) {
    u64 none = 0;
    if (!__atomic_compare_exchange_n(&waits[k].since, &none, time, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
    waits[k].guard = guard;
    waits[k].first = first;
    thread->waits = k + 1;
    return;
  }
}

/* What Python calls first: this thread has the lock. */
void cujit_wait_over(void) {
  struct Thread *thread = cujit_this_thread();
  if (!thread || !thread->waits) return;
  __atomic_store_n(&waits[thread->waits - 1].since, 0, __ATOMIC_RELEASE);
  thread->waits = 0;
}

#define PARAMETERS u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j, u64 k, u64 l

/* Functions that take less find what they take where they look for it. */
#define GUARD(n)                                         \
  static u64 guard_##n(PARAMETERS) {                     \
    if (state.wait_ns) begin(0x##n, a);                  \
    return targets[0x##n](a, b, c, d, e, f, g, h, i, j, k, l); \
  }
#define EACH(of, n)                                                                          \
  of(n##0) of(n##1) of(n##2) of(n##3) of(n##4) of(n##5) of(n##6) of(n##7) of(n##8) of(n##9)  \
  of(n##a) of(n##b) of(n##c) of(n##d) of(n##e) of(n##f)
#define ALL(of)                                                                              \
  EACH(of, 0) EACH(of, 1) EACH(of, 2) EACH(of, 3) EACH(of, 4) EACH(of, 5) EACH(of, 6)         \
  EACH(of, 7) EACH(of, 8) EACH(of, 9) EACH(of, a) EACH(of, b) EACH(of, c) EACH(of, d)         \
  EACH(of, e) EACH(of, f)
ALL(GUARD)

#define NAME(n) case 0x##n: return (u64)guard_##n;

static u64 guard_of(u32 guard) {
  switch (guard) {
    ALL(NAME)
  }
  return 0;
}

/* Return a function that calls another one of Python's, under the watch; 0 where there are no more. */
u64 cujit_wait_guard(Call *target, const char *name) {
  u32 guard = __atomic_fetch_add(&guards, 1, __ATOMIC_ACQ_REL);
  if (guard >= GUARDS) return 0;
  targets[guard] = target;
  names[guard] = name;
  return guard_of(guard);
}

static void end(const struct Wait *wait) {
  const char *name = names[wait->guard];
  char words[512];
  int size = snprintf(words, sizeof words,
                      "cujit emulate: %s waited %.1f s for Python's lock, and --timeout ends the process: another thread "
                      "keeps the lock, perhaps while it waits for this one. Release the lock around that wait "
                      "(Py_BEGIN_ALLOW_THREADS), or make the call before it\n",
                      name ? name : exports[wait->first], (double)state.wait_ns / 1e9);
  if (size > 0 && write(2, words, (size_t)size) < 0) _exit(STATUS);
  _exit(STATUS);
}

static void *watch(void *unused) {
  (void)unused;
  for (;;) {
    usleep((u32)(state.wait_ns < 400000000 ? state.wait_ns / 4000 : 100000));
    u64 time = now();
    for (u32 k = 0; k < WAITS; k++) {
      u64 since = __atomic_load_n(&waits[k].since, __ATOMIC_ACQUIRE);
      if (since && time > since + state.wait_ns) end(waits + k);
    }
  }
  return 0;
}

/* End the process where a thread waits longer for Python's lock than so many ns. A child that was forked asks again: it
   has one thread, which does not wait. */
void cujit_waits_begin(u64 ns, const char *const *all) {
  pthread_t thread;
  exports = all;
  memset(waits, 0, sizeof waits);
  state.wait_ns = ns;
  if (ns && !pthread_create(&thread, 0, watch, 0)) pthread_detach(thread);
}
