"""Asynchronous copies, which are queued when issued and done when the program waits for them.

    cp.async.cg.shared.global [s], [g], 16;   ->    an entry in the warp's queue, with the lanes' addresses
    cp.async.commit_group;                          a mark in the queue
    cp.async.wait_group 1;                          other warps run; all before the second-to-last mark is done

``runtime/pending.c`` implements the queues. A warp without a stack cannot let other warps run while it waits. If the
warp next reaches a barrier or its end, without an access before that, its copies are done there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.nodes import STATE, WARP_NUMBER
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.cfg import BasicBlock
from cujit.devices.cpu.ir.program import IntConstant, Op
from cujit.devices.cpu.native.structures import ALL_COPIES
from cujit.formats.ptx.isa.semantics import Effect

NOTHING = Value("null", "ptr")


def own_queue(e: WarpEmitter) -> list[Value]:
    """List the values that identify a warp's queue to native code.

    The values are the state of the block (or null), the shared memory of the block, and the warp.
    """
    return [STATE if e.suspends else NOTHING, Value("%shared", "ptr"), WARP_NUMBER]


def lane_queue(e: WarpEmitter, op: Op) -> list[Value]:
    """List the same for the function of a lane, with its bit and the line of the operation."""
    b = e.builder
    return [*own_queue(e), b.lanes([1 << k for k in range(WARP)], 32), b.integer(op.line, 32)]


def passing(e: WarpEmitter) -> Value:
    """Return a pointer to the function that lets other warps run. Return null if the warp has no stack."""
    if not e.suspends:
        return NOTHING
    e.builder.module.declared.setdefault("cujit_pass", "declare void @cujit_pass(ptr, i32)")
    return Value("@cujit_pass", "ptr")


def commit(e: WarpEmitter, op: Op) -> None:
    """``cp.async.commit_group`` and ``cp.async.bulk.commit_group``."""
    name = "cujit_pending_bulk_commit" if "bulk" in op.modifiers else "cujit_pending_commit"
    e.builder.call(name, "void", *own_queue(e), _lanes(e, op))


def wait(e: WarpEmitter, op: Op) -> None:
    """``cp.async.wait_group N`` and ``wait_all``; ``cp.async.bulk.wait_group{.read} N``."""
    b, count = e.builder, ALL_COPIES
    if "wait_group" in op.modifiers:
        number = op.sources[0]
        assert isinstance(number, IntConstant)
        count = number.value & ALL_COPIES
    operands = [*own_queue(e), _lanes(e, op), b.integer(count, 32)]
    late = b.integer(not e.suspends and _ends_unseen(e, op), 32)
    if "bulk" in op.modifiers:
        operands.append(b.integer("read" in op.modifiers, 32))
        b.call("cujit_pending_bulk_wait", "void", *operands, passing(e), late)
    else:
        b.call("cujit_pending_wait", "void", *operands, passing(e), late)


def _lanes(e: WarpEmitter, op: Op) -> Value:
    return e.builder.word(e.lanes(op))


def _ends_unseen(e: WarpEmitter, op: Op) -> bool:
    """Return whether a warp accesses nothing between a wait and the next barrier of all warps, or its end.

    Copies other than bulk copies write only shared memory.
    """
    is_unseen = _is_still if "bulk" in op.modifiers else _is_unseen
    blocks = e.graph.blocks
    here = blocks[e.position]
    if here.ops.index(op) < _last_seen(here, is_unseen):
        return False
    passed, left = set[int](), list(here.successors)
    while left:
        if len(passed) > _MOST_BLOCKS:
            return False
        position = left.pop()
        if position in passed or position == e.graph.exit:
            continue
        passed.add(position)
        block = blocks[position]
        if block.site is not None and block.site.form.is_barrier:
            continue
        if _last_seen(block, is_unseen) >= 0:
            return False
        left += block.successors
    return True


_MOST_BLOCKS = 1_000
"""Blocks that are looked at for one wait; if there are more, copies are done where they are awaited."""

_LAST_SEEN: weakref.WeakKeyDictionary[BasicBlock, dict[Callable[[Op], bool], int]] = weakref.WeakKeyDictionary()


def _last_seen(block: BasicBlock, is_unseen: Callable[[Op], bool]) -> int:
    """Return the index of the last operation in a block for which ``is_unseen`` is false, or -1 if there is none.

    The index is cached, because each wait needs it.
    """
    known = _LAST_SEEN.setdefault(block, {})
    if is_unseen not in known:
        known[is_unseen] = max((k for k, op in enumerate(block.ops) if not is_unseen(op)), default=-1)
    return known[is_unseen]


def _is_unseen(op: Op) -> bool:
    """Return whether an operation does not access shared memory immediately. Small copies access it only when done."""
    if op.opcode in ("ld", "st") and op.space == "global" and not op.form.is_strong:
        return True
    return _is_still(op) or (op.opcode == "cp" and "bulk" not in op.modifiers)


def _is_still(op: Op) -> bool:
    """Return whether an operation accesses no memory that may change."""
    if op.opcode == "ld":
        return op.space in ("const", "param")
    if op.opcode == "cp":
        return "commit_group" in op.modifiers or "wait_group" in op.modifiers
    return not op.form.is_site and op.form.meaning.effect in (Effect.PURE, Effect.CONTROLS, Effect.SIGNALS)
