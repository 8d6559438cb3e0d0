"""LLVM IR on devices: the same results by every route, on the CPU device and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.loading import load
from cujit.program import Source, compile, link
from llvm_ir import ADD_TWO, SCALE, SINE, kernel_that_calls

CALLS_F = 'extern "C" __device__ float f(float); __global__ void k(float* p) { *p = f(*p); }'


def arch_of(device: Device) -> str:
    return str(device.arch) if device.is_gpu else "sm_90"


def once(device: Device, image: Artifact, kernel: str, value: float) -> float:
    data = device.array(np.array([value], np.float32))
    load(image, device)[kernel][1, 1](data)
    return float(data.numpy()[0])


@pytest.mark.parametrize("language", ["cuda", "nvvm"])
def test_link_across_languages_runs_with_equal_results(device: Device, language: str) -> None:
    caller = Source.cuda(CALLS_F) if language == "cuda" else Source.nvvm(kernel_that_calls("f"))
    to = "cubin" if device.is_gpu else "ptx"
    image = link([caller, Source.nvvm(ADD_TWO)], to=to, arch=arch_of(device))
    assert once(device, image, "k", 40.0) == 42.0


def test_module_of_llvm_ir_runs(device: Device) -> None:
    image = compile(Source.nvvm(SCALE), to="cubin" if device.is_gpu else "ptx", arch=arch_of(device))
    assert once(device, image, "scale", 21.0) == 42.0


def test_libdevice_computes(device: Device) -> None:
    source = Source.nvvm(kernel_that_calls("f"), SINE, libdevice=True)
    image = compile(source, to="cubin" if device.is_gpu else "ptx", arch=arch_of(device))
    assert abs(once(device, image, "k", 0.5) - np.sin(0.5)) < 1e-6
