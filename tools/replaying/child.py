"""What ``replay.py`` runs with each of two trees: it loads PTX texts on the CPU device there, and launches them.

It needs little of a tree, so that old ones can be replayed: to load a text, to launch it and, for the emitted IR,
``show_modules``. ``python -m replaying.child CASES PIPE`` reads launches from a pickle, and serves them by number.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pickle
import re
import statistics
import sys
import time
import zlib
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import cujit
from cujit.artifact import Artifact
from cujit.devices import jit
from cujit.errors import CujitError
from replaying.case import Case, Outcome

if TYPE_CHECKING:
    from cujit.devices.arrays.array import DeviceArray  # which old trees have elsewhere

__all__ = ["serve"]

_TREES = ("cujit.devices.shapes", "cujit.devices.options", "cujit.devices.cpu.kernel")
"""Where trees of different days have what a launch needs: the files that define it have moved."""


def _found(name: str) -> Any:
    for module in _TREES:
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), name)
    raise ImportError(f"no file of this tree has {name}")


Dim3, LaunchShape, LaunchOptions = map(_found, ("Dim3", "LaunchShape", "LaunchOptions"))

_LAUNCHES = 15
_LAUNCHES_S = 0.01
"""Launches that are measured behind the first, and wall seconds after which no further one is."""


_KERNEL = re.compile(r"^define [^\n]*@run\(ptr %launch\b", re.MULTILINE)
"""What the module of a kernel has, and no other."""


def _packed(texts: list[str]) -> bytes:
    return zlib.compress("\n".join(texts).encode(), 1) if texts else b""


class _Place:
    """A launch with its arrays on the device."""

    def __init__(self, case: Case, device: cujit.Device) -> None:
        self._case = case
        self.arrays: list[DeviceArray] = [device.zeros(max(len(data), 1), "u1") for data in case.arrays]

    def parameters(self) -> bytes:
        """Fill the arrays as they are before the launch, and give the parameters."""
        memory = [bytearray(data) for data in (*self._case.arrays, self._case.parameters)]
        for into, offset, to, add in self._case.pointers:
            memory[into][offset : offset + 8] = (self.arrays[to].address + add).to_bytes(8, "little")
        for array, data in zip(self.arrays, memory, strict=False):
            if data:
                array.copy_from(np.frombuffer(data, np.uint8))
        return bytes(memory[-1])

    def left(self) -> tuple[bytes, ...]:
        """Give the arrays as they are after the launch; addresses that went in are zeros again."""
        memory = [bytearray(array.numpy().tobytes()) for array in self.arrays]
        for into, offset, to, add in self._case.pointers:
            address = (self.arrays[to].address + add).to_bytes(8, "little")
            if into >= 0 and memory[into][offset : offset + 8] == address:
                memory[into][offset : offset + 8] = bytes(8)
        return tuple(map(bytes, memory))


class _Tree:
    """The CPU device of this tree. ``looks`` has the emitted IR kept."""

    def __init__(self, cases: list[Case], *, looks: bool) -> None:
        self._cases = cases
        self._texts: list[str] = []
        self._devices: dict[str, cujit.Device] = {}
        if looks:
            jit.show_modules(self._texts.append)

    def outcome(self, number: int) -> Outcome:
        """Load and launch one case."""
        case = self._cases[number]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                arrays, compile_s, launch_s = self._run(case)
                error = ""
            except CujitError as e:
                arrays, compile_s, launch_s, error = (), 0.0, 0.0, f"{type(e).__name__}: {e}"
        kernels = [text for text in self._texts if _KERNEL.search(text)]
        library = [text for text in self._texts if not _KERNEL.search(text)]
        self._texts.clear()
        return Outcome(_packed(kernels), _packed(library), arrays, out.getvalue(), error, compile_s, launch_s)

    def _run(self, case: Case) -> tuple[tuple[bytes, ...], float, float]:
        device = self._device(case.check)
        place = _Place(case, device)
        begin = time.process_time()
        kernel = device.load(Artifact.of(case.ptx)).kernels[case.kernel]
        loading = time.process_time() - begin
        first, _, arrays = _launch(case, kernel, place)
        again = list(_again(case, kernel, place))
        cpu_s = statistics.median(cpu_s for cpu_s, _ in again)
        return arrays, loading + max(first - cpu_s, 0.0), min(wall_s for _, wall_s in again)

    def _device(self, check: str) -> cujit.Device:
        """Give a device of one thread, in which blocks run in order."""
        if check not in self._devices:
            self._devices[check] = cujit.cpu(1, check=check or None)
        return self._devices[check]


def _launch(case: Case, kernel: Any, place: _Place) -> tuple[float, float, tuple[bytes, ...]]:
    """Launch once: CPU seconds, wall seconds, and the arrays afterwards."""
    shape = LaunchShape(Dim3(*case.grid), Dim3(*case.block), case.shared_bytes)
    options = LaunchOptions(Dim3(*case.cluster) if case.cluster else None, case.cooperative)
    parameters = place.parameters()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    kernel.launch(shape, parameters, 0, options)
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return cpu_s, wall_s, place.left()


def _again(case: Case, kernel: Any, place: _Place) -> Iterator[tuple[float, float]]:
    """Launch again for a while: CPU and wall seconds of each."""
    spent_s = 0.0
    with contextlib.redirect_stdout(io.StringIO()):
        for _ in range(_LAUNCHES):
            cpu_s, wall_s, _ = _launch(case, kernel, place)
            yield cpu_s, wall_s
            spent_s += wall_s
            if spent_s > _LAUNCHES_S:
                return


def serve(connection: Connection, cases: list[Case]) -> None:
    """Answer numbers of cases with outcomes, until there are no more."""
    connection.send((cujit.__file__, hasattr(jit, "show_modules")))
    tree = _Tree(cases, looks=connection.recv())
    with contextlib.suppress(EOFError):
        while True:
            connection.send(tree.outcome(connection.recv()))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[2])), pickle.loads(Path(sys.argv[1]).read_bytes()))
