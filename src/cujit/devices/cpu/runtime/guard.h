/* The guard of a launch: faults in kernel code end the launch and not the process.

   Every thread that runs blocks has a record under a key of its own, which names the Guard of the launch that it runs
   now. A kernel that cannot go on writes why into the Launch and leaves by longjmp to where its guard was set. */

#pragma once

#include "launch.h"

#include <pthread.h>
#include <setjmp.h>

struct Thread;

/* Pieces of memory for shared and local memory of blocks that a thread keeps: see windows.h. */
enum { ROOMS = 8 };

/* One piece: what it was made for, and what is mapped. Empty where `size` is 0. */
struct Memory {
  u64 count, shared_bytes, local_bytes, first, size;
  u8 *shared, *local;
};

/* One run of a kernel by one thread, in `memory`. `decides` is 1 in the thread that launched, which decides whether the
   launch goes on. */
struct Guard {
  struct Launch *launch;
  struct Memory memory;
  struct Thread *thread;
  struct Guard *previous;
  u64 decides;
  jmp_buf jump;
};

/* Take the memory that a run needs: of each block so much shared memory, and local memory for all. 0 where there is
   none. */
flag cujit_prepare(struct Guard *guard, struct Launch *launch, u64 shared_bytes, u64 local_bytes);

/* After _setjmp filled `guard->jump`: from here on faults of this thread come back there. */
void cujit_enter(struct Guard *guard);

/* The run is over: the thread keeps its memory, and runs what it did before. */
void cujit_leave(struct Guard *guard);

void cujit_begin_launch(struct Launch *launch);

/* For the thread that launched while it waits for workers: end what is to end, and have the workers leave what has
   ended. 1 where the launch has ended. */
flag cujit_look(struct Launch *launch);

/* One thread: the guard of what it runs (null: no kernel), the stack for signals that is ours (null: none), the memory
   for blocks that take turns, which is nobody's while the thread runs no kernel (null: none yet), and that for what
   blocks share, but for what a run has taken. Records are never given back: one whose thread has ended (`id` 0) is the next one's. `main` is 1 for the main thread. `count`
   counts what the thread has run, `seen` is what it was at the last look. */
struct Thread {
  struct Guard *volatile guard;
  void *stack;
  struct Arena *arena;
  struct Memory memory[ROOMS];
  struct Thread *next;
  volatile u64 count, seen;
  u32 id, main;
};

/* Say what a thread runs: to who looks from another one, and to signals of its own, which find the guard filled in. */
INLINE void set_guard(struct Thread *thread, struct Guard *guard) {
  __atomic_store_n(&thread->guard, guard, __ATOMIC_RELEASE);
}

static pthread_key_t guard_key = ~0u; /* none yet */
static struct Thread *threads;

/* The record of this thread; null where it never ran a kernel. */
INLINE struct Thread *own_thread(void) { return guard_key == ~0u ? 0 : pthread_getspecific(guard_key); }
