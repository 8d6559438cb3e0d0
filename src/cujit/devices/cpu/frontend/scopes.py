"""What names mean in one scope of a function: registers, variables, labels, tables, prototypes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from cujit.devices.cpu.ir.program import Group, Reg, Slot
from cujit.formats.ptx import syntax as ptx

__all__ = ["Frame"]


@dataclass
class Frame:
    """Names of one scope of one instance of a function; ``ret`` is the label behind an inlined one."""

    parent: Frame | None = None
    names: dict[str, Reg | Slot | Group] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    prototypes: dict[str, ptx.CallPrototype] = field(default_factory=dict)
    ret: str | None = None

    def _nearest(self, kind: str, name: str) -> Any:
        """Find what a name means in this scope, else in the one around it, and so on."""
        frame: Frame | None = self
        while frame is not None:
            found = getattr(frame, kind).get(name)
            if found is not None:
                return found
            frame = frame.parent
        return None

    def prototype(self, name: str) -> ptx.CallPrototype | None:
        """Find what ``.callprototype`` says under a name."""
        return cast("ptx.CallPrototype | None", self._nearest("prototypes", name))

    def find(self, name: str) -> Reg | Slot | Group | None:
        """Find a register or variable; a vector register is the group of its elements."""
        return cast("Reg | Slot | Group | None", self._nearest("names", name))

    def label(self, name: str) -> str:
        """Find the whole name of a label."""
        return str(self._nearest("labels", name) or name)

    def table(self, name: str) -> tuple[str, ...] | None:
        """Find a jump table."""
        targets = self._nearest("tables", name)
        return None if targets is None else tuple(map(self.label, targets))
