"""Products of matrices, against exact arithmetic; on the CPU device, which has every form."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import FormatError, UnsupportedError
from instructions.scene import Scene, entry, every_scene, run_scene
from instructions.scenes_matrix import Mma, bundle, bundles, mma_forms
from instructions.scenes_wgmma import wgmma_forms
from instructions.scenes_wmma import moves, wmma_forms
from raising import raises

Array = npt.NDArray[Any]

# Scenes are compiled as ``test_scenes`` compiles them: whichever comes second finds the code in the cache of the run.

_WMMA = {form.name: form for form in wmma_forms()}
_WGMMA = {form.name: form for form in wgmma_forms()}


@pytest.fixture
def cpu() -> Device:
    """The CPU device."""
    return cujit.cpu()


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", bundles())
def test_mma_is_exact_if_its_sums_are(name: str, cpu: Device) -> None:
    forms = bundles()[name]
    left = run_scene(cpu, every_scene()[name])
    for form in forms:
        count = len(form.arrays())
        own, left = left[:count], left[count:]
        np.testing.assert_array_equal(own[-1], form.exact(), err_msg=form.name)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", _WMMA)
def test_wmma_is_exact_if_its_sums_are(name: str, cpu: Device) -> None:
    form = _WMMA[name]
    np.testing.assert_array_equal(run_scene(cpu, form.scene())[3], form.exact())


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", _WGMMA)
def test_wgmma_is_exact_if_its_sums_are(name: str, cpu: Device) -> None:
    form = _WGMMA[name]
    np.testing.assert_array_equal(run_scene(cpu, form.scene())[-1], form.exact())


def test_random_products_are_near_exact_sums(cpu: Device) -> None:
    scene = every_scene()["mma_random"]
    a, b, c, d = run_scene(cpu, scene)
    values = [x.view(np.float16).reshape(-1, 32, 2).astype(np.float64) for x in (a, b)]
    # Register s of a lane has steps 2t and 2t + 1 of every eight.
    left, right = np.zeros((16, 16)), np.zeros((8, 16))
    for lane in range(32):
        g, t = divmod(lane, 4)
        for s in range(2):
            for e in range(2):
                right[g, 8 * s + 2 * t + e] = values[1][s, lane, e]
                for half in range(2):
                    left[g + 8 * half, 8 * s + 2 * t + e] = values[0][2 * s + half, lane, e]
    product = left @ right.T
    for lane in range(32):
        g, t = divmod(lane, 4)
        cells = [product[g + 8 * (k // 2), 2 * t + k % 2] for k in range(4)]
        np.testing.assert_allclose(d[:, lane], cells + c[:, lane].astype(np.float64), rtol=1e-5, atol=1e-5)


# -- what moves fragments ---------------------------------------------------------------------------------

_MOVES = {scene.name: scene for scene in moves()}


def _rows(data: Array) -> Array:
    """The rows of 16 bytes that the lanes have the addresses of."""
    lanes = np.arange(32)
    starts = (lanes * 5 + 3) % 32 * 48
    return np.asarray(data[starts[:, None] + np.arange(16)])


def _matrices(data: Array, count: int, transposed: bool) -> Array:
    halves = _rows(data).view(np.uint16).reshape(4, 8, 8)[:count]
    halves = halves.transpose(0, 2, 1) if transposed else halves
    return np.ascontiguousarray(halves).view(np.uint32).reshape(count, 32)


def _unpacked_codes(rows: Array, bits: int) -> Array:
    ones = np.unpackbits(rows, axis=1, bitorder="little")[:, : 16 * bits].reshape(len(rows), 16, bits)
    return np.asarray((ones << np.arange(bits)).sum(2), np.uint8)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", "_trans"])
def test_ldmatrix_gives_every_lane_its_part_of_a_row(count: int, trans: str, cpu: Device) -> None:
    data, words = run_scene(cpu, _MOVES[f"ldmatrix_x{count}{trans}"])
    np.testing.assert_array_equal(words, _matrices(data, count, bool(trans)))


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", "_trans"])
def test_stmatrix_puts_the_rows_back(count: int, trans: str, cpu: Device) -> None:
    data, words = run_scene(cpu, _MOVES[f"stmatrix_x{count}{trans}"])
    rows = _rows(data).view(np.uint16).reshape(4, 8, 8)[:count]
    back = np.ascontiguousarray(rows.transpose(0, 2, 1) if trans else rows).view(np.uint8).reshape(-1, 16)
    _assert_stored(words, data, back)


def _assert_stored(words: Array, data: Array, rows: Array) -> None:
    """Shared memory as the scene gives it back is what it was, but for rows at the addresses of the first lanes."""
    expected = data.copy()
    for lane, row in enumerate(rows):
        start = (lane * 5 + 3) % 32 * 48
        expected[start : start + 16] = row
    np.testing.assert_array_equal(np.ascontiguousarray(words.T).view(np.uint8).ravel(), expected)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_stores_columns_of_16_bytes_in_rows(count: int, cpu: Device) -> None:
    data, words = run_scene(cpu, _MOVES[f"stmatrix_m16n8_x{count}"])
    columns = np.zeros((count, 8, 16), np.uint8)
    for matrix, lanes in enumerate(_rows(data).reshape(4, 32, 4)[:count]):
        for lane, own in enumerate(lanes):
            g, t = divmod(lane, 4)
            columns[matrix, 2 * t : 2 * t + 2, g] = own[:2]
            columns[matrix, 2 * t : 2 * t + 2, g + 8] = own[2:]
    _assert_stored(words, data, columns.reshape(-1, 16))


def test_movmatrix_transposes(cpu: Device) -> None:
    data, words = run_scene(cpu, _MOVES["movmatrix"])
    starts = (np.arange(8) * 5 + 3) % 32 * 48 + 16
    halves = data[starts[:, None] + np.arange(16)].view(np.uint16)
    np.testing.assert_array_equal(words[0], np.ascontiguousarray(halves.T).view(np.uint32).ravel())


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize(("packing", "bits"), [("b6x16_p32", 6), ("b4x16_p64", 4)])
def test_ldmatrix_unpacks_codes_of_6_and_4_bits_into_bytes(count: int, packing: str, bits: int, cpu: Device) -> None:
    data, words = run_scene(cpu, _MOVES[f"ldmatrix_m8n16_x{count}_{packing}"])
    codes = _unpacked_codes(_rows(data)[: 8 * count], bits)
    np.testing.assert_array_equal(words, codes.view(np.uint32).reshape(count, 32))


@pytest.mark.parametrize("count", [1, 2])
def test_ldmatrix_transposes_sixteen_rows_of_bytes(count: int, cpu: Device) -> None:
    data, words = run_scene(cpu, _MOVES[f"ldmatrix_m16n16_x{count}"])
    turned = _rows(data)[: 16 * count].reshape(count, 16, 16).transpose(0, 2, 1)
    np.testing.assert_array_equal(words, np.ascontiguousarray(turned).view(np.uint32).reshape(2 * count, 32))


def test_false_predicate_leaves_addresses_unread(cpu: Device) -> None:
    _, words = run_scene(cpu, _MOVES["ldmatrix_never"])
    np.testing.assert_array_equal(words, 5)


# -- real code and wrong code -----------------------------------------------------------------------------


@pytest.mark.usefixtures("unoptimised")
def test_wmma_of_cuda_multiplies_tiles_and_scales_elements(cpu: Device) -> None:
    module = cujit.jit(
        """#include <mma.h>
        using namespace nvcuda::wmma;
        extern "C" __global__ void k(const half *a, const half *b, float *c, int n) {
            fragment<matrix_a, 16, 16, 16, half, row_major> fa;
            fragment<matrix_b, 16, 16, 16, half, row_major> fb;
            fragment<accumulator, 16, 16, 16, float> sum;
            fill_fragment(sum, 0.0f);
            int row = blockIdx.y * 16, column = blockIdx.x * 16;
            for (int k = 0; k < n; k += 16) {
                load_matrix_sync(fa, a + row * n + k, n);
                load_matrix_sync(fb, b + k * n + column, n);
                mma_sync(sum, fa, fb, sum);
            }
            for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= 2.0f;
            store_matrix_sync(c + row * n + column, sum, n, mem_row_major);
        }""",
        names=["k"],
        device=cpu,
    )
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (64, 64)).astype(np.float16) for _ in range(2))
    c = cpu.array(np.zeros((64, 64), np.float32))
    module["k"][(4, 4), 32](cpu.array(a), cpu.array(b), c, 64)
    np.testing.assert_array_equal(c.numpy(), 2 * (a.astype(np.float32) @ b.astype(np.float32)))


def _with_registers(a: str) -> Scene:
    mnemonic = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    body = f".reg .f32 f<4>; .reg .b32 r<8>; {mnemonic} {{f0, f1, f2, f3}}, {{{a}}}, {{r4, r5}}, {{f0, f1, f2, f3}};"
    return Scene("made up", entry(body, 1), (np.zeros(1),), 1, 32)


def test_fragment_with_too_few_registers_is_refused(cpu: Device) -> None:
    with raises(FormatError, "format", "2", "mma", "3", "4"):
        run_scene(cpu, _with_registers("r0, r1, r2"))
    run_scene(cpu, _with_registers("r0, r1, r2, r3"))


@pytest.mark.parametrize(
    "name",
    [
        "tcgen05.mma.cta_group::1.kind::f16.ashift [t], [t], d, t, p",
        "tcgen05.mma.cta_group::2.kind::i8.ashift.collector::a::lastuse [t], [t], d, t, p",
        "tcgen05.mma.sp.cta_group::1.kind::tf32.ashift [t], [t], d, [t], t, p",
    ],
)
def test_unsupported_tensor_memory_is_refused_by_name(name: str, cpu: Device) -> None:
    text = f".reg .b32 t; .reg .b64 d; .reg .pred p; mov.u32 t, 0; {name};"
    with raises(UnsupportedError, "unsupported", name.split()[0]):
        run_scene(cpu, Scene("made up", entry(text, 1, target="sm_100a", version="8.8"), (np.zeros(1),), 1, 32))


def test_every_form_of_the_tables_has_a_scene() -> None:
    assert sum(len(forms) for forms in bundles().values()) == len(mma_forms()) + 12
    assert isinstance(mma_forms()[0], Mma)
    assert bundle("one", mma_forms()[:1]).ptx.count("mma.sync") == 1
