"""What ``typing`` gives to type checkers, for what a hit of the cache imports: ``typing`` takes 3 ms, for ``re``.

At run time the names do what a class body needs of them, and no more: nobody asks such a class for its protocol.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, ClassVar, Generic, Protocol, TypeAlias, TypeVar
else:

    class _Open:
        """A base that may be given types."""

        def __class_getitem__(cls, types):
            return cls

    Generic = Protocol = _Open

    class TypeVar:
        """As ``typing.TypeVar``."""

        def __init__(self, name, *constraints, bound=None):
            self.__name__, self.__constraints__, self.__bound__ = name, constraints, bound

    Any = BinaryIO = ClassVar = TypeAlias = object

__all__ = ["TYPE_CHECKING", "Any", "BinaryIO", "ClassVar", "Generic", "Protocol", "TypeAlias", "TypeVar"]
