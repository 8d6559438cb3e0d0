"""Launch configurations and their limits. The error for an exceeded limit contains both numbers."""

from __future__ import annotations

import operator

from cujit.errors import LaunchError, spell
from cujit.errors.hints import Hint
from cujit.values import NamedTuple, dataclass
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import SupportsIndex, TypeAlias

    Size: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
    """Of a grid in blocks, or of a block in threads."""
    GridAndBlock: TypeAlias = (
        tuple[Size, Size] | tuple[Size, Size, SupportsIndex] | tuple[Size, Size, SupportsIndex, object]
    )
    """Grid, block, shared_bytes and stream, as in ``kernel[grid, block]``."""

WARP = 32
"""Lanes of a warp. Source: PTX ISA 9.1, ``WARP_SZ``."""

_SIZES = "a grid or block is an int, or a tuple of up to three: 256, or (16, 16)"


class HostExtent(NamedTuple):
    """Host memory that contains an argument: address and size in bytes, and its description ``words``.

    ``called`` is the name of the argument, which is a view of this memory. ``view`` is the address and size of the view
    in bytes. Its elements have ``item`` bytes and the shape ``shape``, with the innermost axis last.
    """

    begin: int
    size: int
    words: str
    called: str
    view: tuple[int, int]
    item: int
    shape: tuple[int, ...]

    def element_at(self, address: int) -> str:
        """Describe which element of the argument an address is in."""
        number, index = (address - self.view[0]) // self.item, []
        for n in reversed(self.shape):
            number, at = divmod(number, n)
            index.append(at)
        return f"element {index[0] if len(index) == 1 else tuple(reversed(index))} of"


class Dim3(NamedTuple):
    """Sizes along x, y, and z.

    Args:
        x: size along x, the innermost dimension.
        y: size along y.
        z: size along z.

    Example::

        shape = kernel[(4, 2), 256].shape
        assert shape.grid == cujit.Dim3(4, 2) and shape.grid.volume == 8
    """

    x: int
    y: int = 1
    z: int = 1

    @classmethod
    def of(cls, value: object, what: str) -> Dim3:
        """Return a Dim3 for an int or a tuple of one to three ints, each at least 1.

        Raises:
            LaunchError: the value is neither, or a size is below 1.
        """
        if type(value) is int and 0 < value < 1 << 63:
            return cls(value)
        sizes = value if isinstance(value, (tuple, list)) else (value,)
        if not 1 <= len(sizes) <= 3:
            raise LaunchError(
                f"{what} has {len(sizes)} dimensions, expected one to three", help=_SIZES, code="grid-size"
            )
        ints = []
        for axis, size in zip("xyz", sizes, strict=False):
            try:
                ints.append(size.__index__())
            except (AttributeError, TypeError):
                message = f"{what}.{axis} is {type(size).__name__} {spell(size)}, expected an int"
                raise LaunchError(message, help=_SIZES, code="grid-size") from None
            if ints[-1] < 1:
                raise LaunchError(
                    f"{what}.{axis} is {spell(ints[-1])}, expected at least 1", help=_SIZES, code="grid-size"
                )
            if ints[-1] >= 1 << 63:
                raise LaunchError(
                    f"{what}.{axis} is {spell(ints[-1])}, which is more than any device supports",
                    help=_SIZES,
                    code="grid-size",
                )
        return cls(*ints)

    @property
    def shortest(self) -> int | tuple[int, ...]:
        """The sizes as an int, or as a tuple without trailing 1s."""
        return self.x if self.y == self.z == 1 else tuple(self[: 2 + (self.z > 1)])

    @property
    def volume(self) -> int:
        """The product of the three sizes."""
        return self.x * self.y * self.z

    def place(self, number: int) -> tuple[int, int, int]:
        """Return the position of a number, counted along x first, then along y."""
        return number % self.x, number // self.x % self.y, number // (self.x * self.y)


@dataclass(frozen=True)
class Resources:
    """Resource usage of a kernel: registers per thread, memory sizes in bytes, barriers, and the maximum block size.

    ``shared_bytes`` is the static shared memory per block, and ``local_bytes`` is the local memory per thread (spills
    and stack). ``constant_bytes`` is the size of the user's constants, and ``max_threads`` is the maximum block size. A
    field is None if the device doesn't report its value.

    Example::

        assert kernel.resources.shared_bytes == 0
    """

    registers: int | None
    shared_bytes: int
    local_bytes: int | None
    constant_bytes: int | None
    max_threads: int
    barriers: int | None = None


@dataclass(frozen=True)
class Limits:
    """Limits of a device for a single launch, in threads, blocks, and bytes.

    Example::

        assert device.limits.max_threads == 1024
    """

    max_threads: int
    max_block: Dim3
    max_grid: Dim3
    shared_bytes: int
    """Static and dynamic shared memory of a block without asking for more."""
    shared_bytes_optin: int
    """The same, when a kernel opts in."""
    processors: int
    """Multiprocessors of a GPU; threads that the CPU device runs blocks on."""
    warp_size: int = WARP
    threads_per_processor: int = 2048
    """Threads that one processor holds at a time, over all its blocks."""


@dataclass(frozen=True)
class LaunchShape:
    """Grid and block sizes and dynamic shared memory in bytes of one launch."""

    grid: Dim3
    block: Dim3
    shared_bytes: int = 0


# -- as users write them, and checked ---------------------------------------------------------------------


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
            f"{prefix}shared_bytes is {type(shared_bytes).__name__} {spell(shared_bytes)}, expected an int",
            help="pass the number of bytes of dynamic shared memory per block, or remove it",
            code="shared-memory-size",
        ) from None
    if size < 0:
        raise LaunchError(
            f"{prefix}shared_bytes is {spell(size)}, expected at least 0",
            help="remove it if the kernel doesn't need dynamic shared memory",
            code="shared-memory-size",
        )
    if size >= 1 << 63:
        raise LaunchError(
            f"{prefix}shared_bytes is {spell(size)}, which is more than any device has",
            help="remove shared_bytes",
            code="shared-memory-size",
        )
    return LaunchShape(_sizes(grid, "grid", "blocks", prefix), _sizes(block, "block", "threads", prefix), size)


def _sizes(value: object, what: str, unit: str, prefix: str) -> Dim3:
    try:
        return Dim3.of(value, what)
    except LaunchError as e:
        raise LaunchError(
            prefix + e.message,
            help=Hint(
                f"pass one to three positive ints, the number of {unit}; or use kernel.over(n), where n can be 0",
                shell=f"pass one to three positive ints, the number of {unit}; or use --over N, where n can be 0",
            ),
            code="grid-size",
        ) from None


def check_launch(kernel: str, shape: LaunchShape, limits: Limits, resources: Resources) -> None:
    """Check a launch of ``kernel`` against the limits of the device and the kernel.

    Raises:
        LaunchError: a limit is exceeded. The message contains the limit and the requested number.
    """
    check_sizes(kernel, shape, limits)
    threads = shape.block.volume
    if threads > resources.max_threads:
        because = f", which uses {resources.registers} registers a thread" if resources.registers else ""
        raise LaunchError(
            f"{kernel}: the block has {_product(shape.block)} = {threads} threads, but this kernel{because}, "
            f"accepts at most {resources.max_threads}",
            help=f"use at most {resources.max_threads} threads (kernel.max_block), or compile it with "
            f"__launch_bounds__({threads})",
            code="block-size",
        )
    _check_shared(kernel, shape.shared_bytes, limits, resources)


def keeps_limits(shape: LaunchShape, limits: Limits, resources: Resources) -> bool:
    """Return whether ``check_launch`` accepts the launch."""
    threads = shape.block.volume
    return (
        all(map(operator.le, (*shape.grid, *shape.block), (*limits.max_grid, *limits.max_block)))
        and threads <= min(limits.max_threads, resources.max_threads)
        and resources.shared_bytes + shape.shared_bytes <= limits.shared_bytes_optin
    )


def check_sizes(kernel: str, shape: LaunchShape, limits: Limits) -> None:
    """Check the grid and block of ``kernel`` against the device limits that apply to every kernel.

    Raises:
        LaunchError: a limit is exceeded. The message contains the limit and the requested number.
    """
    _check_axes(kernel, "block", shape.block, limits.max_block, "threads")
    _check_axes(kernel, "grid", shape.grid, limits.max_grid, "blocks")
    threads = shape.block.volume
    if threads > limits.max_threads:
        raise LaunchError(
            f"{kernel}: the block has {_product(shape.block)} = {threads} threads, but the device supports at "
            f"most {limits.max_threads}",
            help=Hint(
                "use a smaller block and a larger grid, or kernel.over(n), which chooses both",
                shell="use a smaller block and a larger grid, or --over N, which chooses both",
            ),
            code="block-size",
        )


def _check_axes(kernel: str, what: str, sizes: Dim3, largest: Dim3, unit: str) -> None:
    if sizes.x <= largest.x and sizes.y <= largest.y and sizes.z <= largest.z:
        return
    for axis, size, limit in zip("xyz", sizes, largest, strict=True):
        if size > limit:
            raise LaunchError(
                f"{kernel}: {what}.{axis} is {size}, but the device supports at most {limit} {unit} along {axis}",
                help=f"use at most {limit} {unit} along {axis} and more along another axis, or let each thread loop "
                "over several elements",
                code="grid-size",
            )


def _check_shared(kernel: str, dynamic: int, limits: Limits, resources: Resources) -> None:
    total = resources.shared_bytes + dynamic
    if total <= limits.shared_bytes_optin:
        return
    static = f" ({resources.shared_bytes} static + {dynamic} dynamic)" if resources.shared_bytes else ""
    room = limits.shared_bytes_optin - resources.shared_bytes
    raise LaunchError(
        f"{kernel}: a block needs {total} bytes of shared memory{static}, but the device supports at most "
        f"{limits.shared_bytes_optin}",
        help=f"set shared_bytes to at most {room}" if room > 0 else "declare less __shared__ memory in the kernel",
        code="shared-memory-size",
    )


def _product(block: Dim3) -> str:
    return " × ".join(map(str, block))


# -- a grid that covers a problem, from a block of high occupancy ----------------------------------------

_COVERED = "kernel.over(n), kernel.over((width, height)) or kernel.over((width, height, depth)): one thread an element"


def problem_size(size: object, kernel: str = "") -> tuple[int, ...]:
    """Return the number of threads along x, y, and z, from an int or a tuple of one to three ints.

    ``kernel`` is the name in messages, if any.

    Raises:
        LaunchError: the size is invalid or negative.
    """
    prefix = f"{kernel}: " if kernel else ""
    sizes = size if isinstance(size, (tuple, list)) else (size,)
    if not 1 <= len(sizes) <= 3:
        raise LaunchError(
            f"{prefix}the problem has {len(sizes)} dimensions, but over() accepts one to three",
            help=_COVERED,
            code="grid-size",
        )
    try:
        result = tuple(operator.index(n) for n in sizes)
    except TypeError:
        raise LaunchError(
            f"{prefix}over() accepts an int or a tuple of ints, not {spell(size)}", help=_COVERED, code="grid-size"
        ) from None
    if min(result) < 0 or max(result) >= 1 << 63:
        given = ", ".join(map(spell, result))
        raise LaunchError(
            f"{prefix}over() accepts sizes of 0 or more that fit in 63 bits, not {given}",
            help=_COVERED,
            code="grid-size",
        )
    return result


def cover(sizes: tuple[int, ...], block: Dim3, shared_bytes: int) -> LaunchShape:
    """Return the smallest grid of ``block`` that has a thread for every element. No size may be 0."""
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
