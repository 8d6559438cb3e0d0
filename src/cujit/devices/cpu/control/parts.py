"""Loops of one block that only compute: run for a part of the warp's lanes, to the end, then for the next part.

The values of 32 lanes fill more registers than a processor has when such a loop keeps many of them; those of some of
the lanes do not, and a part whose lanes have all left the loop waits for no other. The lanes that are still in the
loop are kept as whole words, as the processor compares them, and not as bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cujit.devices.cpu.analysis.uniformity import VARYING, WARP, special_shape
from cujit.devices.cpu.codegen.builder import Value, storage_type
from cujit.devices.cpu.ir.cfg import Block
from cujit.devices.cpu.ir.program import FloatConstant, IntConstant, Memory, Op, Operand, Reg, Special, SymbolAddress
from cujit.devices.cpu.ir.semantics import Trait
from cujit.devices.jit import processor

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter

__all__ = ["Part", "behind", "emit_loop", "find_part"]

_MOST_OPS = 200
"""Operations of a loop that is emitted once more in parts."""


@dataclass(frozen=True)
class Part:
    """How to run a loop in parts of ``width`` lanes.

    ``enters``, ``writes`` and ``leaves`` are the registers with a value in each lane that it begins with, that it
    writes, and that others read of these; ``counts`` are those that it writes with one value for all lanes.
    ``parts_lanes`` tells whether lanes leave it at different times.
    """

    width: int
    parts_lanes: bool
    enters: tuple[Reg, ...]
    leaves: tuple[Reg, ...]
    writes: tuple[Reg, ...]
    counts: tuple[Reg, ...]


# -- which loops ------------------------------------------------------------------------------------------


def find_part(e: WarpEmitter, block: Block) -> Part | None:
    """Find out whether a block is a loop that is worth to be run in parts, and how."""
    loop, branch, p = block.loop, block.branch, block.position
    if loop is None or loop.head != p or loop.last != p or branch is None or branch.opcode != "bra":
        return None
    if branch.guard is None or block.successors[0] == block.successors[-1] or len(block.ops) > _MOST_OPS:
        return None
    if e.watched or block.site is not None or not all(_is_alone(e, op) for op in block.ops[:-1]):
        return None
    return _plan(e, block, branch.guard)


def behind(block: Block) -> int:
    """Tell where lanes go that leave a loop of one block."""
    return next(s for s in block.successors if s != block.position)


def _is_alone(e: WarpEmitter, op: Op) -> bool:
    """Whether lanes do an operation without each other, and it does nothing but write registers."""
    sources = [_is_uniform(e, s) for s in op.sources]
    if None in sources:
        return False
    results = [e.shape(r) for r in op.results if r is not None]
    if op.form.is_load:
        plain = op.guard is None and not op.form.is_poll and op.space != "local"
        return plain and all(sources) and all(shape.is_uniform for shape in results)
    uniform = all(sources) and (op.guard is None or e.shape(op.guard).is_uniform)
    narrow = Trait.NARROW in op.form.meaning.traits
    return narrow and all(shape == VARYING or (uniform and shape.is_uniform) for shape in results)


def _is_uniform(e: WarpEmitter, operand: Operand) -> bool | None:
    """Whether an operand is the same in all lanes; None where it is nothing that a lane has alone."""
    if isinstance(operand, Reg):
        return e.shape(operand).is_uniform
    if isinstance(operand, IntConstant | FloatConstant | SymbolAddress):
        return True
    if isinstance(operand, Special):
        return True if special_shape(operand.name, e.block).is_uniform else None
    if isinstance(operand, Memory):
        return None if operand.coords else operand.base is None or _is_uniform(e, operand.base)
    return None


def _plan(e: WarpEmitter, block: Block, guard: Reg) -> Part | None:
    ops = block.ops
    blend = e.divergence.blend[block.position]
    written: dict[Reg, None] = {}
    entering: dict[Reg, None] = {}
    for op in ops:
        entering |= dict.fromkeys(r for r in op.read_registers() if r not in written)
        written |= dict.fromkeys(r for r in op.results if r is not None)
    entering |= dict.fromkeys(r for r in written if blend >> r.index & 1)
    inside = set(map(id, ops))
    read = {r for op in e.program.ops if id(op) not in inside for r in op.read_registers()}
    kept = [r for r in written if r in read]
    enters = tuple(r for r in entering if not e.shape(r).is_uniform)
    leaves = tuple(r for r in kept if not e.shape(r).is_uniform)
    counts = tuple(r for r in written if e.shape(r).is_uniform)
    parts_lanes = not e.shape(guard).is_uniform
    if any(r.bits == 1 for r in (*enters, *leaves)) or (parts_lanes and any(r in counts for r in kept)):
        return None
    width = _width(enters)
    if width == WARP and not parts_lanes:
        return None
    writes = tuple(r for r in written if r not in counts)
    return Part(width, parts_lanes, enters, leaves, writes, counts)


def _width(registers: Iterable[Reg]) -> int:
    """Find out for how many lanes a processor has room in its registers, with some to spare."""
    count, bits = _vector_registers()
    needed = sum(max(r.bits, 32) for r in registers)
    width = WARP
    while width > 8 and needed * width > count * bits * 3 // 4:
        width //= 2
    return width


def _vector_registers() -> tuple[int, int]:
    """Tell how many vector registers the processor has, and their bits."""
    host = processor()
    features = host.features.split(",")
    if "x86" not in host.triple:
        return 32, 128
    if "+avx512vl" in features:
        return 32, 512
    return 16, 256 if "+avx" in features else 128


# -- the code ---------------------------------------------------------------------------------------------


def emit_loop(e: WarpEmitter, block: Block, part: Part) -> None:
    """Emit all turns of a loop for the lanes of the current mask; they come out of it together."""
    b, mask = e.builder, e.mask
    home = f"part{block.position}."
    word = f"i{max([32, *(r.bits for r in part.enters)])}"
    for r in part.enters:
        _hand_over(e, f"%{home}{r.index}.all", e.read(r, storage_type(r)))
    if not mask.constant:
        _hand_over(e, f"%{home}lanes.all", b.cast("sext", mask, word))
    head, turn, done, skip, end = (b.label(x) for x in ("part", "turn", "done", "skip", "parts"))
    b.write(f"{home}at", b.integer(0, 32))
    b.jump(head)
    b.start(head)
    at = b.read(f"{home}at", "i32")
    with _narrow(e, part, home):
        _enter(e, part, home, at)
        if not mask.constant:
            b.write(f"{home}lanes", _load_part(e, f"%{home}lanes.all", word, at))
        if not part.parts_lanes:
            b.jump(turn)
        elif mask.constant:
            _turn_together(e, block, f"{home}lanes", word, (turn, done))
        else:
            b.branch(_some(e, b.read(f"{home}lanes", word, vector=True)), turn, skip)
        b.start(turn)
        _turn(e, block, f"{home}lanes", word, (turn, done))
        b.start(done)
        for r in part.leaves:
            value = e.read(r, storage_type(r))
            b.reserve(f"%{home}{r.index}.all", f"<{WARP} x {value.type}>")
            b.store(value, _part_of(e, f"%{home}{r.index}.all", value.type, at))
        b.jump(skip)
    e.mask = mask
    b.start(skip)
    following = b.binary("add", at, b.integer(1, 32))
    b.write(f"{home}at", following)
    more = b.compare("icmp ult", following, b.integer(WARP // part.width, 32))
    b.branch(more, head, end)
    b.start(end)
    _leave(e, part, home)


def _turn_together(e: WarpEmitter, block: Block, lanes: str, word: str, ways: tuple[str, str]) -> None:
    """Emit the turns in which all lanes of a part are; ``ways`` are the turns after that, and behind the loop."""
    b = e.builder
    again, apart = b.label("together"), b.label("apart")
    b.write(lanes, b.vector(Value("-1", word, constant=True)))
    b.jump(again)
    b.start(again)
    # To LLVM, the lanes are some that it does not know: of what it knows it makes bits, which takes longer.
    left = _left(e, b.read(lanes, word, vector=True), _stay(e, block))
    b.write(lanes, left)
    all_stay = b.compare("icmp eq", b.reduce("and", left), Value("-1", word))
    b.branch(all_stay, again, apart)
    b.start(apart)
    b.branch(_some(e, left), ways[0], ways[1])


def _turn(e: WarpEmitter, block: Block, variable: str, word: str, ways: tuple[str, str]) -> None:
    """Emit a turn of some lanes; ``ways`` are the label that it begins at, and behind the loop."""
    b, branch = e.builder, block.branch
    assert branch is not None
    assert branch.guard is not None
    if e.mask.constant and e.shape(branch.guard).is_uniform:
        stays = _stay(e, block)
    else:
        lanes = b.read(variable, word, vector=True)
        e.mask = b.compare("icmp slt", lanes, Value("0", word, constant=True))
        stays = _stay(e, block)
        if stays.is_vector:
            left = _left(e, lanes, stays)
            b.write(variable, left)
            stays = _some(e, left)
    b.branch(stays, ways[0], ways[1])


def _left(e: WarpEmitter, lanes: Value, stays: Value) -> Value:
    return e.builder.binary("and", lanes, e.builder.cast("sext", stays, lanes.type))


def _stay(e: WarpEmitter, block: Block) -> Value:
    """Emit what the loop does in one turn; find out which lanes, if not all or none, turn once more."""
    branch = block.branch
    assert branch is not None
    for op in block.ops[:-1]:
        e.emit_op(op)
    leaves = block.successors[0] != block.position
    return e.builder.invert(e.guard(branch)) if leaves else e.guard(branch)


@contextlib.contextmanager
def _narrow(e: WarpEmitter, part: Part, home: str) -> Iterator[None]:
    """Have registers be variables of their own, with the lanes of a part."""
    b, divergence = e.builder, e.divergence
    shapes = list(divergence.shapes)
    for r in part.enters:
        shapes[r.index] = VARYING
    e.divergence = replace(divergence, shapes=shapes)
    e.moved = {r.index: home for r in (*part.enters, *part.writes, *part.counts)}
    b.width = part.width
    yield
    b.width = WARP
    e.moved = {}
    e.divergence = divergence


def _hand_over(e: WarpEmitter, place: str, value: Value) -> None:
    """Put what all lanes have in memory, from which each part takes its own."""
    every = e.builder.vector(value)
    e.builder.reserve(place, e.builder.type_of(every))
    e.builder.store(every, place)


def _enter(e: WarpEmitter, part: Part, home: str, at: Value) -> None:
    """Begin with part ``at``: every part begins with the same values of registers that all lanes share."""
    b = e.builder
    for r in part.enters:
        e.write(r, "v", _load_part(e, f"%{home}{r.index}.all", storage_type(r), at))
    for r in part.counts:
        e.write(r, "b", b.read(f"r{r.index}.b", storage_type(r)))


def _leave(e: WarpEmitter, part: Part, home: str) -> None:
    """Put what the loop leaves in registers where it belongs."""
    b = e.builder
    for r in part.leaves:
        e.write(r, "v", b.load(storage_type(r), f"%{home}{r.index}.all", vector=True))
    for r in () if part.parts_lanes else part.counts:
        e.write(r, "b", b.read(f"{home}{r.index}.b", storage_type(r)))


def _part_of(e: WarpEmitter, place: str, type_: str, at: Value) -> Value:
    return e.builder.point(f"<{e.builder.width} x {type_}>", place, at)


def _load_part(e: WarpEmitter, place: str, type_: str, at: Value) -> Value:
    return e.builder.load(type_, _part_of(e, place, type_, at), vector=True)


def _some(e: WarpEmitter, lanes: Value) -> Value:
    """Whether any of some lanes, as words, is there."""
    return e.builder.compare("icmp ne", e.builder.reduce("or", lanes), Value("0", lanes.type))
