"""What the toolkit and the driver's JIT have, cujit has, or a reason stands here."""

from __future__ import annotations

import enum
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from cujit import Arch, ImageKind
from cujit.devices.cuda import driver_options
from cujit.errors import ArchError, ToolError
from cujit.toolchain import nvfatbin, nvjitlink, nvrtc, nvvm
from cujit.toolchain.libraries import library_path
from cujit.toolchain.results import InputType
from cujit.toolchain.toolset import Toolchain

MODULES: dict[str, Any] = {"nvrtc": nvrtc, "nvJitLink": nvjitlink, "nvfatbin": nvfatbin, "nvvm": nvvm}
CALLS = {
    "nvrtcGetNVVM": "gone since CUDA 13.0; nvrtcGetLTOIR is its successor",
    "nvrtcGetNVVMSize": "gone since CUDA 13.0",
    "nvrtcCPEx": "not in nvrtc.h",
    "nvrtcNvvmHandle": "not in nvrtc.h",
    "nvrtcRemoveBundledHeaders": "it deletes everything in a directory; `cujit cache clear` removes cujit's own",
    "nvJitLinkAPI": "not in nvJitLink.h",
    "nvvmHandle": "not in nvvm.h",
    "nvvmHandleTarget": "not in nvvm.h",
    "nvvmDisableConcurrentAPI": "the opposite of what cujit needs: it compiles in several threads",
}
JIT_OPTIONS = {
    "THREADS_PER_BLOCK": "max_threads is for each kernel, and later",
    "TARGET_FROM_CUCONTEXT": "the driver's default",
    "TARGET": "an image is compiled for the GPU that it is loaded on",
    "FALLBACK_STRATEGY": "cujit chooses the image out of a fatbin itself, and says which",
    "BINARY_LOADER_THREAD_COUNT": "CUDA_BINARY_LOADER_THREAD_COUNT says it for the process",
    "WALL_TIME": "an output; cujit measures load_s for every route",
    "NEW_SM3X_OPT": "internal, by the manual",
    "FAST_COMPILE": "internal, by the manual",
    "GLOBAL_SYMBOL_NAMES": "of programs with CUDA's runtime linked in, whose variables have addresses of their own",
    "GLOBAL_SYMBOL_ADDRESSES": "as above",
    "GLOBAL_SYMBOL_COUNT": "as above",
    **dict.fromkeys(
        (
            "LTO", "FTZ", "PREC_DIV", "PREC_SQRT", "FMA", "REFERENCED_KERNEL_NAMES", "REFERENCED_KERNEL_COUNT",
            "REFERENCED_VARIABLE_NAMES", "REFERENCED_VARIABLE_COUNT", "OPTIMIZE_UNUSED_DEVICE_VARIABLES",
            "POSITION_INDEPENDENT_CODE",
        ),
        "deprecated: the driver links no LTO-IR since 12.0; nvJitLink has them",
    ),
    "NUM_OPTIONS": "a count",
}  # fmt: skip
INPUTS = {"NONE": "an error", "ANY": "the library looks by itself", "INDEX": "a list of archives, for nvlink"}
WITHOUT_A_LINK = {
    "NVVMIR": "libNVVM compiles it first",
    "OPTIXIR": "OptiX links it",
    "TILEIR": "tileiras assembles it first",
    "TUNING": "measured times",
    "FILES": "files of another compiler's cache",
    "OTHER": "an entry of a fatbin that cujit does not know",
}


def exported(library: str) -> set[str]:
    """The names of a library's functions, without the versions that some have in them."""
    path = library_path(library)
    assert path is not None
    with Path(path).open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynsym")
        names = {
            s.name for s in section.iter_symbols() if s["st_shndx"] != "SHN_UNDEF" and s.name.strip("_")[:2] == "nv"
        }
    return {re.sub(r"_\d+_\d+$", "", name.lstrip("_")) for name in names}


def snake(name: str) -> str:
    """A call as cuda.bindings names it: ``nvJitLinkAddData`` is ``add_data``."""
    bare = re.sub("^(nvJitLink|nvFatbin|nvvm)", "", name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", bare).lower()


@pytest.mark.parametrize("library", MODULES)
def test_every_function_of_a_library_is_a_call_or_has_a_reason(library: str) -> None:
    names = exported(library)
    assert len(names) > 10
    ours = vars(MODULES[library])
    assert {n for n in names if n not in ours and snake(n) not in ours} <= set(CALLS)


def test_no_reason_is_of_a_call_that_there_is() -> None:
    assert not [n for n in CALLS if any(n in vars(module) or snake(n) in vars(module) for module in MODULES.values())]


def test_every_option_of_the_drivers_jit_is_given_or_has_a_reason() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    names = {name.removeprefix("CU_JIT_") for name in driver.CUjit_option.__members__}
    given = set(re.findall(r"\bCU_JIT_(?!CACHE_OPTION)(\w+)", inspect.getsource(driver_options.driver_options)))
    assert names - given == set(JIT_OPTIONS) & names
    assert given - names <= {"SPLIT_COMPILE"}  # which bindings of 12.9 lack
    assert not given & set(JIT_OPTIONS)


def names_of(members: type[enum.Enum]) -> set[str]:
    return {name.rpartition("_")[2] for name in members.__members__}


def test_every_kind_of_input_of_the_linker_is_a_kind_and_the_other_way_round() -> None:
    kinds, inputs = {kind.name for kind in ImageKind}, names_of(InputType)
    assert inputs - set(INPUTS) == kinds - set(WITHOUT_A_LINK)


@pytest.mark.parametrize("suffix", ["", "a", "f"])
def test_every_architecture_that_nvrtc_takes_is_one_and_no_other(toolchain: Toolchain, suffix: str) -> None:
    for number in toolchain.nvrtc.arches:
        try:
            arch = Arch.parse(f"sm_{number}{suffix}")
        except ArchError:
            arch = None
        try:
            with toolchain.nvrtc.program(b"__global__ void k() {}", b"/cujit-test/k.cu") as program:
                program.compile([f"-arch=sm_{number}{suffix}".encode()])
        except ToolError:
            assert arch is None
        else:
            assert str(arch) == f"sm_{number}{suffix}"
