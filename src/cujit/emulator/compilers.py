"""What stands before NVIDIA's compilers, whose last step makes machine code: it makes containers of PTX instead.

A library of the same name has every function of the real one and passes calls on, but where machine code is asked for.
A process finds it by its soname, which has to be loaded before anybody looks for the real library in a wheel.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from cujit.emulator import library
from cujit.emulator.compiler_files import FUNCTION, folder
from cujit.emulator.machine import Targets
from cujit.emulator.shared_library import TABLE_SYMBOL
from cujit.emulator.structures import BootTable, BootText
from cujit.emulator.toolkit_shims import compiler_functions, linker_functions
from cujit.forks import Lock

_LOCK = Lock()
_ATTACHED: dict[int, ctypes.CDLL] = {}
_LOADED: list[ctypes.CDLL] = []


def load() -> None:
    """Load the replacement libraries into this process, where clients will find them.

    Raises:
        CujitError: an NVIDIA compiler library is already loaded.
    """
    paths = sorted(folder().glob("lib*"))
    for path in paths:  # before the first is loaded: half of them would be worse than none
        with contextlib.suppress(OSError):
            if not hasattr(ctypes.CDLL(path.name, mode=os.RTLD_NOLOAD), TABLE_SYMBOL):
                raise library.loaded_already(f"the real {path.name}")
    _LOADED.extend(ctypes.CDLL(str(path)) for path in paths)


def attach(table: int) -> None:
    """Fill in a library's table. The library's boot code calls this function in any thread, and
    possibly several times.
    """
    with _LOCK:
        if table in _ATTACHED:
            return
        path, _, *names = ctypes.string_at(BootTable.from_address(table).texts[BootText.OTHERS]).decode().split("\n")
        _ATTACHED[table] = real = ctypes.CDLL(path)
        # Where its wheel does not say where they lie, NVRTC finds its builtins among what is loaded.
        is_nvrtc = Path(path).name.startswith("libnvrtc")
        _LOADED.extend(ctypes.CDLL(str(each)) for each in Path(path).parent.glob("libnvrtc-builtins.so.*") if is_nvrtc)
        ours = compiler_functions(real) if is_nvrtc else linker_functions(real)
        slots, targets = library.slots_of(table), Targets(table, names)
        for index, name in enumerate(names):
            base = FUNCTION.fullmatch(name)
            body = ours.get(base[1]) if base else None
            if body is not None:
                targets.give(index, body)
            else:
                slots[index] = ctypes.cast(real[name], ctypes.c_void_p).value or slots[index]
