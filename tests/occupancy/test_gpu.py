"""Ours beside the driver's, on a real GPU: occupancy of twenty kernels at eight block sizes, and what they use."""

from __future__ import annotations

import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.devices.shapes import Resources
from cujit.formats.cubin import read_cubin
from cujit.loading import Module, load
from cujit.occupancy.choosing import block_sizes
from cujit.occupancy.products import find_product
from cujit.occupancy.subject import of as occupancy
from cujit.occupancy.subject import subject
from cujit.program import compile
from devices.cuda.gpus import context_of
from occupancy.kernels import CODE, DYNAMIC, NAMES

pytestmark = pytest.mark.gpu

BLOCKS = (32, 64, 96, 160, 256, 384, 640, 1024)


@pytest.fixture(scope="module")
def image(gpu: Device) -> Artifact:
    return compile(CODE, arch=gpu.arch, names=NAMES)


@pytest.fixture(scope="module")
def module(gpu: Device, image: Artifact) -> Module:
    return load(image, gpu)


def test_table_knows_this_gpu(gpu: Device) -> None:
    product = find_product(gpu.product)
    assert (product.arch.number, product.processors) == (gpu.arch.number, gpu.limits.processors)


def test_occupancy_is_the_drivers(gpu: Device, image: Artifact, module: Module) -> None:
    assert len(NAMES) == 20
    compared, running, differ = 0, 0, []
    for name in NAMES:
        found = subject(image, kernel=name, on=gpu)
        for block, dynamic in [(b, d) for b in BLOCKS for d in {0, DYNAMIC[BLOCKS.index(b)]}]:
            if block > found.demand.largest_block:
                continue
            ours = found.at(block, shared_bytes=dynamic).active_blocks
            if found.demand.shared_bytes + dynamic > gpu.limits.shared_bytes_optin:
                assert ours == 0
                continue  # the driver does not let such a launch be asked for
            said = module[name]._loaded.active_blocks(block, dynamic)
            compared += 1
            running += ours > 0
            if ours != said:
                differ.append((name, block, dynamic, ours, said))
    assert not differ
    assert compared > 150
    assert running > 120


def test_resource_usage_matches_the_driver(image: Artifact, module: Module, gpu: Device) -> None:
    cubin = read_cubin(image.data)
    for name in NAMES:
        kernel = cubin.kernel(module[name].lowered_name)
        found = subject(image, kernel=name, on=gpu)
        largest = max(n for n in block_sizes(found.demand) if found.at(n).active_blocks)
        assert module[name].resources == Resources(
            registers=kernel.registers,
            shared_bytes=kernel.shared_bytes,
            local_bytes=kernel.stack_bytes,
            constant_bytes=module[name].resources.constant_bytes,
            max_threads=largest,
        ), name


def test_loaded_kernel_and_its_image_agree(image: Artifact, module: Module, gpu: Device) -> None:
    for name in ("hold<72>", "tile<5000>", "bound<64>"):
        ours, theirs = occupancy(image, 64, kernel=name, on=gpu), occupancy(module[name], 64)
        assert (ours.active_blocks, ours.product) == (theirs.active_blocks, theirs.product)
        assert float(ours) == module[name].occupancy(64)
        assert ours.cooperative_blocks == module[name].cooperative_limit(64)


def test_best_block_is_the_drivers(image: Artifact, module: Module, gpu: Device) -> None:
    for name in NAMES:
        assert subject(image, kernel=name, on=gpu).best().block == module[name]._loaded.best_block(), name


def test_resident_clusters_are_at_most_the_bound(gpu: Device) -> None:
    if gpu.arch.number < 90:
        pytest.skip("no clusters before sm_90")
    code = 'extern "C" __global__ void __cluster_dims__(4, 1, 1) four(int* p) { *p = 1; }'
    image = compile(code, arch=gpu.arch)
    found = occupancy(image, 1024, on=gpu)
    assert (found.cluster, found.clusters_bound) == (4, found.active_blocks * gpu.limits.processors // 4)
    config = context_of(gpu).driver.bindings.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 4, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 1024, 1, 1
    kernel = gpu.load(image).kernels["four"]
    said = int(context_of(gpu).call("cuOccupancyMaxActiveClusters", kernel._function, config))  # type: ignore[attr-defined]
    assert 0 < said <= (found.clusters_bound or 0)
