"""Tells where the lanes of a warp wait for each other, for the error that says that they never meet."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.names import BLOCK, FIRST_THREAD, LAUNCH, STATE, WARP_NUMBER
from cujit.devices.cpu.instructions import warpwide
from cujit.devices.cpu.native.structures import Block as BlockState
from cujit.devices.cpu.native.structures import FaultKind, Meeting, Warp
from cujit.devices.cpu.run.launch import Launch, field_offset

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter
    from cujit.devices.cpu.ir.cfg import Block

__all__ = ["end_launch", "forget", "tell"]


def tell(e: WarpEmitter, sites: Sequence[Block]) -> None:
    """Note in the state of the warp where lanes wait for others that are parked."""
    _note(e, sites, _place_of(e.builder), Warp.apart.size // ctypes.sizeof(Meeting))


def forget(e: WarpEmitter) -> None:
    """Take back what ``tell`` noted."""
    b, at = e.builder, _place_of(e.builder)
    size = Warp.apart.size
    b.call("llvm.memset.p0.i64", "void", at, b.integer(0, 8), b.integer(size, 64), b.integer(0, 1))


def _place_of(b: Builder) -> Value:
    index = b.resize(WARP_NUMBER, 64, signed=False)
    offset = b.binary("mul", index, b.integer(ctypes.sizeof(Warp), 64))
    at = b.binary("add", offset, b.integer(BlockState.warp.offset + Warp.apart.offset, 64))
    return b.point("i8", STATE, at)


def _note(e: WarpEmitter, sites: Sequence[Block], at: Value, room: int) -> None:
    """Write a ``Meeting`` for each of the first ``room`` places where lanes wait."""
    b = e.builder
    count = b.integer(0, 32)
    for block in sites:
        waiting = e.flow.load(f"mask.{block.position}", f"<{WARP} x i1>")
        members = warpwide.members_of(e, block.ops[0])
        if members.is_vector:
            members = b.extract(members, b.first_lane(waiting))
        values = [count, b.integer(room, 32), b.integer(block.ops[0].line, 32), b.word(waiting), members]
        count = b.call("cujit_note", "i32", at, *values)


def end_launch(e: WarpEmitter, sites: Sequence[Block], line: Value, lane: Value) -> None:
    """End the launch as one whose lanes never meet; ``line`` and ``lane`` are those of the first that waits."""
    b = e.builder
    claim = b.call("cujit_claim", "i32", LAUNCH, b.integer(int(FaultKind.LANES_APART), 32))
    mine = b.compare("icmp ne", claim, b.integer(0, 32))
    first, stop = b.label("first"), b.label("stop")
    b.branch(mine, first, stop)
    b.start(first)
    at = b.offset(LAUNCH, field_offset("fault_more"))
    _note(e, sites, at, Launch.fault_more.size // ctypes.sizeof(Meeting))
    thread = b.binary("add", FIRST_THREAD, lane)
    b.call("cujit_fault_here", "void", LAUNCH, BLOCK, thread, line, b.integer(0, 64))
    b.jump(stop)
    b.start(stop)
    b.call("cujit_stop", "void")
    b.unreachable()
