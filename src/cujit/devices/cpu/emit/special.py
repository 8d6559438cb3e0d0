"""Special registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cujit.devices.cpu.emit.builder import Value
from cujit.devices.cpu.shapes import WARP

if TYPE_CHECKING:
    from cujit.devices.cpu.emit.warp import WarpEmitter

__all__ = ["SPECIAL_REGISTERS", "special_value"]

_LANE = list(range(WARP))

# Values that every lane of a warp shares, as the names that the frame of the kernel gives them (``grid.py``).
_SHARED = {
    "ctaid.x": "%ctaid.x", "ctaid.y": "%ctaid.y", "ctaid.z": "%ctaid.z",
    "nctaid.x": "%nctaid.x", "nctaid.y": "%nctaid.y", "nctaid.z": "%nctaid.z",
    "warpid": "%warp", "dynamic_smem_size": "%dynamic.size",
}  # fmt: skip

# Lane masks of lane k. Source: PTX ISA 9.1, "Special Registers", lanemask_*.
_LANEMASK = {
    "lanemask_eq": [1 << k for k in _LANE],
    "lanemask_le": [(2 << k) - 1 for k in _LANE],
    "lanemask_lt": [(1 << k) - 1 for k in _LANE],
    "lanemask_ge": [~((1 << k) - 1) & 0xFFFFFFFF for k in _LANE],
    "lanemask_gt": [~((2 << k) - 1) & 0xFFFFFFFF for k in _LANE],
}

SPECIAL_REGISTERS = frozenset(
    {
        *_SHARED, *_LANEMASK, "tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z", "laneid", "nwarpid",
        "smid", "nsmid", "gridid", "total_smem_size", "clock", "clock_hi", "clock64", "globaltimer",
    }
)  # fmt: skip


def special_value(e: WarpEmitter, name: str) -> Value:
    """Read a special register; one that counts with the lane gives its first lane's when bases are asked for."""
    b = e.builder
    if name in _SHARED:
        return Value(_SHARED[name], "i32")
    if name in _LANEMASK:
        return b.lanes(_LANEMASK[name], 32)
    if name.startswith("tid."):
        return _thread_index(e, name[-1])
    if name.startswith("ntid."):
        return b.integer(getattr(e.block, name[-1]), 32)
    if name == "laneid":
        return b.integer(0, 32) if e.base_form else b.lanes(_LANE, 32)
    if name == "nwarpid":
        return b.integer((e.block.volume + WARP - 1) // WARP, 32)
    if name == "nsmid":
        return b.integer(1, 32)
    if name == "total_smem_size":
        return b.binary("add", Value("%dynamic.size", "i32"), b.integer(e.program.shared_size, 32))
    if name in ("clock", "clock_hi", "clock64", "globaltimer"):
        return _clock(e, name)
    return b.integer(0, 64 if name == "gridid" else 32)  # smid: one processor, number 0


def _thread_index(e: WarpEmitter, axis: str) -> Value:
    """Index of the thread along an axis, folded as far as the block's size allows.

    Source: CUDA C++ Programming Guide, "Thread Hierarchy": the thread's number is x + y Dx + z Dx Dy.
    """
    b, block = e.builder, e.block
    below = {"x": 1, "y": block.x, "z": block.x * block.y}[axis]
    size = getattr(block, axis)
    first = Value("%first.thread", "i32")
    alone = block.volume == below * size  # nothing above this axis: no wrap
    if size == 1:
        return b.integer(0, 32)
    if (axis == "x" and (size % WARP == 0 or alone)) or below % WARP == 0:
        index = b.binary("udiv", first, b.integer(below, 32))
        if not alone:
            index = b.binary("urem", index, b.integer(size, 32))
        if axis != "x" or e.base_form:
            return index
        return b.binary("add", index, b.lanes(_LANE, 32))
    if WARP % (below * size) == 0:
        return b.lanes([k // below % size for k in _LANE], 32)
    thread = b.binary("add", first, b.lanes(_LANE, 32))
    index = b.binary("udiv", thread, b.integer(below, 32))
    return index if alone else b.binary("urem", index, b.integer(size, 32))


def _clock(e: WarpEmitter, name: str) -> Value:
    """Cycle counter; for ``globaltimer`` it stands in for nanoseconds, which it is of the order of."""
    b = e.builder
    now = Value(b.call("llvm.readcyclecounter", "i64", [], []), "i64")
    if name == "clock":
        return b.resize(now, 32, signed=False)
    if name == "clock_hi":
        return b.resize(b.binary("lshr", now, b.integer(32, 64)), 32, signed=False)
    return now
