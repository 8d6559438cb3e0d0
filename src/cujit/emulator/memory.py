"""Memory as Python knows it: how much there is, advice for it, and what the checks of the CPU device know of it."""

from __future__ import annotations

import ctypes
from typing import Any

from cujit.devices.cpu.run.launch import HostBlock
from cujit.emulator import contexts, device
from cujit.emulator.capture import not_captured
from cujit.emulator.entries import in_context, need
from cujit.emulator.graph_memory import HeldPlace
from cujit.emulator.machine import in_c
from cujit.emulator.process import emulation
from cujit.emulator.structures import Block, BlockKind

_end_context = in_c("memory_end_context", None, ctypes.c_uint64, ctypes.c_uint32)
_block_of = in_c("block_of", ctypes.c_void_p, ctypes.c_uint64)


def prepare() -> None:
    """Say how much memory there is, and who checks accesses to it, before the first call."""
    memory = emulation().native.state.memory
    memory.total = device.total_bytes()
    if emulation().settings.check:
        memory.on_new, memory.on_free, memory.on_write = (
            ctypes.cast(function, ctypes.c_void_p).value for function in (_ON_NEW, _ON_FREE, _ON_WRITE)
        )


@contexts.at_end
def _ended(context: int, is_primary: bool) -> None:
    _end_context(context, is_primary)


# -- for checks of accesses ---------------------------------------------------------------------------------


_BLOCKS: dict[int, HostBlock] = {}
"""What was allocated and not freed, by its address."""


def _on_new(address: int, size: int, kind: int) -> None:
    del kind
    _BLOCKS[address] = block = HostBlock(size, (address, HeldPlace.of(address)))
    emulation().device.allocated(block)


def _on_free(address: int) -> None:
    del _BLOCKS[address]


def _on_write(address: int, size: int) -> None:
    emulation().device.written(address, size)


_ON_NEW: Any = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)(_on_new)
_ON_FREE: Any = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(_on_free)
_ON_WRITE: Any = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)(_on_write)


# -- advice for managed memory, which is in one place anyway -----------------------------------------------------

_ADVICE = range(1, 7)
_ON_DEVICE, _ON_HOST = 1, (2, 3, 4)
_THE_HOST = -1
"""Source: CUDA Driver API manual, ``CUmem_advise``, ``CUmemLocationType`` and ``CU_DEVICE_CPU``."""

_UNSETS = (1, 2, 4)
"""Advice that names no place."""


def _check_managed(address: int, size: int) -> None:
    """Refuse a range that does not lie in one allocation of managed memory."""
    at = _block_of(address)
    need(at and size)
    block = Block.from_address(at)
    need(block.kind == BlockKind.MANAGED and address + size <= block.begin + block.size)


def _check_ordinal(ordinal: int) -> None:
    if ordinal != _THE_HOST:
        device.check(ordinal)


def _check_location(location: int) -> None:
    """Refuse a place that there is not; a structure of eight bytes comes as a number."""
    kind, ordinal = location & 0xFFFFFFFF, location >> 32
    need(kind == _ON_DEVICE or kind in _ON_HOST)
    if kind == _ON_DEVICE:
        device.check(ordinal)


@in_context("cuMemAdvise", "PPII")
def mem_advise_by_ordinal(context: int, address: int, size: int, advice: int, ordinal: int) -> None:
    """Take advice on where memory should be."""
    del context
    need(advice in _ADVICE)
    _check_managed(address, size)
    if advice not in _UNSETS:
        _check_ordinal(ordinal)


@in_context("cuMemAdvise_v2", "PPIP")
def mem_advise(context: int, address: int, size: int, advice: int, location: int) -> None:
    """Take advice on where memory should be."""
    del context
    need(advice in _ADVICE)
    _check_managed(address, size)
    if advice not in _UNSETS:
        _check_location(location)


@in_context("cuMemPrefetchAsync", "PPIS")
def mem_prefetch_by_ordinal(context: int, address: int, size: int, ordinal: int, stream: int) -> None:
    """Bring memory where it is already."""
    del context
    _check_managed(address, size)
    _check_ordinal(ordinal)
    not_captured(stream)


@in_context("cuMemPrefetchAsync_v2", "PPPUS")
def mem_prefetch(context: int, address: int, size: int, location: int, flags: int, stream: int) -> None:
    """Bring memory where it is already."""
    del context
    need(not flags)
    _check_managed(address, size)
    _check_location(location)
    not_captured(stream)
