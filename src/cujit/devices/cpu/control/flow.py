"""The order of blocks: masks, jumps, and lanes that wait.

Every block has a mask of the lanes that wait at it. Blocks are visited in scan order; a visited block takes its
lanes, runs, and hands them on. Where the shapes show that no lane can wait in between, a jump is a plain jump.

Lanes that have to wait for others (at a barrier, at a ``.sync`` operation, in a loop that polls) are left behind and
the scan goes on; at the end it begins anew while that helps. When it does not, the warp itself waits.
"""

from __future__ import annotations

from collections.abc import Callable

from cujit.devices.cpu.analysis.dataflow import control_equivalent
from cujit.devices.cpu.analysis.progress import polling_loops, same_operations
from cujit.devices.cpu.analysis.uniformity import is_divergent_branch
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.names import STATE, WARP_NUMBER
from cujit.devices.cpu.codegen.warp import MASK, WarpEmitter
from cujit.devices.cpu.control import apart, meetings, parts
from cujit.devices.cpu.instructions import barriers, warpwide
from cujit.devices.cpu.ir.cfg import Block, Loop
from cujit.devices.cpu.ir.program import Op

__all__ = ["Flow"]

_LONGEST_TWICE = 1500
"""Operations of a kernel whose blocks are emitted twice: with masks, and for warps whose lanes are all there."""

_TURNS = 16
"""Turns of a polling loop before others may run."""


class Flow:
    """Emits the blocks of one kernel in their order.

    ``suspends`` tells that every warp has a stack of its own, and ``%state`` is its block. ``emit_whole`` emits the
    blocks without masks (``whole.py``).
    """

    def __init__(self, e: WarpEmitter, emit_whole: Callable[[Flow], None]) -> None:
        self.e = e
        self._emit_whole = emit_whole
        self.graph = e.graph
        self.divergence = e.divergence
        self.suspends = (e.body.suspends or e.is_function) and e.passage is None
        self.position = 0
        """Where the block that is being emitted stands."""
        self._polls = {loop.head for loop in polling_loops(e.graph)}
        loose = self.divergence.loose
        self._first_loose = (loose & -loose).bit_length() - 1 if loose else None
        twins = in_graph = control_equivalent(e.graph)
        if self._first_loose is not None:
            # Behind the first loose position no two blocks need to have the same lanes.
            twins = [t if p < self._first_loose else None for p, t in enumerate(twins)]
        if e.program.called:
            twins = [None] * len(twins)  # lanes may exit in a function
        self._twins = twins
        self.twin_sources = {t for t in twins if t is not None}
        loose_sites = [b for b in e.graph.blocks if b.site and self.is_loose(b.position)]
        self.has_whole = self._wants_whole()
        self._parking = [b for b in loose_sites if b.site and b.site.form.is_barrier]
        self._gathering = [b for b in loose_sites if b.site and not b.site.form.is_barrier and b.site.form.needs_others]
        self._meetings = meetings.meetings(e, same_operations(loose_sites, in_graph))

    def is_loose(self, position: int) -> bool:
        """Tell whether lanes pass a position at different times, whatever the shapes."""
        return bool(self.divergence.loose >> position & 1)

    @property
    def counts_lanes(self) -> bool:
        """Whether ``%live`` is kept: the lanes that have not exited."""
        return self.suspends or bool(self.divergence.loose)

    # -- the whole ---------------------------------------------------------------------------------------

    def emit(self, first_mask: Value) -> None:
        """Emit the blocks; the code begins in the current basic block and ends by a jump to ``warp.end``."""
        b = self.e.builder
        if first_mask.constant and self._stays_whole():
            b.jump("whole.0")
            self._emit_whole(self)
            b.start(f"check.{self.graph.exit}")
            b.jump("warp.end")
            return
        b.write("mask.0", first_mask)
        b.write("live", first_mask)
        b.jump("body.0")
        for block in self.graph.blocks:
            self._emit_block(block)
        if self.has_whole:
            self._emit_whole(self)
        b.start(f"check.{self.graph.exit}")
        if self._first_loose is None:
            b.jump("warp.end")
        else:
            self._emit_end_of_scan(self._first_loose)

    def load(self, name: str, type_: str) -> Value:
        """Read one of the variables of the scan."""
        return self.e.builder.read(name, "i1" if type_ == MASK else type_, vector=type_ == MASK)

    def live(self) -> Value:
        """Read the lanes that have not exited; without early exits those that began."""
        return self.load("live", MASK) if self.counts_lanes else self.e.mask

    def note_progress(self) -> None:
        """Have the blocks scanned once more: lanes have left, whom others need not wait for any longer."""
        if self.divergence.loose:
            self.e.builder.write("progress", self.e.builder.integer(1, 1))

    def _emit_block(self, block: Block) -> None:
        e, b, p = self.e, self.e.builder, block.position
        self.position = p
        self.come_to(block)
        twin = self._twins[p]
        b.start(f"check.{p}")
        waiting = self.load(f"mask.{p}", MASK)
        if twin != 0:
            b.branch(b.any_lane(waiting), f"body.{p}", self.after(p))
        else:
            b.jump(f"body.{p}")
        b.start(f"body.{p}")
        e.mask = self.load(f"mask.{p}" if twin is None else f"active.{twin}", MASK)
        if self.has_whole and self._may_be_whole(block):
            some = b.label("part")
            every = b.compare("icmp eq", b.word(e.mask), b.integer(-1, 32))
            b.branch(every, f"whole.in.{p}", some)
            b.start(some)
        b.write(f"mask.{p}", Value("zeroinitializer", "i1", True))
        if p in self.twin_sources:
            b.write(f"active.{p}", e.mask)
        if block in self._parking:
            assert block.site is not None
            self._park(block, block.site)
        elif any(block in places for places in self._meetings):
            self._meet_or_gather(block)
            self.emit_ops(block, 1)
            self._leave(block)
        elif part := self.part_of(block):
            parts.emit_loop(self.e, block, part)
            self._go(block, parts.behind(block))
        else:
            if block.site is not None and self.is_loose(p) and block.site.form.needs_others:
                self._gather(block.site)
            self.emit_ops(block)
            self._leave(block)
        loop = block.loop
        while loop is not None and loop.last == p:
            self._emit_loop_end(loop)
            loop = loop.parent

    def come_to(self, block: Block) -> None:
        """Say that what follows is of a block."""
        if block.ops:
            self.e.builder.come_to(block.ops[0].line)

    def part_of(self, block: Block) -> parts.Part | None:
        """Find out whether a block is a loop that is run for some of the lanes after the other, and how."""
        polls = block.position in self._polls or self.is_loose(block.position)
        return None if polls else parts.find_part(self.e, block)

    def emit_ops(self, block: Block, first: int = 0) -> None:
        """Emit what a block does, from an operation on, but for the branch at its end."""
        if self.e.passage is not None and block.site is not None and block.site.form.is_barrier:
            self.e.passage.arrive(self.e, block)
            return
        for op in block.ops[first:]:
            if op is not block.branch:
                self.e.emit_op(op)
        self.e.emit_late()

    def _stays_whole(self) -> bool:
        """Whether lanes that begin together never part, so that no masks are needed."""
        return not (self.counts_lanes or self.suspends or self.e.watched or self._parts())

    def _parts(self) -> bool:
        return any(is_divergent_branch(block, self.divergence.shapes) for block in self.graph.blocks)

    def _wants_whole(self) -> bool:
        """Whether to emit every block a second time, for all lanes together: where lanes part, and it is not long."""
        if self.counts_lanes or self.suspends or self.e.watched or not self._parts():
            return False
        return sum(len(block.ops) for block in self.graph.blocks) <= _LONGEST_TWICE

    def _may_be_whole(self, block: Block) -> bool:
        """Whether all lanes may be together again at a block, or begin at it together."""
        return not self.divergence.waiting[block.position] and len(block.predecessors) != 1

    def after(self, position: int) -> str:
        """Label of what is visited after ``position``: the ends of the loops that end there, or the next block."""
        loop = self.graph.blocks[position].loop
        return f"again.{loop.head}" if loop is not None and loop.last == position else f"check.{position + 1}"

    def _emit_loop_end(self, loop: Loop) -> None:
        b = self.e.builder
        b.start(f"again.{loop.head}")
        waiting = self.load(f"mask.{loop.head}", MASK)
        some = b.any_lane(waiting)
        parent = loop.parent
        outside = (
            f"again.{parent.head}" if parent is not None and parent.last == loop.last else f"check.{loop.last + 1}"
        )
        if loop.head not in self._polls:
            b.branch(some, f"body.{loop.head}", outside)
            return
        poll = b.label("poll")
        b.branch(some, poll, outside)
        b.start(poll)
        self._let_others_run(loop, waiting, outside)

    def _let_others_run(self, loop: Loop, waiting: Value, outside: str) -> None:
        """Every few turns of a polling loop, let other warps run, and lanes of this one that have left the loop."""
        b = self.e.builder
        again, pause = f"body.{loop.head}", b.label("pause")
        turns = b.binary("add", self.load("turns", "i32"), b.integer(1, 32))
        b.write("turns", turns)
        some_turns = b.binary("and", turns, b.integer(_TURNS - 1, 32))
        b.branch(b.compare("icmp eq", some_turns, b.integer(0, 32)), pause, again)
        b.start(pause)
        b.call("cujit_spin", "void", STATE, WARP_NUMBER, b.integer(self._line_of(loop), 32), b.word(waiting))
        if not self.is_loose(loop.head):
            b.jump(again)
            return
        skip = b.label("skip")
        elsewhere = b.any_lane(b.binary("and", self.live(), b.invert(waiting)))
        b.branch(elsewhere, skip, again)
        b.start(skip)
        b.write("progress", b.integer(1, 1))
        b.jump(outside)

    def _line_of(self, loop: Loop) -> int:
        """Find the line by which a polling loop is known: that of the operation which reads anew, if there is one."""
        ops = [op for block in self.graph.blocks[loop.head : loop.last + 1] for op in block.ops]
        return next((op.line for op in ops if op.form.is_poll), ops[-1].line)

    # -- lanes that wait ---------------------------------------------------------------------------------

    def _gather(self, op: Op) -> None:
        """Leave behind the lanes whose partners have not come yet, and go on with the others."""
        e, b, p = self.e, self.e.builder, self.position
        stay = b.binary("and", self.lanes_of(op), warpwide.lacks_partners(e, op))
        b.write(f"mask.{p}", stay)
        e.mask = b.binary("and", e.mask, b.invert(stay))
        go = b.label("together")
        b.branch(b.any_lane(e.mask), go, self.after(p))
        b.start(go)
        b.write("progress", b.integer(1, 1))

    def _meet_or_gather(self, block: Block) -> None:
        """Do the operation that a block begins with, unless some lanes have done it with others that wait elsewhere.

        Those then go on, and any that came here since wait for the next scan.
        """
        e, b, p, op = self.e, self.e.builder, block.position, block.ops[0]
        waiting = e.mask
        met = self.load("met", MASK)
        done = b.binary("and", waiting, met)
        take, do, on = b.label("take"), b.label("do"), b.label("on")
        b.branch(b.any_lane(done), take, do)
        b.start(take)
        b.write(f"mask.{p}", b.binary("and", waiting, b.invert(done)))
        b.write("met", b.binary("and", met, b.invert(done)))
        b.write("progress", b.integer(1, 1))
        b.write("doing", done)
        e.mask = done
        e.before(op)
        meetings.take_results(e, op)
        e.after(op)
        b.jump(on)
        b.start(do)
        e.mask = waiting
        self._gather(op)
        b.write("doing", e.mask)
        e.emit_op(op)
        b.jump(on)
        b.start(on)
        e.mask = self.load("doing", MASK)

    def lanes_of(self, op: Op) -> Value:
        """Find the lanes that do an operation, as a vector."""
        return self.e.builder.vector(self.e.lanes(op))

    def _park(self, block: Block, op: Op) -> None:
        """Have lanes arrive at a barrier; they wait there unless all the warp came, or the barrier opened."""
        e, b, p = self.e, self.e.builder, block.position
        target = block.successors[0]
        e.before(op)
        lanes = self.lanes_of(op)
        if op.guard is not None:
            self.hand_on(target, b.binary("and", e.mask, b.invert(lanes)))
        alone, whole, done = b.label("part"), b.label("whole"), self.after(p)
        missing = b.any_lane(b.binary("and", self.live(), b.invert(lanes)))
        b.branch(missing, alone, whole)
        b.start(whole)
        e.mask = lanes
        barriers.synchronise(e, op, lanes)
        e.after(op)
        self.hand_on(target, lanes)
        b.jump(done)
        b.start(alone)
        self._release(block)
        some = b.label("arrive")
        b.branch(b.any_lane(lanes), some, done)
        b.start(some)
        parked = b.binary("or", self.load(f"parked.{p}", MASK), lanes)
        number, generation = barriers.arrive(e, op, lanes, parked)
        b.write(f"parked.{p}", parked)
        b.write(f"generation.{p}", generation)
        b.write(f"barrier.{p}", number)
        self._release(block)
        b.jump(done)

    def _release(self, block: Block) -> None:
        """Let the lanes that are parked at a barrier go on if it has opened since."""
        e, b, p = self.e, self.e.builder, block.position
        op = block.site
        assert op is not None
        test, free, done = b.label("parked"), b.label("free"), b.label("released")
        parked = self.load(f"parked.{p}", MASK)
        b.branch(b.any_lane(parked), test, done)
        b.start(test)
        number, generation = self.load(f"barrier.{p}", "i32"), self.load(f"generation.{p}", "i32")
        opened = barriers.has_opened(e, op, number, generation)
        b.branch(opened, free, done)
        b.start(free)
        was, e.mask = e.mask, parked
        self.position, here = p, self.position
        barriers.put_result(e, op, number)
        e.after(op)
        self.position = here
        e.mask = was
        self.hand_on(block.successors[0], parked)
        b.write(f"parked.{p}", Value("zeroinitializer", "i1", True))
        b.write("progress", b.integer(1, 1))
        b.jump(done)
        b.start(done)

    def _emit_end_of_scan(self, first: int) -> None:
        """Scan again while lanes go on; else let the warp wait, or say that its lanes never meet."""
        b = self.e.builder
        alive, again, stuck, wait = (b.label(x) for x in ("alive", "again", "stuck", "wait"))
        b.branch(b.any_lane(self.live()), alive, "warp.end")
        b.start(alive)
        for block in self._parking:
            self._release(block)
        for places in self._meetings:
            meetings.meet(self.e, places)
        moved = self.load("progress", "i1")
        b.write("progress", b.integer(0, 1))
        b.branch(moved, again, stuck)
        b.start(again)
        b.jump(f"check.{first}")
        b.start(stuck)
        parked = self._any_of([f"parked.{block.position}" for block in self._parking])
        apart = b.label("apart")
        b.branch(b.any_lane(parked), wait, apart)
        b.start(wait)
        if self.suspends and self._parking:
            self._wait(b.word(parked))
        b.jump(alive)
        b.start(apart)
        self._say_apart()

    def _wait(self, parked: Value) -> None:
        """Let the warp wait: for its barrier where all that are parked are at one, else for any change."""
        b = self.e.builder
        number, generation, line = b.integer(-1, 32), b.integer(0, 32), b.integer(self._parking[0].ops[0].line, 32)
        for block in self._parking:
            site, p = block.ops[0], block.position
            here = b.compare("icmp eq", b.word(self.load(f"parked.{p}", MASK)), parked)
            line = b.select(here, b.integer(site.line, 32), line)
            if "cluster" not in site.modifiers:
                number = b.select(here, self.load(f"barrier.{p}", "i32"), number)
                generation = b.select(here, self.load(f"generation.{p}", "i32"), generation)
        if self._gathering:
            apart.tell(self.e, self._gathering)
        one, several, done = b.label("one"), b.label("several"), b.label("waited")
        b.branch(b.compare("icmp sge", number, b.integer(0, 32)), one, several)
        b.start(one)
        b.call("cujit_barrier_wait", "void", STATE, WARP_NUMBER, number, generation, line, parked)
        b.jump(done)
        b.start(several)
        b.call("cujit_wait", "void", STATE, WARP_NUMBER, line, parked)
        b.jump(done)
        b.start(done)
        if self._gathering:
            apart.forget(self.e)

    def _any_of(self, names: list[str]) -> Value:
        b = self.e.builder
        found = Value("zeroinitializer", "i1", True)
        for name in names:
            found = b.binary("or", found, self.load(name, MASK))
        return found

    def _say_apart(self) -> None:
        """No lane can go on: name the first of those that wait at the first place."""
        b = self.e.builder
        who, line = b.integer(0, 32), b.integer(0, 32)
        for block in reversed(self._gathering):
            here = b.word(self.load(f"mask.{block.position}", MASK))
            some = b.compare("icmp ne", here, b.integer(0, 32))
            who, line = b.select(some, here, who), b.select(some, b.integer(block.ops[0].line, 32), line)
        apart.end_launch(self.e, self._gathering, line, b.first_lane(b.mask_of(who)))

    # -- leaving a block ---------------------------------------------------------------------------------

    def _leave(self, block: Block) -> None:
        branch = block.branch
        if branch is not None:
            self.e.before(branch)
        if branch is None or (branch.guard is None and branch.opcode != "brx"):
            self._go(block, block.successors[0])
        elif branch.opcode == "brx":
            self.leave_by_table(block, branch)
        else:
            self._leave_by_guard(block, branch)

    def _leave_by_guard(self, block: Block, branch: Op) -> None:
        e, b = self.e, self.e.builder
        assert branch.guard is not None
        condition = e.guard(branch)
        taken, falls = block.successors[0], block.successors[-1]
        if not condition.is_vector:
            there, here = b.label("taken"), b.label("falls")
            b.branch(condition, there, here)
            for label, target in ((there, taken), (here, falls)):
                b.start(label)
                self._go(block, target)
            return
        goes = b.binary("and", e.mask, condition)
        stays = b.binary("and", e.mask, b.invert(condition))
        self.hand_on(taken, goes)
        self.hand_on(falls, stays)
        b.jump(self.after(block.position))

    def leave_by_table(self, block: Block, branch: Op) -> None:
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
        b.jump(self.after(block.position))

    def hand_on(self, target: int, lanes: Value) -> None:
        """Let lanes wait at a block, or exit."""
        b = self.e.builder
        if target == self.graph.exit:
            self._exit(lanes)
            return
        waiting = self.load(f"mask.{target}", MASK)
        joined = b.binary("or", waiting, lanes)
        b.write(f"mask.{target}", joined)

    def _exit(self, lanes: Value) -> None:
        if not self.counts_lanes:
            return
        b = self.e.builder
        left = b.binary("and", self.live(), b.invert(lanes))
        b.write("live", left)
        self.note_progress()
        if self.suspends and not self.e.is_function:
            b.call("cujit_exit", "void", STATE, WARP_NUMBER, b.word(lanes))

    def _go(self, block: Block, target: int) -> None:
        """Send all lanes of the block to one place, straight there if no lane can wait on the way."""
        b = self.e.builder
        self.hand_on(target, self.e.mask)
        if self._way_is_free(block, target):
            label = f"check.{target}" if target == self.graph.exit else f"body.{target}"
        else:
            label = self.after(block.position)
        b.jump(label)

    def _way_is_free(self, block: Block, target: int) -> bool:
        p = block.position
        waiting = self.divergence.waiting[p]
        if target > p:
            between = range(p + 1, target)
        elif target in self._polls:
            return False
        else:
            loop = block.loop
            while loop is not None and loop.head != target:
                loop = loop.parent
            if loop is None:
                return False
            between = range(p + 1, loop.last + 1)
        if any(waiting >> k & 1 for k in between):
            return False
        left = block.loop
        while left is not None and target not in left:
            if waiting >> left.head & 1:
                return False
            left = left.parent
        return target > p or not waiting >> target & 1
