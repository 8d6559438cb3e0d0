"""Parameter buffers from the caller: packed, or pointers to each parameter. Only their sizes are checked."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NoReturn

from cujit.errors import ArgumentError, counted, spell
from cujit.signature import Signature

_WORD = 8


class Buffers:
    """Makes parameter buffers of one kernel; ``kernel`` is its name in messages."""

    def __init__(self, kernel: str, signature: Signature) -> None:
        self._kernel = kernel
        self._signature = signature
        self._size = signature.size
        self._rows = tuple((offset, p.size) for p, offset in zip(signature, signature.offsets, strict=True))

    def packed(self, parameters: Any) -> bytes:
        """Return the bytes of a packed parameter buffer.

        Raises:
            ArgumentError: it is no contiguous buffer, or of another size than all parameters.
        """
        try:
            data = parameters if type(parameters) is bytes else memoryview(parameters).cast("B").tobytes()
        except (TypeError, ValueError) as e:
            raise ArgumentError(
                f"{self._kernel} expects packed parameters as one contiguous buffer, not {_kind(parameters)}: {e}",
                help="pass bytes, bytearray, a ctypes.Structure or a contiguous NumPy array",
            ) from None
        if len(data) != self._size:
            takes = f"{counted(self._size, 'byte')} of packed parameters {self._signature}"
            raise ArgumentError(
                f"{self._kernel} takes {takes}, but the buffer is {len(data)} bytes long",
                help=f"put each parameter at its offset, {[at for at, _ in self._rows]}, and nothing after the last",
                code="argument-count",
            )
        return data

    def pointed(self, pointers: Any) -> bytes:
        """Pack the parameters behind pointers.

        Raises:
            ArgumentError: the number of pointers is wrong, or a pointer is null or not an address.
        """
        found, buffer = self._addresses(pointers), bytearray(self._size)
        if len(found) != len(self._rows):
            came, has = counted(len(found), "pointer"), counted(len(self._rows), "parameter")
            self._refuse(f"you passed {came}, but the kernel has {has} {self._signature}")
        for address, (offset, size) in zip(found, self._rows, strict=True):
            if type(address) is not int or not 0 < address < 1 << 64:
                number = [offset for offset, _ in self._rows].index(offset)
                what = "null" if address in (None, 0) and type(address) is not bool else f"{_kind(address)}, no address"
                self._refuse(f"pointer {number + 1} ({self._signature.parameters[number]}) is {what}")
            buffer[offset : offset + size] = ctypes.string_at(address, size)
        return bytes(buffer)

    def _addresses(self, pointers: Any) -> Sequence[object]:
        """Return the pointers. At an address, there are as many pointers as parameters."""
        if isinstance(pointers, ctypes.c_void_p):
            pointers = pointers.value or 0
        if type(pointers) is int:
            if not 0 < pointers < 1 << 64 or pointers % _WORD:
                self._refuse(f"{spell(pointers)} is not an address of an array of pointers")
            return list((ctypes.c_uint64 * len(self._rows)).from_address(pointers))
        is_array = isinstance(pointers, ctypes.Array) and pointers._type_ is ctypes.c_void_p
        if not is_array and not isinstance(pointers, (list, tuple)):
            self._refuse(f"{_kind(pointers)} is not an array of pointers")
        return [each.value if isinstance(each, ctypes.c_void_p) else each for each in pointers]

    def _refuse(self, why: str) -> NoReturn:
        addresses = counted(len(self._rows), "address") + " in host memory"
        raise ArgumentError(f"{self._kernel}: {why}", help=f"pass {addresses}, one for each parameter")


def _kind(value: object) -> str:
    return f"{type(value).__name__} {spell(value)}" if isinstance(value, (int, float, str)) else type(value).__name__
