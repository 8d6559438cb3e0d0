"""The LLVM IR that starts a kernel once its parameters are in ``%buffer``: one way for each kind of place."""

from __future__ import annotations

import ctypes
import enum

from cujit.devices.ring import RING_SIZE

__all__ = ["Finish", "Parameters", "finish_text", "load"]


class Finish(enum.Enum):
    """Where a launch goes."""

    GPU = "gpu"
    """To the driver: ``cuLaunchKernel``, or ``cuLaunchKernelEx`` where the state has a configuration."""
    CPU = "cpu"
    """To the pool of the CPU device, without the interpreter's lock."""
    COPY = "copy"
    """Nowhere: the buffer is copied to the state's ``sink``. For tests and for the floor of a measurement."""


class Parameters(enum.Enum):
    """How the driver is given the parameters."""

    BUFFER = "extra"
    """As one buffer, by ``extra``: the driver checks its size."""
    EACH = "kernelParams"
    """As an array of the address of each."""


def finish_text(finish: Finish) -> str:
    """Write ``ptr finish(state, buffer, size, each)``: it gives what the call returns.

    ``each`` has the address of each parameter, or is null: then the driver gets the buffer.
    """
    lines = {Finish.GPU: _gpu, Finish.CPU: _cpu, Finish.COPY: _copy}[finish]()
    head = ["define ptr @finish(ptr %state, ptr %buffer, i64 %size, ptr %each) {", "  %current = alloca ptr"]
    end = ["good:", "  call void @Py_IncRef(ptr $None)", "  ret ptr $None", "fail:", "  ret ptr null", "}"]
    return "\n".join([*head, *lines, *end])


def load(name: str, type_: str = "ptr") -> list[str]:
    """Load a field of the state under its own name."""
    return [
        f"  %{name}.at = getelementptr i8, ptr %state, i64 #state.{name}",
        f"  %{name} = load {type_}, ptr %{name}.at",
    ]


# -- a GPU ------------------------------------------------------------------------------------------------

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
        *_report("%status.wide"),
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


def _report(number: str) -> list[str]:
    """Have Python say what a number means, a status or an address: it raises, or gives what the call returns."""
    return [
        f"  %status.object = call ptr @PyLong_FromLong(i64 {number})",
        "  %status.missing = icmp eq ptr %status.object, null",
        "  br i1 %status.missing, label %fail, label %report",
        "report:",
        "  store ptr %status.object, ptr %current",
        *load("failed"),
        "  %answer = call ptr @PyObject_VectorcallDict(ptr %failed, ptr %current, i64 1, ptr null)",
        "  call void @Py_DecRef(ptr %status.object)",
        "  ret ptr %answer",
    ]


# -- the CPU device ---------------------------------------------------------------------------------------


def _cpu() -> list[str]:
    """Run the blocks on the pool's threads and on this one; the template of the state has the sizes of the launch.

    Python is called, with the address of the ``Launch``, where something is left to do: not all blocks ran, a kernel
    could not go on, or it printed.
    """
    from cujit.devices.cpu.run.launch import Launch as Job  # with all of the CPU device, for those who have it

    def field(name: str) -> int:
        return int(getattr(Job, name).offset)

    return [
        f"  %work = alloca [{ctypes.sizeof(Job)} x i8], align 16",
        *load("template"),
        f"  call void @llvm.memcpy.p0.p0.i64(ptr %work, ptr %template, i64 {ctypes.sizeof(Job)}, i1 false)",
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
        *_report("%work.int"),
    ]


# -- nowhere ----------------------------------------------------------------------------------------------


def _copy() -> list[str]:
    return [
        *load("sink"),
        "  call void @llvm.memcpy.p0.p0.i64(ptr %sink, ptr %buffer, i64 %size, i1 false)",
        "  br label %good",
    ]
