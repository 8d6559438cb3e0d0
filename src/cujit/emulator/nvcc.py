"""A replacement for NVIDIA's ``nvcc``, which creates PTX, cubins, and fatbins. NVIDIA's ``nvcc`` still
builds programs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cujit.compiler.options.nvcc import NvccLine, read_nvcc
from cujit.compiler.options.values import read_options
from cujit.emulator.assembler import RELEASE
from cujit.errors import CujitError
from cujit.program import Request, runner
from cujit.workers.interpreter import interpreter

_VERSION = f"""nvcc: cujit's, which makes images for the emulator
Cuda compilation tools, release {RELEASE}, V{RELEASE}.0"""

_PREPROCESS = frozenset(("-E", "--preprocess"))
_COMMANDS = {"ptx": "compile", "cubin": "compile", "fatbin": "build"}
_OF_HEADERS = ("include", "define", "undef", "pre_include")
"""Options that decide which headers a source reads."""


def main(arguments: Sequence[str]) -> int:
    """Compile according to a command line, and return the exit status.

    The supported options are the nvcc options of ``cujit compile``. With ``--preprocess``, it prints the source and the
    texts of its headers. Clients derive the names of their cached results from this output.
    """
    if {"--version", "-V"} & {*arguments}:
        print(_VERSION)
        return 0
    words = [word for word in arguments if word not in _PREPROCESS]
    try:
        line = read_nvcc(words)
        files = [word for word in line.rest if not word.startswith("-")]
        if len(files) != 1:
            return _fail(f"one input file is expected, and there are {len(files)}")
        if len(words) < len(arguments):
            return _preprocess(files[0], line)
    except CujitError as e:
        return _fail(str(e))
    if not line.kind:
        real = _real_nvcc()
        if real is None:
            return _fail("under cujit emulate, nvcc makes --ptx, --cubin and --fatbin; a program needs NVIDIA's nvcc")
        return subprocess.run([real, *arguments], check=False).returncode
    output = [] if line.output else ["-o", f"{Path(files[0]).stem}.{line.kind}"]
    command = [interpreter(), "-m", "cujit", _COMMANDS[line.kind], *words, *output]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


def _real_nvcc() -> str | None:
    """Find the ``nvcc`` that is installed, which compiles programs."""
    own = Path(sys.argv[0]).parent
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which("nvcc", path=os.pathsep.join(place for place in places if Path(place) != own))


def _preprocess(source: str, line: NvccLine) -> int:
    options = read_options([word for word in line.option_words if word.partition("=")[0] in _OF_HEADERS])
    tools = runner(None)
    keyed = tools.keys and tools.keys.of_request(Request.of(Path(source), None, None, (), options, tools))
    manifest = getattr(keyed, "manifest", None)
    headers = [path for path, _ in (*manifest.files, *manifest.fresh)] if manifest else []
    for path in (source, *headers):
        sys.stdout.write(Path(path).read_text(errors="replace"))
    return 0


def _fail(words: str) -> int:
    print(f"nvcc fatal   : {words}", file=sys.stderr)
    return 1
