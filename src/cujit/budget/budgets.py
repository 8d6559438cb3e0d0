"""Budgets: limits on the resources and costs of kernels, checked against SASS and profiles without a GPU."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cujit.arch import Arch
from cujit.arch.multiprocessor import MAX_BLOCK_THREADS, limits_of
from cujit.artifact import Artifact, ImageKind
from cujit.budget.costs import COSTS, examine_costs, profiled
from cujit.budget.report import BudgetReport, BudgetRow
from cujit.devices.cpu.observe.measures import ProfiledKernel
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3
from cujit.errors import CujitError, OptionError, read_int, spell
from cujit.errors.hints import Hint
from cujit.inspection.choose import Names, choose_kernels
from cujit.inspection.logs import Spills, spills_of_log
from cujit.inspection.read import inspect
from cujit.inspection.values import Inspection, KernelInfo
from cujit.occupancy.products import Product, product_of_arch
from cujit.occupancy.residency import Demand
from cujit.occupancy.subject import Subject, product_of
from cujit.values import NamedTuple, dataclass


@dataclass(frozen=True)
class Budget:
    """Limits on the resource usage and costs of one kernel. None means no limit.

    cujit checks the limits from ``registers`` to ``occupancy`` against SASS, and the limits after
    ``dynamic_shared_bytes`` against a profile. The counters in a profile are totals over all launches and have the
    names of ``cujit.profile.Measures``.

    Args:
        registers: registers per thread.
        spills: total bytes of spill stores and spill loads, as reported in the assembler's log (``verbose=True``).
        stack_bytes: bytes of stack per thread.
        shared_bytes: bytes of static shared memory per block.
        code_bytes: bytes of SASS.
        constant_bytes: total bytes of all constant banks, including the bank for the kernel parameters.
        barriers: barriers per block.
        occupancy: lowest allowed occupancy, from 0 to 1.
        block: threads per block, or the block shape, for computing the occupancy. Default: the kernel's launch bounds,
            otherwise the block size with the highest occupancy.
        dynamic_shared_bytes: bytes of dynamic shared memory per block, for computing the occupancy.
        sectors_per_request: average global-memory sectors per request.
        sectors: total global-memory sectors.
        local_sectors: total local-memory sectors.
        wavefronts: shared-memory wavefronts.
        bank_conflicts: additional shared-memory wavefronts caused by bank conflicts.
        divergent_branches: branches at which the threads in a warp diverge.
        most_contended: maximum number of threads in a warp that update the same word of global memory at once.
        flops: floating-point operations.

    Raises:
        OptionError: no limit is specified, or a limit is malformed.
        LaunchError: ``block`` is malformed.

    Example::

        budget = cujit.budget.Budget(registers=32, spills=0, occupancy=0.5, block=256)
        costs = cujit.budget.Budget(sectors_per_request=4.5, bank_conflicts=0)
    """

    registers: int | None = None
    spills: int | None = None
    stack_bytes: int | None = None
    shared_bytes: int | None = None
    code_bytes: int | None = None
    constant_bytes: int | None = None
    barriers: int | None = None
    occupancy: float | None = None
    block: int | tuple[int, ...] | None = None
    dynamic_shared_bytes: int = 0
    sectors_per_request: float | None = None
    sectors: int | None = None
    local_sectors: int | None = None
    wavefronts: int | None = None
    bank_conflicts: int | None = None
    divergent_branches: int | None = None
    most_contended: int | None = None
    flops: int | None = None

    def __post_init__(self) -> None:
        for what in (*_LIMITS, "dynamic_shared_bytes"):
            value = getattr(self, what)
            if value is not None and what in _REAL:
                object.__setattr__(self, what, _real(value, what, _REAL[what]))
            elif value is not None or what == "dynamic_shared_bytes":
                object.__setattr__(self, what, read_int(value, what, OptionError, least=0))
        if self.occupancy is None and (self.block is not None or self.dynamic_shared_bytes):
            what = "block" if self.block is not None else "dynamic_shared_bytes"
            raise OptionError(
                f"a budget that sets {what} must also limit occupancy", help="add a limit, such as occupancy=0.5"
            )
        if self.threads is not None and self.threads > MAX_BLOCK_THREADS:
            raise OptionError(f"block is {self.threads} threads; the maximum is {MAX_BLOCK_THREADS}")
        if not self.limits:
            raise OptionError("this budget doesn't set a limit", help=f"set one of {', '.join(_LIMITS)}")

    @property
    def threads(self) -> int | None:
        """The number of threads in ``block``, or None if ``block`` is None."""
        return None if self.block is None else Dim3.of(self.block, "block").volume

    @property
    def limits(self) -> tuple[tuple[str, float], ...]:
        """The names and values of the limits."""
        rows = [(what, getattr(self, what)) for what in _LIMITS]
        return tuple((what, value) for what, value in rows if value is not None)


Budgets = Budget | Mapping[str, Budget]
"""One budget for all kernels, or budgets by name pattern."""


_COUNTED = ("registers", "spills", "stack_bytes", "shared_bytes", "code_bytes", "constant_bytes", "barriers")
_LIMITS = (*_COUNTED, "occupancy", *COSTS)
_REAL = {"occupancy": 1.0, "sectors_per_request": math.inf}
"""Limits that need not be whole numbers, with the most that they can be."""


# -- the check --------------------------------------------------------------------------------------------


def check(
    what: object,
    budget: Budgets,
    *,
    kernel: Names = None,
    arch: str | Arch | Sequence[str | Arch] | None = None,
    on: str | Arch | Device | None = None,
) -> BudgetReport:
    """Compare each kernel in an image or a profile with its budget. No GPU is needed.

    The first pattern that matches a kernel applies, so put narrow patterns first. A pattern that applies to no kernel
    is an error. ``unchecked`` lists the limits that can't be checked: counters for an image, and resources for a
    profile.

    Args:
        what: anything that ``cujit.inspect`` accepts, a ``Profile`` or its kernels, or a .json file from ``cujit
            profile --json``.
        budget: one Budget, or a dict of name patterns to Budgets. A pattern is a name expression, a name in the source,
            a lowered name, or a glob pattern for any of these (``"axpy<*>"``).
        kernel: name patterns. cujit skips kernels that match no pattern.
        arch: architectures. cujit skips code for other architectures.
        on: a GPU model (``"RTX 4090"``), an architecture, or a Device. cujit checks the code that this GPU would run,
            and its occupancy on this GPU.

    Raises:
        BudgetError: a kernel exceeds its budget, or its usage is unknown. The message lists every such kernel, and
            ``report`` contains all rows. The exception is also an AssertionError.
        FormatError: there is no SASS, or the SASS is damaged or not yet linked.
        NameNotFoundError: there is no kernel, or no kernel matches a pattern.
        ArchError: there is no code for ``arch`` or ``on``.
        ArgumentError: ``on`` is a device that isn't a GPU.
        OptionError: ``budget`` or a pattern is malformed, or a limit applies to something that ``what`` doesn't
            contain.

    Example::

        report = cujit.budget.check(fatbin, {"axpy<*>": cujit.budget.Budget(registers=64)}, on="H200")
    """
    return examine(what, budget, kernel=kernel, arch=arch, on=on).require()


def examine(
    what: object,
    budget: Budgets,
    *,
    kernel: Names = None,
    arch: str | Arch | Sequence[str | Arch] | None = None,
    on: str | Arch | Device | None = None,
) -> BudgetReport:
    """Check budgets as ``check`` does, but return the report even if a kernel is over its budget.

    Raises:
        CujitError: see ``check``.
    """
    rules = _rules(budget)
    kernels = profiled(what)
    if kernels is not None:
        return _examine_profile(what, kernels, rules, kernel, arch or on)
    inspection = inspect(what)
    product = _product(on)
    patterns = [pattern for pattern, _ in rules]
    choice = choose_kernels(inspection, patterns, kernel, arch, product.arch if product else None)
    functions = _functions_of_log(what, inspection)
    rows = [
        row
        for info, index in choice.kernels
        for row in _rows(info, rules[index][1], product, _may_call(functions, info))
    ]
    name = (Path(inspection.name).name or "this image") + (f" on {product}" if product else "")
    return _some(BudgetReport(name, tuple(rows), (*choice.left_out, *_run(rules))), "machine code")


def _run(rules: Sequence[tuple[str, Budget]]) -> Iterable[str]:
    """List the limits that require a profile."""
    costs = ((what, pattern) for pattern, budget in rules for what, _ in budget.limits if what in COSTS)
    return [f"{what} of {pattern}: only a profile contains this value" for what, pattern in costs]


def _some(report: BudgetReport, what: str) -> BudgetReport:
    if not report.rows:
        raise OptionError(
            f"these budgets don't set any limit that {what} can be checked against",
            help=f"remove or replace the limit that can't be checked: {report.unchecked[0]}",
        )
    return report


def _examine_profile(
    what: object, kernels: Sequence[ProfiledKernel], rules: Sequence[tuple[str, Budget]], kernel: Names, place: object
) -> BudgetReport:
    if place is not None:
        raise OptionError(
            "arch and on select machine code, but a profile contains no machine code", help="remove arch and on"
        )
    name = Path(what).name if isinstance(what, (str, os.PathLike)) else "this profile"
    wanted = [kernel] if isinstance(kernel, str) else kernel
    limits = [(pattern, dict(budget.limits)) for pattern, budget in rules]
    return _some(examine_costs(name, kernels, limits, wanted), "a profile")


def _rules(budget: object) -> list[tuple[str, Budget]]:
    if isinstance(budget, Budget):
        return [("*", budget)]
    if not isinstance(budget, Mapping) or not all(isinstance(b, Budget) for b in budget.values()):
        kind = type(budget).__name__
        raise OptionError(f"expected a Budget or a mapping from name patterns to Budgets, not {kind}", help=_USE)
    if not budget:
        raise OptionError("these budgets don't apply to any kernel", help=_USE)
    return list(budget.items())


_USE = "cujit.budget.Budget(registers=64), or {'axpy<*>': cujit.budget.Budget(registers=64)}"


def _product(on: object) -> Product | None:
    if on is None:
        return None
    if not isinstance(on, (str, Arch, Device)):
        raise OptionError(
            f"on must be the name of a GPU, an architecture or a Device, not {type(on).__name__}",
            help=Hint("on='H200'", shell="--on H200"),
        )
    return product_of(on)


def _functions_of_log(what: object, inspection: Inspection) -> Spills:
    """Return the spills of functions that aren't inlined, from the log of the assembler."""
    artifact = what if isinstance(what, Artifact) else getattr(what, "artifact", None)
    log = spills_of_log(artifact.log) if isinstance(artifact, Artifact) else {}
    if not log:
        return {}
    kernels = {k.name for image in inspection if image.kind is ImageKind.CUBIN for k in image.kernels}
    return {(name, arch): spills for (name, arch), spills in log.items() if name not in kernels}


def _may_call(functions: Spills, info: KernelInfo) -> dict[str, int]:
    """Return the bytes that each function for the kernel's architecture spills, by name."""
    places = (str(info.arch), "")
    counted = {name: stores + loads for (name, arch), (stores, loads) in functions.items() if arch in places}
    return {name: size for name, size in counted.items() if size}


class _Found(NamedTuple):
    """A measured value, or None with a note if the value is unknown."""

    measured: float | None
    note: str = ""
    help: str = ""


def _rows(info: KernelInfo, budget: Budget, product: Product | None, called: Mapping[str, int]) -> Iterable[BudgetRow]:
    arch = info.arch
    assert arch is not None  # machine code has one
    for what, allowed in budget.limits:
        if what in COSTS:
            continue
        if what == "occupancy":
            found = _occupancy(info, arch, budget, product)
        elif what == "spills":
            found = _spills(info, called, allowed)
        else:
            measured = _MEASURES[what](info)
            found = _Found(measured, "" if measured is not None else _UNKNOWN.get(what, "the image doesn't specify it"))
        yield BudgetRow(info.display, info.name, arch, what, allowed, *found)


_MEASURES: dict[str, Callable[[KernelInfo], int | None]] = {
    "registers": lambda k: k.registers,
    "stack_bytes": lambda k: k.stack_bytes,
    "shared_bytes": lambda k: k.shared_bytes,
    "code_bytes": lambda k: k.code_bytes,
    "constant_bytes": lambda k: None if k.constant_bytes is None else sum(k.constant_bytes.values()),
    "barriers": lambda k: k.barriers,
}
_UNKNOWN = {"stack_bytes": "the image doesn't specify it: the kernel is recursive, or calls through a pointer"}


def _spills(info: KernelInfo, called: Mapping[str, int], allowed: float) -> _Found:
    """Return a kernel's spills, including those of the functions that it may call, if they decide the result.

    Source: ptxas lists functions that are not inlined by themselves, their bytes are not in the kernel's line, and
    their space is in the kernel's stack (13.5, measured). The log does not show which kernel calls them.
    """
    own = info.spill_bytes
    if own is None:
        return _Found(
            None, "the kernel has a stack, and only the assembler's log shows how much of it is for spills", _VERBOSE
        )
    if not called or info.stack_bytes == 0 or own > allowed:
        return _Found(own)
    whole = own + sum(called.values())
    listed = ", ".join(f"{name} {size:,}" for name, size in called.items())
    note = (
        f"{own:,} are the kernel's own; it might also call these functions, which spill and are not inlined: {listed}"
    )
    return _Found(whole, note) if whole <= allowed else _Found(None, note, _INLINE)


_INLINE = "mark these functions __forceinline__, or include their spills in the budget"
_VERBOSE = Hint(
    "build with verbose=True and check the Artifact, limit stack_bytes instead, or pass the log of a saved "
    "file (cujit budget --assembler-log)",
    shell="build with -O verbose and pass the log with --assembler-log, or limit --stack-bytes instead",
)


def _occupancy(info: KernelInfo, arch: Arch, budget: Budget, product: Product | None) -> _Found:
    """Return the occupancy for the budget's block, otherwise for the kernel's block, otherwise for the best block."""
    if info.registers is None:
        return _Found(None, "the image doesn't specify the register usage")
    place = product or product_of_arch(arch)
    largest = info.max_threads or MAX_BLOCK_THREADS
    threads, dynamic = budget.threads or info.max_threads, budget.dynamic_shared_bytes
    try:
        demand = Demand(
            limits_of(place.arch),
            info.registers,
            info.shared_bytes or 0,
            info.barriers or 0,
            largest,
            virtual_resources=info.virtual_resources or 0,
        )
        required = info.max_threads if info.required_block else None
        subject = Subject(info.display, info.name, place, demand, required)
        answer = subject.best(shared_bytes=dynamic) if threads is None else subject.at(threads, shared_bytes=dynamic)
    except CujitError as e:
        return _Found(None, e.message, e.help or "")
    found = answer.residency
    limited = ", ".join(limiter.value for limiter in found.limited_by)
    return _Found(found.occupancy, f"blocks of {found.threads} threads, limited by {limited}")


# -- values --------------------------------------------------------------------------------------


def _real(value: object, what: str, most: float) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(value, (bool, str, bytes)):
        raise OptionError(f"{what} is {type(value).__name__} {spell(value)}, expected a number from 0 to {most:g}")
    if not 0 <= number <= most:
        raise OptionError(
            f"{what} is {value}, expected 0 to {most:g}", help="for one half, write 0.5" if most == 1 else None
        )
    return number
