"""Strip-mined loops: a compute-only loop of one block runs to its end for some lanes, then for the next lanes.

    AGAIN: fma.rn.f32 x, x, y, z;              strip.1: loads x, y, z of lanes 0 to 7
           setp.lt.f32 p, x, c;                turn.2:  fma <8 x float>, fcmp <8 x float>; repeats while a lane is left
           @p bra AGAIN;               ->      done.3:  stores x of these lanes; strip.1 for lanes 8 to 15, …
                                               end.4:   loads x of all lanes

If such a loop keeps many values, the values of 32 lanes need more registers than the processor has. The values of fewer
lanes fit. Also, a strip whose lanes have all left the loop does not wait for other strips. The lanes that are still in
the loop are kept as whole words, not as bits, because the processor compares words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from cujit.devices.cpu.analysis.uniformity import VARYING, WARP, is_divergent_branch
from cujit.devices.cpu.codegen.builder import Value, storage_type
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.cfg import BasicBlock
from cujit.devices.cpu.ir.program import MemoryOperand, Negation, Op, Operand, OperandGroup, Reg, Special
from cujit.devices.jit import processor
from cujit.formats.ptx.isa.semantics import Trait
from cujit.values import dataclass, replace

_MOST_OPS = 200
"""Operations of a loop that is strip-mined."""


@dataclass(frozen=True)
class Strip:
    """The way to run a loop in strips of ``width`` lanes.

    ``enters`` are the registers with per-lane values that the loop needs at its start. ``writes`` are the registers
    with per-lane values that the loop writes, and ``leaves`` are the registers in ``writes`` that other code reads.
    ``counts`` are the registers that the loop writes with one value for all lanes. ``diverges`` is whether lanes leave
    the loop at different times.
    """

    width: int
    diverges: bool
    enters: tuple[Reg, ...]
    leaves: tuple[Reg, ...]
    writes: tuple[Reg, ...]
    counts: tuple[Reg, ...]


# -- which loops ------------------------------------------------------------------------------------------


def find_strips(e: WarpEmitter, others: frozenset[int]) -> dict[int, Strip]:
    """Find the loops that are worth to be strip-mined, by position; at ``others`` lanes wait, or part for long."""
    blocks = [b for b in e.graph.blocks if b.position not in others and _is_loop(b)]
    loops = [b for b in blocks if all(_is_alone(e, op) for op in b.ops[:-1])]
    ops = set(e.program.ops) if loops else set()
    readers = _readers(ops)
    strips = ((b.position, _strip(e, b, readers, _readers(ops.intersection(b.ops)))) for b in loops)
    return {position: strip for position, strip in strips if strip is not None}


def _readers(ops: Iterable[Op]) -> Counter[Reg]:
    """Count the operations that read each register."""
    return Counter(r for op in ops for r in {*op.read_registers()})


def behind(block: BasicBlock) -> int:
    """Return the position of the block at which lanes continue after a loop of one block."""
    return next(s for s in block.successors if s != block.position)


def _is_loop(block: BasicBlock) -> bool:
    """Return whether a block is a whole loop that ends with a predicate for the lanes that repeat it."""
    loop, branch, p = block.loop, block.branch, block.position
    if loop is None or branch is None or not loop.head == loop.last == p or len(block.ops) > _MOST_OPS:
        return False
    return branch.opcode == "bra" and branch.guard is not None and len({*block.successors}) == 2 and block.site is None


def _is_alone(e: WarpEmitter, op: Op) -> bool:
    """Return whether each lane does an operation independently, without effects other than register writes."""
    sources = [_is_uniform(e, s) for s in op.sources]
    if op.form.is_load:
        plain = op.guard is None and not op.form.is_poll and op.space != "local"
        return plain and all(sources) and all(e.shape(r).is_uniform for r in op.written)
    if Trait.NARROW not in op.form.meaning.traits or None in sources:
        return False
    same = all(e.shape(r).is_uniform for r in op.read_registers())
    return all(shape == VARYING or (same and shape.is_uniform) for shape in map(e.shape, op.written))


def _is_uniform(e: WarpEmitter, operand: Operand) -> bool | None:
    """Return whether an operand is equal in all lanes. Return None for an operand that strips do not support."""
    if isinstance(operand, OperandGroup | Negation) or (isinstance(operand, MemoryOperand) and operand.coords):
        return None
    return e.operand_shape(operand).is_uniform or (None if isinstance(operand, Special) else False)


def _strip(e: WarpEmitter, block: BasicBlock, readers: Counter[Reg], inside: Counter[Reg]) -> Strip | None:
    """Return the way to run a loop in strips. Return None if strips are impossible or not worthwhile.

    ``readers`` counts the readers of each register in the whole program, and ``inside`` counts the readers in the loop.
    """

    def is_read(reg: Reg) -> bool:
        return readers[reg] > inside[reg]

    begins, written = _used(block, e.divergence.masked[block.position])
    _, enters = _sorted(begins, lambda r: e.shape(r).is_uniform)
    counts, writes = _sorted(written, lambda r: e.shape(r).is_uniform)
    leaves, _ = _sorted(writes, is_read)
    diverges, width = is_divergent_branch(block, e.divergence.shapes), _width(enters)
    # Predicates have no places in memory; and of what all lanes share, each strip would leave another value.
    lost = any(r.bits == 1 for r in (*enters, *leaves)) or (diverges and any(map(is_read, counts)))
    return None if lost or (width == WARP and not diverges) else Strip(width, diverges, enters, leaves, writes, counts)


def _sorted(registers: Iterable[Reg], chosen: Callable[[Reg], bool]) -> tuple[tuple[Reg, ...], tuple[Reg, ...]]:
    """Return the registers that are chosen, and the others."""
    found = [(r, chosen(r)) for r in registers]
    return tuple(r for r, good in found if good), tuple(r for r, good in found if not good)


def _used(block: BasicBlock, masked: int) -> tuple[list[Reg], list[Reg]]:
    """Return the registers that a loop needs at its start, and the registers that it writes.

    The first list includes written registers with an old value that lanes still need after they leave the loop.
    """
    begins: dict[Reg, None] = {}
    written: dict[Reg, None] = {}
    for op in block.ops:
        begins |= dict.fromkeys(r for r in op.read_registers() if r not in written)
        written |= dict.fromkeys(op.written)
    return [*(begins | dict.fromkeys(r for r in written if masked >> r.index & 1))], [*written]


def _width(registers: Iterable[Reg]) -> int:
    """Find out for how many lanes a processor has room in its registers, with some to spare."""
    count, bits = _vector_registers()
    needed = sum(max(r.bits, 32) for r in registers)
    width = WARP
    while width > 8 and needed * width > count * bits * 3 // 4:
        width //= 2
    return width


def _vector_registers() -> tuple[int, int]:
    """Return the number of vector registers of the processor, and their width in bits."""
    host = processor()
    features = host.features.split(",")
    if "x86" not in host.triple:
        return 32, 128
    if "+avx512vl" in features:
        return 32, 512
    return 16, 256 if "+avx" in features else 128


# -- the code ---------------------------------------------------------------------------------------------


def emit_loop(e: WarpEmitter, block: BasicBlock, strip: Strip) -> None:
    """Emit all iterations of a loop for the lanes of the current mask. After the loop, all these lanes continue
    together.
    """
    _Loop(e, block, strip).emit()


class _Loop:
    """An emitter of one loop. ``home`` is the prefix of its variable names, and ``word`` is the type that represents
    lanes.

    The ``own`` emitter keeps registers in separate variables, which contain the lanes of one strip.
    """

    def __init__(self, e: WarpEmitter, block: BasicBlock, strip: Strip) -> None:
        self.e, self.b, self.block, self.strip = e, e.builder, block, strip
        assert block.branch is not None
        self.branch = block.branch
        self.home = f"strip{block.position}."
        self.word = f"i{max([32, *(r.bits for r in strip.enters)])}"
        shapes = list(e.divergence.shapes)
        for r in strip.enters:
            shapes[r.index] = VARYING
        moved = dict.fromkeys([r.index for r in (*strip.enters, *strip.writes, *strip.counts)], self.home)
        self.own = e.within(divergence=replace(e.divergence, shapes=shapes), moved=moved, width=strip.width)

    def emit(self) -> None:
        """Emit the loop for all strips in turn. The values of all lanes are in memory, and each strip
        loads its part.
        """
        e, b, strip, mask = self.e, self.b, self.strip, self.e.mask
        for r in strip.enters:
            b.in_memory(self._place(r), b.vector(e.read(r, storage_type(r))))
        if not mask.constant:
            b.in_memory(f"%{self.home}lanes.all", b.vector(b.cast("sext", mask, self.word)))
        head, turn, done, skip = (b.label(x) for x in ("strip", "turn", "done", "skip"))
        b.write(f"{self.home}at", b.integer(0, 32))
        b.start(head)
        at = b.read(f"{self.home}at", "i32")
        self._enter(at)
        if strip.diverges and mask.constant:
            self._turn_together(turn, done)
        elif strip.diverges:
            b.branch(self._some(self._lanes()), turn, skip)
        b.start(turn)
        self._turn(turn, done)
        b.start(done)
        for r in strip.leaves:
            value = self.own.read(r, storage_type(r))
            b.reserve(self._place(r), f"<{WARP} x {value.type}>")
            b.store(value, self._part(self._place(r), value.type, at))
        b.start(skip)
        following = b.binary("add", at, b.integer(1, 32))
        b.write(f"{self.home}at", following)
        more = b.compare("icmp ult", following, b.integer(WARP // strip.width, 32))
        b.only_if(more, head, "strips.end", holds=False)
        for r in strip.leaves:
            e.write(r, "v", b.load(storage_type(r), self._place(r), lanes=WARP))
        for r in () if strip.diverges else strip.counts:
            e.write(r, "b", b.read(f"{self.home}{r.index}.b", storage_type(r)))

    def _enter(self, at: Value) -> None:
        """Begin with strip ``at``: every strip begins with the same values of registers that all lanes share."""
        b, strip = self.b, self.strip
        for r in strip.enters:
            part = self._part(self._place(r), storage_type(r), at)
            self.own.write(r, "v", b.load(storage_type(r), part, lanes=strip.width))
        for r in strip.counts:
            self.own.write(r, "b", b.read(f"r{r.index}.b", storage_type(r)))
        if not self.e.mask.constant:
            place = self._part(f"%{self.home}lanes.all", self.word, at)
            b.write(f"{self.home}lanes", b.load(self.word, place, lanes=strip.width))

    def _turn_together(self, turn: str, done: str) -> None:
        """Emit the iterations in which all lanes of a strip are active, before the iterations of only some lanes."""
        b, again, all_there = self.b, self.b.label("together"), Value("-1", self.word, constant=True)
        b.write(f"{self.home}lanes", b.vector(all_there, self.strip.width))
        b.start(again)
        # To LLVM, the lanes are some that it does not know: of what it knows it makes bits, which takes longer.
        left = self._keep(self._lanes(), self._stay(self.own))
        b.only_if(b.compare("icmp eq", b.reduce("and", left), all_there), again, "some", holds=False)
        b.branch(self._some(left), turn, done)

    def _turn(self, turn: str, done: str) -> None:
        """Emit a turn of some lanes."""
        b = self.b
        if self.e.mask.constant and not self.strip.diverges:
            stays = self._stay(self.own)
        else:
            lanes = self._lanes()
            stays = self._stay(self.own.within(mask=b.compare("icmp slt", lanes, Value("0", self.word, constant=True))))
            if stays.lanes:
                stays = self._some(self._keep(lanes, stays))
        b.branch(stays, turn, done)

    def _stay(self, e: WarpEmitter) -> Value:
        """Emit one iteration of the loop. Return the lanes that repeat the loop, or a scalar if all lanes agree."""
        for op in self.block.ops[:-1]:
            e.emit_op(op)
        stays = e.guard(self.branch)
        return stays if self.block.successors[0] == self.block.position else self.b.invert(stays)

    def _lanes(self) -> Value:
        return self.b.read(f"{self.home}lanes", self.word, lanes=self.strip.width)

    def _keep(self, lanes: Value, stays: Value) -> Value:
        left = self.b.binary("and", lanes, self.b.cast("sext", stays, lanes.type))
        self.b.write(f"{self.home}lanes", left)
        return left

    def _some(self, lanes: Value) -> Value:
        """Whether any of some lanes, as words, is there."""
        return self.b.compare("icmp ne", self.b.reduce("or", lanes), Value("0", lanes.type))

    def _place(self, reg: Reg) -> str:
        return f"%{self.home}{reg.index}.all"

    def _part(self, place: str, type_: str, at: Value) -> Value:
        """Return a pointer to the values of the lanes of strip ``at`` in memory that contains the
        values of all lanes.
        """
        return self.b.point(f"<{self.strip.width} x {type_}>", place, at)
