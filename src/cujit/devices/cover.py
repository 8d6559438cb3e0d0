"""Choosing a grid that covers a problem, from a block size of high occupancy."""

from __future__ import annotations

import operator

from cujit.devices.base import Dim3, LaunchShape, Limits
from cujit.errors import LaunchError, spell

__all__ = ["cover", "problem_size", "spread"]

_HELP = "kernel.over(n), kernel.over((width, height)) or kernel.over((width, height, depth)): one thread an element"


def problem_size(size: object, kernel: str = "") -> tuple[int, ...]:
    """Read how many threads are wanted along x, y and z: an int, or a tuple of one to three.

    ``kernel`` is the name in messages, if any.

    Raises:
        LaunchError: it is something else, or negative.
    """
    prefix = f"{kernel}: " if kernel else ""
    sizes = size if isinstance(size, (tuple, list)) else (size,)
    if not 1 <= len(sizes) <= 3:
        raise LaunchError(f"{prefix}a problem of {len(sizes)} dimensions; over() takes one to three", help=_HELP)
    try:
        result = tuple(operator.index(n) for n in sizes)
    except TypeError:
        raise LaunchError(f"{prefix}over() takes an int or a tuple of ints, not {spell(size)}", help=_HELP) from None
    if min(result) < 0 or max(result) >= 1 << 63:
        told = ", ".join(map(spell, result))
        raise LaunchError(f"{prefix}over() takes sizes of 0 and more that fit 63 bits, not {told}", help=_HELP)
    return result


def cover(sizes: tuple[int, ...], block: Dim3, shared_bytes: int) -> LaunchShape:
    """Give the smallest grid of ``block`` that has a thread for every element; no size may be 0."""
    grid = Dim3(*(-(-n // b) for n, b in zip(sizes, block, strict=False)))
    return LaunchShape(grid, block, shared_bytes)


def spread(threads: int, sizes: tuple[int, ...], limits: Limits) -> Dim3:
    """Spread ``threads`` over the axes of a problem: a warp along x first, so that accesses stay together."""
    warp = limits.warp_size
    if len(sizes) == 1:
        # Whole warps, and no more of them than the problem needs.
        return Dim3(max(min(threads, -(-sizes[0] // warp) * warp), 1))
    x = min(warp, threads)
    rest = threads // x
    if len(sizes) == 2:
        return Dim3(x, max(rest, 1))
    z = 1
    while z * z * 4 <= rest and z * 2 <= limits.max_block.z:
        z *= 2
    return Dim3(x, max(rest // z, 1), z)
