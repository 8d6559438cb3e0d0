"""Keywords of a public function that are the fields of a settings class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_Call = TypeVar("_Call", bound=Callable[..., Any])
_Settings = TypeVar("_Settings", bound=tuple[Any, ...])


def has_keywords(kind: type[tuple[Any, ...]]) -> Callable[[_Call], _Call]:
    """Return a decorator that shows the fields of ``kind`` in the signature of a function.

    ``help`` and the API page then list them. The function takes them as ``**more`` and reads them by ``take``. Other
    keywords, such as the options of the compiler, stay in ``**more``.
    """
    fields = inspect.signature(kind).parameters.values()
    shown = [field.replace(kind=inspect.Parameter.KEYWORD_ONLY) for field in fields]

    def mark(call: _Call) -> _Call:
        signature = inspect.signature(call)
        *given, more = signature.parameters.values()
        rest = [more] if more.name == "more" else []
        call.__signature__ = signature.replace(parameters=[*given, *shown, *rest])  # type: ignore[attr-defined]
        return call

    return mark


def take(kind: type[_Settings], given: Any, call: Callable[..., Any], *, is_all: bool = True) -> _Settings:
    """Take the fields of ``kind`` out of the keywords of a call, and return them as settings.

    Raises:
        TypeError: with ``is_all``, a keyword is left.
    """
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    found = {name: given.pop(name) for name in fields if name in given}
    if is_all and given:
        raise TypeError(f"{call.__name__}() got an unexpected keyword argument {next(iter(given))!r}")
    return kind(**found)
