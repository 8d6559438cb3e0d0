"""Start of a service: get every declared kernel before the first request, and report its origin."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from cujit.arch import Arch
from cujit.cache.cache import Cache
from cujit.compiler.build import threads_of
from cujit.compiler.jobs import CompileJob
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.errors import CujitError
from cujit.loading import target_for
from cujit.machine import resolve_device
from cujit.program import runner
from cujit.threads import as_done
from cujit.values import NamedTuple, dataclass
from cujit.warmup.declarations import DeclaredVariant, declared

if TYPE_CHECKING:
    from cujit.devices.streams import DeviceLike


class WarmedKernel(NamedTuple):
    """A declared kernel: its origin, the time that this process waited for it, and its error, if any."""

    name: str
    arch: Arch
    outcome: str
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class StartReport:
    """What a start got: each kernel, the wall time of all of them, and the rank if one was specified.

    Example::

        cujit.warmup.declare("docs.axpy", CODE, names="axpy<float>")
        print(cujit.warmup.run(["docs.axpy"], arch=["sm_90"]))
    """

    kernels: tuple[WarmedKernel, ...]
    seconds: float
    rank: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The number of kernels for each outcome: ``made``, ``disk``, ``remote``, ``waited``, ``failed``, …"""
        return dict(Counter(kernel.outcome for kernel in self.kernels))

    @property
    def failed(self) -> tuple[WarmedKernel, ...]:
        """The kernels that this process doesn't have."""
        return tuple(kernel for kernel in self.kernels if kernel.error)

    @property
    def waited_s(self) -> float:
        """The time that this process waited for kernels that another process was compiling, summed over kernels."""
        return sum(kernel.seconds for kernel in self.kernels if kernel.outcome == "waited")

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        kernels = [{**kernel._asdict(), "arch": str(kernel.arch)} for kernel in self.kernels]
        totals = {"rank": self.rank, "seconds": self.seconds, "waited_s": self.waited_s, "counts": self.counts}
        return {**totals, "kernels": kernels}

    def __str__(self) -> str:
        who = "" if self.rank is None else f"rank {self.rank}: "
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items())) or "nothing declared"
        lines = [f"{who}{len(self.kernels)} kernels in {self.seconds:.2f} s: {counts}; waited {self.waited_s:.2f} s"]
        return "\n  ".join([*lines, *(f"{one.name} for {one.arch}: {one.error}" for one in self.failed)])


def run(
    names: Iterable[str] = (),
    *,
    arch: Sequence[Arch | str] = (),
    device: DeviceLike | str | None = None,
    cache: Cache | bool | None = None,
    jobs: int | None = None,
    rank: int | None = None,
) -> StartReport:
    """Get every declared kernel from the cache, from other processes or from the compiler, and report.

    A kernel that doesn't compile is an entry of the report, not an exception.

    Args:
        names: beginnings of the names of declarations. Default: all.
        arch: the architectures. Default: the architecture that ``cujit.jit`` compiles for on ``device``.
        device: a Device or its name. Default: the first GPU, or the CPU device if there is no GPU.
        cache: as for ``cujit.compile``.
        jobs: number of kernels to request at the same time. Default: one per processor.
        rank: number of this process, for the report.

    Raises:
        ArchError: an architecture is malformed or unknown.
        OptionError: there is no such declaration, or a declaration is invalid.
        ToolchainNotFoundError: there is no compiler.

    Example::

        cujit.warmup.declare("docs.axpy", CODE, names="axpy<float>")
        report = cujit.warmup.run(["docs.axpy"], arch=["sm_90"])
        assert not report.failed
    """
    begin, tools, threads = time.perf_counter(), runner(cache), threads_of(jobs)
    targets = list(arch) or [target_for(resolve_device(device), None, tools)]
    variants = [variant for one in declared(names) for each in targets for variant in one.variants(each)]
    found: dict[int, WarmedKernel] = {}
    with closing(as_done([partial(_warmed, tools, variant) for variant in variants], threads, "cujit-warmup")) as done:
        for number, result in done:
            found[number] = result()
    kernels = tuple(found[number] for number in range(len(variants)))
    return StartReport(kernels, time.perf_counter() - begin, rank)


def _warmed(tools: Runner, variant: DeclaredVariant) -> WarmedKernel:
    begin, error = time.perf_counter(), ""
    try:
        outcome = _outcome(tools, variant.request)
    except CujitError as e:
        outcome, error = "failed", e.message.partition("\n")[0]
    return WarmedKernel(variant.title, variant.request.arch, outcome, time.perf_counter() - begin, error)


def _outcome(tools: Runner, request: Request) -> str:
    known = tools.get(CompileJob(request)).provenance
    return "made" if known is None else known.outcome.value
