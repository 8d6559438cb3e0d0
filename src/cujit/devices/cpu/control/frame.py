"""The function around the warp: it takes blocks from the counter, and runs the warps of each in order.

What the host hands over is a ``Launch``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cujit.devices.cpu.analysis.fission import Cut, Region
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.memory import wait_for_stores
from cujit.devices.cpu.codegen.names import BLOCK, FIRST_THREAD, LAUNCH, STATE, WARP_NUMBER
from cujit.devices.cpu.codegen.nodes import Node
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.control.passage import (
    RegionPassage,
    define_region,
    kept_places,
    kept_pointers,
    over_warps,
    passages,
    run_regions,
    warp_place,
    with_idle,
)
from cujit.devices.cpu.instructions.functions import symbol_of
from cujit.devices.cpu.native.structures import STACK_BYTES, Block
from cujit.devices.cpu.run.launch import PLACE, field_offset

__all__ = ["emit_function", "emit_regions"]

# A large frame is touched page by page, so that it meets the page below its stack that nobody may touch.
# Source: LLVM Language Reference, "Function Attributes": "probe-stack".
_PROBED = '"probe-stack"="inline-asm"'

_SHARED, _LOCAL = Value("%shared", "ptr"), Value("%local", "ptr")
_BLOCKS, _CHUNK = Value("%blocks", "i64"), Value("%chunk", "i64")
_RANK = Value("%cluster.rank", "i32")


def emit_function(e: WarpEmitter, symbol: str, functions: Mapping[str, WarpEmitter] | None = None) -> str:
    """Emit the module with one function ``void symbol(Launch *, shared, local)`` and return its text.

    ``functions`` are those that it calls.
    """
    return _on_stacks(e, symbol, functions or {}) if e.flow.suspends else _in_turn(e, symbol)


# -- warps in turn ----------------------------------------------------------------------------------------


def _in_turn(e: WarpEmitter, symbol: str) -> str:
    """Without synchronisation: take blocks from the counter, and run the warps of each in order."""
    b = e.builder
    e.emit(_first_mask(e))
    body = b.take()

    def begin() -> None:
        b.cast("ptrtoint", _LOCAL, "i64", into="%local.int")
        e.load_parameters(b)
        b.body += b.entry

    def run() -> None:
        with over_warps(e, _warps(e), "block.run", "block.end"):
            b.body += body

    _over_blocks(b, begin, run)
    _define_kernel(b, symbol)
    return b.module.text(symbol)


def _define_kernel(b: Builder, symbol: str) -> None:
    b.module.define(symbol, [LAUNCH, _SHARED, _LOCAL], b.take(), linkage="", attributes="")


def _over_blocks(f: Builder, begin: Callable[[], None], run: Callable[[], None], *others: Builder) -> None:
    """Take blocks from the counter; ``begin`` comes once before, ``run`` runs one block and jumps to ``block.end``.

    What stored past the cache is waited for when there are no more: in ``f``, and in the ``others`` that it calls.
    """
    f.binary("add", f.integer(0, 32), f.integer(0, 32), into=_RANK.text)
    _common(f)
    next_at, number_at = f.offset(LAUNCH, field_offset("next")), f.offset(_SHARED, -PLACE)
    warp_place(f)
    row = f.cast("zext", Value("%nctaid.x", "i32"), "i64", into="%row")
    column = f.cast("zext", Value("%nctaid.y", "i32"), "i64", into="%column")
    begin()
    f.jump("fetch")
    f.start("fetch")
    first = f.update("add", next_at, _CHUNK, "monotonic")
    f.branch(f.compare("icmp ult", first, _BLOCKS), "chunk.start", "return")
    f.start("chunk.start")
    limit = f.intrinsic("umin", f.binary("add", first, _CHUNK), _BLOCKS)
    f.jump("block.start")
    f.start("block.start")
    f.phi(BLOCK, (first, "chunk.start"), ("%block.next", "block.end"), into=BLOCK.text)
    f.store(BLOCK, number_at)
    x, rest = f.binary("urem", BLOCK, row), f.binary("udiv", BLOCK, row)
    for axis, place in zip("xyz", (x, f.binary("urem", rest, column), f.binary("udiv", rest, column)), strict=True):
        f.cast("trunc", place, "i32", into=f"%ctaid.{axis}")
    f.jump("block.run")
    f.start("block.run")
    run()
    f.start("block.end")
    following = f.binary("add", BLOCK, f.integer(1, 64), into="%block.next")
    f.branch(f.compare("icmp ult", following, limit), "block.start", "fetch")
    f.start("return")
    wait_for_stores(f, *others)
    f.leave()


def _warps(e: WarpEmitter) -> int:
    return (e.block.volume + WARP - 1) // WARP


# -- region by region -------------------------------------------------------------------------------------


def emit_regions(cut: Cut, make: Callable[[Region, RegionPassage], WarpEmitter], symbol: str) -> str:
    """Emit the module of a kernel that is cut at its barriers; ``make`` makes the emitter of a region."""
    emitters = {}
    parameters: dict[tuple[int, str], Value] = {}
    for name, passage in passages(cut).items():
        e = make(passage.region, passage)
        e.parameters = parameters
        e.emit(_first_mask(e))
        emitters[name] = e
    first = next(iter(emitters.values()))
    warps = _warps(first)
    arguments = [*_COMMON_ARGUMENTS, *parameters.values(), *kept_pointers(first, cut, warps)]
    f = Builder(first.builder.module)

    def begin() -> None:
        f.cast("ptrtoint", _LOCAL, "i64", into="%local.first")
        first.load_parameters(f)
        kept_places(f, first, cut, warps)

    _over_blocks(
        f, begin, lambda: run_regions(f, first, cut, warps, arguments), *(e.builder for e in emitters.values())
    )
    _define_kernel(f, symbol)
    size = sum(len(e.builder.body) for e in emitters.values())
    for name, e in emitters.items():
        define_region(e, name, warps, arguments, size)
    return f.module.text(symbol, *emitters)


# -- warps on stacks of their own -------------------------------------------------------------------------


def _on_stacks(e: WarpEmitter, symbol: str, functions: Mapping[str, WarpEmitter]) -> str:
    """With synchronisation: one function for a warp, which the scheduler in ``runtime/blocks.c`` runs."""
    b = e.builder
    e.emit(_first_mask(e))
    b.start("warp.end")
    b.leave()
    body = b.take()
    local_bytes = e.program.local_size * WARP
    plan = [Value("@body", "ptr"), b.integer(e.block.volume, 32), b.integer(_warps(e), 32),
            b.integer(local_bytes, 64), b.integer(STACK_BYTES, 64)]  # fmt: skip
    b.call("cujit_run_blocks", "void", LAUNCH, _SHARED, _LOCAL, b.module.constant("plan", plan))
    b.leave()
    _define_kernel(b, symbol)
    _state_loads(b)
    _local_loads(b, local_bytes)
    _on_stack(e, body)
    b.module.define("body", [STATE, WARP_NUMBER], b.take(), "void", _PROBED)
    for name, each in functions.items():
        _define_function(name, each)
    return b.module.text(symbol, "body", *map(symbol_of, functions))


def _on_stack(e: WarpEmitter, body: list[Node]) -> None:
    """What runs for a warp with a stack of its own, behind what tells it of the block."""
    b = e.builder
    _common(b)
    b.binary("mul", WARP_NUMBER, b.integer(WARP, 32), into=FIRST_THREAD.text)
    e.load_parameters(b)
    b.body += b.entry
    b.jump("warp.start")
    b.start("warp.start")
    b.body += body


def _define_function(name: str, e: WarpEmitter) -> None:
    """A function that is called: in the lanes of a mask, with parameters in memory; it gives the lanes that exited."""
    b = e.builder
    mask = Value("%entry.mask", "i1", True)
    e.emit(mask)
    b.start("warp.end")
    b.leave(b.read("exited", "i32"))
    body = b.take()
    local = b.allocate(f"[{max(e.program.local_size, 1) * WARP} x i8]", align=64)
    b.cast("ptrtoint", local, "i64", into="%local.int")
    _state_loads(b)
    _on_stack(e, body)
    arguments = [Value("%arguments", "i64"), Value("%arguments.stride", "i64")]
    b.module.define(symbol_of(name), [STATE, WARP_NUMBER, mask, *arguments], b.take(), "i32", _PROBED)


def _local_loads(b: Builder, local_bytes: int) -> None:
    """Local memory of a kernel is one piece a warp."""
    local = b.load("i64", b.offset(STATE, Block.local.offset))
    offset = b.binary("mul", b.cast("zext", WARP_NUMBER, "i64"), b.integer(local_bytes, 64))
    b.binary("add", local, offset, into="%local.int")


_STATE_FIELDS = (
    (LAUNCH, "launch"), (_SHARED, "shared"), (BLOCK, "number"), (_RANK, "rank"),
    *((Value(f"%ctaid.{axis}", "i32"), f"ctaid_{axis}") for axis in "xyz"),
)  # fmt: skip


def _state_loads(b: Builder) -> None:
    """Read what the scheduler says of the block."""
    for value, field in _STATE_FIELDS:
        b.load(value.type, b.offset(STATE, getattr(Block, field).offset), into=value.text)


# -- what both begin with ---------------------------------------------------------------------------------

_FIELDS = tuple(
    (Value(f"%{name}", type_), field)
    for name, type_, field in (
        ("params.int", "i64", "parameters"), ("module.int", "i64", "module"), ("module.size", "i64", "module_size"),
        ("blocks", "i64", "blocks"), ("chunk", "i64", "chunk"), ("nctaid.x", "i32", "grid_x"),
        ("nctaid.y", "i32", "grid_y"), ("nctaid.z", "i32", "grid_z"), ("dynamic.size", "i32", "dynamic_bytes"),
        ("shared.size", "i64", "shared_bytes"), ("shared.stride", "i64", "shared_stride"),
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
    """Give names to what the emitted code uses, from ``%launch``, ``%shared`` and ``%cluster.rank``."""
    with_idle(b)
    for value, field in _FIELDS:
        b.load(value.type, b.offset(LAUNCH, field_offset(field)), into=value.text)
    b.cast("inttoptr", Value("%params.int", "i64"), "ptr", into="%params")
    b.cast("ptrtoint", _SHARED, "i64", into=_SHARED_INT.text)
    before = b.binary("mul", b.cast("zext", _RANK, "i64"), Value("%shared.stride", "i64"))
    b.binary("sub", _SHARED_INT, before, into=_CLUSTER_INT.text)


def _first_mask(e: WarpEmitter) -> Value:
    """Lanes of the warp that are threads of the block: all, except in the last warp of an uneven block."""
    b: Builder = e.builder
    if e.block.volume % WARP == 0:
        return Value("splat (i1 true)", "i1", True, True)
    thread = b.binary("add", Value("%first.thread", "i32"), b.lanes(list(range(WARP)), 32))
    return b.compare("icmp ult", thread, b.integer(e.block.volume, 32))
