"""Versions, entry points by name, and what answers are called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from cujit.emulator import functions, library
from cujit.emulator.entries import always, need, store_u32, store_u64, text_at
from cujit.emulator.process import emulation
from cujit.emulator.results import Result

VERSION = 13050
"""The CUDA version that the emulator speaks: that of the table of functions."""

_PINNED: dict[bytes, ctypes.Array[ctypes.c_char]] = {}


def constant(text: str) -> int:
    """Give the address of a string that stays."""
    data = text.encode()
    return ctypes.addressof(_PINNED.setdefault(data, ctypes.create_string_buffer(data)))


@always("cuDriverGetVersion", "P")
def driver_get_version(version: int) -> None:
    """Tell which CUDA the driver speaks."""
    store_u32(version, VERSION)


@always("cuGetProcAddress cuGetProcAddress_v2", "PPIPP")
def get_proc_address(symbol: int, function: int, version: int, flags: int, status: int) -> int | None:
    """Find an entry point by its base name, the version that the caller speaks and the flavour of its streams."""
    name = text_at(symbol)
    form = functions.find(name, version, flags)
    found = library.address_of(form.export) if form is not None else 0
    store_u64(function, found)
    if status:
        store_u32(status, 0 if found else 1)
    return None if found else int(Result.NOT_FOUND)


@always("cuGetErrorName", "IP")
def get_error_name(error: int, text: int) -> None:
    """Give the name of an answer."""
    _store_text(error, text, lambda result: result.spelled)


@always("cuGetErrorString", "IP")
def get_error_string(error: int, text: int) -> None:
    """Give the meaning of an answer: what this thread's last call said, where it answered that."""
    _store_text(error, text, lambda result: emulation().words(result) or result.sentence)


def _store_text(error: int, text: int, words: Callable[[Result], str]) -> None:
    need(text)
    known = error in Result._value2member_map_
    store_u64(text, constant(words(Result(error))) if known else 0)
    need(known)
