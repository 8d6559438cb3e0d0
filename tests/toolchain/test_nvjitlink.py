"""nvJitLink: checked calls and owned handles."""

from __future__ import annotations

import pytest

from cujit.artifact import ImageKind
from cujit.errors import ClosedError, ToolError
from cujit.toolchain.nvjitlink import Linker
from cujit.toolchain.toolset import Toolchain
from raising import raises

PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
"""


def add_and_complete(linker: Linker, ptx: bytes) -> None:
    """Which of the two calls assembles PTX differs between releases."""
    linker.add(ImageKind.PTX, ptx, "bad.ptx")
    linker.complete()


def test_version_is_returned(toolchain: Toolchain) -> None:
    assert toolchain.nvjitlink.version >= (12, 9)
    assert toolchain.nvjitlink.tool.startswith("nvJitLink ")


def test_ptx_becomes_a_cubin(toolchain: Toolchain) -> None:
    with toolchain.nvjitlink.linker(["-arch=sm_90", "-verbose"]) as linker:
        linker.add(ImageKind.PTX, PTX, "nothing.ptx")
        linker.complete()
        assert linker.cubin().startswith(b"\x7fELF")
        assert "nothing" in linker.info_log()
        assert linker.error_log() == ""


def test_wrong_option_error_has_call_and_result(toolchain: Toolchain) -> None:
    with pytest.raises(ToolError) as caught:
        toolchain.nvjitlink.linker(["-arch=sm_90", "-no-such-option"])
    assert caught.value.call == "nvJitLinkCreate"
    assert caught.value.result == "NVJITLINK_ERROR_UNRECOGNIZED_OPTION"


def test_failed_link_carries_the_log(toolchain: Toolchain) -> None:
    with toolchain.nvjitlink.linker(["-arch=sm_90"]) as linker:
        with pytest.raises(ToolError) as caught:
            add_and_complete(linker, PTX.replace(b"ret;", b"jump;"))
        assert caught.value.tool == toolchain.nvjitlink.tool
        assert caught.value.result == "NVJITLINK_ERROR_PTX_COMPILE"
        assert "'jump'" in caught.value.log


def test_closed_linker_refuses_work(toolchain: Toolchain) -> None:
    linker = toolchain.nvjitlink.linker(["-arch=sm_90"])
    assert toolchain.live_handles == 1
    linker.close()
    linker.close()
    with raises(ClosedError, "closed"):
        linker.add(ImageKind.PTX, PTX, "x")
