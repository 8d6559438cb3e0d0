"""The order of memory accesses: fences, and what keeps strong loads and stores in their places.

A volatile, relaxed, acquire or release access is the plain vector access of its kind between two fences that keep the
compiler from leaving it out, joining it with another or moving it. That is enough, because processors read and
write aligned words of up to 8 bytes whole, those of a vector too; 16 bytes have accesses of their own (``wide``).
PTX ISA 9.1, chapter 8 "Memory Consistency Model"; 9.7.13.4 "membar", "fence".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.program import Op
from cujit.devices.cpu.ir.semantics import Order

__all__ = ["in_order", "register"]

_COMPILER = 'syncscope("singlethread") seq_cst'


def register(rules: Rules) -> None:
    """Add the rules of fences."""
    # Memory has one proxy here: what any of them wrote, the others see.
    rules.on("fence|membar", _fence)


def _fence(e: WarpEmitter, op: Op) -> None:
    """Order all accesses before and after, as strongly as the processor can where the form does not ask for less."""
    words = frozenset(op.modifiers)
    weak = bool(words & {"acq_rel", "acquire", "release", "proxy", "mbarrier_init"}) or "cta" in words
    e.builder.fence("acq_rel" if weak else "seq_cst")


@contextlib.contextmanager
def in_order(e: WarpEmitter, op: Op) -> Iterator[None]:
    """Emit what is inside as an access of the strength that the operation asks for; one of 16 bytes has it itself."""
    if not op.form.is_strong or op.type == "b128":
        yield
        return
    e.builder.fence("release" if op.order is Order.RELEASE else _COMPILER)
    yield
    e.builder.fence("acquire" if op.order is Order.ACQUIRE else _COMPILER)
