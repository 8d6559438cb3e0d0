"""Choice of a launch: best block size, requirements of one more block, waves, cooperative grids, and clusters."""

from __future__ import annotations

from collections.abc import Callable

from cujit.arch.multiprocessor import WARP_SIZE, ProcessorLimits
from cujit.errors import LaunchError, counted, spell
from cujit.occupancy.residency import (
    Demand,
    Limiter,
    Residency,
    by_registers,
    by_shared,
    preferred_shared,
    residency,
    warps_of,
)
from cujit.values import dataclass, replace

SharedBytes = int | Callable[[int], int]
"""Dynamic shared memory of a block in bytes: a number, or a function of its threads."""


def shared_bytes_of(shared_bytes: SharedBytes, threads: int) -> int:
    """Return the dynamic shared memory of a block of ``threads`` threads, in bytes.

    Raises:
        LaunchError: it is no int, or negative.
    """
    wanted = shared_bytes(threads) if callable(shared_bytes) else shared_bytes
    try:
        size = wanted.__index__()
    except (AttributeError, TypeError):
        raise LaunchError(
            f"shared_bytes is {type(wanted).__name__} {spell(wanted)}, expected an int, or a function of the "
            "number of threads per block",
            code="shared-memory-size",
        ) from None
    if size < 0:
        raise LaunchError(f"shared_bytes is {size}, expected at least 0", code="shared-memory-size")
    return size


def block_sizes(demand: Demand) -> tuple[int, ...]:
    """Return the block sizes in threads that the kernel allows: multiples of a warp, and the largest size."""
    largest = demand.largest_block
    sizes = range(WARP_SIZE, largest + 1, WARP_SIZE)
    return (*sizes,) if largest % WARP_SIZE == 0 else (*sizes, largest)


def best_block(demand: Demand, shared_bytes: SharedBytes = 0) -> Residency:
    """Choose the block with which most threads are resident; the largest where several tie. It may hold no block.

    Source: what cudaOccMaxPotentialOccupancyBlockSize of cuda_occupancy.h answers, compared over random cases.

    Raises:
        LaunchError: ``shared_bytes``, or what it returns, is no number of bytes.
    """
    found = [residency(demand, n, shared_bytes_of(shared_bytes, n)) for n in block_sizes(demand)]
    return max(found, key=lambda r: (r.blocks * r.threads, r.threads))


# -- one more block -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NextStep:
    """Limits that allow ``blocks`` resident blocks of the same size, one more than now.

    Every limit except None must be met. The limits are maximums: ``registers`` per thread, ``shared_bytes`` per block
    (static and dynamic together), and ``barriers`` per block.
    """

    blocks: int
    occupancy: float
    registers: int | None = None
    shared_bytes: int | None = None
    barriers: int | None = None

    def __str__(self) -> str:
        needs = [
            f"{self.registers} registers" if self.registers is not None else "",
            f"{self.shared_bytes:,} bytes of shared memory" if self.shared_bytes is not None else "",
            f"{self.barriers} barriers" if self.barriers is not None else "",
        ]
        return f"{' and '.join(filter(None, needs))} or less: {counted(self.blocks, 'block')}, {self.occupancy:.1%}"


def next_step(demand: Demand, now: Residency) -> NextStep | None:
    """Return the requirements of one more resident block. Return None if the warp slots or block slots are full.

    Return None also if no reduction helps, for example if the driver's reserved shared memory is too large.
    """
    target = now.blocks + 1
    step = NextStep(target, target * warps_of(now.threads) / now.limits.warps)
    for limiter, blocks in now.allowed:
        if blocks >= target:
            continue
        need = _NEEDS[limiter](demand, now, target) if limiter in _NEEDS else None
        if need is None:
            return None
        step = replace(step, **{_FIELDS[limiter]: need})
    return step


def _registers_for(demand: Demand, now: Residency, blocks: int) -> int | None:
    fewer = range(min(demand.registers - 1, demand.limits.thread_registers), 0, -1)
    return next((n for n in fewer if by_registers(replace(demand, registers=n), now.threads) >= blocks), None)


def _shared_for(demand: Demand, now: Residency, blocks: int) -> int | None:
    """Return the maximum static and dynamic bytes of a block with which ``blocks`` blocks fit in shared memory.

    Return None if no size fits.
    """
    limits, unit = demand.limits, demand.limits.shared_unit
    most = demand.shared_bytes + now.dynamic_bytes - 1
    if demand.dynamic_limit_bytes is not None:
        most = min(most, demand.shared_bytes + demand.dynamic_limit_bytes)
    # As static memory it would be bound by the 48 KiB that a kernel gets unasked.
    dynamic = replace(demand, shared_bytes=0, dynamic_limit_bytes=None)
    shares = {size // blocks // unit * unit for size in (preferred_shared(demand), *limits.shared_configs)}
    # Up to 6.2 a block may have less than the multiprocessor.
    bounds = (*(share - limits.reserved_shared_bytes for share in shares), limits.block_shared_bytes)
    sizes = {min(bound, most) for bound in bounds}
    return max((size for size in sizes if size >= 0 and by_shared(dynamic, size) >= blocks), default=None)


def _barriers_for(demand: Demand, _now: Residency, blocks: int) -> int | None:
    return (demand.limits.barriers or 0) // blocks or None


_NEEDS: dict[Limiter, Callable[[Demand, Residency, int], int | None]] = {
    Limiter.REGISTERS: _registers_for,
    Limiter.SHARED: _shared_for,
    Limiter.BARRIERS: _barriers_for,
}
_FIELDS = {Limiter.REGISTERS: "registers", Limiter.SHARED: "shared_bytes", Limiter.BARRIERS: "barriers"}


# -- a whole device -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Waves:
    """Waves of a grid: ``grid`` blocks on a device that runs ``capacity`` blocks at a time.

    ``count`` is ``grid / capacity``, and ``rounds`` is ``count`` rounded up. ``efficiency`` is ``count / rounds``: the
    filled share of all block slots if every block runs equally long. ``tail`` is the filled share of the last round.
    """

    grid: int
    capacity: int

    @property
    def count(self) -> float:
        """The number of waves, including a fraction."""
        return self.grid / self.capacity

    @property
    def rounds(self) -> int:
        """Waves, the last one counted whole."""
        return -(-self.grid // self.capacity)

    @property
    def efficiency(self) -> float:
        """The part of the slots that is used over all rounds, from 0 to 1."""
        return self.count / self.rounds

    @property
    def tail(self) -> float:
        """The part of the slots that the last round uses, from 0 to 1."""
        return (self.grid - (self.rounds - 1) * self.capacity) / self.capacity


def waves(grid: int, blocks: int, processors: int) -> Waves | None:
    """Return the waves of ``grid`` blocks on ``processors`` SMs of ``blocks`` blocks each.

    Return None if no block fits.

    Raises:
        LaunchError: ``grid`` is below 1.
    """
    if grid < 1:
        raise LaunchError(f"grid is {grid}, expected at least 1")
    return Waves(grid, blocks * processors) if blocks else None


# Source: CUDA C++ Programming Guide, "Thread Block Clusters": from 9.0 on; 8 blocks are portable, 16 need
# cudaFuncAttributeNonPortableClusterSizeAllowed.
_CLUSTERS_SINCE = 90
_MAX_CLUSTER = 16


def clusters_bound(limits: ProcessorLimits, blocks: int, processors: int, cluster: int) -> int:
    """Return an upper bound of the number of clusters of ``cluster`` blocks that are resident at a time.

    The bound counts the blocks that fit. A device may hold fewer clusters, because a cluster stays within one
    processing cluster (GPC) of the chip. The number of SMs in a GPC differs from chip to chip and is unknown here.

    Raises:
        LaunchError: the architecture has no clusters, or ``cluster`` is not between 1 and 16.
    """
    if limits.number < _CLUSTERS_SINCE:
        raise LaunchError(
            f"sm_{limits.number} doesn't support clusters", help="clusters require sm_90 or later", code="cluster-size"
        )
    if not 1 <= cluster <= _MAX_CLUSTER:
        raise LaunchError(
            f"the cluster consists of {cluster} blocks; a cluster can have 1 to {_MAX_CLUSTER}",
            help="use at most 8 blocks, which every GPU with clusters supports",
            code="cluster-size",
        )
    return blocks * processors // cluster
