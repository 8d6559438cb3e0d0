"""Who watches the launches of a CPU device: traces, coverage, and checks, of which there are some.

They say which observers instrument a kernel, and read what these leave.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from cujit.devices.shapes import HostExtent, LaunchShape
from cujit.devices.watch import Watcher
from cujit.errors import OptionError, spell
from cujit.values import dataclass

if TYPE_CHECKING:  # what compiles kernels is imported for the first that is in no cache
    from cujit.devices.cpu.analysis.body import Body
    from cujit.devices.cpu.codegen.warp import Observer
    from cujit.devices.cpu.observe.checked_launch import CheckedLaunch
    from cujit.devices.cpu.run.launch import Launch
    from cujit.devices.cpu.run.source_map import Lines
    from cujit.errors.stories import Story


class WatchedKernel(Protocol):
    """One kernel that is watched.

    With ``needs_stacks`` its warps have stacks of their own, and one thread runs all blocks.
    """

    needs_stacks: bool = False

    def observer(self) -> Observer:
        """Return the observer that instruments the kernel, for one compilation."""

    def running(
        self, launch: Launch, shape: LaunchShape, extents: Sequence[HostExtent] = ()
    ) -> AbstractContextManager[None]:
        """Prepare a launch, and read what it left, also when it failed; ``extents`` is what it has of the host."""

    def checked(self, job: Launch, shape: LaunchShape, code: int, size: int) -> CheckedLaunch | None:
        """Prepare a launch that native code starts; None if Python has to start it."""
        del job, shape, code, size
        return None

    def left(self, launch: Launch, shape: LaunchShape, checked: CheckedLaunch) -> AbstractContextManager[bool]:
        """Raise what a launch that native code started has found; return whether it ran at all."""
        del launch, shape, checked
        return contextlib.nullcontext(False)

    def explain(self, launch: Launch) -> str | None:
        """Describe what the watch knows of a fault, while the launch is running. None if it knows nothing."""
        del launch
        return None

    def story_of(self, launch: Launch) -> Story | None:
        """Describe a fault by what two threads did, while the launch is running. None if the watch knows nothing."""
        del launch
        return None


PTXAS = "ptxas"
"""What contracts sums as ptxas does."""


def check_contract(value: object) -> str | None:
    """Read how sums are contracted: ``ptxas``, ``off`` or None.

    Raises:
        OptionError: the value is invalid.
    """
    if value in (None, PTXAS, "off"):
        return value
    raise OptionError(
        f"contract is {spell(value)}, expected 'ptxas' or 'off'",
        help='write contract="ptxas" to fuse products and sums as ptxas does, or contract="off" to round each '
        "operation",
    )


class KernelWatcher(Watcher, Protocol):
    """Somebody who watches every kernel that is loaded on a CPU device.

    One that ``contracts`` has sums contracted in what is loaded, if nothing else decides it.
    """

    def watch(self, name: str, body: Body, lines: Lines) -> WatchedKernel:
        """Begin with a kernel, by its lowered name."""


@dataclass(frozen=True)
class Checks:
    """Which checks of ``cujit.cpu(check=…)`` are made."""

    memory: bool = False
    race: bool = False
    sync: bool = False
    init: bool = False

    @classmethod
    def of(cls, value: object) -> Checks:
        """Read what users write: a name, several with commas between, ``all``, or ``none``, which None is, too.

        Raises:
            OptionError: the value is invalid.
        """
        known = cls.__match_args__
        allowed = f"check takes {', '.join(map(repr, known))} 'all' or 'none', and several as 'memory,race'"
        if value is None:
            return cls()
        if not isinstance(value, str):
            raise OptionError(f"check must be a str, not {type(value).__name__} {spell(value)}", help=allowed)
        names = [name.strip() for name in value.split(",")]
        if names == ["none"]:
            return cls()
        if names == ["all"]:
            return cls(**dict.fromkeys(known, True))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise OptionError(f"unknown check {spell(unknown[0])}", help=allowed, code="option-unknown")
        return cls(**dict.fromkeys(names, True))

    def __bool__(self) -> bool:
        return self.memory or self.race or self.sync or self.init

    def __str__(self) -> str:
        return ",".join(name for name in self.__match_args__ if getattr(self, name))

    @property
    def bits(self) -> int:
        """The checks as machine code has them."""
        from cujit.devices.cpu.native.checking import checks_bits  # start-up: for devices that check

        return sum(bit for name, bit in checks_bits().items() if getattr(self, name))

    @property
    def accesses(self) -> bool:
        """Whether any asks about accesses to memory."""
        return self.memory or self.race or self.init
