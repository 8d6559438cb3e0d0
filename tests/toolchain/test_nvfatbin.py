"""nvFatbin: checked calls and owned handles."""

from __future__ import annotations

import pytest

from cujit.errors import ClosedError, ToolError
from cujit.formats.fatbin import read_fatbin
from cujit.toolchain.toolset import Toolchain
from raising import raises

PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n"


def test_image_is_bundled_and_extracted_unchanged(toolchain: Toolchain) -> None:
    with toolchain.nvfatbin.packer(["-compress=false"]) as packer:
        packer.add_ptx(PTX, "80", "nothing.ptx", "-O1")
        data = packer.fatbin()
    (entry,) = read_fatbin(data).entries
    assert str(entry.arch) == "compute_80"
    assert entry.identifier == "nothing.ptx"
    assert entry.options.strip() == "-O1"
    assert b".entry nothing" in entry.payload()


def test_ptx_without_its_nul_is_accepted(toolchain: Toolchain) -> None:
    with toolchain.nvfatbin.packer() as packer:
        packer.add_ptx(PTX + b"\0", "80")
        with_nul = packer.fatbin()
    with toolchain.nvfatbin.packer() as packer:
        packer.add_ptx(PTX, "80")
        assert packer.fatbin() == with_nul


def test_wrong_option_error_has_call_and_result(toolchain: Toolchain) -> None:
    with pytest.raises(ToolError) as caught:
        toolchain.nvfatbin.packer(["-no-such-option"])
    assert (caught.value.call, caught.value.result) == (
        "nvFatbinCreate",
        "NVFATBIN_ERROR_UNRECOGNIZED_OPTION",
    )


def test_garbage_is_refused(toolchain: Toolchain) -> None:
    with toolchain.nvfatbin.packer() as packer, raises(ToolError, "tool", "nvFatbinAddCubin"):
        packer.add_cubin(b"garbage", "90")


def test_closed_packer_refuses_work(toolchain: Toolchain) -> None:
    packer = toolchain.nvfatbin.packer()
    assert toolchain.live_handles == 1
    packer.close()
    packer.close()
    with raises(ClosedError, "closed", "nvFatbin"):
        packer.fatbin()
