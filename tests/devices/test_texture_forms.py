"""Lookups and surfaces of the CPU device in the forms that no golden has, against the goldens of others and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from devices.test_textures import GOLDENS, as_numbers, places
from devices.textures_reference import reference
from devices.textures_table import CASES, COUNT, Case, make, run, run_body, surface_of

Array = npt.NDArray[Any]

_CASES = {case.name: case for case in CASES}


def _golden(name: str) -> Array:
    with np.load(GOLDENS) as file:
        return np.asarray(file[name])


_MODES = [("2d point clamp", "tex.base"), ("cube point", "tex.base"), ("cube point", "tex.grad"),
          ("acube point", "tex.level")]  # fmt: skip


@pytest.mark.parametrize(("name", "mode"), _MODES)
def test_level_is_ignored_if_there_is_only_one(name: str, mode: str, cpu: Device) -> None:
    np.testing.assert_array_equal(run(cpu, replace(_CASES[name], mode=mode)), _golden(name))


@pytest.mark.parametrize(
    ("geometry", "mode"),
    [("1d", "tex.level"), ("2d", "tex.grad"), ("3d", "tex.base"), ("a1d", "tex.level"), ("a2d", "tex.base"),
     ("cube", "tex"), ("cube", "tex.base"), ("cube", "tex.grad"), ("acube", "tex.level")],
)  # fmt: skip
def test_fetch_returns_halves_in_every_geometry(geometry: str, mode: str, cpu: Device) -> None:
    """They are the f32 that a GPU gave, rounded: four of them in registers of their own, then in pairs."""
    name = f"{geometry} point{'' if 'cube' in geometry else ' clamp'}"
    case = replace(_CASES[name], mode=mode)
    text = case.instruction
    four = text.replace(".v4.f32.", ".v4.f16.").replace("{w0, w1, w2, w3}", "{h0, h1, h2, h3}")
    two = text.replace(".v4.f32.", ".v2.f16x2.").replace("{w0, w1, w2, w3}", "{w2, w3}")
    words = np.zeros((COUNT, 8), np.float32)
    words[:, :4] = case.words
    if geometry[0] == "a":  # the layer is an integer
        words[:, 0] = case.words[:, 0].astype(np.uint32).view(np.float32)
    texture = make(cpu, case)
    got = run_body(cpu, f"{four} mov.b32 w0, {{h0, h1}}; mov.b32 w1, {{h2, h3}};\n{two}", texture.handle, words)
    halves = _golden(name).view(np.float32).astype(np.float16).view(np.uint32)
    np.testing.assert_array_equal(got, np.concatenate([halves, halves], 1))


def _like(name: str, dtype: str, channels: int, **more: Any) -> Case:
    """The coordinates of a case, with other elements."""
    case = _CASES[name]
    data = np.random.default_rng(3).integers(-1000, 1000, (*case.data.shape, channels)).astype(dtype)
    to = "s32" if dtype == "int32" else "f32"
    return replace(case, name="made up", data=data if channels > 1 else data[..., 0], channels=channels, to=to, **more)


def test_cube_may_contain_integers(cpu: Device) -> None:
    case = _like("cube point", "int32", 1)
    np.testing.assert_array_equal(as_numbers(case, run(cpu, case)), reference(case)[:, :1])


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("name", ["2d point clamp", "a2d point clamp", "cube point", "acube point"])
def test_four_neighbours_are_gathered_in_every_geometry(name: str, dtype: str, cpu: Device) -> None:
    case = _like(name, dtype, 4, mode=f"tld4.{'g' if dtype == 'int32' else 'b'}")
    np.testing.assert_array_equal(as_numbers(case, run(cpu, case)), reference(case))


def test_texture_query_returns_normalization_and_level_sizes(cpu: Device) -> None:
    for normalized in (False, True):
        texture = cpu.texture(np.zeros((3, 5, 7), np.float32), normalized=normalized)
        body = "txq.normalized_coords.b32 w0, [t]; txq.level.height.b32 w1, [t], c0; txq.level.depth.b32 w2, [t], c0;"
        got = run_body(cpu, body, texture.handle, np.zeros((1, 8), np.uint32))
        assert got.tolist() == [[normalized, 5, 3, 0]]


@pytest.mark.parametrize("mode", ["tex.2d.v4.f32.f32", "tld4.r.2d.v4.f32.f32"])
def test_each_lane_may_fetch_from_its_own_texture(mode: str, cpu: Device) -> None:
    """Some take none: they keep what they had."""
    rng = np.random.default_rng(5)
    data = [
        rng.standard_normal((5, 7, 2)).astype(np.float32), rng.integers(0, 255, (3, 9, 4), np.uint8),
        rng.standard_normal((8, 8)).astype(np.float16),
    ]  # fmt: skip
    options: list[dict[str, Any]] = [{"filter": "linear"}, {"read": "normalized_float"}, {"address": "border"}]
    channels = [each.shape[2] if each.ndim > 2 else 1 for each in data]
    textures = [cpu.texture(d, channels=c, **o) for d, c, o in zip(data, channels, options, strict=True)]
    words = np.zeros((64, 8), np.float32)
    words[:, 1:3] = rng.uniform(-1, 9, (64, 2))
    which = rng.integers(0, 4, 64)  # the last is no texture
    body = f"{mode} {{w0, w1, w2, w3}}, [t, {{c1, c2}}];"
    expected = np.zeros((64, 4), np.uint32)
    for number, texture in enumerate(textures):
        expected[which == number] = run_body(cpu, body, texture.handle, words)[which == number]
    handles = np.array([*(texture.handle for texture in textures), 0], np.uint64)[which]
    words[:, 4:6] = handles.view(np.float32).reshape(64, 2)
    got = run_body(cpu, f"mov.b64 t, {{c4, c5}}; setp.ne.u64 p, t, 0; @p {body}", 0, words)
    np.testing.assert_array_equal(got, expected)


# -- surfaces ---------------------------------------------------------------------------------------------

_SURFACES = {
    "1d": ((16,), "{c1}"), "2d": ((2, 8), "{c1, c2}"), "3d": ((2, 3, 8), "{c1, c2, c3, c3}"),
    "a1d": ((3, 8), "{c0, c1}"), "a2d": ((3, 2, 8), "{c0, c1, c2, c2}"),
}  # fmt: skip
_WHERE = {"1d": (3,), "2d": (1, 3), "3d": (1, 1, 3), "a1d": (1, 3), "a2d": (1, 1, 3)}
"""The element that the words 1, 3 elements, 1, 1 name."""


@pytest.mark.parametrize("geometry", _SURFACES)
def test_surface_is_read_and_written_in_every_geometry(geometry: str, cpu: Device) -> None:
    shape, place = _SURFACES[geometry]
    data = np.arange(100, 100 + np.prod(shape), dtype=np.uint32).reshape(shape)
    texels, surface = surface_of(cpu, data, layered=geometry[0] == "a")
    body = f"suld.b.{geometry}.cg.b32.clamp w0, [t, {place}]; suld.b.{geometry}.cs.b32.zero w1, [t, {place}];"
    body += f"suld.b.{geometry}.ca.b32.trap w2, [t, {place}]; add.u32 w3, w2, 1000;"
    body += "".join(
        f"sust.b.{geometry}.{cop}.b32.{bound} [t, {place}], w3; suld.b.{geometry}.b32.trap w3, [t, {place}];"
        "add.u32 w3, w3, 1;"
        for cop, bound in (("cg", "clamp"), ("cs", "zero"), ("wb", "trap"))
    )
    got = run_body(cpu, body, surface.handle, places((1, 12, 1, 1)))
    old = int(data[_WHERE[geometry]])
    assert got.tolist() == [[old, old, old, old + 1003]]
    data[_WHERE[geometry]] = old + 1002
    np.testing.assert_array_equal(texels.numpy(), data)


@pytest.mark.parametrize("geometry", _SURFACES)
@pytest.mark.parametrize("bound", ["clamp", "zero", "trap"])
def test_formatted_store_supports_every_geometry_and_bound(geometry: str, bound: str, cpu: Device) -> None:
    shape, place = _SURFACES[geometry]
    texels, surface = surface_of(cpu, np.zeros((*shape, 4), np.int16), 4, layered=geometry[0] == "a")
    body = f"sust.p.{geometry}.v4.b32.{bound} [t, {place}], {{c4, c5, c6, c7}};"
    # The second place is beside: its last element takes it, or none.
    rows = places((1, 3, 1, 1, 7, -7, 1 << 20, 0), (0, 100, 0, 0, 1, 2, 3, 4))[: 1 if bound == "trap" else 2]
    run_body(cpu, body, surface.handle, rows)
    expected = np.zeros((*shape, 4), np.int16)
    expected[_WHERE[geometry]] = [7, -7, 32767, 0]
    if bound == "clamp":
        expected[(*(0 for _ in shape[:-1]), shape[-1] - 1)] = [1, 2, 3, 4]
    np.testing.assert_array_equal(texels.numpy(), expected)


_STEPS: dict[str, Callable[..., Any]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip
_REDUCED = (
    *((f"b.{step}", type_) for step in ("add", "min", "max") for type_ in ("u32", "s32")),
    ("b.and", "b32"), ("b.or", "b32"), ("b.add", "u64"), ("b.min", "s64"), ("b.max", "s64"), ("b.max", "u64"),
    *((f"p.{step}", "b32") for step in _STEPS),
)  # fmt: skip


@pytest.mark.parametrize("geometry", ["1d", "2d", "3d"])
def test_every_reduction_works_in_every_geometry(geometry: str, cpu: Device) -> None:
    """One after the other in one place; another thread's place is beside, where nothing is done, or the last one is."""
    shape, place = _SURFACES[geometry]
    for bits in (32, 64):
        mine = [(name, type_) for name, type_ in _REDUCED if ("64" in type_) == (bits == 64)]
        unsigned = np.dtype(f"u{bits // 8}")
        start = np.random.default_rng(bits).integers(0, 1 << 63, shape, np.uint64).astype(unsigned)
        texels, surface = surface_of(
            cpu, start.view(np.uint32).reshape(shape if bits == 32 else (*shape, 2)), bits // 32
        )
        other = start.reshape(-1)[(shape[-1] - 1)]
        here, value, lines = start[_WHERE[geometry]], unsigned.type(0x9E3779B97F4A7C15 & (1 << bits) - 1), []
        for k, (name, type_) in enumerate(mine):
            bound = ("clamp", "zero")[k % 2]
            value = unsigned.type((int(value) * 6364136223846793005 + 1442695040888963407) >> 7 & (1 << bits) - 1)
            lines.append(f"mov.b64 l0, {int(value)}; cvt.u32.u64 w3, l0;")
            x, scale = ("l0" if bits == 64 else "w3"), 1 if name[0] == "b" else bits // 8
            lines.append(f"mov.u32 w2, c1; div.s32 c1, c1, {scale};")
            lines.append(f"sured.{name[0]}.{name[2:]}.{geometry}.{type_}.{bound} [t, {place}], {x}; mov.u32 c1, w2;")
            kind = np.dtype(f"{'i' if type_[0] == 's' else 'u'}{bits // 8}")
            step = _STEPS[name[2:]]
            with np.errstate(over="ignore"):
                here = step(here.view(kind), value.view(kind)).view(unsigned)
                other = step(other.view(kind), value.view(kind)).view(unsigned) if bound == "clamp" else other
        size = bits // 8
        run_body(cpu, "\n".join(lines), surface.handle, places((0, 3 * size, 1, 1), (0, 100 * size, 0, 0)))
        expected = start.copy()
        expected[_WHERE[geometry]] = here
        expected.reshape(-1)[shape[-1] - 1] = other
        np.testing.assert_array_equal(texels.numpy().view(unsigned).reshape(shape), expected)
