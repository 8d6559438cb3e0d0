"""Prepared launches, which are callable objects."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from cujit.devices.launcher.binder import Prepared, refuse_keywords
from cujit.devices.launcher.cpython import index_by, is_supported, native_type
from cujit.devices.launcher.entry import LaunchEntry
from cujit.devices.launcher.library import library_or_none
from cujit.devices.launcher.state import LaunchSlots
from cujit.devices.options import PLAIN, LaunchOptions
from cujit.devices.shapes import LaunchShape, launch_shape
from cujit.devices.streams import stream_handle
from cujit.errors import ClosedError, CujitError

_L = TypeVar("_L", bound="PreparedLaunch")


class PreparedLaunch(LaunchSlots):
    """A launch that only needs the arguments: written in Python, or with machine code attached (``make_launch``).

    It refers to its kernel weakly, because the kernel keeps its launches.
    """

    __slots__ = ()

    def __init__(
        self, entry: LaunchEntry, kernel: object, shape: LaunchShape | None, stream: object, options: LaunchOptions
    ) -> None:
        self._entry = entry
        self._kernel = weakref.ref(kernel)
        self._shape: LaunchShape | tuple[Any, Any] | None = shape
        self._stream = stream_handle(stream, entry.device)
        self.stream_owner = None if type(stream) is int else stream
        self._options = options
        self._prepared: Prepared | None = None
        self._state: bytes | None = None
        self._waits = False

    indexed: ClassVar[Any] = None
    """The class whose ``kernel[grid, block]`` gives such launches."""

    @property
    def shape(self) -> LaunchShape | None:
        """The grid, block, and dynamic shared memory, or None for a launch over 0 elements, which runs nothing."""
        if type(self._shape) is tuple:  # as it was written
            self._shape = launch_shape(*self._shape)
        return self._shape  # type: ignore[return-value]

    @property
    def stream(self) -> int:
        """The ``CUstream`` of the launch; 0 is the default stream."""
        return self._stream

    @property
    def options(self) -> LaunchOptions:
        """The cluster, the priority, and whether the launch is cooperative or overlaps with the previous kernel."""
        return self._options

    def __call__(self, *arguments: object, **named: object) -> None:
        """Run the kernel. On a GPU, the call returns after starting the kernel; on the CPU device, it returns after the
        kernel is done.

        Args:
            arguments: one argument for each kernel parameter; see docs/launch.md.
            named: not allowed, because kernel parameters have no names.

        Raises:
            ArgumentError: the arguments don't match the kernel's parameters.
            ClosedError: the module, or an array, was closed.
            DriverError: the driver rejected the launch.

        Example::

            kernel[4, 256](2.0, x, y, 1000)
        """
        if named:
            refuse_keywords(self._entry.name)
        if self._waits and bind(self):
            self(*arguments)
        else:
            self._entry.run(self.shape, self._stream, self._options, arguments)

    def packed(self, parameters: object) -> None:
        """Run the kernel with its parameters packed into a buffer, each at its offset. cujit doesn't check the values.

        ``kernel.signature.offsets`` and ``kernel.signature.size`` describe the layout. Keep the memory that the
        parameters point to alive until the kernel is done.

        Source: CUDA Driver API manual, ``cuLaunchKernel``, ``CU_LAUNCH_PARAM_BUFFER_POINTER``.

        Args:
            parameters: bytes, or an object with a contiguous buffer, such as a ``ctypes.Structure`` or a NumPy array.

        Raises:
            ArgumentError: the value is not a buffer, or its size differs from the total size of the parameters.
            ClosedError: the module was closed.
            DriverError: the driver reported an error.

        Example::

            import struct

            kernel[4, 256].packed(struct.pack("<f4xQQi", 2.0, x.address, y.address, 1000))
        """
        self._start(self._entry.buffers.packed, parameters)

    def kernel_params(self, pointers: object) -> None:
        """Run the kernel with pointers to its parameter values, as for ``cuLaunchKernel``. cujit doesn't check the
        values.

        Source: CUDA Driver API manual, ``cuLaunchKernel``, ``kernelParams``.

        Args:
            pointers: host addresses of the parameter values: a list, an array of ``ctypes.c_void_p``, or the address of
                such an array (``void **``) as an int.

        Raises:
            ArgumentError: there are too few or too many pointers, or a pointer is null or not an address.
            ClosedError: the module was closed.
            DriverError: the driver reported an error.

        Example::

            import ctypes

            values = ctypes.c_float(2), ctypes.c_uint64(x.address), ctypes.c_uint64(y.address), ctypes.c_int(1000)
            kernel[4, 256].kernel_params([ctypes.addressof(value) for value in values])
        """
        self._start(self._entry.buffers.pointed, pointers)

    def _start(self, pack: Callable[[object], bytes], given: object) -> None:
        if self._state is not None:
            complete(self)
        entry, prepared = self._entry, self._prepared
        try:
            entry.image.require()
            parameters = pack(given)
        except CujitError as e:
            entry.report_failure(e)
            raise
        if self.shape is None or (prepared is not None and prepared.start(parameters)):
            return
        entry.run_packed(self.shape, self._stream, self._options, parameters)
        bind(self)

    def compile(self) -> None:
        """Compile the kernel for this block size on the CPU device now, without running the kernel.

        Without this call, the first launch with this block shape compiles the kernel. On a GPU, the call does nothing.

        Raises:
            ClosedError: the module was closed.

        Example::

            launch = kernel.prepare(4, 256)
            launch.compile()
        """
        if self.shape is not None:
            self._entry.image.require()
            self._entry.loaded.compile(self.shape, self._options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PreparedLaunch) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[object, ...]:
        return (id(self._entry), self.shape, self._stream, self._options)

    def __reduce__(self) -> str:
        raise ClosedError(
            "launches can't be sent to another process", help="send the kernel instead; the receiving process loads it"
        )

    def __repr__(self) -> str:
        return f"<Launch of {self._entry.name} on {self._entry.device.name}: {_sizes(self.shape, self._options)}>"


def _sizes(shape: LaunchShape | None, options: LaunchOptions) -> str:
    """Return a description of a launch's configuration and options."""
    if shape is None:
        return "nothing"
    text = f"grid {tuple(shape.grid)}, block {tuple(shape.block)}"
    text += f", {shape.shared_bytes} bytes of shared memory" if shape.shared_bytes else ""
    text += f", cluster {tuple(options.cluster)}" if options.cluster else ""
    return text + (", cooperative" if options.cooperative else "") + (", overlap" if options.overlap else "")


def make_launch(
    cls: type[_L], entry: LaunchEntry, kernel: object, shape: LaunchShape | None, stream: object, options: LaunchOptions
) -> _L:
    """Create a launch of type ``cls``, or of a subclass that runs machine code if this interpreter supports it."""
    if shape is None or entry.binder is None:
        return cls(entry, kernel, shape, stream, options)
    base: Any = cls  # as in attach
    launch: _L = native_type(base).type(entry, kernel, shape, stream, options)
    launch._waits = True
    return launch


def attach(launch: PreparedLaunch) -> bool:
    """Make a launch run native code from here on. Return False if it cannot."""
    entry, shape = launch._entry, launch.shape
    if not launch._waits or shape is None or entry.binder is None:
        return launch._prepared is not None or launch._state is not None
    base: Any = type(launch).__base__  # mypy holds that such a type may not be hashable
    by_hand = functools.partial(entry.run, shape, launch.stream, launch.options)
    prepared = entry.binder.prepare(by_hand, shape, launch.stream, launch.options)
    with entry.binder.lock:  # another thread may have done it, and its code may be running
        if launch._waits:
            # First, as a handler of a signal may launch the same in between: it is on this thread, and passes the lock.
            launch._waits = False
            launch._prepared = prepared
            prepared.attach(native_type(base), launch)
    if base.indexed is not None:
        index_by(base.indexed, prepared.library.address("index"), "shape")
    return True


def warm_launches(cls: type[PreparedLaunch]) -> None:
    """Make the type of native launches of ``cls``, and have its kernels find them by native code."""
    library, base = library_or_none() if is_supported() else None, cls  # type: tuple[Any, Any]
    if library is not None:
        native_type(base)
        index_by(cls.indexed, library.address("index"), "shape")


def pattern_of(cls: type[PreparedLaunch], entry: LaunchEntry) -> bytes | bool:
    """Return the pattern from which native code makes a kernel's plain launches, or False if native code can't make
    them.
    """
    binder, base = entry.binder, cls  # type: tuple[Any, Any]
    if binder is None:
        return False
    try:
        pattern = binder.pattern(native_type(base).type, entry, PLAIN, complete)
    except CujitError:  # which a launch that is made in Python raises again, with more words
        return False
    if pattern is None:
        return False
    index_by(cls.indexed, binder.library.address("index"), "shape")
    entry.keep_pattern(bytes(pattern), binder.learned)
    return bytes(pattern)


def complete(launch: PreparedLaunch) -> None:
    """Complete a launch that native code made, by adding its Python state. Native code calls this function when it
    first needs that state.
    """
    entry, shape, memory = launch._entry, launch.shape, launch._state
    binder = entry.binder
    if binder is None or shape is None or memory is None:
        return
    with binder.lock:
        if launch._prepared is None:
            by_hand = functools.partial(entry.run, shape, launch.stream, launch.options)
            launch._prepared = binder.complete(memory, by_hand, shape, launch.options)
            launch._prepared.enable()


def bind(launch: PreparedLaunch) -> bool:
    """Make a launch start the kernel by native code from now on. Return False if it cannot."""
    return attach(launch) and launch._prepared is not None and launch._prepared.bind()
