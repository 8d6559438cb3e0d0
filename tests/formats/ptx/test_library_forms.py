"""Instructions that NVIDIA's libraries write by inline assembly: the table takes the order of words that they have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cujit.formats.ptx.isa.table import lookup
from cujit.formats.ptx.syntax import Instruction

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_NAME = re.compile(r"(?:@!?\S+\s+)?([a-z][a-z0-9]*)((?:\.[A-Za-z0-9_:]+)+)(?=[\s;]|$)")

# Words of forms that are newer than the manual that the table follows, PTX ISA 9.1.
_NEWER = re.compile(
    r"fabric|override::|\.L2::evict_|multicast::cluster::32b|valid_addr|fence\.(proxy\.)?alias\.|sync_restrict::"
    r"|layout::|phase_type::|mbarrier::report|complete_tx::16B"
)


def _headers() -> list[Path]:
    cuda = pytest.importorskip("nvidia.cu13", reason="the headers of libcu++ come with the wheels of CUDA 13")
    return sorted(Path(next(iter(cuda.__path__))).glob("include/cccl/cuda/__ptx/instructions/**/*.h"))


def _instructions(text: str) -> Iterator[str]:
    """List the mnemonics of the ``asm`` statements of a header."""
    for statement in re.findall(r"\basm\s*(?:volatile)?\s*\((.*?)\);", text, re.DOTALL):
        written = "".join(m[1] for m in _STRING.finditer(re.split(r"\n\s*:", statement)[0]))
        for each in re.split(r"\\n|\\t|;|\{|\}", written):
            found = _NAME.match(each.strip())
            if found and not each.strip().startswith((".", "%")):
                yield found[1] + found[2]


def _is_form(name: str) -> bool:
    opcode, *words = name.split(".")
    return lookup(Instruction(opcode, tuple(words))) is not None


def test_every_libcu_instruction_is_a_form_unless_newer() -> None:
    names = {name for path in _headers() for name in _instructions(path.read_text())}
    known = [name for name in names if not _NEWER.search(name)]
    assert [name for name in sorted(known) if not _is_form(name)] == []
    assert len(known) > 1000


CUTLASS = Path(__file__).parent / "cutlass_forms.txt"


def test_every_instruction_of_cutlass_is_a_form() -> None:
    names = [line for line in CUTLASS.read_text().splitlines() if not line.startswith("#")]
    assert [name for name in names if not _is_form(name)] == []
    assert len(names) > 300
