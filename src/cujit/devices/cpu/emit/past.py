"""Stores past the cache, where a launch writes more than the cache holds: see ``uncached``."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.names import LAUNCH
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.launch import field_offset
from cujit.devices.cpu.program import Op

__all__ = ["past_cache", "wait_for_stores"]

_LINE = 64
"""Bytes of a cache line of x86-64. A store of less than all of one is slower past the cache."""

_FENCE = "llvm.x86.sse.sfence"


@contextlib.contextmanager
def past_cache(
    e: WarpEmitter, op: Op, mask: Value, base: Value, bytes_: int, store: tuple[Value, Value]
) -> Iterator[None]:
    """Store ``store``, a value and where, of that many bytes at ``base`` if that is whole cache lines; else do what is
    inside."""
    if not (_can_be(e, op) and mask.constant and bytes_ % _LINE == 0):
        yield
        return
    b = e.builder
    _choose(e)
    past, through, done = b.label("past"), b.label("through"), b.label("stored")
    rest = b.binary("and", base, Value("%unaligned", "i64"))
    b.branch(b.compare("icmp eq", rest, b.integer(0, 64)), past, through)
    b.start(past)
    b.store(*store, align=_LINE, nontemporal=True)
    b.jump(done)
    b.start(through)
    yield
    b.jump(done)
    b.start(done)


def _can_be(e: WarpEmitter, op: Op) -> bool:
    """Tell whether a store may go past the cache; none may in kernels that wait or call, whose warps have stacks."""
    if platform.machine() not in ("x86_64", "AMD64") or e.watched or e.flow.suspends:
        return False
    return op in e.body.uncached.stores


def _choose(e: WarpEmitter) -> None:
    """Have ``%unaligned``: bits of an address that are zero where a store may go past the cache; all if none may."""
    block_bytes = e.block.volume * e.body.uncached.thread_bytes
    b = e.builder
    if b.has_entry("%unaligned"):
        return
    with b.at_entry():
        at = b.offset(LAUNCH, field_offset("cache_bytes"), into="%cache.at")
        cache = b.load("i64", at, into="%cache.bytes")
        written = b.binary("mul", Value("%blocks", "i64"), b.integer(block_bytes, 64), into="%written.bytes")
        is_much = b.compare("icmp ugt", written, cache, into="%is.much")
        b.select(is_much, b.integer(_LINE - 1, 64), b.integer(-1, 64), into="%unaligned")


def wait_for_stores(b: Builder, *others: Builder) -> None:
    """Wait for stores past the cache, if there are any in the function that ``b`` builds, or those of the others."""
    if any(node.nontemporal for each in (b, *others) for node in each.body):
        b.call(_FENCE, "void")
