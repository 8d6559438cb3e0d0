"""Declarations of every kind, right and wrong, and what an assembler says: ``declared.py PTXAS`` writes the golden."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["GOLDEN", "texts"]

GOLDEN = Path(__file__).parents[1] / "goldens" / "declarations.json"
_HEAD = ".version 9.2\n.target {}\n.address_size 64\n"
_PLACES = {
    "module": "{}\n.visible .entry k() {{ ret; }}\n",
    "function": ".visible .entry k() {{ {} ret; }}\n",
    "entry": ".visible .entry k({}) {{ ret; }}\n",
    "func": ".func f({}) {{ ret; }}\n.visible .entry k() {{ ret; }}\n",
}
_VALUES = (
    ".tex .u32 x; | .global .u32 x = 1.5; | .global .b32 x[2] = {1.5, 1}; | .global .f32 x[2] = {1.5, 1}; | "
    ".global .f32 x[2] = {0f3F800000, 0d3FF0000000000000}; | .global .f64 x = 0f3F800000; | .global .f64 x = 1; | "
    ".global .f16 x = 1; | .global .b16 x = 1.5; | .global .f16x2 x = 1; | .global .s32 x = 0f3F800000; | "
    ".global .b64 x = 1.5; | .global .texref x = {addr_mode_0 = wrap}; | .global .u64 x = {1}; | "
    ".global .b64 y; .global .u64 x = y; | .global .b32 y; .global .f64 x = y; | "
    ".global .b32 y; .global .u64 x[2] = {y, generic(y)}; | .global .b32 x[2] = {1, {2}}; | "
    ".global .b32 x[2] = {{1}, {2}}; | .global .b32 x[2] = {1, 2, 3}; | .global .b32 x[2][2] = {{1, 2}, {3, 4}}; | "
    ".global .b32 x[2][2] = {{1, 2}, {3}}; | .global .b32 x[2][2] = {{1, 2, 3}}; | "
    ".global .b32 x[][2] = {{1, 2}, {3, 4}}; | .global .v2 .b32 x = {1, 2}; | .global .v2 .b32 x[2] = {1, 2, 3, 4}; | "
    ".global .v2 .b32 x[2] = {{1, 2}, {3, 4}}; | .global .b32 x[4] = {}; | .extern .shared .b32 x[][2];"
)
_SIZES = {
    "module": (
        ".const .b8 x[65536];", ".const .b8 x[65537];", ".const .b8 x[40000]; .const .b8 y[40000];",
        ".const .b8 q; .const .align 16 .b8 x[65520];", ".const .b8 q; .const .align 16 .b8 x[65520]; .const .b8 r;",
        ".shared .b8 x[49153];",
    ),
    "function": (
        ".shared .b8 x[49152];", ".shared .b8 x[49153];", ".shared .b8 x[30000]; { .shared .b8 x[30000]; }",
        ".shared .b8 q; .shared .align 16 .b8 x[49136];",
        ".shared .b8 q; .shared .align 16 .b8 x[49136]; .shared .b8 r;",
        ".const .b8 x[65537];",
    ),
    "entry": (
        ".param .b8 x[]", ".param .b8 x[0]", ".param .b8 x[4][2]", ".reg .b32 x", ".param .pred x", ".param .b32 x[4]",
        ".param .b8 x[32764]", ".param .b8 x[32765]", ".param .b32 a, .param .align 8 .b8 x[32752], .param .b64 q",
    ),
    "func": (
        ".param .b8 x[]", ".param .b8 x[0]", ".param .b8 x[4][2]", ".reg .b32 x", ".param .pred x", ".param .b32 x[4]",
    ),
}  # fmt: skip


def texts() -> Iterator[tuple[str, str]]:
    """Give a name and a module for each."""
    linkages, spaces = ("", ".visible ", ".extern ", ".weak ", ".common "), "global const shared local param reg tex"
    shapes, values = ("", "[4]", "[]", "[0]", "[2][2]", "[][2]"), ("", " = 1", " = {1, 2}")
    every = itertools.product(linkages, spaces.split(), shapes, values, ("module", "function"))
    for linkage, space, shape, value, place in every:
        yield _text(place, f"{linkage}.{space} .b32 x{shape}{value};")
    yield from (_text("module", each) for each in _VALUES.split(" | "))
    for place, several in _SIZES.items():
        yield from (_text(place, each) for each in several)
    for target in ("sm_80", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_120a"):
        for size in (49_152, 49_153, 101_376, 101_377, 232_448, 232_449):
            yield _text("function", f".shared .b8 x[{size}];", target)


def _text(place: str, declaration: str, target: str = "sm_90") -> tuple[str, str]:
    return f"{place} {target}: {declaration}", _HEAD.format(target) + _PLACES[place].format(declaration)


def main() -> None:
    """Ask; where the assembler dies, or misses what another module has, it says nothing of the text."""
    taken: list[str] = []
    refused: list[str] = []
    for name, text in texts():
        arch = text.split("\n")[1].removeprefix(".target ")
        command = [sys.argv[1], f"-arch={arch}", "/dev/stdin", "-o", os.devnull]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode >= 0 and "Unresolved" not in done.stderr:
            (taken if done.returncode == 0 else refused).append(name)
    source = f"ptxas {sys.argv[2]}, {datetime.date.today()}"
    GOLDEN.write_text(json.dumps({"source": source, "taken": taken, "refused": refused}, indent=0) + "\n")


if __name__ == "__main__":
    main()
