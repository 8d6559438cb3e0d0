"""DeviceArray: a C-contiguous block of elements in the memory of a device, and how it is made.

It speaks the protocols by which array libraries share memory without copying: ``__array_interface__`` on
the CPU device, ``__cuda_array_interface__`` on a GPU, DLPack on both.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from cujit.devices.arrays.elements import NUMBERS, dtype_of, layout
from cujit.devices.streams import Allocation, DeviceLike, Stream
from cujit.errors import ArgumentError, ClosedError, LaunchError, spell
from cujit.errors.other_apis import with_other_apis
from cujit.values import later

if TYPE_CHECKING:
    import numpy.typing as npt

    from cujit.devices.arrays import dlpack
else:
    dlpack = later("cujit.devices.arrays.dlpack")  # start-up: for arrays of other libraries

# What consumers pass for a stream. Source: Python Array API standard, ``array.__dlpack__``.
_NO_ORDER = -1
_LEGACY = 1


def array(
    device: ArrayDevice, data: npt.ArrayLike, dtype: npt.DTypeLike | None = None, *, stream: object = None
) -> DeviceArray:
    """Copy a NumPy array, a list, or a number to the device.

    Args:
        data: a NumPy array, a list, or a number.
        dtype: dtype of the elements. Default: the dtype of the data.
        stream: stream for the allocation and the copy; see ``empty``.

    Raises:
        ArgumentError: the data is not an array of numbers.
        LaunchError: ``stream`` is not a stream.
        DriverError: the device is out of memory.

    Example::

        x = device.array([1, 2, 3], np.float32)
    """
    try:
        host = np.asarray(data, dtype=None if dtype is None else dtype_of(dtype))
    except (TypeError, ValueError, OverflowError) as e:
        raise ArgumentError(f"can't create an array from this {type(data).__name__}: {e}") from e
    if stream is not None or NUMBERS.get(host.dtype.type) is not host.dtype or not host.flags.c_contiguous:
        result = empty(device, host.shape, host.dtype, stream=stream)
        result.copy_from(host)
        return result
    result = DeviceArray(device, device.backend.allocate(host.nbytes), host.shape, host.dtype)
    if host.nbytes:
        device.backend.place(result._address, host)
    return result


def empty(
    device: ArrayDevice, shape: int | tuple[int, ...], dtype: npt.DTypeLike, *, stream: object = None
) -> DeviceArray:
    """Allocate an uninitialized array.

    With a stream, the memory is allocated and freed in stream order, without waiting. Use the array in this stream, or
    in streams that you synchronize with this stream before and after the use. If you pass a bare handle, the stream
    must live as long as the array.

    Args:
        shape: sizes of the axes, outermost first.
        dtype: dtype of the elements.
        stream: stream that owns the memory. Default: the device owns the memory.

    Raises:
        ArgumentError: the shape or the dtype is invalid.
        LaunchError: ``stream`` is not a stream, or it is being captured into a graph.
        DriverError: the device is out of memory.

    Example::

        out = device.empty((3, 4), np.float32)
    """
    sizes, element, size = layout(shape, dtype)
    allocation = device.backend.allocate(size) if stream is None else device.queue(stream).allocate(size)
    return DeviceArray(device, allocation, sizes, element)


def zeros(
    device: ArrayDevice, shape: int | tuple[int, ...], dtype: npt.DTypeLike, *, stream: object = None
) -> DeviceArray:
    """Allocate an array and set its elements to 0.

    Args:
        shape: sizes of the axes, outermost first.
        dtype: dtype of the elements.
        stream: stream that owns the memory; see ``empty``.

    Raises:
        ArgumentError: the shape or the dtype is invalid.
        LaunchError: ``stream`` is not a stream, or it is being captured into a graph.
        DriverError: the device is out of memory.

    Example::

        assert device.zeros(3, np.int32).numpy().tolist() == [0, 0, 0]
    """
    result = empty(device, shape, dtype, stream=stream)
    if not result.nbytes:
        return result
    if stream is None:
        device.backend.clear(result._address, result.nbytes)
    elif result.stream is not None:
        result.stream.fill(result.address, b"\0", result.nbytes)
    else:
        device.fill(result.address, result.nbytes, 0)
    return result


class ArrayMemory(Protocol):
    """A ``Backend`` as arrays know it."""

    def allocate(self, size: int) -> Allocation:
        """Get memory."""

    def place(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy host bytes to new memory."""

    def clear(self, address: int, size: int) -> None:
        """Set the bytes of new memory to 0."""

    def settle(self) -> None:
        """Wait for both."""

    def read(self, address: int, size: int, elements: np.dtype[Any], *, shared: bool = False) -> None:
        """Report to the checks which bytes the host is about to copy."""

    def fetch(self, out: npt.NDArray[Any], address: int) -> None:
        """Copy bytes to an array of the host."""


class ArrayDevice(DeviceLike, Protocol):
    """A ``Device`` as arrays know it: it makes more of them."""

    @property
    def backend(self) -> ArrayMemory:
        """What does the work."""

    def array(self, data: npt.ArrayLike, dtype: npt.DTypeLike | None = None, *, stream: object = None) -> DeviceArray:
        """Copy an array to the device."""

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike, *, stream: object = None) -> DeviceArray:
        """Allocate an array."""

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike, *, stream: object = None) -> DeviceArray:
        """Allocate an array of zeros."""


@with_other_apis
class DeviceArray:
    """A C-contiguous array in the memory of a device.

    ``strides`` and ``nbytes`` are in bytes. Views (``reshape``, ``view``, slices of the first axis) share the memory.
    cujit frees the memory when the array and all its views are deleted.

    Example::

        x = device.array(np.arange(12, dtype=np.float32).reshape(3, 4))
        assert x[1].numpy().tolist() == [4, 5, 6, 7] and x.strides == (16, 4)
    """

    __slots__ = ("__weakref__", "_address", "_allocation", "device", "dtype", "nbytes", "shape", "size")

    def __init__(
        self,
        device: ArrayDevice,
        allocation: Allocation,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        address: int | None = None,
    ) -> None:
        self.device = device
        self.shape = shape
        self.dtype = dtype
        self.size = size = shape[0] if len(shape) == 1 else math.prod(shape)
        self.nbytes = size * dtype.itemsize
        self._allocation: Allocation | None = allocation
        self._address = allocation.address if address is None else address

    @property
    def address(self) -> int:
        """Address of the first element in the device's memory.

        Raises:
            ClosedError: the array was closed.
        """
        return self._address_in(None)

    def _address_in(self, stream: int | None) -> int:
        """Return the address for work in a stream; 0 is the default stream, and None may be any.

        Only the default stream is ordered after what made the array.
        """
        if self._allocation is None:
            raise ClosedError(
                "this array is closed, and its memory has been freed",
                help="create another one with device.array(x), or close this one later",
            )
        if stream != 0:
            self.device.backend.settle()
        return self._address

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        steps, step = [], self.dtype.itemsize
        for n in reversed(self.shape):
            steps.append(step)
            step *= n
        return tuple(reversed(steps))

    def close(self) -> None:
        """Release the memory now. Views keep the memory alive. Closing the array again has no effect.

        Example::

            scratch = device.empty(1000, np.float32)
            scratch.close()
        """
        self._allocation = None

    # -- copies ------------------------------------------------------------------------------------------

    @property
    def stream(self) -> Stream | None:
        """The stream that owns the memory and that copies use by default, or None for the default stream."""
        return None if self._allocation is None else self._allocation.stream

    def numpy(self, *, stream: object = None) -> npt.NDArray[Any]:
        """Copy the elements to a new NumPy array, after all earlier work in the stream, and wait for the copy.

        Args:
            stream: any stream. Default: the array's stream, otherwise the default stream.

        Raises:
            LaunchError: ``stream`` is not a stream, or it is being captured into a graph.
            ClosedError: the array was closed.
            DriverError: an earlier kernel failed.

        Example::

            assert x.numpy().sum() == 1000
        """
        memory = self._allocation
        is_plain = self.nbytes and NUMBERS.get(self.dtype.type) is self.dtype
        if stream is not None or memory is None or memory.stream is not None or not is_plain:
            return self.copy_to(stream=stream)
        host, backend = np.empty(self.shape, self.dtype), self.device.backend
        backend.read(self._address, self.nbytes, self.dtype)
        backend.fetch(host, self._address)
        return host

    def copy_to(self, out: npt.NDArray[Any] | None = None, *, stream: object = None) -> npt.NDArray[Any]:
        """Copy the elements to ``out``, or to a new NumPy array, after all earlier work in the stream.

        The call waits for the copy, unless ``out`` is from ``device.pinned`` and the copy uses a stream. If the call
        doesn't wait, the copy is complete when the stream is done.

        Args:
            out: a NumPy array. Default: a new array.
            stream: as for ``copy_from``.

        Raises:
            ArgumentError: ``out`` is not a writable, contiguous array of this shape and dtype.
            LaunchError: ``stream`` is not a stream, or it is being captured into a graph.
            ClosedError: the array was closed.
            DriverError: an earlier kernel failed.

        Example::

            out = np.empty(1000, np.float32)
            x.copy_to(out)
        """
        address = self.address
        host = np.empty(self.shape, self.dtype) if out is None else self._fitting(out)
        queue = self._queue(stream)
        if not self.nbytes:
            return host
        if queue is None or self.device.is_gpu or not queue.is_capturing:
            self.device.read(address, self.nbytes, self.dtype)
        (self.device if queue is None else queue).download(_bytes_of(host), address)
        return host

    def copy_from(self, data: npt.ArrayLike | DeviceArray, *, stream: object = None) -> None:
        """Copy the elements of a host or device array of the same shape and dtype into this array.

        When the call returns, cujit has finished reading a host array. The exception is an array from ``device.pinned``
        if you pass a stream: don't change the array until the stream finishes its work. Copies between device arrays
        are asynchronous.

        Args:
            data: a host or device array.
            stream: stream for the copy. Default: the array's stream, otherwise the default stream.

        Raises:
            ArgumentError: the shapes or dtypes differ.
            LaunchError: ``stream`` is not a stream, or it is being captured into a graph.
            ClosedError: an array was closed.

        Example::

            x.copy_from(np.zeros(1000, np.float32))
        """
        address = self.address
        if isinstance(data, DeviceArray):
            if data.device is self.device or (data.device.is_gpu and self.device.is_gpu):
                self._copy_from_device(data, stream)
                return
            data = data.numpy()
        host = np.asarray(data)
        self._check_fits(host.shape, host.dtype)
        queue = self._queue(stream)
        if not self.nbytes:
            return
        held = _bytes_of(np.ascontiguousarray(host, dtype=self.dtype))
        if queue is None:
            self.device.upload(address, held)
        else:
            queue.upload(address, held)

    def fill(self, value: object, *, stream: object = None) -> None:
        """Set every element to one value.

        Args:
            value: a number.
            stream: as for ``copy_from``.

        Raises:
            ArgumentError: the dtype can't represent the value.
            LaunchError: ``stream`` is not a stream.
            ClosedError: the array was closed.

        Example::

            x.fill(1.5)
        """
        try:
            element = np.array(value, dtype=self.dtype)
        except (TypeError, ValueError, OverflowError) as e:
            raise ArgumentError(f"an element of {self.dtype} can't hold {spell(value)}: {e}", code="array-dtype") from e
        if element.shape:
            raise ArgumentError(f"fill accepts a single value, not {element.shape} values", help="x.copy_from(array)")
        address, queue = self.address, self.device.queue(self.stream if stream is None else stream)
        if self.nbytes:
            queue.fill(address, element.tobytes(), self.size)

    def _copy_from_device(self, other: DeviceArray, stream: object) -> None:
        self._check_fits(other.shape, other.dtype)
        queue = self.device.queue(self.stream if stream is None else stream)
        if self.nbytes:
            queue.copy(self.address, other.address, self.nbytes, other.device)

    def _queue(self, stream: object) -> Stream | None:
        """Choose the stream of a copy; None is the default stream, which the device copies in without one."""
        return self.stream if stream is None else self.device.queue(stream)

    def _check_fits(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if shape != self.shape:
            raise ArgumentError(
                f"can't copy an array of shape {shape} into an array of shape {self.shape}", code="array-shape"
            )
        if dtype.newbyteorder("=") != self.dtype:
            raise ArgumentError(
                f"can't copy elements of dtype {dtype} into an array of dtype {self.dtype}",
                help=f"pass x.astype({spell(self.dtype.name)})",
                code="array-dtype",
            )

    def _fitting(self, out: object) -> npt.NDArray[Any]:
        """Check an array to copy to."""
        if not isinstance(out, np.ndarray):
            raise ArgumentError(
                f"out must be a NumPy array, not {type(out).__name__}",
                help="to copy between devices, call y.copy_from(x)",
            )
        if out.shape != self.shape or out.dtype != self.dtype:
            raise ArgumentError(
                f"can't copy an array with dtype {self.dtype} and shape {self.shape} into one with dtype "
                f"{out.dtype} and shape {out.shape}",
                code="array-shape",
            )
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise ArgumentError(
                "out must be C-contiguous and writable",
                help=f"write out=np.empty({self.shape}, {spell(self.dtype.name)})",
            )
        return out

    # -- views -------------------------------------------------------------------------------------------

    def reshape(self, *shape: int | tuple[int, ...]) -> DeviceArray:
        """Return a view with a different shape. One size can be -1.

        Args:
            shape: the sizes, as a tuple or as separate arguments. One size can be -1.

        Raises:
            ArgumentError: the product of the sizes differs from the number of elements.

        Example::

            assert x.reshape(10, -1).shape == (10, 100)
        """
        wanted = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        try:
            sizes = [operator.index(cast(int, n)) for n in wanted]
        except TypeError:
            raise ArgumentError(
                f"a shape must be an int or a tuple of ints, not {spell(wanted)}", code="array-shape"
            ) from None
        if sizes.count(-1) == 1:
            rest = -math.prod(sizes)
            if rest > 0 and self.size % rest == 0:
                sizes[sizes.index(-1)] = self.size // rest
        if min(sizes, default=0) < 0 or math.prod(sizes) != self.size:
            raise ArgumentError(
                f"can't reshape {self.size} elements of shape {self.shape} to {wanted}", code="array-shape"
            )
        return self._view(tuple(sizes), self.dtype, 0)

    def view(self, dtype: npt.DTypeLike) -> DeviceArray:
        """Return a view of the same bytes with a different dtype. The size of the last axis changes accordingly.

        Args:
            dtype: dtype of the elements.

        Raises:
            ArgumentError: the size of the last axis in bytes is not a multiple of the new element size.

        Example::

            assert x.view(np.uint32)[:1].numpy()[0] == 0x3F800000
        """
        element = dtype_of(dtype)
        if element.itemsize == self.dtype.itemsize:
            return self._view(self.shape, element, 0)
        if not self.shape or self.shape[-1] * self.dtype.itemsize % element.itemsize:
            raise ArgumentError(
                f"can't view an array with dtype {self.dtype} and shape {self.shape} as {element}", code="array-shape"
            )
        last = self.shape[-1] * self.dtype.itemsize // element.itemsize
        return self._view((*self.shape[:-1], last), element, 0)

    def __getitem__(self, index: int | slice) -> DeviceArray:
        """Return an element, or a slice of the first axis, as an array that shares the memory.

        Args:
            index: an int, or a slice without a step.

        Example::

            assert x[:10].numpy().tolist() == [1] * 10
        """
        if not self.shape:
            raise ArgumentError("can't index a zero-dimensional array", code="array-index")
        step = self.strides[0]
        if isinstance(index, slice):
            try:
                start, stop, stride = index.indices(self.shape[0])
            except (TypeError, ValueError) as e:
                raise ArgumentError(
                    f"{spell(index)} is not a valid slice of an array: {e}",
                    help="write x[first:last] with ints",
                    code="array-index",
                ) from None
            if stride != 1:
                raise ArgumentError(
                    f"a slice with step {stride} is not contiguous; only slices with step 1 can share memory",
                    help="make a copy: device.array(x.numpy()[::2])",
                    code="array-index",
                )
            return self._view((max(stop - start, 0), *self.shape[1:]), self.dtype, start * step)
        try:
            i = operator.index(index)
        except TypeError:
            raise ArgumentError(
                f"the index of a device array must be an int or a slice of the first axis, not {spell(index)}",
                help="copy the array to the host first: x.numpy()[…]",
                code="array-index",
            ) from None
        if not -self.shape[0] <= i < self.shape[0]:
            raise ArgumentError(f"index {i} is out of bounds for an axis of size {self.shape[0]}", code="array-index")
        return self._view(self.shape[1:], self.dtype, i % self.shape[0] * step)

    def _view(self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> DeviceArray:
        address = self.address + offset
        assert self._allocation is not None  # or .address had raised
        return DeviceArray(self.device, self._allocation, shape, dtype, address)

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError("a zero-dimensional array has no length", code="array-index")
        return self.shape[0]

    def __iter__(self) -> Iterator[DeviceArray]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        raise ArgumentError("a device array has no truth value", help="copy it to the host first: x.numpy()")

    def __str__(self) -> str:
        """Write the elements as NumPy does; of a long first axis, only the rows that are shown are copied."""
        edge = np.get_printoptions()["edgeitems"]
        try:
            if self.size <= np.get_printoptions()["threshold"] or len(self) <= 2 * edge:
                return str(self.numpy())
            shown = np.concatenate([self[: edge + 1].numpy(), self[-edge:].numpy()])
        except (ClosedError, LaunchError):  # it has no elements, or its stream is captured into a graph
            return repr(self)
        with np.printoptions(threshold=0):
            return str(shown)

    def __repr__(self) -> str:
        closed = " closed" if self._allocation is None else ""
        return f"<DeviceArray {self.dtype} {self.shape} on {self.device.name}{closed}>"

    # -- protocols ---------------------------------------------------------------------------------------

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """How NumPy sees memory of the CPU device (version 3)."""
        if self.device.is_gpu:
            raise AttributeError("__array_interface__: the array is in GPU memory")
        self._share()
        return self._interface()

    def _share(self) -> None:
        """Report to the checks that other code can now see the elements."""
        self.device.read(self.address, self.nbytes, self.dtype, shared=True)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """How GPU libraries see memory of a GPU (version 3)."""
        if not self.device.is_gpu:
            raise AttributeError("__cuda_array_interface__: the array is in host memory")
        # A consumer in another stream then waits for this one. Source: numba-cuda, "CUDA Array Interface (Version 3)".
        return {**self._interface(), "stream": None if self.stream is None else self.stream.handle or 1}

    def _interface(self) -> dict[str, Any]:
        """Describe the memory in the fields that both interfaces share.

        Sources: NumPy manual, "The array interface protocol"; numba-cuda, "CUDA Array Interface (Version 3)".
        """
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.address if self.nbytes else 0, False),
            "strides": None,
            "version": 3,
        }

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ArgumentError(
                f"an array on {self.device.name} must be copied to become a NumPy array", code="device-mismatch"
            )
        host = self.numpy()
        return host if dtype is None else host.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CUDA, self.device.ordinal) if self.device.is_gpu else (dlpack.CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        here = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != here:
            raise BufferError(f"this array is on DLPack device {here}, not {tuple(dl_device)}")
        if copy:
            raise BufferError("cujit doesn't copy arrays when it exports them through DLPack")
        if self.device.is_gpu and stream != _NO_ORDER:
            mine = 0 if self.stream is None else self.stream.handle
            theirs = 0 if stream in (None, _LEGACY) else stream
            if mine != theirs:
                self.device.order(mine, theirs or 0)
        self._share()
        return dlpack.export(self, self._interface(), here, max_version)


WAIT = "block_until_ready"
"""The method with which JAX waits for an array that it computes while Python goes on."""


def wait_until_made(value: object) -> None:
    """Wait for an array whose interface says no stream, where it can.

    Source: JAX, "Asynchronous dispatch"; its interface is of version 2, in which there are no streams.
    """
    wait = getattr(type(value), WAIT, None)
    if callable(wait):
        wait(value)


def _bytes_of(host: npt.NDArray[Any]) -> memoryview:
    """See the bytes of a C-contiguous array, whatever its dtype (``memoryview`` refuses some)."""
    return host.reshape(-1).view(np.uint8).data
