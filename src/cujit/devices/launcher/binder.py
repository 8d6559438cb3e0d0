"""Prepared launches of one kernel: machine code, its state, and the readers written in Python that it falls back on."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from cujit.devices.arguments.cupy_arrays import CupyInterface, cupy_interface, is_cupy_array
from cujit.devices.arguments.extents import extents_of
from cujit.devices.arguments.foreign_arrays import (
    DescribedInterface,
    NumbaInterface,
    described_interface,
    is_described,
    is_numba_array,
    kind_of_row,
    numba_interface,
)
from cujit.devices.arguments.packer import LazyPacker
from cujit.devices.arguments.structures import layout_by
from cujit.devices.arguments.tensors import is_tensor, tensor_interface
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.backend import BackendKernel
from cujit.devices.device import Device
from cujit.devices.launcher.cpython import BYTES, Callables, is_supported
from cujit.devices.launcher.layout import FieldKind
from cujit.devices.launcher.learned import ASLEEP, NO_DTYPE, Learned, learned_of
from cujit.devices.launcher.library import Library, library_or_none
from cujit.devices.launcher.liveness import PROCESS, LivenessFlag
from cujit.devices.launcher.state import LaunchPattern, LaunchState
from cujit.devices.options import LaunchOptions
from cujit.devices.shapes import LaunchShape
from cujit.devices.streams import DeviceLike
from cujit.errors import ArgumentError, CujitError, KernelFaultError, ToolTimeoutError
from cujit.forks import Lock
from cujit.signature import Signature

_T = TypeVar("_T")

_BY_HAND = "by hand"
"""What is kept of a launch that Python starts."""

_ByHand = Callable[[Sequence[object]], None]

_START = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p)
"""What starts a kernel: ``start`` of ``native/launcher.h``."""


def refuse_keywords(kernel: str) -> None:
    """Refuse keyword arguments, because a kernel's parameter names are unknown.

    Raises:
        ArgumentError: always.
    """
    raise ArgumentError(
        f"{kernel} accepts only positional arguments, not keyword arguments",
        help="pass only the arguments of the kernel; write the launch configuration as kernel[grid, block, "
        "shared_bytes, stream](…)",
        code="argument-count",
    )


def _refuse_named(kernel: object) -> None:
    refuse_keywords(str(kernel))


class Prepared:
    """The state of one prepared launch, and all that it refers to."""

    def __init__(self, library: Library, state: LaunchState, first: _FirstCall, keep: Sequence[object] = ()) -> None:
        self.library, self.state, self.first, self.keep = library, state, first, [*keep]
        self._bound: tuple[ctypes.c_uint64, int, Callable[..., object]] | None = None

    def bind(self) -> bool:
        """Bind the launch to the device. Return False if Python must start the launch."""
        return self.first.bind()

    def enable(self) -> None:
        """Enable native code to call the Python functions. The launch keeps this object from now on."""
        state, first = self.state, self.first
        state.named, state.reader, state.by_hand = id(first.named), id(first.reader), id(first)

    def attach(self, callables: Callables, launch: object) -> None:
        """Make a call of ``launch``, which keeps this object, run the machine code."""
        callables.attach(launch, self.library.address("launch"), ctypes.addressof(self.state))

    def start(self, parameters: bytes) -> bool:
        """Start the kernel with a parameter buffer. Return False if Python must start the kernel."""
        if self._bound is None and self.state.alive != ctypes.addressof(ASLEEP):
            word = ctypes.c_uint64.from_address(self.state.alive)
            self._bound = word, ctypes.addressof(self.state), _START(self.state.submit)
        if self._bound is None:
            return False
        word, state, start = self._bound
        if word.value != PROCESS.value:
            return False
        start(state, parameters, len(parameters), None)
        return True


def report_failure(kernel: str, device: DeviceLike, error: CujitError) -> None:
    """Emit a ``LaunchFailure`` event for a launch that raises."""
    from cujit.events.hub import emit  # start-up: most launches raise nothing
    from cujit.events.values import LaunchFailure  # start-up: as above

    emit(LaunchFailure, kernel, device.name, error)
    if isinstance(error, KernelFaultError) and sys.version_info >= (3, 11):
        error.add_note(f"  {kernel}[grid, block].save('bug.launch', …) writes this launch to a file, to run it again")


def _reporting(run: Callable[..., _T], kernel: object, device: DeviceLike) -> Callable[..., _T]:
    """Wrap a function that machine code calls so that it reports the error that it raises."""

    def call(*arguments: object) -> _T:
        try:
            return run(*arguments)
        except CujitError as e:
            report_failure(str(kernel), device, e)
            raise

    return call


class LaunchBinder:
    """Makes the prepared launches of one kernel on one device.

    A launch is bound to the device at its first call. Native code starts it from then on, that first time too.
    """

    def __init__(
        self,
        kernel: BackendKernel,
        library: Library,
        device: Device,
        packer: LazyPacker,
        alive: LivenessFlag,
        learned: Learned,
    ) -> None:
        self._kernel = kernel
        self.library = library
        self._device = device
        self._alive = alive
        self.learned = learned
        self._layout = learned.layout
        self.packer = packer
        self._reads: dict[int, Callable[[object, int], bytes]] = {}
        self.lock = Lock()

    @classmethod
    def of(cls, kernel: BackendKernel, device: Device, signature: Signature, packer: LazyPacker,
           alive: LivenessFlag, *, takes_ints: bool) -> LaunchBinder | None:  # fmt: skip
        """Return a binder if native code is available. None leaves every launch to Python.

        ``packer`` creates the readers written in Python when the first reader is needed.
        """
        library = library_or_none() if kernel.submit is not None and is_supported() else None
        learned = None if library is None else learned_of(device, signature, takes_ints=takes_ints)
        return None if library is None or learned is None else cls(kernel, library, device, packer, alive, learned)

    def prepare(self, by_hand: _ByHand, shape: LaunchShape, stream: int, options: LaunchOptions) -> Prepared:
        """Prepare one launch; ``by_hand`` is the same launch written in Python."""
        state = LaunchState()
        self.learned.fill(state, self.library, self._kernel.submit or "")
        prepared = self._prepared(state, by_hand, shape, stream, options)
        prepared.enable()
        return prepared

    def complete(self, memory: bytes, by_hand: _ByHand, shape: LaunchShape, options: LaunchOptions) -> Prepared:
        """Add Python's part to a launch in the default stream that native code made, with its state in ``memory``."""
        state = LaunchState.from_address(id(memory) + BYTES)
        prepared = self._prepared(state, by_hand, shape, 0, options)
        prepared.bind()
        return prepared

    def _prepared(
        self, state: LaunchState, by_hand: _ByHand, shape: LaunchShape, stream: int, options: LaunchOptions
    ) -> Prepared:
        first = _FirstCall(self, state, by_hand, shape, stream, options)
        return Prepared(self.library, state, first, [self])

    def pattern(self, cls: Any, entry: object, options: LaunchOptions, complete: Any) -> LaunchPattern | None:
        """Return the pattern from which native code makes plain launches of type ``cls``, or None if the kernel has no
        plain target.

        ``complete`` is the function that completes such a launch.
        """
        plain = self._kernel.plain(self._device.limits)
        if plain is None:
            return None
        limits, library = self._device.limits, self.library
        where = zip(("max_grid", "max_block"), (limits.max_grid, limits.max_block), strict=True)
        most = {f"{what}_{axis}": n for what, sizes in where for axis, n in zip("xyz", sizes, strict=True)}
        template = self.learned.template(library, self._kernel.submit or "", plain.fields, complete)
        return LaunchPattern(
            template=template,
            alive=self._alive.address,
            function=plain.function,
            label=plain.label,
            type=id(cls),
            entry=id(entry),
            options=id(options),
            code=library.address("launch"),
            max_threads=plain.max_threads,
            **most,
        )

    def bind(self, state: LaunchState, shape: LaunchShape, stream: int, options: LaunchOptions) -> object:
        """Fill the state with the device's data, and return the objects that must live as long as the state.

        Without data from the device, Python makes every launch, and explains each failure.

        Raises:
            ToolTimeoutError: compilation timed out. Python doesn't retry it.
        """
        try:
            target = self._kernel.target(shape, stream, options, self._layout.size)
        except ToolTimeoutError as e:
            report_failure(str(self.packer.kernel), self._device, e)
            raise
        except CujitError:
            target = None
        if target is None:
            return _BY_HAND
        for name, value in target.fields.items():
            setattr(state, name, value)
        failed = _reporting(target.failed, self.packer.kernel, self._device)
        state.failed = id(failed)
        state.alive = self._alive.address
        return target, failed

    def read(self, index: int, value: Any, stream: int, state: LaunchState) -> bytes | None:
        """Return the bytes of one parameter that native code left to Python, and remember the type of a value that
        fits.

        None leaves the launch to Python, because the kernel needs the size of the memory that the value refers to.

        Raises:
            ArgumentError: the value does not fit.
        """
        if self._kernel.needs_extents and extents_of((value,)):
            return None
        read = self._reads.get(index)
        if read is None:
            read = self._reads[index] = _reporting(self.packer().reader(index), self.packer.kernel, self._device)
        data = read(value, stream)
        field = self._layout.fields[index]
        if field.is_pointer:
            if type(value) is DeviceArray:
                self.learned.dtype(index, value.dtype)
            elif is_tensor(value):
                self._learn_tensor(index, value, state)
            elif self._device.is_gpu:
                self._learn_foreign(index, value, state)
        elif field.kind == FieldKind.BYTES:
            self.learned.structure(index, layout_by(value))
        return data

    def _learn_tensor(self, index: int, tensor: Any, state: LaunchState) -> None:
        """Remember the dtype of a tensor that fits; complex ones may be conjugates that are yet to be computed."""
        interface = tensor_interface()
        if interface is None or tensor.is_complex():
            return
        code = interface.ask("get_dtype", tensor, ctypes.c_int32)
        self.learned.tensors[index] = NO_DTYPE if code is None else code
        interface.read = self.library.address("torch")
        state.tensors = ctypes.addressof(interface)

    def _learn_foreign(self, index: int, array: Any, state: LaunchState) -> None:
        """Remember the properties of a fitting array from another library. Later arrays must have equal properties."""
        interface: CupyInterface | NumbaInterface | DescribedInterface | None
        if is_cupy_array(array):
            interface, name, known = cupy_interface(self._device.ordinal), "cupy", array.dtype
        elif not self._is_only_gpu(array):
            return
        elif is_numba_array(array):
            interface, name, known = numba_interface(), "numba", array.dtype
        else:
            interface, name = described_interface(array.__class__), "described"
            known = array.__cuda_array_interface__["typestr"]
            state.read_only |= array.__cuda_array_interface__["data"][1] << index
            with contextlib.suppress(Exception):  # of another JAX
                self.learned.kind(index, kind_of_row(array, interface))
        if interface is None:
            return
        self.learned.dtype(index, known)
        interface.read = self.library.address(name)
        setattr(state, name, ctypes.addressof(interface))

    def _is_only_gpu(self, array: Any) -> bool:
        """Return whether machine code supports such an array, and the array's memory can't be on another GPU."""
        if not (is_numba_array(array) or is_described(array)):
            return False
        address, read_only = array.__cuda_array_interface__["data"]
        return type(read_only) is bool and self._device.ordinal_of(address) is None


class _FirstCall:
    """A launch in Python, which also binds the launch if it is not bound yet."""

    __slots__ = ("_binder", "_by_hand", "_kept", "_options", "_shape", "_state", "_stream", "named", "reader")

    def __init__(
        self,
        binder: LaunchBinder,
        state: LaunchState,
        by_hand: _ByHand,
        shape: LaunchShape,
        stream: int,
        options: LaunchOptions,
    ) -> None:
        self._binder = binder
        self._state = state
        self._by_hand = by_hand
        self._shape = shape
        self._stream = stream
        self._options = options
        self._kept: object = None
        self.named = functools.partial(_refuse_named, binder.packer.kernel)
        self.reader = functools.partial(_read, binder, stream, state)
        """What native code calls with the number of a parameter and its argument."""

    def __call__(self, *arguments: object) -> None:
        self._by_hand(arguments)
        self.bind()

    def bind(self) -> bool:
        """Bind the launch once, and return whether native code starts it."""
        if self._kept is None:
            with self._binder.lock:
                if self._kept is None:
                    self._kept = _BY_HAND  # meanwhile: a handler of a signal may launch the same, and passes the lock
                    self._kept = self._binder.bind(self._state, self._shape, self._stream, self._options)
        return self._kept is not _BY_HAND


def _read(binder: LaunchBinder, stream: int, state: LaunchState, index: int, value: object) -> bytes | None:
    return binder.read(index, value, stream, state)
