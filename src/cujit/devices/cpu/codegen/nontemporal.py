"""Stores past the cache, where a launch writes more than the cache holds: see ``analysis.streaming``."""

from __future__ import annotations

import platform

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.names import LAUNCH
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.program import Op
from cujit.devices.cpu.run.launch import field_offset

__all__ = ["LINE", "may_go_past", "streams", "wait_for_stores"]

LINE = 64
"""Bytes of a cache line of x86-64. A store of less than all of one is slower past the cache."""

_FENCE = "llvm.x86.sse.sfence"
_UNALIGNED = Value("%unaligned", "i64")
"""Bits of an address that are zero where a store may go past the cache; all if none may."""


def streams(e: WarpEmitter, op: Op) -> bool:
    """Tell whether a store may go past the cache; none may in kernels that wait or call, whose warps have stacks."""
    if platform.machine() not in ("x86_64", "AMD64") or e.watched or e.flow.suspends:
        return False
    return op in e.body.uncached.stores


def may_go_past(e: WarpEmitter, base: Value) -> Value:
    """Find out at run time whether a store at an address is to go past the cache."""
    b = e.builder
    if not b.has_entry(_UNALIGNED.text):
        block_bytes = e.block.volume * e.body.uncached.thread_bytes
        with b.at_entry():
            cache = b.load("i64", b.offset(LAUNCH, field_offset("cache_bytes")))
            written = b.binary("mul", Value("%blocks", "i64"), b.integer(block_bytes, 64))
            is_much = b.compare("icmp ugt", written, cache)
            b.select(is_much, b.integer(LINE - 1, 64), b.integer(-1, 64), into=_UNALIGNED.text)
    return b.compare("icmp eq", b.binary("and", base, _UNALIGNED), b.integer(0, 64))


def wait_for_stores(b: Builder, *others: Builder) -> None:
    """Wait for stores past the cache, if there are any in the function that ``b`` builds, or those of the others."""
    if any(node.nontemporal for each in (b, *others) for node in each.body):
        b.call(_FENCE, "void")
