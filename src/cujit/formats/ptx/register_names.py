"""Resolution of names to registers, by the declarations in the enclosing scopes."""

from __future__ import annotations

from collections.abc import Mapping

from cujit.formats.ptx.syntax import ComponentOperand, Operand, Register, SymbolRef

_SYMBOL, _REGISTER = 0, 1


class _ScopeNames:
    """The names that one ``{ }`` declares, and the operands of the names that were used in it."""

    __slots__ = ("elements", "known", "names", "ranges")

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.ranges: dict[str, int] = {}
        self.elements: dict[str, int | None] = {}
        self.known: dict[str, Operand] = {}


class Names:
    """The open scopes, innermost last. ``find`` resolves every use of a name."""

    def __init__(self) -> None:
        self._scopes = [_ScopeNames()]
        self.known = self._scopes[-1].known

    def open(self) -> None:
        """Enter a ``{``."""
        self._scopes.append(_ScopeNames())
        self.known = self._scopes[-1].known

    def close(self) -> None:
        """Leave the innermost scope at ``}``."""
        self._scopes.pop()
        self.known = self._scopes[-1].known

    def declare_register(self, name: str, count: int | None = None) -> None:
        """Record ``.reg name`` or ``.reg name<count>``."""
        scope = self._scopes[-1]
        if count is None:
            scope.names[name] = _REGISTER
        else:
            scope.ranges[name] = count
        scope.known.clear()

    def declare_symbol(self, name: str, element_bytes: int | None) -> None:
        """Record a variable or parameter; an array of one dimension has ``element_bytes`` per element."""
        scope = self._scopes[-1]
        scope.names[name] = _SYMBOL
        scope.elements[name] = element_bytes
        scope.known.clear()

    def element_bytes(self, name: str) -> int | None:
        """Return the bytes of one element of the array ``name``, or None if ``name`` is not a one-dimensional array."""
        for scope in reversed(self._scopes):
            if name in scope.elements:
                return scope.elements[name]
        return None

    def find(self, word: str) -> Operand:
        """Return the operand for ``word`` in the current scope: a register, a component of a register, or a symbol."""
        found = self.known.get(word)
        if found is None:
            found = self.known[word] = self._find(word)
        return found

    def _find(self, word: str) -> Operand:
        base, dot, component = word.partition(".")
        declared = self._declared(base)
        if dot and declared == _REGISTER:
            return ComponentOperand(Register(base), component)
        if declared is None:  # Special registers are declared nowhere.
            declared = _REGISTER if word[0] == "%" or word == "_" else _SYMBOL
        return Register(word) if declared == _REGISTER else SymbolRef(word)

    def _declared(self, name: str) -> int | None:
        for scope in reversed(self._scopes):
            if name in scope.names:
                return scope.names[name]
            if scope.ranges and _is_numbered(name, scope.ranges):
                return _REGISTER
        return None


def _is_numbered(name: str, ranges: Mapping[str, int]) -> bool:
    """Return whether ``%r12`` is number 12 of a range ``%r``, or number 2 of a range ``%r1``."""
    stem = len(name.rstrip("0123456789"))
    for cut in range(max(stem, len(name) - 9, 1), len(name)):
        count = ranges.get(name[:cut])
        if count is not None and (name[cut] != "0" or cut == len(name) - 1) and int(name[cut:]) < count:
            return True
    return False
