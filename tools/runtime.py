"""Compile the C of the CPU device's run-time and of the emulator to LLVM bitcode.

``python tools/runtime.py`` writes ``x86_64/*.bc``, ``aarch64/*.bc``, and which functions are in them, beside the
``*.c`` of ``devices/cpu/runtime`` and ``emulator/native`` in ``src/cujit``. With
``directory [sources]`` it writes what is made of one of them, the run-time or ``sources``, there. The compiler is the
clang of the wheel ``ziglang``. Numbers and structures that Python knows too come to C in ``shared.h``, which is made
here of what Python says and is kept nowhere; the compiler holds that it lays them out as Python does.

LLVM reads bitcode of older releases, and of no newer one: this clang is older than the LLVM of every llvmlite that
cujit allows. Nothing is optimised here, so that the bitcode promises to LLVM what C does, and no more; the user's LLVM
optimises it for the user's processor.
"""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from cujit.devices.cpu.ir.program import WARP
from cujit.devices.cpu.native import checking, counting, structures
from cujit.devices.cpu.native.shared import Fields, Shared
from cujit.devices.cpu.native.structures import FaultKind
from cujit.devices.cpu.run.launch import (
    BLENDED,
    PLACE,
    SHARED_UNIT,
    SYSTEM_BYTES,
    WINDOW_BITS,
    WORKSPACE_BYTES,
    Launch,
)
from cujit.devices.cpu.run.tensormap import ELEMENT_BYTES, ROUNDED
from cujit.devices.cpu.run.textures import FORMATS, SURFACE_MARK, TEXTURE_MARK
from cujit.devices.textures.texture import AddressMode
from cujit.emulator import structures as emulated
from cujit.emulator.results import Result

DEVICES = Path(__file__).parent.parent / "src" / "cujit" / "devices"
SOURCES = DEVICES / "cpu" / "runtime"
EMULATOR = DEVICES.parent / "emulator" / "native"
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
    r"| (?:noundef|inbounds|noalias|unnamed_addr)\b| zeroext(?= i1 )| (?:memory|allocsize)\([^)]*\)"
    r"|, !(?:range|noundef) !\d+",
    re.MULTILINE,
)
"""Names of processors, and of what they can do: LLVM takes the user's where none is named. And what C promises that
others would have to keep: that arguments are defined, that a bool fills its register, that pointers point into what
they are made of, how libc is."""


def make(directory: Path, sources: Path) -> None:
    """Compile every part into a directory."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "shared.h").write_text(_HEADERS.get(sources, shared)())
        functions: dict[str, list[str]] = {}
        for processor in PROCESSORS:
            (directory / processor).mkdir(parents=True, exist_ok=True)
            for source in sorted(sources.glob("*.c")):
                target = directory / processor / f"{source.stem}.bc"
                functions[source.stem] = _compile(source, processor, Path(folder), target)
    lines = (" ".join([part, *names]) + "\n" for part, names in functions.items())
    (directory / "functions.txt").write_text("".join(lines))


# -- what C and Python both know ----------------------------------------------------------------------------

# The linear values of sRGB codes that are not the transfer function's, rounded to 8 bits.
_ODD = {
    12: 60 / 2**14, 15: 78 / 2**14, 19: 107 / 2**14, 20: 115 / 2**14, 32: 236 / 2**14, 33: 250 / 2**14,
    65: 864 / 2**14, 66: 896 / 2**14, 68: 236 / 2**12, 70: 1000 / 2**14, 97: 1952 / 2**14, 184: 123 / 256,
    186: 126 / 256, 249: 242 / 256, 250: 244 / 256, 251: 246 / 256, 252: 250 / 256, 253: 252 / 256,
}  # fmt: skip


def linear(code: int) -> float:
    """Decode sRGB as an H200 does: to 8 bits, with a line of slope 5/64 for small codes.

    Source: measured on all 256 codes. IEC 61966-2-1, the transfer function.
    """
    if code < 12:
        return code * 5 / 2**14
    value = code / 255
    linear: float = ((value + 0.055) / 1.055) ** 2.4
    unit: float = 2.0 ** (math.frexp(linear)[1] - 8)
    return _ODD.get(code, round(linear / unit) * unit)


def shared() -> str:
    """Write the header of the numbers and structures that Python knows."""
    enums = (
        _enum("FAULT", FaultKind.__members__),
        _enum("FORMAT", _by_place(FORMATS)),
        _enum("ADDRESS", {name: mode.value for name, mode in AddressMode.__members__.items()}),
        _enum("BOUNDS", _by_place(structures.BOUNDS)),
        _enum("SURFACE", _by_place(structures.OPERATIONS)),
        _enum("TYPE", _by_place(structures.ELEMENTS)),
        _enum("LAYOUT", _by_place(structures.LAYOUTS)),
        _enum("OPERATION", _by_place(structures.PRODUCTS)),
        _enum("ROUND", _by_place(structures.ROUNDINGS)),
        _enum("DIRECTED", _by_place(structures.DIRECTED)),
        _enum("SHAPE", _by_place(structures.TENSOR_SHAPES)),
        _enum("KIND", _by_place(structures.TENSOR_KINDS)),
        _enum("COPY", _by_place(structures.TENSOR_COPIES.values())),
        _enum("TENSOR", structures.TensorFault.__members__),
        _enum("STATE", structures.State.__members__),
        _enum("CHECK", checking.checks_bits()),
        _enum("ACCESS", checking.Access.__members__),
        _enum("SPACE", checking.Space.__members__),
        _enum("CODE", checking.Code.__members__),
        _enum("REACH", checking.Reach.__members__),
        _enum("COUNT", counting.Count.__members__),
    )
    numbers = {
        "WARP": f"{WARP}",
        "TEXTURE_MARK": f"{TEXTURE_MARK:#x}ull",
        "SURFACE_MARK": f"{SURFACE_MARK:#x}ull",
        "PLACE": f"{PLACE}",
        "BLENDED": f"{BLENDED}",
        "SHARED_UNIT": f"{SHARED_UNIT}",
        "SYSTEM_BYTES": f"{SYSTEM_BYTES}",
        "WORKSPACE_BYTES": f"{WORKSPACE_BYTES}",
        "WINDOW": f"{1 << WINDOW_BITS}ull",
        "ROUNDED": f"{sum(1 << number for number in ROUNDED)}u",
        "TRACE_DONE": f"{structures.TRACE_DONE}u",
        "NO_NUMBER": f"{structures.NO_NUMBER:#x}u",
        **{name: f"{getattr(structures, name)}" for name in (*_NUMBERS, *_COPYING)},
        **{name: f"{getattr(checking, name)}" for name in _CHECKING},
        **{name: f"{getattr(counting, name)}" for name in _COUNTING},
    }
    defines = [f"#define {name} {value}" for name, value in numbers.items()]
    tables = (
        _table("unsigned char PATTERN", [f"{byte:#04x}" for byte in checking.PATTERN], 8),
        "/* The least normal number of each type of elements of a matrix, as an f32 has it in its bits. */",
        _table("unsigned FLOORS", [f"{structures.exponent_floor(type_):#x}" for type_ in structures.ELEMENTS], 8),
        "/* Bytes of an element of a tensor, by its type. */",
        _table("unsigned char ELEMENT_BYTES", [f"{ELEMENT_BYTES[number]}" for number in sorted(ELEMENT_BYTES)], 16),
        "/* The linear value of each sRGB code. */",
        _table("float SRGB", [f"{linear(code).hex()}f" for code in range(256)], 4),
    )
    head = "/* What Python knows too. Made by tools/runtime.py. */\n\n#pragma once\n\n"
    return head + "\n".join([*enums, *defines, "", *tables, *map(_structure, _of_package("cujit.devices"))])


def _of_package(package: str) -> list[type[Shared]]:
    return [each for each in Shared.__subclasses__() if each.__module__.startswith(package)]


def of_emulator() -> str:
    """Write the header of what the emulator's C and Python know: launches of the CPU device are among it."""
    words = "".join(
        f"typedef {sign}int{bits}_t {sign[:1] or 'i'}{bits};\n" for sign in ("", "u") for bits in (8, 16, 32, 64)
    )
    enums = (
        _enum("RESULT", Result.__members__),
        _enum("CELL", emulated.CellKind.__members__),
        _enum("BLOCK", emulated.BlockKind.__members__),
        _enum("TEXT", emulated.BootText.__members__),
        _enum("CAPTURE", emulated.CaptureStatus.__members__),
        _enum("ASK", emulated.CaptureQuestion.__members__),
        _enum("STEP", emulated.StepKind.__members__),
    )
    head = f"/* Made by tools/runtime.py. */\n\n#pragma once\n\n#include <stddef.h>\n#include <stdint.h>\n\n{words}\n"
    head += f"#define CELL_BYTES {emulated.CELL_BYTES}\n#define GO_ON {emulated.GO_ON}\n"
    return head + "\n".join([*enums, _structure(Launch), *map(_structure, _of_package("cujit.emulator"))])


_HEADERS = {EMULATOR: of_emulator}

_NUMBERS = ("WARPS", "BARRIERS", "AT_ANY", "AT_PHASE", "AT_CLUSTER", "GROUP_WARPS", "SKIPS", "STANDS")
_CHECKING = ("SLOTS", "CLUSTER_BARRIER", "OBJECTS", "BLOCK_CLOCKS", "TELLERS", "RECENT", "SPANS", "LOG",
             "SCATTERED", "PATTERNS", "PATTERN_STEPS", "FAR_STEPS", "LINKS", "PATH", "WRITTEN_ROWS", "PRODUCTS",
             "VALUES", "STORES", "LEAST_ADDRESS", "MOST_ADDRESS")  # fmt: skip
_COUNTING = ("COUNTS", "PICTURES", "ACCESSED_UPDATES", "ACCESSED_LOADS")
_COPYING = ("ALL_COPIES", "BOX_ALIGN", "MBARRIER_NEXT_AT", "MBARRIER_BYTES_AT", "MBARRIER_PHASE_AT",
            "MBARRIER_COUNT", "MBARRIER_BYTES", "WRITES")  # fmt: skip


def _by_place(names: Iterable[str]) -> dict[str, int]:
    return {name: k for k, name in enumerate(names)}


def _enum(prefix: str, numbers: Mapping[str, int]) -> str:
    items = "".join(f"  {prefix}_{name.upper()} = {int(number)},\n" for name, number in numbers.items())
    return f"enum {{\n{items}}};\n"


def _table(name: str, values: list[str], each: int) -> str:
    rows = "".join(f"  {', '.join(values[k : k + each])},\n" for k in range(0, len(values), each))
    return f"static const {name}[{len(values)}] = {{\n{rows}}};\n"


def _structure(structure: type[Shared]) -> str:
    """Declare a structure, and have the compiler compare the places of its fields with Python's."""
    name, fields = f"struct {structure.__name__}", structure._fields_
    assert isinstance(fields, Fields)
    sizes = {f"sizeof({name})": ctypes.sizeof(structure)}
    for field, type_ in fields:
        sizes[f"offsetof({name}, {field})"] = getattr(structure, field).offset
        sizes[f"sizeof((({name} *)0)->{field})"] = ctypes.sizeof(type_)
    declared = "".join(f"  {each.strip()};\n" for each in fields.text.split(";"))
    held = "".join(f'_Static_assert({text} == {size}, "as Python has it");\n' for text, size in sizes.items())
    return f"{name} {{\n{declared}}};\n{held}"


# -- the compiler -------------------------------------------------------------------------------------------


_GATHER = """
  %wide = zext i32 %bytes to i64
  %is_word = icmp eq i64 %wide, 4
  %low = select i1 %is_word, i64 0, i64 3
  %low.one = insertelement <8 x i64> zeroinitializer, i64 %low, i64 0
  %low.all = shufflevector <8 x i64> %low.one, <8 x i64> zeroinitializer, <8 x i32> zeroinitializer
  %numbers = load <8 x i64>, ptr %at, align 8
  %rest = and <8 x i64> %numbers, %low.all
  %begins = sub <8 x i64> %numbers, %rest
  %places = inttoptr <8 x i64> %begins to <8 x ptr>
  %words = call <8 x i32> @llvm.masked.gather.v8i32.v8p0(
    <8 x ptr> %places, i32 1, <8 x i1> ALL, <8 x i32> zeroinitializer)
  %rest.small = trunc <8 x i64> %rest to <8 x i32>
  %shifts = mul <8 x i32> %rest.small, EIGHT
  %moved = lshr <8 x i32> %words, %shifts
  %bits = mul i32 %bytes, 8
  %unused = sub i32 32, %bits
  %mask = lshr i32 -1, %unused
  %mask.one = insertelement <8 x i32> zeroinitializer, i32 %mask, i64 0
  %mask.all = shufflevector <8 x i32> %mask.one, <8 x i32> zeroinitializer, <8 x i32> zeroinitializer
  %found = and <8 x i32> %moved, %mask.all
  store <8 x i32> %found, ptr %into, align 4
  ret void
""".replace("ALL", f"<{', '.join(['i1 true'] * 8)}>").replace("EIGHT", f"<{', '.join(['i32 8'] * 8)}>")
"""What ``gather`` does, by an instruction that C has no word for. It reads the words of 32 bits that elements are in:
no word lies in two pages.
"""

_GATHERING = re.compile(r"(define internal void @gather\([^\n]*\{)\n.*?\n\}", re.DOTALL)
_DECLARED = "\ndeclare <8 x i32> @llvm.masked.gather.v8i32.v8p0(<8 x ptr>, i32, <8 x i1>, <8 x i32>)\n"


def _compile(source: Path, processor: str, folder: Path, target: Path) -> list[str]:
    """Write the bitcode of a part for a processor, and list its functions; ``folder`` has the shared header."""
    text = folder / "part.ll"
    options = (*_LANGUAGE, *_DEFINED, *_PLAIN, *_OUTPUT, f"-I{folder}")
    _run(source.parent, processor, *options, source.name, "-o", str(text))
    code = _LEFT_OUT.sub("", text.read_text())
    code, gathers = _GATHERING.subn(lambda found: f"{found[1]}{_GATHER}}}", code)
    text.write_text(code + _DECLARED * gathers)
    functions = re.findall(r"^define (?!internal).*?@(cujit_\w+)\(", text.read_text(), re.MULTILINE)
    _run(source.parent, processor, "-w", *_PASSES, "-c", "-emit-llvm", str(text), "-o", str(target))
    return functions


def _run(folder: Path, processor: str, *options: str) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{processor}-linux-gnu", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


if __name__ == "__main__":
    given = [Path(argument).absolute() for argument in sys.argv[1:3]]
    for sources in (SOURCES, EMULATOR) if not given else (given[1] if len(given) > 1 else SOURCES,):
        make(given[0] if given else sources, sources)
