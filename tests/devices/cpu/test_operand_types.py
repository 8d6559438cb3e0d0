"""What registers and numbers the CPU device takes for an operand are those that the assembler takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest

from cujit.devices.device import Device
from devices.cpu.judging import mistakes
from devices.cpu.launching import blank, run_ptx
from property.effort import times
from toolkits.agreement import ONLY_THE_ASSEMBLER, candidates, exchanged, is_known, numbered, refused
from toolkits.assembler import Assembler

SEED, AT_ONCE = 12, 500
TARGETS = (("9.5", "sm_90a"), ("9.5", "sm_100a"), ("9.5", "sm_107a"), ("9.5", "sm_120a"))
# Taken by the assembler, and no types by the manual (PTX ISA 9.1, 9.4 and 9.7).
LAX = {
    r".*\{[^}]*(?<![%\w])(xp|0f\w+|0d\w+|1\.5|%laneid)(?!\w)[^{]*\}": "elements that it does not look at",
    r"(atom|red|st|mov)\..*f(16|32|64|16x2)\b.*\{[^}]*(?<![%\w])-?\d+\b": "an integer for a float, at which it dies",
    r"tex\..*\.a1d\..*f32 .*, \{%r1, -?\d+\}": "an integer as a coordinate, at which it dies",
    r".*\[%laneid[,\]]": "memory at a special register",
    r"(cp|applypriority)\..*\.tensor\..*\[(%rd1, )?x\w+, ": "a tensor map at an address of another width or kind",
    r"fence\..* \[(x[fhp]\w*|-?\d+)\]": "an address that is none",
    r"(v[a-z]+[24]?|tensormap\.query)\.\S* -?\d+,": "a number as the result, of which it makes no code",
    r".*\bpred .*\bxh2\b": "f16x2 for a predicate",
    r"wmma\..*\{-?\d+\b": "a matrix of numbers alone, of which it makes no code",
    r"mma\..*\.[us]8\b.*\{x(f32|h2)\b": "floats in a matrix of integers, of which it makes no code",
    r"cvt\..*(s2f6x2|e2m1x2\.bf16x2)": "another register than the manual's",
    r"(mma\.sp|wmma)\S* .*\{x(u32|s32|h2|f32), ": "a matrix in registers of another type",
    r"(movmatrix|mma\.sp|wgmma)\b.* (0f3F800000|xp)\b": "the bits of a float, or a predicate",
    r"mma\..*block_scale.*\{[^}]*\bx\w+": "a scale of another width",
}
# Refused by the assembler for something else than types.
STRICT = {
    r".*\[%laneid[,\]]": "memory at a special register, which is not executed here",
    r"(cp|applypriority)\..*override::global_dim|sp(de)?compress": "it is not executed, and its operands not looked at",
}


@pytest.fixture(scope="module")
def assembler() -> Iterator[Assembler]:
    made = Assembler()
    yield made
    made.close()


def refused_in_parts(assembler: Assembler, statements: list[str], version: str, target: str) -> dict[str, str]:
    """Ask about some at a time: it reads all that follow again for each that it cannot parse."""
    complain = functools.partial(assembler.complain, arch=target)
    parts = (statements[k : k + AT_ONCE] for k in range(0, len(statements), AT_ONCE))
    return {s: why for part in parts for s, why in refused(part, version, target, complain).items()}


def disagreements(
    assembler: Assembler, seed: int, changed: Callable[[str, int], Iterable[str]]
) -> tuple[list[str], list[str], int]:
    """List what only the assembler takes of changed statements, and what it alone refuses, and count them all."""
    only_assembler, only_here, count = [], [], 0
    left = list(candidates(seed, 1, 0))
    for version, target in TARGETS:
        complaints = refused_in_parts(assembler, left, version, target)
        good = [s for s in left if s not in complaints and not is_known(s, ONLY_THE_ASSEMBLER)]
        left = [s for s in left if s in complaints]
        others = list(dict.fromkeys(other for s in good for other in changed(s, seed)))
        refusals = refused_in_parts(assembler, others, version, target)
        mistaken = mistakes(others, version, target)
        only_assembler += [s for s in mistaken if s not in refusals and not is_known(s, LAX)]
        only_here += [s for s in refusals if s not in mistaken and not is_known(s, STRICT)]
        count += len(others)
    return only_assembler, only_here, count


def test_operand_types_match_the_assembler(assembler: Assembler) -> None:
    for seed in range(SEED, SEED + times(1)):
        wrong, accepted, count = disagreements(assembler, seed, exchanged)
        assert (wrong, accepted) == ([], []), f"seed {seed}: refused here alone, or taken here alone"
        assert count > 1000


def test_immediates_are_accepted_where_the_assembler_does(assembler: Assembler) -> None:
    for seed in range(SEED, SEED + times(1)):
        wrong, accepted, count = disagreements(assembler, seed, numbered)
        assert (wrong, accepted) == ([], []), f"seed {seed}: refused here alone, or taken here alone"
        assert count > 1000


SAME = {
    "st.global.v2.f32 [at], {t, z};": "st.global.v2.b32 [at], {t, z};",
    "mov.v2.f32 {f1, f2}, {t, z}; st.global.v2.f32 [at], {f1, f2};": "st.global.v2.b32 [at], {t, z};",
    "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {r1, r2}, {t}, {t}, {7, 7}; st.global.v2.b32 [at], {r1, r2};":
        "mov.b32 z, 7; mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {r1, r2}, {t}, {t}, {z, z}; "
        "st.global.v2.b32 [at], {r1, r2};",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {e1, e2}, {e3}, {e3}, {5, 5}; st.global.v2.f64 [at], {e1, e2};":
        "mov.b64 e0, 5; mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {e1, e2}, {e3}, {e3}, {e0, e0}; "
        "st.global.v2.f64 [at], {e1, e2};",
}  # fmt: skip
"""Statements with elements of another kind, and others that do the same by the machine code of ptxas 13.5."""


@pytest.mark.parametrize("statements", SAME)
def test_element_of_another_kind_is_its_bits(statements: str, cpu: Device) -> None:
    begin = """.reg .u32 z; .reg .b32 r1, r2; .reg .f32 f1, f2; .reg .f64 e0, e1, e2, e3; .reg .u64 more;
    mad.lo.u32 z, t, 0x01010101, 0x3F800000; cvt.rn.f64.u32 e3, t; mul.wide.u32 more, t, 12; add.u64 at, at, more;\n"""
    first, second = (run_ptx(cpu, begin + text, blank(128), version="8.0") for text in (statements, SAME[statements]))
    assert np.array_equal(first, second)
    assert np.any(first[0] != blank(128))
