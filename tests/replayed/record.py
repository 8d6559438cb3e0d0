"""Keep launches of tests and benchmarks in ``launches.zst``: ``python tests/replayed/record.py``, a quarter of an hour.

Every launch on the CPU device is kept once for each text, kernel and block, with the memory that it reaches: what
addresses in its parameters point to, and what addresses in that memory do. Left out are launches that reach more than
``_MOST_BYTES``, that take longer than ``_MOST_S`` to compile, that do not leave the same twice, and that access an
address of the process that made them: in another one anything may lie there.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from compile_tail import SHAPES
from cpu_cases import SOURCES

import cujit
from cujit.devices.cpu.backend import CpuBackend
from cujit.devices.cpu.module import CpuKernel, CpuModule
from cujit.devices.cpu.run.launch import live_blocks
from cujit.devices.cpu.run.textures import CpuTextures, Descriptor
from cujit.devices.options import PLAIN, LaunchOptions
from cujit.devices.shapes import LaunchShape
from replay import compare, replay
from replayed.cases import RECORDED, TAIL, write_cases
from replaying.case import Case, Pointer

ROOT = Path(__file__).parents[2]

_MOST_BYTES = 96 << 10
_MOST_S = 5.0
_MOST_OF_A_TEST = 12

_TESTS = (
    "tests/real", "tests/kernels", "tests/devices/cpu", "tests/devices/test_textures.py",
    "tests/property/test_barriers.py", "tests/property/test_divergence.py", "tests/property/test_regions.py",
    "tests/property/test_windows.py", "--ignore=tests/devices/cpu/test_ending.py",
)  # fmt: skip

_STRAY = re.compile(r"an access to address 0x[0-9a-f]{4}")
"""What an error says of an access to no memory, but for one near address 0, where there never is any."""

_BENCHMARKS: dict[str, tuple[tuple[tuple[int, ...], ...], tuple[tuple[Any, ...], ...]]] = {
    "saxpy": (((4000,), (4000,)), (("saxpy", (16,), (256,), 0.5, 4000),)),
    "matmul": (((64, 64), (64, 64), (64, 64)), (("matmul", (4, 4), (16, 16), 64),)),
    "tree": (((4000,), (16,)), (("tree", (16,), (256,), 4000),)),
    "stride": (((4000,), (4,)), (("stride", (4,), (256,), 4000),)),
    "mandelbrot": (((64, 64),), (("mandelbrot", (2, 8), (32, 8), 64, 64, 40),)),
    "nbody": (((256, 4), (256, 4)), (("nbody", (1,), (256,), 256, 0.01),)),
    "histogram": (((4000,), (256,)), (("clear", (1,), (256,), 4000), ("histogram", (4,), (256,), 4000))),
    "bitonic": (
        ((4096,), (4096,)),
        (
            ("sort_tiles", (4,), (512,), 1024, 512),
            ("merge_far", (4,), (512,), 2048, 1024),
            ("merge_tiles", (4,), (512,), 2048, 512),
        ),
    ),
    "transpose": (((128, 128), (128, 128)), (("transpose", (4, 4), (32, 8), 128),)),
}
"""By source, the shapes of its arrays of floats or words, and its launches: kernel, grid, block and scalars."""


class Recorder:
    """Keeps the launches of this process; a plugin of pytest, for their names."""

    def __init__(self) -> None:
        self.cases: dict[tuple[object, ...], Case] = {}
        self.about = ""
        self._of_test: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self._checks: WeakKeyDictionary[object, str] = WeakKeyDictionary()
        self._descriptors: dict[int, int] = {}

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Remember which test runs."""
        self.about = f"{item.path.stem.removeprefix('test_')} {item.name.partition('[')[0].removeprefix('test_')}"

    def install(self) -> None:
        """See every launch from now on."""
        load, launch = CpuBackend.load, CpuKernel.launch
        texture, surface = CpuTextures.texture, CpuTextures.surface

        def loaded(device: CpuBackend, artifact: cujit.Artifact, options: object = None) -> CpuModule:
            del options
            module = load(device, artifact)
            self._checks[module] = ",".join(name for name, made in vars(device.checks).items() if made)
            return module

        def launched(
            kernel: CpuKernel,
            shape: LaunchShape,
            parameters: bytes | bytearray,
            stream: int = 0,
            options: LaunchOptions = PLAIN,
        ) -> None:
            self._keep(kernel, shape, bytes(parameters), options)
            launch(kernel, shape, parameters, stream, options)

        def handled(make: Any) -> Any:
            def made(*arguments: Any) -> Any:
                handle = make(*arguments)
                self._descriptors[handle.number] = ctypes.sizeof(Descriptor)
                return handle

            return made

        for owner, name, value in (
            (CpuBackend, "load", loaded), (CpuKernel, "launch", launched),
            (CpuTextures, "texture", handled(texture)), (CpuTextures, "surface", handled(surface)),
        ):  # fmt: skip
            setattr(owner, name, value)

    def _keep(self, kernel: CpuKernel, shape: LaunchShape, parameters: bytes, options: LaunchOptions) -> None:
        text, check = kernel._module.preparation.text, self._checks.get(kernel._module, "")
        key = (text, kernel.name, shape.block, check)
        if key in self.cases or self._of_test[self.about] >= _MOST_OF_A_TEST:
            return
        regions = {**dict(live_blocks()), **self._descriptors}
        arrays, pointers = _reached(parameters, regions)
        if sum(map(len, arrays)) > _MOST_BYTES or kernel._module.closed:
            return
        self._of_test[self.about] += 1
        self._names[self.about] += 1
        self.cases[key] = Case(
            f"{self.about} {self._names[self.about]}", text, kernel.name, tuple(shape.grid), tuple(shape.block),
            parameters, arrays, pointers, shape.shared_bytes,
            tuple(options.cluster) if options.cluster else None, options.cooperative, check,
        )  # fmt: skip


def _reached(parameters: bytes, regions: dict[int, int]) -> tuple[tuple[bytes, ...], tuple[Pointer, ...]]:
    """Copy the memory that parameters reach, and say where addresses in both point to."""
    begins = np.array(sorted(regions), np.uint64)
    found: dict[int, int] = {}
    arrays: list[bytes] = []
    pointers: list[Pointer] = []

    def look(into: int, data: bytes) -> None:
        words = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
        owners = np.searchsorted(begins, words, side="right") - 1
        for place in np.flatnonzero(owners >= 0):
            begin = int(begins[owners[place]])
            add = int(words[place]) - begin
            if add > regions[begin]:
                continue
            if begin not in found:
                found[begin] = len(arrays)
                arrays.append(ctypes.string_at(begin, regions[begin]))
                look(found[begin], arrays[found[begin]])
            pointers.append(Pointer(into, 8 * int(place), found[begin], add))

    if begins.size:
        look(-1, parameters)
    return tuple(arrays), tuple(sorted(pointers))


def run_benchmarks(recorder: Recorder) -> None:
    """Launch the kernels of the benchmarks, with less data."""
    device = cujit.cpu()
    for name, (shapes, launches) in _BENCHMARKS.items():
        recorder.about = f"benchmark {name}"
        module = cujit.load(
            cujit.compile(cujit.Source.cuda(SOURCES / f"{name}.cu"), to="ptx", arch="compute_90"), device
        )
        words = name in ("histogram", "bitonic", "mandelbrot")
        rng = np.random.default_rng(7)
        data = [rng.integers(0, 1 << 31, s, np.int32) if words else rng.random(s, np.float32) for s in shapes]
        arrays = [device.array(a) for a in data]
        for kernel, grid, block, *scalars in launches:
            target = module[kernel]
            target[grid, block](*(cujit.Pointer(a.address) for a in arrays), *scalars)


def tail() -> list[Case]:
    """Give the texts that compile for minutes."""
    parameters, pointers = bytes(8), (Pointer(-1, 0, 0),)
    return [
        Case(f"{TAIL} {name}", make(), "k", (1,), (64,), parameters, (bytes(1 << 16),), pointers)
        for name, make in SHAPES.items()
    ]


def main() -> None:
    """Run tests and benchmarks, try each launch twice, and write those that leave the same."""
    recorder = Recorder()
    recorder.install()
    run_benchmarks(recorder)
    pytest.main(["-q", "-m", "not gpu", "-p", "no:xdist", "-p", "no:cacheprovider", *_TESTS], plugins=[recorder])
    cases = list(recorder.cases.values())
    write_cases(RECORDED, cases)
    outcomes = replay(ROOT, ROOT, cases, looks=False, progress=print)
    kept = []
    for case, pair in zip(cases, outcomes, strict=True):
        difference = compare(case, [pair]).results
        ended = re.match("not done|the process ended", pair[0].error) or _STRAY.search(pair[0].error)
        if difference or ended or pair[0].compile_s > _MOST_S:
            print(f"left out {case.name}: {pair[0].compile_s:.1f} s\n{difference}")
        else:
            kept.append(case)
    write_cases(RECORDED, [*kept, *tail()])
    print(f"{len(kept)} launches of {len(cases)}, {RECORDED.stat().st_size} bytes")


if __name__ == "__main__":
    main()
