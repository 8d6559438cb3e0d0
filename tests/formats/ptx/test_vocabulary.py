"""Whatever the assembler knows, the tables know: instructions, modifiers, special registers, directives and targets.

With a newer assembler, what it has more of is what fails here.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cujit.errors import PtxSyntaxError
from cujit.formats.ptx.concrete import concrete_forms
from cujit.formats.ptx.isa.later import open_words
from cujit.formats.ptx.isa.since import FIRST
from cujit.formats.ptx.isa.table import NEWEST_PTX, lookup, opcodes, rows
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.special_registers import SPECIAL_REGISTERS
from cujit.formats.ptx.syntax import Instruction
from cujit.toolchain.libraries import library_path
from sweeps import part
from toolkits import vocabulary
from toolkits.agreement import ONLY_THE_ASSEMBLER, is_known, refused
from toolkits.assembler import Assembler
from toolkits.minimal import minimal

VERSION, TARGET = "{}.{}".format(*NEWEST_PTX), "sm_107a"
# Words of instructions whose forms the table leaves open.
OPEN = {
    "ashift", "block16", "block32", "decompress::lut::b", "exclusive", "kind::ti16", "maxabs", "warpx2::01_23",
    "warpx2::02_13", "warpx4", "sync_restrict::shared::read::mma::a", "mbarrier::report::fabric", "multimem",
    "sync_restrict::reads", *(f"collector::a::{use}" for use in ("discard", "fill", "lastuse", "use")),
    *(f"collector::b{n}::{use}" for n in ("0", "1", "2", "3") for use in ("discard", "fill", "lastuse", "use")),
}  # fmt: skip
# Words that no manual has: of drafts, and of the functions that NVIDIA's libraries are made of.
UNDOCUMENTED = {
    "1d_buffer", "L2::no_allocate", "cond", "evict_first", "evict_last", "evict_normal", "evict_unchanged", "invall",
    "matrix::A", "matrix::D", "matrix::scaleA", "matrix::scaleB", "matrix::sparseMetadata", "multicast", "negA", "negB",
    "no_allocate", "no_membermask_overlap", "safeadd", "scratch", "sync_restrict::shared::cluster::read", "tex",
    "thread", "transA", "transB", "ue8m0x4",
}  # fmt: skip
# Words that the assembler takes, and passes over, in nearly any instruction.
IDLE = {
    "acc::f16", "acc::f32", "b2", "b4x16_p64", "b6p2x16", "b6x16_p32", "b8x16", "box_dim", "channel_data_type",
    "channel_order", "depth", "element_stride", "elemtype", "fill_mode", "finite", "global_address", "global_dim",
    "global_stride", "height", "infinite", "interleave_layout", "normal", "normalized_coords", "notanumber",
    "num_mipmap_levels", "num_samples", "number", "pred", "rank", "s2", "s8x4", "samplerref", "subnormal",
    "surfref", "swizzle_atomicity", "swizzle_mode", "texref", "width",
}  # fmt: skip
UNDOCUMENTED_NAMES = {"cctl", "cctlu", "mma.warpgroup", "wgmma.mma_async.warpgroup"}
UNDOCUMENTED_DIRECTIVES = {".local_maxnreg"}


@pytest.fixture(scope="module")
def assembler() -> Iterator[Assembler]:
    made = Assembler()
    yield made
    made.close()


@pytest.fixture(scope="module")
def complain(assembler: Assembler) -> vocabulary.Complain:
    return functools.partial(assembler.complain, arch=TARGET)


@functools.cache
def ends() -> frozenset[str]:
    path = library_path("nvJitLink")
    assert path is not None
    return frozenset(vocabulary.strings(Path(path)))


@functools.cache
def words_of_the_table() -> frozenset[str]:
    listed = {word for row in rows() for place in row.modifiers for word in place.choices}
    return frozenset(listed.union(*map(open_words, opcodes())))


def test_vocabulary_has_every_modifier(complain: vocabulary.Complain) -> None:
    words = {*vocabulary.modifiers(ends()), *vocabulary.made()} - words_of_the_table() - OPEN - UNDOCUMENTED
    statement = "add.{}.u32 %r1, %r2, %r3;"
    asked = [*part(sorted(words), 20), "ftz"]
    assert vocabulary.known(asked, statement, "Unknown modifier", complain, VERSION, TARGET) == ["ftz"]


def test_vocabulary_has_every_instruction(complain: vocabulary.Complain) -> None:
    asked = {name for name in vocabulary.names(ends()) if name.partition(".")[0] not in opcodes() | UNDOCUMENTED_NAMES}
    sampled = [*part(sorted(asked), 40), "clmad.lo"]
    found = vocabulary.known(sampled, "{} %r1;", "Not a name of any known", complain, VERSION, TARGET)
    assert found == ["clmad.lo"]


def test_vocabulary_has_every_special_register(complain: vocabulary.Complain) -> None:
    asked = [*vocabulary.registers(ends()), "%tid"]
    found = vocabulary.known(asked, "mov.b32 %r1, {};", "Unknown symbol", complain, VERSION, TARGET)
    assert len(found) > 50
    assert [name for name in found if name not in SPECIAL_REGISTERS] == []


def test_vocabulary_has_every_directive(complain: vocabulary.Complain) -> None:
    asked = part(sorted(vocabulary.directives(ends()) - UNDOCUMENTED_DIRECTIVES), 30)
    found = vocabulary.taken_directives([*asked, ".minperctamemory"], complain, VERSION, TARGET)
    assert [word for word in sorted(found) if not is_read(word)] == []
    assert ".minperctamemory" in found


def is_read(word: str) -> bool:
    """Whether the parser, too, goes on behind a directive in one of the places."""
    for text in vocabulary.with_directive(word, VERSION, TARGET):
        try:
            parse(text)
        except PtxSyntaxError as error:
            if f"found {word!r}" in str(error):
                continue
        return True
    return False


def test_vocabulary_has_every_target() -> None:
    found = vocabulary.targets(ends())
    assert "107a" in found
    assert found <= set(FIRST)


@pytest.mark.parametrize("target", ["sm_90a", "sm_107a", "sm_120a"])
def test_vocabulary_has_the_words_of_each_form(assembler: Assembler, target: str) -> None:
    """A word more in the plainest statement of each row: what the assembler takes of them has a row."""
    words = sorted((words_of_the_table() | OPEN) - IDLE)
    points = [(row, word) for row in rows() if not row.is_open for word in words if not word.startswith(("m64", "m16"))]
    statements = {s for row, word in part(points, 2000, target) if (s := with_word(row.form, word)) is not None}
    sampled = [s for s in sorted(statements) if not is_known(s, ONLY_THE_ASSEMBLER)]
    random.Random(0).shuffle(sampled)
    no = refused(sampled, VERSION, target, functools.partial(assembler.complain, arch=target))
    assert [s for s in sampled if s not in no and lookup(Instruction(*form_of(s))) is None] == []


def form_of(statement: str) -> tuple[str, tuple[str, ...]]:
    opcode, *modifiers = statement.split()[0].rstrip(";").split(".")
    return opcode, tuple(modifiers)


@functools.cache
def plainest(form: str) -> str | None:
    row = next(row for row in rows() if row.form == form)
    if row.opcode in ("bra", "brx", "call", "ret", "exit"):
        return None
    try:
        return minimal(row.opcode, next(iter(concrete_forms(row))))
    except (KeyError, IndexError, StopIteration, RuntimeError, ValueError):
        return None


def with_word(form: str, word: str) -> str | None:
    """Put a word before the last one of a statement; None if it is there, or if the operands are not known."""
    statement = plainest(form)
    if statement is None:
        return None
    opcode, words = form_of(statement)
    if word in words or not words:
        return None
    mnemonic = ".".join((opcode, *words[:-1], word, words[-1]))
    return mnemonic + statement[len(".".join((opcode, *words))) :]
