"""Machine code for launches, one piece for each layout of parameters, shared by all kernels of the process."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cujit.devices.backend import Finish
from cujit.devices.launcher.finish import Parameters
from cujit.devices.launcher.layout import Layout

if TYPE_CHECKING:  # what writes and compiles IR is imported for the first launch that is compiled
    from cujit.devices.jit import NativeFunction
    from cujit.devices.launcher.runtime import Runtime

__all__ = ["LaunchCode", "launch_code"]

_LEVEL = 0
"""LLVM's optimisation level: the code is a row of calls, which no optimisation makes shorter."""


@dataclass(frozen=True)
class LaunchCode:
    """The launch of one layout and what it calls; whoever runs it keeps this."""

    function: NativeFunction
    runtime: Runtime

    @property
    def address(self) -> int:
        """Where the code is: a function of the signature of vectorcall."""
        return self.function.address


@functools.lru_cache(maxsize=1024)
def launch_code(
    layout: Layout, finish: Finish, state_offset: int, parameters: Parameters = Parameters.BUFFER
) -> LaunchCode:
    """Compile the launch of a layout, once.

    Raises:
        MissingError: llvmlite is not installed.
    """
    # Start-up: code from the cache is not emitted anew.
    from cujit.devices.launcher.emit import SYMBOL, emit
    from cujit.devices.launcher.runtime import compile_text, runtime

    needed = runtime(finish)
    text = emit(layout, needed.functions, state_offset, parameters)
    return LaunchCode(compile_text(text, SYMBOL, _LEVEL), needed)
