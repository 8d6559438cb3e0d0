"""Loads and stores at an address of its own for each lane: one by one, in functions that kernels call.

Instructions that gather and scatter are no faster on most processors, and LLVM writes a branch a lane where there are
none or only some lanes run. So lanes that do not run have the address of memory that nobody minds.
"""

from __future__ import annotations

from collections.abc import Callable

from cujit.devices.cpu.emit.builder import Value, type_width
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.shapes import WARP

__all__ = ["gather", "load_apart", "scatter"]

_GATHER = """
define internal <32 x {type}> @gather.{type}(<32 x i64> %addresses) noinline nounwind willreturn memory(read) {{
{loads}
  ret <32 x {type}> %found.32
}}
"""
_SCATTER = """
define internal void @scatter.{type}(<32 x i64> %addresses, <32 x {type}> %values) noinline nounwind willreturn {{
{stores}
  ret void
}}
"""


def _pointer(k: int) -> list[str]:
    """Make ``%at.k`` of what is in lane ``k`` of ``%addresses``."""
    return [
        f"  %address.{k} = extractelement <32 x i64> %addresses, i32 {k}",
        f"  %at.{k} = inttoptr i64 %address.{k} to ptr",
    ]


def _loads(element: str, place: Callable[[int], list[str]]) -> str:
    """Load an element for each lane from ``%at.k``, which ``place`` makes, into ``%found.32``."""
    text = [f"  %found.0 = insertelement <32 x {element}> poison, {element} zeroinitializer, i32 0"]
    for k in range(WARP):
        text += [
            *place(k),
            f"  %one.{k} = load {element}, ptr %at.{k}, align {type_width(element) // 8}",
            f"  %found.{k + 1} = insertelement <32 x {element}> %found.{k}, {element} %one.{k}, i32 {k}",
        ]
    return "\n".join(text)


def gather(e: WarpEmitter, lanes: Value, element: str, mask: Value) -> Value:
    """Load from an address of its own for each lane, one by one: instructions for that are no faster."""
    b = e.builder
    name = f"gather.{element}"
    if name not in b.module.functions:
        b.module.functions[name] = _GATHER.format(type=element, loads=_loads(element, _pointer))
    return b.invoke(f"@{name}", element, _safe(e, lanes, mask), vector=True)


def _safe(e: WarpEmitter, lanes: Value, mask: Value) -> Value:
    """Addresses of the lanes that run; those of the others are of memory that nobody minds."""
    if mask.constant:
        return lanes
    b = e.builder
    return b.select(mask, lanes, b.vector(Value("%idle.int", "i64")))


def scatter(e: WarpEmitter, lanes: Value, element: str, value: Value, mask: Value) -> None:
    """Store to an address of its own for each lane; the last of those that store to the same place stays."""
    b = e.builder
    name = f"scatter.{element}"
    if name not in b.module.functions:
        align = type_width(element) // 8
        text = []
        for k in range(WARP):
            text += [
                *_pointer(k),
                f"  %one.{k} = extractelement <32 x {element}> %values, i32 {k}",
                f"  store {element} %one.{k}, ptr %at.{k}, align {align}",
            ]
        b.module.functions[name] = _SCATTER.format(type=element, stores="\n".join(text))
    addresses = _safe(e, lanes, mask)
    b.invoke(f"@{name}", "void", addresses, value)


_APART = """
define internal <32 x {type}> @load.{type}.apart.{stride}(ptr %base) noinline nounwind willreturn memory(read) {{
{loads}
  ret <32 x {type}> %found.32
}}
"""


def load_apart(e: WarpEmitter, base: Value, stride: int, element: str) -> Value:
    """Load elements that lie ``stride`` bytes apart."""
    b = e.builder
    name = f"load.{element}.apart.{stride}"
    if name not in b.module.functions:

        def place(k: int) -> list[str]:
            return [f"  %at.{k} = getelementptr i8, ptr %base, i64 {k * stride}"]

        b.module.functions[name] = _APART.format(type=element, stride=stride, loads=_loads(element, place))
    return b.invoke(f"@{name}", element, b.cast("inttoptr", base, "ptr"), vector=True)
