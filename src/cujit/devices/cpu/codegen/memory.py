"""How the loads and stores of a warp are done: the first way that a ``Gather`` or ``Scatter`` allows, or lane by lane.

    ld.shared.v2.f32 {a, b}, [r+8];    ->    one masked load of 64 floats, and two shuffles: the lanes lie side by side
    ld.global.f32 c, [q];              ->    a call of cujit_gather_32 with a vector of addresses: q may be anything
    ld.acquire.gpu.u32 d, [f];         ->    fence, one load, fence acquire: f is uniform

What the lanes access and where is a value, before it is chosen how that is done: the first line is a ``Gather`` of two
``float`` at a ``LaneAddresses`` with one base and the stride 8, where ``r`` counts up by 8 with the lane.

A volatile, relaxed, acquire or release access is the plain vector access of its kind between two fences that keep the
compiler from leaving it out, joining it with another or moving it. That is enough, because processors read and
write aligned words of up to 8 bytes whole, those of a vector too; 16 bytes have accesses of their own. What one lane
accesses so is one word, if it is a vector of PTX too. PTX ISA 9.1, chapter 8 "Memory Consistency Model".
"""

from __future__ import annotations

import contextlib
import functools
import platform
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from cujit.devices.cpu.analysis.patterns import VectorAccess
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value, float_type, int_type, type_width
from cujit.devices.cpu.codegen.nodes import LAUNCH, type_of
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.program import Op, Reg
from cujit.devices.cpu.native import lanes as native
from cujit.devices.cpu.run.launch import field_offset
from cujit.formats.ptx.isa.semantics import Type
from cujit.values import dataclass


@dataclass(frozen=True)
class LaneAddresses:
    """Where the lanes access memory, in addresses (i64) of this process.

    ``bases`` are those of the first lane of each row of lanes, and ``stride`` is from lane to lane within a row;
    ``lanes`` has one for each, and is always right. Where there is ``holds``, it tells at run time whether the bases
    are. With ``vectors`` the one base is where they begin.
    """

    bases: tuple[Value, ...] = ()
    stride: int = 0
    lanes: Value | None = None
    holds: Value | None = None
    vectors: VectorAccess | None = None

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes access the same."""
        return len(self.bases) == 1 and self.stride == 0 and self.vectors is None

    def every_lane(self, b: Builder) -> Value:
        """Return each lane's address."""
        if self.lanes is not None:
            return self.lanes
        return b.binary("add", self.bases[0], b.lanes([k * self.stride for k in range(WARP)], 64))


@dataclass(frozen=True)
class Gather:
    """A load: ``count`` neighbouring elements for every lane that runs.

    ``mask`` are those lanes; of a uniform place it may be one i1, whether there are any. The space, the order and
    hints are those of ``op``.
    """

    op: Op
    place: LaneAddresses
    element: str
    count: int
    mask: Value

    @property
    def element_bytes(self) -> int:
        """Bytes of an element, by which it is aligned."""
        return type_width(self.element) // 8

    @property
    def bytes(self) -> int:
        """Bytes of a lane's elements."""
        return self.element_bytes * self.count

    @property
    def row_bytes(self) -> int:
        """Bytes of the elements of a row of lanes."""
        return self.bytes * (WARP // len(self.place.bases))

    @property
    def is_contiguous(self) -> bool:
        """Whether the lanes of each row access what lies side by side."""
        return bool(self.place.bases) and self.place.stride == self.bytes

    @property
    def is_whole(self) -> bool:
        """Whether all lanes run for certain."""
        return self.mask.constant


@dataclass(frozen=True)
class Scatter(Gather):
    """A store of as many ``values``.

    It is ``nontemporal`` where it may go past the cache, and ``blends`` where memory of lanes that do not run may be
    read and written back.
    """

    values: tuple[Value, ...] = ()
    nontemporal: bool = False
    blends: bool = False


def element_type(type_: Type) -> str:
    """LLVM type that a PTX type has in memory."""
    return float_type(type_.bits) if type_.kind == "f" and type_.bits >= 32 else int_type(type_.bits)


def short_name(element: str) -> str:
    """Name a type as intrinsics do."""
    return {"float": "f32", "double": "f64"}.get(element, element)


# -- an address for each lane ------------------------------------------------------------------------------


def addresses(b: Builder, g: Gather) -> Iterator[Value]:
    """Yield each lane's address of one element after the other. Lanes that do not run have the
    address of idle memory.
    """
    every = g.place.every_lane(b)
    for k in range(g.count):
        at = b.binary("add", every, b.integer(k * g.element_bytes, 64)) if k else every
        yield at if g.is_whole else b.select(g.mask, at, b.vector(Value("%idle.int", "i64")))


def native_lanes(b: Builder, kind: str, bits: int) -> str:
    """Declare the function that gathers, scatters or divides elements of so many bits, and name it."""
    name = native.name_of(kind, bits)
    b.module.declared.setdefault(name, native.declared(kind, bits))
    return f"@{name}"


# -- vectors of several elements a lane -------------------------------------------------------------------


def joined(b: Builder, parts: list[Value], width: int) -> Value:
    """One vector of several, each of ``width`` elements, one behind the other."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [b.shuffle(first, second, range(2 * width)) for first, second in pairs]
        width *= 2
    return parts[0]


def dealt(b: Builder, values: list[Value]) -> Value:
    """One vector with the lanes' elements in memory order."""
    whole, count = joined(b, values, WARP), len(values)
    if count == 1:
        return whole
    return b.shuffle(whole, None, [(k % count) * WARP + k // count for k in range(WARP * count)])


def repeated(b: Builder, mask: Value, count: int, row: int = 0, rows: int = 1) -> Value:
    """The part of a mask that is for one of ``rows`` rows, with every lane's bit ``count`` times in a row."""
    width = WARP // rows
    if mask.constant or (count == 1 and rows == 1):
        return Value(mask.text, f"<{width * count} x i1>", constant=mask.constant)
    return b.shuffle(mask, None, [row * width + k // count for k in range(width * count)])


# -- loading and storing ------------------------------------------------------------------------------------

_Access = TypeVar("_Access", bound=Gather)
_Way = Callable[[WarpEmitter, _Access], Sequence[Value] | None]

_MOST_BLENDED = 8
"""Bytes a lane that may be read and written back where the lane does not run: they lie within what surrounds the
shared memory of a block, at most 31 times as far away as this from where a lane that runs may store."""


def load(e: WarpEmitter, g: Gather) -> Sequence[Value]:
    """Load, and give each element: a vector, or a scalar that all lanes have."""
    values = _do(e, g, _LOADS, _gather)
    if g.op.form.is_strong and g.element != "i128":
        _keep(e.builder, values)
    return values


def store(e: WarpEmitter, s: Scatter) -> None:
    """Store the values in the lanes that run. Of lanes that store to the same place, the last one's value stays."""
    _do(e, s, _STORES, _scatter)


def _do(
    e: WarpEmitter,
    access: _Access,
    ways: Sequence[tuple[Callable[[_Access], bool], _Way[_Access]]],
    lane_by_lane: _Way[_Access],
) -> Sequence[Value]:
    """Go the first way that fits; where that is for bases which may be wrong, only if they are right at run time."""
    way = next((way for fits, way in ways if fits(access)), lane_by_lane)
    if access.place.holds is None or way is lane_by_lane:
        return way(e, access) or ()
    return e.builder.either(access.place.holds, lambda: way(e, access), lambda: lane_by_lane(e, access), "contiguous")


def _keep(b: Builder, values: Sequence[Value]) -> None:
    """Keep loads whose values nobody reads, so that they fault where there is no memory."""
    for value in values:
        if value.lanes:
            bits = b.bits_as(value, int_type(type_width(value.type)))
            first = b.extract(bits, b.integer(0, 32))
            b.invoke('asm sideeffect "", "r"', "void", b.resize(first, 64, signed=False))


# -- one address, or one for each lane ----------------------------------------------------------------------


def _load_uniform(e: WarpEmitter, g: Gather) -> Sequence[Value]:
    """Load once for all lanes, if any runs; one that is strong is done though nobody reads its value."""
    b = e.builder
    pointer = b.cast("inttoptr", g.place.bases[0], "ptr")

    def each() -> list[Value]:
        return _elements(b, g, pointer, volatile=g.op.form.is_strong)

    if g.op.guard is None:
        return each()
    nothing = [Value("zeroinitializer", g.element)] * g.count
    return b.either(b.any_lane(g.mask) if g.mask.lanes else g.mask, each, lambda: nothing, "load")


def _elements(b: Builder, g: Gather, pointer: Value, *, volatile: bool = False) -> list[Value]:
    size = g.element_bytes
    places = [b.offset(pointer, k * size) if k else pointer for k in range(g.count)]
    return [b.load(g.element, at, align=size, volatile=volatile) for at in places]


def _if_any(b: Builder, s: Scatter) -> contextlib.AbstractContextManager[None]:
    """Do what is emitted inside only if a lane runs: where none does, the address may be any."""
    return contextlib.nullcontext() if s.op.guard is None else b.when(b.any_lane(s.mask), "store")


def _store_uniform(e: WarpEmitter, s: Scatter) -> None:
    """Store once: the values of the last lane that runs."""
    b = e.builder
    with _if_any(b, s):
        pointer = b.cast("inttoptr", s.place.bases[0], "ptr")
        zeros = b.call("llvm.ctlz.i32", "i32", b.word(s.mask), b.integer(0, 1))
        last = b.binary("and", b.binary("sub", b.integer(WARP - 1, 32), zeros), b.integer(WARP - 1, 32))
        for k, value in enumerate(s.values):
            one = b.extract(value, last) if value.lanes else value
            at, is_strong = b.offset(pointer, k * s.element_bytes), s.op.form.is_strong
            b.store(one, at, align=s.element_bytes, volatile=is_strong)  # LLVM splits other words of two values


def _gather(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load from each lane's own address."""
    b, bits = e.builder, type_width(g.element)
    found = [b.invoke(native_lanes(b, "gather", bits), int_type(bits), at, lanes=WARP) for at in addresses(b, g)]
    return [b.bits_as(each, g.element) for each in found]


def _scatter(e: WarpEmitter, s: Scatter) -> None:
    """Store to each lane's own address."""
    b, bits = e.builder, type_width(s.element)
    for at, value in zip(addresses(b, s), s.values, strict=True):
        b.invoke(native_lanes(b, "scatter", bits), "void", at, b.bits_as(b.vector(value), int_type(bits)))


# -- lanes at a stride --------------------------------------------------------------------------------------


def _load_contiguous(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load neighbouring elements of all lanes as one vector a row, and deal them out."""
    b, count, rows = e.builder, g.count, len(g.place.bases)
    n = WARP // rows * count
    wide, name = f"<{n} x {g.element}>", f"llvm.masked.load.v{n}{short_name(g.element)}.p0"
    align, nothing = b.integer(g.element_bytes, 32), Value("zeroinitializer", wide)
    parts = []
    for k, base in enumerate(g.place.bases):
        pointer = b.cast("inttoptr", base, "ptr")
        parts.append(b.call(name, wide, pointer, align, repeated(b, g.mask, count, k, rows), nothing))
    if _is_of_walk(e, g):
        _prefetch_behind(b, g)
    whole = joined(b, parts, n)
    if count == 1:
        return [Value(whole.text, g.element, WARP)]
    return [b.shuffle(whole, None, [lane * count + k for lane in range(WARP)]) for k in range(count)]


_MOST_PREFETCHED = 256
"""Bytes of a row whose neighbour is fetched: the lanes' doubles."""


def _is_of_walk(e: WarpEmitter, g: Gather) -> bool:
    """Whether a loop goes over global memory by this load, all lanes of the warp in one row, from place to place."""
    loop, base = e.graph.blocks[e.position].loop, g.op.memory.base
    one_row = g.is_whole and len(g.place.bases) == 1 and g.row_bytes <= _MOST_PREFETCHED and not e.watched
    if loop is None or not one_row or g.op.space not in ("global", "generic") or not isinstance(base, Reg):
        return False
    moves = any(base in op.results for block in e.graph.blocks[loop.head : loop.last + 1] for op in block.ops)
    return moves and not _is_adjacent(e.graph.blocks[e.position].ops, g.op, base)


def _is_adjacent(ops: Sequence[Op], load: Op, base: Reg) -> bool:
    """Whether an earlier load of a block is less than a cache line away: it had the same lines fetched."""
    found = False
    for op in ops[: ops.index(load)]:
        if op.form.is_load and op.memory.base is base:
            found |= abs(op.memory.offset - load.memory.offset) < _LINE
        found &= base not in op.results
    return found


def _prefetch_behind(b: Builder, g: Gather) -> None:
    """Prefetch into the L2 cache what follows a row, which the next warp loads in the same loop iteration.

    Warps run one after the other. Where each goes far in a turn, as those of a grid-stride loop do, it accesses a piece
    too short for the processor to see that memory is read in order.
    """
    pointer = b.cast("inttoptr", g.place.bases[0], "ptr")
    hints = [b.integer(number, 32) for number in (0, 2, 1)]  # a read, to the second cache, of data
    for line in range(max(g.row_bytes // _LINE, 1)):
        b.call("llvm.prefetch.p0", "void", b.offset(pointer, g.row_bytes + line * _LINE), *hints)


def _load_rows(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load what the lanes of each row have in common."""
    b = e.builder
    pointers = [b.cast("inttoptr", base, "ptr") for base in g.place.bases]
    found = [_elements(b, g, pointer) for pointer in pointers]
    return [b.rows(list(values)) for values in zip(*found, strict=True)]


def _load_strided(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load one element after another, which lie the stride apart."""
    b, stride, base = e.builder, g.place.stride, Value("%base", "ptr")

    def body(f: Builder) -> Value:
        found = Value("poison", g.element, WARP)
        for lane in range(WARP):
            one = f.load(g.element, f.offset(base, lane * stride), align=g.element_bytes)
            found = f.insert(found, one, lane)
        return found

    name = f"load.{g.element}.apart.{stride}"
    b.define(name, [base], body, f"<{WARP} x {g.element}>", "noinline nounwind willreturn memory(read)")
    return [b.invoke(f"@{name}", g.element, b.cast("inttoptr", g.place.bases[0], "ptr"), lanes=WARP)]


def _rows(b: Builder, s: Scatter) -> Iterator[tuple[Value, Value, Value]]:
    """Yield for each row its elements as one vector, where they go, and the mask of the elements that do."""
    whole, rows = dealt(b, [b.vector(v) for v in s.values]), len(s.place.bases)
    n = WARP // rows * s.count
    for k, base in enumerate(s.place.bases):
        part = b.shuffle(whole, None, range(k * n, k * n + n)) if rows > 1 else whole
        pointer = b.cast("inttoptr", base, "ptr")
        yield Value(part.text, f"<{n} x {s.element}>"), pointer, repeated(b, s.mask, s.count, k, rows)


def _store_contiguous(e: WarpEmitter, s: Scatter) -> None:
    """Store neighbouring elements of all lanes as one vector a row."""
    for part, pointer, lanes in _rows(e.builder, s):
        _store_masked(e.builder, s, part, pointer, lanes)


def _store_masked(b: Builder, s: Scatter, part: Value, pointer: Value, lanes: Value) -> None:
    n = WARP // len(s.place.bases) * s.count
    name = f"llvm.masked.store.v{n}{short_name(s.element)}.p0"
    b.call(name, "void", part, pointer, b.integer(s.element_bytes, 32), lanes)


def _store_blended(e: WarpEmitter, s: Scatter) -> None:
    """Read and write back what lanes that do not run would store to, which most processors do faster than a store with
    a mask."""
    b = e.builder
    with _if_any(b, s):
        for part, pointer, lanes in _rows(b, s):
            old = b.load(part.type, pointer, align=s.element_bytes)
            b.store(b.select(Value(lanes.text, lanes.type), part, old), pointer, align=s.element_bytes)


# -- non-temporal stores: see ``analysis.body`` ---------------------------------------------------------------

_LINE = 64
"""Bytes of a cache line of x86-64. A store of less than all of one is slower past the cache."""

_UNALIGNED = Value("%unaligned", "i64")
"""Bits of an address that are zero where a store may go past the cache; all if none may."""


def may_be_nontemporal(e: WarpEmitter, op: Op) -> bool:
    """Whether a store may go past the cache; none may in kernels that wait or call, whose warps have stacks."""
    if platform.machine() not in ("x86_64", "AMD64") or e.watched or e.suspends:
        return False
    return op in e.body.nontemporal.stores


def wait_for_stores(b: Builder, *others: Builder) -> None:
    """Wait for stores past the cache, if there are any in the function that ``b`` builds, or those of the others."""
    if any(node.nontemporal for each in (b, *others) for node in each.body):
        b.call("llvm.x86.sse.sfence", "void")


def _store_nontemporal(e: WarpEmitter, s: Scatter) -> None:
    """Store past the cache where a row begins with a cache line, if the launch writes more than the cache holds."""
    b = e.builder
    if not b.has_entry(_UNALIGNED.text):
        block_bytes = e.block.volume * e.body.nontemporal.thread_bytes
        with b.at_entry():
            cache = b.load("i64", b.offset(LAUNCH, field_offset("cache_bytes")))
            written = b.binary("mul", Value("%blocks", "i64"), b.integer(block_bytes, 64))
            is_much = b.compare("icmp ugt", written, cache)
            b.select(is_much, b.integer(_LINE - 1, 64), b.integer(-1, 64), into=_UNALIGNED.text)
    for row, base in zip(_rows(b, s), s.place.bases, strict=True):
        is_line = b.compare("icmp eq", b.binary("and", base, _UNALIGNED), b.integer(0, 64))
        b.either(
            is_line,
            functools.partial(b.store, *row[:2], align=_LINE, nontemporal=True),
            functools.partial(_store_masked, b, s, *row),
            "nontemporal",
        )


# -- shared memory at a pattern: as whole vectors, out of which constant shuffles pick --------------------------
#
# Nobody but this thread writes to the shared memory of its block: what lies between the lanes' words is read and
# written back. The vectors are shorter than what surrounds shared memory.


def _load_vectors(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load all vectors, and give each lane its element."""
    assert g.place.vectors is not None
    return [_picked(e.builder, g, g.place.vectors, _vectors(e.builder, g, g.place.vectors))]


def _store_vectors(e: WarpEmitter, s: Scatter) -> None:
    """Store each lane's value, in the lanes that run."""
    b, access = e.builder, s.place.vectors
    assert access is not None
    n, vectors, value = access.per_vector, _vectors(b, s, access), b.vector(s.values[0])
    if not s.is_whole:
        # Frozen, so that LLVM makes no store with a mask of it, which takes some processors many times as long.
        value = b.select(s.mask, value, b.freeze(_picked(b, s, access, vectors)))
    lane_at = dict(zip(access.places, range(WARP), strict=True))
    for k, (pointer, old) in enumerate(vectors):
        own = [lane_at.get(k * n + j, -1) for j in range(n)]
        new = _shuffled(b, WARP, value, None, own)
        if -1 in own:
            new = _shuffled(b, n, old, new, [j if own[j] < 0 else n + j for j in range(n)])
        b.store(Value(new.text, old.type), pointer, align=access.size)


def _vectors(b: Builder, g: Gather, access: VectorAccess) -> list[tuple[Value, Value]]:
    """Load the vectors as they are before the operation; give where each lies with it."""
    start = b.cast("inttoptr", g.place.bases[0], "ptr")
    pointers = [b.offset(start, k * access.vector_bytes) for k in access.used]
    return [(at, b.load(f"<{access.per_vector} x {g.element}>", at, align=access.size)) for at in pointers]


def _picked(b: Builder, g: Gather, access: VectorAccess, vectors: list[tuple[Value, Value]]) -> Value:
    values = [value for _, value in vectors]
    count = 1 << (len(values) - 1).bit_length()
    whole = joined(b, [*values, *[Value("poison", values[0].type)] * (count - len(values))], access.per_vector)
    return Value(_shuffled(b, access.per_vector * count, whole, None, access.places).text, g.element, WARP)


def _shuffled(b: Builder, length: int, first: Value, second: Value | None, picks: Sequence[int]) -> Value:
    return first if list(picks) == list(range(length)) else b.shuffle(first, second, picks)


# -- 16 bytes: one access a lane, whole where the operation is more than weak -----------------------------------


def _load_wide(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load 16 bytes for every lane that runs."""
    b, op, ordered = e.builder, g.op, g.op.form.is_strong
    at = g.place.bases[0] if g.place.is_uniform else g.place.every_lane(b)

    def one(f: Builder, v: Sequence[Value]) -> Value:
        pointer = f.cast("inttoptr", v[0], "ptr")
        return f.load("i128", pointer, order="acquire" if ordered else "", align=16)

    loaded = each_lane(e, op, f"load.wide.{'ordered' if ordered else 'weak'}", [at], one, "i128")
    assert loaded is not None
    if at.lanes or all(reg is None or e.operand_shape(reg).stride is None for reg in op.results):
        return [loaded]
    return [b.extract(loaded, b.first_lane(e.lanes(op)))]  # what the lanes that run have in common


def _store_wide(e: WarpEmitter, s: Scatter) -> None:
    """Store 16 bytes of every lane that runs."""
    ordered = s.op.form.is_strong
    at = s.place.bases[0] if s.place.is_uniform else s.place.every_lane(e.builder)

    def one(f: Builder, v: Sequence[Value]) -> None:
        f.store(v[1], f.cast("inttoptr", v[0], "ptr"), order="release" if ordered else "", align=16)

    each_lane(e, s.op, f"store.wide.{'ordered' if ordered else 'weak'}", [at, *s.values], one)


# -- which way ----------------------------------------------------------------------------------------------

_LOADS: tuple[tuple[Callable[[Gather], bool], _Way[Gather]], ...] = (
    (lambda g: g.element == "i128", _load_wide),
    (lambda g: g.place.vectors is not None, _load_vectors),
    (lambda g: g.place.is_uniform, _load_uniform),
    (lambda g: g.is_contiguous, _load_contiguous),
    (lambda g: g.is_whole and len(g.place.bases) > 1 and g.place.stride == 0, _load_rows),
    (lambda g: g.is_whole and len(g.place.bases) == 1 and g.count == 1, _load_strided),
)
"""What each way is for. Where none fits, each lane has an address of its own, which is right for every place."""

_STORES: tuple[tuple[Callable[[Scatter], bool], _Way[Scatter]], ...] = (
    (lambda s: s.element == "i128", _store_wide),
    (lambda s: s.place.vectors is not None, _store_vectors),
    (lambda s: s.place.is_uniform, _store_uniform),
    (lambda s: s.is_contiguous and s.blends and not s.is_whole and s.bytes <= _MOST_BLENDED, _store_blended),
    (lambda s: s.is_contiguous and s.nontemporal and s.is_whole and s.row_bytes % _LINE == 0, _store_nontemporal),
    (lambda s: s.is_contiguous, _store_contiguous),
)


# -- lane after lane ------------------------------------------------------------------------------------------

# Work that has no vector form is a function of the module with a loop over the lanes that run.
#
#     cp.async.ca.shared.global [s], [g], 4;    ->    call void @cujit.copy.vv(i32 %lanes, <32 x i64> %s, <32 x i64> %g)
#                                                     lanes: %k = cttz %left; load i32 of %g.k; store to %s.k; next lane
#
# What is written is the work of one lane, on scalars. The operands that are the same in all lanes stay scalars, so
# that there is one function for each form of a call and not one for each call.

Body = Callable[[Builder, Sequence[Value]], Value | None]
"""Emits the work of one lane from its operands, and gives its result, if it has one."""


def each_lane(
    e: WarpEmitter, op: Op, name: str, operands: Sequence[Value], body: Body, result: str | None = None
) -> Value | None:
    """Do ``body`` for every lane that runs ``op``, in order of their numbers.

    ``name`` says what the body does: calls with the same name and the same forms of operands share a function.
    ``result`` is the LLVM type that a body gives for its lane; other lanes have zero.
    """
    b = e.builder
    # A predicate becomes a byte: bits have no places of their own in memory.
    operands = [b.cast("zext", v, "i8") if v.type == "i1" else v for v in operands]
    full = ".".join(["cujit", name, "".join("v" if v.lanes else "s" for v in operands)])
    forms = [Value(f"%a{k}", v.type, v.lanes) for k, v in enumerate(operands)]
    returned = "void" if result is None else f"<{WARP} x {result}>"
    b.define(full, [Value("%lanes", "i32"), *forms], lambda f: _over_lanes(f, forms, body, result), returned)
    lanes = b.word(e.lanes(op))
    found = b.invoke(f"@{full}", result or "void", lanes, *operands, lanes=0 if result is None else WARP)
    return found if result is not None else None


def _over_lanes(f: Builder, operands: Sequence[Value], body: Body, result: str | None) -> Value | None:
    places = [f"%p{k}" if v.lanes else None for k, v in enumerate(operands)]
    for place, v in zip(places, operands, strict=True):
        if place is not None:
            f.store(v, f.allocate(type_of(v), into=place))
    if result is not None:
        f.store(Value("zeroinitializer", result, WARP), f.allocate(f"<{WARP} x {result}>", into="%out"))

    def step(lane: Value) -> None:
        values = [lane_item(f, p, v.type, lane) if p else v for p, v in zip(places, operands, strict=True)]
        done = body(f, values)
        if result is not None and done is not None:
            f.store(done, f.point(result, "%out", lane))

    for_each_bit(f, Value("%lanes", "i32"), step)
    return None if result is None else f.load(result, "%out", lanes=WARP)


def lane_item(f: Builder, place: str, type_: str, lane: Value) -> Value:
    """Load one lane's item of a vector that lies in memory."""
    return f.load(type_, f.point(type_, place, lane))


def for_each_bit(f: Builder, bits: Value, step: Callable[[Value], None]) -> None:
    """Emit a loop over the bits that are set in an i32, from the lowest up; ``step`` gets the number of the bit."""
    start, head, turn, done = (f.label(x) for x in ("start", "lanes", "turn", "done"))
    left, less = Value(f.name(), "i32"), f.name()
    f.start(start)
    f.start(head)
    f.phi(bits, (bits, start), (less, turn), into=left.text)
    f.only_if(f.compare("icmp ne", left, f.integer(0, 32)), done, "lane")
    step(f.lowest_bit(left))
    f.start(turn)
    f.binary("and", left, f.binary("sub", left, f.integer(1, 32)), into=less)
    f.jump(head)
    f.start(done)
