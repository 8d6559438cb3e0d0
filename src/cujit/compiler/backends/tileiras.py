"""The back end for Tile IR: a Request through tileiras, to a cubin, or to the PTX that the cubin contains."""

from __future__ import annotations

import re

from cujit.arch import Arch
from cujit.arch.support import dotted, require_arch
from cujit.artifact import Artifact, ImageKind
from cujit.compiler.backends.results import require_result
from cujit.compiler.inputs.images import kernels_of, named
from cujit.compiler.request import Request
from cujit.errors import (
    ArchError,
    CompileError,
    Diagnostic,
    FormatError,
    OptionError,
    ToolCrashError,
    ToolError,
    alike,
)
from cujit.formats.cubin import Cubin, read_cubin
from cujit.formats.ptx.recovered import ptx_of_cubin
from cujit.formats.tileir import first_release_for, read_tileir
from cujit.toolchain.tileiras import Tileiras
from cujit.toolchain.toolset import Toolchain

# `#cuda_tile.di_loc<loc("k.py":3:0) in …>: error: …`, `k.py:3:1: error: …`, and `error: error at offset 10: …`.
_PLACED = re.compile(
    r'(?:[^"\n]*loc\("(?P<quoted>[^"\n]+)":|(?P<file>[^\s:"][^\n:"]*):)(?P<line>\d+):(?P<column>\d+)'
    r"(?:\).*>)?: (?P<severity>error|warning): (?P<message>.+)"
)
_UNPLACED = re.compile(r"(?P<severity>error|warning): (?:error: )?(?P<message>.+)")
_ARGUMENT = re.compile(r"^tileiras: (.+?)(?:\s+Try: .*)?$", re.MULTILINE)


def compile_tile(request: Request, toolchain: Toolchain) -> Artifact:
    """Assemble Tile IR. The Artifact names every kernel in it.

    Raises:
        CompileError: tileiras rejects the Tile IR, or its PTX requires values from a driver.
        ArchError: this tileiras doesn't support the architecture.
        OptionError: tileiras doesn't accept an option.
        ToolCrashError: tileiras crashed.
        ToolchainNotFoundError: tileiras is not installed.
    """
    program = toolchain.tileiras
    _require_arch(request.arch, program)
    (module,) = request.source.modules
    try:
        data, log = program.assemble(module.data, request.arguments())
    except ToolCrashError as e:
        raise ToolCrashError(
            f"{e.message} while assembling {request.source.name} for {request.arch}", **e.facts, help=e.help
        ) from None
    except ToolError as e:
        raise _explain(request, e, program.tool) from None
    cubin = read_cubin(data)
    names = _names(request, cubin)
    image, arch = (
        (_ptx(request, data, program.tool), cubin.arch.virtual) if request.kind is ImageKind.PTX else (data, cubin.arch)
    )
    taken = read_tileir(module.data).kernels or {}
    source = request.source.name
    made = Artifact(request.kind, image, _stated(request.arch, arch), names, taken, log, source, program.tool)
    return require_result(made, request.options.extra, names.values())


def _require_arch(arch: Arch, program: Tileiras) -> None:
    if arch.number in program.arches:
        require_arch(arch, program.arches, "tileiras", program.version)
        return
    since = first_release_for(arch)
    first = f"CUDA {dotted(since)} was the first that does" if since else "no release does"
    raise ArchError(
        f"{program.tool} can't compile Tile IR for {arch}: {first}",
        help=f"choose one of {', '.join(f'sm_{number}' for number in program.arches)}",
        code="arch-unsupported",
    )


def _stated(wanted: Arch, made: Arch) -> Arch:
    """Return the architecture of the image. For sm_90, tileiras generates code for sm_90a."""
    return made if made.number == wanted.number else wanted


def _ptx(request: Request, cubin: bytes, tool: str) -> bytes:
    try:
        return ptx_of_cubin(cubin).encode()
    except FormatError as e:
        raise CompileError(
            f"can't compile {request.source.name} to PTX for {request.arch}: {e.message}", tool=tool, help=e.help
        ) from None


def _names(request: Request, cubin: Cubin) -> dict[str, str]:
    kernels = kernels_of(cubin)
    known = {expression: lowered for expression, lowered in request.source.kernels if lowered in kernels}
    for name in request.names:
        if name not in known and name not in kernels:
            near = alike(name, kernels, most=2)
            raise CompileError(
                f"{request.source.name} doesn't contain {name}",
                help=f"did you mean {', '.join(near)}?" if near else f"it contains {', '.join(kernels) or 'nothing'}",
            )
    return named(known, kernels)


def _diagnostics(log: str, name: str) -> tuple[Diagnostic, ...]:
    found = []
    for line in map(str.strip, log.splitlines()):
        if match := _PLACED.fullmatch(line):
            place = match["quoted"] or match["file"], int(match["line"]), int(match["column"])
            found.append(Diagnostic(match["severity"], match["message"], *place))
        elif match := _UNPLACED.fullmatch(line):
            found.append(Diagnostic(match["severity"], match["message"], name))
    return tuple(found)


def _explain(request: Request, error: ToolError, tool: str) -> Exception:
    """Convert a failure of tileiras into an error that explains the problem with the request."""
    if refused := _ARGUMENT.search(error.log):
        return OptionError(
            f"{tool} rejects the arguments {' '.join(request.arguments())}: {refused[1]}",
            help="see docs/options.md for the options",
            code="option-rejected",
        )
    diagnostics = _diagnostics(error.log, request.source.name)
    reasons = "\n".join(map(str, diagnostics)) or error.log.strip() or error.result
    return CompileError(
        f"{request.source.name} does not compile for {request.arch}\n{reasons}",
        diagnostics=diagnostics,
        **{**error.facts, "tool": tool},
    )
