"""Shared memory where lanes access it at a pattern: as whole vectors, out of which constant shuffles pick.

Nobody but this thread writes to the shared memory of its block: what lies between the lanes' words is read and
written back. A window is shorter than what surrounds shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cujit.devices.cpu.emit.builder import Value
from cujit.devices.cpu.emit.memory import element_type
from cujit.devices.cpu.program import Memory, Op, Reg
from cujit.devices.cpu.regions import Region
from cujit.devices.cpu.shapes import WARP
from cujit.devices.cpu.windows import Window, window_of

if TYPE_CHECKING:
    from cujit.devices.cpu.emit.warp import Handler, WarpEmitter

__all__ = ["with_windows"]


def with_windows(others: Callable[[Op], Handler], region: Region) -> Callable[[Op], Handler]:
    """Give the same handlers, but for loads and stores that have a window."""

    def handler_of(op: Op) -> Handler:
        window = window_of(op, region.patterns) if op.guard is None or op in region.if_converted else None
        return others(op) if window is None else lambda e, op: _access(e, op, window)

    return handler_of


def _access(e: WarpEmitter, op: Op, window: Window) -> None:
    vectors = _Vectors(e, op, window)
    if op.opcode == "ld":
        e.put(op, vectors.picked())
    else:
        vectors.write(e.builder.vector(e.source(op, 1, vectors.element)))


class _Vectors:
    """The vectors of a window, as they are before the operation."""

    def __init__(self, e: WarpEmitter, op: Op, window: Window) -> None:
        self.element = element_type(op.type)
        self._e = e
        self._op = op
        self._window = window
        self._type = f"<{window.per_vector} x {self.element}>"
        self._pointers = _pointers(e, op, window)
        self._vectors = [e.builder.load(self._type, p, align=window.size) for p in self._pointers]

    def picked(self) -> Value:
        """Give each lane its element."""
        length, vectors = self._window.per_vector, self._vectors
        nothing = Value("poison", self._type)
        vectors = [*vectors, *[nothing] * ((1 << (len(vectors) - 1).bit_length()) - len(vectors))]
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self._shuffled(length, a, b, range(2 * length)) for a, b in pairs]
            length *= 2
        return Value(self._shuffled(length, vectors[0], None, self._window.places).text, self.element, True)

    def write(self, value: Value) -> None:
        """Store each lane's value, in the lanes that run."""
        b, n = self._e.builder, self._window.per_vector
        lanes = self._e.lanes(self._op)
        if not lanes.constant:
            # Frozen, so that LLVM makes no store with a mask of it, which takes some processors many times as long.
            value = b.select(lanes, value, b.freeze(self.picked()))
        lane_at = dict(zip(self._window.places, range(WARP), strict=True))
        for k, pointer in enumerate(self._pointers):
            own = [lane_at.get(k * n + j, -1) for j in range(n)]
            new = self._shuffled(WARP, value, None, own)
            if -1 in own:
                new = self._shuffled(n, self._vectors[k], new, [j if own[j] < 0 else n + j for j in range(n)])
            b.store(Value(new.text, self._type), pointer, align=self._window.size)

    def _shuffled(self, length: int, a: Value, b: Value | None, picks: Sequence[int]) -> Value:
        return a if list(picks) == list(range(length)) else self._e.builder.shuffle(a, b, picks)


def _pointers(e: WarpEmitter, op: Op, window: Window) -> list[Value]:
    """Point to the vectors of a window."""
    b, memory = e.builder, op.sources[0]
    assert isinstance(memory, Memory)
    assert isinstance(memory.base, Reg)
    if e.shape(memory.base).stride is None:
        first = b.extract(e.read(memory.base, "i32"), b.integer(0, 32))
    else:
        first, *_ = [e.read(memory.base, "i32") for _ in e.each_row(e.shape(memory.base))]
    base = b.binary("add", b.resize(first, 64, signed=True), b.integer(window.start, 64))
    start = b.cast("inttoptr", b.binary("add", base, Value("%shared.int", "i64")), "ptr")
    return [b.offset(start, k * window.vector_bytes) for k in window.used]
