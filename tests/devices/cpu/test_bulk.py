"""Bulk copies of the CPU device whose operands are none: PTX says that what a GPU does then is not defined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError, PtxSyntaxError
from instructions.scene import Scene, entry, run_scene
from raising import raises

IN = "[mem{to}], [p0{from_}], {size}, [bar]"
OUT = "[p0{to}], [mem{from_}], {size}"
INWARD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
INSIDE = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
COPIES = {
    "in": f"{INWARD} {IN}",
    "multicast": f"{INWARD}.multicast::cluster {IN}, 1",
    "inside": f"{INSIDE}.ignore_oob [mem{{to}}], [p0{{from_}}], {{size}}, 4, 8, [bar]",
    "out": f"cp.async.bulk.global.shared::cta.bulk_group {OUT}",
    "by mask": f"cp.async.bulk.global.shared::cta.bulk_group.cp_mask {OUT}, 5",
    "reduction": f"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 {OUT}",
}
OPERANDS = {"to": ("+8", "", 32), "from": ("", "+4", 32), "size": ("", "", 24)}


def run(device: Device, copy: str, to: str, from_: str, size: int) -> None:
    line = COPIES[copy].format(to=to, from_=from_, size="size")
    body = f""".reg .pred first; .reg .b32 i, size; mov.u32 size, {size};
        .shared .align 16 .b8 mem[64]; .shared .align 8 .b64 bar;
        mov.u32 i, %tid.x; setp.eq.u32 first, i, 0; @first mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
        @!first bra END;\n{line};\nEND:"""
    run_scene(device, Scene("bulk", entry(body, 1, target="sm_100", version="9.2"), (np.zeros(64, np.uint8),), 1, 32))


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("copy", COPIES)
def test_bulk_copy_size_must_be_a_multiple_of_16_bytes(cpu: Device, copy: str, operand: str) -> None:
    run(cpu, copy, "+16", "+16", 32)
    with raises(KernelFaultError, "fault-bulk-align", "0", "async.bulk") as e:
        run(cpu, copy, *OPERANDS[operand])
    assert e.value.kind == "bulk_align"


@pytest.mark.parametrize("copy", COPIES)
def test_size_in_the_text_is_held_to_16_bytes_at_load(cpu: Device, copy: str) -> None:
    text = (
        f".shared .align 16 .b8 mem[64]; .shared .align 8 .b64 bar;\n{COPIES[copy].format(to='', from_='', size=24)};"
    )
    with raises(PtxSyntaxError, "ptx-syntax", "24", "stand"):
        cujit.load(entry(text, 1, target="sm_100", version="9.2").encode(), cpu)


@pytest.mark.parametrize("copy", COPIES)
def test_empty_bulk_copy_may_have_any_address(cpu: Device, copy: str) -> None:
    run(cpu, copy, "+8", "+4", 0)


# -- copies that ignore what is out of bounds -------------------------------------------------------------

_INSIDE = f""".version 9.2
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 out, .param .u32 left, .param .u32 right)
{{
.reg .pred first, done; .reg .b32 i, s, v, l, r; .reg .b64 px, po, at; .shared .align 16 .b8 mem[32];
.shared .align 8 .b64 bar;
ld.param.u64 px, [x]; ld.param.u64 po, [out]; ld.param.u32 l, [left]; ld.param.u32 r, [right];
mov.u32 i, %tid.x; setp.eq.u32 first, i, 0; @!first bra WAIT;
mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 32;
{INSIDE}.ignore_oob [mem], [px], 32, l, r, [bar];
WAIT: bar.sync 0;
AGAIN: mbarrier.try_wait.parity.shared.b64 done, [bar], 0; @!done bra AGAIN;
mov.b32 s, mem; add.u32 s, s, i; ld.shared.u8 v, [s]; cvt.u64.u32 at, i; add.u64 at, at, po; st.global.u8 [at], v;
ret;
}}"""


def inside(there: int, left: int, right: int, ignored: Sequence[int] = ()) -> None:
    """Copy 32 bytes of an array of ``there``; the host looks at all but those ``ignored``."""
    device = cujit.cpu(1, check="all")
    data, out = np.arange(1, there + 1, dtype=np.uint8), device.empty(32, np.uint8)
    cujit.load(_INSIDE, device)["k"][1, 32](device.array(data), out, np.uint32(left), np.uint32(right))
    seen = [k for k in range(32) if k not in ignored]
    np.testing.assert_array_equal(np.concatenate([out[k : k + 1].numpy() for k in seen]), data[seen])


@pytest.mark.parametrize(("left", "right"), [(0, 0), (0, 12), (5, 0), (3, 15), (15, 15)])
def test_copy_ignores_bytes_at_its_ends(left: int, right: int) -> None:
    inside(32, left, right, [*range(left), *range(32 - right, 32)])


def test_ignored_bytes_may_be_out_of_bounds() -> None:
    inside(20, 0, 12, range(20, 32))
    with raises(KernelFaultError, "fault-memory", "ignore_oob") as e:
        inside(20, 0, 11)
    assert e.value.kind == "memory"


def test_ignored_byte_has_no_value() -> None:
    with raises(KernelFaultError, "fault-init", "31", "x[:n].numpy()") as e:
        inside(32, 0, 1)
    assert e.value.kind == "init"


def test_more_than_15_ignored_bytes_end_the_launch() -> None:
    with raises(KernelFaultError, "fault-bulk-align", "15"):
        inside(32, 16, 0)


_MASKED = """.version 8.6
.target sm_100
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .pred first; .reg .b32 i, s; .reg .b64 po; .reg .b16 m; .shared .align 16 .b8 mem[16];
ld.param.u64 po, [out]; mov.b16 m, 0x00f0; mov.u32 i, %tid.x; mov.b32 s, mem; add.u32 s, s, i;
setp.lt.u32 first, i, 8; @first st.shared.u8 [s], i; fence.proxy.async; bar.sync 0;
setp.eq.u32 first, i, 0;
@first cp.async.bulk.global.shared::cta.bulk_group.cp_mask [po], [mem], 16, m;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
ret;
}"""


@pytest.mark.parametrize("mask", [0x00F0, 0x0100])
def test_byte_outside_the_mask_may_be_unwritten(mask: int) -> None:
    device = cujit.cpu(1, check="all")
    out, kernel = device.zeros(16, np.uint8), cujit.load(_MASKED.replace("0x00f0", hex(mask)), device)["k"]
    if mask == 0x00F0:
        kernel[1, 32](out)
        assert out.numpy().tolist() == [0] * 4 + [4, 5, 6, 7] + [0] * 8
    else:
        with raises(KernelFaultError, "fault-init", "8", "byte"):
            kernel[1, 32](out)
