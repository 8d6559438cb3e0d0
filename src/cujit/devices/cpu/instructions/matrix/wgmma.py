"""``wgmma``: done at issue, by each of the four warps for its own 16 rows.

PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". The registers of A, C and D are
those of ``mma``, eight columns after eight columns; what lies in shared memory is told by a descriptor.
"""

from __future__ import annotations

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.matrix.elements import strips_in
from cujit.devices.cpu.instructions.matrix.move import finish, joined, load_row, one_of, turned_word, when_any_lane
from cujit.devices.cpu.instructions.matrix.product import in_function
from cujit.devices.cpu.instructions.matrix.strips import expand, selector_of
from cujit.devices.cpu.instructions.matrix.sums import wgmma_alignment
from cujit.devices.cpu.instructions.matrix.tiles import (
    Kinds,
    c_type,
    columns,
    d_words,
    rows,
    shape_of,
    tile,
    words_of,
)
from cujit.devices.cpu.ir.program import Group, IntConstant, Op, items_of
from cujit.errors import FormatError

__all__ = ["register"]

# What an operand xored with this is negated.
_SIGNS = {"f16": 0x80008000, "bf16": 0x80008000, "tf32": 0x80000000, "e4m3": 0x80808080, "e5m2": 0x80808080}


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("wgmma .mma_async", _multiply)


def _multiply(e: WarpEmitter, op: Op) -> None:
    d, a_type, b_type = op.types
    combine = "and" if "and" in op.modifiers else ""
    sparse = any(m.startswith("sp") for m in op.modifiers)
    alignment = wgmma_alignment((a_type, b_type, d, d), sparse=sparse)
    kinds = Kinds(a_type, b_type, d, d, "satfinite" in op.modifiers, combine, alignment=alignment)
    from_registers = isinstance(op.sources[1], Group)
    scale_d, negative, trans_a, trans_b = _immediates(op, 5 if sparse else 3, from_registers)
    selector = selector_of(op) if sparse else 0
    count, tiles = d_words(d, 2), shape_of(op)[1] // 8
    items = items_of(op.sources[0])
    if len(items) != count * tiles:
        raise FormatError(f"line {op.line}: D of {op.name} has {len(items)} registers, and not {count * tiles}")
    done = when_any_lane(e, op)
    b = e.builder
    given = words_of(e, op, 1, 4) if from_registers else []
    given += [b.vector(e.source(op, 3, "i32"))] if sparse else []
    given += [b.vector(e.read(item, c_type(d))) for item in items]
    scalars = [one_of(e, op, e.source(op, 2, "i64")), Value("%shared.int", "i64"), Value("%warp", "i32")]
    scalars += [] if from_registers else [one_of(e, op, e.source(op, 1, "i64"))]

    def body(inner: Builder, values: list[Value]) -> list[Value]:
        left = values[:4] if from_registers else _left_words(inner, trans_a)
        if negative:
            left = [inner.binary("xor", w, inner.integer(_SIGNS[a_type], 32)) for w in left]
        left_at = rows(inner, a_type, left, 2, "stored" if sparse else "a")
        chunks = 4 if sparse else 2
        strips = chunks * strips_in(a_type)
        if sparse:
            left_at = expand(inner, a_type, left_at, strips, values[4 if from_registers else 0], selector, alignment)
        found = []
        own = values[-count * tiles :]
        for n in range(tiles):
            right = [_shared_words(inner, "%s0", inner.integer(n, 64), c, trans_b) for c in range(chunks)]
            right_at = columns(inner, b_type, right)
            found += tile(inner, kinds, left_at, right_at, strips, own[count * n : count * (n + 1)])
        return found

    keeps = e.read(op.sources[scale_d], "i1")
    zero = Value("zeroinitializer", c_type(d), True)
    own = given[-count * tiles :]
    given[-count * tiles :] = [b.select(keeps, value, zero) for value in own]
    title = f"{op.name}.{selector}.{negative:d}{trans_a:d}{trans_b:d}{from_registers:d}"
    for k, value in enumerate(in_function(b, title, given, [c_type(d)] * (count * tiles), body, scalars)):
        e.put(op, value, k)
    finish(e, done)


def _immediates(op: Op, first: int, a_in_registers: bool) -> tuple[int, bool, bool, bool]:
    """Where scale-d stands; whether the product is negated; whether A and B lie transposed in shared memory."""
    values = []
    for operand in op.sources[first + 1 :]:
        if not isinstance(operand, IntConstant):
            raise FormatError(f"line {op.line}: a scale or transposition of {op.name} is no constant")
        values.append(operand.value)
    scales, turns = values[:2], values[2:]
    negative = len(scales) == 2 and scales[0] * scales[1] < 0
    trans_a = not a_in_registers and bool(turns) and bool(turns[0])
    return first, negative, trans_a, bool(turns) and bool(turns[-1])


def _left_words(b: Builder, trans: bool) -> list[Value]:
    """The four registers of A out of shared memory: rows 16w on, where w is the number of the warp in its group."""
    warp = b.resize(b.binary("and", Value("%s2", "i32"), b.integer(3, 32)), 64, signed=False)
    groups = [b.binary("add", b.binary("shl", warp, b.integer(1, 64)), b.integer(half, 64)) for half in range(2)]
    return [_shared_words(b, "%s3", groups[k % 2], k // 2, trans) for k in range(4)]


# -- shared memory ----------------------------------------------------------------------------------------


def _shared_words(b: Builder, descriptor: str, group: Value, chunk: int, trans: bool) -> Value:
    """One register of a matrix in shared memory: eight rows (of B columns), and 16 bytes of k."""
    words = f"<{WARP} x i32>"
    name = f"matrix.shared.{'across' if trans else 'straight'}"
    parameters = "i64 %descriptor, i64 %shared, i64 %group, i64 %chunk"
    b.define(name, parameters, _across if trans else _straight, words)
    shared = Value("%s1", "i64")
    return b.invoke(f"@{name}", "i32", Value(descriptor, "i64"), shared, group, b.integer(chunk, 64), vector=True)


def _field(b: Builder, low: int, mask: int, shift: int = 0) -> Value:
    """Bits of the descriptor, shifted left."""
    own = b.binary("and", b.binary("lshr", Value("%descriptor", "i64"), b.integer(low, 64)), b.integer(mask, 64))
    return b.binary("shl", own, b.integer(shift, 64)) if shift else own


def _layout(b: Builder) -> tuple[Value, Value, Value, Value]:
    """Bytes of a line of the swizzled pattern (16 without one), whether there is none, and the two strides.

    Source: PTX ISA 9.1, "Matrix Descriptor Format": addresses and strides are in units of 16 bytes; modes 1, 2 and 3
    are patterns of 128, 64 and 32 bytes.
    """
    mode = _field(b, 62, 3)
    plain = b.compare("icmp eq", mode, b.integer(0, 64))
    line = b.select(plain, b.integer(16, 64), b.binary("lshr", b.integer(256, 64), mode))
    return line, plain, _field(b, 16, 0x3FFF, 4), _field(b, 32, 0x3FFF, 4)


def _straight(b: Builder) -> Value:
    """K-major: ``((8,m),(T,2k)):((1T,SBO),(1,LBO))``, or with a pattern ``((8,m),(T,2k)):((nT,SBO),(1,T))``.

    Source: PTX ISA 9.1, "Strides", the table of canonical layouts.
    """
    line, plain, leading, stride = _layout(b)
    step = b.select(plain, leading, b.integer(16, 64))
    begin = b.binary("add", _times(b, "%group", stride), _times(b, "%chunk", step))
    return _gathered(b, begin, line)


def _across(b: Builder) -> Value:
    """MN-major: ``((T,1,m),(8,k)):((1,T,SBO),(1T,LBO))``, or ``((T,n,m),(8,k)):((1,T,LBO),(nT,SBO))``."""
    line, plain, leading, stride = _layout(b)
    width = b.binary("lshr", line, b.integer(4, 64))
    in_line = _times(b, b.binary("urem", Value("%group", "i64"), width).text, b.integer(16, 64))
    far = _times(b, b.binary("udiv", Value("%group", "i64"), width).text, b.select(plain, stride, leading))
    begin = b.binary("add", b.binary("add", in_line, far), _times(b, "%chunk", b.select(plain, leading, stride)))
    return turned_word(b, _gathered(b, begin, line))


def _times(b: Builder, count: str, size: Value) -> Value:
    return b.binary("mul", Value(count, "i64"), size)


def _gathered(b: Builder, begin: Value, line: Value) -> Value:
    """Eight lines of 16 bytes: ``line`` bytes from one to the next, in the places where the pattern puts them.

    Source: PTX ISA 9.1, "Strides": Swizzle<n, 4, 3>, that is bits 7 on of an address are xored into bits 4 on; of
    patterns that do not begin at a multiple of their size, the base offset tells bits 7 to 9 of where they do.
    """
    start, offset = _field(b, 0, 0x3FFF, 4), _field(b, 49, 7)
    phases = b.binary("sub", b.binary("lshr", line, b.integer(4, 64)), b.integer(1, 64))
    at = b.binary("add", start, begin)
    parts = []
    for _ in range(8):
        phase = b.binary("sub", b.binary("lshr", at, b.integer(7, 64)), offset)
        moved = b.binary("xor", at, b.binary("shl", b.binary("and", phase, phases), b.integer(4, 64)))
        parts.append(load_row(b, b.binary("add", moved, Value("%shared", "i64"))))
        at = b.binary("add", at, line)
    return b.reinterpret(joined(b, parts, 16), "i32", WARP)
