"""The back end for LLVM IR: a Request through libNVVM, to PTX, LTO-IR, or with nvJitLink to a cubin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cujit.arch.support import extra_for, install, require_arch
from cujit.artifact import Artifact, ImageKind
from cujit.compiler.backends.diagnostics import parse_log
from cujit.compiler.backends.results import require_result
from cujit.compiler.inputs.source import NvvmModule
from cujit.compiler.options.values import newer_than
from cujit.compiler.request import Request
from cujit.errors import ArchError, CompileError, Diagnostic, OptionError, ToolError, alike
from cujit.errors.hints import Hint
from cujit.toolchain.libraries import requesting_machine_code
from cujit.toolchain.nvvm import FIRST_OPAQUE, MODULE_HEAD, Nvvm
from cujit.toolchain.toolset import Toolchain
from cujit.values import dataclass

_ENTRY = re.compile(r"^\s*(?:\.visible |\.weak )?\.entry\s+([\w$]+)", re.MULTILINE)
_FUNCTION = re.compile(r"^\s*(?:\.visible |\.weak )\.func\s+(?:\([^)]*\)\s*)?([\w$]+)", re.MULTILINE)
_EXTERN = re.compile(r"^\s*\.extern \.func\s+(?:\([^)]*\)\s*)?([\w$]+)", re.MULTILINE)
_VARIABLE = re.compile(
    r"^\s*(?:\.visible |\.weak )\.(global|const)(?: \.\w+(?: \d+)?)*? \.[a-z](\d+) ([\w$]+)(?:\[(\d+)\])?", re.MULTILINE
)
_ADDRESS_SPACE = {"global": 1, "const": 4}
_MARK_HELP = Hint(
    "mark each kernel: `define ptx_kernel void @{0}(…)`, or add `!nvvm.annotations = !{{!0}}` and `!0 = "
    '!{{{1} @{0}, !"kernel", i32 1}}`; with rdc=True, a module can consist of functions only',
    shell="mark each kernel: `define ptx_kernel void @{0}(…)`, or add `!nvvm.annotations = !{{!0}}` and `!0 = "
    '!{{{1} @{0}, !"kernel", i32 1}}`; with -O rdc, a module can consist of functions only',
)
_DIALECT_HELP = Hint(
    "write typed pointers (float*), which libNVVM accepts for every architecture; or set nvvm_latest=True, or "
    "build for compute_100 or later",
    shell="write typed pointers (float*), which libNVVM accepts for every architecture; or add -O "
    "nvvm_latest, or build for compute_100 or later",
)
_PTX_VERSION = re.compile(rb"^\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_VERSION_HELP = "add to the module: !nvvmir.version = !{!0} and !0 = !{i32 2, i32 0}"


@dataclass(frozen=True)
class _Symbols:
    """Symbols that the PTX of a program defines and requires. ``variables`` are (space, bytes, name)."""

    kernels: tuple[str, ...]
    functions: tuple[str, ...]
    wanted: tuple[str, ...]
    variables: tuple[tuple[str, int, str], ...]

    @classmethod
    def of(cls, ptx: str) -> _Symbols:
        kernels, functions, wanted = (tuple(dict.fromkeys(p.findall(ptx))) for p in (_ENTRY, _FUNCTION, _EXTERN))
        variables = (
            (space, int(bits) // 8 * int(count or 1), name) for space, bits, name, count in _VARIABLE.findall(ptx)
        )
        return cls(kernels, functions, wanted, tuple(variables))

    def keeper(self) -> NvvmModule:
        """Return a module that keeps kernels and variables in a link of LTO-IR.

        nvJitLink keeps kernels of CUDA C++. It drops kernels of LLVM IR unless ``llvm.used`` names them, despite kernel
        annotations and ``-kernels-used`` (measured, nvJitLink 13.5 with libNVVM 13.4).
        """
        lines = [f'declare void @"{name}"()' for name in self.kernels]
        used = [f'i8* bitcast (void ()* @"{name}" to i8*)' for name in self.kernels]
        for space, size, name in self.variables:
            kind = f"addrspace({_ADDRESS_SPACE[space]})"
            lines.append(f'@"{name}" = external {kind} global [{size} x i8]')
            used.append(
                f'i8* addrspacecast (i8 {kind}* bitcast ([{size} x i8] {kind}* @"{name}" to i8 {kind}*) to i8*)'
            )
        if used:
            lines.append(
                f'@llvm.used = appending global [{len(used)} x i8*] [{", ".join(used)}], section "llvm.metadata"'
            )
        lines.append("!nvvmir.version = !{!0}\n!0 = !{i32 2, i32 0}\n")
        return NvvmModule("kept by cujit", (MODULE_HEAD + "\n".join(lines)).encode())


def compile_nvvm(request: Request, toolchain: Toolchain) -> Artifact:
    """Compile LLVM IR to PTX, a cubin, or LTO-IR. The Artifact names every kernel of the program.

    Raises:
        CompileError: a module is invalid, has the wrong dialect, or contains no kernel.
        ArchError: this libNVVM doesn't support the architecture.
        OptionError: neither libNVVM nor, for a cubin, nvJitLink accepts an option.
        ToolchainNotFoundError: libNVVM is not installed, or nvJitLink if it is required.
    """
    nvvm, kind = toolchain.nvvm, request.kind
    require_arch(request.arch, nvvm.arches, "libNVVM", nvvm.release)
    if kind is ImageKind.CUBIN and request.options.get("rdc"):
        raise OptionError(
            "nvJitLink can't create a relocatable cubin from LLVM IR",
            help=Hint(
                "use to='ltoir', or to='ptx' with rdc=True, and link the result",
                shell="use --to ltoir, or --to ptx with -O rdc, and link the result",
            ),
            code="option-rejected",
        )
    arguments = request.arguments()
    # LTO-IR does not show what it defines; the PTX of the same program does.
    ptx, log = _run(request, toolchain, [a for a in arguments if a != "-gen-lto"])
    text = ptx.rstrip(b"\0")
    if kind is ImageKind.PTX:
        _require_version(request, text, nvvm.tool)
    symbols = _Symbols.of(text.decode())
    if kind is not ImageKind.LTOIR and not request.options.get("rdc"):
        _require_whole(request, symbols)
    names = _names(request, symbols)
    if kind is ImageKind.LTOIR:
        data, log = _run(request, toolchain, arguments, symbols.keeper())
    elif kind is ImageKind.CUBIN:
        data, more = _assemble(request, toolchain, text)
        log += more
    else:
        data = text
    tool = f"{nvvm.tool}, {toolchain.nvjitlink.tool}" if kind is ImageKind.CUBIN else nvvm.tool
    made = Artifact(kind, data, request.arch, names, {}, log, request.source.name, tool)
    return require_result(made, request.options.extra, names.values())


def _run(request: Request, toolchain: Toolchain, arguments: Sequence[str], *more: NvvmModule) -> tuple[bytes, str]:
    nvvm, source = toolchain.nvvm, request.source
    wrong = next(filter(None, map(_bad_annotation, source.modules)), None)
    if wrong:
        raise CompileError(wrong, tool=nvvm.tool, help=_MARK_HELP.format("k", "void (…)*"))
    if request.arch.number < FIRST_OPAQUE and (fatal := next(filter(None, map(_fatal, source.modules)), None)):
        raise CompileError(fatal, tool=nvvm.tool)
    try:
        with nvvm.program() as program:
            for module in (*source.modules, *more):
                program.add(module.data, module.name)
            if source.libdevice:
                program.add(nvvm.libdevice_path.read_bytes(), nvvm.libdevice_path.name, lazy=True)
            program.compile(arguments)
            return program.result(), program.log()
    except ToolError as e:
        raise _explain(request, e, nvvm, arguments) from None


def _assemble(request: Request, toolchain: Toolchain, ptx: bytes) -> tuple[bytes, str]:
    nvjitlink = toolchain.nvjitlink
    arguments = request.assembler_arguments()
    try:
        with nvjitlink.linker(arguments) as linker:
            linker.add(ImageKind.PTX, ptx, request.source.name)
            with requesting_machine_code():
                linker.complete()
            return linker.cubin(), linker.info_log()
    except ToolError as e:
        if e.result.endswith("_ARCH"):
            raise ArchError(
                f"{toolchain.nvvm.tool} compiles for {request.arch}, but {e.tool} can't assemble the result",
                help=f"install libNVVM and nvJitLink of the same release: {install(extra_for(request.arch))}",
                code="arch-mismatch",
            ) from None
        if e.call == "nvJitLinkCreate":
            raise OptionError(
                f"{e.tool} rejects the arguments {' '.join(arguments)}: {e.result}",
                help="see docs/options.md for the options",
                code="option-rejected",
            ) from None
        diagnostics = parse_log(e.log)
        first = next((d.message for d in diagnostics if d.severity == "error"), e.result)
        raise CompileError(
            f"{request.source.name} compiles to PTX, but {e.tool} can't assemble the PTX: {first}",
            diagnostics=diagnostics,
            **e.facts,
            help=Hint(
                "to call functions of other modules, use Source.nvvm(module, module, …) or cujit.link",
                shell="to call functions of other modules, use cujit link",
            ),
        ) from None


def _require_version(request: Request, ptx: bytes, tool: str) -> None:
    """Refuse PTX of a version other than the requested one, because libNVVM ignores the option silently."""
    wanted, found = request.options.get("ptx_version_target"), _PTX_VERSION.search(ptx)
    if wanted is not None and found is not None and int(found[1] + found[2]) != wanted:
        version = f"{found[1].decode()}.{found[2].decode()}"
        raise OptionError(
            f"{tool} generates PTX {version} for {request.arch}, not ptx_version_target={wanted}",
            help=Hint(
                "set nvvm_latest=True, build for compute_100 or later, or lower the version with cujit.retarget",
                shell="add -O nvvm_latest, build for compute_100 or later, or lower the version with cujit retarget",
            ),
            code="option-rejected",
        )


def _require_whole(request: Request, symbols: _Symbols) -> None:
    """Refuse a program that is whole and yet has no kernel, or calls mathematical functions that it lacks."""
    source = request.source
    wanted = [name for name in symbols.wanted if name.startswith("__nv_")]
    if wanted:
        raise CompileError(
            f"{source.name} calls the libdevice functions {', '.join(wanted)}, but the program doesn't include "
            "libdevice",
            help=Hint(
                "write Source.nvvm(…, libdevice=True), or set rdc=True to link libdevice later",
                shell="add --libdevice, or -O rdc to link libdevice later",
            ),
        )
    if not symbols.kernels:
        shown = ", ".join(symbols.functions) or "nothing that other modules can call"
        name = symbols.functions[0] if symbols.functions else "k"
        raise CompileError(
            f"{source.name} contains no kernel; it defines {shown}, but doesn't mark any of them as a kernel",
            help=_MARK_HELP.format(name, _pointer_to(source.modules, name)),
        )


def _pointer_to(modules: Sequence[NvvmModule], name: str) -> str:
    """Return the type of a pointer to a function, as its annotation requires."""
    for module in modules:
        if _opaque_line(module):
            return "ptr"
        match = re.search(rf"^define\s[^@\n]*?(\S+)\s+@{re.escape(name)}\(([^)\n]*)\)", module.text or "", re.MULTILINE)
        if match:
            types = [re.sub(r"\s+%[\w.]+$", "", parameter.strip()) for parameter in match[2].split(",")]
            return f"{match[1]} ({', '.join(types)})*"
    return "void (…)*"


def _names(request: Request, symbols: _Symbols) -> dict[str, str]:
    """Return the names of the kernels and the other requested names.

    Raises:
        CompileError: the program lacks a requested name, or the name is not a kernel.
    """
    defined = symbols.kernels + symbols.functions
    for name in request.names:
        if name in symbols.kernels:
            continue
        source = request.source
        if name in symbols.functions:
            raise CompileError(
                f"{name} in {source.name} is a function that isn't marked as a kernel",
                help=_MARK_HELP.format(name, _pointer_to(source.modules, name)),
            )
        near = alike(name, defined, most=2)
        raise CompileError(
            f"{source.name} doesn't define {name}",
            help=f"did you mean {', '.join(near)}?" if near else f"it defines {', '.join(defined) or 'nothing'}",
        )
    return {name: name for name in request.names or symbols.kernels}


# `k.ll (3, 15): parse expected type`: the column counts from 0. `k.ll: link error: error: …`, `error: Error: …`.
_PLACED = re.compile(r"(?P<file>.+) \((?P<line>\d+), (?P<column>\d+)\): (?:parse )?(?P<message>.+)")
_UNPLACED = re.compile(r"(?:(?P<file>[^:\n]+): )?(?:link error: )?[Ee]rror: (?:Error: )?(?P<message>.+)")
_LAYOUT_ERROR = re.compile(r"(?:DataLayoutError: |(?=Empty target data layout))(.+)")
_PRODUCER = re.compile(r"\(Producer: '(?P<producer>[^']*)' Reader: '(?P<reader>[^']*)'\)")


def _diagnostics(log: str, modules: Sequence[NvvmModule]) -> tuple[Diagnostic, ...]:
    by_name = {module.name: module for module in modules}
    found = []
    for line in log.splitlines():
        if match := _PLACED.fullmatch(line):
            number, column = int(match["line"]), int(match["column"]) + 1
            module = by_name.get(match["file"])
            text = module.line(number) if module else ""
            found.append(Diagnostic("error", match["message"], match["file"], number, column, source_line=text))
        elif match := _UNPLACED.fullmatch(line):
            found.append(Diagnostic("error", match["message"], match["file"] or ""))
    return tuple(found)


def _explain(request: Request, error: ToolError, nvvm: Nvvm, arguments: Sequence[str]) -> Exception:
    """Convert a failure of libNVVM into an error that explains the problem with the request."""
    source, tool = request.source, nvvm.tool
    if error.result == "NVVM_ERROR_INVALID_OPTION":
        why = "; ".join(newer_than(nvvm.release, request.options)) or error.log.strip()
        return OptionError(
            f"{tool} rejects the arguments {' '.join(arguments)}: {why}",
            help=Hint(
                "see docs/options.md for the options; cujit passes extra=(…) to libNVVM unchanged",
                shell="see docs/options.md for the options; cujit passes -O extra=… to libNVVM unchanged",
            ),
            code="option-rejected",
        )
    diagnostics = _diagnostics(error.log, source.modules)
    help = _VERSION_HELP if error.result == "NVVM_ERROR_IR_VERSION_MISMATCH" else None
    message = _dialect(request, error.log, tool)
    if match := _LAYOUT_ERROR.search(error.log):
        message = (
            f"{source.name} does not compile for {request.arch}: {tool} doesn't support this data layout: {match[1]}"
        )
        help = MODULE_HEAD.splitlines()[1]
        diagnostics = (Diagnostic("error", match[0], source.name),)
    elif message:
        help = _DIALECT_HELP
    else:
        reasons = "\n".join(map(str, diagnostics)) or error.log.strip() or error.result
        message = f"{source.name} does not compile for {request.arch}\n{reasons}"
    return CompileError(
        message,
        diagnostics=diagnostics,
        **{**error.facts, "tool": tool},
        help=help,
    )


def _dialect(request: Request, log: str, tool: str) -> str | None:
    """Describe why this libNVVM cannot read a module's LLVM version for the architecture, or return None."""
    if match := _PRODUCER.search(log):
        return (
            f"{request.source.name} holds bitcode of {match['producer']}, "
            f"but {_range(request)} {tool} reads that of {match['reader']}"
        )
    if request.arch.number >= FIRST_OPAQUE:
        return None
    for module in request.source.modules:
        if number := _opaque_line(module):
            return (
                f"{module.name}:{number} has the opaque pointer type ptr, but below compute_{FIRST_OPAQUE} "
                f"{tool} reads the IR of LLVM 7, with typed pointers\n    {module.line(number).strip()}"
            )
    return None


def _range(request: Request) -> str:
    first = f"compute_{FIRST_OPAQUE}"
    return f"from {first} on" if request.arch.number >= FIRST_OPAQUE else f"below {first}"


# Comments, strings and quoted names: nothing in them is a type.
_NOISE = re.compile(r';[^\n]*|"[^"\n]*"')
# The type `ptr` of opaque pointers, and no name, label or metadata field. Source: LLVM Language Reference.
_OPAQUE = re.compile(r"(?<![\w.$@%!#-])ptr(?![\w.$:-])")
_INTEGER = re.compile(r"(?<![\w.$@%!#-])i(\d{3,})(?![\w.$:-])")
_LAYOUT = re.compile(r'^\s*target\s+datalayout\s*=\s*"([^"]*)"', re.MULTILINE)
# Source: LLVM Language Reference, "Data Layout".
_LAYOUT_ITEM = re.compile(r"[eE]|p\d*(:\d+)+|[ivaf]\d*(:\d+)+|n\d+(:\d+)*|S\d+|[PAG]\d+|m:[a-z]|F[in]\d+|ni(:\d+)+")
_WIDEST_INTEGER_BITS = 128
_ANNOTATIONS = re.compile(r"^\s*!nvvm\.annotations\s*=\s*!\{([^}\n]*)\}", re.MULTILINE)
_NODE = re.compile(r"^\s*!(\d+)\s*=\s*(?:distinct\s+)?!\{(.*)\}", re.MULTILINE)
# An operand of a node: a name, a quoted text or a bracket with all that is in it, and what is between them.
_OPERAND = re.compile(r'(?:"[^"\n]*"|\((?:[^()]|\([^()]*\))*\)|\{[^{}]*\}|[^",(){}])+')


def _opaque_line(module: NvvmModule) -> int:
    """Return the first line, from 1, with the opaque pointer type ``ptr``, or 0 if there is none or the module is
    bitcode.
    """
    return next((line for line, _ in _find(module, _OPAQUE)), 0)


def _fatal(module: NvvmModule) -> str | None:
    """Describe what would make the LLVM 7 in libNVVM end the process, or return None.

    Source: measured, 12.9 to 13.4: an integer of 256 bits, a data layout that does not parse.
    """
    for line, match in _find(module, _INTEGER):
        if int(match[1]) > _WIDEST_INTEGER_BITS:
            return (
                f"{module.name}:{line}: {match[0]} is wider than the {_WIDEST_INTEGER_BITS} bits that NVVM IR supports"
            )
    layout = _LAYOUT.search(module.text or "")
    wrong = [item for item in (layout[1].split("-") if layout else ()) if not _LAYOUT_ITEM.fullmatch(item)]
    return f"{module.name}: {wrong[0]!r} in the data layout is invalid" if wrong else None


def _bad_annotation(module: NvvmModule) -> str | None:
    """Describe which node of ``!nvvm.annotations`` would make libNVVM end the process, or return None.

    Source: measured, 13.5, for compute_90 and compute_100: a node without operands, a property without a value or
    with null, and one whose name is no string. A node is a function or variable, then names and values in turn.
    """
    text = module.text or ""
    listed = {number for names in _ANNOTATIONS.findall(text) for number in re.findall(r"!(\d+)", names)}
    for match in _NODE.finditer(text):
        about, *pairs = list(filter(None, map(str.strip, _OPERAND.findall(match[2])))) or [""]
        names, values = pairs[::2], pairs[1::2]
        is_good = about and len(names) == len(values) and "null" not in values
        if match[1] in listed and not (is_good and all(name.startswith('!"') for name in names)):
            line = text.count("\n", 0, match.start(1)) + 1
            return f"{module.name}:{line}: !{match[1]} = !{{{match[2]}}} is not an annotation (a kernel, names, values)"
    return None


def _find(module: NvvmModule, pattern: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
    for number, line in enumerate(_NOISE.sub("", module.text or "").splitlines(), start=1):
        yield from ((number, match) for match in pattern.finditer(line))
