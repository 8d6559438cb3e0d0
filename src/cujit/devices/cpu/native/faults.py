"""The guard of a launch, which ``runtime/guard.h`` tells of."""

from __future__ import annotations

import ctypes

__all__ = ["Guard"]


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
