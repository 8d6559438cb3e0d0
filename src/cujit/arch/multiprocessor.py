"""Limits of an SM for each architecture, from which cujit computes occupancy."""

from __future__ import annotations

from cujit.arch import Arch
from cujit.errors import ArchError
from cujit.values import dataclass

# Source: CUDA C++ Programming Guide 12.9 and 13, "Technical Specifications per Compute Capability": the same for
# every architecture from 5.0 to 12.1.
WARP_SIZE = 32
MAX_BLOCK_THREADS = 1024
SHARED_DEFAULT_BYTES = 48 << 10
"""Shared memory of a block, static and dynamic, without asking for more."""
# Source: cuda_occupancy.h of CUDA 13.0 and 13.5; equal for all architectures of the table.
REGISTER_UNIT = 256
"""Registers are given to a warp in multiples of this."""


@dataclass(frozen=True)
class ProcessorLimits:
    """Limits of an SM of one architecture.

    ``number`` is ten times the compute capability. ``threads`` and ``blocks`` are the maximum numbers of resident
    threads and blocks. ``shared_bytes`` is the size of shared memory, and ``shared_configs`` are its possible sizes in
    bytes. ``barriers`` is the number of named barriers that the resident blocks share, or None if it never limits them.
    ``block_shared_bytes`` is the maximum shared memory of a block with more than 48 KiB. ``reserved_shared_bytes`` is
    the shared memory that the driver reserves in each block. ``virtual_resources`` is a number of the occupancy header
    that no image contains, or None if the header has no such number.
    """

    number: int
    threads: int
    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    shared_configs: tuple[int, ...]
    shared_unit: int
    reserved_shared_bytes: int
    barriers: int | None
    virtual_resources: int | None
    registers: int = 64 << 10
    block_registers: int = 64 << 10
    thread_registers: int = 255
    sub_partitions: int = 4

    @property
    def warps(self) -> int:
        """The maximum number of resident warps."""
        return self.threads // WARP_SIZE


_VOLTA = (0, 8, 16, 32, 64, 96)
_TURING = (32, 64)
_SMALL = (0, 8, 16, 32, 64, 100)
_AMPERE = (*_SMALL, 132, 164)
_HOPPER = (*_AMPERE, 196, 228)
_RUBIN = (*_HOPPER, 328)

# Number, threads, blocks, shared KiB of a multiprocessor, of a block; the splits in KiB; named barriers per block slot.
#
# Sources. Threads, blocks, shared memory: cuda/__device/arch_traits.h of CCCL 13.3.5; 72: CUDA C++ Programming Guide
# 12.9, "Technical Specifications per Compute Capability"; 101: the number that 110 had before CUDA 13. Splits,
# barriers, units: cuda_occupancy.h of CUDA 13.5 (10.3 has 2 barriers per slot in that of 13.0; 10.7 is not in it).
# 107 contradicts itself: 228 KiB of shared memory in the first source, a split of 328 in the second.
_ROWS: tuple[tuple[int, int, int, int, int, tuple[int, ...], int], ...] = (
    (50, 2048, 32, 64, 48, (), 2),
    (52, 2048, 32, 96, 48, (), 2),
    (53, 2048, 32, 64, 48, (), 2),
    (60, 2048, 32, 64, 48, (), 2),
    (61, 2048, 32, 96, 48, (), 2),
    (62, 2048, 32, 64, 48, (), 2),
    (70, 2048, 32, 96, 96, _VOLTA, 2),
    (72, 2048, 32, 96, 96, _VOLTA, 2),
    (75, 1024, 16, 64, 64, _TURING, 2),
    (80, 2048, 32, 164, 163, _AMPERE, 2),
    (86, 1536, 16, 100, 99, _SMALL, 1),
    (87, 1536, 16, 164, 163, _AMPERE, 1),
    (88, 1536, 16, 100, 99, _SMALL, 1),
    (89, 1536, 24, 100, 99, _SMALL, 1),
    (90, 2048, 32, 228, 227, _HOPPER, 2),
    (100, 2048, 32, 228, 227, _HOPPER, 2),
    (101, 1536, 24, 228, 227, _HOPPER, 1),
    (103, 2048, 32, 228, 227, _HOPPER, 1),
    (107, 1024, 16, 228, 227, _RUBIN, 1),
    (110, 1536, 24, 228, 227, _HOPPER, 1),
    (120, 1536, 24, 100, 99, _SMALL, 1),
    (121, 1536, 24, 100, 99, _SMALL, 1),
)
_HALF_REGISTERS = frozenset({53, 62})  # of a block. Source: arch_traits.h


def _row(
    number: int, threads: int, blocks: int, shared: int, per_block: int, splits: tuple[int, ...], slots: int
) -> ProcessorLimits:
    return ProcessorLimits(
        number=number,
        threads=threads,
        blocks=blocks,
        shared_bytes=shared << 10,
        block_shared_bytes=per_block << 10,
        shared_configs=tuple(kib << 10 for kib in splits),
        # Source: cuda_occupancy.h; the reserve: CUDA C++ Programming Guide, "Shared Memory" of 8.x and later.
        shared_unit=256 if number < 80 else 128,
        reserved_shared_bytes=0 if number < 80 else 1024,
        # The header computes this limit from 9.0 on.
        barriers=blocks * slots if number >= 90 else None,
        virtual_resources=128 if number >= 100 else None,
        block_registers=32 << 10 if number in _HALF_REGISTERS else 64 << 10,
        sub_partitions=2 if number == 60 else 4,
    )


LIMITS: dict[int, ProcessorLimits] = {row[0]: _row(*row) for row in _ROWS}


def limits_of(arch: Arch) -> ProcessorLimits:
    """Return the SM limits of an architecture. Variants (``a``, ``f``) have the limits of their number.

    Raises:
        ArchError: the limits of this architecture are unknown. The message lists the known architectures.
    """
    if arch.number not in LIMITS:
        have = ", ".join(f"sm_{n}" for n in LIMITS)
        raise ArchError(
            f"the limits of an SM of {arch.real} are unknown", help=f"choose an architecture with known limits: {have}"
        )
    return LIMITS[arch.number]
