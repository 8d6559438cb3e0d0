"""The LLVM IR of a launch: read every argument into the parameter buffer, then start the kernel.

The function has the signature of vectorcall (PEP 590). It takes the exact types that it knows; for any other
argument it calls the reader that is written in Python, which takes it or raises. Such a reader may run anybody's code,
which may close an array whose address was read before, so everything that was read by machine code is then read
again, until a round ends in which no reader was called.
"""

from __future__ import annotations

from collections.abc import Mapping

from cujit.devices.launcher.finish import Parameters, load
from cujit.devices.launcher.layout import Field, FieldKind, Layout
from cujit.devices.launcher.symbols import link_names

__all__ = ["SYMBOL", "emit"]

SYMBOL = "launch"

_COUNT_MASK = (1 << 63) - 1
"""Some callers set the highest bit of the count. Source: CPython manual, PY_VECTORCALL_ARGUMENTS_OFFSET."""


def emit(layout: Layout, functions: Mapping[str, str], state_offset: int, parameters: Parameters) -> str:
    """Write the module for one layout.

    ``functions`` are those of the ``Runtime``, their symbols; ``state_offset`` is in bytes from the callable.
    """
    lines = [
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
        *_enter(layout),
        *(line for i, field in enumerate(layout.fields) for line in _field(i, field)),
        *_leave_or_again(len(layout.fields)),
        *_finish(layout, parameters),
    ]
    return link_names("\n".join(lines), state_offset, functions)


def _enter(layout: Layout) -> list[str]:
    """Give the call to Python unless it has that many arguments, no keywords, and a module that is loaded here."""
    return [
        f"define ptr @{SYMBOL}(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) {{",
        "entry:",
        f"  %buffer = alloca [{max(layout.size, 1)} x i8], align 16",
        f"  %each = alloca [{max(len(layout.fields), 1)} x ptr]",
        "  %done = alloca i64",
        "  %mark = alloca i64",
        "  %state.at = getelementptr i8, ptr %self, i64 #state",
        "  %state = load ptr, ptr %state.at",
        "  %unnamed = icmp eq ptr %kwnames, null",
        "  br i1 %unnamed, label %count, label %keywords",
        "keywords:",
        *load("named"),
        "  %named.answer = call ptr @PyObject_VectorcallDict(ptr %named, ptr null, i64 0, ptr null)",
        "  ret ptr %named.answer",
        "count:",
        f"  %nargs = and i64 %nargsf, {_COUNT_MASK}",
        f"  %counted = icmp eq i64 %nargs, {len(layout.fields)}",
        "  br i1 %counted, label %ask.alive, label %hand",
        "ask.alive:",
        *load("alive"),
        "  %word = load i32, ptr %alive",
        "  %lives = icmp eq i32 %word, 1",
        "  br i1 %lives, label %start, label %hand",
        "hand:",
        *load("by_hand"),
        "  %hand.answer = call ptr @PyObject_VectorcallDict(ptr %by_hand, ptr %args, i64 %nargs, ptr null)",
        "  ret ptr %hand.answer",
        "fail:",
        "  ret ptr null",
        "start:",
        f"  call void @llvm.memset.p0.i64(ptr %buffer, i8 0, i64 {layout.size}, i1 false)",
        "  store i64 0, ptr %done",
        "  store i64 0, ptr %mark",
        "  br label %p0",
    ]


def _field(index: int, field: Field) -> list[str]:
    """Write the blocks that read argument ``index``; they end in the block of the next one, or in ``%fail``."""
    p, bit = f"p{index}", 1 << index
    bit -= (1 << 64) if bit >> 63 else 0
    ask = f"call i1 @run.ask(ptr %state, i64 {index}, ptr %{p}.value, ptr %{p}.to, i64 {field.size})"
    return [
        f"{p}:",
        f"  %{p}.done = load i64, ptr %done",
        f"  %{p}.bit = and i64 %{p}.done, {bit}",
        f"  %{p}.new = icmp eq i64 %{p}.bit, 0",
        f"  br i1 %{p}.new, label %{p}.read, label %p{index + 1}",
        f"{p}.read:",
        f"  %{p}.at = getelementptr ptr, ptr %args, i64 {index}",
        f"  %{p}.value = load ptr, ptr %{p}.at",
        f"  %{p}.to = getelementptr i8, ptr %buffer, i64 {field.offset}",
        *_read(p, index, field),
        f"{p}.ask:",
        f"  %{p}.before = load i64, ptr %mark",
        f"  %{p}.after = or i64 %{p}.before, {bit}",
        f"  store i64 %{p}.after, ptr %mark",
        f"  %{p}.took = {ask}",
        f"  br i1 %{p}.took, label %p{index + 1}, label %fail",
    ]


def _read(p: str, index: int, field: Field) -> list[str]:
    """Call the reader of one kind of parameter."""
    if field.kind is FieldKind.PYTHON:
        return [f"  br label %{p}.ask"]
    value, place, out = f"ptr %{p}.value", f"ptr %state, i64 {index}", f"ptr %{p}.to"
    if field.is_pointer:
        call = f"{'pointer' if field.kind is FieldKind.POINTER else 'word'}({value}, {place}, {out})"
    elif field.kind is FieldKind.BOOL:
        call = f"bool({value}, {out})"
    elif field.kind is FieldKind.FLOAT:
        call = f"{'single' if field.size == 4 else 'double'}({value}, {out})"
    elif field.kind is FieldKind.UNSIGNED and field.size == 8:
        call = f"large({value}, {out})"
    else:
        low, high = _range(field)
        call = f"integer({value}, i64 {low}, i64 {high}, i64 {field.size}, {out})"
    return [f"  %{p}.good = call i1 @run.{call}", f"  br i1 %{p}.good, label %p{index + 1}, label %{p}.ask"]


def _range(field: Field) -> tuple[int, int]:
    """Give the smallest and the largest int that a field takes; a word takes those of both signs."""
    bits = 8 * field.size
    low = 0 if field.kind is FieldKind.UNSIGNED else -(1 << bits - 1)
    return low, (1 << bits - 1) - 1 if field.kind is FieldKind.SIGNED else (1 << bits) - 1


def _leave_or_again(count: int) -> list[str]:
    """Read again what machine code read, if a reader of Python was called; the module may be closed by then too."""
    return [
        f"p{count}:",
        "  %called = load i64, ptr %mark",
        "  %before = load i64, ptr %done",
        "  %settled = icmp eq i64 %called, %before",
        "  br i1 %settled, label %look, label %again",
        "again:",
        "  store i64 %called, ptr %done",
        "  br label %p0",
        "look:",
        "  %word.now = load volatile i32, ptr %alive",
        "  %still = icmp eq i32 %word.now, 1",
        "  br i1 %still, label %go, label %hand",
        "go:",
    ]


def _finish(layout: Layout, parameters: Parameters) -> list[str]:
    """Start the kernel with the buffer, or with the address of each parameter in it."""
    lines, each = [], "null"
    if parameters is Parameters.EACH and layout.fields:
        each = "%each"
        for i, field in enumerate(layout.fields):
            lines.append(f"  %each.{i} = getelementptr ptr, ptr %each, i64 {i}")
            lines.append(f"  %each.{i}.to = getelementptr i8, ptr %buffer, i64 {field.offset}")
            lines.append(f"  store ptr %each.{i}.to, ptr %each.{i}")
    call = f"call ptr @run.finish(ptr %state, ptr %buffer, i64 {layout.size}, ptr {each})"
    return [*lines, f"  %answer = {call}", "  ret ptr %answer", "}"]
