"""Launches: what C has not made ready, or cannot do by itself, and what becomes of a kernel that could not go on.

A fault is late, as on a GPU: the launch succeeds, the sentence goes to standard error, and the fault sticks to the
context, so that all later calls in it answer that. ``errors_now`` has the launch itself answer it, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Callable, Iterator, Mapping

from cujit.devices.backend import Target
from cujit.devices.cpu.native.structures import FaultKind
from cujit.devices.options import PLAIN, LaunchOptions
from cujit.devices.shapes import Dim3, LaunchShape, check_launch
from cujit.emulator import contexts, device, green_contexts
from cujit.emulator.capture import record_event
from cujit.emulator.entries import EntryPoint, in_any_context, load_u64, require
from cujit.emulator.machine import cell_is, for_c, guarded, in_c
from cujit.emulator.modules import (
    CLUSTER,
    LOCK,
    MAX_DYNAMIC,
    NON_PORTABLE,
    READY,
    SHARED_MODE,
    LoadedFunction,
    function_of,
    kernel_of,
)
from cujit.emulator.node_work import recorded_launch
from cujit.emulator.process import emulation, say
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import GO_ON, AskedLaunch, CellKind, ReadyLaunch
from cujit.errors import CujitError, KernelFaultError, LaunchError
from cujit.forks import once

_INTERRUPTED = 1 << 22
"""What C adds to an answer where it is to interrupt Python."""

_begin = in_c("launches_begin", None, *[ctypes.c_void_p] * 4)

# -- faults -------------------------------------------------------------------------------------------------------

# Source: CUDA Driver API manual, ``CUresult``. What a GPU would do otherwise, wait for ever for example, is a failed
# launch.
_FAULTS = {
    FaultKind.ILLEGAL_ADDRESS: Result.ILLEGAL_ADDRESS,
    FaultKind.MEMORY: Result.ILLEGAL_ADDRESS,
    FaultKind.MISALIGNED: Result.MISALIGNED_ADDRESS,
    FaultKind.ASSERT: Result.ASSERT,
    FaultKind.STACK_OVERFLOW: Result.HARDWARE_STACK_ERROR,
    FaultKind.ILLEGAL_INSTRUCTION: Result.ILLEGAL_INSTRUCTION,
    FaultKind.TENSOR_MAP: Result.ILLEGAL_INSTRUCTION,
    FaultKind.BULK_ALIGN: Result.ILLEGAL_INSTRUCTION,
    FaultKind.TENSOR_START: Result.ILLEGAL_INSTRUCTION,
    FaultKind.NO_CLUSTER: Result.ILLEGAL_INSTRUCTION,
    FaultKind.ILLEGAL_CALL: Result.INVALID_PC,
    FaultKind.TIMEOUT: Result.LAUNCH_TIMEOUT,
}


_FOR_USERS = ('run it with cujit.cpu(check="memory")', "run it by `cujit emulate --check memory`")
"""What to try is said to users of cujit, and to those of the emulator otherwise."""


def _answer_of(error: KernelFaultError) -> Result:
    return _FAULTS.get(FaultKind.__members__.get(error.kind.upper(), FaultKind.TRAP), Result.LAUNCH_FAILED)


def _flush_stdio() -> None:
    """Flush C's ``stdout`` of this process."""
    flush, stdout = _stdio()
    flush(stdout)


@functools.cache
def _stdio() -> tuple[Callable[..., int], ctypes.c_void_p]:
    process = ctypes.CDLL(None)
    return process.fflush, ctypes.c_void_p.in_dll(process, "stdout")


@contextlib.contextmanager
def _watched(context: int, ends: list[int]) -> Iterator[None]:
    """Store the error that ends a kernel in its context, and append it to ``ends``."""
    try:
        _flush_stdio()  # the host's earlier output comes first
        yield
        return
    except KernelFaultError as e:
        result, words = _answer_of(e), str(e).replace(*_FOR_USERS)
        say(words)
    except KeyboardInterrupt as e:
        # Whoever called the driver is to see it; nobody knows what the kernel has done.
        result, words = Result.LAUNCH_FAILED, "\n".join(getattr(e, "__notes__", ["the kernel was interrupted"]))
        say(words)
        ends.append(_INTERRUPTED)
    finally:
        if sys.stdout is not None:
            with contextlib.suppress(ValueError):
                sys.stdout.flush()
    contexts.fail(result, words, context)
    ends.append(result)


def _answer(ends: list[int]) -> int:
    """Return the result of a launch. Later calls report a fault."""
    interrupted = _INTERRUPTED if _INTERRUPTED in ends else 0
    return interrupted | (ends[-1] if ends and emulation().settings.errors_now else 0)


# -- limits -------------------------------------------------------------------------------------------------------

_PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every function may have. Source: CUDA C++ Programming Guide, "Thread Block Clusters"."""


def _options(config: AskedLaunch, function: LoadedFunction) -> LaunchOptions:
    cluster = Dim3(config.cluster_x, config.cluster_y, config.cluster_z) if config.cluster_x else None
    set_before = Dim3(*(function.settings.values[axis] for axis in CLUSTER))
    if cluster is None and set_before.volume and function.kernel.own_cluster is None:
        cluster = set_before
    if cluster is None and not config.cooperative:
        return PLAIN
    return LaunchOptions(cluster=cluster, cooperative=bool(config.cooperative))


# Source: CUDA Driver API manual, ``CUlaunchAttribute``: bytes of each, and numbers; ``CUsharedMemoryMode``,
# ``CUlaunchAttributePortableClusterMode``.
_ATTRIBUTE_BYTES, _PROGRAMMATIC_EVENT, _COMPLETION_EVENT, _UPDATABLE = 72, 7, 12, 13
_CLUSTER_MODE, _SHARED_MODE = 17, 18
_PORTABLE, _ANY_SIZE = 1, 2
_MODES = {_CLUSTER_MODE: 2, _SHARED_MODE: 4}
"""The last mode of each."""
_OPTIN_BYTES = 97

_NOTHING: Mapping[int, int] = {}


def _attributes_of(config: AskedLaunch) -> dict[int, int]:
    """Read the attributes of a launch that C does not know, by their number."""
    found = {}
    for k in range(config.attribute_count):
        at = config.attributes + k * _ATTRIBUTE_BYTES
        number = ctypes.c_uint32.from_address(at).value
        require(
            number != _UPDATABLE, Result.NOT_SUPPORTED, "the emulator doesn't support graph nodes that kernels update"
        )
        if number in (_PROGRAMMATIC_EVENT, _COMPLETION_EVENT):
            found[number] = load_u64(at, 1)
            require(cell_is(found[number], CellKind.EVENT), Result.INVALID_HANDLE)
        elif number in _MODES:
            found[number] = load_u64(at, 1) & 0xFFFFFFFF
            require(found[number] <= _MODES[number])
    return found


def _most_dynamic(function: LoadedFunction, mode: int) -> int:
    """Return the most dynamic shared memory that a launch of a mode can request, in bytes."""
    if not mode:
        return function.settings.values[MAX_DYNAMIC]
    total = emulation().device.limits.shared_bytes if mode == _PORTABLE else device.attributes()[_OPTIN_BYTES]
    return total - function.settings.resources.shared_bytes


def check(
    shape: LaunchShape, options: LaunchOptions, function: LoadedFunction, attributes: Mapping[int, int] = _NOTHING
) -> None:
    """Check a launch against all limits; ``set_before`` are modes of this launch by the number of their attribute.

    Raises:
        Refused: one is broken, with its sentence.
    """
    kernel, settings = function.kernel, function.settings
    require(all(shape.grid) and all(shape.block), Result.INVALID_VALUE, f"{kernel.title}: a size of a launch is 0")
    try:
        check_launch(kernel.title, shape, emulation().device.limits, settings.resources)
    except LaunchError as e:
        raise RefusedCall(Result.INVALID_VALUE, str(e)) from None
    most = _most_dynamic(function, attributes.get(_SHARED_MODE, 0) or settings.values[SHARED_MODE])
    require(
        shape.shared_bytes <= most,
        Result.INVALID_VALUE,
        f"{kernel.title}: {shape.shared_bytes} bytes of dynamic shared memory; the function has {most} "
        "(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)",
    )
    cluster = options.cluster
    if cluster is not None and cluster.volume > _PORTABLE_CLUSTER:
        words = f"{kernel.title}: a cluster of {cluster.volume} blocks needs NON_PORTABLE_CLUSTER_SIZE_ALLOWED"
        mode = attributes.get(_CLUSTER_MODE, 0)
        require(mode == _ANY_SIZE if mode else settings.values[NON_PORTABLE], Result.INVALID_CLUSTER_SIZE, words)
    try:
        kernel.check_options(shape, options)
    except LaunchError as e:
        cluster = cluster or kernel.own_cluster
        result = Result.INVALID_VALUE if cluster is None else Result.INVALID_CLUSTER_SIZE
        if options.cooperative and shape.grid.volume > kernel.together(shape, cluster):
            result = Result.COOPERATIVE_LAUNCH_TOO_LARGE
        raise RefusedCall(result, str(e)) from None


def _check_part(stream: int, shape: LaunchShape, options: LaunchOptions, function: LoadedFunction) -> None:
    """Check that all blocks of a cooperative launch run at a time on the multiprocessors of its stream.

    Raises:
        Refused: they are too many.
    """
    kernel, has = function.kernel, green_contexts.processors_of(stream)
    most = kernel.together(shape, options.cluster or kernel.own_cluster) * has // emulation().device.limits.processors
    words = f"{kernel.title}: {shape.grid.volume} blocks of a cooperative launch, {most} run at a time on {has} SMs"
    require(shape.grid.volume <= most, Result.COOPERATIVE_LAUNCH_TOO_LARGE, words)


# -- what C asks --------------------------------------------------------------------------------------------------


def _prepare(config_at: int, handle: int, parameters: int) -> int:
    """Make a launch ready for C, or make it here and now."""
    config, function = AskedLaunch.from_address(config_at), function_of(handle)
    grid = Dim3(config.grid_x, config.grid_y, config.grid_z)
    shape = LaunchShape(grid, Dim3(config.block_x, config.block_y, config.block_z), config.shared_bytes)
    options, attributes = _options(config, function), _attributes_of(config)
    check(shape, options, function, attributes)
    if options.cooperative:
        _check_part(config.stream, shape, options, function)
    size = function.parameter_bytes
    if config.more and recorded_launch(config, function.handle, ctypes.string_at(parameters, size)):
        return 0
    target = None if config.more or function.kernel.needs_extents else function.kernel.target(shape, 0, options, size)
    if target is not None:
        with LOCK:
            _keep(function, config, target)
        return GO_ON
    ends: list[int] = []
    with _watched(function.module.context, ends):
        function.kernel.launch(shape, ctypes.string_at(parameters, size), config.stream, options)
    for number in (_PROGRAMMATIC_EVENT, _COMPLETION_EVENT) if not ends else ():
        require(number not in attributes or not record_event(attributes[number]), Result.INVALID_HANDLE)
    return _answer(ends)


_KEY = [*(f"{what}_{axis}" for what in ("grid", "block", "cluster") for axis in "xyz"), "shared_bytes"]


def _keep(function: LoadedFunction, config: AskedLaunch, target: Target) -> None:
    fields = target.fields
    ready = ReadyLaunch(
        helpers=fields["helpers"],
        template=fields["template"],
        pool=fields["pool"],
        run=fields["run"],
        job=fields["job"],
        block_shared_bytes=fields["shared_bytes"],
        local_bytes=fields["local_bytes"],
        **{name: getattr(config, name) for name in _KEY},
    )
    config.ready = ctypes.addressof(ready)
    function.keep(config.ready, (ready, target))


def _unfinished(context: int, _handle: int, ready: int, work: int) -> int:
    """Report why a launch that C made did not run to its end. The module of the function may be unloaded now."""
    _, target = READY[ready]
    ends: list[int] = []
    with _watched(context, ends):
        target.failed(work)
    return _answer(ends)


def _find(kernel: int, context: int) -> int:
    """Return the function of a kernel in a context, or 0 if there is none."""
    try:
        return kernel_of(kernel).function(context).handle
    except (RefusedCall, CujitError) as e:
        emulation().remember(e if isinstance(e, RefusedCall) else RefusedCall(Result.INVALID_HANDLE, str(e)))
        return 0


@once
def prepare() -> tuple[object, ...]:
    """Register the functions that C calls, before the first call. The returned objects must stay alive."""
    kept = (
        EntryPoint("cuLaunchKernel", "PPP", tuple, _prepare).pointer(is_noted=False),
        EntryPoint("cuLaunchKernel", "PPPP", tuple, _unfinished).pointer(is_noted=False),
        for_c(ctypes.c_uint64, (ctypes.c_uint64, ctypes.c_uint64), _find, 0),
    )
    pointers = (guarded("cuLaunchKernel", each) for each in kept)
    _begin(*pointers, ctypes.cast(ctypes.pythonapi.PyErr_SetInterrupt, ctypes.c_void_p))
    return kept


# -- the first way to launch --------------------------------------------------------------------------------------

_launch_kernel = in_c("cuLaunchKernel", ctypes.c_int32, ctypes.c_uint64, *[ctypes.c_uint32] * 7, *[ctypes.c_uint64] * 3)


class _LegacyLaunch:
    """Launch parameters that were set for a function by separate calls: its block, shared bytes, and parameters."""

    def __init__(self, size: int) -> None:
        self.block, self.shared_bytes = (1, 1, 1), 0
        self.parameters = bytearray(size)

    def put(self, offset: int, data: bytes) -> None:
        """Write a parameter."""
        require(offset >= 0 and offset + len(data) <= len(self.parameters))
        self.parameters[offset : offset + len(data)] = data


_LEGACY_LAUNCHES: dict[int, _LegacyLaunch] = {}


def _calls_of(handle: int) -> _LegacyLaunch:
    function = function_of(handle)
    return _LEGACY_LAUNCHES.setdefault(function.handle, _LegacyLaunch(function.parameter_bytes))


@in_any_context("cuFuncSetBlockShape", "PIII")
def func_set_block_shape(handle: int, x: int, y: int, z: int) -> None:
    """Set the block of later launches."""
    require(min(x, y, z) > 0 and x * y * z <= function_of(handle).settings.resources.max_threads)
    _calls_of(handle).block = (x, y, z)


@in_any_context("cuFuncSetSharedSize", "PU")
def func_set_shared_size(handle: int, size: int) -> None:
    """Set the dynamic shared memory of later launches."""
    _calls_of(handle).shared_bytes = size


@in_any_context("cuParamSetSize", "PU")
def param_set_size(handle: int, size: int) -> None:
    """Set the total size of the parameters in bytes."""
    require(size >= function_of(handle).parameter_bytes)
    call = _calls_of(handle)
    call.parameters = call.parameters.ljust(size, b"\0")[:size]


@in_any_context("cuParamSeti", "PIU")
def param_set_i(handle: int, offset: int, value: int) -> None:
    """Write a parameter of 32 bits."""
    _calls_of(handle).put(offset, value.to_bytes(4, "little"))


@in_any_context("cuParamSetf", "PIF")
def param_set_f(handle: int, offset: int, value: float) -> None:
    """Write a parameter that is a float."""
    _calls_of(handle).put(offset, bytes(ctypes.c_float(value)))


@in_any_context("cuParamSetv", "PIPU")
def param_set_v(handle: int, offset: int, data: int, size: int) -> None:
    """Write parameters of any size."""
    require(data)
    _calls_of(handle).put(offset, ctypes.string_at(data, size))


@in_any_context("cuLaunch", "P")
@in_any_context("cuLaunchGrid", "PII")
@in_any_context("cuLaunchGridAsync", "PIIS")
def launch_grid(handle: int, width: int = 1, height: int = 1, stream: int = 0) -> int:
    """Launch one block or a grid with the parameters that were set for the function."""
    call = _calls_of(handle)
    require(width > 0 and height > 0)
    data = (ctypes.c_char * len(call.parameters)).from_buffer(call.parameters)
    size = ctypes.c_uint64(len(call.parameters))
    extra = (ctypes.c_uint64 * 5)(1, ctypes.addressof(data), 2, ctypes.addressof(size), 0)
    sizes = (width, height, 1, *call.block, call.shared_bytes)
    return int(_launch_kernel(handle, *sizes, stream, 0, ctypes.addressof(extra)))
