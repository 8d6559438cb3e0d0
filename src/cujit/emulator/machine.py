"""The emulator's machine code: the boot code of its libraries, and the entry points in C.

Python calls what is in C through ``native()``, by names of its own: ``native().cell_new(CellKind.STREAM, context)``.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from cujit.cache.key import Part
from cujit.devices.jit import emit_object, processor
from cujit.devices.objects import Work, machine_code
from cujit.devices.sources import read_file
from cujit.emulator.structures import Emulator
from cujit.errors import CujitError, UnsupportedError
from cujit.forks import once
from cujit.formats.elf import read_elf

_NATIVE = Path(__file__).with_name("native")

_DRIVER = "driver"
_ENTRY = "cujit_cu"
"""How entry points begin in C; what else is there is for Python."""

_U32, _I32, _U64, _PTR = ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64, ctypes.c_void_p
_FOR_PYTHON: dict[str, tuple[Any, ...]] = {
    "emulator_start": (_PTR,),
    "emulator_end": (None,),
    "emulator_ready": (_I32,),
    "emulator_context": (_I32, ctypes.POINTER(_U64)),
    "emulator_current": (_U64,),
    "emulator_fail": (None, _U64, _U32),
    "cell_new": (_U64, _U32, _U64),
    "cell_free": (_U32, _U64, _U32),
    "cell_is": (_U32, _U64, _U32),
}
"""What C offers to Python: the type of the answer, and of each argument."""


def machine() -> str:
    """Name this processor as folders of bitcode do."""
    return processor().triple.partition("-")[0]


def _bitcode(part: str) -> bytes:
    try:
        return read_file(_NATIVE / machine() / f"{part}.bc")
    except FileNotFoundError:
        raise UnsupportedError(
            f"the emulator is not written for {machine()} processors", help="it runs on x86_64 and aarch64"
        ) from None


def boot_code() -> bytes:
    """Compile the code of a library itself, which runs at any address.

    Raises:
        MissingError: llvmlite is not installed.
        UnsupportedError: it is not written for this processor.
    """
    elf = read_elf(emit_object(_bitcode("boot")))
    (symbol,) = (each for each in elf.symbols() if each.name == "cujit_boot")
    if any(section.type in (4, 9) and section.size for section in elf.sections):
        raise CujitError("the boot code wants relocations, which nobody would do", help="report this")
    code = elf.content(elf.sections[symbol.section])
    if symbol.value:
        raise CujitError("the boot code does not begin with its function", help="report this")
    return code


class Native:
    """What C offers: ``entries`` are the addresses of the driver's functions that it has, by name."""

    def __init__(self) -> None:
        bitcode = _bitcode(_DRIVER)
        names = _functions()
        work = Work("emulator", _DRIVER, (Part.content("bitcode", bitcode),), lambda: bitcode)
        code = machine_code(work, names[0])
        found = {name: code.other(name) for name in names}
        code.engine.detach()  # other threads call it while the process ends
        self.entries = {name[6:]: at for name, at in found.items() if name.startswith(_ENTRY)}
        for name, types in _FOR_PYTHON.items():
            setattr(self, name, ctypes.CFUNCTYPE(*types)(found[f"cujit_{name}"]))
        self.end_address = found["cujit_emulator_end"]
        state = self.emulator_start()
        if not state:
            raise CujitError("there is no memory for the emulator's tables")
        self.state = Emulator.from_address(state)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def _functions() -> list[str]:
    rows = (line.split() for line in (_NATIVE / "functions.txt").read_text().splitlines())
    return next(names for part, *names in rows if part == _DRIVER)


@once
def native() -> Native:
    """Load the entry points in C, once a process.

    Raises:
        MissingError: llvmlite is not installed.
        UnsupportedError: they are not written for this processor.
    """
    return Native()
