"""Rows of the instruction table that touch memory and that checks are tried on elsewhere, or never."""

from __future__ import annotations

NOT_EXECUTED = frozenset((
    "multimem|fabric", "tcgen05", "tensormap .query", "tensormap .alloc_small|alloc_large|alloc_same",
    "tensormap .alloc_small|alloc_large|alloc_same .global_address",
    "mbarrier .arrive|arrive_drop .expect_tx .multicast::cluster::32b",
    "mbarrier .arrive|arrive_drop .multicast::cluster::32b", "mbarrier .expect_tx|complete_tx .multicast::cluster::32b",
    "mbarrier .test_wait .parity .phase_type::primary", "mbarrier .test_wait .phase_type::primary",
    "mbarrier .try_wait .parity .phase_type::primary", "mbarrier .try_wait .phase_type::primary",
))  # fmt: skip
"""The CPU device refuses them by name."""

IN_TENSOR = dict.fromkeys(
    (
        "tcgen05.unwaited", "tcgen05 .alloc", "tcgen05 .dealloc", "tcgen05 .relinquish_alloc_permit", "tcgen05 .ld",
        "tcgen05 .st",
        "tcgen05 .ld .16x32bx2", "tcgen05 .st .16x32bx2", "tcgen05 .mma", "tcgen05 .commit",
        "tcgen05 .mma .block_scale", "tcgen05 .cp", "tcgen05 .shift", "tcgen05 .mma .sp .block_scale",
        "tcgen05 .mma .ws .sp", "tcgen05 .mma .ws", "tcgen05 .mma .sp .kind::f8f6f4", "tcgen05 .mma .sp",
        "tcgen05 .mma .kind::f8f6f4", "tcgen05 .ld .red .16x32bx2", "tcgen05 .ld .red",
    ),
    "a kernel with it allocates tensor memory, and every launch looks at its use: test_tensor_memory.py",
)  # fmt: skip
