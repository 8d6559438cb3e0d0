"""Number of a kernel's blocks that one SM holds at a time, and the resources that limit this number.

Source of every rule here: the results of cuda_occupancy.h of CUDA 13.5, compared over random cases. The tests repeat
the comparison.
"""

from __future__ import annotations

import enum

from cujit.arch.multiprocessor import (
    MAX_BLOCK_THREADS,
    REGISTER_UNIT,
    SHARED_DEFAULT_BYTES,
    WARP_SIZE,
    ProcessorLimits,
)
from cujit.errors import LaunchError
from cujit.values import dataclass


class Limiter(enum.Enum):
    """Resource that prevents an SM from running another block. The value describes the resource.

    Example::

        print(cujit.occupancy.of(cubin, 256).limited_by)
    """

    WARPS = "warps"
    """Its slots for warps, or the 1,024 threads that a block may have."""
    BLOCKS = "blocks"
    """Its slots for blocks."""
    REGISTERS = "registers"
    SHARED = "shared memory"
    BARRIERS = "barriers"
    VIRTUAL = "virtual resources"


@dataclass(frozen=True)
class Demand:
    """Resources of an SM that a kernel requires, independent of the block size.

    ``registers`` is per thread. ``shared_bytes`` is the static shared memory of a block without the driver's reserve.
    ``barriers`` is the number of named barriers of a block. ``max_threads`` is the largest block that the kernel was
    built for. ``carveout_percent`` is the preferred share of the unified cache for shared memory, from 0 to 100. None
    leaves it to the driver. ``dynamic_limit_bytes`` is the kernel's limit of dynamic shared memory
    (``cuFuncSetAttribute``). None allows the size that a launch requests, as in cujit's own launches.

    Raises:
        LaunchError: a number is negative or above its range.
    """

    limits: ProcessorLimits
    registers: int
    shared_bytes: int = 0
    barriers: int = 0
    max_threads: int = MAX_BLOCK_THREADS
    carveout_percent: int | None = None
    dynamic_limit_bytes: int | None = None
    virtual_resources: int = 0

    def __post_init__(self) -> None:
        for what in ("registers", "shared_bytes", "barriers", "virtual_resources"):
            if getattr(self, what) < 0:
                raise LaunchError(f"{what} is {getattr(self, what)}, expected at least 0")
        if self.max_threads < 1:
            raise LaunchError(f"max_threads is {self.max_threads}, expected at least 1")
        if self.carveout_percent is not None and not 0 <= self.carveout_percent <= 100:
            raise LaunchError(f"carveout_percent is {self.carveout_percent}, expected 0 to 100")

    @property
    def largest_block(self) -> int:
        """The most threads that a block of it may have."""
        return min(self.max_threads, MAX_BLOCK_THREADS)


@dataclass(frozen=True)
class Residency:
    """Resident blocks of ``threads`` threads and ``dynamic_bytes`` of dynamic shared memory, and their limits.

    ``allowed`` pairs each limiter with the number of blocks that it allows. Resources that cannot limit are omitted.
    ``block_registers`` and ``block_shared_bytes`` are the usage of one block. Both are rounded up as in hardware, and
    include the driver's reserve.
    """

    limits: ProcessorLimits
    threads: int
    dynamic_bytes: int
    blocks: int
    allowed: tuple[tuple[Limiter, int], ...]
    block_registers: int
    block_shared_bytes: int

    @property
    def warps(self) -> int:
        """The resident warps."""
        return self.blocks * warps_of(self.threads)

    @property
    def occupancy(self) -> float:
        """The resident warps divided by the maximum number of resident warps, from 0 to 1."""
        return self.warps / self.limits.warps

    @property
    def limited_by(self) -> tuple[Limiter, ...]:
        """The resources that prevent another block from running. If several resources tie, all are listed."""
        return tuple(limiter for limiter, blocks in self.allowed if blocks == self.blocks)


def residency(demand: Demand, threads: int, dynamic_bytes: int = 0) -> Residency:
    """Return the residency of blocks with ``threads`` threads and ``dynamic_bytes`` of dynamic shared memory.

    Zero blocks mean that such a block does not run.

    Raises:
        LaunchError: ``threads`` is below 1, or ``dynamic_bytes`` below 0.
    """
    if threads < 1 or dynamic_bytes < 0:
        what = f"a block of {threads} threads" if threads < 1 else f"shared_bytes of {dynamic_bytes}"
        raise LaunchError(f"{what} is too small: the minimum is {1 if threads < 1 else 0}")
    limits = demand.limits
    shared = block_shared(demand, dynamic_bytes)
    allowed: list[tuple[Limiter, int]] = [
        (Limiter.WARPS, _by_warps(limits, threads)),
        (Limiter.BLOCKS, limits.blocks),
    ]
    if demand.registers:
        allowed.append((Limiter.REGISTERS, by_registers(demand, threads)))
    if shared:
        allowed.append((Limiter.SHARED, by_shared(demand, dynamic_bytes)))
    if limits.barriers is not None and demand.barriers:
        allowed.append((Limiter.BARRIERS, limits.barriers // demand.barriers))
    if limits.virtual_resources is not None and demand.virtual_resources:
        allowed.append((Limiter.VIRTUAL, limits.virtual_resources // demand.virtual_resources))
    return Residency(
        limits=limits,
        threads=threads,
        dynamic_bytes=dynamic_bytes,
        blocks=min(blocks for _, blocks in allowed),
        allowed=tuple(allowed),
        block_registers=_warp_registers(demand.registers) * warps_of(threads),
        block_shared_bytes=shared,
    )


def warps_of(threads: int) -> int:
    """Count the warps of a block."""
    return -(-threads // WARP_SIZE)


def _by_warps(limits: ProcessorLimits, threads: int) -> int:
    return limits.warps // warps_of(threads) if threads <= MAX_BLOCK_THREADS else 0


def _warp_registers(registers: int) -> int:
    return _round_up(registers * WARP_SIZE, REGISTER_UNIT)


def by_registers(demand: Demand, threads: int) -> int:
    """Count the blocks that the registers suffice for. Registers belong to a quarter of the multiprocessor each."""
    limits, warps = demand.limits, warps_of(threads)
    # Source: the header lets 256 pass from 7.0 on, where code has at most 255.
    if demand.registers > limits.thread_registers + (limits.number >= 70):
        return 0
    per_warp = _warp_registers(demand.registers)
    # A launch is checked as if it took registers of every quarter; on 6.0 also as if there were four.
    parts = max(limits.sub_partitions, 4)
    if per_warp * _round_up(warps, parts) > limits.block_registers:
        return 0
    warps_per_part = limits.registers // limits.sub_partitions // per_warp
    return warps_per_part * limits.sub_partitions // warps


def block_shared(demand: Demand, dynamic_bytes: int) -> int:
    """Return the bytes of shared memory that one block uses, rounded up and with the driver's reserve."""
    limits = demand.limits
    return _round_up(demand.shared_bytes + limits.reserved_shared_bytes + dynamic_bytes, limits.shared_unit)


def by_shared(demand: Demand, dynamic_bytes: int) -> int:
    """Return the number of blocks that fit in shared memory. Return all block slots if a block uses none."""
    limits, need = demand.limits, block_shared(demand, dynamic_bytes)
    if not need:
        return limits.blocks
    allowed = dynamic_bytes if demand.dynamic_limit_bytes is None else demand.dynamic_limit_bytes
    if dynamic_bytes > allowed:
        return 0
    if need > _block_limit(demand, allowed):
        return 0
    preferred = preferred_shared(demand)
    if preferred < need:
        preferred = _split(limits, need)
    return preferred // need


def _block_limit(demand: Demand, allowed: int) -> int:
    """Return the maximum bytes of shared memory per block.

    The maximum depends on the bytes that the kernel is allowed, not on the bytes that a launch requests.
    """
    limits = demand.limits
    requested = demand.shared_bytes + limits.reserved_shared_bytes + allowed
    more = limits.shared_configs and requested > SHARED_DEFAULT_BYTES
    return (limits.block_shared_bytes if more else SHARED_DEFAULT_BYTES) + limits.reserved_shared_bytes


def preferred_shared(demand: Demand) -> int:
    """Bytes of the multiprocessor's memory that serve as shared memory, as far as one block fits into them."""
    limits, percent = demand.limits, demand.carveout_percent
    if percent is None or not limits.shared_configs:
        return limits.shared_bytes
    return _split(limits, percent * limits.shared_bytes // 100)


def _split(limits: ProcessorLimits, size: int) -> int:
    """The smallest split between L1 cache and shared memory that holds ``size`` bytes."""
    return next((config for config in limits.shared_configs if config >= size), limits.shared_bytes)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
