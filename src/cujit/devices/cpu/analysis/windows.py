"""What lanes access of shared memory at a pattern, laid out in vectors that hold all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cujit.devices.cpu.analysis.patterns import Pattern
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.ir.program import Memory, Op, Reg

__all__ = ["Window", "window_of"]

_VECTOR_BYTES = 32
"""Bytes of one vector, as large as most processors have them; lanes that lie in a row have one for all."""

_MOST = 8
"""Vectors of a window: it is shorter than what surrounds the shared memory of a block."""

_TYPES = frozenset({"b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"})


@dataclass(frozen=True)
class Window:
    """Vectors that hold what the lanes access: the first begins ``start`` bytes from the first lane's base register.

    ``used`` are the numbers of the vectors that some lane accesses; ``places`` tell for each lane which element
    it has of these, put together. Vectors have ``per_vector`` elements of ``size`` bytes.
    """

    size: int
    start: int
    per_vector: int
    used: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector."""
        return self.per_vector * self.size


def window_of(op: Op, patterns: Mapping[int, Pattern]) -> Window | None:
    """Find the window of a plain load or store of one element of shared memory; None where it has none."""
    if op.opcode not in ("ld", "st") or len(op.modifiers) != 2:
        return None
    memory = op.sources[0]
    if op.space != "shared" or op.type not in _TYPES or not isinstance(memory, Memory):
        return None
    reg = op.results[0] if op.opcode == "ld" else op.sources[1]
    if not isinstance(reg, Reg) or reg.bits != op.type.bits or not isinstance(memory.base, Reg):
        return None
    pattern = patterns.get(memory.base.index)
    if pattern is None:
        return None
    window = _window(pattern, memory.offset, reg.bits // 8)
    if window is not None and op.opcode == "st" and len(set(window.places)) < WARP:
        return None
    return window


def _window(pattern: Pattern, offset: int, size: int) -> Window | None:
    """Lay vectors over the lanes' addresses, from a multiple of their size on where that is known."""
    offsets = [x + offset for x in pattern.offsets]
    first = min(offsets)
    if max(offsets) - first >= _MOST * _VECTOR_BYTES or all(x == first for x in offsets):
        return None
    if all(x == first + k * size for k, x in enumerate(offsets)):
        return Window(size, first - pattern.offsets[0], WARP, (0,), tuple(range(WARP)))
    if pattern.align >= _VECTOR_BYTES:
        first -= first % _VECTOR_BYTES
    if any((x - first) % size for x in offsets):
        return None
    vectors = [(x - first) // _VECTOR_BYTES for x in offsets]
    used = tuple(sorted(set(vectors)))
    if len(used) > _MOST:
        return None
    per_vector = _VECTOR_BYTES // size
    places = [
        used.index(v) * per_vector + (x - first) % _VECTOR_BYTES // size for v, x in zip(vectors, offsets, strict=True)
    ]
    return Window(size, first - pattern.offsets[0], per_vector, used, tuple(places))
