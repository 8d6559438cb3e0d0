"""Errors by their codes: a test compares what users compare, so a message can be reworded without it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TypeVar

import pytest

from cujit.errors import CujitError

__all__ = ["holds", "raises"]

E = TypeVar("E", bound=CujitError)


def _has(text: str, value: str) -> bool:
    """Return whether a text contains a value, and not as a part of a longer word or number."""
    first, last = r"(?<!\w)" if re.match(r"\w", value) else "", r"(?!\w)" if re.search(r"\w$", value) else ""
    return re.search(first + re.escape(value) + last, text) is not None


def holds(error: CujitError, code: str, *values: object) -> None:
    """Require that an error has a code, and that its text contains these values: names, numbers, what the user typed.

    A value is a whole word or number: ``3`` isn't found in ``31``.
    """
    assert error.code == code, f"{error.code}, not {code}: {error}"
    assert [value for value in values if not _has(str(error), str(value))] == [], str(error)


@contextlib.contextmanager
def raises(kind: type[E] | tuple[type[E], ...], code: str, *values: object) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error for which ``holds`` is true."""
    with pytest.raises(kind) as caught:
        yield caught
    holds(caught.value, code, *values)
