"""Each form of the instruction table, and each of its words, is there from where the assembler has it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest

from cujit.formats.ptx.isa.table import rows
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.uses import construct_needs, removed_constructs
from toolkits.agreement import ONLY_THE_TABLE, is_known
from toolkits.minimal import module_of
from toolkits.statements import STATEMENTS, statements_of_the_table

Assemble = Callable[[str, str], dict[str, bytes]]
Version = tuple[int, int]
Said = Mapping[str, Sequence[str]]

LEAST, LEAST_SM = (3, 1), 20
"""An assembler of today does not tell apart what is older."""
TARGETS = "20 30 32 50 52 53 60 61 70 72 75 80 86 89 90 90a 100 100f 100a 103 103f 103a 120 120f 120a"
NEWEST = "9.5"


class Since(NamedTuple):
    ptx: Version
    sm: int
    suffix: str


# What the table says otherwise than the assembler of today, and why.
OTHERWISE = {
    r"(addc|subc|madc)\..*[us]64 ": Since((4, 3), 20, ""),  # the manual; the assembler took it before
    r"cvt\..*(e4m3x2|e5m2x2)(\.f32|\.f16x2)? ": Since((8, 1), 89, ""),  # for sm_90 since 7.8
    r"cvt\.r[nzmp]\.(ftz\.)?(bf16\.f32|f32\.bf16) ": Since((7, 8), 90, ""),  # the manual, and older assemblers
    r"cp\.async\.c[ag]\.shared::cta\.": Since((7, 8), 80, ""),  # as its state space
    r"cp\.async\.ca\.shared\.global \[s\], \[%rd1\], 4, %r1;": Since((7, 5), 80, ""),  # a predicate would need it
    r"(isspacep|cvta)\..*shared::cta": Since((7, 8), 30, ""),  # no target of 7.8 is older
}
# What no assembler takes with the operands and types that it has here.
OF_MORE_THAN_WORDS = {
    r"(ld|st)\.(?!.*\.v8).*L2::evict_(first|last|normal)": "a vector of 32 bytes",
    r"ldu\.v8": "a vector of 16 bytes at most",
    r"(atom|red)\.shared.*\.v2\.": "global memory",
    r"atom\.L2::cache_hint\.cas": "another operation",
}
OF_MORE_OPERANDS = {
    "min.f32 %f1, %f2, %f3, %f4;",
    "mbarrier.arrive.shared.b64 %rd1, [mb], %r1;",
    "cp.async.ca.shared.global [s], [%rd1], 4, %r1;",
}


def refused(assemble: Assemble, statements: Sequence[str], version: str, target: str) -> Said:
    """What the assembler says against each statement; it ends at one that it cannot parse, and goes on behind it."""
    first = module_of(["MARK"], version, target).splitlines().index("MARK") + 1
    arch = target if int(re.sub(r"\D", "", target)) >= 75 else "sm_75"
    found: dict[str, list[str]] = defaultdict(list)
    done = 0
    while done < len(statements):
        with pytest.raises(pytest.fail.Exception) as failed:
            assemble(module_of([*statements[done:], "ret.no.such.form;"], version, target), arch)
        told = re.findall(r"line (\d+); (?:error|fatal)\s*:\s*(.*)", str(failed.value))
        places = [int(line) - first + done for line, _ in told]
        for place, (_, why) in zip(places, told, strict=True):
            if done <= place < len(statements):
                found[statements[place]].append(why)
        done = max(places) + 1
    return found


def of_the_table(statements: list[str]) -> dict[str, Since]:
    """What the table says of each statement that is the first of its kind in a text."""
    text = module_of(statements, NEWEST, "sm_120")
    first = module_of(["MARK"], NEWEST, "sm_120").splitlines().index("MARK") + 1
    found: dict[str, Since] = {}
    for need in construct_needs(parse(text)):
        if 0 <= need.line - first < len(statements) and need.is_known:
            line = statements[need.line - first]
            so_far = found.get(line, Since(LEAST, LEAST_SM, ""))
            suffix = min(filter(None, (so_far.suffix, need.suffix)), default="")
            found[line] = Since(max(so_far.ptx, need.ptx), max(so_far.sm, need.sm), suffix)
    return found


def version_in(said: Sequence[str]) -> Version:
    found = [re.search(r"requires PTX ISA \.version (\d+)\.(\d+)", why) for why in said]
    return max([LEAST, *((int(match[1]), int(match[2])) for match in found if match)])


def least_of(targets: Sequence[str]) -> tuple[int, str]:
    """The number of the first of some targets, and what a target of its number needs."""
    sm = int(re.sub(r"\D", "", targets[0]))
    return sm, next(suffix for suffix in ("", "f", "a") if any(re.fullmatch(rf"\d+{suffix}", t) for t in targets))


def test_each_form_and_word_assembles_from_the_version_and_target_of_the_table(assemble: Assemble) -> None:
    statements = list(dict.fromkeys((*statements_of_the_table(), *STATEMENTS)))
    table = of_the_table(statements)
    takers: dict[str, list[str]] = {line: [] for line in statements}
    for target in TARGETS.split():
        out = refused(assemble, statements, NEWEST, f"sm_{target}")
        for line in takers.keys() - out.keys():
            takers[line].append(target)
    said: dict[str, list[str]] = defaultdict(list)
    for target in ("sm_20", "sm_90", "sm_90a", "sm_100a", "sm_120a"):
        for line, why in refused(assemble, statements, "3.1", target).items():
            said[line] += why
    wide = [line for line in statements if "%q" in line and takers[line]]
    for before, version in (("8.2", "8.3"), ("8.3", "8.4")):  # Of registers that it does not know it says less.
        for line in refused(assemble, wide, before, "sm_100a"):
            said[line].append(f"requires PTX ISA .version {version}")
    found = {line: Since(version_in(said[line]), *least_of(takers[line])) for line in table if takers[line]}
    differing = {line: since for line, since in found.items() if table[line] != since}
    known = {line: said for line in differing for other, said in OTHERWISE.items() if re.match(other, line)}
    assert {line: (table[line], found[line]) for line in differing if table[line] != known.get(line)} == {}
    assert [other for other in OTHERWISE if not any(re.match(other, line) for line in known)] == []
    assert found.keys() >= OF_MORE_OPERANDS
    never = [line for line in table.keys() - found.keys() if not is_known(line, ONLY_THE_TABLE | OF_MORE_THAN_WORDS)]
    assert never == []
    assert len(found) > 3600


WMMA = "{%r1, %r2, %r3, %r4}, " + 2 * f"{{{', '.join(f'%r{n}' for n in range(8))}}}, " + "{%r5, %r6, %r7, %r8};"
GONE = {
    "shfl.up.b32 %r1, %r2, %r3, %r4;": ("6.3", "6.4", (62, 70)),
    "vote.all.pred %p1, %p2;": ("6.3", "6.4", (62, 70)),
    "div.f32 %f1, %f2, %f3;": ("1.3", "1.4", (10,)),
    "mad.f64 %fd1, %fd2, %fd3, %fd4;": ("1.3", "1.4", (13,)),
    "ex2.f32 %f1, %f2;": ("1.3", "1.4", (10,)),
    "wmma.load.a.sync.row.m16n16k16.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1];": ("6.2", "6.3", (70,)),
    f"wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16.satfinite {WMMA}": ("6.4", "6.5", (70,)),
}


@pytest.mark.parametrize("statement", GONE)
def test_what_is_gone_is_gone_where_the_assembler_takes_it_no_more(assemble: Assemble, statement: str) -> None:
    before, since, architectures = GONE[statement]
    for version in (before, since):
        for sm in architectures:
            text = module_of([statement], version, f"sm_{sm}")
            major, minor = version.split(".")
            gone = [name for _, name, _ in removed_constructs(parse(text), (int(major), int(minor)), sm)]
            assert gone == [statement.partition(" ")[0]] * (
                statement in refused(assemble, [statement], version, f"sm_{sm}")
            )
            assert bool(gone) == (version == since and sm == architectures[-1])


# Source: PTX ISA manual 9.1, the notes of each instruction.
OLD = {
    ((1, 0), 11): "brkpt",
    ((1, 0), 13): "abs add div mad max min mul neg rcp rsqrt sqrt sub",
    ((1, 1), 10): "ld st",
    ((1, 1), 11): "atom",
    ((1, 2), 10): "add addc sub subc",
    ((1, 2), 11): "red",
    ((1, 2), 12): "atom red vote",
    ((1, 4), 10): "div membar pmevent",
    ((1, 4), 13): "div fma mad rcp rsqrt sqrt",
    ((1, 5), 10): "suld suq sust txq",
    ((2, 0), 20): "atom bar bfe bfi bfind brev clz copysign cvta div fma isspacep ld ldu mad membar popc prefetch "
    "prefetchu prmt rcp red sqrt st sured testp vabsdiff vadd vmad vmax vmin vote vset vshl vshr vsub",
    ((2, 1), 20): "rcp",
    ((2, 3), 20): "tld4",
    ((3, 0), 20): "mad madc",
    ((3, 0), 30): "shfl vabsdiff2 vabsdiff4 vadd2 vadd4 vavrg2 vavrg4 vmax2 vmax4 vmin2 vmin4 vset2 vset4 vsub2 vsub4",
}


def test_what_is_older_than_assemblers_know_is_of_the_version_that_the_manual_says() -> None:
    found: dict[tuple[Version, int], set[str]] = defaultdict(set)
    for row in rows():
        if row.ptx < LEAST:
            found[row.ptx, row.sm].add(row.opcode)
    assert len(found.pop(((1, 0), 10))) > 40
    assert found == {since: set(opcodes.split()) for since, opcodes in OLD.items()}
