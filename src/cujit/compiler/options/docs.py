"""The page ``docs/options.md``, written from the option table."""

from __future__ import annotations

from cujit.compiler.options.spelling import Rejects
from cujit.compiler.options.table import OPTIONS, Option, Tool

__all__ = ["options_page"]

_HEAD = """\
# Options

Every option of `cujit.compile`, `cujit.link` and `cujit.build`, as keyword or in `options={…}`. What is
not said is not written. `extra=("--flag",)` gives arguments to the tool as they are. A dash means that the
tool rejects the option, with a sentence that says why.

This page is written from the table in `src/cujit/compiler/options/table.py`; do not edit it by hand.

| option | takes | meaning | NVRTC | nvJitLink | libNVVM |
|---|---|---|---|---|---|
"""


def options_page() -> str:
    """Write the page."""
    return _HEAD + "".join(_row(option) for option in OPTIONS.values())


def _row(option: Option) -> str:
    takes = " ".join(f"`{choice}`" for choice in option.choices) or option.type.value
    if option.low is not None:
        takes += f" from {option.low}" + (f" to {option.high}" if option.high is not None else "")
    cells = [f"`{option.name}`", takes, option.doc, *(_spelled(option, tool) for tool in Tool)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _spelled(option: Option, tool: Tool) -> str:
    spelling = option.spelling(tool)
    return "–" if isinstance(spelling, Rejects) else f"`{spelling.text}`"
