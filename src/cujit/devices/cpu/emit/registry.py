"""Which operations are emitted by what: a table that the families fill and the checker reads."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cujit.devices.cpu.emit.warp import Handler
from cujit.devices.cpu.program import Op
from cujit.devices.cpu.semantics import Form

__all__ = ["FLOATS", "INTEGERS", "Rule", "Rules"]

INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
FLOATS = ("f32", "f64")


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

    def takes(self, form: Form) -> bool:
        """Whether the handler can emit operations of a form."""
        types, others = form.types, form.words
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
        self._of_form = functools.lru_cache(maxsize=4096)(self._find)

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
        return self._of_form(op.form)

    def handler_of(self, op: Op) -> Handler:
        """Find what emits an operation that has a rule."""
        rule = self.find(op)
        assert rule is not None, op.name
        return rule.handler

    def _find(self, form: Form) -> Rule | None:
        return next((rule for rule in self._rules.get(form.opcode, ()) if rule.takes(form)), None)

    def opcodes(self) -> tuple[str, ...]:
        """List every opcode that has a rule."""
        return tuple(sorted(self._rules))
