"""Replay of a launch on the CPU device with copies of its arrays, so that a debugger can inspect the kernel."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np

from cujit.artifact import ImageKind
from cujit.devices.arguments.packer import Packer
from cujit.devices.backend import BackendModule
from cujit.devices.device import Device
from cujit.devices.launcher.entry import LaunchEntry
from cujit.devices.launcher.snapshot import POINTER_BYTES, MemorySpan, dtype_of, held_by, place_in, spans_of
from cujit.devices.options import LaunchOptions
from cujit.devices.shapes import LaunchShape, check_launch
from cujit.devices.streams import Allocation
from cujit.devices.tensormaps.tiling import TensorMap
from cujit.errors import ArgumentError, LoadError
from cujit.signature import Signature, merge_signatures
from cujit.values import NamedTuple, replace


def replay(
    entry: LaunchEntry, shape: LaunchShape | None, options: LaunchOptions, arguments: Sequence[object], cpu: Device
) -> tuple[object, ...]:
    """Run a launch on ``cpu``, and return the value of each argument after the run.

    The value of an array argument is a NumPy array with the contents that the kernel produced. Other arguments are
    returned unchanged. The launch uses copies of the arrays and doesn't change the originals. Module variables start
    with the image's initial values.

    Raises:
        LoadError: the image has no PTX, or the CPU device doesn't support its PTX.
        ArgumentError: the arguments don't match the parameters, an argument is an address of memory of unknown size, or
            ``cpu`` is a GPU.
    """
    if cpu.is_gpu:
        raise ArgumentError(
            f"{entry.name} must be replayed on the CPU device, not on {cpu.name}",
            help="remove device, or pass cujit.cpu(threads)",
            code="device-mismatch",
        )
    with contextlib.closing(replays(entry, shape, options, arguments, cpu)) as runs:
        return next(runs).results


class Replayed(NamedTuple):
    """The result of one run: the argument values after the run, and the CPU-device addresses of arrays by argument
    number.
    """

    results: tuple[object, ...]
    addresses: Mapping[int, int]


def replays(
    entry: LaunchEntry,
    shape: LaunchShape | None,
    options: LaunchOptions,
    arguments: Sequence[object],
    cpu: Device,
    before: Callable[[Mapping[int, int]], None] | None = None,
) -> Generator[Replayed, None, None]:
    """Load the kernel on ``cpu``, and yield the result of each run of the launch with new copies of the arrays.

    ``before`` is called before each run, with the addresses of the arrays.

    Raises:
        Whatever ``replay`` raises.
    """
    module = load_copy(entry, cpu)
    try:
        kernel = module.kernels[entry.loaded.name]
        stated = Signature(tuple(replace(p, offset=None) for p in entry.signature))
        signature = merge_signatures(stated, kernel.signature)
        packed = Packer(signature, entry.device, entry.name).pack(arguments)
        spans = spans_of(entry.name, signature, bytearray(packed), arguments)
        if shape is not None:
            check_launch(entry.name, shape, cpu.limits, kernel.resources)
            kernel.check_options(shape, options)
        while True:
            buffer, copies = bytearray(packed), _copies(entry.device, spans, cpu)
            addresses = {span.number: _host_address(copies, span.address) for span in spans}
            for number, address in addresses.items():
                new, offset = _pointing_to(arguments[number], address, cpu), signature.offsets[number]
                buffer[offset : offset + len(new)] = new
            if before is not None:
                before(addresses)
            if shape is not None:
                kernel.launch(shape, buffer, options=options)
            results = list(arguments)
            for span in spans:
                results[span.number] = _result(arguments[span.number], copies, span)
            yield Replayed(tuple(results), addresses)
    finally:
        module.close()


def load_copy(entry: LaunchEntry, cpu: Device) -> BackendModule:
    """Load the image of a kernel on the CPU device.

    Raises:
        LoadError: the image has no PTX, or the CPU device doesn't support its PTX.
    """
    entry.image.require()
    artifact, portable = entry.image.artifact, entry.image.portable
    if artifact.kind is ImageKind.CUBIN and portable is not None:
        artifact = portable()
    try:
        return cpu.load(artifact)
    except LoadError as e:
        raise LoadError(
            f"can't replay {entry.name}: {e.message}",
            help="the CPU device runs PTX: build a fatbin that contains PTX (a compute_… target in addition "
            "to sm_…), load it on the GPU, and replay; or compile with to='ptx'",
        ) from e


class _Copy(NamedTuple):
    """Memory of the device from ``begin`` on, as bytes of the CPU device's ``allocations``."""

    begin: int
    data: np.ndarray[Any, Any]
    memory: Allocation


def _copies(device: Device, spans: Sequence[MemorySpan], cpu: Device) -> list[_Copy]:
    """Copy the memory to the CPU device, once where arguments share some."""
    copies = []
    for begin, data in held_by(device, ((span.address, span.address + span.size) for span in spans)):
        # As far beyond a multiple of 256 as it is on the device, so that alignments are the same.
        skip = begin % 256
        memory = cpu.allocate(skip + data.nbytes)
        cpu.upload(memory.address + skip, data.data)
        raw = (ctypes.c_uint8 * data.nbytes).from_address(memory.address + skip)
        copies.append(_Copy(begin, np.ctypeslib.as_array(raw), memory))
    return copies


def _host_address(copies: Sequence[_Copy], address: int) -> int:
    copy, offset = place_in(copies, address)
    return int(copies[copy].data.ctypes.data) + offset


def _pointing_to(value: object, address: int, cpu: Device) -> bytes:
    """Return the bytes of a pointer or tensor map argument for memory at ``address``."""
    if isinstance(value, TensorMap):
        return cpu.encode_tensor_map(replace(value.tiling, address=address))
    return address.to_bytes(POINTER_BYTES, "little")


def _result(value: Any, copies: Sequence[_Copy], span: MemorySpan) -> np.ndarray[Any, Any]:
    """Return the memory contents of an argument after the run, with its shape and dtype.

    The result is an array of bytes if NumPy has no such dtype or the sizes differ. For a tensor map, it is the array of
    the map.
    """
    if isinstance(value, TensorMap):
        value = value.source
    copy, offset = place_in(copies, span.address)
    data = copies[copy].data[offset : offset + span.size]
    dtype = dtype_of(value)
    return (
        data.copy()
        if dtype is None or span.size != value.nbytes
        else data.view(dtype).reshape(tuple(value.shape)).copy()
    )
