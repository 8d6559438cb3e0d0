"""Addresses of local memory in kernels that have none."""

from __future__ import annotations

import numpy as np

import cujit

_TEXT = """.version 8.0
.target sm_75
.address_size 64
.visible .entry converted(.param .u64 address, .param .u64 out) {
    .reg .b64 %d<6>;
    .reg .b32 %r<2>;
    ld.param.u64 %d1, [address];
    ld.param.u64 %d2, [out];
    cvta.to.local.u64 %d3, %d1;
    cvta.local.u64 %d4, %d3;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d5, %r1, 8;
    add.s64 %d5, %d2, %d5;
    st.global.u64 [%d5], %d4;
    ret;
}
"""


def test_uniform_address_is_converted_in_both_directions() -> None:
    device = cujit.cpu()
    kernel = cujit.load(cujit.Artifact(cujit.ImageKind.PTX, _TEXT.encode()), device)["converted"]
    out = device.array(np.zeros(32, np.uint64))
    kernel[1, 32](12345, out)
    assert (out.numpy() == 12345).all()
