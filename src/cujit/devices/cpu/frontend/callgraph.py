"""Which functions of a module call which, and which of them cannot be inlined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from cujit.devices.cpu.ir.cfg import components
from cujit.forks import cached_property
from cujit.formats.ptx import syntax as ptx

_LARGE = 300
"""Statements of a function that is not inlined where many places call it."""

_MANY = 8
"""Calls of a large function from which on it is not inlined."""

_DEEPEST = 40
"""Calls inside of each other that are inlined. Each takes six frames of Python, of which a thread has 1,000."""

_BUDGET = 16_384
"""Statements that all copies of one function may have, with what they inline themselves."""

_MOST = 20_000
"""Statements that a module may have once its calls are inlined, or twice those of its text if that is more."""


class CallGraph:
    """Which functions call which, in one module."""

    def __init__(self, module: ptx.PtxModule) -> None:
        self.functions = {f.name: f for f in module.functions if f.body is not None}
        self.entries = frozenset(f.name for f in module.functions if f.is_entry)
        self.declared = {f.name for f in module.functions} | {v.name for v in module.variables if v.linkage == "extern"}
        self.variables = module.variables
        aliases = [d.arguments for d in module.items if isinstance(d, ptx.Directive) and d.name == "alias"]
        self.aliases: Mapping[str, str] = {new: old for new, old, *_ in aliases}

    def find(self, name: str) -> ptx.Function | None:
        """Find a function that has a body, by its name or an alias."""
        return self.functions.get(self._own(name))

    def _own(self, name: str) -> str:
        """Return the name under which a function is defined."""
        return self.aliases.get(name, name)

    @cached_property
    def out_of_line(self) -> frozenset[str]:
        """Functions that are not inlined: recursive functions, large functions with many calls, and functions over the
        budgets.

        The size of a module after inlining is limited to a multiple of its text. If the size is larger, the budget of a
        function shrinks until only functions with one call site are inlined.
        """
        counts = Counter(target for targets in self._calls.values() for target in targets)
        parts = components(self._calls)
        recursive = {name for part in parts for name in part if len(part) > 1 or name in self._calls[name]}
        recursive |= {name for name, count in counts.items() if count > _MANY and self._own_size[name] > _LARGE}
        most, budget = max(_MOST, 2 * self.statements), _BUDGET
        order = [name for part in parts for name in part]
        found, total = self._choose_out_of_line(order, recursive, counts, budget)
        while total > most and budget:
            budget //= 4
            found, total = self._choose_out_of_line(order, recursive, counts, budget)
        return frozenset(found)

    def _choose_out_of_line(
        self, order: Sequence[str], recursive: Collection[str], counts: Mapping[str, int], budget: int
    ) -> tuple[set[str], int]:
        """Add functions over a budget to the functions that are not inlined.

        Return these functions, and the number of statements of all functions after inlining. ``order`` contains each
        function after its callees.
        """
        found, total = set(recursive), 0
        size: dict[str, int] = {}
        depth: dict[str, int] = {}
        for name in order:
            inlined = [target for target in self._calls[name] if target not in found]
            size[name] = self._own_size[name] + sum([size[target] for target in inlined])
            depth[name] = 1 + max([depth[target] for target in inlined], default=0)
            if depth[name] > _DEEPEST or (counts[name] > 1 and size[name] * counts[name] > budget):
                found.add(name)
            if name in found or self.functions[name].is_entry:
                total += size[name]
        return found, total

    @cached_property
    def _calls(self) -> dict[str, list[str]]:
        """The functions that each function calls by name, with one entry per call site."""
        return {
            name: [target for target in map(self._own, map(target_name, _called(f))) if target in self.functions]
            for name, f in self.functions.items()
        }

    @property
    def statements(self) -> int:
        """The statements of all functions."""
        return sum(self._own_size.values())

    @cached_property
    def _own_size(self) -> dict[str, int]:
        """The statements of each function."""
        return {name: len([*ptx.flat(f.body)]) for name, f in self.functions.items()}

    @cached_property
    def by_address(self) -> tuple[str, ...]:
        """Names of functions whose address is taken, by code or by the initializer of a variable."""
        names = {name for f in self.functions.values() for i in ptx.instructions(f.body) for name in _mentioned(i)}
        values = (value for v in self.variables for value in values_in(v.initializer))
        symbols = (value.symbol if isinstance(value, ptx.Generic) else value for value in values)
        names |= {symbol.name for symbol in symbols if isinstance(symbol, ptx.SymbolRef)}
        owned = set(map(self._own, names))
        return tuple(n for n, f in self.functions.items() if n in owned and not f.is_entry)


def _called(f: ptx.Function) -> Iterator[ptx.Operand]:
    """List the operands of all calls in a function, which include the callees."""
    return (o for i in ptx.instructions(f.body) if i.opcode == "call" for o in i.operands)


def target_name(operand: ptx.Operand) -> str:
    """Return the name of an operand. Return an empty string if the operand is not a name."""
    return "" if isinstance(operand, ptx.RegisterList) else str(getattr(operand, "name", ""))


def _mentioned(i: ptx.Instruction) -> list[str]:
    """List the names that an instruction uses as values. The callee of a call is not such a name."""
    if i.opcode in ("call", "bra", "brx"):
        lists = [o for o in i.operands if isinstance(o, ptx.RegisterList)]
        return [target_name(o) for given in lists for o in given.items]
    return [target_name(o) for o in i.operands]


def values_in(initializer: object) -> Iterator[object]:
    """List the values of an initializer in order, including the values in nested braces."""
    if isinstance(initializer, ptx.Initializer):
        for item in initializer.items:
            yield from values_in(item)
    elif initializer is not None:
        yield initializer
