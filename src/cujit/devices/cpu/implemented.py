"""How much of the instruction table the CPU device executes, asked of the rules that it emits code by."""

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
    """A row of the table: of how many of its forms there are, and how many of them are executed.

    Of an open row, whose forms the table does not know, ``forms`` is 0, and none is executed.
    ``scope`` says who has to come to one before anyone does it, ``reasons`` why the others are refused.
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
    """The whole table: rows of which all, some and no forms are executed, and rows whose forms are not known.

    ``share`` is from 0 to 1: the mean of the rows' shares, so that a row of thousands of combinations counts as
    much as one of a single form; open rows are left out.
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
    """Whether a pass takes a form before rules are asked, or a rule does; ``flatten`` takes moves of vectors apart."""
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
