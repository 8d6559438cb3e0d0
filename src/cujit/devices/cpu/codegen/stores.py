"""How a store of every lane is done: the first way that the ``Scatter`` allows, of those in ``_WAYS``.

Of lanes that store to the same place, the last one's value stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.access import Scatter, addresses, dealt, native_lanes, repeated, short_name
from cujit.devices.cpu.codegen.builder import Builder, Value, int_type, type_width
from cujit.devices.cpu.codegen.nontemporal import LINE, may_go_past
from cujit.devices.cpu.codegen.order import in_order
from cujit.devices.cpu.codegen.shared_windows import store_window
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.codegen.wide import store_wide

__all__ = ["store"]

_MOST_BLENDED = 8
"""Bytes a lane that may be read and written back where the lane does not run: they lie within what surrounds the
shared memory of a block, at most 31 times as far away as this from where a lane that runs may store."""


def store(e: WarpEmitter, s: Scatter) -> None:
    """Store the values in the lanes that run, in the order that is asked for."""
    way = next(way for fits, way in _WAYS if fits(s))
    with in_order(e, s.op):
        if s.place.holds is None or way is _each_lane:
            way(e, s)
        else:
            _if_it_holds(e, s, way)


def _if_it_holds(e: WarpEmitter, s: Scatter, way: Callable[[WarpEmitter, Scatter], None]) -> None:
    """Store in the way that is for the place's bases if these are right, else lane by lane."""
    b = e.builder
    assert s.place.holds is not None
    fast, slow, done = b.label("contiguous"), b.label("scattered"), b.label("stored")
    b.branch(s.place.holds, fast, slow)
    b.start(fast)
    way(e, s)
    b.jump(done)
    b.start(slow)
    _each_lane(e, s)
    b.jump(done)
    b.start(done)


# -- ways -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _if_any(e: WarpEmitter, s: Scatter) -> Iterator[None]:
    """Do what is emitted inside only if a lane runs: where none does, the address may be any."""
    b = e.builder
    if s.op.guard is None:
        yield
        return
    go, done = b.label("store"), b.label("stored")
    b.branch(b.any_lane(s.mask), go, done)
    b.start(go)
    yield
    b.jump(done)
    b.start(done)


def _uniform(e: WarpEmitter, s: Scatter) -> None:
    """Store once: the values of the last lane that runs."""
    b = e.builder
    with _if_any(e, s):
        pointer = b.cast("inttoptr", s.place.bases[0], "ptr")
        zeros = b.call("llvm.ctlz.i32", "i32", b.word(s.mask), b.integer(0, 1))
        last = b.binary("and", b.binary("sub", b.integer(WARP - 1, 32), zeros), b.integer(WARP - 1, 32))
        for k, value in enumerate(s.values):
            one = b.extract(value, last) if value.is_vector else value
            b.store(one, b.offset(pointer, k * s.element_bytes), align=s.element_bytes)


def _blended(e: WarpEmitter, s: Scatter) -> None:
    """Read and write back what lanes that do not run would store to, which most processors do faster than a store with
    a mask."""
    b = e.builder
    with _if_any(e, s):
        for part, pointer, lanes in _parts(b, s):
            old = b.load(part.type, pointer, align=s.element_bytes)
            b.store(b.select(Value(lanes.text, lanes.type), part, old), pointer, align=s.element_bytes)


def _streamed(e: WarpEmitter, s: Scatter) -> None:
    """Store past the cache where a row begins with a cache line, if the launch writes more than the cache holds."""
    b = e.builder
    for (part, pointer, lanes), base in zip(_parts(b, s), s.place.bases, strict=True):
        past, through, done = b.label("past"), b.label("through"), b.label("stored")
        b.branch(may_go_past(e, base), past, through)
        b.start(past)
        b.store(part, pointer, align=LINE, nontemporal=True)
        b.jump(done)
        b.start(through)
        _store_masked(b, s, part, pointer, lanes)
        b.jump(done)
        b.start(done)


def _contiguous(e: WarpEmitter, s: Scatter) -> None:
    """Store neighbouring elements of all lanes as one vector a row."""
    for part, pointer, lanes in _parts(e.builder, s):
        _store_masked(e.builder, s, part, pointer, lanes)


def _store_masked(b: Builder, s: Scatter, part: Value, pointer: Value, lanes: Value) -> None:
    n = WARP // len(s.place.bases) * s.count
    name = f"llvm.masked.store.v{n}{short_name(s.element)}.p0"
    b.call(name, "void", part, pointer, b.integer(s.element_bytes, 32), lanes)


def _parts(b: Builder, s: Scatter) -> Iterator[tuple[Value, Value, Value]]:
    """Give for each row its elements as one vector, where they go, and which of them do."""
    whole, rows = dealt(b, [b.vector(v) for v in s.values]), len(s.place.bases)
    n = WARP // rows * s.count
    for k, base in enumerate(s.place.bases):
        part = b.shuffle(whole, None, range(k * n, k * n + n)) if rows > 1 else whole
        pointer = b.cast("inttoptr", base, "ptr")
        yield Value(part.text, f"<{n} x {s.element}>"), pointer, repeated(b, s.mask, s.count, k, rows)


def _each_lane(e: WarpEmitter, s: Scatter) -> None:
    """Store to each lane's own address."""
    b, bits = e.builder, type_width(s.element)
    for at, value in zip(addresses(b, s), s.values, strict=True):
        b.invoke(native_lanes(b, "scatter", bits), "void", at, b.bits_as(b.vector(value), int_type(bits)))


_WAYS: tuple[tuple[Callable[[Scatter], bool], Callable[[WarpEmitter, Scatter], None]], ...] = (
    (lambda s: s.element == "i128", store_wide),
    (lambda s: s.place.window is not None, store_window),
    (lambda s: s.place.is_uniform, _uniform),
    (lambda s: s.is_contiguous and s.blends and not s.is_whole and s.bytes <= _MOST_BLENDED, _blended),
    (lambda s: s.is_contiguous and s.streams and s.is_whole and s.row_bytes % LINE == 0, _streamed),
    (lambda s: s.is_contiguous, _contiguous),
    (lambda _: True, _each_lane),
)
"""What each way is for; the last one is right for every place."""
