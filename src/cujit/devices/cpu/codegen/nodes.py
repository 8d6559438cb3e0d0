"""Nodes: what emitters make, one for each instruction of LLVM IR, and the one printer that makes text of them.

A node knows its operands as values and where it jumps as labels, so that whoever improves code asks nodes and never
searches text. For example, ``store`` of a float for each lane, aligned to 4 bytes, in ``Builder`` and then printed::

    b.store(Value("%x", "float", True), "%p", align=4)
    store <32 x float> %x, ptr %p, align 4
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Node", "Value", "text_of"]


class Value(NamedTuple):
    """An LLVM value: its text, its element type (``i32``, ``float``, ``ptr``), and whether it is a vector.

    ``constant`` marks a literal, whose vector form is ``splat (…)``.
    """

    text: str
    type: str
    is_vector: bool = False
    constant: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True, eq=False)
class Node:
    """One instruction, or the label that begins a basic block.

    ``type`` is what the opcode is written with where no operand says it: what a load gives, what a cast makes.
    ``labels`` are where a jump leads to, or where the values of a ``phi`` come from. ``name`` is the callee of a call,
    the operation of an ``atomicrmw``, what a label is called.
    Vectors among the operands have ``width`` lanes. Memory operations have an alignment in bytes (0 is LLVM's choice)
    and an order, empty where they are not atomic. ``line`` is that of the PTX, 0 where nobody asks for it.
    """

    opcode: str
    operands: tuple[Value, ...] = ()
    result: str = ""
    type: str = ""
    width: int = 0
    labels: tuple[str, ...] = ()
    name: str = ""
    align: int = 0
    order: str = ""
    volatile: bool = False
    nontemporal: bool = False
    line: int = 0


def text_of(node: Node) -> str:
    """Print a node as a line of LLVM IR."""
    if node.opcode == "label":
        return f"{node.name}:"
    text = _FORMS.get(node.opcode, _binary)(node)
    return f"  {node.result} = {text}" if node.result else f"  {text}"


# -- forms ------------------------------------------------------------------------------------------------


def _typed(node: Node, value: Value) -> str:
    return f"<{node.width} x {value.type}> {value.text}" if value.is_vector else f"{value.type} {value.text}"


def _list(node: Node, values: Iterable[Value]) -> str:
    return ", ".join([_typed(node, value) for value in values])


def _binary(n: Node) -> str:
    return f"{n.opcode} {_typed(n, n.operands[0])}, {n.operands[1].text}"


def _with_types(n: Node) -> str:
    return f"{n.opcode} {_list(n, n.operands)}"


def _cast(n: Node) -> str:
    return f"{n.opcode} {_typed(n, n.operands[0])} to {n.type}"


def _load(n: Node) -> str:
    return f"load{_kind(n)} {n.type}, ptr {n.operands[0].text}{_how(n)}"


def _store(n: Node) -> str:
    return f"store{_kind(n)} {_typed(n, n.operands[0])}, ptr {n.operands[1].text}{_how(n)}"


def _kind(n: Node) -> str:
    return (" atomic" if n.order else "") + (" volatile" if n.volatile else "")


def _how(n: Node) -> str:
    order = f" {n.order}" if n.order else ""
    align = f", align {n.align}" if n.align else ""
    return order + align + (", !nontemporal !{i32 1}" if n.nontemporal else "")


def _element(n: Node) -> str:
    return f"getelementptr {n.type}, {_list(n, n.operands)}"


def _field(n: Node) -> str:
    return f"extractvalue {n.type} {n.operands[0].text}, {n.operands[1].text}"


def _alloca(n: Node) -> str:
    size = f", {_list(n, n.operands)}" if n.operands else ""
    return f"alloca {n.type}{size}{_how(n)}"


def _atomic(n: Node) -> str:
    return f"{f'{n.opcode} {n.name}'.rstrip()} {_list(n, n.operands)}{_how(n)}"


def _call(n: Node) -> str:
    return f"call {n.type} {n.name}({_list(n, n.operands)})"


def _br(n: Node) -> str:
    if not n.operands:
        return f"br label %{n.labels[0]}"
    return f"br i1 {n.operands[0].text}, label %{n.labels[0]}, label %{n.labels[1]}"


def _switch(n: Node) -> str:
    cases = [f"{_typed(n, v)}, label %{to}" for v, to in zip(n.operands[1:], n.labels[1:], strict=True)]
    return f"switch {_typed(n, n.operands[0])}, label %{n.labels[0]} [ {' '.join(cases)} ]"


def _phi(n: Node) -> str:
    ways = [f"[ {v.text}, %{label} ]" for v, label in zip(n.operands, n.labels, strict=True)]
    return f"phi {n.type} {', '.join(ways)}"


def _ret(n: Node) -> str:
    return f"ret {_list(n, n.operands) or 'void'}"


_LISTS = "select freeze extractelement insertelement shufflevector"
_CASTS = "trunc zext sext fptrunc fpext fptosi fptoui sitofp uitofp ptrtoint inttoptr bitcast"

_FORMS: Mapping[str, Callable[[Node], str]] = {
    "load": _load,
    "store": _store,
    "atomicrmw": _atomic,
    "cmpxchg": _atomic,
    "fence": lambda n: f"fence {n.order}",
    "alloca": _alloca,
    "getelementptr": _element,
    "extractvalue": _field,
    "call": _call,
    "br": _br,
    "switch": _switch,
    "phi": _phi,
    "ret": _ret,
    "unreachable": lambda n: n.opcode,
    **dict.fromkeys(_LISTS.split(), _with_types),
    **dict.fromkeys(_CASTS.split(), _cast),
}
"""How each opcode is written; any other one has two operands of one type."""
