"""Arithmetic that a kernel repeats very often becomes a function that it calls.

For example, of 300 ``tanh.approx.f16x2`` the first 16 stand where they are, and each later one is a call::

    %r1.v$7 = call <32 x i32> @"often tanh 0"(<32 x i32> %r1.v$6)

So the code that LLVM sees grows with the text, however much one operation takes. Operations of the same kind, of which
such a function is known, are not emitted again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cujit.devices.cpu.codegen.builder import Builder
from cujit.devices.cpu.codegen.nodes import Node, Value, text_of, type_of
from cujit.devices.cpu.codegen.ssa import ENDS
from cujit.values import NamedTuple

LEAST = 12
"""Nodes of one operation from which on a call is less. A call has LLVM keep all vectors in memory meanwhile."""

_MOST = 4_000
"""Nodes that all operations of one kind make before later ones are calls.

Of 107,000 nodes, for 128 KB of video instructions, 13 CPU seconds became 3: with LLVM 22.1, ``benchmarks/shapes.py``.
"""

_STAYING = frozenset({"load", "store", "atomicrmw", "cmpxchg", "fence", "alloca", "phi", "label", *ENDS})
"""Opcodes that touch memory, and those that belong to the block that they stand in."""


class Often:
    """What a module has very often: each kind of arithmetic, by its text, and the functions of kinds of operations."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[int, int]] = {}
        """The number of each kind, and how many nodes there were."""
        self._calls: dict[str, dict[Hashable, _Call]] = {}

    def knows(self, opcode: str) -> bool:
        """Whether there are functions for some operations of an opcode."""
        return opcode in self._calls

    def call(self, b: Builder, opcode: str, kind: Hashable, values: Sequence[Value]) -> Value | None:
        """Call the function for a kind of operation that reads these values; None if there is none."""
        known = self._calls[opcode].get(kind)
        if known is None:
            return None
        return b.invoke(known.name, known.type, *[values[k] for k in known.inputs], lanes=known.lanes)

    def note(self, call: Node, result: Value, opcode: str, kind: Hashable, values: Sequence[Value]) -> None:
        """Remember which function is called for a kind of operation, unless that reads more than these values."""
        places = {value.text: k for k, value in enumerate(values)}
        calls = self._calls.setdefault(opcode, {})
        if all(value.text in places for value in call.operands):
            inputs = tuple([places[value.text] for value in call.operands])
            calls[kind] = _Call(call.name, inputs, result.type, result.lanes)

    def outline(self, b: Builder, begin: int, opcode: str, result: Value) -> Value | None:
        """Replace the nodes of an operation by a call, if they are pure arithmetic that the module has very often.

        Args:
            b: what the operation was emitted into.
            begin: where its nodes begin in ``b.body``.
            opcode: what the operation is called in PTX.
            result: the value that is read later; no other value of these nodes may be.

        Returns:
            What the call gives in place of the result, or None where the nodes stay.
        """
        nodes = b.body[begin:]
        inputs: dict[str, Value] = {}
        body = _renamed(nodes, inputs)
        returned = next((k for k, node in enumerate(nodes) if node.result == result.text), None)
        if body is None or returned is None:
            return None
        body.append(Node("ret", (result._replace(text=body[returned].result),)))
        key = "\n".join([*map(text_of, body), *map(type_of, inputs.values())])
        number, before = self._nodes.get(key, (len(self._nodes), 0))
        self._nodes[key] = number, before + len(nodes)
        if before + len(nodes) <= _MOST:
            return None
        name = f'"often {opcode} {number}"'
        if name not in b.module.functions:
            own = [value._replace(text=f"%in{k}") for k, value in enumerate(inputs.values())]
            b.module.define(name, own, body, type_of(result))
        del b.body[begin:]
        return b.invoke(f"@{name}", result.type, *inputs.values(), lanes=result.lanes)


class _Call(NamedTuple):
    """A function, which of an operation's values it takes, and what it gives."""

    name: str
    inputs: tuple[int, ...]
    type: str
    lanes: int


def _renamed(nodes: Sequence[Node], inputs: dict[str, Value]) -> list[Node] | None:
    """Copy nodes with names that do not depend on where they stand; None if they are not pure arithmetic.

    ``inputs`` gets the values that come from elsewhere, by name.
    """
    names: dict[str, str] = {}
    found: list[Node] = []
    for node in nodes:
        if node.opcode in _STAYING or (node.opcode == "call" and not node.name.startswith("@llvm.")):
            return None
        operands = []
        for value in node.operands:
            if value.text.startswith("%"):
                if value.text not in names:
                    names[value.text] = f"%in{len(inputs)}"
                    inputs[value.text] = value
                value = value._replace(text=names[value.text])
            operands.append(value)
        names[node.result] = f"%made{len(found)}"
        found.append(Node(node.opcode, tuple(operands), names[node.result], node.type, name=node.name))
    return found
