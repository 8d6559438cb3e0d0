"""Scenes: small kernels for what is not elementwise (memory, atomics, warps, matrices), and what a GPU made of them.

Every file ``scenes_<family>.py`` beside this one has a tuple ``SCENES``. A scene must be deterministic: nothing in it
may depend on the order of blocks, warps or lanes, or on the order of floating-point additions.
"""

from __future__ import annotations

import functools
import importlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape

__all__ = ["GOLDENS", "Scene", "difference", "entry", "every_scene", "golden_of", "run_scene"]

GOLDENS = Path(__file__).parents[1] / "goldens" / "scenes.npz"
"""What a GPU left in the arrays of every scene, recorded by ``record_scenes.py``."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Scene:
    """One launch of the entry ``k`` of a PTX module, with pointers to copies of ``arrays`` in order.

    The result is all arrays after the launch. ``grid`` and ``block`` are an int or up to three; ``shared_bytes`` is
    dynamic shared memory. ``within`` is how far floats may be off, relative to the larger of 1 and the value; 0
    demands equal bits, those of NaNs as well. ``target`` is the architecture that the text is for: a GPU that
    cannot run it leaves the scene out.
    """

    name: str
    ptx: str
    arrays: tuple[Array, ...]
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    shared_bytes: int = 0
    within: float = 0.0
    target: str = "sm_90"

    def __repr__(self) -> str:
        return f"Scene({self.name})"


def entry(
    body: str,
    pointers: int,
    *,
    target: str = "sm_90",
    version: str = "8.6",
    outside: str = "",
    directives: str = "",
) -> str:
    """Write a module with the entry ``k``: its ``pointers`` are loaded into 64-bit registers ``p0``, ``p1`` and so on.

    ``outside`` is what stands before the entry, such as variables; ``directives`` what stands before its body, such
    as ``.reqnctapercluster 2, 1, 1``.
    """
    parameters = ", ".join(f".param .u64 a{k}" for k in range(pointers))
    loads = "\n".join(f".reg .b64 p{k};\nld.param.u64 p{k}, [a{k}];" for k in range(pointers))
    head = f".version {version}\n.target {target}\n.address_size 64\n{outside}\n"
    return f"{head}.visible .entry k({parameters}) {directives}\n{{\n{loads}\n{body}\nret;\n}}\n"


@functools.cache
def every_scene() -> Mapping[str, Scene]:
    """Collect the scenes of all families, by name."""
    found: dict[str, Scene] = {}
    for file in sorted(Path(__file__).parent.glob("scenes_*.py")):
        scenes: tuple[Scene, ...] = importlib.import_module(f"instructions.{file.stem}").SCENES
        for scene in scenes:
            if scene.name in found:
                raise ValueError(f"two scenes are called {scene.name}; the second is in {file.name}")
            found[scene.name] = scene
    return found


def run_scene(device: Device, scene: Scene) -> list[Array]:
    """Run a scene on a device; return its arrays afterwards."""
    kernel = device.load(Artifact.of(scene.ptx)).kernels["k"]
    arrays = [device.array(a) for a in scene.arrays]
    parameters = struct.pack(f"<{len(arrays)}Q", *(a.address for a in arrays))
    shape = LaunchShape(Dim3.of(scene.grid, "grid"), Dim3.of(scene.block, "block"), scene.shared_bytes)
    kernel.launch(shape, parameters)
    device.synchronize()
    return [np.asarray(a.numpy()) for a in arrays]


def golden_of(scene: Scene, goldens: Mapping[str, Array]) -> list[Array] | None:
    """Find what the GPU left in a scene's arrays; None where that is not recorded yet."""
    names = [f"{scene.name}:{k}" for k in range(len(scene.arrays))]
    return [goldens[name] for name in names] if all(name in goldens for name in names) else None


def difference(scene: Scene, got: list[Array], expected: list[Array]) -> str:
    """Tell where the arrays of a scene differ from the expected ones, or nothing."""
    for k, (a, b) in enumerate(zip(got, expected, strict=True)):
        wrong = _wrong(a, b.astype(a.dtype, copy=False), scene.within)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            what = f"array {k} at {list(at)} is {_shown(a[at])} and not {_shown(b[at])}"
            return f"{scene.name}: {what}; {int(wrong.sum())} of {wrong.size} differ"
    return ""


def _wrong(got: Array, expected: Array, within: float) -> Array:
    if got.dtype.kind != "f":
        return np.asarray(got != expected)
    if not within:
        words = np.dtype(f"u{got.dtype.itemsize}")
        return np.asarray(got.view(words) != expected.view(words))
    both_nan = np.isnan(got) & np.isnan(expected)
    with np.errstate(all="ignore"):
        far = np.abs(got.astype(np.float64) - expected) > within * np.maximum(1, np.abs(expected.astype(np.float64)))
    return np.asarray((far | (np.isnan(got) != np.isnan(expected))) & (got != expected) & ~both_nan)


def _shown(value: Any) -> str:
    return hex(int(value)) if isinstance(value, np.integer) else repr(value.item())
