"""What a launch costs: ours, a loop in machine code over ``cuLaunchKernel``, and other libraries, in one run.

Without a GPU it measures what reading the arguments costs, against an empty callable that takes them.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import medians

import cujit
from cujit.devices.cuda.backend import CudaBackend
from cujit.devices.cuda.launching import driver_entries
from cujit.devices.device import Device
from cujit.devices.jit import NativeFunction, compile_ir
from cujit.devices.launcher.cpython import address_of, native_type
from cujit.devices.launcher.launch import attach
from cujit.devices.launcher.library import library
from cujit.toolchain.driver import open_driver

CODE = """
extern "C" __global__ void ints(int a, int b, float c, int n) {}
extern "C" __global__ void arrays(float* x, float* y, float a, int n) {}
extern "C" __global__ void constant(const float* x, const float* y, float a, int n) {}
struct Point { float x, y; int id; };
extern "C" __global__ void structures(Point p, Point q, float a, int n) {}
"""
CALLS = 1000
"""Launches of one turn: fewer than fill the driver's queue, so that none waits for the GPU."""

_LOOP = """
define void @loop(ptr %launch, ptr %function, ptr %stream, ptr %each, ptr %extra, i64 %count) {
entry:
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  call i32 %launch(ptr %function, i32 1, i32 1, i32 1, i32 32, i32 1, i32 1, i32 0, ptr %stream, ptr %each, ptr %extra)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %again, label %end
end:
  ret void
}
"""
_EMPTY = f"""
define ptr @empty(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) {{
  call void inttoptr (i64 {address_of("Py_IncRef")} to ptr)(ptr inttoptr (i64 {id(None)} to ptr))
  ret ptr inttoptr (i64 {id(None)} to ptr)
}}
"""
Contestants = dict[str, Callable[[], None]]
POINT = np.dtype([("x", "f4"), ("y", "f4"), ("id", "i4")])


class Point(ctypes.Structure):
    """The same structure, of ctypes."""

    _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_float), ("id", ctypes.c_int))


def repeat(launch: Callable[..., object], *arguments: object) -> Callable[[], None]:
    """Make one turn of a contestant: the same call CALLS times, with up to four arguments."""
    a, b, c, d = arguments

    def turn() -> None:
        for _ in range(CALLS):
            launch(a, b, c, d)

    return turn


# -- contestants ------------------------------------------------------------------------------------------


def c_loops(kernel: cujit.Kernel, values: bytes, offsets: tuple[int, ...]) -> Contestants:
    """Call ``cuLaunchKernel`` from machine code, with one buffer and with the address of each parameter."""
    code = compile_ir(_LOOP, "loop")
    run = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 5, ctypes.c_uint64)(code.address)
    launch = driver_entries(open_driver()).launch_kernel
    function = int(kernel._loaded._kernel)  # type: ignore[attr-defined]
    buffer = ctypes.create_string_buffer(values, len(values))
    size = ctypes.c_size_t(len(values))
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
    each = (ctypes.c_void_p * len(offsets))(*[ctypes.addressof(buffer) + offset for offset in offsets])

    def by_buffer(_keep: object = (code, buffer, size)) -> None:
        run(launch, function, None, None, ctypes.addressof(extra), CALLS)

    def by_each(_keep: object = (code, buffer)) -> None:
        run(launch, function, None, ctypes.addressof(each), None, CALLS)

    return {"C loop": by_each, "C loop, one buffer": by_buffer}


def ours_each(launch: cujit.Launch) -> None:
    """Have a launch give the driver the address of each parameter, instead of one buffer."""
    prepared = launch._prepared
    assert prepared is not None
    prepared.state.each = 1


def warm(launch: Callable[..., object], *arguments: object) -> None:
    """Bind a launch, and let it learn what its arguments are; one of ours has its machine code then."""
    if isinstance(launch, cujit.Launch):
        attach(launch)
    for _ in range(3):
        launch(*arguments)


def ours(device: Device, module: cujit.Module) -> Contestants:
    """Our launches, with the checks that they always have."""
    x, y = device.zeros(16, np.float32), device.zeros(16, np.float32)
    ints, arrays, structures = module["ints"], module["arrays"], module["structures"]
    other = ints.prepare(1, 32, shared_bytes=16)
    point = np.array((1, 2, 3), POINT)[()]
    for launch, arguments in (
        (ints[1, 32], (1, 2, 2.0, 16)),
        (arrays[1, 32], (x, y, 2.0, 16)),
        (arrays[1, 32], (x, y, np.float32(2), np.int32(16))),
        (other, (1, 2, 2.0, 16)),
        (structures[1, 32], (point, point, 2.0, 16)),
    ):
        warm(launch, *arguments)
    ours_each(other)

    def written_out() -> None:
        for _ in range(CALLS):
            arrays[1, 32](x, y, 2.0, 16)

    return {
        "cujit, ints": repeat(ints[1, 32], 1, 2, 2.0, 16),
        "cujit, ints, each parameter": repeat(other, 1, 2, 2.0, 16),
        "cujit, arrays": repeat(arrays[1, 32], x, y, 2.0, 16),
        "cujit, arrays and NumPy scalars": repeat(arrays[1, 32], x, y, np.float32(2), np.int32(16)),
        "cujit, structures of NumPy": repeat(structures[1, 32], point, point, 2.0, 16),
        "cujit, structures of ctypes": by_ctypes(module),
        "cujit, kernel[grid, block](arrays)": written_out,
    }


def by_ctypes(module: cujit.Module) -> Callable[[], None]:
    """Our launch with structures of ctypes, of a kernel that learnt no other."""
    launch, point = cujit.load(module.artifact, module.device)["structures"][1, 32], Point(1, 2, 3)
    warm(launch, point, point, 2.0, 16)
    return repeat(launch, point, point, 2.0, 16)


def torch_tensors(module: cujit.Module) -> Contestants:
    """Our launch with torch's tensors, and torch's own launch of the same source."""
    torch: Any = importlib.import_module("torch")
    x, y = torch.zeros(16, device="cuda"), torch.zeros(16, device="cuda")
    launch = module["arrays"][1, 32]
    warm(launch, x, y, 2.0, 16)
    found: Contestants = {"cujit, torch tensors": repeat(launch, x, y, 2.0, 16)}
    if hasattr(torch.cuda, "_compile_kernel"):
        theirs = torch.cuda._compile_kernel(CODE, "arrays")

        def turn() -> None:
            for _ in range(CALLS):
                theirs((1, 1, 1), (32, 1, 1), (x, y, 2.0, 16))

        found["torch.cuda._compile_kernel"] = turn
    return found


def cupy_arrays(module: cujit.Module) -> Contestants:
    """Our launch with CuPy's arrays, and CuPy's own."""
    cupy: Any = importlib.import_module("cupy")
    x, y = cupy.zeros(16, np.float32), cupy.zeros(16, np.float32)
    launch = module["arrays"][1, 32]
    warm(launch, x, y, 2.0, 16)
    raw = cupy.RawKernel(CODE, "arrays")
    a, n = np.float32(2.0), np.int32(16)

    def turn() -> None:
        for _ in range(CALLS):
            raw((1,), (32,), (x, y, a, n))

    return {"cujit, CuPy arrays": repeat(launch, x, y, 2.0, 16), "CuPy RawKernel": turn}


def cuda_core(module: cujit.Module) -> Contestants:
    """cuda.core, with addresses, which it does not check."""
    core: Any = importlib.import_module("cuda.core")
    core = core if hasattr(core, "launch") else importlib.import_module("cuda.core.experimental")
    x = module.device.zeros(16, np.float32)
    device = core.Device(0)
    device.set_current()
    program = core.Program(CODE, "c++", core.ProgramOptions(arch=f"sm_{device.arch}"))
    kernel = program.compile("cubin", name_expressions=("arrays",)).get_kernel("arrays")
    stream, config = device.default_stream, core.LaunchConfig(grid=1, block=32)
    address, a, n = x.address, np.float32(2.0), np.int32(16)

    def turn(_keep: object = x) -> None:
        for _ in range(CALLS):
            core.launch(stream, config, kernel, address, address, a, n)

    return {"cuda.core": turn}


def numba_cuda(module: cujit.Module) -> Contestants:
    """numba-cuda, with its own arrays, and our launch with them."""
    if not hasattr(np, "row_stack"):  # numba-cuda 0.30 asks for it at import; NumPy 2.4 no longer has it
        np.row_stack = np.vstack
    cuda: Any = importlib.import_module("numba.cuda")

    @cuda.jit  # type: ignore[untyped-decorator]
    def arrays(x: Any, y: Any, a: float, n: int) -> None:
        pass

    x = cuda.to_device(np.zeros(16, np.float32))
    launch = arrays[1, 32]
    warm(launch, x, x, 2.0, 16)
    mine = module["arrays"][1, 32]
    warm(mine, x, x, 2.0, 16)
    return {"cujit, numba arrays": repeat(mine, x, x, 2.0, 16), "numba-cuda": repeat(launch, x, x, 2.0, 16)}


def jax_arrays(module: cujit.Module) -> Contestants:
    """Our launch with JAX's arrays, which a kernel may only read."""
    jax: Any = importlib.import_module("jax")
    x = jax.numpy.zeros(16, dtype="float32")
    launch = module["constant"][1, 32]
    warm(launch, x, x, 2.0, 16)
    return {"cujit, JAX arrays": repeat(launch, x, x, 2.0, 16)}


def triton_kernel(module: cujit.Module) -> Contestants:
    """Triton, with torch's tensors."""
    torch: Any = importlib.import_module("torch")
    triton: Any = importlib.import_module("triton")

    del module

    @triton.jit
    def empty(x, y, a, n):  # type: ignore[no-untyped-def]
        pass

    x = torch.zeros(16, device="cuda")
    warm(empty[(1,)], x, x, 2.0, 16)

    def turn() -> None:
        for _ in range(CALLS):
            empty[(1,)](x, x, 2.0, 16)

    return {"Triton": turn}


def ctypes_calls(kernel: cujit.Kernel) -> Contestants:
    """``cuLaunchKernel`` through ctypes, with a buffer that is ready."""
    buffer, size = ctypes.create_string_buffer(16), ctypes.c_size_t(16)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
    word, number = ctypes.c_void_p, ctypes.c_uint
    call = ctypes.CFUNCTYPE(ctypes.c_int, word, *[number] * 7, word, word, word)(
        driver_entries(open_driver()).launch_kernel
    )
    function = int(kernel._loaded._kernel)  # type: ignore[attr-defined]

    def turn(_keep: object = (buffer, size)) -> None:
        for _ in range(CALLS):
            call(function, 1, 1, 1, 32, 1, 1, 0, None, None, extra)

    return {"ctypes": turn}


# -- tables -----------------------------------------------------------------------------------------------


def gpu_contestants(device: Device) -> tuple[Contestants, list[str]]:
    """Make all contestants that import, and say which do not."""
    module = cujit.jit(CODE, device=device)
    ints = module["ints"]
    values = np.array([1, 2], np.int32).tobytes() + np.float32(2).tobytes() + np.int32(16).tobytes()
    assert isinstance(device.backend, CudaBackend)
    context = device.backend.context
    context.driver.call("cuCtxSetCurrent", context.handle)  # as the C program that it stands for
    found = {**c_loops(ints, values, ints.signature.offsets), **ours(device, module)}
    found.update(ctypes_calls(ints))
    absent: list[str] = []
    for make in (torch_tensors, cupy_arrays, cuda_core, numba_cuda, jax_arrays, triton_kernel):
        found.update(_or_else(make, module, absent))
    return found, absent


def _or_else(make: Callable[[cujit.Module], Contestants], module: cujit.Module, absent: list[str]) -> Contestants:
    """Make contestants, or note why there are none."""
    try:
        found = make(module)
        for turn in found.values():
            turn()
        return found
    except Exception as e:
        absent.append(f"  {make.__name__}: not measured: {type(e).__name__}: {str(e).partition(chr(10))[0][:100]}")
        return {}


def on_gpu(device: Device, rounds: int) -> list[str]:
    """Compare with the C loop."""
    found, absent = gpu_contestants(device)
    times: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(rounds + 3):
        for name, run_turn in found.items():
            device.synchronize()
            start = time.perf_counter()
            run_turn()
            if turn >= 3:
                times[name].append((time.perf_counter() - start) / CALLS)
    took = {name: statistics.median(t) for name, t in times.items()}
    floor = took["C loop"]
    lines = [f"launch of an empty kernel, {device.product}, {rounds} interleaved rounds of {CALLS}"]
    lines += [f"  {name:<36} {t * 1e9:8.0f} ns   {t / floor:6.3f} x the C loop" for name, t in took.items()]
    return lines + absent


def floor_callable() -> tuple[Any, NativeFunction]:
    """Make an object whose call does nothing but return None."""
    code = compile_ir(_EMPTY, "empty")
    native = native_type(_Empty)
    call = native.type()
    native.attach(call, code.address, 0)
    return call, code


class _Empty:
    __slots__ = ()


def reading(device: cujit.Device, rounds: int) -> list[str]:
    """What reading and checking the arguments costs, without a launch after it."""
    module = cujit.jit(CODE, device=device)
    x, y, point = device.zeros(16, np.float32), device.zeros(16, np.float32), np.array((1, 2, 3), POINT)[()]
    empty, keep = floor_callable()
    turns: dict[str, Callable[[], None]] = {"empty callable": repeat(empty, x, y, 2.0, 16)}
    sinks = []
    numpy = (x, y, np.float32(2), np.int32(16))
    for name, what, arguments in (
        ("ints", "ints", (1, 2, 2.0, 16)), ("arrays", "arrays", (x, y, 2.0, 16)), ("arrays", "NumPy scalars", numpy),
        ("structures", "two structures", (point, point, 2.0, 16)),
    ):  # fmt: skip
        launch = module[name].prepare(1, 32, shared_bytes=16)
        warm(launch, *arguments)
        prepared = launch._prepared
        assert prepared is not None
        sinks.append(ctypes.create_string_buffer(64))
        prepared.state.sink = ctypes.addressof(sinks[-1])
        prepared.state.submit = library().address("copy")
        turns[f"four arguments, {what}"] = repeat(launch, *arguments)
    kernel = module["arrays"]

    def index() -> None:
        for _ in range(CALLS):
            kernel[1, 32]

    index()
    turns["kernel[grid, block]"] = index
    turns["a launch on the CPU device"] = repeat(kernel[1, 32], x, y, 2.0, 16)
    took = medians(turns, rounds, warm_up=5)
    del keep
    base = took["empty callable"]
    lines = ["reading arguments, nothing launched"]
    return lines + [
        f"  {n:<36} {t / CALLS * 1e9:8.0f} ns   {(t - base) / CALLS * 1e9:8.0f} ns above" for n, t in took.items()
    ]


def first_launch(device: cujit.Device) -> list[str]:
    """What preparing costs: the first launch of the process, one of a new layout, one of a known layout."""
    body = "".join(f'extern "C" __global__ void k{i}({", ".join(["int*"] * (i + 1))}) {{}}\n' for i in range(8))
    module = cujit.jit(body, device=device)
    x, took = device.zeros(1, np.int32), []
    for i in range(8):
        kernel = module[f"k{i}"]
        kernel.resources  # noqa: B018  (the driver loads lazily; that is not ours)
        start = time.perf_counter()
        launch = kernel[1, 32]
        prepared = time.perf_counter()
        launch(*[x] * (i + 1))
        took.append((prepared - start, time.perf_counter() - start))
    start = time.perf_counter()
    module["k3"][2, 32]
    known = time.perf_counter() - start
    new = statistics.median(t for t, _ in took[1:])
    whole = statistics.median(t for _, t in took[1:])
    return [
        f"preparing: first of the process {took[0][0] * 1e3:.1f} ms, a new layout {new * 1e3:.2f} ms (with its first "
        f"launch {whole * 1e3:.2f} ms), another shape {known * 1e6:.0f} us"
    ]


def leaks(device: cujit.Device, count: int) -> list[str]:
    """Memory of the process over many launches, in KiB."""
    launch = cujit.jit(CODE, device=device)["arrays"][1, 32]
    x, big, scalar = device.zeros(16, np.float32), 2.5e10, np.int32(7)
    warm(launch, x, x, big, scalar)
    for _ in range(count // 100):
        launch(x, x, big, scalar)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(count):
        launch(x, x, big, 16 if i & 15 else scalar)
        if not i & 255:
            device.synchronize()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return [f"{count} launches: the process grew by {grown} KiB"]


def run(rounds: int = 101, launches: int = 1_000_000) -> list[str]:
    """Measure on the GPU that is there, and on the CPU device."""
    cpu = cujit.cpu(1)
    lines = first_launch(cpu)
    gpus = [d for d in cujit.all_devices() if d.is_gpu]
    for device in gpus[:1]:
        lines += [*first_launch(device), *on_gpu(device, rounds), *leaks(device, launches)]
    return [*lines, *reading(cpu, rounds), *leaks(cpu, launches)]


if __name__ == "__main__":
    print("\n".join(run()))
