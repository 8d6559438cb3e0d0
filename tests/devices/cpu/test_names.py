"""Names in the code of the CPU device: what is counted and what is chosen never meet."""

from __future__ import annotations

import os

import numpy as np
import pytest

import cujit

IS_LONG = int(os.environ.get("CUJIT_EFFORT", "1")) > 1

_SPIN = """.version 8.0\n.target sm_90\n.address_size 64
.visible .entry k(.param .u64 pa) {{
    .reg .b64 a, o; .reg .b32 t, sum, v; .reg .pred p;
    ld.param.u64 a, [pa];
    mov.u32 t, %tid.x;
    mov.u32 sum, 0;
    setp.ne.u32 p, t, 0;
    @p bra GO;
SPIN:
    ld.volatile.global.u32 v, [a];
    setp.eq.u32 p, v, 0;
    @p bra SPIN;
GO:{body}
    mul.wide.u32 o, t, 4;
    add.u64 a, a, o;
    st.global.u32 [a], sum;
    ret;
}}
"""
_BARRIER = "\n    bar.sync 0;\n    add.u32 sum, sum, t;"


def test_barrier_at_any_place_of_a_long_kernel_compiles() -> None:
    blocks = [_BARRIER if k < 2 or k > 75 else f"\n    bra B{k};\nB{k}:\n    add.u32 sum, sum, 1;" for k in range(100)]
    out = cujit.cpu().array(np.ones(64, np.uint32))
    cujit.load(_SPIN.format(body="".join(blocks)), cujit.cpu())["k"][1, 64](out)
    np.testing.assert_array_equal(out.numpy(), np.arange(64) * 26 + 74)


@pytest.mark.skipif(not IS_LONG, reason="a minute; the test above does it in little, CUJIT_EFFORT=2 all of it")
@pytest.mark.parametrize("loops", range(14, 41))
def test_kernel_with_many_loops_around_barriers_compiles(loops: int) -> None:
    body = "".join("for (int i = 0; i < m; i++) { s += i; __syncthreads(); }" for _ in range(loops))
    text = f"""extern "C" __global__ void k(volatile int *flag, int *out, int m) {{
        int s = 0;
        if (threadIdx.x == 0) while (!flag[0]);
        {body}
        out[threadIdx.x] = s;
    }}"""
    device = cujit.cpu()
    out = device.zeros(64, np.int32)
    cujit.jit(text, names=["k"], device=device)["k"][1, 64](device.array(np.ones(1, np.int32)), out, 3)
    assert (out.numpy() == 3 * loops).all()
