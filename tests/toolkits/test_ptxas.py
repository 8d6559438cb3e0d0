"""What the instruction table says of versions and architectures is what the assemblers of each release do.

The directories in ``CUJIT_TOOLKITS`` hold ``13.0/ptxas``, ``12.4/ptxas`` and so on; without them all of it is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cujit.arch import Arch
from cujit.arch.arch import KNOWN_ARCHES
from cujit.arch.support import Version, dotted
from cujit.errors import UnsupportedError
from cujit.formats.ptx.isa.since import Since
from cujit.formats.ptx.isa.table import lookup
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.retarget import retarget
from cujit.formats.ptx.syntax import Instruction
from cujit.formats.ptx.uses import construct_needs, together
from cujit.formats.ptx.versions import target_version
from cujit.program import compile
from raising import raises
from toolkits.agreement import ONLY_THE_ASSEMBLER, candidates, is_known, refused
from toolkits.conftest import CRASHED, PTX_OF
from toolkits.minimal import module_of

pytestmark = pytest.mark.toolkits

Ptxas = Callable[[Version, str, str], str]
GOLDEN = json.loads((Path(__file__).parents[1] / "goldens" / "boundaries.json").read_text())
OF_OLD_TEXTS = {
    r"mad\.(ftz\.|sat\.)?f32 ": "of PTX 1.0 to 1.3 by the manual",
    r".*shared::cluster": "ptxas 11.7 reads it as shared, also for targets without clusters",
}


def needed_by(statement: str) -> Since:
    """What the table says that a statement needs."""
    text = module_of([statement], "9.5", "sm_120")
    line = module_of(["MARK"], "9.5", "sm_120").splitlines().index("MARK") + 1
    return together(need for need in construct_needs(parse(text)) if need.line == line)


def knows(release: Version, target: str) -> bool:
    arch = Arch.parse(target)
    first = KNOWN_ARCHES[arch.number].first
    return release >= first and PTX_OF[release] >= (target_version(arch) or (99, 0))


@pytest.mark.parametrize("target", ["75", "80", "90a", "100", "100a", "120a"])
def test_forms_of_a_release_are_in_the_table_for_its_version(release: Version, ptxas: Ptxas, target: str) -> None:
    """Otherwise PTX would be refused that a driver takes; that it takes no more, the recorded boundaries hold."""
    version, name = PTX_OF[release], f"sm_{target}"
    if not knows(release, name):
        pytest.skip(f"ptxas {release} does not assemble for {name}")
    statements = [s for _, several in GOLDEN["profiles"] for s in several]

    def complain(text: str) -> str | None:
        complaint = ptxas(release, text, name)
        return None if complaint == CRASHED else complaint

    no = refused(statements, dotted(version), name, complain)
    taken = [s for s in statements if s not in no and not is_known(s, OF_OLD_TEXTS)]
    assert len(taken) > 1500
    assert [s for s in taken if (needed_by(s).of(target) or (99, 0)) > version] == []


@pytest.mark.parametrize("target", ["sm_75", "sm_90a", "sm_100a", "sm_120a"])
def test_accepted_forms_are_in_the_table(release: Version, ptxas: Ptxas, target: str) -> None:
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
def test_lowered_nvrtc_output_assembles(release: Version, ptxas: Ptxas, arch: str) -> None:
    source = (Path(__file__).parents[1] / "kernels" / "kernels.cu").read_text()
    real = str(Arch.parse(arch).real)
    ptx = compile(source, arch=arch).text
    if not knows(release, real):
        with raises(UnsupportedError, "unsupported", f".target {real}"):
            retarget(ptx, version=PTX_OF[release])
        return
    assert ptxas(release, retarget(ptx, version=PTX_OF[release]), real) == ""
