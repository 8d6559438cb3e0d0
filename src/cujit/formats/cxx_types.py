"""C++ types as values that know how they are spelled."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

from cujit.signature import ParameterClass
from cujit.values import dataclass, replace


@dataclass(frozen=True)
class Builtin:
    """A built-in type: its spelling, how its bytes are meant, and its size in bytes (LP64)."""

    spelling: str
    kind: ParameterClass
    size: int


_S, _U, _F = ParameterClass.SIGNED, ParameterClass.UNSIGNED, ParameterClass.FLOAT
# Source: Itanium C++ ABI 5.1.5.2 "Builtin types"; sizes of the System V x86-64 ABI (LP64), which NVRTC keeps.
BUILTINS = {
    "v": Builtin("void", ParameterClass.UNKNOWN, 0),
    "w": Builtin("wchar_t", _S, 4),
    "b": Builtin("bool", ParameterClass.BOOL, 1),
    "c": Builtin("char", _S, 1),
    "a": Builtin("signed char", _S, 1),
    "h": Builtin("unsigned char", _U, 1),
    "s": Builtin("short", _S, 2),
    "t": Builtin("unsigned short", _U, 2),
    "i": Builtin("int", _S, 4),
    "j": Builtin("unsigned int", _U, 4),
    "l": Builtin("long", _S, 8),
    "m": Builtin("unsigned long", _U, 8),
    "x": Builtin("long long", _S, 8),
    "y": Builtin("unsigned long long", _U, 8),
    "n": Builtin("__int128", _S, 16),
    "o": Builtin("unsigned __int128", _U, 16),
    "f": Builtin("float", _F, 4),
    "d": Builtin("double", _F, 8),
    "e": Builtin("long double", _F, 8),  # device code gives long double the size of double
    "g": Builtin("__float128", _F, 16),
    "z": Builtin("...", ParameterClass.UNKNOWN, 0),
    "Di": Builtin("char32_t", _U, 4),
    "Ds": Builtin("char16_t", _U, 2),
    "Du": Builtin("char8_t", _U, 1),
    "Dh": Builtin("_Float16", _F, 2),
    "Dn": Builtin("std::nullptr_t", ParameterClass.POINTER, 8),
    "Da": Builtin("auto", ParameterClass.UNKNOWN, 0),
}


class TypeShape(enum.Enum):
    """The outermost form of a C++ type."""

    NAMED = enum.auto()
    BUILTIN = enum.auto()
    POINTER = enum.auto()
    """A pointer or a reference; ``inner`` is what it points to."""
    MEMBER_POINTER = enum.auto()
    FUNCTION = enum.auto()
    ARRAY = enum.auto()
    VALUE = enum.auto()
    """No type but a template argument that is a value."""


@dataclass(frozen=True)
class CxxType:
    """A C++ type: the two texts around a declared name (``void (*`` and ``)(int)``), and the parts of the type."""

    left: str
    right: str = ""
    shape: TypeShape = TypeShape.NAMED
    inner: CxxType | None = None
    parameters: tuple[CxxType, ...] = ()
    builtin: Builtin | None = None

    def __str__(self) -> str:
        return self.left + self.right


@dataclass(frozen=True)
class PackExpansion:
    """The types or values in the expansion of a template parameter pack."""

    items: tuple[CxxType, ...]


Term = CxxType | PackExpansion
"""A template argument or parameter type: one, or those of a pack."""


def each(term: Term, f: Callable[[CxxType], CxxType]) -> Term:
    """Apply ``f`` to a type, or to every one of a pack."""
    return PackExpansion(tuple(map(f, term.items))) if isinstance(term, PackExpansion) else f(term)


def flat(terms: Iterable[Term]) -> tuple[CxxType, ...]:
    """Return a flat sequence of types from types and pack expansions."""
    return tuple(t for term in terms for t in (term.items if isinstance(term, PackExpansion) else (term,)))


def pointer_to(operator: str, t: CxxType) -> CxxType:
    """Make the pointer or reference to a type, with its operator."""
    if t.shape in (TypeShape.FUNCTION, TypeShape.ARRAY):
        return CxxType(f"{t.left}({operator}", f"){t.right}", TypeShape.POINTER, t)
    return CxxType(t.left + operator, t.right, TypeShape.POINTER, t)


def qualified(qualifiers: str, t: CxxType) -> CxxType:
    """Return a type with qualifiers such as ``const``. They follow the type if C++ requires it, otherwise they precede
    it.
    """
    if t.shape is TypeShape.FUNCTION:
        return replace(t, right=f"{t.right} {qualifiers}")
    if t.shape in (TypeShape.POINTER, TypeShape.MEMBER_POINTER) or t.left.rstrip().endswith("*"):
        return replace(t, left=f"{t.left} {qualifiers}")
    return replace(t, left=f"{qualifiers} {t.left}")
