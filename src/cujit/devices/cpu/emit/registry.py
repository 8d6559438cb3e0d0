"""Which operations are emitted by what: a table that the families fill and the checker reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cujit.devices.cpu.program import Op

if TYPE_CHECKING:
    from cujit.devices.cpu.emit.warp import WarpEmitter

__all__ = ["FLOATS", "INTEGERS", "Handler", "Rule", "Rules", "modifiers_of", "types_of"]

SIGNED = ("s8", "s16", "s32", "s64")
UNSIGNED = ("u8", "u16", "u32", "u64")
BITS = ("b8", "b16", "b32", "b64", "pred")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("f32", "f64")
HALVES = ("f16", "bf16", "f16x2", "bf16x2")
SMALL = (
    "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "e4m3x2", "e5m2x2", "e3m2x2", "e2m3x2", "e2m1x2", "ue8m0x2",
    "s2f6x2", "u8x4", "s8x4",
    "e4m3x4", "e5m2x4", "e3m2x4", "e2m3x4", "e2m1x4", "u16x2", "s16x2", "b128", "b1", "u4", "s4", "u2", "s2",
)  # fmt: skip
_TYPES = frozenset((*INTEGERS, *BITS, *FLOATS, *HALVES, *SMALL))

Handler = Callable[["WarpEmitter", Op], None]


def types_of(op: Op) -> tuple[str, ...]:
    """List the type modifiers of an operation, in order."""
    return tuple(m for m in op.modifiers if m in _TYPES)


def modifiers_of(op: Op) -> tuple[str, ...]:
    """List the other modifiers, in order."""
    return tuple(m for m in op.modifiers if m not in _TYPES)


@dataclass(frozen=True)
class Rule:
    """What one handler takes: the types in their places, and the other modifiers.

    ``types`` has one set for each type modifier; a rule with one set also takes an operation without types when
    the set is empty. ``modifiers`` are all that may stand beside them; ``choices`` are groups of which exactly
    one must stand. ``takes_memory`` allows operands in brackets. ``parts`` are regular expressions for the parts of
    registers (``h1`` of ``%r1.h1``) that the operands, the result first, may name; there are none unless it says so.
    """

    handler: Handler
    types: tuple[frozenset[str], ...]
    modifiers: frozenset[str]
    choices: tuple[frozenset[str], ...] = ()
    takes_memory: bool = False
    parts: tuple[str, ...] = ()

    def takes_parts(self, parts: tuple[str, ...]) -> bool:
        """Whether the operands, the result first, may name these parts of their registers; "" names none."""
        allowed = (*self.parts, *[""] * len(parts))
        return all(not part or re.fullmatch(allowed[k], part) for k, part in enumerate(parts))

    def takes(self, op: Op) -> bool:
        """Whether the handler can emit this operation."""
        types, others = types_of(op), modifiers_of(op)
        if len(types) != len(self.types) or any(t not in s for t, s in zip(types, self.types, strict=True)):
            return False
        chosen = frozenset().union(*self.choices)
        if not all(m in self.modifiers or m in chosen for m in others):
            return False
        return all(len(group.intersection(others)) == 1 for group in self.choices)


class Rules:
    """The rules by opcode."""

    def __init__(self) -> None:
        self._rules: dict[str, list[Rule]] = {}

    def on(
        self,
        opcodes: str,
        *types: Iterable[str],
        modifiers: str = "",
        choices: Iterable[str] = (),
        memory: bool = False,
        parts: tuple[str, ...] = (),
    ) -> Callable[[Handler], Handler]:
        """Register a handler for opcodes (a text of words), with its types and modifiers (texts of words).

        ``memory`` allows operands in brackets; ``parts`` says which parts of registers the operands may name.
        """

        def register(handler: Handler) -> Handler:
            rule = Rule(
                handler,
                tuple(frozenset(t.split() if isinstance(t, str) else t) for t in types),
                frozenset(modifiers.split()),
                tuple(frozenset(c.split()) for c in choices),
                memory,
                parts,
            )
            for opcode in opcodes.split():
                self._rules.setdefault(opcode, []).append(rule)
            return handler

        return register

    def find(self, op: Op) -> Rule | None:
        """Find the rule that takes an operation."""
        return next((rule for rule in self._rules.get(op.opcode, ()) if rule.takes(op)), None)

    def opcodes(self) -> tuple[str, ...]:
        """List every opcode that has a rule."""
        return tuple(sorted(self._rules))
