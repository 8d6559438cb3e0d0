"""Products of small matrices, in functions that all matrix instructions share.

A *strip* is eight rows of a matrix over four steps of k: one vector of 32 lanes, in which lane ``4 * g + j`` has the
element of row ``g`` at step ``j``. Every register of A (and, its columns taken for rows, of B) is one strip or a few
neighbouring ones, whatever the shape of the instruction. Source: PTX ISA 9.1, "Matrix Fragments for mma…", where
``groupID`` is g and ``threadID_in_group`` the lane in the quad.

Strips are numbers to compute with: f32 for every type of at most 32 bits (integers too: their products and sums over
one instruction stay below 2**24 and are exact), f64 for f64, and words for single bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value, type_width
from cujit.devices.cpu.codegen.rounding import arithmetic, is_nan, with_payload
from cujit.devices.cpu.instructions.matrix.elements import strips_of, word_type, work_type

__all__ = [
    "at", "columns_function", "groups_of", "in_function", "product_function", "rows_function", "scratch", "spread",
    "turned",
]  # fmt: skip


def spread(b: Builder, value: Value, lane: int) -> Value:
    """Give all four lanes of every quad the value of one of them."""
    return b.shuffle(value, None, [k // 4 * 4 + lane for k in range(WARP)])


def groups_of(layout: str) -> int:
    """Groups of strips that a layout makes; see ``sums.Layout``."""
    return 1 if layout == "order" else 2


def _placed(b: Builder, words: str, type_: str, layout: str) -> list[tuple[Value, Value]]:
    """Unpack a register into strips, and say where each goes from ``%to`` on; ``%gap`` is from group to group."""
    strips = strips_of(b, Value(words, word_type(type_), True), type_, by_bytes=layout == "bytes")
    size = _bytes(strips[0].type, WARP)
    if layout == "order":
        return [(strip, at(b, Value("%to", "ptr"), q * size)) for q, strip in enumerate(strips)]
    to = Value("%to", "ptr")
    beyond = b.point("i8", to, Value("%gap", "i64"))
    groups = [q // 2 if layout == "bytes" else q % 2 for q in range(len(strips))]
    inside = [groups[:q].count(group) for q, group in enumerate(groups)]
    return [
        (strip, at(b, beyond if group else to, number * size))
        for strip, group, number in zip(strips, groups, inside, strict=True)
    ]


def rows_function(b: Builder, type_: str, layout: str = "order") -> str:
    """Define ``(ptr to, words, i64 gap)``: unpacks one register of A into its strips."""

    def body(b: Builder) -> None:
        for strip, to in _placed(b, "%words", type_, layout):
            b.store(strip, to)

    return b.define(f"matrix.rows.{type_}.{layout}", f"ptr %to, <{WARP} x {word_type(type_)}> %words, i64 %gap", body)


def columns_function(b: Builder, type_: str, layout: str = "order") -> str:
    """Define ``(ptr to, words, i64 gap)``: unpacks one register of B into *columns*, eight numbers for each step of k.

    These are those of columns 0, 2, 4, 6 and then those of 1, 3, 5, 7: a lane of a quad computes two neighbours.
    """

    def body(b: Builder) -> None:
        for strip, to in _placed(b, "%words", type_, layout):
            for j, eight in enumerate(turned(b, strip)):
                b.store(eight, at(b, to, j * _bytes(strip.type, 8)))

    return b.define(
        f"matrix.columns.{type_}.{layout}", f"ptr %to, <{WARP} x {word_type(type_)}> %words, i64 %gap", body
    )


def turned(b: Builder, strip: Value) -> list[Value]:
    """Transpose a strip: four vectors, one for each step of k."""
    rows = [b.shuffle(strip, None, range(8 * pair, 8 * pair + 8)) for pair in range(4)]
    low, high = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
    first, second = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
    turned = []
    for half in (low, high):
        x, y = b.shuffle(rows[0], rows[1], half), b.shuffle(rows[2], rows[3], half)
        turned += [b.shuffle(x, y, first), b.shuffle(x, y, second)]
    return turned


Step = Callable[[Builder, Value, Value, Value], Value]
"""What adds a product: factor of A, factor of B, sum so far."""


def product_function(b: Builder, type_: str, combine: str = "", rounding: str = "rn") -> str:
    """Define ``(ptr d, ptr a, ptr b, i32 strips)``: adds eight rows of A times eight columns of B to D.

    D is two vectors: in lane ``4 * g + t`` the elements of row g and of columns ``2 * t`` and ``2 * t + 1``. Every
    element is summed in the order of k, with one rounding for each product and sum. For single bits ``combine`` is
    ``xor`` or ``and``, and what is summed are the bits that it leaves.
    """
    work = work_type(type_)

    def body(b: Builder) -> None:
        if work == "double":
            # Two accumulators of f64 would not fit into the registers of AVX.
            for parity in (0, 1):
                _sum_doubles(b, parity, rounding)
        else:
            _product_loop(b, work, (0, 1), _counted(combine) if combine else _fused)

    return b.define(f"matrix.product.{combine or work}.{rounding}", "ptr %d, ptr %a, ptr %b, i32 %strips", body)


def _fused(b: Builder, left: Value, right: Value, total: Value) -> Value:
    return b.intrinsic("fma", left, right, total)


def _counted(combine: str) -> Step:
    def step(b: Builder, left: Value, right: Value, total: Value) -> Value:
        return b.binary("add", total, b.intrinsic("ctpop", b.binary(combine, left, right)))

    return step


def _sum_doubles(b: Builder, parity: int, rounding: str) -> None:
    """Sum; where a NaN comes out, once more, to find out which NaN goes on."""

    def step(b: Builder, left: Value, right: Value, total: Value) -> Value:
        values = [left, right, total]
        return with_payload(b, "fma", values, arithmetic(b, "fma", values, rounding))

    if rounding != "rn":
        _product_loop(b, "double", (parity,), step)
        return
    place = at(b, Value("%d", "ptr"), parity * _bytes("double", WARP))
    start = b.load("double", place, vector=True)
    (total,) = _product_loop(b, "double", (parity,), _fused)
    again, done = b.label("again"), b.label("numbers")
    b.branch(b.any_lane(is_nan(b, total)), again, done)
    b.start(again)
    b.store(start, place)
    _product_loop(b, "double", (parity,), step)
    b.jump(done)
    b.start(done)


def _product_loop(b: Builder, work: str, parities: tuple[int, ...], add: Step) -> list[Value]:
    places = [at(b, Value("%d", "ptr"), p * _bytes(work, WARP)) for p in parities]
    start = [b.load(work, place, vector=True) for place in places]
    before, loop, done = b.label("before"), b.label("loop"), b.label("done")
    b.jump(before)
    b.start(before)
    b.jump(loop)
    b.start(loop)
    head = len(b.body)
    count, a, column = Value(b.name(), "i32"), Value(b.name(), "ptr"), Value(b.name(), "ptr")
    sums = [Value(b.name(), work, True) for _ in parities]
    totals = list(sums)
    strip = b.load(work, a, vector=True)
    for j in range(4):
        left = spread(b, strip, j)
        for k, parity in enumerate(parities):
            right = _column(b, work, column, (2 * j + parity) * _bytes(work, 4))
            totals[k] = add(b, left, right, totals[k])
    step = b.binary("add", count, b.integer(1, 32))
    a_next = b.offset(a, _bytes(work, WARP))
    column_next = b.offset(column, _bytes(work, 32))
    firsts = [b.integer(0, 32), Value("%a", "ptr"), Value("%b", "ptr"), *start]
    laters = [step, a_next, column_next, *totals]
    with b.at(head):
        for own, first, later in zip([count, a, column, *sums], firsts, laters, strict=True):
            b.phi(own, (first, before), (later, loop), into=own.text)
    more = b.compare("icmp ult", step, Value("%strips", "i32"))
    b.branch(more, loop, done)
    b.start(done)
    for total, place in zip(totals, places, strict=True):
        b.store(total, place)
    return totals


def _column(b: Builder, work: str, place: Value, offset: int) -> Value:
    """Four columns' numbers of one step of k, for every quad."""
    own = b.load(f"<4 x {work}>", at(b, place, offset))
    return b.shuffle(own, None, [k % 4 for k in range(WARP)])


def _bytes(type_: str, count: int) -> int:
    return count * type_width(type_) // 8


# -- instructions as calls --------------------------------------------------------------------------------

# One function for each form, which kernels with hundreds of them share. What it is given and what it makes lie in
# memory, the *frame*. So little is left at each place of use that LLVM, whose time grows with the square of a block's
# length, is four times as fast over 400 products.

Body = Callable[[Builder, list[Value]], list[Value]]


def scratch(b: Builder, role: str, size: int) -> Value:
    """Find memory of ``size`` bytes in the function; operations that ask for the same share it."""
    name = f"%matrix.{role}.{size}"
    b.reserve(name, f"[{size} x i8]")
    return Value(name, "ptr")


def at(b: Builder, pointer: Value, offset: int) -> Value:
    """Find the place ``offset`` bytes on."""
    return b.offset(pointer, offset) if offset else pointer


def in_function(
    b: Builder, title: str, given: Sequence[Value], made: Sequence[str], body: Body, scalars: Sequence[Value] = ()
) -> list[Value]:
    """Call the function ``title`` with vectors, and give back those that it makes, of the types ``made``.

    ``body`` writes it, where it is not there yet, from its vectors to its results; ``scalars`` are its parameters
    ``%s0``, ``%s1``, ….
    """
    frame = scratch(b, "frame", max(_size(v.type for v in given), _size(made)))

    def write(inner: Builder) -> None:
        own = Value("%frame", "ptr")
        _store(inner, own, body(inner, _load(inner, own, [v.type for v in given])))

    parameters = ", ".join(["ptr %frame", *(f"{s.type} %s{k}" for k, s in enumerate(scalars))])
    name = b.define("matrix." + re.sub(r"[^\w.]+", "-", title), parameters, write)
    _store(b, frame, given)
    b.invoke(f"@{name}", "void", frame, *scalars)
    return _load(b, frame, made)


def _size(types: Iterable[str]) -> int:
    return sum(_bytes(type_, WARP) for type_ in types)


def _store(b: Builder, frame: Value, values: Sequence[Value]) -> None:
    offset = 0
    for value in values:
        b.store(value, at(b, frame, offset), align=_bytes("i32", WARP))
        offset += _bytes(value.type, WARP)


def _load(b: Builder, frame: Value, types: Sequence[str]) -> list[Value]:
    found, offset = [], 0
    for type_ in types:
        found.append(b.load(type_, at(b, frame, offset), vector=True, align=_bytes("i32", WARP)))
        offset += _bytes(type_, WARP)
    return found
