"""What the tests of headers share: a text that NVRTC must take, and which headers the installed CCCL has."""

from __future__ import annotations

from pathlib import Path

import pytest

from cujit.errors import ToolError
from cujit.toolchain.std_headers import STD_HEADERS
from cujit.toolchain.toolset import Toolchain

__all__ = ["available", "compiles"]


def compiles(toolchain: Toolchain, text: str, *options: str) -> None:
    arguments = ["-arch=compute_90", *options]
    arguments += [f"--include-path={path}" for path in toolchain.headers.paths]
    with toolchain.nvrtc.program(text.encode(), b"/cujit-test/text.cu") as program:
        try:
            program.compile([a.encode() for a in arguments])
        except ToolError as e:
            pytest.fail(e.log)


def available(toolchain: Toolchain, header: str) -> bool:
    """Older CCCL has fewer headers in cuda/std."""
    if "__has_include" in STD_HEADERS[header]:
        return True
    wanted = [line.split("<")[1].rstrip(">") for line in STD_HEADERS[header].splitlines() if "<cuda" in line]
    return all(any((Path(d) / w).is_file() for d in toolchain.headers.paths) for w in wanted)
