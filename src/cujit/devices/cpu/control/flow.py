"""The control flow of a kernel: masks, branches, and copies of blocks for warps whose lanes are all active.

    @p bra ELSE;                     check.1: branches to body.1 if mask.1 has a lane
    add.u32 x, x, 1;          ->     body.1: adds in the lanes of mask.1, and moves these lanes to mask.3
    bra END;                         check.2: branches to body.2 if mask.2 has a lane …
    ELSE: sub.u32 x, x, 1;           all.0: branches to all.1 if p is true in all lanes, to all.2 if in none;
    END: …                           otherwise adds the lanes to mask.1 and mask.2, and branches to check.1

Every block has a mask of the lanes that wait at the block. Blocks are visited in scan order. A visited block takes its
lanes, runs, and adds them to the masks of its successors. If uniformity analysis shows that no lane can wait in
between, the emitted code branches directly to the successor.

If lanes may diverge, blocks are emitted a second time, without masks, for warps whose lanes are all active. If the
lanes of such a warp diverge, the warp continues in the blocks with masks. It returns when all lanes reconverge.

Lanes may have to wait for other lanes: at a barrier, at a ``.sync`` operation, or in a polling loop. The scan continues
without these lanes. At its end, the scan starts again as long as another scan makes progress. Otherwise, the warp
itself waits: see ``waiting``.
"""

from __future__ import annotations

from cujit.devices.cpu.analysis.uniformity import Shape
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.warp import ALL_LANES, MASK, WarpEmitter
from cujit.devices.cpu.control import strips
from cujit.devices.cpu.control.plan import ORDERS, ControlPlan
from cujit.devices.cpu.control.waiting import NO_LANE, Masks
from cujit.devices.cpu.control.warp_scheduling import resume, yield_warp
from cujit.devices.cpu.ir.cfg import BasicBlock, Loop
from cujit.devices.cpu.ir.program import Op, Operand

_TURNS = 16
"""Turns of a polling loop before others may run."""


class Flow(Masks):
    """An emitter of the blocks of one kernel in scan order, according to a plan."""

    def __init__(self, e: WarpEmitter, plan: ControlPlan) -> None:
        super().__init__(e, plan)
        self._sources = {earlier for earlier in plan.equivalent if earlier is not None}
        self._left: dict[int, str] = {}

    @property
    def takes_turns(self) -> bool:
        """Whether warps without stacks take turns. Each such warp may leave its code and resume the code later."""
        return bool(self.plan.walks.kept) and not self.e.suspends

    def emit(self, first_mask: Value) -> None:
        """Emit the body of a warp; it begins in the current basic block and ends by a jump to ``warp.end``."""
        b, plan, exit_ = self.b, self.plan, f"check.{self.graph.exit}"
        self.e.begin()
        if plan.boundary is not None:
            plan.boundary.lend(self.e)
        if self.takes_turns:
            resume(self.e, plan.walks, [f"active.{p}" for p in self._sources])
        mask = first_mask if plan.boundary is None else plan.boundary.enter(self.e, first_mask)
        if mask.constant and plan.together and not plan.parts and not self.e.counts_lanes:
            b.jump("all.0")
            self._emit_together(alone=True)
            b.start(exit_)
            b.jump("warp.end")
            return
        b.write("mask.0", mask)
        b.write("live", mask)
        b.jump("body.0")
        for block in self.graph.blocks:
            self._emit_block(block)
        if plan.parts:
            self._emit_together()
            self._emit_ways_out()
        b.start(exit_)
        if plan.first_separate == self.graph.exit:
            b.jump("warp.end")
        else:
            self.emit_end_of_scan()

    # -- blocks with masks ---------------------------------------------------------------------------------

    def _emit_block(self, block: BasicBlock) -> None:
        p, after = block.position, self._after(block.position)
        e = self._take_lanes(block, after)
        if block in self.plan.parking:
            self.park(e, block, block.ops[0], after)
        elif any(block in places for places in self.plan.meetings):
            self._leave(self._emit_ops(self.meet_or_gather(e, block, after), block, 1), block)
        elif p in self.plan.strips:
            strips.emit_loop(e, block, self.plan.strips[p])
            self._go(e, block, strips.behind(block))
        else:
            if block in self.plan.gathering:
                e = self.gather(e, block.ops[0], after)
            self._leave(self._emit_ops(e, block), block)
        for loop in _loops_around(block):
            if loop.last == p:
                self._emit_loop_end(loop)

    def _take_lanes(self, block: BasicBlock, after: str) -> WarpEmitter:
        """Emit code that takes the lanes waiting at a block, if any. Return an emitter for these lanes."""
        b, p, earlier = self.b, block.position, self.plan.equivalent[block.position]
        e = self._enter_block(block)
        b.start(f"check.{p}")
        waiting = self.load(f"mask.{p}", MASK)
        if earlier != 0:
            b.branch(b.any_lane(waiting), f"body.{p}", after)
        b.start(f"body.{p}")
        mask = self.load(f"mask.{p}" if earlier is None else f"active.{earlier}", MASK)
        if p in self.plan.wholes:
            every = b.compare("icmp eq", b.word(mask), b.integer(-1, 32))
            b.only_if(every, f"all.in.{p}", "some", holds=False)
        b.write(f"mask.{p}", NO_LANE)
        if p in self._sources:
            b.write(f"active.{p}", mask)
        return e.within(mask=mask)

    def _enter_block(self, block: BasicBlock) -> WarpEmitter:
        """Return the emitter of a block for all lanes."""
        if block.ops:
            self.b.come_to(block.ops[0].line)
        return self.e.within(position=block.position)

    def _emit_ops(self, e: WarpEmitter, block: BasicBlock, first: int = 0) -> WarpEmitter:
        """Emit the operations of a block from index ``first``, except the final branch. Return the emitter for the
        branch.

        At a barrier that ends a region, emit the arrival instead.
        """
        if self.plan.boundary is not None and block.site is not None and block.site.form.is_barrier:
            self.plan.boundary.arrive(e, block)
            return e
        for op in block.ops[first:]:
            if op is not block.branch:
                e = e.emit_op(op)
            self.b.cut_if_long()
        return e

    def _after(self, position: int) -> str:
        """Return the label that is visited after ``position``: the end of a loop that ends there, otherwise the next
        block.
        """
        return _behind(self.graph.blocks[position].loop, position)

    def _emit_loop_end(self, loop: Loop) -> None:
        b = self.b
        b.start(f"again.{loop.head}")
        waiting = self.load(f"mask.{loop.head}", MASK)
        some = b.any_lane(waiting)
        outside = _behind(loop.parent, loop.last)
        if loop.head not in self.plan.polls:
            b.branch(some, f"body.{loop.head}", outside)
            return
        with b.when(some, "left", holds=False):
            b.write(f"stayed.{loop.head}", b.integer(0, 1))
            b.jump(outside)
        self._let_others_run(loop, waiting, outside)

    def _let_others_run(self, loop: Loop, waiting: Value, outside: str) -> None:
        """Let other warps run every few iterations of a polling loop, after the lanes of this warp outside the loop.

        Only the end of the scan shows whether lanes outside the loop can continue. Lanes that entered the loop since
        its last pause count as progress. For example, a warp that leaves a loop, writes, and polls again makes
        progress.
        """
        b, again = self.b, f"body.{loop.head}"
        turns = b.binary("add", self.load("turns", "i32"), b.integer(1, 32))
        b.write("turns", turns)
        some_turns = b.binary("and", turns, b.integer(_TURNS - 1, 32))
        b.only_if(b.compare("icmp eq", some_turns, b.integer(0, 32)), again, "pause")
        moved = b.binary("xor", self.load(f"stayed.{loop.head}", "i1"), b.integer(1, 1))
        b.write(f"stayed.{loop.head}", b.integer(1, 1))
        e = self.e.within(position=loop.head)
        if not e.reconverges:
            elsewhere = b.any_lane(b.binary("and", e.live(), b.invert(waiting)))
            with b.when(elsewhere, "skip"):
                b.write(f"polling.{loop.head}", waiting)
                b.write("progress", b.binary("or", self.load("progress", "i1"), moved))
                b.jump(outside)
        line, at = self.plan.polls[loop.head]
        self.spin(b.integer(line, 32), waiting, b.integer(at, 32), moved)
        b.jump(again)

    # -- leaving a block ---------------------------------------------------------------------------------

    def _leave(self, e: WarpEmitter, block: BasicBlock) -> None:
        branch = block.branch
        if branch is not None:
            e.before(branch)
        if branch is None or (branch.guard is None and branch.opcode != "brx"):
            self._go(e, block, block.successors[0])
        elif branch.opcode == "brx":
            self._leave_by_table(e, block, branch)
        else:
            self._leave_by_guard(e, block, e.guard(branch))

    def _leave_by_guard(self, e: WarpEmitter, block: BasicBlock, condition: Value) -> None:
        b, taken, falls = self.b, block.successors[0], block.successors[-1]
        if not condition.lanes:
            b.either(condition, lambda: self._go(e, block, taken), lambda: self._go(e, block, falls), "taken")
            return
        goes = b.binary("and", e.mask, condition)
        stays = b.binary("and", e.mask, b.invert(condition))
        self.transfer_lanes(e, taken, goes)
        self.transfer_lanes(e, falls, stays)
        b.jump(self._after(block.position))

    def _leave_by_table(self, e: WarpEmitter, block: BasicBlock, branch: Op) -> None:
        """Hand the lanes of the current block on to the targets of a ``brx``."""
        b = self.b
        index = e.read(branch.sources[0], "i32")
        left = e.mask
        if branch.guard is not None:
            guard = b.vector(e.guard(branch))
            self.transfer_lanes(e, block.successors[-1], b.binary("and", left, b.invert(guard)))
            left = b.binary("and", left, guard)
        for k, target in enumerate(block.successors[: len(branch.targets)]):
            here = b.compare("icmp eq", b.vector(index), b.integer(k, 32))
            self.transfer_lanes(e, target, b.binary("and", left, here))
        b.jump(self._after(block.position))

    def _go(self, e: WarpEmitter, block: BasicBlock, target: int) -> None:
        """Transfer all lanes of the block to one target. Branch directly to the target if no lane can
        wait in between.
        """
        self.transfer_lanes(e, target, e.mask)
        if self._way_is_free(block, target):
            label = f"check.{target}" if target == self.graph.exit else f"body.{target}"
        else:
            label = self._after(block.position)
        self.b.jump(label)

    def _way_is_free(self, block: BasicBlock, target: int) -> bool:
        p, loops = block.position, _loops_around(block)
        passed = [*range(p + 1, target), *(loop.head for loop in loops if target not in loop)]
        if target <= p:
            last = next((loop.last for loop in loops if loop.head == target), None)
            if last is None or target in self.plan.polls:
                return False
            passed += [*range(p + 1, last + 1), target]
        return not any(self.e.divergence.inactive[p] >> k & 1 for k in passed)

    # -- blocks for all lanes ------------------------------------------------------------------------------

    def _emit_together(self, *, alone: bool = False) -> None:
        """Emit all blocks without masks, each at the label ``all.POSITION``.

        ``alone`` is whether the blocks with masks are omitted.
        """
        b = self.b
        for p, block in self.plan.together.items():
            e = self._enter_block(block)
            if not alone:
                # In a block with masks all lanes turned out to be there.
                b.start(f"all.in.{p}")
                b.write(f"mask.{p}", NO_LANE)
            if p in self.plan.walks.kept:
                b.jump(f"all.{p}")
                b.start(f"all.again.{p}")
                yield_warp(self.e, self.plan.walks, p)
            b.start(f"all.{p}")
            if not alone and p in self._sources:
                b.write(f"active.{p}", ALL_LANES)
            if p in self.plan.strips:
                strips.emit_loop(e, block, self.plan.strips[p])
                b.jump(self._label(strips.behind(block), p))
            else:
                self._leave_together(self._emit_ops(e, block), block)

    def _label(self, target: int, here: int) -> str:
        """Return the label at which a warp whose lanes are all active continues when it branches from ``here`` to
        ``target``.
        """
        if target in self.plan.walks.kept and target <= here:
            return f"all.again.{target}"
        if target in self.plan.together:
            return f"all.{target}"
        if not self.e.counts_lanes:
            return f"check.{target}"
        return self._left.setdefault(target, f"all.out.{target}")

    def _emit_ways_out(self) -> None:
        """Emit where warps continue in the blocks with masks, if there are no blocks for lanes that are all active."""
        for target, label in self._left.items():
            self.b.start(label)
            self.transfer_lanes(self.e, target, ALL_LANES)
            self.b.jump(f"check.{target}")

    def _leave_together(self, e: WarpEmitter, block: BasicBlock) -> None:
        b, branch = self.b, block.branch
        ways = [self._label(target, block.position) for target in block.successors]
        if branch is not None:
            e.before(branch)
        if branch is None or len(set(ways)) == 1:
            b.jump(ways[0])
        elif branch.opcode == "brx":
            index, guard = e.read(branch.sources[0], "i32"), e.guard(branch)
            if index.lanes or guard.lanes:
                self._leave_by_table(e, block, branch)
                return
            if branch.guard is not None:
                b.only_if(guard, ways[-1], "table")
            b.switch(index, enumerate(ways[: len(branch.targets)]), f"check.{self.graph.exit}")
        else:
            self._part(e, block, branch, *ways)

    def _part(self, e: WarpEmitter, block: BasicBlock, branch: Op, taken: str, falls: str) -> None:
        """Emit a conditional branch of a warp whose lanes are all active. Lanes that diverge continue in the blocks
        with masks.
        """
        b, condition = self.b, e.guard(branch)
        if not condition.lanes:
            b.branch(condition, taken, falls)
            return
        if block.position in self.plan.ends:
            first, agree = _at_both_ends(e, self.plan.ends[block.position])
            first = b.invert(first) if branch.guard_negated else first
            with b.when(agree, "same"):
                b.branch(first, taken, falls)
        else:
            word = b.word(condition)
            b.only_if(b.compare("icmp eq", word, b.integer(-1, 32)), taken, "some", holds=False)
            b.only_if(b.compare("icmp eq", word, b.integer(0, 32)), falls, "apart", holds=False)
        self.transfer_lanes(e, block.successors[0], condition)
        self.transfer_lanes(e, block.successors[-1], b.invert(condition))
        b.jump(self._after(block.position))


def _at_both_ends(e: WarpEmitter, op: Op) -> tuple[Value, Value]:
    """Emit a comparison for the first and last lane of each row.

    Return the result of the first lane, and whether all lanes have the same result. An operand that wraps counts as a
    difference.
    """
    b, found = e.builder, []
    agree = b.integer(1, 1)
    row = min(e.operand_shape(s).row for s in op.sources)
    for first_lane in e.each_row(Shape(0, row=row)):
        ends = []
        for source in op.sources:
            base, last, holds = _ends(first_lane, op, source, row)
            agree = agree if holds is None else b.binary("and", agree, holds)
            ends.append((base, last))
        found += [b.compare(f"icmp s{ORDERS[op.modifiers[0]]}", ends[0][k], ends[1][k]) for k in (0, 1)]
    for other in found[1:]:
        agree = b.binary("and", agree, b.compare("icmp eq", found[0], other))
    return found[0], agree


def _ends(e: WarpEmitter, op: Op, source: Operand, row: int) -> tuple[Value, Value, Value | None]:
    """Return a compared operand in the first and last lane of a row, and whether it does not wrap in between.

    The third value is None if the operand never wraps. The values are wider than the operands.
    """
    b, shape = e.builder, e.operand_shape(source)
    signed = op.modifiers[1] == "s32" and op.modifiers[0] in ("lt", "le", "gt", "ge")
    low, high = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)
    base = b.resize(e.read(source, "i32"), 64, signed=signed)
    reach = (shape.stride or 0) * (row - 1)
    last = b.binary("add", base, b.integer(reach, 64)) if reach else base
    order, bound = ("sle", high) if reach > 0 else ("sge", low)
    return base, last, None if shape.never_wraps else b.compare(f"icmp {order}", last, b.integer(bound, 64))


def _behind(loop: Loop | None, position: int) -> str:
    """Return the label that is visited after a position: the end of the loop if the loop ends there, otherwise the next
    block.
    """
    return f"again.{loop.head}" if loop is not None and loop.last == position else f"check.{position + 1}"


def _loops_around(block: BasicBlock) -> list[Loop]:
    """List the loops that a block is in, the innermost first."""
    found, loop = [], block.loop
    while loop is not None:
        found.append(loop)
        loop = loop.parent
    return found
