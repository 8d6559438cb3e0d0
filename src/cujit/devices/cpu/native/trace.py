"""What one thread does: records in memory that grows, for Python to read after the launch.

A record is a word (which operation, how many words of values follow) and its values. ``emit/tracing.py`` has them
written, before each operation and again after it: a thread that cannot go on has left what it was about to do.
"""

from __future__ import annotations

import ctypes
import re

from cujit.devices.cpu.launch import Launch

__all__ = ["DONE", "SYMBOLS", "TraceState", "trace_text"]

SYMBOLS = ("cujit_trace",)
"""What emitted kernels call."""

DONE = 1 << 31
"""Marks the record of results in the number of its operation."""


class TraceState(ctypes.Structure):
    """The traced thread of a launch, and its records.

    ``block`` is linear in the grid; ``warp`` and ``lane`` are the thread's. ``used`` and ``capacity`` count words of
    8 bytes at ``records``. ``left`` is how many operations may still be kept, ``dropped`` how many were not.
    """

    _fields_ = (
        ("block", ctypes.c_uint64),
        ("warp", ctypes.c_uint32),
        ("lane", ctypes.c_uint32),
        ("records", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("capacity", ctypes.c_uint64),
        ("left", ctypes.c_uint64),
        ("dropped", ctypes.c_uint64),
    )


# One thread of the pool runs the traced warp, so that nobody else writes here meanwhile.
_TEXT = """
declare ptr @realloc(ptr, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Keep a record: the number of the operation, and `count` words.
define void @cujit_trace(ptr %launch, i32 %number, i32 %count, ptr %values) {
entry:
  %state.at = getelementptr i8, ptr %launch, i64 #Launch.trace
  %state = load ptr, ptr %state.at
  %nobody = icmp eq ptr %state, null
  br i1 %nobody, label %return, label %look
look:
  %left.at = getelementptr i8, ptr %state, i64 #TraceState.left
  %dropped.at = getelementptr i8, ptr %state, i64 #TraceState.dropped
  %left = load i64, ptr %left.at
  %dropped = load i64, ptr %dropped.at
  %flag = and i32 %number, @DONE@
  %begins = icmp eq i32 %flag, 0
  %begins.wide = zext i1 %begins to i64
  %full = icmp eq i64 %left, 0
  %over = and i1 %full, %begins
  %late = icmp ne i64 %dropped, 0
  %lost = or i1 %over, %late
  br i1 %lost, label %drop, label %room
room:
  %used.at = getelementptr i8, ptr %state, i64 #TraceState.used
  %capacity.at = getelementptr i8, ptr %state, i64 #TraceState.capacity
  %records.at = getelementptr i8, ptr %state, i64 #TraceState.records
  %used = load i64, ptr %used.at
  %capacity = load i64, ptr %capacity.at
  %records = load ptr, ptr %records.at
  %count.wide = zext i32 %count to i64
  %first = add i64 %used, 1
  %end = add i64 %first, %count.wide
  %fits = icmp ule i64 %end, %capacity
  br i1 %fits, label %keep, label %grow
grow:
  %twice = mul i64 %capacity, 2
  %more = add i64 %twice, %end
  %bytes = mul i64 %more, 8
  %larger = call ptr @realloc(ptr %records, i64 %bytes)
  %none = icmp eq ptr %larger, null
  br i1 %none, label %drop, label %grown
grown:
  store ptr %larger, ptr %records.at
  store i64 %more, ptr %capacity.at
  br label %keep
keep:
  %to = phi ptr [ %records, %room ], [ %larger, %grown ]
  %left.next = sub i64 %left, %begins.wide
  store i64 %left.next, ptr %left.at
  %number.wide = zext i32 %number to i64
  %count.high = shl i64 %count.wide, 32
  %head = or i64 %number.wide, %count.high
  %head.at = getelementptr i64, ptr %to, i64 %used
  store i64 %head, ptr %head.at
  %values.at = getelementptr i64, ptr %to, i64 %first
  %values.bytes = mul i64 %count.wide, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %values.at, ptr %values, i64 %values.bytes, i1 false)
  store i64 %end, ptr %used.at
  br label %return
drop:
  %dropped.next = add i64 %dropped, %begins.wide
  store i64 %dropped.next, ptr %dropped.at
  br label %return
return:
  ret void
}
"""


def trace_text() -> str:
    """Write the IR."""
    structures = {"TraceState": TraceState, "Launch": Launch}
    text = _TEXT.replace("@DONE@", str(DONE - (1 << 32)))
    return re.sub(r"#(\w+)\.(\w+)", lambda m: str(getattr(structures[m[1]], m[2]).offset), text)
