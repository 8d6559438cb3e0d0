"""The function around the warp: it takes blocks from the counter, and runs the warps of each in order.

What the host hands over is a ``Launch``.
"""

from __future__ import annotations

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.launch import field_offset
from cujit.devices.cpu.shapes import WARP

__all__ = ["emit_function"]


def emit_function(e: WarpEmitter, symbol: str) -> str:
    """Emit the module with one function ``void symbol(Launch *, shared, local)`` and return its text."""
    b = e.builder
    _emit_warp_start(e)
    e.emit(_first_mask(e))
    warps = (e.block.volume + WARP - 1) // WARP
    head = [
        f"define void @{symbol}(ptr %launch, ptr %shared, ptr %local) {{",
        "entry:",
        "  %idle = alloca [16 x i8], align 16",
        "  %idle.int = ptrtoint ptr %idle to i64",
        *_loads(),
        *b.entry,
        "  br label %fetch",
        *_fetch(),
        *_block_head(),
    ]
    tail = [
        "warp.end:",
        "  %warp.next = add i32 %warp, 1",
        f"  %warps.left = icmp ult i32 %warp.next, {warps}",
        "  br i1 %warps.left, label %warp.start, label %block.end",
        "block.end:",
        "  %block.next = add i64 %block, 1",
        "  %blocks.left = icmp ult i64 %block.next, %limit",
        "  br i1 %blocks.left, label %block.start, label %fetch",
        "return:",
        "  ret void",
        "}",
    ]
    return "\n".join([*head, *b.body, *tail, *b.declared.values(), _MORE])


_MORE = "declare i64 @llvm.umin.i64(i64, i64)"


def _loads() -> list[str]:
    lines = []
    for name, type_, field in (
        ("params.int", "i64", "parameters"), ("module.int", "i64", "module"), ("module.size", "i64", "module_size"),
        ("blocks", "i64", "blocks"), ("chunk", "i64", "chunk"), ("nctaid.x", "i32", "grid_x"),
        ("nctaid.y", "i32", "grid_y"), ("nctaid.z", "i32", "grid_z"), ("dynamic.size", "i32", "dynamic_bytes"),
        ("shared.size", "i64", "shared_bytes"),
    ):  # fmt: skip
        lines.append(f"  %{name}.at = getelementptr i8, ptr %launch, i64 {field_offset(field)}")
        lines.append(f"  %{name} = load {type_}, ptr %{name}.at")
    lines += [
        "  %params = inttoptr i64 %params.int to ptr",
        "  %shared.int = ptrtoint ptr %shared to i64",
        "  %local.int = ptrtoint ptr %local to i64",
        "  %row = zext i32 %nctaid.x to i64",
        "  %column = zext i32 %nctaid.y to i64",
        f"  %next.at = getelementptr i8, ptr %launch, i64 {field_offset('next')}",
    ]
    return lines


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


def _block_head() -> list[str]:
    return [
        "block.start:",
        "  %block = phi i64 [ %first, %chunk.start ], [ %block.next, %block.end ]",
        "  %ctaid.x.wide = urem i64 %block, %row",
        "  %rest = udiv i64 %block, %row",
        "  %ctaid.y.wide = urem i64 %rest, %column",
        "  %ctaid.z.wide = udiv i64 %rest, %column",
        "  %ctaid.x = trunc i64 %ctaid.x.wide to i32",
        "  %ctaid.y = trunc i64 %ctaid.y.wide to i32",
        "  %ctaid.z = trunc i64 %ctaid.z.wide to i32",
        "  br label %warp.start",
    ]


def _emit_warp_start(e: WarpEmitter) -> None:
    b = e.builder
    b.start("warp.start")
    b.line("%warp = phi i32 [ 0, %block.start ], [ %warp.next, %warp.end ]")
    b.line(f"%first.thread = mul i32 %warp, {WARP}")


def _first_mask(e: WarpEmitter) -> Value:
    """Lanes of the warp that are threads of the block: all, except in the last warp of an uneven block."""
    b: Builder = e.builder
    if e.block.volume % WARP == 0:
        return Value("splat (i1 true)", "i1", True, True)
    thread = b.binary("add", Value("%first.thread", "i32"), b.lanes(list(range(WARP)), 32))
    return b.compare("icmp ult", thread, b.integer(e.block.volume, 32))
