"""Barriers of a block and of a cluster.

PTX ISA 9.1: "Parallel Synchronization and Communication Instructions: bar, barrier", "barrier.cluster". The barriers
themselves are native code (``runtime/blocks.c``); ``flow`` decides whether the warp waits as a whole or lane by lane.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.nodes import STATE, WARP_NUMBER
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.ir.program import Op, Operand

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter

__all__ = ["arrive", "has_opened", "named", "put_result", "register", "synchronise"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("bar|barrier", _barrier)


def _barrier(e: WarpEmitter, op: Op) -> None:
    """Wait, or arrive, with all the lanes that are here."""
    b, lanes = e.builder, e.flow.lanes_of(op)
    with contextlib.nullcontext() if op.guard is None else b.when(b.any_lane(lanes), "barrier"):
        if op.form.is_barrier:
            synchronise(e, op, lanes)
        else:
            arrive(e, op, lanes)


def synchronise(e: WarpEmitter, op: Op, lanes: Value) -> None:
    """Arrive with these lanes, which are all that the warp has, and wait until the barrier opens."""
    b = e.builder
    number, generation = arrive(e, op, lanes)
    here = b.word(lanes)
    line = b.integer(op.line, 32)
    if op.scope == "cluster":
        b.call("cujit_cluster_wait", "void", STATE, WARP_NUMBER, generation, line, here)
        return
    b.call("cujit_barrier_wait", "void", STATE, WARP_NUMBER, number, generation, line, here)
    put_result(e, op, number)


def arrive(e: WarpEmitter, op: Op, lanes: Value, waiting: Value | None = None) -> tuple[Value, Value]:
    """Have lanes arrive; the number of the barrier and its generation tell when it opens.

    ``waiting`` are the lanes that will wait here, those that came before included.
    """
    b = e.builder
    if op.scope == "cluster":
        name = "cujit_cluster_arrival" if op.form.is_barrier else "cujit_cluster_arrive"
        word = b.word(lanes if waiting is None else waiting)
        return b.integer(0, 32), b.call(name, "i32", STATE, WARP_NUMBER, word)
    number, threads = named(e, op, lanes)
    holding = b.integer(0, 32)
    word = counted = b.word(lanes)
    if len(_numbers(op)) > 1:
        # A warp counts as 32 threads at a barrier with a count, whatever lanes it has left. Source: PTX ISA 9.1, "bar":
        # "the arrival count is incremented by the warp size (not the number of active threads in the warp)".
        missing = b.any_lane(b.binary("and", e.flow.live(), b.invert(lanes)))
        counted = b.select(missing, word, b.integer(-1, 32))
    if "red" in op.modifiers:
        # Lanes that count and are not there change nothing.
        holding = b.binary("and", b.word(b.vector(e.read(op.sources[-1], "i1"))), word)
        if "and" in op.modifiers:
            holding = b.binary("or", holding, b.binary("xor", word, b.integer(-1, 32)))
    return number, b.call("cujit_barrier_arrive", "i32", STATE, number, threads, counted, holding)


def named(e: WarpEmitter, op: Op, lanes: Value) -> tuple[Value, Value]:
    """Read the number of a block's barrier and the count of threads that it is for (0: all), as scalars."""
    numbers = _numbers(op)
    threads = _scalar(e, numbers[1], lanes) if len(numbers) > 1 else e.builder.integer(0, 32)
    return _scalar(e, numbers[0], lanes), threads


def _numbers(op: Op) -> tuple[Operand, ...]:
    return op.sources[:-1] if "red" in op.modifiers else op.sources


def has_opened(e: WarpEmitter, op: Op, number: Value, generation: Value) -> Value:
    """Tell whether a barrier has opened since lanes arrived in that generation."""
    b = e.builder
    name, which = ("cluster", ()) if op.scope == "cluster" else ("barrier", (number,))
    return b.compare("icmp ne", b.call(f"cujit_{name}_generation", "i32", STATE, *which), generation)


_RESULTS = {"popc": "cujit_barrier_count", "or": "cujit_barrier_any", "and": "cujit_barrier_missing"}


def put_result(e: WarpEmitter, op: Op, number: Value) -> None:
    """Write what a reducing barrier found."""
    if "red" not in op.modifiers:
        return
    b = e.builder
    kind = next(m for m in op.modifiers if m in _RESULTS)
    found = b.call(_RESULTS[kind], "i32", STATE, number)
    if kind != "popc":
        found = b.compare("icmp eq" if kind == "and" else "icmp ne", found, b.integer(0, 32))
    e.put(op, b.vector(found))


def _scalar(e: WarpEmitter, operand: Operand, lanes: Value) -> Value:
    """Read an operand that is the same in all these lanes."""
    value = e.read(operand, "i32")
    return e.builder.extract(value, e.builder.first_lane(lanes)) if value.is_vector else value
