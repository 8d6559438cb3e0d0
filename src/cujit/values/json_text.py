"""JSON is read without ``json``, which compiles expressions at its import: 2 ms of a process that reads one header.

What reads is the scanner in C that ``json`` itself reads by; a Python without it has ``json``.
"""

from __future__ import annotations

from cujit.values.typed import Any

_CONSTANTS = {"-Infinity": -float("inf"), "Infinity": float("inf"), "NaN": float("nan")}


class _AsJson:
    """What the scanner asks of a ``json.JSONDecoder`` that nobody gave arguments."""

    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int, parse_constant = float, int, _CONSTANTS.__getitem__


def _scanner() -> Any:
    try:
        import _json  # start-up: beside json, which compiles expressions
    except ImportError:
        import json  # for a Python that has no scanner in C

        return json.JSONDecoder().raw_decode
    make: Any = _json.make_scanner
    return make(_AsJson())


_scan = _scanner()


def value_at(text: str, at: int) -> tuple[Any, int]:
    """Read the value that begins at a place in a text, and return it with the place where it ends.

    Raises:
        ValueError: none begins there.
        RecursionError: it is nested too deeply.
    """
    try:
        value, end = _scan(text, at)
    except StopIteration as e:
        raise ValueError(f"there is no value at {e.value}") from None
    return value, end


def only_value(text: str) -> Any:
    """Read a text that is one value and nothing else, not even blanks around it: as we write it.

    Raises:
        ValueError: it is none, or more than one.
        RecursionError: it is nested too deeply.
    """
    value, end = value_at(text, 0)
    if end != len(text):
        raise ValueError(f"there is more than one value: more text follows character {end}")
    return value
