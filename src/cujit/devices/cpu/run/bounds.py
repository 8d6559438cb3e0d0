"""What a kernel's directives make of a launch: the block and the clusters that it has to have, and how its grid counts.

Source: PTX ISA 9.1, chapter 11, "Performance-Tuning Directives" and "Cluster Dimension Directives"; where they leave it
open, what an H200 took and refused (``tests/goldens/launches.json``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cujit.devices.options import LaunchOptions, check_cluster, check_own_cluster
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.errors import LaunchError

__all__ = ["MAX_THREADS", "Bounds"]

MAX_THREADS = 1024
"""Threads of a block. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""

_LARGEST_CLUSTER = 16
"""Blocks of a cluster. Source: CUDA C++ Programming Guide, "Thread Block Clusters": 8, or 16 on request."""

_ONE = Dim3(1)


@dataclass(frozen=True)
class Bounds:
    """The sizes that a kernel was compiled for.

    ``block`` is the one that it has to have, ``cluster`` likewise; None leaves them to the launch. ``max_threads`` and
    ``largest_cluster`` are counts of a block and of a cluster. ``needs_cluster``: the launch has to say one.
    ``counts_clusters``: the grid of a launch counts clusters, not blocks.
    """

    block: Dim3 | None
    cluster: Dim3 | None
    max_threads: int
    largest_cluster: int
    needs_cluster: bool
    counts_clusters: bool

    @classmethod
    def of(cls, directives: Mapping[str, tuple[int, ...]]) -> Bounds:
        """Read the directives of an entry."""

        def size(name: str) -> Dim3 | None:
            values = directives.get(name)
            return Dim3(*values) if values and all(values) else None

        block, most, cluster = size("reqntid"), size("maxntid"), size("reqnctapercluster")
        rank = directives.get("maxclusterrank")
        return cls(
            block,
            cluster,
            min([MAX_THREADS, *(each.volume for each in (block, most) if each is not None)]),
            min([_LARGEST_CLUSTER, *(rank or ())]),
            "explicitcluster" in directives and cluster is None,
            "blocksareclusters" in directives,
        )

    def shape(self, shape: LaunchShape, cluster: Dim3 | None = None) -> LaunchShape:
        """Give the grid and block that run: a block of one thread stands for the one that the kernel has to have."""
        if self.block is not None and shape.block == _ONE:
            shape = replace(shape, block=self.block)
        blocks = cluster or self.cluster
        if self.counts_clusters and blocks is not None:
            shape = replace(shape, grid=Dim3(*(n * size for n, size in zip(shape.grid, blocks, strict=True))))
        return shape

    def check(self, kernel: str, shape: LaunchShape, options: LaunchOptions) -> None:
        """Check a launch whose ``shape`` is as they made it.

        Raises:
            LaunchError: the kernel was compiled for another block or cluster.
        """
        if self.block is not None and (shape.block != self.block or self.block.volume > MAX_THREADS):
            raise LaunchError(
                f"{kernel}: a block of {_product(shape.block)} threads; it was compiled for blocks of "
                f"{_product(self.block)} (.reqntid)",
                help=f"use block={tuple(self.block)}",
            )
        check_own_cluster(kernel, options.cluster, self.cluster, must_be_set=self.needs_cluster)
        cluster = options.cluster or self.cluster
        if cluster is not None:
            check_cluster(kernel, shape, cluster, self.largest_cluster)


def _product(block: Dim3) -> str:
    return " × ".join(map(str, block))
