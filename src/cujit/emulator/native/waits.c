/* Calls of Python's, and waits for its lock.

   Whoever holds the lock may wait for the very thread that needs it: an extension that starts threads and joins them. So
   a thread that needs no Python looks for calls that don't end. It interrupts the threads that sleep, and the one that
   sleeps with the lock lets others have it until the calls have ended. If none sleeps with it, it looks for a thread that
   polls with the lock: one that comes to the same place again and again with the same registers. Where that doesn't
   help, --timeout ends the process. */

#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { GUARDS = 16, WAITS = 256, STATUS = 1, IDLE_LOOKS = 100 };
enum {
  LOOK_NS = 10000000,     /* between two looks at all calls */
  FIRST_NS = 80000000,    /* how long a call may last before anybody is interrupted */
  LEAST_NS = 10000000,    /* the same once that helped */
  MOST_NS = 320000000,    /* the same where it doesn't */
  LINGER_NS = 2000000,    /* without any call before the lock is taken back: who made one may make another one */
  AWAY_NS = 20000000,     /* without the lock while there are only calls that began later */
  ALL_AWAY_NS = 200000000,
  NAP_NS = 200000,
  POLLS_NS = 500000000,   /* how long a call may wait for the lock before threads that run are interrupted */
  LOOKING_NS = 300000000, /* how long the registers of a thread are looked at */
  BETWEEN_NS = 50000,     /* how long a thread runs, at least, between two looks at its registers */
};

enum { SAMPLES = 64, REPEATS = 8, ASLEEP = 1, RUNNING, ELSEWHERE, YIELD_BYTES = 24 };

/* The arguments of the longest function; functions that take less find what they take where they look for it. */
#define PARAMETERS                                                                                                     \
  u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j, u64 k, u64 l, u64 m, u64 n, u64 o, u64 p, float x
#define ARGUMENTS a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, x

typedef u64 Call(PARAMETERS);

static struct PythonCall inner[GUARDS];
static u32 guards;

/* A call: when it began, in ns, 0 in a place that is free; since when it waits for the lock, 0 if it had it; and its
   name. */
struct Wait {
  u64 begun, since;
  const char *name;
};

/* What a forked child finds empty: whether a thread watches, and all calls. */
static struct Watch {
  u64 runs;
  struct Wait waits[WAITS];
} *watched_calls;

static struct PythonLock python;
static int interrupt_signal;
static u64 yields; /* how often a thread has let others have the lock */

static u64 now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (u64)time.tv_sec * 1000000000 + (u64)time.tv_nsec;
}

static void nap(i64 ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, 0); }

/* -- who holds the lock ---------------------------------------------------------------------------------------------- */

static u32 holds_lock(void) {
  void *current = ((void *(*)(void))python.current)();
  return current && current == ((void *(*)(void))python.own)();
}

/* Whether a signal has come while this thread slept in a system call: then it holds no lock of the C library. Linux has
   it call again, or answers EINTR. */
#ifdef __x86_64__
static u32 was_asleep(const ucontext_t *context) {
  const greg_t *registers = context->uc_mcontext.gregs;
  const u8 *at = (const u8 *)registers[REG_RIP];
  const u8 call[] = {0x0f, 0x05};
  return !memcmp(at, call, sizeof call) || (registers[REG_RAX] == -EINTR && !memcmp(at - sizeof call, call, sizeof call));
}
#else
static u32 was_asleep(const ucontext_t *context) {
  const u32 *at = (const u32 *)context->uc_mcontext.pc;
  const u32 call = 0xd4000001;
  return *at == call || ((i64)context->uc_mcontext.regs[0] == -EINTR && at[-1] == call);
}
#endif

/* -- who polls with the lock ----------------------------------------------------------------------------------------- */

/* The registers of one thread that runs with the lock, each time it was interrupted: their sums. */
static struct {
  int thread;
  u32 count, repeats, looks;
  u64 ran, sums[SAMPLES];
} samples;

/* Code that may keep locks of its own: of Python, of the C library, and of the loader. */
static struct {
  u64 inside, begin, end;
} kept_out[3];

static int note_object(struct dl_phdr_info *object, size_t size, void *unused) {
  (void)size;
  (void)unused;
  u64 begin = ~0ull, end = 0;
  for (u32 k = 0; k < object->dlpi_phnum; k++) {
    const ElfW(Phdr) *part = object->dlpi_phdr + k;
    u64 at = object->dlpi_addr + part->p_vaddr;
    if (part->p_type != PT_LOAD) continue;
    if (at < begin) begin = at;
    if (at + part->p_memsz > end) end = at + part->p_memsz;
  }
  for (u32 k = 0; k < 3; k++) {
    if (kept_out[k].inside < begin || kept_out[k].inside >= end) continue;
    kept_out[k].begin = begin;
    kept_out[k].end = end;
  }
  return 0;
}

static void note_objects(void) {
  kept_out[0].inside = python.release;
  kept_out[1].inside = (u64)sched_yield;
  kept_out[2].inside = getauxval(AT_BASE);
  dl_iterate_phdr(note_object, 0);
}

/* Whether code at an address is an extension's, or has just yielded for it. */
static u32 is_of_extension(u64 at) {
  if (at - (u64)sched_yield < YIELD_BYTES) return 1;
  for (u32 k = 0; k < 3; k++)
    if (at >= kept_out[k].begin && at < kept_out[k].end) return 0;
  return 1;
}

static u64 place_of(const ucontext_t *context) {
#ifdef __x86_64__
  return (u64)context->uc_mcontext.gregs[REG_RIP];
#else
  return context->uc_mcontext.pc;
#endif
}

static u64 sum_of_registers(const ucontext_t *context) {
#ifdef __x86_64__
  const u64 *registers = (const u64 *)context->uc_mcontext.gregs;
  u32 count = REG_RIP + 1;
#else
  const u64 *registers = (const u64 *)context->uc_mcontext.regs; /* sp and pc follow */
  u32 count = 33;
#endif
  u64 sum = 14695981039346656037ull; /* FNV-1a, by words */
  for (u32 k = 0; k < count; k++) sum = (sum ^ registers[k]) * 1099511628211ull;
  return sum;
}

/* Whether this thread, which has the lock, polls: its registers were the same before, more than once. It changes nothing
   then that it could lose with the lock. */
static u32 polls(const ucontext_t *context) {
  struct timespec ran;
  __atomic_fetch_add(&samples.looks, 1, __ATOMIC_ACQ_REL);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
  u64 time = (u64)ran.tv_sec * 1000000000 + (u64)ran.tv_nsec, sum = sum_of_registers(context);
  int thread = (int)syscall(SYS_gettid);
  u32 count = thread == samples.thread ? samples.count : 0, repeats = count ? samples.repeats : 0;
  if (!is_of_extension(place_of(context)) || (count && time < samples.ran + BETWEEN_NS)) return 0;
  u32 again = 0;
  for (u32 k = 0; k < count && k < SAMPLES; k++) again |= samples.sums[k] == sum;
  samples.sums[count % SAMPLES] = sum;
  samples.ran = time;
  samples.repeats = repeats + again;
  samples.count = count + 1;
  __atomic_store_n(&samples.thread, thread, __ATOMIC_RELEASE);
  return samples.repeats >= REPEATS;
}

/* Whether there are calls that began before a time. */
static u32 any_calls(u64 before) {
  u32 any = 0;
  for (u32 k = 0; k < WAITS; k++) {
    u64 begun = __atomic_load_n(&watched_calls->waits[k].begun, __ATOMIC_ACQUIRE);
    any |= begun && begun < before;
  }
  return any;
}

/* Let other threads have the lock while they make calls. What runs here is asleep in code that doesn't know of it, and
   goes on only with the lock. */
static void let_others(void) {
  __atomic_fetch_add(&yields, 1, __ATOMIC_ACQ_REL);
  void *saved = ((void *(*)(void))python.release)();
  u64 begin = now(), last = begin, quiet = begin, time = begin;
  while (time < quiet + LINGER_NS && time < last + AWAY_NS && time < begin + ALL_AWAY_NS) {
    nap(NAP_NS);
    time = now();
    if (any_calls(time)) quiet = time;
    if (any_calls(begin)) last = time;
  }
  ((void (*)(void *))python.take)(saved);
}

/* Forget the interrupts that came while this thread was in one. */
static void forget_interrupts(void) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, interrupt_signal);
  while (sigtimedwait(&one, 0, &(struct timespec){0}) > 0) continue;
}

static void on_interrupt(int number, siginfo_t *info, void *context) {
  (void)number;
  (void)info;
  int error = errno;
  struct Thread *thread = pthread_getspecific((pthread_key_t)state.thread_key);
  u32 calls = thread && thread->calls; /* then the lock is held for the emulator's own code */
  if (!state.ended && !calls && any_calls(now()) && holds_lock() && (was_asleep(context) || polls(context))) {
    let_others();
    forget_interrupts();
    samples.thread = 0;
  }
  errno = error;
}

/* Take a signal that nobody uses; 0 where there is none. */
static int take_signal(void) {
  struct sigaction action, ours = {.sa_sigaction = on_interrupt, .sa_flags = SA_SIGINFO | SA_RESTART};
  if (interrupt_signal && !sigaction(interrupt_signal, 0, &action) && action.sa_sigaction == on_interrupt)
    return interrupt_signal;
  interrupt_signal = 0;
  for (int number = SIGRTMAX - 1; number > SIGRTMIN && !interrupt_signal; number--)
    if (!sigaction(number, 0, &action) && action.sa_handler == SIG_DFL && !sigaction(number, &ours, 0))
      interrupt_signal = number;
  return interrupt_signal;
}

/* Whether a thread sleeps until another one wakes it or a time has passed, or runs. All others are left alone: their
   system calls may end when they are interrupted. */
static u32 doing(int thread) {
  char path[64], text[32] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return ELSEWHERE;
  ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  if (size > 0 && text[0] == 'r') return RUNNING;
  if (size <= 0 || text[0] < '0' || text[0] > '9') return ELSEWHERE;
  int number = atoi(text);
  if (number == SYS_sched_yield) return RUNNING;
  return number == SYS_futex || number == SYS_nanosleep || number == SYS_clock_nanosleep ? ASLEEP : ELSEWHERE;
}

static void interrupt_one(int thread) { syscall(SYS_tgkill, getpid(), thread, interrupt_signal); }

/* Interrupt all threads that sleep, or that run; 1 where one of them let others have the lock. */
static u32 interrupt_all(u32 which) {
  u64 before = __atomic_load_n(&yields, __ATOMIC_ACQUIRE);
  DIR *threads = take_signal() ? opendir("/proc/self/task") : 0;
  if (!threads) return 0;
  int own = (int)syscall(SYS_gettid);
  for (struct dirent *entry; (entry = readdir(threads));) {
    int thread = atoi(entry->d_name);
    if (thread > 0 && thread != own && doing(thread) == which) interrupt_one(thread);
  }
  closedir(threads);
  nap(NAP_NS);
  return __atomic_load_n(&yields, __ATOMIC_ACQUIRE) != before;
}

/* Wait until a thread that runs with the lock was looked at, or has let others have that. */
static void await_look(u32 looks, u64 end) {
  while (__atomic_load_n(&samples.looks, __ATOMIC_ACQUIRE) == looks && now() < end) nap(NAP_NS);
}

/* Look at the registers of the thread that runs with the lock, until it lets others have that; 1 where it does. */
static u32 interrupt_who_polls(void) {
  u64 before = __atomic_load_n(&yields, __ATOMIC_ACQUIRE), end = now() + LOOKING_NS;
  __atomic_store_n(&samples.thread, 0, __ATOMIC_RELEASE);
  u32 looks = __atomic_load_n(&samples.looks, __ATOMIC_ACQUIRE), helped = interrupt_all(RUNNING);
  await_look(looks, end);
  int thread = __atomic_load_n(&samples.thread, __ATOMIC_ACQUIRE);
  while (!helped && thread && now() < end) {
    looks = __atomic_load_n(&samples.looks, __ATOMIC_ACQUIRE);
    if (doing(thread) == RUNNING) interrupt_one(thread);
    await_look(looks, end);
    helped = __atomic_load_n(&yields, __ATOMIC_ACQUIRE) != before;
  }
  return helped;
}

/* -- the thread that watches ----------------------------------------------------------------------------------------- */

static void end(const struct Wait *wait) {
  char words[512];
  int size = snprintf(words, sizeof words,
                      "cujit emulate: %s waited %.1f s for Python's lock, and --timeout ends the process: another thread "
                      "keeps the lock, perhaps while it waits for this one. Release the lock around that wait "
                      "(Py_BEGIN_ALLOW_THREADS), or make the call before it\n",
                      wait->name, (double)state.wait_ns / 1e9);
  if (size > 0 && write(2, words, (size_t)size) < 0) _exit(STATUS);
  _exit(STATUS);
}

/* How long the oldest call has lasted, and has waited for the lock; 0 where there is none. The process ends if one waits
   for too long. */
static u64 oldest(u64 *waiting) {
  u64 time = now(), longest = 0;
  *waiting = 0;
  for (u32 k = 0; k < WAITS; k++) {
    struct Wait *wait = watched_calls->waits + k;
    u64 begun = __atomic_load_n(&wait->begun, __ATOMIC_SEQ_CST), since = __atomic_load_n(&wait->since, __ATOMIC_ACQUIRE);
    if (begun && begun <= time && time - begun >= longest) longest = time - begun + 1;
    if (begun && since && since <= time && time - since > *waiting) *waiting = time - since;
    if (begun && since && state.wait_ns && time > since + state.wait_ns) end(wait);
  }
  return longest;
}

/* Watch until there have been no calls for a while. */
static void *watch(void *unused) {
  (void)unused;
  u64 pause = FIRST_NS, next = 0, waiting, polled = 0;
  for (;;) {
    for (u32 idle = 0; idle < IDLE_LOOKS;) {
      nap(LOOK_NS);
      u64 longest = oldest(&waiting);
      idle = longest ? 0 : idle + 1;
      if (longest < pause || now() < next) continue;
      u32 helped = interrupt_all(ASLEEP);
      if (!helped && waiting >= (polled ? LEAST_NS : POLLS_NS)) helped = polled = interrupt_who_polls();
      pause = helped ? LEAST_NS : pause < MOST_NS / 2 ? 2 * pause : MOST_NS;
      next = now() + pause;
    }
    __atomic_store_n(&watched_calls->runs, 0, __ATOMIC_SEQ_CST);
    u64 none = 0; /* a call that began before that relies on this thread */
    if (!oldest(&waiting) || !__atomic_compare_exchange_n(&watched_calls->runs, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return 0;
  }
}

static __attribute__((noinline)) void start_watch(void) {
  u64 none = 0;
  pthread_t thread;
  sigset_t all, before;
  if (!__atomic_compare_exchange_n(&watched_calls->runs, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(&thread, 0, watch, 0)) __atomic_store_n(&watched_calls->runs, 0, __ATOMIC_SEQ_CST);
  else pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, 0);
}

/* -- calls of Python's ----------------------------------------------------------------------------------------------- */

/* Note that this thread makes a call. More threads than there are places make theirs unseen. */
static void begin(struct Thread *thread, const char *name) {
  u64 time = now();
  struct Wait *wait = thread->waits ? watched_calls->waits + thread->waits - 1 : 0;
  for (u32 k = 0; !thread->calls && !wait && k < WAITS; k++) {
    u64 none = 0;
    if (!__atomic_compare_exchange_n(&watched_calls->waits[k].begun, &none, time, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
      continue;
    thread->waits = k + 1;
    wait = watched_calls->waits + k;
  }
  thread->calls++;
  if (!wait) return;
  wait->name = name;
  __atomic_store_n(&wait->since, time, __ATOMIC_RELEASE);
  if (!__atomic_load_n(&watched_calls->runs, __ATOMIC_SEQ_CST)) start_watch();
}

/* What Python calls first: this thread has the lock. */
void cujit_wait_over(void) {
  struct Thread *thread = cujit_this_thread();
  if (thread && thread->waits) __atomic_store_n(&watched_calls->waits[thread->waits - 1].since, 0, __ATOMIC_RELEASE);
}

static void finish(struct Thread *thread) {
  if (--thread->calls || !thread->waits) return;
  struct Wait *wait = watched_calls->waits + thread->waits - 1;
  thread->waits = 0;
  __atomic_store_n(&wait->since, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&wait->begun, 0, __ATOMIC_SEQ_CST);
}

static u64 call_watched(const struct PythonCall *target, PARAMETERS) {
  struct Thread *thread = cujit_this_thread();
  if (!thread || !watched_calls) return ((Call *)target->call)(ARGUMENTS);
  begin(thread, target->name);
  u64 answer = ((Call *)target->call)(ARGUMENTS);
  finish(thread);
  return answer;
}

static u64 call_entered(PARAMETERS) {
  struct Thread *thread = pthread_getspecific((pthread_key_t)state.thread_key);
  return call_watched((const struct PythonCall *)thread->entering, ARGUMENTS);
}

/* Say where a call of a function goes on that no code in C answers: what a library asks. Python says it once. */
void *cujit_enter(u64 index, struct BootTable *table) {
  struct Thread *thread = cujit_this_thread();
  if (!thread) return (void *)table->failed;
  struct PythonCall *target = (struct PythonCall *)table->targets + index;
  if (!__atomic_load_n(&target->call, __ATOMIC_ACQUIRE)) {
    struct PythonCall ask = {.call = table->ask, .name = target->name};
    u64 found = call_watched(&ask, index, (u64)table, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    if (!__atomic_load_n(&target->call, __ATOMIC_ACQUIRE)) return (void *)found;
  }
  thread->entering = (u64)target;
  return (void *)call_entered;
}

#define GUARD(n) \
  static u64 guard_##n(PARAMETERS) { return call_watched(inner + 0x##n, ARGUMENTS); }
#define EACH(of) \
  of(0) of(1) of(2) of(3) of(4) of(5) of(6) of(7) of(8) of(9) of(a) of(b) of(c) of(d) of(e) of(f)
EACH(GUARD)

#define NAME(n) case 0x##n: return (u64)guard_##n;

/* Return a function that makes a call of Python's for other code in C; 0 where there are no more. */
u64 cujit_wait_guard(u64 call, const char *name) {
  u32 guard = __atomic_fetch_add(&guards, 1, __ATOMIC_ACQ_REL);
  if (guard >= GUARDS) return 0;
  inner[guard] = (struct PythonCall){.call = call, .name = name};
  switch (guard) { EACH(NAME) }
  return 0;
}

/* Watch all calls of Python's from now on; 0 without memory. */
u32 cujit_waits_begin(const struct PythonLock *lock) {
  void *memory = mmap(0, sizeof *watched_calls, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, sizeof *watched_calls, MADV_WIPEONFORK);
  python = *lock;
  note_objects();
  watched_calls = memory;
  return 1;
}
