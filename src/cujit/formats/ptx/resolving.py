"""Resolution of the names in several modules to definitions, and the problems that prevent it.

Source: links and refusals of nvJitLink 13.5 (measured, PTX to a cubin for sm_90), and PTX ISA 9.1, 5.6 "Linking
Directives". nvJitLink writes messages about different sizes, spaces, and prototypes to standard error, but the call
succeeds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cujit.formats.mangling import spelled
from cujit.formats.ptx.parameters import ELEMENT_BYTES, bytes_of
from cujit.formats.ptx.syntax import Directive, Function, PtxModule, Variable
from cujit.values import NamedTuple, dataclass, field, group_by

_SYSTEM_FUNCTIONS = frozenset(("vprintf", "malloc", "free", "__assertfail"))
_DEVICE_RUNTIME = re.compile(r"(__)?cuda(CDP2)?[A-Z]\w*")


def is_of_nvidia(name: str) -> bool:
    """Return whether a function is defined by the driver or libcudadevrt, so that PTX declares it and never defines it.

    libcudadevrt contains only machine code, so PTX cannot be linked with it.

    Source: PTX Writer's Guide to Interoperability, "System Calls"; ``cuda_device_runtime_api.h`` of CUDA 13.0.
    """
    return name in _SYSTEM_FUNCTIONS or _DEVICE_RUNTIME.fullmatch(name) is not None


_OPAQUE = frozenset(("texref", "samplerref", "surfref"))


class Complaint(NamedTuple):
    """A problem that prevents a link: the index of its input, its line, and its description."""

    input: int
    line: int
    text: str


@dataclass
class Symbol:
    """The declarations of one name in one module, and its definition or alias, if any."""

    name: str
    input: int
    declared: list[Function | Variable] = field(default_factory=list)
    defined: Function | Variable | None = None
    alias: Directive | None = None

    @property
    def is_defined(self) -> bool:
        """Whether the module defines it."""
        return self.defined is not None or self.alias is not None

    @property
    def item(self) -> Function | Variable:
        """The definition, otherwise the first declaration."""
        return self.defined or self.declared[0]

    @property
    def line(self) -> int:
        """The line of the alias, otherwise of the definition, otherwise of the first declaration."""
        return self.alias.line if self.alias else self.item.line

    @property
    def linkage(self) -> str:
        """``visible``, ``weak``, or ``common``, or ``""`` for a private symbol. A symbol without a definition is
        ``extern``.

        A visible prototype makes a function visible even if the definition has no linkage (measured).
        """
        if not self.is_defined:
            return self.item.linkage
        linkages = [self.defined.linkage] if self.defined else []
        linkages += [item.linkage for item in self.declared if item.linkage != "extern"]
        return next((linkage for linkage in linkages if linkage), "")

    @property
    def is_private(self) -> bool:
        """Whether no other module can refer to the symbol."""
        return self.is_defined and not self.linkage

    @property
    def is_dynamic(self) -> bool:
        """Whether it is the dynamic shared memory: ``.extern .shared name[]``."""
        v = self.item
        return isinstance(v, Variable) and v.space == "shared" and v.linkage == "extern" and not variable_bytes(v)

    @property
    def kind(self) -> str:
        """A description of the symbol, with the properties that two modules must agree on."""
        if isinstance(self.item, Function):
            return "a kernel" if self.item.is_entry else "a function"
        v = self.item
        space = "global" if v.space == "tex" else v.space
        opaque = f" .{v.type}" if v.type in _OPAQUE else ""
        managed = " .managed" if "managed" in v.attributes else ""
        return f"a variable in .{space}{opaque}{managed}"


@dataclass
class Resolution:
    """The definition of every name that modules share, and every complaint."""

    chosen: dict[str, Symbol] = field(default_factory=dict)
    complaints: list[Complaint] = field(default_factory=list)


def symbols_of(module: PtxModule, index: int, complaints: list[Complaint]) -> dict[str, Symbol]:
    """Return the module-level symbols of a module by name. ``index`` is the position of the module among the inputs."""
    found: dict[str, Symbol] = {}
    for item in module.items:
        if isinstance(item, (Function, Variable)):
            symbol = found.setdefault(item.name, Symbol(item.name, index))
            if (isinstance(item, Function) and item.body is None) or item.linkage == "extern":
                symbol.declared.append(item)
            elif symbol.defined is not None:
                complaints.append(Complaint(index, item.line, f"{spelled(item.name)} is defined again in one module"))
            else:
                symbol.defined = item
        elif isinstance(item, Directive) and item.name == "alias":
            name = item.arguments[0]
            if name not in found:
                complaints.append(Complaint(index, item.line, f"the alias {name} is of no function declared before"))
            else:
                found[name].alias = item
    return found


def resolve(tables: Sequence[dict[str, Symbol]], inputs: Sequence[str]) -> Resolution:
    """Choose one definition for each name that modules share. ``inputs`` are the names of the modules, for messages."""
    resolution = Resolution()
    shared = ((name, each) for table in tables for name, each in table.items() if not each.is_private)
    for name, symbols in group_by(shared).items():
        _Names(inputs, resolution).choose(name, symbols)
    return resolution


@dataclass
class _Names:
    """The choice for one name."""

    inputs: Sequence[str]
    resolution: Resolution

    def choose(self, name: str, symbols: Sequence[Symbol]) -> None:
        """Choose the strong definition, otherwise the first weak definition, otherwise the largest
        common definition.
        """
        defined = [s for s in symbols if s.is_defined]
        strong = [s for s in defined if s.linkage == "visible"]
        weak = [s for s in defined if s.linkage == "weak"]
        common = sorted((s for s in defined if s.linkage == "common"), key=lambda s: -variable_bytes(s.item))
        for again in strong[1:]:
            self._complain(again, f"{spelled(name)} is defined again; first in {self._place(strong[0])}")
        chosen = next(iter((*strong, *weak, *common)), None)
        if chosen is None:
            self._agree(symbols[0], symbols[1:])
            return
        self._agree(chosen, [s for s in symbols if s is not chosen and s not in strong])
        self.resolution.chosen[name] = chosen

    def _agree(self, chosen: Symbol, others: Iterable[Symbol]) -> None:
        for other in others:
            if difference := _difference(chosen, other):
                does = "defined" if other.is_defined else "declared"
                self._complain(
                    other, f"{spelled(other.name)} is {does} as {difference[1]}; "
                    f"{self._place(chosen)} has {difference[0]}",
                )  # fmt: skip

    def _place(self, symbol: Symbol) -> str:
        return f"{self.inputs[symbol.input]}:{symbol.line}"

    def _complain(self, symbol: Symbol, text: str) -> None:
        self.resolution.complaints.append(Complaint(symbol.input, symbol.line, text))


def _difference(chosen: Symbol, other: Symbol) -> tuple[str, str] | None:
    """Return a description of each symbol if the two modules do not agree.

    Return None if the linker treats the two symbols as one.
    """
    if chosen.kind != other.kind:
        return chosen.kind, other.kind
    a, b = chosen.item, other.item
    if isinstance(a, Function) and isinstance(b, Function):
        if _prototype(a) == _prototype(b):
            return None
        return f"({_shown(a)})", f"({_shown(b)})"
    if not isinstance(a, Variable) or not isinstance(b, Variable):  # the kinds say so
        return None
    large, small = variable_bytes(a), variable_bytes(b)
    if large == small or not small or not large:
        return None
    if other.linkage == "common" and small < large:
        return None
    return f"{large} bytes", f"{small} bytes"


def variable_bytes(item: Function | Variable) -> int:
    """Bytes of a variable; 0 for an array without a size, and for a function."""
    return 0 if isinstance(item, Function) else bytes_of(item)


def _prototype(function: Function) -> tuple[tuple[object, ...], ...]:
    """Return the parts of a function's head that callers and callee must agree on, without signedness and alignment."""
    return tuple(map(_formal, function.results)), tuple(map(_formal, function.parameters))


def _formal(v: Variable) -> tuple[object, ...]:
    return v.space, v.type in ("f32", "f64"), ELEMENT_BYTES[f".{v.type}"], v.vector, v.shape


def _shown(function: Function) -> str:
    heads = [[f".{v.space} .{v.type}{''.join(f'[{n}]' for n in v.shape)}" for v in formals]
             for formals in (function.parameters, function.results)]  # fmt: skip
    return ", ".join(heads[0]) + (f") -> ({', '.join(heads[1])}" if heads[1] else "")
