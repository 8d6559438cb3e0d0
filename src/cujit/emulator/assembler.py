"""The assembler that replaces NVIDIA's ``ptxas``. It accepts the same options, checks PTX, and writes it into a
container.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence, Set
from pathlib import Path

from cujit.arch import Arch
from cujit.artifact.writing import write_file
from cujit.errors import CujitError
from cujit.formats.container import Container, write_container
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.validity import check_module

RELEASE = "13.5"
"""That of the newest toolkit whose PTX is known; clients write PTX for the release of their assembler."""

_VERSION = f"""ptxas: cujit's, which writes PTX into a container for the emulator
Cuda compilation tools, release {RELEASE}, V{RELEASE}.0"""

# Source: ptxas --help of CUDA 13.5, as far as clients say options; others have their value behind "=".
_WITH_VALUE = {
    "-o": "output", "--output-file": "output", "-arch": "arch", "--gpu-name": "arch",
    "-O": "", "--opt-level": "", "-maxrregcount": "", "--maxrregcount": "", "--options-file": "", "-optf": "",
}  # fmt: skip
_VERBOSE, _RELOCATABLE = ("-v", "--verbose"), ("-c", "--compile-only")


def main(arguments: Sequence[str]) -> int:
    """Assemble by the options of a command line, and return the exit status."""
    options: dict[str, str] = {"output": "elf.o", "arch": "sm_75"}
    files, words = [], list(arguments)
    while words:
        word = words.pop(0)
        option, equals, value = word.partition("=")
        if word in ("--version", "-V"):
            print(_VERSION)
            return 0
        if option in _WITH_VALUE:
            options[_WITH_VALUE[option]] = value if equals else words.pop(0) if words else ""
        elif not word.startswith("-"):
            files.append(Path(word))
    if len(files) != 1:
        return _fail(f"one input file is expected, and there are {len(files)}")
    return _assemble(files[0], Path(options["output"]), options["arch"], {*arguments})


def _assemble(source: Path, output: Path, arch: str, options: Set[str]) -> int:
    try:
        text = source.read_bytes().rstrip(b"\0")
        written = text.decode(errors="replace")
        module = parse(written, name=str(source))
        check_module(module, written, str(source))
        is_relocatable = not options.isdisjoint(_RELOCATABLE)
        write_file(output, write_container(Container(text, Arch.parse(arch), is_relocatable)))
    except OSError as e:
        return _fail(f"{e.filename}: {e.strerror}")
    except CujitError as e:
        return _fail(str(e))
    if not options.isdisjoint(_VERBOSE):
        for entry in module.entries:
            print(f"ptxas info    : {entry.name} for {arch} was kept as PTX", file=sys.stderr)
    return 0


def _fail(words: str) -> int:
    print(f"ptxas fatal   : {words}", file=sys.stderr)
    return 255
