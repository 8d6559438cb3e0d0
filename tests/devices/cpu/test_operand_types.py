"""What registers and numbers the CPU device takes for an operand are those that the assembler takes."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

import pytest

from cujit.devices.device import Device
from devices.cpu.test_accepted import first_wrong, is_wrong
from property.effort import times
from toolkits.agreement import ONLY_THE_ASSEMBLER, candidates, exchanged, is_known, refused
from toolkits.assembler import Assembler

SEED, FORMS, OPERANDS, OTHERS, AT_ONCE = 12, 1, 2, 2, 500
TARGETS = (("9.5", "sm_90a"), ("9.5", "sm_100a"), ("9.5", "sm_120a"))
# Taken by the assembler, and no types by the manual (PTX ISA 9.1, 9.4 and 9.7).
LAX = {
    r".*\{[^}]*(?<![%\w])(xp|0f\w+|0d\w+|1\.5|%laneid)(?!\w)[^{]*\}": "elements that it does not look at",
    r"(atom|red)\..*bf?16.*\{[^}]*(?<![%\w])(0|16)\b[^{]*\}": "a number for a half among elements",
    r".*\[%laneid[,\]]": "memory at a special register",
    r"cp\..*\.tensor\..*\[x\w+, ": "a tensor map at an address of another width or kind",
    r"fence\..* \[(x[fhp]\w*|0|16)\]": "an address that is none",
    r"v[a-z]+[24]?\.\S* (0|16),": "a number as the result",
    r"mov\.v[24]\.": "elements are moved as bits there, and by their type here",
    r"(tex|tld4|ld|ldu|atom|red|st|suld)\..*f(16|32|64).*\{(x[us](16|32|64)|0|16)\b": "integers in a vector of floats",
    r".*\bpred .*\bxh2\b": "f16x2 for a predicate",
    r"(tex|tld4)\..*\.s32 .*, \{[^}]*\bxh2\b": "f16x2 in a vector of integers",
    r"w?mma\..*f64.*\{x[us]64\b": "integers in a matrix of f64",
    r"w?mma\..*\.[us]?b?[1-8]\b.*\{x(f32|h2)\b": "floats in a matrix of integers",
    r"(mma|wmma)\..*\{(0|16)\b": "a matrix of numbers alone",
    r"cvt\..*(s2f6x2|e2m1x2\.bf16x2)": "another register than the manual's",
    r"(mma\.sp|wmma)\S* .*\{x(u32|s32|h2|f32), ": "a matrix in registers of another type",
    r"(movmatrix|mma\.sp|wgmma)\b.* (0f3F800000|xp)\b": "the bits of a float, or a predicate",
    r"(bar|barrier)\.\S*red\S* .*, (0|16);": "a number for the predicate that is one of threads here",
    r"cp\.async\.c[ag]\..*, \d+, (0|16);": "a number for the cache policy that is a size here",
    r"mma\..*block_scale.*\{[^}]*\bx\w+": "a scale of another width",
}
# Refused by the assembler for something else than types.
STRICT = {
    r".*\[%laneid[,\]]": "memory at a special register, which is not executed here",
    r"mma\..*block_scale.*\{[^}]*\b16\b": "a number that may not stand there",
    r"w?mma\..*\{(0f3F800000|0d3FF0000000000000|1\.5),": "a matrix of numbers alone",
    r"(wgmma|createpolicy|tensormap|cp|st\.bulk|mbarrier|setmaxnreg)\..*\b(0|16)\b": "a number that may not be there",
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


def test_an_operand_is_of_the_types_that_the_assembler_takes_and_of_no_others(
    cpu: Device, assembler: Assembler
) -> None:
    wrong, accepted, count = [], [], 0
    for seed in range(SEED, SEED + times(1)):
        rng = random.Random(seed)
        left = list(candidates(seed, FORMS, 0))
        for version, target in TARGETS:
            complaints = refused_in_parts(assembler, left, version, target)
            good = [s for s in left if s not in complaints and not is_known(s, ONLY_THE_ASSEMBLER)]
            left = [s for s in left if s in complaints]
            others = list(dict.fromkeys(other for s in good for other in exchanged(s, rng, OPERANDS, OTHERS)))
            refusals = refused_in_parts(assembler, others, version, target)
            taken = [s for s in others if s not in refusals and not is_known(s, LAX)]
            wrong += first_wrong(cpu, taken, version, target)
            other_ways = [s for s in refusals if not is_known(s, STRICT)]
            accepted += [s for s in other_ways if not is_wrong(cpu, [s], version, target)]
            count += len(others)
    assert (wrong, accepted) == ([], []), "called wrong here and taken by the assembler; or the other way round"
    assert count > 1000
