"""The LLVM IR that starts a kernel on a GPU: ``cuLaunchKernel``, or ``cuLaunchKernelEx`` with a configuration."""

from __future__ import annotations

from cujit.devices.backend import Finish
from cujit.devices.cuda.ring import RING_SIZE
from cujit.devices.launcher.finish import load, report

__all__ = ["GPU"]

# A thread in which no context is current keeps ours, as the CUDA runtime does it; another one is put back.
# %pushed tells the block that leaves whether there is one to put back.
_CONTEXT = """
go:
  %context.at = getelementptr i8, ptr %state, i64 #state.context
  %context = load ptr, ptr %context.at
  %get.at = getelementptr i8, ptr %state, i64 #state.get_context
  %get = load ptr, ptr %get.at
  store ptr null, ptr %current
  call i32 %get(ptr %current)
  %now = load ptr, ptr %current
  %same = icmp eq ptr %now, %context
  br i1 %same, label %enter, label %switch
switch:
  %nothing = icmp eq ptr %now, null
  br i1 %nothing, label %first, label %push
first:
  %set.at = getelementptr i8, ptr %state, i64 #state.set_context
  %set = load ptr, ptr %set.at
  %set.status = call i32 %set(ptr %context)
  %set.good = icmp eq i32 %set.status, 0
  br i1 %set.good, label %enter, label %refused
push:
  %push.at = getelementptr i8, ptr %state, i64 #state.push_context
  %push.call = load ptr, ptr %push.at
  %push.status = call i32 %push.call(ptr %context)
  %push.good = icmp eq i32 %push.status, 0
  br i1 %push.good, label %enter, label %refused
enter:
  %pushed = phi i1 [ false, %go ], [ false, %first ], [ true, %push ]
"""

_DIMENSIONS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "dynamic_bytes")


def _gpu() -> list[str]:
    sizes = ", ".join(f"i32 %{name}" for name in _DIMENSIONS)
    return [
        "  %words = alloca [5 x i64]",
        "  %size.at = alloca i64",
        "  br label %go",
        *_CONTEXT.strip().splitlines(),
        *_extra(),
        *_note(),
        *load("function"),
        *load("config"),
        "  %plain = icmp eq ptr %config, null",
        "  br i1 %plain, label %simple, label %extended",
        "simple:",
        *(line for name in _DIMENSIONS for line in load(name, "i32")),
        *load("stream"),
        *load("launch_kernel"),
        f"  %simple.status = call i32 %launch_kernel(ptr %function, {sizes}, ptr %stream, ptr %each, ptr %extra)",
        "  br label %leave",
        "extended:",
        *load("launch_kernel_ex"),
        "  %extended.status = call i32 %launch_kernel_ex(ptr %config, ptr %function, ptr %each, ptr %extra)",
        "  br label %leave",
        "leave:",
        "  %launch.status = phi i32 [ %simple.status, %simple ], [ %extended.status, %extended ]",
        "  br i1 %pushed, label %pop, label %tell",
        "pop:",
        *load("pop_context"),
        "  call i32 %pop_context(ptr %current)",
        "  br label %tell",
        "tell:",
        "  %started = icmp eq i32 %launch.status, 0",
        "  br i1 %started, label %good, label %refused",
        "refused:",
        "  %status = phi i32 [ %launch.status, %tell ], [ %set.status, %first ], [ %push.status, %push ]",
        "  %status.wide = sext i32 %status to i64",
        *report("%status.wide"),
    ]


def _note() -> list[str]:
    """Write the launch down in the ring of its context, as ``ring.py`` describes it."""
    return [
        *load("ring"),
        *load("label", "i64"),
        "  %ring.none = icmp eq ptr %ring, null",
        "  br i1 %ring.none, label %noted, label %note",
        "note:",
        "  %ring.count = load i64, ptr %ring",
        f"  %ring.index = and i64 %ring.count, {RING_SIZE - 1}",
        "  %ring.word = add i64 %ring.index, 1",
        "  %ring.slot = getelementptr i64, ptr %ring, i64 %ring.word",
        "  store i64 %label, ptr %ring.slot",
        "  %ring.next = add i64 %ring.count, 1",
        "  store i64 %ring.next, ptr %ring",
        "  br label %noted",
        "noted:",
    ]


def _extra() -> list[str]:
    """Fill the five words of ``extra``; without parameters, and where each has its address, it is null.

    Source: cuda.h, CU_LAUNCH_PARAM_BUFFER_POINTER (1), CU_LAUNCH_PARAM_BUFFER_SIZE (2), CU_LAUNCH_PARAM_END (0).
    """
    lines = ["  store i64 %size, ptr %size.at"]
    for i, value in enumerate(("i64 1", "ptr %buffer", "i64 2", "ptr %size.at", "i64 0")):
        lines.append(f"  %words.{i} = getelementptr i64, ptr %words, i64 {i}")
        lines.append(f"  store {value}, ptr %words.{i}")
    return [
        *lines,
        "  %empty = icmp eq i64 %size, 0",
        "  %one.each = icmp ne ptr %each, null",
        "  %no.extra = or i1 %empty, %one.each",
        "  %extra = select i1 %no.extra, ptr null, ptr %words",
    ]


GPU = Finish("GPU", _gpu)
