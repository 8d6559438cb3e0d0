"""Which blocks the same lanes pass, and which numbers count up from lane to lane."""

import random
import time
from dataclasses import replace

import pytest

from cujit.devices.cpu.analysis.dataflow import bits_of, control_equivalent, dominators, immediate_postdominators
from cujit.devices.cpu.analysis.uniformity import VARYING, analyse
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import prepare
from cujit.devices.shapes import Dim3
from cujit.formats.ptx.isa.semantics import form_of
from cujit.formats.ptx.parser import parse
from cujit.values import closure

HEAD = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k() { .reg .b32 t; .reg .pred p, q;\n"
BEGIN = "mov.u32 t, %tid.x; setp.lt.u32 p, t, 9; setp.lt.u32 q, t, 5;\n"


@pytest.mark.parametrize(
    ("text", "earlier", "behind"),
    [
        # 0 -> 1 or 2 -> 3
        ("@p bra A; add.u32 t, t, 1; bra B; A: add.u32 t, t, 2; B: ret;", [None, None, None, 0], [3, 3, 3, 4]),
        # the same inside one side of another branch
        (
            "@p bra B; @q bra A; add.u32 t, t, 1; A: add.u32 t, t, 2; B: ret;",
            [None, None, None, 1, 0], [4, 3, 3, 4, 5],
        ),
        # lanes part, and neither side ends
        ("@p bra A; B: bra B; A: bra A;", [None, None, None], [3, 3, 3]),
    ],
)  # fmt: skip
def test_blocks_that_the_same_lanes_pass_are_found(text: str, earlier: list[int | None], behind: list[int]) -> None:
    module = parse(f"{HEAD}{BEGIN}{text} }}")
    graph = prepare(module.entries[0], ModuleLayout(module, Refusals()), Refusals()).graph
    assert control_equivalent(graph) == earlier
    assert immediate_postdominators(graph) == behind


def test_unreached_blocks_have_no_dominator() -> None:
    order, parents = dominators([[2], [2], [3, 4], [4], []], 0)
    assert order[0] == 0
    assert sorted(order) == [0, 2, 3, 4]
    assert parents == [0, -1, 0, 2, 2]


def test_dominators_of_random_graphs_are_passed_on_every_way() -> None:
    draw = random.Random(5)
    for _ in range(300):
        count = draw.randint(1, 12)
        graph = [[draw.randrange(count) for _ in range(draw.randint(0, 3))] for _ in range(count)]

        def reached(graph: list[list[int]], without: int) -> set[int]:
            return closure({0} - {without}, lambda at: [s for s in graph[at] if s != without])

        everything = reached(graph, -1)
        passed = {node: {other for other in everything if node not in reached(graph, other)} for node in everything}
        order, parents = dominators(graph, 0)
        assert set(order) == everything
        for node in range(count):
            above = passed.get(node, set()) - {node}
            nearest = [other for other in above if passed[other] == above]  # every other one is passed before it
            assert parents[node] == (nearest[0] if nearest else 0 if node == 0 else -1)


def test_dominators_are_found_in_linear_time() -> None:
    def seconds(count: int) -> float:
        ladder = [[k + 1, count + k] for k in range(count)] + [[2 * count + t for t in range(20)]] * count + [[]] * 20
        begin = time.thread_time()
        dominators(ladder, 0)
        return time.thread_time() - begin

    least = min(seconds(300) for _ in range(3))
    assert any(seconds(2400) < 20 * least for _ in range(3))  # 8 where it is linear, 64 where it is the square


@pytest.mark.parametrize("text", ["add.u32 u, t, 3", "mad.lo.u32 u, t, 3, 1", "shl.b32 u, t, 2", "mov.u32 u, t"])
@pytest.mark.parametrize("word", ["", "sat", "cc", "new"])
def test_unknown_operation_clears_known_bits(text: str, word: str) -> None:
    module = parse(f"{HEAD}.reg .b32 u; mov.u32 t, %tid.x; {text}; ret; }}")
    prepared = prepare(module.entries[0], ModuleLayout(module, Refusals()), Refusals())
    block = prepared.graph.blocks[0]
    op = block.ops[1]
    block.ops[1] = replace(op, form=form_of(op.opcode, *([word] if word else []), *op.modifiers))
    shapes = analyse(prepared.program, prepared.graph, Dim3(64)).shapes
    assert (shapes[op.written[0].index] == VARYING) is bool(word)


POLL = "@p bra MEET; AGAIN: ld.volatile.u32 u, [a]; setp.eq.u32 q, u, 0; @q bra AGAIN; MEET:"


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        # 1 polls, 2 is the barrier, 3 is behind it
        (f"{POLL} barrier.sync 0; add.u32 t, t, 1;", [1, 2]),
        (f"{POLL} bar.red.popc.u32 t, 0, p; add.u32 t, t, 1;", [1, 2]),
        # another loop behind the barrier, and its own barrier
        (f"{POLL} bar.sync 0; L: ld.acquire.gpu.u32 u, [a]; setp.eq.u32 q, u, t; @q bra L; bar.sync 1;", [1, 2, 3, 4]),
        # round and round
        (f"mov.u32 k, 0; B: {POLL} bar.sync 0; add.u32 k, k, 1; setp.lt.u32 w, k, 9; @w bra B;", [2, 3]),
        # some wait at one barrier, some at another, or nowhere
        (f"{POLL} @q bra E; bar.sync 0; bra F; E: bar.sync 0; F: add.u32 t, t, 1;", [1, 2, 3, 4, 5, 6]),
        (f"{POLL} @q bar.sync 0; add.u32 t, t, 1;", [1, 2, 3]),
        # it opens though not all wait there
        (f"{POLL} barrier.sync 0; add.u32 t, t, 1; barrier.arrive 0, 64;", [1, 2, 3, 4]),
        (f"{POLL} barrier.sync 0, 64; add.u32 t, t, 1;", [1, 2, 3]),
        (f"{POLL} barrier.cluster.wait; add.u32 t, t, 1;", [1, 2, 3]),
    ],
)
def test_lanes_reconverge_after_their_only_barrier(text: str, apart: list[int]) -> None:
    head = f"{HEAD.replace('7.8', '8.0').replace('80', '90')}.reg .b32 u, k; .reg .b64 a; .reg .pred w;"
    module = parse(f"{head} {BEGIN}{text} ret; }}")
    prepared = prepare(module.entries[0], ModuleLayout(module, Refusals()), Refusals())
    found = analyse(prepared.program, prepared.graph, Dim3(64))
    assert bits_of(found.non_reconverging) == apart
    behind = [p for p in range(prepared.graph.exit) if p > max(apart)]
    assert not any(found.inactive[p] for p in behind)
