"""What a launch may ask for, checked before it is made: a broken limit is named with both numbers."""

from __future__ import annotations

import operator

from cujit.devices.base import Dim3, LaunchShape, Limits, Resources
from cujit.errors import LaunchError, spell

__all__ = ["check_launch", "launch_shape"]


def launch_shape(grid: object, block: object, shared_bytes: object = 0, kernel: str = "") -> LaunchShape:
    """Read grid, block and dynamic shared memory as users write them; ``kernel`` is the name in messages, if any.

    Raises:
        LaunchError: one of them is malformed, or below its smallest.
    """
    prefix = f"{kernel}: " if kernel else ""
    try:
        size = operator.index(shared_bytes)  # type: ignore[arg-type]
    except TypeError:
        raise LaunchError(
            f"{prefix}shared_bytes is {type(shared_bytes).__name__} {spell(shared_bytes)}; it takes an int",
            help="pass the bytes of dynamic shared memory of a block, or leave it out",
        ) from None
    if size < 0:
        raise LaunchError(
            f"{prefix}shared_bytes is {spell(size)}; the smallest is 0", help="leave it out if none is needed"
        )
    if size >= 1 << 63:
        raise LaunchError(f"{prefix}shared_bytes is {spell(size)}; no device has so many", help="leave it out")
    return LaunchShape(_sizes(grid, "grid", "blocks", prefix), _sizes(block, "block", "threads", prefix), size)


def _sizes(value: object, what: str, unit: str, prefix: str) -> Dim3:
    try:
        return Dim3.of(value, what)
    except LaunchError as e:
        raise LaunchError(
            prefix + e.message,
            help=f"one to three ints of 1 and more count the {unit}; kernel.over(n) chooses them, and takes an n of 0",
        ) from None


def check_launch(kernel: str, shape: LaunchShape, limits: Limits, resources: Resources) -> None:
    """Check a launch of ``kernel`` against what the device and the kernel's resources allow.

    Raises:
        LaunchError: a limit is broken; the message names it with both numbers.
    """
    _check_axes(kernel, "block", shape.block, limits.max_block, "threads")
    _check_axes(kernel, "grid", shape.grid, limits.max_grid, "blocks")
    threads = shape.block.volume
    if threads > limits.max_threads:
        raise LaunchError(
            f"{kernel}: a block of {_product(shape.block)} = {threads} threads; the device takes {limits.max_threads}",
            help="use a smaller block and a larger grid, or kernel.over(n), which chooses both",
        )
    if threads > resources.max_threads:
        because = f", which uses {resources.registers} registers a thread" if resources.registers else ""
        raise LaunchError(
            f"{kernel}: a block of {_product(shape.block)} = {threads} threads; this kernel{because}, takes "
            f"{resources.max_threads}",
            help=f"use at most {resources.max_threads} threads (kernel.max_block), or compile it with "
            f"__launch_bounds__({threads})",
        )
    _check_shared(kernel, shape.shared_bytes, limits, resources)


def _check_axes(kernel: str, what: str, sizes: Dim3, largest: Dim3, unit: str) -> None:
    for axis, size, limit in zip("xyz", sizes, largest, strict=True):
        if size > limit:
            raise LaunchError(
                f"{kernel}: {what}.{axis} is {size}; the device takes {limit} {unit} along {axis}",
                help=f"use at most {limit} {unit} along {axis} and more along another axis, or let each thread loop "
                "over several elements",
            )


def _check_shared(kernel: str, dynamic: int, limits: Limits, resources: Resources) -> None:
    total = resources.shared_bytes + dynamic
    if total <= limits.shared_bytes_optin:
        return
    static = f" ({resources.shared_bytes} static + {dynamic} dynamic)" if resources.shared_bytes else ""
    room = limits.shared_bytes_optin - resources.shared_bytes
    raise LaunchError(
        f"{kernel}: {total} bytes of shared memory a block{static}; the device takes {limits.shared_bytes_optin}",
        help=f"shared_bytes of at most {room}" if room > 0 else "declare less __shared__ memory in the kernel",
    )


def _product(block: Dim3) -> str:
    return " × ".join(map(str, block))
