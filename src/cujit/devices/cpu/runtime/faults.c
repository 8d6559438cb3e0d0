/* Faults, ends and signals of launches: what kernels, the pool and Python call. */

#include "signals.h"

/* What Launch.next is set to when a launch ends early: beyond all blocks, far from wrapping. */
#define NOWHERE (1ull << 62)

/* -- records of threads ---------------------------------------------------------------------------------------------- */

static pthread_once_t guard_once = PTHREAD_ONCE_INIT;

static void give_back(struct Thread *thread) { __atomic_store_n(&thread->id, 0, __ATOMIC_RELEASE); }

static void thread_end(void *record) {
  struct Thread *thread = record;
  signal_stack_end(thread);
  arena_end(thread->arena);
  thread->arena = 0;
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

flag cujit_enter(struct Guard *guard, struct Launch *launch, struct Running *place) {
  struct Thread *thread = thread_record();
  if (!thread) return 0;
  guard->launch = launch;
  guard->place = place;
  guard->thread = thread;
  guard->previous = thread->guard;
  __atomic_store_n(&thread->count, thread->count + 1, __ATOMIC_RELAXED);
  set_guard(thread, guard);
  if (__atomic_load_n(&watcher_state, __ATOMIC_RELAXED) != AWAKE) wake();
  return 1;
}

void cujit_leave(struct Guard *guard) { set_guard(guard->thread, guard->previous); }

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
