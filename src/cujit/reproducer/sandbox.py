"""Rights that a process gives up permanently. It keeps its memory, its threads, and its open pipes.

This requires no superuser rights. A system call filter (seccomp, classic BPF) in the kernel checks every system call.
Calls that are not listed here fail, as if there were no files, and calls that only attacks use end the process with
SIGSYS. Resource limits are a second barrier: no new or growing files, no core, and limited address space and time.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterator

from cujit.errors import MissingError
from cujit.values import NamedTuple

# Source: linux/prctl.h, linux/seccomp.h, linux/audit.h, linux/sched.h.
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SET_MODE_FILTER, _FLAG_TSYNC = 1, 1
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000

# Source: linux/filter.h, linux/bpf_common.h: load a word at an offset; jump if equal, at least, a bit is set; return.
_LOAD, _EQUAL, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# Source: linux/seccomp.h, ``struct seccomp_data``: the number, the architecture, and six arguments of 64 bits.
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16

_EPERM, _ENOENT, _ENOSYS = 1, 2, 38


class Machine(NamedTuple):
    """A kind of processor: its number in ``linux/audit.h``, and which of the two numbers a system call has here."""

    audit: int
    column: int


_MACHINES = {"x86_64": Machine(0xC000003E, 0), "aarch64": Machine(0xC00000B7, 1)}

# Numbers on x86-64 and AArch64; -1 where there is none. Sources: Linux, arch/x86/entry/syscalls/syscall_64.tbl and
# include/uapi/asm-generic/unistd.h.
_ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62), "pread64": (17, 67),
    "writev": (20, 66), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214),
    "mremap": (25, 216), "madvise": (28, 233), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "sigaltstack": (131, 132), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "times": (100, 153), "getrusage": (98, 165), "sysinfo": (99, 179), "uname": (63, 160),
    "getpid": (39, 172), "gettid": (186, 178), "futex": (202, 98), "set_robust_list": (273, 99), "rseq": (334, 293),
    "membarrier": (324, 283), "getrandom": (318, 278), "restart_syscall": (219, 128), "exit": (60, 93),
    "exit_group": (231, 94),
}  # fmt: skip
_KILLED = {
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, -1), "vfork": (58, -1), "kill": (62, 129),
    "ptrace": (101, 117), "socket": (41, 198), "socketpair": (53, 199), "process_vm_writev": (311, 271),
}  # fmt: skip
_PATHS = {
    "open": (2, -1), "openat": (257, 56), "openat2": (437, 437), "stat": (4, -1), "lstat": (6, -1),
    "newfstatat": (262, 79), "statx": (332, 291), "access": (21, -1), "faccessat": (269, 48), "faccessat2": (439, 439),
    "readlink": (89, -1), "readlinkat": (267, 78),
}  # fmt: skip
"""What names files: there are none."""
_CLONE, _CLONE3, _TGKILL, _TGQUEUE, _PRLIMIT = (56, 220), (435, 435), (234, 131), (297, 240), (302, 261)
_SECCOMP = (317, 277)


def _step(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Write one instruction of the filter; the jumps count instructions that are passed over."""
    return struct.pack("<HBBI", code, if_true, if_false, k)


def _low(argument: int) -> int:
    return _ARGUMENTS_AT + 8 * argument


def _rule(number: int, *steps: bytes) -> Iterator[bytes]:
    """Do ``steps``, of which the last returns, for one system call; pass over them for others."""
    if number >= 0:
        yield _step(_EQUAL, number, 0, len(steps))
        yield from steps


def filter_of(machine: Machine, process: int) -> bytes:
    """Write the filter of system calls for a process of that number."""
    allow, refuse, kill = (_step(_RETURN, k) for k in (_ALLOW, _ERRNO | _EPERM, _KILL_PROCESS))
    column = machine.column
    found = [_step(_LOAD, _ARCH_AT), _step(_EQUAL, machine.audit, 1, 0), kill, _step(_LOAD, _NUMBER_AT)]
    if column == 0:
        found += [_step(_AT_LEAST, _X32, 0, 1), kill]
    for number in _ALLOWED.values():
        found += _rule(number[column], allow)
    for number in _KILLED.values():
        found += _rule(number[column], kill)
    for number in _PATHS.values():
        found += _rule(number[column], _step(_RETURN, _ERRNO | _ENOENT))
    # Threads, and no processes. Flags of clone3 are in memory, where a filter cannot look: without it libc takes clone.
    found += _rule(_CLONE[column], _step(_LOAD, _low(0)), _step(_HAS, _CLONE_THREAD, 0, 1), allow, kill)
    found += _rule(_CLONE3[column], _step(_RETURN, _ERRNO | _ENOSYS))
    # Signals for itself: abort() sends them, and what ends a launch whose time is over.
    for number in (_TGKILL, _TGQUEUE):
        found += _rule(number[column], _step(_LOAD, _low(0)), _step(_EQUAL, process, 0, 1), allow, kill)
    # Its own limits are read, and no limit is set.
    tests = [_step(_LOAD, _low(0)), _step(_EQUAL, 0, 0, 5), _step(_LOAD, _low(2)), _step(_EQUAL, 0, 0, 3)]
    tests += [_step(_LOAD, _low(2) + 4), _step(_EQUAL, 0, 0, 1)]
    found += _rule(_PRLIMIT[column], *tests, allow, refuse)
    return b"".join((*found, refuse))


def give_up_rights() -> None:
    """Restrict this process, in all of its threads, to the system calls of the filter from here on.

    Raises:
        MissingError: the system, or the container that this runs in, has no such filters.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None or sys.byteorder != "little":
        raise MissingError(f"cujit has no system-call filter for {platform.machine()} processors")
    libc = ctypes.CDLL(None, use_errno=True)
    text = filter_of(machine, os.getpid())
    held = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("<H6xQ", len(text) // 8, ctypes.addressof(held))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise MissingError(f"can't limit the privileges of this process: {os.strerror(ctypes.get_errno())}")
    if libc.syscall(_SECCOMP[machine.column], _SET_MODE_FILTER, _FLAG_TSYNC, program):
        raise MissingError(f"this system doesn't support system-call filters: {os.strerror(ctypes.get_errno())}")


def end_with_parent(parent: int) -> None:
    """Make this process die when its parent with this number is killed. Otherwise, a looping kernel would continue
    alone.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def limit(kind: int, most: int) -> None:
    """Lower a limit of this process for good."""
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def limit_memory(memory_mib: int) -> None:
    """Allow so much address space, in MiB."""
    limit(resource.RLIMIT_AS, memory_mib << 20)


def limit_resources(cpu_s: int) -> None:
    """Forbid new files, growing files, and core files, and limit the processor time in seconds."""
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_FSIZE, 0)
    limit(resource.RLIMIT_NOFILE, 0)
    limit(resource.RLIMIT_CPU, cpu_s)
