"""One lane polls while the rest of its warp waits: whatever it polls and they wait for, the launch ends.

Since Volta a lane that polls makes progress whatever the others of its warp wait for, and they whatever it polls.
Source: CUDA C++ Programming Guide, "Independent Thread Scheduling".

    lane 0 of warp 0 polls          POLLS: the loop, how a thread of the block ends it, how one of another block does
    lanes 1-31 of it wait           JOINT: lane 0 comes later; ALONE: without it, and one of them may end its loop
    another ends the loop           "warp", another of the block; "late", the same after a while; "block", another of
                                    the cluster; "rest", one of those that waited; "copy", a bulk copy
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from cujit.loading import load
from instructions.scene import entry
from sweeps import part

pytestmark = pytest.mark.usefixtures("unoptimised")

# r1: the mbarrier that is polled, r2: another, r3: the flag in shared memory, r4 and r6: the mbarrier and the flag as
# the other block of the cluster names them; p1: two words of global memory.
_ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [r1];"
_ARRIVE_FAR = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r4];"
_SHARED = ("st.release.cta.shared.u32 [r3], 1;", "st.release.cluster.shared::cluster.u32 [r6], 1;")
_GLOBAL = ("st.release.gpu.global.u32 [p1], 1;",) * 2


def _loop(read: str) -> str:
    return f"AGAIN: {read} setp.eq.u32 q, r5, 0; @q bra AGAIN;"


POLLS = {
    "try_wait.parity": ("AGAIN: mbarrier.try_wait.parity.shared.b64 q, [r1], 0; @!q bra AGAIN;", _ARRIVE, _ARRIVE_FAR),
    "test_wait.parity": (
        "AGAIN: mbarrier.test_wait.parity.shared.b64 q, [r1], 0; @!q bra AGAIN;", _ARRIVE, _ARRIVE_FAR,
    ),
    "try_wait.hint": (
        "AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 q, [r1], 0, 1000; @!q bra AGAIN;",
        _ARRIVE, _ARRIVE_FAR,
    ),
    "try_wait.state": (
        "AGAIN: mbarrier.try_wait.shared.b64 q, [r1], state; @!q bra AGAIN;",
        _ARRIVE, _ARRIVE_FAR,
    ),
    "try_wait.sleep": (
        "AGAIN: mbarrier.try_wait.parity.shared.b64 q, [r1], 0; @q bra OUT; nanosleep.u32 20; bra AGAIN; OUT:",
        _ARRIVE, _ARRIVE_FAR,
    ),
    "ld.volatile.shared": (_loop("ld.volatile.shared.u32 r5, [r3];"), *_SHARED),
    "ld.acquire.shared": (_loop("ld.acquire.cluster.shared.u32 r5, [r3];"), *_SHARED),
    "ld.generic": (
        "cvt.u64.u32 d, r3; cvta.shared.u64 d, d;" + _loop("ld.relaxed.gpu.u32 r5, [d];"), *_SHARED,
    ),
    "ld.volatile.global": (_loop("ld.volatile.global.u32 r5, [p1];"), *_GLOBAL),
    "ld.acquire.global": (_loop("ld.acquire.gpu.global.u32 r5, [p1];"), *_GLOBAL),
    "atom.shared": (_loop("atom.acquire.cluster.shared.or.b32 r5, [r3], 0;"), *_SHARED),
    "atom.global": (_loop("atom.acquire.gpu.global.cas.b32 r5, [p1], 7, 7;"), *_GLOBAL),
    "atom.sleep": (
        "AGAIN: nanosleep.u32 20; atom.acquire.gpu.global.add.u32 r5, [p1], 0; setp.eq.u32 q, r5, 0; @q bra AGAIN;",
        *_GLOBAL,
    ),
}  # fmt: skip

# What all lanes of warp 0 come to, lane 0 behind its loop; and what the other warps of both blocks do for that.
JOINT = {
    "barrier": ("barrier.sync 0;", "barrier.sync 0;"),
    "barrier.count": ("barrier.sync 3, 64;", "@two barrier.sync 3, 64;"),
    "barrier.red": ("barrier.red.popc.u32 r7, 1, one;", "barrier.red.popc.u32 r7, 1, one;"),
    "warp": ("bar.warp.sync -1;", ""),
    "shfl": ("shfl.sync.idx.b32 r7, lane, 3, 0x1f, -1;", ""),
    "vote": ("vote.sync.all.pred q2, one, -1;", ""),
    "match": ("match.any.sync.b32 r7, lane, -1;", ""),
    "redux": ("redux.sync.add.u32 r7, lane, -1;", ""),
    "elect": ("elect.sync r7|q2, -1;", ""),
    "cluster": ("barrier.cluster.arrive; barrier.cluster.wait;", "barrier.cluster.arrive; barrier.cluster.wait;"),
    "mbarrier": (
        "@!first bra NEXT; mbarrier.arrive.shared::cta.b64 _, [r2];"
        "NEXT: mbarrier.try_wait.parity.shared.b64 q2, [r2], 0; @!q2 bra NEXT;",
        "",
    ),
    "wgmma": ("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned;"),
    "setmaxnreg": ("setmaxnreg.inc.sync.aligned.u32 40;", "setmaxnreg.inc.sync.aligned.u32 40;"),
    "cp.async": ("cp.async.wait_all;", ""),
}  # fmt: skip

# What lanes 1 to 31 do, and never lane 0.
ALONE = {
    "warp": "bar.warp.sync 0xfffffffe;",
    "shfl": "shfl.sync.idx.b32 r7, lane, 3, 0x1f, 0xfffffffe;",
    "redux": "redux.sync.add.u32 r7, lane, 0xfffffffe;",
    "mbarrier": "mbarrier.arrive.shared::cta.b64 _, [r2], 1;"
    "NEXT: mbarrier.test_wait.parity.shared.b64 q2, [r2], 0; @!q2 bra NEXT;",
    "nanosleep": "nanosleep.u32 100;",
    "turns": "mov.u32 r7, 0; NEXT: bar.warp.sync 0xfffffffe; add.u32 r7, r7, 1; setp.lt.u32 q2, r7, 70; @q2 bra NEXT;",
    "exit": "",
}

_BEGIN = """.reg .b32 t, lane, w, b, r<12>; .reg .b64 d, at, state;
.reg .pred q, q2, first, one, two, near, poller, ends, again;
mov.u32 t, %tid.x; mov.u32 lane, %laneid; shr.u32 w, t, 5; mov.u32 b, %cluster_ctarank;
mov.u32 r1, cells; add.u32 r2, r1, 8; add.u32 r3, r1, 16;
mapa.shared::cluster.u32 r4, r1, 0; mapa.shared::cluster.u32 r6, r3, 0;
setp.eq.u32 first, lane, 0; setp.eq.u32 near, b, 0; setp.eq.u32 one, 0, 0; setp.lt.u32 two, w, 2;
setp.ne.u32 q, t, 0; @q bra READY;
mbarrier.init.shared.b64 [r1], 1; ld.shared.b64 state, [r1]; mbarrier.init.shared.b64 [r2], COUNT;
 st.shared.u32 [r3], 0;
fence.mbarrier_init.release.cluster;
READY: barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
setp.eq.and.u32 poller, w, 0, near;
"""
_END = """barrier.cluster.arrive; barrier.cluster.wait;
mad.lo.u32 r8, b, 128, t; mad.wide.u32 at, r8, 4, p0; st.global.u32 [at], 1;"""
_LATE = "mov.u32 r8, 0; LATE: nanosleep.u32 50; add.u32 r8, r8, 1; setp.lt.u32 again, r8, 300; @again bra LATE;"
_COPY = """mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [r1], 16; add.u32 r8, r3, 16;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r8], [p1], 16, [r1]; """


def _ender(poll: str, who: str) -> str:
    """Write what ends the loop of lane 0, for lane 0 of warp 1 of the block or of a warp of the other block."""
    near, far = POLLS[poll][1:]
    body = {"block": far, "copy": _COPY + near, "late": _LATE + near}.get(who, near)
    rank, warp = (1, 0) if who == "block" else (0, 1)
    if who in ("rest", "nobody"):
        return ""
    return f"""setp.eq.u32 ends, b, {rank}; setp.eq.and.u32 ends, w, {warp}, ends; setp.eq.and.u32 ends, lane, 0, ends;
    @!ends bra ENDED; {body} ENDED: """


def joint(poll: str, wait: str, who: str) -> str:
    """Write a kernel in which lane 0 comes to where the rest of its warp waits when its loop has ended."""
    here, others = JOINT[wait]
    body = f"""@!poller bra OTHERS; @!first bra REST; {POLLS[poll][0]} REST: {here} bra ALL;
    OTHERS: {_ender(poll, who)} {others.replace("NEXT", "THERE")} ALL: """
    return _kernel(body, 1)


def alone(poll: str, wait: str, who: str, *, behind: bool) -> str:
    """Write a kernel in which the rest of a warp waits for itself; its code is before or ``behind`` that of lane 0."""
    rest = ALONE[wait]
    if who == "rest":
        rest += f"setp.eq.u32 q2, lane, 9; @!q2 bra GONE; {POLLS[poll][1]} GONE: "
    rest += "exit;" if wait == "exit" else "bra ALL;"
    own = f"{POLLS[poll][0]} bra ALL;"
    ways = f"@!first bra REST; {own} REST: {rest}" if behind else f"@first bra FIRST; {rest} FIRST: {own}"
    return _kernel(f"@!poller bra OTHERS; {ways} OTHERS: {_ender(poll, who)} ALL: ", 31)


def _kernel(body: str, count: int) -> str:
    text = (_BEGIN.replace("COUNT", str(count)) + body + _END).replace("; ", ";\n")
    return entry(text, 2, target="sm_90a", version="8.6", outside=".shared .align 16 .b32 cells[64];",
                 directives=".maxntid 128, 1, 1 .reqnctapercluster 2, 1, 1")  # fmt: skip


def run(ptx: str, device: Device) -> list[int]:
    """Launch a kernel; give the words of the threads that came to the end."""
    out, flag = device.zeros(256, np.uint32), device.zeros(64, np.uint32)
    kernel = load(ptx, device)["k"]
    kernel.compile(128)  # which the limit is not for
    kernel.prepare(2, 128, timeout_s=10)(out, flag)
    return [int(k) for k in np.flatnonzero(out.numpy() == 0)]


def every_case() -> dict[str, str]:
    """Write all kernels, by name."""
    found: dict[str, str] = {}
    for poll in POLLS:
        enders = ["warp", "late", "block", *["copy"] * ("wait" in poll)]
        for wait in JOINT:
            found |= {f"{poll} {wait} {who}": joint(poll, wait, who) for who in enders}
        for wait in ALONE:
            for who in ("rest", *enders):
                for behind in (False, True):
                    name = f"{poll} alone {wait} {who} {'behind' if behind else 'before'}"
                    found[name] = alone(poll, wait, who, behind=behind)
    return found


_CASES = every_case()
WAYS: dict[str, tuple[dict[str, Any], int]] = {
    "default": ({"threads": 1}, 40),
    "threads": ({"threads": 3}, 120),
    "checks": ({"check": "all"}, 120),
    "checks and a schedule": ({"check": "all", "schedule": 3}, 240),
    **{f"schedule {seed}": ({"schedule": seed}, 240) for seed in range(1, 11)},
}
"""How kernels run, and of how many one does so."""


@pytest.mark.parametrize("how", WAYS)
def test_polling_lane_and_the_rest_of_its_warp_proceed(how: str) -> None:
    more, every = WAYS[how]
    device = cujit.cpu(**more)
    for name, ptx in part(_CASES.items(), every):
        assert run(ptx, device) == (list(range(1, 32)) if "alone exit" in name else []), name


# -- nobody ends the loop -------------------------------------------------------------------------------------

_REPORTED = [poll for poll in POLLS if "wait" in poll or poll in ("ld.volatile.shared", "ld.acquire.shared")]
_WHAT = {
    True: "thread 0 at the mbarrier at byte 0 of shared memory, whose phase 0 lacks 1 arrival: PTX line",
    False: "thread 0 in a loop that a write to shared memory ends: PTX line",
}


@pytest.mark.parametrize("how", ["default", "schedule 4", "checks"])
@pytest.mark.parametrize("poll", _REPORTED)
def test_endless_loop_is_a_deadlock_that_names_all_lanes(poll: str, how: str) -> None:
    device = cujit.cpu(**WAYS[how][0])
    for wait in part(JOINT, 4 if how == "default" else 10):
        with pytest.raises(KernelFaultError) as caught:
            run(joint(poll, wait, "nobody"), device)
        assert (caught.value.kind, caught.value.block) == ("deadlock", (0, 0, 0)), (poll, wait)
        text = str(caught.value)
        # A warp whose lanes are in two loops waits at no one mbarrier.
        assert _WHAT["wait" in poll and wait != "mbarrier"] in text, (poll, wait)
        assert "threads 1-31" in text, (poll, wait, text)


def test_loop_over_global_memory_is_not_a_deadlock() -> None:
    device = cujit.cpu(1)
    kernel = load(joint("ld.volatile.global", "cluster", "nobody"), device)["k"].prepare(2, 128, timeout_s=2)
    with pytest.raises(KernelFaultError) as caught:
        kernel(device.zeros(256, np.uint32), device.zeros(64, np.uint32))
    assert caught.value.kind == "timeout"
    # The launch ends between any two turns of the loop.
    assert re.search("warp 0 (polls memory|ran) at PTX line", str(caught.value))


BOUNDED = {
    "by_a_count_of_its_own": "add.u32 r5, r5, 1; setp.lt.u32 q2, r5, 9000; @q2 bra AGAIN;",
    "by_a_count_in_one_condition": "add.u32 r5, r5, 1; setp.lt.and.u32 q2, r5, 9000, q; @q2 bra AGAIN;",
    "by_the_clock": "mov.u64 d, %globaltimer; setp.lt.and.u64 q2, d, state, q; @q2 bra AGAIN;",
    "by_a_count_in_memory": "atom.shared.add.u32 r5, [r3], 1; setp.lt.and.u32 q2, r5, 9000, q; @q2 bra AGAIN;",
}


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("read", ["mbarrier.test_wait.parity.shared.b64 q, [r1], 0; not.pred q, q;",
                                  "ld.volatile.shared.u32 r7, [r2]; setp.ne.u32 q, r7, 12345;"])  # fmt: skip
def test_loop_that_gives_up_is_not_a_deadlock(name: str, read: str) -> None:
    begin = "mov.u32 r5, 0; mov.u64 state, %globaltimer; add.u64 state, state, 60000000;"
    ptx = _kernel(f"@!poller bra ALL; {begin} AGAIN: {read} {BOUNDED[name]} ALL: ", 1)
    assert run(ptx, cujit.cpu(1)) == []
    assert run(ptx, cujit.cpu(schedule=2)) == []


def test_loops_that_wait_for_each_other_end() -> None:
    # Each of the two only polls shared memory, but the first counts its turns there: the second ends by these.
    body = """@!near bra ALL; @!two bra ALL; setp.eq.u32 q2, w, 0; @q2 bra COUNTS;
    AGAIN: ld.volatile.shared.u32 r5, [r3]; setp.lt.u32 q, r5, 20000; @q bra AGAIN;
    st.volatile.shared.u32 [r3+4], 1; bra ALL;
    COUNTS: mov.u32 r7, 0; st.volatile.shared.u32 [r3+4], 0;
    TURN: add.u32 r7, r7, 1; st.volatile.shared.u32 [r3], r7; ld.volatile.shared.u32 r5, [r3+4]; setp.eq.u32 q, r5, 0;
    @q bra TURN; ALL: """
    assert run(_kernel(body, 1), cujit.cpu(1)) == []


_PING_PONG = {
    "flags": """ONE: add.u32 r7, r7, 1;
    A1: ld.volatile.shared.u32 r5, [r3]; setp.lt.u32 q, r5, r7; @q bra A1;
    st.volatile.shared.u32 [r3+4], r7; setp.lt.u32 q, r7, 2000; @q bra ONE; bra ALL;
    ZERO: add.u32 r7, r7, 1; st.volatile.shared.u32 [r3], r7;
    A0: ld.volatile.shared.u32 r5, [r3+4]; setp.lt.u32 q, r5, r7; @q bra A0;
    setp.lt.u32 q, r7, 2000; @q bra ZERO; ALL: """,
    "mbarriers": """ONE: and.b32 r5, r7, 1; add.u32 r7, r7, 1;
    A1: mbarrier.try_wait.parity.shared.b64 q, [r1], r5; @!q bra A1;
    mbarrier.arrive.shared.b64 _, [r2]; setp.lt.u32 q, r7, 2000; @q bra ONE; bra ALL;
    ZERO: and.b32 r5, r7, 1; add.u32 r7, r7, 1; mbarrier.arrive.shared.b64 _, [r1];
    A0: mbarrier.try_wait.parity.shared.b64 q, [r2], r5; @!q bra A0;
    setp.lt.u32 q, r7, 2000; @q bra ZERO; ALL: """,
}


@pytest.mark.parametrize("of", _PING_PONG)
@pytest.mark.parametrize("lanes", ["lane", "warp"])
def test_warps_that_answer_each_other_thousands_of_times_end(of: str, lanes: str) -> None:
    """Each ends a loop, writes and polls again in one turn, which is progress, and no deadlock."""
    one = "@!near bra ALL;" + ("@!first bra ALL;" if lanes == "lane" or of == "mbarriers" else "")
    body = f"{one} @!two bra ALL; mov.u32 r7, 0; setp.eq.u32 q2, w, 0; @q2 bra ZERO; {_PING_PONG[of]}"
    for device in (cujit.cpu(1), cujit.cpu(4), cujit.cpu(schedule=2)):
        assert run(_kernel(body, 1), device) == []
