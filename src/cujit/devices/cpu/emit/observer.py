"""Who watches a kernel run: emits code of its own before and after each operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cujit.devices.cpu.emit.warp import WarpEmitter
    from cujit.devices.cpu.program import Op

__all__ = ["Observer"]


class Observer(Protocol):
    """Called while code is emitted, for every operation in the order of a block.

    ``e.mask`` are the lanes that come to the operation, whatever its predicate says. After a jump there is nothing to
    do; after a barrier come the lanes that it lets go on, maybe in several places.
    """

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Emit what runs before an operation."""

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Emit what runs after it, in the lanes that still go on."""
