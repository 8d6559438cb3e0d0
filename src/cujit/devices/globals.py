"""The ``__device__`` and ``__constant__`` variables of a loaded module, by name, with the types that its image
contains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cujit.artifact import Artifact, ImageKind
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.backend import BackendModule
from cujit.devices.device import Device
from cujit.devices.streams import Allocation
from cujit.errors import ArgumentError, CujitError, NameNotFoundError, spell
from cujit.forks import cached_property
from cujit.formats.mangling import entity_name
from cujit.values import group_by

if TYPE_CHECKING:
    import numpy.typing as npt

    from cujit.formats.ptx.syntax import Variable

Typed = tuple[np.dtype[Any], tuple[int, ...]]
Loaded = Callable[[], BackendModule]
"""Gives the loaded module, or raises ``ClosedError``."""

_SPACES = ("global", "const")

# PTX types with a NumPy dtype. Compilers write int and unsigned alike as .u32, and pointers as .u64.
# Source: PTX ISA 9.1, "Fundamental Types"; measured with NVRTC 13.5.
_DTYPES = {f"{kind}{bits}": f"{kind}{bits // 8}" for kind in "su" for bits in (8, 16, 32, 64)}
_DTYPES = {name: dtype.replace("s", "i") for name, dtype in _DTYPES.items()} | {"f16": "f2", "f32": "f4", "f64": "f8"}


class Global:
    """One variable, accessed through ``read()``, ``write(value)``, or ``array``, which shares its memory.

    ``name`` is its lowered name, and ``nbytes`` is its size in bytes. ``dtype`` and ``shape`` come from the image.
    Scalars of PTX have a type, but PTX integers are unsigned regardless of their C++ type. Arrays, structures, and all
    variables of machine code are bytes (``uint8``), and need a dtype.
    """

    def __init__(self, device: Device, loaded: Loaded, name: str, typed: Typed | None) -> None:
        self.device = device
        self.name = name
        self._loaded = loaded
        _address, self.nbytes = loaded().variable(name)
        if typed is not None and typed[0].itemsize * int(np.prod(typed[1], dtype=np.int64)) != self.nbytes:
            typed = None
        self.is_typed = typed is not None
        self.dtype, self.shape = typed or (np.dtype(np.uint8), (self.nbytes,))

    @property
    def array(self) -> DeviceArray:
        """The variable as an array of ``dtype`` and ``shape`` that shares its memory; ``array.view(dtype)`` changes it.

        It must not be used after the module is closed.

        Raises:
            ClosedError: the module was closed.
        """
        return DeviceArray(self.device, self._memory(), self.shape, self.dtype)

    def _memory(self) -> Allocation:
        loaded = self._loaded()
        address, size = loaded.variable(self.name)
        return Allocation(address, size, loaded)

    def read(
        self,
        dtype: npt.DTypeLike | None = None,
        shape: int | tuple[int, ...] | None = None,
        *,
        stream: object = None,
    ) -> npt.NDArray[Any]:
        """Copy it to a NumPy array, which has no axes for a scalar, after all earlier work in the stream.

        With a ``dtype`` it has that and, without a ``shape``, no axes for one element and one axis for several.

        Raises:
            ArgumentError: its bytes are not such elements; or it is an integer of unknown sign whose value depends
                on the sign, and no dtype is given.
            ClosedError: the module was closed.
            DriverError: an earlier kernel failed.
        """
        seen = self._seen(dtype, shape)
        values = seen.numpy(stream=stream)
        if dtype is None and self.is_typed and values.dtype.kind == "u":
            return self._signless(values)
        return values

    def write(self, value: npt.ArrayLike, dtype: npt.DTypeLike | None = None, *, stream: object = None) -> None:
        """Set the variable to a value of its type and shape, or of ``dtype``. A single number sets every element of an
        array.

        If the type is unknown, the value determines it. The value must then be bytes, or a NumPy array or scalar of as
        many bytes as the variable.

        Raises:
            ArgumentError: the value does not fit.
            ClosedError: the module was closed.
            DriverError: the driver reported an error.
        """
        data = self._bytes(value, dtype)
        target = DeviceArray(self.device, self._memory(), (self.nbytes,), np.dtype(np.uint8))
        target.copy_from(np.frombuffer(data, np.uint8), stream=stream)

    def _seen(self, dtype: npt.DTypeLike | None, shape: int | tuple[int, ...] | None) -> DeviceArray:
        seen = self.array
        if dtype is not None:
            seen = self.array.reshape(-1).view(np.uint8).view(dtype)
            if shape is None and seen.size == 1:
                shape = ()
        return seen if shape is None else seen.reshape(shape)

    def _signless(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return integers of unknown sign as signed integers, if the sign does not matter. Otherwise, raise
        ArgumentError.
        """
        signed = values.view(values.dtype.str.replace("u", "i"))
        if (signed < 0).any():
            raise ArgumentError(
                f"{self.name} could be {spell(values.tolist())} (unsigned) or {spell(signed.tolist())} "
                "(signed); the image doesn't specify the type",
                help=f"write read({signed.dtype.name!r}) or read({values.dtype.name!r})",
            )
        return signed

    def _bytes(self, value: npt.ArrayLike, dtype: npt.DTypeLike | None) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._of_size(bytes(value), "bytes")
        if dtype is None and not self.is_typed:
            if not isinstance(value, (np.ndarray, np.generic)):
                raise ArgumentError(
                    f"the type of {self.name} is unknown; its size is {self.nbytes} bytes",
                    help="use write(value, dtype), or pass a NumPy array or scalar of that size",
                )
            return self._of_size(np.ascontiguousarray(value).tobytes(), f"an array of {np.asarray(value).dtype}")
        element = self.dtype if dtype is None else np.dtype(dtype)
        if element.itemsize == 0 or self.nbytes % element.itemsize:
            raise ArgumentError(
                f"the size of {self.name} is {self.nbytes} bytes, which is not a multiple of the size of {element}"
            )
        whole = _cast(self.name, value, element, signless=dtype is None)
        count = self.nbytes // element.itemsize
        if whole.ndim == 0:
            whole = np.broadcast_to(whole, (count,))
        return self._of_size(np.ascontiguousarray(whole).tobytes(), f"{whole.size} elements of {element}")

    def _of_size(self, data: bytes, what: str) -> bytes:
        if len(data) != self.nbytes:
            raise ArgumentError(
                f"the size of {what} is {len(data)} bytes, but the size of {self.name} is {self.nbytes}"
            )
        return data

    def __repr__(self) -> str:
        kind = f"{self.dtype} {self.shape}" if self.is_typed else f"{self.nbytes} bytes"
        return f"<Global {self.name}: {kind} on {self.device.name}>"


def _cast(name: str, value: npt.ArrayLike, dtype: np.dtype[Any], *, signless: bool) -> npt.NDArray[Any]:
    """Return a value as an array of ``dtype``, if no element changes except by rounding."""
    try:
        given = np.asarray(value)
        if signless and dtype.kind == "u" and given.dtype.kind == "i" and (given < 0).any():
            dtype = np.dtype(dtype.str.replace("u", "i"))
        if given.dtype.kind in "iub" and dtype.kind in "iu":
            _check_range(name, given, dtype)
        elif given.dtype.kind not in "iub" and not np.can_cast(given.dtype, dtype, "same_kind"):
            raise TypeError(f"the dtype is {given.dtype}, expected {dtype}")
        return given.astype(dtype)
    except (TypeError, ValueError, OverflowError) as e:
        raise ArgumentError(f"{name}, which is of type {dtype}, can't hold {spell(value)}: {e}"[:300]) from e


def _check_range(name: str, given: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
    limits = np.iinfo(dtype)
    if given.size and (int(given.min()) < limits.min or int(given.max()) > limits.max):
        raise ArgumentError(
            f"{name} is of type {dtype} ({limits.min} to {limits.max}), which can't hold {int(given.min())} "
            f"to {int(given.max())}"
        )


class Globals(Mapping[str, Global]):
    """The variables of a loaded module by name: the name in the source if it is unique, otherwise the lowered name.

    Variables that the compiler removed are not included.

    Example::

        module.globals["bias"].write(0.5)
        assert module.globals["bias"].read() == 0.5
    """

    def __init__(self, device: Device, loaded: Loaded, artifact: Artifact) -> None:
        self._device = device
        self._loaded = loaded
        self._artifact = artifact

    @cached_property
    def _types(self) -> dict[str, Typed | None]:
        """The type of each variable in the image, or None, by lowered name."""
        found: dict[str, Typed | None] = {}
        for name, typed in _variables(self._artifact):
            found[name] = found.get(name) or typed
        loaded = self._loaded()
        return {name: typed for name, typed in found.items() if _has(loaded, name)}

    @cached_property
    def _shown(self) -> dict[str, str]:
        """The lowered name of each variable, by the name that users see."""
        entities = group_by((entity_name(name) or name, name) for name in self._types)
        return {entity if len(names) == 1 else name: name for entity, names in entities.items() for name in names}

    def __getitem__(self, name: str) -> Global:
        """Find a variable.

        Args:
            name: as it is in the source, or lowered.

        Raises:
            NameNotFoundError: there is none of that name; the message lists them.
            ClosedError: the module was closed.

        Example::

            print(module.globals["bias"])
        """
        if not isinstance(name, str):
            raise ArgumentError(f"the name of a variable must be a str, not {type(name).__name__} {spell(name)}"[:200])
        loaded = self._loaded()
        requested = self._artifact.names
        wanted = name.removeprefix("&").removeprefix("::")
        for lowered in (name, self._shown.get(wanted), requested.get(name), requested.get(f"&{wanted}")):
            if lowered is not None and _has(loaded, lowered):
                return Global(self._device, self._loaded, lowered, self._types.get(lowered))
        have = ", ".join(self._shown) or "none"
        raise NameNotFoundError(
            f"this module doesn't contain the variable {spell(name)}; it contains {have}",
            help="compilers drop unused variables",
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._shown)

    def __len__(self) -> int:
        return len(self._shown)

    def __repr__(self) -> str:
        return f"<Globals on {self._device.name}: {', '.join(self._shown) or 'none'}>"


def _has(loaded: BackendModule, name: str) -> bool:
    try:
        loaded.variable(name)
    except NameNotFoundError:
        return False
    return True


def _variables(artifact: Artifact) -> Iterator[tuple[str, Typed | None]]:
    """Read the variables out of an image; of a fatbin, out of all of its entries."""
    if artifact.kind is ImageKind.PTX:
        yield from _of_ptx(artifact.data)
    elif artifact.kind is ImageKind.CUBIN:
        yield from _of_cubin(artifact.data)
    elif artifact.kind is ImageKind.FATBIN:
        from cujit.formats.fatbin import EntryKind, read_fatbin  # start-up: variables are seldom asked for

        for entry in read_fatbin(artifact.data):
            if entry.kind is EntryKind.PTX:
                yield from _of_ptx(entry.payload())
            elif entry.kind is EntryKind.CUBIN:
                yield from _of_cubin(entry.payload())


def _of_cubin(data: bytes) -> Iterator[tuple[str, Typed | None]]:
    from cujit.formats.cubin import read_cubin  # start-up: variables are seldom asked for

    cubin = read_cubin(data)
    yield from ((variable.name, None) for variable in cubin.variables)
    if not cubin.variables:
        yield from ((name, None) for name, _ in _of_ptx(cubin.ptx))  # what cujit emulate links


def _of_ptx(text: bytes) -> Iterator[tuple[str, Typed | None]]:
    from cujit.formats.ptx.parser import parse  # start-up: variables are seldom asked for

    try:
        variables = parse(text.rstrip(b"\0").decode()).variables
    except (CujitError, UnicodeDecodeError):  # newer than the parser: they are found by their lowered names
        return
    for variable in variables:
        if variable.space in _SPACES:
            yield variable.name, _typed(variable)


def _typed(variable: Variable) -> Typed | None:
    """Return the dtype and shape of a variable, or None if they are unknown. ``.b8`` arrays may have any C++ type, and
    stay bytes.
    """
    if variable.type not in _DTYPES or -1 in variable.shape or 0 in variable.shape:
        return None
    shape = variable.shape if variable.vector == 1 else (*variable.shape, variable.vector)
    return np.dtype(_DTYPES[variable.type]), shape
