"""Write the types of compiler options from the table, for type checkers: ``python tools/option_types.py``."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from cujit.compiler.options.table import OPTIONS, Option, OptionType  # noqa: E402

HOME = ROOT / "src/cujit/compiler/options/keywords.pyi"
_HEAD = '''"""Options of the compiler as keywords, for type checkers; `tools/option_types.py` writes this file."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Literal, TypedDict

class OptionKeywords(TypedDict, total=False):
    """The rows of the option table; None counts as not given."""

'''
_TAIL = '''
class Keywords(OptionKeywords, total=False):
    """The options and ``extra``: arguments that go to the tool as they are."""

    extra: Sequence[str]

class CallKeywords(Keywords, total=False):
    """The options, ``extra``, and the limits of one call (``WorkLimits``)."""

    timeout_s: float | None
    isolate: bool
    memory_mib: int | None
'''
_TYPES = {
    OptionType.BOOL: "bool",
    OptionType.INT: "int",
    OptionType.TEXT: "str",
    OptionType.INTS: "int | Sequence[int]",
    OptionType.TEXTS: "str | PathLike[str] | Sequence[str | PathLike[str]]",
    OptionType.DEFINES: "Mapping[str, str | int | None]",
}


def option_types() -> str:
    """Write the stub file."""
    return _HEAD + "".join(f"    {row.name}: {_type(row)} | None\n" for row in OPTIONS.values()) + _TAIL


def _type(row: Option) -> str:
    return f"Literal[{', '.join(f'{c!r}' for c in row.choices)}]".replace("'", '"') if row.choices else _TYPES[row.type]


if __name__ == "__main__":
    HOME.write_text(option_types())
