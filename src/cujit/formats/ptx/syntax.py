"""The syntax tree of PTX. ``parser`` creates it, ``printer`` writes it, and the CPU device reads it.

Every node has the number of its line (from 1, or 0 if code created the node). The line does not count for equality, so
a program that is printed and parsed again is equal to the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cujit.values import dataclass, field

_line = field(default=0, compare=False, repr=False)


# -- operands ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Register:
    """A register or special register, or ``_`` (the sink): ``%r1``, ``%tid.x``, ``%p|%q`` is two of them.

    Names that are declared in no ``.reg`` but by ``.param``/``.global`` … are ``SymbolRef``.
    """

    name: str


@dataclass(frozen=True)
class Immediate:
    """An integer constant with its written value, which may be negative. ``unsigned`` is whether it has the suffix
    ``U``.
    """

    value: int
    unsigned: bool = False


@dataclass(frozen=True)
class FloatLiteral:
    """A floating-point constant by its bits: ``0f3F800000`` is (32, 0x3F800000), decimals are f64."""

    bits: int
    width: int  # 32 or 64


@dataclass(frozen=True)
class SymbolRef:
    """The name of a variable, parameter or function used as a value, plus a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class LabelRef:
    """The name of a label (or of ``.branchtargets`` / ``.callprototype``) as an operand."""

    name: str


@dataclass(frozen=True)
class Address:
    """``[base+offset]``, or ``[1234]`` without a base. ``coords`` holds a texture's ``[tex, {x,y}]`` operands.

    ``unified`` is whether the address is ``[a].unified``, for a variable declared with ``.attribute(.unified)``.
    """

    base: Register | SymbolRef | None
    offset: int = 0
    coords: tuple[Operand, ...] = ()
    unified: bool = False


@dataclass(frozen=True)
class VectorOperand:
    """``{a, b, c, d}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class RegisterList:
    """``(a, b)``: the result or argument list of a ``call``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Negated:
    """``!%p`` as an operand."""

    item: Operand


@dataclass(frozen=True)
class Minus:
    """``-%r`` as an operand, because ``vmad`` accepts a negated source."""

    item: Operand


@dataclass(frozen=True)
class PairOperand:
    """``%p|%q``: a predicate with its complement, or a register with a predicate."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class ComponentOperand:
    """``%v.x``: one element of a vector register."""

    base: Register
    component: str


@dataclass(frozen=True)
class RegisterSum:
    """``temp + 1``: a register and a number, as the value of an operand."""

    base: Register
    offset: int


Operand = (
    Register
    | Immediate
    | FloatLiteral
    | SymbolRef
    | LabelRef
    | Address
    | VectorOperand
    | RegisterList
    | Minus
    | Negated
    | PairOperand
    | ComponentOperand
    | RegisterSum
)

_PARTS: dict[type, Callable[[Any], tuple[Operand, ...]]] = {
    Address: lambda o: o.coords if o.base is None else (o.base, *o.coords),
    VectorOperand: lambda o: o.items,
    RegisterList: lambda o: o.items,
    Negated: lambda o: (o.item,),
    Minus: lambda o: (o.item,),
    PairOperand: lambda o: (o.first, o.second),
    ComponentOperand: lambda o: (o.base,),
    RegisterSum: lambda o: (o.base,),
}


def within(operands: Iterable[Operand]) -> Iterator[Operand]:
    """Yield operands, and after each operand everything that it consists of."""
    for operand in operands:
        yield operand
        if type(operand) in _PARTS:
            yield from within(_PARTS[type(operand)](operand))


# -- statements -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predicate:
    """``@%p`` or ``@!%p``."""

    register: str
    negated: bool = False


@dataclass(frozen=True)
class Instruction:
    """``@p opcode.mod.mod a, b, c;`` : ``opcode`` is the first word, ``modifiers`` the rest, without dots.

    A modifier that holds ``::`` (``shared::cta``) is one modifier.
    """

    opcode: str
    modifiers: tuple[str, ...] = ()
    operands: tuple[Operand, ...] = ()
    predicate: Predicate | None = None
    line: int = _line

    @property
    def name(self) -> str:
        """The whole mnemonic: ``ld.global.f32``."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True)
class Label:
    """``name:``."""

    name: str
    line: int = _line


@dataclass(frozen=True)
class RegisterDecl:
    """``.reg .b32 %r<5>, %x;``, where ``names`` are pairs (name, count). The count is None for a plain name.

    ``vector`` is 1, 2, or 4.
    """

    type: str
    names: tuple[tuple[str, int | None], ...]
    vector: int = 1
    line: int = _line


@dataclass(frozen=True)
class Initializer:
    """The initial value of a variable: nested lists of ``Immediate``, ``FloatLiteral`` and ``SymbolRef``.

    ``generic(sym)`` is a ``SymbolRef`` in ``Generic``; ``mask`` applies ``0xFF00(sym)`` forms.
    """

    items: tuple[InitItem, ...]


@dataclass(frozen=True)
class Generic:
    """``generic(symbol)`` or ``symbol`` under a byte mask (``0xFF(symbol)``) in an initializer."""

    symbol: SymbolRef
    generic: bool = True
    mask: int | None = None


@dataclass(frozen=True)
class Property:
    """``filter_mode = linear``: one setting in the initial value of a ``.samplerref`` or ``.texref``."""

    name: str
    value: str


InitItem = Immediate | FloatLiteral | SymbolRef | Generic | Property | Initializer
InitValue = InitItem


@dataclass(frozen=True)
class Variable:
    """``.global .align 4 .b8 name[16] = {…};`` in any state space, including ``.param``.

    ``space`` is ``global``, ``const``, ``shared``, ``local``, ``param``, or ``reg`` (a ``.func``'s register parameter).
    ``shape`` contains the array dimensions: (0,) for ``name[]``, and () for a scalar. ``vector`` is 1, 2, or 4.
    ``linkage`` is ``extern``, ``visible``, ``weak``, ``common``, ``hidden`` (of a parameter), or "". ``ptr_space`` and
    ``ptr_align`` are from ``.ptr``, and ``is_ptr`` is whether ``.ptr`` was present. ``attributes`` are from
    ``.attribute(…)``, such as ``managed``.
    """

    space: str
    type: str
    name: str
    shape: tuple[int, ...] = ()
    align: int | None = None
    vector: int = 1
    linkage: str = ""
    initializer: InitValue | None = None
    is_ptr: bool = False
    ptr_space: str = ""
    ptr_align: int | None = None
    attributes: tuple[str, ...] = ()
    line: int = _line


@dataclass(frozen=True)
class Location:
    """``.loc file line column``, and ``rest``: empty, or ``function_name $L__x, inlined_at 1 10 3``."""

    file: int
    source_line: int
    column: int
    rest: str = ""
    line: int = _line


@dataclass(frozen=True)
class Directive:
    """Any other directive: its name without the dot (``pragma``, ``alias``, ``file`` …), and its arguments as text.

    Strings keep their quotes. The arguments of a ``.section`` are its name (with the dot) and its body, verbatim. An
    ``.nv_intermediate_source_section`` has only its body.
    """

    name: str
    arguments: tuple[str, ...] = ()
    line: int = _line


@dataclass(frozen=True)
class BranchTargets:
    """``name: .branchtargets a, b, c;`` (the label is part of it)."""

    name: str
    targets: tuple[str, ...]
    kind: str = "branchtargets"  # or "calltargets"
    line: int = _line


@dataclass(frozen=True)
class CallPrototype:
    """``name: .callprototype (ret) _ (params) …;``; ``flags`` follow: ``noreturn``, ``abi_preserve 8``."""

    name: str
    results: tuple[Variable, ...] = ()
    parameters: tuple[Variable, ...] = ()
    flags: tuple[str, ...] = ()
    line: int = _line


@dataclass(frozen=True)
class Scope:
    """``{ … }``: declarations and labels inside are its own."""

    body: tuple[Statement, ...]
    line: int = _line


Statement = Instruction | Label | RegisterDecl | Variable | Location | Directive | BranchTargets | CallPrototype | Scope


def flat(body: Iterable[Statement] | None) -> Iterator[Statement]:
    """Yield the statements of a body, with the statements of nested scopes in their places. A declaration has no
    statements.
    """
    for statement in body or ():
        if isinstance(statement, Scope):
            yield from flat(statement.body)
        else:
            yield statement


def instructions(body: Iterable[Statement] | None) -> Iterator[Instruction]:
    """Return the instructions of a body, with the instructions of nested scopes in their places."""
    return (statement for statement in flat(body) if isinstance(statement, Instruction))


# -- functions and modules --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """``.entry`` (``is_entry``) or ``.func``. ``body`` is None for a declaration.

    ``directives`` are the directives after the parameters, by name, with arguments as text: ``("maxntid", ("256", "1",
    "1"))``, ``("noreturn", ())``.
    """

    name: str
    is_entry: bool
    parameters: tuple[Variable, ...] = ()
    results: tuple[Variable, ...] = ()
    body: tuple[Statement, ...] | None = None
    linkage: str = ""
    directives: tuple[tuple[str, tuple[str, ...]], ...] = ()
    attributes: tuple[str, ...] = ()
    line: int = _line


ModuleItem = Function | Variable | Directive | Location


@dataclass(frozen=True)
class PtxModule:
    """A whole PTX text. ``target`` is ``("sm_90a", …)`` as listed; ``address_size`` in bits."""

    version: tuple[int, int]
    target: tuple[str, ...]
    address_size: int = 64
    items: tuple[ModuleItem, ...] = ()

    @property
    def functions(self) -> tuple[Function, ...]:
        """Entries and functions, declarations included, in order."""
        return tuple(item for item in self.items if isinstance(item, Function))

    @property
    def entries(self) -> tuple[Function, ...]:
        """The kernels that have a body, in order."""
        return tuple(f for f in self.functions if f.is_entry and f.body is not None)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Module-level variables, in order."""
        return tuple(item for item in self.items if isinstance(item, Variable))
