"""Kernels of one operator, by device and by the arguments in their name, and launches of them."""

from __future__ import annotations

import functools
import os
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.devices.arguments.pointers import cpp_type
from cujit.errors import ArgumentError, OptionError, spell
from cujit.forks import Lock
from cujit.kernel import Kernel, Launch
from cujit.loading import jit, load
from cujit.machine import cpu, gpu
from cujit.program import Options, Source

Size: TypeAlias = int | tuple[int, ...]
SizeOf: TypeAlias = Size | Callable[..., Size]

_MOST_LAUNCHES = 256
"""Launches of one kernel that are kept, by size and stream."""


class Instances:
    """The kernels of one operator.

    ``given`` are the arguments of a call, and ``whole`` are the outputs followed by ``given``. ``parameters`` are the
    names of the arguments.
    """

    def __init__(
        self,
        name: str,
        source: Source | Artifact | str | os.PathLike[str],
        kernel: str,
        parameters: Sequence[str],
        options: Mapping[str, object] | Options | None,
        cache: Cache | bool | None,
    ) -> None:
        self._name = name
        self._source = source
        self._kernel = kernel
        self._build = functools.partial(jit, options=options, cache=cache)
        self._fields = _fields(name, kernel, parameters)
        self._kernels: dict[object, tuple[Kernel, dict[object, Launch]]] = {}
        self._lock = Lock()

    def sized_by(
        self,
        over: Callable[..., Size] | None,
        grid: SizeOf | None,
        block: Size | None,
        shared_bytes: int | Callable[..., int],
    ) -> None:
        """Set the launch size: ``over`` threads, or a ``grid`` of blocks."""
        self._over = over is not None
        self._size: Callable[..., Size] | None = over if over is not None else grid if callable(grid) else None
        self._fixed = grid if not callable(grid) and grid is not None else 0
        self._block = block
        self._shared = shared_bytes

    def launch(self, given: Sequence[Any], whole: Sequence[Any], ordinal: int, stream: int) -> Launch:
        """Return the launch of a call, on the GPU ``ordinal`` or, below 0, on the CPU device."""
        size = self._fixed if self._size is None else self._size(*whole)
        shared = self._shared if type(self._shared) is int else self._shared(*whole)  # type: ignore[operator]
        where = (ordinal, *[_part(given[k]) for k in self._fields.values()]) if self._fields else ordinal
        kernel, launches = self._kernels.get(where) or self._load(where, given, ordinal)
        return launches.get((size, shared, stream)) or self._fix(kernel, launches, size, shared, stream)

    def spelled(self, given: Sequence[Any]) -> str:
        """Return the kernel's name for a call, with the arguments in place of the braces.

        Raises:
            ArgumentError: an argument in braces has no spelling in C++.
        """
        parts = {field: _spelled(self._name, field, given[k]) for field, k in self._fields.items()}
        return self._kernel.format(**parts)

    def _load(self, where: object, given: Sequence[Any], ordinal: int) -> tuple[Kernel, dict[object, Launch]]:
        """Compile a kernel for a device, or find that another thread did."""
        name = self.spelled(given)
        with self._lock:
            if where not in self._kernels:
                device = cpu() if ordinal < 0 else gpu(ordinal)
                if isinstance(self._source, Artifact):
                    module = load(self._source, device)
                else:
                    module = self._build(self._source, names=[name], device=device)
                self._kernels[where] = module[name], {}
            return self._kernels[where]

    def _fix(self, kernel: Kernel, launches: dict[object, Launch], size: Size, shared: int, stream: int) -> Launch:
        """Create and store a launch. A launch over zero threads or of zero blocks does nothing."""
        if self._over or size == 0 or (type(size) is tuple and 0 in size):
            launch = kernel.over(size, block=self._block, shared_bytes=shared, stream=stream)
        else:
            launch = kernel.prepare(size, self._block or 256, shared_bytes=shared, stream=stream)
        if len(launches) >= _MOST_LAUNCHES:
            launches.clear()
        launches[size, shared, stream] = launch
        return launch


def _fields(name: str, kernel: str, parameters: Sequence[str]) -> dict[str, int]:
    """Return the position of each argument that a kernel's name contains in braces."""
    try:
        fields = {field for _, field, _, _ in string.Formatter().parse(kernel) if field is not None}
    except ValueError as e:
        raise OptionError(f"{name}: kernel {spell(kernel)} is malformed: {e}", help='"axpy<{x}>"') from e
    if unknown := sorted(fields - {*parameters}):
        raise OptionError(
            f"{name}: kernel {spell(kernel)} contains {', '.join(unknown)} in braces, which is not an argument",
            help=f"use one of the operator's arguments: {', '.join(parameters)}",
        )
    return {field: parameters.index(field) for field in sorted(fields)}


def _part(value: Any) -> object:
    """Return the part of an argument that selects an instance of a template."""
    dtype = getattr(value, "dtype", None)
    return (type(value), value) if dtype is None else dtype


def _spelled(name: str, field: str, value: Any) -> str:
    """Spell an argument in the name of a kernel."""
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        if (found := cpp_type(str(dtype).removeprefix("torch."))) is not None:
            return found
    elif isinstance(value, int):
        return str(value).lower()
    what = type(value).__name__ if dtype is None else dtype
    raise ArgumentError(
        f"{name}: the kernel name contains {{{field}}}, but there is no C++ type name for {what}",
        help="pass an array of numbers, an int or a bool",
    )
