"""libNVVM as a value, and programs of it."""

from __future__ import annotations

import pytest

from cujit.errors import ClosedError
from cujit.toolchain.nvvm import nvvmError
from cujit.toolchain.toolset import Toolchain
from llvm_ir import SCALE, SINE, kernel_that_calls
from raising import raises


def test_release_versions_and_architectures_are_returned(toolchain: Toolchain) -> None:
    nvvm = toolchain.nvvm
    assert nvvm.version >= (2, 0)
    assert nvvm.ir_version[0] == 2
    assert nvvm.release >= (12, 9)
    assert nvvm.tool == f"libNVVM {nvvm.release[0]}.{nvvm.release[1]}"
    assert {75, 90, 100, 120} <= set(nvvm.arches)
    assert (70 in nvvm.arches) == (nvvm.release < (13, 0))
    assert repr(nvvm).startswith(f"<{nvvm.tool} for compute_{nvvm.arches[0]}, ")


def test_libdevice_is_next_to_the_library(toolchain: Toolchain) -> None:
    assert toolchain.nvvm.libdevice_path.read_bytes().startswith(b"BC\xc0\xde")


@pytest.mark.parametrize("arch", ["compute_75", "compute_100"])
def test_only_used_parts_of_libdevice_are_linked(toolchain: Toolchain, arch: str) -> None:
    with toolchain.nvvm.program() as program:
        program.add(kernel_that_calls("f").encode(), "k.ll")
        program.add(SINE.encode(), "f.ll")
        program.add(toolchain.nvvm.libdevice_path.read_bytes(), "libdevice", lazy=True)
        program.compile([f"-arch={arch}"])
        assert b".entry k" in program.result()
        assert len(program.result()) < 50_000
        assert program.log() == ""


# What only the verifier sees, and what kills the verifier or the compiler of one LLVM or the other.
BAD = {
    "returns a value": SCALE.replace("void @scale", "float @scale").replace("ret void", "ret float %w"),
    "fp128": SCALE.replace("fmul float %v, 2.0", "fmul float %v, 2.0\n  %q = fadd fp128 undef, undef"),
    "no layout": "\n".join(line for line in SCALE.splitlines() if "datalayout" not in line),
    "no version": SCALE.partition("!nvvmir")[0],
    "no triple": SCALE.partition("\n")[2],
    "nonsense": "nonsense",
}


@pytest.mark.parametrize("arch", ["compute_90", "compute_100"])
@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_bad_module_is_an_error_and_not_the_end_of_the_process(toolchain: Toolchain, text: str, arch: str) -> None:
    with toolchain.nvvm.program() as program:
        program.add(text.encode(), "bad.ll")
        with pytest.raises(nvvmError) as caught:
            program.compile([f"-arch={arch}"])
    assert caught.value.log


def test_closed_program_refuses_work(toolchain: Toolchain) -> None:
    program = toolchain.nvvm.program()
    assert toolchain.live_handles == 1
    program.close()
    program.close()
    with raises(ClosedError, "closed"):
        program.compile([])
