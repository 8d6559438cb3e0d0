"""What the code of every layout calls: the readers of arguments, and the start of a kernel. Compiled once a process."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cujit.cache.key import Part
from cujit.devices.backend import Finish
from cujit.devices.jit import NativeFunction, name_address, processor, with_numbers
from cujit.devices.launcher.finish import finish_text
from cujit.devices.launcher.foreign import CUPY_TEXT, TENSOR_TEXT
from cujit.devices.launcher.symbols import address_of_symbol, link_names, places_in_objects
from cujit.devices.objects import Work, machine_code
from cujit.devices.sources import read_file
from cujit.errors import MissingError

__all__ = ["Runtime", "compile_text", "cupy_reader", "runtime", "tensor_reader"]

_READERS = ("ask", "bool", "double", "integer", "large", "pointer", "single", "word")
_DECLARATIONS = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
_NATIVE = Path(__file__).parent / "native"


@dataclass(frozen=True)
class Runtime:
    """Compiled functions: their symbols by name; ``owners`` keep the code."""

    functions: Mapping[str, str]
    owners: tuple[NativeFunction, ...]


@functools.cache
def runtime(finish: Finish) -> Runtime:
    """Compile the functions that the launches of one kind of place need.

    Raises:
        MissingError: llvmlite is not installed, or the readers are not there for this processor.
    """
    readers, end = _readers(), _compile(finish_text(finish), "finish")
    symbols = {name: f"cujit_launch_{name}" for name in _READERS}
    addresses = {**{name: readers.other(symbol) for name, symbol in symbols.items()}, "finish": end.address}
    symbols["finish"] = f"cujit_launch_finish_{finish.name.lower()}"
    for name, symbol in symbols.items():
        name_address(symbol, addresses[name])
    return Runtime(symbols, (readers, end))


@functools.cache
def _readers() -> NativeFunction:
    """Compile ``native/readers.c``, with the places in objects of this process as numbers."""
    machine, places = processor().triple.partition("-")[0], places_in_objects()
    try:
        bitcode = read_file(_NATIVE / machine / "readers.bc")
    except FileNotFoundError:
        raise MissingError(f"the launcher's readers are not written for {machine} processors") from None
    parts = (Part.content("bitcode", bitcode), Part.content("places", repr(places)))
    work = Work("launcher", "readers", parts, lambda: with_numbers(bitcode, places), level=1)
    return machine_code(work, f"cujit_launch_{_READERS[0]}", _name)


@functools.cache
def tensor_reader() -> NativeFunction:
    """Compile what reads torch's tensors."""
    return _compile(TENSOR_TEXT, "tensor")


@functools.cache
def cupy_reader() -> NativeFunction:
    """Compile what reads CuPy's arrays."""
    return _compile(CUPY_TEXT, "array")


def compile_text(text: str, symbol: str, level: int) -> NativeFunction:
    """Compile IR of ``link_names``, or take it out of the cache; level 0 leaves it as it is written.

    Raises:
        MissingError: llvmlite is not installed.
    """
    parts = (Part.content("IR", text), Part.text("level", str(level)))
    return machine_code(Work("launcher", symbol, parts, lambda: text, level, passes=level > 0), symbol, _name)


def _name(symbol: str) -> None:
    """Make a symbol known that stands for something of this process."""
    address = address_of_symbol(symbol)
    if address is not None:
        name_address(symbol, address)


def _compile(text: str, symbol: str) -> NativeFunction:
    return compile_text(link_names(_DECLARATIONS + text), symbol, level=1)
