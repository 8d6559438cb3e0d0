"""What an H200 was seen to do where the manual is silent, or says something else; each with its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from cujit.loading import load
from instructions.scene import GOLDENS, every_scene
from raising import raises

_HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
_MASK = (1 << 128) - 1


def _run(device: Device, body: str, words: int, declared: str = "") -> list[int]:
    start = f".visible .entry k(.param .u64 out) {{ .reg .b64 p; ld.param.u64 p, [out]; {declared}"
    text = f"{_HEAD}{start}{body} }}"
    out = device.array(np.zeros(words, np.uint32))
    load(Artifact.of(text), device)["k"][1, 1](out)
    return [int(x) for x in out.numpy()]


def test_carry_of_a_subtraction_matches_an_adder(device: Device) -> None:
    body = """
.reg .b32 a, b, c; sub.cc.u32 a, 1, 2; addc.u32 b, 0, 0; sub.cc.u32 a, 2, 1; addc.u32 c, 0, 0;
st.global.u32 [p], b; st.global.u32 [p+4], c; add.cc.u32 a, 1, 2; subc.u32 b, 5, 3; st.global.u32 [p+8], b;
add.cc.u32 a, -1, 2; subc.u32 b, 5, 3; st.global.u32 [p+12], b; ret;"""
    assert _run(device, body, 4) == [0, 1, 1, 2]


def test_both_predicates_of_setp_see_the_old_third_operand(device: Device) -> None:
    body = """
.reg .pred x, y; .reg .b32 a; setp.eq.u32 x, 0, 0; setp.gt.and.u32 x|y, 1, 2, x;
selp.u32 a, 1, 0, x; st.global.u32 [p], a; selp.u32 a, 1, 0, y; st.global.u32 [p+4], a; ret;"""
    assert _run(device, body, 2) == [0, 1]


@pytest.mark.parametrize("space", ["shared", "local"])
def test_variable_named_without_its_space_is_found(space: str, device: Device) -> None:
    body = f"""
.reg .b32 a, b; st.{space}.b32 [to], 7; ld.b32 a, [to]; st.b32 [to+4], 9; ld.{space}.b32 b, [to+4];
st.global.u32 [p], a; st.global.u32 [p+4], b; ret;"""
    assert _run(device, body, 2, declared=f".{space} .b32 to[2]; ") == [7, 9]


def test_every_form_of_an_address_is_equivalent() -> None:
    """Of the scenes of state spaces, all addresses of one place gave a GPU what the first gave.

    What a device leaves in each scene is held to that by ``test_scenes``.
    """
    with np.load(GOLDENS) as goldens:
        of_spaces = {name: goldens[name] for name in goldens.files if re.fullmatch(r"space_\w+:1", name)}
    assert {name.removesuffix(":1") for name in of_spaces} == {s for s in every_scene() if s.startswith("space_")}
    for name, found in of_spaces.items():
        assert len({each.tobytes() for each in found}) == 2, name  # at the start, and 64 bytes behind it


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "add.cc.u32 d0, a0, b0; addc.cc.u32 d1, a1, b1; addc.cc.u32 d2, a2, b2; addc.u32 d3, a3, b3;",
            lambda a, b: a + b,
        ),
        (
            "sub.cc.u32 d0, a0, b0; subc.cc.u32 d1, a1, b1; subc.cc.u32 d2, a2, b2; subc.u32 d3, a3, b3;",
            lambda a, b: a - b,
        ),
        (
            "mul.lo.u32 d0, a0, b0; mul.hi.u32 d1, a0, b0; mul.lo.u32 d2, a1, b1; mul.hi.u32 d3, a1, b1;"
            "mad.lo.cc.u32 d1, a1, b0, d1; madc.hi.cc.u32 d2, a1, b0, d2; addc.u32 d3, d3, 0;"
            "mad.lo.cc.u32 d1, a0, b1, d1; madc.hi.cc.u32 d2, a0, b1, d2; addc.u32 d3, d3, 0;",
            lambda a, b: (a % (1 << 64)) * (b % (1 << 64)),
        ),
    ],
    ids=["sum", "difference", "product"],
)
def test_carry_runs_through_words(body: str, expected: Callable[[int, int], int], device: Device) -> None:
    text = f"""{_HEAD}.visible .entry k(.param .u64 in, .param .u64 out) {{
.reg .b32 a<4>, b<4>, d<4>, t; .reg .b64 p, q, o; ld.param.u64 p, [in]; ld.param.u64 q, [out]; mov.u32 t, %tid.x;
mul.wide.u32 o, t, 32; add.u64 p, p, o; mul.wide.u32 o, t, 16; add.u64 q, q, o;
ld.global.v4.b32 {{a0, a1, a2, a3}}, [p]; ld.global.v4.b32 {{b0, b1, b2, b3}}, [p+16]; {body}
st.global.v4.b32 [q], {{d0, d1, d2, d3}}; ret; }}"""
    rng = np.random.default_rng(5)
    words = rng.choice(np.array([0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x12345678], np.uint32), (64, 2, 4))
    out = device.array(np.zeros((64, 4), np.uint32))
    load(Artifact.of(text), device)["k"][1, 64](device.array(words), out)
    numbers = [[int.from_bytes(each.tobytes(), "little") for each in pair] for pair in words]
    got = [int.from_bytes(each.tobytes(), "little") for each in out.numpy()]
    assert got == [expected(a, b) & _MASK for a, b in numbers]


@pytest.mark.parametrize("runs", [True, False])
def test_guard_decides_for_the_whole_warp_about_matrices(runs: bool, device: Device) -> None:
    text = f"""{_HEAD.replace("sm_80", "sm_90")}.visible .entry k(.param .u64 out, .param .u32 n) {{
.reg .b32 t, s, a, b, c; .reg .f64 f, g; .reg .b64 p, o; .reg .pred go; .shared .align 128 .b8 m[512];
ld.param.u64 p, [out]; ld.param.u32 c, [n]; setp.ne.u32 go, c, 0; mov.u32 t, %tid.x; mul.wide.u32 o, t, 4;
add.u64 p, p, o; mov.u32 s, m; mad.lo.u32 s, t, 16, s; st.shared.v4.b32 [s], {{t, t, t, t}}; bar.sync 0;
mov.b32 a, 1000; @go ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{a}}, [s]; st.global.b32 [p], a;
bar.sync 0; mov.b32 b, 7; @!go stmatrix.sync.aligned.m8n8.x1.shared.b16 [s], {{b}}; bar.sync 0;
ld.shared.b32 b, [s]; st.global.b32 [p+128], b; mov.f64 f, 0d4008000000000000; st.shared.f64 [s], f; bar.sync 0;
mov.u32 s, m; mov.f64 g, 0d3FF0000000000000; @go wmma.load.a.sync.aligned.row.m8n8k4.shared.f64 {{g}}, [s], 4;
cvt.rni.s32.f64 a, g; st.global.b32 [p+256], a; ret; }}"""
    out = device.array(np.zeros((3, 32), np.uint32))
    load(Artifact.of(text.replace(".version 8.0", ".version 8.6")), device)["k"][1, 32](out, int(runs))
    loaded, stored, tile = out.numpy()
    lanes = np.arange(32)
    assert loaded.tolist() == (lanes // 4 if runs else np.full(32, 1000)).tolist()
    assert stored.tolist() == (lanes if runs else np.where(lanes < 8, 7, lanes)).tolist()
    assert (tile == 1).all() != runs


@pytest.mark.parametrize("space", ["", ".shared"])
def test_matrix_is_loaded_from_a_variable_in_a_named_space(space: str, cpu: Device) -> None:
    """As on an H200, where ``wmma.load`` of a bare name takes its offset for an address of all memory."""
    text = f"""
.visible .entry k(.param .u64 at) {{
  .reg .b64 p; .reg .b32 r<8>, t; .shared .align 32 .b8 filled[4096];
  mov.u32 t, %tid.x; mov.u32 r1, filled; mad.lo.u32 t, t, 32, r1; mov.b32 r0, 0x3C003C00;
  st.shared.v4.b32 [t], {{r0, r0, r0, r0}}; st.shared.v4.b32 [t+16], {{r0, r0, r0, r0}}; bar.warp.sync -1;
  wmma.load.a.sync.aligned.row.m16n16k16{space}.f16 {{r0, r1, r2, r3, r4, r5, r6, r7}}, [filled];
  ld.param.u64 p, [at]; st.global.b32 [p], r7; ret;
}}"""
    kernel = load(Artifact.of(_HEAD + text), cpu)["k"]
    out = cpu.array(np.zeros(1, np.uint32))
    if space:
        kernel[1, 32](out)
        assert out.numpy()[0] == 0x3C003C00
    else:
        with raises(KernelFaultError, "fault-illegal-address", 'cujit.cpu(check="memory")'):
            kernel[1, 32](out)


def test_byte_loaded_past_the_cache_keeps_its_sign(cpu: Device) -> None:
    at = "ld.param.u64 q, [out]; st.global.b32 [q], 0x7F80;"
    loads = "ldu.global.s8 r, [q]; ldu.global.s8 s, [q+1]; st.global.b32 [q+4], r; st.global.b32 [q+8], s;"
    assert _run(cpu, f".reg .b64 q; .reg .b32 r, s; {at} {loads}", 3) == [0x7F80, 0xFFFFFF80, 0x7F]
