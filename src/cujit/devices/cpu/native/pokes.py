"""Poking threads that run kernels, by a signal, so that launches can be ended (``ending.py``).

A watcher thread looks every ``_TICK_NS`` which threads are still in what they ran at the look before, and pokes them.
It begins with the first launch, and sleeps while nobody launches. The signal is ``SIGURG``, which does nothing where
nobody waits for it; what others send by it goes to the handler that was there before. The texts here are of the part
``faults``.
"""

from __future__ import annotations

import platform

__all__ = ["NO_POKES", "NUMBERS", "POKES"]

_TICK_NS = 20_000_000
_AGAIN_NS = 2_000_000
"""How long after a poke that found a thread outside of its kernel's code the next one comes."""

_IDLE_TICKS = 50
"""Ticks without a launch after which the watcher goes to sleep."""

# Number of the system call rt_tgsigqueueinfo. Source: Linux, arch/x86/entry/syscalls/syscall_64.tbl and
# include/uapi/asm-generic/unistd.h.
_QUEUE = {"x86_64": 297, "aarch64": 240}

NUMBERS = {
    "URG": 23,
    "URG_BIT": 1 << 22,
    "QUEUE": _QUEUE.get(platform.machine(), 0),
    "TICK": _TICK_NS,
    "AGAIN": _AGAIN_NS,
    "IDLE": _IDLE_TICKS,
}
"""What stands in the texts as ``@NAME@``. Source of the signal's number: Linux, signal(7)."""

# siginfo_t has si_code at 8, si_pid at 16 and si_value at 24; SI_QUEUE is -1. Source: Linux, sigaction(2), and glibc,
# bits/types/siginfo_t.h. A sem_t has 32 bytes, all zero for 0. Source: glibc, bits/semaphore.h.
POKES = """
@cujit_wake = internal global [32 x i8] zeroinitializer, align 8
@cujit_missed = internal global i32 0
declare i32 @sem_wait(ptr)
declare i32 @sem_post(ptr)
declare i32 @nanosleep(ptr, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)

define internal i32 @own_id() {
  %id = call i64 (i64, ...) @syscall(i64 @GETTID@)
  %short = trunc i64 %id to i32
  ; Who blocks this signal in all threads had another use for it in mind than ours.
  %mask = alloca [128 x i8], align 8
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  store i64 @URG_BIT@, ptr %mask
  call i32 @pthread_sigmask(i32 1, ptr %mask, ptr null)
  ret i32 %short
}

; Poke the threads that run kernels: `all`, or those that still run what they did at the last look. True where
; something ran since then.
define internal i1 @poke(i1 %all) {
entry:
  %info = alloca [128 x i8], align 8
  call void @llvm.memset.p0.i64(ptr %info, i8 0, i64 128, i1 false)
  %process = call i32 @getpid()
  store i32 @URG@, ptr %info
  %code.at = getelementptr i8, ptr %info, i64 8
  store i32 -1, ptr %code.at
  %process.at = getelementptr i8, ptr %info, i64 16
  store i32 %process, ptr %process.at
  %value.at = getelementptr i8, ptr %info, i64 24
  store ptr @cujit_threads, ptr %value.at
  %process.wide = sext i32 %process to i64
  %first = load atomic ptr, ptr @cujit_threads acquire, align 8
  br label %look
look:
  %thread = phi ptr [ %first, %entry ], [ %next, %done ]
  %some = phi i1 [ false, %entry ], [ %some.now, %done ]
  %end = icmp eq ptr %thread, null
  br i1 %end, label %out, label %each
each:
  %id.at = getelementptr i8, ptr %thread, i64 #Thread.id
  %id = load atomic i32, ptr %id.at acquire, align 4
  %count.at = getelementptr i8, ptr %thread, i64 #Thread.count
  %count = load volatile i64, ptr %count.at
  %seen.at = getelementptr i8, ptr %thread, i64 #Thread.seen
  %seen = load volatile i64, ptr %seen.at
  %guard = load volatile ptr, ptr %thread
  %there = icmp ne i32 %id, 0
  %runs = icmp ne ptr %guard, null
  %same = icmp eq i64 %count, %seen
  %new = xor i1 %same, true
  %long = or i1 %all, %same
  %both = and i1 %there, %runs
  %send = and i1 %both, %long
  %here = or i1 %runs, %new
  %some.now = or i1 %some, %here
  br i1 %all, label %choose, label %remember
remember:
  store volatile i64 %count, ptr %seen.at
  br label %choose
choose:
  br i1 %send, label %signal, label %done
signal:
  %id.wide = sext i32 %id to i64
  call i64 (i64, ...) @syscall(i64 @QUEUE@, i64 %process.wide, i64 %id.wide, i64 @URG@, ptr %info)
  br label %done
done:
  %next.at = getelementptr i8, ptr %thread, i64 #Thread.next
  %next = load ptr, ptr %next.at
  br label %look
out:
  ret i1 %some
}

define internal ptr @watcher(ptr %nothing) {
entry:
  %time = alloca [2 x i64], align 8
  store i64 0, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  br label %tick
tick:
  %idle = phi i32 [ 0, %entry ], [ 0, %busy ], [ %idle.next, %quiet ], [ 0, %doze.busy ], [ 0, %sleep ]
  %missed = atomicrmw xchg ptr @cujit_missed, i32 0 monotonic
  %again = icmp ne i32 %missed, 0
  %ns = select i1 %again, i64 @AGAIN@, i64 @TICK@
  store i64 %ns, ptr %rest.at
  call i32 @nanosleep(ptr %time, ptr null)
  %some = call i1 @poke(i1 false)
  br i1 %some, label %busy, label %quiet
busy:
  ; Somebody may have put a handler in front meanwhile.
  call i1 @install(i32 @URG@)
  br label %tick
quiet:
  %idle.next = add i32 %idle, 1
  %long = icmp ugt i32 %idle.next, @IDLE@
  br i1 %long, label %doze, label %tick
doze:
  ; Who begins now either wakes us, or can be seen after this tick.
  store atomic i32 1, ptr @cujit_asleep seq_cst, align 4
  call i32 @nanosleep(ptr %time, ptr null)
  %late = call i1 @poke(i1 false)
  br i1 %late, label %doze.busy, label %sleep
doze.busy:
  store atomic i32 0, ptr @cujit_asleep monotonic, align 4
  br label %tick
sleep:
  call i32 @sem_wait(ptr @cujit_wake)
  br label %tick
}

; Have the watcher look again, or begin.
define internal void @wake() noinline {
entry:
  %thread = alloca i64
  %all = alloca [128 x i8], align 8
  %before = alloca [128 x i8], align 8
  %was = atomicrmw xchg ptr @cujit_asleep, i32 0 acq_rel
  switch i32 %was, label %out [ i32 1, label %post  i32 2, label %begin ]
post:
  call i32 @sem_post(ptr @cujit_wake)
  br label %out
begin:
  ; It takes no signals.
  call void @llvm.memset.p0.i64(ptr @cujit_wake, i8 0, i64 32, i1 false)
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  call i32 @pthread_sigmask(i32 2, ptr %all, ptr %before)
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @watcher, ptr null)
  call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %detach, label %out
detach:
  %id = load i64, ptr %thread
  call i32 @pthread_detach(i64 %id)
  br label %out
out:
  ret void
}

; What is not a poke of ours goes to the handler that was there before.
define internal void @cujit_poked(i32 %signal, ptr %info, ptr %context) {
entry:
  %code.at = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %code.at
  %value.at = getelementptr i8, ptr %info, i64 24
  %value = load ptr, ptr %value.at
  %queued = icmp eq i32 %code, -1
  %marked = icmp eq ptr %value, @cujit_threads
  %ours = and i1 %queued, %marked
  br i1 %ours, label %look, label %pass
pass:
  %index = call i64 @signal_index(i32 @URG@)
  %previous = getelementptr [152 x i8], ptr @cujit_previous, i64 %index
  %handler = load ptr, ptr %previous
  %word = ptrtoint ptr %handler to i64
  %real = icmp ugt i64 %word, 1
  br i1 %real, label %kind, label %return
kind:
  %flags.at = getelementptr i8, ptr %previous, i64 136
  %flags = load i32, ptr %flags.at
  %bit = and i32 %flags, 4
  %long = icmp ne i32 %bit, 0
  br i1 %long, label %three, label %one
three:
  call void %handler(i32 %signal, ptr %info, ptr %context)
  ret void
one:
  call void %handler(i32 %signal)
  ret void
look:
  %key = load i32, ptr @cujit_guard_key
  %thread = call ptr @pthread_getspecific(i32 %key)
  %no.thread = icmp eq ptr %thread, null
  br i1 %no.thread, label %return, label %ask
ask:
  %guard = load volatile ptr, ptr %thread
  %no.guard = icmp eq ptr %guard, null
  br i1 %no.guard, label %return, label %where
where:
  %launch = load ptr, ptr %guard
  %pc.at = getelementptr i8, ptr %context, i64 @PC@
  %pc = load i64, ptr %pc.at
  %code.first.at = getelementptr i8, ptr %launch, i64 #Launch.code
  %code.first = load i64, ptr %code.first.at
  %code.bytes.at = getelementptr i8, ptr %launch, i64 #Launch.code_bytes
  %code.bytes = load i64, ptr %code.bytes.at
  %distance = sub i64 %pc, %code.first
  %inside = icmp ult i64 %distance, %code.bytes
  br i1 %inside, label %judge, label %missed
missed:
  %poked.at = getelementptr i8, ptr %launch, i64 #Launch.poked
  store volatile i32 1, ptr %poked.at
  store atomic i32 1, ptr @cujit_missed monotonic, align 4
  ret void
judge:
  %sp.at = getelementptr i8, ptr %context, i64 @SP@
  %sp = load i64, ptr %sp.at
  %ends = call i1 @judge(ptr %launch, ptr %thread, ptr %guard, i64 %sp)
  br i1 %ends, label %leave, label %return
leave:
  call void @depart(ptr %launch, ptr %guard, i64 %pc)
  unreachable
return:
  ret void
}
"""

NO_POKES = """
define internal i32 @own_id() { ret i32 1 }
define internal i1 @poke(i1 %all) { ret i1 false }
define internal void @wake() {
  store atomic i32 0, ptr @cujit_asleep monotonic, align 4
  ret void
}
"""
