"""The ways of PTX to a real GPU, and the options of its driver's JIT."""

from __future__ import annotations

import os
import uuid
from typing import Any

import numpy as np
import pytest

from cujit.arch import Arch, ArchKind
from cujit.arch.support import RELEASES
from cujit.artifact import Artifact
from cujit.devices.cuda.assembler import installed_assembler
from cujit.devices.cuda.linker import DriverLinker, link_with_driver
from cujit.devices.cuda.rules import newest_ptx
from cujit.devices.device import Device
from cujit.devices.jit_options import JitOptions
from cujit.errors import ClosedError, DriverError, LinkError
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.retarget import retarget
from cujit.loading import Module, jit, load
from cujit.program import bundle, compile
from devices.cuda.gpus import context_of
from raising import raises

pytestmark = pytest.mark.gpu

CODE = 'extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {' + (
    " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i]; }"
)
# A header newer than any driver below CUDA 13.4 takes; everything in the text is old.
NEWEST = RELEASES[-1].ptx


@pytest.fixture(scope="module")
def newer(gpu: Device) -> Artifact:
    """PTX whose ``.version`` the driver refuses."""
    newest = newest_ptx(context_of(gpu).driver.version)
    if newest is None or newest >= NEWEST:
        pytest.skip(f"the driver takes PTX {NEWEST[0]}.{NEWEST[1]}")
    return retarget(compile(CODE, arch="compute_75"), version=NEWEST)


def check(module: Module, gpu: Device) -> None:
    x, y = gpu.array(np.arange(1000, dtype=np.float32)), gpu.array(np.ones(1000, np.float32))
    module["axpy"].over(1000)(2.0, x, y, 1000)
    np.testing.assert_array_equal(y.numpy(), np.arange(1000, dtype=np.float32) * 2 + 1)


def test_driver_itself_refuses_that_header(gpu: Device, newer: Artifact) -> None:
    with context_of(gpu) as driver:
        status, *_ = driver.attempt("cuModuleLoadData", newer.data + b"\0")
    assert status.name == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"


def test_newer_ptx_is_assembled_by_nvjitlink_and_runs(gpu: Device, newer: Artifact) -> None:
    assembler = installed_assembler()
    if assembler is None or assembler.version[0] > context_of(gpu).driver.version[0]:
        pytest.skip("there is no nvJitLink whose code this driver loads")
    module = load(newer, gpu)
    assert f"assembled by {assembler.name} to a cubin for {gpu.arch}" in module.route
    check(module, gpu)


def test_newer_ptx_is_lowered_without_nvjitlink_and_runs(gpu: Device, newer: Artifact) -> None:
    module = load(newer, gpu, jit={"assembler": "driver"})
    major, minor = newest_ptx(context_of(gpu).driver.version) or (0, 0)
    assert module.route.endswith(f"to {major}.{minor}, through the driver's JIT")
    assert module.load_s > 0
    check(module, gpu)


def test_newer_ptx_of_a_fatbin_takes_both_routes(gpu: Device, newer: Artifact) -> None:
    fatbin = bundle([newer])
    for options in ({}, {"assembler": "driver"}):
        module = load(fatbin, gpu, jit=options)
        assert module.route.startswith("PTX compute_75 of the fatbin")
        check(module, gpu)


def test_construct_newer_than_the_driver_is_named(gpu: Device) -> None:
    if (newest_ptx(context_of(gpu).driver.version) or (99, 0)) >= (9, 1):
        pytest.skip("the driver takes what came with PTX 9.1")
    text = (
        ".version 9.4\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %r<3>;\n"
        ".local .b32 l;\nld.volatile.local.u32 %r1, [l];\nret;\n}\n"
    )
    with pytest.raises(DriverError) as caught:
        load(text, gpu, jit={"assembler": "driver"})
    assert "line 8: ld.volatile.local.u32 came with PTX 9.1" in str(caught.value)
    assert caught.value.result == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"


def test_ptx_of_nvrtc_for_this_gpu_loads(gpu: Device) -> None:
    check(load(compile(CODE, arch=Arch(ArchKind.VIRTUAL, gpu.arch.number)), gpu), gpu)
    check(load(compile(CODE, arch="compute_75"), gpu, jit={"assembler": "driver"}), gpu)


def test_lowest_version_runs_too(gpu: Device) -> None:
    text = retarget(compile(CODE, arch="compute_75"), version="6.3")
    assert parse(text.text).version == (6, 3)
    check(load(text, gpu), gpu)


# -- options of the JIT -----------------------------------------------------------------------------------

MANY = (
    'extern "C" __global__ void many(float* p) {'
    + "".join(f"float a{i} = p[{i}];" for i in range(96))
    + "__syncthreads();"
    + "".join(f"p[{i}] = a{95 - i} * a{i};" for i in range(96))
    + "}"
)


@pytest.mark.hardware
@pytest.mark.parametrize("assembler", ["driver", "nvjitlink"])
def test_register_limit_can_be_specified(gpu: Device, assembler: str) -> None:
    if assembler == "nvjitlink" and installed_assembler() is None:
        pytest.skip("nvJitLink is not installed")
    text = retarget(compile(MANY, arch="compute_75"), version="8.0")
    options = {"assembler": assembler}
    free = load(text, gpu, jit=options)["many"].resources.registers
    few = load(text, gpu, jit={**options, "max_registers": 32})["many"].resources.registers
    assert few is not None
    assert free is not None
    assert few <= 32 < free


def test_every_option_is_accepted_by_the_driver(gpu: Device) -> None:
    text = retarget(compile(CODE, arch="compute_75", options={"lineinfo": True}), version="8.0")
    given: list[dict[str, Any]] = [
        {"opt_level": 0, "debug": True},
        {"opt_level": 4, "line_info": True},
        *({"cache_mode": mode} for mode in ("none", "ca", "cg")),
    ]
    for options in given:
        check(load(text, gpu, jit={"assembler": "driver", **options}), gpu)


@pytest.mark.hardware
def test_log_of_the_jit_is_the_modules(gpu: Device) -> None:
    name = f"axpy_{os.getpid()}"  # what the driver compiled before, it does not compile again
    text = retarget(compile(CODE.replace("axpy", name), arch="compute_75"), version="8.0")
    assert name in load(text, gpu, jit={"assembler": "driver"}).log


# -- the driver's linker ----------------------------------------------------------------------------------

CALLER = "extern __device__ int helper(int); " + 'extern "C" __global__ void k(int* p) { *p = helper(20); }'
CALLEE = "__device__ int helper(int i) { return i + 22; }"


def rdc(source: str, arch: str) -> Artifact:
    made = compile(source, arch=arch, rdc=True)
    return retarget(made, version="8.0") if arch.startswith("compute") else made


@pytest.mark.parametrize("kind", ["ptx", "mixed"])
def test_driver_links_ptx_and_cubins(gpu: Device, kind: str) -> None:
    callee = rdc(CALLEE, "compute_75" if kind == "ptx" else str(gpu.arch))
    try:
        linked = link_with_driver(context_of(gpu), gpu.arch, [rdc(CALLER, "compute_75"), callee])
    except LinkError:
        if kind == "mixed":
            pytest.skip("this driver is older than the cubin")
        raise
    out = gpu.zeros(1, np.int32)
    load(linked, gpu)["k"][1, 1](out)
    assert out.numpy()[0] == 42


def test_driver_links_files(gpu: Device, tmp_path: Any) -> None:
    with DriverLinker(context_of(gpu), JitOptions()) as linker:
        for number, source in enumerate((CALLER, CALLEE)):
            made = rdc(source, "compute_75")
            linker.add_file(made.kind, made.save(tmp_path / f"{number}.ptx"))
        cubin = linker.complete()
    assert "k" in load(cubin, gpu)


def test_link_failure_has_the_drivers_reason(gpu: Device) -> None:
    # A name of its own: the driver's cache has been seen to answer for a link of the same PTX with its other half.
    name = f"helper_{uuid.uuid4().hex}"
    with pytest.raises(LinkError) as caught:
        link_with_driver(context_of(gpu), gpu.arch, [rdc(CALLER.replace("helper", name), "compute_75")])
    assert name in str(caught.value)
    assert caught.value.call == "cuLinkComplete"


def test_kind_that_the_driver_does_not_link_is_refused(gpu: Device) -> None:
    ltoir = compile(CALLEE, to="ltoir", arch="compute_80")
    with raises(LinkError, "link", "ltoir"):
        link_with_driver(context_of(gpu), gpu.arch, [ltoir])


def test_closed_link_is_refused(gpu: Device) -> None:
    linker = DriverLinker(context_of(gpu), JitOptions())
    linker.close()
    linker.close()
    with pytest.raises(ClosedError):
        linker.complete()


# -- blocks that run together -----------------------------------------------------------------------------

BARRIER = r"""
extern "C" __global__ void meet(unsigned* counter, unsigned* seen) {
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(counter, 1u);
        while (*(volatile unsigned*)counter < gridDim.x) {}
        seen[blockIdx.x] = 1;
    }
}
"""


@pytest.mark.hardware
def test_reported_number_of_blocks_is_resident(gpu: Device) -> None:
    kernel = jit(BARRIER, device=gpu)["meet"]
    shape = kernel.cooperative_shape()
    seen = gpu.zeros(shape.blocks, np.uint32)
    kernel[shape.blocks, shape.block](gpu.zeros(1, np.uint32), seen)
    assert seen.numpy().all()
