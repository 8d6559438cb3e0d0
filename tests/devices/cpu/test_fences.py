"""Fences in every form, between what one warp writes and another reads; spaces of parameters and constants."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.device import Device
from devices.cpu.launching import blank, run_ptx

_SCOPES = ("cta", "cluster", "gpu", "sys")
_ALONE = (
    "membar.cta", "membar.gl", "membar.sys",
    *(f"fence.{order}{scope}" for order in ("", "sc.", "acq_rel.") for scope in _SCOPES),
)  # fmt: skip
_SIDED = tuple(f"fence.{{}}.{scope}" for scope in _SCOPES)
"""Fences that release where the one warp has written, and acquire where the other is to read."""
_BESIDE = (
    "membar.proxy.alias", "fence.mbarrier_init.release.cluster", "fence.proxy.alias", "fence.proxy.async",
    *(f"fence.proxy.async.{space}" for space in ("global", "shared::cta", "shared::cluster")),
    "fence.acquire.sync_restrict::shared::cluster.cluster", "fence.release.sync_restrict::shared::cta.cluster",
    "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster",
    "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster",
    *(f"fence.proxy.tensormap::generic.release.{scope}" for scope in _SCOPES),
    *(f"fence.proxy.tensormap::generic.acquire.{scope} [p2], 128" for scope in _SCOPES),
)  # fmt: skip
"""Fences for other ways to memory, or parts of it: they stand beside one that is enough."""
_FENCES = (
    *((form, form) for form in _ALONE),
    *((form.format("release"), form.format("acquire")) for form in _SIDED),
    *((f"{form}; fence.acq_rel.gpu", f"fence.acq_rel.gpu; {form}") for form in _BESIDE),
)


def test_writes_before_a_fence_are_visible_after_one(cpu: Device) -> None:
    """Thread 0 writes a number, then a flag; thread 32, of another warp, waits for the flag and reads the number."""
    write, read = ["setp.ne.u32 q0, t, 0; @q0 bra READ;"], ["bra END; READ: setp.ne.u32 q0, t, 32; @q0 bra END;"]
    for k, (release, acquire) in enumerate(_FENCES):
        write.append(f"add.u32 r1, r1, 7; st.global.u32 [p0+{4 * k}], r1; {release};")
        write.append(f"st.relaxed.gpu.global.u32 [p1+{4 * k}], 1;")
        read.append(f"WAIT{k}: ld.relaxed.gpu.global.u32 r2, [p1+{4 * k}]; setp.eq.u32 q1, r2, 0; @q1 bra WAIT{k};")
        read.append(f"{acquire}; ld.global.u32 r3, [p0+{4 * k}]; st.global.u32 [p3+{4 * k}], r3;")
    count = len(_FENCES)
    arrays = (blank(count + 64), np.zeros(count, np.uint32), np.zeros(128, np.uint8), blank(count))
    body = "\n".join(["mov.u32 r1, 0;", *write, *read, "END:"])
    got = run_ptx(cpu, body, *arrays, block=64, version="8.6")
    np.testing.assert_array_equal(got[3], 7 * np.arange(1, count + 1))


_TWICE = """.const .align 128 .b32 table[32] = {5, 6, 7};
.func (.param .b32 out) twice (.param .b32 x)
{
.reg .b32 a; ld.param::func.b32 a, [x]; add.u32 a, a, a; st.param::func.b32 [out], a; ret;
}
"""


def test_parameters_and_constants_have_their_own_spaces(cpu: Device) -> None:
    asked = [("param", 0), ("param::entry", 0), ("const", 0), ("global", 0), ("param", 1), ("const", 1), ("param", 2),
             ("const", 2), ("global", 2)]  # fmt: skip
    told = [f"isspacep.{space} q0, d{k}; selp.u32 r1, 1, 0, q0; mad.lo.u32 r2, r2, 2, r1;" for space, k in asked]
    body = f"""
mov.u64 d0, a0; cvta.param::entry.u64 d0, d0; mov.u64 d1, table; cvta.const.u64 d1, d1; cvta.global.u64 d2, p0;
mov.u32 r2, 0; {" ".join(told)}
ld.param::entry.u64 d3, [a0]; ld.u64 d4, [d0]; cvta.to.param::entry.u64 d5, d0; ld.param.u64 d5, [d5];
sub.u64 d3, d3, p0; sub.u64 d4, d4, p0; sub.u64 d5, d5, p0; or.b64 d3, d3, d4; or.b64 d3, d3, d5;
cvt.u32.u64 r3, d3; prefetch.const.tensormap [table];
{{ .param .b32 given; .param .b32 back; st.param::func.b32 [given], t; call (back), twice, (given);
ld.param::func.b32 r4, [back]; }}
ld.u32 r5, [d1+8]; st.global.v4.u32 [d6], {{r2, r3, r4, r5}};"""
    body = "mad.wide.u32 d6, t, 16, p0;" + body
    got = run_ptx(cpu, body, np.zeros((32, 4), np.uint32), version="8.6", outside=_TWICE)[0]
    np.testing.assert_array_equal(got, [[0b1101_01_001, 0, 2 * t, 7] for t in range(32)])


@pytest.mark.parametrize("words", ["L2::evict_first", "L2::evict_last", "L2::evict_normal"])
def test_eight_words_move_at_once_with_any_eviction_hint(words: str, cpu: Device) -> None:
    eight = "{" + ", ".join(f"r{k}" for k in range(8)) + "}"
    body = f"""mad.wide.u32 d0, t, 32, p0; mad.wide.u32 d1, t, 32, p1;
ld.global.{words}.v8.b32 {eight}, [d0]; st.global.{words}.v8.b32 [d1], {eight};"""
    data = np.random.default_rng(1).integers(0, 1 << 32, 256, np.uint32)
    got = run_ptx(cpu, body, data, np.zeros(256, np.uint32), target="sm_100", version="8.8")
    np.testing.assert_array_equal(got[1], data)


@pytest.mark.parametrize("operation", ["min", "max"])
@pytest.mark.parametrize("words", ["", ".abs", ".NaN", ".abs.NaN"])
def test_warp_reduces_floats(operation: str, words: str, cpu: Device) -> None:
    x = np.random.default_rng(2).standard_normal((3, 32)).astype(np.float32)
    x[1, 7], x[2] = np.nan, np.nan
    body = f"""ld.global.u32 r1, [at]; .reg .f32 x, y; mov.b32 x, r1;
redux.sync.{operation}{words}.f32 y, x, -1; mov.b32 r1, y; st.global.u32 [at], r1;"""
    got = run_ptx(cpu, body, x.view(np.uint32), block=96, target="sm_100a", version="8.6")[0].view(np.float32)
    size = np.abs(x) if "abs" in words else x
    plain = {"min": np.fmin, "max": np.fmax}[operation] if "NaN" not in words else getattr(np, f"{operation}imum")
    np.testing.assert_array_equal(got, np.repeat(plain.reduce(size, axis=1)[:, None], 32, 1))
