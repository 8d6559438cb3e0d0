"""``atom`` and ``red`` of every operation, type, width, space, and scope, and fences.

The lanes of a warp execute one after another, in lane order. Other threads of this process share global memory, so each
operation there uses the processor's atomic instructions. The shared memory of a block or cluster belongs to one thread,
so operations there need no atomic instructions. An address that is equal in all lanes needs one access for all lanes.

PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: atom", "red".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cujit.devices.cpu.analysis.uniformity import WARP, Divergence
from cujit.devices.cpu.codegen.builder import Builder, Value, float_type
from cujit.devices.cpu.codegen.memory import each_lane, for_each_bit, lane_item
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.rounding import canonical, flush, quiet_if_nan
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.blocks import CLUSTER
from cujit.devices.cpu.instructions.memory import address_in
from cujit.devices.cpu.instructions.small_formats import half_bits, value_of
from cujit.devices.cpu.ir.program import IntConstant, KernelProgram, Op, Operand, Reg, items_of
from cujit.values import dataclass


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("atom|red", _atomic)
    rules.on("atom.put", _put)
    rules.on("atom.run", _run)


@dataclass(frozen=True)
class Atomic:
    """One form of an atomic operation. ``operation`` and ``type`` are PTX names.

    ``locked`` is whether other threads may access the same address concurrently. ``by_cache`` selects ``add`` as the
    cache of global memory does it: see ``_float_add``.
    """

    operation: str
    type: str
    locked: bool
    by_cache: bool = False

    @property
    def bits(self) -> int:
        """Width in memory: a pair of halves is one word of 32 bits."""
        return 32 if self.type.endswith("x2") else int(self.type.lstrip("bsuf"))

    @property
    def word(self) -> str:
        """LLVM type that it is kept in."""
        return f"i{self.bits}"

    @property
    def name(self) -> str:
        """The name of this form in the names of emitted functions."""
        flags = [f for f, on in (("locked", self.locked), ("by_cache", self.by_cache)) if on]
        return ".".join([self.operation, self.type, *flags])

    @property
    def is_short(self) -> bool:
        """Whether the operation takes few instructions, none of which waits for other threads."""
        return not self.locked and (self.rmw is not None or (self.type[0] == "f" and self.bits >= 32))

    @property
    def rmw(self) -> str | None:
        """The operation of LLVM's ``atomicrmw`` that is the same, if there is one."""
        return None if self.bits == 128 else _NATIVE.get((self.operation, self.type[0]))

    def step(self, f: Builder, old: Value, operands: Sequence[Value]) -> Value:
        """Emit the new value."""
        return _step(f, self.operation, self.type, old, operands, self.by_cache)

    def apply(self, f: Builder, pointer: Value, operands: Sequence[Value]) -> Value:
        """Emit the operation on a memory location, for one lane, and return the old value."""
        if not self.locked:
            old = f.load(self.word, pointer, align=self.bits // 8)
            f.store(self.step(f, old, operands), pointer, align=self.bits // 8)
            return old
        if self.rmw is not None:
            return f.update(self.rmw, pointer, operands[0], "acq_rel", align=self.bits // 8)
        return self.until_stored(f, pointer, lambda old: self.step(f, old, operands))

    def until_stored(self, f: Builder, pointer: Value, new: Callable[[Value], Value]) -> Value:
        """Emit a loop that computes and stores the new value until no other thread has intervened. Return the old
        value.
        """
        start, again, done = f.label("start"), f.label("again"), f.label("swapped")
        seen = f.name()
        # What the first try expects need not be read whole: a wrong guess fails.
        first = f.integer(0, 128)
        if self.bits != 128:
            first = f.load(self.word, pointer, order="monotonic", align=self.bits // 8)
        f.start(start)
        f.start(again)
        tail = f.label("tried")
        old = f.phi(first, (first, start), (seen, tail))
        value = new(old)
        f.start(tail)
        success = f.exchange(pointer, old, value, "acq_rel acquire", align=self.bits // 8, into=seen)
        f.branch(success, done, again)
        f.start(done)
        return old


# -- one operation ----------------------------------------------------------------------------------------


def _atomic(e: WarpEmitter, op: Op) -> None:
    form = _form_of(op)
    address = address_in(e, op.memory, op.space)
    for k in range(op.form.vector):
        at = e.builder.binary("add", address, e.builder.integer(k * form.bits // 8, 64)) if k else address
        operands = [_item(e, s, k, form) for s in op.sources[1 : 3 if form.operation == "cas" else 2]]
        _one(e, op, k, form, at, operands)


def _form_of(op: Op) -> Atomic:
    """Return the form of an atomic operation. A generic address is assumed to point to global memory."""
    others = op.space in ("global", "generic")
    by_cache = others and not ("noftz" in op.modifiers and op.type == "f32")
    return Atomic(operation_of(op), op.type, locked=others, by_cache=by_cache)


_OPERATIONS = frozenset({"and", "or", "xor", "add", "inc", "dec", "min", "max", "exch", "cas"})


def operation_of(op: Op) -> str:
    """Return the name of the operation that an atomic operation or reduction does."""
    return next(m for m in op.modifiers if m in _OPERATIONS)


def _item(e: WarpEmitter, source: Operand, k: int, form: Atomic) -> Value:
    items = items_of(source)
    item = items[k if len(items) > 1 else 0]
    if form.type[0] == "f" and form.bits >= 32 and not form.type.endswith("x2"):
        return e.builder.bits_as(e.read(item, {32: "float", 64: "double"}[form.bits]), form.word)
    return e.read(item, form.word)


def _one(e: WarpEmitter, op: Op, k: int, form: Atomic, at: Value, operands: list[Value]) -> None:
    """Do one element of the operation in all lanes that run it."""
    result = op.results[k] if op.results else None
    wanted = result is not None and result.index in e.program.wanted
    old: Value | None
    if not at.lanes:
        if not wanted and form.rmw in _REDUCE:
            _all_at_once(e, op, form, at, operands[0])
            return
        old = _in_turn(e, op, form, at, operands)
    else:
        name = f"atomic.{form.name}" if wanted else f"atomic.{form.name}.red"

        def lane(f: Builder, v: Sequence[Value]) -> Value:
            return form.apply(f, f.cast("inttoptr", v[0], "ptr"), v[1:])

        old = each_lane(e, op, name, [at, *operands], lane, form.word if wanted else None)
    if wanted and old is not None:
        e.put(op, old, k)


def _all_at_once(e: WarpEmitter, op: Op, form: Atomic, at: Value, operand: Value) -> None:
    """Emit one operation for all lanes, which have the same address and do not use the old value.

    The emitted code first reduces the lanes' operands to one operand.
    """
    b, rmw = e.builder, form.rmw
    assert rmw is not None
    name = f"cujit.atomic.{form.name}.gathered"
    lanes, place, every = parameters = Value("%lanes", "i32"), Value("%at", "i64"), Value("%operand", form.word, WARP)

    def write(f: Builder) -> None:
        with f.when(f.compare("icmp eq", lanes, f.integer(0, 32)), "some", holds=False):
            mask = f.mask_of(lanes, into="%mask")
            idle = f.vector(f.integer(_identity(rmw, form.bits), form.bits))
            active = f.select(mask, every, idle)
            total = f.call(f"llvm.vector.reduce.{_REDUCE[rmw]}.v{WARP}{form.word}", form.word, active)
            form.apply(f, f.cast("inttoptr", place, "ptr"), [total])

    b.define(name, parameters, write)
    b.invoke(f"@{name}", "void", b.word(e.lanes(op)), at, b.vector(operand))


def may_wait(op: Op, program: KernelProgram, divergence: Divergence) -> bool:
    """Return whether an operation of all lanes may be delayed: each lane has its own address, and no lane uses the old
    value.

    The addresses are in the shared memory of the block, which belongs to this thread.
    """
    if op.opcode not in ("atom", "red") or op.space != "shared" or op.guard is not None or len(op.results) > 1:
        return False
    base, short = op.memory.base, _form_of(op).is_short and not op.memory.offset
    own = isinstance(base, Reg) and base.bits == 32 and not divergence.shapes[base.index].is_uniform
    return own and short and program.wanted.isdisjoint([reg.index for reg in op.written])


def _kept(e: WarpEmitter, op: Op) -> list[tuple[Operand, Value]]:
    """List where the halves of an operation keep offsets and operand: in memory, or as a variable of all lanes."""
    types, number = ("i32", _form_of(op).word), op.sources[-1]
    assert isinstance(number, IntConstant)
    found = []
    for k, (operand, type_) in enumerate(zip((op.memory.base, op.sources[1]), types, strict=True)):
        assert operand is not None
        kind = type_ if e.operand_shape(operand).is_uniform else "ptr"
        found.append((operand, Value(f"%atomic.{number.value}.{k}.{type_}", kind)))
    return found


def _put(e: WarpEmitter, op: Op) -> None:
    """Store the operands of the lanes for ``_run``. Operands that differ between lanes are stored in memory."""
    for operand, kept in _kept(e, op):
        value = e.read(operand, "i32") if operand is op.memory.base else _item(e, operand, 0, _form_of(op))
        if kept.type == "ptr":
            e.builder.in_memory(kept.text, value)
        else:
            e.builder.write(kept.text, value)


def _run(e: WarpEmitter, op: Op) -> None:
    """Emit an operation for one lane after another, with all lanes active, an address per lane, and no use of the old
    value.

    The emitted code reads two lanes at a time from memory. A processor does that faster than extracting vector
    elements, and still faster some time after the write.
    """
    b, form = e.builder, _form_of(op)
    values = [kept if kept.type == "ptr" else b.read(kept.text, kept.type) for _, kept in _kept(e, op)]
    name = f"cujit.atomic.{form.name}.all.{''.join('v' if v.type == 'ptr' else 's' for v in values)}"
    own = [Value(f"%p{k}", v.type) for k, v in enumerate(values)]

    def write(f: Builder) -> None:
        for lane in range(0, WARP, 2):
            pairs = [_pair(f, place, type_, lane) for place, type_ in zip(own, ("i32", form.word), strict=True)]
            for offset, item in zip(*pairs, strict=True):
                at = f.binary("add", Value("%shared", "i64"), f.resize(offset, 64, signed=True))
                form.apply(f, f.cast("inttoptr", at, "ptr"), [item])

    b.define(name, [Value("%shared", "i64"), *own], write)
    b.invoke(f"@{name}", "void", CLUSTER, *values)


def _pair(f: Builder, value: Value, type_: str, lane: int) -> list[Value]:
    """Return the values of two adjacent lanes. For a pointer, the values are read from memory."""
    if value.type != "ptr":
        return [value] * 2
    if type_ != "i32":
        return [lane_item(f, value.text, type_, f.integer(lane + each, 32)) for each in (0, 1)]
    both = lane_item(f, value.text, "i64", f.integer(lane // 2, 32))
    return [f.resize(part, 32, signed=False) for part in (both, f.binary("ashr", both, f.integer(32, 64)))]


def _in_turn(e: WarpEmitter, op: Op, form: Atomic, at: Value, operands: list[Value]) -> Value:
    """Emit an operation of all lanes on one address.

    The lanes update a copy one after another, and the final value is stored once.
    """
    b, t = e.builder, form.word
    name = f"cujit.atomic.{form.name}.turn{len(operands)}"
    vector = f"<{WARP} x {t}>"
    lanes, place = Value("%lanes", "i32"), Value("%at", "i64")
    items = [Value(f"%b{k}", t, WARP) for k in range(len(operands))]

    def write(f: Builder) -> Value:
        for k, item in enumerate(items):
            f.store(item, f.allocate(vector, into=f"%p{k}"))
        f.store(Value("zeroinitializer", t, WARP), f.allocate(vector, into="%out"))
        f.allocate(t, into="%now")

        def turns(old: Value) -> Value:
            f.store(old, "%now")
            for_each_bit(f, lanes, turn)
            return f.load(t, "%now")

        def turn(lane: Value) -> None:
            now = f.load(t, "%now")
            there = f.point(t, "%out", lane)
            f.store(now, there)
            new = form.step(f, now, [lane_item(f, f"%p{k}", t, lane) for k in range(len(operands))])
            f.store(new, "%now")

        with f.when(f.compare("icmp eq", lanes, f.integer(0, 32)), "some", holds=False):
            pointer = f.cast("inttoptr", place, "ptr")
            if form.locked:
                form.until_stored(f, pointer, turns)
            else:
                f.store(turns(f.load(t, pointer, align=form.bits // 8)), pointer, align=form.bits // 8)
        return f.load(t, "%out", lanes=WARP)

    b.define(name, [lanes, place, *items], write, vector)
    vectors = [b.vector(v) for v in operands]
    return b.invoke(f"@{name}", t, b.word(e.lanes(op)), at, *vectors, lanes=WARP)


# -- what operations compute --------------------------------------------------------------------------------

_NATIVE = {
    ("add", "s"): "add", ("add", "u"): "add", ("and", "b"): "and", ("or", "b"): "or", ("xor", "b"): "xor",
    ("exch", "b"): "xchg", ("min", "s"): "min", ("max", "s"): "max", ("min", "u"): "umin", ("max", "u"): "umax",
}  # fmt: skip
"""The operations that LLVM's ``atomicrmw`` has, by operation and kind of type."""

_REDUCE = {
    "add": "add", "and": "and", "or": "or", "xor": "xor", "min": "smin", "max": "smax", "umin": "umin", "umax": "umax",
}  # fmt: skip
"""The intrinsic ``llvm.vector.reduce.*`` of an ``atomicrmw`` whose order does not matter."""

_COMPARE = {"min": "slt", "max": "sgt", "umin": "ult", "umax": "ugt"}


def _identity(rmw: str, bits: int) -> int:
    """Return the operand that leaves every value unchanged."""
    every = (1 << bits) - 1
    return {"and": every, "min": every >> 1, "max": 1 << (bits - 1), "umin": every}.get(rmw, 0)


def _step(f: Builder, operation: str, type_: str, old: Value, operands: Sequence[Value], by_cache: bool) -> Value:
    """Emit the new value as straight-line code without branches. For ``by_cache``, see ``_float_add``."""
    b = operands[0]
    if operation == "cas":
        return f.select(f.compare("icmp eq", old, b), operands[1], old)
    if operation == "exch":
        return b
    if operation == "inc":
        wraps = f.compare("icmp uge", old, b)
        return f.select(wraps, f.integer(0, 32), f.binary("add", old, f.integer(1, 32)))
    if operation == "dec":
        zero, above = f.compare("icmp eq", old, f.integer(0, 32)), f.compare("icmp ugt", old, b)
        return f.select(f.binary("or", zero, above), b, f.binary("sub", old, f.integer(1, 32)))
    if type_.endswith("x2"):
        return _halves(f, operation, type_.removesuffix("x2"), old, b)
    if type_[0] in "bf" and type_.endswith("f16"):
        return _half(f, operation, type_, old, b)
    if type_[0] == "f":
        return _float_add(f, int(type_[1:]), old, b, by_cache)
    rmw = _NATIVE[operation, type_[0]]
    if rmw in _COMPARE:
        return f.select(f.compare(f"icmp {_COMPARE[rmw]}", old, b), old, b)
    return f.binary(rmw, old, b)


def _float_add(f: Builder, bits: int, old: Value, b: Value, by_cache: bool) -> Value:
    """Add floats as an H200 does in global memory (``by_cache``) or in shared memory.

    The cache adds in global memory. It flushes subnormal f32 and does not change f64 NaNs. In shared memory, a loop of
    instructions adds. If both values are NaN, the cache returns the new NaN, and the loop returns the old NaN. Source:
    measured on an H200.
    """
    kind = float_type(bits)
    x, y = (f.bits_as(v, kind) for v in (old, b))
    if bits == 32:
        total = flush(f, f.binary("fadd", flush(f, x), flush(f, y))) if by_cache else f.binary("fadd", x, y)
        return f.as_bits(canonical(f, total))
    total = f.as_bits(f.binary("fadd", x, y))
    if by_cache:
        return f.select(f.is_nan(y), b, f.select(f.is_nan(x), old, total))
    return f.as_bits(quiet_if_nan(f, x, f.bits_as(total, kind)))


def _halves(f: Builder, operation: str, type_: str, old: Value, b: Value) -> Value:
    """Do an operation on both halves of 32 bits."""
    whole = f.integer(0, 32)
    for at in (0, 16):
        x, y = (f.cast("trunc", f.binary("lshr", v, f.integer(at, 32)), "i16") for v in (old, b))
        part = f.cast("zext", _half(f, operation, type_, x, y), "i32")
        whole = f.binary("or", whole, f.binary("shl", part, f.integer(at, 32)))
    return whole


def _half(f: Builder, operation: str, type_: str, old: Value, b: Value) -> Value:
    """Add f16 or bf16 in f32, and round as if the sum were exact, or return the smaller or larger number.

    Source for the rounding: S. Figueroa, "When is double rounding innocuous?", SIGNUM 30 (1995): 24 >= 2 * 11 + 2.
    """
    x, y = (value_of(f, v, type_) for v in (old, b))
    if operation == "add":
        result = f.binary("fadd", x, y)
    else:
        result = f.intrinsic({"min": "minimumnum", "max": "maximumnum"}[operation], x, y)
    return half_bits(f, result, type_)
