"""Products of matrices in the forms that no scene has: against sums that are exact in any order."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from instructions.scene import Scene, entry, run_scene
from instructions.scenes_matrix import Mma, codes_for, mma_forms, thinned, values_of
from instructions.scenes_wgmma import Wgmma
from instructions.scenes_wmma import Wmma, moves

Array = npt.NDArray[Any]
pytestmark = pytest.mark.usefixtures("unoptimised")

_SMALL = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
_ORDERED = "sp::ordered_metadata"


class _Alike(Mma):
    """A form whose A is that of every other form with this type of A, and so B and C: a kernel loads each once.

    Where D is f16, A and B are so small that no sum needs more than the eleven bits of f16.
    """

    def operands(self) -> dict[str, Array]:
        m, n, k = self.shape
        rng = {x: np.random.default_rng(zlib.crc32(f"{x} {self.shape}".encode())) for x in "abc"}
        found = {x: codes_for(t, (size, k), rng[x]) for x, t, size in (("a", self.a, m), ("b", self.b, n))}
        if self.d == "f16":
            found = {"a": _tame(found["a"], self.a), "b": _tame(found["b"], self.b)}
        found["c"] = rng["c"].integers(-16, 17, (m, n)) * 0.25
        if self.sparse:
            found |= thinned(self.a, self.selector, found["a"], rng["a"])
        if self.scale:
            found |= {x: rng["c"].integers(124, 131, (size, 1), dtype=np.uint64) for x, size in (("sa", m), ("sb", n))}
        return found


def _tame(codes: Array, type_: str) -> Array:
    """Codes of multiples of 0.5 from -2 to 2."""
    every = np.arange(256, dtype=np.uint64)
    values = values_of(every, type_)
    few = every[(np.abs(values) <= 2) & (values * 2 == np.trunc(values * 2))]
    return np.asarray(few[codes.astype(np.int64) % len(few)])


def _kinds(k: int, sparse: str) -> Iterator[Mma]:
    """Forms with ``.kind``, of all pairs of small floats."""
    more: dict[str, Any] = {"sparse": sparse, "target": "sm_120a"}
    scale = ("ue8m0", 1, (1, 0), (1, 1))
    for a, b in itertools.product(_SMALL, _SMALL):
        for d in ("f32", "f16"):
            yield _Alike((16, 8, k), d, a, b, d, words="kind::f8f6f4", **more)
        yield _Alike((16, 8, k), "f32", a, b, "f32", words="kind::mxf8f6f4.block_scale", scale=scale, **more)


def _floats() -> Iterator[Mma]:
    for a, b in itertools.product(_SMALL[:2], _SMALL[:2]):
        yield _Alike((16, 8, 64), "f16", a, b, "f16", sparse=_ORDERED, target="sm_120a")
    for shape in ((8, 8, 4), (16, 8, 4)):
        yield Mma(shape, "f64", "f64", "f64", "f64", words="rn")
    yield Mma((16, 8, 64), "f32", "e4m3", "e5m2", "f32", sparse="sp")
    yield Mma((16, 8, 32), "f32", "bf16", "bf16", "f32", sparse="sp")
    yield Mma((16, 8, 16), "f32", "tf32", "tf32", "f32", sparse="sp")


def _integers() -> Iterator[Mma]:
    for bits, (a, b), words in itertools.product((8, 4), itertools.product("su", "su"), ("", "satfinite")):
        more: dict[str, Any] = {"words": words, "sparse": "sp" if words else _ORDERED, "large": bool(words)}
        yield Mma((16, 8, 512 // bits), "s32", f"{a}{bits}", f"{b}{bits}", "s32", **more)


def _fours() -> Iterator[Mma]:
    """Four scales that are powers of two."""
    for k, sparse in ((64, ""), (128, _ORDERED)):
        words, scale = "kind::mxf4nvf4.block_scale.scale_vec::4X", ("ue8m0", 0, (0, 1), (0, 0))
        yield Mma((16, 8, k), "f32", "fp4", "fp4", "f32", words, sparse, scale=scale, target="sm_120a")


_MMA = {
    "small floats": tuple(_kinds(32, "")),
    "small floats, sparse": tuple(_kinds(64, _ORDERED)),
    "floats, sparse, and rounded": tuple(_floats()),
    "integers, sparse": tuple(_integers()),
    "fp4 with four scales": tuple(_fours()),
}


def _together(forms: Sequence[Mma]) -> Scene:
    """Do forms in one kernel, with operands that are alike loaded once; the last array has D of all."""
    names: dict[tuple[str, bytes], str] = {}
    arrays: list[Array] = []
    lines = [".reg .b32 t; .reg .b64 i; mov.u32 t, %tid.x;"]
    done, size = [], 0
    for number, form in enumerate(forms):
        *given, d = form.arrays()
        for array in given:
            key = (array.dtype.str, array.tobytes())
            if key not in names:
                names[key] = f"r{len(arrays)}_"
                lines.append(_accesses("ld", names[key], array, f"p{len(arrays)}", 0))
                arrays.append(array)
        groups = [(names[x.dtype.str, x.tobytes()], len(x)) for x in given] + [(f"d{number}_", len(d))]
        done.append("{" + f".reg .{_word(d)} d{number}_<{len(d)}>;")
        done.append(form.instruction([[f"{name}{k}" for k in range(count)] for name, count in groups]))
        done.append(_accesses("st", f"d{number}_", d, "pd", size) + "}")
        size += d.nbytes
    lines.append(f".reg .b64 pd; mov.b64 pd, p{len(arrays)};")
    text = entry("\n".join(lines + done), len(arrays) + 1, target=forms[0].target, version="9.1")
    return Scene("together", text, (*arrays, np.zeros(size, np.uint8)), 1, 32, target=forms[0].target)


def _word(array: Array) -> str:
    return f"{'f' if array.dtype.kind == 'f' else 'b'}{8 * array.itemsize}"


def _accesses(opcode: str, name: str, array: Array, pointer: str, offset: int) -> str:
    """Load the registers of an array (registers, 32), or store them."""
    found = [f".reg .{_word(array)} {name}<{len(array)}>;"] if opcode == "ld" else []
    found.append(f"mad.wide.u32 i, t, {array.itemsize}, {pointer};")
    for k in range(len(array)):
        operands = [f"{name}{k}", f"[i+{offset + 32 * array.itemsize * k}]"]
        found.append(f"{opcode}.global.{_word(array)} {', '.join(operands[:: 1 if opcode == 'ld' else -1])};")
    return "\n".join(found)


@pytest.mark.parametrize("name", _MMA)
def test_every_type_of_mma_is_multiplied_and_summed(name: str, cpu: Device) -> None:
    forms = _MMA[name]
    left = run_scene(cpu, _together(forms))[-1].tobytes()
    for form in forms:
        expected = form.exact()
        own, left = left[: expected.nbytes], left[expected.nbytes :]
        np.testing.assert_array_equal(np.frombuffer(own, expected.dtype).reshape(expected.shape), expected, form.name)


def test_scale_selectors_in_registers_equal_constants(cpu: Device) -> None:
    forms = [form for form in mma_forms() if form.scale]
    scene = _together(forms)
    constants = re.compile(r"\{(\d), (\d)\}")
    assert len(constants.findall(scene.ptx)) == 2 * len(forms)
    numbers = "".join(f"mov.b16 chosen{k}, {k}; " for k in range(4))
    text = constants.sub(r"{chosen\1, chosen\2}", scene.ptx)
    moved = replace(scene, ptx=text.replace("mov.u32 t, %tid.x;", f"mov.u32 t, %tid.x; .reg .b16 chosen<4>; {numbers}"))
    np.testing.assert_array_equal(run_scene(cpu, moved)[-1], run_scene(cpu, scene)[-1])


# -- wgmma ------------------------------------------------------------------------------------------------


_WGMMA = (
    Wgmma(40, 64, "f16", "e4m3", "e5m2", sparse=True),
    Wgmma(56, 64, "f16", "e5m2", "e5m2", registers=True, sparse=True),
    Wgmma(72, 64, "f32", "e5m2", "e5m2", sparse=True),
    Wgmma(48, 32, "s32", "s8", "s8", words=".satfinite"),
    Wgmma(80, 32, "s32", "u8", "u8", words=".satfinite"),
    Wgmma(16, 64, "s32", "s8", "u8", words=".satfinite", sparse=True),
    Wgmma(32, 64, "s32", "u8", "s8", words=".satfinite", sparse=True),
    Wgmma(112, 64, "s32", "u8", "u8", words=".satfinite", sparse=True),
)


@pytest.mark.parametrize("form", _WGMMA, ids=lambda form: form.name)
def test_every_type_of_wgmma_is_multiplied_and_summed(form: Wgmma, cpu: Device) -> None:
    np.testing.assert_array_equal(run_scene(cpu, form.scene())[-1], form.exact())


@pytest.mark.parametrize("part", range(3))
def test_wgmma_supports_column_counts_without_a_scene(part: int, cpu: Device) -> None:
    """Each number with the first columns of one B; of the registers of D, a sum by which each tells."""
    form = Wgmma(248, 16, "f16", "f16", "f16", keeps=False)
    scene, sizes = form.scene(), (88, *range(120, 249, 8))[part::3]  # more of them fill the stack of a warp
    lines = [scene.ptx.partition("wgmma.mma_async")[0], ".reg .b32 sum;"]
    expected = np.zeros((len(sizes), 128), np.uint32)
    registers = form.exact()
    for k, n in enumerate(sizes):
        d = [f"d{r}" for r in range(n // 4)]
        name = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f16.f16.f16"
        lines.append(f"wgmma.fence.sync.aligned; {name} {{{', '.join(d)}}}, da, db, keep, 1, 1, 0, 0;")
        lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; mov.b32 sum, 0;")
        lines += [f"mad.lo.u32 sum, sum, 31, {one};" for one in d]
        lines.append(f"st.global.b32 [q2+{512 * k}], sum;")
        for row in registers[: n // 4]:
            expected[k] = expected[k] * np.uint32(31) + row
    text = "\n".join([*lines, "ret; }"])
    arrays = (*scene.arrays[:2], np.zeros_like(expected))
    got = run_scene(cpu, Scene("sizes", text, arrays, 1, 128, scene.shared_bytes))[-1]
    np.testing.assert_array_equal(got, expected)


# -- matrices in shared memory ----------------------------------------------------------------------------

_WMMA = tuple(
    Wmma(shape, d, a, a, d, ("row", "col", "col", "row"), words)
    for shape, d, a, words in (
        ((16, 16, 16), "f16", "f16", ""),
        ((32, 8, 16), "f32", "bf16", ""),
        ((8, 32, 16), "s32", "u8", ".satfinite"),
        ((16, 16, 8), "f32", "tf32", ""),
        ((8, 8, 4), "f64", "f64", ".rn"),
        ((8, 8, 32), "s32", "s4", ""),
        ((8, 8, 128), "s32", "b1", ".xor.popc"),
    )
)
_COPY = """.func copy(.param .b64 to, .param .b64 from, .param .b32 size)
{
.reg .b64 a, b, i; .reg .b32 n, size1, w; .reg .pred done;
ld.param.b64 a, [to]; ld.param.b64 b, [from]; ld.param.b32 size1, [size];
mov.u32 n, %tid.x; mul.lo.u32 n, n, 4; cvt.u64.u32 i, n; add.u64 a, a, i; add.u64 b, b, i;
NEXT: setp.ge.u32 done, n, size1; @done bra DONE;
ld.b32 w, [b]; st.b32 [a], w; add.u64 a, a, 128; add.u64 b, b, 128; add.u32 n, n, 128; bra NEXT;
DONE: bar.warp.sync -1; ret;
}
.shared .align 128 .b8 memory[16384];
"""


def _in_shared(scene: Scene, space: str) -> str:
    """Put the four matrices of a scene of ``wmma`` into shared memory, and the last one back."""
    before, at = [".reg .b64 g<4>, h<4>;"], 0
    for k, array in enumerate(scene.arrays):
        before.append(
            f"mov.b64 g{k}, p{k}; mov.b64 p{k}, memory; add.u64 p{k}, p{k}, {at}; cvta.shared.u64 h{k}, p{k};"
        )
        before.append(f"call copy, (h{k}, g{k}, {array.nbytes});")
        at += -(-array.nbytes // 128) * 128
    text = scene.ptx.replace(".global", f".{space}").replace("ret;", f"call copy, (g3, h3, {array.nbytes}); ret;")
    return text.replace(".reg .b32 s;", "\n".join([*before, ".reg .b32 s;"])).replace(".visible", _COPY + ".visible")


@pytest.mark.parametrize("space", ["shared", "shared::cta"])
@pytest.mark.parametrize("form", _WMMA, ids=lambda form: form.name)
def test_wmma_reads_matrices_in_shared_memory(form: Wmma, space: str, cpu: Device) -> None:
    scene = form.scene()
    got = run_scene(cpu, replace(scene, ptx=_in_shared(scene, space)))
    np.testing.assert_array_equal(got[3], form.exact())


@pytest.mark.parametrize(("count", "space"), [(1, "shared::cta"), (2, "shared")])
@pytest.mark.parametrize(("packing", "bits"), [("b6x16_p32", 6), ("b4x16_p64", 4)])
def test_ldmatrix_unpacks_and_transposes_codes(packing: str, bits: int, count: int, space: str, cpu: Device) -> None:
    scene = next(scene for scene in moves() if scene.name == f"ldmatrix_m16n16_x{count}")
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (16 * count, 16), np.uint8)
    ones = np.unpackbits(codes[:, :, None], axis=2, count=bits, bitorder="little")
    packed = np.packbits(ones.reshape(-1, 16 * bits), axis=1, bitorder="little")
    data = np.full(2048, 0xEE, np.uint8)
    for lane, row in enumerate(packed):
        data[(lane * 5 + 3) % 32 * 48 :][: 2 * bits] = row
    text = scene.ptx.replace("trans.shared.b8", f"trans.{space}.b8x16.{packing}")
    words = run_scene(cpu, replace(scene, ptx=text, arrays=(data, scene.arrays[1])))[1]
    turned = np.ascontiguousarray(codes.reshape(count, 16, 16).transpose(0, 2, 1))
    np.testing.assert_array_equal(words, turned.view(np.uint32).reshape(2 * count, 32))
