"""Build the launcher's C (``src/cujit/devices/launcher/native``) into one shared object for each processor.

``python tools/native.py`` writes ``x86_64/launcher.so`` and ``aarch64/launcher.so`` beside the C;
``python tools/native.py DIRECTORY`` writes them below ``DIRECTORY``. The compiler is the clang of the wheel
``ziglang``, so every machine builds the same bytes. Structures, numbers and tables that Python knows too reach C in
``shared.h``, which is written from Python for each build and kept nowhere.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cujit.compiler.keys.frame import UNSURE
from cujit.devices.arguments.cupy_arrays import CupyInterface
from cujit.devices.arguments.foreign_arrays import DescribedInterface, NumbaInterface
from cujit.devices.arguments.packer import OVERFLOW
from cujit.devices.arguments.tensors import TensorInterface
from cujit.devices.cuda.ring import MOST_LABELS, RING_ROW, RING_SIZE, RING_TAIL
from cujit.devices.launcher import library
from cujit.devices.launcher.layout import Field, FieldKind
from cujit.devices.launcher.library import FUNCTIONS, OBJECTS, PLACES
from cujit.devices.launcher.scalars import NumpyScalar, ScalarKind
from cujit.devices.launcher.state import (
    MOST_LAUNCHES,
    MOST_STAGED_BYTES,
    STAGED_AFTER,
    STAGING_BYTES,
    WANTS_STAGING,
    CubinCalls,
    LargeCopy,
    LaunchPattern,
    LaunchState,
    MemoryCalls,
    Unsettled,
)
from runtime import _DEFINED, _LANGUAGE, _PLAIN, PROCESSORS, _enum

NATIVE = Path(library.NATIVE)

_OUTPUT = ("-O2", "-g0", "-fvisibility=hidden", "-c")
_LINK = (
    "-shared",
    "--build-id=none",
    "--hash-style=both",
    "--gc-sections",
    "--strip-all",
    "-z",
    "noexecstack",
    "-z",
    "relro",
)
"""Linked against nothing, so that the same file loads with every C library; ``memcpy`` comes from the process."""

_STRUCTURES = (
    LaunchState,
    LaunchPattern,
    CubinCalls,
    MemoryCalls,
    Unsettled,
    LargeCopy,
    Field,
    NumpyScalar,
    TensorInterface,
    CupyInterface,
    NumbaInterface,
    DescribedInterface,
)
_WORDS: dict[type, str] = {
    ctypes.c_uint64: "u64", ctypes.c_int64: "i64", ctypes.c_uint32: "u32", ctypes.c_int32: "i32"
}  # fmt: skip


def shared() -> str:
    """Return the text of ``shared.h``: the structures, numbers and tables that the launcher's C and Python know."""
    head = f"/* Made by tools/native.py. */\n\n#pragma once\n\n#define FLOAT_OVERFLOW {OVERFLOW[4].hex()}\n"
    head += f"#define RING_SIZE {RING_SIZE}\n#define RING_ROW {RING_ROW}\n#define RING_TAIL {RING_TAIL}\n"
    head += f"#define STAGING_BYTES {STAGING_BYTES}\n#define MOST_STAGED_BYTES {MOST_STAGED_BYTES}\n"
    head += f"#define STAGED_AFTER {STAGED_AFTER}\n#define WANTS_STAGING {WANTS_STAGING}\n"
    head += f"#define TELLING_WORDS {', '.join(map(json.dumps, UNSURE))}\n"
    head += f"#define MOST_LAUNCHES {MOST_LAUNCHES}\n#define MOST_LABELS {MOST_LABELS}\n"
    head += _table("FUNCTIONS", FUNCTIONS) + _table("OBJECTS", (f"object_{name}" for name in OBJECTS))
    head += _table("PLACES", PLACES) + "\n"
    head += _enum("FIELD", {kind.name: kind.value for kind in FieldKind})
    head += _enum("SCALAR", {kind.name: kind.value for kind in ScalarKind})
    for structure in _STRUCTURES:
        name, fields = f"struct {structure.__name__}", structure._fields_
        head += f"{name} {{\n" + "".join(f"  {_WORDS[field[1]]} {field[0]};\n" for field in fields) + "};\n"
        head += f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "as Python has it");\n'
    return head


def _table(name: str, rows: Iterable[str]) -> str:
    return f"#define {name}(X) " + " ".join(f"X({row})" for row in rows) + "\n"


def build(directory: Path) -> None:
    """Write ``PROCESSOR/launcher.so`` for every processor below a directory."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "shared.h").write_text(shared())
        for processor in PROCESSORS:
            target = directory / processor / "launcher.so"
            target.parent.mkdir(parents=True, exist_ok=True)
            objects = [_object(source, processor, Path(folder)) for source in sorted(NATIVE.glob("*.c"))]
            _zig("ld.lld", *_LINK, *objects, "-o", str(target))
            target.chmod(0o644)


def _object(source: Path, processor: str, folder: Path) -> str:
    """Compile one file; return the path of the object."""
    target = str(folder / f"{source.stem}.o")
    options = (*_LANGUAGE, *_DEFINED, *_PLAIN, *_OUTPUT, f"-I{folder}")
    _zig("cc", "-target", f"{processor}-linux-gnu", *options, source.name, "-o", target)
    return target


def _zig(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", "ziglang", *command], cwd=NATIVE, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


if __name__ == "__main__":
    build(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else NATIVE)
