"""One process of ``benchmarks/life.py``: ``life_child.py WHO WHAT DIRECTORY COUNT`` prints its times as JSON."""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

ROUNDS = 10
clock = time.perf_counter


class Contender(Protocol):
    """What each library does in its own words: load images, compile templates, launch, wait."""

    def load(self, image: bytes, path: str) -> Any:
        """Load an image."""

    def find(self, module: Any, name: str) -> Any:
        """Find a kernel of a loaded image."""

    def call(self, kernel: Any) -> None:
        """Launch a kernel of three arrays and an int by one block of 32."""

    def template(self, source: str, name: str) -> Any:
        """Compile a template, out of the library's disk cache if it is there, and find its kernel."""

    def wait(self) -> None:
        """Wait for the GPU."""


class Cujit:
    """cujit of this tree."""

    def __init__(self) -> None:
        import cujit

        self.cujit, self.device = cujit, cujit.gpu(0)
        self.x, self.y, self.z = (self.device.array(np.ones(32, np.float32)) for _ in range(3))
        self.n = np.int32(32)
        self.wait = self.device.synchronize

    def load(self, image: bytes, path: str) -> Any:
        """Load an image."""
        del path
        return self.cujit.load(image, self.device)

    def find(self, module: Any, name: str) -> Any:
        """Find a kernel."""
        return module[name]

    def call(self, kernel: Any) -> None:
        """Launch."""
        kernel[1, 32](self.x, self.y, self.z, self.n)

    def template(self, source: str, name: str) -> Any:
        """Compile or find a template."""
        return self.cujit.jit(source, names=[name], device=self.device)[name]


class Cupy:
    """CuPy's RawModule."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.x, self.y, self.z = (cupy.ones(32, cupy.float32) for _ in range(3))
        self.n = np.int32(32)
        self.wait = cupy.cuda.Device().synchronize
        self.wait()

    def load(self, image: bytes, path: str) -> Any:
        """Load an image: of a file, as it takes no bytes."""
        del image
        return self.cupy.RawModule(path=path)

    def find(self, module: Any, name: str) -> Any:
        """Find a kernel."""
        return module.get_function(name)

    def call(self, kernel: Any) -> None:
        """Launch."""
        kernel((1,), (32,), (self.x, self.y, self.z, self.n))

    def template(self, source: str, name: str) -> Any:
        """Compile or find a template."""
        return self.cupy.RawModule(code=source, name_expressions=[name]).get_function(name)


class Core:
    """cuda.core; its program cache takes no templates."""

    def __init__(self) -> None:
        from cuda.core import Device, LaunchConfig, ObjectCode, launch

        device = Device()
        device.set_current()
        self.stream: Any = device.create_stream()
        self.x, self.y, self.z = (device.allocate(128, stream=self.stream) for _ in range(3))
        self.configuration, self.n = LaunchConfig(grid=1, block=32), np.int32(32)
        self.code, self.launch, self.wait = ObjectCode, launch, self.stream.sync

    def load(self, image: bytes, path: str) -> Any:
        """Load an image."""
        del path
        return self.code.from_cubin(image)

    def find(self, module: Any, name: str) -> Any:
        """Find a kernel."""
        return module.get_kernel(name)

    def call(self, kernel: Any) -> None:
        """Launch."""
        self.launch(self.stream, self.configuration, kernel, self.x, self.y, self.z, self.n)

    def template(self, source: str, name: str) -> Any:
        """Refuse."""
        raise NotImplementedError


def drive(who: Contender, tag: str, loads: Sequence[Callable[[], Any]]) -> dict[str, float]:
    """Find every kernel and launch each ``ROUNDS`` times in turn: microseconds each, and all of it in milliseconds."""
    load, kernels, rounds = [], [], []
    for find in loads:
        start = clock()
        kernels.append(find())
        load.append(clock() - start)
    for _ in range(ROUNDS):
        row = []
        for kernel in kernels:
            start = clock()
            who.call(kernel)
            row.append(clock() - start)
        who.wait()
        rounds.append(row)
    each = 1e6 / len(kernels)
    return {
        f"{tag} load": sum(load) * each,
        f"{tag} load median": statistics.median(load) * 1e6,
        f"{tag} first": sum(rounds[0]) * each,
        f"{tag} first median": statistics.median(rounds[0]) * 1e6,
        f"{tag} second": sum(rounds[1]) * each,
        f"{tag} later": sum(map(sum, rounds[2:])) * each / (ROUNDS - 2),
        f"{tag} all ms": (sum(load) + sum(map(sum, rounds))) * 1e3,
    }


def library(who: Contender, directory: Path, count: int) -> dict[str, float]:
    """Load ``count`` images of a kernel each, then one of all; then launch one kernel 300 times."""

    def of_own(i: int) -> Callable[[], Any]:
        path, name = str(directory / f"{i}.cubin"), f"k{i}"
        image = Path(path).read_bytes()
        return lambda: who.find(who.load(image, path), name)

    found = drive(who, "modules", [of_own(i) for i in range(count)])
    one = who.load((directory / "one.cubin").read_bytes(), str(directory / "one.cubin"))

    def of_one(i: int) -> Callable[[], Any]:
        name = f"k{i}"
        return lambda: who.find(one, name)

    return found | drive(who, "one", [of_one(i) for i in range(count)])


def alternating(who: Contender, directory: Path, count: int) -> dict[str, float]:
    """Load images in turn by cujit and by the driver's two calls alone.

    In one process, both have the same memory, caches, and clock of the processor.
    """
    driver, kept = ctypes.CDLL("libcuda.so.1"), list[Any]()
    times: dict[str, list[float]] = {"cujit": [], "driver": []}
    load, find = driver.cuModuleLoadData, driver.cuModuleGetFunction
    load.argtypes, find.argtypes = (
        (ctypes.c_void_p, ctypes.c_char_p),
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
    )
    for i in range(count):
        image, name = (directory / f"{i}.cubin").read_bytes(), f"k{i}"
        module, function, encoded = ctypes.c_void_p(), ctypes.c_void_p(), name.encode()
        places = ctypes.byref(module), ctypes.byref(function)
        if i % 2:
            start = clock()
            status = load(places[0], image) or find(places[1], module, encoded)
            times["driver"].append(clock() - start)
            assert not status, f"the driver answers {status}"
            kept.append((module, function))
        else:
            start = clock()
            kernel = who.find(who.load(image, ""), name)
            times["cujit"].append(clock() - start)
            kept.append(kernel)
    return {f"{name} load, alternating": statistics.median(row) * 1e6 for name, row in times.items()}


def early(who: Contender, directory: Path, count: int) -> dict[str, float]:
    """Launch one kernel, the first of the process: the first time, and medians of early and late ones."""
    del count
    kernel, times = who.find(who.load((directory / "0.cubin").read_bytes(), str(directory / "0.cubin")), "k0"), []
    for _ in range(1300):
        start = clock()
        who.call(kernel)
        times.append(clock() - start)
        if len(times) % 100 == 0:
            who.wait()
    rows = {
        "first of the process": times[:1],
        "launches 2 to 10": times[1:10],
        "launches 2 to 300": times[1:300],
        "launches 301 to 1300": times[300:],
    }
    return {name: statistics.median(row) * 1e6 for name, row in rows.items()}


def template(i: int, head: str = "") -> tuple[str, str]:
    """Return the source of template ``i``, and the name of its instance."""
    source = f"{head}template <typename T> __global__ void k{i}(const T* a, const T* b, T* c, int n) {{"
    source += f" int t = blockIdx.x * blockDim.x + threadIdx.x; if (t < n) c[t] = a[t] * T({i}.5f) + b[t]; }}"
    return source, f"k{i}<float>"


def each(who: Contender, count: int, find: Callable[[int], Any]) -> float:
    """Request, load and launch ``count`` kernels, which a library keeps, and return the microseconds for each."""
    kept, start = [], clock()
    for i in range(count):
        kept.append(find(i))
        who.call(kept[-1])
    who.wait()
    return (clock() - start) / count * 1e6


def templates(who: Contender, directory: Path, count: int) -> dict[str, float]:
    """Request, load and launch ``count`` templates, out of the disk cache if they are there."""
    del directory
    heads = {"templates": "", "templates with a header": "#include <cuda_fp16.h>\n"}
    return {
        f"{tag}, each": each(who, count, lambda i, head=head: who.template(*template(i, head)))  # type: ignore[misc]
        for tag, head in heads.items()
    }


def shipped(who: Any, directory: Path, count: int) -> dict[str, float]:
    """The same templates out of a pack, and out of the cache by the names of a registry; the first time makes both."""
    cujit, device = who.cujit, who.device
    own = Path(os.environ["CUJIT_CACHE_DIR"])
    pack = own.with_name(f"{own.name}.pack")

    def from_(cache: Any) -> Callable[[int], Any]:
        def find(i: int) -> Any:
            source, name = template(i)
            return cujit.jit(source, names=[name], device=device, cache=cache)[name]

        return find

    def registered(i: int) -> Any:
        source, name = template(i)
        built = cujit.ModuleSpec(source, names=[name])
        return cujit.module(f"life {i}", lambda: built, device=device, version="1")[name]

    if not pack.exists():
        made = directory / f"{own.name} to pack"
        each(who, count, from_(cujit.Cache(made)))
        command = [sys.executable, "-m", "cujit", "pack", "merge", str(made), "-o", str(pack)]
        subprocess.run(command, check=True, capture_output=True)
    found = {"templates of a pack, each": each(who, count, from_(cujit.Cache(own, read_only=[pack])))}
    return found | {"templates of a registry, each": each(who, count, registered)}


def memory(who: Any) -> dict[str, float]:
    """Make and read arrays of 4 KB and 256 MB: microseconds and milliseconds."""
    small, large = np.ones(1024, np.float32), np.ones(64 << 20, np.float32)
    if isinstance(who, Cujit):
        make, empty, zeros = who.device.array, who.device.empty, who.device.zeros
        read: Callable[[Any], Any] = lambda x: x.numpy()  # noqa: E731
        write: Callable[[Any, Any], Any] = lambda x, host: x.copy_from(host)  # noqa: E731
        read_into: Callable[[Any, Any], Any] = lambda x, host: x.copy_to(host)  # noqa: E731
    else:
        make, empty, zeros = who.cupy.asarray, who.cupy.empty, who.cupy.zeros
        read = lambda x: x.get()  # noqa: E731
        write = lambda x, host: x.set(host)  # noqa: E731
        read_into = lambda x, host: x.get(out=host)  # noqa: E731
    x, found = make(small), {}

    def timed(name: str, call: Callable[[], Any], times: int, turns: int, scale: float) -> None:
        call()
        took = []
        for _ in range(turns):
            start = clock()
            for _ in range(times):
                call()
            took.append((clock() - start) / times * scale)
        found[name] = statistics.median(took)

    timed("empty 4 KB", lambda: empty(1024, np.float32), 200, 9, 1e6)
    timed("zeros 4 KB", lambda: zeros(1024, np.float32), 200, 9, 1e6)
    timed("array 4 KB", lambda: make(small), 200, 9, 1e6)
    timed("numpy 4 KB", lambda: read(x), 200, 9, 1e6)
    timed("array 256 MB, ms", lambda: make(large), 1, 5, 1e3)
    whole = make(large)
    timed("numpy 256 MB, ms", lambda: read(whole), 1, 5, 1e3)
    timed("write 256 MB, ms", lambda: write(whole, large), 1, 5, 1e3)
    timed("read 256 MB into touched memory, ms", lambda: read_into(whole, large), 1, 5, 1e3)
    if isinstance(who, Cujit):
        pinned = who.device.pinned(large.shape, large.dtype)
        timed("write 256 MB, pinned, ms", lambda: write(whole, pinned), 1, 5, 1e3)
        timed("read 256 MB, pinned, ms", lambda: read_into(whole, pinned), 1, 5, 1e3)
    return found


def main() -> None:
    """Run one measurement in this process."""
    who, what, directory, count = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    begin = clock()
    contender: Any = {"cujit": Cujit, "cupy": Cupy, "cuda.core": Core}[who]()
    found = {"start ms": (clock() - begin) * 1e3}
    if what == "memory":
        found |= memory(contender)
    else:
        ways = {each.__name__: each for each in (library, early, templates, shipped, alternating)}
        found |= ways[what](contender, directory, count)
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
