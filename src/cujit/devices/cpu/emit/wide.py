"""Loads and stores of 16 bytes (``.b128``): one access a lane, whole where the operation is more than weak."""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.lanewise import each_lane
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.program import Op

__all__ = ["load_wide", "store_wide"]


def load_wide(e: WarpEmitter, op: Op, address: Value) -> Value:
    """Load 16 bytes for every lane that runs, from ``address`` (i64)."""
    ordered = op.form.is_strong

    def load(f: Builder, v: Sequence[Value]) -> Value:
        pointer = f.cast("inttoptr", v[0], "ptr")
        kind, order = ("load atomic", "acquire, ") if ordered else ("load", "")
        comma = " " if ordered else ", "
        return Value(f.assign(f"{kind} i128, ptr {pointer.text}{comma}{order}align 16"), "i128")

    loaded = each_lane(e, op, f"load.wide.{'ordered' if ordered else 'weak'}", [address], load, "i128")
    assert loaded is not None
    return loaded if address.is_vector or e.operand_shape(op.results[0]).stride is None else _first(e, op, loaded)


def _first(e: WarpEmitter, op: Op, loaded: Value) -> Value:
    """Take what the lanes that run have in common."""
    b = e.builder
    word = b.assign(f"bitcast <32 x i1> {e.lanes(op).text} to i32")
    lane = Value(b.call("llvm.cttz.i32", "i32", [f"i32 {word}", "i1 false"], ["i32", "i1"]), "i32")
    return b.extract(loaded, b.binary("and", lane, b.integer(31, 32)))


def store_wide(e: WarpEmitter, op: Op, address: Value, value: Value) -> None:
    """Store 16 bytes of every lane that runs to ``address`` (i64)."""
    ordered = op.form.is_strong

    def store(f: Builder, v: Sequence[Value]) -> None:
        pointer = f.cast("inttoptr", v[0], "ptr")
        if ordered:
            f.line(f"store atomic i128 {v[1].text}, ptr {pointer.text} release, align 16")
        else:
            f.line(f"store i128 {v[1].text}, ptr {pointer.text}, align 16")

    each_lane(e, op, f"store.wide.{'ordered' if ordered else 'weak'}", [address, value], store)
