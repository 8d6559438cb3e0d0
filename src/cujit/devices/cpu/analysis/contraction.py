"""Sums that are rounded once, as ptxas contracts them: ``mul`` and ``add`` or ``sub`` become one ``fma``.

    mul.f32 y, a, b;
    st.global.f32 [p], a;             ->    st.global.f32 [p], a;
    sub.f32 x, c, y;                        fma.rn.f32 x, -a, b, c;

PTX lets assemblers contract operations without a rounding modifier. ptxas contracts a sum if nothing but sums of the
same basic block uses the product; ``mov`` and ``neg`` between them do not matter. Fences, calls and the instructions
of ``_CUTS`` end a block; the latter do not for a product by a number. Of two products a sum takes one that has no
other use, the first operand first; then, from the first sum of the block on, the product with fewer uses. A product
that a sum keeps as its addend is contracted no more. A product by 1 or -1 is a copy. If nothing but a product by 2, 4,
8 or their reciprocals uses an f32 product, both become one that rounds once.

Source: the machine code of ptxas 11.8, 12.0, 12.9, 13.0, 13.4 and 13.5 (``tests/golden-makers/contractions.py``).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

from cujit.devices.cpu.analysis.dataflow import joined, live_in
from cujit.devices.cpu.ir.cfg import BasicBlock, ControlFlowGraph
from cujit.devices.cpu.ir.program import FloatConstant, IntConstant, KernelProgram, Op, Operand, Reg
from cujit.formats.ptx.isa.semantics import Effect, Type, form_of
from cujit.values import NamedTuple, dataclass, field, replace

_CUTS = re.compile(
    r"(membar|fence)(?!\.(proxy|mbarrier_init|\w+\.sync_restrict))|trap|brkpt|pmevent|setmaxnreg|griddepcontrol\.launch|"
    r"call\.|(div|rem)\.([su](16|64)|s32)|bfind\..*64|(div|rcp|sqrt)\.(r[nzmp]|f64)|rsqrt\.approx\.f64"
)
"""What ends a block for ptxas though no lane jumps there. Source: each form of the instruction table was tried."""

_TYPES = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"})
_SIGNS = 0x8000000080000000
"""The signs of two f32."""
_SCALES = {(127 + k) << 23: (1023 + k) << 52 for k in (-3, -2, -1, 1, 2, 3)}
"""Powers of two that a product of f32 is scaled by, as bits of f32 and of f64."""
_ONES = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF0 << 48}


@dataclass(eq=False)
class _Product:
    """A product that may be contracted, and how many sums and ``others`` use it; it ``stays`` if any of these needs it.

    ``versions`` count the writes of its factors before it; ``stale`` are those that are written again before a sum.
    """

    op: Op
    versions: tuple[int, ...]
    by_number: bool = False
    sums: int = 0
    others: int = 0
    stays: bool = False
    stale: set[int] = field(default_factory=set)


class _Value(NamedTuple):
    """What a register holds: a product, or its negative; a known number if there is none, with its bits if any."""

    product: _Product | None
    negated: bool = False
    bits: int | None = None


class _Term(NamedTuple):
    """A product that a sum may take, with its sign in the sum."""

    product: _Product
    negated: bool


_Terms = dict[int, _Term]
"""By the number of the operand."""


class _Scaled(NamedTuple):
    """A product, and the bits of the f64 that it is multiplied by."""

    product: _Product
    scale: int


def contracted(program: KernelProgram, graph: ControlFlowGraph) -> KernelProgram:
    """Make the program that ptxas makes of one; the same one if there is nothing to contract."""
    chosen: dict[Op, tuple[int, _Term]] = {}
    copies: dict[Op, Op] = {}
    scaled: dict[Op, _Scaled] = {}
    unneeded: set[Op] = set()
    for blocks in _blocks(program, graph):
        block = _ContractedBlock()
        found = [block.sums(*each) for each in blocks]
        block.end(blocks[-1][1])
        for sums in found:
            chosen.update(_chosen(sums))
        copies |= block.copies
        scaled |= _merged(block.scaled, {term.product.op for _, term in chosen.values()})
        unneeded.update(*(dead for _, _, dead in blocks))
    if not chosen and not copies and not scaled:
        return program
    new = replace(program, registers=list(program.registers))
    new.ops = [copies.get(op, op) for op in _rewritten(new, chosen, scaled) if op not in unneeded]
    return new


# -- blocks as ptxas has them -------------------------------------------------------------------------------------


_Block = tuple[list[Op], int, set[Op]]
"""The operations of a block, the registers that are needed behind it (as bits), and what nobody needs."""


def _blocks(program: KernelProgram, graph: ControlFlowGraph) -> Iterator[list[_Block]]:
    """List the blocks that are done one after the other."""
    live, behind = live_in(graph), _behind_calls(program.ops)
    for chain in _chains(graph, behind):
        after = joined(live[s] for s in chain[-1].successors)
        ops, dead, end = list[Op](), set[Op](), after
        found = list[_Block]()
        for op in reversed([op for block in chain for op in block.ops]):
            cuts = _CUTS.match(op.name) is not None
            if op.form.meaning.effect is Effect.PURE and not cuts and not op.writes & after:
                dead.add(op)
            else:
                after = after & ~op.writes | op.reads
            if cuts:
                found.append((ops[::-1], end, dead))
                ops, dead, end = [], set(), after
            else:
                ops.append(op)
        found.append((ops[::-1], end, dead))
        yield found[::-1]


def _behind_calls(ops: Sequence[Op]) -> set[Op]:
    """Collect the operations that come first behind calls that were inlined, as ptxas does not inline them."""
    found, behind = set[Op](), False
    for op in ops:
        if op.opcode == "label":
            behind = behind or "#" in op.targets[0]
        elif behind:
            found.add(op)
            behind = False
    return found


def _chains(graph: ControlFlowGraph, behind: set[Op]) -> Iterator[list[BasicBlock]]:
    """Join each block to the only one that leads to it, if that leads nowhere else."""
    following = {}
    for block in graph.blocks:
        if len(block.successors) == 1 and block.successors[0] != graph.exit:
            then = graph.blocks[block.successors[0]]
            if then.predecessors == [block.position] and behind.isdisjoint(then.ops[:1]):
                following[block.position] = then.position
    joins = {*following.values()}
    for block in graph.blocks:
        if block.position not in joins:
            chain = [block.position]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            yield [graph.blocks[p] for p in chain]


# -- products and sums --------------------------------------------------------------------------------------------


class _ContractedBlock:
    """What the registers hold on the way through blocks that follow each other."""

    def __init__(self) -> None:
        self._dead = set[Op]()
        self.copies: dict[Op, Op] = {}
        """What products by 1 and -1 are."""
        self.scaled: dict[Op, _Scaled] = {}
        """Products of products and powers of two."""
        self._held: dict[int, _Value] = {}
        self._versions: dict[int, int] = {}

    def sums(self, ops: Iterable[Op], live: int, dead: set[Op]) -> dict[Op, _Terms]:
        """Find the sums of a block that have products, and count how many of them each product has.

        Behind it only products by a number are known.
        """
        self._dead, self._held = dead, {k: v for k, v in self._held.items() if v.product and v.product.by_number}
        found: dict[Op, _Terms] = {}
        for op in ops:
            copy = self._copy(op)
            if copy is not op:
                self.copies[op] = copy
            made = self._copied(copy)
            if made is None:
                terms = self._terms(op)
                if op not in self._dead:
                    self._use(op, terms)
                    self._scale(op)
                    if terms:
                        found[op] = terms
                made = self._computed(op)
            for reg in op.written:
                self._versions[reg.index] = self._versions.get(reg.index, 0) + 1
                self._held.pop(reg.index, None)
                if made is not None:
                    self._held[reg.index] = made
        self._keep(
            index for index, v in self._held.items() if live >> index & 1 and v.product and not v.product.by_number
        )
        return found

    def end(self, live: int) -> None:
        """Keep the products that are needed behind all blocks."""
        self._keep(index for index in self._held if live >> index & 1)

    def _value(self, operand: Operand) -> _Value | None:
        if isinstance(operand, (IntConstant, FloatConstant)):
            return _Value(None, bits=operand.bits if isinstance(operand, FloatConstant) else operand.value)
        return self._held.get(operand.index) if isinstance(operand, Reg) else None

    def _copy(self, op: Op) -> Op:
        """Make a copy, which changes the sign or does not, of a product by 1 or -1."""
        if op.opcode != "mul" or not _may_contract(op, set()):
            return op
        for place, source in enumerate(op.sources):
            one = self._one(source, op.type)
            if one:
                words = ("neg", op.type) if one < 0 else ("mov", f"b{op.type.bits}")
                return replace(op, form=form_of(*words), sources=(op.sources[1 - place],), text=".".join(words))
        return op

    def _one(self, operand: Operand, type_: Type) -> int:
        """Return 1 or -1 for an operand that is known to be that, and 0 for others."""
        value, sign = self._value(operand), 1 << (type_.bits - 1)
        if value is None or value.bits is None or value.bits & (sign - 1) != _ONES.get(type_):
            return 0
        return -1 if bool(value.bits & sign) != value.negated else 1

    def _copied(self, op: Op) -> _Value | None:
        """Return what a copy contains, with its sign changed or not. An operation without text copies for a call."""
        if op.opcode not in ("mov", "neg") or op.guard is not None or not op.text or op.result is None:
            return None
        value = self._value(op.sources[0])
        if value is None or (op.opcode == "neg" and op.types == ("bf16x2",)):
            return None
        return value._replace(negated=value.negated != (op.opcode == "neg"))

    def _computed(self, op: Op) -> _Value | None:
        """Return the product or the known number that a result is. None if it is neither."""
        if op.guard is not None or op.result is None or not op.sources or op.form.meaning.effect is not Effect.PURE:
            return None
        if all((value := self._value(s)) is not None and value.product is None for s in op.sources):
            return _Value(None)
        if op.opcode != "mul" or not _may_contract(op, {"ftz"}) or any(self._one(s, op.type) for s in op.sources):
            return None
        by_number = any((value := self._value(s)) is not None and value.bits is not None for s in op.sources)
        return _Value(_Product(op, self._now(op), by_number))

    def _now(self, op: Op) -> tuple[int, ...]:
        return tuple(self._versions.get(s.index, 0) if isinstance(s, Reg) else 0 for s in op.sources)

    def _terms(self, op: Op) -> _Terms:
        """Find the products that a sum may take."""
        if op.opcode not in ("add", "sub") or not _may_contract(op, {"ftz", "sat"}):
            return {}
        terms: _Terms = {}
        for place, source in enumerate(op.sources):
            value = self._value(source)
            if value is not None and value.product is not None and _goes_with(value.product.op, op):
                terms[place] = _Term(value.product, value.negated != (op.opcode == "sub" and place == 1))
        return {} if len(terms) == 2 and terms[0].product is terms[1].product else terms

    def _use(self, op: Op, terms: _Terms) -> None:
        """Note which products a sum may take, and which ones anything needs."""
        for product, _ in terms.values():
            product.sums += 1
            self._note_stale(product)
        others = replace(op, sources=tuple(s for k, s in enumerate(op.sources) if k not in terms))
        self._keep(reg.index for reg in others.read_registers())

    def _note_stale(self, product: _Product) -> None:
        now = self._now(product.op)
        product.stale.update(k for k, was in enumerate(product.versions) if now[k] != was)

    def _scale(self, op: Op) -> None:
        """Note a product of a product and a power of two."""
        if op.opcode != "mul" or op.types != ("f32",) or not _may_contract(op, {"rn", "ftz", "sat"}):
            return
        for value, by in (pair := [self._value(source) for source in op.sources], pair[::-1]):
            if value and value.product and not value.negated and by and by.bits in _SCALES and not by.negated:
                self._note_stale(value.product)
                self.scaled[op] = _Scaled(value.product, _SCALES[by.bits])

    def _keep(self, registers: Iterable[int]) -> None:
        for index in registers:
            value = self._held.get(index)
            if value is not None and value.product is not None:
                value.product.stays = True
                value.product.others += 1


def _may_contract(op: Op, words: set[str]) -> bool:
    return len(op.types) == 1 and op.types[0] in _TYPES and words.issuperset(op.form.words)


def _goes_with(product: Op, add: Op) -> bool:
    return product.types == add.types and ("ftz" in product.modifiers) == ("ftz" in add.modifiers)


def _are_equal(a: _Term, b: _Term) -> bool:
    """Whether two terms have the same factors and the same sign: ptxas then doubles one, but not of pairs."""
    factors = [{*zip(term.product.op.sources, term.product.versions, strict=True)} for term in (a, b)]
    same = factors[0] == factors[1] and a.negated == b.negated and a.product.op.form is b.product.op.form
    return same and "x2" not in a.product.op.type


# -- choosing and rewriting ---------------------------------------------------------------------------------------


def _chosen(sums: Mapping[Op, _Terms]) -> dict[Op, tuple[int, _Term]]:
    """Choose the product that each sum takes; the others that it has stay."""
    chosen: dict[Op, tuple[int, _Term]] = {}
    for most in (1, len(sums)):
        for op, terms in sums.items():
            fit = [(p.sums, place) for place, (p, _) in terms.items() if not p.stays and p.sums <= most]
            if not fit or op in chosen:
                continue
            taken = min(fit)[1]
            if most == 1 and len(terms) == 2 and _are_equal(*terms.values()):
                taken = -1
            else:
                chosen[op] = taken, terms[taken]
            for place, (product, _) in terms.items():
                product.stays |= place != taken
    return chosen


def _merged(scaled: Mapping[Op, _Scaled], contracted: set[Op]) -> dict[Op, _Scaled]:
    """Choose the products that become one with the product that they scale: its only use, and not part of a sum."""
    merged: dict[Op, _Scaled] = {}
    for op, each in scaled.items():
        product = each.product
        if product.sums == 0 and product.others == 1 and product.op not in merged and op not in contracted:
            merged[op] = each
            product.stays = False
    return merged


def _rewritten(
    program: KernelProgram, chosen: Mapping[Op, tuple[int, _Term]], scaled: Mapping[Op, _Scaled]
) -> Iterator[Op]:
    """Write the operations with the sums contracted, and without products that nothing needs any more."""
    products = {term.product.op: term.product for _, term in chosen.values()}
    products |= {each.product.op: each.product for each in scaled.values()}
    factors: dict[Op, list[Operand]] = {op: [*op.sources] for op in products}
    for op in program.ops:
        if op in products:
            if products[op].stays:
                yield op
            for k in products[op].stale:
                factors[op][k] = yield from _moved(program, op, op.sources[k])
        elif op in chosen:
            place, (product, negated) = chosen[op]
            first, second = factors[product.op]
            addend = op.sources[1 - place]
            if negated:
                first = yield from _negative(program, op, first)
            if op.opcode == "sub" and place == 0:
                addend = yield from _negative(program, op, addend)
            yield _made(op, "fma", "rn", *op.modifiers, results=op.results, sources=(first, second, addend))
        elif op in scaled:
            product, scale = scaled[op]
            yield from _scaled(program, op, factors[product.op], scale)
        else:
            yield op


def _moved(program: KernelProgram, at: Op, source: Operand) -> Generator[Op, None, Reg]:
    """Keep an operand in a register of its own."""
    reg = _register(program, f"{source}.kept", at)
    yield _made(at, "mov", f"b{at.type.bits}", results=(reg,), sources=(source,))
    return reg


def _scaled(program: KernelProgram, at: Op, factors: Sequence[Operand], scale: int) -> Iterator[Op]:
    """Multiply two f32 and a power of two: f64 has room for all digits, and the last product gives the NaN of f32."""
    flush = [word for word in at.modifiers if word == "ftz"]
    exact: Operand = FloatConstant(scale, 64)
    for k, factor in enumerate(factors):
        wide, product = (program.register(f"{factor}.{name}{k}", "f64") for name in ("wide", "product"))
        yield _made(at, "cvt", *flush, "f64", "f32", results=(wide,), sources=(factor,))
        yield _made(at, "mul", "rn", "f64", results=(product,), sources=(wide, exact))
        exact = product
    rounded, one = program.register(f"{exact}.rounded", "f32"), FloatConstant(_ONES["f32"], 32)
    yield _made(at, "cvt", "rn", "f32", "f64", results=(rounded,), sources=(exact,))
    words = ["rn", *(word for word in at.modifiers if word != "rn")]
    yield _made(at, at.opcode, *words, results=at.results, sources=(rounded, one))


def _negative(program: KernelProgram, at: Op, source: Operand) -> Generator[Op, None, Reg]:
    """Change the sign of an operand; there is no ``neg.f32x2``."""
    reg = _register(program, f"{source}.negative", at)
    if at.type == "f32x2":
        yield _made(at, "xor", "b64", results=(reg,), sources=(source, IntConstant(_SIGNS)))
    else:
        yield _made(at, "neg", at.type, results=(reg,), sources=(source,))
    return reg


def _register(program: KernelProgram, name: str, at: Op) -> Reg:
    return program.register(name, at.type if at.type in ("f32", "f64") else f"b{at.type.bits}")


def _made(at: Op, *words: str, results: tuple[Reg | None, ...], sources: tuple[Operand, ...]) -> Op:
    """Make an operation in the place of another; only that with its results has its guard."""
    guard = at.guard if results == at.results else None
    return Op(form_of(*words), results, sources, guard, at.guard_negated, line=at.line, text=".".join(words))
