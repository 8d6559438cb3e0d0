"""Machine code as text, by NVIDIA's disassembler ``nvdisasm``."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from cuda import pathfinder

from cujit.arch.support import install
from cujit.artifact.writing import temporary_directory, write_file
from cujit.errors import FormatError, MissingError, NameNotFoundError, ToolError, spell
from cujit.formats.container import read_container
from cujit.formats.elf import ElfSymbol, read_elf

_TIMEOUT_S = 120.0
_HELP = f"{install('sass')} brings it (the wheel nvidia-cuda-nvdisasm); a toolkit in CUDA_HOME or on the PATH does too"


def find_nvdisasm() -> Path:
    """Return the path of the disassembler in a wheel, in conda, in CUDA_PATH or CUDA_HOME, or on the PATH, in this
    order.

    Raises:
        MissingError: there is none. The hint names the extra that installs it.
    """
    found = next(_in_wheels(), None) or _by_pathfinder() or shutil.which("nvdisasm")
    if found is None:
        raise MissingError("can't find nvdisasm: it is not in a wheel, in CUDA_HOME, or on the PATH", help=_HELP)
    return Path(found)


def _in_wheels() -> Iterator[str]:
    """Return the disassemblers in wheels, newest toolkit first. pathfinder 1.3 doesn't know their path in 13.x."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):  # a finder that hides it, or a module of that name without a spec
        return
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(root).glob("cu[0-9]*/bin/nvdisasm"), reverse=True):
            if os.access(path, os.X_OK):
                yield str(path)


def _by_pathfinder() -> str | None:
    try:
        found: str | None = pathfinder.find_nvidia_binary_utility("nvdisasm")
    except (AttributeError, RuntimeError, OSError):  # before 1.3.4 it has no such function
        return None
    return found


def disassemble(cubin: bytes, kernels: Sequence[str] = (), *, nvdisasm: Path | None = None, lines: bool = False) -> str:
    """Write a cubin's machine code as text: the code of ``kernels`` (lowered names), or all of it.

    ``lines`` has comments say which lines of the source and of the PTX an instruction comes from, if that is known.

    Raises:
        MissingError: nvdisasm is not installed.
        FormatError: the cubin is damaged, or has PTX alone, from a linker under ``cujit emulate``.
        NameNotFoundError: it has no such kernel.
        ToolError: nvdisasm refused the cubin, or did not end within 120 s.
    """
    tool, cubin = nvdisasm or find_nvdisasm(), _machine_code(cubin)
    options = ["-g", "-gp"] if lines else []
    options += ["-fun", ",".join(map(str, _symbols(cubin, kernels)))] if kernels else []
    # The smallest takes nvdisasm a third of a second; what is large is not kept.
    run = _text if len(cubin) <= 1 << 20 else _text.__wrapped__
    return run((os.fspath(tool), "-c", *options), cubin)


def _machine_code(cubin: bytes) -> bytes:
    held = read_container(cubin)
    if held is None or held.cubin:
        return cubin if held is None else held.cubin
    raise FormatError("the image was created by cujit emulate and contains only PTX, not machine code")


@functools.lru_cache(maxsize=8)
def _text(command: tuple[str, ...], cubin: bytes) -> str:
    """Disassemble. A repeated request is answered from memory, as when only a launch in the explorer changed."""
    # nvdisasm reads files alone.
    with temporary_directory() as directory:
        path = write_file(directory / "image.cubin", cubin)
        return _run([*command, os.fspath(path)])


def _symbols(cubin: bytes, kernels: Sequence[str]) -> list[int]:
    """The numbers of the kernels' symbols, by which nvdisasm knows functions."""
    known = {s.name: s.index for s in read_elf(cubin).symbols() if s.type == ElfSymbol.FUNCTION}
    missing = [name for name in kernels if name not in known]
    if missing:
        raise NameNotFoundError(
            f"this cubin doesn't contain the function {spell(missing[0])}",
            help=f"choose one of its functions: {', '.join(sorted(known)) or 'none'}",
        )
    return [known[name] for name in kernels]


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as e:
        raise ToolError(
            f"nvdisasm didn't finish within {_TIMEOUT_S:.0f} s",
            tool="nvdisasm",
            help="specify kernel names, because disassembling fewer kernels is faster",
        ) from e
    except OSError as e:
        raise MissingError(f"can't run {command[0]}: {e.strerror or e}", help=_HELP) from e
    if done.returncode:
        log = done.stderr.decode("utf-8", "backslashreplace")
        raise ToolError(f"nvdisasm rejects this cubin with exit status {done.returncode}", tool="nvdisasm", log=log)
    return done.stdout.decode("utf-8", "backslashreplace")
