"""What a check of budgets found: rows, and the report that they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cujit.arch import Arch
from cujit.devices.cpu.run.source_map import SourceLine
from cujit.errors import BudgetError, counted, listed
from cujit.values import dataclass, group_by


@dataclass(frozen=True)
class BudgetRow:
    """One limit held against one kernel: ``allowed`` and ``measured``, in the unit of the limit.

    ``kernel`` is its name for people, ``lowered_name`` that of the image. ``measured`` is None where it is not known,
    and ``note`` says why and ``help`` what to try; a note beside a number says how it came about. Of a profile,
    ``arch`` is None, ``line`` is the line of source that has the most of it, and ``help`` is advice about it.

    Example::

        (row,) = cujit.budget.check(cubin, cujit.budget.Budget(registers=64)).rows
        assert row.measured <= row.allowed == 64
    """

    kernel: str
    lowered_name: str
    arch: Arch | None
    what: str
    allowed: float
    measured: float | None
    note: str = ""
    help: str = ""
    line: SourceLine | None = None

    @property
    def slack(self) -> float | None:
        """How much is left; below 0 it is over. None where it is not known."""
        if self.measured is None:
            return None
        return self.measured - self.allowed if self.what == "occupancy" else self.allowed - self.measured

    @property
    def is_within(self) -> bool:
        """Whether it is known to be within the budget."""
        return self.slack is not None and self.slack >= 0

    @property
    def verdict(self) -> str:
        """``ok``, ``over`` or ``not known``."""
        return "ok" if self.is_within else "not known" if self.slack is None else "over"

    @property
    def cells(self) -> tuple[str, str, str, str, str, str]:
        """The row as text: kernel, arch, what, allowed, is, slack."""
        slack = self.slack
        text = "not known" if slack is None else f"{shown(self.what, abs(slack))} {'left' if slack >= 0 else 'over'}"
        numbers = (shown(self.what, self.allowed), shown(self.what, self.measured))
        return (self.kernel, str(self.arch or ""), self.what, *numbers, text)


@dataclass(frozen=True)
class BudgetReport:
    """Every row that was checked, in the order of the image. ``unchecked`` names what is in it and was not held against
    a budget: PTX, kernels that no pattern names.

    Example::

        report = cujit.budget.check(cubin, cujit.budget.Budget(registers=64))
        print(report.rows, report.unchecked)
    """

    name: str
    rows: tuple[BudgetRow, ...]
    unchecked: tuple[str, ...] = ()

    @property
    def violations(self) -> tuple[BudgetRow, ...]:
        """The rows that are over, or not known."""
        return tuple(row for row in self.rows if not row.is_within)

    @property
    def is_within(self) -> bool:
        """Whether every row is within its budget."""
        return not self.violations

    @property
    def summary(self) -> str:
        """One sentence."""
        over = sum(row.slack is not None for row in self.violations)
        unknown = len(self.violations) - over
        kernels = len({(row.lowered_name, row.arch) for row in self.rows})
        where = f"{counted(len(self.rows), 'limit')} of {counted(kernels, 'kernel')}"
        if not self.violations:
            return f"{self.name}: within budget, {where}"
        parts = [f"{over} over budget" if over else "", f"{unknown} not known" if unknown else ""]
        return f"{self.name}: {' and '.join(filter(None, parts))}, of {where}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be noted of the violations, a line each."""
        rows = [row for row in self.violations if row.note]
        found = group_by(((row.what, row.note), f"{row.kernel} {row.arch or ''}".rstrip()) for row in rows)
        return tuple(f"{what} of {listed(kernels, _SOME)}: {note}" for (what, note), kernels in found.items())

    @property
    def helps(self) -> tuple[str, ...]:
        """What to try, each once."""
        return tuple(dict.fromkeys(row.help for row in self.violations if row.help))

    def table(self, rows: Iterable[BudgetRow] | None = None) -> str:
        """Write rows, all of them by default, as lines of text, and under them what is to be noted.

        Args:
            rows: those to write; None is all.

        Example::

            print(cujit.budget.check(cubin, cujit.budget.Budget(registers=64)).table())
        """
        cells = [row.cells for row in (self.rows if rows is None else rows)]
        return "\n".join([*aligned([COLUMNS, *cells]), *(f"  {note}" for note in self.notes)])

    def require(self) -> BudgetReport:
        """Return this report if every row is within its budget.

        Raises:
            BudgetError: a row is over, or not known; the message has all of these.

        Example::

            cujit.budget.check(cubin, cujit.budget.Budget(registers=64)).require()
        """
        if self.is_within:
            return self
        message = f"{self.summary}\n{self.table(self.violations)}"
        raise BudgetError(message, report=self, help="; ".join(self.helps) or None)

    def __str__(self) -> str:
        return "\n".join([self.summary, self.table(), *(f"not checked: {what}" for what in self.unchecked)])


COLUMNS = ("kernel", "arch", "what", "allowed", "is", "slack")
"""The columns of ``BudgetRow.cells``."""
_SOME = 4


def shown(what: str, value: float | None) -> str:
    """Write what is measured or allowed of a limit."""
    if value is None:
        return "-"
    return f"{100 * value:.4g}%" if what == "occupancy" else f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Write rows of ``COLUMNS`` as lines of text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = (False, False, False, True, True, True)
    lines = []
    for row in rows:
        cells = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines
