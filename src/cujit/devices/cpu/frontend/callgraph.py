"""Which functions of a module call which, and which of them cannot be inlined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from cujit.devices.cpu.ir.cfg import closure
from cujit.forks import cached_property
from cujit.formats.ptx import syntax as ptx

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
            name: [self._own(target) for target in map(target_name, _called(f)) if target]
            for name, f in self.functions.items()
        }
        counts = Counter(target for called in targets.values() for target in called)
        often = [f for name, f in self.functions.items() if counts[name] > _MANY]
        large = {f.name for f in often if len([*ptx.flat(f.body)]) > _LARGE}
        own = {name for name, called in targets.items() if name in closure(called, lambda f: targets.get(f, ()))}
        return frozenset(large | own)

    @cached_property
    def by_address(self) -> tuple[str, ...]:
        """Functions whose address is taken, by code or by the initial value of a variable."""
        names = {name for f in self.functions.values() for i in ptx.instructions(f.body) for name in _mentioned(i)}
        values = (value for v in self.variables for value in values_in(v.initializer))
        symbols = (value.symbol if isinstance(value, ptx.Generic) else value for value in values)
        names |= {symbol.name for symbol in symbols if isinstance(symbol, ptx.SymbolRef)}
        owned = set(map(self._own, names))
        return tuple(n for n, f in self.functions.items() if n in owned and not f.is_entry)


def _called(f: ptx.Function) -> Iterator[ptx.Operand]:
    """List the operands of the calls of a function, those that are called among them."""
    return (o for i in ptx.instructions(f.body) if i.opcode == "call" for o in i.operands)


def target_name(operand: ptx.Operand) -> str:
    """Name that an operand is; "" where it is something else."""
    return "" if isinstance(operand, ptx.RegisterList) else str(getattr(operand, "name", ""))


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
