"""What the instruction table says of versions and architectures is what the assemblers of each release do.

The directories in ``CUJIT_TOOLKITS`` hold ``13.0/ptxas``, ``12.4/ptxas`` and so on; without them all of it is skipped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from cujit.arch import Arch
from cujit.arch.arch import KNOWN_ARCHES
from cujit.arch.support import Version
from cujit.errors import UnsupportedError
from cujit.formats.ptx.isa.table import lookup
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.retarget import retarget
from cujit.formats.ptx.syntax import Instruction
from cujit.formats.ptx.uses import Need, construct_needs
from cujit.formats.ptx.versions import target_version
from cujit.program import compile
from toolkits.agreement import ONLY_THE_ASSEMBLER, candidates, is_known, refused
from toolkits.conftest import CRASHED, INSTALLED, PTX_OF
from toolkits.statements import DECLARATIONS, STATEMENTS, module_text, statements_of_the_table

pytestmark = pytest.mark.toolkits

Ptxas = Callable[[Version, str, str], str]
NEWEST = max((v for v in INSTALLED if v in PTX_OF), default=(13, 4))
# Taken by ptxas before the version that it later says they came with.
EARLIER_THAN_SAID = ("fma.rn.oob", "shared::cta", '"enable_smem_spilling"', "cvt.rn.satfinite.e2m1x2.f16x2")
ARCHES = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a", "sm_103a"]
ARCHES += ["sm_120", "sm_120f", "sm_120a"]


@functools.cache
def lines() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*statements_of_the_table(), *STATEMENTS, *DECLARATIONS)))


@functools.cache
def needs_of(line: str) -> tuple[Need, ...]:
    return tuple(construct_needs(parse(module_text(line, PTX_OF[NEWEST], "sm_121"))))


@functools.cache
def least(line: str) -> tuple[Version, str] | None:
    """The version and the target of the list that a line needs by the table; None if it is not in the table."""
    needs = needs_of(line)
    if not all(need.is_known for need in needs):
        return None
    sm = max((need.sm for need in needs), default=10)
    suffixes = "".join(need.suffix for need in needs)
    for name in ARCHES:
        arch = Arch.parse(name)
        strong = {"": "", "f": "af", "a": "a"}[min(suffixes, default="")]
        if arch.number >= sm and (not strong or (arch.suffix and arch.suffix in strong)):
            if sm == 120 and suffixes and arch.number != 120:
                continue
            if sm in (100, 103) and suffixes and arch.number not in (100, 103):
                continue
            version = max([need.ptx for need in needs] + [target_version(arch) or (1, 0), (6, 3)])
            return version, name
    return None


def knows(release: Version, target: str) -> bool:
    arch = Arch.parse(target)
    first = KNOWN_ARCHES[arch.number].first
    return release >= first and PTX_OF[release] >= (target_version(arch) or (99, 0))


@pytest.fixture(scope="module")
def assembled() -> dict[str, bool]:
    """Which lines the newest assembler takes at all; the others have operands that do not go together."""
    return {}


def is_good(line: str, assembled: dict[str, bool], ptxas: Ptxas) -> bool:
    if line not in assembled:
        found = least(line)
        assembled[line] = found is not None and not ptxas(NEWEST, module_text(line, PTX_OF[NEWEST], found[1]), found[1])
    return assembled[line]


def test_what_the_table_allows_assembles(release: Version, ptxas: Ptxas, assembled: dict[str, bool]) -> None:
    """The promise that a lowered ``.version`` rests on."""
    wrong = []
    for line in lines():
        found = least(line)
        if found is None or found[0] > PTX_OF[release] or found[0] < (7, 0) or not knows(release, found[1]):
            continue
        complaint = ptxas(release, module_text(line, *found), found[1]) if is_good(line, assembled, ptxas) else ""
        if complaint not in ("", CRASHED):
            wrong.append(f"{line} {found}: {complaint.splitlines()[0]}")
    assert wrong == []


def test_what_the_table_forbids_does_not_assemble(release: Version, ptxas: Ptxas, assembled: dict[str, bool]) -> None:
    """Otherwise PTX would be refused that a driver takes."""
    wrong = []
    for line in lines():
        found = least(line)
        version = PTX_OF[release]
        if found is None or found[0] <= version or not knows(release, found[1]):
            continue
        if any(word in line for word in EARLIER_THAN_SAID) or not is_good(line, assembled, ptxas):
            continue
        if not ptxas(release, module_text(line, version, found[1]), found[1]):
            wrong.append(f"{line}: {found[0]}")
    # The table is stricter in one: the size of a source and a predicate look the same to it.
    assert [line for line in wrong if not line.startswith("cp.async.ca.shared.global [s], [%rd1], 4, %r1;")] == []


@pytest.mark.parametrize("target", ["sm_75", "sm_90a", "sm_100a", "sm_120a"])
def test_what_it_takes_is_in_the_table(release: Version, ptxas: Ptxas, target: str) -> None:
    """Otherwise PTX is called wrong that a driver takes; what of the table it refuses, the tests above ask."""
    if not knows(release, target) or release < (12, 3):  # older ones die of what is no instruction
        pytest.skip(f"ptxas {release} does not assemble for {target}")
    sampled = candidates(seed=7, per_row=6, near_per_row=12)

    def complain(text: str) -> str | None:
        complaint = ptxas(release, text, target)
        return None if complaint == CRASHED else complaint

    complaints = refused(list(sampled), ".".join(map(str, PTX_OF[release])), target, complain)
    taken = {s: form for s, form in sampled.items() if s not in complaints and not is_known(s, ONLY_THE_ASSEMBLER)}
    assert [s for s, (opcode, words) in taken.items() if lookup(Instruction(opcode, words)) is None] == []


@pytest.mark.parametrize(
    "arch", ["compute_75", "compute_80", "compute_90", "compute_90a", "compute_100", "compute_120"]
)
def test_what_nvrtc_writes_assembles_once_it_is_lowered(release: Version, ptxas: Ptxas, arch: str) -> None:
    source = (Path(__file__).parents[1] / "kernels" / "kernels.cu").read_text()
    real = str(Arch.parse(arch).real)
    ptx = compile(source, arch=arch).text
    if not knows(release, real):
        with pytest.raises(UnsupportedError, match=rf"\.target {real} came with PTX"):
            retarget(ptx, version=PTX_OF[release])
        return
    assert ptxas(release, retarget(ptx, version=PTX_OF[release]), real) == ""
