"""Rows of the instruction table that touch memory and that the CPU device refuses by name."""

from __future__ import annotations

NOT_EXECUTED = frozenset((
    "multimem|fabric", "tcgen05", "tensormap .query", "tensormap .alloc_small|alloc_large|alloc_same",
    "tensormap .alloc_small|alloc_large|alloc_same .global_address",
    "mbarrier .arrive|arrive_drop .expect_tx .multicast::cluster::32b",
    "mbarrier .arrive|arrive_drop .multicast::cluster::32b", "mbarrier .expect_tx|complete_tx .multicast::cluster::32b",
    "mbarrier .test_wait .parity .phase_type::primary", "mbarrier .test_wait .phase_type::primary",
    "mbarrier .try_wait .parity .phase_type::primary", "mbarrier .try_wait .phase_type::primary",
))  # fmt: skip
