"""Write ``docs/toolkit.md``: the calls, options, kinds and architectures of the toolkit against cujit.

The reasons for what cujit lacks have their home here; ``tests/toolchain/test_nothing_missing.py`` compares them with
the installed libraries.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cuda.bindings import driver
from cuda.bindings import nvjitlink as nvjitlink_binding
from elftools.elf.elffile import ELFFile

from cujit import Arch, ImageKind
from cujit.arch.support import dotted
from cujit.compiler.options.spelling import Spelling
from cujit.compiler.options.values import OPTIONS, Tool
from cujit.devices.cuda import driver_options
from cujit.errors import ArchError
from cujit.program import toolchain
from cujit.toolchain import nvfatbin, nvjitlink, nvrtc, nvvm
from cujit.toolchain.libraries import library_path

__all__ = [
    "BY_ARGUMENT",
    "CALLS",
    "INPUTS",
    "JIT_OPTIONS",
    "MODULES",
    "OPTION_GAPS",
    "TAKE_NEXT",
    "UNDOCUMENTED",
    "WITHOUT_A_LINK",
    "calls",
    "has_call",
    "inputs",
    "jit_options",
    "option_names",
    "options",
    "toolkit_page",
]

MODULES: dict[str, Any] = {"nvrtc": nvrtc, "nvJitLink": nvjitlink, "nvfatbin": nvfatbin, "nvvm": nvvm}
CALLS = {
    "nvrtcGetNVVM": "CUDA 13.0 removed it; `nvrtcGetLTOIR` replaces it",
    "nvrtcGetNVVMSize": "CUDA 13.0 removed it; `nvrtcGetLTOIRSize` replaces it",
    "nvrtcCPEx": "absent from `nvrtc.h`",
    "nvrtcNvvmHandle": "absent from `nvrtc.h`",
    "nvrtcRemoveBundledHeaders": "it deletes every file in a directory; `cujit cache clear` removes only cujit's files",
    "nvJitLinkAPI": "absent from `nvJitLink.h`",
    "nvvmHandle": "absent from `nvvm.h`",
    "nvvmHandleTarget": "absent from `nvvm.h`",
    "nvvmDisableConcurrentAPI": "absent from `nvvm.h`",
}
_DEPRECATED = "deprecated, and only for LTO-IR of CUDA before 12.0; cujit links LTO-IR with nvJitLink"
_SYMBOLS = "they give `extern` variables an address at load time; cujit requires a definition, which `cujit.link` adds"
JIT_OPTIONS = {
    "THREADS_PER_BLOCK": "cujit sets `max_threads` for each kernel instead",
    "TARGET_FROM_CUCONTEXT": "the driver's default",
    "TARGET": "cujit compiles an image for the GPU that loads the image",
    "FALLBACK_STRATEGY": "cujit selects the image of a fatbin and reports which one it selected",
    "BINARY_LOADER_THREAD_COUNT": "the variable `CUDA_BINARY_LOADER_THREAD_COUNT` sets it for the process",
    "WALL_TIME": "an output; cujit measures `load_s` for every route",
    "NEW_SM3X_OPT": "deprecated",
    "FAST_COMPILE": "internal, according to NVIDIA's manual",
    "GLOBAL_SYMBOL_NAMES": _SYMBOLS,
    "GLOBAL_SYMBOL_ADDRESSES": _SYMBOLS,
    "GLOBAL_SYMBOL_COUNT": _SYMBOLS,
    **dict.fromkeys(
        (
            "LTO", "FTZ", "PREC_DIV", "PREC_SQRT", "FMA", "REFERENCED_KERNEL_NAMES", "REFERENCED_KERNEL_COUNT",
            "REFERENCED_VARIABLE_NAMES", "REFERENCED_VARIABLE_COUNT", "OPTIMIZE_UNUSED_DEVICE_VARIABLES",
        ),
        _DEPRECATED,
    ),
    "POSITION_INDEPENDENT_CODE": "deprecated, and without any effect",
    "NUM_OPTIONS": "a count, not an option",
}  # fmt: skip
INPUTS = {
    "NONE": "an error, not a kind",
    "ANY": "nvJitLink detects the kind; cujit detects the kind itself",
    "INDEX": "an index file; NVIDIA's manual doesn't specify its format",
}
WITHOUT_A_LINK = {
    "NVVMIR": "libNVVM compiles it before the link",
    "OPTIXIR": "OptiX links it",
    "TILEIR": "tileiras assembles it before the link",
    "TUNING": "measured times, not an image",
    "FILES": "files from another compiler's cache, not an image",
    "OTHER": "an entry of a fatbin that cujit doesn't know",
}

UNDOCUMENTED = "undocumented"
_OF_CICC = (
    "Om", "Osize", "Werror", "aggressive-inline", "allow-restrict-in-struct", "assyscall", "cl-mode",
    "disable-fp-call-folding", "disable-inlining", "enable-intermediate-loc-info", "enable-mad",
    "enable-opt-byval", "enable-verbose-asm", "fast-math", "gen-lto-and-llc", "gen-opt-lto",
    "has-global-host-info", "host-ref-ec", "host-ref-eg", "host-ref-ek", "host-ref-ic", "host-ref-ig",
    "host-ref-ik", "inline-info", "jobserver", "jobserver-auth", "jobserver-fds", "maxreg", "nUmC008pa",
    "no-aggressive-positive-stride-analysis", "no-lineinfo-inlined-at", "no-strong-global-assumptions",
    "opt-fdiv", "opt-passes", "optimize-unused-variables", "show-src", "split-compile-extended",
    "unsafe-math", "vasp-fix", "w",
)  # fmt: skip
TAKE_NEXT = ("Xllc", "Xlnk", "Xlto", "Xopt", "olto")
_NUMBA = "for code that Numba generates"
BY_ARGUMENT: dict[str, dict[str, str]] = {
    "NVRTC": {
        "gpu-architecture": "arch",
        "device-c": "rdc",
        "device-w": "rdc",
        "optix-ir": "to",
        "Xptxas": "ptxas_options",
    },
    "nvJitLink": {"arch": "arch", "ptx": "to", "r": "relocatable"},
    "libNVVM": {"arch": "arch"},
    "nvFatbin": dict.fromkeys(("compress", "compress-all", "compress-mode", "concat"), "compress"),
    "tileiras": {
        "gpu-name": "arch",
        **dict.fromkeys(
            (
                "apply-controls", "host-arch", "host-os", "l", "preview", "remark-format", "remarks",
                "remarks-analysis", "remarks-failed", "remarks-missed", "remarks-output-file", "remarks-passed",
                "sanitize",
            ),
            "extra",
        ),
    },
}  # fmt: skip
"""Options that an argument of a function sets, so that they have no row in the option table."""
OPTION_GAPS: dict[str, dict[str, str]] = {
    "NVRTC": {
        "use-bundled-headers": "cujit installs these headers in a private directory with `nvrtcInstallBundledHeaders`",
        "tile-only": "`to=\"tileir\"` returns only the Tile IR; the option saves 10 ms a compilation",
        "skip-cuda-tile-packaging": "the Tile IR contains the same operations, with longer header paths",
        "utf-8": "NVRTC 13.5 for Linux rejects it",
        "version-ident": "it writes a directive that ptxas 13.5 rejects",
        "enable-cache-trace": "it prints internals of NVRTC's cache",
        "cuda-api-version": "it only adds a warning",
        "numba-debug": _NUMBA,
        **dict.fromkeys(("generate-builtins", "uumn", "Xnvvm"), UNDOCUMENTED),
    },
    "nvJitLink": {
        "device-stack-protector": "nvJitLink 13.5 rejects it",
        "dlto": "undocumented synonym of `-lto`",
        "fast-compile": "undocumented synonym of `-Ofc`",
        "no-opt": "undocumented synonym of `-O0`",
        **dict.fromkeys(("Xnvvm", "Xfinalizer", "disable-smem-reserve"), UNDOCUMENTED),
    },
    "libNVVM": {
        "numba-debug": _NUMBA,
        "discard-value-names": "libNVVM can't read textual LLVM IR with it",
        **dict.fromkeys(TAKE_NEXT, "undocumented, and it takes the next argument as its value"),
        **dict.fromkeys(_OF_CICC, UNDOCUMENTED),
    },
    "nvFatbin": {
        **dict.fromkeys(("cuda", "g", "host", "opencl"), "it only sets a flag of the entry"),
        "32": "for 32-bit images, which cujit doesn't support",
        "64": "the default",
        "c": "without any effect, according to NVIDIA's manual",
        "reorder-obfuscation": UNDOCUMENTED,
    },
    "tileiras": {
        "output-file": "cujit reads the output from a temporary directory",
        **dict.fromkeys(("help", "help-list", "list-versions", "version"), "it prints text instead of compiling"),
    },
}  # fmt: skip


def exported(library: str) -> set[str]:
    """Return the names of a library's functions, without the versions that some have in them."""
    path = library_path(library)
    assert path is not None
    with Path(path).open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        names = {
            s.name for s in section.iter_symbols() if s["st_shndx"] != "SHN_UNDEF" and s.name.strip("_")[:2] == "nv"
        }
    return {re.sub(r"_\d+_\d+$", "", name.lstrip("_")) for name in names}


def _snake(name: str) -> str:
    """Spell a call as cuda.bindings does: ``nvJitLinkAddData`` is ``add_data``."""
    bare = re.sub("^(nvJitLink|nvFatbin|nvvm)", "", name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", bare).lower()


def has_call(library: str, name: str) -> bool:
    """Tell whether cujit has the function of the library."""
    return not {name, _snake(name)}.isdisjoint(vars(MODULES[library]))


@dataclasses.dataclass(frozen=True)
class Compared:
    """Names of the toolkit, cujit's among them, and the reasons for the others."""

    names: set[str]
    ours: set[str]
    reasons: Mapping[str, str]

    @property
    def unexplained(self) -> set[str]:
        """What cujit lacks without a reason."""
        return self.names - self.ours - set(self.reasons)


def calls(library: str) -> Compared:
    """Compare the functions of an installed library."""
    names = exported(library)
    reasons = {name: why for name, why in CALLS.items() if name.lower().startswith(library.lower())}
    return Compared(names, {name for name in names if has_call(library, name)}, reasons)


def jit_options() -> Compared:
    """Compare the options of the driver's JIT that the installed cuda-bindings list."""
    names = {name.removeprefix("CU_JIT_") for name in driver.CUjit_option.__members__}
    given = re.findall(r"\bCU_JIT_(?!CACHE_OPTION)(\w+)", inspect.getsource(driver_options.driver_options))
    return Compared(names, set(given), JIT_OPTIONS)


def option_names(tool: Tool) -> set[str]:
    """Return how cujit's option table spells the options of a tool, without hyphens and values."""
    spelled = (row.spelling(tool) for row in OPTIONS.values())
    texts = [spelling.text for spelling in spelled if isinstance(spelling, Spelling)]
    return {found for text in texts for found in re.findall(r"(?<![\w=-])--?([A-Za-z][\w-]*)", text)}


def options(tool: str) -> Compared:
    """Compare the options of a compiler, linker, or packer with the rows of the option table."""
    ours = {*BY_ARGUMENT[tool], *(option_names(Tool(tool)) if tool in {each.value for each in Tool} else ())}
    return Compared(ours | set(OPTION_GAPS[tool]), ours, OPTION_GAPS[tool])


def _last_words(members: type[enum.Enum]) -> set[str]:
    return {name.rpartition("_")[2] for name in members.__members__}


def inputs() -> Compared:
    """Compare the kinds of input of nvJitLink with the kinds of images that cujit links."""
    return Compared(
        _last_words(nvjitlink_binding.InputType), {kind.name for kind in ImageKind} - set(WITHOUT_A_LINK), INPUTS
    )


def _arches() -> Iterator[list[str]]:
    """Give each architecture of NVRTC with its suffixes that cujit takes."""
    for number in toolchain().nvrtc.arches:
        names = []
        for suffix in ("", "a", "f"):
            with contextlib.suppress(ArchError):
                names.append(str(Arch.parse(f"sm_{number}{suffix}")))
        yield names


_MOST_NAMES = 20
_HEAD = """\
# Coverage of the CUDA toolkit

This page compares the functions, options, inputs, and architectures of CUDA {release} with cujit. For the options that
cujit supports, see [Compiler options](options.md). Tests compare the tables with the installed libraries and headers.

Drivers load Tile IR and PTX newer than 9.0 only if they are newer than r580. We tested these images with NVIDIA's
assemblers and on the CPU device, but not with such a driver.

| of the toolkit | total | in cujit | not in cujit, with a reason |
|---|---|---|---|
"""
_GAPS = """
## Architectures

| architecture | with a suffix |
|---|---|
{arches}
## What cujit doesn't use

Some names in this table exist in CUDA 12.9, but not in CUDA {release}.

| of the toolkit | names | reason |
|---|---|---|
"""
_ARGUMENTS = """
## Options that arguments set

[Compiler options](options.md) lists the other options that cujit passes to these tools.

| of the toolkit | options | argument |
|---|---|---|
"""
_UNLINKED = """
## Kinds of images that nvJitLink doesn't link

| kind | reason |
|---|---|
"""


def toolkit_page() -> str:
    """Write the page ``docs/toolkit.md``."""
    compared = {f"functions of {library}": calls(library) for library in MODULES}
    compared |= {f"options of {tool}": options(tool) for tool in OPTION_GAPS}
    compared |= {"options `CU_JIT_…` of the driver": jit_options(), "inputs `NVJITLINK_INPUT_…`": inputs()}
    arches = list(_arches())
    number = sum(map(len, arches))
    counts = "".join(_count(what, one) for what, one in compared.items())
    counts += f"| architectures of NVRTC | {number} | {number} | 0 |\n"
    gaps = "".join(f"| {what} | {name} | {why} |\n" for what, one in compared.items() for why, name in _gaps(one))
    unlinked = "".join(f"| `{kind}` | {why} |\n" for kind, why in WITHOUT_A_LINK.items())
    release = dotted(toolchain().nvrtc.version)
    head = _HEAD.format(release=release) + counts
    head += _GAPS.format(release=release, arches="".join(map(_family, arches))) + gaps
    return head + _ARGUMENTS + "".join(map(_arguments, BY_ARGUMENT)) + _UNLINKED + unlinked


def _count(what: str, one: Compared) -> str:
    return f"| {what} | {len(one.names)} | {len(one.names & one.ours)} | {len(one.names - one.ours)} |\n"


def _family(names: list[str]) -> str:
    return f"| `{names[0]}` | {', '.join(f'`{name}`' for name in names[1:])} |\n"


def _gaps(one: Compared) -> Iterator[tuple[str, str]]:
    """Give each reason with the names that it is of."""
    assert not one.unexplained, f"write a reason for {sorted(one.unexplained)}"
    yield from _grouped(one.reasons)


def _arguments(tool: str) -> str:
    return "".join(
        f"| options of {tool} | {names} | `{argument}` |\n" for argument, names in _grouped(BY_ARGUMENT[tool])
    )


def _grouped(words: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Give each value with the names that have it, a row of the page at a time."""
    for value in dict.fromkeys(words.values()):
        names = [f"`{name}`" for name, own in words.items() if own == value]
        yield from ((value, ", ".join(names[at : at + _MOST_NAMES])) for at in range(0, len(names), _MOST_NAMES))
