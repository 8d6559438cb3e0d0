"""Compiler options as text, in the notation of ``cujit compile -O`` and the explorer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cujit.compiler.options.table import OPTIONS, OptionType

_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def read_values(words: Sequence[str], include: Sequence[str] = (), define: Sequence[str] = ()) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` by the option table. A bare ``KEY`` means True, and repeated lists accumulate.

    A number alone is ``opt_level``, as in ``-O3``. This function rejects nothing, because ``Options`` checks names and
    values.
    """
    values: dict[str, Any] = {}
    for text in (*words, *(f"include={d}" for d in include), *(f"define={d}" for d in define)):
        key, separator, value = (f"opt_level={text}" if text.isdigit() else text).partition("=")
        name = key.strip().replace("-", "_")
        _add(values, name, value if separator else None)
    return values


def _add(values: dict[str, Any], name: str, text: str | None) -> None:
    row = OPTIONS.get(name)
    kind = OptionType.TEXTS if name == "extra" else row.type if row else OptionType.TEXT
    stated = text or ""
    many: list[Any] = values.setdefault(name, []) if kind in (OptionType.TEXTS, OptionType.INTS) else []
    if kind is OptionType.TEXTS:
        many.append(stated)
    elif kind is OptionType.INTS:
        many += map(_int, stated.split(","))
    elif kind is OptionType.DEFINES:
        macro, separator, value = stated.partition("=")
        values.setdefault(name, {})[macro] = value if separator else None
    elif kind is OptionType.BOOL and (text is None or stated.lower() in _TRUTH):
        values[name] = text is None or _TRUTH[stated.lower()]
    else:
        values[name] = _int(stated) if kind is OptionType.INT else stated


def _int(text: str) -> object:
    """Parse an int. Leave other text for the table to reject."""
    try:
        return int(text)
    except ValueError:
        return text
