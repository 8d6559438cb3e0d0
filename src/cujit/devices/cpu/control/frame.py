"""The functions around the code of a warp, which take blocks from the counter and run the warps of each block.

    ret;                     run:          fetch: the next blocks; returns if none are left
                             block.start:  %ctaid.x and similar registers
                      ->     warp.start:   the code of a warp, which depends on the block only through its lanes
                             warp.end:     the next warp at warp.start, or
                             block.end:    the next block at block.start, or fetch

If a kernel is split at its barriers, each region is a separate function that contains the code of a warp. If warps have
stacks, the scheduler in ``runtime/blocks.c`` calls the function of a warp. The host passes a ``Launch``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from cujit.devices.cpu.analysis.fission import Fission
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.memory import wait_for_stores
from cujit.devices.cpu.codegen.nodes import BLOCK, FIRST_THREAD, LAUNCH, STATE, WARP_NUMBER, Node
from cujit.devices.cpu.codegen.warp import ALL_LANES, WarpEmitter
from cujit.devices.cpu.control.flow import Flow
from cujit.devices.cpu.control.regions import GONE, WATCHED, kept_places, kept_pointers, run_regions
from cujit.devices.cpu.control.warp_scheduling import NO_WALKS, Walks, in_groups, in_rounds
from cujit.devices.cpu.instructions.calls import symbol_of
from cujit.devices.cpu.native.structures import STACK_BYTES, Block
from cujit.devices.cpu.run.launch import PLACE, SYSTEM_BYTES, WINDOW_BITS, field_offset
from cujit.devices.cpu.run.mappings import aligned

# A large frame is touched page by page, so that it meets the page below its stack that nobody may touch.
# Source: LLVM Language Reference, "Function Attributes": "probe-stack".
_PROBED = '"probe-stack"="inline-asm"'

_INLINED = 1900
"""Lines of IR of a kernel whose regions become one function: its warps' values may then stay in registers."""

_SHARED, _LOCAL = Value("%shared", "ptr"), Value("%local", "ptr")
_BLOCKS, _CHUNK = Value("%blocks", "i64"), Value("%chunk", "i64")
_RANK = Value("%cluster.rank", "i32")


def emit_function(flow: Flow, symbol: str, functions: Mapping[str, Flow]) -> str:
    """Emit the module with one function ``void symbol(Launch *, shared, local)``, and return its text.

    ``functions`` are the device functions that the kernel calls.
    """
    e, b = flow.e, flow.b
    flow.emit(_first_mask(e))
    if e.suspends:
        return _on_stacks(e, symbol, functions)
    body = b.take()
    _begin_kernel(b, e, "%local.int")
    b.body += b.entry
    with _over_blocks(b, e, flow.plan.walks), _over_warps(flow, "block.end"):
        b.body += body
    _end_kernel(b, symbol)
    return b.module.text(symbol)


def emit_regions(fission: Fission, flows: Mapping[str, Flow], symbol: str) -> str:
    """Emit the module of a kernel that is cut at its barriers, of its regions; they have one list of parameters."""
    emitters = {name: flow.e for name, flow in flows.items()}
    for flow in flows.values():
        flow.emit(_first_mask(flow.e))
    first = next(iter(emitters.values()))
    warps = first.warps
    arguments = [*_COMMON_ARGUMENTS, *first.parameters.values(), *kept_pointers(first, fission, warps)]
    f = Builder(first.builder.module)
    _begin_kernel(f, first, "%local.first")
    kept_places(f, first, fission, warps)
    with _over_blocks(f, first, NO_WALKS):
        run_regions(f, first, fission, warps, arguments)
    _end_kernel(f, symbol, *(e.builder for e in emitters.values()))
    size = sum(len(e.builder.body) for e in emitters.values())
    for name, flow in flows.items():
        _define_region(flow, name, arguments, "alwaysinline" if size < _INLINED else "noinline")
    return f.module.text(symbol, *emitters)


def _define_region(flow: Flow, name: str, arguments: Sequence[Value], attributes: str) -> None:
    """Define the function of one region, which runs in all warps and returns the number of the next region."""
    e, b, body = flow.e, flow.b, flow.b.take()
    _with_idle(b)
    following = b.allocate("i32", into="%next")
    b.store(b.integer(GONE, 32), following)
    _warp_place(b)
    b.body += b.entry
    if e.body.queues_copies:
        b.call("cujit_pending_turn", "void", _SHARED)
    with _in_turn(e, "region.end") if e.watched else _over_warps(flow, "region.end"):
        wide = b.cast("zext", WARP_NUMBER, "i64")
        far = b.binary("mul", wide, b.integer(e.program.local_size * WARP, 64))
        b.binary("add", Value("%local.first", "i64"), far, into="%local.int")
        b.body += body
    b.start("region.end")
    b.leave(b.load("i32", following))
    b.module.define(name, arguments, b.take(), "i32", attributes)


# -- loops ------------------------------------------------------------------------------------------------


def _begin_kernel(f: Builder, e: WarpEmitter, local: str) -> None:
    """Emit the start of a function that takes blocks from the counter. ``local`` names the address of local memory."""
    f.binary("add", f.integer(0, 32), f.integer(0, 32), into=_RANK.text)
    _common(f)
    f.offset(LAUNCH, field_offset("next"), into="%next.at")
    f.offset(_SHARED, -PLACE, into="%number.at")
    _warp_place(f)
    for axis, name in (("x", "%row"), ("y", "%column")):
        f.cast("zext", Value(f"%nctaid.{axis}", "i32"), "i64", into=name)
    f.cast("ptrtoint", _LOCAL, "i64", into=local)
    e.load_parameters(f)


def _end_kernel(f: Builder, symbol: str, *others: Builder) -> None:
    """Emit the return for the case that no blocks are left. It first waits for cache-bypassing stores
    of all builders.
    """
    f.start("return")
    wait_for_stores(f, *others)
    f.leave()
    f.module.define(symbol, [LAUNCH, _SHARED, _LOCAL], f.take(), linkage="", attributes="")


@contextlib.contextmanager
def _over_blocks(f: Builder, e: WarpEmitter, walks: Walks) -> Iterator[None]:
    """Put the code emitted in this context into a loop over all blocks. ``walks`` may let warps of several blocks take
    turns.
    """
    f.start("fetch")
    first = f.update("add", "%next.at", _CHUNK, "monotonic")
    f.branch(f.compare("icmp ult", first, _BLOCKS), "chunk.start", "return")
    f.start("chunk.start")
    limit = f.intrinsic("umin", f.binary("add", first, _CHUNK), _BLOCKS)
    groups = in_groups(f, e, walks, first, limit, "fetch")

    def land() -> None:
        if e.body.queues_copies:
            f.call("cujit_pending_end", "void", _SHARED)

    with groups as (begin, end, behind), _counting(f, BLOCK, begin, end, behind, land):
        f.store(BLOCK, "%number.at")
        row, column = Value("%row", "i64"), Value("%column", "i64")
        x, rest = f.binary("urem", BLOCK, row), f.binary("udiv", BLOCK, row)
        for axis, place in zip("xyz", (x, f.binary("urem", rest, column), f.binary("udiv", rest, column)), strict=True):
            f.cast("trunc", place, "i32", into=f"%ctaid.{axis}")
        f.start("block.run")
        yield


@contextlib.contextmanager
def _over_warps(flow: Flow, behind: str) -> Iterator[None]:
    """Put the code emitted in this context into a loop over the warps of the block, then branch to ``behind``.

    If the code has a loop, which may run for long, it stores the number of the running warp. The store would slow down
    short code.
    """
    e, b, walks = flow.e, flow.b, flow.plan.walks
    alone = not flow.takes_turns or walks.blocks > 1
    rounds = contextlib.nullcontext(behind) if alone else in_rounds(b, e, walks, behind)
    with rounds as end, _counting(b, WARP_NUMBER, b.integer(0, 32), b.integer(e.warps, 32), end):
        _begin_warp(e)
        yield


def _begin_warp(e: WarpEmitter) -> None:
    b = e.builder
    b.binary("mul", WARP_NUMBER, b.integer(WARP, 32), into=FIRST_THREAD.text)
    if e.graph.loops:
        b.store(WARP_NUMBER, "%warp.at", volatile=True)


@contextlib.contextmanager
def _in_turn(e: WarpEmitter, behind: str) -> Iterator[None]:
    """As ``_over_warps``, but with the warp first that is noted, and note the last one for the next region."""
    b, before = e.builder, e.builder.here
    first = b.load("i32", f"%{WATCHED}")
    b.start("warp.start")
    b.phi(WARP_NUMBER, (first, before), ("%warp.next", "warp.end"), into=WARP_NUMBER.text)
    _begin_warp(e)
    yield
    b.start("warp.end")
    b.store(WARP_NUMBER, f"%{WATCHED}")
    more = b.binary("add", WARP_NUMBER, b.integer(1, 32))
    is_last = b.compare("icmp eq", more, b.integer(e.warps, 32))
    following = b.select(is_last, b.integer(0, 32), more, into="%warp.next")
    b.branch(b.compare("icmp ne", following, first), "warp.start", behind)


@contextlib.contextmanager
def _counting(
    b: Builder, number: Value, first: Value, limit: Value, behind: str, last: Callable[[], None] | None = None
) -> Iterator[None]:
    """Put the code emitted in this context into a loop that counts ``number`` from ``first`` up to ``limit``,
    exclusive.

    ``last`` emits code at the end of each iteration. After the loop, branch to ``behind``.
    """
    name, before = number.text[1:], b.here
    b.start(f"{name}.start")
    b.phi(number, (first, before), (f"%{name}.next", f"{name}.end"), into=number.text)
    yield
    b.start(f"{name}.end")
    if last is not None:
        last()
    following = b.binary("add", number, Value("1", number.type, constant=True), into=f"%{name}.next")
    b.branch(b.compare("icmp ult", following, limit), f"{name}.start", behind)


# -- warps on stacks of their own -------------------------------------------------------------------------


_FRAME_BYTES, _SMALL = 512, 1500
"""Bytes of its stack that a node of the IR takes at most where LLVM does not optimize, and nodes of a small kernel."""


def _stack_bytes(body: Sequence[Node]) -> int:
    """Return the stack size of a warp in bytes.

    The size has room for each value in a separate slot, because LLVM may not optimize the code.
    """
    return STACK_BYTES + (aligned(_FRAME_BYTES * len(body), 1 << 16) if len(body) > _SMALL else 0)


def _on_stacks(e: WarpEmitter, symbol: str, functions: Mapping[str, Flow]) -> str:
    """With synchronisation: one function for a warp, which the scheduler in ``runtime/blocks.c`` runs."""
    b = e.builder
    b.start("warp.end")
    b.leave()
    body = b.take()
    local_bytes = e.program.local_size * WARP
    plan = [Value("@body", "ptr"), b.integer(e.block.volume, 32), b.integer(e.warps, 32),
            b.integer(local_bytes, 64), b.integer(_stack_bytes(body), 64)]  # fmt: skip
    b.call("cujit_run_blocks", "void", LAUNCH, _SHARED, _LOCAL, b.module.constant("plan", plan))
    b.leave()
    b.module.define(symbol, [LAUNCH, _SHARED, _LOCAL], b.take(), linkage="", attributes="")
    _state_loads(b)
    # Local memory of a kernel is one piece a warp.
    local = b.load("i64", b.offset(STATE, Block.local.offset))
    offset = b.binary("mul", b.cast("zext", WARP_NUMBER, "i64"), b.integer(local_bytes, 64))
    b.binary("add", local, offset, into="%local.int")
    _on_stack(e, body)
    b.module.define("body", [STATE, WARP_NUMBER], b.take(), "void", _PROBED)
    for name, each in functions.items():
        _define_function(name, each)
    return b.module.text(symbol, "body", *map(symbol_of, functions))


def _on_stack(e: WarpEmitter, body: list[Node]) -> None:
    """Emit the code of a warp with a stack, after the code that loads the state of the block."""
    b = e.builder
    _common(b)
    b.binary("mul", WARP_NUMBER, b.integer(WARP, 32), into=FIRST_THREAD.text)
    e.load_parameters(b)
    b.body += b.entry
    b.start("warp.start")
    b.body += body


def _define_function(name: str, flow: Flow) -> None:
    """Define a device function that runs in the lanes of a mask. Its parameters are in memory, and it returns the
    exited lanes.
    """
    e, b, mask = flow.e, flow.b, Value("%entry.mask", "i1", WARP)
    flow.emit(mask)
    b.start("warp.end")
    b.leave(b.read("exited", "i32"))
    body = b.take()
    local = b.allocate(f"[{max(e.program.local_size, 1) * WARP} x i8]", align=64)
    b.cast("ptrtoint", local, "i64", into="%local.int")
    _state_loads(b)
    _on_stack(e, body)
    arguments = [Value("%arguments", "i64"), Value("%arguments.stride", "i64")]
    b.module.define(symbol_of(name), [STATE, WARP_NUMBER, mask, *arguments], b.take(), "i32", _PROBED)


_STATE_FIELDS = (
    (LAUNCH, "launch"), (_SHARED, "shared"), (BLOCK, "number"), (_RANK, "rank"),
    *((Value(f"%ctaid.{axis}", "i32"), f"ctaid_{axis}") for axis in "xyz"),
)  # fmt: skip


def _state_loads(b: Builder) -> None:
    """Load the fields in which the scheduler describes the block."""
    for value, field in _STATE_FIELDS:
        b.load(value.type, b.offset(STATE, getattr(Block, field).offset), into=value.text)


# -- what both begin with ---------------------------------------------------------------------------------

_FIELDS = tuple(
    (Value(f"%{name}", type_), field)
    for name, type_, field in (
        ("params.int", "i64", "parameters"), ("module.int", "i64", "module"), ("module.size", "i64", "module_size"),
        ("blocks", "i64", "blocks"), ("chunk", "i64", "chunk"), ("nctaid.x", "i32", "grid_x"),
        ("nctaid.y", "i32", "grid_y"), ("nctaid.z", "i32", "grid_z"), ("dynamic.size", "i32", "dynamic_bytes"),
    )
)  # fmt: skip
"""Values of the emitted code, with the fields of ``Launch`` that they come from."""

_SHARED_INT, _CLUSTER_INT = Value("%shared.int", "i64"), Value("%cluster.int", "i64")

_COMMON_ARGUMENTS = (
    LAUNCH, _SHARED, Value("%local.first", "i64"), BLOCK, _RANK, *(Value(f"%ctaid.{axis}", "i32") for axis in "xyz"),
    *(value for value, _ in _FIELDS), _SHARED_INT, _CLUSTER_INT,
)  # fmt: skip
"""What a function needs to know of the launch and the block, as arguments."""


def _common(b: Builder) -> None:
    """Define the names that emitted code uses, from ``%launch``, ``%shared`` and ``%cluster.rank``."""
    _with_idle(b)
    for value, field in _FIELDS:
        b.load(value.type, b.offset(LAUNCH, field_offset(field)), into=value.text)
    b.cast("inttoptr", Value("%params.int", "i64"), "ptr", into="%params")
    own = b.cast("ptrtoint", _SHARED, "i64")
    b.binary("sub", own, b.integer(SYSTEM_BYTES, 64), into=_SHARED_INT.text)
    before = b.binary("shl", b.cast("zext", _RANK, "i64"), b.integer(WINDOW_BITS, 64))
    b.binary("sub", _SHARED_INT, before, into=_CLUSTER_INT.text)


def _first_mask(e: WarpEmitter) -> Value:
    """Lanes of the warp that are threads of the block: all, except in the last warp of an uneven block."""
    b: Builder = e.builder
    if e.block.volume % WARP == 0:
        return ALL_LANES
    thread = b.binary("add", Value("%first.thread", "i32"), b.lanes(list(range(WARP)), 32))
    return b.compare("icmp ult", thread, b.integer(e.block.volume, 32))


def _warp_place(b: Builder) -> None:
    """Define the address at which the number of the running warp is stored, for code that ends the launch."""
    b.offset("%shared", 16 - PLACE, into="%warp.at")


def _with_idle(b: Builder) -> None:
    """Allocate memory for lanes that do not run."""
    b.cast("ptrtoint", b.allocate(f"[{WARP} x i8]", align=16), "i64", into="%idle.int")
