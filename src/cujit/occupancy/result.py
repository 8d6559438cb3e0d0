"""Occupancy results: the number of a kernel's blocks that a GPU holds at a time, as a printable value."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cujit.errors import counted
from cujit.occupancy.choosing import NextStep, Waves, clusters_bound, next_step, waves
from cujit.occupancy.products import Product
from cujit.occupancy.residency import Demand, Limiter, Residency
from cujit.values import attributes, dataclass


@dataclass(frozen=True)
class Occupancy:
    """The number of blocks of a kernel that an SM can run concurrently, and the result for the whole GPU.

    ``demand`` is the kernel's resource usage, ``residency`` is the result for one SM, and ``product`` is the GPU model.
    ``grid`` is the number of blocks, or None if not specified. ``cluster`` is the number of blocks per cluster, or
    None. ``float(o)`` is ``o.fraction``.

    Example::

        occupancy = cujit.occupancy.of(cubin, 256, on="H200")
        print(occupancy, float(occupancy))
    """

    kernel: str
    product: Product
    demand: Demand
    residency: Residency
    grid: int | None = None
    cluster: int | None = None

    @property
    def block(self) -> int:
        """Threads per block."""
        return self.residency.threads

    @property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory per block."""
        return self.residency.dynamic_bytes

    @property
    def active_blocks(self) -> int:
        """The number of blocks that one SM can run concurrently. 0 means that the block can't run."""
        return self.residency.blocks

    @property
    def active_warps(self) -> int:
        """The number of warps that one SM can run concurrently."""
        return self.residency.warps

    @property
    def max_warps(self) -> int:
        """The number of warp slots in one SM."""
        return self.residency.limits.warps

    @property
    def fraction(self) -> float:
        """The fraction of warp slots that are filled, from 0 to 1."""
        return self.residency.occupancy

    def __float__(self) -> float:
        return self.fraction

    @property
    def limited_by(self) -> tuple[Limiter, ...]:
        """The resources that prevent another block from running. If several resources tie, all are listed."""
        return self.residency.limited_by

    @property
    def limits(self) -> Mapping[Limiter, int]:
        """The number of blocks per SM that each resource allows on its own. Resources that set no limit are omitted."""
        return MappingProxyType(dict(self.residency.allowed))

    @property
    def next_step(self) -> NextStep | None:
        """The change that allows one more block per SM, or None if no resource of the kernel prevents another block."""
        return next_step(self.demand, self.residency)

    @property
    def cooperative_blocks(self) -> int | None:
        """The size of the largest grid that can run all at once, or None if the number of SMs is unknown."""
        return self.active_blocks * self.product.processors if self.product.processors else None

    @property
    def waves(self) -> Waves | None:
        """How the grid fills the GPU, or None if there is no grid, no block fits, or the number of SMs is unknown."""
        if self.grid is None or not self.product.processors:
            return None
        return waves(self.grid, self.active_blocks, self.product.processors)

    @property
    def clusters_bound(self) -> int | None:
        """An upper bound for the number of concurrently running clusters, or None if there is no cluster or the number
        of SMs is unknown.

        A GPU may hold fewer, as a cluster stays within one processing cluster (GPC) of the chip.

        Raises:
            LaunchError: the architecture has no clusters, or not of that size.
        """
        if self.cluster is None or not self.product.processors:
            return None
        return clusters_bound(self.residency.limits, self.active_blocks, self.product.processors, self.cluster)

    def to_json(self) -> dict[str, Any]:
        """Return the results for this block size as plain values.

        Example::

            assert cujit.occupancy.of(cubin, 256, on="H200").to_json()["occupancy"] == 1
        """
        step, waves = self.next_step, self.waves
        return {
            **attributes(self, "block shared_bytes"),
            "occupancy": self.fraction,
            **attributes(self, "active_blocks active_warps max_warps"),
            "limited_by": [limiter.value for limiter in self.limited_by],
            "limits": {limiter.value: blocks for limiter, blocks in self.limits.items()},
            **attributes(self, "cooperative_blocks clusters_bound"),
            "waves": waves and attributes(waves, "count rounds efficiency"),
            "next_step": step and vars(step),
        }

    def __str__(self) -> str:
        processors = f", {self.product.processors} multiprocessors" if self.product.processors else ""
        lines = [
            f"{self.kernel} on {self.product}{processors}, blocks of {self.block}",
            f"  {self.fraction:.1%} occupancy: {counted(self.active_blocks, 'block')} at a time, "
            f"{self.active_warps} of {self.max_warps} warps; limited by {_words(self.limited_by)}",
            f"  uses {self.demand.registers} registers a thread, {self.demand.shared_bytes:,} bytes of static and "
            f"{self.shared_bytes:,} of dynamic shared memory a block",
        ]
        if self.next_step:
            lines.append(f"  for one block more: {self.next_step}")
        if self.waves:
            w = self.waves
            lines.append(f"  {counted(w.grid, 'block')}: {w.count:.2f} waves, {w.efficiency:.0%} of the slots used")
        if self.clusters_bound is not None:
            lines.append(f"  at most {counted(self.clusters_bound, 'cluster')} of {self.cluster} at a time")
        return "\n".join(lines)


def _words(limiters: tuple[Limiter, ...]) -> str:
    return " and ".join(limiter.value for limiter in limiters)
