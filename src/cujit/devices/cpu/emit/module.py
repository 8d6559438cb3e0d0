"""The module of a kernel: its functions, each printed as soon as it is complete, and those that they call by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cujit.devices.cpu.emit.nodes import Node, Value, text_of
from cujit.devices.cpu.shapes import WARP

__all__ = ["IrModule"]


@dataclass
class IrModule:
    """``functions`` are the texts of those that it defines, ``declared`` of those that stand elsewhere, by name."""

    functions: dict[str, str] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)

    def define(
        self, name: str, parameters: str | Sequence[Value], returned: str, attributes: str, nodes: Iterable[Node]
    ) -> None:
        """Print a function that others may call; vectors among its parameters have the lanes of a warp."""
        if not isinstance(parameters, str):
            parameters = ", ".join([f"{_type_of(v)} {v.text}" for v in parameters])
        head = f"define internal {returned} @{name}({parameters}) {attributes} {{"
        self.functions[name] = "\n".join([head, "entry:", *map(text_of, nodes), "}"])


def _type_of(value: Value) -> str:
    return f"<{WARP} x {value.type}>" if value.is_vector else value.type
