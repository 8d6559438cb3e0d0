/* Ending launches that run: because the user wants to, the time is up, or Python's handler of a signal raised.

   Kernels look at nothing while they run. A watcher thread pokes threads that run for long, by a signal. A thread that
   is poked in the machine code of a kernel, or in code of ours that keeps nothing (cujit_may_stop), holds no lock and is
   in no function of the system, so the handler may do there what any code may. In the thread that launched, it decides
   whether the launch goes on, and has Python run the handlers of signals that came meanwhile, if that is the main thread.
   Where the launch is to end, it notes where it stands and leaves by longjmp, as for a fault, and so do the others, which
   are poked until they do. A thread that is poked anywhere else goes on and is poked again soon; the scheduler of warps
   and the checks look by themselves then (cujit_pause). A thread that waits for the workers of its launch looks by itself
   (cujit_look). */

#pragma once

#include "arena.h"
#include "guard.h"
#include "windows.h"

#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* -- pokes ------------------------------------------------------------------------------------------------------------- */

/* Poking threads that run kernels, by a signal, so that launches can be ended.

   A watcher thread looks every TICK_NS which threads are still in what they ran at the look before, and pokes them. It
   begins with the first launch, and sleeps while nobody launches. The signal is SIGURG, which does nothing where nobody
   waits for it; what others send by it goes to the handler that was there before. */

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

/* Bytes below its guard in which a thread's own stack may be deep. */
enum { NEAR = 1 << 26 };

/* -- Python --------------------------------------------------------------------------------------------------------- */

/* PyGILState_Ensure, PyGILState_Release, PyErr_CheckSignals, PyErr_Fetch; null where there is no Python to ask. */
static struct {
  i32 (*ensure)(void);
  void (*release)(i32 state);
  i32 (*check)(void);
  void (*fetch)(u64 *type, u64 *value, u64 *trace);
} python;

void cujit_use_python(void *ensure, void *release, void *check, void *fetch) {
  python.ensure = (i32(*)(void))ensure;
  python.release = (void (*)(i32))release;
  python.check = (i32(*)(void))check;
  python.fetch = (void (*)(u64 *, u64 *, u64 *))fetch;
}

/* Have Python's handlers run for the signals that came; 1 where one of them raised, its exception being taken then. */
static i32 ask_python(struct Launch *launch) {
  if (!python.ensure) return 0;
  i32 state = python.ensure();
  flag raised = python.check() != 0;
  if (raised) python.fetch(&launch->raised[0], &launch->raised[1], &launch->raised[2]);
  python.release(state);
  return (i32)raised;
}

/* Call function(argument) on a stack. */
i32 cujit_on_stack(i32 (*function)(struct Launch *), struct Launch *argument, void *stack);
#ifdef __aarch64__
__asm__(".globl cujit_on_stack\n"
        "cujit_on_stack:\n"
        "stp x29, x30, [sp, #-16]!\n"
        "mov x29, sp\n"
        "mov sp, x2\n"
        "mov x9, x0\n"
        "mov x0, x1\n"
        "blr x9\n"
        "mov sp, x29\n"
        "ldp x29, x30, [sp], #16\n"
        "ret\n");
#else
__asm__(".globl cujit_on_stack\n"
        "cujit_on_stack:\n"
        "pushq %rbp\n"
        "movq %rsp, %rbp\n"
        "movq %rdx, %rsp\n"
        "movq %rdi, %rax\n"
        "movq %rsi, %rdi\n"
        "callq *%rax\n"
        "movq %rbp, %rsp\n"
        "popq %rbp\n"
        "retq\n");
#endif

/* -- deciding -------------------------------------------------------------------------------------------------------- */

/* In nanoseconds, by a clock that nobody sets. */
static u64 now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (u64)time.tv_sec * 1000000000 + (u64)time.tv_nsec;
}

INLINE u64 cancels_of(const struct Control *control) { return __atomic_load_n(&control->cancels, __ATOMIC_RELAXED); }

void cujit_begin_launch(struct Launch *launch) {
  if (launch->timeout_ns) launch->deadline_ns = now() + launch->timeout_ns;
  if (launch->control) launch->cancels = cancels_of(launch->control);
}

/* Whether a launch goes on (0), or why it ends; in the thread that launched, on `stack` for Python (null: on this one).
   While Python runs, this thread runs no kernel. */
static u32 decide(struct Launch *launch, struct Thread *thread, void *stack) {
  if (launch->control && cancels_of(launch->control) != launch->cancels) return FAULT_CANCELLED;
  if (launch->deadline_ns && now() >= launch->deadline_ns) return FAULT_TIMEOUT;
  if (!thread->main) return 0;
  struct Guard *guard = thread->guard;
  struct Arena *arena = thread->arena; /* what waits on its stacks stays there, whatever a handler launches */
  set_guard(thread, 0);
  thread->arena = 0;
  i32 raised = stack ? cujit_on_stack(ask_python, launch, stack) : ask_python(launch);
  arena_end(thread->arena);
  thread->arena = arena;
  set_guard(thread, guard);
  return raised ? FAULT_INTERRUPTED : 0;
}

/* End a launch, unless a fault was first; its threads note where they stand from here on. */
static void end_launch(struct Launch *launch, u32 kind) {
  struct Stands *stands = calloc(1, sizeof *stands);
  __atomic_store_n(&launch->stands, stands, __ATOMIC_RELEASE);
  launch->begun = __atomic_load_n(&launch->next, __ATOMIC_RELAXED);
  if (cujit_claim(launch, kind)) cujit_fault_here(launch, ~0ull, ~0u, 0, 0);
}

/* Note where this thread stands, with the blocks of `group` (null: none take turns). */
void cujit_stand(struct Launch *launch, u64 block, u64 pc, const struct Group *group, i64 warp) {
  struct Stands *stands = __atomic_load_n(&launch->stands, __ATOMIC_ACQUIRE);
  if (!stands) return;
  u64 index = __atomic_fetch_add(&stands->count, 1, __ATOMIC_RELAXED);
  if (index >= STANDS) return;
  struct Stand *stand = &stands->each[index];
  stand->block = block, stand->pc = pc, stand->warp = warp;
  if (!group) return;
  u64 size = group->count * sizeof *group->blocks;
  struct Block *kept = malloc(size);
  if (!kept) return;
  memcpy(kept, group->blocks, size);
  stand->blocks = kept, stand->count = group->count;
}

/* Whether a thread is to leave its launch: that has ended, or this thread decides so now. Its stack is at `sp`. */
static flag judge(struct Launch *launch, struct Thread *thread, struct Guard *guard, u64 sp) {
  if (__atomic_load_n(&launch->fault_kind, __ATOMIC_RELAXED)) return 1;
  if (!guard->decides) return 0;
  /* The stack of a warp is too small for Python. That of the thread is free below the scheduler, which is not deep. */
  flag native = (u64)guard - sp < NEAR;
  u32 why = decide(launch, thread, native ? 0 : (void *)(((u64)guard - 65536) & ~63ull));
  if (why) end_launch(launch, why);
  return why != 0;
}

/* Note where this thread stands, and leave its launch. */
static NORETURN void depart(struct Launch *launch, const struct Guard *guard, u64 pc) {
  const struct Running *place = running_at(guard->memory.shared);
  cujit_stand(launch, pc ? place->block : ~0ull, pc, place->group, place->warp);
  cujit_stop();
}

flag cujit_look(struct Launch *launch) {
  if (!__atomic_load_n(&launch->fault_kind, __ATOMIC_RELAXED)) {
    struct Thread *thread = own_thread();
    u32 why = thread ? decide(launch, thread, 0) : 0;
    if (!why) return 0;
    end_launch(launch, why);
  }
  poke(1);
  return 1;
}

/* For native code that holds nothing, when its launch was poked outside of the kernel's code, or has failed: it does not
   return where the launch ends. `pc` is the place in the kernel's code, 0 in the scheduler. */
void cujit_pause(struct Launch *launch, u64 pc) {
  struct Thread *thread = own_thread();
  struct Guard *guard = thread->guard;
  __atomic_store_n(&launch->poked, 0, __ATOMIC_RELAXED);
  if (judge(launch, thread, guard, (u64)__builtin_frame_address(0))) depart(launch, guard, pc);
}
