"""Addresses of shared memory that a compiler made of 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.cpu.analysis.narrowing import narrowed
from cujit.devices.cpu.frontend.flatten import flatten
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.program import KernelProgram, Reg
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.device import Device
from cujit.formats.ptx.parser import parse
from devices.cpu.launching import ptx_of, run_ptx

# What leaves the address of the thread's own word of the tile in d0.
_WAYS = {
    "mul.wide": "mul.wide.u32 d1, t, 4; mov.u64 d2, tile; add.s64 d0, d2, d1;",
    "mul.wide.s32": "mul.wide.s32 d1, t, 4; mov.b64 d2, tile; add.u64 d0, d1, d2;",
    "mad.wide": "mov.s64 d2, tile; mad.wide.u32 d0, t, 4, d2;",
    "mul.lo": "cvt.u64.u32 d1, t; mul.lo.s64 d1, d1, 4; mov.u64 d2, tile; add.s64 d0, d2, d1;",
    "mad.lo": "cvt.s64.s32 d1, t; mov.u64 d2, tile; mad.lo.u64 d0, d1, 4, d2;",
    "shl": "cvt.u64.u32 d1, t; shl.b64 d1, d1, 2; mov.u64 d2, tile+4; add.s64 d0, d2, d1; sub.s64 d0, d0, 4;",
    "bits": """cvt.u64.u32 d1, t; shl.b64 d1, d1, 2; xor.b64 d1, d1, 12; not.b64 d1, d1; not.b64 d1, d1;
        and.b64 d1, d1, 1020; xor.b64 d1, d1, 12; or.b64 d1, d1, 0; mov.u64 d2, tile; add.u64 d0, d2, d1;""",
    "selp": """mul.wide.u32 d1, t, 4; mov.u64 d2, tile; setp.lt.u32 q0, t, 16; add.s64 d3, d2, d1;
        sub.s64 d4, d3, 64; add.s64 d4, d4, 64; selp.b64 d0, d3, d4, q0;""",
    "guards": """mov.u64 d0, tile; setp.lt.u32 q0, t, 16; mul.wide.u32 d1, t, 4; mov.u64 d2, 64;
        @q0 add.s64 d0, d0, d1; @!q0 sub.s64 d1, d1, d2; @!q0 add.s64 d0, d0, 64; @!q0 add.s64 d0, d0, d1;""",
    "a loop": """mov.u64 d0, tile; mov.u32 r1, 0;
        TURN: setp.ge.u32 q0, r1, t; @q0 bra DONE; add.s64 d0, d0, 4; add.u32 r1, r1, 1; bra TURN; DONE:""",
    "both widths read": """mul.wide.u32 d1, t, 4; mov.u64 d2, tile; add.s64 d0, d2, d1;
        shr.u64 d3, d0, 1; st.u64 [p1], d3;""",
    "no half of its own": "cvt.u64.u32 d1, t; mov.u64 d2, 128; mul.hi.u64 d3, d1, d2; mov.u64 d4, tile;"
    "mad.wide.u32 d4, t, 4, d4; add.s64 d0, d3, d4;",
    "two words": "mov.u32 r1, tile; mad.lo.u32 r1, t, 4, r1; mov.b64 d0, {r1, r1}; and.b64 d0, d0, 0xFFFFFFFF;",
}  # fmt: skip
_SWAP = """.shared .align 8 .b32 tile[64]; {way}
ld.global.u32 r3, [at]; st.shared.u32 [d0], r3; bar.sync 0;
xor.b32 r4, t, 1; sub.s32 r4, r4, t; mad.wide.s32 d5, r4, 4, d0; ld.shared.u32 r5, [d5];
bar.sync 0; atom.shared.add.u32 r6, [d5], r3; ld.shared.u32 r7, [d5]; add.u32 r5, r5, r7; st.global.u32 [at], r5;"""


@pytest.mark.parametrize("way", _WAYS)
def test_narrowed_address_is_equal(way: str, device: Device) -> None:
    words = np.arange(100, 164, dtype=np.uint32)
    got, _ = run_ptx(device, _SWAP.format(way=_WAYS[way]), words, np.zeros(2, np.uint32), block=64)
    other = words.reshape(-1, 2)[:, ::-1].reshape(-1)
    np.testing.assert_array_equal(got, other + other + words)


@pytest.mark.parametrize("way", _WAYS)
def test_shared_memory_is_accessed_by_32_bits(way: str) -> None:
    program = _program(_SWAP.format(way=_WAYS[way]))
    assert _widths(program) == {64}
    assert _widths(narrowed(program)) == {32}


def test_unneeded_registers_are_removed() -> None:
    program = narrowed(_program(_SWAP.format(way=_WAYS["mul.wide"])))
    assert not [op for op in program.ops if op.name in ("add.s64", "mul.wide.u32", "mad.wide.s32")][1:]  # of ``at``
    wide = narrowed(_program(_SWAP.format(way=_WAYS["both widths read"])))
    assert [op.name for op in wide.ops].count("add.s64") == 1  # whose result is shifted, too


def test_word_stored_at_itself_stays_whole(device: Device) -> None:
    body = """.shared .align 8 .b64 tile[32]; mov.u64 d0, tile; mad.wide.u32 d0, t, 8, d0;
        mov.u64 d1, 0x500000000; add.s64 d1, d0, d1; st.shared.u64 [d0], d1; ld.shared.u32 r1, [d0+4];
        st.global.u32 [at], r1;"""
    (got,) = run_ptx(device, body, np.zeros(32, np.uint32))
    np.testing.assert_array_equal(got, 5)


def test_values_of_32_bits_stay_unchanged() -> None:
    body = ".shared .b32 tile[32]; mov.u32 r1, tile; mad.lo.u32 r1, t, 4, r1; st.shared.u32 [r1], t;"
    program = _program(body)
    assert narrowed(program) is program


@pytest.mark.parametrize("upper", [0x5, 0x7FFFFFFF, 0xFFFFFFFF])
def test_upper_half_is_ignored(upper: int, device: Device) -> None:
    body = """.shared .align 8 .b32 tile[32]; mov.u32 r1, tile; mad.lo.u32 r1, t, 4, r1; ld.global.u32 r2, [p1];
        mov.b64 d0, {r1, r2}; st.shared.u32 [d0], t; bar.sync 0; xor.b32 r3, t, 5; sub.s32 r3, r3, t;
        mad.wide.s32 d1, r3, 4, d0; ld.shared.u32 r4, [d1]; atom.shared.add.u32 r5, [d1], 1;
        bar.sync 0; ld.shared.u32 r5, [d0]; mad.lo.u32 r4, r5, 100, r4; st.global.u32 [at], r4;"""
    got, _ = run_ptx(device, body, np.zeros(32, np.uint32), np.full(1, upper, np.uint32))
    lanes = np.arange(32, dtype=np.uint32)
    np.testing.assert_array_equal(got, (lanes + 1) * 100 + (lanes ^ 5))


def test_registers_of_an_uninitialized_cycle_start_at_zero(cpu: Device) -> None:
    body = """.shared .align 8 .b32 tile[32]; mov.u32 r3, tile; mad.lo.u32 r3, t, 4, r3; st.shared.u32 [r3], t;
        mov.u32 r4, 0; bar.sync 0; L: add.u32 r1, r2, 1024; atom.shared.inc.u32 r2, [r1], 99; and.b32 r2, r2, 124;
        add.u32 r4, r4, 1; setp.lt.u32 q0, r4, 2; @q0 bra L; ld.shared.u32 r5, [r3]; st.global.u32 [at], r5;"""
    (got,) = run_ptx(cpu, body, np.zeros(32, np.uint32))
    assert got.sum() == sum(range(32)) + 64  # every lane adds 1 twice, wherever


def _program(body: str) -> KernelProgram:
    module, refusals = parse(ptx_of(body, 2)), Refusals()
    program = flatten(module.entries[0], ModuleLayout(module, refusals), refusals)
    assert not refusals.items
    return program


def _widths(program: KernelProgram) -> set[int]:
    """The widths of the registers by which shared memory is accessed."""
    accesses = [op for op in program.ops if op.opcode in ("ld", "st", "atom") and op.space == "shared"]
    return {op.memory.base.bits for op in accesses if isinstance(op.memory.base, Reg)}
