"""Errors by their codes: a test compares what users compare, so a message can be reworded without it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import pytest

from cujit.errors import CujitError

__all__ = ["raises"]

E = TypeVar("E", bound=CujitError)


@contextlib.contextmanager
def raises(kind: type[E] | tuple[type[E], ...], code: str, *values: str) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error with a code, whose text contains these values: names, numbers, what the user typed."""
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert error.code == code, f"{error.code}, not {code}: {error}"
    assert [value for value in values if value not in str(error)] == [], str(error)
