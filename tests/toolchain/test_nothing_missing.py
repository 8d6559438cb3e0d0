"""What the toolkit and the driver's JIT have, cujit has, or ``tools/toolkit_page.py`` has a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cujit import Arch, ImageKind
from cujit.errors import ArchError, ToolError
from cujit.toolchain.toolset import Toolchain
from toolkit_page import (
    CALLS,
    INPUTS,
    JIT_OPTIONS,
    MODULES,
    WITHOUT_A_LINK,
    calls,
    has_call,
    inputs,
    jit_options,
)


@pytest.mark.parametrize("library", MODULES)
def test_every_library_function_is_a_call_or_has_a_reason(library: str) -> None:
    compared = calls(library)
    assert len(compared.names) > 10
    assert not compared.unexplained


def test_no_reason_is_for_an_existing_call() -> None:
    assert not [name for name in CALLS for library in MODULES if has_call(library, name)]
    assert sum(len(calls(library).reasons) for library in MODULES) == len(CALLS)


def test_every_driver_jit_option_is_supported_or_has_a_reason() -> None:
    compared = jit_options()
    assert not compared.unexplained
    assert compared.ours - compared.names <= {"SPLIT_COMPILE"}  # which bindings of 12.9 lack
    assert not compared.ours & set(JIT_OPTIONS)


def test_input_kinds_match_those_of_the_linker() -> None:
    compared = inputs()
    assert compared.names - set(INPUTS) == compared.ours
    assert set(WITHOUT_A_LINK) <= set(ImageKind.__members__)


def header(toolchain: Toolchain, name: str) -> str:
    """The text of a header, in which NVIDIA documents what is in it."""
    for directory in toolchain.headers.paths:
        if (path := Path(directory, name)).is_file():
            return path.read_text()
    pytest.skip(f"{name} is not installed")


@pytest.mark.parametrize("library", MODULES)
def test_function_that_is_absent_from_the_header_is_so(library: str, toolchain: Toolchain) -> None:
    name = {"nvfatbin": "nvFatbin.h"}.get(library, f"{library}.h")
    text, why = header(toolchain, name), f"absent from `{name}`"
    assert not [call for call, reason in CALLS.items() if reason == why and re.search(rf"\b{call}\b", text)]
    if toolchain.nvrtc.version < (13, 5):
        return  # nvJitLink.h of 13.2 lacks functions that its library has
    assert calls(library).ours <= {call for call in calls(library).names if re.search(rf"\b{call}\b", text)}


def test_deprecated_driver_jit_options_match_the_header(toolchain: Toolchain) -> None:
    if toolchain.nvrtc.version < (13, 5):
        pytest.skip("the reasons are those of 13.5")
    _, _, text = header(toolchain, "cuda.h").partition("typedef enum CUjit_option_enum")
    documented = re.findall(r"/\*\*(.*?)\*/\s*CU_JIT_(\w+) =", text.partition("CUjit_option;")[0], re.S)
    assert len(documented) > 30
    deprecated = {name for about, name in documented if "\\deprecated" in about}
    assert {name for name, why in JIT_OPTIONS.items() if "deprecated" in why} == deprecated
    old = {name for about, name in documented if "prior to CUDA 12.0" in about}
    assert {name for name, why in JIT_OPTIONS.items() if "before 12.0" in why} == old
    assert "internal" in next(about for about, name in documented if name == "FAST_COMPILE")


@pytest.mark.parametrize("suffix", ["", "a", "f"])
def test_architectures_match_those_of_nvrtc(toolchain: Toolchain, suffix: str) -> None:
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
