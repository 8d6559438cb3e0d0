"""Blocks once more, for warps whose lanes are all there: without masks.

Such a warp needs none until its lanes part; then it goes on in the blocks with masks, and comes back where all lanes
meet. Whether a comparison of a value that counts up with the lane holds in all lanes or in none is seen from the first
and the last of them.
"""

from __future__ import annotations

from cujit.devices.cpu.analysis.uniformity import Shape
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.control import parts
from cujit.devices.cpu.control.flow import Flow
from cujit.devices.cpu.ir.cfg import Block
from cujit.devices.cpu.ir.program import Op

__all__ = ["flow_of"]

_ALL = Value("splat (i1 true)", "i1", True, True)

# Comparisons that hold in a stretch of lanes from the first on or up to the last, as LLVM has them.
# Source: PTX ISA 9.1, "setp", "Comparisons" (``lo`` to ``hs`` are unsigned).
_ORDERS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def flow_of(e: WarpEmitter) -> Flow:
    """Give an emitter the order of its blocks."""
    return Flow(e, _emit_blocks)


def _emit_blocks(flow: Flow) -> None:
    """Emit all blocks of a kernel; each begins at the label ``whole.<position>``.

    Where lanes may part the blocks with masks are there too; else these need none.
    """
    b, alone = flow.e.builder, not flow.has_whole
    for block in flow.graph.blocks:
        p = flow.position = block.position
        flow.come_to(block)
        if not alone:
            # In a block with masks all lanes turned out to be there.
            b.start(f"whole.in.{p}")
            b.write(f"mask.{p}", Value("zeroinitializer", "i1", True))
            b.jump(f"whole.{p}")
        b.start(f"whole.{p}")
        if not alone and p in flow.twin_sources:
            b.write(f"active.{p}", _ALL)
        flow.e.mask = _ALL
        if part := flow.part_of(block):
            parts.emit_loop(flow.e, block, part)
            b.jump(_place(flow, parts.behind(block)))
            continue
        flow.emit_ops(block)
        _leave(flow, block)


def _leave(flow: Flow, block: Block) -> None:
    b = flow.e.builder
    branch = block.branch
    if branch is None or (branch.guard is None and branch.opcode != "brx"):
        b.jump(_place(flow, block.successors[0]))
    elif branch.opcode == "brx":
        _leave_by_table(flow, block, branch)
    else:
        _leave_by_guard(flow, block, branch)


def _leave_by_table(flow: Flow, block: Block, branch: Op) -> None:
    e, b = flow.e, flow.e.builder
    if len(set(block.successors)) == 1:
        b.jump(_place(flow, block.successors[0]))
        return
    index, guard = e.read(branch.sources[0], "i32"), e.guard(branch)
    if index.is_vector or guard.is_vector:
        flow.leave_by_table(block, branch)
        return
    if branch.guard is not None:
        jump = b.label("table")
        b.branch(guard, jump, _place(flow, block.successors[-1]))
        b.start(jump)
    targets = [_place(flow, s) for s in block.successors[: len(branch.targets)]]
    b.switch(index, enumerate(targets), f"check.{flow.graph.exit}")


def _place(flow: Flow, target: int) -> str:
    return f"check.{target}" if target == flow.graph.exit else f"whole.{target}"


def _leave_by_guard(flow: Flow, block: Block, branch: Op) -> None:
    e, b = flow.e, flow.e.builder
    taken, falls = _place(flow, block.successors[0]), _place(flow, block.successors[-1])
    condition = e.guard(branch)
    if taken == falls:
        b.jump(taken)
        return
    if not condition.is_vector:
        b.branch(condition, taken, falls)
        return
    apart = b.label("apart")
    ends = _at_both_ends(flow, block, branch)
    if ends is not None:
        first, agree = ends
        same = b.label("same")
        b.branch(agree, same, apart)
        b.start(same)
        b.branch(first, taken, falls)
    else:
        word, some = b.word(condition), b.label("some")
        b.branch(b.compare("icmp eq", word, b.integer(-1, 32)), taken, some)
        b.start(some)
        b.branch(b.compare("icmp eq", word, b.integer(0, 32)), falls, apart)
    b.start(apart)
    flow.hand_on(block.successors[0], condition)
    flow.hand_on(block.successors[-1], b.invert(condition))
    b.jump(flow.after(block.position))


def _at_both_ends(flow: Flow, block: Block, branch: Op) -> tuple[Value, Value] | None:
    """Compare for the first and for the last lane: what the first finds, and whether all lanes find the same."""
    op = _comparison(block, branch)
    if op is None:
        return None
    e, b = flow.e, flow.e.builder
    shapes = [e.operand_shape(s) for s in op.sources]
    if any(s.stride is None or s.guarded for s in shapes) or all(s.is_uniform for s in shapes):
        return None
    signed = op.modifiers[1] == "s32" and op.modifiers[0] in ("lt", "le", "gt", "ge")
    low, high = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)
    row = min(s.row for s in shapes)
    agree, found = b.integer(1, 1), []
    for _ in e.each_row(Shape(0, row=row)):
        ends = []
        for source, shape in zip(op.sources, shapes, strict=True):
            base = b.resize(e.read(source, "i32"), 64, signed=signed)
            reach = (shape.stride or 0) * (row - 1)
            last = b.binary("add", base, b.integer(reach, 64)) if reach else base
            if reach:
                order, bound = ("sle", high) if reach > 0 else ("sge", low)
                agree = b.binary("and", agree, b.compare(f"icmp {order}", last, b.integer(bound, 64)))
            ends.append((base, last))
        order = f"icmp s{_ORDERS[op.modifiers[0]]}"
        found += [b.compare(order, ends[0][k], ends[1][k]) for k in (0, 1)]
    for other in found[1:]:
        agree = b.binary("and", agree, b.compare("icmp eq", found[0], other))
    return (b.invert(found[0]) if branch.guard_negated else found[0]), agree


def _comparison(block: Block, branch: Op) -> Op | None:
    """Find the comparison of 32-bit integers in this block that decides its branch, if what it read still stands."""
    for op in reversed(block.ops[:-1]):
        if branch.guard in op.results:
            plain = op.opcode == "setp" and op.guard is None and len(op.results) == 1 and len(op.modifiers) == 2
            good = plain and op.modifiers[0] in _ORDERS and op.modifiers[1] in ("s32", "u32")
            return op if good else None
    return None
