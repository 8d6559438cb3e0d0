"""Stores past the cache, where a launch writes more than the cache holds: see ``uncached``."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.launch import field_offset
from cujit.devices.cpu.program import Op

__all__ = ["last_lines", "past_cache"]

_LINE = 64
"""Bytes of a cache line of x86-64. A store of less than all of one is slower past the cache."""

_FENCE = "llvm.x86.sse.sfence"

_ALL = "splat (i1 true)"


@contextlib.contextmanager
def past_cache(e: WarpEmitter, op: Op, mask: Value, base: Value, bytes_: int, store: str) -> Iterator[None]:
    """Emit ``store``, of that many bytes at ``base``, where that is whole cache lines; else what is inside."""
    if not (_can_be(e, op) and mask.text == _ALL and bytes_ % _LINE == 0):
        yield
        return
    b = e.builder
    _choose(e)
    past, through, done = b.label("past"), b.label("through"), b.label("stored")
    rest = b.binary("and", base, Value("%unaligned", "i64"))
    b.line(f"br i1 {b.compare('icmp eq', rest, b.integer(0, 64)).text}, label %{past}, label %{through}")
    b.start(past)
    b.line(f"{store}, align {_LINE}, !nontemporal !{{i32 1}}")
    b.line(f"br label %{done}")
    b.start(through)
    yield
    b.line(f"br label %{done}")
    b.start(done)
    b.declared[_FENCE] = f"declare void @{_FENCE}()"


def _can_be(e: WarpEmitter, op: Op) -> bool:
    """Tell whether a store may go past the cache; none may in kernels that wait or call, whose warps have stacks."""
    if platform.machine() not in ("x86_64", "AMD64") or e.watched or e.flow.suspends:
        return False
    return op in e.body.uncached.stores


def _choose(e: WarpEmitter) -> None:
    """Have ``%unaligned``: bits of an address that are zero where a store may go past the cache; all if none may."""
    block_bytes = e.block.volume * e.body.uncached.thread_bytes
    lines = [
        f"  %cache.at = getelementptr i8, ptr %launch, i64 {field_offset('cache_bytes')}",
        "  %cache.bytes = load i64, ptr %cache.at",
        f"  %written.bytes = mul i64 %blocks, {block_bytes}",
        "  %is.much = icmp ugt i64 %written.bytes, %cache.bytes",
        f"  %unaligned = select i1 %is.much, i64 {_LINE - 1}, i64 -1",
    ]
    if lines[0] not in e.builder.entry:
        e.builder.entry += lines


def last_lines(*builders: Builder) -> list[str]:
    """Write what a function does last: to wait for stores past the cache, if there are any."""
    return [f"  call void @{_FENCE}()"] if any(_FENCE in b.declared for b in builders) else []
