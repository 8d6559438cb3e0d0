"""What the code of every layout calls: the readers of arguments, and the start of a kernel. Compiled once a process."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from cujit.devices.jit import NativeFunction, compile_ir
from cujit.devices.launcher.finish import Finish, finish_text
from cujit.devices.launcher.foreign import CUPY_TEXT, TENSOR_TEXT
from cujit.devices.launcher.names import link_names
from cujit.devices.launcher.readers import readers_text

__all__ = ["Runtime", "compile_text", "cupy_reader", "runtime", "tensor_reader"]

_READERS = ("ask", "bool", "double", "integer", "large", "pointer", "single", "word")
_DECLARATIONS = """
declare double @llvm.fabs.f64(double)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


@dataclass(frozen=True)
class Runtime:
    """Compiled functions by name, as addresses; ``owners`` keep the code."""

    functions: Mapping[str, int]
    owners: tuple[NativeFunction, ...]


@functools.cache
def runtime(finish: Finish) -> Runtime:
    """Compile the functions that the launches of one kind of place need.

    Raises:
        MissingError: llvmlite is not installed.
    """
    readers, end = _readers(), _compile(finish_text(finish), "finish")
    functions = {name: readers.other(name) for name in _READERS}
    return Runtime({**functions, "finish": end.address}, (readers, end))


@functools.cache
def _readers() -> NativeFunction:
    return _compile(readers_text(), _READERS[0])


@functools.cache
def tensor_reader() -> NativeFunction:
    """Compile what reads torch's tensors."""
    return _compile(TENSOR_TEXT, "tensor")


@functools.cache
def cupy_reader() -> NativeFunction:
    """Compile what reads CuPy's arrays."""
    return _compile(CUPY_TEXT, "array")


def compile_text(text: str, symbol: str, level: int) -> NativeFunction:
    """Compile IR in which every name is a number by now; level 0 leaves it as it is written.

    Raises:
        MissingError: llvmlite is not installed.
    """
    return compile_ir(text, symbol, level, passes=level > 0)


def _compile(text: str, symbol: str) -> NativeFunction:
    return compile_text(link_names(_DECLARATIONS + text), symbol, level=1)
