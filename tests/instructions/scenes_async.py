"""Scenes of asynchronous copies, ``mbarrier``, and the shared memory of clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from instructions.scene import Scene, entry

__all__ = ["CLUSTER", "REDUCTIONS", "SCENES", "THREADS"]

Array = npt.NDArray[Any]

THREADS = 32
CLUSTER = ".reqnctapercluster 2, 1, 1"

REDUCTIONS = (
    ("add", "u32 s32 u64 f32 f64 f16 bf16"), ("min max", "u32 s32 u64 s64 f16 bf16"), ("inc dec", "u32"),
    ("and or xor", "b32 b64"),
)  # fmt: skip
_SHARED_REDUCTIONS = (("add", "u32 s32 u64"), ("min max", "u32 s32"), ("inc dec", "u32"), ("and or xor", "b32"))

_START = """.reg .b32 i, j, r, s, n; .reg .b64 at, off, w; .reg .pred p, q, first, done;
.shared .align 128 .b8 mem[2048]; .shared .align 8 .b64 bar;
mov.u32 i, %tid.x; setp.eq.u32 first, i, 0; mov.b32 s, mem;"""


def _bytes(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


# -- cp.async ---------------------------------------------------------------------------------------------


def _copy(cache: str, size: int, form: str) -> Scene:
    """Each thread copies to 16 bytes of its own that were all ones."""
    more = {"whole": "", "part": ", n", "none": ", q", "hint": ", w"}[form]
    hint = ".L2::cache_hint" if form == "hint" else ".L2::128B" if form == "whole" else ""
    body = f"""{_START}
        mad.lo.u32 s, i, 16, s; mov.b32 r, -1; st.shared.v4.b32 [s], {{r, r, r, r}};
        mul.wide.u32 off, i, 16; add.u64 at, p0, off; rem.u32 n, i, {size + 1}; and.b32 j, i, 3; setp.eq.u32 q, j, 1;
        createpolicy.fractional.L2::evict_last.b64 w, 0.5;
        cp.async.{cache}.shared.global{hint} [s], [at], {size}{more};
        cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all;
        .reg .b32 x<4>; ld.shared.v4.b32 {{x0, x1, x2, x3}}, [s];
        add.u64 at, p1, off; st.global.v4.b32 [at], {{x0, x1, x2, x3}};"""
    return Scene(
        f"cp.async.{cache}.{size}.{form}", entry(body, 2), (_bytes(512, size), np.zeros(512, np.uint8)), 1, THREADS
    )


# -- mbarrier ---------------------------------------------------------------------------------------------


def _barrier_steps() -> Scene:
    """One thread drives a barrier through its phases and notes every answer."""
    lines = [
        _START, ".reg .b64 a, b; @!first bra END;", "mbarrier.init.shared.b64 [bar], 5;",
        "mbarrier.arrive.noComplete.shared.b64 a, [bar], 2;", "!mbarrier.pending_count.b64 r, a;",
        "?mbarrier.test_wait.shared.b64 p, [bar], a;", "?mbarrier.test_wait.parity.shared.b64 p, [bar], 0;",
        "?mbarrier.test_wait.parity.shared.b64 p, [bar], 1;", "mbarrier.arrive.noComplete.shared.b64 b, [bar], 1;",
        "!mbarrier.pending_count.b64 r, b;", "mbarrier.arrive.shared::cta.b64 _, [bar], 2;",
        "?mbarrier.test_wait.shared.b64 p, [bar], a;", "?mbarrier.try_wait.shared.b64 p, [bar], b, 100;",
        "?mbarrier.try_wait.parity.shared.b64 p, [bar], 0;", "?mbarrier.test_wait.parity.shared.b64 p, [bar], 1;",
        "mbarrier.arrive_drop.noComplete.shared.b64 a, [bar], 3;", "!mbarrier.pending_count.b64 r, a;",
        "mbarrier.arrive.expect_tx.shared.b64 a, [bar], 100;", "mbarrier.arrive.shared.b64 b, [bar];",
        "?mbarrier.test_wait.shared.b64 p, [bar], a;", "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 60;",
        "?mbarrier.test_wait.shared.b64 p, [bar], a;", "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 40;",
        "?mbarrier.test_wait.shared.b64 p, [bar], a;", "?mbarrier.test_wait.parity.shared.b64 p, [bar], 1;",
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 8;",
        "mbarrier.arrive.noComplete.shared.b64 a, [bar], 1;", "!mbarrier.pending_count.b64 r, a;",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 24;",
        "mbarrier.arrive.release.cta.shared::cta.b64 b, [bar];",
        "?mbarrier.test_wait.acquire.cta.shared.b64 p, [bar], b;",
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 16;",
        "?mbarrier.test_wait.shared.b64 p, [bar], b;", "?mbarrier.test_wait.parity.shared.b64 p, [bar], 0;",
        "mbarrier.inval.shared.b64 [bar];", "END:",
    ]  # fmt: skip
    body, at = [], 0
    for line in lines:
        body.append(line.lstrip("!?"))
        if line[0] in "!?":
            if line[0] == "?":
                body.append("selp.u32 r, 1, 0, p;")
            body.append(f"st.global.u32 [p0+{at}], r;")
            at += 4
    return Scene("mbarrier.steps", entry("\n".join(body), 1), (np.full(at // 4, 99, np.uint32),), 1, THREADS)


def _barrier_of_threads() -> Scene:
    """All threads of two warps write, arrive, wait for the phase and read what another wrote; three times."""
    body = f"""{_START}
        .reg .b32 k, v; @first mbarrier.init.shared.b64 [bar], 64; bar.sync 0; mov.u32 k, 0;
        LOOP: mad.lo.u32 v, k, 1000, i; shl.b32 j, i, 2; add.u32 r, s, j; st.shared.u32 [r], v;
        mbarrier.arrive.shared.b64 w, [bar];
        WAIT: mbarrier.try_wait.shared.b64 done, [bar], w; @!done bra WAIT;
        xor.b32 j, i, 37; shl.b32 j, j, 2; add.u32 r, s, j; ld.shared.u32 v, [r];
        mad.lo.u32 j, k, 64, i; mul.wide.u32 off, j, 4; add.u64 at, p0, off; st.global.u32 [at], v;
        bar.sync 0; add.u32 k, k, 1; setp.lt.u32 p, k, 3; @p bra LOOP;"""
    return Scene("mbarrier.threads", entry(body, 1), (np.zeros(192, np.uint32),), 1, 64)


def _arrive_after_copies() -> Scene:
    """The copies of all threads arrive at a barrier, with and without an arrival that counts for it."""
    body = f"""{_START}
        .reg .b32 v; @first mbarrier.init.shared.b64 [bar], 64; bar.sync 0;
        shl.b32 j, i, 2; add.u32 s, s, j; mul.wide.u32 off, i, 4; add.u64 at, p0, off;
        cp.async.ca.shared.global [s], [at], 4;
        cp.async.mbarrier.arrive.shared.b64 [bar]; mbarrier.arrive.shared.b64 _, [bar];
        cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];
        WAIT: mbarrier.test_wait.parity.shared.b64 done, [bar], 0; @!done bra WAIT;
        ld.shared.u32 v, [s]; add.u64 at, p1, off; st.global.u32 [at], v;"""
    arrays = (_bytes(128, 3).view(np.uint32), np.zeros(32, np.uint32))
    return Scene("cp.async.mbarrier", entry(body, 2), arrays, 1, THREADS)


# -- bulk -------------------------------------------------------------------------------------------------

_READY = "@first mbarrier.init.shared.b64 [bar], 1; @first fence.mbarrier_init.release.cluster; bar.sync 0;"
_WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 done, [bar], 0; @!done bra WAIT;"


def _bulk_in(target: str) -> Scene:
    body = f"""{_START} {_READY}
        @!first bra WAIT;
        mbarrier.arrive.expect_tx.shared.b64 _, [bar], 768;
        cp.async.bulk.{target}.global.mbarrier::complete_tx::bytes [mem], [p0], 512, [bar];
        createpolicy.fractional.L2::evict_first.b64 w, 1.0;
        cp.async.bulk.{target}.global.mbarrier::complete_tx::bytes.L2::cache_hint [mem+512], [p0+512], 256, [bar], w;
        cp.async.bulk.prefetch.L2.global [p0], 512;
        {_WAIT} shl.b32 j, i, 3;
        add.u32 s, s, j; ld.shared.b64 off, [s]; ld.shared.b64 w, [s+256]; cvt.u64.u32 at, j; add.u64 at, at, p1;
        st.global.b64 [at], off; st.global.b64 [at+256], w; ld.shared.b64 w, [s+512]; st.global.b64 [at+512], w;"""
    name = target.replace("::", "_")
    return Scene(f"cp.async.bulk.{name}", entry(body, 2), (_bytes(768, 8), np.zeros(768, np.uint8)), 1, THREADS)


def _bulk_out() -> Scene:
    body = f"""{_START}
        shl.b32 j, i, 2; add.u32 s, s, j; mad.lo.u32 r, i, 77, 5; st.shared.u32 [s], r; st.shared.u32 [s+128], i;
        fence.proxy.async.shared::cta; bar.sync 0; @!first bra END;
        cp.async.bulk.global.shared::cta.bulk_group [p0+64], [mem], 128; cp.async.bulk.commit_group;
        cp.async.bulk.global.shared::cta.bulk_group [p0+256], [mem+128], 64; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 1; cp.async.bulk.wait_group 0;
        END:"""
    return Scene("cp.async.bulk.out", entry(body, 1), (np.zeros(100, np.uint32),), 1, THREADS)


def _small(type_: str, count: int, seed: int) -> Array:
    """Values whose sums are exact, but random bits for what is no float."""
    rng = np.random.default_rng(seed)
    if type_ in ("f16", "f32", "f64"):
        return rng.integers(-9, 10, count).astype(f"f{int(type_[1:]) // 8}")
    if type_ == "bf16":
        return (rng.integers(-9, 10, count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    bits = int(type_[1:])
    return np.frombuffer(rng.bytes(count * bits // 8), f"u{bits // 8}").copy()


def _dtype_bytes(type_: str) -> int:
    return int(type_.lstrip("bsuf")) // 8


def _bulk_reduce(operation: str, type_: str) -> Scene:
    """Reduce 128 bytes of shared memory, twice, into global memory."""
    noftz = ".noftz" if operation == "add" and type_ in ("f16", "bf16") else ""
    reduce = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}{noftz}.{type_}"
    body = f"""{_START}
        shl.b32 j, i, 2; add.u32 s, s, j; cvt.u64.u32 off, j; add.u64 at, p1, off; ld.global.b32 r, [at];
        st.shared.b32 [s], r;
        fence.proxy.async; bar.sync 0; @!first bra END;
        {reduce} [p0], [mem], 128; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        {reduce} [p0+16], [mem], 96; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        END:"""
    count = 128 // _dtype_bytes(type_)
    seed = sum(f"{operation}{type_}".encode())
    arrays = (_small(type_, count, seed), _small(type_, count, seed + 1))
    return Scene(f"cp.reduce.async.bulk.{operation}.{type_}", entry(body, 2), arrays, 1, THREADS)


# -- clusters ---------------------------------------------------------------------------------------------

_MEET = "barrier.cluster.arrive; barrier.cluster.wait;"
_RANK = """.reg .b32 rank, other, far, farbar; .reg .b64 g, f; mov.u32 rank, %cluster_ctarank; xor.b32 other, rank, 1;
mapa.shared::cluster.u32 far, s, other; mov.b32 r, bar; mapa.shared::cluster.u32 farbar, r, other;"""


def _addresses() -> Scene:
    """Every way to another block's shared memory, and what is told of the addresses."""
    body = f"""{_START} {_RANK}
        .reg .b32 v, x; shl.b32 j, i, 2; add.u32 r, s, j; mad.lo.u32 v, rank, 100, i; st.shared.u32 [r], v; {_MEET}
        add.u32 n, far, j; ld.shared::cluster.u32 v, [n]; mad.lo.u32 x, rank, 32, i; mul.wide.u32 off, x, 4;
        add.u64 at, p0, off; st.global.u32 [at], v;
        cvta.shared.u64 g, mem; mapa.u64 f, g, other; cvt.u64.u32 w, j; add.u64 w, f, w; ld.u32 v, [w];
        st.global.u32 [at+256], v; {_MEET}
        add.u32 v, v, 1000; st.shared::cluster.u32 [n+256], v; atom.shared::cluster.add.u32 x, [far+512], i; {_MEET}
        ld.shared.u32 v, [r+256]; st.global.u32 [at+512], v; ld.shared.u32 v, [mem+512]; st.global.u32 [at+768], v;
        getctarank.shared::cluster.u32 v, n; getctarank.u64 x, f; shl.b32 x, x, 1; or.b32 v, v, x;
        getctarank.u64 x, g; shl.b32 x, x, 2; or.b32 v, v, x; getctarank.shared::cluster.u32 x, s;
        shl.b32 x, x, 3; or.b32 v, v, x;
        isspacep.shared::cluster p, f; selp.u32 x, 16, 0, p; or.b32 v, v, x; isspacep.shared::cta p, f;
        selp.u32 x, 32, 0, p;
        or.b32 v, v, x; isspacep.shared p, g; selp.u32 x, 64, 0, p; or.b32 v, v, x; isspacep.shared::cluster p, p0;
        selp.u32 x, 128, 0, p; or.b32 v, v, x; cvta.to.shared::cluster.u64 w, f; cvta.shared::cluster.u64 w, w;
        setp.eq.u64 p, w, f;
        selp.u32 x, 256, 0, p; or.b32 v, v, x; st.global.u32 [at+1024], v; {_MEET}"""
    # The counter that atom adds to is cleared first, before the first meeting.
    body = body.replace("st.shared.u32 [r], v;", "st.shared.u32 [r], v; @first st.shared.u32 [mem+512], i;", 1)
    return Scene("cluster.addresses", entry(body, 1, directives=CLUSTER), (np.zeros(320, np.uint32),), 2, THREADS)


def _remote() -> Scene:
    """Stores, reductions and arrivals that signal the barrier of the other block."""
    signal = "mbarrier::complete_tx::bytes"
    body = f"""{_START} {_RANK}
        .reg .b32 x<4>; .reg .b64 y; mov.b32 x0, 0; shl.b32 j, i, 4; add.u32 r, s, j;
        st.shared.v4.b32 [r], {{x0, x0, x0, x0}};
        st.shared.b32 [mem+1024], x0; @first mbarrier.init.shared.b64 [bar], 34;
        @first fence.mbarrier_init.release.cluster;
        {_MEET}
        @first mbarrier.arrive.expect_tx.shared.b64 _, [bar], 768;
        mad.lo.u32 x0, rank, 1000, i; add.u32 x1, x0, 1; add.u32 n, far, j; mov.b64 y, {{x1, x0}};
        st.async.shared::cluster.{signal}.b32 [n], x0, [farbar];
        st.async.shared::cluster.{signal}.b32 [n+4], x1, [farbar];
        st.async.shared::cluster.{signal}.b64 [n+8], y, [farbar];
        red.async.relaxed.cluster.shared::cluster.{signal}.add.u32 [far+1024], i, [farbar];
        red.async.relaxed.cluster.shared::cluster.{signal}.max.s32 [far+1028], i, [farbar];
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [farbar];
        @first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [farbar], 1;
        WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [bar], 0; @!done bra WAIT;
        ld.shared.v4.b32 {{x0, x1, x2, x3}}, [r]; mad.lo.u32 j, rank, 32, i; mul.wide.u32 off, j, 16;
        add.u64 at, p0, off;
        st.global.v4.b32 [at], {{x0, x1, x2, x3}}; ld.shared.u32 x0, [mem+1024]; ld.shared.u32 x1, [mem+1028];
        shr.u64 off, off, 1; add.u64 at, p1, off; st.global.v2.b32 [at], {{x0, x1}}; {_MEET}"""
    body = body.replace("st.shared.b32 [mem+1024], x0;", "st.shared.v2.b32 [mem+1024], {x0, x0};")
    arrays = (np.zeros(256, np.uint32), np.zeros(128, np.uint32))
    return Scene("cluster.remote", entry(body, 2, directives=CLUSTER), arrays, 2, THREADS)


def _multicast() -> Scene:
    """Rank 0 copies to both blocks, rank 1 to itself, and from its memory to rank 0's."""
    body = f"""{_START} {_RANK}
        .reg .b16 mask; .reg .pred zero; setp.eq.u32 zero, rank, 0;
        @first mbarrier.init.shared.b64 [bar], 1; @first fence.mbarrier_init.release.cluster; {_MEET}
        selp.u32 n, 384, 512, zero; @first mbarrier.arrive.expect_tx.shared.b64 _, [bar], n; {_MEET}
        @!first bra WAIT; @!zero bra SECOND;
        mov.b16 mask, 3;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
            [mem], [p0], 256, [bar], mask;
        bra WAIT;
        SECOND: mov.b16 mask, 2;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
            [mem+256], [p0+256], 256, [bar], mask;
        st.shared.u32 [mem+1024], 7; st.shared.u32 [mem+1148], 9; fence.proxy.async;
        add.u32 far, far, 1024;
        cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [far], [mem+1024], 128, [farbar];
        {_WAIT} shl.b32 j, i, 4; add.u32 s, s, j; .reg .b32 x<4>; ld.shared.v4.b32 {{x0, x1, x2, x3}}, [s];
        mad.lo.u32 j, rank, 36, i; mul.wide.u32 off, j, 16; add.u64 at, p1, off;
        setp.gt.u32 p, i, 15; and.pred p, p, zero; @!p st.global.v4.b32 [at], {{x0, x1, x2, x3}};
        mul.wide.u32 off, rank, 8; add.u64 at, p2, off; ld.shared.u32 x0, [mem+1024]; ld.shared.u32 x1, [mem+1148];
        @first st.global.v2.b32 [at], {{x0, x1}}; {_MEET}"""
    arrays = (_bytes(512, 21), np.zeros(72 * 16, np.uint8), np.zeros(4, np.uint32))
    return Scene("cluster.multicast", entry(body, 3, directives=CLUSTER), arrays, 2, THREADS)


def _remote_reduce(operation: str, type_: str) -> Scene:
    """Each block reduces 64 bytes of its own into the other's."""
    reduce = f"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{operation}.{type_}"
    body = f"""{_START} {_RANK}
        shl.b32 j, i, 2; add.u32 s, s, j; mad.lo.u32 j, rank, 32, i; mul.wide.u32 off, j, 4; add.u64 at, p0, off;
        ld.global.b32 r, [at]; st.shared.b32 [s], r; {_READY}
        @first mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64; fence.proxy.async; {_MEET}
        add.u32 far, far, 64; @first {reduce} [far], [mem], 64, [farbar];
        {_WAIT} ld.shared.b32 r, [s]; st.global.b32 [at], r; {_MEET}"""
    seed = sum(f"{operation}{type_}".encode())
    arrays = (_bytes(256, seed),)
    return Scene(f"cluster.reduce.{operation}.{type_}", entry(body, 1, directives=CLUSTER), arrays, 2, THREADS)


def _each(forms: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [(o, t) for operations, types in forms for o in operations.split() for t in types.split()]


_COPIES = (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16))

SCENES = (
    *(_copy(*cache, form) for cache in _COPIES for form in ("whole", "part", "none", "hint")),
    _barrier_steps(), _barrier_of_threads(), _arrive_after_copies(),
    _bulk_in("shared::cluster"), _bulk_in("shared::cta"), _bulk_out(),
    *(_bulk_reduce(operation, type_) for operation, type_ in _each(REDUCTIONS)),
    _addresses(), _remote(), _multicast(),
    *(_remote_reduce(operation, type_) for operation, type_ in _each(_SHARED_REDUCTIONS)),
)  # fmt: skip
