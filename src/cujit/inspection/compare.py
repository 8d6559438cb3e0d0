"""Two inspections side by side: which kernels use more, and which less."""

from __future__ import annotations

import enum
from collections.abc import Callable

from cujit.arch import Arch
from cujit.forks import cached_property
from cujit.inspection.read import inspect
from cujit.inspection.values import Inspection, KernelInfo
from cujit.values import dataclass


class Metric(enum.Enum):
    """Compared properties of a kernel. The values are attributes of a KernelInfo, in registers or bytes."""

    REGISTERS = "registers"
    SPILL_STORES = "spill_store_bytes"
    SPILL_LOADS = "spill_load_bytes"
    SHARED = "shared_bytes"
    STACK = "stack_bytes"
    CODE = "code_bytes"

    def of(self, kernel: KernelInfo) -> int | None:
        """Return its value for a kernel, or None if it is unknown."""
        value: int | None = getattr(kernel, self.value)
        return value


@dataclass(frozen=True)
class Change:
    """One metric of one kernel before and after. None means unknown."""

    metric: Metric
    before: int | None
    after: int | None

    @property
    def change(self) -> int | None:
        """The increase, which is negative for a decrease, or None if a value is unknown."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True)
class Pair:
    """A kernel that both have, for one architecture."""

    before: KernelInfo
    after: KernelInfo

    @property
    def name(self) -> str:
        """The lowered name."""
        return self.after.name

    @property
    def arch(self) -> Arch | None:
        """The architecture, the same on both sides."""
        return self.after.arch

    @cached_property
    def differences(self) -> tuple[Change, ...]:
        """Every metric, equal ones too."""
        return tuple(Change(m, m.of(self.before), m.of(self.after)) for m in Metric)

    @property
    def grew(self) -> tuple[Change, ...]:
        """The metrics that are larger after."""
        return tuple(d for d in self.differences if (d.change or 0) > 0)

    @property
    def shrank(self) -> tuple[Change, ...]:
        """The metrics that are smaller after."""
        return tuple(d for d in self.differences if (d.change or 0) < 0)

    @property
    def is_equal(self) -> bool:
        """Whether no metric that both sides know has changed."""
        return not (self.grew or self.shrank)


@dataclass(frozen=True)
class Comparison:
    """A kernel-by-kernel comparison of two images. ``a`` and ``b`` are the names of the images. ``only_a`` and
    ``only_b`` list kernels without a counterpart.

    Example::

        comparison = cujit.compare(cubin, fatbin)
        print(comparison.pairs, comparison.only_b)
    """

    a: str
    b: str
    pairs: tuple[Pair, ...]
    only_a: tuple[KernelInfo, ...]
    only_b: tuple[KernelInfo, ...]

    @property
    def grew(self) -> tuple[Pair, ...]:
        """The kernels that use more of a resource in ``b``."""
        return tuple(pair for pair in self.pairs if pair.grew)

    @property
    def shrank(self) -> tuple[Pair, ...]:
        """The kernels that use less of a resource in ``b``."""
        return tuple(pair for pair in self.pairs if pair.shrank)

    @property
    def is_equal(self) -> bool:
        """Whether both images have the same kernels with the same metrics."""
        return not (self.only_a or self.only_b) and all(pair.is_equal for pair in self.pairs)


def compare(a: object, b: object, *, keep: Callable[[KernelInfo], bool] | None = None) -> Comparison:
    """Compare the resource usage of the kernels in two images, ``a`` (before) and ``b`` (after).

    Kernels are matched by lowered name and architecture. Several kernels with the same name and architecture are
    matched in order.

    Args:
        a: the image before the change, as an Inspection or anything that ``inspect`` accepts.
        b: the image after the change, in the same form.
        keep: function that returns whether to include a kernel in the comparison.

    Raises:
        FormatError: an image can't be read.
        FileError: a file can't be read.
        ArgumentError: a value is not an image.

    Example::

        print(cujit.compare(cubin, cujit.compile(CODE, arch="sm_90", names=["axpy<float>"], maxrregcount=16)))
    """
    before, after = _inspected(a), _inspected(b)
    old, new = _keyed(before, keep), _keyed(after, keep)
    return Comparison(
        a=before.name,
        b=after.name,
        pairs=tuple(Pair(old[key], new[key]) for key in old if key in new),
        only_a=tuple(kernel for key, kernel in old.items() if key not in new),
        only_b=tuple(kernel for key, kernel in new.items() if key not in old),
    )


def _inspected(image: object) -> Inspection:
    return image if isinstance(image, Inspection) else inspect(image)


_Key = tuple[str, Arch | None, int]


def _keyed(inspection: Inspection, keep: Callable[[KernelInfo], bool] | None) -> dict[_Key, KernelInfo]:
    """Return the kernels by name, architecture, and number of earlier kernels with both."""
    found: dict[_Key, KernelInfo] = {}
    seen: dict[tuple[str, Arch | None], int] = {}
    for kernel in inspection.kernels:
        if keep is not None and not keep(kernel):
            continue
        number = seen.get((kernel.name, kernel.arch), 0)
        seen[kernel.name, kernel.arch] = number + 1
        found[kernel.name, kernel.arch, number] = kernel
    return found
