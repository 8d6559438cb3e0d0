"""Answers of untrusted processes: limited in size before parsing, and printable afterward."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, marks that change the direction of text, and halves of characters."""

_MOST_PARSED_BYTES = 256 << 20
_CONTAINER_BYTES = 72
_ELEMENT_BYTES = 32
"""What an empty list or dict takes in CPython with its place in another, and an element. Source: measured, 3.11."""


def printable(text: str) -> str:
    """Remove terminal control characters from untrusted text."""
    return _CONTROL.sub("\ufffd", text)


def read_answer(data: bytes) -> Any:
    """Parse JSON from an untrusted process. Every text in the result is printable, and every number is finite.

    Raises:
        ValueError: it is not JSON, its numbers aren't finite, or it would take more than 256 MiB of memory.
        RecursionError: it is nested too deeply.
    """
    containers = data.count(b"[") + data.count(b"{")
    if len(data) + containers * _CONTAINER_BYTES + data.count(b",") * _ELEMENT_BYTES > _MOST_PARSED_BYTES:
        raise ValueError(f"an answer of {len(data):,} bytes with {containers:,} lists and objects is too large")
    return _printable(json.loads(data, parse_float=_finite, parse_constant=_finite))


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def _printable(value: Any) -> Any:
    """Make every text in a value printable, in place."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        value[:] = map(_printable, value)
    elif isinstance(value, dict):
        return {printable(name): _printable(each) for name, each in value.items()}
    return value
