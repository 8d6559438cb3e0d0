"""CUDA Tile C++ to machine code or PTX: compiled to Tile IR once, which tileiras then compiles for each target."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cujit.artifact import ImageKind
from cujit.compiler.inputs.kernels import TILES_ALONE
from cujit.compiler.inputs.source import Source
from cujit.compiler.jobs import CompileJob
from cujit.compiler.linking import require_taken
from cujit.compiler.options.values import Options, Tool
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.errors import OptionError
from cujit.errors.hints import Hint

_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_MARK = "__tile_global__"


def has_tile_kernels(source: Source) -> bool:
    """Return whether a source of CUDA C++ has tile kernels, as far as its own text shows."""
    return _MARK in source.text and _MARK in _NO_CODE.sub(" ", source.text)


def as_tile_ir(source: Source, names: Sequence[str] | str, options: Options, runner: Runner) -> tuple[Source, Options]:
    """Compile tile kernels to Tile IR, and return it with the options for tileiras. Return other sources unchanged.

    Each option is passed to the tools that support it, and ``extra`` is for NVRTC.

    Raises:
        CompileError: the source doesn't compile.
        OptionError: the source or a header also contains other kernels, or neither tool supports an option.
        CujitError: see ``Runner.get``.
    """
    if not has_tile_kernels(source):
        return source, options
    require_taken(options, [Tool.NVRTC, Tool.TILEIRAS])
    job = CompileJob(Request.of(source, ImageKind.TILEIR, None, names, options.only(Tool.NVRTC), runner))
    made = runner.get(job)
    if TILES_ALONE in made.log:
        raise OptionError(
            f"{source.name} contains both tile kernels and __global__ kernels, which need separate images:\n{made.log}",
            help=Hint(
                "move the __global__ kernels to another source, or compile only the tile kernels with to='tileir'",
                shell="move the __global__ kernels to another file, or compile only the tile kernels with --to tileir",
            ),
            code="option-rejected",
        )
    return Source.tile(made, name=source.name), options.only(Tool.TILEIRAS, extra=False)
