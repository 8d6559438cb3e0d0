"""Versions, entry points by name, and the names of results."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from cujit.emulator import functions, library
from cujit.emulator.entries import always, in_any_context, require, store_u32, store_u64, text_at
from cujit.emulator.machine import constant
from cujit.emulator.process import emulation, say
from cujit.emulator.results import Result
from cujit.forks import once

VERSION = 13050
"""The CUDA version that the emulator speaks: that of the table of functions."""

_FOUND, _UNKNOWN, _TOO_EARLY = range(3)
"""Source: CUDA Driver API manual, ``CUdriverProcAddressQueryResult``."""

_RUNTIME = bytes.fromhex("6bd5fb6c")
"""How the name of a table begins that the CUDA runtime asks for, and nobody else. Source: calls of that of 13.5."""


@always("cuDriverGetVersion", "P")
def driver_get_version(version: int) -> None:
    """Write the CUDA version that the driver supports."""
    store_u32(version, VERSION)


@always("cuGetProcAddress", "PPIP")
def get_proc_address(symbol: int, function: int, version: int, flags: int) -> None:
    """Find an entry point as CUDA 11 did."""
    require(_find(symbol, function, version, flags) == _FOUND, Result.NOT_FOUND)


@always("cuGetProcAddress_v2", "PPIPP")
def get_proc_address_v2(symbol: int, function: int, version: int, flags: int, status: int) -> None:
    """Find an entry point by its base name, the version that the caller speaks and the flavour of its streams."""
    found = _find(symbol, function, version, flags)
    if status:
        store_u32(status, found)


def _find(symbol: int, function: int, version: int, flags: int) -> int:
    """Store the address of an entry point, or null, and return whether it was found, unknown, or too new for the
    version.
    """
    name = text_at(symbol)
    require(function and not flags & ~functions.FLAGS)
    form = functions.find(name, version, flags)
    store_u64(function, library.address_of(form.export) if form is not None else 0)
    if form is not None:
        return _FOUND
    return _TOO_EARLY if name in functions.forms() else _UNKNOWN


@always("cuGetExportTable", "PP")
def get_export_table(table: int, uuid: int) -> int:
    """Refuse a request for an export table, because the emulator has none.

    Export tables are undocumented. A statically linked CUDA runtime verifies with them that a driver is genuine.
    """
    require(table and uuid)
    if ctypes.string_at(uuid, 4) == _RUNTIME:
        _refuse_runtime()
    return int(Result.NOT_SUPPORTED)


@once
def _refuse_runtime() -> None:
    say("the CUDA runtime accepts only NVIDIA's driver: programs that contain it can't run here (docs/emulate.md)")


@in_any_context("cuProfilerStart cuProfilerStop", "")
def profiler() -> None:
    """Ignore a request to start or stop profiling, because there is no profiler."""


@always("cuGetErrorName", "IP")
def get_error_name(error: int, text: int) -> None:
    """Write the name of a result code."""
    _store_text(error, text, lambda result: result.spelled)


@always("cuGetErrorString", "IP")
def get_error_string(error: int, text: int) -> None:
    """Write the meaning of a result code: the message of this thread's last call, if that call returned this code."""
    _store_text(error, text, lambda result: emulation().words(result) or result.sentence)


def _store_text(error: int, text: int, words: Callable[[Result], str]) -> None:
    require(text)
    known = error in Result._value2member_map_
    store_u64(text, constant(words(Result(error))) if known else 0)
    require(known)
