"""Address 0: the compiler of the CPU device sees it and must not take the access for one that never happens."""

from __future__ import annotations

import numpy as np
import pytest

import cujit
from raising import raises

HEAD = ".version 8.3\n.target sm_90\n.address_size 64\n"

# Each does its access in lane 0, or in all lanes; `a` is a good address, `n` is 1 and `t` the thread.
ACCESSES = {
    "load_moved": "mov.u64 q, 0; ld.global.u32 r, [q]; st.global.u32 [a], r;",
    "load_generic": "mov.u64 q, 0; ld.u32 r, [q]; st.global.u32 [a], r;",
    "load_volatile": "mov.u64 q, 0; ld.volatile.global.u32 r, [q];",
    "load_volatile_in_lanes": "mul.wide.u32 q, t, 4; ld.volatile.global.u32 r, [q];",
    "load_volatile_far_apart": "mul.wide.u32 q, t, 12; ld.volatile.global.f32 f, [q];",
    "load_relaxed_anywhere": "popc.b32 r, t; shr.u32 r, r, 8; mul.wide.u32 q, r, 4; ld.relaxed.gpu.global.u32 r, [q];",
    "load_volatile_guarded": "popc.b32 r, t; setp.lt.u32 p, r, 9; mov.u64 q, 0; @p mov.u64 q, 0;"
    " @p ld.volatile.global.u32 r, [q];",
    "load_const": "mov.u64 q, 0; cvta.const.u64 q, q; ld.const.u32 r, [q]; st.global.u32 [a], r;",
    "load_vector": "mov.u64 q, 0; ld.global.v4.f32 {f, f1, f2, f3}, [q]; st.global.v4.f32 [a], {f, f1, f2, f3};",
    "load_wide": "mov.u64 q, 0; ld.global.b128 w, [q]; st.global.b128 [a], w;",
    "store": "mov.u64 q, 0; st.global.u32 [q], 7;",
    "store_volatile": "st.global.u32 [a + 4], 1; mov.u64 q, 0;"
    " st.volatile.global.u32 [q], 7; st.global.u32 [a + 8], 2;",
    "store_vector": "mov.u64 q, 0; st.global.v2.u32 [q], {n, n};",
    "store_guarded": "setp.gt.s32 p, n, 0; @p st.global.u32 [zero], 7;",
    "store_in_a_lane": "setp.eq.u32 p, t, 0; @p st.global.u32 [zero], 7;",
    "store_released": "mov.u64 q, 0; st.release.gpu.global.u32 [q], 7;",
    "store_in_a_branch": "setp.lt.s32 p, n, 1; @p bra OUT; st.global.u32 [zero], 7; OUT:",
    "atomic": "mov.u64 q, 0; atom.global.add.u32 r, [q], 1;",
    "sum": "mov.u64 q, 0; red.global.add.u32 [q], 1;",
    "swap": "mov.u64 q, 0; atom.global.cas.b32 r, [q], 1, 2;",
    "copied": "mov.u64 q, 0; cp.async.ca.shared.global [kept], [q], 16; cp.async.wait_all;",
    "after_a_loop": "mov.u32 r, 0; L: add.u32 r, r, 1; st.global.u32 [a], r; setp.lt.u32 p, r, 4; @p bra L;"
    " ld.global.u32 r, [zero]; st.global.u32 [a + 8], r;",
    "behind_a_barrier": "st.shared.u32 [kept], t; bar.sync 0; ld.shared.u32 r, [kept]; st.global.u32 [a], r;"
    " st.global.u32 [zero], r;",
    "in_a_loop_with_a_barrier": "mov.u32 r, 0; L: add.u32 r, r, 1; bar.sync 0; setp.lt.u32 p, r, n; @p bra L;"
    " ld.global.u32 r, [zero]; st.global.u32 [a + 8], r;",
    "apart": "setp.lt.u32 p, t, 16; @p bra L; bar.sync 1, 64; bra M; L: bar.sync 1, 64; M: st.global.u32 [zero], 7;",
    "in_a_function": "{ .param .b64 to; st.param.b64 [to], 0; call put, (to); }",
    "in_a_function_of_its_own": "{ .param .b64 to; st.param.b64 [to], 0; call deep, (to); }",
}

FUNCTIONS = """
.func put(.param .b64 to) { .reg .b64 q; ld.param.b64 q, [to]; st.u32 [q], 7; ret; }
.func deep(.param .b64 to) {
    .reg .b64 q; .reg .pred p;
    ld.param.b64 q, [to];
    setp.ne.u64 p, q, 0;
    @!p bra HERE;
    { .param .b64 again; st.param.b64 [again], 0; call deep, (again); }
HERE:
    st.u32 [q], 7;
    ret;
}
"""


def entry(name: str, body: str) -> str:
    """Write one kernel."""
    return f"""
.visible .entry {name}(.param .u64 pa, .param .u32 pn) {{
    .reg .b64 a, q, zero; .reg .b32 r, n, t; .reg .f32 f, f1, f2, f3; .reg .b128 w; .reg .pred p;
    .shared .align 16 .b8 kept[16];
    ld.param.u64 a, [pa]; ld.param.u32 n, [pn]; mov.u32 t, %tid.x; mov.b64 zero, 0;
    {body}
    ret;
}}
"""


@pytest.fixture(scope="module")
def module() -> cujit.Module:
    text = HEAD + FUNCTIONS + "".join(entry(name, body) for name, body in ACCESSES.items())
    return cujit.load(text, cujit.cpu())


@pytest.mark.parametrize("name", ACCESSES)
def test_visible_access_to_address_0_ends_the_launch(module: cujit.Module, name: str) -> None:
    out = cujit.cpu().array(np.zeros(64, np.uint32))
    with raises(cujit.errors.KernelFaultError, "fault-illegal-address", "0x0"):
        module[name][1, 64](out, 1)


def test_stores_before_such_an_access_remain(module: cujit.Module) -> None:
    out = cujit.cpu().array(np.zeros(64, np.uint32))
    with pytest.raises(cujit.errors.KernelFaultError):
        module["store_volatile"][1, 64](out, 1)
    assert out.numpy()[:3].tolist() == [0, 1, 0]
