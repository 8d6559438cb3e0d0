"""Options of the compiler written as text, as ``cujit compile -O`` takes them and the explorer's page does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cujit.compiler.options.table import OPTIONS, OptionType

_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def read_values(words: Sequence[str], include: Sequence[str] = (), define: Sequence[str] = ()) -> dict[str, Any]:
    """Read ``KEY=VALUE`` by the option table; a bare ``KEY`` switches on. Lists grow with every mention.

    A number alone is ``opt_level``, as in ``-O3``. Nothing is refused here: ``Options`` checks names and values.
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
    """Read an int; anything else is left for the table to refuse."""
    try:
        return int(text)
    except ValueError:
        return text
