"""How the blocks of a kernel are run: where lanes part, and where all of them go one way."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.device import Device
from devices.cpu.launching import run_ptx


@pytest.mark.parametrize("between", ["", "add.u32 r3, r3, 16;", "mov.u32 r3, 99;", "mov.u32 r4, 99;"])
def test_a_branch_goes_by_what_was_compared_whatever_its_registers_hold_since(device: Device, between: str) -> None:
    body = f"""
    mov.u32 r3, t; mov.u32 r4, 40; mov.u32 r5, 1;
    setp.lt.u32 q1, r3, r4; {between} @q1 bra SAME;
    mov.u32 r5, 2;
    SAME: add.u32 r5, r5, r3; add.u32 r5, r5, r4; st.global.u32 [at], r5;
    """
    (got,) = run_ptx(device, body, np.zeros(64, np.uint32), block=64)
    threads = range(64)
    r3 = {"add.u32 r3, r3, 16;": [t + 16 for t in threads], "mov.u32 r3, 99;": [99] * 64}.get(between, [*threads])
    r4 = 99 if "r4" in between else 40
    np.testing.assert_array_equal(got, [(1 if t < 40 else 2) + r3[t] + r4 for t in threads])
