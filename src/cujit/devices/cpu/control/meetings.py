"""One operation in several places: lanes that wait for each other, each at its own.

        @p bra ELSE;
        shfl.sync.idx.b32 a, x, 0, 31, -1;         one exchange of x and y, when all lanes of the mask wait
        bra END;                             ->    at one of the two; a and b are the results of the lanes
    ELSE: shfl.sync.idx.b32 b, y, 0, 31, -1;       that wait at each
    END: …

Where the same ``.sync`` operation stands in both arms of a branch, say, lanes do it together though they wait apart.
Then it is done once for all of them (``meet``), and each place takes the results of its lanes (``take_results``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.warp import MASK, WarpEmitter
from cujit.devices.cpu.instructions.warpwide import Party, known, rule_of
from cujit.devices.cpu.ir.program import Op

if TYPE_CHECKING:
    from cujit.devices.cpu.ir.cfg import Block

__all__ = ["meet", "meetings", "take_results"]

_RESULTS = ("met.word", "met.flag")
"""Where ``meet`` leaves each lane's results until the lane takes them: a lane waits at one place at a time."""


class _Scattered(Party):
    """Lanes that do an operation together, each at its own of several places.

    ``masks`` are the lanes that wait at each place, ``ready`` those that take part.
    """

    def __init__(self, e: WarpEmitter, ops: Sequence[Op], masks: Sequence[Value], ready: Value) -> None:
        super().__init__(e, ops[0])
        self._places = list(zip(ops, masks, strict=True))
        self._ready = ready

    def lanes(self) -> Value:
        return self._ready

    def members(self) -> Value:
        return _gathered(self.e, len(self.op.sources) - 1, "i32", self._places)

    def known(self, index: int) -> int | None:
        numbers = {known(self.e, op.sources[index]) for op, _ in self._places}
        return numbers.pop() if len(numbers) == 1 else None

    def operand(self, index: int, type_: str) -> Value:
        return _gathered(self.e, index, type_, self._places)


def meetings(e: WarpEmitter, places: Sequence[Sequence[Block]]) -> list[list[Block]]:
    """Divide places of one operation into those that may take part in one exchange: their masks may be equal."""
    found: list[list[Block]] = []
    for blocks in places:
        by_mask: dict[int | None, list[Block]] = {}
        for block in blocks:
            assert block.site is not None
            by_mask.setdefault(known(e, block.site.sources[-1]), []).append(block)
        found += [list(blocks)] if None in by_mask else [some for some in by_mask.values() if len(some) > 1]
    return found


def meet(e: WarpEmitter, blocks: Sequence[Block]) -> None:
    """Do one operation for the lanes that wait for each other at these places, if all of a mask have come.

    Its results are left for ``take_results``; ``%met`` are the lanes that have some.
    """
    b, flow = e.builder, e.flow
    ops = [block.ops[0] for block in blocks]
    masks = [flow.load(f"mask.{block.position}", MASK) for block in blocks]
    waiting = masks[0]
    for mask in masks[1:]:
        waiting = b.binary("or", waiting, mask)
    look, go, done = b.label("meeting"), b.label("meet"), b.label("met")
    b.branch(b.any_lane(waiting), look, done)
    b.start(look)
    ready = _ready(e, ops, masks, waiting)
    b.branch(b.any_lane(ready), go, done)
    b.start(go)
    for value in rule_of(ops[0])(_Scattered(e, ops, masks, ready)):
        _leave_result(e, ready, value)
    met = b.binary("or", flow.load("met", MASK), ready)
    b.write("met", met)
    flow.note_progress()
    b.jump(done)
    b.start(done)


def _ready(e: WarpEmitter, ops: Sequence[Op], masks: Sequence[Value], waiting: Value) -> Value:
    """Find the lanes that wait with all that they name."""
    b = e.builder
    live, word = b.word(e.flow.live()), b.word(waiting)
    members = _Scattered(e, ops, masks, waiting).members()
    if not members.is_vector:
        away = b.binary("and", b.binary("and", members, live), b.binary("xor", word, b.integer(-1, 32)))
        complete = b.compare("icmp eq", away, b.integer(0, 32))
        return b.mask_of(b.select(complete, word, b.integer(0, 32)))
    return b.mask_of(b.call("cujit_ready", "i32", b.in_memory("%exchange.i32", members), word, live))


def _gathered(e: WarpEmitter, index: int, type_: str, places: Sequence[tuple[Op, Value]]) -> Value:
    """Read a source of an operation at the place where each lane waits; a scalar if it is one constant everywhere."""
    b = e.builder
    numbers = {known(e, op.sources[index]) for op, _ in places}
    if len(numbers) == 1 and type_ == "i32":
        number = numbers.pop()
        if number is not None:
            return b.integer(number, 32)
    found = b.vector(e.source(places[0][0], index, type_))
    for op, mask in places[1:]:
        found = b.select(mask, b.vector(e.source(op, index, type_)), found)
    return found


def _leave_result(e: WarpEmitter, ready: Value, value: Value) -> None:
    b = e.builder
    name = _RESULTS[value.type == "i1"]
    type_ = "i1" if value.type == "i1" else "i32"
    before = b.read(name, type_, vector=True)
    after = b.select(ready, b.vector(b.bits_as(value, type_)), before)
    b.write(name, after)


def take_results(e: WarpEmitter, op: Op) -> None:
    """Give the lanes that are here what ``meet`` found for them."""
    b = e.builder
    for index, reg in enumerate(op.results):
        if reg is None:
            continue
        name = _RESULTS[reg.bits == 1]
        value = b.read(name, "i1" if reg.bits == 1 else "i32", vector=True)
        e.put(op, b.extract(value, b.first_lane(e.mask)) if e.shape(reg).is_uniform else value, index)
