"""Forms of PTX 1.x that name no rounding, and small forms that came late: values, against models."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from cujit.errors import PtxSyntaxError, UnsupportedError
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
from devices.cpu.launching import Array, blank, run_ptx
from devices.textures_table import run_body
from raising import raises

Bits = npt.NDArray[np.uint32]
RANDOM = np.random.default_rng(3).integers(0, 1 << 32, (3, 32)).astype(np.uint32)
REALS = np.random.default_rng(4).uniform(0.5, 8, (2, 32)).astype(np.float32)
REGISTERS = ".reg .b32 x, y, z, o; .reg .f32 fx, fy, fo; .reg .b16 hx, hy; .reg .b8 cx; .reg .f64 dx, dy, do;\n"


def computed(device: Device, statement: str, *sources: Array, version: str = "8.0", target: str = "sm_90") -> Bits:
    """What a statement leaves in ``o``, of ``x``, ``y``, ``z`` (and the same as f32, ``fx``, in ``fo``)."""
    loads = "".join(
        f"sub.u64 d0, at, p0; add.u64 d0, d0, p{k}; ld.global.u32 {name}, [d0]; mov.b32 f{name}, {name};\n"
        for k, name in list(enumerate(("x", "y"), 1))[: len(sources)]
    )
    third = "sub.u64 d0, at, p0; add.u64 d0, d0, p3; ld.global.u32 z, [d0];\n" if len(sources) == 3 else ""
    body = f"{REGISTERS}{loads}{third}{statement}\nst.global.u32 [at], o;"
    inputs = [np.ascontiguousarray(s).view(np.uint32) for s in sources]
    out = run_ptx(device, body, blank(32), *inputs, version=version, target=target)[0]
    return np.asarray(out, np.uint32)


@pytest.mark.parametrize("opcode", ["div", "rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "mad"])
def test_f32_without_rounding_is_approximate_as_in_ptx_1(cpu: Device, opcode: str) -> None:
    operands = {"div": "fx, fy", "mad": "fx, fy, fx"}.get(opcode, "fx")
    today = {"div": "div.approx.ftz", "mad": "mad.rn.ftz"}.get(opcode, f"{opcode}.approx.ftz")
    values = REALS.copy()
    values[0, :2] = 1e-40, -1e-40
    old, new = (
        computed(cpu, f"{name}.f32 fo, {operands}; mov.b32 o, fo;", *values, version=version, target=target)
        for name, version, target in ((opcode, "1.3", "sm_13"), (today, "8.0", "sm_90"))
    )
    assert np.array_equal(old, new)


def test_f64_without_a_rounding_is_to_nearest(cpu: Device) -> None:
    wide = "cvt.f64.f32 dx, fx; cvt.f64.f32 dy, fy; {} cvt.rn.f32.f64 fo, do; mov.b32 o, fo;"
    for old, new in (("div.f64", "div.rn.f64"), ("mad.f64", "mad.rn.f64")):
        operands = "dx, dy, dx" if old == "mad.f64" else "dx, dy"
        first, second = (
            computed(cpu, wide.format(f"{name} do, {operands};"), *REALS, version=version, target=target)
            for name, version, target in ((old, "1.3", "sm_13"), (new, "8.0", "sm_90"))
        )
        assert np.array_equal(first, second)


@pytest.mark.parametrize("type_", ["u16", "s16"])
def test_saturated_pairs(cpu: Device, type_: str) -> None:
    x, y = (
        np.ascontiguousarray(row).view(np.dtype(f"{type_[0].replace('s', 'i')}2")).astype(int) for row in RANDOM[:2]
    )
    low, high = (0, 0xFFFF) if type_ == "u16" else (-0x8000, 0x7FFF)
    expected = np.clip(x + y, low, high).astype(np.uint16).view(np.uint32)
    got = computed(cpu, f"add.sat.{type_}x2 o, x, y;", *RANDOM[:2], version="9.2", target="sm_120f")
    assert np.array_equal(got, expected)


def test_small_floats_become_bf16_times_a_scale(cpu: Device) -> None:
    codes = (np.arange(32, dtype=np.uint32) * 3 + 0x2000) & 0x7E7E
    scale = 0x7F81  # 2^0 for the upper one, 2^2 for the lower one
    statement = f"cvt.u16.u32 hx, x; mov.b16 hy, {scale}; cvt.rn.scaled::n2::ue8m0.bf16x2.e5m2x2 o, hx, hy;"
    out = computed(cpu, statement, codes, version="9.2", target="sm_100a")
    halves = codes.astype("<u2").view(np.uint8).reshape(32, 2)  # the lower one first
    reals = (halves.astype(np.uint16) << 8).view(np.float16).astype(np.float32) * np.array([4, 1], np.float32)
    expected = (reals.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)
    assert np.array_equal(out, expected[:, 0])


@pytest.mark.parametrize("signs", ["-+", "--"])
def test_vmad_accepts_negated_sources(cpu: Device, signs: str) -> None:
    x, y, z = RANDOM.view(np.int32).astype(object)
    minus = ["-" if s == "-" else "" for s in signs]
    out = computed(cpu, f"vmad.s32.s32.s32 o, {minus[0]}x, {minus[1]}y, z;", *RANDOM)
    sign = -1 if signs == "-+" else 1
    assert [int(v) for v in out] == [(sign * a * b + c) & 0xFFFFFFFF for a, b, c in zip(x, y, z, strict=True)]


def test_sign_before_a_register_is_refused_elsewhere(cpu: Device) -> None:
    with raises(PtxSyntaxError, "ptx-syntax", "add.s32 o"):
        computed(cpu, "add.s32 o, -x, y;", *RANDOM[:2])
    body = ".reg .b32 r<4>; vmad.s32.s32.s32 r1, -r1, r2, r3;"
    text = f".version 8.0\n.target sm_90\n.address_size 64\n.entry k() {{ {body} }}"
    assert "-r1, r2, r3" in print_module(parse(text))


def test_releasing_stores_and_sums_complete_immediately(cpu: Device) -> None:
    body = "mov.u32 r1, 7;\nst.async.release.gpu.global.u32 [at], r1;\nred.async.release.gpu.global.add.u32 [at], t;"
    assert list(run_ptx(cpu, body, blank(32), version="8.7", target="sm_100")[0]) == [7 + k for k in range(32)]


def test_try_cancel_finds_only_blocks_that_have_not_started(cpu: Device) -> None:
    body = """
.shared .align 16 .b8 answer[16]; .shared .align 8 .b64 bar; .reg .b128 word; .reg .b64 s;
setp.ne.u32 q1, t, 0; @q1 bra done;
mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 s, [bar], 16;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [answer], [bar];
mbarrier.test_wait.shared.b64 q2, [bar], s;
ld.shared.b128 word, [answer];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 q3, word;
selp.u32 r1, 1, 0, q2; selp.u32 r2, 16, 0, q3; add.u32 r1, r1, r2;
@q3 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 r1, word;
@q3 clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 r1, word;
@q3 clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 r1, word;
@q3 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {r1, r2, _, _}, word;
st.global.u32 [at], r1;
done:"""
    assert run_ptx(cpu, body, blank(32), version="8.6", target="sm_100a")[0][0] == 1


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_try_cancel_answers_all_blocks_of_a_cluster(blocks: int, cpu: Device) -> None:
    body = """
.shared .align 16 .b8 answer[16]; .shared .align 8 .b64 bar; .reg .b128 word; .reg .b32 rank;
setp.ne.u32 q1, t, 0; mov.u32 rank, %cluster_ctarank; setp.ne.or.u32 q2, rank, 0, q1;
@!q1 mbarrier.init.shared.b64 [bar], 1; @!q1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
barrier.cluster.arrive; barrier.cluster.wait;
@!q2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128
    [answer], [bar];
WAIT: mbarrier.try_wait.parity.shared.b64 q3, [bar], 0; @!q3 bra WAIT;
ld.shared.b128 word, [answer];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 q3, word;
selp.u32 r1, 2, 1, q3; st.global.u32 [at], r1;"""
    directives = f".reqnctapercluster {blocks}, 1, 1"
    (got,) = run_ptx(cpu, body, blank(32 * blocks), grid=blocks, version="8.6", target="sm_100a", directives=directives)
    assert list(got) == [1] * 32 * blocks


def test_refusal_explains_the_reason(cpu: Device) -> None:
    with raises(UnsupportedError, "unsupported", "GPUs", "multimem.red.release.gpu.global.add.u32"):
        computed(cpu, "multimem.red.release.gpu.global.add.u32 [at], x;", RANDOM[0], version="8.1")


def test_texture_fetch_can_return_halves(cpu: Device) -> None:
    data = np.random.default_rng(5).standard_normal((1, 8, 4)).astype(np.float32)
    texture = cpu.texture(data, channels=4)
    words = np.arange(8, dtype=np.int32).reshape(8, 1)
    four = "tex.2d.v4.f16.s32 {h0, h1, h2, h3}, [t, {c0, c1}]; " + "".join(
        f"cvt.u32.u16 w{k}, h{k}; " for k in range(4)
    )
    two = "tex.2d.v2.f16x2.s32 {w0, w1}, [t, {c0, c1}];"
    expected = data[0].astype(np.float16)
    single = run_body(cpu, four, texture.handle, words).astype(np.uint16).view(np.float16)
    paired = run_body(cpu, f"mov.b32 w2, 0; mov.b32 w3, 0; {two}", texture.handle, words)
    assert np.array_equal(single, expected)
    assert np.array_equal(paired[:, :2].copy().view(np.float16), expected)


def test_selection_between_signed_numbers(cpu: Device) -> None:
    got = computed(cpu, "setp.lt.s32 q1, x, y; selp.s32 o, x, y, q1;", *RANDOM[:2])
    assert np.array_equal(got, np.minimum(*RANDOM[:2].view(np.int32)).view(np.uint32))


def test_barrier_may_name_the_block_scope(cpu: Device) -> None:
    body = """
.shared .align 4 .b8 word[4];
setp.lt.u32 q0, t, 32; @q0 bra WAIT;
st.shared.u32 [word], 7; bar.cta.arrive 1, 64; bra MEET;
WAIT: bar.cta.sync 1, 64; ld.shared.u32 r1, [word]; st.global.u32 [at], r1;
MEET: bar.cta.sync 0;"""
    got = run_ptx(cpu, body, blank(64), block=64)[0]
    assert list(got[:32]) == [7] * 32
