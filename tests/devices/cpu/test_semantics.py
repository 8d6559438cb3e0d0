"""The table of what operations mean, held to the instruction table and to statements that the assembler takes."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator

import pytest

from cujit.devices.cpu.control.rules import all_rules
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.frontend.operands import fits
from cujit.devices.cpu.ir.program import Op
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import prepare
from cujit.formats.ptx.concrete import concrete_forms
from cujit.formats.ptx.isa import semantics
from cujit.formats.ptx.isa import table as isa
from cujit.formats.ptx.isa.semantics import ANYTHING, TABLE, UNKNOWN, Effect, Form, Lanes, Order, form_of
from cujit.formats.ptx.parser import parse
from toolkits.minimal import minimal, module_of


def forms() -> Iterator[Form]:
    """Every form of the instruction table; of rows whose forms it does not know, the opcode."""
    for row in isa.rows():
        yield from (form_of(row.opcode, *words) for words in ([()] if row.is_open else concrete_forms(row)))


def opcodes_of(row: semantics.Meaning) -> list[str]:
    return row.form.split()[0].split("|")


def test_instruction_forms_and_meanings_correspond() -> None:
    met = {form.meaning for form in forms()}
    assert UNKNOWN not in met
    own = {row for row in TABLE if not isa.opcodes().intersection(opcodes_of(row))}
    assert [row.form for row in TABLE if row not in met | own] == []
    assert all("." in opcode or opcode == "label" for row in own for opcode in opcodes_of(row))


def test_every_word_of_a_meaning_belongs_to_an_opcode() -> None:
    known: dict[str, set[str]] = {}
    for form in isa.rows():
        known.setdefault(form.opcode, set()).update(*(place.choices for place in form.modifiers))
    for row in TABLE:
        for words in row.words:
            assert all(words & known[opcode] for opcode in opcodes_of(row)), row.form
            assert all(any(word in known[opcode] for opcode in opcodes_of(row)) for word in words), row.form


def test_every_rule_has_a_meaning() -> None:
    known = {opcode for row in TABLE for opcode in opcodes_of(row)}
    assert set(all_rules().opcodes()) <= known


def test_most_specific_rule_is_unique_and_each_has_a_form() -> None:
    rules = all_rules()
    unmet = {rule.form for opcode in rules.opcodes() if opcode in isa.opcodes() for rule in rules.rules_of(opcode)}
    for form in forms():
        taking = [rule for rule in rules.rules_of(form.opcode) if rule.takes(form)]
        most = max((rule.weight for rule in taking), default=0)
        assert sum(rule.weight == most for rule in taking) <= 1, (form.opcode, form.modifiers)
        unmet.difference_update(rule.form for rule in taking[:1])
    assert not unmet


def test_opcode_without_a_meaning_ends_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "opcodes", lambda: frozenset({"add", "frobnicate"}))
    with pytest.raises(LookupError, match="have no semantics: frobnicate"):
        runpy.run_path(semantics.__file__, run_name="semantics_again")


def test_statements_read_and_write_what_the_table_says() -> None:
    statements: dict[tuple[str, int], str] = {}
    for number, row in enumerate(isa.rows()):
        for words in concrete_forms(row):
            key = (form_of(row.opcode, *words).meaning.form, number)
            text = minimal(row.opcode, words) if key not in statements else None
            if text is not None:
                statements[key] = text
    module = parse(module_of(list(statements.values()), "9.5", "sm_100a"), name="x")
    refusals = Refusals()
    body = prepare(module.entries[0], ModuleLayout(module, refusals), refusals)
    assert [why for _, _, why, _ in refusals.mistakes if "operand" in why] == []
    assert len(statements) > 600
    told = [
        op for op in body.program.ops if op.form.meaning.reads != ANYTHING and op.form.meaning.effect != Effect.CONTROLS
    ]
    assert [op.name for op in told if not fits(op) or bool(op.results) != op.form.has_result] == []


@pytest.mark.parametrize(
    ("mnemonic", "effect", "lanes"),
    [
        ("add.f32", Effect.PURE, Lanes.EACH),
        ("ld.global.u32", Effect.READS, Lanes.EACH),
        ("st.async.mbarrier::complete_tx::bytes.b32", Effect.WRITES, Lanes.EACH),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u64", Effect.UPDATES, Lanes.EACH),
        ("atom.add.u32", Effect.UPDATES, Lanes.OWN),
        ("fence.acq_rel.gpu", Effect.ORDERS, Lanes.EACH),
        ("shfl.sync.idx.b32", Effect.PURE, Lanes.MEMBERS),
        ("shfl.idx.b32", Effect.PURE, Lanes.OWN),
        ("ldmatrix.sync.aligned.m8n8.x1.b16", Effect.READS, Lanes.WARP),
        ("bar.arrive", Effect.ARRIVES, Lanes.BLOCK),
        ("bar.warp.sync", Effect.SYNCHRONISES, Lanes.MEMBERS),
        ("barrier.cluster.wait", Effect.SYNCHRONISES, Lanes.CLUSTER),
        ("wgmma.fence.sync.aligned", Effect.SYNCHRONISES, Lanes.WARPGROUP),
        ("setmaxnreg.inc.sync.aligned.u32", Effect.SIGNALS, Lanes.WARP),
        ("bra.uni", Effect.CONTROLS, Lanes.EACH),
        ("nanosleep.u32", Effect.SIGNALS, Lanes.EACH),
    ],
)
def test_effect_and_lanes(mnemonic: str, effect: Effect, lanes: Lanes) -> None:
    meaning = form_of(*mnemonic.split(".")).meaning
    assert (meaning.effect, meaning.lanes) == (effect, lanes)


def test_form_has_its_modifiers_as_fields() -> None:
    form = form_of("atom", "acq_rel", "gpu", "shared::cluster", "add", "noftz", "v4", "f16x2")
    assert (form.order, form.scope, form.space, form.vector) == (Order.ACQ_REL, "gpu", "cluster", 4)
    assert (form.types, form.words) == (("f16x2",), ("acq_rel", "gpu", "shared::cluster", "add", "noftz", "v4"))
    copy = form_of("cp", "async", "bulk", "global", "shared::cta", "bulk_group")
    assert (copy.spaces, copy.space, copy.order, copy.scope) == (("global", "shared"), "global", Order.WEAK, "")
    assert Op(form_of("ld", "mmio", "relaxed", "sys", "u32")).order is Order.RELAXED


_FRAGMENTS = "{%r1, %r2}, {%r3, %r4}, {%r5, %r6}, {%r7, %r8}"
# Source: the assembler of CUDA 13.5 takes and refuses these.
_NUMBERS: list[tuple[str, list[int], list[int]]] = [
    ("setmaxnreg.inc.sync.aligned.u32 N", [24, 32, 256], [16, 23, 25, 264]),
    ("pmevent.mask N", [0, 65535], [65536]),
    ("pmevent N", [0, 15], [16]),
    ("bfe.u32 %r1, %r2, N, 1", [0, 255], [256]),
    ("bfe.u32 %r1, %r2, 1, N", [0, 255], [256]),
    ("bfi.b32 %r1, %r2, %r3, N, 1", [0, 255], [256]),
    ("bfi.b32 %r1, %r2, %r3, 1, N", [0, 255], [256]),
    ("st.bulk.weak.shared::cta [s], N, 0", [0, 8, 16], [1, 4, 9, 12]),
    ("st.bulk.weak.shared::cta [s], 8, N", [0], [1]),
    ("cp.async.ca.shared.global [s], [a], N", [4, 8, 16], [0, 5, 9, 12, 17, 32]),
    ("cp.async.ca.shared.global [s], [a], 16, N", [0, 1, 16], [17]),
    ("cp.async.cg.shared.global [s], [a], N", [16], [4, 8, 15, 17, 32]),
    ("cp.async.cg.shared.global [s], [a], 16, N", [0, 1, 16], [17]),
    (
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [a], [s], N",
        [128],
        [0, 64, 127, 129],
    ),
    ("fence.proxy.tensormap::generic.acquire.gpu [a], N", [128], [0, 64, 127, 129]),
    ("tensormap.replace.tile.box_dim.global.b1024.b32 [a], N, %r1", [0, 1, 4], [5]),
    (f"mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {_FRAGMENTS}, %r9, N", [0, 1, 3], [4]),
    ("bar.sync N", [0, 15], [16]),
    ("bar.sync 0, N", [0, 32, 64], [1, 31, 33]),
    ("bar.arrive N, 32", [0, 15], [16]),
    ("bar.arrive 0, N", [32, 64], [0, 1, 33]),
    ("mbarrier.init.shared.b64 [mb], N", [1, 2, (1 << 20) - 1], [0, 1 << 20]),
    ("mbarrier.arrive.noComplete.shared.b64 %rd1, [mb], N", [1, 2, 1 << 20], [0, -1]),
    ("wgmma.wait_group.sync.aligned N", [0, 7, 1 << 31], [-1]),
]


def test_immediates_are_accepted_as_by_an_assembler() -> None:
    def refused(numbers: list[tuple[str, int]]) -> list[str]:
        lines = [re.sub(r"\bN\b", str(n), f"{statement};") for statement, n in numbers]
        module = parse(module_of(lines, "9.5", "sm_100a"), name="x")
        refusals = Refusals()
        prepare(module.entries[0], ModuleLayout(module, refusals), refusals)
        return sorted(why for _, _, why, _ in refusals.mistakes)

    taken = [(statement, n) for statement, right, _ in _NUMBERS for n in right]
    others = [(statement, n) for statement, _, wrong in _NUMBERS for n in wrong]
    assert refused(taken) == []
    assert refused(others) == sorted(f"{n} is not a number that may stand there" for _, n in others)
