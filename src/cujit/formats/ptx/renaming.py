"""Renaming in one module: its symbols, its labels, and its file numbers.

Registers, parameters, and the variables of a function keep their names. They hide a symbol of the same name in their
scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cujit.formats.ptx import syntax as ptx
from cujit.formats.ptx.tokens import DIRECTIVE, NAME, Cursor
from cujit.values import dataclass, field, replace


@dataclass
class Renaming:
    """New names for one module. A name that is not in a mapping is unchanged.

    ``used`` collects the module's symbols that are used, and the line of the first use.
    """

    known: frozenset[str]
    symbols: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[int, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def symbol(self, name: str, line: int) -> str:
        """Return the new name of a symbol, and record that it is used."""
        self.used.setdefault(name, line)
        return self.symbols.get(name, name)

    def label(self, name: str) -> str:
        """Return the new name of a label."""
        return self.labels.get(name, name)

    def variable(self, variable: ptx.Variable) -> ptx.Variable:
        """Return a variable of the module under its new name, with its initial value renamed too."""
        initial = variable.initializer
        if initial is not None:
            initial = _Body(self, frozenset(), variable.line).initial(initial)
        return replace(variable, name=self.symbols.get(variable.name, variable.name), initializer=initial)

    def function(self, function: ptx.Function) -> ptx.Function:
        """Return a function under its new name, with every name that it uses renamed too."""
        name = self.symbols.get(function.name, function.name)
        if function.body is None:
            return replace(function, name=name)
        labels = frozenset(labels_of(function.body))
        body = _Body(self, labels, function.line)
        body.scopes.append({p.name for p in (*function.parameters, *function.results)})
        return replace(function, name=name, body=body.block(function.body))

    def location(self, location: ptx.Location) -> ptx.Location:
        """Return a ``.loc`` with its new files and labels."""
        rest = location.rest
        if "inlined_at" in rest:
            head, _, place = rest.partition("inlined_at ")
            number, _, column = place.partition(" ")
            rest = f"{head}inlined_at {self.files.get(int(number), int(number))} {column}"
        if self.labels and rest:
            rest = rewritten_names(rest, self.label)
        return replace(location, file=self.files.get(location.file, location.file), rest=rest)


def labels_of(body: Iterable[ptx.Statement]) -> Iterable[str]:
    """Return the labels of a body, including the labels of tables, prototypes and inner scopes."""
    return (s.name for s in ptx.flat(body) if isinstance(s, (ptx.Label, ptx.BranchTargets, ptx.CallPrototype)))


def rewritten_names(text: str, name: Callable[[str], str]) -> str:
    """Return the text of a section or a ``.loc`` with ``name`` of each name and directive in it.
    The rest is unchanged.
    """
    cursor = Cursor(text, "<debug data>")
    pieces, end = [], 0
    for kind, word, start in zip(cursor.kinds, cursor.words, cursor.starts, strict=True):
        if kind in (NAME, DIRECTIVE) and (new := name(word)) != word:
            pieces += [text[end:start], new]
            end = start + len(word)
    return "".join((*pieces, text[end:]))


class _Body:
    """A walk through one body or initial value; ``scopes`` are the local names, outermost first."""

    def __init__(self, renaming: Renaming, labels: frozenset[str], line: int) -> None:
        self.scopes: list[set[str]] = []
        self._renaming = renaming
        self._labels = labels
        self._line = line

    def block(self, body: Iterable[ptx.Statement]) -> tuple[ptx.Statement, ...]:
        """Return the statements between braces with renamed names."""
        self.scopes.append(set())
        found: list[ptx.Statement] = []
        for statement in body:
            handler = _STATEMENTS.get(type(statement))
            made = statement if handler is None else handler(self, statement)
            if made is not None:
                found.append(made)
        self.scopes.pop()
        return tuple(found)

    def instruction(self, i: ptx.Instruction) -> ptx.Instruction:
        """Walk the operands."""
        self._line = i.line
        operands = self._each(i.operands)
        return i if operands is i.operands else replace(i, operands=operands)

    def variable(self, v: ptx.Variable) -> ptx.Variable:
        """Declare a variable of the function, and rename the module's symbols in its initial value."""
        self._line = v.line
        made = v if v.initializer is None else replace(v, initializer=self.initial(v.initializer))
        self.scopes[-1].add(v.name)
        return made

    def scope(self, s: ptx.Scope) -> ptx.Scope:
        """Walk an inner scope."""
        return replace(s, body=self.block(s.body))

    def label(self, s: Any) -> Any:
        """Rename a label, or a prototype."""
        return replace(s, name=self._renaming.label(s.name))

    def targets(self, s: ptx.BranchTargets) -> ptx.BranchTargets:
        """Rename a table of labels, or of functions."""
        self._line = s.line
        return replace(s, name=self._renaming.label(s.name), targets=tuple(map(self._named, s.targets)))

    def location(self, s: ptx.Location) -> ptx.Location:
        """Rename the names in a ``.loc``."""
        return self._renaming.location(s)

    def directive(self, s: ptx.Directive) -> ptx.Directive | None:
        """Omit ``.file`` and ``.section``, which belong to the module even in a function."""
        return None if s.name in ("file", "section") else s

    def initial(self, item: Any) -> Any:
        """Walk an initial value."""
        if isinstance(item, ptx.Initializer):
            return ptx.Initializer(tuple(map(self.initial, item.items)))
        if isinstance(item, ptx.Generic):
            return replace(item, symbol=self.initial(item.symbol))
        return replace(item, name=self._named(item.name)) if isinstance(item, ptx.SymbolRef) else item

    # -- operands -------------------------------------------------------------------------------------------

    def _each(self, operands: tuple[ptx.Operand, ...]) -> tuple[ptx.Operand, ...]:
        """Return the operands with renamed names. Return the same tuple if nothing changes."""
        for operand in operands:
            if type(operand) in _OPERANDS:
                break
        else:
            return operands
        made = tuple(self.operand(operand) for operand in operands)
        return operands if all(new is old for new, old in zip(made, operands, strict=True)) else made

    def operand(self, operand: Any) -> Any:
        """Walk one operand."""
        handler = _OPERANDS.get(type(operand))
        return operand if handler is None else handler(self, operand)

    def reference(self, operand: Any) -> Any:
        """Rename a symbol or a label."""
        new = self._named(operand.name)
        return operand if new == operand.name else replace(operand, name=new)

    def address(self, operand: ptx.Address) -> ptx.Address:
        """Walk ``[base, {coordinates}]``."""
        base, coords = self.operand(operand.base), self._each(operand.coords)
        if base is operand.base and coords is operand.coords:
            return operand
        return replace(operand, base=base, coords=coords)

    def items(self, operand: Any) -> Any:
        """Walk ``{…}`` or ``(…)``."""
        items = self._each(operand.items)
        return operand if items is operand.items else replace(operand, items=items)

    def pair(self, operand: ptx.PairOperand) -> ptx.PairOperand:
        """Walk ``a|b``."""
        return ptx.PairOperand(self.operand(operand.first), self.operand(operand.second))

    def negated(self, operand: Any) -> Any:
        """Walk ``!a``."""
        return replace(operand, item=self.operand(operand.item))

    def _named(self, name: str) -> str:
        """Return the new name of a name. The nearest declaration counts: in the function, as its label, or in the
        module.
        """
        if any(name in scope for scope in self.scopes):
            return name
        if name in self._labels:
            return self._renaming.label(name)
        return self._renaming.symbol(name, self._line) if name in self._renaming.known else name


_STATEMENTS: dict[type, Callable[[_Body, Any], Any]] = {
    ptx.Instruction: _Body.instruction,
    ptx.Variable: _Body.variable,
    ptx.Scope: _Body.scope,
    ptx.Label: _Body.label,
    ptx.CallPrototype: _Body.label,
    ptx.BranchTargets: _Body.targets,
    ptx.Location: _Body.location,
    ptx.Directive: _Body.directive,
}
_OPERANDS: dict[type, Callable[[_Body, Any], Any]] = {
    ptx.SymbolRef: _Body.reference,
    ptx.LabelRef: _Body.reference,
    ptx.Address: _Body.address,
    ptx.VectorOperand: _Body.items,
    ptx.RegisterList: _Body.items,
    ptx.PairOperand: _Body.pair,
    ptx.Negated: _Body.negated,
}
