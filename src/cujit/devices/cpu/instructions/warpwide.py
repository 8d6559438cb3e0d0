"""Operations that the lanes of a warp do together: shuffles, votes, matches, reductions, elections.

PTX ISA 9.1: "shfl.sync", "vote.sync", "match.sync", "redux.sync", "activemask", "elect.sync", "bar.warp.sync". When a
handler runs, all lanes in the member mask have arrived, because ``flow`` waits for them. The results do not depend on
the places of the lanes in the code. A ``Party`` contains the lanes and their operands (see ``meetings``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from cujit.devices.cpu.analysis.uniformity import WARP, constant_of
from cujit.devices.cpu.codegen.builder import Value, int_type
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.ir.program import Op, Operand

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter

_LANE = list(range(WARP))
_MODES = "up down bfly idx"


class Party:
    """Lanes that do an operation together at one place."""

    def __init__(self, e: WarpEmitter, op: Op) -> None:
        self.e, self.op = e, op

    def lanes(self) -> Value:
        """Return the lanes that take part, as a vector."""
        return self.e.lanes_of(self.op)

    def members(self) -> Value:
        """The member mask; legacy forms are for all lanes that are there."""
        return members_of(self.e, self.op)

    def known(self, index: int) -> int | None:
        """Source ``index``, if it is the same constant for all."""
        return known(self.e, self.op.sources[index])

    def operand(self, index: int, type_: str) -> Value:
        """Read source ``index``."""
        return self.e.source(self.op, index, type_)


Results: TypeAlias = tuple[Value, ...]
Rule: TypeAlias = Callable[[Party], Results]
"""Does an operation, and gives its results for all lanes."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("shfl|vote|match|redux|elect", _do)
    rules.on("bar .warp", _do)
    rules.on("activemask", _active_mask)


def _do(e: WarpEmitter, op: Op) -> None:
    """Do an operation with the lanes that are here."""
    for index, value in enumerate(rule_of(op)(Party(e, op))):
        if index < len(op.results):
            e.put(op, value, index)


def rule_of(op: Op) -> Rule:
    """Return the rule for an operation that names its members."""
    if op.opcode == "redux" and "f32" in op.modifiers:
        return _reduce_floats
    return _RULES[op.opcode]


def members_of(e: WarpEmitter, op: Op) -> Value:
    """Read the member mask of a ``.sync`` operation; legacy forms are for all lanes that are there."""
    if op.form.is_whole_warp or "sync" not in op.modifiers:
        return e.builder.integer(-1, 32)
    mask = known(e, op.sources[-1])
    return e.read(op.sources[-1], "i32") if mask is None else e.builder.integer(mask, 32)


def lacks_partners(e: WarpEmitter, op: Op) -> Value:
    """Return the lanes with a partner that has not arrived, as a vector. Exited lanes do not count as partners."""
    b = e.builder
    away = b.word(b.binary("and", e.live(), b.invert(e.lanes_of(op))))
    missing = b.binary("and", members_of(e, op), away)
    return b.vector(b.compare("icmp ne", missing, b.integer(0, 32)))


# -- shuffles ---------------------------------------------------------------------------------------------


def known(e: WarpEmitter, operand: Operand) -> int | None:
    """Read an operand of 32 bits, if it is a constant."""
    value = constant_of(operand, e.divergence.constants)
    return None if value is None else value & 0xFFFFFFFF


def _mode(op: Op) -> str:
    return next(m for m in op.modifiers if m in _MODES.split())


def _shuffle(party: Party) -> Results:
    e, b, mode = party.e, party.e.builder, _mode(party.op)
    by, clamp = party.known(1), party.known(2)
    if by is None or clamp is None:
        return _shuffle_by_index(party, mode)
    value = party.operand(0, "i32")
    if any(r is not None and e.shape(r).is_uniform for r in party.op.results):  # one lane's value for all
        return b.extract(value, b.integer(by & 31, 32)) if value.lanes else value, b.integer(1, 1)
    origins = [_origin(mode, lane, by, clamp) for lane in _LANE]
    moved = b.shuffle(b.vector(value), None, [j if good else lane for lane, (j, good) in enumerate(origins)])
    return moved, b.lanes([int(good) for _, good in origins], 1)


def _origin(mode: str, lane: int, by: int, clamp: int) -> tuple[int, bool]:
    """Lane that a lane reads from, and whether it is within bounds. Source: PTX ISA 9.1, "shfl.sync", its code."""
    by, segment, bound = by & 31, clamp >> 8 & 31, clamp & 31
    last = lane & segment | bound & ~segment & 31
    if mode == "up":
        return lane - by, lane - by >= last
    if mode == "down":
        return lane + by, lane + by <= last
    origin = lane ^ by if mode == "bfly" else lane & segment | by & ~segment & 31
    return origin, origin <= last


def _shuffle_by_index(party: Party, mode: str) -> Results:
    """Emit a shuffle through memory, for a distance or bounds that are known only at run time."""
    b = party.e.builder
    origin, good = _origins(party, mode)
    origin = b.vector(b.select(good, origin, b.lanes(_LANE, 32)))
    pointers = b.point("i32", b.in_memory("%exchange.i32", b.vector(party.operand(0, "i32"))), origin)
    rest = (b.integer(4, 32), b.vector(b.integer(1, 1)), Value("poison", "i32", WARP))
    return b.call(f"llvm.masked.gather.v{WARP}i32.v{WARP}p0", "i32", pointers, *rest, lanes=WARP), good


def _origins(party: Party, mode: str) -> tuple[Value, Value]:
    """Lane that each lane reads from, and whether it is within bounds."""
    b = party.e.builder
    lane, low = b.lanes(_LANE, 32), b.integer(31, 32)
    by = b.binary("and", party.operand(1, "i32"), low)
    clamp = party.operand(2, "i32")
    bound = b.binary("and", clamp, low)
    segment = b.binary("and", b.binary("lshr", clamp, b.integer(8, 32)), low)
    outside = b.binary("xor", segment, low)
    first = b.binary("and", lane, segment)
    last = b.binary("or", first, b.binary("and", bound, outside))
    if mode in ("up", "down"):
        origin = b.binary("sub" if mode == "up" else "add", lane, by)
    elif mode == "bfly":
        origin = b.binary("xor", lane, by)
    else:
        origin = b.binary("or", first, b.binary("and", by, outside))
    return origin, b.compare("icmp sge" if mode == "up" else "icmp sle", origin, last)


def origins(e: WarpEmitter, op: Op) -> Value:
    """Return the lane from which each lane reads in a shuffle (i32), or -1 if the lane reads its own value."""
    b = e.builder
    origin, good = _origins(Party(e, op), _mode(op))
    return b.select(good, origin, b.integer(-1, 32))


# -- votes ------------------------------------------------------------------------------------------------


def _vote(party: Party) -> Results:
    b, op = party.e.builder, party.op
    lanes, members = party.lanes(), party.members()
    holding = b.binary("and", b.word(b.binary("and", lanes, b.vector(party.operand(0, "i1")))), members)
    if "ballot" in op.modifiers:
        return (holding,)
    voting = b.binary("and", b.word(lanes), members)
    every, none = b.compare("icmp eq", holding, voting), b.compare("icmp eq", holding, b.integer(0, 32))
    if "all" in op.modifiers:
        return (every,)
    if "any" in op.modifiers:
        return (b.invert(none),)
    return (b.binary("or", every, none),)


def _active_mask(e: WarpEmitter, op: Op) -> None:
    e.put(op, e.builder.vector(e.builder.word(e.lanes_of(op))))


def _elect(party: Party) -> Results:
    """The lowest of the members leads."""
    b = party.e.builder
    voting = b.binary("and", b.word(party.lanes()), party.members())
    leader = b.intrinsic("cttz", voting, flag=b.integer(0, 1))
    return leader, b.compare("icmp eq", b.lanes(_LANE, 32), leader)


# -- match and redux --------------------------------------------------------------------------------------


def _match(party: Party) -> Results:
    """Return for each lane the mask of members that have the same value.

    With ``all``, the result is every member if all values are equal, otherwise no member.
    """
    b, op = party.e.builder, party.op
    type_ = int_type(op.type.bits)
    values = b.vector(party.operand(0, type_))
    lanes = b.word(party.lanes())
    same = b.reserve("%same", f"<{WARP} x i32>")
    b.call(f"cujit_match_{op.type.bits}", "void", b.in_memory(f"%exchange.{type_}", values), lanes, same)
    members = party.members()
    found = b.binary("and", b.load("i32", same, lanes=WARP), members)
    if "any" in op.modifiers:
        return (found,)
    every = b.compare("icmp eq", found, b.binary("and", lanes, members))
    return b.select(every, found, b.integer(0, 32)), every


_NEUTRAL = {"add": 0, "or": 0, "xor": 0, "and": -1, "umin": -1, "umax": 0, "smin": 2**31 - 1, "smax": -(2**31)}


def _reduce(party: Party) -> Results:
    b = party.e.builder
    kind = next(m for m in party.op.modifiers if m in ("add", "min", "max", "and", "or", "xor"))
    name = f"{party.op.type.kind}{kind}" if kind in ("min", "max") else kind
    return (_reduced(party, name, b.vector(party.operand(0, "i32")), b.integer(_NEUTRAL[name], 32)),)


def _reduce_floats(party: Party) -> Results:
    """Return the smallest or largest float. Without ``.NaN``, the result is NaN only if all values are NaN."""
    b, op = party.e.builder, party.op
    kind = "min" if "min" in op.modifiers else "max"
    name = f"f{kind}imum" if "NaN" in op.modifiers else f"f{kind}"
    infinity = b.real(0x7F800000 if kind == "min" else 0xFF800000, 32)
    canonical = b.real(0x7FFFFFFF, 32)
    values = b.vector(party.operand(0, "float"))
    if "abs" in op.modifiers:
        values = b.magnitude(values)
    result = _reduced(party, name, values, infinity if "NaN" in op.modifiers else canonical)
    return (b.select(b.is_nan(result), canonical, result),)


def _reduced(party: Party, name: str, values: Value, neutral: Value) -> Value:
    """Reduce over the members of each lane: in one step if all lanes name the same members, otherwise group by group.

    For each group, take the first remaining lane, reduce over its members, and continue with the other lanes.
    """
    b = party.e.builder
    lanes, members = party.lanes(), party.members()
    if not members.lanes:
        return b.reduce(name, b.select(lanes, values, neutral))
    before, head, after = b.label("groups"), b.label("group"), b.label("group_by")
    left, result, left_next, result_next = b.name(), b.name(), b.name(), b.name()
    word = b.word(lanes)
    b.start(before)
    b.start(head)
    b.phi(word, (word, before), (left_next, head), into=left)
    so_far = b.phi(Value("", values.type, WARP), ("zeroinitializer", before), (result_next, head), into=result)
    first = b.binary("and", b.lowest_bit(Value(left, "i32")), b.integer(31, 32))
    named = b.extract(members, first)
    group = b.mask_of(b.binary("and", named, word))
    b.select(group, b.vector(b.reduce(name, b.select(group, values, neutral))), so_far, into=result_next)
    done = b.binary("or", named, b.binary("shl", b.integer(1, 32), first))
    b.binary("and", Value(left, "i32"), b.binary("xor", done, b.integer(-1, 32)), into=left_next)
    more = b.compare("icmp ne", Value(left_next, "i32"), b.integer(0, 32))
    b.branch(more, head, after)
    b.start(after)
    return Value(result_next, values.type, WARP)


_RULES: dict[str, Rule] = {
    "shfl": _shuffle, "vote": _vote, "match": _match, "redux": _reduce, "elect": _elect, "bar": lambda _: (),
}  # fmt: skip
"""Lanes at ``bar.warp.sync`` have waited already, and memory is in order within a warp."""
