"""Textures and surfaces, on every device present; lookups also against NumPy and against what a GPU recorded."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.cpu.backend import CpuBackend
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.run.textures import note_references
from cujit.devices.device import Device
from cujit.errors import ArgumentError, ClosedError, KernelFaultError, UnsupportedError
from cujit.formats.ptx.parser import parse
from devices.textures_reference import reference
from devices.textures_table import CASES, Case, golden_of, make, ptx_of, run, run_body, surface_of
from pages import Page
from raising import raises

Array = npt.NDArray[Any]
GOLDENS = Path(__file__).parents[1] / "goldens" / "textures.npz"
PAGE = Page("textures.md")


def as_numbers(case: Case, words: Array) -> Array:
    """Words of a case as its numbers."""
    kind = {"f32": np.float32, "s32": np.int32, "u32": np.uint32}[case.to]
    return np.asarray(words.view(kind).astype(np.float64))[:, : case.shown]


def difference(case: Case, got: Array, expected: Array, tolerance: float) -> str:
    """Tell where numbers differ by more than the tolerance."""
    wrong = np.abs(got - expected) > tolerance
    if not wrong.any():
        return ""
    row = int(np.argwhere(wrong)[0][0])
    count = int(wrong.any(axis=1).sum())
    return f"{case.name} at {case.words[row]} gives {got[row]} and not {expected[row]}; {count} of {len(got)} differ"


def spread(case: Case) -> float:
    """The largest difference of two elements, as they are read."""
    if case.options.get("read") == "normalized_float":
        return 2.0
    return float(np.ptp(case.data.astype(np.float64))) + abs(float(np.max(case.options.get("border", 0.0))))


def tolerance(case: Case, sums: float, code: float) -> float:
    """How far a result may be off: ``sums`` for the order in which floats are added, of their spread; ``code`` of sRGB.

    An H200 decodes sRGB to 8 bits and filters it so, too; it filters f16 in f16, and integers in steps of 1/32767.
    """
    is_linear = case.options.get("filter") == "linear"
    if case.name.startswith("weights 3d"):
        return 2.0**-8  # of 256 products of three weights up to 3 are rounded the other way by an H200
    if case.options.get("srgb"):
        return 2.0**-7 if is_linear else code
    if case.is_exact:
        return 0.0
    if case.data.dtype.kind in "iu":
        return 2.0**-14 if is_linear else 2.0**-21
    return (2.0**-10 if case.data.dtype == np.float16 else sums) * spread(case)


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_fetch_matches_the_programming_guide(case: Case, cpu: Device) -> None:
    got = as_numbers(case, run(cpu, case))
    expected = reference(case)[:, : case.shown]
    assert not difference(case, got, expected, tolerance(case, 2.0**-22, 2.0**-8))


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_fetch_matches_the_gpu(case: Case, device: Device) -> None:
    goldens = dict(np.load(GOLDENS)) if GOLDENS.exists() else {}
    golden = golden_of(case, goldens)
    if golden is None:
        pytest.skip("not recorded yet")
    got = run(device, case)
    assert not difference(case, as_numbers(case, got), as_numbers(case, golden), tolerance(case, 2.0**-20, 2.0**-21))
    assert (got[:, case.shown :] == golden[:, case.shown :]).all()


# -- what the words of a lookup mean ----------------------------------------------------------------------


def test_odd_coordinates_are_harmless(device: Device) -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e10, -1e10, 0.0], np.float32)
    words = np.zeros((8, 3), np.float32)
    words[:, 1], words[:, 2] = odd, odd[::-1]
    for address in ("clamp", "border", "wrap", "mirror"):
        for filter in ("point", "linear"):
            texture = device.texture(np.ones((5, 7), np.float32), address=address, filter=filter, normalized=True)
            body = "tex.2d.v4.f32.f32 {w0, w1, w2, w3}, [t, {c1, c2}];"
            got = run_body(device, body, texture.handle, words, 8).view(np.float32)[:, 0]
            assert ((got >= 0) & (got <= 1)).all()


@pytest.mark.parametrize("geometry", ["1d", "2d", "3d", "a1d", "a2d", "cube", "acube"])
def test_fetch_of_another_geometry_stays_within_the_texture(geometry: str, cpu: Device) -> None:
    place = {"1d": "{c1}", "2d": "{c1, c2}", "a1d": "{c0, c1}"}.get(geometry, "{c0, c1, c2, c3}")
    words = np.array([[k, 0.5, 0.25, 3.0] for k in range(4)], np.float32)
    words[:, 0] = np.array([0, 1, 6, 1 << 30], np.uint32).view(np.float32)
    for data in (np.full(4, 7.0), np.full((3, 4), 7.0), np.full((2, 3, 4), 7.0)):
        texture = cpu.texture(data.astype(np.float32), normalized=True)
        body = f"tex.{geometry}.v4.f32.f32 {{w0, w1, w2, w3}}, [t, {place}];"
        assert run_body(cpu, body, texture.handle, words).view(np.float32)[:, 0].tolist() == [7.0] * 4


def test_lanes_may_fetch_from_different_textures(cpu: Device) -> None:
    # On a GPU the handle has to be the same in all lanes of a warp (an H200 reads zeros else); here it need not be.
    textures = [cpu.texture(cpu.array(np.full(4, k, np.float32))) for k in range(4)]
    words = np.zeros((32, 8), np.uint32)
    for k in range(32):
        words[k, :2] = np.array([textures[k % 4].handle], np.uint64).view(np.uint32)
    body = """
mov.b64 l0, {c0, c1};
setp.lt.u32 p, i, 24;
mov.f32 w0, 0fBF800000;
mov.b32 c3, 0;
@p tex.1d.v4.f32.s32 {w0, w1, _, w3}, [l0, {c3}];
"""
    got = run_body(cpu, body, 0, words).view(np.float32)[:, 0]
    assert got.tolist() == [float(k % 4) if k < 24 else -1.0 for k in range(32)]


def test_fetched_texels_are_resident(device: Device) -> None:
    texture = device.texture(device.array(np.arange(4, dtype=np.float32)))
    body = "tex.1d.v4.f32.s32 {w0, w1, w2, w3}|p, [t, {c1}];\nselp.b32 w1, 1, 0, p;"
    words = np.array([[0, k, 0, 0] for k in range(4)], np.int32)
    assert run_body(device, body, texture.handle, words)[:, 1].tolist() == [1] * 4


def test_array_bound_in_place_shows_later_writes(device: Device) -> None:
    x = device.array(np.zeros(8, np.float32))
    texture = device.texture(x)
    x.copy_from(np.arange(8, dtype=np.float32))
    words = np.array([[0, k, 0, 0] for k in range(8)], np.int32)
    got = run_body(device, "tex.1d.v4.f32.s32 {w0, w1, w2, w3}, [t, {c1}];", texture.handle, words)
    assert got[:, 0].view(np.float32).tolist() == list(range(8))


def test_texture_query_returns_its_sizes(device: Device) -> None:
    texture = device.texture(np.zeros((3, 5, 7), np.float32))
    queries = ["width", "height", "depth"]
    body = "\n".join(f"txq.{q}.b32 w{k}, [t];" for k, q in enumerate(queries)) + "\ntxq.level.width.b32 w3, [t], c0;"
    assert run_body(device, body, texture.handle, np.zeros((1, 8), np.uint32)).tolist() == [[7, 5, 3, 7]]


def test_texture_query_returns_its_sampling(cpu: Device) -> None:
    texture = cpu.texture(
        np.zeros((3, 5, 7), np.float32), address=("wrap", "mirror", "border"), filter="linear", normalized=True
    )
    queries = ["addr_mode_0", "addr_mode_1", "addr_mode_2", "filter_mode"]
    body = "\n".join(f"txq.{q}.b32 w{k}, [t];" for k, q in enumerate(queries))
    assert run_body(cpu, body, texture.handle, np.zeros((1, 8), np.uint32)).tolist() == [[0, 1, 4, 1]]
    layered = cpu.texture(np.zeros((3, 5, 7), np.float32), layered=True)
    queries = ["array_size", "num_mipmap_levels", "num_samples", "addr_mode_0"]
    body = "\n".join(f"txq.{q}.b32 w{k}, [t];" for k, q in enumerate(queries))
    assert run_body(cpu, body, layered.handle, np.zeros((1, 8), np.uint32)).tolist() == [[3, 0, 0, 3]]


# -- surfaces ---------------------------------------------------------------------------------------------


def places(*rows: tuple[int, ...]) -> Array:
    return np.array([(*r, *[0] * (8 - len(r))) for r in rows], np.int32)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_surface_moves_elements_of_every_size(bits: int, count: int, device: Device) -> None:
    if bits * count > 128:
        pytest.skip("no vector is wider than 128 bits")
    data = np.random.default_rng(3).integers(0, 256, (4, 64), np.uint8).view(np.uint32)
    texels, surface = surface_of(device, data)
    size = bits * count // 8
    names = {8: "h", 16: "h", 32: "w", 64: "l"}[bits]
    vector = "{" + ", ".join(f"{names}{k}" for k in range(count)) + "}"
    form = f"b{bits}" if count == 1 else f"v{count}.b{bits}"
    body = f"suld.b.2d.{form}.trap {vector}, [t, {{c1, c2}}];\nsust.b.2d.{form}.trap [t, {{c3, c4}}], {vector};"
    run_body(device, body, surface.handle, places((0, size, 1, 2 * size, 3)))
    expected = data.view(np.uint8).copy()
    expected[3, 2 * size : 3 * size] = expected[1, size : 2 * size]
    assert (texels.numpy().view(np.uint8) == expected).all()


@pytest.mark.parametrize(("bounds", "expected"), [("clamp", [10, 13, 10, 31]), ("zero", [0, 0, 0, 0])])
def test_surface_load_out_of_bounds_clamps_or_gives_zero(bounds: str, expected: list[int], device: Device) -> None:
    data = np.arange(10, 34, dtype=np.uint32).reshape(6, 4)
    _, surface = surface_of(device, data)
    rows = places((0, -4, 0), (0, 16, 0), (0, 0, -1), (0, 12, 6))
    rows[3, 1] = 4
    expected = expected[:3] + ([31] if bounds == "clamp" else [0])
    got = run_body(device, f"suld.b.2d.b32.{bounds} w0, [t, {{c1, c2}}];", surface.handle, rows)
    assert got[:, 0].tolist() == expected


def test_surface_write_out_of_bounds_clamps_or_is_dropped(device: Device) -> None:
    texels, surface = surface_of(device, np.zeros((2, 4), np.uint32))
    run_body(device, "sust.b.2d.b32.zero [t, {c1, c2}], c3;", surface.handle, places((0, -4, 0, 7), (0, 0, 2, 7)))
    assert not texels.numpy().any()
    run_body(device, "sust.b.2d.b32.clamp [t, {c1, c2}], c3;", surface.handle, places((0, 100, 1, 7), (0, 0, -5, 8)))
    assert texels.numpy().tolist() == [[8, 0, 0, 0], [0, 0, 0, 7]]


@pytest.mark.parametrize(
    ("geometry", "shape", "place"),
    [("1d", (16,), "{c1}"), ("3d", (2, 3, 8), "{c1, c2, c3, c3}"), ("a1d", (3, 8), "{c0, c1}"),
     ("a2d", (3, 2, 8), "{c0, c1, c2, c2}")],
)  # fmt: skip
def test_surface_of_every_geometry_accepts_a_store(
    geometry: str, shape: tuple[int, ...], place: str, device: Device
) -> None:
    texels, surface = surface_of(device, np.zeros(shape, np.uint16), layered=geometry[0] == "a")
    body = f"cvt.u16.u32 h0, c4;\nsust.b.{geometry}.b16.trap [t, {place}], h0;"
    run_body(device, body, surface.handle, places((1, 6, 1, 1, 777)))
    where = {"1d": (3,), "3d": (1, 1, 3), "a1d": (1, 3), "a2d": (1, 1, 3)}[geometry]
    found = texels.numpy()
    assert found[where] == 777
    assert np.count_nonzero(found) == 1


def test_cube_is_written_as_layers(device: Device) -> None:
    texels, surface = surface_of(device, np.zeros((6, 4, 4), np.float32), cube=True)
    run_body(device, "sust.b.a2d.b32.trap [t, {c0, c1, c2, c2}], c3;", surface.handle, places((5, 8, 1, 1)))
    assert np.argwhere(texels.numpy()).tolist() == [[5, 1, 2]]


@pytest.mark.parametrize(
    ("dtype", "given", "stored"),
    [
        ("uint32", [7, 1 << 31], [7, 1 << 31]),
        ("int32", [-7, 9], [-7, 9]),
        ("float32", [np.float32(1.5).view(np.int32), 0], [1.5, 0]),
        ("float16", [np.float32(1.5).view(np.int32), np.float32(-2).view(np.int32)], [1.5, -2]),
        ("uint16", [5, 65535], [5, 65535]),
        ("int8", [-5, 127], [-5, 127]),
    ],
)
def test_formatted_store_converts_to_the_elements(
    dtype: str, given: list[int], stored: list[float], device: Device
) -> None:
    texels, surface = surface_of(device, np.zeros((2, 4, 2), dtype), 2)
    rows = places((0, 2, 1, 0, 0))
    rows[0, 3:5] = np.array(given, np.int64).astype(np.uint32).view(np.int32)
    run_body(device, "sust.p.2d.v2.b32.trap [t, {c1, c2}], {c3, c4};", surface.handle, rows)
    assert texels.numpy()[1, 2].tolist() == stored


@pytest.mark.parametrize(
    ("step", "type_", "start", "values", "result"),
    [
        ("add", "u32", 5, [1, 2, 3], 11),
        ("add", "s32", 5, [-1, -2, 3], 5),
        ("min", "s32", 5, [-1, 7, 3], -1),
        ("min", "u32", 5, [-1, 7, 3], 3),
        ("max", "s32", -5, [-1, -7, -3], -1),
        ("max", "u32", 5, [-1, 7, 3], -1),
        ("and", "b32", 7, [3, 6, 7], 2),
        ("or", "b32", 0, [1, 8, 2], 11),
    ],
)
def test_surface_reductions_are_atomic(
    step: str, type_: str, start: int, values: list[int], result: int, device: Device
) -> None:
    texels, surface = surface_of(device, np.full(4, start, np.int32))
    rows = places(*((0, 8, v) for v in values))
    run_body(device, f"sured.b.{step}.1d.{type_}.trap [t, {{c1}}], c2;", surface.handle, rows)
    assert texels.numpy().tolist() == [start, start, result, start]


def test_formatted_store_rounds_to_nearest_and_clamps(cpu: Device) -> None:
    texels, surface = surface_of(cpu, np.zeros(2, np.float16))
    rows = places((0, 0), (0, 1))
    rows[:, 2] = np.array([1.0006, 1e6], np.float32).view(np.int32)
    run_body(cpu, "sust.p.1d.b32.trap [t, {c1}], c2;", surface.handle, rows)
    assert texels.numpy().tolist() == [np.float16(1.0006), np.inf]
    for dtype, given, stored in (("uint8", [300, 7], [255, 7]), ("int16", [-(1 << 20), 1 << 20], [-32768, 32767])):
        texels, surface = surface_of(cpu, np.zeros(2, dtype))
        rows[:, 2] = given
        run_body(cpu, "sust.p.1d.b32.trap [t, {c1}], c2;", surface.handle, rows)
        assert texels.numpy().tolist() == stored


def test_reductions_of_elements_are_signed_as_the_surface_is(device: Device) -> None:
    for dtype, result in ((np.int32, -1), (np.uint32, 3)):
        texels, surface = surface_of(device, np.full(4, 5, dtype))
        rows = places((0, 2, -1), (0, 2, 3))
        run_body(device, "sured.p.min.1d.b32.trap [t, {c1}], c2;", surface.handle, rows)
        assert texels.numpy().tolist() == [5, 5, result, 5]


def test_reductions_of_64_bits(device: Device) -> None:
    texels, surface = surface_of(device, np.zeros((2, 2), np.uint32), 2)
    body = "mov.b64 l0, {c2, c3};\nsured.b.max.1d.u64.trap [t, {c1}], l0;"
    run_body(device, body, surface.handle, places((0, 8, 1, 2), (0, 8, 5, 1)))
    assert texels.numpy().tolist() == [[0, 0], [1, 2]]


def test_surface_query_returns_its_sizes(cpu: Device) -> None:
    _, surface = surface_of(cpu, np.zeros((3, 5, 7), np.float32))
    body = "suq.width.b32 w0, [t];\nsuq.height.b32 w1, [t];\nsuq.depth.b32 w2, [t];\nsuq.memory_layout.b32 w3, [t];"
    assert run_body(cpu, body, surface.handle, np.zeros((1, 8), np.uint32)).tolist() == [[7, 5, 3, 0]]


def test_surface_writes_are_read_by_a_texture(device: Device) -> None:
    texels, surface = surface_of(device, np.zeros((2, 4), np.float32))
    run_body(device, "sust.b.2d.b32.trap [t, {c1, c2}], 0f40A00000;", surface.handle, places((0, 8, 1)))
    texture = device.texture(texels)
    got = run_body(device, "tex.2d.v4.f32.s32 {w0, w1, w2, w3}, [t, {c1, c2}];", texture.handle, places((0, 2, 1)))
    assert got.view(np.float32)[0, 0] == 5.0


@pytest.mark.parametrize(
    "body",
    [
        "suld.b.2d.b32.trap w0, [t, {c1, c2}];",
        "sust.b.2d.b32.trap [t, {c1, c2}], c3;",
        "sured.b.add.2d.u32.trap [t, {c1, c2}], c3;",
    ],
)
def test_trapping_access_out_of_bounds_ends_the_launch(body: str, cpu: Device) -> None:
    _, surface = surface_of(cpu, np.zeros((2, 4), np.float32))
    with raises(KernelFaultError, "fault-trap", "1", "0", ".2d") as caught:
        run_body(cpu, body, surface.handle, places((0, 0), (0, 16, 1, 0)))
    assert caught.value.kind == "trap"


@pytest.mark.parametrize("bounds", ["trap", "clamp", "zero"])
def test_misaligned_surface_access_ends_the_launch(bounds: str, cpu: Device) -> None:
    _, surface = surface_of(cpu, np.zeros((2, 4), np.float32))
    with raises(KernelFaultError, "fault-misaligned", 'cujit.cpu(check="memory")'):
        run_body(cpu, f"suld.b.2d.b32.{bounds} w0, [t, {{c1, c2}}];", surface.handle, places((0, 2, 1, 0)))


@pytest.mark.parametrize("handle", [0, 12, 4097, 1 << 46], ids=str)
def test_invalid_handle_ends_the_launch(handle: int, cpu: Device) -> None:
    with raises(KernelFaultError, "fault-illegal-address", f"{handle:#x}"):
        run_body(cpu, "tex.1d.v4.f32.s32 {w0, w1, w2, w3}, [t, {c1}];", handle, places((0, 0)))


def test_surface_and_texture_are_not_interchangeable(cpu: Device) -> None:
    texels, surface = surface_of(cpu, np.zeros((2, 4), np.float32))
    texture = cpu.texture(texels)
    with raises(KernelFaultError, "fault-illegal-address", f"{surface.handle:#x}"):
        run_body(cpu, "tex.2d.v4.f32.s32 {w0, w1, w2, w3}, [t, {c1, c2}];", surface.handle, places((0, 0)))
    with pytest.raises(KernelFaultError):
        run_body(cpu, "suld.b.2d.b32.trap w0, [t, {c1, c2}];", texture.handle, places((0, 0)))


# -- at the door ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES[::17], ids=[c.name for c in CASES[::17]])
def test_texels_are_unchanged_after_a_round_trip(case: Case, device: Device) -> None:
    kind = {"layered": case.geometry[0] == "a", "cube": case.geometry.endswith("cube")}
    texels = device.texels(case.data, channels=case.channels, **kind)
    assert (texels.numpy() == case.data).all()
    assert (texels.shape, texels.dtype, texels.nbytes) == (case.data.shape, case.data.dtype, case.data.nbytes)


def test_texels_accept_new_values_of_their_shape_and_dtype(device: Device) -> None:
    texels = device.texels(np.zeros((2, 3), np.int16))
    texels.copy_from(np.arange(6, dtype=np.int16).reshape(2, 3))
    assert texels.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    with raises(ArgumentError, "argument", "int16", "2", "3", "int64", "(6,)"):
        texels.copy_from(np.arange(6))


def test_noncontiguous_data_is_accepted(device: Device) -> None:
    data = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::3]
    assert (device.texels(data).numpy() == data).all()


REFUSED: list[tuple[str, object, dict[str, object], tuple[str, ...]]] = [
    ("float64", np.zeros(4), {}, ("float64",)),
    ("three channels", np.zeros((4, 3), np.float32), {"channels": 3}, ("1", "2", "4")),
    ("channels elsewhere", np.zeros((4, 8), np.float32), {"channels": 4}, ("axis",)),
    ("channels of a list", np.zeros((4, 2), np.float32), {"channels": [2]}, ("1", "2", "4")),
    ("four axes", np.zeros((2, 2, 2, 2), np.float32), {}, ("1", "3", "axes")),
    ("no elements", np.zeros((0, 2), np.float32), {}, ("0",)),
    ("layers of nothing", np.zeros(4, np.float32), {"layered": True}, ("2", "3", "layers")),
    ("five faces", np.zeros((5, 4, 4), np.float32), {"cube": True, "normalized": True}, ("layered=True",)),
    ("an oblong cube", np.zeros((6, 4, 5), np.float32), {"cube": True, "normalized": True}, ("layered=True",)),
    ("a cube in texels", np.zeros((6, 4, 4), np.float32), {"cube": True}, ("normalized=True",)),
    ("an unknown address", np.zeros(4, np.float32), {"address": "repeat"}, ("wrap", "clamp", "mirror")),
    ("an unknown filter", np.zeros(4, np.float32), {"filter": "cubic"}, ("point", "linear")),
    ("an unknown read", np.zeros(4, np.float32), {"read": "float"}, ("element", "normalized_float")),
    ("wrapped texels", np.zeros(4, np.float32), {"address": "wrap"}, ("wrap", "normalized=True")),
    ("filtered integers", np.zeros(4, np.int32), {"filter": "linear"}, ("read='normalized_float'",)),
    ("normalised words", np.zeros(4, np.int32), {"read": "normalized_float"}, ("8", "16", "read='element'")),
    ("sRGB of floats", np.zeros(4, np.float32), {"srgb": True}, ("8", "sRGB")),
    ("a border of words", np.zeros(4, np.float32), {"border": "red"}, ("finite",)),
    ("a border beyond floats", np.zeros(4, np.int32), {"border": 10**400}, ("finite",)),
    ("a border that is none", np.zeros(4, np.int32), {"border": (0.0, float("nan"))}, ("finite",)),
    ("five colors", np.zeros(4, np.int32), {"border": (0, 0, 0, 0, 0)}, ("finite",)),
    ("addresses in a list", np.zeros(4, np.float32), {"address": (["clamp"],)}, ("axis",)),
    ("a read of numbers", np.zeros(4, np.float32), {"read": np.zeros(2)}, ("element",)),
    ("too wide", np.zeros(1 << 18, np.uint8), {}, ("width", "1D 262144", "131072")),
    ("too many layers", np.zeros((2049, 1), np.uint8), {"layered": True}, ("layers", "2049")),
    ("words", ["a", "b"], {}, ("x.astype('float32')",)),
]


@pytest.mark.parametrize(("data", "options", "why"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_invalid_texture_is_refused(
    data: npt.ArrayLike, options: dict[str, Any], why: tuple[str, ...], device: Device
) -> None:
    with raises(ArgumentError, "argument", *why):
        device.texture(data, **options)


@pytest.mark.parametrize(
    ("shape", "options", "why"),
    [
        ((2, 3), {}, "device.texture(device.texels(x.numpy()))"),
        ((2, 3, 4), {}, "device.texture(device.texels(x.numpy()))"),
        ((8,), {"filter": "linear"}, "tex1Dfetch"),
        ((8,), {"normalized": True}, "tex1Dfetch"),
        ((8,), {"layered": True}, "device.texture(device.texels(x.numpy()))"),
    ],
)
def test_data_that_cannot_be_bound_in_place_is_refused(
    shape: tuple[int, ...], options: dict[str, Any], why: str, device: Device
) -> None:
    with raises(ArgumentError, "argument", why):
        device.texture(device.zeros(shape, np.float32), **options)


def test_misaligned_array_is_not_bound_in_place(device: Device) -> None:
    with raises(ArgumentError, "argument", "starts"):
        device.texture(device.zeros(64, np.float32)[1:])


def test_surface_requires_texels(device: Device) -> None:
    with raises(ArgumentError, "argument", "DeviceArray"):
        device.surface(device.zeros(4, np.float32))  # type: ignore[arg-type]


def test_texels_of_another_device_are_refused(cpu: Device) -> None:
    other = Device(CpuBackend(1))
    for make_of in (cpu.texture, cpu.surface):
        with raises(ArgumentError, "device-mismatch", "<Texels"):
            make_of(other.texels(np.zeros(4, np.float32)))


def test_device_without_textures_is_reported(host: Device) -> None:
    with raises(UnsupportedError, "unsupported", "cpu", "textures"):
        host.texture(np.zeros(4, np.float32))


def test_closed_texture_has_no_handle(device: Device) -> None:
    texture = device.texture(np.zeros(4, np.float32))
    texture.close()
    texture.close()
    with raises(ClosedError, "closed", "texture"):
        _ = texture.handle


def test_texture_keeps_its_elements(device: Device) -> None:
    texture = make(device, next(c for c in CASES if c.name == "linear memory"))
    gc.collect()
    got = run_body(device, "tex.1d.v4.f32.s32 {w0, w1, w2, w3}, [t, {c1}];", texture.handle, places((0, 1)))
    assert (got.view(np.float32)[0] == texture.source.numpy()[1]).all()


def test_textures_have_a_readable_repr(cpu: Device) -> None:
    texels = cpu.texels(np.zeros((3, 5, 7, 4), np.uint8), channels=4, layered=True)
    assert repr(texels) == "<Texels 2D layered 3 x 5 x 7 of uint8 x 4 on cpu>"
    assert repr(cpu.surface(texels)) == f"<Surface of {texels!r}>"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("tex.2d.v4.f32.f32 {w0, w1, w2, w3}, [t, {c1, c2}], c3;", "tex.2d.v4.f32.f32"),
        ("tex.2dms.v4.s32.s32 {w0, w1, w2, w3}, [t, {c1, c2, c3, c3}];", "tex.2dms"),
        ("txq.channel_order.b32 w0, [t];", "txq.channel_order"),
    ],
)
def test_unsupported_cpu_device_feature_is_refused_by_name(body: str, why: str, cpu: Device) -> None:
    texture = cpu.texture(np.zeros((2, 4), np.float32))
    with raises(UnsupportedError, "unsupported", why):
        run_body(cpu, body, texture.handle, places((0, 0)))


def test_texture_references_are_noted_by_name() -> None:
    text = """.version 8.3
.target sm_90
.address_size 64
.global .texref picture;
.global .samplerref nearest;
.visible .entry k(.param .surfref target) { ret; }
"""
    refusals = Refusals()
    assert note_references(parse(text, name="k.ptx"), refusals)
    assert [(line, name) for line, name, _ in refusals.items] == [
        (4, ".texref picture"),
        (5, ".samplerref nearest"),
        (6, ".surfref target"),
    ]
    assert not note_references(parse(ptx_of(""), name="k.ptx"), Refusals())


@pytest.mark.parametrize("code", PAGE.each())
def test_snippet_of_the_page_runs(code: str, device: Device) -> None:
    PAGE.run(code, device=device)


def test_page_contains_its_snippets() -> None:
    assert len(PAGE.snippets()) == 4
