"""Products of small matrices, in functions that all matrix instructions share.

A *strip* is eight rows of a matrix over four steps of k: one vector of 32 lanes, in which lane ``4 * g + j`` has the
element of row ``g`` at step ``j``. Every register of A (and, its columns taken for rows, of B) is one strip or a few
neighbouring ones, whatever the shape of the instruction. Source: PTX ISA 9.1, "Matrix Fragments for mma…", where
``groupID`` is g and ``threadID_in_group`` the lane in the quad.

Strips are numbers to compute with: f32 for every type of at most 32 bits (integers too: their products and sums over
one instruction stay below 2**24 and are exact), f64 for f64, and words for single bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.matrix_types import strips_of, word_type, work_type
from cujit.devices.cpu.emit.rounding import arithmetic, is_nan, with_payload
from cujit.devices.cpu.shapes import WARP

__all__ = [
    "Define",
    "columns_function",
    "definer",
    "groups_of",
    "product_function",
    "rows_function",
    "spread",
    "turned",
]


class Define(Protocol):
    """Makes a function once, and gives back its name.

    It takes the name, the parameters and the result as LLVM text, and what writes the body and returns its result.
    """

    def __call__(
        self, name: str, parameters: str, body: Callable[[Builder], str | None], returned: str = "void"
    ) -> str:
        """Make the function unless it is there; it may use others that it defines."""


def definer(outer: Builder) -> Define:
    """Make what defines functions beside the one that ``outer`` builds."""

    def define(name: str, parameters: str, body: Callable[[Builder], str | None], returned: str = "void") -> str:
        if name not in outer.functions:
            inner = Builder()
            inner.functions, inner.declared = outer.functions, outer.declared
            result = body(inner)
            inner.line(f"ret {returned}{f' {result}' if result else ''}")
            head = f"define internal {returned} @{name}({parameters}) noinline {{"
            outer.functions[name] = "\n".join([head, "entry:", *inner.entry, *inner.body, "}"])
        return name

    return define


def spread(b: Builder, value: Value, lane: int) -> Value:
    """Give all four lanes of every quad the value of one of them."""
    picks = ", ".join(f"i32 {k // 4 * 4 + lane}" for k in range(WARP))
    full = b.type_of(value)
    return Value(
        b.assign(f"shufflevector {full} {value.text}, {full} poison, <{WARP} x i32> <{picks}>"), value.type, True
    )


def groups_of(layout: str) -> int:
    """Groups of strips that a layout makes; see ``matrix_sums.Layout``."""
    return 1 if layout == "order" else 2


def _placed(b: Builder, words: str, type_: str, layout: str) -> list[tuple[Value, str]]:
    """Unpack a register into strips, and say where each goes from ``%to`` on; ``%gap`` is from group to group."""
    strips = strips_of(b, Value(words, word_type(type_), True), type_, by_bytes=layout == "bytes")
    size = _bytes(strips[0].type, WARP)
    if layout == "order":
        return [(strip, _offset(b, "%to", q * size)) for q, strip in enumerate(strips)]
    beyond = b.assign("getelementptr i8, ptr %to, i64 %gap")
    groups = [q // 2 if layout == "bytes" else q % 2 for q in range(len(strips))]
    inside = [groups[:q].count(group) for q, group in enumerate(groups)]
    return [
        (strip, _offset(b, beyond if group else "%to", at * size))
        for strip, group, at in zip(strips, groups, inside, strict=True)
    ]


def rows_function(define: Define, type_: str, layout: str = "order") -> str:
    """Define ``(ptr to, words, i64 gap)``: unpacks one register of A into its strips."""

    def body(b: Builder) -> None:
        for strip, to in _placed(b, "%words", type_, layout):
            _store(b, strip, to, 0)

    return define(f"matrix.rows.{type_}.{layout}", f"ptr %to, <{WARP} x {word_type(type_)}> %words, i64 %gap", body)


def columns_function(define: Define, type_: str, layout: str = "order") -> str:
    """Define ``(ptr to, words, i64 gap)``: unpacks one register of B into *columns*, eight numbers for each step of k.

    These are those of columns 0, 2, 4, 6 and then those of 1, 3, 5, 7: a lane of a quad computes two neighbours.
    """

    def body(b: Builder) -> None:
        for strip, to in _placed(b, "%words", type_, layout):
            for j, text in enumerate(turned(b, strip)):
                b.line(f"store <8 x {strip.type}> {text}, ptr {_offset(b, to, j * _bytes(strip.type, 8))}")

    return define(f"matrix.columns.{type_}.{layout}", f"ptr %to, <{WARP} x {word_type(type_)}> %words, i64 %gap", body)


def turned(b: Builder, strip: Value) -> list[str]:
    """Transpose a strip: four vectors, one for each step of k."""
    full, eight = b.type_of(strip), f"<8 x {strip.type}>"

    def shuffle(x: str, y: str, picks: list[int]) -> str:
        order = ", ".join(f"i32 {p}" for p in picks)
        return b.assign(f"shufflevector {eight} {x}, {eight} {y}, <8 x i32> <{order}>")

    rows = []
    for pair in range(4):
        order = ", ".join(f"i32 {8 * pair + k}" for k in range(8))
        rows.append(b.assign(f"shufflevector {full} {strip.text}, {full} poison, <8 x i32> <{order}>"))
    low, high = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
    first, second = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
    turned = []
    for half in (low, high):
        x, y = shuffle(rows[0], rows[1], half), shuffle(rows[2], rows[3], half)
        turned += [shuffle(x, y, first), shuffle(x, y, second)]
    return turned


Step = Callable[[Builder, Value, Value, Value], Value]
"""What adds a product: factor of A, factor of B, sum so far."""


def product_function(define: Define, type_: str, combine: str = "", rounding: str = "rn") -> str:
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

    return define(f"matrix.product.{combine or work}.{rounding}", "ptr %d, ptr %a, ptr %b, i32 %strips", body)


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
    place = _offset(b, "%d", parity * _bytes("double", WARP))
    start = b.assign(f"load <{WARP} x double>, ptr {place}")
    (total,) = _product_loop(b, "double", (parity,), _fused)
    again, done = b.label("again"), b.label("numbers")
    b.line(f"br i1 {b.any_lane(is_nan(b, total)).text}, label %{again}, label %{done}")
    b.start(again)
    b.line(f"store <{WARP} x double> {start}, ptr {place}")
    _product_loop(b, "double", (parity,), step)
    b.line(f"br label %{done}")
    b.start(done)


def _product_loop(b: Builder, work: str, parities: tuple[int, ...], add: Step) -> list[Value]:
    full = f"<{WARP} x {work}>"
    places = [_offset(b, "%d", p * _bytes(work, WARP)) for p in parities]
    start = [b.assign(f"load {full}, ptr {place}") for place in places]
    before, loop, done = b.label("before"), b.label("loop"), b.label("done")
    b.line(f"br label %{before}")
    b.start(before)
    b.line(f"br label %{loop}")
    b.start(loop)
    head = len(b.body)
    count, a, at = b.name(), b.name(), b.name()
    sums = [Value(b.name(), work, True) for _ in parities]
    totals = list(sums)
    strip = Value(b.assign(f"load {full}, ptr {a}"), work, True)
    for j in range(4):
        left = spread(b, strip, j)
        for k, parity in enumerate(parities):
            right = _column(b, work, at, (2 * j + parity) * _bytes(work, 4))
            totals[k] = add(b, left, right, totals[k])
    step = b.assign(f"add i32 {count}, 1")
    a_next = b.assign(f"getelementptr i8, ptr {a}, i64 {_bytes(work, WARP)}")
    at_next = b.assign(f"getelementptr i8, ptr {at}, i64 {_bytes(work, 32)}")
    turns = [("i32", count, "0", step), ("ptr", a, "%a", a_next), ("ptr", at, "%b", at_next)]
    turns += [(full, s.text, first, t.text) for s, first, t in zip(sums, start, totals, strict=True)]
    b.body[head:head] = [
        f"  {name} = phi {t} [ {first}, %{before} ], [ {later}, %{loop} ]" for t, name, first, later in turns
    ]
    more = b.assign(f"icmp ult i32 {step}, %strips")
    b.line(f"br i1 {more}, label %{loop}, label %{done}")
    b.start(done)
    for total, place in zip(totals, places, strict=True):
        b.line(f"store {full} {total.text}, ptr {place}")
    return totals


def _column(b: Builder, work: str, at: str, offset: int) -> Value:
    """Four columns' numbers of one step of k, for every quad."""
    four = f"<4 x {work}>"
    own = b.assign(f"load {four}, ptr {_offset(b, at, offset)}")
    picks = ", ".join(f"i32 {k % 4}" for k in range(WARP))
    return Value(b.assign(f"shufflevector {four} {own}, {four} poison, <{WARP} x i32> <{picks}>"), work, True)


def _bytes(work: str, count: int) -> int:
    return count * (8 if work == "double" else 4)


def _offset(b: Builder, pointer: str, size: int) -> str:
    return b.assign(f"getelementptr i8, ptr {pointer}, i64 {size}") if size else pointer


def _store(b: Builder, value: Value, pointer: str, offset: int) -> None:
    b.line(f"store {b.type_of(value)} {value.text}, ptr {_offset(b, pointer, offset)}")
