"""The door: kernels of images, of devices, and of numbers, on GPUs that need not be there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.devices.shapes import Resources
from cujit.errors import (
    ArchError,
    ArgumentError,
    CujitError,
    FormatError,
    LaunchError,
    NameNotFoundError,
    OptionError,
)
from cujit.formats.container import Container, write_container
from cujit.formats.cubin import read_cubin
from cujit.loading import load
from cujit.occupancy.products import PRODUCTS
from cujit.occupancy.residency import Limiter
from cujit.occupancy.subject import LoadedKernel, plot, subject
from cujit.occupancy.subject import of as occupancy
from cujit.program import build, bundle, compile
from inspection.files import host_elf
from raising import raises

CODE = r"""
template <typename T> __global__ void axpy(T a, const T* x, T* y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
__global__ void __launch_bounds__(128) tile(float* x) {
    __shared__ float s[5000];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[127 - threadIdx.x];
}
"""
NAMES = ("axpy<float>", "axpy<double>", "tile")
ONE = 'extern "C" __global__ void one(int* p) { *p = 1; }'


@pytest.fixture(scope="module")
def fatbin() -> Artifact:
    return build(CODE, ["sm_80", "sm_90", "compute_80"], names=NAMES)


@pytest.fixture(scope="module")
def cubin() -> Artifact:
    return compile(CODE, arch="sm_90", names=NAMES)


# -- images -----------------------------------------------------------------------------------------------------


def test_numbers_match_the_image(cubin: Artifact) -> None:
    kernel = read_cubin(cubin.data).kernel(cubin.names["tile"])
    found = occupancy(cubin, 128, kernel="tile", on="H200", grid=(100, 10))
    assert found.kernel == "tile"
    assert found.demand.registers == kernel.registers
    assert found.demand.shared_bytes == kernel.shared_bytes == 20000
    assert found.demand.barriers == kernel.barriers == 1
    assert found.demand.max_threads == 128
    assert (found.active_blocks, found.active_warps, found.max_warps) == (11, 44, 64)
    assert float(found) == found.fraction == 44 / 64
    assert found.limited_by == (Limiter.SHARED,)
    assert found.limits[Limiter.WARPS] == 16
    assert found.cooperative_blocks == 11 * 132
    assert found.waves is not None
    assert found.waves.count == 1000 / (11 * 132)
    assert found.next_step is not None
    assert found.next_step.shared_bytes == 18432  # 228 KiB over 12, less the reserve


def test_fatbin_uses_the_image_that_the_gpu_would_run(fatbin: Artifact) -> None:
    ampere, hopper = (occupancy(fatbin, 128, kernel="tile", on=on) for on in ("A100", "NVIDIA H100 PCIe"))
    assert str(ampere.product) == "A100 (sm_80)"
    assert (ampere.active_blocks, hopper.active_blocks) == (7, 11)
    assert hopper.cooperative_blocks == 11 * 114
    # sm_80's machine code runs on 8.6, with the limits of 8.6.
    assert occupancy(fatbin, 128, kernel="tile", on="RTX 3090").active_blocks == 4


def test_names_are_found_as_in_a_module(fatbin: Artifact) -> None:
    lowered = fatbin.names["axpy<double>"]
    assert occupancy(fatbin, kernel="axpy<double>", on="A100") == occupancy(fatbin, kernel=lowered, on="A100")
    bare = Artifact.of(fatbin.data)
    assert subject(bare, kernel="axpy<double>", on="A100").lowered_name == lowered


def test_image_may_be_a_path_or_bytes(tmp_path: Path) -> None:
    image = compile(ONE, arch="sm_90")
    path = image.save(tmp_path / "one.cubin")
    assert occupancy(path) == occupancy(str(path)) == occupancy(image.data) == occupancy(image)
    assert str(occupancy(path).product) == "sm_90"
    assert occupancy(path).cooperative_blocks is None
    assert occupancy(path, processors=10).cooperative_blocks == 20


def test_single_architecture_fatbin_needs_no_gpu_name(fatbin: Artifact) -> None:
    assert occupancy(build(ONE, ["sm_86", "compute_86"])).product.arch == Arch.parse("sm_86")
    with raises(ArchError, "arch-mismatch", "sm_80", "sm_90", "on='H200'"):
        occupancy(fatbin, kernel="tile")


def test_gpu_that_would_run_the_ptx_is_refused(fatbin: Artifact) -> None:
    with raises(ArchError, "arch", "sm_120", "PTX") as caught:
        occupancy(fatbin, kernel="tile", on="RTX 5090")
    assert caught.value.help == "build it with the target sm_120"
    for name, said in (("", "image"), ("tile.fatbin", "tile.fatbin")):
        with raises(ArchError, "arch", said, "sm_70"):
            occupancy(Artifact(fatbin.kind, fatbin.data, name=name), kernel="tile", on="V100")


def test_sass_of_another_architecture_is_refused(cubin: Artifact) -> None:
    with raises(ArchError, "arch-mismatch", "sm_90", "sm_80"):
        occupancy(cubin, kernel="tile", on="A100")


@pytest.mark.parametrize("arch", ["compute_90", "lto_90"])
def test_image_without_sass_explains_how_to_build_it(arch: str) -> None:
    with raises(FormatError, "format", "cujit") as caught:
        occupancy(compile(ONE, arch=arch), on="H200")
    assert "arch='sm_90'" in (caught.value.help or "")


def test_emulator_container_has_registers_only_with_sass() -> None:
    ptx, arch = compile(ONE, arch="compute_90"), Arch.parse("sm_90")
    with raises(FormatError, "format", "emulate"):
        occupancy(write_container(Container(ptx.data, arch)))
    made = compile(ONE, arch=arch)
    assert occupancy(write_container(Container(ptx.data, arch, cubin=made.data))) == occupancy(made)


def test_unlinked_code_is_refused() -> None:
    with raises(FormatError, "format", "linked"):
        occupancy(compile(ONE, arch="sm_90", rdc=True))


def test_unlinked_code_in_a_fatbin_is_reported() -> None:
    image = bundle([compile(ONE, arch="sm_90", rdc=True), compile(ONE, arch="compute_90")])
    with raises(FormatError, "format", "sm_90", "linked") as caught:
        occupancy(image, on="H200")
    assert caught.value.help == "cujit.link([image], arch='sm_90')"


def test_several_kernels_require_a_choice(cubin: Artifact) -> None:
    with raises(NameNotFoundError, "name-not-found", "3", "axpy<double>", "axpy<float>", "tile"):
        occupancy(cubin)
    with raises(NameNotFoundError, "name-not-found", "tille"):
        occupancy(cubin, kernel="tille")
    with raises(NameNotFoundError, "name-not-found", "0", "kernels"):
        occupancy(compile("__device__ int x;", arch="sm_90"))


def test_damaged_images_are_reported(cubin: Artifact) -> None:
    for data in (cubin.data[:100], b"\x7fELF", b"\x50\xed\x55\xba" + bytes(20), b"nothing"):
        with pytest.raises(CujitError):
            occupancy(data, kernel="tile", on="H200")


# -- blocks -----------------------------------------------------------------------------------------------------


def test_default_block_is_the_best(cubin: Artifact) -> None:
    assert occupancy(cubin, kernel="axpy<float>").block == 1024
    assert occupancy(cubin, kernel="tile").block == 128
    assert occupancy(registers=32, on="RTX 5090").block == 768


def test_block_may_have_three_dimensions(cubin: Artifact) -> None:
    assert occupancy(cubin, (16, 2, 3), kernel="tile") == occupancy(cubin, 96, kernel="tile")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (129, ("block-size", "129", "tile", "128")),
        (1025, ("block-size", "1025", "GPU", "1024")),
        (0, ("grid-size", "block.x", "0")),
        ("32", ("grid-size", "block.x", "str")),
    ],
)
def test_impossible_blocks_are_refused(cubin: Artifact, block: int, message: tuple[str, ...]) -> None:
    with raises(LaunchError, *message):
        occupancy(cubin, block, kernel="tile")


def test_shared_memory_may_depend_on_the_block() -> None:
    found = occupancy(registers=32, on="H200", shared_bytes=lambda threads: 256 * threads)
    assert found.shared_bytes == 256 * found.block
    with raises(LaunchError, "shared-memory-size", "shared_bytes", "-1"):
        occupancy(registers=32, on="H200", shared_bytes=-1)


def test_default_shared_memory_limit_is_48_kib() -> None:
    assert occupancy(registers=32, on="H200", block=128, shared_bytes=60_000).active_blocks == 3
    assert occupancy(registers=32, on="H200", block=128, shared_bytes=60_000, opt_in=False).active_blocks == 0
    assert occupancy(registers=32, on="H200", block=128, shared_bytes=48 << 10, opt_in=False).active_blocks == 4


def test_required_block_is_the_only_one() -> None:
    ptx = compile(ONE, arch="compute_90").text.replace(")\n{", ")\n.reqntid 96, 1, 1\n{", 1)
    assert ".reqntid" in ptx
    from cujit.program import link

    image = link([Artifact.of(ptx)], arch="sm_90")
    assert occupancy(image).block == 96
    assert subject(image).blocks == (96,)
    with raises(LaunchError, "block-size", "one", "96", "128"):
        occupancy(image, 128)


def test_clusters_come_from_the_kernel_or_an_argument() -> None:
    image = compile('extern "C" __global__ void __cluster_dims__(4, 1, 1) four(int* p) { *p = 1; }', arch="sm_90")
    found = occupancy(image, 1024, on="H200")
    assert (found.cluster, found.clusters_bound) == (4, 66)
    assert occupancy(image, 1024, on="H200", cluster=8).clusters_bound == 33
    assert "at most 66 clusters of 4 at a time" in str(found)
    with raises(LaunchError, "cluster-size", "sm_80", "clusters"):
        occupancy(registers=32, on="A100", cluster=2)


# -- numbers ----------------------------------------------------------------------------------------------------


def test_numbers_may_replace_an_image() -> None:
    found = occupancy(
        registers=72, static_shared_bytes=16384, barriers=2, max_threads=512, on="sm_90", processors=10, block=256
    )
    assert (found.active_blocks, found.cooperative_blocks) == (3, 30)
    assert str(found).splitlines() == [
        "a kernel of 72 registers on sm_90, 10 multiprocessors, blocks of 256",
        "  37.5% occupancy: 3 blocks at a time, 24 of 64 warps; limited by registers",
        "  uses 72 registers a thread, 16,384 bytes of static and 0 of dynamic shared memory a block",
        "  for one block more: 64 registers or less: 4 blocks, 50.0%",
    ]


def test_numbers_may_override_those_of_an_image(cubin: Artifact) -> None:
    assert occupancy(cubin, 128, kernel="tile", static_shared_bytes=0).active_blocks == 16
    assert occupancy(cubin, 128, kernel="tile", registers=128).active_blocks == 4


@pytest.mark.parametrize(("given", "missing"), [({"registers": 32}, "on"), ({"on": "H200"}, "registers"), ({}, "on")])
def test_missing_numbers_are_named(given: dict[str, int], missing: str) -> None:
    with raises(ArgumentError, "argument", missing):
        occupancy(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"registers": 1.5}, {"registers": -1}, {"barriers": "2"}, {"max_threads": 0}, {"carveout_percent": 200}]
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    name = next(iter(wrong))
    with raises(LaunchError, "launch", name):
        occupancy(**({"registers": 32, "on": "H200"} | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("cluster", ["8", 2.5, True], ids=["text", "float", "bool"])
def test_cluster_is_an_int(cluster: Any) -> None:
    with raises(LaunchError, "launch", "cluster", type(cluster).__name__):
        occupancy(registers=32, on="H200", cluster=cluster)


def test_bool_is_not_a_number() -> None:
    with raises(LaunchError, "launch", "registers", "bool True"):
        occupancy(registers=True, on="H200")


def test_tensor_memory_limits_occupancy() -> None:
    source = """
    extern "C" __global__ void tensor(unsigned* p) {
        __shared__ unsigned at;
        unsigned a = (unsigned)__cvta_generic_to_shared(&at);
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" :: "r"(a) : "memory");
        *p = at;
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" :: "r"(at));
    }
    """
    image = compile(source, arch="sm_100a")
    found = occupancy(image, 128, on="B200")
    assert found.demand.virtual_resources == read_cubin(image.data).kernels[0].virtual_resources == 128
    assert (found.active_blocks, found.limited_by) == (1, (Limiter.VIRTUAL,))


def test_file_without_device_code_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "host.o"
    path.write_bytes(host_elf(b"", 1, b".text"))
    with raises(FormatError, "format", "host.o"):
        occupancy(path, on="H200")


def test_damaged_file_is_named(cubin: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "cut.cubin"
    path.write_bytes(cubin.data[:3000])
    with raises(FormatError, "format", "cut.cubin", "3000"):
        occupancy(path, kernel="tile")


def test_gpu_of_unknown_size_has_no_waves() -> None:
    found = occupancy(registers=32, on="sm_90", grid=10, cluster=2)
    assert (found.waves, found.cooperative_blocks, found.clusters_bound) == (None, None, None)
    assert (found.grid, found.cluster) == (10, 2)
    assert "waves" not in str(found)


def test_processors_below_one_are_refused() -> None:
    with raises(ArchError, "arch", "0", "processors"):
        occupancy(registers=32, on="H200", processors=0)


def test_every_product_answers() -> None:
    for product in PRODUCTS:
        found = occupancy(registers=32, on=product.name)
        assert found.fraction == 1.0, product
        assert found.cooperative_blocks == found.active_blocks * (product.processors or 0)


# -- loaded kernels ---------------------------------------------------------------------------------------------


GPU = SimpleNamespace(
    name="cuda:0", product="NVIDIA H200", arch=Arch.parse("sm_90"), is_gpu=True, limits=SimpleNamespace(processors=132)
)


class Loaded:
    """A kernel as a GPU would hold it; there is none here."""

    name = "tile"
    device = GPU
    resources = Resources(32, 20000, 0, 0, 128)


def test_loaded_kernel_uses_its_own_device() -> None:
    loaded = cast(LoadedKernel, Loaded())
    found = occupancy(loaded, 128)
    assert (found.kernel, found.active_blocks, found.cooperative_blocks) == ("tile", 11, 11 * 132)
    assert Limiter.BARRIERS not in found.limits, "a driver does not tell the barriers"
    assert occupancy(loaded, 128, kernel="tile", on="H100 PCIe").cooperative_blocks == 11 * 114
    with raises(LaunchError, "block-size", "tile", "128"):
        occupancy(loaded, 256)
    with raises(ArchError, "arch-mismatch", "sm_90", "A100 (sm_80)"):
        occupancy(loaded, on="A100")
    with raises(ArgumentError, "argument", "tile", "axpy"):
        occupancy(loaded, kernel="axpy")


def test_kernel_on_the_cpu_device_has_no_registers() -> None:
    kernel = load(compile(ONE, arch="compute_90"), "cpu")["one"]
    assert isinstance(kernel, LoadedKernel)
    with raises(ArgumentError, "argument", "cpu", "PTX", "registers="):
        occupancy(kernel, on="H200")
    with raises(ArgumentError, "argument", "GPU", "on='H200'"):
        occupancy(kernel, registers=32)
    assert occupancy(kernel, registers=32, on="H200").active_blocks == 2


def test_cpu_device_is_not_a_gpu(cpu: Device) -> None:
    with raises(ArgumentError, "device-mismatch"):
        occupancy(registers=32, on=cpu)


# -- drawing ----------------------------------------------------------------------------------------------------


def test_plot_is_written_as_svg_or_png(cubin: Artifact, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = plot(tmp_path / "tile.svg", cubin, kernel="tile", on="H200")
    assert path.read_text().startswith("<?xml")
    with raises(OptionError, "option", "tile.pdf"):
        plot(tmp_path / "tile.pdf", cubin, kernel="tile")


def test_plot_without_a_path_is_refused(cubin: Artifact) -> None:
    with raises(OptionError, "option", "3", "plot"):
        plot(3, cubin, kernel="tile")  # type: ignore[arg-type]
