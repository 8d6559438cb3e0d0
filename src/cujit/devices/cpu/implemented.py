"""The part of the instruction table that the CPU device executes, determined from its code-generation rules."""

from __future__ import annotations

import enum
import functools

from cujit.devices.cpu.codegen.registry import NOT_YET, reason
from cujit.devices.cpu.control.rules import all_rules
from cujit.devices.cpu.ir.program import Op
from cujit.formats.ptx.concrete import concrete_forms
from cujit.formats.ptx.isa.semantics import Collective, form_of
from cujit.formats.ptx.isa.table import InstructionRow, rows
from cujit.values import dataclass

_VECTORS = frozenset({"v2", "v4"})


class Answer(enum.Enum):
    """Whether the CPU device executes a row of the table."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


@dataclass(frozen=True)
class Implemented:
    """A row of the instruction table, with the number of its forms and the number of executed forms.

    The table does not list the forms of an open row, so ``forms`` is 0 and no form counts as executed. ``scope`` is the
    group of threads that must all reach an instruction before any thread executes it. ``reasons`` explain why the other
    forms are refused.
    """

    row: InstructionRow
    forms: int
    taken: int
    scope: Collective = Collective.LANE
    reasons: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer:
        """Whether all, some or none of the forms are executed."""
        if self.forms and self.taken == self.forms:
            return Answer.YES
        return Answer.PARTLY if self.taken else Answer.NO


@dataclass(frozen=True)
class Total:
    """Totals of the whole table: rows with all, some, or no executed forms, and rows with unknown forms.

    ``share`` is the mean of the rows' executed shares, from 0 to 1. A row of thousands of combinations counts as much
    as a row with a single form. Open rows are excluded.
    """

    whole: int
    partly: int
    none: int
    unknown: int
    share: float

    @property
    def rows(self) -> int:
        """Every row of the table."""
        return self.whole + self.partly + self.none + self.unknown


@functools.cache
def implemented() -> tuple[Implemented, ...]:
    """Ask for every row of the table, in its order."""
    return tuple(_find_implemented(row) for row in rows())


def _find_implemented(row: InstructionRow) -> Implemented:
    forms = list(concrete_forms(row))
    refused = [m for m in forms if not _is_taken(row.opcode, m)]
    reasons = dict.fromkeys(reason(form_of(row.opcode, *m)) or NOT_YET for m in ([()] if row.is_open else refused))
    (scope,) = {form_of(row.opcode, *m).collective for m in forms or [()]}
    return Implemented(row, len(forms), len(forms) - len(refused), scope, tuple(reasons))


def _is_taken(opcode: str, modifiers: tuple[str, ...]) -> bool:
    """Return whether a rule, or a pass that runs before the rules, supports a form. ``flatten`` splits moves of
    vectors.
    """
    op = Op(form_of(opcode, *(m for m in modifiers if opcode != "mov" or m not in _VECTORS)))
    return op.form.is_jump or all_rules().find(op) is not None


@functools.cache
def total() -> Total:
    """Sum the table up."""
    known = [one for one in implemented() if one.forms]
    counts = {answer: sum(one.answer is answer for one in known) for answer in Answer}
    return Total(
        counts[Answer.YES],
        counts[Answer.PARTLY],
        counts[Answer.NO],
        len(implemented()) - len(known),
        sum(one.taken / one.forms for one in known) / len(known),
    )
