"""torch's tensors, read through torch's own C interface; nothing here imports torch, only its user does.

A tensor that requires a gradient is taken like any other: what a kernel does to its memory, autograd does not see.
Triton and C++ extensions of torch do the same, while torch's array protocols refuse such tensors.

Source: torch, ``torch/csrc/inductor/aoti_torch/c/shim.h``, which promises a stable binary interface.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

from cujit.forks import once
from cujit.values import NamedTuple
from cujit.values.imported import imported

_WORD = 8


class TensorMemory(NamedTuple):
    """What a tensor says of its memory; ``dtype`` is raw bytes where NumPy has no such numbers."""

    address: int
    dtype: np.dtype[Any]
    contiguous: bool
    empty: bool


def _torch() -> Any:
    """Return torch if the process has imported it, completely."""
    torch = imported("torch")
    return torch if hasattr(torch, "Tensor") and hasattr(torch, "nn") else None


def is_tensor(value: object) -> bool:
    """Return whether an object is a plain tensor or a parameter, and not of a derived class."""
    torch = _torch()
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


def unresolved(value: Any) -> str | None:
    """Name the method that computes what torch has put off: a tensor's memory may hold the negative of its elements,
    or their complex conjugates. None if the memory is the tensor.
    """
    if value.is_conj():
        return "resolve_conj"
    return "resolve_neg" if value.is_neg() else None


def read_tensor(value: Any) -> TensorMemory | None:
    """Read a plain tensor; None for one that has no memory of its own in the usual layout, as sparse ones."""
    torch = _torch()
    try:
        if value.layout is not torch.strided:
            return None
        address = int(value.data_ptr())
        return TensorMemory(
            address, _dtype(value.dtype, value.element_size()), value.is_contiguous(), not value.numel()
        )
    except RuntimeError:
        return None


def _dtype(dtype: object, size: int) -> np.dtype[Any]:
    try:
        return np.dtype(str(dtype).removeprefix("torch."))
    except TypeError:
        return np.dtype((np.void, size))


# -- for machine code -------------------------------------------------------------------------------------


_FUNCTIONS = (
    "get_layout", "get_dtype", "get_device_type", "get_device_index", "get_numel", "is_contiguous", "get_data_ptr",
)  # fmt: skip
"""Functions of torch's interface for machine code, ``aoti_torch_…``."""


class TensorInterface(ctypes.Structure):
    """Where machine code finds what a tensor says: two types, a place, and functions of torch, by address.

    ``read`` is machine code too: whoever compiles it sets it.
    """

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("tensor_type", "parameter_type", "handle", "read", *_FUNCTIONS)
    )

    def ask(self, question: str, tensor: object, kind: type[Any]) -> int | None:
        """Call one of the functions on a tensor; None if it refuses."""
        answer = kind()
        call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(getattr(self, question))
        if call(id(tensor) + self.handle, ctypes.addressof(answer)):
            return None
        return int(answer.value or 0)


@once
def tensor_interface() -> TensorInterface | None:
    """Find torch's interface in this process; None if this torch does not have it, or not as it is known here."""
    torch = _torch()
    library = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    try:
        opened = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        found = {name: getattr(opened, f"aoti_torch_{name}") for name in _FUNCTIONS}
        tensors = [torch.zeros(3, 5), torch.zeros(4, 2, dtype=torch.int64).t(), torch.nn.Parameter(torch.ones(7))]
        (place,) = {_handle(tensor) for tensor in tensors}
    except (OSError, AttributeError, ValueError):
        return None
    addresses = {name: ctypes.cast(call, ctypes.c_void_p).value or 0 for name, call in found.items()}
    interface = TensorInterface(id(torch.Tensor), id(torch.nn.Parameter), place, 0, **addresses)
    return interface if all(_agrees(interface, tensor) for tensor in tensors) else None


def _handle(tensor: Any) -> int:
    """Find where the Python object has its ``at::Tensor``, which is one pointer to its implementation, in bytes."""
    size = type(tensor).__basicsize__ // _WORD
    words = list((ctypes.c_uint64 * size).from_address(id(tensor)))
    (index,) = (i for i, word in enumerate(words) if word == tensor._cdata)
    return index * _WORD


def _agrees(interface: TensorInterface, tensor: Any) -> bool:
    """Return whether the interface reports the same of a tensor as the tensor's attributes."""
    actual = (
        interface.ask("get_data_ptr", tensor, ctypes.c_void_p),
        interface.ask("get_numel", tensor, ctypes.c_int64),
        interface.ask("is_contiguous", tensor, ctypes.c_bool),
        interface.ask("get_layout", tensor, ctypes.c_int32),
        interface.ask("get_device_type", tensor, ctypes.c_int32),
    )
    return actual == (tensor.data_ptr(), tensor.numel(), tensor.is_contiguous(), 0, 0)
