"""Nodes of LLVM IR, one value at a time. A value is a scalar of the warp or a vector of its 32 lanes."""

from __future__ import annotations

import contextlib
import functools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.nodes import IrModule, Node, Value, type_of
from cujit.devices.cpu.codegen.ssa import ENDS, IrBlock, SsaVariable, in_ssa
from cujit.devices.cpu.ir.program import Reg

__all__ = ["LARGEST_VECTOR", "Builder", "Value", "float_type", "int_type", "storage_type", "type_width"]


Emit: TypeAlias = "Callable[[], Sequence[Value] | None]"
"""Emits something, and gives values where it has some."""

LARGEST_VECTOR = 512
"""Bytes of 32 values of 128 bits, which LLVM takes an access to be aligned to if nothing is said.

Source: LLVM Language Reference, "Data Layout": the alignment of a vector is its size if the layout names no other.
"""


_TOUCHES = frozenset({"load", "store", "call"})
_LONG = 200
"""Loads, stores and calls of one basic block. LLVM's code generator compares each with the others of one pointer: 830
products of doubles in one block take 21 CPU s, and 6 where they are cut so. Measured with LLVM 22.1 on x86-64. Blocks
of arithmetic are not cut, since ``instcombine`` would sink values from one to the next, one at a time.
"""


_MOST_LIVE = 600_000
"""Variables that live at begins of basic blocks, counted at each, beyond which LLVM compiles a function as it does what
is huge: its greedy register allocation takes time in proportion to them, which for a row of ifs is the square of its
length. Of 14 million, for 3,150 ifs, 8.9 CPU seconds and 0.55 GB became 0.9 and 0.25; long kernels of
``compile_tail.py`` have 200,000 at most. Measured with LLVM 22.1, ``benchmarks/shapes.py``.
"""

_MOST_WAYS = 200_000
"""Ways through one basic block, from each block before it to each behind it, beyond which it does so, too: LLVM looks
at each, to thread jumps and to copy the block. Of 2.2 million, 7.4 CPU seconds became 0.2. Measured likewise.
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
    """Appends nodes to the body of one function.

    ``entry`` are those of its first block; ``module`` has the functions beside it.

    Scalars and vectors mix: where one operand is a vector the others are broadcast. Where the module has debug
    information, each node knows the line of the PTX that it comes from.

    Where a method takes ``into``, that is the name of the result; it makes a fresh one without. Places in memory are
    values, or their names. The body begins in the block ``first``.
    """

    def __init__(self, module: IrModule | None = None, *, first: str = "entry") -> None:
        self.module = IrModule() if module is None else module
        self._line = 0
        self.entry: list[Node] = []
        self.body: list[Node] = []
        self._known: set[str] = set()
        self._given: set[str] = set()
        self._count = 0
        self._cuts = self._touches = self._seen = 0
        self._first = self._block = IrBlock(first)
        self._blocks: dict[str, IrBlock] = {}
        self._variables: dict[str, SsaVariable] = {}

    # -- nodes -------------------------------------------------------------------------------------------

    def name(self, hint: str = "") -> str:
        """Make a fresh value name. No name that is chosen has the ``$`` of those that are counted."""
        self._count += 1
        return f"%{hint}${self._count}"

    def label(self, hint: str) -> str:
        """Make a fresh label: labels and values share one namespace in LLVM, and so do they here (see ``name``)."""
        self._count += 1
        return f"{hint}${self._count}"

    def _give(self, name: str) -> None:
        """Record a name that was chosen for a value or a block, and ensure that it is unique."""
        assert name not in self._given, f"{name} is given twice: a fault of cujit"
        self._given.add(name)

    def come_to(self, line: int) -> None:
        """Set the PTX line that the following instructions come from."""
        if self.module.debug is not None:
            self._line = line

    def append(self, node: Node) -> None:
        """Append a node as it is."""
        node.line = self._line
        self.body.append(node)

    @property
    def here(self) -> str:
        """The label of the block that is being built."""
        return self._block.label

    @property
    def _has_ended(self) -> bool:
        return bool(self.body) and self.body[-1].opcode in ENDS

    def start(self, label: str) -> None:
        """Begin a basic block; what stands before it goes on there, unless it has ended."""
        if not self._has_ended:
            self.jump(label)
        self._give(f"%{label}")
        self.module.grow()
        self._block = self._blocks[label] = IrBlock(label)
        self.body.append(Node("label", name=label))

    @contextlib.contextmanager
    def at_entry(self) -> Iterator[None]:
        """Move what the body emits to the entry block, which belongs to no PTX line."""
        here = len(self.body)
        yield
        for node in self.body[here:]:
            node.line = 0
            self.entry.append(node)
            self._known.add(node.result)
        del self.body[here:]

    def has_entry(self, name: str) -> bool:
        """Whether the first block gives something that name."""
        return name in self._known

    def take(self) -> list[Node]:
        """Take away what follows the first block, its variables made values.

        What is emitted then is of no line of the PTX, and knows none of these variables.
        """
        nodes, self.body, self._line = self.body, [], 0
        self._cuts = self._touches = self._seen = 0
        if self._variables:
            nodes, spread = in_ssa(nodes, self._first, self._blocks, self._variables, self.name, self._frame)
            self.module.is_huge |= spread.live > _MOST_LIVE or spread.ways > _MOST_WAYS
        self._block, self._blocks, self._variables = IrBlock("entry"), {}, {}
        return nodes

    def cut_if_long(self) -> None:
        """End the basic block if it may have become long: by a branch that LLVM cannot know is never taken.

            br i1 %params.is.3, label %aside$17, label %behind$18      ; parameters have no odd address
            aside$17: call void asm sideeffect "", ""() …              ; LLVM leaves out branches to less
            behind$18: …

        Two ways lead to what follows, as ``instcombine`` would otherwise sink values into it, from cut to cut.

        Other ends of blocks are not counted on, since LLVM joins blocks where it finds that a branch is never taken.
        """
        fresh = self.body[self._seen :]
        self.module.grow(
            len(fresh) + sum([node.operands[:1] != () and node.operands[0].lanes > WARP for node in fresh])
        )
        self._touches += sum([node.opcode in _TOUCHES for node in fresh])
        self._seen = len(self.body)
        if self._touches > _LONG:
            self._cuts, self._touches = self._cuts + 1, 0
            is_odd = self.compare("icmp eq", Value("%params.int", "i64"), self.integer(2 * self._cuts - 1, 64))
            with self.when(is_odd, "aside"):
                self.invoke('asm sideeffect "", ""', "void")

    def _make(self, node: Node, type_: str, lanes: int = 0) -> Value:
        """Append a node that has a result, under a fresh name unless it has one."""
        if node.result:
            self._give(node.result)
        else:
            node.result = self.name()
        node.line = self._line
        self.body.append(node)
        return Value(node.result, type_, lanes)

    # -- variables ---------------------------------------------------------------------------------------

    def read(self, variable: str, type_: str, *, lanes: int = 0) -> Value:
        """Return the value of a variable here: the last one written on the path taken, and zero at first."""
        value = self._block.left.get(variable)
        if value is None:
            value = Value(self.name(variable), type_, lanes)
            self._block.found[variable] = self._block.left[variable] = value
            if variable not in self._variables:
                first = Value("zeroinitializer", type_, lanes)
                self._variables[variable] = SsaVariable(first, type_of(first))
        return value

    def write(self, variable: str, value: Value) -> None:
        """Set the value of a variable from here on."""
        self._block.left[variable] = value

    def _frame(self, size: int) -> Value:
        """Reserve memory for variables, and return a pointer to it that is opaque to LLVM.

        It would make phis of the variables again.
        """
        self.module.is_huge = True
        frame = self.reserve("%kept", f"[{size} x i8]")
        self.entry.append(Node("call", (frame,), "%kept.at", "ptr", name='asm "", "=r,0"'))
        return Value("%kept.at", "ptr")

    # -- values ------------------------------------------------------------------------------------------

    def integer(self, value: int, bits: int) -> Value:
        """Make an integer constant, wrapped to its width."""
        return _integer(value, bits)

    def real(self, bits: int, width: int) -> Value:
        """Make a floating-point constant from its bits, exactly."""
        type_ = float_type(width)
        return Value(f"bitcast (i{width} {self.integer(bits, width).text} to {type_})", type_, constant=True)

    def number(self, value: float, type_: str = "double") -> Value:
        """Make a floating-point constant."""
        width = type_width(type_)
        return self.real(int.from_bytes(struct.pack({16: "<e", 32: "<f", 64: "<d"}[width], value), "little"), width)

    def vector(self, value: Value, lanes: int = WARP) -> Value:
        """Broadcast a scalar to lanes, all of the warp if no count is said; a vector stays as it is."""
        if value.lanes:
            return value
        if value.constant:
            return Value(f"splat ({value.type} {value.text})", value.type, lanes, True)
        return self.shuffle(self.insert(None, value, 0, lanes), None, Value("zeroinitializer", "i32", lanes, True))

    def rows(self, values: list[Value]) -> Value:
        """Spread scalars over the lanes, each over a row of its own."""
        if len(values) == 1:
            return self.vector(values[0])
        some = None
        for k, value in enumerate(values):
            some = self.insert(some, value, k)
        assert some is not None
        return self.shuffle(some, None, self.lanes([lane * len(values) // WARP for lane in range(WARP)], 32))

    def lanes(self, numbers: list[int], bits: int) -> Value:
        """Make a vector constant with one number a lane."""
        items = ", ".join([f"i{bits} {_integer(n, bits).text}" for n in numbers])
        return Value(f"<{items}>", f"i{bits}", WARP)

    # -- operations --------------------------------------------------------------------------------------

    def same_form(self, *values: Value) -> tuple[Value, ...]:
        """Broadcast scalars where any value is a vector."""
        lanes = max(v.lanes for v in values)
        return tuple(self.vector(v, lanes) for v in values) if lanes else values

    def binary(self, op: str, a: Value, b: Value, *, into: str = "") -> Value:
        """Apply ``add``, ``fmul``, ``lshr`` … to two values of one type."""
        if a.lanes != b.lanes:
            a, b = self.vector(a, b.lanes), self.vector(b, a.lanes)
        return self._make(Node(op, (a, b), into), a.type, a.lanes)

    def compare(self, op: str, a: Value, b: Value, *, into: str = "") -> Value:
        """Compare: ``icmp slt``, ``fcmp oeq`` …; the result is i1."""
        if a.lanes != b.lanes:
            a, b = self.vector(a, b.lanes), self.vector(b, a.lanes)
        return self._make(Node(op, (a, b), into), "i1", a.lanes)

    def select(self, condition: Value, a: Value, b: Value, *, into: str = "") -> Value:
        """Choose ``a`` where the condition holds, else ``b``, lane by lane."""
        condition, a, b = self.same_form(condition, a, b)
        return self._make(Node("select", (condition, a, b), into), a.type, a.lanes)

    def cast(self, op: str, a: Value, to: str, *, into: str = "") -> Value:
        """Convert with ``zext``, ``trunc``, ``sitofp`` …; nothing is done when the type is already right."""
        if a.type == to:
            return a
        target = f"<{a.lanes} x {to}>" if a.lanes else to
        return self._make(Node(op, (a,), into, target), to, a.lanes)

    def freeze(self, a: Value) -> Value:
        """Take the same value every time where it may be any."""
        return self._make(Node("freeze", (a,)), a.type, a.lanes)

    def resize(self, a: Value, bits: int, signed: bool) -> Value:
        """Truncate or extend an integer."""
        width = type_width(a.type)
        if width == bits:
            return a
        return self.cast("trunc" if width > bits else "sext" if signed else "zext", a, f"i{bits}")

    def bits_as(self, a: Value, type_: str) -> Value:
        """Read the same bits as another type of the same width."""
        return self.cast("bitcast", a, type_)

    def intrinsic(self, name: str, *values: Value, flag: Value | None = None, result: str | None = None) -> Value:
        """Call an intrinsic that works lane by lane and is named after its first operand's type.

        ``flag`` is a last, immediate operand; ``result`` is the element type of the result where it differs (then the
        intrinsic is named after both).
        """
        values = self.same_form(*values)
        first = values[0]
        suffix = f"v{first.lanes}" if first.lanes else ""
        short = {"float": "f32", "double": "f64", "half": "f16"}
        full = f"llvm.{name}"
        out = first.type
        if result is not None:
            out = result
            full += f".{suffix}{short.get(result, result)}"
        full += f".{suffix}{short.get(first.type, first.type)}"
        return self.call(full, out, *values, *([flag] if flag else ()), lanes=first.lanes)

    def call(self, name: str, returned: str, *arguments: Value, lanes: int = 0) -> Value:
        """Call a function that stands elsewhere and is declared here; for ``void`` the value is none."""
        if name not in self.module.declared:
            full = f"<{lanes} x {returned}>" if lanes else returned
            self.module.declared[name] = f"declare {full} @{name}({', '.join(map(type_of, arguments))})"
        return self.invoke(f"@{name}", returned, *arguments, lanes=lanes)

    def invoke(self, callee: str, returned: str, *arguments: Value, lanes: int = 0) -> Value:
        """Call a function of this module, or assembly; with ``lanes`` it gives one value for each."""
        full = f"<{lanes} x {returned}>" if lanes else returned
        node = Node("call", arguments, type=full, name=callee)
        if returned == "void":
            self.append(node)
            return Value("", returned)
        return self._make(node, returned, lanes)

    def define(
        self,
        name: str,
        parameters: str | Sequence[Value],
        body: Callable[[Builder], Value | None],
        returned: str = "void",
        attributes: str = "noinline",
    ) -> str:
        """Define a function beside this one, unless it is there, and give its name.

        ``body`` emits it and gives its result; it may define others. Types are LLVM's.
        """
        if name not in self.module.functions:
            inner = Builder(self.module)
            inner.leave(body(inner))
            self.module.define(name, parameters, [*inner.entry, *inner.body], returned, attributes)
        return name

    def any_lane(self, mask: Value) -> Value:
        """Whether any lane of a vector of i1 is set, as one i1."""
        return self.compare("icmp ne", self._as_word(mask), self.integer(0, WARP))

    def word(self, mask: Value) -> Value:
        """Pack a mask into the bits of an i32, lane 0 lowest."""
        return self._as_word(self.vector(mask))

    def _as_word(self, mask: Value) -> Value:
        return self._make(Node("bitcast", (mask,), type=f"i{WARP}"), f"i{WARP}")

    def mask_of(self, word: Value, *, into: str = "") -> Value:
        """Unpack the bits of an i32 into a mask."""
        return self._make(Node("bitcast", (word,), into, f"<{WARP} x i1>"), "i1", WARP)

    # -- parts of numbers --------------------------------------------------------------------------------

    def divided(self, a: Value, type_: str) -> Value:
        """Read each integer as several of a narrower type, the lowest one first, in so many times the lanes."""
        lanes = (a.lanes or 1) * type_width(a.type) // type_width(type_)
        return self._make(Node("bitcast", (a,), type=f"<{lanes} x {type_}>"), type_, lanes)

    def united(self, a: Value, type_: str, lanes: int) -> Value:
        """Undo ``divided``: join neighbours to integers of a wider type, of a scalar if ``lanes`` is 0."""
        return self._make(Node("bitcast", (a,), type=f"<{lanes} x {type_}>" if lanes else type_), type_, lanes)

    # -- floats ------------------------------------------------------------------------------------------

    def as_bits(self, x: Value) -> Value:
        """Read a float as an integer."""
        return self.bits_as(x, int_type(type_width(x.type)))

    def magnitude(self, x: Value) -> Value:
        """Clear the sign."""
        return self.intrinsic("fabs", x)

    def signed(self, size: Value, sign: Value) -> Value:
        """Return ``size`` with the sign of ``sign``, a float of the same type."""
        return self.intrinsic("copysign", size, sign)

    def sign_of(self, x: Value) -> Value:
        """Keep the sign bit alone, as an integer."""
        width = type_width(x.type)
        return self.binary("and", self.as_bits(x), self.integer(1 << (width - 1), width))

    def is_nan(self, x: Value) -> Value:
        """Whether a float is NaN."""
        return self.compare("fcmp uno", x, x)

    # -- masks -------------------------------------------------------------------------------------------

    def invert(self, mask: Value) -> Value:
        """Negate an i1, or each of a vector."""
        return self.binary("xor", mask, self.integer(1, 1))

    def first_lane(self, mask: Value) -> Value:
        """Number the first lane that is set, as an i32 below 32 (any where none is)."""
        return self.binary("and", self.lowest_bit(self.word(mask)), self.integer(WARP - 1, 32))

    def lowest_bit(self, word: Value) -> Value:
        """Number the lowest bit that is set in an i32; 32 where none is."""
        return self.call("llvm.cttz.i32", "i32", word, self.integer(0, 1))

    def reduce(self, name: str, a: Value) -> Value:
        """Combine all lanes of a vector into one: ``add``, ``umin``, ``fmaximum`` …"""
        short = {"float": "f32", "double": "f64"}.get(a.type, a.type)
        return self.call(f"llvm.vector.reduce.{name}.v{a.lanes}{short}", a.type, a)

    # -- memory ------------------------------------------------------------------------------------------

    def reserve(self, name: str, type_: str) -> Value:
        """Reserve memory with a name and a type in the function, once. LLVM treats any vector in it as aligned."""
        if not self.has_entry(name):
            self.entry.append(Node("alloca", result=name, type=type_, align=LARGEST_VECTOR))
            self._known.add(name)
        return Value(name, "ptr")

    def reserve_bytes(self, name: str, size: int) -> Value:
        """Reserve memory with a name in the function, of the largest size that any caller requests."""
        place = self.reserve(name, f"[{size} x i8]")
        node = next(node for node in self.entry if node.result == name)
        if size > int(node.type[1:].split()[0]):
            node.type = f"[{size} x i8]"
        return place

    def in_memory(self, name: str, value: Value) -> Value:
        """Point to a value, for who takes it from memory: a place of that name has it until another is put there."""
        place = self.reserve(name, type_of(value))
        self.store(value, place)
        return place

    def allocate(self, type_: str, *, size: Value | None = None, align: int = 0, into: str = "") -> Value:
        """Take memory on the stack."""
        return self._make(Node("alloca", (size,) if size else (), into, type_, align=align), "ptr")

    def load(
        self, type_: str, at: Value | str, *, lanes: int = 0, align: int = 0, order: str = "",
        volatile: bool = False, into: str = "",
    ) -> Value:  # fmt: skip
        """Read a scalar, or with ``lanes`` one for each; with an ``order`` atomically."""
        full = f"<{lanes} x {type_}>" if lanes else type_
        return self._make(Node("load", (_place(at),), into, full, align=align, order=order, volatile=volatile),
                          type_, lanes)  # fmt: skip

    def store(
        self, value: Value, at: Value | str, *, align: int = 0, order: str = "", volatile: bool = False,
        nontemporal: bool = False,
    ) -> None:  # fmt: skip
        """Write a value; with an ``order`` atomically."""
        self.append(Node("store", (value, _place(at)), align=align, order=order, volatile=volatile,
                         nontemporal=nontemporal))  # fmt: skip

    def point(self, type_: str, base: Value | str, index: Value, *, into: str = "") -> Value:
        """Point to an element of an array of that type; a vector of indices makes a vector of pointers."""
        node = Node("getelementptr", (_place(base), index), into, type_)
        return self._make(node, "ptr", index.lanes)

    def offset(self, base: Value | str, bytes_: int, *, into: str = "") -> Value:
        """Point some bytes on."""
        return self.point("i8", base, Value(str(bytes_), "i64", constant=True), into=into)

    def fence(self, order: str) -> None:
        """Order memory operations of this thread for others."""
        self.append(Node("fence", order=order))

    def update(self, op: str, at: Value | str, operand: Value, order: str, *, align: int = 0) -> Value:
        """Update memory atomically by ``add``, ``umax`` … and give what was there."""
        node = Node("atomicrmw", (_place(at), operand), name=op, order=order, align=align)
        return self._make(node, operand.type)

    def exchange(self, at: Value | str, old: Value, new: Value, order: str, *, align: int = 0, into: str = "") -> Value:
        """Write a value atomically where the old one is; give whether it was. ``into`` names what was there."""
        pair = f"{{ {old.type}, i1 }}"
        node = Node("cmpxchg", (_place(at), old, new), order=order, align=align)
        both = self._make(node, pair)
        self._make(Node("extractvalue", (both, Value("0", "i32")), into, pair), old.type)
        return self._make(Node("extractvalue", (both, Value("1", "i32")), type=pair), "i1")

    # -- flow --------------------------------------------------------------------------------------------

    def jump(self, label: str) -> None:
        """Go on at a label."""
        self.append(Node("br", labels=(label,)))

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """Go on at one label where a scalar holds, else at the other."""
        self.append(Node("br", (condition,), labels=(yes, no)))

    def only_if(self, condition: Value, otherwise: str, hint: str = "if", *, holds: bool = True) -> None:
        """Go on here only where a scalar holds, or does not; else at a label."""
        here = self.label(hint)
        self.branch(condition, *((here, otherwise) if holds else (otherwise, here)))
        self.start(here)

    @contextlib.contextmanager
    def when(self, condition: Value, hint: str = "if", *, holds: bool = True) -> Iterator[None]:
        """Emit what the body emits so that it runs only if a scalar holds, or only if it does not."""
        behind = self.label(f"{hint}.end")
        self.only_if(condition, behind, hint, holds=holds)
        yield
        self.start(behind)

    def either(self, condition: Value, yes: Emit, no: Emit, hint: str = "if") -> list[Value]:
        """Do one thing where a scalar holds and else the other; give what came of it, as many values of both."""
        labels = self.label(hint), self.label(f"{hint}.not")
        behind, ways = self.label(f"{hint}.end"), []
        self.branch(condition, *labels)
        for label, emit in zip(labels, (yes, no), strict=True):
            self.start(label)
            found = emit() or ()
            if not self._has_ended:
                ways.append([(value, self._block.label) for value in found])
                self.jump(behind)
        if ways:
            self.start(behind)
        return [self.phi(both[0][0], *both) for both in zip(*ways, strict=True)]

    def switch(self, value: Value, cases: Iterable[tuple[int, str]], otherwise: str) -> None:
        """Go on at the label of the number that a value has."""
        pairs = list(cases)
        numbers = (Value(str(number), value.type, constant=True) for number, _ in pairs)
        self.append(Node("switch", (value, *numbers), labels=(otherwise, *(label for _, label in pairs))))

    def phi(self, like: Value, *ways: tuple[Value | str, str], into: str = "") -> Value:
        """Take the value of the way that was come, each with the label it comes from; all have the type of ``like``."""
        values = tuple(v if isinstance(v, Value) else Value(v, like.type, like.lanes) for v, _ in ways)
        labels = tuple(label for _, label in ways)
        return self._make(Node("phi", values, into, type_of(like), labels=labels), like.type, like.lanes)

    def leave(self, value: Value | None = None) -> None:
        """Return from the function."""
        self.append(Node("ret", () if value is None else (value,)))

    def unreachable(self) -> None:
        """Emit an ``unreachable``: control flow never gets here."""
        self.append(Node("unreachable"))

    # -- parts of vectors --------------------------------------------------------------------------------

    def extract(self, a: Value, lane: Value) -> Value:
        """Take one lane out of a vector; ``lane`` is an i32."""
        return self._make(Node("extractelement", (a, lane)), a.type)

    def insert(self, a: Value | None, value: Value, lane: int, lanes: int = WARP) -> Value:
        """Put a scalar into one lane of a vector, of one without values and of so many ``lanes`` if that is None."""
        whole = Value("poison", value.type, lanes) if a is None else a
        number = Value(str(lane), "i64", constant=True)
        return self._make(Node("insertelement", (whole, value, number)), value.type, whole.lanes)

    def shuffle(self, a: Value, b: Value | None, picks: Value | Sequence[int]) -> Value:
        """Pick elements of two vectors, counted through (-1: any); a vector of lanes where they are as many."""
        second = Value("poison", a.type, a.lanes) if b is None else b
        element = a.type if a.lanes else a.type.rpartition(" x ")[2].rstrip(">")
        count = picks.lanes if isinstance(picks, Value) else len(picks)
        if not isinstance(picks, Value):
            numbers = ", ".join([f"i32 {k}" if k >= 0 else "i32 poison" for k in picks])
            picks = Value(f"<{numbers}>", f"<{count} x i32>", constant=True)
        node = Node("shufflevector", (a, second, picks))
        is_lanes = count in (a.lanes, WARP)
        return self._make(node, element if is_lanes else f"<{count} x {element}>", count if is_lanes else 0)


@functools.lru_cache(256)  # the small ones of every kernel; a kernel's own would stay as long as the process
def _integer(value: int, bits: int) -> Value:
    if bits == 1:
        return Value("true" if value & 1 else "false", "i1", constant=True)
    value &= (1 << bits) - 1
    return Value(str(value - (1 << bits) if value >> (bits - 1) else value), f"i{bits}", constant=True)


def _place(at: Value | str) -> Value:
    return at if isinstance(at, Value) else Value(at, "ptr")
