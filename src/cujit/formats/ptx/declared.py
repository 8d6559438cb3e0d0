"""What is wrong with the declarations of a module: types that their space has not, names that are there already.

Source: PTX ISA manual 9.1, 5.1 "State Spaces", 5.2 "Types", 5.4 "Variables"; ptxas 13.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cujit.formats.ptx import syntax as ptx
from cujit.values import NamedTuple

_PLAIN = frozenset(f"{letter}{bits}" for letter in "bsu" for bits in (8, 16, 32, 64)) | {"b128", "f16", "f32", "f64"}
_OPAQUE = frozenset({"texref", "samplerref", "surfref"})
_TYPES = {
    "reg": _PLAIN | {"pred", "f16x2"},
    "param": _PLAIN,
    "global": _PLAIN | _OPAQUE | {"f16x2"},
    "tex": _PLAIN | _OPAQUE,
}
_STORED = _PLAIN | {"f16x2"}
_MOST_VECTOR_BITS = 128


class Mistake(NamedTuple):
    """A line, the word at fault in it, and what is wrong."""

    line: int
    construct: str
    why: str


def declaration_mistakes(module: ptx.Module) -> Iterator[Mistake]:
    """Find what no assembler takes, in the order of the text; calls of functions of other modules are none of it."""
    names: set[str] = set()
    for item in module.items:
        if isinstance(item, ptx.Variable):
            yield from _variable(item)
            if item.linkage not in ("extern", "weak", "common"):
                yield from _again(item.line, item.name, names)
        elif isinstance(item, ptx.Function):
            if item.body is not None and item.linkage != "weak":
                yield from _again(item.line, item.name, names)
            yield from _function(item)


def _function(function: ptx.Function) -> Iterator[Mistake]:
    names: set[str] = set()
    for formal in (*function.results, *function.parameters):
        yield from _variable(formal, is_entry=function.is_entry)
        yield from _again(formal.line, formal.name, names)
    if function.body is not None:
        yield from _body(function.body, names)


def _body(body: Sequence[ptx.Statement], names: set[str]) -> Iterator[Mistake]:
    """Check a scope; the parameters of a function are names of its own."""
    for statement in body:
        if isinstance(statement, ptx.RegisterDecl):
            yield from _typed(statement.line, "reg", statement.type, statement.vector)
            for name, count in statement.names:
                yield from _again(statement.line, name if count is None else f"{name}<>", names)
        elif isinstance(statement, ptx.Variable):
            yield from _variable(statement)
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


def _variable(variable: ptx.Variable, *, is_entry: bool = False) -> Iterator[Mistake]:
    line, name = variable.line, variable.name
    if is_entry and variable.space == "param" and variable.type in _OPAQUE:
        return
    yield from _typed(line, variable.space, variable.type, variable.vector)
    if is_entry and variable.space == "reg":
        yield Mistake(line, name, "the parameters of a kernel are in .param")
    if is_entry and (0 in variable.shape or len(variable.shape) > 1):
        yield Mistake(line, name, "a parameter of a kernel is an array of one dimension and of a size, if it is one")
    if variable.initializer is not None and variable.space not in ("global", "const", "tex"):
        yield Mistake(line, name, f"a variable of .{variable.space} has no value at first")


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
