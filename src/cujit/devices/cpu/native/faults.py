"""The guard of a launch: faults in kernel code end the launch and not the process.

Every thread that runs blocks has a record under a key of its own, which names the ``Guard`` of the launch that it
runs now. A kernel that cannot go on writes why into the ``Launch`` and leaves by ``longjmp`` to where its guard was
set (``pool.py``). A signal does the same where this thread runs a kernel; else it goes to the handler that was there
before. Signals are handled on a stack of their own, for the kernel's may be what is used up.

The stack of the main thread may grow without a limit (``ulimit -s unlimited``; NVRTC leaves a process so when a
compile fails), and an endless recursion would use up the machine's memory first. So a page that nobody may touch is
put far below it when it first runs a kernel.
"""

from __future__ import annotations

import ctypes
import platform
import re
import sys

from cujit.devices.cpu.launch import Control, Launch
from cujit.devices.cpu.native import ending, pokes
from cujit.devices.cpu.native.ending import Stand
from cujit.devices.cpu.native.faultkinds import FaultKind

__all__ = ["SYMBOLS", "Guard", "faults_text"]

SYMBOLS = (
    "cujit_install",
    "cujit_enter",
    "cujit_leave",
    "cujit_claim",
    "cujit_stop",
    "cujit_fault",
    "cujit_fault_here",
    "cujit_begin_launch",
    "cujit_look",
    "cujit_pause",
    "cujit_stand",
    "cujit_use_python",
    "cujit_forked",
)
"""What kernels, the pool and Python call."""


class Guard(ctypes.Structure):
    """One run of a kernel by one thread. ``place`` is where it stands what runs (see ``PLACE``).

    ``decides`` is 1 in the thread that launched, which decides whether the launch goes on.

    ``jump`` is libc's ``jmp_buf``: 200 bytes on x86-64, 312 on AArch64 (glibc 2.39, ``setjmp.h``).
    """

    _fields_ = (
        ("launch", ctypes.c_uint64),
        ("place", ctypes.c_uint64),
        ("thread", ctypes.c_uint64),
        ("previous", ctypes.c_uint64),
        ("decides", ctypes.c_uint64),
        ("unused", ctypes.c_uint64),
        ("jump", ctypes.c_char * 480),
    )


class _Thread(ctypes.Structure):
    """One thread: the guard of what it runs (0: no kernel), and the stack for signals that is ours (0: none).

    Records are never given back: one whose thread has ended (``id`` 0) is the next one's. ``next`` is another record,
    ``main`` 1 for the main thread. ``count`` counts what the thread has run, ``seen`` is what it was at the last look.
    """

    _fields_ = (
        ("guard", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("seen", ctypes.c_uint64),
        ("id", ctypes.c_uint32),
        ("main", ctypes.c_uint32),
    )


_SIGNAL_STACK = 1 << 16
"""Bytes. Also enough for the traceback of ``faulthandler``, which may be the next in the chain."""

_MAIN_STACK = 1 << 30
"""Bytes that the main thread's stack may grow by when nothing else limits it, from where it first runs a kernel."""

_NOWHERE = 1 << 62
"""What ``Launch.next`` is set to when a launch ends early: beyond all blocks, far from wrapping."""

_REACH_BELOW, _REACH_ABOVE = 1 << 16, 1 << 20
"""Bytes below and above the stack pointer in which memory that is not there means that the stack is used up."""

# Where the registers lie in ``ucontext_t``, in bytes: program counter, stack pointer.
# Source: glibc, sysdeps/unix/sysv/linux/{x86_64,aarch64}/sys/ucontext.h.
_REGISTERS = {"x86_64": (168, 160), "aarch64": (440, 432)}

# Numbers of the system call gettid. Source: Linux, arch/x86/entry/syscalls/syscall_64.tbl and
# include/uapi/asm-generic/unistd.h.
_GETTID = {"x86_64": 186, "aarch64": 178}

# Signals that a wrong access or a wrong instruction raises. Source: Linux, signal(7), "Standard signals".
_SIGNALS = {"SEGV": 11, "BUS": 7, "FPE": 8, "ILL": 4}

_RECORDS = """
@cujit_guard_key = internal global i32 -1
@cujit_guard_once = internal global i32 0
declare i32 @pthread_once(ptr, ptr)
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare ptr @calloc(i64, i64)
declare void @free(ptr)
declare void @abort() noreturn
declare void @longjmp(ptr, i32) noreturn

define internal void @guard_begin() {
  call i32 @pthread_key_create(ptr @cujit_guard_key, ptr @thread_end)
  ret void
}

define internal void @thread_end(ptr %thread) {
  call void @signal_stack_end(ptr %thread)
  store volatile ptr null, ptr %thread
  %id.at = getelementptr i8, ptr %thread, i64 #Thread.id
  store atomic i32 0, ptr %id.at release, align 4
  ret void
}

; The record of this thread, made when there is none; null without memory.
define internal ptr @thread_record() {
entry:
  call i32 @pthread_once(ptr @cujit_guard_once, ptr @guard_begin)
  %key = load i32, ptr @cujit_guard_key
  %old = call ptr @pthread_getspecific(i32 %key)
  %none = icmp eq ptr %old, null
  br i1 %none, label %make, label %have
have:
  ret ptr %old
make:
  %new = call ptr @thread_new()
  %bad = icmp eq ptr %new, null
  br i1 %bad, label %fail, label %keep
keep:
  %status = call i32 @pthread_setspecific(i32 %key, ptr %new)
  %kept = icmp eq i32 %status, 0
  br i1 %kept, label %made, label %drop
made:
  call void @signal_stack_begin(ptr %new)
  call void @main_stack_begin()
  ret ptr %new
drop:
  %id.at = getelementptr i8, ptr %new, i64 #Thread.id
  store atomic i32 0, ptr %id.at release, align 4
  br label %fail
fail:
  ret ptr null
}

; After _setjmp filled `guard.jump`: from here on faults of this thread come back there. False without memory.
define i1 @cujit_enter(ptr %guard, ptr %launch, ptr %place) {
entry:
  %thread = call ptr @thread_record()
  %none = icmp eq ptr %thread, null
  br i1 %none, label %fail, label %set
set:
  store ptr %launch, ptr %guard
  %place.at = getelementptr i8, ptr %guard, i64 #Guard.place
  store ptr %place, ptr %place.at
  %thread.at = getelementptr i8, ptr %guard, i64 #Guard.thread
  store ptr %thread, ptr %thread.at
  %previous = load ptr, ptr %thread
  %previous.at = getelementptr i8, ptr %guard, i64 #Guard.previous
  store ptr %previous, ptr %previous.at
  %count.at = getelementptr i8, ptr %thread, i64 #Thread.count
  %count = load volatile i64, ptr %count.at
  %count.next = add i64 %count, 1
  store volatile i64 %count.next, ptr %count.at
  store volatile ptr %guard, ptr %thread
  %asleep = load atomic i32, ptr @cujit_asleep monotonic, align 4
  %awake = icmp eq i32 %asleep, 0
  br i1 %awake, label %ready, label %wake
wake:
  call void @wake()
  br label %ready
ready:
  ret i1 true
fail:
  ret i1 false
}

define void @cujit_leave(ptr %guard) {
  %thread.at = getelementptr i8, ptr %guard, i64 #Guard.thread
  %thread = load ptr, ptr %thread.at
  %previous.at = getelementptr i8, ptr %guard, i64 #Guard.previous
  %previous = load ptr, ptr %previous.at
  store volatile ptr %previous, ptr %thread
  ret void
}

; Take the launch's one place for a fault; true for the first to come, who may then fill in the other fields.
define i32 @cujit_claim(ptr %launch, i32 %kind) {
  %kind.at = getelementptr i8, ptr %launch, i64 #Launch.fault_kind
  %pair = cmpxchg ptr %kind.at, i32 0, i32 %kind acq_rel monotonic
  %first = extractvalue { i32, i1 } %pair, 1
  %next.at = getelementptr i8, ptr %launch, i64 #Launch.next
  store atomic i64 @NOWHERE@, ptr %next.at monotonic, align 8
  %wide = zext i1 %first to i32
  ret i32 %wide
}

; End this thread's part of the launch.
define void @cujit_stop() noreturn {
  %key = load i32, ptr @cujit_guard_key
  %thread = call ptr @pthread_getspecific(i32 %key)
  %none = icmp eq ptr %thread, null
  br i1 %none, label %lost, label %look
look:
  %guard = load ptr, ptr %thread
  %nowhere = icmp eq ptr %guard, null
  br i1 %nowhere, label %lost, label %go
go:
  %jump = getelementptr i8, ptr %guard, i64 #Guard.jump
  call void @longjmp(ptr %jump, i32 1)
  unreachable
lost:
  call void @abort()
  unreachable
}

define void @cujit_fault(ptr %launch, i32 %kind, i64 %block, i32 %thread, i32 %line, i64 %address) noreturn {
entry:
  %claimed = call i32 @cujit_claim(ptr %launch, i32 %kind)
  %first = icmp ne i32 %claimed, 0
  br i1 %first, label %tell, label %stop
tell:
  call void @cujit_fault_here(ptr %launch, i64 %block, i32 %thread, i32 %line, i64 %address)
  br label %stop
stop:
  call void @cujit_stop()
  unreachable
}

; Fill in where: for whoever claimed the fault.
define void @cujit_fault_here(ptr %launch, i64 %block, i32 %thread, i32 %line, i64 %address) {
  %block.at = getelementptr i8, ptr %launch, i64 #Launch.fault_block
  store i64 %block, ptr %block.at
  %thread.at = getelementptr i8, ptr %launch, i64 #Launch.fault_thread
  store i32 %thread, ptr %thread.at
  %line.at = getelementptr i8, ptr %launch, i64 #Launch.fault_line
  store i32 %line, ptr %line.at
  %address.at = getelementptr i8, ptr %launch, i64 #Launch.fault_address
  store i64 %address, ptr %address.at
  ret void
}
"""

# stack_t is { sp, flags, size } at 0, 8, 16. Source: Linux, sigaltstack(2); SS_DISABLE is 2.
# A stack that somebody gave the thread already is used as it is.
_STACKS = """
declare i32 @sigaltstack(ptr, ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @getpid()
declare i64 @syscall(i64, ...)
declare ptr @llvm.frameaddress.p0(i32)

define internal void @main_stack_begin() {
entry:
  %process = call i32 @getpid()
  %self = call i64 (i64, ...) @syscall(i64 @GETTID@)
  %self.short = trunc i64 %self to i32
  %main = icmp eq i32 %process, %self.short
  br i1 %main, label %make, label %return
make:
  %here = call ptr @llvm.frameaddress.p0(i32 0)
  %far = getelementptr i8, ptr %here, i64 -@MAIN@
  %place = call ptr @llvm.ptrmask.p0.i64(ptr %far, i64 -65536)
  ; PROT_NONE; MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE: what is there already stops the stack as well.
  call ptr @mmap(ptr %place, i64 65536, i32 0, i32 1048610, i32 -1, i64 0)
  br label %return
return:
  ret void
}
declare ptr @llvm.ptrmask.p0.i64(ptr, i64)

define internal void @signal_stack_begin(ptr %thread) {
entry:
  %stack = alloca [3 x i64], align 8
  %status = call i32 @sigaltstack(ptr null, ptr %stack)
  %flags.at = getelementptr i8, ptr %stack, i64 8
  %flags = load i32, ptr %flags.at
  %off = and i32 %flags, 2
  %none = icmp ne i32 %off, 0
  br i1 %none, label %make, label %return
make:
  ; PROT_READ | PROT_WRITE; MAP_PRIVATE | MAP_ANONYMOUS
  %memory = call ptr @mmap(ptr null, i64 @STACK@, i32 3, i32 34, i32 -1, i64 0)
  %bad = icmp eq ptr %memory, inttoptr (i64 -1 to ptr)
  br i1 %bad, label %return, label %use
use:
  store ptr %memory, ptr %stack
  store i32 0, ptr %flags.at
  %size.at = getelementptr i8, ptr %stack, i64 16
  store i64 @STACK@, ptr %size.at
  call i32 @sigaltstack(ptr %stack, ptr null)
  %ours.at = getelementptr i8, ptr %thread, i64 #Thread.stack
  store ptr %memory, ptr %ours.at
  br label %return
return:
  ret void
}

define internal void @signal_stack_end(ptr %thread) {
entry:
  %stack = alloca [3 x i64], align 8
  %ours.at = getelementptr i8, ptr %thread, i64 #Thread.stack
  %ours = load ptr, ptr %ours.at
  %none = icmp eq ptr %ours, null
  br i1 %none, label %return, label %look
look:
  call i32 @sigaltstack(ptr null, ptr %stack)
  %now = load ptr, ptr %stack
  %same = icmp eq ptr %now, %ours
  br i1 %same, label %disable, label %unmap
disable:
  %flags.at = getelementptr i8, ptr %stack, i64 8
  store i32 2, ptr %flags.at
  call i32 @sigaltstack(ptr %stack, ptr null)
  br label %unmap
unmap:
  call i32 @munmap(ptr %ours, i64 @STACK@)
  br label %return
return:
  ret void
}
"""

_NO_STACKS = """
define internal void @signal_stack_begin(ptr %thread) { ret void }
define internal void @signal_stack_end(ptr %thread) { ret void }
define internal void @main_stack_begin() { ret void }
"""

# struct sigaction is { handler, mask of 128 bytes, flags, restorer } at 0, 8, 136, 144; siginfo_t has si_code at 8 and
# si_addr at 16. Source: glibc, bits/sigaction.h and bits/types/siginfo_t.h.
_HANDLER = """
@cujit_previous = internal global [5 x [152 x i8]] zeroinitializer, align 16
@cujit_passing = internal global i64 0
declare i64 @pthread_self()
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @raise(i32)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal i64 @signal_index(i32 %signal) {
entry:
  switch i32 %signal, label %first [
    i32 @BUS@, label %second
    i32 @FPE@, label %third
    i32 @ILL@, label %fourth
    i32 @URG@, label %fifth
  ]
fifth:
  ret i64 4
first:
  ret i64 0
second:
  ret i64 1
third:
  ret i64 2
fourth:
  ret i64 3
}

; Put our handler in front of what is there, for every signal where it is not in front already. Whoever takes one of
; these signals takes this one, too: where it is still ours, nothing more is looked at.
define void @cujit_install() {
entry:
  %changed = call i1 @install(i32 @SEGV@)
  br i1 %changed, label %others, label %return
others:
  call i1 @install(i32 @BUS@)
  call i1 @install(i32 @FPE@)
  call i1 @install(i32 @ILL@)
  call i1 @install(i32 @URG@)
  br label %return
return:
  ret void
}

define internal i1 @install(i32 %signal) {
entry:
  %now = alloca [152 x i8], align 8
  %pokes = icmp eq i32 %signal, @URG@
  %own = select i1 %pokes, ptr @cujit_poked, ptr @cujit_signal
  ; SA_SIGINFO | SA_NODEFER, and SA_RESTART or SA_ONSTACK
  %own.flags = select i1 %pokes, i32 1342177284, i32 1207959556
  call i32 @sigaction(i32 %signal, ptr null, ptr %now)
  %handler = load ptr, ptr %now
  %ours = icmp eq ptr %handler, %own
  br i1 %ours, label %same, label %put
put:
  %index = call i64 @signal_index(i32 %signal)
  %previous = getelementptr [152 x i8], ptr @cujit_previous, i64 %index
  call void @llvm.memcpy.p0.p0.i64(ptr %previous, ptr %now, i64 152, i1 false)
  call void @llvm.memset.p0.i64(ptr %now, i8 0, i64 152, i1 false)
  store ptr %own, ptr %now
  %flags.at = getelementptr i8, ptr %now, i64 136
  store i32 %own.flags, ptr %flags.at
  call i32 @sigaction(i32 %signal, ptr %now, ptr null)
  ret i1 true
same:
  ret i1 false
}

; A signal is ours if this thread runs a kernel and did it itself: the processor raised it (si_code above 0), or a
; handler that came first did so again (SI_TKILL, as faulthandler does).
define internal void @cujit_signal(i32 %signal, ptr %info, ptr %context) {
entry:
  %code.at = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %code.at
  %raised = icmp sgt i32 %code, 0
  %again = icmp eq i32 %code, -6
  %sure = or i1 %raised, %again
  br i1 %sure, label %look, label %other
look:
  %key = load i32, ptr @cujit_guard_key
  %thread = call ptr @pthread_getspecific(i32 %key)
  %no.thread = icmp eq ptr %thread, null
  br i1 %no.thread, label %other, label %ask
ask:
  %guard = load volatile ptr, ptr %thread
  %no.guard = icmp eq ptr %guard, null
  br i1 %no.guard, label %other, label %mine
other:
  call void @pass_on(i32 %signal, ptr %info, ptr %context)
  ret void
mine:
  %address.at = getelementptr i8, ptr %info, i64 16
  %address.said = load i64, ptr %address.at
  %address = select i1 %raised, i64 %address.said, i64 0
  %pc.at = getelementptr i8, ptr %context, i64 @PC@
  %pc = load i64, ptr %pc.at
  %sp.at = getelementptr i8, ptr %context, i64 @SP@
  %sp = load i64, ptr %sp.at
  %kind = call i32 @kind_of(i32 %signal, i32 %code, i64 %address, i64 %sp)
  %launch = load ptr, ptr %guard
  %claimed = call i32 @cujit_claim(ptr %launch, i32 %kind)
  %first = icmp ne i32 %claimed, 0
  br i1 %first, label %tell, label %stop
tell:
  %place.at = getelementptr i8, ptr %guard, i64 #Guard.place
  %place = load ptr, ptr %place.at
  %block = load i64, ptr %place
  call void @cujit_fault_here(ptr %launch, i64 %block, i32 -1, i32 0, i64 %address)
  %more = getelementptr i8, ptr %launch, i64 #Launch.fault_more
  store i64 %pc, ptr %more
  %more.code = getelementptr i64, ptr %more, i64 1
  %code.wide = sext i32 %code to i64
  store i64 %code.wide, ptr %more.code
  br label %stop
stop:
  call void @cujit_stop()
  unreachable
}

define internal i32 @kind_of(i32 %signal, i32 %code, i64 %address, i64 %sp) {
entry:
  switch i32 %signal, label %memory [ i32 @BUS@, label %bus  i32 @FPE@, label %number  i32 @ILL@, label %illegal ]
number:
  ret i32 @ARITHMETIC@
illegal:
  ret i32 @ILLEGAL_INSTRUCTION@
bus:
  %aligned = icmp ne i32 %code, 1
  br i1 %aligned, label %memory, label %crooked
crooked:
  ret i32 @MISALIGNED@
memory:
  %low = sub i64 %sp, @BELOW@
  %distance = sub i64 %address, %low
  %near = icmp ult i64 %distance, @WINDOW@
  %kind = select i1 %near, i32 @STACK_OVERFLOW@, i32 @ILLEGAL_ADDRESS@
  ret i32 %kind
}

; What is not ours goes to the handler that was there before. That one may have ours for its own previous, if it came
; later than the first time we did: what it raises anew is not given to it again but to the system.
define internal void @pass_on(i32 %signal, ptr %info, ptr %context) {
entry:
  %default = alloca [152 x i8], align 8
  %index = call i64 @signal_index(i32 %signal)
  %previous = getelementptr [152 x i8], ptr @cujit_previous, i64 %index
  %handler = load ptr, ptr %previous
  %word = ptrtoint ptr %handler to i64
  %code.at = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %code.at
  %raised = icmp sgt i32 %code, 0
  %self = call i64 @pthread_self()
  %passing = load atomic i64, ptr @cujit_passing monotonic, align 8
  %afresh = icmp ne i64 %passing, %self
  %may = or i1 %raised, %afresh
  %real = icmp ugt i64 %word, 1
  %call = and i1 %may, %real
  br i1 %call, label %kind, label %none
kind:
  %flags.at = getelementptr i8, ptr %previous, i64 136
  %flags = load i32, ptr %flags.at
  %bit = and i32 %flags, 4
  %long = icmp ne i32 %bit, 0
  store atomic i64 %self, ptr @cujit_passing monotonic, align 8
  br i1 %long, label %three, label %one
three:
  call void %handler(i32 %signal, ptr %info, ptr %context)
  br label %passed
one:
  call void %handler(i32 %signal)
  br label %passed
passed:
  store atomic i64 0, ptr @cujit_passing monotonic, align 8
  ret void
none:
  %ignore = icmp eq i64 %word, 1
  %asked = xor i1 %raised, true
  %nothing = and i1 %ignore, %asked
  br i1 %nothing, label %return, label %end
end:
  call void @llvm.memset.p0.i64(ptr %default, i8 0, i64 152, i1 false)
  call i32 @sigaction(i32 %signal, ptr %default, ptr null)
  ; The instruction that was at fault runs again and ends the process; what was only sent is sent again.
  br i1 %raised, label %return, label %send
send:
  call i32 @raise(i32 %signal)
  br label %return
return:
  ret void
}
"""

_NO_HANDLER = "define void @cujit_install() { ret void }\n"

_OFFSET = re.compile(r"#(Guard|Thread|Launch|Control|Stand)\.(\w+)")
_SIZE = re.compile(r"#(Thread|Stand)\b")


def faults_text() -> str:
    """Write the IR; ``cujit_install`` puts the handlers in place, where the system is Linux."""
    registers = _REGISTERS.get(platform.machine()) if sys.platform == "linux" else None
    signals = _STACKS + _HANDLER + pokes.POKES if registers else _NO_STACKS + _NO_HANDLER + pokes.NO_POKES
    pc, sp = registers or (0, 0)
    numbers = {
        "NOWHERE": _NOWHERE,
        "STACK": _SIGNAL_STACK,
        "MAIN": _MAIN_STACK,
        "GETTID": _GETTID.get(platform.machine(), 0),
        "PC": pc,
        "SP": sp,
        "BELOW": _REACH_BELOW,
        "WINDOW": _REACH_BELOW + _REACH_ABOVE,
        **_SIGNALS,
        **ending.NUMBERS,
        **pokes.NUMBERS,
        **{kind.name: int(kind) for kind in FaultKind},
    }
    text = re.sub(r"@([A-Z_]+)@", lambda m: str(numbers[m[1]]), _RECORDS + ending.ENDING + signals)
    structures = {"Guard": Guard, "Thread": _Thread, "Launch": Launch, "Control": Control, "Stand": Stand}
    text = _OFFSET.sub(lambda m: str(getattr(structures[m[1]], m[2]).offset), text)
    text = _SIZE.sub(lambda m: str(ctypes.sizeof(structures[m[1]])), text)
    return ending.on_stack_text() + text
