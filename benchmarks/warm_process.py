"""Whole processes with a warm cache, from ``python`` to the first result on the GPU, against a bare driver floor.

Each contestant is a script of its own that ends by printing what the kernel wrote. The floors load the same cubin from
a file, through ``ctypes`` or ``cuda.bindings.driver``, and have no cache, no key and no check; the last of them reads
the result into a NumPy array, as everybody else does. Without a GPU it measures how long a process needs to have the
image, against one that imports a few modules and reads a file.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from measure import medians

import cujit
from cujit.errors import MissingError

SOURCE = """
extern "C" __global__ void ramp(float a, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * i;
}
"""
N = 1024
EXPECTED = 2.0 * (N - 1)
ROUNDS = 15
_HEAD = f"import os; N = {N}; SOURCE = {SOURCE!r}; ROOT = os.environ['WARM_ROOT']\n"

_BY_BINDINGS = """
from cuda.bindings import driver
def check(result):
    if result[0] != driver.CUresult.CUDA_SUCCESS:
        raise SystemExit(str(result[0]))
    return result[1] if len(result) > 1 else None
image = open(ROOT + "/ramp.cubin", "rb").read()
check(driver.cuInit(0))
check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))))
function = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(image)), b"ramp"))
y = check(driver.cuMemAlloc(4 * N))
arguments = ((2.0, int(y), N), (ctypes.c_float, ctypes.c_void_p, ctypes.c_int))
check(driver.cuLaunchKernel(function, N // 128, 1, 1, 128, 1, 1, 0, 0, arguments, 0))
"""

SCRIPTS: Mapping[str, str] = {
    "ctypes": """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def check(status):
    if status:
        raise SystemExit(status)
image = open(ROOT + "/ramp.cubin", "rb").read()
device, context, module, function, y = ctypes.c_int(), *(ctypes.c_void_p() for _ in range(4))
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuModuleLoadData(ctypes.byref(module), image))
check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"ramp"))
check(cuda.cuMemAlloc_v2(ctypes.byref(y), ctypes.c_size_t(4 * N)))
values = (ctypes.c_float(2), y, ctypes.c_int(N))
each = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in values])
check(cuda.cuLaunchKernel(function, N // 128, 1, 1, 128, 1, 1, 0, None, each, None))
host = (ctypes.c_float * N)()
check(cuda.cuMemcpyDtoH_v2(host, y, ctypes.c_size_t(4 * N)))
print(host[N - 1])
""",
    "cuda.bindings": """
import ctypes
"""
    + _BY_BINDINGS
    + """
host = (ctypes.c_float * N)()
check(driver.cuMemcpyDtoH(ctypes.addressof(host), y, 4 * N))
print(host[N - 1])
""",
    "cuda.bindings and numpy": """
import ctypes
import numpy as np
"""
    + _BY_BINDINGS
    + """
host = np.empty(N, np.float32)
check(driver.cuMemcpyDtoH(host.ctypes.data, y, 4 * N))
print(host[N - 1])
""",
    "cujit": """
import cujit
device = cujit.gpu()
y = device.empty(N, "float32")
cujit.jit(SOURCE, device=device)["ramp"].over(N)(2.0, y, N)
print(y.numpy()[-1])
""",
    "cuda.core": """
import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
from cuda.core.utils import FileStreamProgramCache
device = Device(0)
device.set_current()
stream = device.create_stream()
with FileStreamProgramCache(ROOT + "/core") as cache:
    code = Program(SOURCE, "c++", ProgramOptions(arch="sm_" + device.arch)).compile("cubin", cache=cache)
y = device.allocate(4 * N, stream=stream)
config = LaunchConfig(grid=N // 128, block=128)
launch(stream, config, code.get_kernel("ramp"), np.float32(2), y, np.int32(N))
stream.sync()
host = np.empty(N, np.float32)
driver.cuMemcpyDtoH(host.ctypes.data, int(y.handle), 4 * N)
print(host[-1])
""",
    "CuPy": """
import cupy
y = cupy.empty(N, cupy.float32)
cupy.RawKernel(SOURCE, "ramp")((N // 128,), (128,), (cupy.float32(2), y, cupy.int32(N)))
print(y.get()[-1])
""",
    "torch": """
import torch
y = torch.empty(N, device="cuda")
torch.cuda._compile_kernel(SOURCE, "ramp")((N // 128, 1, 1), (128, 1, 1), (2.0, y, N))
print(y.cpu()[-1].item())
""",
}
"""The contestants."""

STEPS = """
import time
began, said = time.perf_counter(), []
def step(name):
    global began
    said.append(f"{name}={time.perf_counter() - began:.6f}")
    began = time.perf_counter()
import cujit
step("import cujit")
device = cujit.gpu()
step("cujit.gpu()")
y = device.empty(N, "float32")
step("an array")
module = cujit.jit(SOURCE, device=device)
step("cujit.jit")
module["ramp"].over(N)(2.0, y, N)
step("the first launch")
assert y.numpy()[-1] == 2.0 * (N - 1)
step("the result")
print(";".join(said))
"""
"""What the process of cujit does, step by step."""

IMAGE_SCRIPTS: Mapping[str, str] = {
    "python": "print(open(ROOT + '/ramp.cubin', 'rb').read()[:4])",
    "the same base modules": (
        "import enum, hashlib, json, pathlib, re, threading, typing\nprint(open(ROOT + '/ramp.cubin', 'rb').read()[:4])"
    ),
    "cujit": "import cujit\nprint(cujit.compile(SOURCE, arch='sm_90').data[:4])",
}
"""The contestants without a GPU."""

FLOORS = ("ctypes", "cuda.bindings", "cuda.bindings and numpy", "python", "the same base modules")


class Process:
    """One contestant: each call is one process from its start to its end."""

    def __init__(self, script: str, root: Path) -> None:
        self._command = [sys.executable, "-c", _HEAD + script]
        caches = {"CUJIT_CACHE_DIR": "cujit", "CUPY_CACHE_DIR": "cupy", "CUDA_CACHE_PATH": "driver"}
        paths = {name: str(root / directory) for name, directory in caches.items()}
        modules = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            **paths,
            "WARM_ROOT": str(root),
            "PYTHONPATH": os.pathsep.join(modules),
            "PYTHONPYCACHEPREFIX": str(root / "bytecode"),  # as installed packages have it, for every contestant
        }  # fmt: skip
        self._cwd = root  # nothing lies there that Python could import instead

    def __call__(self) -> str:
        """Run it, and give what it printed.

        Raises:
            CalledProcessError: it failed.
        """
        run = subprocess.run(
            self._command, env=self._environment, cwd=self._cwd, capture_output=True, text=True, check=True
        )
        return run.stdout.strip()


def contestants(scripts: Mapping[str, str], root: Path, expected: Callable[[str], bool]) -> dict[str, Process]:
    """Warm the caches of every contestant, and leave out, with a line, who is not here or prints something else."""
    found = {}
    for name, script in scripts.items():
        process = Process(script, root)
        try:
            printed = [process() for _ in range(2)][-1]
        except subprocess.CalledProcessError as e:
            print(f"without {name}: {(e.stderr.strip().splitlines() or ['?'])[-1]}", flush=True)
            continue
        if expected(printed):
            found[name] = process
        else:
            print(f"without {name}: it printed {printed[-80:]!r}", flush=True)
    return found


def run(names: Sequence[str] = ()) -> list[str]:
    """Measure all contestants, or those of some names, and return lines of a table."""
    try:
        device = cujit.gpu()
    except MissingError:
        return _measured(_chosen(IMAGE_SCRIPTS, names), "sm_90", lambda text: text == repr(b"\x7fELF"))
    return _measured(_chosen(SCRIPTS, names), str(device.arch), lambda text: float(text or "nan") == EXPECTED)


def _chosen(scripts: Mapping[str, str], names: Sequence[str]) -> Mapping[str, str]:
    return {name: script for name, script in scripts.items() if not names or name in names}


def steps() -> list[str]:
    """Measure the steps of cujit's process on a GPU, and return lines of a table: medians in milliseconds."""
    with tempfile.TemporaryDirectory() as directory:
        process = Process(STEPS, Path(directory))
        runs = [process() for _ in range(ROUNDS + 2)][2:]
    rows = [[step.partition("=") for step in run.split(";")] for run in runs]
    took = {name: [float(seconds) for row in rows for own, _, seconds in row if own == name] for name, _, _ in rows[0]}
    return [f"{name}: {statistics.median(seconds) * 1e3:.1f} ms" for name, seconds in took.items()]


def _measured(scripts: Mapping[str, str], arch: str, expected: Callable[[str], bool]) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        cujit.compile(SOURCE, arch=arch, cache=False).save(root / "ramp.cubin")
        processes = contestants(scripts, root, expected)
        took = medians(processes, ROUNDS, warm_up=1)
    floors = [name for name in FLOORS if name in took]
    return [
        f"{name}: {seconds * 1e3:.1f} ms" + "".join(f", {seconds / took[floor]:.3f} x {floor}" for floor in floors)
        for name, seconds in took.items()
    ]


if __name__ == "__main__":
    print("\n".join(steps() if sys.argv[1:] == ["--steps"] else run(sys.argv[1:])))
