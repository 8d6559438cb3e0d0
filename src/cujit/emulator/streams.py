"""Rarely used stream functions: attributes, callbacks, and waits for values in memory."""

from __future__ import annotations

import ctypes

from cujit.emulator.capture import call_host, not_captured, stream_cell
from cujit.emulator.entries import require, started
from cujit.emulator.structures import StreamCell

_VALUE_BYTES = 64
"""Bytes of a ``CUstreamAttrValue``."""

_ATTRIBUTES = {1: b"", 3: b"\xff" * 4, 8: b"", 9: b"\0\1", 10: b""}
"""What a stream begins with, by ``CUstreamAttrID``: access policy, synchronization policy (none was set), priority, map
of memory domains, memory domain. Source: CUDA Driver API manual, ``CUlaunchAttributeID``; what an H200 answers.
"""

_PRIORITY = 8

_SET: dict[int, tuple[int, dict[int, bytes]]] = {}
"""Attributes that were set, by the stream's cell, with the number of the stream that it was then."""


def _attributes(stream: StreamCell) -> dict[int, bytes]:
    address = ctypes.addressof(stream)
    number, found = _SET.get(address, (0, {}))
    if number != stream.id:
        _SET[address] = stream.id, (found := {})
    return found


@started("cuStreamGetAttribute", "SIP")
def stream_get_attribute(stream: int, attribute: int, value: int) -> None:
    """Write an attribute of a stream."""
    cell = stream_cell(stream)
    require(value and attribute in _ATTRIBUTES)
    data = _attributes(cell).get(attribute, _ATTRIBUTES[attribute])
    if attribute == _PRIORITY:
        data = cell.priority.to_bytes(4, "little", signed=True)
    ctypes.memmove(value, data.ljust(_VALUE_BYTES, b"\0"), _VALUE_BYTES)


@started("cuStreamSetAttribute", "SIP")
def stream_set_attribute(stream: int, attribute: int, value: int) -> None:
    """Set an attribute of a stream."""
    cell = stream_cell(stream)
    require(value and attribute in _ATTRIBUTES)
    _attributes(cell)[attribute] = ctypes.string_at(value, _VALUE_BYTES)
    if attribute == _PRIORITY:
        cell.priority = max(-5, min(0, ctypes.c_int32.from_address(value).value))


@started("cuStreamCopyAttributes", "SS")
def stream_copy_attributes(to: int, of: int) -> None:
    """Set all attributes of a stream as another one has them."""
    target, source = stream_cell(to), stream_cell(of)
    _attributes(target).update(_attributes(source))


@started("cuStreamAddCallback", "SPPU")
def stream_add_callback(stream: int, callback: int, data: int, flags: int) -> None:
    """Call a function immediately, because the work of a stream is already complete."""
    require(callback and not flags)
    not_captured(stream, "a stream callback can't be captured", hint="call `cuLaunchHostFunc` instead")
    call_host(callback, stream, 0, data)
