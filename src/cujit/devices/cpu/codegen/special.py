"""Special registers: what each gives. PTX ISA 9.1, chapter 10."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TypeAlias

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.nodes import LAUNCH
from cujit.devices.cpu.ir.program import KernelProgram
from cujit.devices.cpu.run.launch import SYSTEM_BYTES, field_offset
from cujit.devices.shapes import Dim3
from cujit.values import NamedTuple


class RegisterRead(NamedTuple):
    """How a special register is read: with a ``lane`` as the scalar that it is there."""

    builder: Builder
    program: KernelProgram
    block: Dim3
    lane: int | None


Reader: TypeAlias = Callable[[RegisterRead], Value]

_LANE = list(range(WARP))
_SMEM_UNIT = 128
"""Bytes in which shared memory is given out. Source: PTX ISA 9.1, 10.30 "%total_smem_size", sm_8x and later."""


def special_value(e: RegisterRead, name: str) -> Value:
    """Read a special register; one that counts with the lane gives its first lane's when bases are asked for."""
    return _READERS[name](e)


def _constant(value: int, bits: int, e: RegisterRead) -> Value:
    return e.builder.integer(value, bits)


def _field(e: RegisterRead, name: str, type_: str) -> Value:
    """Read what the host said of the launch."""
    return e.builder.load(type_, e.builder.offset(LAUNCH, field_offset(name)))


# -- threads ----------------------------------------------------------------------------------------------


def _thread_index(axis: str, e: RegisterRead) -> Value:
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
    if e.lane is not None:
        thread = b.binary("add", first, b.integer(e.lane, 32)) if e.lane else first
        index = b.binary("udiv", thread, b.integer(below, 32))
        return index if alone else b.binary("urem", index, b.integer(size, 32))
    if (axis == "x" and (size % WARP == 0 or alone)) or below % WARP == 0:
        index = b.binary("udiv", first, b.integer(below, 32))
        if not alone:
            index = b.binary("urem", index, b.integer(size, 32))
        if axis != "x":
            return index
        return b.binary("add", index, b.lanes(_LANE, 32))
    if WARP % (below * size) == 0:
        return b.lanes([k // below % size for k in _LANE], 32)
    thread = b.binary("add", first, b.lanes(_LANE, 32))
    index = b.binary("udiv", thread, b.integer(below, 32))
    return index if alone else b.binary("urem", index, b.integer(size, 32))


# -- clusters ---------------------------------------------------------------------------------------------


def _cluster_size(axis: str, e: RegisterRead) -> Value:
    """Blocks of a cluster along an axis; without clusters every block is one."""
    return e.builder.intrinsic("umax", _field(e, f"cluster_{axis}", "i32"), e.builder.integer(1, 32))


def _cluster_part(register: str, operation: str, axis: str, e: RegisterRead) -> Value:
    """Divide a register of the grid by the size of a cluster, or take the rest."""
    return e.builder.binary(operation, Value(f"%{register}.{axis}", "i32"), _cluster_size(axis, e))


def _cluster_rank(e: RegisterRead) -> Value:
    """Number of the block in its cluster, x first."""
    b = e.builder
    rank = b.integer(0, 32)
    for axis in "zyx":
        within = _cluster_part("ctaid", "urem", axis, e)
        rank = b.binary("add", b.binary("mul", rank, _cluster_size(axis, e)), within)
    return rank


def _cluster_blocks(e: RegisterRead) -> Value:
    x, y, z = (_cluster_size(axis, e) for axis in "xyz")
    return e.builder.binary("mul", e.builder.binary("mul", x, y), z)


# -- shared memory, the driver's registers ----------------------------------------------------------------


def _shared_total(e: RegisterRead) -> Value:
    """Bytes of shared memory of a block, in whole units, without what the system has."""
    b = e.builder
    size = b.binary("add", Value("%dynamic.size", "i32"), b.integer(e.program.shared_size + _SMEM_UNIT - 1, 32))
    return b.binary("and", size, b.integer(-_SMEM_UNIT, 32))


def _shared_whole(e: RegisterRead) -> Value:
    """Bytes of shared memory of a block and of the system: not in whole units, as an H200 has it."""
    size = e.builder.integer(e.program.shared_size + SYSTEM_BYTES, 32)
    return e.builder.binary("add", Value("%dynamic.size", "i32"), size)


def _workspace(shift: int, e: RegisterRead) -> Value:
    """Half of the address at which the blocks of a cooperative grid meet.

    Source: ``cooperative_groups/details/driver_abi.h`` of CUDA 13: ``%envreg1`` is the upper half, ``%envreg2`` the
    lower one.
    """
    b = e.builder
    address = _field(e, "workspace", "i64")
    return b.resize(b.binary("lshr", address, b.integer(shift, 64)), 32, signed=False)


# -- clocks -----------------------------------------------------------------------------------------------


def _clock(shift: int, bits: int, e: RegisterRead) -> Value:
    """The processor's cycle counter, or half of it."""
    b = e.builder
    now = b.call("llvm.readcyclecounter", "i64")
    return b.resize(b.binary("lshr", now, b.integer(shift, 64)), bits, signed=False)


def _timer(shift: int, bits: int, e: RegisterRead) -> Value:
    """Nanoseconds of the system's clock that only goes forward, or half of them."""
    b = e.builder
    timer = Value("%timer", "ptr")
    if not b.has_entry(timer.text):
        with b.at_entry():
            b.allocate("[2 x i64]", into=timer.text)
    b.call("clock_gettime", "i32", b.integer(time.CLOCK_MONOTONIC, 32), timer)
    rest = b.offset(timer, 8)
    seconds, more = (b.load("i64", at) for at in (timer, rest))
    now = b.binary("add", b.binary("mul", seconds, b.integer(1_000_000_000, 64)), more)
    return b.resize(b.binary("lshr", now, b.integer(shift, 64)), bits, signed=False)


# -- the table --------------------------------------------------------------------------------------------


def _on_axes(name: str, reader: Callable[..., Value], *first: str) -> dict[str, Reader]:
    """A register of three components; its fourth is unused and zero."""
    found: dict[str, Reader] = {f"{name}.{axis}": functools.partial(reader, *first, axis) for axis in "xyz"}
    return {**found, f"{name}.w": functools.partial(_constant, 0, 32)}


def _of_frame(prefix: str, axis: str, _e: RegisterRead) -> Value:
    """A value that all lanes of a warp share and that the kernel's frame has (``frame.py``)."""
    return Value(f"%{prefix}.{axis}", "i32")


def _zeros(names: str, bits: int) -> dict[str, Reader]:
    return {name: functools.partial(_constant, 0, bits) for name in names.split()}


_READERS: dict[str, Reader] = {
    **_on_axes("tid", _thread_index),
    **_on_axes("ntid", lambda axis, e: e.builder.integer(getattr(e.block, axis), 32)),
    **_on_axes("ctaid", _of_frame, "ctaid"),
    **_on_axes("nctaid", _of_frame, "nctaid"),
    **_on_axes("clusterid", _cluster_part, "ctaid", "udiv"),
    **_on_axes("nclusterid", _cluster_part, "nctaid", "udiv"),
    **_on_axes("cluster_ctaid", _cluster_part, "ctaid", "urem"),
    **_on_axes("cluster_nctaid", _cluster_size),
    "cluster_ctarank": _cluster_rank,
    "cluster_nctarank": _cluster_blocks,
    # Whether the launch has clusters, be they of one block.
    "is_explicit_cluster": lambda e: e.builder.compare("icmp ne", _field(e, "cluster_x", "i32"), _constant(0, 32, e)),
    "laneid": lambda e: e.builder.lanes(_LANE, 32) if e.lane is None else e.builder.integer(e.lane, 32),
    "lanemask_eq": lambda e: e.builder.lanes([1 << k for k in _LANE], 32),
    "lanemask_le": lambda e: e.builder.lanes([(2 << k) - 1 for k in _LANE], 32),
    "lanemask_lt": lambda e: e.builder.lanes([(1 << k) - 1 for k in _LANE], 32),
    "lanemask_ge": lambda e: e.builder.lanes([-(1 << k) for k in _LANE], 32),
    "lanemask_gt": lambda e: e.builder.lanes([-(2 << k) for k in _LANE], 32),
    "warpid": lambda _e: Value("%warp", "i32"),
    "nwarpid": lambda e: e.builder.integer((e.block.volume + WARP - 1) // WARP, 32),
    # The whole processor counts as one multiprocessor, whose number is 0.
    "nsmid": functools.partial(_constant, 1, 32),
    **_zeros("smid", 32),
    # Grids are not numbered, none is part of a device graph, and performance counters are undefined.
    **_zeros("gridid current_graph_exec", 64),
    **_zeros(" ".join(f"pm{k}" for k in range(8)), 32),
    **_zeros(" ".join(f"pm{k}_64" for k in range(8)), 64),
    "dynamic_smem_size": functools.partial(_of_frame, "dynamic", "size"),
    "total_smem_size": _shared_total,
    "aggr_smem_size": _shared_whole,
    **_zeros(" ".join(f"reserved_smem_offset_{k}" for k in ("begin", "end", "cap", "0", "1")), 32),
    **_zeros(" ".join(f"envreg{k}" for k in range(32)), 32),
    "envreg1": functools.partial(_workspace, 32),
    "envreg2": functools.partial(_workspace, 0),
    "clock": functools.partial(_clock, 0, 32),
    "clock_hi": functools.partial(_clock, 32, 32),
    "clock64": functools.partial(_clock, 0, 64),
    "globaltimer": functools.partial(_timer, 0, 64),
    "globaltimer_lo": functools.partial(_timer, 0, 32),
    "globaltimer_hi": functools.partial(_timer, 32, 32),
}
"""How each special register is read, by its name without the percent sign."""

SPECIAL_REGISTERS = frozenset(_READERS)
