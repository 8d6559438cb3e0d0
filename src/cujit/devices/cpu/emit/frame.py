"""The function around the warp: it takes blocks from the counter, and runs the warps of each in order.

What the host hands over is a ``Launch``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.functions import symbol_of
from cujit.devices.cpu.emit.past import last_lines
from cujit.devices.cpu.emit.regions import (
    RegionPassage,
    context_lines,
    dispatch_lines,
    kept_arguments,
    passages,
    region_text,
    tell_warp,
    warp_place,
)
from cujit.devices.cpu.emit.warp import MASK, WarpEmitter
from cujit.devices.cpu.emit.windows import with_windows
from cujit.devices.cpu.launch import PLACE, field_offset
from cujit.devices.cpu.native.state import STACK_BYTES, with_offsets
from cujit.devices.cpu.regions import Cut, Region
from cujit.devices.cpu.shapes import WARP

__all__ = ["emit_function", "emit_regions"]

# A large frame is touched page by page, so that it meets the page below its stack that nobody may touch.
# Source: LLVM Language Reference, "Function Attributes": "probe-stack".
_PROBED = '"probe-stack"="inline-asm"'


def emit_function(e: WarpEmitter, symbol: str, functions: Mapping[str, WarpEmitter] | None = None) -> str:
    """Emit the module with one function ``void symbol(Launch *, shared, local)`` and return its text.

    ``functions`` are those that it calls.
    """
    return _on_stacks(e, symbol, functions) if e.flow.suspends else _in_turn(e, symbol)


def _end(e: WarpEmitter) -> list[str]:
    b = e.builder
    b.module.declared.setdefault("llvm.umin.i64", "declare i64 @llvm.umin.i64(i64, i64)")
    return [*b.module.functions.values(), *b.module.declared.values()]


# -- warps in turn ----------------------------------------------------------------------------------------


def _in_turn(e: WarpEmitter, symbol: str) -> str:
    """Without synchronisation: take blocks from the counter, and run the warps of each in order."""
    b = e.builder
    e.emit(_first_mask(e))
    last = last_lines(b)
    entry = ["  %local.int = ptrtoint ptr %local to i64", *e.parameter_loads(), *b.entry_lines()]
    body = [
        "block.run:",
        "  br label %warp.start",
        "warp.start:",
        "  %warp = phi i32 [ 0, %block.run ], [ %warp.next, %warp.end ]",
        f"  %first.thread = mul i32 %warp, {WARP}",
        *tell_warp(e),
        *b.body_lines(),
        "warp.end:",
        "  %warp.next = add i32 %warp, 1",
        f"  %warps.left = icmp ult i32 %warp.next, {_warps(e)}",
        "  br i1 %warps.left, label %warp.start, label %block.end",
    ]
    return "\n".join([*_over_blocks(symbol, entry, body, last), *_end(e)])


def _over_blocks(symbol: str, entry: list[str], body: list[str], last: list[str]) -> list[str]:
    """Take blocks from the counter; ``body`` runs one, from ``block.run`` to a jump to ``block.end``.

    ``last`` is done when there are no more.
    """
    return [
        f"define void @{symbol}(ptr %launch, ptr %shared, ptr %local) {{",
        "entry:",
        "  %cluster.rank = add i32 0, 0",
        *_idle(),
        *_common(),
        f"  %next.at = getelementptr i8, ptr %launch, i64 {field_offset('next')}",
        f"  %number.at = getelementptr i8, ptr %shared, i64 -{PLACE}",
        *warp_place(),
        "  %row = zext i32 %nctaid.x to i64",
        "  %column = zext i32 %nctaid.y to i64",
        *entry,
        "  br label %fetch",
        *_fetch(),
        "block.start:",
        "  %block = phi i64 [ %first, %chunk.start ], [ %block.next, %block.end ]",
        "  store i64 %block, ptr %number.at",
        "  %ctaid.x.wide = urem i64 %block, %row",
        "  %rest = udiv i64 %block, %row",
        "  %ctaid.y.wide = urem i64 %rest, %column",
        "  %ctaid.z.wide = udiv i64 %rest, %column",
        "  %ctaid.x = trunc i64 %ctaid.x.wide to i32",
        "  %ctaid.y = trunc i64 %ctaid.y.wide to i32",
        "  %ctaid.z = trunc i64 %ctaid.z.wide to i32",
        "  br label %block.run",
        *body,
        "block.end:",
        "  %block.next = add i64 %block, 1",
        "  %blocks.left = icmp ult i64 %block.next, %limit",
        "  br i1 %blocks.left, label %block.start, label %fetch",
        "return:",
        *last,
        "  ret void",
        "}",
    ]


def _warps(e: WarpEmitter) -> int:
    return (e.block.volume + WARP - 1) // WARP


def _fetch() -> list[str]:
    return [
        "fetch:",
        "  %first = atomicrmw add ptr %next.at, i64 %chunk monotonic",
        "  %some = icmp ult i64 %first, %blocks",
        "  br i1 %some, label %chunk.start, label %return",
        "chunk.start:",
        "  %end = add i64 %first, %chunk",
        "  %limit = call i64 @llvm.umin.i64(i64 %end, i64 %blocks)",
        "  br label %block.start",
    ]


# -- region by region -------------------------------------------------------------------------------------


def emit_regions(cut: Cut, make: Callable[[Region, RegionPassage], WarpEmitter], symbol: str) -> str:
    """Emit the module of a kernel that is cut at its barriers; ``make`` makes the emitter of a region."""
    emitters = {}
    warps = 0
    parameters: dict[tuple[int, str], Value] = {}
    for name, passage in passages(cut).items():
        e = make(passage.region, passage)
        e.handler_of = with_windows(e.handler_of, passage.region)
        warps = _warps(e)
        e.parameters = parameters
        e.emit(_first_mask(e))
        emitters[name] = e
    first = next(iter(emitters.values()))
    arguments = ", ".join([*_COMMON_ARGUMENTS, *(f"{v.type} {v.text}" for v in parameters.values()),
                           *kept_arguments(first, cut, warps)])  # fmt: skip
    size = sum(len(e.builder.body) for e in emitters.values())
    entry = ["  %local.first = ptrtoint ptr %local to i64", *first.parameter_loads()]
    entry += context_lines(first, cut, warps)
    last = last_lines(*(e.builder for e in emitters.values()))
    lines = _over_blocks(symbol, entry, dispatch_lines(first, cut, warps, arguments), last)
    for name, e in emitters.items():
        lines += region_text(e, name, warps, arguments, size)
    if not cut.blockwide.together:
        first.builder.module.declared["llvm.memset.p0.i64"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
    return "\n".join([*lines, *_end(first)])


# -- warps on stacks of their own -------------------------------------------------------------------------


def _on_stacks(e: WarpEmitter, symbol: str, functions: Mapping[str, WarpEmitter] | None) -> str:
    """With synchronisation: one function for a warp, which the scheduler in ``runtime/blocks.c`` runs."""
    b = e.builder
    e.emit(_first_mask(e))
    local_bytes = e.program.local_size * WARP
    plan = f"ptr @body, i32 {e.block.volume}, i32 {_warps(e)}, i64 {local_bytes}, i64 {STACK_BYTES}"
    types = "{ ptr, i32, i32, i64, i64 }"
    fields = ", ".join(plan.split(", "))
    lines = [
        f"@plan = internal constant {types} {{ {fields} }}",
        "declare void @cujit_run_blocks(ptr, ptr, ptr, ptr)",
        f"define void @{symbol}(ptr %launch, ptr %shared, ptr %local) {{",
        "  call void @cujit_run_blocks(ptr %launch, ptr %shared, ptr %local, ptr @plan)",
        "  ret void",
        "}",
        f"define internal void @body(ptr %state, i32 %warp) {_PROBED} {{",
        "entry:",
        *_state_loads(),
        *_local_loads(local_bytes),
        *_idle(),
        *_common(),
        f"  %first.thread = mul i32 %warp, {WARP}",
        *e.parameter_loads(),
        *b.entry_lines(),
        "  br label %warp.start",
        "warp.start:",
        *b.body_lines(),
        "warp.end:",
        "  ret void",
        "}",
    ]
    for name, each in (functions or {}).items():
        lines += _function(name, each)
    return "\n".join([*lines, *_end(e)])


def _function(name: str, e: WarpEmitter) -> list[str]:
    """A function that is called: in the lanes of a mask, with parameters in memory; it gives the lanes that exited."""
    b = e.builder
    e.emit(Value("%entry.mask", "i1", True))
    b.reserve("%exited", "i32")
    size = max(e.program.local_size, 1) * WARP
    return [
        f"define internal i32 {symbol_of(name)}"
        f"(ptr %state, i32 %warp, {MASK} %entry.mask, i64 %arguments, i64 %arguments.stride) {_PROBED} {{",
        "entry:",
        f"  %local = alloca [{size} x i8], align 64",
        "  %local.int = ptrtoint ptr %local to i64",
        *_state_loads(),
        *_idle(),
        *_common(),
        f"  %first.thread = mul i32 %warp, {WARP}",
        *e.parameter_loads(),
        *b.entry_lines(),
        "  store i32 0, ptr %exited",
        "  br label %warp.start",
        "warp.start:",
        *b.body_lines(),
        "warp.end:",
        "  %gone = load i32, ptr %exited",
        "  ret i32 %gone",
        "}",
    ]


def _local_loads(local_bytes: int) -> list[str]:
    """Local memory of a kernel is one piece a warp."""
    text = f"""
  %local.at = getelementptr i8, ptr %state, i64 #Block.local
  %local = load i64, ptr %local.at
  %warp.wide = zext i32 %warp to i64
  %local.offset = mul i64 %warp.wide, {local_bytes}
  %local.int = add i64 %local, %local.offset"""
    return with_offsets(text).strip("\n").splitlines()


def _state_loads() -> list[str]:
    """Read what the scheduler says of the block."""
    text = """
  %launch.at = getelementptr i8, ptr %state, i64 #Block.launch
  %launch = load ptr, ptr %launch.at
  %shared.at = getelementptr i8, ptr %state, i64 #Block.shared
  %shared = load ptr, ptr %shared.at
  %block.at = getelementptr i8, ptr %state, i64 #Block.number
  %block = load i64, ptr %block.at
  %rank.at = getelementptr i8, ptr %state, i64 #Block.rank
  %cluster.rank = load i32, ptr %rank.at
  %ctaid.x.at = getelementptr i8, ptr %state, i64 #Block.ctaid_x
  %ctaid.x = load i32, ptr %ctaid.x.at
  %ctaid.y.at = getelementptr i8, ptr %state, i64 #Block.ctaid_y
  %ctaid.y = load i32, ptr %ctaid.y.at
  %ctaid.z.at = getelementptr i8, ptr %state, i64 #Block.ctaid_z
  %ctaid.z = load i32, ptr %ctaid.z.at"""
    return with_offsets(text).strip("\n").splitlines()


# -- what both begin with ---------------------------------------------------------------------------------

_FIELDS = (
    ("params.int", "i64", "parameters"), ("module.int", "i64", "module"), ("module.size", "i64", "module_size"),
    ("blocks", "i64", "blocks"), ("chunk", "i64", "chunk"), ("nctaid.x", "i32", "grid_x"),
    ("nctaid.y", "i32", "grid_y"), ("nctaid.z", "i32", "grid_z"), ("dynamic.size", "i32", "dynamic_bytes"),
    ("shared.size", "i64", "shared_bytes"), ("shared.stride", "i64", "shared_stride"),
)  # fmt: skip
"""Names of the emitted code, with their types and the fields of ``Launch`` that they come from."""

_COMMON_ARGUMENTS = [
    "ptr %launch", "ptr %shared", "i64 %local.first", "i64 %block", "i32 %cluster.rank", "i32 %ctaid.x",
    "i32 %ctaid.y", "i32 %ctaid.z", *(f"{type_} %{name}" for name, type_, _ in _FIELDS), "i64 %shared.int",
    "i64 %cluster.int",
]  # fmt: skip
"""What a function needs to know of the launch and the block, as arguments."""


def _idle() -> list[str]:
    """Memory for lanes that do not run."""
    return ["  %idle = alloca [32 x i8], align 16", "  %idle.int = ptrtoint ptr %idle to i64"]


def _common() -> list[str]:
    """Names that the emitted code uses, for ``%launch``, ``%shared`` and ``%cluster.rank``."""
    lines = []
    for name, type_, field in _FIELDS:
        lines.append(f"  %{name}.at = getelementptr i8, ptr %launch, i64 {field_offset(field)}")
        lines.append(f"  %{name} = load {type_}, ptr %{name}.at")
    lines += [
        "  %params = inttoptr i64 %params.int to ptr",
        "  %shared.int = ptrtoint ptr %shared to i64",
        "  %rank.wide = zext i32 %cluster.rank to i64",
        "  %rank.offset = mul i64 %rank.wide, %shared.stride",
        "  %cluster.int = sub i64 %shared.int, %rank.offset",
    ]
    return lines


def _first_mask(e: WarpEmitter) -> Value:
    """Lanes of the warp that are threads of the block: all, except in the last warp of an uneven block."""
    b: Builder = e.builder
    if e.block.volume % WARP == 0:
        return Value("splat (i1 true)", "i1", True, True)
    thread = b.binary("add", Value("%first.thread", "i32"), b.lanes(list(range(WARP)), 32))
    return b.compare("icmp ult", thread, b.integer(e.block.volume, 32))
