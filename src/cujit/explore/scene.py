"""Scenes of the explorer: a source with all settings of its compile and launch, as a user types them."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from cujit.arch import Arch
from cujit.compiler.options.nvcc import read_nvcc
from cujit.compiler.options.table import is_utf8
from cujit.compiler.options.values import Options, read_options
from cujit.devices.arguments.written import DTYPES, Value, argument, sizes
from cujit.devices.cpu.observe.watching import Checks
from cujit.errors import FormatError, LaunchError, OptionError, spell
from cujit.kernel import Kernel, Launch
from cujit.occupancy.products import find_product
from cujit.values import dataclass, field, replace

TIMEOUT_S = 10.0
"""How long a launch of an explorer may run, in seconds."""

MOST_SOURCE_CHARS = 1 << 20
MOST_ARGUMENT_BYTES = 256 << 20
"""What the arrays of one launch may have together."""


def fault_of(text: str) -> str:
    """Describe why a text is no source to edit. Empty if it is one."""
    if "\0" in text:
        return "holds a NUL byte"
    if len(text) > MOST_SOURCE_CHARS:
        return f"has more than {MOST_SOURCE_CHARS:,} characters"
    return "" if is_utf8(text) else "is not UTF-8"


ENDINGS = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".ll")
"""Files that are explored: what is compiled, and is text."""

_ARCH = "sm_90"
_MOST_WORDS = 1 << 14


@dataclass(frozen=True)
class LaunchLimits:
    """Limits of a launch: seconds, MiB of address space, and whether it may run without a system-call filter."""

    timeout_s: float
    memory_mib: int | None
    trusted: bool


@dataclass(frozen=True)
class Scene:
    """One source, and how it is compiled and launched: every field as it is typed on the command line.

    ``name`` is what the source is called, ``arch`` an architecture ("" is that of ``on``, or ``sm_90``), ``options``
    words such as ``std=c++20 -DN=4``, ``kernel`` a name (``axpy<float>``; "" is the only one), ``grid``,
    ``block``, ``over`` and ``cluster`` sizes (``32x32``), ``shared_bytes`` dynamic shared memory of a block in bytes,
    ``arguments`` words such as ``2.0 ones:f32:1000``, ``on`` a GPU for bounds and occupancy (``H200``), and ``check``
    the checks of the launch ("" is none). Without ``grid`` and ``block``, or ``over``, or ``cooperative``, nothing is
    launched.

    Example::

        arguments = "2.0 ones:f32:1000 zeros:f32:1000 1000"
        scene = cujit.explore.Scene(CODE, kernel="axpy<float>", over="1000", arguments=arguments)
        print(cujit.explore.analyze(scene).report.title)
    """

    source: str = field(repr=False)
    name: str = "source.cu"
    arch: str = ""
    options: str = ""
    kernel: str = ""
    grid: str = ""
    block: str = ""
    over: str = ""
    cluster: str = ""
    cooperative: bool = False
    shared_bytes: str = ""
    arguments: str = ""
    on: str = ""
    check: str = "all"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Scene:
        """Create a scene from the settings that a page sends.

        Raises:
            FormatError: a field is unknown, missing, or of another type, or a text is too long.
        """
        names = set(cls.__match_args__)
        if not isinstance(given, dict) or given.keys() - names or "source" not in given:
            raise FormatError(
                f"the page's settings are invalid: they contain {spell(sorted(map(str, given)))}, expected "
                f"{', '.join(sorted(names))}"
            )
        for name, value in given.items():
            most = MOST_SOURCE_CHARS if name == "source" else _MOST_WORDS
            if type(value) is not (bool if name == "cooperative" else str):
                raise FormatError(f"{name} is {type(value).__name__} {spell(value)}, which has the wrong type")
            if isinstance(value, str) and len(value) > most:
                raise FormatError(f"{name} is {len(value):,} characters long; the maximum is {most:,}")
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        """Return the scene as plain values."""
        return {name: getattr(self, name) for name in self.__match_args__}

    @property
    def is_launched(self) -> bool:
        """Whether the scene specifies a launch."""
        return bool(self.grid or self.over or self.cooperative)

    @property
    def is_ir(self) -> bool:
        """Whether the source is LLVM IR."""
        return self.name.endswith(".ll")

    def target(self) -> Arch:
        """Return the specified architecture, otherwise the architecture of the GPU, otherwise the default.

        Raises:
            ArchError: the architecture or the GPU is unknown.
        """
        if self.arch:
            return Arch.parse(self.arch)
        return find_product(self.on).arch if self.on else Arch.parse(_ARCH)

    def settled(self) -> Scene:
        """Return the scene with defaults for missing settings, and check the other settings.

        Raises:
            ArchError: the architecture or the GPU is unknown.
            OptionError: a compiler option or a check is invalid.
        """
        self.compiler_options()
        Checks.of(self.check or None)
        return replace(self, arch=str(self.target()), on=find_product(self.on).name if self.on else "")

    def compiler_options(self) -> Options:
        """Read the options of the compiler.

        Raises:
            OptionError: one is unknown, or has an invalid value.
        """
        line = read_nvcc(_words(self.options, "options"), own={"-O": True})
        if line.targets or line.kind or line.output:
            raise OptionError(
                f"the options {spell(self.options)} set a target or a file",
                help="choose the architecture in its own field",
                code="option-rejected",
            )
        return read_options([*line.option_words, *(word.removeprefix("-O") for word in line.rest if word != "-O")])

    def values(self) -> list[Value]:
        """Return the values of the launch arguments.

        Raises:
            OptionError: an argument is invalid, or the arrays exceed their total size limit.
        """
        words, total = _words(self.arguments, "arguments"), 0
        for word in words:
            total += _bytes_of(word)
            if total > MOST_ARGUMENT_BYTES:
                raise OptionError(
                    f"{spell(word)}: the arrays need {total:,} bytes in total; the maximum is {MOST_ARGUMENT_BYTES:,}",
                    help="use fewer elements; the counters scale with the number of elements",
                )
        return [argument(word) for word in words]

    def launch_of(self, kernel: Kernel) -> Launch:
        """Return the launch of a kernel with the settings of the scene.

        Raises:
            OptionError: a size is invalid.
            LaunchError: the sizes don't fit together, or exceed a limit.
        """
        grid, block, over, cluster = (
            _sizes(getattr(self, what), what) for what in ("grid", "block", "over", "cluster")
        )
        shared = _sizes(self.shared_bytes, "shared_bytes", most=1)
        shared_bytes = shared[0] if shared else 0
        if grid and over:
            raise LaunchError("over chooses the grid automatically", help="clear grid or over")
        if grid and not block:
            raise LaunchError(
                "a grid requires a block", help="enter a block, such as 256 or 32x32", code="grid-missing"
            )
        if grid and block:
            return kernel.prepare(grid, block, shared_bytes=shared_bytes, cluster=cluster, cooperative=self.cooperative)
        if self.cooperative:
            return kernel.cooperative(over, block=block, shared_bytes=shared_bytes, cluster=cluster)
        if cluster:
            raise LaunchError(
                "over doesn't support clusters", help="set grid and block, or cooperative", code="option-conflict"
            )
        return kernel.over(over or 0, block=block, shared_bytes=shared_bytes)

    def threads_of_block(self) -> int | None:
        """Return the number of threads in a block, or None if the block size is missing or invalid."""
        return math.prod(sizes(self.block) or (0,)) or None


def _words(text: str, what: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as e:
        raise OptionError(f"{what} {spell(text)}: {e}", help="close every quote") from None


def _sizes(text: str, what: str, most: int = 3) -> tuple[int, ...] | None:
    if not text.strip():
        return None
    found = sizes(text.strip())
    if found is None or len(found) > most:
        raise OptionError(
            f"{what} is {spell(text)}, expected {'one size' if most == 1 else 'sizes such as 4 or 16x16'}"
        )
    return found


def _bytes_of(word: str) -> int:
    """Return the size of an argument in bytes, before the argument is created. A number counts as 0."""
    if word.endswith(".npy"):
        try:
            return os.stat(word).st_size
        except OSError:
            return 0  # reading it says why
    kind, _, shape = word.rpartition(":")
    if not kind:
        return 0  # a number
    name = kind.rpartition(":")[2]
    element = np.dtype(DTYPES[name]).itemsize if name in DTYPES else 1
    return element * math.prod(sizes(shape) or (0,))
