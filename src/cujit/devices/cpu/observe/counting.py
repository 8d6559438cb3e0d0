"""The observer behind coverage: counts the threads that come to the operations that stand for lines of source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cujit.devices.cpu.codegen.names import LAUNCH
from cujit.devices.cpu.run.launch import field_offset

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter
    from cujit.devices.cpu.ir.program import Op

__all__ = ["LineCounter"]


class LineCounter:
    """Adds to counter ``counters[op]`` of ``Launch.coverage`` (64 bits each) the threads that do ``op``."""

    def __init__(self, counters: Mapping[Op, int]) -> None:
        self._counters = counters
        self._begun: set[WarpEmitter] = set()

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Count the lanes that an operation is done in."""
        number = self._counters.get(op)
        if number is None:
            return
        b = e.builder
        self._begin(e)
        # A jump is done by whoever comes to it: its predicate only chooses where to.
        word = b.word(e.mask if op.form.is_jump else e.lanes(op))
        wide = b.resize(b.call("llvm.ctpop.i32", "i32", word), 64, signed=False)
        b.update("add", b.point("i64", "%coverage", b.integer(number, 64)), wide, "monotonic")

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Nothing is left to count."""

    def _begin(self, e: WarpEmitter) -> None:
        """Read once in a function where the counters are."""
        if e in self._begun:
            return
        self._begun.add(e)
        b = e.builder
        with b.at_entry():
            b.load("ptr", b.offset(LAUNCH, field_offset("coverage"), into="%coverage.at"), into="%coverage")
