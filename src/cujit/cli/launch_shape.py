"""The launch configuration of ``cujit run``: ``--grid``, ``--block``, ``--over``, ``--cluster``, ``--cooperative``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cujit.cli.console import several
from cujit.devices.arguments.written import sizes
from cujit.errors import spell
from cujit.kernel import Kernel, Launch
from cujit.values import dataclass


def sizes_option(name: str, help: str, *, multiple: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds an option for one to three sizes along x, y and z."""
    return click.option(name, type=_sizes, metavar="SIZES", multiple=multiple, help=help)


def _sizes(text: str) -> tuple[int, ...]:
    found = sizes(text)
    if found is None or len(found) > 3:
        raise click.BadParameter(f"{spell(text)} is not one to three sizes, such as 4 or 16x16")
    return found


shape_options = several(
    sizes_option("--grid", "Number of blocks along x, y, and z, such as 4 or 16x16."),
    sizes_option("--block", "Number of threads per block along x, y, and z, such as 256 or 16x16."),
    sizes_option(
        "--over",
        "Number of elements, such as 1000 or 640x480. Each element gets one thread, and cujit chooses the grid.",
    ),
    sizes_option("--cluster", "Number of blocks per cluster along x, y, and z, such as 2 or 2,1,1."),
    click.option(
        "--cooperative",
        is_flag=True,
        help="Make a cooperative launch, which allows grid synchronization. Default grid: as many blocks as fit on "
        "the device, or as --over requires.",
    ),
    click.option(
        "--shared-bytes",
        type=click.IntRange(min=0),
        default=0,
        metavar="BYTES",
        help="Dynamic shared memory per block, in bytes. Default: 0.",
    ),
)


@dataclass(frozen=True)
class ShapeOptions:
    """Values of the launch configuration options.

    Raises:
        click.UsageError: the options contradict each other.
    """

    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    over: tuple[int, ...] | None
    cluster: tuple[int, ...] | None
    cooperative: bool
    shared_bytes: int

    def __post_init__(self) -> None:
        if self.over is not None and self.grid is not None:
            raise click.UsageError("--over chooses the grid: specify either --grid or --over, not both")
        if self.grid is None and self.over is None and not self.cooperative:
            raise click.UsageError("specify --grid and --block, or --over")
        if self.grid is not None and self.block is None:
            raise click.UsageError("specify --grid and --block, or --over")
        if self.over is not None and self.cluster is not None and not self.cooperative:
            raise click.UsageError("--over doesn't support clusters: use --cluster with --grid or --cooperative")

    def of(self, kernel: Kernel) -> Launch:
        """Fix the launch of a kernel.

        Raises:
            LaunchError: a size exceeds a limit of the device or the kernel.
        """
        shared = self.shared_bytes
        if self.grid is not None and self.block is not None:
            return kernel.prepare(
                self.grid, self.block, shared_bytes=shared, cluster=self.cluster, cooperative=self.cooperative
            )
        if self.cooperative:
            return kernel.cooperative(self.over, block=self.block, shared_bytes=shared, cluster=self.cluster)
        return kernel.over(self.over or 0, block=self.block, shared_bytes=shared)
