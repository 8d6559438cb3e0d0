"""PTX loaded on the CPU device: checked whole at load, compiled per kernel and block shape at the first launch.

What the cache has is neither checked nor compiled, and its PTX not even parsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cujit.devices.backend import BackendKernel, BackendModule
from cujit.devices.cpu.ir.refusals import RefusedKernel
from cujit.devices.cpu.kernel import CpuKernel
from cujit.devices.cpu.observe.watching import KernelWatcher
from cujit.devices.cpu.preparation import Preparation
from cujit.devices.cpu.run.allocations import HostBlock
from cujit.devices.cpu.run.grid import Workers
from cujit.devices.cpu.run.lines import Lines
from cujit.devices.cpu.run.streams import Captures
from cujit.errors import NameNotFoundError, spell

__all__ = ["CpuModule"]


class CpuModule(BackendModule):
    """A PTX module in memory."""

    def __init__(
        self,
        text: str,
        workers: Workers,
        route: str,
        captures: Captures | None = None,
        name: str = "<ptx>",
        watchers: Sequence[KernelWatcher] = (),
    ) -> None:
        self.watchers = watchers
        self.preparation = Preparation(text, name)
        self.lines = Lines(self.preparation.ptx, text)
        self.route = route
        self.captures = captures or Captures()
        self.log = ""
        facts = self.preparation.known_facts()
        self._variables = facts.variables
        self.memory = HostBlock(max(len(facts.image), 1))
        self.memory.write(facts.image_at(self.memory.address))
        self.closed = False
        refused = (RefusedKernel(kernel.name, kernel.signature, kernel.items) for kernel in facts.refused)
        self.refused = {kernel.name: kernel for kernel in refused}
        """The kernels that are not executed; they are among ``kernels``, too."""
        self.kernels: Mapping[str, BackendKernel] = {
            **{kernel.name: CpuKernel(self, kernel, workers) for kernel in facts.kernels},
            **self.refused,
        }

    @property
    def variables(self) -> Mapping[str, tuple[int, int]]:
        """Where each variable lies in the memory, and its size, in bytes."""
        return self._variables

    def variable(self, name: str) -> tuple[int, int]:
        """Find a ``__device__`` or ``__constant__`` variable: its address and its size in bytes."""
        if name not in self._variables:
            have = ", ".join(self._variables) or "none"
            raise NameNotFoundError(f"no variable {spell(name)} in this module", help=f"it has {have}")
        offset, size = self._variables[name]
        return self.memory.address + offset, size

    def close(self) -> None:
        """Release the module; again is harmless."""
        self.closed = True
