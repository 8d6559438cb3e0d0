"""The façade on every device present, and on a device that records its launches."""

from __future__ import annotations

import gc
import struct
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.cache.cache import Cache
from cujit.devices.backend import Backend, BackendKernel, BackendModule
from cujit.devices.device import Device
from cujit.devices.jit_options import JitOptions
from cujit.devices.options import PLAIN, LaunchOptions
from cujit.devices.shapes import Dim3, HostExtent, LaunchShape, Limits, Resources
from cujit.devices.streams import Allocation
from cujit.errors import (
    ArchError,
    ArgumentError,
    ClosedError,
    CompileError,
    CujitError,
    DeviceNotFoundError,
    DriverNotFoundError,
    FileError,
    FormatError,
    KernelFaultError,
    LaunchError,
    LoadError,
    NameNotFoundError,
)
from cujit.loading import Module, _best, jit, load
from cujit.machine import all_devices, cpu, default_device, gpu
from cujit.program import Source, build, compile, toolchain
from cujit.signature import Parameter, ParameterClass, Signature
from cujit.toolchain.toolset import Compiler
from raising import raises

AXPY = """
template <typename T> __global__ void axpy(T a, const T* x, T* y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
FILL = """
namespace ns { __global__ void fill(int* p, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = value;
} }
extern "C" __global__ void plane(int* p, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < nx && y < ny) p[y * nx + x] = 100 * y + x;
}
extern "C" __global__ void reverse(int* p) {
    extern __shared__ int s[];
    if (threadIdx.x != 0) return;  // alone, so that no barrier is needed
    for (int i = 0; i < (int)blockDim.x; i++) s[i] = p[i];
    for (int i = 0; i < (int)blockDim.x; i++) p[i] = s[blockDim.x - 1 - i];
}
__device__ int counter = 41;
extern "C" __global__ void count() { counter += 1; }
struct Point { float x, y, z; };
extern "C" __global__ void add(Point p, char pad, double* sum) { *sum = p.x + p.y + p.z; }
"""


@pytest.fixture
def module(device: Device) -> Iterator[Module]:
    with jit(FILL, device=device) as loaded:
        yield loaded


# -- running ----------------------------------------------------------------------------------------------


def test_story_compile_load_launch_and_read_back(device: Device) -> None:
    n = 10_001
    x, y = device.array(np.ones(n, np.float32)), device.array(np.arange(n, dtype=np.float32))
    axpy = jit(AXPY, names=["axpy<float>"], device=device)["axpy<float>"]
    axpy.over(n)(2.0, x, y, n)
    np.testing.assert_array_equal(y.numpy(), np.arange(n, dtype=np.float32) + 2)


def test_template_instances_are_kernels_of_one_module(device: Device) -> None:
    module = jit(AXPY, names=["axpy<float>", "axpy<double>"], device=device)
    assert sorted(module) == ["axpy<double>", "axpy<float>"]
    x, y = device.array(np.ones(5)), device.zeros(5, np.float64)
    module["axpy< double >"].over(5)(0.5, x, y, 5)
    assert y.numpy().tolist() == [0.5] * 5
    with raises(NameNotFoundError, "name-not-found", "2", "axpy<double>"):
        module["axpy"]


def test_fatbin_runs_on_every_device(device: Device) -> None:
    fatbin = build(AXPY, ["sm_90", "compute_80"], names=["axpy<float>"])
    module = load(fatbin, device)
    x, y = device.array(np.ones(5, np.float32)), device.zeros(5, np.float32)
    module["axpy<float>"][1, 32](1, x, y, 5)
    assert y.numpy().tolist() == [1.0] * 5
    assert "fatbin" in module.route


def test_image_is_loaded_from_a_file_bytes_and_text(device: Device, tmp_path: Path) -> None:
    ptx = compile(FILL, arch="compute_80")
    path = ptx.save(tmp_path / "fill.bin")
    for image in (ptx, path, str(path), ptx.data, bytearray(ptx.data), ptx.text):
        with load(image, device) as module:
            assert "ns::fill" in module


def test_grid_and_block_cover_a_plane(module: Module) -> None:
    p = module.device.zeros((33, 70), np.int32)
    module["plane"].over((70, 33))(p, 70, 33)
    assert (p.numpy() == 100 * np.arange(33)[:, None] + np.arange(70)).all()


def test_dynamic_shared_memory_has_the_requested_size(module: Module) -> None:
    p = module.device.array(np.arange(256, dtype=np.int32))
    module["reverse"][1, 256, 1024](p)
    assert p.numpy().tolist() == list(range(255, -1, -1))


def test_shared_memory_above_48_kib_needs_no_setting(module: Module) -> None:
    p = module.device.array(np.arange(64, dtype=np.int32))
    largest = module.device.limits.shared_bytes_optin - module["reverse"].resources.shared_bytes
    module["reverse"][1, 64, 100 << 10](p)
    module["reverse"][1, 64, largest](p)
    assert p.numpy().tolist() == list(range(64))
    with raises(LaunchError, "shared-memory-size", "shared"):
        module["reverse"][1, 64, largest + 1]


def test_structure_is_passed_by_value(module: Module) -> None:
    total = module.device.zeros(1, np.float64)
    module["add"][1, 1](np.array((1, 2, 3), "f4,f4,f4")[()], 7, total)
    assert total.numpy().tolist() == [6.0]


def test_variable_of_the_module_is_an_array(module: Module) -> None:
    counter = module.variable("counter", np.int32)
    assert counter.numpy().tolist() == [41]
    module["count"][1, 1]()
    assert counter.numpy().tolist() == [42]
    assert module.variable("counter", np.int32, ()).numpy() == 42
    with pytest.raises(NameNotFoundError):
        module.variable("counted")


def test_empty_launch_runs_nothing_but_checks_arguments(module: Module) -> None:
    p = module.device.zeros(4, np.int32)
    module["ns::fill"].over(0)(p, 0, 1)
    module["plane"].over((5, 0))(p, 5, 0)
    assert p.numpy().tolist() == [0] * 4
    with pytest.raises(ArgumentError):
        module["ns::fill"].over(0)(p)


def test_threads_launch_one_kernel_at_once(module: Module) -> None:
    arrays = [module.device.zeros(1000, np.int32) for _ in range(6)]
    fill = module["ns::fill"]
    threads = [threading.Thread(target=fill.over(1000), args=(array, 1000, i)) for i, array in enumerate(arrays)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    module.device.synchronize()
    assert [array.numpy().tolist() for array in arrays] == [[i] * 1000 for i in range(6)]


def test_kernel_reports_its_resource_usage(module: Module) -> None:
    kernel = module["ns::fill"]
    assert kernel.name == "ns::fill"
    assert kernel.lowered_name.startswith("_ZN2ns4fill")
    assert [p.size for p in kernel.signature] == [8, 4, 4]
    assert 32 <= kernel.max_block <= 1024
    assert kernel.resources.shared_bytes == 0
    assert 0 < kernel.occupancy(32) <= kernel.occupancy(256) <= 1
    assert repr(kernel).startswith("<Kernel ns::fill(")


def test_module_is_a_mapping_of_its_kernels(module: Module) -> None:
    assert set(module) == {"ns::fill", "plane", "reverse", "count", "add"}
    assert len(module) == 5
    assert "plane" in module
    assert "plan" not in module
    assert [kernel.name for kernel in module.values()] == list(module)
    assert module["plane"] is module["plane"]
    assert "5 kernels" in repr(module)


def test_module_equals_only_itself(module: Module) -> None:
    assert module == module
    assert module != dict(module)
    assert len({module, module}) == 1


def test_with_statement_closes_its_module(device: Device) -> None:
    with jit(FILL, device=device) as module:
        assert not module.closed
    assert module.closed


# -- bad input --------------------------------------------------------------------------------------------


def test_too_many_threads_name_the_limit(module: Module) -> None:
    with raises(LaunchError, "grid-size", "1025", "1024"):
        module["plane"][1, 1025]


@pytest.mark.parametrize("shape", [(0, 32), (1, 0), ((1, 0), 32), (-1, 32), (1.5, 32), (1, 32, -4), ("1", 32)])
def test_malformed_launch_is_refused(module: Module, shape: Any) -> None:
    with pytest.raises(LaunchError):
        module["plane"][shape]


@pytest.mark.parametrize("shape", [1, (1,), (1, 1, 0, 0, 0), None])
def test_launch_accepts_grid_and_block(module: Module, shape: Any) -> None:
    with raises(LaunchError, "grid-size", "grid"):
        module["plane"][shape]


@pytest.mark.parametrize("shape", [(1, 32), ((1, 1), (32, 2)), (1, (8, 4), 64)])
def test_launch_shape_is_prepared_once(module: Module, shape: Any) -> None:
    assert module["plane"][shape] is module["plane"][shape]


def test_equal_shape_of_another_type_is_read_separately(module: Module) -> None:
    plane = module["plane"]
    assert plane[1, 32].shape == plane[[1], 32].shape == plane[[1], [32]].shape  # a list has no hash
    assert plane[(1,), (32, 1)].shape == plane[1, 32].shape
    wrong: Any
    for wrong in ((1.0, 32), ((1,), (32, 1.0))):
        with raises(LaunchError, "grid-size", "float 1.0"):
            plane[wrong]


def test_slow_launch_path_requires_no_more_than_the_fast_one(module: Module) -> None:
    plane = module["plane"]
    assert plane.prepare(1, 32) is plane.over(32, block=32) is plane[1, 32]
    assert plane.cooperative(32, block=32) is plane.prepare(1, 32, cooperative=True)


class Foreign:
    """A stream of another library, which makes a new object for each question."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0


def test_launch_is_cached_for_every_object_of_a_stream(module: Module) -> None:
    kernel, own = module["plane"], module.device.stream()
    kept = kernel.over(4, stream=Foreign())
    assert kernel.over(4, stream=Foreign()) is kept
    assert kernel.over(4) is not kept
    ours = kernel.over(4, stream=own)
    assert kernel.over(4, stream=own) is ours
    assert kernel.over(4, stream=module.device.stream()) is not ours


def test_kernel_prints_as_cpp_declares_it(module: Module) -> None:
    assert str(module["ns::fill"]) == "void ns::fill(int*, int, int)"
    assert str(module["plane"]) == "void plane(int*, int, int)"


def test_call_without_a_grid_explains_what_to_write(module: Module) -> None:
    with raises(LaunchError, "grid-missing", "over"):
        module["plane"](1)


def test_wrong_number_of_arguments_lists_the_parameters(module: Module) -> None:
    with raises(ArgumentError, "argument-count", "ns::fill", "int*"):
        module["ns::fill"][1, 1](3)


def test_float_for_a_pointer_is_refused_with_a_hint(module: Module) -> None:
    with raises(ArgumentError, "argument-type", "int*", "1.0"):
        module["ns::fill"][1, 1](1.0, 1, 1)


def test_missing_kernel_lists_the_existing_ones(module: Module) -> None:
    with raises(NameNotFoundError, "name-not-found", "plane"):
        module["plain"]
    with pytest.raises(ArgumentError):
        module[3]  # type: ignore[index]


def test_closed_module_runs_nothing(module: Module) -> None:
    kernel = module["ns::fill"]
    launch = kernel[1, 1]
    module.close()
    module.close()
    assert module.closed
    assert "closed" in repr(module)
    uses = (lambda: module["plane"], lambda: kernel[1, 1], lambda: kernel.over(0), lambda: kernel.resources)
    for use in (*uses, lambda: launch(None, 0, 0), lambda: module.variable("counter"), kernel.cancel):
        with raises(ClosedError, "closed"):
            use()


def test_kernel_keeps_its_module_loaded(device: Device) -> None:
    p = device.zeros(3, np.int32)
    fill = jit(FILL, device=device)["ns::fill"]
    gc.collect()
    fill.over(3)(p, 3, 9)
    assert p.numpy().tolist() == [9, 9, 9]


def test_damaged_image_is_refused(device: Device) -> None:
    fatbin = build(AXPY, ["sm_90", "compute_80"], names=["axpy<float>"]).data
    for damaged in (b"", b"\0" * 100, b"hello", fatbin[:-40], fatbin[:20], b"\x7fELF", b"int main() {}"):
        with pytest.raises((FormatError, LoadError)):
            load(damaged, device)


def test_ptx_that_does_not_parse_is_refused(device: Device) -> None:
    from cujit.errors import CujitError

    with pytest.raises(CujitError):
        load(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { nonsense; }\n", device)


def test_compile_error_has_its_place(device: Device) -> None:
    with raises(CompileError, "compile", "nosuch"):
        jit("__global__ void k() { nosuch(); }", device=device)


# -- without any device -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "data", "hint"),
    [
        (ImageKind.LTOIR, b"\xed\x43\x4e\x7f", "cujit.link"),
        (ImageKind.OBJECT, b"\x7fELF", "cujit.link"),
        (ImageKind.LIBRARY, b"!<arch>\n", "cujit.link"),
        (ImageKind.NVVMIR, b"BC\xc0\xde", "compile"),
    ],
)
def test_unlinked_image_names_missing_symbols(kind: ImageKind, data: bytes, hint: str) -> None:
    with raises(LoadError, "load") as caught:
        load(Artifact(kind, data), Device(Recorder()))
    assert hint in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with raises(FileError, "file", "nothing.cubin"):
        load(tmp_path / "nothing.cubin", Device(Recorder()))
    with raises(FileError, "file", tmp_path):
        load(tmp_path, Device(Recorder()))
    with raises(ArgumentError, "argument", "int"):
        load(3, Device(Recorder()))  # type: ignore[arg-type]


def test_missing_device_is_refused() -> None:
    with pytest.raises((DeviceNotFoundError, DriverNotFoundError)):
        gpu(99)
    with raises(DeviceNotFoundError, "device-not-found", "tpu"):
        load(b".version 8.0\n", "tpu")


def test_cpu_device_always_exists_and_is_last() -> None:
    assert all_devices()[-1] is cpu()
    assert default_device() is all_devices()[0]


def test_source_accepts_its_name_and_headers() -> None:
    device = Device(Recorder())
    jit(
        '#include "h.h"\nextern "C" __global__ void k(H) {}',
        headers={"h.h": "typedef int H;"},
        device=Device(Recorder()),
    )
    with raises(ArgumentError, "argument", "cujit.Source.cuda"):
        jit(Source.cuda("void f();"), name="x.cu", device=device)
    with raises(CompileError, "compile", "given name"):
        jit("syntax error", name="given name.cu", device=device)


# -- what a device is told --------------------------------------------------------------------------------


class RecordingKernel(BackendKernel):
    def __init__(self, name: str, signature: Signature) -> None:
        self.name = name
        self.signature = signature
        self.launches: list[tuple[LaunchShape, bytes, int]] = []

    @property
    def resources(self) -> Resources:
        return Resources(40, 128, 0, 0, 768)

    def launch(
        self,
        shape: LaunchShape,
        parameters: bytes | bytearray,
        stream: int = 0,
        options: LaunchOptions = PLAIN,
        extents: Sequence[HostExtent] = (),
    ) -> None:
        del options, extents
        self.launches.append((shape, bytes(parameters), stream))

    def check_options(self, shape: LaunchShape, options: LaunchOptions) -> None:
        del shape, options

    def together(self, shape: LaunchShape, cluster: Dim3 | None = None) -> int:
        del cluster
        return 132 * self.active_blocks(shape.block.volume, shape.shared_bytes)

    def active_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        return (1536 if shared_bytes == 0 else 768) // block_threads

    def best_block(self, shared_bytes: int = 0) -> int:
        return 256 if shared_bytes == 0 else 128


class RecordingModule(BackendModule):
    log = "the log"
    route = "recorded"

    def __init__(self, kernels: list[RecordingKernel]) -> None:
        self.kernels = MappingProxyType({k.name: k for k in kernels})
        self.closed = 0

    def variable(self, name: str) -> tuple[int, int]:
        raise NameNotFoundError(f"no variable {name!r}")

    def close(self) -> None:
        self.closed += 1


class Recorder(Backend):
    """Loads everything as kernels ``k`` of one unknown word, and writes down what it is told."""

    name = "recorder"
    product = "none"
    arch = Arch.parse("sm_90")
    limits = Limits(1024, Dim3(1024, 1024, 64), Dim3(2**31 - 1, 65535, 65535), 48 << 10, 227 << 10, 132)

    def load(self, artifact: Artifact, options: JitOptions | None = None) -> RecordingModule:
        del options
        unknown = Signature((Parameter(ParameterClass.UNKNOWN, 4),))
        self.kernel = RecordingKernel("k", unknown)
        self.loaded = artifact
        return RecordingModule([self.kernel])

    def allocate(self, size: int) -> Allocation:
        raise NotImplementedError

    def upload(self, address: int, data: memoryview) -> None:
        raise NotImplementedError

    def download(self, data: memoryview, address: int) -> None:
        raise NotImplementedError

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        raise NotImplementedError

    def synchronize(self) -> None:
        raise NotImplementedError


PTX = ".version 8.0\n.target sm_80\n"


def test_launch_reports_device_shape_bytes_and_stream() -> None:
    recorder = Recorder()
    device = Device(recorder)
    kernel = load(PTX, device)["k"]
    kernel[(2, 3), (4, 5, 6), 64, 99](7)
    kernel.over(1000, stream=5)(8)
    kernel.over(1000, block=100, shared_bytes=16)(8)
    kernel.over(1000, shared_bytes=16)(8)
    assert recorder.kernel.launches == [
        (LaunchShape(Dim3(2, 3, 1), Dim3(4, 5, 6), 64), struct.pack("<i", 7), 99),
        (LaunchShape(Dim3(4), Dim3(256), 0), struct.pack("<i", 8), 5),
        (LaunchShape(Dim3(10), Dim3(100), 16), struct.pack("<i", 8), 0),
        (LaunchShape(Dim3(8), Dim3(128), 16), struct.pack("<i", 8), 0),
    ]


def test_types_of_the_build_check_arguments_of_untyped_images() -> None:
    told = {"k": Signature((Parameter(ParameterClass.FLOAT, 4, 4, "float"),))}
    recorder = Recorder()
    device = Device(recorder)
    kernel = load(Artifact(ImageKind.PTX, PTX.encode(), signatures=told), device)["k"]
    kernel[1, 1](2.5)
    assert recorder.kernel.launches[0][1] == struct.pack("<f", 2.5)
    with raises(ArgumentError, "argument-type", "float32"):
        load(PTX, device)["k"][1, 1](2.5)


def test_occupancy_is_the_used_share_of_thread_slots() -> None:
    kernel = load(PTX, Device(Recorder()))["k"]
    assert kernel.occupancy(512) == 0.75
    assert kernel.occupancy((16, 16)) == 0.75
    assert kernel.occupancy((16, 16), 1024) == 0.375
    assert kernel.occupancy(1) == 1.0  # a warp is taken whole, and never more than all
    with raises(LaunchError, "block-size", "800", "40", "768"):
        kernel.occupancy(800)
    assert kernel.max_block == 768


def test_log_and_route_are_the_loaders() -> None:
    module = load(PTX, Device(Recorder()))
    assert (module.log, module.route, module.device.name) == ("the log", "recorded", "recorder")


def test_module_is_freed_with_its_last_kernel() -> None:
    module = load(PTX, Device(Recorder()))
    loaded = weakref.ref(module._image.require())
    kernel = module["k"]
    gc.disable()
    try:
        del module
        assert loaded() is not None
        del kernel
        assert loaded() is None
    finally:
        gc.enable()


def test_known_gpu_gets_sass_and_a_newer_one_ptx() -> None:
    recorder = Recorder()
    device = Device(recorder)
    device.is_gpu = True
    code = 'extern "C" __global__ void k(int) {}'
    jit(code, device=device)
    assert (recorder.loaded.kind, str(recorder.loaded.arch)) == (ImageKind.CUBIN, "sm_90a")
    jit(code, device=device, arch="sm_90")
    assert str(recorder.loaded.arch) == "sm_90"
    device = Device(recorder)
    device.is_gpu, device.arch = True, Arch.of_capability(19, 9)
    jit(code, device=device)
    assert recorder.loaded.kind is ImageKind.PTX
    device = Device(recorder)
    device.is_gpu, device.arch = False, Arch.parse("sm_90")
    for arch, target in ((None, "compute_90a"), ("sm_90", "compute_90"), ("sm_100a", "compute_100a")):
        jit(code, device=device, arch=arch)
        assert (recorder.loaded.kind, str(recorder.loaded.arch)) == (ImageKind.PTX, target)


@pytest.mark.parametrize(
    ("capability", "known", "target"),
    [
        ((9, 0), (75, 80, 90, 100), "sm_90a"),
        ((8, 0), (75, 80, 90, 100), "sm_80"),
        ((10, 3), (90, 100, 103), "sm_103a"),
        ((12, 0), (90, 100, 120), "sm_120a"),
        ((19, 9), (75, 80, 90, 100), "compute_100"),
        ((9, 9), (75, 80, 90, 100), "compute_90"),
        ((8, 8), (75, 80, 90, 100), "compute_80"),
        ((7, 0), (75, 80, 90, 100), "sm_70"),
    ],
)
def test_gpu_gets_its_own_code_or_the_highest_ptx_below(
    capability: tuple[int, int], known: tuple[int, ...], target: str
) -> None:
    recorder = Recorder()
    device = Device(recorder)
    device.is_gpu = True
    device.arch = Arch.of_capability(*capability)
    assert str(_best(device.arch, device.is_gpu, Compiler("NVRTC", known, (13, 0)))) == target


def test_older_compiler_builds_for_the_plain_architecture() -> None:
    device = Device(Recorder())
    device.is_gpu = True
    device.arch = Arch.parse("sm_90")
    assert str(_best(device.arch, device.is_gpu, Compiler("NVRTC", (80, 90), (11, 8)))) == "sm_90"


SPECIFIC = """
__global__ void k(int *p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    *p = 1;
#else
    __trap();
#endif
}"""


def test_jit_builds_for_the_variant_but_build_does_not() -> None:
    device = cujit.cpu()
    module, out = jit(SPECIFIC, device=device), device.zeros(1, np.int32)
    module["k"].over(1)(out)
    assert (str(module.artifact.arch), out.numpy().tolist()) == ("compute_90a", [1])
    with pytest.raises(KernelFaultError):
        jit(SPECIFIC, device=device, arch="compute_90")["k"].over(1)(out)
    assert [str(image.arch) for image in cujit.inspect(cujit.build(SPECIFIC, ["sm_90"])).images] == ["sm_90"]


def test_jit_uses_plain_code_of_a_read_only_cache(tmp_path: Path) -> None:
    made = cujit.compile(SPECIFIC, arch="compute_90", cache=Cache(tmp_path))
    taken = jit(SPECIFIC, device="cpu", cache=Cache(None, read_only=[tmp_path])).artifact
    assert (taken.arch, taken.data) == (made.arch, made.data)
    assert str(jit(SPECIFIC, device="cpu", cache=Cache(tmp_path)).artifact.arch) == "compute_90a", "it may write there"


def test_dropped_gpu_names_the_last_toolkit() -> None:
    recorder = Recorder()
    device = Device(recorder)
    device.is_gpu = True
    device.arch = Arch.parse("sm_70")
    if 70 in toolchain().nvrtc.arches:
        pytest.skip("this NVRTC has sm_70")
    with raises(ArchError, "arch-unsupported", "sm_70", "12.9"):
        jit('extern "C" __global__ void k(int) {}', device=device)


@pytest.mark.parametrize("arch", ["sm_100a", "sm_100f", "compute_90a", "sm_110", "compute_120"])
def test_code_for_another_architecture_is_refused_early(arch: str) -> None:
    recorder = Recorder()
    device = Device(recorder)
    device.is_gpu = True
    device.arch = Arch.parse("sm_103" if arch == "sm_100a" else "sm_90" if arch != "compute_90a" else "sm_100")
    with raises(ArchError, "arch-mismatch", arch, "recorder", device.arch):
        jit("this does not compile", device=device, arch=arch)


def test_code_for_the_family_of_a_gpu_is_compiled_for_it() -> None:
    recorder = Recorder()
    device = Device(recorder)
    device.is_gpu = True
    device.arch = Arch.parse("sm_103")
    if toolchain().nvrtc.version < (12, 9):
        pytest.skip("this NVRTC knows no families")
    jit('extern "C" __global__ void k(int) {}', device=device, arch="sm_100f")
    assert str(recorder.loaded.arch) == "sm_100f"


def test_load_time_is_reported() -> None:
    assert 0 < load(PTX, Device(Recorder())).load_s < 60


# -- blocks that run together -----------------------------------------------------------------------------


def test_as_many_blocks_run_together_as_all_processors_hold() -> None:
    kernel = load(PTX, Device(Recorder()))["k"]
    assert kernel.cooperative_limit(512) == 3 * 132
    assert kernel.cooperative_limit((16, 16)) == 6 * 132
    assert kernel.cooperative_limit((16, 16), 1024) == 3 * 132
    with raises(LaunchError, "block-size", "800"):
        kernel.cooperative_limit(800)
    with raises(LaunchError, "shared-memory-size", "shared"):
        kernel.cooperative_limit(32, 1 << 20)
    with raises(LaunchError, "grid-size", "2048"):  # of which no processor holds even one
        kernel.cooperative(block=2048)


def test_best_block_has_most_threads_in_fewest_blocks() -> None:
    kernel = load(PTX, Device(Recorder()))["k"]
    assert kernel.cooperative_shape() == (768, 2 * 132)
    assert kernel.cooperative_shape(1024) == (768, 132)
    assert kernel.cooperative_shape().block == 768
    with pytest.raises(LaunchError):
        kernel.cooperative_shape(1 << 20)


@pytest.mark.parametrize(
    ("most", "shape"), [(1000, (768, 264)), (799, (768, 264)), (63, (32, 48 * 132)), (9, (9, 170 * 132))]
)
def test_best_block_is_at_most_the_kernels_limit(
    most: int, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordingKernel, "resources", Resources(40, 128, 0, 0, most))
    assert load(PTX, Device(Recorder()))["k"].cooperative_shape() == shape


def test_device_chooses_a_block_if_one_thread_could_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingKernel, "resources", Resources(40, 128, 0, 0, 1))
    monkeypatch.setattr(RecordingKernel, "best_block", lambda _, shared_bytes: 1 if shared_bytes == 0 else 1 / 0)
    kernel = load(PTX, Device(Recorder()))["k"]
    assert kernel.over(3).shape == LaunchShape(Dim3(3), Dim3(1))
    with raises(LaunchError, "shared-memory-size", "shared"):
        kernel.over(3, shared_bytes=1 << 20)


def test_cooperative_grid_consists_of_whole_clusters() -> None:
    recorder = Recorder()
    kernel = load(PTX, Device(recorder))["k"]
    kernel.cooperative(cluster=(2, 1, 3), block=256)(1)
    shape = recorder.kernel.launches[-1][0]
    assert (shape.grid, shape.grid.volume) == (Dim3(792 // 3, 1, 3), 792)
    kernel.cooperative(256 * 13, cluster=(1, 2, 2), block=256)(1)
    assert recorder.kernel.launches[-1][0].grid == Dim3(4, 2, 2)


def test_device_runs_its_reported_number_of_blocks(device: Device) -> None:
    kernel = jit(FILL, device=device)["ns::fill"]
    shape = kernel.cooperative_shape()
    assert shape.blocks == kernel.cooperative_limit(shape.block)
    assert shape.blocks >= (device.limits.processors if device.is_gpu else 1)
    assert 1 <= shape.block <= kernel.max_block
    if device.is_gpu:
        assert shape.block * shape.blocks <= device.limits.threads_per_processor * device.limits.processors


@pytest.mark.parametrize("device", [1, b"cpu", object()])
def test_invalid_device_is_refused(device: object) -> None:
    with raises(CujitError, "option", "cujit.gpu(0)"):
        jit(FILL, device=device)  # type: ignore[arg-type]


def test_empty_grid_still_needs_a_valid_block(module: Module) -> None:
    with raises(LaunchError, "grid-size", "2048"):
        module["plane"].over(0, block=2048)
