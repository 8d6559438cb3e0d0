"""Every special register can be read, and gives what it should."""

from __future__ import annotations

import struct
import time

import numpy as np
import numpy.typing as npt
import pytest

from cujit.artifact import Artifact
from cujit.devices.cpu.codegen.special import SPECIAL_REGISTERS as READABLE
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.formats.ptx.special_registers import SPECIAL_REGISTERS, SpecialRegister

Words = npt.NDArray[np.uint64]

REFUSED = {"locality_domain_id", "locality_domain_supplemental_sm", "perctamemoryoffset", "perctamemorysize"}
"""What hardware alone can tell: kernels that read it are refused by name."""

NAMES = [
    f"{row.name}.{c}" if c else row.name
    for row in SPECIAL_REGISTERS.values()
    for c in row.components or ("",)
    if row.name[1:] not in REFUSED
]


def read(device: Device, names: list[str], grid: Dim3, block: Dim3, shared_bytes: int = 0, static: int = 0) -> Words:
    """Read registers in every thread; the result is indexed by register and thread, block after block."""
    threads = grid.volume * block.volume
    lines = [
        ".version 9.0\n.target sm_90\n.address_size 64",
        f".shared .align 16 .b8 room[{static}];" if static else "",
        ".visible .entry k(.param .u64 po) {\n.reg .b32 t, u, v, w;\n.reg .b64 o, x, d;\n.reg .pred p;",
        "ld.param.u64 o, [po];",
        "mov.u32 t, %ctaid.z;\nmov.u32 u, %nctaid.y;\nmov.u32 v, %ctaid.y;\nmad.lo.u32 t, t, u, v;",
        "mov.u32 u, %nctaid.x;\nmov.u32 v, %ctaid.x;\nmad.lo.u32 t, t, u, v;",
        f"mul.lo.u32 t, t, {block.volume};\nmov.u32 u, %tid.z;\nmov.u32 v, %tid.y;\nmov.u32 w, %tid.x;",
        f"mad.lo.u32 u, u, {block.y}, v;\nmad.lo.u32 u, u, {block.x}, w;\nadd.u32 t, t, u;",
        "mul.wide.u32 x, t, 8;\nadd.u64 o, o, x;",
        "mov.u32 u, room;\nst.shared.u32 [u], t;" if static else "",
    ]
    for k, name in enumerate(names):
        row = SPECIAL_REGISTERS[name.partition(".")[0]]
        lines.append(_reading(name, row))
        lines.append(f"st.global.u64 [o+{8 * threads * k}], d;")
    module = device.load(Artifact.of("\n".join([*lines, "ret;\n}"])))
    out = device.zeros(threads * len(names), np.uint64)
    module.kernels["k"].launch(LaunchShape(grid, block, shared_bytes), struct.pack("<Q", out.address))
    return np.asarray(out.numpy()).reshape(len(names), threads)


def _reading(name: str, row: SpecialRegister) -> str:
    if row.type == "pred":
        return f"mov.pred p, {name};\nselp.u64 d, 1, 0, p;"
    if row.type == "u64":
        return f"mov.u64 d, {name};"
    return f"mov.{row.type} t, {name};\ncvt.u64.u32 d, t;"


def test_every_special_register_of_the_isa_is_supported() -> None:
    assert {name[1:] for name in NAMES} == set(READABLE)
    assert {name[1:] for name in SPECIAL_REGISTERS} >= REFUSED


@pytest.mark.parametrize("start", range(0, len(NAMES), 24))
def test_every_special_register_can_be_read(start: int, cpu: Device) -> None:
    names = NAMES[start : start + 24]
    got = read(cpu, names, Dim3(2, 2), Dim3(7, 3, 2))
    narrow = [SPECIAL_REGISTERS[name.partition(".")[0]].type != "u64" for name in names]
    assert (got[narrow] < 1 << 32).all()


def test_without_a_cluster_each_block_is_one(device: Device) -> None:
    if not device.is_gpu or device.arch.number >= 90:
        grid = Dim3(3, 2, 2)
        same = ["%clusterid", "%nclusterid", "%ctaid", "%nctaid"]
        got = read(device, [f"{name}.{axis}" for name in same for axis in "xyz"], grid, Dim3(32))
        assert (got[:6] == got[6:]).all()
        ones = ["%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_nctaid.z", "%cluster_nctarank"]
        zeros = ["%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctaid.z", "%cluster_ctarank", "%is_explicit_cluster"]
        got = read(device, [*ones, *zeros], grid, Dim3(32))
        assert (got[:4] == 1).all()
        assert (got[4:] == 0).all()


def test_lane_masks_match_the_lane(device: Device) -> None:
    names = ["%laneid", *(f"%lanemask_{m}" for m in ("eq", "le", "lt", "ge", "gt"))]
    got = read(device, names, Dim3(1), Dim3(13, 5)).astype(object)
    thread = np.arange(65)
    assert got[0].tolist() == (thread % 32).tolist()
    for lane, eq, le, lt, ge, gt in got.T.tolist():
        bit = 1 << lane
        assert (eq, le, lt) == (bit, 2 * bit - 1, bit - 1)
        assert (ge, gt) == (0xFFFFFFFF & -bit, 0xFFFFFFFF & -2 * bit)


def test_sizes_of_shared_memory(device: Device) -> None:
    got = read(device, ["%dynamic_smem_size", "%total_smem_size"], Dim3(1), Dim3(32), 200, 100)
    assert (got[0] == 200).all()
    assert (got[1] == 384).all()  # 300 bytes and more, in units of 128


def test_timer_counts_nanoseconds(cpu: Device) -> None:
    names = ["%globaltimer", "%globaltimer_hi", "%clock64", "%clock_hi"]
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    first = read(cpu, names, Dim3(1), Dim3(1))[:, 0]
    time.sleep(0.02)
    second = read(cpu, names, Dim3(1), Dim3(1))[:, 0]
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert before <= int(first[0]) <= int(second[0]) - 20_000_000 <= after - 20_000_000
    assert int(first[1]) in (int(first[0]) >> 32, (int(first[0]) >> 32) + 1)
    assert int(second[2]) > int(first[2])
    assert int(second[3]) - (int(second[2]) >> 32) in (0, 1)


def test_special_register_is_read_as_a_vector(cpu: Device) -> None:
    text = """.version 8.0\n.target sm_90\n.address_size 64
    .visible .entry k(.param .u64 po) { .reg .b32 a, b, c, t; .reg .b64 o, x; ld.param.u64 o, [po];
    mov.v4.u32 {a, b, c, _}, %tid; mad.lo.u32 t, c, 3, b; mad.lo.u32 t, t, 8, a; mul.wide.u32 x, t, 4;
    add.u64 o, o, x; shl.b32 b, b, 8; shl.b32 c, c, 16; or.b32 a, a, b; or.b32 a, a, c; st.global.u32 [o], a; ret; }"""
    out = cpu.zeros(48, np.uint32)
    shape = LaunchShape(Dim3(1), Dim3(8, 3, 2))
    cpu.load(Artifact.of(text)).kernels["k"].launch(shape, struct.pack("<Q", out.address))
    expected = [x | y << 8 | z << 16 for z in range(2) for y in range(3) for x in range(8)]
    assert out.numpy().tolist() == expected


def test_cluster_registers_give_block_positions(cpu: Device) -> None:
    names = ["%clusterid.x", "%cluster_ctaid.x", "%nclusterid.x", "%cluster_nctaid.x", "%cluster_ctarank",
             "%cluster_nctarank", "%is_explicit_cluster"]  # fmt: skip
    stores = "".join(
        f"{_reading(n, SPECIAL_REGISTERS[n.partition('.')[0]])}\nst.global.u64 [o+{8 * k}], d;\n"
        for k, n in enumerate(names)
    )
    text = f""".version 9.0\n.target sm_90\n.address_size 64
    .visible .entry k(.param .u64 po) .reqnctapercluster 3, 1, 1 {{ .reg .b32 t; .reg .b64 o, x, d; .reg .pred p;
    ld.param.u64 o, [po]; mov.u32 t, %ctaid.x; mul.wide.u32 x, t, 56; add.u64 o, o, x;\n{stores} ret; }}"""
    out = cpu.zeros(6 * 7, np.uint64)
    shape = LaunchShape(Dim3(6), Dim3(1))
    cpu.load(Artifact.of(text)).kernels["k"].launch(shape, struct.pack("<Q", out.address))
    assert out.numpy().reshape(6, 7).tolist() == [[b // 3, b % 3, 2, 3, b % 3, 3, 1] for b in range(6)]
