"""The module of a kernel: its functions, each printed as soon as it is complete, and those that they call by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.nodes import Node, Value, text_of
from cujit.devices.cpu.run.debuglines import DebugInfo

__all__ = ["IrModule"]


_SAID = 0
"""Number of the attributes that the function has which is called from elsewhere."""

_UNROLLED = 175_000
"""Characters of IR whose loops may be unrolled: where it is longer, machine code for many turns takes too long. Those
of debug information do not count: code is optimised with it as without."""


_LONG = 2_000_000
"""Characters of IR, counted likewise, beyond which LLVM is to leave out passes that take the square of the blocks: of
7 million, 11.6 CPU seconds went into level 2 and 0.8 into level 1. Measured with LLVM 22.1."""


@dataclass
class IrModule:
    """``functions`` are the texts of those that it defines, ``declared`` of those that stand elsewhere, by name.

    With ``debug``, functions are printed with the lines that they come from.
    """

    debug: DebugInfo | None = None
    functions: dict[str, str] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    _constants: dict[str, str] = field(default_factory=dict)
    _debug_length: int = 0

    def define(
        self,
        name: str,
        parameters: str | Iterable[Value],
        nodes: Iterable[Node],
        returned: str = "void",
        attributes: str = "noinline",
        linkage: str = "internal",
    ) -> None:
        """Print a function that others may call; vectors among its parameters have the lanes of a warp."""
        if not isinstance(parameters, str):
            parameters = ", ".join([f"{_type_of(v)} {v.text}" for v in parameters])
        about, lines = self._printed(name, list(nodes), is_internal=bool(linkage))
        if not linkage:
            attributes = f"#{_SAID} {attributes}"
        words = ("define", linkage, returned, f"@{name}({parameters})", attributes.strip(), about, "{")
        self.functions[name] = "\n".join([" ".join(filter(None, words)), "entry:", *lines, "}"])

    def _printed(self, name: str, nodes: Sequence[Node], *, is_internal: bool) -> tuple[str, list[str]]:
        """Print nodes, and what the head says of their lines.

        A function that comes from no line needs none, unless it is the one that all others may become a part of.
        """
        if self.debug is None or (is_internal and not any(node.line for node in nodes)):
            return "", [text_of(node) for node in nodes]
        about, behind = self.debug.function(name.strip('"'))
        added = ["" if node.opcode == "label" else behind(node.line) for node in nodes]
        self._debug_length += sum(map(len, added))
        return about, [text_of(node) + more for node, more in zip(nodes, added, strict=True)]

    def constant(self, name: str, fields: Sequence[Value]) -> Value:
        """Have a structure of constants in memory, and point to it."""
        types, items = ", ".join(v.type for v in fields), ", ".join(f"{v.type} {v.text}" for v in fields)
        self._constants[name] = f"@{name} = internal constant {{ {types} }} {{ {items} }}"
        return Value(f"@{name}", "ptr")

    def text(self, *first: str) -> str:
        """Write the module; the functions whose names are given stand ``first``."""
        rest = (name for name in self.functions if name not in first)
        functions = [self.functions[name] for name in (*first, *rest)]
        text = "\n".join([*self._constants.values(), *functions, *self.declared.values()])
        length = len(text) - self._debug_length
        unrolls, is_long = ("no" if length > _UNROLLED else "yes"), ("yes" if length > _LONG else "no")
        said = f'attributes #{_SAID} = {{ "cujit-long"="{is_long}" "cujit-unrolls"="{unrolls}" }}'  # see ``optimise``
        return "\n".join([text, said, *(self.debug.lines if self.debug is not None else ())])


def _type_of(value: Value) -> str:
    return f"<{WARP} x {value.type}>" if value.is_vector else value.type
