"""Combinations of modifiers that the forms of the table allow, but that no instruction has.

Rows of loads, stores, and atomics have one position each for spaces, for vectors, and for each cache hint. This module
lists the combinations that are not instructions.

Source: refusals of ptxas 13.0 and nvJitLink 13.5; PTX ISA manual 9.1, sections 9.7.9.8 to 9.7.9.11, 9.7.13.5, 9.7.13.6.
"""

from __future__ import annotations

import functools

from cujit.formats.ptx.isa.sets import SETS
from cujit.values import group_by

_NOT_GLOBAL = "const|local|param|param::entry|param::func|shared|shared::cta|shared::cluster"
_L1 = "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
_L2 = "L2::evict_normal|L2::evict_first|L2::evict_last"
_32 = "b32|u32|s32|f32"
_64 = "b64|u64|s64|f64"

# Opcodes, and words that stand in no instruction together (``|`` separates choices, ``!`` marks what is not there).
_TABLE = (
    ("ld st", f"{_L1}|L2::cache_hint|L2::64B|L2::128B|L2::256B {_NOT_GLOBAL}"),
    ("ld st", f"{_L1} ca|cg|cs|lu|cv|wb|wt"),
    ("ld st", f"{_L2} !v4 !v8"),
    ("ld st", f"{_L2} v4 !{_64}"),
    ("ld st", f"{_L2} v8 !{_32}"),
    ("ld st", f"v8 {_64}|b128"),
    ("ld st", f"v8 {_32} {_NOT_GLOBAL}"),
    ("ld st", f"v4 {_64} {_NOT_GLOBAL}"),
    ("ld st mov ldu", "v2|v4 b128"),
    ("ldu", "v8"),
    ("ldu mov", f"v4 {_64}"),
    ("atom red", "L2::cache_hint|v2|v4|v8 shared|shared::cta|shared::cluster"),
    ("atom", "L2::cache_hint cas"),
    ("atom red", "v8 f16x2|bf16x2"),
    ("cp", "multicast::cluster|multicast::cluster::16b override::global_dim|override::global_dim_stride"),
    ("cp", "ignore_oob REPORT !mbarrier::report::disabled"),
)  # fmt: skip


@functools.cache
def _rows() -> dict[str, list[tuple[list[frozenset[str]], frozenset[str]]]]:
    return group_by((opcode, _row(text)) for opcodes, text in _TABLE for opcode in opcodes.split())


def _row(text: str) -> tuple[list[frozenset[str]], frozenset[str]]:
    words = text.split()
    there = [frozenset(SETS.get(word, word.split("|"))) for word in words if not word.startswith("!")]
    return there, frozenset(word for text in words if text.startswith("!") for word in text[1:].split("|"))


def never(opcode: str, modifiers: tuple[str, ...]) -> bool:
    """Return whether an instruction has words that no instruction has together."""
    given = frozenset(modifiers)
    return any(
        absent.isdisjoint(given) and not any(choices.isdisjoint(given) for choices in there)
        for there, absent in _rows().get(opcode, ())
    )
