"""Modules and kernels in other processes: sent by pickle, loaded where they arrive."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from raising import raises

SOURCE = """
__device__ int calls = 5;
template <class T> __global__ void add(T *x, T y) { x[threadIdx.x] += y; }
extern "C" __global__ void count(int *x) { x[0] = calls++; }
"""


@pytest.fixture
def module(device: Device) -> cujit.Module:
    return cujit.jit(SOURCE, names=["add<float>"], device=device)


def summed(kernel: cujit.Kernel) -> tuple[str, str, list[float]]:
    """Run ``add``, where this is called."""
    x = kernel.device.array(np.arange(4, dtype=np.float32))
    kernel[1, 4](x, 0.5)
    return kernel.device.name, kernel.name, x.numpy().tolist()


def counted(pair: tuple[cujit.Module, cujit.Kernel]) -> list[int]:
    """Count twice by the module's kernel, and once by one that came with it."""
    module, kernel = pair
    x = module.device.zeros(1, np.int32)
    found = []
    for each in (module["count"], module["count"], kernel):
        each[1, 1](x)
        found.append(int(x.numpy()[0]))
    return found


def elsewhere(function: Callable[[Any], Any], argument: object) -> Any:
    """Call a function in a process that knows nothing yet."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, argument).result(timeout=120)


def test_pickled_kernel_runs_in_another_process(module: cujit.Module) -> None:
    kernel = module["add<float>"]
    assert elsewhere(summed, kernel) == (module.device.name, "add<float>", [0.5, 1.5, 2.5, 3.5])


def test_objects_pickled_together_are_loaded_once(module: cujit.Module) -> None:
    module["count"][1, 1](module.device.zeros(1, np.int32))
    assert elsewhere(counted, (module, module["count"])) == [5, 6, 7]  # as the image has it


def test_copy_in_one_process_is_loaded_separately(module: cujit.Module) -> None:
    other = copy.deepcopy(module)
    assert other is not module
    assert other.artifact == module.artifact
    other.close()
    assert summed(module["add<float>"])[2] == [0.5, 1.5, 2.5, 3.5]


def test_checks_of_a_device_travel(cpu: Device) -> None:
    checked = cujit.cpu(check="memory")
    kernel = cujit.jit(SOURCE, names=["add<float>"], device=checked)["add<float>"]
    same = pickle.loads(pickle.dumps(kernel))
    assert same.device is checked
    x = same.device.zeros(2, np.float32)
    with raises(cujit.errors.KernelFaultError, "fault-memory", "add<float>"):
        same[1, 64](x, 0.5)
    assert pickle.loads(pickle.dumps(cpu)) is cpu


def test_closed_object_cannot_be_pickled(module: cujit.Module) -> None:
    kernel = module["count"]
    module.close()
    for each in (module, kernel):
        with pytest.raises(cujit.errors.ClosedError):
            pickle.dumps(each)


@pytest.mark.gpu
def test_missing_gpu_is_replaced_by_the_first(gpu: Device) -> None:
    data = pickle.dumps(gpu).replace(b"K\x00\x85", b"K\x63\x85")  # number 99
    assert pickle.loads(data) is gpu
