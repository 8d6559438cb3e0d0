"""Two profiles side by side: every number that says what launches cost, before and after."""

from __future__ import annotations

from typing import Any

from cujit.devices.cpu.observe.measures import ProfiledKernel, check_profiled
from cujit.devices.device import Device
from cujit.profile.bounding import bounds
from cujit.values import NamedTuple, dataclass


class CostChange(NamedTuple):
    """One number of both: ``what`` is a name of ``Measures`` or of Nsight Compute, or the bound of a part of a GPU."""

    what: str
    before: int
    after: int

    @property
    def difference(self) -> int:
        """How much more it is; below 0 it is less."""
        return self.after - self.before


@dataclass(frozen=True)
class CostComparison:
    """What the launches of two kernels cost, which have the names ``before`` and ``after``.

    Numbers that are 0 in both are left out.
    """

    before: str
    after: str
    changes: tuple[CostChange, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        measures = {c.what: {"before": c.before, "after": c.after, "difference": c.difference} for c in self.changes}
        return {"before": self.before, "after": self.after, "measures": measures}


def compare(before: ProfiledKernel, after: ProfiledKernel, *, on: str | Device | None = None) -> CostComparison:
    """Compare what the launches of two kernels cost, number by number.

    Args:
        before: what was counted, as ``Profile.kernels`` has it, or ``read_profile`` gives it.
        after: the same of the other kernel.
        on: a GPU (``"H200"``): the bounds of its parts are compared too, in nanoseconds.

    Raises:
        ArgumentError: one of them is no profiled kernel.
        OptionError: no GPU that is known is called so.

    Example::

        (kernel,) = profile.kernels
        print(cujit.profile.compare(kernel, kernel).changes)
    """
    check_profiled(before)
    check_profiled(after)
    first, second = _numbers(before, on), _numbers(after, on)
    found = (CostChange(what, first.get(what, 0), second.get(what, 0)) for what in {**first, **second})
    return CostComparison(before.name, after.name, tuple(each for each in found if each.before or each.after))


def _numbers(kernel: ProfiledKernel, on: str | Device | None) -> dict[str, int]:
    rows = () if on is None else bounds(kernel, on).bounds
    counted = {**kernel.totals.to_json(), "distinct_sectors": kernel.distinct_sectors, **kernel.metrics()}
    return counted | {f"bound in ns: {row.unit}": round(row.seconds * 1e9) for row in rows}
