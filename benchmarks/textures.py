"""What texture fetches cost on the CPU device, of every format, filter, addressing mode and geometry.

``python benchmarks/textures.py`` prints, for each form, the CPU time of a fetch over that of a read of the same element
from plain memory by the same kernel. ``python benchmarks/textures.py WORD ...`` measures forms whose names have all
words. A line ends with ``above`` if a point fetch costs more than 8 reads, or a linear fetch more than 15.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import cujit

SIDE, FETCHES, AIMS = 256, 16, {"point": 8, "linear": 15}
DTYPES = {"u8": "uint8", "u16": "uint16", "half": "float16", "float": "float32"}
GEOMETRIES = {
    "1d": ("tex1D<T>(t, X)", (SIDE * SIDE // 4,)),
    "2d": ("tex2D<T>(t, X, Y)", (SIDE, SIDE)),
    "3d": ("tex3D<T>(t, X, Y, Z)", (4, SIDE // 4, SIDE)),
    "layered 1d": ("tex1DLayered<T>(t, X, i & 3)", (4, SIDE * SIDE // 4)),
    "layered 2d": ("tex2DLayered<T>(t, X, Y, i & 3)", (4, SIDE // 4, SIDE)),
    "cube": ("texCubemap<T>(t, 2 * X - 1, 2 * Y - 1, Z - 0.4f)", (6, 128, 128)),
}
SOURCE = """
#include <cuda_fp16.h>
struct alignas(4) half4 { __half x, y, z, w; };
struct half1 { __half x; };
__device__ float number(__half v) { return __half2float(v); }
__device__ float number(float v) { return v; }
__device__ float number(unsigned char v) { return v; }
__device__ float number(unsigned short v) { return v; }
template <int N, class V> __device__ float sum(V v) {
  float s = number(v.x);
  if constexpr (N > 1) s += number(v.y);
  if constexpr (N > 2) s += number(v.z) + number(v.w);
  return s; }
extern "C" __global__ void fetch(cudaTextureObject_t t, const ELEMENT *p, float *out, float sx, float sy, float sz) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y; float total = 0;
  for (int i = 0; i < FETCHES; i++) {
    float X = (x + i + 0.8f) * sx, Y = (y + 0.7f) * sy, Z = (i % 4 + 0.6f) * sz;
    total += sum<N>(LOOKUP); }
  out[y * SIDE + x] = total; }
"""
PLAIN = "p[(y * SIDE + x + i) & (SIDE * SIDE - 1)]"


class Form(NamedTuple):
    """A kind of texture, and how it is read."""

    geometry: str
    dtype: str
    channels: int
    read: str
    filter: str
    address: str

    @property
    def name(self) -> str:
        """Name the form, as the table does."""
        return f"{self.geometry} {self.dtype} x{self.channels} {self.read} {self.filter} {self.address}"


def forms() -> Iterator[Form]:
    """List all forms that CUDA C++ has; cubes are read by directions, so that they are never left."""
    products = itertools.product(
        GEOMETRIES,
        DTYPES,
        (1, 2, 4),
        ("element", "normalized"),
        ("point", "linear"),
        ("clamp", "border", "wrap", "mirror"),
    )
    for form in itertools.starmap(Form, products):
        is_integer = form.dtype.startswith("u")
        exists = is_integer if form.read == "normalized" else not (is_integer and form.filter == "linear")
        if exists and (form.geometry != "cube" or form.address == "clamp"):
            yield form


def made(device: cujit.Device, lookup: str, element: str, result: str, channels: int) -> Any:
    """Compile the kernel of a lookup."""
    code = SOURCE.replace("LOOKUP", lookup.replace("T>", f"{result}>")).replace("ELEMENT", element)
    code = code.replace("SIDE", str(SIDE)).replace("FETCHES", str(FETCHES)).replace("<N>", f"<{channels}>")
    return cujit.load(cujit.compile(code, arch="sm_90", to="ptx"), device)["fetch"]


def least_seconds(launches: Sequence[Callable[[], object]]) -> list[float]:
    """Measure the CPU time of launches in turns: the least of twelve of each, after one that compiles."""
    times: list[list[float]] = [[] for _ in launches]
    for _ in range(13):
        for launch, found in zip(launches, times, strict=True):
            begin = time.process_time()
            launch()
            found.append(time.process_time() - begin)
    return [min(found[1:]) for found in times]


class Bench:
    """The device, and kernels that were made."""

    def __init__(self) -> None:
        self.device = cujit.cpu(threads=1)
        self.out = self.device.zeros((SIDE, SIDE), np.float32)
        self.kernels: dict[tuple[Any, ...], Any] = {}
        self.plain: dict[tuple[str, int], Callable[[], object]] = {}

    def cost(self, form: Form) -> float:
        """Return the time of a fetch in reads of plain memory."""
        c_name = {"u8": "uchar", "u16": "ushort"}.get(form.dtype, form.dtype)
        result = f"u{'char' if form.dtype == 'u8' else 'short'}{form.channels}"
        if form.read == "normalized" or not form.dtype.startswith("u"):
            result = f"float{form.channels}"
        lookup, shape = GEOMETRIES[form.geometry]
        key = (form.geometry, result)
        if key not in self.kernels:
            self.kernels[key] = made(self.device, lookup, "float", result, form.channels)
        if (form.dtype, form.channels) not in self.plain:
            self.plain[form.dtype, form.channels] = self.read(f"{c_name}{form.channels}", form)
        texture = self.texture(form, shape)
        normalized = form.address in ("wrap", "mirror") or form.geometry == "cube"
        sizes = shape[-1], shape[-2] if len(shape) > 1 else 1, 4
        scales = [1 / size if normalized else 1.0 for size in sizes]
        scales[1] *= sizes[1] / SIDE
        launch = self.kernels[key].prepare((1, SIDE), SIDE)
        fetch, read = least_seconds(
            [lambda: launch(texture.handle, self.out, self.out, *scales), self.plain[form.dtype, form.channels]]
        )
        texture.close()
        return fetch / read

    def read(self, element: str, form: Form) -> Callable[[], object]:
        """Prepare the kernel that reads plain memory."""
        given = self.device.array(np.ones((SIDE * SIDE, form.channels), DTYPES[form.dtype]))
        launch = made(self.device, PLAIN, element, element, form.channels).prepare((1, SIDE), SIDE)
        return lambda: launch(0, given, self.out, 1.0, 1.0, 1.0)

    def texture(self, form: Form, shape: tuple[int, ...]) -> Any:
        """Make the texture of a form."""
        full = (*shape, form.channels) if form.channels > 1 else shape
        return self.device.texture(
            np.ones(full, DTYPES[form.dtype]),
            channels=form.channels,
            filter=form.filter,
            address=form.address,
            normalized=form.address in ("wrap", "mirror") or form.geometry == "cube",
            layered="layered" in form.geometry,
            cube=form.geometry == "cube",
            read="normalized_float" if form.read == "normalized" else "element",
        )


def main(words: list[str]) -> None:
    """Print the table."""
    bench = Bench()
    for form in forms():
        if all(word in form.name.split() for word in words):
            cost = bench.cost(form)
            print(f"{form.name:52} {cost:6.1f}{'  above' if cost > AIMS[form.filter] else ''}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
