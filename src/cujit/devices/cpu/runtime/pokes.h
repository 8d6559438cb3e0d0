/* Poking threads that run kernels, by a signal, so that launches can be ended.

   A watcher thread looks every TICK_NS which threads are still in what they ran at the look before, and pokes them. It
   begins with the first launch, and sleeps while nobody launches. The signal is SIGURG, which does nothing where nobody
   waits for it; what others send by it goes to the handler that was there before. */

#pragma once

#include "guard.h"

#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* AGAIN_NS is how long after a poke that found a thread outside of its kernel's code the next one comes; IDLE_TICKS are
   those without a launch after which the watcher goes to sleep. */
enum { TICK_NS = 20000000, AGAIN_NS = 2000000, IDLE_TICKS = 50 };

enum { AWAKE, ASLEEP, NO_WATCHER };
static u32 watcher_state = NO_WATCHER;
static u32 missed; /* a poke found a thread elsewhere */
static sem_t wake_up;

static flag install(int signal);

/* The number of this thread, which is to be poked. */
static u32 own_id(void) {
  /* Who blocks this signal in all threads had another use for it in mind than ours. */
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGURG);
  pthread_sigmask(SIG_UNBLOCK, &mask, 0);
  return (u32)syscall(SYS_gettid);
}

/* Poke the threads that run kernels: `all`, or those that still run what they did at the last look. 1 where something
   ran since then. */
static flag poke(flag all) {
  flag some = 0;
  i32 process = getpid();
  siginfo_t info;
  memset(&info, 0, sizeof info);
  info.si_signo = SIGURG, info.si_code = SI_QUEUE, info.si_pid = process, info.si_value.sival_ptr = &threads;
  for (struct Thread *thread = __atomic_load_n(&threads, __ATOMIC_ACQUIRE); thread; thread = thread->next) {
    u32 id = __atomic_load_n(&thread->id, __ATOMIC_ACQUIRE);
    /* The thread, and others that look, write meanwhile: a look too early or too late is one tick. */
    u64 count = __atomic_load_n(&thread->count, __ATOMIC_RELAXED);
    u64 seen = __atomic_load_n(&thread->seen, __ATOMIC_RELAXED);
    flag runs = __atomic_load_n(&thread->guard, __ATOMIC_RELAXED) != 0, same = count == seen;
    some |= runs || !same;
    if (!all) __atomic_store_n(&thread->seen, count, __ATOMIC_RELAXED);
    if (id && runs && (all || same)) syscall(SYS_rt_tgsigqueueinfo, (long)process, (long)(i32)id, (long)SIGURG, &info);
  }
  return some;
}

INLINE void rest(u64 ns) {
  struct timespec time = {0, (long)ns};
  nanosleep(&time, 0);
}

static void *watch(void *nothing) {
  for (u32 idle = 0;;) {
    u64 ns = __atomic_exchange_n(&missed, 0, __ATOMIC_RELAXED) ? AGAIN_NS : TICK_NS;
    rest(ns);
    if (poke(0)) {
      install(SIGURG); /* somebody may have put a handler in front meanwhile */
      idle = 0;
    } else if (++idle > IDLE_TICKS) {
      /* Who begins now either wakes us, or can be seen after this tick. */
      __atomic_store_n(&watcher_state, ASLEEP, __ATOMIC_SEQ_CST);
      rest(ns);
      if (poke(0)) {
        __atomic_store_n(&watcher_state, AWAKE, __ATOMIC_RELAXED);
      } else {
        sem_wait(&wake_up);
      }
      idle = 0;
    }
  }
  return nothing;
}

static void begin_watch(void) {
  pthread_t thread;
  sigset_t all, before;
  memset(&wake_up, 0, sizeof wake_up);
  sigfillset(&all); /* it takes no signals */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  i32 status = pthread_create(&thread, 0, watch, 0);
  pthread_sigmask(SIG_SETMASK, &before, 0);
  if (!status) pthread_detach(thread);
}

/* Have the watcher look again, or begin. */
static NOINLINE void wake(void) {
  switch (__atomic_exchange_n(&watcher_state, AWAKE, __ATOMIC_ACQ_REL)) {
  case ASLEEP: sem_post(&wake_up); break;
  case NO_WATCHER: begin_watch(); break;
  }
}
