"""Bulk copies of the CPU device whose operands are none: PTX says that what a GPU does then is not defined."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from instructions.scene import Scene, entry, run_scene

IN = "[mem{to}], [p0{from_}], {size}, [bar]"
OUT = "[p0{to}], [mem{from_}], {size}"
INWARD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
COPIES = {
    "in": f"{INWARD} {IN}",
    "multicast": f"{INWARD}.multicast::cluster {IN}, 1",
    "out": f"cp.async.bulk.global.shared::cta.bulk_group {OUT}",
    "by mask": f"cp.async.bulk.global.shared::cta.bulk_group.cp_mask {OUT}, 5",
    "reduction": f"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 {OUT}",
}
OPERANDS = {"to": ("+8", "", 32), "from": ("", "+4", 32), "size": ("", "", 24)}


def run(device: Device, copy: str, to: str, from_: str, size: int) -> None:
    line = COPIES[copy].format(to=to, from_=from_, size=size)
    body = f""".reg .pred first; .reg .b32 i; .shared .align 16 .b8 mem[64]; .shared .align 8 .b64 bar;
        mov.u32 i, %tid.x; setp.eq.u32 first, i, 0; @first mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
        @!first bra END;\n{line};\nEND:"""
    run_scene(device, Scene("bulk", entry(body, 1, target="sm_100"), (np.zeros(64, np.uint8),), 1, 32))


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("copy", COPIES)
def test_a_bulk_copy_of_no_whole_16_bytes_ends_the_launch(cpu: Device, copy: str, operand: str) -> None:
    run(cpu, copy, "+16", "+16", 32)
    with pytest.raises(KernelFaultError, match=r"thread \(0, 0, 0\)(.|\n)*not a multiple(.|\n)*async.bulk") as e:
        run(cpu, copy, *OPERANDS[operand])
    assert e.value.kind == "bulk_align"
