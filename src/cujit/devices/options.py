"""Launch options in addition to the launch configuration: clusters, cooperative launches, overlap, and priority."""

from __future__ import annotations

from cujit.devices.shapes import Dim3, LaunchShape
from cujit.errors import LaunchError, read_int, spell
from cujit.errors.hints import Hint
from cujit.values import NamedTuple, dataclass


@dataclass(frozen=True)
class LaunchOptions:
    """Options of one launch.

    ``cluster`` is the cluster size in blocks, or None for the kernel's own size. ``cooperative`` makes all blocks run
    at the same time. ``overlap`` lets the kernel start before the previous kernel in its stream ends (programmatic
    dependent launch). The kernel must then wait with ``cudaGridDependencySynchronize()``. ``priority`` is a stream
    priority, in which a lower number runs sooner, or None for the stream's priority. ``timeout_s`` is the time limit on
    the CPU device in seconds, or None for the device's limit.
    """

    cluster: Dim3 | None = None
    cooperative: bool = False
    overlap: bool = False
    priority: int | None = None
    timeout_s: float | None = None

    @classmethod
    def of(
        cls,
        cluster: object,
        cooperative: object,
        overlap: object,
        priority: object,
        timeout_s: object = None,
        kernel: str = "",
    ) -> LaunchOptions:
        """Read options as users write them; ``kernel`` is the name in messages, if any.

        Raises:
            LaunchError: one of them is malformed.
        """
        try:
            return cls(
                None if cluster is None else Dim3.of(cluster, "cluster"),
                check_flag(cooperative, "cooperative"),
                check_flag(overlap, "overlap"),
                None if priority is None else check_priority(priority),
                None if timeout_s is None else check_timeout(timeout_s),
            )
        except LaunchError as e:
            raise LaunchError(f"{kernel}: {e.message}" if kernel else e.message, help=e.help) from None


PLAIN = LaunchOptions()
"""A launch that asks for nothing."""


MAX_TIMEOUT_S = 1e9
"""The longest time that a launch may be given, some 30 years."""


def check_timeout(value: object) -> float:
    """Read a time limit in seconds.

    Raises:
        LaunchError: it is no number above 0, or too large.
    """
    try:
        if isinstance(value, bool | str | bytes | bytearray):
            raise TypeError
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise LaunchError(
            f"timeout_s is {type(value).__name__} {spell(value)}, expected seconds, such as 0.5"
        ) from None
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise LaunchError(f"timeout_s is {spell(value)}, expected more than 0 and at most {MAX_TIMEOUT_S:g} seconds")
    return seconds


def check_flag(value: object, what: str) -> bool:
    """Check that a value is True or False, and return it.

    Raises:
        LaunchError: the value is not a bool.
    """
    if not isinstance(value, bool):
        raise LaunchError(f"{what} is {type(value).__name__} {spell(value)}, expected True or False")
    return value


def check_cluster(kernel: str, shape: LaunchShape, cluster: Dim3, most: int) -> None:
    """Check that clusters of blocks fill the grid, and that a cluster has no more than ``most`` blocks.

    Source: CUDA C++ Programming Guide, "Thread Block Clusters".

    Raises:
        LaunchError: they do not; the message has both numbers.
    """
    if cluster.volume > most:
        raise LaunchError(
            f"{kernel}: the cluster consists of {cluster.volume} blocks, but the device supports at most {most}. Each "
            f"block has {shape.block.volume} threads and {shape.shared_bytes} bytes of dynamic shared memory",
            help=f"use a cluster of at most {most} blocks, or smaller blocks" if most else "use smaller blocks",
            code="cluster-size",
        )
    for axis, blocks, size in zip("xyz", shape.grid, cluster, strict=True):
        if blocks % size:
            raise LaunchError(
                f"{kernel}: grid.{axis} is {blocks}, which is not a multiple of cluster.{axis} ({size})",
                help=f"use {-(-blocks // size) * size} blocks along {axis}, or another cluster",
                code="cluster-size",
            )


def check_own_cluster(kernel: str, cluster: Dim3 | None, own: Dim3 | None, *, must_be_set: bool) -> None:
    """Check the cluster of a launch against the one that the kernel was compiled for.

    Source: CUDA C++ Programming Guide, "Thread Block Clusters", ``__cluster_dims__``.

    Raises:
        LaunchError: it is another one, or none where the kernel needs one.
    """
    if own is not None and cluster is not None and cluster != own:
        raise LaunchError(
            f"{kernel}: the cluster size is {tuple(cluster)}, but the kernel was compiled for clusters of "
            f"{tuple(own)} (__cluster_dims__)",
            help="remove the cluster, or compile the kernel without __cluster_dims__",
            code="cluster-size",
        )
    if must_be_set and cluster is None:
        raise LaunchError(
            f"{kernel} requires a cluster size, but this launch doesn't set one",
            help=Hint("write kernel.prepare(grid, block, cluster=2)", shell="--cluster 2"),
            code="cluster-size",
        )


def check_cooperative(kernel: str, shape: LaunchShape, most: int) -> None:
    """Check that all blocks of a grid can run at a time, which ``most`` of them can.

    Raises:
        LaunchError: they cannot; the message has both numbers.
    """
    if shape.grid.volume > most:
        raise LaunchError(
            f"{kernel}: a cooperative grid of {shape.grid.volume} blocks with {shape.block.volume} threads "
            f"each is too large; the device can run {most} of them concurrently",
            help=Hint(
                "kernel.cooperative_shape() returns a block and a grid that fill the device; the kernel must "
                "loop over the elements",
                shell="without --grid, --cooperative fills the device; the kernel must loop over the elements",
            ),
            code="cooperative-size",
        )


def check_priority(priority: object, of: object = None) -> int:
    """Check the priority of a new stream, and return it.

    An existing stream ``of`` keeps its priority, so every priority is refused for it.

    Raises:
        LaunchError: the priority is not a 32-bit int, or ``of`` is an existing stream.
    """
    number = read_int(priority, "priority", LaunchError)
    if not -(1 << 31) <= number < 1 << 31:
        raise LaunchError(f"priority is {spell(number)}, expected a 32-bit int")
    if of is not None:
        raise LaunchError(
            f"priority {priority} can be set only for a new stream, because an existing stream keeps its priority",
            help="remove priority",
        )
    return number


class CooperativeShape(NamedTuple):
    """A launch of which every block runs at a time: ``block`` threads each, ``blocks`` of them."""

    block: int
    blocks: int
