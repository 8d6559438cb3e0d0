/* Faults, ends and signals of launches: what kernels, the pool and Python call. */

#include "ending.h"
#include "pending.h"

#include <sys/mman.h>
#include <ucontext.h>

/* What Launch.next is set to when a launch ends early: beyond all blocks, far from wrapping. */
#define NOWHERE (1ull << 62)

/* -- signals ----------------------------------------------------------------------------------------------------------- */

/* Signals of threads that run kernels: wrong accesses and instructions, and pokes.

   A signal leaves the launch where this thread runs a kernel; else it goes to the handler that was there before. Signals
   are handled on a stack of their own, for the kernel's may be what is used up.

   The stack of the main thread may grow without a limit (`ulimit -s unlimited`; NVRTC leaves a process so when a compile
   fails), and an endless recursion would use up the machine's memory first. So a page that nobody may touch is put far
   below it when it first runs a kernel. */

/* Bytes of the stack for signals: also enough for the traceback of faulthandler, which may be the next in the chain. */
enum { SIGNAL_STACK = 1 << 16 };

/* Bytes that the main thread's stack may grow by when nothing else limits it, from where it first runs a kernel. */
enum { MAIN_STACK = 1 << 30, MAIN_PAGE = 1 << 16 };

/* Bytes below and above the stack pointer in which memory that is not there means that the stack is used up. */
enum { REACH_BELOW = 1 << 16, REACH_ABOVE = 1 << 20 };

/* Where the registers are. Source: glibc, sysdeps/unix/sysv/linux/{x86_64,aarch64}/sys/ucontext.h. */
#ifdef __aarch64__
INLINE u64 pc_of(const ucontext_t *context) { return context->uc_mcontext.pc; }
INLINE u64 link_of(const ucontext_t *context) { return context->uc_mcontext.regs[30]; }
INLINE u64 sp_of(const ucontext_t *context) { return context->uc_mcontext.sp; }
#else
INLINE u64 pc_of(const ucontext_t *context) { return (u64)context->uc_mcontext.gregs[REG_RIP]; }
INLINE u64 link_of(const ucontext_t *context) { return (void)context, 0; } /* calls leave it on the stack */
INLINE u64 sp_of(const ucontext_t *context) { return (u64)context->uc_mcontext.gregs[REG_RSP]; }
#endif

/* -- stacks ---------------------------------------------------------------------------------------------------------- */

static NOINLINE void main_stack_begin(void) {
  if (getpid() != (i32)syscall(SYS_gettid)) return;
  u64 place = ((u64)__builtin_frame_address(0) - MAIN_STACK) & -(u64)MAIN_PAGE;
  /* What is there already stops the stack as well. */
  mmap((void *)place, MAIN_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

/* A stack that somebody gave the thread already is used as it is. */
static void signal_stack_begin(struct Thread *thread) {
  stack_t stack;
  sigaltstack(0, &stack);
  if (!(stack.ss_flags & SS_DISABLE)) return;
  void *memory = mmap(0, SIGNAL_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  stack.ss_sp = memory, stack.ss_flags = 0, stack.ss_size = SIGNAL_STACK;
  sigaltstack(&stack, 0);
  thread->stack = memory;
}

static void signal_stack_end(struct Thread *thread) {
  if (!thread->stack) return;
  stack_t stack;
  sigaltstack(0, &stack);
  if (stack.ss_sp == thread->stack) {
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, 0);
  }
  munmap(thread->stack, SIGNAL_STACK);
}

/* -- where a thread may be stopped ----------------------------------------------------------------------------------- */

/* Machine code that kernels call and that holds nothing; so many pieces of it, and so many words from the stack pointer
   up in which it has where it returns to. */
enum { PIECES = 16, FRAME_WORDS = 2048 };

static struct {
  u64 begin, bytes;
} plain[PIECES];
static u32 plain_count;

/* Have threads be stopped in this machine code as in a kernel's; one thread at a time says so. */
void cujit_may_stop(u64 begin, u64 bytes) {
  if (plain_count == PIECES) return;
  plain[plain_count].begin = begin, plain[plain_count].bytes = bytes;
  __atomic_store_n(&plain_count, plain_count + 1, __ATOMIC_RELEASE);
}

static flag is_plain(u64 pc) {
  u32 count = __atomic_load_n(&plain_count, __ATOMIC_ACQUIRE);
  for (u32 k = 0; k < count; k++) {
    if (pc - plain[k].begin < plain[k].bytes) return 1;
  }
  return 0;
}

INLINE flag in_kernel(const struct Launch *launch, u64 pc) { return pc - launch->code < launch->code_bytes; }

/* Where in the kernel's code a thread is, or was when it called plain code; 0 where it is elsewhere. */
static u64 place_of(const struct Launch *launch, const ucontext_t *context) {
  u64 pc = pc_of(context), link = link_of(context);
  if (in_kernel(launch, pc)) return pc;
  if (!is_plain(pc)) return 0;
  if (in_kernel(launch, link)) return link - 1;
  const u64 *words = (const u64 *)(sp_of(context) & ~7ull);
  for (u32 k = 0; k < FRAME_WORDS; k++) {
    if (in_kernel(launch, words[k])) return words[k] - 1; /* the call is before where it returns to */
  }
  return 0;
}

/* -- handlers -------------------------------------------------------------------------------------------------------- */

static const i32 SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGURG};
enum { SIGNAL_COUNT = sizeof SIGNALS / sizeof *SIGNALS };

static struct sigaction previous[SIGNAL_COUNT]; /* what was there before */
static u64 passing;                             /* the thread that is in one of them */

INLINE struct sigaction *previous_of(int signal) {
  u32 k = 0;
  for (u32 i = 0; i < SIGNAL_COUNT; i++) k = SIGNALS[i] == signal ? i : k;
  return &previous[k];
}

INLINE flag is_handler(const struct sigaction *action) {
  return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

static void call_handler(const struct sigaction *action, int signal, siginfo_t *info, void *context) {
  if (action->sa_flags & SA_SIGINFO) {
    action->sa_sigaction(signal, info, context);
  } else {
    action->sa_handler(signal);
  }
}

/* What is not ours goes to the handler that was there before. That one may have ours for its own previous, if it came
   later than the first time we did: what it raises anew is not given to it again but to the system. */
static void pass_on(int signal, siginfo_t *info, void *context) {
  const struct sigaction *action = previous_of(signal);
  flag raised = info->si_code > 0;
  u64 self = (u64)pthread_self();
  flag afresh = __atomic_load_n(&passing, __ATOMIC_RELAXED) != self;
  if ((raised || afresh) && is_handler(action)) {
    __atomic_store_n(&passing, self, __ATOMIC_RELAXED);
    call_handler(action, signal, info, context);
    __atomic_store_n(&passing, 0, __ATOMIC_RELAXED);
    return;
  }
  if (action->sa_handler == SIG_IGN && !raised) return;
  struct sigaction by_default;
  memset(&by_default, 0, sizeof by_default);
  sigaction(signal, &by_default, 0);
  /* The instruction that was at fault runs again and ends the process; what was only sent is sent again. */
  if (!raised) raise(signal);
}

static u32 kind_of(int signal, i32 code, u64 address, u64 sp) {
  if (signal == SIGFPE) return FAULT_ARITHMETIC;
  if (signal == SIGILL) return FAULT_ILLEGAL_INSTRUCTION;
  if (signal == SIGBUS && code == BUS_ADRALN) return FAULT_MISALIGNED;
  flag near = address - (sp - REACH_BELOW) < REACH_BELOW + REACH_ABOVE;
  return near ? FAULT_STACK_OVERFLOW : FAULT_ILLEGAL_ADDRESS;
}

/* The warp that runs: the scheduler notes the one that it let run, code without it the one that it runs where that may
   take long. */
static u64 warp_at(const struct Running *place) {
  const struct Group *group = place->group;
  for (u64 k = 0; group && k < group->count; k++) {
    if (group->blocks[k].number == place->block) return group->blocks[k].running;
  }
  return (u64)(i64)place->warp;
}

/* A signal is ours if this thread runs a kernel and did it itself: the processor raised it (si_code above 0), or a
   handler that came first did so again (SI_TKILL, as faulthandler does). */
static void on_fault(int signal, siginfo_t *info, void *context) {
  flag raised = info->si_code > 0, again = info->si_code == SI_TKILL;
  struct Thread *thread = raised || again ? own_thread() : 0;
  struct Guard *guard = thread ? thread->guard : 0;
  if (!guard) {
    pass_on(signal, info, context);
    return;
  }
  u64 address = raised ? (u64)info->si_addr : 0, pc = pc_of(context);
  struct Launch *launch = guard->launch;
  if (cujit_claim(launch, kind_of(signal, info->si_code, address, sp_of(context)))) {
    const struct Memory *memory = &guard->memory;
    const struct Running *place = running_at(memory->shared);
    cujit_fault_here(launch, place->block, ~0u, place->line, address);
    u64 more[] = {pc, (u64)(i64)info->si_code, (u64)memory->shared, (u64)memory->local, memory->local_bytes, warp_at(place)};
    memcpy(launch->fault_more, more, sizeof more);
  }
  cujit_stop();
}

/* What is not a poke of ours goes to the handler that was there before. */
static void on_poke(int signal, siginfo_t *info, void *context) {
  if (info->si_code != SI_QUEUE || info->si_value.sival_ptr != &threads) {
    const struct sigaction *action = previous_of(SIGURG);
    if (is_handler(action)) call_handler(action, signal, info, context);
    return;
  }
  struct Thread *thread = own_thread();
  struct Guard *guard = thread ? thread->guard : 0;
  if (!guard) return;
  struct Launch *launch = guard->launch;
  u64 pc = place_of(launch, context);
  if (!pc) {
    __atomic_store_n(&launch->poked, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&missed, 1, __ATOMIC_RELAXED);
    return;
  }
  if (judge(launch, thread, guard, sp_of(context))) depart(launch, guard, pc);
}

/* Put our handler in front of what is there, where it is not in front already. */
static flag install(int signal) {
  struct sigaction action;
  void (*own)(int, siginfo_t *, void *) = signal == SIGURG ? on_poke : on_fault;
  sigaction(signal, 0, &action);
  if (action.sa_sigaction == own) return 0;
  *previous_of(signal) = action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = own;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | (signal == SIGURG ? SA_RESTART : SA_ONSTACK);
  sigaction(signal, &action, 0);
  return 1;
}

/* Whoever takes one of these signals takes SIGSEGV, too: where it is still ours, nothing more is looked at. */
void cujit_install(void) {
  if (!install(SIGSEGV)) return;
  for (u32 i = 1; i < SIGNAL_COUNT; i++) install(SIGNALS[i]);
}

/* -- records of threads ---------------------------------------------------------------------------------------------- */

static pthread_once_t guard_once = PTHREAD_ONCE_INIT;

static void give_back(struct Thread *thread) { __atomic_store_n(&thread->id, 0, __ATOMIC_RELEASE); }

static void thread_end(void *record) {
  struct Thread *thread = record;
  signal_stack_end(thread);
  arena_end(thread->arena);
  thread->arena = 0;
  for (u32 k = 0; k < ROOMS; k++) memory_end(&thread->memory[k]);
  set_guard(thread, 0);
  give_back(thread);
}

static void guard_begin(void) { pthread_key_create(&guard_key, thread_end); }

static struct Thread *push_thread(u32 id) {
  struct Thread *thread = calloc(1, sizeof *thread);
  if (!thread) return 0;
  thread->id = id;
  thread->next = __atomic_load_n(&threads, __ATOMIC_ACQUIRE);
  while (!__atomic_compare_exchange_n(&threads, &thread->next, thread, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
  }
  return thread;
}

/* A record for this thread: one that an ended thread left, or a new one. Null without memory. */
static struct Thread *new_thread(void) {
  u32 id = own_id(), free_id = 0;
  struct Thread *thread = __atomic_load_n(&threads, __ATOMIC_ACQUIRE);
  while (thread && !__atomic_compare_exchange_n(&thread->id, &free_id, id, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    thread = thread->next;
    free_id = 0;
  }
  if (!thread) thread = push_thread(id);
  if (!thread) return 0;
  thread->main = (i32)id == getpid();
  thread->stack = 0;
  return thread;
}

/* The record of this thread, made when there is none; null without memory. */
static struct Thread *thread_record(void) {
  pthread_once(&guard_once, guard_begin);
  struct Thread *thread = own_thread();
  if (thread) return thread;
  thread = new_thread();
  if (!thread) return 0;
  if (pthread_setspecific(guard_key, thread)) {
    give_back(thread);
    return 0;
  }
  signal_stack_begin(thread);
  main_stack_begin();
  return thread;
}

struct Arena **cujit_arena(void) { return &own_thread()->arena; }

/* In the child of a fork there is no thread but this one, and no watcher. */
void cujit_forked(void) {
  if (guard_key == ~0u) return;
  struct Thread *own = own_thread();
  u32 id = own_id();
  __atomic_store_n(&watcher_state, NO_WATCHER, __ATOMIC_RELAXED);
  for (struct Thread *thread = threads; thread; thread = thread->next) {
    flag mine = thread == own;
    thread->id = mine ? id : 0;
    thread->main = mine;
    if (!mine) thread->guard = 0;
  }
}

/* -- guards ---------------------------------------------------------------------------------------------------------- */

flag cujit_prepare(struct Guard *guard, struct Launch *launch, u64 shared_bytes, u64 local_bytes) {
  struct Thread *thread = thread_record();
  u64 together = launch->together ? launch->together : 1;
  if (!thread || !memory_take(thread->memory, &guard->memory, together, shared_bytes, local_bytes)) return 0;
  u64 kept = launch->checks ? together * launch->checks->piece_bytes : 0;
  u8 *pieces = kept ? aligned_alloc(64, kept) : 0;
  *running_at(guard->memory.shared) = (struct Running){~0ull, 0, -1, 0, launch, 0, pieces, 0};
  guard->launch = launch;
  guard->thread = thread;
  guard->previous = thread->guard;
  if (kept && !pieces) memory_keep(thread->memory, &guard->memory);
  return !kept || pieces;
}

void cujit_enter(struct Guard *guard) {
  struct Thread *thread = guard->thread;
  __atomic_store_n(&thread->count, thread->count + 1, __ATOMIC_RELAXED);
  set_guard(thread, guard);
  if (__atomic_load_n(&watcher_state, __ATOMIC_RELAXED) != AWAKE) wake();
}

void cujit_leave(struct Guard *guard) {
  set_guard(guard->thread, guard->previous);
  const struct Running *running = running_at(guard->memory.shared);
  free_copies(running->copies);
  free(running->pieces);
  free(running->clusters);
  memory_keep(guard->thread->memory, &guard->memory);
}

/* -- faults ---------------------------------------------------------------------------------------------------------- */

/* Take the launch's one place for a fault; 1 for the first to come, who may then fill in the other fields. */
flag cujit_claim(struct Launch *launch, u32 kind) {
  u32 none = FAULT_NONE;
  flag first = __atomic_compare_exchange_n(&launch->fault_kind, &none, kind, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  __atomic_store_n(&launch->next, NOWHERE, __ATOMIC_RELAXED);
  return first;
}

/* End this thread's part of the launch. */
NORETURN void cujit_stop(void) {
  struct Thread *thread = own_thread();
  struct Guard *guard = thread ? thread->guard : 0;
  if (!guard) abort();
  longjmp(guard->jump, 1);
}

/* Fill in where: for whoever claimed the fault. */
void cujit_fault_here(struct Launch *launch, u64 block, u32 thread, u32 line, u64 address) {
  launch->fault_block = block;
  launch->fault_thread = thread;
  launch->fault_line = line;
  launch->fault_address = address;
}

NORETURN void cujit_fault(struct Launch *launch, u32 kind, u64 block, u32 thread, u32 line, u64 address) {
  if (cujit_claim(launch, kind)) cujit_fault_here(launch, block, thread, line, address);
  cujit_stop();
}
