"""Waits for memory values, writes of values, and atomic operations in streams, individually and in batches."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from cujit.emulator.capture import recorded
from cujit.emulator.entries import require, started
from cujit.emulator.node_params import BatchParams, MemoryOperation
from cujit.emulator.nodes import NodeKind
from cujit.emulator.process import emulation, say
from cujit.emulator.results import RefusedCall, Result

# Source: CUDA Driver API manual, ``CUstreamBatchMemOpType``, ``CUstreamWaitValue_flags``, ``CUatomicOperation``.
_WAIT_32, _WRITE_32, _FLUSH, _WAIT_64, _WRITE_64, _BARRIER, _ATOMIC = 1, 2, 3, 4, 5, 6, 8
_BYTES = {_WAIT_32: 4, _WRITE_32: 4, _WAIT_64: 8, _WRITE_64: 8}
_FLUSH_AFTER_WAIT, _NO_BARRIER, _MOST = 1 << 30, 1, 256
_ADD, _AND, _OR = 0, 5, 6
_WORD_32, _WORD_64 = 1 << 0 | 1 << 5, 1 << 0 | 1 << 6
_PATIENCE_S, _PAUSE_S = 5.0, 0.0005


def _words(address: int, size: int) -> ctypes.c_uint32 | ctypes.c_uint64:
    return (ctypes.c_uint32 if size == 4 else ctypes.c_uint64).from_address(address)


def _holds(now: int, value: int, how: int, bits: int) -> bool:
    mask = (1 << bits) - 1
    if how == 0:  # cyclic: the difference as a signed number
        return not (now - value) & mask >> bits - 1 << bits - 1
    return bool((now == value & mask, now & value, ~(now | value) & mask)[how - 1])


def _wait(operation: MemoryOperation, size: int) -> None:
    """Wait until memory has the requested value. Another thread has to write it."""
    word, how = _words(operation.address, size), operation.flags & 3
    began, limit_s, is_reported = time.monotonic(), emulation().settings.timeout_s, False
    while not _holds(word.value, operation.value, how, 8 * size):
        waited = time.monotonic() - began
        if limit_s is not None and waited > limit_s:
            raise RefusedCall(Result.LAUNCH_TIMEOUT, f"a stream waited {limit_s} s for a value that was never written")
        if waited > _PATIENCE_S and not is_reported:
            say("a stream waits for a value in memory, which another thread has to write: calls return when done")
            is_reported = True
        time.sleep(_PAUSE_S)


def _change(operation: MemoryOperation) -> None:
    """Perform an atomic operation, whose address and value are one word further."""
    raw = bytes(operation)
    kind, type_ = (int.from_bytes(raw[k : k + 4], "little") for k in (8, 12))
    address, value = (int.from_bytes(raw[k : k + 8], "little") for k in (16, 24))
    word = _words(address, 4 if type_ & 1 << 5 else 8)
    word.value = {_ADD: word.value + value, _AND: word.value & value, _OR: word.value | value}[kind]


def operate(operations: Sequence[MemoryOperation]) -> None:
    """Do operations, one after the other."""
    for operation in operations:
        size = _BYTES.get(operation.operation, 0)
        if operation.operation in (_WAIT_32, _WAIT_64):
            _wait(operation, size)
        elif size:
            _words(operation.address, size).value = operation.value
        elif operation.operation == _ATOMIC:
            _change(operation)


def check(operations: Sequence[MemoryOperation]) -> None:
    """Check all operations before the first operation is executed.

    Raises:
        Refused: an operation is invalid or has no address.
    """
    require(len(operations) <= _MOST)
    for operation in operations:
        kind, size = operation.operation, _BYTES.get(operation.operation, 0)
        require(size or kind in (_FLUSH, _BARRIER, _ATOMIC))
        require(not size or (operation.address and operation.address % size == 0))
        if kind in (_WAIT_32, _WAIT_64):
            require(not operation.flags & ~(_FLUSH_AFTER_WAIT | 3))
        elif size:
            require(operation.flags <= _NO_BARRIER)


def batch_of(count: int, operations: int) -> list[MemoryOperation]:
    """Copy the caller's operations, check them, and return the copy. Raises the errors of ``check``."""
    require(operations or not count)
    found = [
        MemoryOperation.from_buffer_copy((ctypes.c_char * 48).from_address(operations + 48 * k)) for k in range(count)
    ]
    check(found)
    return found


def batch_params(operations: Sequence[MemoryOperation]) -> BatchParams:
    """Return operations as the driver's structure. They live as long as the returned structure."""
    array = (MemoryOperation * max(len(operations), 1))(*operations)
    params = BatchParams(count=len(operations), operations=ctypes.addressof(array))
    params.kept = array
    return params


def _do(stream: int, operations: list[MemoryOperation]) -> None:
    if not recorded(stream, NodeKind.BATCH_MEM_OP, batch_params(operations), lambda: operate(operations)):
        operate(operations)


def _one(kind: int) -> None:
    """Declare the calls that do one operation, in both versions."""
    names = {_WAIT_32: "cuStreamWaitValue32", _WRITE_32: "cuStreamWriteValue32"}
    name = {**names, _WAIT_64: "cuStreamWaitValue64", _WRITE_64: "cuStreamWriteValue64"}[kind]

    def call(stream: int, address: int, value: int, flags: int) -> None:
        operations = [MemoryOperation(operation=kind, address=address, value=value, flags=flags)]
        check(operations)
        _do(stream, operations)

    started(f"{name} {name}_v2", "SPUU" if _BYTES[kind] == 4 else "SPPU")(call)


for _kind in _BYTES:
    _one(_kind)


@started("cuStreamBatchMemOp cuStreamBatchMemOp_v2", "SUPU")
def stream_batch_mem_op(stream: int, count: int, operations: int, flags: int) -> None:
    """Do operations one after the other."""
    require(not flags)
    _do(stream, batch_of(count, operations))


@started("cuStreamAttachMemAsync", "SPPU")
def stream_attach_mem_async(stream: int, pointer: int, _size: int, flags: int) -> None:
    """Set which stream uses managed memory. Here, every stream can use all memory."""
    require(pointer and flags in (1, 2, 4))
    if not recorded(stream, NodeKind.EMPTY, None, lambda: None):
        require(
            flags != 4 or stream > 2,
            words="managed memory can't be attached to a default stream alone",
            hint="create a stream with `cuStreamCreate`",
        )
