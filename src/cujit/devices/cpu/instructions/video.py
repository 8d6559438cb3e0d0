"""Video instructions: scalar instructions, and SIMD instructions on the halves or bytes of a word.

PTX ISA 9.1: "Scalar Video Instructions", "SIMD Video Instructions". Current GPUs do not have the scalar instructions.
The assembler expands them, and its expansion differs from the manual in a few places. Here, they compute the results of
the expansion for sm_90 (read in the machine code of ptxas 13.0). A comment marks each such place.
"""

from __future__ import annotations

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.integer import field
from cujit.devices.cpu.ir.program import Op

_COMPARE = "eq ne lt le gt ge"
_SCALAR = r"b[0-3]|h[01]"
_SIGNED = rf"-?({_SCALAR})?"
_HALVES = (r"h0|h1|h10", r"h[0-3]{2}", r"h[0-3]{2}")
_QUADS = (r"b(?:3?2?1?0?)(?<=\d)", r"b[0-7]{4}", r"b[0-7]{4}")
"""Which parts of registers may be named: of the result, of the first and of the second source."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("vadd|vsub|vabsdiff|vmin|vmax|vshl|vshr|vset", _scalar, parts=(_SCALAR, _SCALAR, _SCALAR))
    rules.on("vmad", _multiply_add, parts=("", _SIGNED, _SIGNED, "-"))
    rules.on("vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2|vset2", _lanewise, parts=_HALVES)
    rules.on("vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4|vset4", _lanewise, parts=_QUADS)


def _part(op: Op, index: int) -> str:
    """Return the selector of an operand as written, for example ``b3`` or ``h10``, or an empty string. Index 0 is the
    result.
    """
    parts = op.parts
    return parts[index].removeprefix("-") if index < len(parts) else ""


def _place(part: str) -> tuple[int, int]:
    """First bit and width of a scalar selector."""
    if not part:
        return 0, 32
    bits = 8 if part[0] == "b" else 16
    return int(part[1:]) * bits, bits


def _clamp(b: Builder, value: Value, bits: int, signed: bool) -> Value:
    """Clamp a signed value to the range of an integer type of ``bits``."""
    width = int(value.type[1:])
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return b.intrinsic("smax", b.intrinsic("smin", value, b.integer(most, width)), b.integer(least, width))


def _extended(b: Builder, value: Value) -> Value:
    """Sign-extend the low 32 bits of an i64."""
    return b.resize(b.resize(value, 32, signed=True), 64, signed=True)


# -- scalar ones ------------------------------------------------------------------------------------------


def _operand(e: WarpEmitter, op: Op, index: int, signed: bool) -> Value:
    """Extract the selected part of a source, as an i64."""
    b = e.builder
    at, bits = _place(_part(op, index + 1))
    return b.resize(field(b, e.source(op, index, "i32"), at, bits, signed), 64, signed)


def _scalar(e: WarpEmitter, op: Op) -> None:
    """Extract, compute, saturate, and apply the second operation or merge into the third source."""
    b = e.builder
    types = op.types
    signed = types[0] == "s32"  # of vset, which has no type of its result, that of the first source
    x, y = (_operand(e, op, k, types[k - 2] == "s32") for k in range(2))
    result = _saturated(b, op, _scalar_result(b, op, x, y), signed)
    part, second = _part(op, 0), next((m for m in ("add", "min", "max") if m in op.modifiers), "")
    if second:
        wide = b.resize(e.source(op, 2, "i32"), 64, signed)
        extreme = f"{'us'[signed]}{second}"
        full = b.binary("add", result, wide) if second == "add" else b.intrinsic(extreme, result, wide)
        e.put(op, b.resize(full, 32, signed))
    elif part:
        value = b.resize(result, 32, signed)
        if part == "h1":  # an H200 takes the result's own upper half here; the manual has the lower one shifted up
            value = b.binary("lshr", value, b.integer(16, 32))
        e.put(op, _merged(b, part, value, e.source(op, 2, "i32")))
    else:
        e.put(op, b.resize(result, 32, signed))


def _scalar_result(b: Builder, op: Op, x: Value, y: Value) -> Value:
    if op.opcode == "vset":
        name = next(m for m in op.modifiers if m in _COMPARE.split())
        return b.resize(b.compare(_comparison(name), x, y), 64, signed=False)
    if op.opcode in ("vshl", "vshr"):
        clamps = "clamp" in op.modifiers
        count = b.intrinsic("umin", y, b.integer(32, 64)) if clamps else b.binary("and", y, b.integer(31, 64))
        return b.binary("shl" if op.opcode == "vshl" else "ashr", x, count)
    result = _pointwise(b, op.opcode, x, y)
    # sm_90 keeps 32 bits of a sum that is not saturated, and takes them as signed.
    return _extended(b, result) if op.opcode in ("vadd", "vsub") and "sat" not in op.modifiers else result


def _comparison(name: str) -> str:
    return f"icmp {name}" if name in ("eq", "ne") else f"icmp s{name}"


def _pointwise(b: Builder, name: str, x: Value, y: Value) -> Value:
    """Compute ``vadd vsub vabsdiff vmin vmax`` of numbers that cannot overflow."""
    if name in ("vmin", "vmax"):
        return b.intrinsic(f"s{name[1:]}", x, y)
    result = b.binary("add" if name == "vadd" else "sub", x, y)
    return b.intrinsic("abs", result, flag=b.integer(0, 1)) if name == "vabsdiff" else result


def _saturated(b: Builder, op: Op, value: Value, signed: bool) -> Value:
    """Clamp a value if the operation has ``.sat``."""
    if "sat" not in op.modifiers:
        return value
    _, bits = _place(_part(op, 0))
    if op.opcode == "vshl":
        # The manual's intermediate result has 34 bits.
        value = b.binary("ashr", b.binary("shl", value, b.integer(30, 64)), b.integer(30, 64))
    if op.opcode in ("vshl", "vshr") or (bits == 32 and signed):
        # sm_90 clamps shifts to 32 bits even where a byte or half is merged, and takes the result as signed.
        return _extended(b, _clamp(b, value, 32, signed))
    if bits == 32:
        # sm_90 clamps what is below 0, and lets what is too large wrap; a sum then counts as signed.
        positive = b.intrinsic("smax", value, b.integer(0, 64))
        return _extended(b, positive) if op.opcode in ("vadd", "vsub") else positive
    # Where a byte or half is merged, sm_90 takes what is below 0 for what is too large.
    return b.intrinsic("umin", value, b.integer((1 << (bits - signed)) - 1, 64))


def _merged(b: Builder, part: str, value: Value, into: Value) -> Value:
    """Insert the low bits of a value into ``into``, at the position that ``part`` names."""
    at, bits = _place(part)
    mask = ((1 << bits) - 1) << at
    moved = b.binary("and", b.binary("shl", value, b.integer(at, 32)), b.integer(mask, 32))
    return b.binary("or", moved, b.binary("and", into, b.integer(~mask, 32)))


def _multiply_add(e: WarpEmitter, op: Op) -> None:
    """Emit ``vmad``: multiply and add, add 1 with ``.po``, scale, and saturate by the signedness of the sources.

    sm_90 multiplies and adds whole words as signed integers, for all types.
    """
    b = e.builder
    types = op.types
    x, y = (_extended(b, _operand(e, op, k, types[k + 1] == "s32")) for k in range(2))
    product, third = b.binary("mul", x, y), b.resize(e.source(op, 2, "i32"), 64, signed=True)
    zero = b.integer(0, 64)
    minus = [part.startswith("-") for part in (*op.parts, "", "", "", "")]  # of the result, too
    if minus[1] != minus[2]:
        product = b.binary("sub", zero, product)
    if minus[3]:
        third = b.binary("sub", zero, third)
    total = b.binary("add", product, third)
    if "po" in op.modifiers:
        total = b.binary("add", total, b.integer(1, 64))
    signed = "s32" in types[1:]
    scale = next((int(m[3:]) for m in op.modifiers if m in ("shr7", "shr15")), 0)
    if scale:
        total = b.binary("ashr" if signed else "lshr", total, b.integer(scale, 64))
    if "sat" in op.modifiers:
        total = _clamp(b, total, 32, signed)
    e.put(op, b.resize(total, 32, signed))


# -- halves and bytes -------------------------------------------------------------------------------------


def _lanewise(e: WarpEmitter, op: Op) -> None:
    """Work on two halves or four bytes, and merge them into the third source or add them to it."""
    b = e.builder
    types, count = op.types, int(op.opcode[-1])
    signed = len(types) == 3 and types[0] == "s32"
    firsts, seconds = (_picked(e, op, k, types[k - 2] == "s32") for k in range(2))
    mask = [int(d) for d in _part(op, 0)[1:]] or range(count)
    total = e.source(op, 2, "i32")
    for k in mask:
        element = _element(b, op, firsts[k], seconds[k])
        if "sat" in op.modifiers:
            element = _clamp(b, element, 32 // count, signed)
        if "add" in op.modifiers:
            total = b.binary("add", total, element)
        else:
            total = _merged(b, f"{'bh'[count == 2]}{k}", element, total)
    e.put(op, total)


def _picked(e: WarpEmitter, op: Op, index: int, signed: bool) -> list[Value]:
    """Return the elements that a selector picks from both sources, the lowest first.

    A selector lists the elements from highest to lowest. Without a selector, source ``index`` provides all elements.
    """
    b, count = e.builder, int(op.opcode[-1])
    part = _part(op, index + 1)
    numbers = [int(d) for d in reversed(part[1:])] or [index * count + k for k in range(count)]
    bits = 32 // count
    words = [e.source(op, k, "i32") for k in range(2)]
    return [field(b, words[n // count], n % count * bits, bits, signed) for n in numbers]


def _element(b: Builder, op: Op, x: Value, y: Value) -> Value:
    name = op.opcode[:-1]
    if name == "vset":
        return b.resize(b.compare(_comparison(op.form.words[0]), x, y), 32, signed=False)
    if name == "vavrg":
        total = b.binary("add", x, y)
        up = b.compare("icmp sge", total, b.integer(0, 32))
        return b.binary("ashr", b.binary("add", total, b.resize(up, 32, signed=False)), b.integer(1, 32))
    return _pointwise(b, name, x, y)
