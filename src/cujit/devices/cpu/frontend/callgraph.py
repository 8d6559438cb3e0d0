"""Which functions of a module call which, and which of them cannot be inlined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cujit.forks import cached_property
from cujit.formats.ptx import syntax as ptx

__all__ = ["CallGraph", "statements", "target_name", "values_in"]

_LARGE = 300
"""Statements of a function that is not inlined where many places call it."""

_MANY = 8
"""Calls of a large function from which on it is not inlined."""


class CallGraph:
    """Which functions call which, in one module."""

    def __init__(self, module: ptx.Module) -> None:
        self.functions = {f.name: f for f in module.functions if f.body is not None}
        self.declared = {f.name for f in module.functions} | {v.name for v in module.variables if v.linkage == "extern"}
        self.variables = module.variables
        aliases = [d.arguments for d in module.items if isinstance(d, ptx.Directive) and d.name == "alias"]
        self.aliases: Mapping[str, str] = {new: old for new, old, *_ in aliases}

    def find(self, name: str) -> ptx.Function | None:
        """Find a function that has a body, by its name or an alias."""
        return self.functions.get(self._own(name))

    def _own(self, name: str) -> str:
        """The name that a function has where it is defined."""
        return self.aliases.get(name, name)

    @cached_property
    def out_of_line(self) -> frozenset[str]:
        """Functions that are not inlined: those that call themselves, by whatever way, and large ones called often."""
        targets = {
            name: [self._own(target) for i in _calls(f.body or ()) for target in map(target_name, i.operands) if target]
            for name, f in self.functions.items()
        }
        counts = Counter(target for called in targets.values() for target in called)
        often = [f for name, f in self.functions.items() if counts[name] > _MANY]
        large = {f.name for f in often if len(statements(f.body or ())) > _LARGE}
        return frozenset(large | {name for name in self.functions if name in _reached(name, targets)})

    @cached_property
    def by_address(self) -> tuple[str, ...]:
        """Functions whose address is taken, by code or by the initial value of a variable."""
        names = {name for f in self.functions.values() for i in _instructions(f.body or ()) for name in _mentioned(i)}
        values = (value for v in self.variables for value in values_in(v.initializer))
        symbols = (value.symbol if isinstance(value, ptx.Generic) else value for value in values)
        names |= {symbol.name for symbol in symbols if isinstance(symbol, ptx.SymbolRef)}
        owned = set(map(self._own, names))
        return tuple(n for n, f in self.functions.items() if n in owned and not f.is_entry)


def statements(body: Sequence[ptx.Statement]) -> list[ptx.Statement]:
    """List the statements of a body, those of its scopes in their places."""
    found: list[ptx.Statement] = []
    for statement in body:
        found += statements(statement.body) if isinstance(statement, ptx.Scope) else [statement]
    return found


def _instructions(body: Sequence[ptx.Statement]) -> list[ptx.Instruction]:
    return [s for s in statements(body) if isinstance(s, ptx.Instruction)]


def _calls(body: Sequence[ptx.Statement]) -> list[ptx.Instruction]:
    return [i for i in _instructions(body) if i.opcode == "call"]


def target_name(operand: ptx.Operand) -> str:
    """Name that an operand is; "" where it is something else."""
    return "" if isinstance(operand, ptx.RegisterList) else str(getattr(operand, "name", ""))


def _reached(start: str, direct: Mapping[str, Sequence[str]]) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        new = {*direct.get(todo.pop(), ())} - found
        found |= new
        todo += new
    return found


def _mentioned(i: ptx.Instruction) -> list[str]:
    """Names that an instruction uses as values; what a call calls is not one."""
    if i.opcode in ("call", "bra", "brx"):
        lists = [o for o in i.operands if isinstance(o, ptx.RegisterList)]
        return [target_name(o) for given in lists for o in given.items]
    return [target_name(o) for o in i.operands]


def values_in(initializer: object) -> Iterator[object]:
    """List the values of an initialiser, those of its braces in their places."""
    if isinstance(initializer, ptx.Initializer):
        for item in initializer.items:
            yield from values_in(item)
    elif initializer is not None:
        yield initializer
