"""The LLVM IR that starts a kernel on the CPU device: its pool runs the blocks, without the interpreter's lock."""

from __future__ import annotations

import ctypes

from cujit.devices.backend import Finish
from cujit.devices.cpu.run.launch import Launch
from cujit.devices.launcher.finish import load, report

__all__ = ["CPU"]


def _cpu() -> list[str]:
    """Run the blocks on the pool's threads and on this one; the template of the state has the sizes of the launch.

    Python is called, with the address of the ``Launch``, where something is left to do: not all blocks ran, a kernel
    could not go on, or it printed.
    """

    def field(name: str) -> int:
        return int(getattr(Launch, name).offset)

    return [
        f"  %work = alloca [{ctypes.sizeof(Launch)} x i8], align 16",
        *load("template"),
        f"  call void @llvm.memcpy.p0.p0.i64(ptr %work, ptr %template, i64 {ctypes.sizeof(Launch)}, i1 false)",
        f"  %work.parameters = getelementptr i8, ptr %work, i64 {field('parameters')}",
        "  store ptr %buffer, ptr %work.parameters",
        f"  %work.next = getelementptr i8, ptr %work, i64 {field('next')}",
        "  store i64 0, ptr %work.next",
        *load("pool"),
        *load("run"),
        *load("job"),
        *load("helpers", "i32"),
        *load("shared_bytes", "i64"),
        *load("local_bytes", "i64"),
        "  %thread = call ptr @PyEval_SaveThread()",
        "  call void %run(ptr %pool, ptr %job, ptr %work, i32 %helpers, i64 %shared_bytes, i64 %local_bytes)",
        "  call void @PyEval_RestoreThread(ptr %thread)",
        "  %taken = load i64, ptr %work.next",
        f"  %blocks.at = getelementptr i8, ptr %work, i64 {field('blocks')}",
        "  %blocks = load i64, ptr %blocks.at",
        "  %all = icmp uge i64 %taken, %blocks",
        f"  %kind.at = getelementptr i8, ptr %work, i64 {field('fault_kind')}",
        "  %kind = load i32, ptr %kind.at",
        "  %sound = icmp eq i32 %kind, 0",
        f"  %output.at = getelementptr i8, ptr %work, i64 {field('output')}",
        "  %output = load i64, ptr %output.at",
        "  %silent = icmp eq i64 %output, 0",
        "  %all.sound = and i1 %all, %sound",
        "  %done = and i1 %all.sound, %silent",
        "  br i1 %done, label %good, label %unfinished",
        "unfinished:",
        "  %work.int = ptrtoint ptr %work to i64",
        *report("%work.int"),
    ]


CPU = Finish("CPU", _cpu)
