"""What a device's kernel offers to the launcher: options, and where its machine code finds what it needs."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cujit.devices.base import DeviceKernel, Dim3, LaunchShape
from cujit.devices.launcher.finish import Finish
from cujit.devices.launcher.options import PLAIN, LaunchOptions
from cujit.errors import UnsupportedError

__all__ = ["PreparedKernel", "Target"]


@dataclass(frozen=True)
class Target:
    """Where machine code launches a kernel: ``fields`` of its ``State``, and what has to live as long, ``keep``.

    ``failed`` gets what the driver answered, or the address of the CPU device's ``Launch``, and raises the error.
    """

    finish: Finish
    fields: Mapping[str, int]
    failed: Callable[[int], None]
    keep: object = field(repr=False, default=None)


class PreparedKernel(DeviceKernel):
    """A kernel that takes options and machine code."""

    finish: Finish
    """The kind of its targets."""

    @property
    def own_cluster(self) -> Dim3 | None:
        """The cluster that the kernel was compiled for, in blocks; None leaves it to the launch."""
        return None

    @abc.abstractmethod
    def check_options(self, shape: LaunchShape, options: LaunchOptions) -> None:
        """Check options against what the device can do.

        Raises:
            LaunchError: a limit is broken; the message names it with both numbers.
        """

    def compile(self, shape: LaunchShape, options: LaunchOptions) -> None:
        """Make what a launch runs, ahead of it."""

    def cancel(self) -> None:
        """End the launches that run now.

        Raises:
            UnsupportedError: nobody can.
        """
        raise UnsupportedError(
            f"{self.title}: a launch on a GPU runs until it is done", help="try it on the CPU device: cujit.cpu()"
        )

    @abc.abstractmethod
    def together(self, shape: LaunchShape, cluster: Dim3 | None = None) -> int:
        """Count the blocks of that size that run at a time on the whole device; of clusters, in whole clusters.

        Raises:
            ClosedError: the module was closed.
            DriverError: the driver refused.
        """

    @abc.abstractmethod
    def launch(
        self, shape: LaunchShape, parameters: bytes | bytearray, stream: int = 0, options: LaunchOptions = PLAIN
    ) -> None:
        """Run the kernel, as ``DeviceKernel.launch`` does, with options."""

    @abc.abstractmethod
    def target(self, shape: LaunchShape, stream: int, options: LaunchOptions, size: int) -> Target | None:
        """Say where machine code launches the kernel with a parameter buffer of ``size`` bytes.

        None leaves every launch to ``launch``.

        Raises:
            ClosedError: the module was closed.
            DriverError: the driver refused.
        """
