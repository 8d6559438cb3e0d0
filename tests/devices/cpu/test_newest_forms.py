"""What PTX 9.3 to 9.5 added: what is executed against exact arithmetic, and what is refused by name."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.errors import UnsupportedError
from devices.cpu.halves_exactly import FORMATS
from raising import raises
from toolkits.minimal import module_of

pytestmark = pytest.mark.usefixtures("unoptimised")

Array = npt.NDArray[Any]
COUNT = 512
RANDOM = np.random.default_rng(95)


def computed(device: Device, body: str, *sources: Array, target: str = "sm_107a") -> Array:
    """Do statements for every element: ``d`` of 64 bits from ``a``, ``b`` and ``c`` of 64 bits."""
    names = "abc"[: len(sources)]
    lines = [f".version 9.5\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 pd"]
    lines += [f", .param .u64 p{x}" for x in names]
    lines.append(") {.reg .b64 a, b, c, d, at, i; .reg .b32 t, u, r<9>; .reg .b16 h<9>; .reg .b8 q<9>; .reg .f32 f<9>;")
    lines.append("mov.u32 t, %ctaid.x; mov.u32 u, %tid.x; mad.lo.u32 t, t, 128, u; cvt.u64.u32 i, t;")
    lines += [f"ld.param.u64 at, [p{x}]; mad.lo.u64 at, i, 8, at; ld.global.b64 {x}, [at];" for x in names]
    lines.append(f"mov.b64 d, 0; {body} ld.param.u64 at, [pd]; mad.lo.u64 at, i, 8, at; st.global.b64 [at], d; ret; }}")
    module = device.load(Artifact.of("\n".join(lines)))
    size = -(-len(sources[0]) // 128) * 128
    padded = [np.zeros(size, np.uint64) for _ in sources]
    for place, source in zip(padded, sources, strict=True):
        place[: len(source)] = source
    inputs, out = [device.array(each) for each in padded], device.zeros(size, np.uint64)
    parameters = struct.pack(f"<{1 + len(inputs)}Q", out.address, *(x.address for x in inputs))
    module.kernels["k"].launch(LaunchShape(Dim3(size // 128), Dim3(128)), parameters)
    return np.asarray(out.numpy())[: len(sources[0])]


def words(count: int = COUNT) -> Array:
    """Any bits, and such of few ones or zeros."""
    some = RANDOM.integers(0, 1 << 64, count, np.uint64)
    some[: count // 4] &= RANDOM.integers(0, 1 << 64, count // 4, np.uint64)
    some[count // 4 : count // 2] |= RANDOM.integers(0, 1 << 64, count // 4, np.uint64)
    some[:4] = 0, 1, 1 << 63, (1 << 64) - 1
    return some


def floats(*, subnormal: bool = True) -> Array:
    """Numbers of f32 of every size, as bits, in the lower half of words; NaN, infinities and zeros are among them."""
    bits = RANDOM.integers(0, 1 << 32, COUNT, np.uint32)
    bits[:8] = 0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 1, 0x3F800000, 0xBF800001
    bits[8:200] = (RANDOM.standard_normal(192) * 3).astype(np.float32).view(np.uint32)
    return bits if subnormal else np.where(bits & 0x7F800000, bits, bits & 0x80000000)


def pairs(low: Array, high: Array, width: int) -> Array:
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(width)


# -- integers -----------------------------------------------------------------------------------------------


def polynomial(x: int, y: int) -> int:
    """Multiply by ``xor``: shift and add without carries."""
    total = 0
    while y:
        total ^= x * (y & -y)
        y &= y - 1
    return total


@pytest.mark.parametrize("half", ["lo", "hi"])
@pytest.mark.parametrize("type_", ["u64", "s64"])
def test_clmad_multiplies_polynomials_of_bits(cpu: Device, half: str, type_: str) -> None:
    a, b, c = words(), words()[::-1], words()
    b[:8] = a[:8]
    got = computed(cpu, f"clmad.{half}.{type_} d, a, b, c;", a, b, c, target="sm_80")
    shift = 64 if half == "hi" else 0
    want = [(polynomial(int(x), int(y)) >> shift ^ int(z)) & (1 << 64) - 1 for x, y, z in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(got, np.array(want, np.uint64))


COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("type_", ["u8x4", "s8x4", "u16x2", "s16x2"])
def test_set_compares_each_part_of_a_word(cpu: Device, type_: str) -> None:
    element = np.dtype(f"{'i' if type_[0] == 's' else 'u'}{1 if type_.endswith('x4') else 2}")
    a, b = (words().astype(np.uint32) for _ in range(2))
    b[::3] = a[::3] ^ (0xFF << 8)
    for name, compare in COMPARISONS.items():
        if len(name) == 2 and name in ("lo", "ls", "hi", "hs") and type_[0] == "s":
            continue
        body = f"cvt.u32.u64 r1, a; cvt.u32.u64 r2, b; set.{name}.{type_} r3, r1, r2; cvt.u64.u32 d, r3;"
        holds = compare(a.view(element), b.view(element))
        want = np.where(holds, -1, 0).astype(element).view(np.uint32)
        np.testing.assert_array_equal(computed(cpu, body, a, b), want, name)


# -- sine and cosine of turns ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sine_of_turns_equals_the_sine_of_the_angle(cpu: Device, name: str) -> None:
    """The usual form multiplies by 1 / (2 pi), toward zero, and does the same from there on."""
    x = floats()
    read = "cvt.u32.u64 r1, a; mov.b32 f1, r1;"
    turns = "mov.b32 f2, 0x3E22F983; mul.rz.f32 f3, f1, f2;"
    got = computed(cpu, f"{read} {turns} {name}.approx.ftz.2pi.f32 f4, f3; mov.b32 r2, f4; cvt.u64.u32 d, r2;", x)
    want = computed(cpu, f"{read} {name}.approx.f32 f4, f1; mov.b32 r2, f4; cvt.u64.u32 d, r2;", x)
    large = np.abs(x.view(np.float32)) > 1e-30
    np.testing.assert_array_equal(got[large], want[large])


@pytest.mark.parametrize(("name", "function"), [("sin", np.sin), ("cos", np.cos)])
def test_turns_are_fractions_of_a_circle(cpu: Device, name: str, function: Callable[[Array], Array]) -> None:
    x = np.concatenate([np.arange(-64, 65) / 16, RANDOM.uniform(-8, 8, 300)]).astype(np.float32)
    body = f"cvt.u32.u64 r1, a; mov.b32 f1, r1; {name}.approx.ftz.2pi.f32 f2, f1; mov.b32 r2, f2; cvt.u64.u32 d, r2;"
    got = computed(cpu, body, x.view(np.uint32)).astype(np.uint32).view(np.float32)
    np.testing.assert_allclose(got, function(x.astype(np.float64) * 2 * math.pi), rtol=0, atol=2.0**-20)
    quarter = dict(zip(x.tolist(), got.tolist(), strict=True))
    assert [quarter[n / 4] for n in range(4)] == ([0, 1, 0, -1] if name == "sin" else [1, 0, -1, 0])


# -- pairs of f32 and pairs of halves -------------------------------------------------------------------------


@pytest.mark.parametrize("half", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["", ".rn", ".rz", ".rm", ".rp"])
@pytest.mark.parametrize("name", ["add", "sub", "fma"])
def test_half_pairs_mix_with_f32(cpu: Device, name: str, mode: str, half: str) -> None:
    if name == "fma" and not mode:
        pytest.skip("it names its rounding")
    a = pairs(RANDOM.integers(0, 1 << 16, COUNT), RANDOM.integers(0, 1 << 16, COUNT), 16)
    b, c = (pairs(floats(), floats()[::-1], 32) for _ in range(2))
    others = "b, c" if name == "fma" else "c"
    types = f"f32x2.{half}x2.f32x2" + ".f32x2" * (name == "fma")
    got = computed(cpu, f"cvt.u32.u64 r1, a; {name}{mode}.{types} d, r1, {others};", a, b, c)
    parts = "mov.b32 {h1, h2}, r1; mov.b64 {f1, f2}, b; mov.b64 {f3, f4}, c;"
    if name == "fma":  # the scalar form has its addend in f32, and its factors in halves
        product = (
            f"cvt.f32.{half} f5, h1; cvt.f32.{half} f6, h2; fma{mode}.f32 f7, f5, f1, f3; fma{mode}.f32 f8, f6, f2, f4;"
        )
    else:
        product = f"{name}{mode}.f32.{half} f7, h1, f3; {name}{mode}.f32.{half} f8, h2, f4;"
    want = computed(cpu, f"cvt.u32.u64 r1, a; {parts} {product} mov.b64 d, {{f7, f8}};", a, b, c)
    np.testing.assert_array_equal(got, want)


# -- conversions ----------------------------------------------------------------------------------------------

SMALL = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
LARGEST = {"e4m3": 0x7E, "e5m2": 0x7B, "e2m3": 0x1F, "e3m2": 0x1F, "e2m1": 0x7}
FROM_NAN = {"e4m3": 0x7F, "e5m2": 0x7F, "e2m3": 0x1F, "e3m2": 0x1F, "e2m1": 0x7}


def cut(name: str, x: float) -> int:
    """The code of the number next to x toward zero."""
    f = FORMATS[name]
    if math.isnan(x):
        return FROM_NAN[name]
    sign = f.sign if math.copysign(1, x) < 0 else 0
    if math.isinf(x):
        return sign | LARGEST[name]
    return sign | max(c for c in range(LARGEST[name] + 1) if Fraction(f.value(c)) <= abs(Fraction(x)))


def narrowed(cpu: Device, mnemonic: str, name: str, x: Array, y: Array) -> Array:
    register = "q1" if name == "e2m1" else "h1"
    widen = "cvt.u64.u8 d, q1;" if name == "e2m1" else "cvt.u64.u16 d, h1;"
    body = (
        f"cvt.u32.u64 r1, a; cvt.u32.u64 r2, b; mov.b32 f1, r1; mov.b32 f2, r2; {mnemonic} {register}, f1, f2; {widen}"
    )
    return computed(cpu, body, x, y)


@pytest.mark.parametrize("name", SMALL)
def test_small_floats_are_cut_toward_zero(cpu: Device, name: str) -> None:
    x = floats()
    values = [float(FORMATS[name].value(c)) for c in range(LARGEST[name] + 1)]
    x[256 : 256 + len(values)] = np.array(values, np.float32).view(np.uint32)
    x[384 : 384 + len(values)] = np.array(values, np.float32).view(np.uint32) - 1
    y, width = x[::-1].copy(), 4 if name == "e2m1" else 8
    want = np.array([cut(name, v) for v in x.view(np.float32).tolist()], np.uint64)
    got = narrowed(cpu, f"cvt.rz.satfinite.{name}x2.f32", name, x, y)
    np.testing.assert_array_equal(got, want << np.uint64(width) | want[::-1])


@pytest.mark.parametrize("half", ["f16", "bf16"])
@pytest.mark.parametrize("name", SMALL)
def test_small_floats_are_cut_from_pairs_of_halves(cpu: Device, name: str, half: str) -> None:
    x = np.arange(0, 1 << 16, 129, dtype=np.uint16)[:COUNT]
    wide = x.view(np.float16).astype(np.float32) if half == "f16" else (x.astype(np.uint32) << 16).view(np.float32)
    want = np.array([cut(name, float(v)) for v in wide], np.uint64)
    register, widen = ("q1", "cvt.u64.u8 d, q1;") if name == "e2m1" else ("h1", "cvt.u64.u16 d, h1;")
    body = f"cvt.u32.u64 r1, a; cvt.rz.satfinite.{name}x2.{half}x2 {register}, r1; {widen}"
    got = computed(cpu, body, pairs(x[::-1], x, 16))
    np.testing.assert_array_equal(got, want << np.uint64(4 if name == "e2m1" else 8) | want[::-1])


PZO = {
    "f16": ".rn .rz .rm .rp .rn.relu .rz.satfinite .rn.relu.satfinite",
    "bf16": ".rn .rz .rm .rp .rn.relu .rz.satfinite",
    "f16x2": ".rn .rz .rn.relu .rz.satfinite", "bf16x2": ".rn .rz .rz.relu .rn.satfinite",
    "tf32": ".rn .rz .rn.relu .rz.satfinite", **dict.fromkeys((f"{s}x2" for s in SMALL), ".rn.satfinite .rz.satfinite"),
}  # fmt: skip


@pytest.mark.parametrize("type_", PZO)
def test_pzo_makes_negative_zero_positive(cpu: Device, type_: str) -> None:
    x = floats()
    x[:64] = np.float32(-1e-30).view(np.uint32)
    x[64:128] = np.float32(-0.0).view(np.uint32)
    width = {"tf32": 32, "f16": 16, "bf16": 16}.get(type_.removesuffix("x2"), 4 if type_ == "e2m1x2" else 8)
    bits = 32 if type_ == "tf32" else width * (2 if type_.endswith("x2") else 1)
    register = {32: "r3", 16: "h1", 8: "q1"}[bits]
    two = ", f2" * type_.endswith("x2")
    read = "cvt.u32.u64 r1, a; mov.b32 f1, r1; mov.b32 f2, 0x80000000;"
    for words_ in PZO[type_].split():
        bodies = [
            f"{read} cvt{words_}{pzo}.{type_}.f32 {register}, f1{two}; cvt.u64.u{bits} d, {register};"
            for pzo in ("", ".pzo")
        ]
        before, after = (computed(cpu, body, x) for body in bodies)
        sign, every = 0x20 if type_[:4] in ("e2m3", "e3m2") else 1 << (width - 1), (1 << width) - 1
        want = np.zeros_like(before)
        for at in range(0, bits, width):
            part = before >> np.uint64(at) & np.uint64(every)
            want |= np.where(part == sign, 0, part).astype(np.uint64) << np.uint64(at)
        assert (want != before).sum() >= (0 if ".relu" in words_ else 64)
        np.testing.assert_array_equal(after, want, words_)


UNSIGNED = np.array([(1 + c % 8 / 8) * 2.0 ** (c // 8 - 15) if c >= 8 else c * 2.0**-17 for c in range(255)])
"""Every number of ue5m3, by its code; 0xff is NaN."""


def unsigned(x: float, mode: str, *, satfinite: bool) -> int:
    """The code of the magnitude of a number."""
    x, last = abs(x), 0xFE
    if math.isnan(x):
        return 0xFF
    if math.isinf(x):
        return last if satfinite else 0xFF
    down = int(np.searchsorted(UNSIGNED, x, side="right")) - 1
    if mode == "rz" or UNSIGNED[down] == x:
        return down
    above = UNSIGNED[down + 1] if down < last else 122880.0
    middle = (UNSIGNED[down] + above) / 2
    up = mode == "rp" or x > middle or (x == middle and down % 2 == 1)
    return min(down + up, last) if satfinite else down + up if x < above else 0xFF


@pytest.mark.parametrize("mode", ["rn", "rz", "rp"])
@pytest.mark.parametrize("satfinite", ["", ".satfinite"])
def test_ue5m3_rounds_the_magnitude(cpu: Device, mode: str, satfinite: str) -> None:
    x = floats().view(np.float32)
    x[8:200] = np.exp2(RANDOM.uniform(-20, 18, 192)) * RANDOM.choice([-1, 1], 192)
    x[200:454] = (UNSIGNED[1:] + UNSIGNED[:-1]) / 2
    x[454:460] = 114688, 118784, 118785, 122880, 2.0**-18, 2.0**-18 * 1.0001
    want = np.array([unsigned(v, mode, satfinite=bool(satfinite)) for v in x.tolist()], np.uint64)
    bits = x.view(np.uint32)
    got = narrowed(cpu, f"cvt.{mode}{satfinite}.ue5m3x2.f32", "ue5m3", bits, bits[::-1].copy())
    np.testing.assert_array_equal(got, want << np.uint64(8) | want[::-1])


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_ue5m3_is_converted_from_and_to_halves(cpu: Device, half: str) -> None:
    codes = np.arange(256, dtype=np.uint64)
    read = f"cvt.u16.u64 h1, a; cvt.rn.{half}x2.ue5m3x2 r1, h1;"
    got = computed(cpu, f"{read} cvt.u64.u32 d, r1;", codes << np.uint64(8) | codes[::-1])
    upper = (got >> np.uint64(16)).astype(np.uint32)
    numbers = upper.astype(np.uint16).view(np.float16) if half == "f16" else (upper << 16).view(np.float32)
    limit = 65504 if half == "f16" else math.inf
    np.testing.assert_array_equal(numbers[:255], np.where(limit < UNSIGNED, math.inf, UNSIGNED))
    assert np.isnan(numbers[255])
    back = computed(cpu, f"{read} cvt.rz.satfinite.ue5m3x2.{half}x2 h2, r1; cvt.u64.u16 d, h2;", codes)
    finite = codes[:255][limit >= UNSIGNED]
    np.testing.assert_array_equal(back[: len(finite)], finite)


def test_ue5m3_is_scaled_when_read(cpu: Device) -> None:
    codes = np.arange(255, dtype=np.uint64)
    convert = "cvt.rn{}.scaled::n2::ue8m0.bf16x2.ue5m3x2 r1, h1, h2;"
    body = f"cvt.u16.u64 h1, a; mov.b16 h2, 0x7D81; {convert} cvt.u64.u32 d, r1;"
    for satfinite in ("", ".satfinite"):
        got = computed(cpu, body.format(satfinite), codes << np.uint64(8) | codes).astype(np.uint32)
        np.testing.assert_array_equal((got & 0xFFFF0000).view(np.float32), UNSIGNED / 4)
        np.testing.assert_array_equal((got << 16).view(np.float32), UNSIGNED * 4)


# -- memory -----------------------------------------------------------------------------------------------------


def in_memory(cpu: Device, body: str, memory: Array, *, target: str = "sm_107a") -> Array:
    """Run a block of 32 threads whose ``p`` is the address of some memory, and ``s`` and ``mb`` are shared."""
    text = f""".version 9.5
.target {target}
.address_size 64
.visible .entry k(.param .u64 m) .explicitcluster .reqnctapercluster 1
{{
.shared .align 128 .b8 s[256]; .shared .align 8 .b64 mb; .reg .b64 p, g<9>; .reg .b32 t, r<9>; .reg .f32 f<9>;
.reg .pred q<9>; .reg .b16 h<9>; .reg .b128 w;
ld.param.u64 p, [m]; cvta.to.global.u64 p, p; mov.u32 t, %tid.x;
{body}
ret;
}}
"""
    device_memory = cpu.array(memory)
    cpu.load(Artifact.of(text)).kernels["k"].launch(
        LaunchShape(Dim3(1), Dim3(32)), struct.pack("<Q", device_memory.address)
    )
    return np.asarray(device_memory.numpy())


TINY = np.float32(1e-40)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("vector", ["", ".v2", ".v4"])
@pytest.mark.parametrize("opcode", ["atom", "red"])
def test_noftz_keeps_subnormal_sums(cpu: Device, opcode: str, vector: str, space: str) -> None:
    if vector and space == "shared":
        pytest.skip("vectors are of global memory")
    count = int(vector[2:] or 1)
    group = [f"f{k}" for k in range(count)]
    value = f"{{{', '.join(group)}}}" if vector else group[0]
    old = f"{{{', '.join(f'f{k + 4}' for k in range(count))}}}, " if vector else "f5, "
    fill = "".join(f"mov.f32 f{k}, 0f{int(TINY.view(np.uint32)):08X}; " for k in range(count))
    place = "[p]" if space == "global" else "[s]"
    before = "" if space == "global" else "mov.f32 f6, 0f00000000; st.shared.f32 [s], f6; bar.sync 0;"
    after = "" if space == "global" else "bar.sync 0; ld.shared.f32 f7, [s]; st.global.f32 [p], f7;"
    results = {}
    for word in (".noftz", ""):
        step = f"{opcode}.{space}.add{word}{vector}.f32 {old if opcode == 'atom' else ''}{place}, {value};"
        results[word] = in_memory(cpu, f"{before} {fill} {step} {after}", np.zeros(4, np.float32))[:count]
    np.testing.assert_allclose(results[".noftz"], 32 * TINY, rtol=1e-3)
    if space == "global":
        assert not results[""].any()


def test_bulk_reductions_with_noftz_keep_subnormal_sums(cpu: Device) -> None:
    body = """mov.u32 r1, s; mad.lo.u32 r2, t, 4, r1; mov.f32 f1, 0f{bits:08X}; st.shared.f32 [r2], f1;
fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 q1, t, 0; @q1 bra DONE;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add{word}.f32 [p], [r1], 128;
cp.async.bulk.commit_group; cp.async.bulk.wait_group.sync_restrict::proxy::async 0; DONE:"""
    kept, flushed = (
        in_memory(cpu, body.format(bits=int(TINY.view(np.uint32)), word=word), np.full(32, TINY))
        for word in (".noftz", "")
    )
    np.testing.assert_array_equal(kept, 2 * np.full(32, TINY))
    assert not flushed.any()


def test_newest_access_modifiers_keep_values(cpu: Device) -> None:
    body = """mad.wide.u32 g1, t, 8, p;
ld.mmio.acquire.sys.global.u32 r1, [g1]; ld.proxy::readonly.global.u32 r2, [g1+4];
ld.global.nc.v2.u32.proxy::readonly {r3, r4}, [g1]; add.u32 r1, r1, r4; add.u32 r2, r2, r3;
prefetch.global.L1::32B.valid_addr [g1]; fence.alias.sync_restrict::read.release.sys;
fence.proxy.fabric::generic.alias.acquire.sys; fence.proxy.fabric::generic.alias.release.sys;
applypriority.async.bulk.global.bulk_group.L2::evict_normal [p], 256; mov.u32 r5, 0; mov.b16 h1, 0;
applypriority.async.bulk.tensor.1d.bulk_group.L2::evict_normal [p, {r5}];
applypriority.async.bulk.tensor.3d.bulk_group.im2col.L2::evict_normal [p, {r5, r5, r5}], {h1};
cp.async.bulk.commit_group;
cp.async.bulk.prefetch.L2.global.L2::evict_last [p], 256; bar.sync 0;
st.mmio.release.sys.global.u32 [g1], r1; st.global.u32 [g1+4], r2;"""
    memory = RANDOM.integers(0, 1 << 30, 64, np.uint32)
    got = in_memory(cpu, body, memory)
    total = memory[0::2] + memory[1::2]
    np.testing.assert_array_equal(got, np.repeat(total, 2))


@pytest.mark.parametrize(
    "way",
    [
        "weak.shared::cta.global.mbarrier::complete_tx::bytes",
        "shared::cta.global.mbarrier::complete_tx::bytes.mbarrier::report::disabled",
        "shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster::16b",
        "shared::cta.global.mbarrier::complete_tx::bytes.b128",
        "shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.b128",
        "shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob.b128",
    ],
)
def test_bulk_copies_with_newest_words_copy(cpu: Device, way: str) -> None:
    mask, ignored = ", h1" if "multicast" in way else "", "0, 0, " if "ignore_oob" in way else ""
    body = f"""setp.ne.u32 q1, t, 0; mov.u32 r1, s; mov.u32 r2, mb; mov.b16 h1, 1; @q1 bra WAIT;
mbarrier.init.layout::v0.shared::cta.b64 [r2], 1; mbarrier.check_layout.layout::v0.shared::cta.b64 q2, [r2];
@!q2 trap; mbarrier.arrive.expect_tx.shared::cta.b64 g2, [r2], 128;
mbarrier.pending_count.layout::v0.b64 r3, g2; setp.ne.u32 q3, r3, 1; @q3 trap;
cp.async.bulk.{way} [r1], [p], 128, {ignored}[r2]{mask};
WAIT: bar.sync 0;
AGAIN: mbarrier.try_wait.parity.shared::cta.b64 q4, [r2], 0; @!q4 bra AGAIN;
mad.lo.u32 r4, t, 4, r1; ld.shared.u32 r5, [r4]; add.u32 r5, r5, 1; mad.wide.u32 g1, t, 4, p;
bar.sync 0; st.global.u32 [g1], r5;"""
    memory = RANDOM.integers(0, 1 << 30, 32, np.uint32)
    np.testing.assert_array_equal(in_memory(cpu, body, memory), memory + 1)


def test_bulk_store_of_rows_of_128_bits_stores(cpu: Device) -> None:
    body = """mov.u32 r1, s; mad.lo.u32 r4, t, 4, r1; add.u32 r5, t, 7; st.shared.u32 [r4], r5;
fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 q1, t, 0; @q1 bra DONE;
cp.async.bulk.global.shared::cta.bulk_group.b128 [p], [r1], 128;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; DONE:"""
    np.testing.assert_array_equal(in_memory(cpu, body, np.zeros(32, np.uint32)), np.arange(7, 39))


REDUCTIONS: dict[str, tuple[str, int, int]] = {
    "add.s64": ("g3", 7, 107), "min.u32": ("r3", 5, 5), "max.u32": ("r3", 500, 500), "min.s32": ("r3", -3, -3),
    "max.s32": ("r3", 500, 500), "inc.u32": ("r3", 1000, 101), "dec.u32": ("r3", 1000, 99),
    "and.b32": ("r3", 0x6C, 100 & 0x6C), "or.b32": ("r3", 3, 100 | 3), "xor.b32": ("r3", 0xFF, 100 ^ 0xFF),
}  # fmt: skip


@pytest.mark.parametrize("order", ["release.gpu", "mmio.release.sys"])
@pytest.mark.parametrize("operation", REDUCTIONS)
def test_red_async_has_the_operations_of_red(cpu: Device, operation: str, order: str) -> None:
    register, operand, want = REDUCTIONS[operation]
    bits = 64 if register[0] == "g" else 32
    body = f"""setp.ne.u32 q1, t, 0; @q1 bra DONE; mov.b{bits} {register}, {operand};
red.async.{order}.global.{operation} [p], {register}; DONE:"""
    got = in_memory(cpu, body, np.array([100], np.dtype(f"i{bits // 8}")))
    assert got[0] == want


def test_red_async_adds_64_bits_in_a_cluster(cpu: Device) -> None:
    body = """setp.ne.u32 q1, t, 0; mov.u32 r1, s; mov.u32 r2, mb; @q1 bra WAIT; mov.b64 g3, -2;
st.shared.b64 [r1], g3; mbarrier.init.shared::cta.b64 [r2], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [r2], 8;
mov.b64 g4, 44; red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s64 [r1], g4, [r2];
WAIT: bar.sync 0;
AGAIN: mbarrier.try_wait.parity.shared::cta.b64 q4, [r2], 0; @!q4 bra AGAIN;
ld.shared.b64 g5, [r1]; st.global.b64 [p], g5;"""
    assert in_memory(cpu, body, np.zeros(1, np.int64))[0] == 42


# -- what is refused ----------------------------------------------------------------------------------------------

REFUSED: Sequence[tuple[str, str]] = (
    ("add.rz.ftz.f16x2.f32x2.f32x2 %r1, %rd2, %rd3;", "documented"),
    ("sub.bf16x2.f32x2.f32x2 %r1, %rd2, %rd3;", "documented"),
    ("mul.f16x2.f16x2.bf16x2 %r1, %r2, %r3;", "documented"),
    ("mul.rz.bf16x2.f32x2.f32x2 %r1, %rd2, %rd3;", "documented"),
    ("cvt.rn.satfinite.scaled::n1::ue8m0.e4m3x2.f32 %h1, %f2, %f3, %c1;", "divided"),
    ("cvt.rn.scaled::n1::ue8m0.ue5m3x2.f16x2 %h1, %r2, %c1;", "divided"),
    ("spcompress.b8.b4.sp::2:4.x1 {%r1}, {%r2}, {%r3, %r4}, %r5;", "4"),
    ("spdecompress.b8.b4.sp::2:4.x2 {%r1, %r2}, {%r3}, {%r4};", "4"),
    ("trace.mark 1;", "trace.mark"),
    ("tensormap.replace.tile.alloc_large.global.b1024 [a];", "map"),
    ("tensormap.query.alloc_class_large.b1024 %p1, [%rd1];", "map"),
    ("ldmatrix.sync.aligned.m8n16.x1.shared.s8.s4 {%r1}, [s];", "4-bit"),
    ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.override::global_address [%rd1, %rd2, {%r1, %r2}], [s];",
     "map"),
    ("cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs::w.bulk_group [%rd1, {%r1, %r2, %r3}], [s];",
     "im2col_no_offs"),
    ("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.mbarrier::report::validity::per_element::ff "
     "[s], [%rd1], %r1, [mb];", "reports"),
    ("cp.async.bulk.relaxed.gpu.shared::cta.global.mbarrier::complete_tx::bytes.b128 [s], [%rd1], %r1, [mb];",
     "16"),
    ("mbarrier.arrive.shared::cluster.multicast::cluster::32b.b64 _, [s], %r2;", "16"),
    ("mbarrier.init.layout::v1.shared::cta.b64 [mb], %r1;", "reports"),
    ("mbarrier.try_wait.parity.phase_type::primary.shared::cta.b64 %p1|%p2, %c1, [mb], %r2;", "reports"),
    ("mbarrier.test_wait.parity.phase_type::conditional.shared::cta.b64 %p1, [mb], %r2;", "reports"),
    ("fabric.submit.commit_group;", "NVLink"),
    ("multimem.cp.async.bulk.global.shared::cta.bulk_group [%rd1], [s], %r1;", "GPUs"),
)  # fmt: skip


@pytest.mark.parametrize(("statement", "why"), REFUSED)
def test_forms_that_need_hardware_are_refused(cpu: Device, statement: str, why: str) -> None:
    text = module_of([statement], "9.5", "sm_107a")
    with raises(UnsupportedError, "unsupported", why):
        cpu.load(Artifact.of(text))
