"""Who watches the launches of a CPU device: traces, coverage and checks.

They say which observers instrument a kernel, and read what these leave.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from cujit.devices.shapes import LaunchShape
from cujit.devices.watch import Watcher

if TYPE_CHECKING:  # what compiles kernels is imported for the first that is in no cache
    from cujit.devices.cpu.analysis.body import Body
    from cujit.devices.cpu.codegen.warp import Observer
    from cujit.devices.cpu.run.launch import Launch
    from cujit.devices.cpu.run.lines import Lines

__all__ = ["KernelWatcher", "Watch"]


class Watch(Protocol):
    """One kernel that is watched."""

    def observer(self) -> Observer:
        """Give what instruments the kernel, for one compilation."""

    def running(self, launch: Launch, shape: LaunchShape) -> AbstractContextManager[None]:
        """Prepare a launch, and read what it left, also when it failed."""


class KernelWatcher(Watcher, Protocol):
    """Somebody who watches every kernel that is loaded on a CPU device."""

    def watch(self, name: str, body: Body, lines: Lines) -> Watch:
        """Begin with a kernel, by its lowered name."""
