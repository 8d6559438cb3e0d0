"""Prepared launches as users hold them, on every device present."""

from __future__ import annotations

import copy
import ctypes
import gc
import inspect
import os
import pickle
import platform
import struct
import subprocess
import sys
import sysconfig
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.devices.launcher import binder, library, liveness, state
from cujit.devices.launcher import launch as launches
from cujit.devices.launcher.cpython import is_supported, native_type
from cujit.devices.streams import Stream
from cujit.errors import ArgumentError, ClosedError, LaunchError, MissingError
from cujit.kernel import Kernel, Launch
from cujit.loading import Module, jit
from processes import printed, python
from raising import raises

CODE = """
extern "C" __global__ void fill(int* p, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = value;
}
extern "C" __global__ void mixed(char a, double b, short c, float f, bool t, unsigned long long u, double* out) {
    *out = a + b + c + f + t + u;
}
struct Point { float x, y, z; };
extern "C" __global__ void add(Point p, double* sum) { *sum = p.x + p.y + p.z; }
extern "C" __global__ void count(unsigned* n) { if (threadIdx.x == 0) n[blockIdx.x] += 1; }
extern "C" __global__ void empty() {}
"""


@pytest.fixture
def module(device: Device) -> Iterator[Module]:
    with jit(CODE, device=device) as loaded:
        yield loaded


def is_native(launch: Launch) -> bool:
    return launch._prepared is not None or launch._state is not None


def test_launch_runs_the_first_time_and_every_time_after(module: Module) -> None:
    p = module.device.zeros(64, np.int32)
    launch = module["fill"][2, 32]
    for value in range(5):
        assert launch(p, 64, value) is None  # type: ignore[func-returns-value]
        assert p.numpy().tolist() == [value] * 64


def test_all_kinds_of_arguments_reach_the_kernel(module: Module) -> None:
    out, launch = module.device.zeros(1, np.float64), module["mixed"][1, 1]
    for _ in range(3):
        launch(-7, 0.5, np.int16(-300), 2, True, 2**40, out)
        assert out.numpy()[0] == -7 + 0.5 - 300 + 2 + 1 + 2**40
    sum_, add = module.device.zeros(1, np.float64), module["add"][1, 1]
    for _ in range(3):
        add(np.array((1, 2, 3), "f4,f4,f4")[()], sum_)
        assert sum_.numpy()[0] == 6


def test_launch_enters_machine_code(module: Module) -> None:
    if not is_supported():
        pytest.skip("this interpreter takes no machine code")
    launch = module["fill"][1, 32]
    is_cubin = module.device.is_gpu and "CUJIT_EMULATE" not in os.environ
    assert is_native(launch) == is_cubin  # whose plain launches native code makes
    assert launches.attach(launch)
    assert is_native(launch)
    assert isinstance(launch, Launch)
    assert type(launch).__name__ == "Launch"
    assert type(launch).__doc__ == Launch.__doc__


@pytest.mark.skipif(
    platform.python_implementation() != "CPython" or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="machine code is for CPython with its one lock",
)
@pytest.mark.skipif(
    struct.calcsize("P") != 8 or hasattr(sys, "gettotalrefcount"), reason="not a usual build of 64 bits"
)
def test_launch_enters_machine_code_in_every_usual_python(cpu: Device) -> None:
    launch, p = jit(CODE, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
    assert launches.attach(launch)
    launch(p, 32, 3)
    assert is_native(launch)
    assert p.numpy().tolist() == [3] * 32


@pytest.mark.parametrize("lack", ["interpreter", "library"])
def test_without_machine_code_a_launch_is_written_in_python(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, lack: str
) -> None:
    def missing(*_arguments: object) -> None:
        raise MissingError("no such file")

    if lack == "library":
        monkeypatch.setattr(library, "library", missing)
        monkeypatch.setattr(binder, "library_or_none", inspect.unwrap(library.library_or_none))
    else:
        monkeypatch.setattr(binder, "is_supported", lambda: False)
    launch, p = jit(CODE, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
    assert not is_native(launch)
    for value in range(3):
        launch(p, 32, value)
    assert not launches.attach(launch)
    launch(p, 32, 2)
    assert not is_native(launch)
    assert p.numpy().tolist() == [2] * 32
    with raises(ArgumentError, "argument-count", "keyword"):
        launch(p, 32, value=1)


def test_launch_is_compiled_ahead_without_being_run(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path))  # where no other process writes
    code = 'extern "C" __global__ void late(int *p) { if (p) *p = 7; else asm volatile("trap;"); }'
    launch = jit(code, device=device)["late"].prepare(1, 96)
    entries = set(tmp_path.rglob("*"))
    launch.compile()
    device.synchronize()
    assert bool(set(tmp_path.rglob("*")) - entries) == (not device.is_gpu)
    p = device.zeros(1, np.int32)
    launch(p)
    assert p.numpy().tolist() == [7]


def test_launch_of_a_closed_module_is_not_compiled(device: Device) -> None:
    module = jit('extern "C" __global__ void late(int *p) { *p = 8; }', device=device)
    launch = module["late"].prepare(1, 96)
    module.close()
    with pytest.raises(ClosedError):
        launch.compile()


def test_equal_launch_is_cached(module: Module) -> None:
    kernel = module["fill"]
    assert kernel[1, 32] is kernel[1, 32]
    assert kernel[(1,), (32,)] is kernel[1, 32]
    assert kernel[(1, 1), (32, 1, 1), 0] is kernel[1, 32]
    assert kernel.prepare(1, 32) is kernel[1, 32]
    assert kernel.over(32, block=32) is kernel[1, 32]
    assert kernel[(1, 2), (4, 8)] is kernel[(1, 2), (4, 8)]
    assert kernel[1, 64] is not kernel[1, 32]
    assert kernel[1, 32, 16] is not kernel[1, 32]
    assert kernel[1, 32, 0, 7] is not kernel[1, 32]


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ((1.0, 32), ("grid-size", "grid.x", "float 1.0")),
        ((1, 32.0), ("grid-size", "block.x", "float 32.0")),
        (((1.0,), 32), ("grid-size", "grid.x", "float 1.0")),
        ((1, 32, 0.0), ("shared-memory-size", "shared_bytes", "float 0.0")),
        ((1, (32.0, 1)), ("grid-size", "block.x", "float 32.0")),
    ],
)
def test_float_is_refused_after_an_equal_int_was_cached(module: Module, shape: Any, values: tuple[str, ...]) -> None:
    kernel = module["fill"]
    assert kernel[1, 32] is kernel[1, 32]
    with raises(LaunchError, *values):
        kernel[shape]


@pytest.mark.parametrize("shape", [[1, 32], "12", {1: 2, 3: 4}, 5, None, (1,)])
def test_invalid_shape_is_refused_after_a_valid_one(module: Module, shape: Any) -> None:
    kernel = module["fill"]
    kernel[1, 32]
    with raises(LaunchError, "grid-size", "grid"):
        kernel[shape]


def test_cached_launches_are_bounded(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    most = state.MOST_LAUNCHES if module.device.is_gpu else 4  # which native code knows
    monkeypatch.setattr(state, "MOST_LAUNCHES", most)
    kernel, p = module["fill"], module.device.zeros(64, np.int32)
    for i in range(1, most + 16):
        kernel[i, 32](p, 64, i)
        assert len(kernel._launches) <= most
    assert set(p.numpy().tolist()) == {most + 15}


def test_native_code_finds_a_launch_repeated_in_a_loop(module: Module) -> None:
    kernel, p = module["fill"], module.device.zeros(64, np.int32)
    launches.attach(kernel[1, 32])
    assert type(vars(Kernel)["__getitem__"]).__name__ == "method_descriptor"
    assert "kernel[4, 256]" in (Kernel.__getitem__.__doc__ or "")
    one, thousand = int("1"), int("1000")
    shapes: list[Any] = [(1, 32), (thousand, 32), ((one, 2), 32), (1, (32, 1)), (1, 32, 8), (1, 32, 0, 0), (1000, 32)]
    kept = [kernel[shape] for shape in shapes]
    for shape, launch in [*zip(shapes, kept, strict=True)] * 3:
        assert kernel[shape] is launch
        assert kernel[shape] is launch
    assert kernel[int("1000"), int("32")] is kept[1]
    kernel[2, 32](p, 64, 7)
    assert p.numpy().tolist() == [7] * 64


@pytest.mark.parametrize("shape", [(1.0, 32), ((1.0,), 32), (1, 32.0), (1, 32, 0.0)], ids=str)
def test_native_code_distinguishes_a_float_from_an_equal_int(module: Module, shape: Any) -> None:
    kernel = module["fill"]
    launches.attach(kernel[1, 32])
    for same in ((1, 32), ((1,), 32), (1, 32, 0)):
        assert kernel[same] is kernel[same]
    for _ in range(2):
        with raises(LaunchError, "shared-memory-size" if len(shape) == 3 else "grid-size", "float"):
            kernel[shape]
    assert tuple(kernel[True, np.int64(32)].shape.grid) == (1, 1, 1)  # type: ignore[union-attr]


def test_closed_module_returns_no_cached_launch(device: Device) -> None:
    module = jit(CODE, device=device)
    kernel = module["fill"]
    launches.attach(kernel[1, 32])
    launch = weakref.ref(kernel[1, 32])
    assert kernel[1, 32] is launch()
    module.close()
    gc.collect()
    assert launch() is None
    with pytest.raises(ClosedError):
        kernel[1, 32](None, 0, 0)


def test_subclass_with_its_own_index_method_keeps_it(module: Module) -> None:
    class Own(Kernel):
        def __getitem__(self, shape: Any) -> Launch:
            return super().__getitem__((2, *shape))

    kernel = Own(module["fill"]._entry)
    launches.attach(module["fill"][1, 32])
    for _ in range(2):
        shape = kernel[(32,)].shape
        assert shape is not None
        assert tuple(shape.grid) == (2, 1, 1)


def test_launch_has_its_kernel_shape_stream_and_options(module: Module) -> None:
    kernel = module["fill"]
    launch = kernel.prepare((2, 3), 32, shared_bytes=16, stream=0, overlap=True)
    assert launch.kernel is kernel
    assert launch.shape is not None
    assert tuple(launch.shape.grid) == (2, 3, 1)
    assert (launch.shape.shared_bytes, launch.stream) == (16, 0)
    assert launch.options.overlap
    text = f"<Launch of fill on {module.device.name}: grid (2, 3, 1), block (32, 1, 1), 16 bytes of shared memory, "
    assert repr(launch) == text + "overlap>"
    assert repr(kernel.over(0)).endswith("nothing>")
    with pytest.raises(AttributeError):
        launch.shape = None  # type: ignore[misc]


def test_launch_outlives_its_kernel_object(device: Device) -> None:
    launch = jit(CODE, device=device)["fill"][1, 32]
    gc.collect()
    p = device.zeros(32, np.int32)
    launch(p, 32, 4)
    launch(p, 32, 5)
    assert p.numpy().tolist() == [5] * 32
    assert isinstance(launch.kernel, Kernel)
    assert launch.kernel.name == "fill"


def test_image_is_freed_with_its_last_launch(device: Device) -> None:
    module = jit(CODE, device=device)
    image, kernel = weakref.ref(module._image), module["fill"]
    launch, p = kernel[1, 32], device.zeros(32, np.int32)
    launch(p, 32, 1)
    gc.disable()
    try:
        del module, kernel
        launch(p, 32, 1)
        assert image() is not None
        del launch
        assert image() is None
    finally:
        gc.enable()


_FIRST_USES = """
    import contextlib, ctypes, gc, sys, weakref
    import numpy as np
    from cujit import all_devices, jit
    from cujit.errors import CujitError

    class Point(ctypes.Structure):
        _fields_ = [("x", ctypes.c_float), ("y", ctypes.c_float)]

    CODE = 'struct P% { float x, y; }; extern "C" __global__ void k(int* p, int n, P% point) { p[0] = n; }'
    USES = [
        "kernel[1, 32](p, 1, Point(1, 2)), kernel[1, 32](p, 1, Point(1, 2))",
        "kernel[1, 32](np.zeros(1, np.int32), 1, b'8 bytes.')",
        "kernel[1, 32](p, 1.5, b'8 bytes.')",
        "kernel[1, 32](p)",
        "kernel[1, 32](p, n=1)",
        "kernel[1, 5000](p, 1, b'8 bytes.')",
        "kernel[1, 32].packed(p.address.to_bytes(20, 'little'))",
        "kernel.prepare(1, 32, shared_bytes=16, stream=device.stream())(p, 1, b'8 bytes.')",
    ]
    gc.disable()
    device = next(each for each in all_devices() if each.name == sys.argv[1])
    p = device.zeros(1, np.int32)
    for i, use in enumerate(USES):
        kernel = (module := jit(CODE.replace("%", str(i)), device=device))["k"]
        image = weakref.ref(module._image)
        with contextlib.suppress(CujitError):
            eval(use)
        del module, kernel
        print(use if image() is not None else "gone")
"""


def test_first_use_of_a_parameter_list_leaves_no_cycle(device: Device) -> None:
    assert set(printed(_FIRST_USES, device.name).split("\n")) == {"gone", ""}


def test_equal_launches_are_equal(module: Module) -> None:
    kernel = module["fill"]
    one, other = kernel[1, 32], kernel[1, 64]
    assert one == kernel.prepare(1, 32)
    assert one != other
    assert len({one, other, kernel[1, 32]}) == 2


def test_launch_belongs_to_its_process(module: Module) -> None:
    launch = module["fill"][1, 32]
    for use in (lambda: pickle.dumps(launch), lambda: copy.copy(launch)):
        with raises(ClosedError, "closed", "process"):
            use()


def test_unprepared_launch_object_refuses_calls() -> None:
    if not is_supported():
        pytest.skip("this interpreter takes no machine code")
    with pytest.raises(AttributeError):
        object.__new__(native_type(Launch).type)()
    with pytest.raises(TypeError, match="acceptable base"):
        type("Mine", (native_type(Launch).type,), {})


def test_closed_module_runs_nothing_and_keeps_no_launch(module: Module) -> None:
    kernel, p = module["fill"], module.device.zeros(32, np.int32)
    launch = kernel[1, 32]
    launch(p, 32, 1)
    module.close()
    for use in (lambda: launch(p, 32, 2), lambda: kernel[1, 32], lambda: kernel.prepare(1, 32), lambda: launch("x")):
        with raises(ClosedError, "closed", "module"):
            use()
    assert p.numpy().tolist() == [1] * 32


def test_many_threads_launch_through_one_launch(module: Module) -> None:
    launch = module["fill"][4, 32]
    arrays = [module.device.zeros(128, np.int32) for _ in range(8)]

    def work(index: int) -> None:
        for value in range(50):
            launch(arrays[index], 128, 100 * index + value)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    module.device.synchronize()
    assert [a.numpy().tolist() for a in arrays] == [[100 * i + 49] * 128 for i in range(8)]


def test_1000000_launches_leak_no_memory(module: Module) -> None:
    launch, p = module["fill"][1, 32], module.device.zeros(32, np.int32)
    if is_supported():
        assert launches.attach(launch)

    def run(count: int) -> None:
        for i in range(count):
            launch(p, 32, i)
            if not i & 255:
                module.device.synchronize()

    def memory_bytes() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    run(20_000)
    before, references, blocks = memory_bytes(), sys.getrefcount(p), sys.getallocatedblocks()
    run(1_000_000)
    # Eight bytes a launch would be 8 MB.
    assert memory_bytes() - before < 2 << 20
    assert sys.getrefcount(p) == references
    assert sys.getallocatedblocks() - blocks < 2000


def test_every_block_of_a_large_grid_runs_once(module: Module) -> None:
    counts = module.device.zeros(5000, np.uint32)
    for _ in range(4):
        module["count"][5000, 64](counts)
    assert set(counts.numpy().tolist()) == {4}


def test_refused_launch_runs_with_the_right_arguments(module: Module) -> None:
    launch, p = module["fill"][1, 32], module.device.zeros(32, np.int32)
    for _ in range(3):
        with raises(ArgumentError, "argument-type", "fill", "2", "float 1.5"):
            launch(p, 1.5, 1)
        launch(p, 32, 3)
    assert p.numpy().tolist() == [3] * 32


# -- options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"cluster": 0}, ("launch", "cluster.x", "0", "1")),
        ({"cluster": "2"}, ("launch", "cluster.x", "str '2'")),
        ({"cluster": (1, 1, 1, 1)}, ("launch", "cluster", "4 dimensions")),
        ({"cooperative": 1}, ("launch", "cooperative", "int 1")),
        ({"overlap": "yes"}, ("launch", "overlap", "str 'yes'")),
        ({"priority": 1.5}, ("launch", "priority", "float 1.5")),
        ({"priority": 1 << 31}, ("launch", "priority", "2147483648", "32-bit")),
        ({"priority": 10**5000}, ("launch", "priority", "16610 bits")),
        ({"stream": 10**5000}, ("stream", "16610 bits")),
        ({"priority": True}, ("launch", "priority", "bool True")),
        ({"shared_bytes": "1"}, ("shared-memory-size", "shared_bytes", "str '1'")),
        ({"stream": "s"}, ("stream", "str 's'")),
    ],
    ids=[
        *("cluster", "cluster_str", "cluster_4d", "cooperative", "overlap", "priority", "priority_32_bits"),
        *("priority_huge", "stream_huge", "priority_bool", "shared", "stream"),
    ],
)
def test_malformed_option_is_refused(module: Module, options: Any, why: tuple[str, ...]) -> None:
    with raises(LaunchError, *why):
        module["empty"].prepare(4, 32, **options)


CLUSTERED = "template <typename T> __global__ void k(T* p) { if (p) *p = 1; }"


@pytest.mark.parametrize(
    "ask",
    [
        lambda k: k[0, 1],
        lambda k: k[1, "x"],
        lambda k: k[1, 1, -1],
        lambda k: k.prepare(1, 1, cluster=0),
        lambda k: k.prepare(1, 1, overlap=1),
        lambda k: k.prepare(1, 1, shared_bytes="1"),
        lambda k: k.prepare(4, 32, cluster=3),
        lambda k: k.prepare(1 << 20, 32, cooperative=True),
        lambda k: k.over(-1),
        lambda k: k.over(1, block=0),
        lambda k: k.over(1, shared_bytes=-1),
        lambda k: k.cooperative("5"),
        lambda k: k.cooperative(5, block=-1),
        lambda k: k.cooperative_limit(0),
        lambda k: k.cooperative_shape(-1),
        lambda k: k.occupancy(1.5),
    ],
    ids=[
        *("grid", "block", "shared", "cluster", "overlap", "shared_str", "cluster_of_grid", "cooperative", "over"),
        *("over_block", "over_shared", "size", "cooperative_block", "limit", "cooperative_shared", "occupancy"),
    ],
)
def test_launch_error_begins_with_the_kernels_source_name(device: Device, ask: Any) -> None:
    kernel = jit(CLUSTERED, names=["k<int>"], device=device)["k<int>"]
    with pytest.raises(LaunchError) as caught:
        ask(kernel)
    assert caught.value.message.startswith("k<int>: ")


def test_cpu_device_runs_blocks_together_up_to_its_limit(cpu: Device) -> None:
    kernel = jit(CODE, device=cpu)["empty"]
    most = kernel.cooperative_limit(32)
    assert most > 1
    with raises(LaunchError, "cooperative-size", most + 1, "32", most):
        kernel.prepare(most + 1, 32, cooperative=True)
    with raises(LaunchError, "cluster-size", "32", "blocks"):
        kernel.prepare(32, 32, cluster=32)
    with raises(LaunchError, "cluster-size", "grid.x", "5", "cluster.x", "2"):
        kernel.prepare(5, 32, cluster=2)
    block, blocks = kernel.cooperative_shape()
    assert blocks == kernel.cooperative_limit(block)
    kernel.prepare(blocks, block, cooperative=True)()
    kernel.prepare(2, 32, cooperative=True, cluster=2, overlap=True, priority=-1)()


@pytest.mark.gpu
def test_cluster_must_fit_the_grid_and_the_device(gpu: Device) -> None:
    kernel = jit(CODE, device=gpu)["empty"]
    if gpu.arch.number < 90:
        with raises(LaunchError, "cluster-size"):
            kernel.prepare(4, 32, cluster=2)
        return
    for cluster in (1, 2, 4, 8, 16):
        launch = kernel.prepare(16, 32, cluster=cluster)
        launch()
        launch()
    with raises(LaunchError, "cluster-size", 5, 2):
        kernel.prepare(5, 32, cluster=2)
    with raises(LaunchError, "cluster-size", 32):
        kernel.prepare(32, 32, cluster=32)
    gpu.synchronize()


@pytest.mark.gpu
def test_cooperative_grid_must_fit_the_device(gpu: Device) -> None:
    kernel = jit(CODE, device=gpu)["empty"]
    most = kernel.cooperative_limit(256)
    for _ in range(3):
        kernel.prepare(most, 256, cooperative=True)()
    with raises(LaunchError, "cooperative-size", most + 1, most):
        kernel.prepare(most + 1, 256, cooperative=True)
    gpu.synchronize()


@pytest.mark.gpu
def test_overlap_and_priority_are_accepted(gpu: Device) -> None:
    p, kernel = gpu.zeros(32, np.int32), jit(CODE, device=gpu)["fill"]
    for _ in range(3):
        kernel.prepare(1, 32, overlap=gpu.arch.number >= 90, priority=0)(p, 32, 8)
    assert p.numpy().tolist() == [8] * 32
    with raises(LaunchError, "launch", 1000):
        kernel.prepare(1, 32, priority=1000)


@pytest.mark.gpu
def test_launches_keep_their_stream_alive(gpu: Any) -> None:
    p, kernel = gpu.zeros(32, np.int32), jit(CODE, device=gpu)["fill"]
    stream = gpu.stream()
    watched, launch = weakref.ref(stream), kernel[1, 32, 0, stream]
    assert kernel[1, 32, 0, stream] is launch
    del stream
    gc.collect()
    for _ in range(3):
        launch(p, 32, 6)
    assert isinstance(watched(), Stream)
    watched().synchronize()  # type: ignore[union-attr]
    assert p.numpy().tolist() == [6] * 32


@pytest.mark.gpu
def test_thread_without_a_context_can_launch(gpu: Device) -> None:
    launch, p = jit(CODE, device=gpu)["fill"][1, 32], gpu.zeros(32, np.int32)
    launch(p, 32, 1)

    def work() -> None:
        for i in range(5):
            launch(p, 32, i)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert p.numpy().tolist() == [4] * 32


# -- processes --------------------------------------------------------------------------------------------

_PRELUDE = f"import os, sys, ctypes, numpy as np, cujit\nCODE = r'''{CODE}'''\n"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return python(_PRELUDE + code, options=("-X", "faulthandler"))


def test_forked_process_launches_on_the_cpu_device() -> None:
    done = run("""
device = cujit.cpu(2)
launch, p = cujit.jit(CODE, device=device)["fill"][100, 64], device.zeros(6400, np.int32)
for value in (1, 2, 3): launch(p, 6400, value)
child = os.fork()
if child == 0:
    for value in (4, 5, 6): launch(p, 6400, value)
    os._exit(0 if set(p.numpy().tolist()) == {6} else 1)
assert os.waitpid(child, 0)[1] == 0
launch(p, 6400, 9)
assert set(p.numpy().tolist()) == {9}
""")
    assert done.returncode == 0, done.stderr


def test_packed_parameters_survive_a_fork() -> None:
    done = run("""
import struct
from cujit.devices.launcher.launch import attach
device = cujit.cpu(2)
launch, p = cujit.jit(CODE, device=device)["fill"][100, 64], device.zeros(6400, np.int32)
attach(launch)
def fill(value): launch.packed(struct.pack("<Qii", p.address, 6400, value))
for value in (1, 2, 3): fill(value)
started = launch._prepared._bound
child = os.fork()
if child == 0:
    launch._prepared._bound = (*started[:2], lambda *_: os._exit(2))  # machine code
    for value in (4, 5, 6): fill(value)
    os._exit(0 if set(p.numpy().tolist()) == {6} else 1)
assert os.waitpid(child, 0)[1] == 0
fill(9)
assert set(p.numpy().tolist()) == {9}
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_forked_process_is_told_that_a_gpu_does_not_survive() -> None:
    done = run("""
device = cujit.gpu()
launch, p = cujit.jit(CODE, device=device)["fill"][1, 32], device.zeros(32, np.int32)
for value in (1, 2, 3): launch(p, 32, value)
device.synchronize()
child = os.fork()
if child == 0:
    try:
        launch(p, 32, 4)
    except cujit.errors.DriverError as e:
        os._exit(0 if "forked" in str(e) else 2)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
launch(p, 32, 9)
assert set(p.numpy().tolist()) == {9}
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("route", ["machine code", "python"])
def test_odd_arguments_raise_and_never_crash(route: str) -> None:
    if route == "machine code" and not is_supported():
        pytest.skip("this interpreter takes no machine code")
    done = run(
        f"by_machine = {route == 'machine code'}"
        + """
from cujit.devices.launcher import binder
from cujit.devices.launcher.launch import attach
if not by_machine: binder.is_supported = lambda: False
GOOD = {"ints": (-1, 2, -3, 4), "reals": (1.5, 2, True), "pointers": (None,) * 4, "structures": (bytes(12), bytes(8))}
import itertools, random, types
from fractions import Fraction
device = cujit.cpu(1)
ODD = '''
struct Point { float x, y, z; };
extern "C" __global__ void ints(signed char, unsigned short, int, unsigned long long) {}
extern "C" __global__ void reals(float, double, bool) {}
extern "C" __global__ void pointers(const int*, void*, float*, char*) {}
extern "C" __global__ void structures(Point, int2) {}
extern "C" __global__ void empty() {}
'''
module = cujit.jit(ODD, device=device)
x = device.zeros(64, np.int32)

class Raising:
    def __getattr__(self, name): raise RuntimeError(name)
    def __index__(self): raise ValueError("index")
    def __float__(self): raise ValueError("float")
    def __bool__(self): raise ValueError("bool")
    def __eq__(self, other): raise ValueError("eq")
    __hash__ = None
class Int(int):
    def __index__(self): raise ValueError("index")
    def __int__(self): raise ValueError("int")
class Lying(int):
    def __int__(self): return "x"
class Float(float):
    def __float__(self): raise ValueError("float")
class Closing:
    @property
    def __array_interface__(self):
        x.close()
        return {"shape": (64,), "typestr": "<i4", "data": (0, False), "version": 3}
class Again:
    @property
    def __array_interface__(self):
        launch(self, 1, 1)
class Array(cujit.DeviceArray): pass
def hurt(*names, **values):
    y = device.zeros(64, np.int32)
    for name in names: delattr(y, name)
    for name, value in values.items(): setattr(y, name, value)
    return y
bare = cujit.DeviceArray.__new__(cujit.DeviceArray)
pointer = object.__new__(cujit.Pointer)
wrong = cujit.Pointer(0); object.__setattr__(wrong, "address", "x")
negative = cujit.Pointer(0); object.__setattr__(negative, "address", -1)
odd = [Raising(), Int(3), Lying(3), Float(1.5), Closing(), Again(), bare, pointer, wrong, negative,
    hurt("_address"), hurt("dtype"), hurt("device"), hurt("nbytes"), hurt("_allocation"), hurt(_address="x"),
    hurt(_address=10**40), hurt(_address=-1), hurt(dtype=None), hurt(device=None), hurt(nbytes="x"), hurt(dtype=3),
    object(), type, None, ..., NotImplemented, 10**5000, -10**5000, 1e400, "", b"", [], {}, set(), range(3), lambda: 1,
    Fraction(1, 3), 1j, np.zeros(3), np.zeros((2, 2), "f4").T, np.float16(1), np.datetime64("now"), np.void(b"123"),
    types, device, module, ctypes.c_char_p(b"x"), ctypes.py_object(3), memoryview(b"12"), float("nan"), Array]
random.seed(1)
seen = 0
for name, kernel in module.items():
    count = len(kernel.signature)
    launch = module[name][1, 32]
    assert attach(launch) == by_machine
    for _ in range(2): launch(*GOOD.get(name, ()))  # bound to the device, and read by machine code from here on
    cases = [(value,) * count for value in odd] + [tuple(random.choices(odd, k=count)) for _ in range(1500)]
    cases += [tuple(random.choices(odd, k=random.randrange(20))) for _ in range(100)]
    for case in cases:
        try: launch(*case)
        except Exception: seen += 1
print(seen)
"""
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 4000


def test_open_modules_carry_a_process_number_over_forks() -> None:
    flag, other = liveness.LivenessFlag(), liveness.LivenessFlag()
    words = [ctypes.c_uint64.from_address(each.address) for each in (flag, other)]
    assert [word.value for word in words] == [liveness.PROCESS.value] * 2
    flag.close()
    assert [word.value for word in words] == [0, liveness.PROCESS.value]
    if (child := os.fork()) == 0:
        os._exit(words[1].value + 1 != liveness.PROCESS.value)
    assert os.waitpid(child, 0)[1] == 0
