"""Host memory that copies can use by themselves: page-locked for a GPU, plain for the CPU device."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["PinnedMemory", "is_pinned", "pinned_array", "pinned_block"]


class _Moment(Protocol):
    def synchronize(self) -> None: ...


class PinnedMemory:
    """``size`` bytes of host memory at ``address``, which ``owner`` keeps; NumPy sees it by its array interface.

    ``users`` has the last event of each stream that copies from or to it, by the number of the stream: whoever frees
    the memory waits for them.
    """

    def __init__(self, address: int, size: int, owner: object) -> None:
        self.address = address
        self.size = size
        self.owner = owner
        self.users: dict[int, _Moment] = {}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """How NumPy sees it (version 3). Source: NumPy manual, "The array interface protocol"."""
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}


def pinned_array(memory: PinnedMemory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """See the start of the memory as elements; the array and all views of it keep it."""
    return np.asarray(memory)[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def pinned_block(data: memoryview) -> PinnedMemory | None:
    """Find the pinned memory that bytes are in; None if they are in any other."""
    owner: object = data.obj
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, PinnedMemory) else None


def is_pinned(data: memoryview) -> bool:
    """Tell whether bytes are in pinned memory."""
    return pinned_block(data) is not None
