"""The order of an instruction's words: the table takes what the assembler takes, with each word in each place."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Iterator

import pytest

from cujit.formats.ptx.concrete import concrete_forms
from cujit.formats.ptx.isa.sets import TYPES
from cujit.formats.ptx.isa.table import lookup, rows
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.syntax import Instruction
from property.effort import times
from toolkits.agreement import refused
from toolkits.assembler import Assembler
from toolkits.minimal import minimal

TARGETS = ("sm_100a", "sm_90a", "sm_120a")
SEED = int(os.environ.get("CUJIT_SEED", "1"))
FORMS = times(1)
_CONTROL = ("bra", "brx", "call", "ret", "exit")


def _moved(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Give the words with one in another place, unless the types come in another order: another instruction then."""
    types = [word for word in words if word in TYPES]
    for k, word in enumerate(words):
        rest = (*words[:k], *words[k + 1 :])
        for at in range(len(words)):
            order = (*rest[:at], word, *rest[at:])
            if [word for word in order if word in TYPES] == types:
                yield order


def _statements(seed: int) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Make statements of every row of the table: each with the statement in the usual order, opcode and words."""
    rng = random.Random(seed)
    found: dict[str, tuple[str, str, tuple[str, ...]]] = {}
    for row in rows():
        if row.is_open or row.opcode in _CONTROL:
            continue
        forms = list(concrete_forms(row))
        for words in rng.sample(forms, min(len(forms), FORMS)):
            usual = minimal(row.opcode, words)
            if usual is not None:
                rest = usual.removeprefix(".".join((row.opcode, *words)))
                for order in (words, *_moved(words)):
                    found[".".join((row.opcode, *order)) + rest] = usual, row.opcode, order
    return found


def test_modifiers_are_accepted_in_the_assemblers_order() -> None:
    assembler = Assembler()
    statements = _statements(SEED)
    left, taken = list(statements), set()
    for target in TARGETS:
        complaints = refused(left, "9.5", target, functools.partial(assembler.complain, arch=target))
        taken |= set(left) - complaints.keys()
        left = list(complaints)
    assembler.close()
    wrong = []
    for statement, (usual, opcode, words) in statements.items():
        is_form = lookup(Instruction(opcode, words, ())) is not None
        if usual in taken and is_form != (statement in taken):
            wrong.append(f"{'refused' if statement in taken else 'taken'} here: {statement}")
    assert wrong == []
    assert len(taken) > 1000


@pytest.mark.parametrize(
    "order",
    [
        "2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes",
        "2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
        "shared::cluster.2d.L2::cache_hint.mbarrier::complete_tx::bytes.global",
    ],
)
def test_tensor_copy_accepts_the_modifiers_of_cutlass(order: str) -> None:
    mask = ", h" * ("multicast" in order) + ", d" * ("hint" in order)
    parse(f""".version 8.8\n.target sm_100a\n.address_size 64\n.entry k() {{ .reg .b32 r; .reg .b64 d; .reg .b16 h;
        cp.async.bulk.tensor.{order} [r], [d, {{r, r}}], [r]{mask}; }}""")
