"""Comparison of two profiles: every number of the launch costs, before and after."""

from __future__ import annotations

from typing import Any

from cujit.devices.cpu.observe.measures import ProfiledKernel, check_profiled
from cujit.devices.device import Device
from cujit.profile.bounding import bounds
from cujit.values import NamedTuple, dataclass


class CostChange(NamedTuple):
    """One number before and after. ``what`` is a name of ``Measures`` or of Nsight Compute, or a unit's bound."""

    what: str
    before: int
    after: int

    @property
    def difference(self) -> int:
        """How much more it is; below 0 it is less."""
        return self.after - self.before


@dataclass(frozen=True)
class CostComparison:
    """The launch costs of two kernels, with the names ``before`` and ``after``.

    Numbers that are 0 in both kernels are omitted.
    """

    before: str
    after: str
    changes: tuple[CostChange, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        measures = {c.what: {"before": c.before, "after": c.after, "difference": c.difference} for c in self.changes}
        return {"before": self.before, "after": self.after, "measures": measures}


def compare(before: ProfiledKernel, after: ProfiledKernel, *, on: str | Device | None = None) -> CostComparison:
    """Compare the launch costs of two kernels, number by number.

    Args:
        before: the counts of a kernel, from ``Profile.kernels`` or ``read_profile``.
        after: the counts of the other kernel.
        on: a GPU (``"H200"``). With a GPU, the bounds of its units are compared too, in nanoseconds.

    Raises:
        ArgumentError: one of the two is not a profiled kernel.
        OptionError: no known GPU has this name.

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
