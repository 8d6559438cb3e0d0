"""Shared memory where lanes access it at a pattern: as whole vectors, out of which constant shuffles pick.

Nobody but this thread writes to the shared memory of its block: what lies between the lanes' words is read and
written back. A window is shorter than what surrounds shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.analysis.windows import Window
from cujit.devices.cpu.codegen.access import Gather, Scatter, joined
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.warp import WarpEmitter

__all__ = ["load_window", "store_window"]


def load_window(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load all vectors, and give each lane its element."""
    assert g.place.window is not None
    return [_picked(e.builder, g, g.place.window, _vectors(e.builder, g, g.place.window))]


def store_window(e: WarpEmitter, s: Scatter) -> None:
    """Store each lane's value, in the lanes that run."""
    b, window = e.builder, s.place.window
    assert window is not None
    n, vectors, value = window.per_vector, _vectors(b, s, window), b.vector(s.values[0])
    if not s.is_whole:
        # Frozen, so that LLVM makes no store with a mask of it, which takes some processors many times as long.
        value = b.select(s.mask, value, b.freeze(_picked(b, s, window, vectors)))
    lane_at = dict(zip(window.places, range(WARP), strict=True))
    for k, (pointer, old) in enumerate(vectors):
        own = [lane_at.get(k * n + j, -1) for j in range(n)]
        new = _shuffled(b, WARP, value, None, own)
        if -1 in own:
            new = _shuffled(b, n, old, new, [j if own[j] < 0 else n + j for j in range(n)])
        b.store(Value(new.text, old.type), pointer, align=window.size)


def _vectors(b: Builder, g: Gather, window: Window) -> list[tuple[Value, Value]]:
    """Load the vectors as they are before the operation; give where each lies with it."""
    start = b.cast("inttoptr", g.place.bases[0], "ptr")
    pointers = [b.offset(start, k * window.vector_bytes) for k in window.used]
    return [(at, b.load(f"<{window.per_vector} x {g.element}>", at, align=window.size)) for at in pointers]


def _picked(b: Builder, g: Gather, window: Window, vectors: list[tuple[Value, Value]]) -> Value:
    values = [value for _, value in vectors]
    count = 1 << (len(values) - 1).bit_length()
    whole = joined(b, [*values, *[Value("poison", values[0].type)] * (count - len(values))], window.per_vector)
    return Value(_shuffled(b, window.per_vector * count, whole, None, window.places).text, g.element, True)


def _shuffled(b: Builder, length: int, first: Value, second: Value | None, picks: Sequence[int]) -> Value:
    return first if list(picks) == list(range(length)) else b.shuffle(first, second, picks)
