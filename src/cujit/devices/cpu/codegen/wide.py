"""Loads and stores of 16 bytes (``.b128``): one access a lane, whole where the operation is more than weak."""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.codegen.access import Gather, Scatter
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.lanewise import each_lane
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.program import Op

__all__ = ["load_wide", "store_wide"]


def load_wide(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load 16 bytes for every lane that runs."""
    op, address = g.op, _address(e, g)
    ordered = op.form.is_strong

    def load(f: Builder, v: Sequence[Value]) -> Value:
        pointer = f.cast("inttoptr", v[0], "ptr")
        return f.load("i128", pointer, order="acquire" if ordered else "", align=16)

    loaded = each_lane(e, op, f"load.wide.{'ordered' if ordered else 'weak'}", [address], load, "i128")
    assert loaded is not None
    is_vector = address.is_vector or e.operand_shape(op.results[0]).stride is None
    return [loaded if is_vector else _first(e, op, loaded)]


def _address(e: WarpEmitter, g: Gather) -> Value:
    return g.place.bases[0] if g.place.is_uniform else g.place.every_lane(e.builder)


def _first(e: WarpEmitter, op: Op, loaded: Value) -> Value:
    """Take what the lanes that run have in common."""
    b = e.builder
    return b.extract(loaded, b.first_lane(e.lanes(op)))


def store_wide(e: WarpEmitter, s: Scatter) -> None:
    """Store 16 bytes of every lane that runs."""
    op = s.op
    ordered = op.form.is_strong

    def store(f: Builder, v: Sequence[Value]) -> None:
        pointer = f.cast("inttoptr", v[0], "ptr")
        f.store(v[1], pointer, order="release" if ordered else "", align=16)

    each_lane(e, op, f"store.wide.{'ordered' if ordered else 'weak'}", [_address(e, s), *s.values], store)
