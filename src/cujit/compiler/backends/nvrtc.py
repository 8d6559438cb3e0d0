"""The back end for CUDA C++: a Request through NVRTC, with lowered names and signatures."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Sequence
from typing import Any

from cujit.arch.support import Version, install, require_arch
from cujit.artifact import Artifact, ImageKind
from cujit.compiler.backends.diagnostics import NAME_MAP, missing_header, parse_log, without_warnings_in
from cujit.compiler.backends.results import require_result
from cujit.compiler.inputs.host_code import STD_HEADER_OF, is_for_hosts, lines_for_hosts
from cujit.compiler.inputs.kernels import TILES_ALONE, launch_lines, plain_kernels
from cujit.compiler.inputs.prelude import DEPENDENT_LAUNCH
from cujit.compiler.options.values import newer_than
from cujit.compiler.recorded import RecordedNames, headers_may_hold_paths, may_hold_paths
from cujit.compiler.request import Request
from cujit.errors import (
    CompileError,
    Diagnostic,
    FormatError,
    HeaderNotFoundError,
    OptionError,
    ToolError,
    alike,
    counted,
)
from cujit.errors.hints import Hint, join_hints
from cujit.formats.mangling import SIGNATURE_PROBE, entity_name, probe_expression, signature_of
from cujit.formats.ptx.unused import without_unused
from cujit.formats.tileir import read_tileir
from cujit.signature import Signature
from cujit.toolchain.aliases import aliases, as_recorded
from cujit.toolchain.cuda_names import header_for
from cujit.toolchain.nvrtc import Program
from cujit.toolchain.precompiled import NO_ROOM, precompiled_headers
from cujit.toolchain.process_state import leave_working_directory
from cujit.toolchain.std_headers import HOST_HEADERS, NVCC_WORDS, STD_HEADERS
from cujit.toolchain.stopping import Stop, current_stop, finish
from cujit.toolchain.toolset import Toolchain
from cujit.values import NamedTuple, dataclass, replace

_PROBE_HEADER = "cujit_signature.h"
_NOT_THEIRS = (_PROBE_HEADER, NAME_MAP, "__nv_nvrtc_builtin_header.h")
_PRAGMA = "#pragma nv_mangled_name "
# How NVRTC begins the message that follows every other about a name, and what it says of several functions.
_NO_REASON = "Error in parsing name expression"
_OVERLOADED = "overloaded function"
_SEED = "frandom-seed"
_SEED_SINCE = (12, 9)
"""The first NVRTC that takes a seed. Source: measured, NVRTC 12.0, 12.4, 12.6, 12.9, 13.2 and 13.5."""
_HOST_HEADER = Hint(
    "NVRTC compiles only GPU code, but <{0}> is a host header: set host_code='skip' to skip all host code, or "
    "host_headers='stub' for an empty header; <cuda/std/…> works in kernels",
    shell="NVRTC compiles only GPU code, but <{0}> is a host header: add -O host_code=skip to skip all host "
    "code, or -O host_headers=stub for an empty header; <cuda/std/…> works in kernels",
)
_DIALECT = Hint(
    "pass dialect='nvcc' to define {}: NVRTC predefines fewer names than nvcc",
    shell="pass -O dialect=nvcc to define {}: NVRTC predefines fewer names than nvcc",
)
_UNDEFINED = re.compile(
    r'identifier "(\w+)" is undefined|namespace "std" has no (?:actual )?member "(\w+)"|on (lambda) (?:is|requires)'
)
_HEADER_HELP = Hint(
    f"pass its directory (include=[…]) or its text (headers={{name: text}}); cujit also searches the directory "
    f"of a source file; {install('cu13')} installs the toolkit's headers",
    shell=f"pass its directory (-I DIR); cujit also searches the directory of a source file; {install('cu13')} "
    "installs the toolkit's headers",
)

_WHEELS = (
    (r"curand\w*\.h", "nvidia-curand"),
    (r"cuda_tile\.h", "nvidia-cuda-crt"),
    (r"(?:cuda_runtime|device_|driver_)\w*\.h", "nvidia-cuda-runtime"),
)
"""Headers that NVRTC does not bundle, and the wheels that have them; those of CUDA 12 have ``-cu12`` behind."""

_FOR_HOSTS_ALONE = HOST_HEADERS.keys() - STD_HEADERS.keys()

_FOR_HOSTS = "is not supported when compiling with NVRTC"
_HOST_FUNCTION = " not allowed in JIT mode"
"""What CCCL's headers give of releases before 13.1, which do not look for NVRTC."""

_LAUNCH = "kernel launch"
_DEVICE_LAUNCH = "device-side kernel launch"
_NESTED = Hint(
    "set rdc=True to compile kernels that launch kernels; cujit.jit and cujit.link add libcudadevrt for a GPU",
    shell="add -O rdc to compile kernels that launch kernels; cujit run and cujit link add libcudadevrt for a GPU",
)
_GUARD = Hint(
    "NVRTC compiles only GPU code{}. To skip main, launches and other host code, set host_code='skip', or put them "
    "between #ifndef __CUDACC_RTC__ and #endif. Launch the kernels from Python",
    shell="NVRTC compiles only GPU code{}. To skip main, launches and other host code, add -O host_code=skip, or put "
    "them between #ifndef __CUDACC_RTC__ and #endif. Launch the kernels from Python",
)

_SKIP = Hint(
    "NVRTC compiles only GPU code, but {} is for the host: set host_code='skip' to skip it, or put it between "
    "#ifndef __CUDACC_RTC__ and #endif",
    shell="NVRTC compiles only GPU code, but {} is for the host: add -O host_code=skip to skip it, or put it "
    "between #ifndef __CUDACC_RTC__ and #endif",
)

_UNMARKED = Hint(
    "mark the function __device__, or set default_device=True for all unmarked functions; set "
    "host_code='skip' to skip main and kernel launches: NVRTC compiles only GPU code",
    shell="mark the function __device__, or add -O default_device for all unmarked functions; add -O "
    "host_code=skip to skip main and kernel launches: NVRTC compiles only GPU code",
)

_TILES = Hint(
    "compile tile kernels of headers with image = cujit.compile(source, to='tileir'), and use "
    "cujit.Source.tile(image) as the source",
    shell="compile tile kernels of headers with --to tileir -o kernels.tileir, and use kernels.tileir as the source",
)

_DEVICE_HEADERS = (
    "include what kernels use by itself: <cub/block/block_reduce.cuh>, <cub/warp/warp_scan.cuh> …; algorithms of a "
    "whole device (cub::DeviceReduce, Thrust) are host code, which NVRTC does not compile"
)


# A build for several architectures reads the same names again and again.
_signature = functools.lru_cache(maxsize=1024)(signature_of)


@dataclass(frozen=True)
class _Expressions:
    """Name expressions for NVRTC: ``names`` go into the Artifact, and ``probes`` are names whose types are requested
    too.
    """

    names: tuple[str, ...]
    probes: tuple[str, ...]

    def without(self, failed: frozenset[str]) -> _Expressions:
        """Remove the expressions that didn't compile. An invalid name needs no probe either."""
        return _Expressions(
            tuple(n for n in self.names if n not in failed),
            tuple(p for p in self.probes if p not in failed and probe_expression(p) not in failed),
        )


def compile_cuda(request: Request, toolchain: Toolchain, headers: str = "") -> Artifact:
    """Compile CUDA C++ to PTX, a cubin, LTO-IR, OptiX IR, or Tile IR.

    ``headers`` identifies everything before the first declaration by content, so that it can be precompiled. Kernels
    that aren't templates are named automatically if the source text shows them. An invalid guess never fails a compile,
    and neither does an unreadable signature. Warnings about the toolkit's own headers are omitted.

    Raises:
        CompileError: the source doesn't compile or lacks a requested name.
        HeaderNotFoundError: an ``#include`` was not found.
        ArchError: this NVRTC doesn't support the architecture.
        OptionError: NVRTC doesn't accept an option.
        ToolchainNotFoundError: NVRTC is not installed.
    """
    nvrtc = toolchain.nvrtc
    require_arch(request.arch, nvrtc.arches, "NVRTC", nvrtc.version)
    arguments = request.arguments()
    if request.source.headers or any("include" in text for text in (request.source.text, *arguments)):
        toolchain.install_headers()
    arguments += [f"--include-path={path}" for path in toolchain.headers.paths]
    if nvrtc.version >= _SEED_SINCE and not any(a.lstrip("-").startswith(_SEED) for a in arguments):
        arguments.append(f"--{_SEED}={request.seed()}")
    shows_paths = may_hold_paths(request) or headers_may_hold_paths(request)
    recorded = RecordedNames.of(request, toolchain.headers.paths) if shows_paths else None
    if recorded is None:
        return _named(_Compile(request, toolchain, arguments, None, headers))
    with aliases().open(recorded.directories) as are_open:
        if not are_open:
            return _named(_Compile(request, toolchain, arguments, None))
        return _named(_Compile(request, toolchain, recorded.arguments(arguments), recorded))


class _Compile(NamedTuple):
    """A request with NVRTC's arguments, and the aliases that replace directories in them."""

    request: Request
    toolchain: Toolchain
    arguments: list[str]
    recorded: RecordedNames | None
    headers: str = ""

    @property
    def program_name(self) -> str:
        """The program name that NVRTC receives."""
        return self.request.source.program_name if self.recorded is None else self.recorded.program_name

    def shown(self, log: str) -> str:
        """Return NVRTC's log for users, under the source's name, without warnings about toolkit headers."""
        source = self.request.source
        here = log.replace(self.program_name, source.name)
        if self.recorded is not None:
            here = self.recorded.as_here(here)
        return without_warnings_in((*_NOT_THEIRS, *self.toolchain.headers.paths), here)


def _named(compile: _Compile) -> Artifact:
    """Compile repeatedly until all invalid guessed names are removed."""
    request = compile.request
    mark = "__tile_global__" if request.kind is ImageKind.TILEIR else "__global__"
    wanted = tuple(dict.fromkeys((*request.names, *plain_kernels(request.source.text, mark))))
    expressions = _Expressions(wanted, wanted)
    while True:
        try:
            return _once(compile, expressions)
        except CompileError:
            raise
        except ToolError as e:
            error = e
        if NO_ROOM in error.log and compile.headers:
            compile = compile._replace(headers="")
            continue
        log = compile.shown(error.log)
        fewer = _without_failed(expressions, parse_log(log), request.names)
        if fewer is None or fewer == expressions:
            raise _explain(request, compile.toolchain, error, log) from None
        expressions = fewer


def _once(compile: _Compile, expressions: _Expressions) -> Artifact:
    request, toolchain, source = compile.request, compile.toolchain, compile.request.source
    headers = source.compiler_headers()
    headers.append((_PROBE_HEADER, DEPENDENT_LAUNCH + (SIGNATURE_PROBE if expressions.probes else "")))
    options = [*compile.arguments, f"--pre-include={_PROBE_HEADER}"]
    prefix = compile.headers and f"{compile.headers}{'s' if expressions.probes else ''}"
    is_wanted = None if request.options.get("pch") is None else bool(request.options["pch"])
    with (
        precompiled_headers().of(prefix, is_wanted) as precompiled,
        toolchain.nvrtc.program(
            source.text.encode(),
            os.fsencode(compile.program_name),
            [(name.encode(), text.encode()) for name, text in headers],
        ) as program,
    ):
        options += precompiled.arguments
        for expression in (*expressions.names, *map(probe_expression, expressions.probes)):
            program.add_name(expression.encode())
        with precompiled.measured(program):
            _compile(program, [os.fsencode(option) for option in options], compile.recorded)
        names = {name: program.lowered_name(name.encode()) for name in expressions.names}
        made = Artifact(
            request.kind,
            _image(program, request.kind, names.values()),
            None if request.kind is ImageKind.TILEIR else request.arch,
            names,
            _signatures(program, names, expressions.probes),
            compile.shown(program.log()) + _left_out(program, request.kind),
            source.name,
            toolchain.nvrtc.tool,
        )
        return require_result(made, request.options.extra, map(names.__getitem__, request.names))


def _compile(program: Program, options: Sequence[bytes], recorded: RecordedNames | None) -> None:
    """Compile in the working directory ``/``, because NVRTC writes the working directory into outputs that contain
    paths.
    """
    if recorded is None or not recorded.leaves:
        program.compile(options)
        return

    def compile_there() -> None:
        leave_working_directory()
        program.compile(options)

    finish(compile_there, current_stop() or Stop())


def _image(program: Program, kind: ImageKind, named: Collection[str]) -> bytes:
    if kind is ImageKind.PTX:
        return as_recorded(without_unused(program.ptx().decode(), named).encode(), is_text=True)
    if kind is ImageKind.CUBIN:
        return as_recorded(program.cubin(), is_text=False)
    if kind is ImageKind.TILEIR:
        return as_recorded(_tileir(program), is_text=False)
    return program.ltoir() if kind is ImageKind.LTOIR else program.optixir()


_PLACEHOLDER = "__$dummy_kernel"
"""The kernel that NVRTC writes if a source has no tile kernel. Source: NVRTC 13.5."""


_ENTRY = re.compile(r"^(?:\.\w+ )?\.entry ([\w$]+)", re.MULTILINE)


def _tileir(program: Program) -> bytes:
    made = program.tileir()
    if not made or (read_tileir(made).kernels or {}).keys() == {_PLACEHOLDER}:
        raise CompileError(
            "Tile IR requires a tile kernel, but the source contains none",
            help=Hint(
                "mark a kernel with __tile_global__, or set to='ptx'",
                shell="mark a kernel with __tile_global__, or use --to ptx",
            ),
        )
    return made


def _left_out(program: Program, kind: ImageKind) -> str:
    """Return the kernels that Tile IR lacks. NVRTC writes kernels of headers and others to PTX instead."""
    others = _ENTRY.findall(program.ptx().decode()) if kind is ImageKind.TILEIR else ()
    return f"{TILES_ALONE} {', '.join(entity_name(name) or name for name in others)}\n" if others else ""


def _signatures(program: Program, names: dict[str, str], probes: Sequence[str]) -> dict[str, Signature]:
    signatures = {}
    for name in probes:
        probed = program.lowered_name(probe_expression(name).encode())
        try:
            signatures[names[name]] = _signature(probed)
        except FormatError:
            continue  # a variable, or a type whose spelling is not known: the kernel works without
    return signatures


def _without_failed(
    expressions: _Expressions, diagnostics: Sequence[Diagnostic], required: Sequence[str]
) -> _Expressions | None:
    """Return the expressions for another attempt, or None if the failure is the user's own."""
    errors = _errors(diagnostics)
    if any(d.file == _PROBE_HEADER for d in errors):
        return replace(expressions, probes=())
    failed = frozenset(_expression(d) for d in errors if d.file == NAME_MAP)
    if not failed or not failed.isdisjoint(required):
        return None
    return expressions.without(failed)


_CUDA_H = "/include/cuda.h"
"""What the file of the driver's interface ends with, which is for the host."""


def _outside_cuda_h(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    return [d for d in diagnostics if not d.file.endswith(_CUDA_H)]


def _errors(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    return [d for d in diagnostics if d.severity == "error"]


def _expression(diagnostic: Diagnostic) -> str:
    return diagnostic.source_line.removeprefix(_PRAGMA).strip()


def _explain(request: Request, toolchain: Toolchain, error: ToolError, log: str) -> Exception:
    """Convert a failure of NVRTC into an error that explains the problem with the request."""
    if error.result == "NVRTC_ERROR_INVALID_OPTION":
        why = "; ".join(newer_than(toolchain.nvrtc.version, request.options)) or log.strip()
        return OptionError(
            f"{error.tool} rejects the arguments {' '.join(request.arguments())}: {why}",
            help=Hint(
                "see docs/options.md for the options; cujit passes extra=(…) to the compiler unchanged",
                shell="see docs/options.md for the options; cujit passes -O extra=… to the compiler unchanged",
            ),
            code="option-rejected",
        )
    diagnostics = parse_log(log)
    errors = _errors(diagnostics)
    facts: dict[str, Any] = {**error.facts, "diagnostics": diagnostics, "log": log}
    if header := missing_header(diagnostics):
        return HeaderNotFoundError(
            _no_header(request, toolchain, header, errors[0]),
            help=_header_help(header, request, toolchain.nvrtc.version),
            **facts,
        )
    if unnamed := [name for name in request.names if any(_names(d, name) for d in errors)]:
        return _explain_names(request, unnamed, facts)
    count = counted(len(errors), "error") if errors else error.result
    tiles_help = _TILES if request.kind is not ImageKind.TILEIR and _is_of_tiles(errors) else None
    is_of_cccl = bool(errors) and re.search("/(cub|thrust)/", errors[0].file) is not None
    is_for_hosts_first = is_of_cccl and _says(errors, _HOST_FUNCTION)
    return CompileError(
        f"{request.source.name} does not compile for {request.arch}: {count}\n{log.strip()}",
        help=tiles_help or (not is_for_hosts_first and _include_help(errors)) or _host_help(errors, request),
        **facts,
    )


def _is_of_tiles(errors: Sequence[Diagnostic]) -> bool:
    return bool(errors) and errors[0].file.endswith("/cuda_tile.h")


def _header_help(header: str, request: Request, version: Version) -> str:
    if "host_code" not in request.options and (header in _FOR_HOSTS_ALONE or is_for_hosts(header)):
        return _HOST_HEADER.format(header) if header in _FOR_HOSTS_ALONE else _SKIP.format(f"<{header}>")
    wheel = next((wheel for pattern, wheel in _WHEELS if re.fullmatch(pattern, header)), None)
    ending = "-cu12" if version[0] == 12 else ""
    return _HEADER_HELP if wheel is None else f"run `pip install {wheel}{ending}` to install <{header}>"


def _skip_help(errors: Sequence[Diagnostic], request: Request) -> str | None:
    """Name the option for errors in code that is for the host."""
    if "host_code" in request.options or not errors:
        return None
    if errors[0].file.endswith(_CUDA_H):
        return _SKIP.format("<cuda.h>")
    lines = {d.line for d in errors if d.file == request.source.name}
    place = min(lines & lines_for_hosts(request.source.text), default=0)
    return _SKIP.format(f"{request.source.name}:{place}") if place else None


def _dialect_help(errors: Sequence[Diagnostic], request: Request) -> str | None:
    """Name the option for words that nvcc has."""
    if "dialect" in request.options:
        return None
    own = (request.source.name, *(name for name, _ in request.source.headers))
    mine = [d for d in errors if d.file in own or d.file.startswith(request.include or own)]
    words = [_nvcc_word(match) for d in mine for match in _UNDEFINED.finditer(d.message)]
    named = [word for word in dict.fromkeys(words) if word]
    return _DIALECT.format(", ".join(named[:3])) if named else None


def _nvcc_word(match: re.Match[str]) -> str:
    if match[1] in NVCC_WORDS:
        return match[1]
    return "marks of lambdas" if match[3] else f"std::{match[2]}" if match[2] in STD_HEADER_OF else ""


def _include_help(errors: Sequence[Diagnostic]) -> str | None:
    """Return the header that declares the first name that the compiler doesn't know."""
    missing = next((found for found in map(header_for, errors) if found), None)
    return "write #include <{1}> in front of the code that uses {0}".format(*missing) if missing else None


def _host_help(errors: Sequence[Diagnostic], request: Request) -> str | None:
    """Return a hint for host code in a source, in terms of cujit's options."""
    is_unmarked = _says(_outside_cuda_h(errors), "-default-device")
    hint = _launch_help(errors, request, is_unmarked) or (None if is_unmarked else _skip_help(errors, request))
    if hint := hint or _dialect_help(errors, request):
        return hint
    refused = [d.file for d in errors if _HOST_FUNCTION in d.message]
    of_cub, of_thrust = (sum(folder in file for file in refused) for folder in ("/cub/", "/thrust/"))
    if _says(errors, _FOR_HOSTS) or of_cub > of_thrust:
        return _DEVICE_HEADERS
    if any("/thrust/" in d.file for d in errors):
        return "Thrust's containers and algorithms are host code, which NVRTC does not compile; <cub/…> is for kernels"
    return _UNMARKED if is_unmarked else None


def _launch_help(errors: Sequence[Diagnostic], request: Request, is_unmarked: bool) -> str | None:
    if _says(errors, _DEVICE_LAUNCH) and not (is_unmarked or request.options.get("default_device")):
        return _NESTED
    if "host_code" in request.options:
        return None
    if _says(errors, _LAUNCH) or ("host_headers" in request.options and not is_unmarked):
        place = next(iter(launch_lines(request.source.text)), 0)
        return _GUARD.format(f": {request.source.name}:{place} launches a kernel" if place else "")
    return None


def _says(errors: Sequence[Diagnostic], words: str) -> bool:
    return any(words in d.message for d in errors)


def _explain_names(request: Request, unnamed: Sequence[str], facts: dict[str, Any]) -> CompileError:
    """Explain which names are missing in the source, which are overloaded, and which refer to something else."""
    facts |= _without_ours(facts["diagnostics"], unnamed)
    why = {name: _messages_about(name, facts["diagnostics"]) for name in unnamed}
    overloaded = [name for name, messages in why.items() if any(_OVERLOADED in m for m in messages)]
    absent = [name for name in unnamed if name not in overloaded]
    parts = [f"has no {' and no '.join(absent)}"] if absent else []
    parts += [f"has more than one {name}: it is overloaded" for name in overloaded]
    reasons = [m for name in absent for m in why[name] if not m.startswith(_NO_REASON)]
    message = f"{request.source.name} {' and '.join(parts)}"
    helps: list[str] = [
        Hint(
            f"write names=['(void(*)(int*)){name}'], with the function's own parameter types",
            shell=f"write <-n> '(void(*)(int*)){name}', with the function's own parameter types",
        )
        for name in overloaded
    ]
    helps += [_suggest_names(request, absent)] if absent else []
    return CompileError("\n  ".join(dict.fromkeys([message, *reasons])), help=join_hints("; ", helps), **facts)


def _without_ours(diagnostics: Sequence[Diagnostic], unnamed: Sequence[str]) -> dict[str, object]:
    """Remove NVRTC's messages about cujit's own probes and guesses, which would confuse the user."""
    shown = tuple(d for d in diagnostics if d.file != NAME_MAP or _expression(d) in unnamed)
    return {"diagnostics": shown, "log": "\n".join(str(d) for d in shown if d.file != NAME_MAP)}


def _messages_about(name: str, diagnostics: Sequence[Diagnostic]) -> list[str]:
    return [d.message for d in diagnostics if d.file == NAME_MAP and _expression(d) == name]


def _names(diagnostic: Diagnostic, name: str) -> bool:
    return diagnostic.file == NAME_MAP and _expression(diagnostic) in (name, probe_expression(name))


def _suggest_names(request: Request, unnamed: Sequence[str]) -> str:
    kernels = plain_kernels(request.source.text)
    near = [k for name in unnamed for k in alike(name, kernels, most=2)]
    if near:
        return f"did you mean {', '.join(dict.fromkeys(near))}?"
    listed = f" (it has {', '.join(kernels)})" if kernels else ""
    return f"a name is written as C++ would: 'ns::kernel', 'kernel<float>', '&variable'{listed}"


def _no_header(request: Request, toolchain: Toolchain, header: str, error: Diagnostic) -> str:
    source = request.source
    searched = [f"headers in memory: {', '.join(n for n, _ in source.headers) or 'none'}"]
    if source.path and error.file == source.name:
        searched.append(f'beside {source.path} (for #include "…")')
    searched += [f"{directory} (include=)" for directory in source.include]
    searched += toolchain.headers.report().splitlines()
    place = f"{error.file}:{error.line}"
    return f"{place}: header {header} not found; searched:\n  " + "\n  ".join(searched)
