"""Error messages for invalid uses of tensor memory."""

from __future__ import annotations

from collections.abc import Callable

from cujit.devices.cpu.native.structures import TensorFault
from cujit.devices.cpu.run.launch import SYSTEM_BYTES, Launch

_ALLOCATE = "allocate the columns first: tcgen05.alloc writes their address to shared memory"

_ELSEWHERE = (TensorFault.BUSY, TensorFault.UNSTORED, TensorFault.UNLOADED, TensorFault.DISAGREED)
"""Faults whose number is the line of another instruction."""

_UNKNOWN = ("tensor memory in a way that PTX doesn't allow", _ALLOCATE)
_WORDS: dict[int, tuple[str, str]] = {
    TensorFault.UNALLOCATED: ("column {number} of tensor memory, which the block never allocated", _ALLOCATE),
    TensorFault.FREED: (
        "column {number} of tensor memory, which the block has deallocated",
        "move tcgen05.dealloc behind the last use: wait for the mbarrier of tcgen05.commit first",
    ),
    TensorFault.BEYOND: (
        "{number} columns of tensor memory from column {column} on, and there are 512",
        "lower the column in the address, or use a shape or a repetition with fewer columns",
    ),
    TensorFault.LANES_APART: (
        "lane {lane} of tensor memory, and here only an access from lane {number} on is possible",
        "add (warp % 4) << 21 to the address: a warp accesses the 32 lanes from 32 * (warp % 4) on. Begin products of "
        "128 rows at lane 0, and products of 64 rows at lane 0 or 16",
    ),
    TensorFault.COUNT: (
        "an allocation of {number} columns of tensor memory",
        "allocate 32, 64, 128, 256 or 512 columns",
    ),
    TensorFault.EXHAUSTED: (
        "an allocation of {number} columns of tensor memory, and the block never frees as many",
        "allocate fewer columns: a block has 512, and cujit gives out neighboring columns that begin at a multiple of "
        "their number",
    ),
    TensorFault.RELINQUISHED: (
        "an allocation of {number} columns of tensor memory after tcgen05.relinquish_alloc_permit",
        "move tcgen05.relinquish_alloc_permit behind the last tcgen05.alloc",
    ),
    TensorFault.MISMATCHED: (
        "a deallocation of {number} columns of tensor memory from column {column} on, which are not one allocation",
        "pass tcgen05.dealloc the address and the number of columns of one tcgen05.alloc",
    ),
    TensorFault.HELD: (
        "the block ended with {number} allocated columns of tensor memory, the first of them allocated here",
        "execute tcgen05.dealloc for every tcgen05.alloc before the block ends",
    ),
    TensorFault.INSTRUCTION: (
        "a product that doesn't exist: its instruction descriptor is {number:#010x}",
        "compare types, M, N, transposes and the sparsity bit with section 9.7.16.4.2 of NVIDIA's PTX "
        "manual, \"Instruction descriptor\". Don't transpose an A in tensor memory, and begin it at the lane of D",
    ),
    TensorFault.DESCRIPTOR: (
        "a matrix in shared memory that doesn't exist: its descriptor is {number:#018x}",
        "set the swizzling mode (bits 61 to 63) to 0, 1, 2, 4 or 6 and bit 52 to 0, and transpose only types of 8 bits "
        "or more, as in section 9.7.16.4.1 of NVIDIA's PTX manual, \"Shared memory descriptor\"",
    ),
    TensorFault.OUTSIDE: (
        "a matrix that is not all in shared memory: its descriptor {number:#018x} leads to shared address "
        "{address:#x}, and the block has {size:,} bytes from {begin:#x} on",
        "compare the start address, both byte offsets and the swizzling mode of the descriptor with the array. For an "
        "extern __shared__ array, pass shared_bytes=N to the launch, with the bytes of that array for N",
    ),
    TensorFault.BUSY: (
        "column {column} of tensor memory, which an instruction may still access: {there}",
        "wait first: execute mbarrier.try_wait on the mbarrier of a tcgen05.commit that follows that instruction",
    ),
    TensorFault.UNSTORED: (
        "a product that accesses column {column} of tensor memory, and a warp that stored there did not wait: {there}",
        "execute tcgen05.wait::st.sync.aligned after tcgen05.st, and then the barrier before the product",
    ),
    TensorFault.UNWRITTEN: (
        "a read of tensor memory that the kernel never wrote, {number} columns from column {column} on",
        "execute tcgen05.st, tcgen05.cp or tcgen05.mma for these columns and lanes first, and the first tcgen05.mma of "
        "a sum with a false enable-input-d. Copy scale factors to all 128 lanes",
    ),
    TensorFault.UNLOADED: (
        "a register that a load from tensor memory may not have written yet: {there}",
        "execute tcgen05.wait::ld.sync.aligned after tcgen05.ld, before the first instruction that reads its registers",
    ),
    TensorFault.ZEROS: (
        "a zero-column mask that doesn't exist: its descriptor is {number:#018x}",
        "shift by at most 16 columns if M is 32, otherwise by at most 32, and by no more than bits 30 and 31 of the "
        "instruction descriptor allow. Set bits 36 to 38, 62, and 63 to 0, as in section 9.7.16.4.3 of NVIDIA's PTX "
        "manual, \"Zero-Column Mask Descriptor\"",
    ),
    TensorFault.ALONE: (
        "an instruction with .cta_group::2 in a block that is not in a pair",
        "launch with a cluster of an even number of blocks: write kernel.prepare(grid, block, cluster=2)(…), or "
        "declare the kernel __cluster_dims__(2, 1, 1)",
    ),
    TensorFault.UNPAIRED: (
        "an instruction of a pair with {number} columns of tensor memory, and the other block never executes its part",
        "execute tcgen05.alloc.cta_group::2 and tcgen05.dealloc.cta_group::2 in one warp of each block, and no barrier "
        "between the blocks where the warp of one of them waits for the other",
    ),
    TensorFault.DISAGREED: (
        "an instruction of a pair at column {column} of tensor memory, and the other block names other columns: "
        "{there}",
        "execute tcgen05.alloc and tcgen05.dealloc in both blocks in the same order, with the same columns",
    ),
}  # fmt: skip


def words_of(launch: Launch, line_of: Callable[[int], str]) -> tuple[str, str]:
    """Return a description of an invalid use of tensor memory, and a hint. ``line_of`` describes a line of the PTX."""
    _, _, code, address, number, *_ = launch.fault_more
    what, help_ = _WORDS.get(code, _UNKNOWN)
    there = line_of(number) if code in _ELSEWHERE else ""
    column, lane = address & 0xFFFF, address >> 16
    return what.format(
        number=number,
        column=column,
        lane=lane,
        address=address,
        there=there,
        size=launch.shared_bytes,
        begin=SYSTEM_BYTES,
    ), help_
