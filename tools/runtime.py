"""Make the run-time of the CPU device anew: its C becomes LLVM bitcode, for each processor and each of its parts.

``python tools/runtime.py [directory [sources]]`` writes ``x86_64/*.bc`` and ``aarch64/*.bc`` there, or into the
package, from the ``*.c`` of ``sources``, or of ``src/cujit/devices/cpu/runtime``. The compiler is the clang of the
wheel ``ziglang``. Numbers that Python knows too come to C in ``numbers.h``, which is made here, and the compiler holds
the structures of C against Python's.

LLVM reads bitcode of older releases, and of no newer one: this clang is older than the LLVM of every llvmlite that
cujit allows. Nothing is optimised here, so that the bitcode promises to LLVM what C does, and no more; the user's LLVM
optimises it for the user's processor.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from cujit.devices.cpu.ir.program import WARP
from cujit.devices.cpu.native import checkstate
from cujit.devices.cpu.native.exchange import BOUNDS, OPERATIONS, Exchange
from cujit.devices.cpu.native.faultkinds import FaultKind
from cujit.devices.cpu.native.records import DONE, STANDS, Assertion, Record, Stand, Stands, TraceState
from cujit.devices.cpu.native.srgb import linear
from cujit.devices.cpu.native.state import BARRIERS, WARPS, Barrier, Block, Group, Place, Plan, State, Warp
from cujit.devices.cpu.run.launch import PLACE, SHARED_ALIGN, Control, Launch
from cujit.devices.cpu.run.textures import FORMATS, SURFACE_MARK, TEXTURE_MARK, Descriptor
from cujit.devices.textures import AddressMode

SOURCES = Path(__file__).parent.parent / "src" / "cujit" / "devices" / "cpu" / "runtime"
PROCESSORS = ("x86_64", "aarch64")

_LANGUAGE = ("-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-ffp-contract=off")
_DEFINED = ("-fwrapv", "-fno-strict-aliasing", "-fno-delete-null-pointer-checks", "-fno-finite-loops")
"""What C leaves undefined, and the run-time relies on."""
_PLAIN = ("-fno-sanitize=all", "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fPIC")
"""Against what zig asks clang for by itself."""
_PASSES = ("-O1", "-Xclang", "-disable-llvm-passes", "-Xclang", "-disable-lifetime-markers")
_OUTPUT = (*_PASSES, "-fno-discard-value-names", "-g0", "-S", "-emit-llvm")

_LEFT_OUT = re.compile(
    r"^target .*\n|^!llvm\.(?:module\.flags|ident) .*\n"
    r'| "[-\w]+"="[^"]*"'
    r"| (?:noundef|inbounds|noalias)\b| (?:memory|allocsize)\([^)]*\)|, !(?:range|noundef) !\d+",
    re.MULTILINE,
)
"""Names of processors, and of what they can do: LLVM takes the user's where none is named. And what C promises that
others would have to keep: that arguments are defined, that pointers point into what they are made of, how libc is."""

STRUCTURES: dict[str, dict[str, type[ctypes.Structure]]] = {
    "launch.h": {"Launch": Launch},
    "state.h": {"Barrier": Barrier, "Meeting": Place, "Warp": Warp, "Group": Group, "Block": Block, "Plan": Plan},
    "guard.h": {"Control": Control, "Stand": Stand, "Stands": Stands},
    "textures.h": {"Descriptor": Descriptor, "Exchange": Exchange},
    "output.h": {"Printed": Record, "Assertion": Assertion},
    "trace.h": {"TraceState": TraceState},
    "checks.h": {
        name: getattr(checkstate, name) for name in ("Span", "Watch", "Record", "Entry", "Slot", "Tracker", "Place")
    },
}
"""Those that C and Python share: by the header that has them, and by their names in C."""


def make(directory: Path, sources: Path) -> None:
    """Compile every part into a directory, and put ``numbers.h`` there."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "numbers.h").write_text(numbers())
    clang = Clang(sources)
    hold_structures(clang)
    for processor in PROCESSORS:
        (directory / processor).mkdir(exist_ok=True)
        for source in sorted(sources.glob("*.c")):
            clang.compile(source.name, processor, directory / processor / f"{source.stem}.bc")


# -- what C and Python both know ----------------------------------------------------------------------------


def numbers() -> str:
    """Write the header of the numbers that Python knows."""
    enums = (
        _enum("FAULT", FaultKind.__members__),
        _enum("FORMAT", _by_place(FORMATS)),
        _enum("ADDRESS", {name: mode.value for name, mode in AddressMode.__members__.items()}),
        _enum("BOUNDS", _by_place(BOUNDS)),
        _enum("SURFACE", _by_place(OPERATIONS)),
        _enum("STATE", {name: number for name, number in vars(State).items() if name.isupper()}),
        _enum("CHECK", checkstate.checks_bits()),
        _enum("ACCESS", checkstate.Access.__members__),
        _enum("SPACE", checkstate.Space.__members__),
        _enum("CODE", checkstate.Code.__members__),
        f"enum {{ WARP = {WARP}, WARPS = {WARPS}, BARRIERS = {BARRIERS}, OBJECTS = {checkstate.OBJECTS} }};\n",
    )
    marks = {
        "TEXTURE_MARK": f"{TEXTURE_MARK:#x}ull",
        "SURFACE_MARK": f"{SURFACE_MARK:#x}ull",
        "TRACE_DONE": f"{DONE}u",
        "PLACE": f"{PLACE}",
        "SHARED_ALIGN": f"{SHARED_ALIGN}",
        "STANDS": f"{STANDS}",
    }
    defines = [f"#define {name} {value}" for name, value in marks.items()]
    tables = (
        _table("unsigned char PATTERN", [f"{byte:#04x}" for byte in checkstate.PATTERN], 8),
        "/* The linear value of each sRGB code. */",
        _table("float SRGB", [f"{linear(code).hex()}f" for code in range(256)], 4),
    )
    head = "/* What Python knows too. Made by tools/runtime.py. */\n\n#pragma once\n\n"
    return head + "\n".join([*enums, *defines, "", *tables])


def _by_place(names: Iterable[str]) -> dict[str, int]:
    return {name: k for k, name in enumerate(names)}


def _enum(prefix: str, numbers: Mapping[str, int]) -> str:
    items = "".join(f"  {prefix}_{name.upper()} = {int(number)},\n" for name, number in numbers.items())
    return f"enum {{\n{items}}};\n"


def _table(name: str, values: list[str], each: int) -> str:
    rows = "".join(f"  {', '.join(values[k : k + each])},\n" for k in range(0, len(values), each))
    return f"static const {name}[{len(values)}] = {{\n{rows}}};\n"


def hold_structures(clang: Clang) -> None:
    """Have the compiler compare the places of all fields in C and in Python."""
    for header, structures in STRUCTURES.items():
        lines = [f'#include "{header}"', *(line for pair in structures.items() for line in _assertions(*pair))]
        for processor in PROCESSORS:
            clang.check("\n".join([*lines, ""]), processor)


def _assertions(in_c: str, structure: type[ctypes.Structure]) -> Iterator[str]:
    name = f"struct {in_c}"
    sizes = {f"sizeof({name})": ctypes.sizeof(structure)}
    for field, type_, *_ in structure._fields_:
        sizes[f"offsetof({name}, {field})"] = getattr(structure, field).offset
        sizes[f"sizeof((({name} *)0)->{field})"] = ctypes.sizeof(type_)
    yield from (f'_Static_assert({text} == {size}, "as Python has it");' for text, size in sizes.items())


# -- the compiler -------------------------------------------------------------------------------------------


class Clang:
    """The compiler, which finds its sources in one folder."""

    def __init__(self, sources: Path) -> None:
        self._sources = sources

    def compile(self, source: str, processor: str, target: Path) -> None:
        """Write the bitcode of a source for a processor."""
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "part.ll"
            self._run(processor, *_LANGUAGE, *_DEFINED, *_PLAIN, *_OUTPUT, source, "-o", str(text))
            text.write_text(_LEFT_OUT.sub("", text.read_text()))
            self._run(processor, "-w", *_PASSES, "-c", "-emit-llvm", str(text), "-o", str(target))

    def check(self, text: str, processor: str) -> None:
        """Compile C, and forget what comes of it."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "check.c"
            file.write_text(text)
            self._run(
                processor,
                *_LANGUAGE,
                "-Wno-unused-function",
                "-I",
                str(self._sources),
                "-c",
                str(file),
                "-o",
                f"{file}.o",
            )

    def _run(self, processor: str, *options: str) -> None:
        command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{processor}-linux-gnu", *options]
        done = subprocess.run(command, cwd=self._sources, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)


if __name__ == "__main__":
    given = [Path(argument).absolute() for argument in sys.argv[1:3]]
    make(given[0] if given else SOURCES, given[1] if len(given) > 1 else SOURCES)
