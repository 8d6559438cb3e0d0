"""Texture lookups of every geometry, format, addressing and filter, as cases that run on every device.

A thread reads eight words of ``words``, does one instruction with them, and writes four words. ``t`` is the handle,
``c0`` to ``c7`` are the words, ``w0`` to ``w3`` the results (``l0`` and ``l1`` as 64 bits, ``h0`` to ``h3`` as 16).
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.artifact import Artifact
from cujit.devices.backend import BackendKernel
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.devices.textures.texture import Surface, Texels, Texture

__all__ = ["CASES", "COUNT", "Case", "golden_of", "ptx_of", "run", "run_body"]

Array = npt.NDArray[Any]

COUNT = 256
"""Threads of a case."""

_FACES = {"cube": 3, "acube": 3, "1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2}


@dataclass(frozen=True, eq=False)
class Case:
    """One lookup of many coordinates. ``words`` has a row of coordinates for each thread, the layer first."""

    name: str
    geometry: str
    data: Array
    words: Array
    to: str = "f32"
    channels: int = 1
    in_place: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    mode: str = "tex"
    """``tex``, ``tex.level``, ``tex.grad``, or ``tld4.r`` and so on."""
    offsets: tuple[int, ...] = ()
    """Added to the coordinates by the instruction, in elements."""

    def __repr__(self) -> str:
        return f"Case({self.name})"

    @property
    def is_exact(self) -> bool:
        """Whether nothing is rounded: elements as they are."""
        return bool(self.options.get("filter") != "linear" and self.options.get("read") != "normalized_float")

    @property
    def shown(self) -> int:
        """How many of the four words are compared: those of channels that the texture has."""
        return 4 if self.mode.startswith("tld4") else self.channels

    @property
    def coordinate(self) -> str:
        """Type of the coordinates."""
        return "f32" if self.words.dtype.kind == "f" else "s32"

    @property
    def instruction(self) -> str:
        """The instruction, with the registers that ``ptx_of`` declares."""
        axes = _FACES[self.geometry]
        layer = ["c0"] if self.geometry[0] == "a" else []
        places = [*layer, *(f"c{k}" for k in range(1, axes + 1))]
        if len(places) == 3:  # 3d, a2d, cube: vectors of four
            places.append("c1")
        name, _, level = self.mode.partition(".")
        words = [name, *([level] if level else []), self.geometry, "v4", self.to, self.coordinate]
        rest = {"level": ", c5", "grad": f", {_vector(axes)}, {_vector(axes)}"}.get(level if name == "tex" else "", "")
        if self.offsets:
            numbers = [str(n) for n in self.offsets] + (["0"] if axes == 3 else [])
            moves = " ".join(f"mov.u32 o{k}, {n};" for k, n in enumerate(numbers))
            rest += ", {" + ", ".join(f"o{k}" for k in range(len(numbers))) + "}"
        else:
            moves = ""
        return f"{moves}\n{'.'.join(words)} {{w0, w1, w2, w3}}, [t, {{{', '.join(places)}}}]{rest};"


def _vector(axes: int) -> str:
    return "{" + ", ".join(["c5", "c6", "c7", "c7"][: 4 if axes == 3 else axes]) + "}"


# -- running ----------------------------------------------------------------------------------------------


def ptx_of(body: str) -> str:
    """Write the kernel that does ``body`` for every thread: parameters are the handle, the words, the results."""
    return f""".version 8.3
.target sm_90
.address_size 64
.visible .entry k(.param .u64 handle, .param .u64 in, .param .u64 out)
{{
.reg .b64 t, from, to, at, l<2>;
.reg .b32 i, n, c<8>, w<4>, o<4>;
.reg .b16 h<4>;
.reg .pred p;
ld.param.u64 t, [handle];
ld.param.u64 from, [in];
ld.param.u64 to, [out];
mov.u32 i, %ctaid.x;
mov.u32 n, %ntid.x;
mul.lo.u32 i, i, n;
mov.u32 n, %tid.x;
add.u32 i, i, n;
mul.wide.u32 at, i, 32;
add.u64 at, from, at;
ld.global.v4.b32 {{c0, c1, c2, c3}}, [at];
ld.global.v4.b32 {{c4, c5, c6, c7}}, [at+16];
mov.b32 w0, 0;
mov.b32 w1, 0;
mov.b32 w2, 0;
mov.b32 w3, 0;
{body}
mul.wide.u32 at, i, 16;
add.u64 at, to, at;
st.global.v4.b32 [at], {{w0, w1, w2, w3}};
ret;
}}
"""


@functools.lru_cache(maxsize=64)
def _kernel(device: Device, body: str) -> BackendKernel:
    return device.load(Artifact.of(ptx_of(body))).kernels["k"]


def run_body(device: Device, body: str, handle: int, words: Array, threads: int | None = None) -> Array:
    """Run a body for each row of ``words`` (rows of up to eight words of 32 bits); return four words for each."""
    rows = np.zeros((len(words), 8), np.uint32)
    rows[:, : words.shape[1]] = np.ascontiguousarray(words).view(np.uint32)
    given, out = device.array(rows), device.zeros((len(words), 4), np.uint32)
    kernel = _kernel(device, body)
    block = threads or min(len(words), 64)
    parameters = struct.pack("<3Q", handle, given.address, out.address)
    kernel.launch(LaunchShape(Dim3(len(words) // block), Dim3(block)), parameters)
    device.synchronize()
    return np.asarray(out.numpy())


def run(device: Device, case: Case) -> Array:
    """Run a case on a device: the words that each thread got."""
    texture = make(device, case)
    words = np.zeros((COUNT, 8), case.words.dtype)
    words[:, : case.words.shape[1]] = case.words
    if case.geometry[0] == "a" and words.dtype.kind == "f":  # the layer is an integer
        words[:, 0] = case.words[:, 0].astype(np.uint32).view(np.float32)
    got = run_body(device, case.instruction, texture.handle, words)
    texture.close()
    return got


def make(device: Device, case: Case) -> Texture:
    """Make the texture of a case."""
    if case.in_place:
        return device.texture(device.array(case.data), channels=case.channels, **case.options)
    layered, cube = case.geometry[0] == "a", case.geometry.endswith("cube")
    return device.texture(case.data, channels=case.channels, layered=layered, cube=cube, **case.options)


def golden_of(case: Case, goldens: dict[str, Array]) -> Array | None:
    """What a GPU computed for a case; None where that is not recorded yet."""
    return goldens.get(case.name)


def surface_of(device: Device, data: Array, channels: int = 1, **kind: bool) -> tuple[Texels, Surface]:
    """Make texels and a surface of them."""
    texels = device.texels(data, channels=channels, **kind)
    return texels, device.surface(texels)


# -- the cases --------------------------------------------------------------------------------------------

_DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32")
_SHAPES = {"1d": (13,), "2d": (5, 13), "3d": (3, 5, 13), "a1d": (4, 13), "a2d": (4, 5, 13)}


def _random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _data(dtype: str, shape: tuple[int, ...], channels: int, seed: int = 1) -> Array:
    rng = _random(seed)
    full = (*shape, channels) if channels > 1 else shape
    if dtype.startswith("float"):
        return (rng.standard_normal(full) * 8).astype(dtype)
    limits = np.iinfo(np.dtype(dtype))
    return rng.integers(limits.min, limits.max, full, np.dtype(dtype), endpoint=True)


def _coordinates(geometry: str, *, normalized: bool, whole: bool = False, seed: int = 2) -> Array:
    """Coordinates in and around the texture, away from the edges between elements; the layer, then x, y and z."""
    rng = _random(seed)
    words = np.zeros((COUNT, 4), np.int32 if whole else np.float32)
    words[:, 0] = rng.integers(0, 7, COUNT)
    axes = _FACES[geometry]
    if geometry.endswith("cube"):
        words[:, 1:] = _directions(rng)
        return words
    sizes = _SHAPES[geometry][::-1]
    for axis in range(axes):
        size = sizes[axis]
        texels = rng.integers(-size, 2 * size, COUNT)
        if whole:
            words[:, 1 + axis] = texels
            continue
        place = texels + (rng.integers(0, 16, COUNT) + 0.5) / 16
        words[:, 1 + axis] = (place / size if normalized else place).astype(np.float32)
    return words


def _directions(rng: np.random.Generator) -> Array:
    """Directions from the middle of a cube of 8 x 8 elements a face, to places away from their edges."""
    places = rng.integers(0, 8, (COUNT, 3)) + (rng.integers(0, 16, (COUNT, 3)) + 0.5) / 16
    directions = places / 4 - 1
    directions[np.arange(COUNT), rng.integers(0, 3, COUNT)] = rng.choice([-1.0, 1.0], COUNT)
    return np.asarray(directions * 2.0 ** rng.integers(-3, 4, (COUNT, 1)))


def _formats() -> list[Case]:
    cases = []
    words = _coordinates("2d", normalized=False)
    for dtype in _DTYPES:
        for channels in (1, 2, 4):
            data = _data(dtype, (5, 13), channels)
            to = "f32" if dtype.startswith("float") else "s32" if dtype.startswith("int") else "u32"
            cases.append(Case(f"format {dtype} x {channels}", "2d", data, words, to, channels))
            if dtype in ("uint8", "int8", "uint16", "int16"):
                for filter in ("point", "linear"):
                    how = {"read": "normalized_float", "filter": filter}
                    name = f"normalized {dtype} x {channels} {filter}"
                    cases.append(Case(name, "2d", data, words, "f32", channels, options=how))
    return cases


def _addressing() -> list[Case]:
    cases = []
    for geometry, shape in _SHAPES.items():
        data = _data("float32", shape, 1)
        for filter in ("point", "linear"):
            for normalized in (False, True):
                modes = ("clamp", "border", "wrap", "mirror") if normalized else ("clamp", "border")
                for mode in modes:
                    how = {"filter": filter, "normalized": normalized, "address": mode, "border": 2.5}
                    words = _coordinates(geometry, normalized=normalized)
                    name = f"{geometry} {filter} {mode}{' normalized' if normalized else ''}"
                    cases.append(Case(name, geometry, data, words, options=how))
    mixed = {"address": ("wrap", "mirror", "border"), "normalized": True, "filter": "linear", "border": (1.0, 2.0)}
    words = _coordinates("3d", normalized=True)
    cases.append(Case("3d mixed", "3d", _data("float16", _SHAPES["3d"], 2), words, "f32", 2, options=mixed))
    return cases


def _others() -> list[Case]:
    cases = []
    for geometry, shape in _SHAPES.items():
        words = _coordinates(geometry, normalized=False, whole=True)
        cases.append(Case(f"{geometry} whole", geometry, _data("int32", shape, 1), words, "s32"))
    bordered, words = {"address": "border", "border": 2.5}, _coordinates("2d", normalized=False, whole=True)
    cases.append(Case("2d whole border", "2d", _data("float32", (5, 13), 1), words, options=bordered))
    line, words = _data("float32", (13,), 4), _coordinates("1d", normalized=False, whole=True)
    cases.append(Case("linear memory", "1d", line, words, "f32", 4, in_place=True))
    plane, flat = _data("float32", (5, 16), 1), _coordinates("2d", normalized=False)
    for filter in ("point", "linear"):
        how = {"filter": filter}
        cases.append(Case(f"pitched memory {filter}", "2d", plane, flat, in_place=True, options=how))
    for component in "rgba":
        name, data = f"tld4.{component}", _data("float32", (5, 13), 4)
        cases.append(Case(name, "2d", data, flat, "f32", 4, mode=f"tld4.{component}"))
    cases.append(Case("tld4.r uint8", "2d", _data("uint8", (5, 13), 1), flat, "u32", mode="tld4.r"))
    image = _data("float32", (5, 13), 1)
    cases.append(Case("level", "2d", image, flat, mode="tex.level"))
    cases.append(Case("grad", "2d", image, flat, mode="tex.grad"))
    cases.append(Case("offset", "2d", image, flat, offsets=(3, -2)))
    cases.append(Case("offset whole", "2d", image, _coordinates("2d", normalized=False, whole=True), offsets=(-1, 2)))
    for filter in ("point", "linear"):
        options = {"read": "normalized_float", "srgb": True, "filter": filter}
        cases.append(Case(f"srgb {filter}", "2d", _data("uint8", (5, 13), 4), flat, "f32", 4, options=options))
    return cases


def _cubes() -> list[Case]:
    cases = []
    for geometry, faces in (("cube", 6), ("acube", 18)):
        data = _data("float32", (faces, 8, 8), 1)
        for filter in ("point", "linear"):
            how = {"normalized": True, "filter": filter}
            words = _coordinates(geometry, normalized=True)
            cases.append(Case(f"{geometry} {filter}", geometry, data, words, options=how))
    return cases


def _fine() -> list[Case]:
    """Weights: a step of one, sampled 256 times and between; in 2D and 3D, of each neighbour. All codes of sRGB."""
    rows = np.zeros((COUNT, 4), np.float32)
    rows[:, 1] = 0.5 + np.arange(COUNT) / 256 + np.tile([0, 0.25, 0.5, 0.75], COUNT // 4) / 256
    step = np.array([0, 1, 1, 1], np.float32)
    cases = [Case("weights", "1d", step, rows, options={"filter": "linear"})]
    for geometry, shape in (("2d", (2, 2)), ("3d", (2, 2, 2))):
        places = np.zeros((COUNT, 4), np.float32)
        places[:, 1 : 1 + len(shape)] = 0.5 + _random(3).integers(0, 257, (COUNT, len(shape))) / 256
        for corner in np.ndindex(shape):
            unit = np.zeros(shape, np.float32)
            unit[corner] = 1
            name = f"weights {geometry} {''.join(map(str, corner))}"
            cases.append(Case(name, geometry, unit, places, options={"filter": "linear"}))
    codes = np.zeros((COUNT, 4), np.float32)
    codes[:, 1], codes[:, 2] = np.arange(COUNT) % 16 + 0.5, np.arange(COUNT) // 16 + 0.5
    how = {"read": "normalized_float", "srgb": True}
    cases.append(Case("srgb codes", "2d", np.arange(COUNT, dtype=np.uint8).reshape(16, 16), codes, options=how))
    return cases


CASES = (*_formats(), *_addressing(), *_others(), *_cubes(), *_fine())
