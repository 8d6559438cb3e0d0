"""Each form of the instruction table, and each of its words, is there from where the assembler has it."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from cujit.errors import PtxSyntaxError
from cujit.formats.ptx.isa.later import removed_of
from cujit.formats.ptx.isa.since import FIRST, LAST, Since, number_of, version_of
from cujit.formats.ptx.isa.table import NEWEST_PTX, rows
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.uses import construct_needs, removed_constructs, together
from cujit.formats.ptx.validity import check_module
from property.effort import times
from toolkits.agreement import is_known
from toolkits.minimal import module_of
from toolkits.record_boundaries import VERSIONS
from toolkits.statements import module_text

Assemble = Callable[[str, str], dict[str, bytes]]
Version = tuple[int, int]
Said = Mapping[str, Sequence[str]]

LEAST = (3, 1)
"""An assembler of today does not tell apart what is older."""
GOLDEN = json.loads((Path(__file__).parents[2] / "goldens" / "boundaries.json").read_text())
TARGETS: list[str] = GOLDEN["targets"]
PROFILES = {statement: profile for profile, statements in GOLDEN["profiles"] for statement in statements}
SHARDS = 4
# What the table doesn't say as assemblers do.
NEWEST = "9.5"
OTHERWISE = {
    r"cp\.async\.ca\.shared\.global \[s\], \[%rd1\], 4, %p1;": "the table doesn't tell a predicate from a size",
    r"cp\.async\.bulk\.(?!.*(relaxed|oob|::16b|::32b|report)).*\.b128 ": "newer assemblers alone take it in old texts",
    r"mad\.(ftz\.|sat\.)?f32 ": "gone since PTX 1.4 by the manual; ptxas takes it in texts of 3.1",
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


def needed_by(statement: str) -> Since:
    """What the table says that a statement needs."""
    text = module_of([statement], NEWEST, "sm_120")
    line = module_of(["MARK"], NEWEST, "sm_120").splitlines().index("MARK") + 1
    return together(need for need in construct_needs(parse(text)) if need.line == line)


def by_the_table(statement: str) -> dict[str, tuple[Version, Version]]:
    """The first and the last version of each target of the golden under which the table has a statement."""
    found = {}
    opcode, *words = statement.partition(" ")[0].rstrip(";").split(".")
    gone = removed_of(opcode, tuple(words))
    for target, version in needed_by(statement).versions.items():
        first, last = max(version, LEAST), LAST.get(number_of(target), NEWEST_PTX)
        if gone is not None and number_of(target) >= gone.sm:
            last = max((v for v in map(version_of, VERSIONS) if v < gone.ptx), default=(0, 0))
        if target in TARGETS and first <= last:
            found[target] = (first, last)
    return found


def by_assemblers(statement: str) -> dict[str, tuple[Version, Version]]:
    found = {}
    for target, said in zip(TARGETS, PROFILES[statement], strict=True):
        if said:
            first, _, last = said.partition("-")
            found[target] = version_of(first), version_of(last) if last else LAST.get(number_of(target), NEWEST_PTX)
    return found


@pytest.mark.parametrize("shard", range(SHARDS))
def test_forms_have_the_targets_and_versions_of_assemblers(shard: int) -> None:
    """No stricter and no laxer: of ptxas 11.7 to 13.5, the earliest release that takes a statement counts."""
    statements = [s for s in PROFILES if not is_known(s, OTHERWISE)]
    assert len(statements) > 3800
    some = statements[shard::SHARDS]
    assert {s: by_the_table(s) for s in some if by_the_table(s) != by_assemblers(s)} == {}


def test_boundary_cases_are_reported_as_requirements() -> None:
    for pattern in OTHERWISE:
        several = [statement for statement in PROFILES if re.match(pattern, statement)]
        assert several
        assert all(by_the_table(s) != by_assemblers(s) for s in several)


@pytest.mark.parametrize("target", ["75", "90a", "100f", "110a", "120a"])
def test_golden_has_what_todays_assembler_accepts(assemble: Assemble, target: str) -> None:
    out = refused(assemble, list(PROFILES), NEWEST, f"sm_{target}")
    taken = {s for s in PROFILES if s not in out}
    at = TARGETS.index(target)
    golden = {s for s, profile in PROFILES.items() if profile[at] and "-" not in profile[at]}
    # What an older release takes under a version of its own, it takes under no newer one.
    assert taken <= golden
    assert [
        s for s in golden - taken if not re.match(r"fma\.rn\.oob|fence\.(acquire|release)|cvt\..*ftz\.f32\.bf16", s)
    ] == []


@pytest.mark.parametrize("target", TARGETS)
def test_text_is_accepted_from_the_assemblers_version_on(target: str) -> None:
    """The checks that loads make, just before the boundary and at it."""
    rng, at = random.Random(target), TARGETS.index(target)
    several = rng.sample([s for s in PROFILES if not is_known(s, OTHERWISE)], times(12))
    for statement in several:
        said = PROFILES[statement][at]
        versions = [v for v in VERSIONS if FIRST[target] <= version_of(v) <= LAST.get(number_of(target), NEWEST_PTX)]
        first = VERSIONS.index(said.partition("-")[0]) if said else len(VERSIONS)
        for version in {versions[-1], *(v for v in VERSIONS[max(first - 1, 0) : first + 1] if v in versions)}:
            takes = said and VERSIONS.index(version) >= first and VERSIONS.index(version) <= (
                VERSIONS.index(said.partition("-")[2]) if "-" in said else len(VERSIONS))  # fmt: skip
            assert is_taken(module_text(statement, version_of(version), f"sm_{target}")) == bool(takes), (
                statement,
                version,
            )


def is_taken(text: str) -> bool:
    try:
        check_module(parse(text), text, "x")
    except PtxSyntaxError:
        return False
    return True


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
def test_removed_forms_are_refused_as_by_the_assembler(assemble: Assemble, statement: str) -> None:
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


def test_forms_older_than_assemblers_follow_the_manual() -> None:
    found: dict[tuple[Version, int], set[str]] = defaultdict(set)
    for row in rows():
        if row.ptx < LEAST:
            found[row.ptx, row.sm].add(row.opcode)
    assert len(found.pop(((1, 0), 10))) > 40
    assert found == {since: set(opcodes.split()) for since, opcodes in OLD.items()}
