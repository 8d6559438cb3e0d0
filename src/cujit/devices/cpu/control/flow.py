"""The order of blocks: masks, jumps, and blocks for warps whose lanes are all active.

    @p bra ELSE;                     check.1: goes to body.1 where mask.1 has a lane
    add.u32 x, x, 1;          ->     body.1: adds in the lanes of mask.1, and joins them to mask.3
    bra END;                         check.2: goes to body.2 where mask.2 has a lane …
    ELSE: sub.u32 x, x, 1;           all.0: goes to all.1 where p holds in all lanes, to all.2 where it holds in none;
    END: …                           else joins them to mask.1 and mask.2, and goes to check.1

Every block has a mask of the lanes that wait at it. Blocks are visited in scan order; a visited block takes its
lanes, runs, and hands them on. Where uniformity shows that no lane can wait in between, a jump is a plain jump.

Where lanes may part, blocks are emitted a second time, without masks: for warps whose lanes are all active. Such a warp
goes on in the blocks with masks when its lanes part, and comes back where all of them meet.

Lanes that have to wait for others (at a barrier, at a ``.sync`` operation, in a loop that polls) are left behind and
the scan goes on; at the end it begins anew while that helps. When it does not, the warp itself waits: ``waiting``.
"""

from __future__ import annotations

from cujit.devices.cpu.analysis.dataflow import polling_loops
from cujit.devices.cpu.analysis.uniformity import Shape, is_divergent_branch
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.nodes import STATE, WARP_NUMBER
from cujit.devices.cpu.codegen.warp import ALL_LANES, MASK, WarpEmitter
from cujit.devices.cpu.control import strips
from cujit.devices.cpu.control.waiting import NO_LANE, Masks
from cujit.devices.cpu.ir.cfg import Block, Loop
from cujit.devices.cpu.ir.program import Op

__all__ = ["Flow"]

_LONGEST_TWICE = 1500
"""Operations of a kernel whose blocks are emitted twice: with masks, and for warps whose lanes are all active."""

_TURNS = 16
"""Turns of a polling loop before others may run."""

# Comparisons that hold in a stretch of lanes from the first on or up to the last, as LLVM has them.
# Source: PTX ISA 9.1, "setp", "Comparisons" (``lo`` to ``hs`` are unsigned).
_ORDERS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


class Flow(Masks):
    """Emits the blocks of one kernel in their order."""

    def __init__(self, e: WarpEmitter) -> None:
        super().__init__(e)
        self._polls = {loop.head for loop in polling_loops(e.graph)}
        self._sources = {earlier for earlier in self.equivalent if earlier is not None}
        parts = any(is_divergent_branch(block, self.divergence.shapes) for block in e.graph.blocks)
        waits = self.counts_lanes or self.suspends or e.watched
        self._never_parts = not (waits or parts)
        self._has_all_active = parts and not waits and len(e.graph.ops) <= _LONGEST_TWICE

    def emit(self, first_mask: Value) -> None:
        """Emit the blocks; the code begins in the current basic block and ends by a jump to ``warp.end``."""
        b = self.e.builder
        if first_mask.constant and self._never_parts:
            b.jump("all.0")
            self._emit_all_active(alone=True)
            b.start(f"check.{self.graph.exit}")
            b.jump("warp.end")
            return
        b.write("mask.0", first_mask)
        b.write("live", first_mask)
        b.jump("body.0")
        for block in self.graph.blocks:
            self._emit_block(block)
        if self._has_all_active:
            self._emit_all_active()
        b.start(f"check.{self.graph.exit}")
        if self.first_separate == self.graph.exit:
            b.jump("warp.end")
        else:
            self.emit_end_of_scan()

    # -- blocks with masks ---------------------------------------------------------------------------------

    def _emit_block(self, block: Block) -> None:
        e, b, p, after = self.e, self.e.builder, block.position, self._after(block.position)
        self._come_to(block)
        earlier = self.equivalent[p]
        b.start(f"check.{p}")
        waiting = self.load(f"mask.{p}", MASK)
        if earlier != 0:
            b.branch(b.any_lane(waiting), f"body.{p}", after)
        b.start(f"body.{p}")
        e.mask = self.load(f"mask.{p}" if earlier is None else f"active.{earlier}", MASK)
        # All lanes may be together again at a block, or begin at it together.
        if self._has_all_active and not self.divergence.inactive[p] and len(block.predecessors) != 1:
            every = b.compare("icmp eq", b.word(e.mask), b.integer(-1, 32))
            b.only_if(every, f"all.in.{p}", "some", holds=False)
        b.write(f"mask.{p}", NO_LANE)
        if p in self._sources:
            b.write(f"active.{p}", e.mask)
        if block.site is not None and block in self.parking:
            self.park(block, block.site, after)
        elif any(block in places for places in self.meetings):
            self.meet_or_gather(block, after)
            self._emit_ops(block, 1)
            self._leave(block)
        elif strip := self._strip_of(block):
            strips.emit_loop(self.e, block, strip)
            self._go(block, strips.behind(block))
        else:
            if block.site is not None and not self.reconverges(p) and block.site.form.needs_others:
                self.gather(block.site, after)
            self._emit_ops(block)
            self._leave(block)
        for loop in _loops_around(block):
            if loop.last == p:
                self._emit_loop_end(loop)

    def _come_to(self, block: Block) -> None:
        """Say that what follows is of a block."""
        self.position = block.position
        if block.ops:
            self.e.builder.come_to(block.ops[0].line)

    def _strip_of(self, block: Block) -> strips.Strip | None:
        """Find out whether a block is a loop that is run for some of the lanes after the other, and how."""
        polls = block.position in self._polls or not self.reconverges(block.position)
        return None if polls else strips.find_strip(self.e, block)

    def _emit_ops(self, block: Block, first: int = 0) -> None:
        """Emit what a block does, from an operation on, but for the branch at its end."""
        if self.e.boundary is not None and block.site is not None and block.site.form.is_barrier:
            self.e.boundary.arrive(self.e, block)
            return
        for op in block.ops[first:]:
            if op is not block.branch:
                self.e.emit_op(op)
        self.e.emit_sunk()

    def _after(self, position: int) -> str:
        """Label of what is visited after ``position``: the ends of the loops that end there, or the next block."""
        return _behind(self.graph.blocks[position].loop, position)

    def _emit_loop_end(self, loop: Loop) -> None:
        b = self.e.builder
        b.start(f"again.{loop.head}")
        waiting = self.load(f"mask.{loop.head}", MASK)
        some = b.any_lane(waiting)
        outside = _behind(loop.parent, loop.last)
        if loop.head not in self._polls:
            b.branch(some, f"body.{loop.head}", outside)
            return
        b.only_if(some, outside, "poll")
        self._let_others_run(loop, waiting, outside)

    def _let_others_run(self, loop: Loop, waiting: Value, outside: str) -> None:
        """Every few turns of a polling loop, let other warps run, and lanes of this one that have left the loop."""
        b, again = self.e.builder, f"body.{loop.head}"
        turns = b.binary("add", self.load("turns", "i32"), b.integer(1, 32))
        b.write("turns", turns)
        some_turns = b.binary("and", turns, b.integer(_TURNS - 1, 32))
        b.only_if(b.compare("icmp eq", some_turns, b.integer(0, 32)), again, "pause")
        # The loop is known by the operation which reads anew, if there is one.
        ops = [op for block in self.graph.blocks[loop.head : loop.last + 1] for op in block.ops]
        line = next((op.line for op in ops if op.form.is_poll), ops[-1].line)
        b.call("cujit_spin", "void", STATE, WARP_NUMBER, b.integer(line, 32), b.word(waiting))
        if self.reconverges(loop.head):
            b.jump(again)
            return
        b.only_if(b.any_lane(b.binary("and", self.live(), b.invert(waiting))), again, "skip")
        b.write("progress", b.integer(1, 1))
        b.jump(outside)

    # -- leaving a block ---------------------------------------------------------------------------------

    def _leave(self, block: Block) -> None:
        branch = block.branch
        if branch is not None:
            self.e.before(branch)
        if branch is None or (branch.guard is None and branch.opcode != "brx"):
            self._go(block, block.successors[0])
        elif branch.opcode == "brx":
            self._leave_by_table(block, branch)
        else:
            self._leave_by_guard(block, self.e.guard(branch))

    def _leave_by_guard(self, block: Block, condition: Value) -> None:
        b, mask, taken, falls = self.e.builder, self.e.mask, block.successors[0], block.successors[-1]
        if not condition.lanes:
            b.either(condition, lambda: self._go(block, taken), lambda: self._go(block, falls), "taken")
            return
        goes = b.binary("and", mask, condition)
        stays = b.binary("and", mask, b.invert(condition))
        self.hand_on(taken, goes)
        self.hand_on(falls, stays)
        b.jump(self._after(block.position))

    def _leave_by_table(self, block: Block, branch: Op) -> None:
        """Hand the lanes of the current block on to the targets of a ``brx``."""
        e, b = self.e, self.e.builder
        index = e.read(branch.sources[0], "i32")
        left = e.mask
        if branch.guard is not None:
            guard = b.vector(e.guard(branch))
            self.hand_on(block.successors[-1], b.binary("and", left, b.invert(guard)))
            left = b.binary("and", left, guard)
        for k, target in enumerate(block.successors[: len(branch.targets)]):
            here = b.compare("icmp eq", b.vector(index), b.integer(k, 32))
            self.hand_on(target, b.binary("and", left, here))
        b.jump(self._after(block.position))

    def _go(self, block: Block, target: int) -> None:
        """Send all lanes of the block to one place, straight there if no lane can wait on the way."""
        b = self.e.builder
        self.hand_on(target, self.e.mask)
        if self._way_is_free(block, target):
            label = f"check.{target}" if target == self.graph.exit else f"body.{target}"
        else:
            label = self._after(block.position)
        b.jump(label)

    def _way_is_free(self, block: Block, target: int) -> bool:
        p, loops = block.position, _loops_around(block)
        passed = [*range(p + 1, target), *(loop.head for loop in loops if target not in loop)]
        if target <= p:
            last = next((loop.last for loop in loops if loop.head == target), None)
            if last is None or target in self._polls:
                return False
            passed += [*range(p + 1, last + 1), target]
        return not any(self.divergence.inactive[p] >> k & 1 for k in passed)

    # -- blocks for all lanes ------------------------------------------------------------------------------

    def _emit_all_active(self, *, alone: bool = False) -> None:
        """Emit all blocks without masks, each at the label ``all.POSITION``: beside those with masks, or ``alone``."""
        b = self.e.builder
        for block in self.graph.blocks:
            p = block.position
            self._come_to(block)
            if not alone:
                # In a block with masks all lanes turned out to be there.
                b.start(f"all.in.{p}")
                b.write(f"mask.{p}", NO_LANE)
            b.start(f"all.{p}")
            if not alone and p in self._sources:
                b.write(f"active.{p}", ALL_LANES)
            self.e.mask = ALL_LANES
            if strip := self._strip_of(block):
                strips.emit_loop(self.e, block, strip)
                b.jump(self._all_active(strips.behind(block)))
            else:
                self._emit_ops(block)
                self._leave_all_active(block)

    def _all_active(self, target: int) -> str:
        return f"check.{target}" if target == self.graph.exit else f"all.{target}"

    def _leave_all_active(self, block: Block) -> None:
        e, b, branch, ways = self.e, self.e.builder, block.branch, [*map(self._all_active, block.successors)]
        if branch is None or len(set(ways)) == 1:
            b.jump(ways[0])
        elif branch.opcode == "brx":
            index, guard = e.read(branch.sources[0], "i32"), e.guard(branch)
            if index.lanes or guard.lanes:
                self._leave_by_table(block, branch)
                return
            if branch.guard is not None:
                b.only_if(guard, ways[-1], "table")
            b.switch(index, enumerate(ways[: len(branch.targets)]), f"check.{self.graph.exit}")
        else:
            self._part(block, branch, e.guard(branch), *ways)

    def _part(self, block: Block, branch: Op, condition: Value, taken: str, falls: str) -> None:
        """Go on together where a condition is the same in all lanes; else in the blocks with masks."""
        b = self.e.builder
        if not condition.lanes:
            b.branch(condition, taken, falls)
            return
        ends = self._at_both_ends(block, branch)
        if ends is not None:
            first, agree = ends
            with b.when(agree, "same"):
                b.branch(first, taken, falls)
        else:
            word = b.word(condition)
            b.only_if(b.compare("icmp eq", word, b.integer(-1, 32)), taken, "some", holds=False)
            b.only_if(b.compare("icmp eq", word, b.integer(0, 32)), falls, "apart", holds=False)
        self.hand_on(block.successors[0], condition)
        self.hand_on(block.successors[-1], b.invert(condition))
        b.jump(self._after(block.position))

    def _at_both_ends(self, block: Block, branch: Op) -> tuple[Value, Value] | None:
        """Compare for the first and for the last lane: what the first finds, and whether all lanes find the same."""
        op = _comparison(block, branch)
        if op is None:
            return None
        e, b = self.e, self.e.builder
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
                if not shape.never_wraps:
                    order, bound = ("sle", high) if reach > 0 else ("sge", low)
                    agree = b.binary("and", agree, b.compare(f"icmp {order}", last, b.integer(bound, 64)))
                ends.append((base, last))
            order = f"icmp s{_ORDERS[op.modifiers[0]]}"
            found += [b.compare(order, ends[0][k], ends[1][k]) for k in (0, 1)]
        for other in found[1:]:
            agree = b.binary("and", agree, b.compare("icmp eq", found[0], other))
        return (b.invert(found[0]) if branch.guard_negated else found[0]), agree


def _behind(loop: Loop | None, position: int) -> str:
    """Label of what is visited after a position inside a loop, or inside none: the loop's end, or the next block."""
    return f"again.{loop.head}" if loop is not None and loop.last == position else f"check.{position + 1}"


def _loops_around(block: Block) -> list[Loop]:
    """List the loops that a block is in, the innermost first."""
    found, loop = [], block.loop
    while loop is not None:
        found.append(loop)
        loop = loop.parent
    return found


def _comparison(block: Block, branch: Op) -> Op | None:
    """Find the comparison of 32-bit integers in this block that decides its branch, if what it read still stands."""
    written = 0
    for op in reversed(block.ops[:-1]):
        if branch.guard in op.results:
            plain = op.opcode == "setp" and op.guard is None and len(op.results) == 1 and len(op.modifiers) == 2
            good = plain and op.modifiers[0] in _ORDERS and op.modifiers[1] in ("s32", "u32")
            return op if good and not op.reads & written else None
        written |= op.writes
    return None
