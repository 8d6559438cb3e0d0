"""Statements of PTX, one of each kind that the instruction table tells apart, for assemblers to judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cujit.formats.ptx.isa.table import InstructionRow, rows
from toolkits.minimal import minimal

__all__ = ["DECLARATIONS", "STATEMENTS", "module_text", "statements_of_the_table"]


def statements_of_the_table() -> Iterator[str]:
    """Give each closed form with each of its modifiers, one at a time."""
    seen = set()
    for row in rows():
        if row.is_open:
            continue
        for words in _variants(row):
            statement = minimal(row.opcode, words)
            if statement is not None and statement not in seen:
                seen.add(statement)
                yield statement


def _variants(row: InstructionRow) -> Iterator[tuple[str, ...]]:
    """The plainest choice everywhere, and from there every other choice of each place."""
    plain = [None if m.optional else _plainest(m.choices) for m in row.modifiers]
    yield tuple(word for word in plain if word)
    for index, modifier in enumerate(row.modifiers):
        for choice in sorted(modifier.choices):
            words = [*plain[:index], choice, *plain[index + 1 :]]
            yield tuple(word for word in words if word)


def _plainest(choices: frozenset[str]) -> str:
    for word in ("rn", "f32", "u32", "s32", "b32", "f16", "global", "eq", "gpu"):
        if word in choices:
            return word
    return min(choices)


def _lines(name: str) -> tuple[str, ...]:
    text = (Path(__file__).parent / name).read_text()
    return tuple(line for line in text.splitlines() if line and not line.startswith("//"))


STATEMENTS = _lines("statements.txt")


DECLARATIONS = _lines("declarations.txt")


def module_text(line: str, version: tuple[int, int], target: str) -> str:
    """Put one statement, or one declaration, into a module."""
    head = f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n"
    if line in DECLARATIONS:
        return f"{head}{line}\n"
    registers = ".reg .b128 %q<16>;" if "%q" in line else ""
    registers += ".reg .b8 %c<4>;" if "%c" in line else ""
    labels = "T: .branchtargets L;\nL:\n" if line.startswith("brx") else "L:\n"
    function = ".func f() { ret; }\n" if line.startswith("call") else ""
    return (
        f"{head}{function}.global .align 128 .b8 a[256]; .const .align 16 .b8 c[64];\n"
        ".visible .entry k(.param .align 64 .b8 p[128])\n{\n"
        ".shared .align 128 .b8 s[256]; .shared .align 8 .b64 mb; .local .align 16 .b8 l[64];\n"
        ".reg .b32 %r<200>; .reg .b16 %h<32>; .reg .f32 %f<200>; .reg .f64 %fd<64>;\n"
        f".reg .b64 %rd<32>; .reg .pred %p<8>; {registers}\n{labels}{line}\nret;\n}}\n"
    )
