"""Ending launches that run: because the user wants to, the time is up, or Python's handler of a signal raised.

Kernels look at nothing while they run. A watcher thread pokes threads that run for long, by a signal (``pokes.py``). A
thread that is poked in the machine code of a kernel holds no lock and is in no function of the system, so the handler
may do there what any code may. In the thread that launched, it decides whether the launch goes on, and has Python run
the handlers of signals that came meanwhile, if that is the main thread. Where the launch is to end, it notes where it
stands and leaves by ``longjmp``, as for a fault (``faults.py``), and so do the others, which are poked until they do. A
thread that is poked anywhere else goes on and is poked again soon; the scheduler of warps and the checks look by
themselves then (``cujit_pause``).

A thread that waits for the workers of its launch looks by itself (``cujit_look``). The text here is of the part
``faults``.
"""

from __future__ import annotations

import ctypes
import platform

from cujit.devices.cpu.native.state import Block, Group

__all__ = ["ENDING", "NUMBERS", "Stand", "Stands", "on_stack_text"]

_NEAR = 1 << 26
"""Bytes below its guard in which a thread's own stack may be deep."""

_MOST = 1025
"""Threads of a launch whose places are noted: the pool's largest, and the one that launched."""


class Stand(ctypes.Structure):
    """Where a thread was: the number of the block that it ran (all bits set: none) and its warp (-1: not known).

    ``pc`` is the address in the machine code, 0 where the scheduler was at work. ``blocks`` is a copy of the ``count``
    blocks whose warps took turns (0: they do not).
    """

    _fields_ = (
        ("block", ctypes.c_uint64),
        ("pc", ctypes.c_uint64),
        ("warp", ctypes.c_int64),
        ("blocks", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
    )


class Stands(ctypes.Structure):
    """``Launch.stands``: how many threads noted where they were, and each."""

    _fields_ = (("count", ctypes.c_uint64), ("each", Stand * _MOST))


NUMBERS = {
    "MOST": _MOST,
    "STANDS_BYTES": ctypes.sizeof(Stands),
    "EACH": Stands.each.offset,
    "BLOCK_BYTES": ctypes.sizeof(Block),
    "GROUP_COUNT": Group.count.offset,
    "NEAR": _NEAR,
}
"""What stands in the text as ``@NAME@``."""

ENDING = """
@cujit_threads = internal global ptr null
; What the watcher does: 0 it looks, 1 it sleeps, 2 there is none.
@cujit_asleep = internal global i32 2
; PyGILState_Ensure, PyGILState_Release, PyErr_CheckSignals, PyErr_Fetch; null where there is no Python to ask.
@cujit_python = internal global [4 x ptr] zeroinitializer
declare i32 @getpid()
declare i32 @clock_gettime(i32, ptr)
declare ptr @malloc(i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; A record for this thread: one that an ended thread left, or a new one. Null without memory.
define internal ptr @thread_new() {
entry:
  %id = call i32 @own_id()
  %process = call i32 @getpid()
  %is.main = icmp eq i32 %id, %process
  %main = zext i1 %is.main to i32
  %first = load atomic ptr, ptr @cujit_threads acquire, align 8
  br label %look
look:
  %old = phi ptr [ %first, %entry ], [ %next, %try ]
  %end = icmp eq ptr %old, null
  br i1 %end, label %make, label %try
try:
  %old.id.at = getelementptr i8, ptr %old, i64 #Thread.id
  %pair = cmpxchg ptr %old.id.at, i32 0, i32 %id acq_rel monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  %next.at = getelementptr i8, ptr %old, i64 #Thread.next
  %next = load ptr, ptr %next.at
  br i1 %mine, label %found, label %look
make:
  %new = call ptr @calloc(i64 1, i64 #Thread)
  %bad = icmp eq ptr %new, null
  br i1 %bad, label %fail, label %push
push:
  %id.at = getelementptr i8, ptr %new, i64 #Thread.id
  store i32 %id, ptr %id.at
  %own.next.at = getelementptr i8, ptr %new, i64 #Thread.next
  %head = load atomic ptr, ptr @cujit_threads acquire, align 8
  store ptr %head, ptr %own.next.at
  %pushed = cmpxchg ptr @cujit_threads, ptr %head, ptr %new acq_rel monotonic
  %done = extractvalue { ptr, i1 } %pushed, 1
  br i1 %done, label %found, label %push
found:
  %thread = phi ptr [ %old, %try ], [ %new, %push ]
  %main.at = getelementptr i8, ptr %thread, i64 #Thread.main
  store i32 %main, ptr %main.at
  %stack.at = getelementptr i8, ptr %thread, i64 #Thread.stack
  store ptr null, ptr %stack.at
  ret ptr %thread
fail:
  ret ptr null
}

; In the child of a fork there is no thread but this one, and no watcher.
define void @cujit_forked() {
entry:
  %key = load i32, ptr @cujit_guard_key
  %unused = icmp eq i32 %key, -1
  br i1 %unused, label %out, label %begin
begin:
  %own = call ptr @pthread_getspecific(i32 %key)
  %id = call i32 @own_id()
  store atomic i32 2, ptr @cujit_asleep monotonic, align 4
  %first = load ptr, ptr @cujit_threads
  br label %look
look:
  %thread = phi ptr [ %first, %begin ], [ %next, %each ]
  %end = icmp eq ptr %thread, null
  br i1 %end, label %out, label %each
each:
  %mine = icmp eq ptr %thread, %own
  %id.now = select i1 %mine, i32 %id, i32 0
  %id.at = getelementptr i8, ptr %thread, i64 #Thread.id
  store i32 %id.now, ptr %id.at
  %main.now = zext i1 %mine to i32
  %main.at = getelementptr i8, ptr %thread, i64 #Thread.main
  store i32 %main.now, ptr %main.at
  %guard = load ptr, ptr %thread
  %guard.now = select i1 %mine, ptr %guard, ptr null
  store ptr %guard.now, ptr %thread
  %next.at = getelementptr i8, ptr %thread, i64 #Thread.next
  %next = load ptr, ptr %next.at
  br label %look
out:
  ret void
}

define void @cujit_use_python(ptr %ensure, ptr %release, ptr %check, ptr %fetch) {
  store ptr %ensure, ptr @cujit_python
  store ptr %release, ptr getelementptr (ptr, ptr @cujit_python, i64 1)
  store ptr %check, ptr getelementptr (ptr, ptr @cujit_python, i64 2)
  store ptr %fetch, ptr getelementptr (ptr, ptr @cujit_python, i64 3)
  ret void
}

; In nanoseconds, by a clock that nobody sets.
define internal i64 @now() {
  %time = alloca [2 x i64], align 8
  call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %ns = add i64 %whole, %rest
  ret i64 %ns
}

define void @cujit_begin_launch(ptr %launch) {
entry:
  %timeout.at = getelementptr i8, ptr %launch, i64 #Launch.timeout_ns
  %timeout = load i64, ptr %timeout.at
  %forever = icmp eq i64 %timeout, 0
  br i1 %forever, label %look, label %limit
limit:
  %now = call i64 @now()
  %deadline = add i64 %now, %timeout
  %deadline.at = getelementptr i8, ptr %launch, i64 #Launch.deadline_ns
  store i64 %deadline, ptr %deadline.at
  br label %look
look:
  %control.at = getelementptr i8, ptr %launch, i64 #Launch.control
  %control = load ptr, ptr %control.at
  %none = icmp eq ptr %control, null
  br i1 %none, label %out, label %count
count:
  %cancels = load atomic i64, ptr %control monotonic, align 8
  %cancels.at = getelementptr i8, ptr %launch, i64 #Launch.cancels
  store i64 %cancels, ptr %cancels.at
  br label %out
out:
  ret void
}

; Have Python's handlers run for the signals that came; 1 where one of them raised, its exception being taken then.
define internal i32 @ask_python(ptr %launch) {
entry:
  %ensure = load ptr, ptr @cujit_python
  %none = icmp eq ptr %ensure, null
  br i1 %none, label %good, label %ask
ask:
  %release = load ptr, ptr getelementptr (ptr, ptr @cujit_python, i64 1)
  %check = load ptr, ptr getelementptr (ptr, ptr @cujit_python, i64 2)
  %fetch = load ptr, ptr getelementptr (ptr, ptr @cujit_python, i64 3)
  %state = call i32 %ensure()
  %status = call i32 %check()
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %take, label %leave
take:
  %type = getelementptr i8, ptr %launch, i64 #Launch.raised
  %value = getelementptr i8, ptr %type, i64 8
  %trace = getelementptr i8, ptr %type, i64 16
  call void %fetch(ptr %type, ptr %value, ptr %trace)
  br label %leave
leave:
  call void %release(i32 %state)
  %raised = zext i1 %bad to i32
  ret i32 %raised
good:
  ret i32 0
}

; Whether a launch goes on (0), or why it ends; in the thread that launched, on a stack of `stack` for Python (null: on
; this one). While Python runs, this thread runs no kernel.
define internal i32 @decide(ptr %launch, ptr %thread, ptr %stack) {
entry:
  %control.at = getelementptr i8, ptr %launch, i64 #Launch.control
  %control = load ptr, ptr %control.at
  %free = icmp eq ptr %control, null
  br i1 %free, label %time, label %count
count:
  %cancels = load atomic i64, ptr %control monotonic, align 8
  %cancels.at = getelementptr i8, ptr %launch, i64 #Launch.cancels
  %before = load i64, ptr %cancels.at
  %same = icmp eq i64 %cancels, %before
  br i1 %same, label %time, label %cancelled
cancelled:
  ret i32 @CANCELLED@
time:
  %deadline.at = getelementptr i8, ptr %launch, i64 #Launch.deadline_ns
  %deadline = load i64, ptr %deadline.at
  %forever = icmp eq i64 %deadline, 0
  br i1 %forever, label %signals, label %clock
clock:
  %now = call i64 @now()
  %late = icmp uge i64 %now, %deadline
  br i1 %late, label %timeout, label %signals
timeout:
  ret i32 @TIMEOUT@
signals:
  %main.at = getelementptr i8, ptr %thread, i64 #Thread.main
  %main = load i32, ptr %main.at
  %other = icmp eq i32 %main, 0
  br i1 %other, label %on, label %ask
ask:
  %guard = load ptr, ptr %thread
  store volatile ptr null, ptr %thread
  %here = icmp eq ptr %stack, null
  br i1 %here, label %ask.here, label %ask.there
ask.here:
  %raised.here = call i32 @ask_python(ptr %launch)
  br label %asked
ask.there:
  %raised.there = call i32 @cujit_on_stack(ptr @ask_python, ptr %launch, ptr %stack)
  br label %asked
asked:
  %raised = phi i32 [ %raised.here, %ask.here ], [ %raised.there, %ask.there ]
  store volatile ptr %guard, ptr %thread
  %quiet = icmp eq i32 %raised, 0
  br i1 %quiet, label %on, label %interrupted
interrupted:
  ret i32 @INTERRUPTED@
on:
  ret i32 0
}

; End a launch, unless a fault was first; its threads note where they stand from here on.
define internal void @end_launch(ptr %launch, i32 %kind) {
entry:
  %stands = call ptr @calloc(i64 1, i64 @STANDS_BYTES@)
  %stands.at = getelementptr i8, ptr %launch, i64 #Launch.stands
  store atomic ptr %stands, ptr %stands.at release, align 8
  %next.at = getelementptr i8, ptr %launch, i64 #Launch.next
  %begun = load atomic i64, ptr %next.at monotonic, align 8
  %begun.at = getelementptr i8, ptr %launch, i64 #Launch.begun
  store i64 %begun, ptr %begun.at
  %claimed = call i32 @cujit_claim(ptr %launch, i32 %kind)
  %first = icmp ne i32 %claimed, 0
  br i1 %first, label %tell, label %out
tell:
  call void @cujit_fault_here(ptr %launch, i64 -1, i32 -1, i32 0, i64 0)
  br label %out
out:
  ret void
}

; Note where this thread stands, with the blocks of `group` (null: none take turns).
define void @cujit_stand(ptr %launch, i64 %block, i64 %pc, ptr %group, i64 %warp) {
entry:
  %stands.at = getelementptr i8, ptr %launch, i64 #Launch.stands
  %stands = load atomic ptr, ptr %stands.at acquire, align 8
  %none = icmp eq ptr %stands, null
  br i1 %none, label %out, label %take
take:
  %index = atomicrmw add ptr %stands, i64 1 monotonic
  %room = icmp ult i64 %index, @MOST@
  br i1 %room, label %note, label %out
note:
  %offset = mul i64 %index, #Stand
  %first = getelementptr i8, ptr %stands, i64 @EACH@
  %stand = getelementptr i8, ptr %first, i64 %offset
  store i64 %block, ptr %stand
  %pc.at = getelementptr i8, ptr %stand, i64 #Stand.pc
  store i64 %pc, ptr %pc.at
  %warp.at = getelementptr i8, ptr %stand, i64 #Stand.warp
  store i64 %warp, ptr %warp.at
  %alone = icmp eq ptr %group, null
  br i1 %alone, label %out, label %copy
copy:
  %blocks = load ptr, ptr %group
  %count.at = getelementptr i8, ptr %group, i64 @GROUP_COUNT@
  %count = load i64, ptr %count.at
  %size = mul i64 %count, @BLOCK_BYTES@
  %kept = call ptr @malloc(i64 %size)
  %full = icmp eq ptr %kept, null
  br i1 %full, label %out, label %keep
keep:
  call void @llvm.memcpy.p0.p0.i64(ptr %kept, ptr %blocks, i64 %size, i1 false)
  %blocks.at = getelementptr i8, ptr %stand, i64 #Stand.blocks
  store ptr %kept, ptr %blocks.at
  %stand.count = getelementptr i8, ptr %stand, i64 #Stand.count
  store i64 %count, ptr %stand.count
  br label %out
out:
  ret void
}

; For the thread that launched while it waits for workers: end what is to end, and have the workers leave what has
; ended. True where the launch has ended.
define i1 @cujit_look(ptr %launch) {
entry:
  %kind.at = getelementptr i8, ptr %launch, i64 #Launch.fault_kind
  %kind = load volatile i32, ptr %kind.at
  %ended = icmp ne i32 %kind, 0
  br i1 %ended, label %poke, label %ask
ask:
  %key = load i32, ptr @cujit_guard_key
  %thread = call ptr @pthread_getspecific(i32 %key)
  %none = icmp eq ptr %thread, null
  br i1 %none, label %on, label %decide
decide:
  %why = call i32 @decide(ptr %launch, ptr %thread, ptr null)
  %goes.on = icmp eq i32 %why, 0
  br i1 %goes.on, label %on, label %end
end:
  call void @end_launch(ptr %launch, i32 %why)
  br label %poke
poke:
  call i1 @poke(i1 true)
  ret i1 true
on:
  ret i1 false
}

; For native code that holds nothing, when its launch was poked outside of the kernel's code, or has failed: it does not
; return where the launch ends. `pc` is the place in the kernel's code, 0 in the scheduler.
define void @cujit_pause(ptr %launch, i64 %pc) {
entry:
  %key = load i32, ptr @cujit_guard_key
  %thread = call ptr @pthread_getspecific(i32 %key)
  %guard = load ptr, ptr %thread
  %poked.at = getelementptr i8, ptr %launch, i64 #Launch.poked
  store volatile i32 0, ptr %poked.at
  %here = call ptr @llvm.frameaddress.p0(i32 0)
  %sp = ptrtoint ptr %here to i64
  %ends = call i1 @judge(ptr %launch, ptr %thread, ptr %guard, i64 %sp)
  br i1 %ends, label %leave, label %on
leave:
  call void @depart(ptr %launch, ptr %guard, i64 %pc)
  unreachable
on:
  ret void
}
declare ptr @llvm.frameaddress.p0(i32)
declare ptr @llvm.ptrmask.p0.i64(ptr, i64)

; Whether a thread is to leave its launch: that has ended, or this thread decides so now. Its stack is at `sp`.
define internal i1 @judge(ptr %launch, ptr %thread, ptr %guard, i64 %sp) {
entry:
  %kind.at = getelementptr i8, ptr %launch, i64 #Launch.fault_kind
  %fault = load volatile i32, ptr %kind.at
  %ended = icmp ne i32 %fault, 0
  br i1 %ended, label %leave, label %mine
mine:
  %decides.at = getelementptr i8, ptr %guard, i64 #Guard.decides
  %decides = load i64, ptr %decides.at
  %worker = icmp eq i64 %decides, 0
  br i1 %worker, label %on, label %decide
decide:
  ; The stack of a warp is too small for Python. That of the thread is free below the scheduler, which is not deep.
  %guard.int = ptrtoint ptr %guard to i64
  %depth = sub i64 %guard.int, %sp
  %native = icmp ult i64 %depth, @NEAR@
  %free = getelementptr i8, ptr %guard, i64 -65536
  %even = call ptr @llvm.ptrmask.p0.i64(ptr %free, i64 -64)
  %stack = select i1 %native, ptr null, ptr %even
  %why = call i32 @decide(ptr %launch, ptr %thread, ptr %stack)
  %goes.on = icmp eq i32 %why, 0
  br i1 %goes.on, label %on, label %end
end:
  call void @end_launch(ptr %launch, i32 %why)
  br label %leave
leave:
  ret i1 true
on:
  ret i1 false
}

; Note where this thread stands, and leave its launch.
define internal void @depart(ptr %launch, ptr %guard, i64 %pc) noreturn {
  %place.at = getelementptr i8, ptr %guard, i64 #Guard.place
  %place = load ptr, ptr %place.at
  %number = load i64, ptr %place
  %nowhere = icmp eq i64 %pc, 0
  %block = select i1 %nowhere, i64 -1, i64 %number
  %group.at = getelementptr i64, ptr %place, i64 1
  %group = load ptr, ptr %group.at
  %warp.at = getelementptr i64, ptr %place, i64 2
  %warp.word = load i32, ptr %warp.at
  %warp = sext i32 %warp.word to i64
  call void @cujit_stand(ptr %launch, i64 %block, i64 %pc, ptr %group, i64 %warp)
  call void @cujit_stop()
  unreachable
}
"""

# cujit_on_stack(function, argument, stack) calls the function there and gives what it returns.
_ON_STACK = """
.globl cujit_on_stack
cujit_on_stack:
  pushq %rbp
  movq %rsp, %rbp
  movq %rdx, %rsp
  movq %rdi, %rax
  movq %rsi, %rdi
  callq *%rax
  movq %rbp, %rsp
  popq %rbp
  retq
"""

# Where there is no stack of a warp, the thread's own will do.
_ON_THIS = """
define internal i32 @cujit_on_stack(ptr %function, ptr %argument, ptr %stack) {
  %answer = call i32 %function(ptr %argument)
  ret i32 %answer
}
"""


def on_stack_text() -> str:
    """Write ``cujit_on_stack`` for this processor."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return _ON_THIS
    lines = [f'module asm "{line.strip()}"' for line in _ON_STACK.strip().splitlines()]
    return "\n".join([*lines, "declare i32 @cujit_on_stack(ptr, ptr, ptr)", ""])
