"""Functions of modules and kernels of libraries: their attributes, and functions that set them."""

from __future__ import annotations

import re

from cujit.devices.backend import BackendKernel
from cujit.devices.cpu.module import CpuModule
from cujit.emulator import device
from cujit.emulator.entries import in_context, require, started, store_u32, store_u64, unfailed
from cujit.emulator.machine import cell_is, constant
from cujit.emulator.modules import CARVEOUT, MAX_DYNAMIC, SHARED_MODE, FunctionSettings, function_of, kernel_of
from cujit.emulator.process import emulation
from cujit.emulator.structures import CellKind

# -- functions and kernels ----------------------------------------------------------------------------------------


@in_context("cuKernelGetFunction", "PP")
def kernel_get_function(context: int, out: int, handle: int) -> None:
    """Write the function of a kernel in the current context."""
    require(out)
    store_u64(out, kernel_of(handle).function(context).handle)


@started("cuKernelGetLibrary", "PP")
def kernel_get_library(out: int, handle: int) -> None:
    """Write the library of a kernel."""
    require(out)
    store_u64(out, kernel_of(handle).library.handle)


@unfailed("cuFuncGetModule", "PP")
def func_get_module(out: int, handle: int) -> None:
    """Write the module of a function."""
    require(out)
    store_u64(out, function_of(handle).module.handle)


def _kernel_behind(handle: int) -> BackendKernel:
    if cell_is(handle, CellKind.KERNEL):
        return kernel_of(handle).kernel
    return function_of(handle).kernel


@started("cuKernelGetName cuFuncGetName", "PP")
def func_get_name(out: int, handle: int) -> None:
    """Write the name of a function or kernel."""
    require(out)
    store_u64(out, constant(_kernel_behind(handle).name))


@started("cuKernelGetParamInfo cuFuncGetParamInfo", "PPPP")
def func_get_param_info(handle: int, index: int, offset: int, size: int) -> None:
    """Write the offset of a parameter, and its size in bytes."""
    signature = _kernel_behind(handle).signature
    require(offset and index < len(signature))
    store_u64(offset, signature.offsets[index])
    if size:
        store_u64(size, signature.parameters[index].size)


@started("cuKernelGetParamCount cuFuncGetParamCount", "PP")
def func_get_param_count(handle: int, count: int) -> None:
    """Count the parameters."""
    signature = _kernel_behind(handle).signature
    store_u64(count, len(signature))


@unfailed("cuFuncIsLoaded", "PP")
def func_is_loaded(state: int, handle: int) -> None:
    """Report that a function is loaded."""
    require(state)
    function_of(handle)
    store_u32(state, 1)


@unfailed("cuFuncLoad", "P")
def func_load(handle: int) -> None:
    """Load a function, which is there."""
    function_of(handle)


# -- attributes ---------------------------------------------------------------------------------------------------

# Source: CUDA Driver API manual, ``CUfunction_attribute``.
_MAX_THREADS, _SHARED, _CONSTANT, _LOCAL, _REGISTERS, _PTX_VERSION, _BINARY_VERSION, _MODE = range(8)
_NEEDS_CLUSTER, _END = 10, 18

_LAST_SHARED_MODE = 4
"""Source: CUDA Driver API manual, ``CUsharedMemoryMode``."""

_OPTIN_BYTES = 97
"""The attribute of the device that says how much shared memory a block can have."""

_NO_REGISTERS = 32
"""Registers of a thread: the CPU device has none, and clients divide by the number. By this one, registers limit
nothing: a multiprocessor has 65536 of them for 2048 threads.
"""

_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)", re.MULTILINE)


def _attribute(number: int, kernel: BackendKernel, settings: FunctionSettings, module: CpuModule) -> int:
    require(0 <= number < _END)
    if number in settings.values:
        return settings.values[number]
    resources = settings.resources
    text = module.preparation.text
    target = _TARGET.search(text)
    known = {
        _MAX_THREADS: resources.max_threads,
        _SHARED: resources.shared_bytes,
        _CONSTANT: _constant_bytes(module) if number == _CONSTANT else 0,
        _LOCAL: resources.local_bytes or 0,
        _REGISTERS: _NO_REGISTERS,
        _PTX_VERSION: int(target[1]) if target else 0,
        _BINARY_VERSION: 10 * emulation().settings.cc[0] + emulation().settings.cc[1],
        _NEEDS_CLUSTER: ".explicitcluster" in text and kernel.own_cluster is None,
    }
    return int(known.get(number, 0))


def _constant_bytes(module: CpuModule) -> int:
    """Count the bytes of a module's own constants."""
    if ".const" not in module.preparation.text:
        return 0
    names = {each.name for each in module.preparation.ptx().variables if each.space == "const"}
    return sum(size for name, (_, size) in module.variables.items() if name in names)


def _set(number: int, value: int, settings: FunctionSettings) -> None:
    require(number in settings.values)
    if number == MAX_DYNAMIC:
        require(0 <= value <= device.attributes()[_OPTIN_BYTES] - settings.resources.shared_bytes)
    elif number == CARVEOUT:
        require(-1 <= value <= 100)
    else:
        require(value >= 0 and (number != SHARED_MODE or value <= _LAST_SHARED_MODE))
    settings.values[number] = value


@unfailed("cuFuncGetAttribute", "PIP")
def func_get_attribute(out: int, number: int, handle: int) -> None:
    """Write an attribute of a function."""
    require(out)
    function = function_of(handle)
    store_u32(out, _attribute(number, function.kernel, function.settings, function.module.device))


@unfailed("cuFuncSetAttribute", "PII")
def func_set_attribute(handle: int, number: int, value: int) -> None:
    """Set an attribute of a function."""
    function = function_of(handle)
    _set(number, value, function.settings)
    function.unready()


@started("cuKernelGetAttribute", "PIPI")
def kernel_get_attribute(out: int, number: int, handle: int, ordinal: int) -> None:
    """Write an attribute of a kernel on a device."""
    require(out)
    device.check(ordinal)
    kernel = kernel_of(handle)
    store_u32(out, _attribute(number, kernel.kernel, kernel.settings, kernel.library.any_module()))


@started("cuKernelSetAttribute", "IIPI")
def kernel_set_attribute(number: int, value: int, handle: int, ordinal: int) -> None:
    """Set an attribute of a kernel on a device."""
    device.check(ordinal)
    kernel = kernel_of(handle)
    _set(number, value, kernel.settings)
    for module in kernel.library.modules.values():
        if kernel.name in module.functions:
            module.functions[kernel.name].unready()


@started("cuKernelSetCacheConfig", "PII")
def kernel_set_cache_config(handle: int, config: int, ordinal: int) -> None:
    """Accept a cache preference, which has no effect."""
    device.check(ordinal)
    kernel_of(handle)
    require(0 <= config <= 3)


@unfailed("cuFuncSetCacheConfig", "PI")
def func_set_cache_config(handle: int, config: int) -> None:
    """Accept a cache preference, which has no effect."""
    function_of(handle)
    require(0 <= config <= 3)


@unfailed("cuFuncSetSharedMemConfig", "PI")
def func_set_shared_mem_config(handle: int, config: int) -> None:
    """Accept a preferred bank size of shared memory, which has no effect."""
    function_of(handle)
    require(0 <= config <= 2)
