"""What texture lookups give, in NumPy, as the CUDA C++ Programming Guide says it: the other half of the test.

What the guide leaves open is as an H200 does it: how weights are rounded, elements by number in 1D and beyond the
layers, the border of a filtered line.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from devices.textures_table import _FACES, COUNT, Case

__all__ = ["reference"]

Array = npt.NDArray[Any]


def reference(case: Case) -> Array:
    """Compute a case: four words a thread, 0 for channels that there are not."""
    data = case.data if case.channels > 1 else case.data[..., None]
    layered = case.geometry[0] == "a" or case.geometry == "cube"
    axes = 2 if case.geometry.endswith("cube") else _FACES[case.geometry]
    volume = data.reshape(
        len(data) if layered or axes == 3 else 1, *([1] if axes == 1 else []), *data.shape[-1 - min(axes, 2) :]
    )
    layer, places = _places(case, len(volume))
    sizes = volume.shape[2::-1]
    texels = _values(case, volume)
    border = _border(case)
    whole = case.words.dtype.kind == "i"
    if whole:
        border[:] = 0
    gather = case.mode.startswith("tld4")
    linear = not whole and (gather or case.options.get("filter") == "linear")
    modes = case.options.get("address", "clamp")
    modes = (modes,) * 3 if isinstance(modes, str) else modes
    taps = [
        _taps(places[axis], sizes[axis], "none" if whole else modes[axis], case, linear, axis) for axis in range(axes)
    ]
    if case.geometry == "1d":
        taps.append(_row(case, modes[1], linear))
    while len(taps) < 3:
        taps.append((np.zeros(COUNT, int), np.zeros(COUNT, int), np.zeros(COUNT)))
    if layered:
        here = np.where(case.words[:, 0] < len(volume), layer, -1) if whole else layer
        taps[2] = (here, here, np.zeros(COUNT))

    def at(*picks: int) -> Array:
        z, y, x = (taps[axis][picks[axis]] for axis in (2, 1, 0))
        found = texels[z, y, x]
        return np.where(((x < 0) | (y < 0) | (z < 0))[:, None], border, found)

    out = np.zeros((COUNT, 4))
    if gather:
        component = "rgba".index(case.mode[-1])
        for k, (i, j) in enumerate(((0, 1), (1, 1), (1, 0), (0, 0))):
            out[:, k] = at(i, j, 0)[:, component]
        return out
    for n in range(8 if linear else 1):
        picks = (n & 1, n >> 1 & 1, n >> 2)
        weight = _weight([(taps[axis][2] * 256).astype(int) for axis in range(3)], picks)
        out[:, : case.channels] += weight[:, None] / 256 * at(*picks)
    return np.maximum(out, -1) if case.options.get("read") == "normalized_float" else out


def _row(case: Case, mode: str, linear: bool) -> tuple[Array, Array, Array]:
    """A line is a plane of one row, read at y = 0; in an array its elements have no numbers."""
    if case.words.dtype.kind == "i":
        row = np.full(COUNT, 0 if case.in_place else -1)
        return row, row, np.zeros(COUNT)
    return _taps(np.zeros(COUNT), 1, mode, case, linear, 1)


def _weight(seconds: list[Array], picks: tuple[int, int, int]) -> Array:
    """Weight of a neighbour in 1/256, from those of the second ones: x and z, then y, each product rounded."""
    x, y, z = seconds
    both = (x * z + 128) >> 8
    slices = {(0, 0): 256 - x - z + both, (1, 0): x - both, (0, 1): z - both, (1, 1): both}
    own = slices[picks[0], picks[2]]
    lower = (own * y + (128 if picks[0] else 127)) >> 8
    return np.asarray(lower if picks[1] else own - lower)


def _border(case: Case) -> Array:
    color = case.options.get("border", 0.0)
    four = np.full(4, color) if np.isscalar(color) else np.array([*color, 0, 0, 0][:4], np.float64)
    return four[: case.channels]


def _values(case: Case, volume: Array) -> Array:
    if case.options.get("read") != "normalized_float":
        return volume.astype(np.float64)
    unit: Array = volume / np.float64(np.iinfo(volume.dtype).max)  # the smallest one is below -1
    if case.options.get("srgb"):
        color = unit[..., :3]
        unit[..., :3] = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    return unit


def _places(case: Case, layers: int) -> tuple[Array, list[Array]]:
    words = case.words
    index = words[:, 0].astype(int)
    if not case.geometry.endswith("cube"):
        return np.minimum(index, layers - 1), [words[:, 1 + k] for k in range(_FACES[case.geometry])]
    x, y, z = (words[:, 1 + k] for k in range(3))
    size = np.abs(words[:, 1:]).max(axis=1)
    along = np.abs(words[:, 1:]).argmax(axis=1)
    back = words[np.arange(COUNT), 1 + along] < 0
    s = np.choose(2 * along + back, [-z, z, x, x, x, -x])
    t = np.choose(2 * along + back, [-y, -y, z, -z, -y, -y])
    cube = np.minimum(index, layers // 6 - 1) if case.geometry == "acube" else 0
    return 6 * cube + 2 * along + back, [(s / size + 1) / 2, (t / size + 1) / 2]


def _taps(place: Array, size: int, mode: str, case: Case, linear: bool, axis: int) -> tuple[Array, Array, Array]:
    shift = case.offsets[axis] if case.offsets else 0
    if mode == "none":
        i = place + shift
        return _resolved(i, size, "border"), i, np.zeros(COUNT)
    u = place.astype(np.float64)
    if case.options.get("normalized"):
        u = u * size
    if not linear:
        return _resolved(np.floor(u).astype(int) + shift, size, mode), np.zeros(COUNT, int), np.zeros(COUNT)
    fixed = np.floor((u - 0.5) * 256 + 0.5).astype(int)
    i = (fixed >> 8) + shift
    first, second = _resolved(i, size, mode), _resolved(i + 1, size, mode)
    weight = (fixed & 255) / 256
    if mode == "clamp":
        weight = np.where(first == second, 0, weight)
    return first, second, np.zeros(COUNT) if case.mode.startswith("tld4") else weight


def _resolved(i: Array, size: int, mode: str) -> Array:
    if mode == "wrap":
        return np.asarray(i % size)
    if mode == "mirror":
        m = i % (2 * size)
        return np.asarray(np.minimum(m, 2 * size - 1 - m))
    if mode == "border":
        return np.where((i >= 0) & (i < size), i, -1)
    return np.clip(i, 0, size - 1)
