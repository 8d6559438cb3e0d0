"""The work of graph nodes: driver calls with parameters that are copied when a node is created."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable
from typing import Any

from cujit.emulator.capture import captured_node, captured_work, event_work, host_work, stream_cell
from cujit.emulator.entries import ENTRIES, EntryPoint, checked, got, require, store_u64
from cujit.emulator.graph_memory import GraphMemory
from cujit.emulator.machine import cell_is, guarded, in_c
from cujit.emulator.memory_operations import batch_of, batch_params, operate
from cujit.emulator.node_params import (
    AllocParams,
    BatchParams,
    CopyParams,
    HostParams,
    KernelParams,
    SetParams,
)
from cujit.emulator.nodes import EmulatedGraph, GraphNode, NodeKind, Work
from cujit.emulator.process import emulation
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import (
    GO_ON,
    ArrayCell,
    BlockKind,
    CellKind,
    CopyPlan,
    GraphStep,
    LaunchWords,
    PoolCell,
    SetPlan,
    StepKind,
)

_LETTERS: dict[str, Any] = {"P": ctypes.c_uint64, "U": ctypes.c_uint32}


def driver(name: str, types: str, *given: int) -> None:
    """Call a function of the emulator's as a program would.

    Raises:
        Refused: it answers an error.
    """
    entry = ENTRIES.get(name)
    if name in emulation().native.entries:
        answer = in_c(name, ctypes.c_int32, *(_LETTERS[letter] for letter in types))(*given)
    else:
        answer = int(Result.NOT_SUPPORTED) if entry is None else entry.quiet_answer(*given)
    if answer:
        checked(answer, emulation().words(Result(answer)))


# -- kernels ------------------------------------------------------------------------------------------------


def _parameters(function: int) -> list[tuple[int, int]]:
    """Return offset and size of each parameter of a function or of a kernel."""
    name = "cuKernelGetParamInfo" if cell_is(function, CellKind.KERNEL) else "cuFuncGetParamInfo"
    found: list[tuple[int, int]] = []
    offset, size = ctypes.c_uint64(), ctypes.c_uint64()
    while True:
        try:
            driver(name, "PPPP", function, len(found), ctypes.addressof(offset), ctypes.addressof(size))
        except RefusedCall as e:
            require(e.result is Result.INVALID_VALUE, e.result)
            return found
        found.append((offset.value, size.value))


def _values(params: KernelParams, parameters: list[tuple[int, int]]) -> Any:
    """Copy the values of a kernel's parameters into one buffer."""
    bytes_ = max((offset + size for offset, size in parameters), default=0)
    data = ctypes.create_string_buffer(max(bytes_, 1))
    if not parameters:
        return data
    require(params.values or params.extra)
    if params.values:
        pointers = (ctypes.c_uint64 * len(parameters)).from_address(params.values)
        for pointer, (offset, size) in zip(pointers, parameters, strict=True):
            ctypes.memmove(ctypes.addressof(data) + offset, pointer, size)
        return data
    # CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END
    words, source, given = (ctypes.c_uint64 * 5).from_address(params.extra), 0, 0
    for k in (0, 2):
        if words[k] == 1:
            source = words[k + 1]
        elif words[k] == 2:
            given = ctypes.c_uint64.from_address(words[k + 1]).value
    require(source and given >= bytes_)
    ctypes.memmove(data, source, bytes_)
    return data


def _kernel(params: KernelParams) -> tuple[KernelParams, Work]:
    function = params.function or params.kernel
    require(cell_is(function, CellKind.FUNCTION) or cell_is(function, CellKind.KERNEL), Result.INVALID_HANDLE)
    require(all((params.grid_x, params.grid_y, params.grid_z, params.block_x, params.block_y, params.block_z)))
    parameters = _parameters(function)
    return _kernel_of(params, parameters, _values(params, parameters))


def _kernel_of(params: KernelParams, parameters: list[tuple[int, int]], data: Any) -> tuple[KernelParams, Work]:
    """Copy the launch parameters of a kernel node, and return the copy and the launch step."""
    function = params.function or params.kernel
    pointers = (ctypes.c_uint64 * max(len(parameters), 1))(*(ctypes.addressof(data) + at for at, _ in parameters))
    kept = KernelParams.from_buffer_copy(params)
    kept.values, kept.extra = ctypes.addressof(pointers), 0
    kept.kept = data, pointers
    return kept, GraphStep(StepKind.KERNEL, context=kept.context, function=function, values=kept.values)


_SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")


def step_of(node: GraphNode, calls: list[Callable[[], None]]) -> GraphStep | None:
    """Return the step that a graph launch runs for a node, or None if the node does nothing.

    The data of the step lives as long as the step. Work in Python is appended to ``calls``.
    """
    work = node.work
    if work is None or not node.is_enabled:
        return None
    if not isinstance(work, GraphStep):
        calls.append(work)
        return GraphStep(StepKind.PYTHON, number=len(calls) - 1)
    if work.kind != StepKind.KERNEL:
        return work
    step = GraphStep.from_buffer_copy(work)
    words = b"".join(number.to_bytes(8, "little") + value for number, value in node.attributes.items())
    attributes = ctypes.create_string_buffer(words)
    config = LaunchWords(attributes=ctypes.addressof(attributes), count=len(node.attributes))
    for name in _SIZES:
        setattr(config, name, getattr(node.params, name))
    step.plan = ctypes.addressof(config)
    step.kept = node.params, config, attributes
    return step


def recorded_launch(config: Any, function: int, data: bytes) -> bool:
    """Create a graph node for a launch if its stream is captured, and return whether it is captured.

    Raises: as ``recorded``.
    """
    if not emulation().native.state.capturing:
        return False
    params = KernelParams(function=function, **{name: getattr(config, name) for name in _SIZES})
    kept, work = _kernel_of(params, _parameters(function), ctypes.create_string_buffer(data, max(len(data), 1)))
    node = captured_node(config.stream, NodeKind.KERNEL, kept, work)
    if node is not None:
        attributes = ctypes.string_at(config.attributes, _ATTRIBUTE_BYTES * config.attribute_count)
        words = [attributes[k : k + _ATTRIBUTE_BYTES] for k in range(0, len(attributes), _ATTRIBUTE_BYTES)]
        node.attributes = {int.from_bytes(word[:4], "little"): word[8:] for word in words}
        if config.cooperative:
            node.attributes[_COOPERATIVE] = (1).to_bytes(64, "little")
    return node is not None


_ATTRIBUTE_BYTES, _COOPERATIVE = 72, 2
"""Of ``CUlaunchAttribute``. Source: CUDA Driver API manual."""


def in_context(context: int, work: Callable[[], None]) -> None:
    """Do something in a context, or where we are."""
    if not context:
        work()
        return
    driver("cuCtxPushCurrent_v2", "P", context)
    try:
        work()
    finally:
        driver("cuCtxPopCurrent_v2", "P", 0)


# -- memory -------------------------------------------------------------------------------------------------

_copy_plan = in_c("copy_plan", ctypes.c_int32, *[ctypes.c_void_p] * 2)
_copy_check = in_c("copy_check", ctypes.c_int32, ctypes.c_void_p)
_set_check = in_c("set_check", ctypes.c_int32, ctypes.c_void_p)


_DEVICE, _ARRAY = 2, 3
"""``CU_MEMORYTYPE_DEVICE``, ``CU_MEMORYTYPE_ARRAY``."""


def _copy(params: CopyParams) -> tuple[CopyParams, Work]:
    plan = CopyPlan()
    checked(_copy_plan(ctypes.byref(params), ctypes.byref(plan)))
    return params, _copying(plan)


def _copying(plan: CopyPlan) -> Work:
    checked(_copy_check(ctypes.byref(plan)))
    return _planned(StepKind.COPY, plan)


def _planned(kind: StepKind, plan: ctypes.Structure) -> Work:
    step = GraphStep(kind, plan=ctypes.addressof(plan))
    step.kept = plan
    return step


def _set(params: SetParams) -> tuple[SetParams, Work]:
    require(params.element in (1, 2, 4) and params.width and params.height)
    plan = SetPlan(**{name: getattr(params, name) for name in _SET_WORDS})
    return params, _setting(plan)


_SET_WORDS = ("dst", "pitch", "width", "height", "value", "element")


def _setting(plan: SetPlan) -> Work:
    checked(_set_check(ctypes.byref(plan)))
    return _planned(StepKind.SET, plan)


def _on_capture(stream: int, copied: int, filled: int) -> int:
    """Make a node of a copy or a set that C has planned, or have it go on."""
    if filled:
        plan = SetPlan.from_buffer_copy(SetPlan.from_address(filled))
        params = SetParams(**{name: getattr(plan, name) for name in _SET_WORDS})
        node = captured_node(stream, NodeKind.MEMSET, params, _setting(plan))
    else:
        moved = CopyPlan.from_buffer_copy(CopyPlan.from_address(copied))
        node = captured_node(stream, NodeKind.MEMCPY, _as_box(moved), _copying(moved))
    return GO_ON if node is None else 0


def _as_box(plan: CopyPlan) -> CopyParams:
    """Describe a copy that C has planned in the driver's structure."""
    box = CopyParams(width=plan.width, height=plan.height, depth=plan.depth)
    for side in ("src", "dst"):
        type_, pitch, slice_ = (getattr(plan, f"{side}_{what}") for what in ("type", "pitch", "slice"))
        setattr(box, f"{side}_type", type_)
        if type_ == _ARRAY:
            _place_in_array(box, side, getattr(plan, f"{side}_array"), getattr(plan, side))
            continue
        setattr(box, f"{side}_{'device' if type_ >= _DEVICE else 'host'}", getattr(plan, side))
        setattr(box, f"{side}_pitch", pitch or plan.width)
        setattr(box, f"{side}_height", slice_ // pitch if pitch and slice_ else plan.height)
    return box


def _place_in_array(box: CopyParams, side: str, handle: int, address: int) -> None:
    """Describe an address within an array by the array, and x, y and z."""
    array = ArrayCell.from_address(handle)
    z, rest = divmod(address - array.base, array.slice)
    y, x = divmod(rest, array.row)
    for name, value in (("array", handle), ("x", x), ("y", y), ("z", z)):
        setattr(box, f"{side}_{name}", value)


def _host(params: HostParams) -> tuple[HostParams, Work]:
    require(params.function)
    return params, host_work(params)


def _batch(params: BatchParams) -> tuple[BatchParams, Work]:
    require(not params.flags)
    operations = batch_of(params.count, params.operations)
    kept = batch_params(operations)
    kept.context = params.context
    return kept, lambda: operate(operations)


# Source: CUDA Driver API manual, ``CUmemAllocationType`` and ``CUmemLocationType``.
_PINNED, _ON_DEVICE = 1, 1


def _alloc(params: AllocParams, graph: EmulatedGraph) -> tuple[AllocParams, Work]:
    kind, place = (word & 0xFFFFFFFF for word in params.properties[:2])
    require(params.size and kind == _PINNED and place)
    require(
        place == _ON_DEVICE,
        Result.NOT_SUPPORTED,
        "graphs can allocate only device memory",
        hint="set the location of the allocation to `CU_MEM_LOCATION_TYPE_DEVICE`",
    )
    require(
        not params.properties[0] >> 32,
        Result.NOT_SUPPORTED,
        "memory that a graph allocates can't be shared between processes",
        hint="set `handleTypes` to 0",
    )
    memory = GraphMemory(graph, params.size)
    params.address = memory.address
    return params, memory.take


def _free(params: ctypes.c_uint64, graph: EmulatedGraph) -> tuple[ctypes.c_uint64, Work]:
    memory = GraphMemory.of(params.value)
    memory.freed_by(graph)
    return params, lambda: require(memory.free(), words="the memory was freed already")


def begin_launch(nodes: Iterable[GraphNode], *, frees: bool) -> None:
    """Check the memory that nodes are to allocate. With ``frees``, free the memory of the last launch
    (AUTO_FREE_ON_LAUNCH).

    Raises:
        Refused: memory of the last launch was not freed.
    """
    for node in nodes:
        if node.kind is NodeKind.MEM_ALLOC:
            memory = GraphMemory.of(node.params.address)
            is_free = not memory.is_taken or (frees and memory.free())
            require(
                is_free,
                words="memory that the graph allocated wasn't freed since its last launch",
                hint="free it with `cuMemFree`, or instantiate the graph with the flag `AUTO_FREE_ON_LAUNCH`",
            )


def _on_pooled(stream: int, pool: int, size: int, where: int) -> int:
    """Create a node for a pool allocation or a free if the stream is captured. Otherwise, let the call continue.

    The address of the memory is stored immediately.
    """
    kind = NodeKind.MEM_ALLOC if size else NodeKind.MEM_FREE
    params = AllocParams(properties=(_PINNED, _ON_DEVICE), size=size) if size else ctypes.c_uint64(where)
    made: list[tuple[Any, Work | None]] = []

    def work(graph: EmulatedGraph) -> tuple[Any, Work | None]:
        """Prepare the node's work in the context of the stream, because the thread may have no context."""
        is_on_device = not pool or PoolCell.from_address(pool).block == BlockKind.POOLED
        require(
            is_on_device,
            Result.NOT_SUPPORTED,
            "graphs can allocate only device memory",
            hint="set the location of the allocation to `CU_MEM_LOCATION_TYPE_DEVICE`",
        )
        context = stream_cell(stream).context
        in_context(context, lambda: made.append(work_of(kind, ctypes.addressof(params), graph=graph)))
        return made[0]

    node = captured_work(stream, kind, work)
    if node is not None and size:
        store_u64(where, node.params.address)
    return GO_ON if node is None else 0


_ON_CAPTURE = EntryPoint("a copy that is captured", "PPP", tuple, _on_capture).pointer(is_noted=False)
_ON_POOLED = EntryPoint("an allocation that is captured", "PPPP", tuple, _on_pooled).pointer(is_noted=False)


def prepare() -> None:
    """Register the functions that make nodes of copies and allocations with C, before the first call."""
    memory = emulation().native.state.memory
    memory.on_capture = guarded("a copy on a captured stream", _ON_CAPTURE)
    memory.on_pooled = guarded("an allocation on a captured stream", _ON_POOLED)


def _event(kind: NodeKind, params: ctypes.c_uint64) -> tuple[ctypes.c_uint64, Work | None]:
    require(cell_is(params.value, CellKind.EVENT), Result.INVALID_HANDLE)
    return params, event_work(kind, params.value)


_TYPES: dict[NodeKind, tuple[Any, Callable[[Any], tuple[Any, Work | None]]]] = {
    NodeKind.KERNEL: (KernelParams, _kernel),
    NodeKind.MEMCPY: (CopyParams, _copy),
    NodeKind.MEMSET: (SetParams, _set),
    NodeKind.HOST: (HostParams, _host),
    NodeKind.BATCH_MEM_OP: (BatchParams, _batch),
    NodeKind.EVENT_RECORD: (ctypes.c_uint64, functools.partial(_event, NodeKind.EVENT_RECORD)),
    NodeKind.WAIT_EVENT: (ctypes.c_uint64, functools.partial(_event, NodeKind.WAIT_EVENT)),
}
"""The structure of each kind of node, and what makes its work of that."""

_OF_MEMORY: dict[NodeKind, tuple[Any, Callable[[Any, EmulatedGraph], tuple[Any, Work]]]] = {
    NodeKind.MEM_ALLOC: (AllocParams, _alloc),
    NodeKind.MEM_FREE: (ctypes.c_uint64, _free),
}
"""The same of nodes that belong to their graph, and never change."""


def work_of(kind: NodeKind, pointer: int, size: int = 0, graph: EmulatedGraph | None = None) -> tuple[Any, Work | None]:
    """Read the parameters of a node, which have ``size`` bytes, and return a copy of them with the node's work.

    ``graph`` is the graph of a new node.

    Raises:
        Refused: the parameters are invalid, or the emulator doesn't support the node.
    """
    if kind is NodeKind.EMPTY:
        return None, None
    require(pointer)
    if kind in _OF_MEMORY:
        graph = got(graph, words="a node that allocates or frees can't be changed")
        type_, make_in = _OF_MEMORY[kind]
        return make_in(_read(type_, pointer), graph)
    require(kind in _TYPES, Result.NOT_SUPPORTED, "the emulator doesn't support graph nodes of this type")
    type_, make = _TYPES[kind]
    return make(_read(type_, pointer, size))


def _read(type_: Any, pointer: int, size: int = 0) -> Any:
    params = type_()
    ctypes.memmove(ctypes.byref(params), pointer, size or ctypes.sizeof(type_))
    return params


def store_params(node: GraphNode, pointer: int, size: int = 0) -> None:
    """Write the parameters of a node to ``pointer``, at most ``size`` bytes if it is not 0.

    Raises:
        Refused: the pointer is null, or captured work has no such parameters.
    """
    require(pointer)
    type_, _ = (_TYPES | _OF_MEMORY)[node.kind]
    require(isinstance(node.params, type_), Result.NOT_SUPPORTED, "what this node does was captured, and can't be read")
    ctypes.memmove(pointer, ctypes.addressof(node.params), size or ctypes.sizeof(type_))
