"""Native threads that run the blocks of a launch, woken without the interpreter.

The threads are Python's in name only: each enters ``worker`` below once and stays there, asleep on a condition
variable, without the interpreter's lock. A launch is one native call: it posts the job, wakes the workers, runs
blocks itself, and returns when the last worker is done. A launch that finds the pool busy runs alone.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref

from cujit.devices.cpu.faults import Site, settle
from cujit.devices.cpu.launch import PLACE, SHARED_ALIGN, Launch
from cujit.devices.cpu.native.faults import Guard
from cujit.devices.cpu.native.library import ask_python, compile_kernel, install_handlers
from cujit.devices.jit import NativeFunction

__all__ = ["Pool"]


class _Shared(ctypes.Structure):
    """What launches and workers share. ``generation`` numbers the jobs, ``joined`` and ``active`` count workers."""

    _fields_ = (
        ("mutex", ctypes.c_char * 128),
        ("work", ctypes.c_char * 128),
        ("done", ctypes.c_char * 128),
        ("generation", ctypes.c_uint64),
        ("function", ctypes.c_uint64),
        ("launch", ctypes.c_uint64),
        ("shared_bytes", ctypes.c_uint64),
        ("local_bytes", ctypes.c_uint64),
        ("wanted", ctypes.c_uint32),
        ("joined", ctypes.c_uint32),
        ("active", ctypes.c_uint32),
        ("busy", ctypes.c_uint32),
        ("stop", ctypes.c_uint32),
    )


def _places() -> str:
    """Name the address of every field, in the entry block of a function."""
    names = [name for name, *_ in _Shared._fields_]
    return "\n".join(f"  %{name} = getelementptr i8, ptr %pool, i64 {getattr(_Shared, name).offset}" for name in names)


_LOOK_NS = 20_000_000
"""How often a thread that waits for workers looks whether the launch is to go on."""

_HURRY_NS = 1_000_000
"""How often it pokes workers that are to leave a launch that has ended."""

_IR = f"""
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @_setjmp(ptr) returns_twice
declare i32 @pthread_condattr_init(ptr)
declare i32 @pthread_condattr_setclock(ptr, i32)
declare i32 @pthread_cond_timedwait(ptr, ptr, ptr)
declare i32 @clock_gettime(i32, ptr)
declare i32 @cujit_enter(ptr, ptr, ptr)
declare void @cujit_leave(ptr)
declare void @cujit_begin_launch(ptr)
declare i32 @cujit_look(ptr)

define void @init(ptr %pool) {{
{_places()}
  %attributes = alloca [64 x i8], align 8
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  call i32 @pthread_cond_init(ptr %work, ptr null)
  ; CLOCK_MONOTONIC
  call i32 @pthread_condattr_init(ptr %attributes)
  call i32 @pthread_condattr_setclock(ptr %attributes, i32 1)
  call i32 @pthread_cond_init(ptr %done, ptr %attributes)
  ret void
}}

define void @finish(ptr %pool) {{
{_places()}
  call i32 @pthread_mutex_lock(ptr %mutex)
  store i32 1, ptr %stop
  call i32 @pthread_cond_broadcast(ptr %work)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}}

; Run blocks with memory of this call's own: {PLACE} bytes whose first words say what runs (block and warp -1: not
; known), then shared memory, then local memory. Without memory, leave the blocks. A fault of the kernel comes back
; out of _setjmp a second time. `decides` is 1 in the thread that launched.
define void @blocks(ptr %function, ptr %launch, i64 %shared.bytes, i64 %local.bytes, i64 %decides) {{
  %guard = alloca [{ctypes.sizeof(Guard)} x i8], align 16
  %shared.more = add i64 %shared.bytes, 511
  %shared.size = and i64 %shared.more, -256
  %both = add i64 %shared.size, %local.bytes
  %more = add i64 %both, {PLACE + 2 * SHARED_ALIGN - 1}
  %size = and i64 %more, -{SHARED_ALIGN}
  %memory = call ptr @aligned_alloc(i64 {SHARED_ALIGN}, i64 %size)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %out, label %mark
mark:
  %shared = getelementptr i8, ptr %memory, i64 {PLACE}
  %local = getelementptr i8, ptr %shared, i64 %shared.size
  store i64 -1, ptr %memory
  %group.at = getelementptr i64, ptr %memory, i64 1
  store ptr null, ptr %group.at
  %warp.at = getelementptr i64, ptr %memory, i64 2
  store i32 -1, ptr %warp.at
  %decides.at = getelementptr i8, ptr %guard, i64 {Guard.decides.offset}
  store i64 %decides, ptr %decides.at
  %jump = getelementptr i8, ptr %guard, i64 {Guard.jump.offset}
  %again = call i32 @_setjmp(ptr %jump) returns_twice
  %fault = icmp ne i32 %again, 0
  br i1 %fault, label %leave, label %enter
enter:
  %room = call i32 @cujit_enter(ptr %guard, ptr %launch, ptr %memory)
  %entered = icmp ne i32 %room, 0
  br i1 %entered, label %go, label %free
go:
  call void %function(ptr %launch, ptr %shared, ptr %local)
  br label %leave
leave:
  call void @cujit_leave(ptr %guard)
  br label %free
free:
  call void @free(ptr %memory)
  br label %out
out:
  ret void
}}

define void @worker(ptr %pool) {{
entry:
{_places()}
  call i32 @pthread_mutex_lock(ptr %mutex)
  %start = load i64, ptr %generation
  br label %look
look:
  %seen = phi i64 [ 0, %entry ], [ %seen, %sleep ], [ %now, %leave ]
  %stopped = load i32, ptr %stop
  %stops = icmp ne i32 %stopped, 0
  br i1 %stops, label %end, label %ask
ask:
  %now = load i64, ptr %generation
  %new = icmp ne i64 %now, %seen
  %in = load i32, ptr %joined
  %most = load i32, ptr %wanted
  %room = icmp ult i32 %in, %most
  %join = and i1 %new, %room
  br i1 %join, label %take, label %sleep
sleep:
  call i32 @pthread_cond_wait(ptr %work, ptr %mutex)
  br label %look
take:
  %in.next = add i32 %in, 1
  store i32 %in.next, ptr %joined
  %running = load i32, ptr %active
  %running.next = add i32 %running, 1
  store i32 %running.next, ptr %active
  %job = load ptr, ptr %function
  %argument = load ptr, ptr %launch
  %shared.bytes = load i64, ptr %shared_bytes
  %local.bytes = load i64, ptr %local_bytes
  call i32 @pthread_mutex_unlock(ptr %mutex)
  call void @blocks(ptr %job, ptr %argument, i64 %shared.bytes, i64 %local.bytes, i64 0)
  call i32 @pthread_mutex_lock(ptr %mutex)
  %still = load i32, ptr %active
  %still.next = sub i32 %still, 1
  store i32 %still.next, ptr %active
  %last = icmp eq i32 %still.next, 0
  br i1 %last, label %tell, label %leave
tell:
  call i32 @pthread_cond_signal(ptr %done)
  br label %leave
leave:
  br label %look
end:
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}}

; The time in `ns` nanoseconds, as a timespec.
define internal void @soon(ptr %time, i64 %ns) {{
  call i32 @clock_gettime(i32 1, ptr %time)
  %rest.at = getelementptr i64, ptr %time, i64 1
  %seconds = load i64, ptr %time
  %rest = load i64, ptr %rest.at
  %sum = add i64 %rest, %ns
  %carry = udiv i64 %sum, 1000000000
  %left = urem i64 %sum, 1000000000
  %whole = add i64 %seconds, %carry
  store i64 %whole, ptr %time
  store i64 %left, ptr %rest.at
  ret void
}}

define void @run(ptr %pool, ptr %job, ptr %argument, i32 %helpers, i64 %shared.bytes, i64 %local.bytes) {{
entry:
{_places()}
  %time = alloca [2 x i64], align 8
  call void @cujit_begin_launch(ptr %argument)
  %alone = icmp eq i32 %helpers, 0
  br i1 %alone, label %single, label %ask
ask:
  call i32 @pthread_mutex_lock(ptr %mutex)
  %taken = load i32, ptr %busy
  %is.taken = icmp ne i32 %taken, 0
  br i1 %is.taken, label %give.up, label %post
give.up:
  call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %single
single:
  call void @blocks(ptr %job, ptr %argument, i64 %shared.bytes, i64 %local.bytes, i64 1)
  ret void
post:
  store i32 1, ptr %busy
  store ptr %job, ptr %function
  store ptr %argument, ptr %launch
  store i64 %shared.bytes, ptr %shared_bytes
  store i64 %local.bytes, ptr %local_bytes
  store i32 %helpers, ptr %wanted
  store i32 0, ptr %joined
  %before = load i64, ptr %generation
  %now = add i64 %before, 1
  store i64 %now, ptr %generation
  call i32 @pthread_cond_broadcast(ptr %work)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  call void @blocks(ptr %job, ptr %argument, i64 %shared.bytes, i64 %local.bytes, i64 1)
  br label %own
own:
  call i32 @pthread_mutex_lock(ptr %mutex)
  ; Whoever has not come by now has nothing left to do.
  store i32 0, ptr %wanted
  ; What this thread saw ended ends in the others, too.
  %kind.at = getelementptr i8, ptr %argument, i64 {Launch.fault_kind.offset}
  %kind = load volatile i32, ptr %kind.at
  %failed = icmp ne i32 %kind, 0
  br label %wait
wait:
  %ended = phi i1 [ %failed, %own ], [ %ended, %sleep ], [ %ended.now, %late ]
  %running = load i32, ptr %active
  %some = icmp ne i32 %running, 0
  br i1 %some, label %sleep, label %finished
sleep:
  %ns = select i1 %ended, i64 {_HURRY_NS}, i64 {_LOOK_NS}
  call void @soon(ptr %time, i64 %ns)
  %status = call i32 @pthread_cond_timedwait(ptr %done, ptr %mutex, ptr %time)
  %is.late = icmp ne i32 %status, 0
  br i1 %is.late, label %late, label %wait
late:
  call i32 @pthread_mutex_unlock(ptr %mutex)
  %looked = call i32 @cujit_look(ptr %argument)
  %ended.now = icmp ne i32 %looked, 0
  call i32 @pthread_mutex_lock(ptr %mutex)
  br label %wait
finished:
  store i32 0, ptr %busy
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}}
"""

_ONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_RUN = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64
)


class Pool:
    """``helpers`` threads beside the calling one; they end with the pool. Not usable in a forked child.

    ``address`` is where machine code finds it, ``code.address`` the function ``run(pool, job, launch, helpers,
    shared_bytes, local_bytes)`` that does what ``run`` here does.
    """

    def __init__(self, helpers: int) -> None:
        self.code: NativeFunction = compile_kernel(_IR, "run")
        self.watch()
        ask_python()
        self._shared = _Shared()
        self.address = ctypes.addressof(self._shared)
        self._run = _RUN(self.code.address)
        _ONE(self.code.other("init"))(self.address)
        self._threads = [
            threading.Thread(
                target=_ONE(self.code.other("worker")), args=(self.address,), daemon=True, name="cujit-cpu"
            )
            for _ in range(helpers)
        ]
        for thread in self._threads:
            thread.start()
        weakref.finalize(self, _end, os.getpid(), self.code, self._shared, self._threads)

    def watch(self) -> None:
        """Have faults of kernels come here before any handler of signals that was put in place meanwhile."""
        install_handlers()

    def run(
        self,
        function: int,
        launch: int,
        helpers: int,
        shared_bytes: int,
        local_bytes: int,
        site: Site | None = None,
    ) -> None:
        """Call ``function(launch, shared, local)`` here and in up to ``helpers`` threads; return when all are done.

        What the kernel printed is written to ``sys.stdout``. ``site`` is for the error's words.

        Raises:
            KernelFaultError: the kernel could not go on.
        """
        self.watch()
        self._run(self.address, function, launch, helpers, shared_bytes, local_bytes)
        settle(Launch.from_address(launch), site)


def _end(pid: int, code: NativeFunction, shared: _Shared, threads: list[threading.Thread]) -> None:
    """Send the workers home; they exist only in the process that made them."""
    if os.getpid() == pid:
        _ONE(code.other("finish"))(ctypes.addressof(shared))
        for thread in threads:
            thread.join()
