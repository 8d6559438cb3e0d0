"""Watchers of the launches of a CPU device, such as traces, coverage, and checks.

A watcher selects the observers that instrument a kernel, and reads the results of the observers.
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

    If ``needs_stacks`` is set, each of its warps has a separate stack, and one thread runs all blocks.
    """

    needs_stacks: bool = False

    def observer(self) -> Observer:
        """Return the observer that instruments the kernel, for one compilation."""

    def running(
        self, launch: Launch, shape: LaunchShape, extents: Sequence[HostExtent] = ()
    ) -> AbstractContextManager[None]:
        """Prepare a launch, and read its results, even if the launch fails. ``extents`` is the host memory of the
        launch.
        """

    def checked(self, job: Launch, shape: LaunchShape, code: int, size: int) -> CheckedLaunch | None:
        """Prepare a launch that native code starts, or return None if Python must start the launch."""
        del job, shape, code, size
        return None

    def left(self, launch: Launch, shape: LaunchShape, checked: CheckedLaunch) -> AbstractContextManager[bool]:
        """Return a context for a launch that native code left to Python. The context returns whether the launch ran."""
        del launch, shape, checked
        return contextlib.nullcontext(False)

    def explain(self, launch: Launch) -> str | None:
        """Return a description of a fault while the launch is running, or None if the watcher has no description."""
        del launch
        return None

    def story_of(self, launch: Launch) -> Story | None:
        """Return a fault as the actions of two threads while the launch is running, or None if the watcher has no
        information.
        """
        del launch
        return None


PTXAS = "ptxas"
"""What contracts sums as ptxas does."""


def check_contract(value: object) -> str | None:
    """Return the value if it is a valid mode for the contraction of sums: ``ptxas``, ``off``, or None.

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
    """A watcher of every kernel that is loaded on a CPU device.

    If ``contracts`` is set, sums are contracted in loaded code, unless another setting decides.
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
        """Return the checks in a user's value: one name, several names separated by commas, ``all``, ``none``, or None.

        None is the same as ``none``.

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
        """Whether any enabled check examines memory accesses."""
        return self.memory or self.race or self.init
