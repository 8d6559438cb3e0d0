"""Lanes that wait for other lanes: at barriers, at ``.sync`` operations, and in polling loops.

        @p bra ELSE;                               the lanes that arrive first wait, and the scan continues;
        shfl.sync.idx.b32 a, x, 0, 31, -1;         when all lanes of the mask wait at one of the two, x and y are
        bra END;                             ->    exchanged once; a and b are the results of the lanes that wait
    ELSE: shfl.sync.idx.b32 b, y, 0, 31, -1;       at each
    END: …

If no lane can continue, the warp itself waits, or ends the launch with an error that reports the place of each lane.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.nodes import BLOCK, FIRST_THREAD, LAUNCH, STATE, WARP_NUMBER
from cujit.devices.cpu.codegen.warp import MASK, WarpEmitter
from cujit.devices.cpu.control.plan import ControlPlan
from cujit.devices.cpu.instructions import blocks
from cujit.devices.cpu.instructions.warpwide import Party, known, lacks_partners, members_of, rule_of
from cujit.devices.cpu.ir.cfg import BasicBlock
from cujit.devices.cpu.ir.program import Op
from cujit.devices.cpu.native.structures import AT_ANY, AT_SHARED, FaultKind, Meeting, Warp
from cujit.devices.cpu.native.structures import Block as BlockState
from cujit.devices.cpu.run.launch import Launch, field_offset

NO_LANE = Value("zeroinitializer", "i1", WARP)

_RESULTS = ("met.word", "met.flag")
"""Where an exchange leaves each lane's results until the lane takes them: a lane waits at one place at a time."""


class Masks:
    """The lanes at each block, as variables of the scan, and the code that releases waiting lanes.

    ``mask.N`` are the lanes at block N, and ``live`` are the lanes that have not exited. ``progress`` is whether
    another scan helps. If every warp has a stack, ``%state`` is the state of its block.
    """

    def __init__(self, e: WarpEmitter, plan: ControlPlan) -> None:
        self.e, self.b, self.plan, self.graph = e, e.builder, plan, e.graph

    def load(self, name: str, type_: str) -> Value:
        """Read one of the variables of the scan."""
        return self.b.read(name, "i1" if type_ == MASK else type_, lanes=WARP if type_ == MASK else 0)

    def transfer_lanes(self, e: WarpEmitter, target: int, lanes: Value) -> None:
        """Add lanes to the mask of a block, or make them exit."""
        b = self.b
        if target != self.graph.exit:
            b.write(f"mask.{target}", b.binary("or", self.load(f"mask.{target}", MASK), lanes))
        elif e.counts_lanes:
            b.write("live", b.binary("and", e.live(), b.invert(lanes)))
            e.note_progress()
            if e.suspends and not e.is_function:
                b.call("cujit_exit", "void", STATE, WARP_NUMBER, b.word(lanes))

    # -- at operations of several lanes --------------------------------------------------------------------

    def gather(self, e: WarpEmitter, op: Op, otherwise: str) -> WarpEmitter:
        """Make lanes wait if their partners have not arrived. Return an emitter for the other lanes.

        If there are no other lanes, branch to ``otherwise``.
        """
        b = self.b
        stay = b.binary("and", e.lanes_of(op), lacks_partners(e, op))
        b.write(f"mask.{e.position}", stay)
        mask = b.binary("and", e.mask, b.invert(stay))
        b.only_if(b.any_lane(mask), otherwise, "together")
        b.write("progress", b.integer(1, 1))
        return e.within(mask=mask)

    def meet_or_gather(self, e: WarpEmitter, block: BasicBlock, otherwise: str) -> WarpEmitter:
        """Do the first operation of a block, unless some lanes have already done it with lanes that wait elsewhere.

        In that case, only these lanes continue. Lanes that arrived since then wait for the next scan.
        """
        b, op, waiting = self.b, block.ops[0], e.mask
        met = self.load("met", MASK)
        done = b.binary("and", waiting, met)

        def take() -> None:
            b.write(f"mask.{block.position}", b.binary("and", waiting, b.invert(done)))
            b.write("met", b.binary("and", met, b.invert(done)))
            b.write("progress", b.integer(1, 1))
            b.write("doing", done)
            takes = e.within(mask=done)
            takes.before(op)
            _take_results(takes, op)
            takes.after(op)

        def do() -> None:
            together = self.gather(e, op, otherwise)
            b.write("doing", together.mask)
            together.emit_op(op)

        b.either(b.any_lane(done), take, do, "take")
        return e.within(mask=self.load("doing", MASK))

    def _meet(self, blocks: Sequence[BasicBlock]) -> None:
        """Do one operation for the lanes that wait for each other at these places, if all lanes of a mask have arrived.

        ``_take_results`` later reads the results. ``met`` are the lanes with results.
        """
        e, b = self.e, self.b
        ops = [block.ops[0] for block in blocks]
        masks = [self.load(f"mask.{block.position}", MASK) for block in blocks]
        waiting = masks[0]
        for mask in masks[1:]:
            waiting = b.binary("or", waiting, mask)
        done = b.label("met")
        b.only_if(b.any_lane(waiting), done, "meeting")
        ready = self._ready(_Scattered(e, ops, masks, waiting), waiting)
        b.only_if(b.any_lane(ready), done, "meet")
        for value in rule_of(ops[0])(_Scattered(e, ops, masks, ready)):
            is_flag = value.type == "i1"
            result = b.vector(value if is_flag else b.bits_as(value, "i32"))
            before = b.read(_RESULTS[is_flag], result.type, lanes=WARP)
            b.write(_RESULTS[is_flag], b.select(ready, result, before))
        b.write("met", b.binary("or", self.load("met", MASK), ready))
        e.note_progress()
        b.start(done)

    def _ready(self, party: _Scattered, waiting: Value) -> Value:
        """Find the lanes that wait with all that they name."""
        b = self.b
        live, word = b.word(self.e.live()), b.word(waiting)
        members = party.members()
        if members.lanes:
            return b.mask_of(b.call("cujit_ready", "i32", b.in_memory("%exchange.i32", members), word, live))
        away = b.binary("and", b.binary("and", members, live), b.binary("xor", word, b.integer(-1, 32)))
        complete = b.compare("icmp eq", away, b.integer(0, 32))
        return b.mask_of(b.select(complete, word, b.integer(0, 32)))

    # -- at barriers -----------------------------------------------------------------------------------------

    def park(self, e: WarpEmitter, block: BasicBlock, op: Op, done: str) -> None:
        """Emit the arrival of lanes at a barrier. The lanes wait unless the whole warp arrived or the
        barrier opened.
        """
        b, p, target = self.b, block.position, block.successors[0]
        e.before(op)
        lanes = e.lanes_of(op)
        if op.guard is not None:
            self.transfer_lanes(e, target, b.binary("and", e.mask, b.invert(lanes)))
        missing = b.any_lane(b.binary("and", e.live(), b.invert(lanes)))
        whole = e.within(mask=lanes)
        with b.when(missing, "whole", holds=False):
            blocks.synchronise(whole, op, lanes)
            whole.write_results()
            whole.after(op)
            self.transfer_lanes(whole, target, lanes)
            b.jump(done)
        self._release(block)
        b.only_if(b.any_lane(lanes), done, "arrive")
        parked = b.binary("or", self.load(f"parked.{p}", MASK), lanes)
        number, generation = blocks.arrive(whole, op, lanes, parked)
        b.write(f"parked.{p}", parked)
        b.write(f"generation.{p}", generation)
        b.write(f"barrier.{p}", number)
        self._release(block)
        b.jump(done)

    def _release(self, block: BasicBlock) -> None:
        """Release the lanes that wait at a barrier if the barrier has opened."""
        b, p, op, done = self.b, block.position, block.ops[0], self.b.label("released")
        parked = self.load(f"parked.{p}", MASK)
        b.only_if(b.any_lane(parked), done, "parked")
        number, generation = self.load(f"barrier.{p}", "i32"), self.load(f"generation.{p}", "i32")
        b.only_if(blocks.has_opened(self.e, op, number, generation), done, "free")
        e = self.e.within(mask=parked, position=p)
        blocks.put_result(e, op, number)
        e.write_results()
        e.after(op)
        self.transfer_lanes(e, block.successors[0], parked)
        b.write(f"parked.{p}", NO_LANE)
        b.write("progress", b.integer(1, 1))
        b.start(done)

    # -- the end of a scan -----------------------------------------------------------------------------------

    def emit_end_of_scan(self) -> None:
        """Start another scan while lanes make progress. Otherwise, make the warp wait, or report that its lanes never
        meet.

        A warp with polling lanes never waits. It spins, and reports whether its other lanes made progress.
        """
        b = self.b
        alive, again = b.label("alive"), f"check.{self.plan.first_separate}"
        b.branch(b.any_lane(self.e.live()), alive, "warp.end")
        b.start(alive)
        for block in self.plan.parking:
            self._release(block)
        for places in self.plan.meetings:
            self._meet(places)
        moved = self.load("progress", "i1")
        b.write("progress", b.integer(0, 1))
        parked = NO_LANE
        for block in self.plan.parking:
            parked = b.binary("or", parked, self.load(f"parked.{block.position}", MASK))
        if self.plan.polls:
            self._spin_for_polls(moved, again)
        with b.when(moved, "again"):
            b.jump(again)
        with b.when(b.any_lane(parked), "wait"):
            if self.e.suspends and self.plan.parking:
                self._wait(b.word(parked))
            b.jump(alive)
        self._end_launch()

    # -- in loops that poll ----------------------------------------------------------------------------------

    def spin(self, line: Value, lanes: Value, at: Value, moved: Value) -> None:
        """Let other warps run while lanes poll.

        ``at`` is the only event that ends their loops, or ``AT_ANY`` if any event may end them. ``moved`` is whether
        other lanes of the warp made progress.
        """
        b = self.b
        b.call("cujit_spin", "void", STATE, WARP_NUMBER, line, b.word(lanes), at, b.cast("zext", moved, "i32"))

    def _spin_for_polls(self, moved: Value, again: str) -> None:
        """Let other warps run and scan again, if lanes stayed in polling loops.

        The first of these loops identifies the warp. Lanes in several loops do not wait for a single mbarrier.
        """
        b = self.b
        here, line, at = b.integer(0, 32), b.integer(0, 32), b.integer(0, 32)
        for head, (own_line, own_at) in sorted(self.plan.polls.items(), reverse=True):
            lanes = b.word(self.load(f"polling.{head}", MASK))
            some, first = (b.compare(f"icmp {how}", x, b.integer(0, 32)) for how, x in (("ne", lanes), ("eq", at)))
            several = b.integer(AT_ANY if own_at == AT_ANY else AT_SHARED, 32)
            several = b.select(b.compare("icmp eq", at, b.integer(AT_ANY, 32)), at, several)
            at = b.select(some, b.select(first, b.integer(own_at, 32), several), at)
            here, line = b.select(some, lanes, here), b.select(some, b.integer(own_line, 32), line)
        with b.when(b.compare("icmp ne", here, b.integer(0, 32)), "polling"):
            self._note(self._noted(), Warp.apart.size, polling=here)
            self.spin(line, b.mask_of(here), b.select(moved, b.integer(AT_ANY, 32), at), moved)
            self._forget_noted()
            for head in self.plan.polls:
                b.write(f"polling.{head}", NO_LANE)
            b.jump(again)

    def _wait(self, parked: Value) -> None:
        """Make the warp wait: for a barrier if all waiting lanes are at that barrier, otherwise for any change."""
        b = self.b
        number, generation = b.integer(AT_ANY, 32), b.integer(0, 32)
        line = b.integer(self.plan.parking[0].ops[0].line, 32)
        for block in self.plan.parking:
            site, p = block.ops[0], block.position
            here = b.compare("icmp eq", b.word(self.load(f"parked.{p}", MASK)), parked)
            line = b.select(here, b.integer(site.line, 32), line)
            if "cluster" not in site.modifiers:
                number = b.select(here, self.load(f"barrier.{p}", "i32"), number)
                generation = b.select(here, self.load(f"generation.{p}", "i32"), generation)
        if self.plan.gathering:
            self._note(self._noted(), Warp.apart.size)

        def one() -> None:
            b.call("cujit_barrier_wait", "void", STATE, WARP_NUMBER, number, generation, line, parked)

        def several() -> None:
            b.call("cujit_wait", "void", STATE, WARP_NUMBER, line, parked)

        b.either(b.compare("icmp sge", number, b.integer(0, 32)), one, several, "one")
        if self.plan.gathering:
            self._forget_noted()

    def _forget_noted(self) -> None:
        b = self.b
        size = b.integer(Warp.apart.size, 64)
        b.call("llvm.memset.p0.i64", "void", self._noted(), b.integer(0, 8), size, b.integer(0, 1))

    def _noted(self) -> Value:
        """Return a pointer to the record, in the state of the warp, of the operations at which lanes wait for parked
        lanes.
        """
        b = self.b
        offset = b.binary("mul", b.resize(WARP_NUMBER, 64, signed=False), b.integer(ctypes.sizeof(Warp), 64))
        at = b.binary("add", offset, b.integer(BlockState.warp.offset + Warp.apart.offset, 64))
        return b.point("i8", STATE, at)

    def _note(self, at: Value, room: int, *, polling: Value | None = None) -> None:
        """Write a ``Meeting`` for each place at which lanes wait for other lanes, as many as fit into ``room`` bytes.

        ``polling`` are the lanes of the first polling loop. If lanes poll, the places include barriers and other loops.
        """
        e, b = self.e, self.b
        count, most, zero = b.integer(0, 32), b.integer(room // ctypes.sizeof(Meeting), 32), b.integer(0, 32)
        places = []
        if polling is not None:
            others = b.binary("xor", polling, b.integer(-1, 32))
            for head, (line, _) in self.plan.polls.items():
                lanes = b.word(self.load(f"polling.{head}", MASK))
                places.append((line, b.binary("and", lanes, others), zero))
            parked = ((block.ops[0].line, f"parked.{block.position}") for block in self.plan.parking)
            places += [(line, b.word(self.load(name, MASK)), zero) for line, name in parked]
        for block in self.plan.gathering:
            waiting = self.load(f"mask.{block.position}", MASK)
            members = members_of(e, block.ops[0])
            if members.lanes:
                members = b.extract(members, b.first_lane(waiting))
            places.append((block.ops[0].line, b.word(waiting), members))
        for line, lanes, members in places:
            count = b.call("cujit_note", "i32", at, count, most, b.integer(line, 32), lanes, members)

    def _end_launch(self) -> None:
        """End the launch because its lanes never meet. Report the first waiting lane at the first place."""
        b = self.b
        who, line = b.integer(0, 32), b.integer(0, 32)
        for block in reversed(self.plan.gathering):
            here = b.word(self.load(f"mask.{block.position}", MASK))
            some = b.compare("icmp ne", here, b.integer(0, 32))
            who, line = b.select(some, here, who), b.select(some, b.integer(block.ops[0].line, 32), line)
        lane = b.first_lane(b.mask_of(who))
        claim = b.call("cujit_claim", "i32", LAUNCH, b.integer(int(FaultKind.LANES_APART), 32))
        with b.when(b.compare("icmp ne", claim, b.integer(0, 32)), "first"):
            self._note(b.offset(LAUNCH, field_offset("fault_more")), Launch.fault_more.size)
            thread = b.binary("add", FIRST_THREAD, lane)
            b.call("cujit_fault_here", "void", LAUNCH, BLOCK, thread, line, b.integer(0, 64))
        b.call("cujit_stop", "void")
        b.unreachable()


# -- one operation in several places ------------------------------------------------------------------------


class _Scattered(Party):
    """Lanes that do one operation together while they wait at several places.

    ``masks`` are the lanes that wait at each place, and ``ready`` are the lanes that take part.
    """

    def __init__(self, e: WarpEmitter, ops: Sequence[Op], masks: Sequence[Value], ready: Value) -> None:
        super().__init__(e, ops[0])
        self._places = list(zip(ops, masks, strict=True))
        self._ready = ready

    def lanes(self) -> Value:
        return self._ready

    def members(self) -> Value:
        return self.operand(len(self.op.sources) - 1, "i32")

    def known(self, index: int) -> int | None:
        numbers = {known(self.e, op.sources[index]) for op, _ in self._places}
        return numbers.pop() if len(numbers) == 1 else None

    def operand(self, index: int, type_: str) -> Value:
        """Return a source operand, read at the place where each lane waits.

        Return a scalar if the operand is the same constant at all places.
        """
        e, b = self.e, self.e.builder
        number = self.known(index)
        if number is not None and type_ == "i32":
            return b.integer(number, 32)
        found = b.vector(e.source(self.op, index, type_))
        for op, mask in self._places[1:]:
            found = b.select(mask, b.vector(e.source(op, index, type_)), found)
        return found


def _take_results(e: WarpEmitter, op: Op) -> None:
    """Write the results of an exchange to the lanes that are here."""
    b = e.builder
    for index, reg in enumerate(op.results):
        if reg is not None:
            value = b.read(_RESULTS[reg.bits == 1], "i1" if reg.bits == 1 else "i32", lanes=WARP)
            e.put(op, b.extract(value, b.first_lane(e.mask)) if e.shape(reg).is_uniform else value, index)
    e.write_results()
