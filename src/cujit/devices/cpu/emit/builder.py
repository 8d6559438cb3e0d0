"""Text of LLVM IR, one value at a time. A value is a scalar of the warp or a vector of its 32 lanes."""

from __future__ import annotations

from dataclasses import dataclass

from cujit.devices.cpu.program import Reg
from cujit.devices.cpu.shapes import WARP

__all__ = ["LARGEST_VECTOR", "Builder", "Value", "float_type", "int_type", "storage_type", "type_width"]


@dataclass(frozen=True)
class Value:
    """An LLVM value: its text, its element type (``i32``, ``float``, ``ptr``), and whether it is a vector.

    ``constant`` marks a literal, whose vector form is ``splat (…)``.
    """

    text: str
    type: str
    is_vector: bool = False
    constant: bool = False


LARGEST_VECTOR = 512
"""Bytes of 32 values of 128 bits, which LLVM takes an access to be aligned to if nothing is said.

Source: LLVM Language Reference, "Data Layout": the alignment of a vector is its size if the layout names no other.
"""


def int_type(bits: int) -> str:
    """Name the integer type of that width."""
    return f"i{bits}"


def float_type(bits: int) -> str:
    """Name the floating-point type of that width."""
    return {16: "half", 32: "float", 64: "double"}[bits]


def storage_type(reg: Reg) -> str:
    """LLVM type that a register is kept in."""
    return float_type(reg.bits) if reg.is_float else int_type(reg.bits)


def type_width(name: str) -> int:
    """Bits of an element type."""
    return {"half": 16, "float": 32, "double": 64, "ptr": 64}.get(name) or int(name[1:])


class Builder:
    """Appends instructions to the body of one function.

    ``entry`` are the instructions of its first block, ``declared`` the functions that it calls by name, and
    ``functions`` the text of those that the module defines for itself.

    Scalars and vectors mix: where one operand is a vector the others are broadcast. A vector has ``width`` lanes: those
    of the warp, but where a part of them runs alone. With ``lined``, each instruction ends with a comment: the line of
    the PTX that it comes from (see ``debuglines``).
    """

    def __init__(self, *, lined: bool = False) -> None:
        self.width = WARP
        self._lined = lined
        self._comment = ""
        self.entry: list[str] = []
        self.body: list[str] = []
        self.declared: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self._count = 0

    # -- text --------------------------------------------------------------------------------------------

    def name(self) -> str:
        """Make a fresh value name. No name that is chosen has the ``$`` of those that are counted."""
        self._count += 1
        return f"%${self._count}"

    def label(self, hint: str) -> str:
        """Make a fresh label: labels and values share one namespace in LLVM, and so do they here (see ``name``)."""
        self._count += 1
        return f"{hint}${self._count}"

    def come_to(self, line: int) -> None:
        """Say which line of the PTX the instructions come from that follow."""
        if self._lined:
            self._comment = f" ;{line}"

    def line(self, text: str) -> None:
        """Append one instruction."""
        self.body.append(f"  {text}{self._comment}")

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.body.append(f"{label}:")

    def type_of(self, value: Value) -> str:
        """Write the LLVM type of a value."""
        return f"<{self.width} x {value.type}>" if value.is_vector else value.type

    # -- values ------------------------------------------------------------------------------------------

    def integer(self, value: int, bits: int) -> Value:
        """Make an integer constant, wrapped to its width."""
        if bits == 1:
            return Value("true" if value & 1 else "false", "i1", constant=True)
        value &= (1 << bits) - 1
        return Value(str(value - (1 << bits) if value >> (bits - 1) else value), f"i{bits}", constant=True)

    def real(self, bits: int, width: int) -> Value:
        """Make a floating-point constant from its bits, exactly."""
        type_ = float_type(width)
        return Value(f"bitcast (i{width} {self.integer(bits, width).text} to {type_})", type_, constant=True)

    def vector(self, value: Value) -> Value:
        """Broadcast a scalar to all lanes; a vector stays as it is."""
        if value.is_vector:
            return value
        if value.constant:
            return Value(f"splat ({value.type} {value.text})", value.type, True, True)
        full = f"<{self.width} x {value.type}>"
        one = self.assign(f"insertelement {full} poison, {value.type} {value.text}, i64 0")
        every = self.assign(f"shufflevector {full} {one}, {full} poison, <{self.width} x i32> zeroinitializer")
        return Value(every, value.type, True)

    def rows(self, values: list[Value]) -> Value:
        """Spread scalars over the lanes, each over a row of its own."""
        if len(values) == 1:
            return self.vector(values[0])
        type_ = values[0].type
        full = f"<{WARP} x {type_}>"
        some = "poison"
        for k, value in enumerate(values):
            some = self.assign(f"insertelement {full} {some}, {type_} {value.text}, i64 {k}")
        picks = ", ".join(f"i32 {lane * len(values) // WARP}" for lane in range(WARP))
        return Value(self.assign(f"shufflevector {full} {some}, {full} poison, <{WARP} x i32> <{picks}>"), type_, True)

    def lanes(self, numbers: list[int], bits: int) -> Value:
        """Make a vector constant with one number a lane."""
        items = ", ".join(f"i{bits} {self.integer(n, bits).text}" for n in numbers)
        return Value(f"<{items}>", f"i{bits}", True)

    def assign(self, text: str) -> str:
        """Append an instruction that has a result; return the result's name."""
        name = self.name()
        self.body.append(f"  {name} = {text}{self._comment}")
        return name

    # -- operations --------------------------------------------------------------------------------------

    def same_form(self, *values: Value) -> tuple[Value, ...]:
        """Broadcast scalars where any value is a vector."""
        if any(v.is_vector for v in values):
            return tuple(self.vector(v) for v in values)
        return values

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """Apply ``add``, ``fmul``, ``lshr`` … to two values of one type."""
        a, b = self.same_form(a, b)
        return Value(self.assign(f"{op} {self.type_of(a)} {a.text}, {b.text}"), a.type, a.is_vector)

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """Compare: ``icmp slt``, ``fcmp oeq`` …; the result is i1."""
        a, b = self.same_form(a, b)
        return Value(self.assign(f"{op} {self.type_of(a)} {a.text}, {b.text}"), "i1", a.is_vector)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Choose ``a`` where the condition holds, else ``b``, lane by lane."""
        condition, a, b = self.same_form(condition, a, b)
        t = self.type_of(a)
        text = f"select {self.type_of(condition)} {condition.text}, {t} {a.text}, {t} {b.text}"
        return Value(self.assign(text), a.type, a.is_vector)

    def cast(self, op: str, a: Value, to: str) -> Value:
        """Convert with ``zext``, ``trunc``, ``sitofp`` …; nothing is done when the type is already right."""
        if a.type == to:
            return a
        target = f"<{self.width} x {to}>" if a.is_vector else to
        a = self.vector(a) if a.is_vector else a
        return Value(self.assign(f"{op} {self.type_of(a)} {a.text} to {target}"), to, a.is_vector)

    def resize(self, a: Value, bits: int, signed: bool) -> Value:
        """Truncate or extend an integer."""
        width = type_width(a.type)
        if width == bits:
            return a
        return self.cast("trunc" if width > bits else "sext" if signed else "zext", a, f"i{bits}")

    def bits_as(self, a: Value, type_: str) -> Value:
        """Read the same bits as another type of the same width."""
        return self.cast("bitcast", a, type_)

    def intrinsic(self, name: str, *values: Value, flag: str | None = None, result: str | None = None) -> Value:
        """Call an intrinsic that works lane by lane and is named after its first operand's type.

        ``flag`` is a last, immediate operand such as ``i1 false``; ``result`` is the element type of the result
        where it differs (then the intrinsic is named after both).
        """
        values = self.same_form(*values)
        first = values[0]
        suffix = f"v{self.width}" if first.is_vector else ""
        short = {"float": "f32", "double": "f64", "half": "f16"}
        full = f"llvm.{name}"
        out = first.type
        if result is not None:
            out = result
            full += f".{suffix}{short.get(result, result)}"
        full += f".{suffix}{short.get(first.type, first.type)}"
        returned = f"<{self.width} x {out}>" if first.is_vector else out
        arguments = [f"{self.type_of(v)} {v.text}" for v in values] + ([flag] if flag else [])
        types = [self.type_of(v) for v in values] + ([flag.split()[0]] if flag else [])
        return Value(self.call(full, returned, arguments, types), out, first.is_vector)

    def call(self, name: str, returned: str, arguments: list[str], types: list[str]) -> str:
        """Call a declared function; return the result's name, or nothing for ``void``."""
        self.declared.setdefault(name, f"declare {returned} @{name}({', '.join(types)})")
        text = f"call {returned} @{name}({', '.join(arguments)})"
        if returned == "void":
            self.line(text)
            return ""
        return self.assign(text)

    def any_lane(self, mask: Value) -> Value:
        """Whether any lane of a vector of i1 is set, as one i1."""
        word = self.assign(f"bitcast <{WARP} x i1> {mask.text} to i{WARP}")
        return Value(self.assign(f"icmp ne i{WARP} {word}, 0"), "i1")

    def word(self, mask: Value) -> Value:
        """Pack a mask into the bits of an i32, lane 0 lowest."""
        return Value(self.assign(f"bitcast <{WARP} x i1> {self.vector(mask).text} to i{WARP}"), f"i{WARP}")

    def mask_of(self, word: Value) -> Value:
        """Unpack the bits of an i32 into a mask."""
        return Value(self.assign(f"bitcast i{WARP} {word.text} to <{WARP} x i1>"), "i1", True)

    def invert(self, mask: Value) -> Value:
        """Negate an i1, or each of a vector."""
        return self.binary("xor", mask, self.integer(1, 1))

    def first_lane(self, mask: Value) -> Value:
        """Number the first lane that is set, as an i32 below 32 (any where none is)."""
        word = self.word(mask)
        count = self.call("llvm.cttz.i32", "i32", [f"i32 {word.text}", "i1 false"], ["i32", "i1"])
        return self.binary("and", Value(count, "i32"), self.integer(WARP - 1, 32))

    def reduce(self, name: str, a: Value) -> Value:
        """Combine all lanes of a vector into one: ``add``, ``umin``, ``fmaximum`` …"""
        short = {"float": "f32", "double": "f64"}.get(a.type, a.type)
        t = self.type_of(a)
        full = f"llvm.vector.reduce.{name}.v{self.width}{short}"
        return Value(self.call(full, a.type, [f"{t} {a.text}"], [t]), a.type)

    def reserve(self, name: str, type_: str) -> None:
        """Have memory of that name and type in the function, once; LLVM takes any vector in it for aligned."""
        line = f"  {name} = alloca {type_}, align {LARGEST_VECTOR}"
        if line not in self.entry:
            self.entry.append(line)

    def extract(self, a: Value, lane: Value) -> Value:
        """Take one lane out of a vector; ``lane`` is an i32."""
        text = f"extractelement {self.type_of(a)} {a.text}, i32 {lane.text}"
        return Value(self.assign(text), a.type)
