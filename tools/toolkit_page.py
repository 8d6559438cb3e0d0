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
from cujit.devices.cuda import driver_options
from cujit.errors import ArchError
from cujit.program import toolchain
from cujit.toolchain import nvfatbin, nvjitlink, nvrtc, nvvm
from cujit.toolchain.libraries import library_path

__all__ = [
    "CALLS",
    "INPUTS",
    "JIT_OPTIONS",
    "MODULES",
    "WITHOUT_A_LINK",
    "calls",
    "has_call",
    "inputs",
    "jit_options",
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


_HEAD = """\
# Coverage of the CUDA toolkit

This page compares the calls, options, inputs and architectures of CUDA {release} with cujit. For the compiler options,
see [Compiler options](options.md). A test compares the tables with the installed libraries.

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
_UNLINKED = """
## Kinds of images that nvJitLink doesn't link

| kind | reason |
|---|---|
"""


def toolkit_page() -> str:
    """Write the page ``docs/toolkit.md``."""
    compared = {f"functions of {library}": calls(library) for library in MODULES}
    compared |= {"options `CU_JIT_…` of the driver": jit_options(), "inputs `NVJITLINK_INPUT_…`": inputs()}
    arches = list(_arches())
    number = sum(map(len, arches))
    counts = "".join(_count(what, one) for what, one in compared.items())
    counts += f"| architectures of NVRTC | {number} | {number} | 0 |\n"
    gaps = "".join(f"| {what} | {name} | {why} |\n" for what, one in compared.items() for why, name in _gaps(one))
    unlinked = "".join(f"| `{kind}` | {why} |\n" for kind, why in WITHOUT_A_LINK.items())
    release = dotted(toolchain().nvrtc.version)
    head = _HEAD.format(release=release) + counts
    return head + _GAPS.format(release=release, arches="".join(map(_family, arches))) + gaps + _UNLINKED + unlinked


def _count(what: str, one: Compared) -> str:
    return f"| {what} | {len(one.names)} | {len(one.names & one.ours)} | {len(one.names - one.ours)} |\n"


def _family(names: list[str]) -> str:
    return f"| `{names[0]}` | {', '.join(f'`{name}`' for name in names[1:])} |\n"


def _gaps(one: Compared) -> Iterator[tuple[str, str]]:
    """Give each reason with the names that it is of."""
    assert not one.unexplained, f"write a reason for {sorted(one.unexplained)}"
    for why in dict.fromkeys(one.reasons.values()):
        yield why, ", ".join(f"`{name}`" for name, reason in one.reasons.items() if reason == why)
