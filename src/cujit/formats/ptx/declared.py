"""Mistakes in the declarations of a module: types that a state space does not allow, and duplicate names.

Source: PTX ISA manual 9.1, 5.1 "State Spaces", 5.2 "Types", 5.4 "Variables"; ptxas 13.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cujit.formats.ptx import syntax as ptx
from cujit.formats.ptx.parameters import alignment, bytes_of, signature_of_entry
from cujit.values import NamedTuple

_PLAIN = frozenset(f"{letter}{bits}" for letter in "bsu" for bits in (8, 16, 32, 64)) | {"b128", "f16", "f32", "f64"}
_OPAQUE = frozenset({"texref", "samplerref", "surfref"})
_TYPES = {
    "reg": _PLAIN | {"pred", "f16x2"},
    "param": _PLAIN,
    "global": _PLAIN | _OPAQUE | {"f16x2"},
    "tex": frozenset({"u32", "u64"}),
}
_STORED = _PLAIN | {"f16x2"}
_MOST_VECTOR_BITS = 128
_CONSTANT_BYTES = 65_536
_PARAMETER_BYTES = 32_764
"""Source: ptxas 13.5, by bisection; PTX ISA manual 9.1, 5.1.3 "Constant State Space", "Kernel Function Parameters"."""
_ADDRESSES = ptx.SymbolRef | ptx.Generic


class Mistake(NamedTuple):
    """A mistake in a declaration: its line, the wrong word, and the reason."""

    line: int
    construct: str
    why: str


def declaration_mistakes(module: ptx.PtxModule) -> Iterator[Mistake]:
    """Yield the declarations that no assembler accepts, in the order of the text.

    Calls of functions in other modules are not mistakes.
    """
    names: set[str] = set()
    for item in module.items:
        if isinstance(item, ptx.Variable):
            yield from _variable(item)
            yield from _of_module(item, module.version)
            if item.linkage not in ("extern", "weak", "common"):
                yield from _again(item.line, item.name, names)
        elif isinstance(item, ptx.Function):
            if item.body is not None and item.linkage != "weak":
                yield from _again(item.line, item.name, names)
            yield from _function(item)
    yield from _too_large(module)


def _too_large(module: ptx.PtxModule) -> Iterator[Mistake]:
    """Find constant variables that do not fit together, and kernels of more parameters than there may be."""
    end = 0
    for variable in _constants(module):
        end = -(-end // alignment(variable)) * alignment(variable) + bytes_of(variable)
        if end > _CONSTANT_BYTES:
            why = f"the constant variables take {end:,} bytes up to here, and there are {_CONSTANT_BYTES:,} in a module"
            yield Mistake(variable.line, variable.name, why)
            return
    for entry in module.entries:
        size = signature_of_entry(entry).size
        if size > _PARAMETER_BYTES:
            why = f"{size:,} bytes of parameters; a kernel has at most {_PARAMETER_BYTES:,}"
            yield Mistake(entry.line, entry.name, why)


def _constants(module: ptx.PtxModule) -> Iterator[ptx.Variable]:
    for item in module.items:
        inside = ptx.flat(item.body) if isinstance(item, ptx.Function) else (item,)
        for each in inside:
            if isinstance(each, ptx.Variable) and each.space == "const" and each.linkage != "extern":
                yield each


def _function(function: ptx.Function) -> Iterator[Mistake]:
    names: set[str] = set()
    for formal in (*function.results, *function.parameters):
        yield from _variable(formal, is_entry=function.is_entry, is_formal=True)
        yield from _again(formal.line, formal.name, names)
    if function.body is not None:
        yield from _body(function.body, names)


def _body(body: Sequence[ptx.Statement], names: set[str]) -> Iterator[Mistake]:
    """Yield the mistakes in the statements of a scope."""
    for statement in body:
        if isinstance(statement, ptx.RegisterDecl):
            yield from _typed(statement.line, "reg", statement.type, statement.vector)
            for name, count in statement.names:
                yield from _again(statement.line, name if count is None else f"{name}<>", names)
        elif isinstance(statement, ptx.Variable):
            yield from _variable(statement)
            if statement.linkage:
                yield Mistake(statement.line, f".{statement.linkage}", "a variable of a function has no linkage")
            yield from _again(statement.line, statement.name, names)
        elif isinstance(statement, (ptx.Label, ptx.BranchTargets, ptx.CallPrototype)):
            yield from _again(statement.line, statement.name, names)
            if isinstance(statement, ptx.CallPrototype):
                yield from _prototype(statement)
        elif isinstance(statement, ptx.Scope):
            yield from _body(statement.body, set())


def _prototype(prototype: ptx.CallPrototype) -> Iterator[Mistake]:
    formals: Iterable[ptx.Variable] = (*prototype.results, *prototype.parameters)
    for formal in formals:
        yield from _typed(prototype.line, formal.space, formal.type, formal.vector)


def _variable(variable: ptx.Variable, *, is_entry: bool = False, is_formal: bool = False) -> Iterator[Mistake]:
    line, name = variable.line, variable.name
    if is_entry and variable.space == "param" and variable.type in _OPAQUE:
        return
    yield from _typed(line, variable.space, variable.type, variable.vector)
    if is_entry and variable.space == "reg":
        yield Mistake(line, name, "the parameters of a kernel are in .param")
    if is_formal and (len(variable.shape) > 1 or (is_entry and 0 in variable.shape)):
        size = " and of a size" if is_entry else ""
        yield Mistake(line, name, f"a parameter is an array of one dimension{size}, if it is one")
    if why := _wrong_value(variable, is_formal):
        yield Mistake(line, name, why)


def _of_module(variable: ptx.Variable, version: tuple[int, int]) -> Iterator[Mistake]:
    """Yield the mistakes that only variables outside functions can have."""
    line, space = variable.line, variable.space
    if space == "param" or (space == "local" and version >= (3, 0)):
        yield Mistake(line, f".{space}", f"variables of .{space} are declared in functions alone")
    if space == "tex" and version >= (1, 5):
        yield Mistake(line, ".tex", "variables of .tex are gone since PTX 1.5; they are .global .texref now")
    if variable.linkage == "common" and space != "global":
        yield Mistake(line, ".common", "only variables of .global are .common")


def _wrong_value(variable: ptx.Variable, is_formal: bool) -> str:
    """Return the mistake in an initial value or in its absence. Return an empty string if there is no mistake."""
    if variable.initializer is None:
        is_open = 0 in variable.shape and variable.linkage != "extern" and not is_formal
        return "an array without a size is .extern, or has a value at first" if is_open else ""
    if variable.space not in ("global", "const", "tex"):
        return f"a variable of .{variable.space} has no value at first"
    if variable.linkage == "extern":
        return "a variable of another module has no value at first"
    sizes = [*variable.shape, *([variable.vector] if variable.vector > 1 else [])]
    return "" if variable.type in _OPAQUE else _wrong_element(variable.initializer, sizes, variable.type)


def _wrong_element(value: object, sizes: Sequence[int], type_: str) -> str:
    if isinstance(value, ptx.Initializer) != bool(sizes):
        return "an initial value has as many braces inside each other as the array has dimensions"
    if not isinstance(value, ptx.Initializer):
        if type_ in ("f16", "f16x2"):
            return f"a variable of .{type_} has no value at first: declare it as .b{_bits(type_)}"
        wrong = ptx.FloatLiteral if type_[0] in "us" else ptx.Immediate | _ADDRESSES
        fits = type_[0] == "b" or not isinstance(value, wrong)
        return "" if fits else f"an initial value that is not of type .{type_}"
    if sizes[0] and len(value.items) > sizes[0]:
        return f"an array of {sizes[0]} has {len(value.items)} elements at first"
    if len(sizes) == 1 and type_[0] != "f" and set(map(type, value.items)) <= {ptx.Immediate}:  # tables are long
        return ""
    return next(filter(None, (_wrong_element(item, sizes[1:], type_) for item in value.items)), "")


def _typed(line: int, space: str, type_: str, vector: int) -> Iterator[Mistake]:
    if type_ not in _TYPES.get(space, _STORED):
        yield Mistake(line, f".{type_}", f".{space} has no variables of type .{type_}")
    elif vector not in (1, 2, 4):
        yield Mistake(line, f".v{vector}", "vectors that are declared have 2 or 4 elements")
    elif vector > 1 and (type_ in _OPAQUE or type_ == "pred" or _bits(type_) * vector > _MOST_VECTOR_BITS):
        yield Mistake(line, f".v{vector}", f"a vector of {vector} has no elements of type .{type_}")


def _bits(type_: str) -> int:
    return 32 if type_ == "f16x2" else int(type_.lstrip("bsuf"))


def _again(line: int, name: str, names: set[str]) -> Iterator[Mistake]:
    if name in names and name != "_":
        yield Mistake(line, name, f"{name.removesuffix('<>')} is declared already")
    names.add(name)
