"""The machine code of launches: their entry, what starts a kernel, readers of arrays. Compiled once a process."""

from __future__ import annotations

import functools
from pathlib import Path

from cujit.cache.key import Part
from cujit.devices.backend import Finish
from cujit.devices.jit import NativeFunction, name_address, processor, with_numbers
from cujit.devices.launcher.finish import finish_text
from cujit.devices.launcher.symbols import address_of_symbol, link_names, places_in_objects
from cujit.devices.objects import Work, machine_code
from cujit.devices.sources import read_file
from cujit.errors import MissingError

_DECLARATIONS = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
_NATIVE = Path(__file__).parent / "native"


@functools.cache
def native(part: str, state_offset: int = 0) -> NativeFunction:
    """Compile ``native/part.c``, and find its function ``cujit_part``.

    ``launch`` is the entry of callables that have the address of their state at an offset in bytes; ``gpu`` starts a
    kernel there. ``torch`` and ``cupy`` read arrays, and are made when the first such array comes.

    Raises:
        MissingError: llvmlite is not installed, or there is no such code for this processor.
    """
    machine, places = processor().triple.partition("-")[0], {**places_in_objects(), "cujit_place_state": state_offset}
    try:
        bitcode = read_file(_NATIVE / machine / f"{part}.bc")
    except FileNotFoundError:
        raise MissingError(f"the launcher is not written for {machine} processors") from None
    parts = (Part.content("bitcode", bitcode), Part.content("places", repr(places)))
    work = Work("launcher", part, parts, lambda: with_numbers(bitcode, places))
    return machine_code(work, f"cujit_{part}", _name)


@functools.cache
def finish(kind: Finish) -> NativeFunction:
    """Compile what starts the kernels of one kind of place.

    Raises:
        MissingError: llvmlite is not installed.
    """
    return native(kind.name) if kind.body is None else compile_text(finish_text(kind.body), "finish")


def _name(symbol: str) -> None:
    """Make a symbol known that stands for something of this process."""
    address = address_of_symbol(symbol)
    if address is not None:
        name_address(symbol, address)


def compile_text(text: str, symbol: str) -> NativeFunction:
    """Compile IR with names as of ``link_names``, or take it out of the cache.

    Raises:
        MissingError: llvmlite is not installed.
    """
    linked = link_names(_DECLARATIONS + text)
    work = Work("launcher", symbol, (Part.content("IR", linked),), lambda: linked, level=1)
    return machine_code(work, symbol, _name)
