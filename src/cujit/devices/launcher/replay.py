"""The same launch on the CPU device, with copies of the arrays: what a kernel does, where a debugger can look."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from cujit.artifact import Kind
from cujit.devices.arguments.packer import Packer
from cujit.devices.arguments.pointers import Pointer
from cujit.devices.arguments.tensors import is_tensor, read_tensor
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.backend import BackendModule
from cujit.devices.device import Device
from cujit.devices.launcher.entry import LaunchEntry
from cujit.devices.shapes import LaunchShape, check_launch
from cujit.devices.streams import Allocation
from cujit.errors import ArgumentError, LoadError, spell
from cujit.signature import ParameterClass, Signature, merge_signatures
from cujit.values import dataclass, replace

_POINTERS = (ParameterClass.POINTER, ParameterClass.BITS, ParameterClass.UNKNOWN)
_POINTER_BYTES = 8


@dataclass(frozen=True)
class _Span:
    """The memory of one argument: number of the argument, address on the device, size in bytes."""

    index: int
    address: int
    size: int


def replay(
    entry: LaunchEntry, shape: LaunchShape | None, arguments: Sequence[object], cpu: Device
) -> tuple[object, ...]:
    """Run a launch on ``cpu``: for each argument that is an array a NumPy array as the kernel left it, else itself.

    The arrays of the launch are copied as they are now, and stay so. Variables of the module begin as the image has
    them.

    Raises:
        LoadError: the image has no PTX, or PTX that the CPU device does not execute.
        ArgumentError: the arguments do not fit, one is an address of memory of unknown size, or ``cpu`` is a GPU.
    """
    if cpu.is_gpu:
        raise ArgumentError(
            f"{entry.name} is replayed on the CPU device, not on {cpu.name}",
            help="leave device out, or cujit.cpu(threads)",
        )
    module = _load(entry, cpu)
    kernel = module.kernels[entry.loaded.name]
    stated = Signature(tuple(replace(p, offset=None) for p in entry.signature))
    signature = merge_signatures(stated, kernel.signature)
    buffer = bytearray(Packer(signature, entry.device, entry.name).pack(arguments))
    spans = _spans(entry, signature, buffer, arguments)
    copies = _copies(entry.device, spans, cpu)
    for span in spans:
        offset = signature.offsets[span.index]
        at = _host_address(copies, span.address)
        buffer[offset : offset + _POINTER_BYTES] = at.to_bytes(_POINTER_BYTES, "little")
    if shape is not None:
        check_launch(entry.name, shape, cpu.limits, kernel.resources)
        kernel.launch(shape, buffer)
    results = list(arguments)
    for span in spans:
        results[span.index] = _result(arguments[span.index], copies, span)
    module.close()
    return tuple(results)


def _load(entry: LaunchEntry, cpu: Device) -> BackendModule:
    entry.image.require()
    artifact, portable = entry.image.artifact, entry.image.portable
    if artifact.kind is Kind.CUBIN and portable is not None:
        artifact = portable()
    try:
        return cpu.load(artifact)
    except LoadError as e:
        raise LoadError(
            f"{entry.name} cannot be replayed: {e.message}",
            help="the CPU device runs PTX: build a fatbin that has some (a compute_… target beside sm_…), load it on "
            "the GPU, and replay; or compile with to='ptx'",
        ) from e


def _spans(entry: LaunchEntry, signature: Signature, buffer: bytearray, arguments: Sequence[object]) -> list[_Span]:
    """Find the memory that the arguments point to."""
    spans = []
    for i, (parameter, offset, value) in enumerate(zip(signature, signature.offsets, arguments, strict=True)):
        if parameter.kind not in _POINTERS or parameter.size != _POINTER_BYTES:
            continue
        address = int.from_bytes(buffer[offset : offset + _POINTER_BYTES], "little")
        size = getattr(value, "nbytes", None)
        if isinstance(value, (Pointer, ctypes.c_void_p)) and address:
            raise ArgumentError(
                f"{entry.name}: argument {i + 1} is {spell(value)}, memory whose size is not known, so it "
                "cannot be copied",
                help="pass the array itself",
            )
        if address and isinstance(size, int) and not isinstance(value, np.generic):
            spans.append(_Span(i, address, size))
    return spans


@dataclass(frozen=True)
class _Copy:
    """Memory of the device from ``begin`` on, as bytes of the CPU device's ``allocations``."""

    begin: int
    data: np.ndarray[Any, Any]
    memory: Allocation


def _copies(device: Device, spans: Sequence[_Span], cpu: Device) -> list[_Copy]:
    """Copy the memory to the CPU device, once where arguments share some."""
    ranges: list[list[int]] = []
    for span in sorted(spans, key=lambda s: s.address):
        if ranges and span.address < ranges[-1][1]:
            ranges[-1][1] = max(ranges[-1][1], span.address + span.size)
        else:
            ranges.append([span.address, span.address + span.size])
    copies = []
    for begin, end in ranges:
        # As far beyond a multiple of 256 as it is on the device, so that alignments are the same.
        skip = begin % 256
        bytes_ = np.empty(end - begin, np.uint8)
        device.download(bytes_.data, begin)
        memory = cpu.allocate(skip + bytes_.nbytes)
        cpu.upload(memory.address + skip, bytes_.data)
        raw = (ctypes.c_uint8 * bytes_.nbytes).from_address(memory.address + skip)
        copies.append(_Copy(begin, np.ctypeslib.as_array(raw), memory))
    return copies


def _find(copies: Sequence[_Copy], address: int) -> tuple[np.ndarray[Any, Any], int]:
    """Find the copy that has an address of the device, and the place in it in bytes."""
    found = next(copy for copy in reversed(copies) if copy.begin <= address)
    return found.data, address - found.begin


def _host_address(copies: Sequence[_Copy], address: int) -> int:
    copy, offset = _find(copies, address)
    return int(copy.ctypes.data) + offset


def _result(value: Any, copies: Sequence[_Copy], span: _Span) -> np.ndarray[Any, Any]:
    """Give what is left of an argument, in its shape and dtype; in bytes where NumPy has no such dtype."""
    copy, offset = _find(copies, span.address)
    data = copy[offset : offset + span.size]
    dtype = _dtype(value)
    return data.copy() if dtype is None else data.view(dtype).reshape(tuple(value.shape)).copy()


def _dtype(value: Any) -> np.dtype[Any] | None:
    if isinstance(value, DeviceArray):
        return value.dtype
    tensor = read_tensor(value) if is_tensor(value) else None
    try:
        return np.dtype(value.dtype) if tensor is None else tensor.dtype
    except TypeError:
        return None
