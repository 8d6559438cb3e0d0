"""Kernels in which nobody can go on: each must be an error that says who waits where, and never a hang."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from cujit.formats.ptx.parser import parse
from devices.cpu.launching import ptx_of
from processes import printed

pytestmark = pytest.mark.usefixtures("unoptimised")

RUN = """
from cujit import cpu, load
from cujit.errors import KernelFaultError
for name, (ptx, grid, block, threads) in {cases!r}.items():
    device = cpu(threads)
    out = device.zeros(4096, "u4")
    print("case", name, flush=True)
    try:
        load(ptx, device)["k"][grid, block](out)
    except KernelFaultError as e:
        print(e.kind, "|", e)
    else:
        print("it ended")
    load({good!r}, device)["k"][2, 64](out)
    print("alive", out.numpy()[127], flush=True)
"""

GOOD = ptx_of("bar.sync 0; st.global.u32 [at], 77;", 1)


def outcomes(
    bodies: Mapping[str, str], *, grid: int = 1, block: int = 64, threads: int = 1, **more: str
) -> dict[str, str]:
    """Run bodies one after the other in a process that must end; give what was said of each."""
    cases = {}
    for name, body in bodies.items():
        ptx = ptx_of(body, 1, outside=".shared .align 16 .b32 cells[256];", **more)
        parse(ptx)
        cases[name] = (ptx, grid, block, threads)
    _, *said = re.split(r"^case (\w+)\n", printed(RUN.format(cases=cases, good=GOOD)), flags=re.MULTILINE)
    found = dict(zip(said[::2], said[1::2], strict=True))
    assert found.keys() == cases.keys()
    assert [name for name, text in found.items() if "alive 77" not in text] == []
    return found


WAIT = "AGAIN: mbarrier.try_wait.parity.shared.b64 q3, [r1], 0; @!q3 bra AGAIN; st.global.u32 [at], 1;"
DEADLOCKS = {
    "a_warp_does_not_come": ("setp.eq.u32 q1, w, 1; @q1 bar.sync 1, 64;", "threads 32-63 at barrier 1, where 32 of 64"),
    "different_barriers": ("bar.sync w;", "threads 0-31 at barrier 0, where 32 of 64"),
    "too_large_a_count": ("bar.sync 2, 96;", "threads 0-63 at barrier 2, where 64 of 96"),
    "one_time_more": (
        "mov.u32 r1, w; AGAIN: bar.sync 0, 64; sub.u32 r1, r1, 1; setp.eq.u32 q1, r1, 0; @q1 bra AGAIN;",
        "threads 32-63 at barrier 0",
    ),
    "lanes_at_two_barriers": (
        "setp.lt.u32 q1, lane, 5; @q1 bra A; barrier.sync 1; bra B; A: barrier.sync 2; B: st.global.u32 [at], 1;",
        "every remaining thread is waiting",
    ),
    "some_lanes_at_a_shuffle": (
        """setp.lt.u32 q1, lane, 9; @q1 bra A; barrier.sync 1; bra B;
        A: shfl.sync.idx.b32 r1, t, 3, 0x1f, -1; B: st.global.u32 [at], r1;""",
        "every remaining thread is waiting",
    ),
    "lanes_that_waited_for_some_that_went_on": (
        """setp.lt.u32 q1, lane, 16; @!q1 bra A; barrier.sync 1, 32;
        A: bar.warp.sync -1; barrier.sync 2, 96; st.global.u32 [at], 1;""",
        "threads 0-63 at barrier 2, where 64 of 96",
    ),
    "nobody_arrives": (
        f"mov.u32 r1, cells; mbarrier.init.shared.b64 [r1], 2; bar.sync 0; {WAIT}",
        "warps 0-1 at the mbarrier at byte 0 of shared memory, whose phase 0 lacks 2 arrivals: PTX line",
    ),
    "too_few_bytes": (
        f"""mov.u32 r1, cells; mbarrier.init.shared.b64 [r1], 1; bar.sync 0; setp.ne.u32 q1, t, 0; @q1 bra W;
        mbarrier.arrive.expect_tx.shared.b64 _, [r1], 48; mbarrier.complete_tx.shared::cta.b64 [r1], 32;
        W: {WAIT}""",
        "whose phase 0 lacks 16 bytes: PTX line",
    ),
    "one_warp_at_a_barrier": (
        f"""mov.u32 r1, cells; mbarrier.init.shared.b64 [r1], 1; setp.eq.u32 q1, w, 0; @q1 bra B;
        {WAIT} B: bar.sync 0;""",
        "warp 1 at the mbarrier at byte 0",
    ),
    "nobody_consumes": (
        "setp.eq.u32 q1, w, 0; @q1 bar.arrive 1, 64; @!q1 bar.sync 2, 64;",
        "threads 32-63 at barrier 2",
    ),
}


@pytest.mark.parametrize("blocks", [1, 9])
def test_threads_that_wait_for_nothing_are_named(blocks: int) -> None:
    found = outcomes(
        {name: body for name, (body, _) in DEADLOCKS.items()}, grid=blocks, threads=1 if blocks == 1 else 3
    )
    for name, text in found.items():
        assert text.startswith("deadlock | kernel k, block"), name
        assert DEADLOCKS[name][1] in text
        assert "PTX line" in text, name
        assert ("with the lanes of mask" in text) == (name == "some_lanes_at_a_shuffle"), name


def test_grid_waiting_at_a_barrier_and_for_blocks_is_reported() -> None:
    # Block 0 waits for a thread of its own that waits for the whole cluster, of which block 1 has no such barrier.
    body = """setp.eq.u32 q1, b, 0; @q1 bra FIRST; bar.sync 0; bar.sync 1, 96; bra END;
    FIRST: barrier.cluster.arrive; barrier.cluster.wait; END: st.global.u32 [at], 1;"""
    text = outcomes({"grid": body}, grid=2, directives=".reqnctapercluster 2, 1, 1")["grid"]
    assert text.startswith("deadlock |")
    assert "at barrier 1, where 64 of 96" in text


APART = {
    "two_shuffles": "shfl.sync.bfly.b32 r1, t, 1, 0x1f, -1;|shfl.sync.idx.b32 r1, t, 0, 0x1f, -1;",
    "two_votes": "vote.sync.any.pred q2, q1, -1;|vote.sync.all.pred q2, q1, -1;",
    "a_shuffle_and_a_vote": "shfl.sync.bfly.b32 r1, t, 1, 0x1f, -1;|vote.sync.any.pred q2, q1, -1;",
    "one_reduction_of_two_masks": "redux.sync.add.u32 r1, t, -1;|redux.sync.add.u32 r1, t, 0x7fffffff;",
    "two_masks_of_registers": "not.b32 r2, w; redux.sync.add.u32 r1, t, r2;"
    "|add.u32 r2, w, 0x7fffffff; redux.sync.add.u32 r1, t, r2;",
    "a_shuffle_and_a_meeting": "shfl.sync.bfly.b32 r1, t, 1, 0x1f, -1;|bar.warp.sync -1;",
    "nothing": "match.any.sync.b32 r1, t, -1;|AGAIN: ld.volatile.global.u32 r2, [p0]; setp.eq.u32 q3, r2, 1;"
    " @q3 bra AGAIN; redux.sync.add.u32 r1, t, 0xffff0000;",
}


def test_lanes_waiting_at_different_operations_are_reported() -> None:
    bodies = {}
    for name, both in APART.items():
        one, other = both.split("|")
        bodies[name] = f"""mov.u32 r1, 0; setp.lt.u32 q1, lane, 11; @q1 bra A; {one} bra B;
        A: {other} B: st.global.u32 [at], r1;"""
    for name, text in outcomes(bodies, block=40).items():
        assert text.startswith("lanes_apart | kernel k, block (0, 0, 0)"), name
        assert "PTX line" in text, name
        assert "threads 11-31, with the lanes of mask 0xffffffff" in text, name
        assert name == "nothing" or "threads 0-10, with the lanes of mask" in text
