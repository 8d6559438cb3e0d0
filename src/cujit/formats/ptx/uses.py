"""The constructs that a PTX text uses, and the ISA version and architecture that introduced each construct."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from cujit.arch.arch import KNOWN_ARCHES
from cujit.formats.ptx import syntax as ptx
from cujit.formats.ptx.isa.later import later_of, open_words, removed_of
from cujit.formats.ptx.isa.since import ANYWHERE, Since, Version, both, number_of, since
from cujit.formats.ptx.isa.table import earliest, special_register
from cujit.formats.ptx.parameters import signature_of_entry
from cujit.values import NamedTuple


class Need(NamedTuple):
    """One construct that a text uses.

    ``line`` is the line of the first use. ``since`` contains every target that has the construct, with the first ISA
    version. ``is_known`` is False if the construct is in no table. Such a construct is assumed to need everything that
    its text declares.
    """

    line: int
    construct: str
    since: Since
    is_known: bool = True

    @property
    def ptx(self) -> Version:
        """The ISA version that introduced it."""
        return self.since.first

    @property
    def sm(self) -> int:
        """The number of the first architecture that has it; 10 is every architecture."""
        return number_of(self.since.least)

    @property
    def suffix(self) -> str:
        """``f`` if of that architecture only targets with ``f`` and ``a`` have it, ``a`` if only that with ``a``."""
        return self.since.least.lstrip("0123456789")


def together(needs: Iterable[Need]) -> Since:
    """Return the targets, and the version for each, that support all of some constructs."""
    return functools.reduce(both, (need.since for need in needs), ANYWHERE)


def construct_needs(module: ptx.PtxModule) -> list[Need]:
    """Return every construct of a module once, by its first line, with its requirements.

    Directives, types, instructions with their modifiers, and special registers are included, but not the target.
    """
    found: dict[str, Need] = {}
    for need in _UseReader(module).module():
        found.setdefault(need.construct, need)
    return sorted(found.values())


def removed_constructs(module: ptx.PtxModule, version: Version, number: int) -> list[tuple[int, str, Version]]:
    """Return the constructs that ISA ``version`` no longer has for architecture ``number``: line, construct, and
    version.
    """
    found: dict[str, tuple[int, str, Version]] = {}
    for function in module.functions:
        for i in ptx.instructions(function.body):
            row = removed_of(i.opcode, i.modifiers)
            if row is not None and version >= row.ptx and number >= row.sm:
                found.setdefault(i.name, (i.line, i.name, row.ptx))
    return sorted(found.values())


# Source: PTX ISA manual 9.1, chapter 11 "Directives", "PTX ISA Notes" and "Target ISA Notes"; each was tried with
# ptxas 11.7 to 13.5.
_FUNCTION_DIRECTIVES: dict[str, tuple[Version, int]] = {
    "maxntid": ((1, 3), 10),
    "reqntid": ((2, 1), 10),
    "minnctapersm": ((2, 0), 20),
    "maxnctapersm": ((1, 3), 10),
    "maxnreg": ((1, 3), 10),
    "noreturn": ((6, 4), 30),
    "explicitcluster": ((7, 8), 90),
    "reqnctapercluster": ((7, 8), 90),
    "maxclusterrank": ((7, 8), 90),
    "blocksareclusters": ((9, 0), 90),
    "abi_preserve": ((9, 0), 80),
    "abi_preserve_control": ((9, 0), 80),
    "language": ((9, 2), 10),
    "minperctamemory": ((9, 4), 80),
}
_PRAGMAS: dict[str, tuple[Version, int]] = {
    "nounroll": ((2, 0), 10),
    "used_bytes_mask": ((8, 3), 50),
    "enable_smem_spilling": ((8, 7), 75),
    "frequency": ((9, 0), 10),
}
_ATTRIBUTES: dict[str, tuple[Version, int]] = {"managed": ((4, 0), 30), "unified": ((7, 8), 90)}
_LINKAGES: dict[str, tuple[Version, int]] = {"weak": ((3, 1), 20), "common": ((5, 0), 20), "hidden": ((8, 8), 10)}
_TYPES: dict[str, tuple[Version, int]] = {"b128": ((8, 3), 70), "f16x2": ((4, 2), 53)}
_MODULE_DIRECTIVES: dict[str, tuple[Version, int]] = {
    "alias": ((6, 3), 30),
    "file": ((1, 0), 10),
    "section": ((1, 0), 10),
    "target": ((1, 0), 10),
    "@@DWARF": ((1, 0), 10),
    "loc_intermediate": ((9, 4), 10),
    "nv_intermediate_source_section": ((9, 4), 10),
}
_MOST_PARAMETER_BYTES = 4352  # Of a kernel; since 8.1 on sm_70 32764. Source: PTX ISA manual 9.1, "Kernel Function
# Parameters".


class _UseReader:
    """One walk over one module."""

    def __init__(self, module: ptx.PtxModule) -> None:
        self._module = module
        self._sm = target_number(module)
        self._declared: set[str] = set()
        self._prefixes: set[str] = set()
        self._seen: set[tuple[object, ...]] = set()

    def module(self) -> Iterator[Need]:
        """Every construct, as often as it occurs."""
        for item in self._module.items:
            if isinstance(item, ptx.Function):
                yield from self._function(item)
            else:
                yield from self._statement(item)

    def _known(self, line: int, construct: str, first: tuple[Version, int] | None) -> Need:
        if first is None:
            return Need(line, construct, _since(self._module.version, self._sm), is_known=False)
        return Need(line, construct, _since(*first))

    # -- declarations ---------------------------------------------------------------------------------------

    def _function(self, function: ptx.Function) -> Iterator[Need]:
        line = function.line
        body = list(ptx.flat(function.body))
        self._declare(function, body)
        yield from self._words(line, function.linkage, function.attributes)
        for variable in (*function.results, *function.parameters):
            yield from self._variable(variable)
        for name, arguments in function.directives:
            if name == "pragma":
                yield from (self._pragma(line, argument) for argument in arguments)
            else:
                yield self._known(line, f".{name}", _FUNCTION_DIRECTIVES.get(name))
        if function.is_entry and signature_of_entry(function).size > _MOST_PARAMETER_BYTES:
            yield Need(line, f"more than {_MOST_PARAMETER_BYTES} bytes of parameters", since("8.1", "70"))
        for statement in body:
            yield from self._statement(statement)

    def _declare(self, function: ptx.Function, body: Iterable[ptx.Statement]) -> None:
        """Record the names of registers. Other names with % are special registers."""
        self._declared = {v.name for v in (*function.results, *function.parameters)}
        self._prefixes = set()
        for statement in body:
            if isinstance(statement, ptx.RegisterDecl):
                for name, count in statement.names:
                    (self._declared if count is None else self._prefixes).add(name)
            elif isinstance(statement, ptx.Variable):
                self._declared.add(statement.name)

    def _statement(self, statement: ptx.Statement) -> Iterator[Need]:
        if isinstance(statement, ptx.Instruction):
            yield from self._uses(statement)
        elif isinstance(statement, ptx.Variable):
            yield from self._variable(statement)
        elif isinstance(statement, ptx.RegisterDecl):
            yield from self._type(statement.line, statement.type)
        elif isinstance(statement, ptx.Directive):
            yield from self._directive(statement)
        elif isinstance(statement, ptx.CallPrototype):
            yield Need(statement.line, ".callprototype", since("2.1", "20"))
            for flag in statement.flags:
                name = flag.split()[0]
                yield self._known(statement.line, f".{name}", _FUNCTION_DIRECTIVES.get(name))
        elif isinstance(statement, ptx.Location) and statement.rest:
            yield Need(statement.line, ".loc with inlined_at", since("7.2", "10"))

    def _directive(self, directive: ptx.Directive) -> Iterator[Need]:
        if directive.name == "pragma":
            yield from (self._pragma(directive.line, argument) for argument in directive.arguments)
        else:
            yield self._known(directive.line, f".{directive.name}", _MODULE_DIRECTIVES.get(directive.name))

    def _pragma(self, line: int, argument: str) -> Need:
        name = (argument.strip('"').split() or [""])[0]
        return self._known(line, f'.pragma "{name}"', _PRAGMAS.get(name))

    def _variable(self, variable: ptx.Variable) -> Iterator[Need]:
        yield from self._type(variable.line, variable.type)
        yield from self._words(variable.line, variable.linkage, variable.attributes)
        yield from _initial(variable.initializer, variable.line)
        if variable.is_ptr:
            yield Need(variable.line, ".ptr", since("2.2", "10"))

    def _type(self, line: int, name: str) -> Iterator[Need]:
        if name in _TYPES:
            yield Need(line, f".{name}", _since(*_TYPES[name]))

    def _words(self, line: int, linkage: str, attributes: tuple[str, ...]) -> Iterator[Need]:
        if linkage in _LINKAGES:
            yield Need(line, f".{linkage}", _since(*_LINKAGES[linkage]))
        for attribute in attributes:
            name = attribute.partition("(")[0]
            yield self._known(line, f".attribute(.{name})", _ATTRIBUTES.get(name))

    # -- instructions ---------------------------------------------------------------------------------------

    def _instruction(self, instruction: ptx.Instruction) -> Need:
        row = earliest(instruction)
        name, count = instruction.name, len(instruction.operands)
        if row is None:
            return self._known(instruction.line, name, None)
        if row.is_open:
            listed = {word for place in row.modifiers for word in place.choices} | open_words(instruction.opcode)
            if not listed.issuperset(instruction.modifiers):
                return self._known(instruction.line, name, None)
        needed = row.since
        for later in later_of(instruction.opcode, instruction.modifiers, count):
            needed &= later.since
            name = f"{instruction.name} of {count} operands" if later.operands else name
        if any(isinstance(o, ptx.PairOperand) for o in instruction.operands) and instruction.opcode in ("tex", "tld4"):
            needed, name = needed & since("7.1", "60"), f"{instruction.name} with a predicate"
        return Need(instruction.line, name, needed)

    def _uses(self, instruction: ptx.Instruction) -> Iterator[Need]:
        """An instruction and its operands, unless one of its kind was listed before, as nearly all were."""
        operands, line = instruction.operands, instruction.line
        kind = instruction.opcode, instruction.modifiers, *map(type, operands)
        if kind not in self._seen:
            self._seen.add(kind)
            yield self._instruction(instruction)
        for operand in operands:
            if type(operand) is ptx.Register:
                if operand.name not in self._declared:
                    yield from self._register(operand.name, line)
            elif type(operand) is not ptx.Immediate:
                for part in ptx.within((operand,)):
                    if type(part) is not ptx.Register or part.name not in self._declared:
                        yield from self._operand(part, line)

    def _operand(self, operand: ptx.Operand, line: int) -> Iterator[Need]:
        if isinstance(operand, ptx.Register):
            yield from self._register(operand.name, line)
        elif isinstance(operand, ptx.Address) and operand.unified:
            yield Need(line, "[…].unified", since("7.8", "90"))

    def _register(self, name: str, line: int) -> Iterator[Need]:
        base = name.partition(".")[0]
        if not base.startswith("%") or base in self._declared:
            return
        if self._is_numbered(base):
            self._declared.add(base)
            return
        row = special_register(name)
        yield self._known(line, base, (row.ptx, row.sm) if row else None)

    def _is_numbered(self, name: str) -> bool:
        """Return whether ``%r12`` is one of ``%r<20>``. The assembler checks the count."""
        stem = name.rstrip("0123456789")
        return any(name[:cut] in self._prefixes for cut in range(len(stem), len(name)))


def _initial(value: ptx.InitValue | None, line: int) -> Iterator[Need]:
    """Return the constructs of an initial value other than numbers and names."""
    if isinstance(value, ptx.Initializer):
        if set(map(type, value.items)) != {ptx.Immediate}:  # Tables are long.
            for item in value.items:
                yield from _initial(item, line)
    elif isinstance(value, ptx.Generic):
        if value.generic:
            yield Need(line, "generic(…) in an initial value", since("3.1", "20"))
        if value.mask is not None:
            yield Need(line, "a byte mask in an initial value", since("7.1", "10"))


def _since(ptx: Version, sm: int) -> Since:
    return since(f"{ptx[0]}.{ptx[1]}", str(sm))


def target_number(module: ptx.PtxModule) -> int:
    """Return the number of the architecture that a module is for, 90 for ``sm_90a``. For an unknown one, the newest
    number.
    """
    digits = "".join(c for c in module.target[0].partition("_")[2] if c.isdigit()) if module.target else ""
    return int(digits) if digits else max(KNOWN_ARCHES)
