"""Replacements of ``typing`` names for modules that a cache hit imports, because importing ``typing`` takes 3 ms.

At run time, the names support only what class bodies need. No code uses such a class as a protocol.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, ClassVar, Generic, Protocol, TypeAlias, TypeVar
else:

    class _Open:
        """A base class that accepts type arguments."""

        def __class_getitem__(cls, types):
            return cls

    Generic = Protocol = _Open

    class TypeVar:
        """As ``typing.TypeVar``."""

        def __init__(self, name, *constraints, bound=None):
            self.__name__, self.__constraints__, self.__bound__ = name, constraints, bound

    Any = BinaryIO = ClassVar = TypeAlias = object

__all__ = ["TYPE_CHECKING", "Any", "BinaryIO", "ClassVar", "Generic", "Protocol", "TypeAlias", "TypeVar"]
