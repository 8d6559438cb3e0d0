"""Modules and libraries with their functions, kernels, and variables."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from cujit.artifact import Artifact
from cujit.devices.backend import BackendKernel
from cujit.devices.cpu.module import CpuModule
from cujit.devices.shapes import Resources
from cujit.emulator import contexts, images
from cujit.emulator.device_runtime import with_driver_functions
from cujit.emulator.entries import (
    current_context,
    in_context,
    new_cell,
    require,
    started,
    store_u32,
    store_u64,
    text_at,
    unfailed,
)
from cujit.emulator.images import JitLog
from cujit.emulator.machine import cell_free, cell_is, memory_adopt, memory_forget
from cujit.emulator.process import emulation
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import BlockKind, CellKind, FunctionCell, GraphExecCell, KernelCell, ParameterSpan
from cujit.errors import CujitError, NameNotFoundError, spell
from cujit.forks import Lock
from cujit.values import replace

LOCK = Lock()
"""Held while what is loaded, and what is ready to be launched, changes."""

_MOST_READY = 64
"""Launches of a function that stay ready: shapes of grid and block that C finds by itself."""


# -- what is loaded -----------------------------------------------------------------------------------------------


MAX_DYNAMIC, CARVEOUT, CLUSTER, NON_PORTABLE, SCHEDULING, SHARED_MODE = 8, 9, (11, 12, 13), 14, 15, 17
"""Attributes that a program may set. Source: CUDA Driver API manual, ``CUfunction_attribute``."""


class FunctionSettings:
    """The settings of a function that a program may change before a launch: attributes by their number."""

    def __init__(self, kernel: BackendKernel) -> None:
        self.resources = kernel.resources
        self.values = dict.fromkeys((*CLUSTER, NON_PORTABLE, SCHEDULING, SHARED_MODE), 0)
        self.values[CARVEOUT] = -1
        limits = emulation().device.limits
        self.values[MAX_DYNAMIC] = max(limits.shared_bytes - self.resources.shared_bytes, 0)
        self.values.update(zip(CLUSTER, kernel.own_cluster or (0, 0, 0), strict=True))


class LoadedFunction:
    """A function of a module; ``spans`` are its parameters as offset and size in bytes."""

    def __init__(self, module: LoadedModule, kernel: BackendKernel, settings: FunctionSettings) -> None:
        self.module, self.kernel, self.settings = module, kernel, settings
        signature = kernel.signature
        self.spans = list(zip(signature.offsets, (parameter.size for parameter in signature), strict=True))
        self.parameter_bytes = signature.size
        self._spans = (ParameterSpan * max(len(self.spans), 1))(*(ParameterSpan(*span) for span in self.spans))
        self._table = (ctypes.c_uint64 * _MOST_READY)()
        self._next = 0
        self._gone: list[int] = []
        self.graphs: set[int] = set()
        """Instantiated graphs that launch it without counting in ``running``."""
        self.handle = new_cell(CellKind.FUNCTION, module.context)
        self.cell = FunctionCell.from_address(self.handle)
        self.cell.parameters, self.cell.parameter_count = ctypes.addressof(self._spans), len(self.spans)
        self.cell.parameter_bytes, self.cell.ready = self.parameter_bytes, ctypes.addressof(self._table)

    def keep(self, address: int, needs: object) -> None:
        """Register a ready launch for C to find. A launch that was made long ago is dropped."""
        slot = self._next % _MOST_READY
        READY[address] = needs
        old, self._table[slot] = self._table[slot], address
        self._next += 1
        self.cell.count = min(self._next, _MOST_READY)
        self._drop([old] if old else [], among=1)

    def unready(self) -> None:
        """Drop all ready launches, so that they are prepared again, as they may differ now."""
        with LOCK:
            old = [address for address in self._table if address]
            self.cell.count = self._next = 0
            self._table[:] = [0] * _MOST_READY
            self._drop(old)

    def _drop(self, old: list[int], among: int = 0) -> None:
        """Free old launches as soon as no other thread uses launches. ``among`` is the number of using threads to
        ignore.
        """
        self._gone += old
        if not self._is_running(among):
            for address in self._gone:
                del READY[address]
            self._gone.clear()

    def _is_running(self, among: int = 0) -> bool:
        graphs = (GraphExecCell.from_address(graph) for graph in list(self.graphs))
        return self.cell.running > among or any(graph.running for graph in graphs)

    def free(self) -> None:
        """Prevent new launches of the function, and wait for running launches."""
        cell_free(self.handle, CellKind.FUNCTION)
        FUNCTIONS.pop(self.handle, None)
        while self._is_running() and self.cell.kind == CellKind.FREE:
            time.sleep(0.0002)
        self.unready()


class LoadedModule:
    """A module in a context."""

    def __init__(self, context: int, device: CpuModule) -> None:
        self.context, self.device = context, device
        self.functions: dict[str, LoadedFunction] = {}
        self.handle = new_cell(CellKind.MODULE, context)
        MODULES[self.handle] = self
        memory = device.memory
        memory_adopt(memory.address, memory.size, BlockKind.IMAGE, 0, context)

    def function(self, name: str, settings: FunctionSettings | None = None) -> LoadedFunction:
        """Return the function of the module that is called ``name``.

        Raises:
            NameNotFoundError: no kernel or variable has this name.
            UnsupportedError: the CPU device doesn't support the function.
        """
        kernel = _kernel_of(self.device, name)
        with LOCK:
            if name not in self.functions:
                made = LoadedFunction(self, kernel, settings or FunctionSettings(kernel))
                self.functions[name] = FUNCTIONS[made.handle] = made
            return self.functions[name]

    def unload(self) -> None:
        """Free the module with its functions and memory."""
        MODULES.pop(self.handle, None)
        cell_free(self.handle, CellKind.MODULE)
        for function in self.functions.values():
            function.free()
        memory_forget(self.device.memory.address, BlockKind.IMAGE)
        self.device.close()


class KernelLibrary:
    """A library with a module in each context that uses the library."""

    def __init__(self, artifact: Artifact, first: CpuModule) -> None:
        self._artifact = artifact
        self._first: CpuModule | None = first
        self.names = list(first.kernels)
        self.modules: dict[int, LoadedModule] = {}
        self.kernels: dict[str, LibraryKernel] = {}
        self.handle = new_cell(CellKind.LIBRARY)
        LIBRARIES[self.handle] = self

    def module(self, context: int) -> LoadedModule:
        """Return the module of the library in a context."""
        with LOCK:
            if context not in self.modules:
                device, self._first = self._first or emulation().device.load(self._artifact), None
                self.modules[context] = LoadedModule(context, device)
            return self.modules[context]

    def any_module(self) -> CpuModule:
        """Return one module of the library, for properties that are the same in all contexts."""
        if not self.modules and self._first is None:
            self._first = emulation().device.load(self._artifact)
        return self._first or next(iter(self.modules.values())).device

    def kernel(self, name: str) -> LibraryKernel:
        """Find a kernel. Raises as ``LoadedModule.function``."""
        known = _kernel_of(self.any_module(), name)
        with LOCK:
            if name not in self.kernels:
                self.kernels[name] = LibraryKernel(self, name, known)
            return self.kernels[name]

    def unload(self) -> None:
        """Free the library with its kernels and modules."""
        LIBRARIES.pop(self.handle, None)
        cell_free(self.handle, CellKind.LIBRARY)
        for kernel in self.kernels.values():
            KERNELS.pop(kernel.handle, None)
            cell_free(kernel.handle, CellKind.KERNEL)
        for module in self.modules.values():
            module.unload()

    def leave(self, context: int) -> None:
        """Forget a context that has ended."""
        self.modules.pop(context, None)


class LibraryKernel:
    """A kernel of a library, which is a function in each context."""

    def __init__(self, library: KernelLibrary, name: str, kernel: BackendKernel) -> None:
        self.library, self.name, self.kernel = library, name, kernel
        self.settings = FunctionSettings(kernel)
        self.handle = new_cell(CellKind.KERNEL)
        KERNELS[self.handle] = self

    def function(self, context: int) -> LoadedFunction:
        """Return the function of the kernel in a context, which C finds from now on."""
        function = self.library.module(context).function(self.name, self.settings)
        KernelCell.from_address(self.handle).function = function.handle
        return function


MODULES: dict[int, LoadedModule] = {}
FUNCTIONS: dict[int, LoadedFunction] = {}
LIBRARIES: dict[int, KernelLibrary] = {}
KERNELS: dict[int, LibraryKernel] = {}
"""What handles stand for."""

READY: dict[int, Any] = {}
"""What launches that are ready need to live, by the address of each ``ReadyLaunch``."""


def _kernel_of(module: CpuModule, name: str) -> BackendKernel:
    kernel = module.kernels.get(name)
    if kernel is None:
        raise NameNotFoundError(
            f"there is no function named {spell(name)} in this module: it contains "
            f"{', '.join(module.kernels) or 'none'}"
        )
    assert isinstance(kernel.resources, Resources)  # of one that is not executed it is an error
    return kernel


@contexts.at_end
def _ended(context: int, _is_primary: bool) -> None:
    for library in LIBRARIES.values():
        library.leave(context)
    for module in [module for module in MODULES.values() if module.context == context]:
        module.unload()


_Kept = TypeVar("_Kept")


def _found(table: dict[int, _Kept], kind: CellKind, handle: int) -> _Kept:
    require(cell_is(handle, kind) and handle in table, Result.INVALID_HANDLE)
    return table[handle]


def module_of(handle: int) -> LoadedModule:
    """Return the module of the current context with a handle. Raises ``RefusedCall`` for other handles."""
    return _found(MODULES, CellKind.MODULE, handle)


def library_of(handle: int) -> KernelLibrary:
    """Return the library with a handle. Raises ``RefusedCall`` for other handles."""
    return _found(LIBRARIES, CellKind.LIBRARY, handle)


def kernel_of(handle: int) -> LibraryKernel:
    """Return the library kernel with a handle. Raises ``RefusedCall`` for other handles."""
    return _found(KERNELS, CellKind.KERNEL, handle)


def function_of(handle: int) -> LoadedFunction:
    """Find a function; a kernel passes for the one that it is in the current context.

    Raises:
        Refused: the value is invalid.
    """
    if cell_is(handle, CellKind.KERNEL):
        return kernel_of(handle).function(current_context())
    return _found(FUNCTIONS, CellKind.FUNCTION, handle)


# -- loading ----------------------------------------------------------------------------------------------------


def _device_module(data: Callable[[], bytes], log: JitLog) -> tuple[Artifact, CpuModule]:
    """Load an image on the CPU device, and write the log to the caller's buffers."""
    try:
        artifact = images.ptx_of(data())
        whole = with_driver_functions(artifact.data)
        artifact = artifact if whole is artifact.data else replace(artifact, data=whole)
        module = emulation().device.load(artifact)
    except RefusedCall as e:
        log.write(error=e.words)
        raise
    except CujitError as e:
        refused = images.refused_by(e)
        log.write(error=refused.words)
        raise refused from e
    left = "".join(f"kernel {name} is not executed here\n" for name in module.refused)
    log.write(info=left)
    return artifact, module


def _load(context: int, out: int, data: Callable[[], bytes], log: JitLog) -> None:
    require(out)
    store_u64(out, LoadedModule(context, _device_module(data, log)[1]).handle)


@in_context("cuModuleLoadData cuModuleLoadFatBinary", "PP")
@in_context("cuModuleLoadDataEx", "PPUPP")
def module_load_data(context: int, out: int, image: int, count: int = 0, options: int = 0, values: int = 0) -> None:
    """Load an image from memory, with options of the compiler if there are some."""
    require(image)
    _load(context, out, lambda: images.bytes_at(image), JitLog(count, options, values))


@in_context("cuModuleLoad", "PP")
def module_load(context: int, out: int, path: int) -> None:
    """Load an image from a file."""
    name = text_at(path)
    _load(context, out, lambda: images.file_bytes(name), JitLog(0, 0, 0))


@unfailed("cuModuleUnload", "P")
def module_unload(handle: int) -> None:
    """Unload a module. Refuse modules that belong to a library."""
    module = module_of(handle)
    require(all(module not in library.modules.values() for library in LIBRARIES.values()), Result.INVALID_HANDLE)
    module.unload()


def _library(out: int, data: Callable[[], bytes], log: JitLog, options: tuple[int, int, int]) -> None:
    require(out)
    values, numbers, count = options
    require(not count or (numbers and values))
    for number in (ctypes.c_uint32 * count).from_address(numbers) if count else ():
        require(number in (0, 1))
    store_u64(out, KernelLibrary(*_device_module(data, log)).handle)


@started("cuLibraryLoadData", "PPPPUPPU")
def library_load_data(
    out: int, image: int, options: int, values: int, count: int, own: int, own_values: int, own_count: int
) -> None:
    """Load a library from memory; no context is needed."""
    require(image)
    log = JitLog(count, options, values)
    _library(out, lambda: images.bytes_at(image), log, (own_values, own, own_count))


@started("cuLibraryLoadFromFile", "PPPPUPPU")
def library_load_from_file(
    out: int, path: int, options: int, values: int, count: int, own: int, own_values: int, own_count: int
) -> None:
    """Load a library from a file."""
    name = text_at(path)
    log = JitLog(count, options, values)
    _library(out, lambda: images.file_bytes(name), log, (own_values, own, own_count))


@started("cuLibraryUnload", "P")
def library_unload(handle: int) -> None:
    """Unload a library in all contexts."""
    library_of(handle).unload()


# -- what is in a module ----------------------------------------------------------------------------------------


@unfailed("cuModuleGetFunction", "PPP")
def module_get_function(out: int, handle: int, name: int) -> None:
    """Find a function by its name."""
    require(out and text_at(name))
    store_u64(out, module_of(handle).function(text_at(name)).handle)


def _store_variable(device: CpuModule, pointer: int, size: int, name: str) -> None:
    address, count = device.variable(name)
    if pointer:
        store_u64(pointer, address)
    if size:
        store_u64(size, count)


@unfailed("cuModuleGetGlobal_v2", "PPPP")
def module_get_global(pointer: int, size: int, handle: int, name: int) -> None:
    """Write the address and the size of a module's variable, which is identified by its name."""
    require((pointer or size) and text_at(name))
    _store_variable(module_of(handle).device, pointer, size, text_at(name))


@unfailed("cuModuleGetFunctionCount", "PP")
def module_get_function_count(count: int, handle: int) -> None:
    """Count the functions of a module."""
    store_u32(count, len(module_of(handle).device.kernels))


def _store_handles(out: int, most: int, handles: Iterable[int]) -> None:
    require(out and most)
    for k, handle in zip(range(most), handles, strict=False):
        store_u64(out + 8 * k, handle)


@unfailed("cuModuleEnumerateFunctions", "PUP")
def module_enumerate_functions(out: int, most: int, handle: int) -> None:
    """List the functions of a module."""
    module = module_of(handle)
    _store_handles(out, most, (module.function(name).handle for name in module.device.kernels))


@started("cuModuleGetLoadingMode", "P")
def module_get_loading_mode(mode: int) -> None:
    """Report whether modules are loaded when they are needed. Source: CUDA Driver API manual,
    ``CUmoduleLoadingMode``.
    """
    store_u32(mode, 1 if os.environ.get("CUDA_MODULE_LOADING") == "EAGER" else 2)


# -- what is in a library ---------------------------------------------------------------------------------------


@started("cuLibraryGetKernel", "PPP")
def library_get_kernel(out: int, handle: int, name: int) -> None:
    """Find a kernel by its name."""
    require(out)
    store_u64(out, library_of(handle).kernel(text_at(name)).handle)


@in_context("cuLibraryGetModule", "PP")
def library_get_module(context: int, out: int, handle: int) -> None:
    """Write the module of a library in the current context."""
    require(out)
    store_u64(out, library_of(handle).module(context).handle)


@in_context("cuLibraryGetGlobal", "PPPP")
def library_get_global(context: int, pointer: int, size: int, handle: int, name: int) -> None:
    """Find a variable in the current context."""
    require(pointer or size)
    _store_variable(library_of(handle).module(context).device, pointer, size, text_at(name))


@in_context("cuLibraryGetManaged", "PPPP")
def library_get_managed(context: int, pointer: int, size: int, handle: int, name: int) -> None:
    """Find a variable in memory that host and device share."""
    require(pointer or size)
    device, wanted = library_of(handle).module(context).device, text_at(name)
    managed = {each.name for each in device.preparation.ptx().variables if "managed" in each.attributes}
    require(wanted in managed, Result.NOT_FOUND, f"no managed variable {spell(wanted)}")
    _store_variable(device, pointer, size, wanted)


@started("cuLibraryGetUnifiedFunction", "PPP")
def library_get_unified_function(out: int, handle: int, name: int) -> None:
    """Refuse: no function is the same for host and device here."""
    require(out)
    library_of(handle)
    raise RefusedCall(Result.NOT_FOUND, f"there is no unified function named {spell(text_at(name))} in this module")


@started("cuLibraryGetKernelCount", "PP")
def library_get_kernel_count(count: int, handle: int) -> None:
    """Count the kernels of a library."""
    store_u32(count, len(library_of(handle).names))


@started("cuLibraryEnumerateKernels", "PUP")
def library_enumerate_kernels(out: int, most: int, handle: int) -> None:
    """List the kernels of a library."""
    library = library_of(handle)
    _store_handles(out, most, (library.kernel(name).handle for name in library.names))
