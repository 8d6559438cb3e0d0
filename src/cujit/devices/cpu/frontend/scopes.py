"""What names mean in one scope of a function: registers, variables, labels, tables, prototypes."""

from __future__ import annotations

from dataclasses import dataclass, field

from cujit.devices.cpu.ir.program import Reg, Slot
from cujit.formats.ptx import syntax as ptx

__all__ = ["Frame"]


@dataclass
class Frame:
    """Names of one scope of one instance of a function; ``ret`` is the label behind an inlined one."""

    parent: Frame | None = None
    names: dict[str, Reg | Slot] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    prototypes: dict[str, ptx.CallPrototype] = field(default_factory=dict)
    vectors: dict[str, tuple[Reg, ...]] = field(default_factory=dict)
    ret: str | None = None

    def vector(self, name: str) -> tuple[Reg, ...] | None:
        """Find a vector register."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.vectors:
                return frame.vectors[name]
            frame = frame.parent
        return None

    def prototype(self, name: str) -> ptx.CallPrototype | None:
        """Find what ``.callprototype`` says under a name."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.prototypes:
                return frame.prototypes[name]
            frame = frame.parent
        return None

    def find(self, name: str) -> Reg | Slot | None:
        """Find a register or variable."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.parent
        return None

    def label(self, name: str) -> str:
        """Find the whole name of a label."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.labels:
                return frame.labels[name]
            frame = frame.parent
        return name

    def table(self, name: str) -> tuple[str, ...] | None:
        """Find a jump table."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.tables:
                return tuple(self.label(t) for t in frame.tables[name])
            frame = frame.parent
        return None
