"""``ldmatrix``, ``stmatrix`` and ``movmatrix``. PTX ISA 9.1, the sections of these names.

A matrix of eight rows of 16 bytes is one register: lane ``4 * g + t`` has bytes ``4 * t`` to ``4 * t + 3`` of row g.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.matrix import frames
from cujit.devices.cpu.instructions.memory import address_in
from cujit.devices.cpu.ir.program import Memory, Op

__all__ = ["one_of", "register", "when_any_lane"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("ldmatrix", _load)
    rules.on("stmatrix", _store)
    rules.on("movmatrix", _turn)


@contextlib.contextmanager
def when_any_lane(e: WarpEmitter, op: Op) -> Iterator[None]:
    """Have what is emitted inside run only if a lane does the operation."""
    b = e.builder
    with contextlib.nullcontext() if op.guard is None else b.when(b.any_lane(b.vector(e.lanes(op))), "matrix"):
        yield
        e.write_results()


def one_of(e: WarpEmitter, op: Op, value: Value) -> Value:
    """Give the value that all lanes have, from the first that runs."""
    b = e.builder
    return b.extract(value, b.first_lane(b.vector(e.lanes(op)))) if value.is_vector else value


def _addresses(e: WarpEmitter, op: Op) -> Value:
    """Point to the addresses of all lanes; lanes that do not run have memory that nobody minds."""
    b = e.builder
    memory = op.sources[0]
    assert isinstance(memory, Memory)
    own = b.vector(address_in(e, memory, op.space))
    return b.in_memory("%matrix.rows", b.select(b.vector(e.lanes(op)), own, b.vector(Value("%idle.int", "i64"))))


def _load(e: WarpEmitter, op: Op) -> None:
    """Load rows of 16 bytes, of codes of 6 or 4 bits packed as ``.b6x16_p32`` and ``.b4x16_p64`` say."""
    b, columns = e.builder, "m16n16" in op.modifiers
    bits = 6 if "b6x16_p32" in op.modifiers else 4 if "b4x16_p64" in op.modifiers else 8
    count = _count(op)
    numbers = [b.integer(n, 32) for n in ((count, bits) if columns else (count, bits, "trans" in op.modifiers))]
    with when_any_lane(e, op):
        scalars = [_addresses(e, op), *numbers]
        name = f"load{'_columns' * columns}"
        frames.put_all(e, op, frames.call_of(b, name, [], ["i32"] * (2 * count if columns else count), (), scalars))


def _store(e: WarpEmitter, op: Op) -> None:
    """The reverse of ``ldmatrix``; a row whose lane does not run is not stored."""
    b, count, by_bytes = e.builder, _count(op), "b8" in op.modifiers
    with when_any_lane(e, op):
        flags = [b.integer(n, 32) for n in (count, "trans" in op.modifiers and not by_bytes, by_bytes)]
        words = frames.words_of(e, op, 1, count)
        frames.call_of(b, "store", words, [], (), [_addresses(e, op), *flags])


def _count(op: Op) -> int:
    return next(int(m[1:]) for m in op.modifiers if m in ("x1", "x2", "x4"))


def _turn(e: WarpEmitter, op: Op) -> None:
    """Transpose eight rows of eight halves."""
    b, frame = e.builder, frames.frame_of(e.builder, 1)
    (own,) = frames.words_of(e, op, 0, 1)
    b.store(own, frame)
    b.call("cujit_matrix_turn", "void", frame)
    frames.put_all(e, op, [b.load("i32", frame, vector=True)])
