"""Results of a budget check: rows, and the report that contains them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cujit.arch import Arch
from cujit.devices.cpu.run.source_map import SourceLine
from cujit.errors import BudgetError, counted, listed
from cujit.values import dataclass, group_by


@dataclass(frozen=True)
class BudgetRow:
    """One limit of one kernel. ``allowed`` and ``measured`` are in the unit of the limit.

    ``kernel`` is the displayed name, and ``lowered_name`` is the name in the image. If the measured value is unknown,
    ``measured`` is None, ``note`` explains why, and ``help`` suggests what to try. If the value is known, ``note``
    explains the value. For a profile, ``arch`` is None, ``line`` is the source line with the largest share, and
    ``help`` is advice for this line.

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
        """The remaining budget, which is negative if the kernel exceeds the budget and None if the usage is unknown."""
        if self.measured is None:
            return None
        return self.measured - self.allowed if self.what == "occupancy" else self.allowed - self.measured

    @property
    def is_within(self) -> bool:
        """Whether the resource usage is known and within the budget."""
        return self.slack is not None and self.slack >= 0

    @property
    def verdict(self) -> str:
        """``ok``, ``over``, or ``not known``."""
        return "ok" if self.is_within else "not known" if self.slack is None else "over"

    @property
    def cells(self) -> tuple[str, str, str, str, str, str]:
        """The cells of the row as text: kernel, architecture, resource, allowed, used, and slack."""
        slack = self.slack
        text = "not known" if slack is None else f"{shown(self.what, abs(slack))} {'left' if slack >= 0 else 'over'}"
        numbers = (shown(self.what, self.allowed), shown(self.what, self.measured))
        return (self.kernel, str(self.arch or ""), self.what, *numbers, text)


@dataclass(frozen=True)
class BudgetReport:
    """Result of a budget check: all checked rows, in the order of the image. ``unchecked`` lists the parts without a
    budget, such as PTX and kernels that match no pattern.

    Example::

        report = cujit.budget.check(cubin, cujit.budget.Budget(registers=64))
        print(report.rows, report.unchecked)
    """

    name: str
    rows: tuple[BudgetRow, ...]
    unchecked: tuple[str, ...] = ()

    @property
    def violations(self) -> tuple[BudgetRow, ...]:
        """The rows that exceed their budget or whose usage is unknown."""
        return tuple(row for row in self.rows if not row.is_within)

    @property
    def is_within(self) -> bool:
        """Whether every row is within its budget."""
        return not self.violations

    @property
    def summary(self) -> str:
        """A one-sentence summary of the result."""
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
        """The notes of the violations, one per line."""
        rows = [row for row in self.violations if row.note]
        found = group_by(((row.what, row.note), f"{row.kernel} {row.arch or ''}".rstrip()) for row in rows)
        return tuple(f"{what} of {listed(kernels, _SOME)}: {note}" for (what, note), kernels in found.items())

    @property
    def helps(self) -> tuple[str, ...]:
        """The hints for the violations, without duplicates."""
        return tuple(dict.fromkeys(row.help for row in self.violations if row.help))

    def table(self, rows: Iterable[BudgetRow] | None = None) -> str:
        """Return rows and their notes as a text table. Default: all rows.

        Args:
            rows: the rows to include. Default: all.

        Example::

            print(cujit.budget.check(cubin, cujit.budget.Budget(registers=64)).table())
        """
        cells = [row.cells for row in (self.rows if rows is None else rows)]
        return "\n".join([*aligned([COLUMNS, *cells]), *(f"  {note}" for note in self.notes)])

    def require(self) -> BudgetReport:
        """Return this report if all rows are within their budgets.

        Raises:
            BudgetError: a row exceeds its budget, or its usage is unknown. The message lists every such row.

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
    """Return a measured or allowed value as text."""
    if value is None:
        return "-"
    return f"{100 * value:.4g}%" if what == "occupancy" else f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of ``COLUMNS`` as aligned lines of text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = (False, False, False, True, True, True)
    lines = []
    for row in rows:
        cells = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines
