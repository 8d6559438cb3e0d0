"""Kernels that launch kernels, and kernels of programmatic dependent launches: what a compile and a link add."""

from __future__ import annotations

import pytest

import cujit
from cujit.compiler.linking import needs_device_runtime
from cujit.errors import CompileError, LinkError, UnsupportedError
from raising import raises

NESTED = """
__global__ void child(int *p) { *p = 5; }
__global__ void parent(int *p) { child<<<1, 1>>>(p); }
"""
DEPENDENT = """{}
__device__ int ready(int x) {{ cudaGridDependencySynchronize(); return x; }}
__global__ void k(int *p) {{
    *p = ready(*p);
    ::cudaTriggerProgrammaticLaunchCompletion();
}}"""


@pytest.mark.parametrize("kind", ["cubin", "ptx", "ltoir"])
def test_link_takes_the_device_runtime_from_the_wheels(kind: str) -> None:
    image = cujit.compile(NESTED, to=kind, arch="sm_90", rdc=True)
    linked = cujit.link([image], arch="sm_90")
    assert {"child", "parent"} <= set(linked.names)
    assert all("device_runtime" not in name for name in linked.names)
    if kind == "ptx":
        assert needs_device_runtime(image)


def test_link_without_the_library_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cujit.compiler.linking.find_device_runtime", lambda _: None)
    image = cujit.compile(NESTED, to="cubin", arch="sm_90", rdc=True)
    with raises(LinkError, "link", "libcudadevrt.a"):
        cujit.link([image], arch="sm_90")


def test_device_launch_without_rdc_names_the_option() -> None:
    with pytest.raises(CompileError) as caught:
        cujit.compile(NESTED)
    assert "rdc=True" in (caught.value.help or "")


def test_cpu_device_refuses_a_launching_kernel_by_name() -> None:
    device = cujit.cpu()
    module, out = cujit.jit(NESTED, device=device, rdc=True), device.zeros(1, "int32")
    module["child"].over(1)(out)
    assert out.numpy().tolist() == [5]
    with raises(UnsupportedError, "unsupported", "parent"):
        module["parent"].over(1)(out)


@pytest.mark.parametrize("include", ["", "#include <cuda_device_runtime_api.h>", "#include <cooperative_groups.h>"])
def test_dependent_launches_need_no_header_but_accept_it(include: str) -> None:
    text = cujit.compile(DEPENDENT.format(include), arch="compute_90").text
    assert text.count("griddepcontrol.wait") == text.count("griddepcontrol.launch_dependents") == 1


def test_dependent_launches_run_on_the_cpu_device() -> None:
    device = cujit.cpu()
    out = device.zeros(1, "int32")
    cujit.jit(DEPENDENT.format(""), device=device)["k"].over(1)(out)
    assert out.numpy().tolist() == [0]


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_jit_links_for_the_architecture_of_its_device(kind: str) -> None:
    plain = "__device__ int twice(int x) { return 2 * x; }"
    caller = "__device__ int twice(int x); __global__ void k(int *p) { *p = twice(*p); }"
    images = [
        cujit.compile(text, to=kind, arch=arch, rdc=True) for text, arch in ((plain, "sm_90"), (caller, "sm_90a"))
    ]
    assert str(cujit.link(images, arch="sm_90").arch) == "sm_90a", "the Artifact says for what the code is"
