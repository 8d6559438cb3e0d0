"""Loads and stores at an address of its own for each lane."""

from __future__ import annotations

from cujit.devices.cpu.emit.builder import Builder, Value, int_type, type_width
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.native import lanes as native

__all__ = ["gather", "load_apart", "scatter"]


def _function(b: Builder, kind: str, bits: int) -> str:
    name = native.name_of(kind, bits)
    b.module.declared.setdefault(name, native.declared(kind, bits))
    return f"@{name}"


def gather(e: WarpEmitter, lanes: Value, element: str, mask: Value) -> Value:
    """Load from an address of its own for each lane."""
    b, bits = e.builder, type_width(element)
    found = b.invoke(_function(b, "gather", bits), int_type(bits), _safe(e, lanes, mask), vector=True)
    return b.bits_as(found, element)


def _safe(e: WarpEmitter, lanes: Value, mask: Value) -> Value:
    """Addresses of the lanes that run; those of the others are of memory that nobody minds."""
    if mask.constant:
        return lanes
    b = e.builder
    return b.select(mask, lanes, b.vector(Value("%idle.int", "i64")))


def scatter(e: WarpEmitter, lanes: Value, element: str, value: Value, mask: Value) -> None:
    """Store to an address of its own for each lane; the last of those that store to the same place stays."""
    b, bits = e.builder, type_width(element)
    b.invoke(_function(b, "scatter", bits), "void", _safe(e, lanes, mask), b.bits_as(value, int_type(bits)))


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

        b.module.functions[name] = _APART.format(
            type=element, stride=stride, loads="\n".join(native.loads(element, place))
        )
    return b.invoke(f"@{name}", element, b.cast("inttoptr", base, "ptr"), vector=True)
